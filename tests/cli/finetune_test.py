#!/usr/bin/env python3
"""`rullama finetune`: finetune_test.py PROGRAM [unittest's options]."""

import json
import pathlib
import signal
import struct
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree

import cli_test
from cli_test import CPU, MODELS

BASE = MODELS / "g4-e2b.q4_0.gguf"
FACTS = MODELS.parent / "finetune" / "facts.jsonl"
QUICK = ("--samples", "0", "--lora-r", "4", "--lora-dropout", "0.1")
SIX = (*QUICK, "--max-steps", "6")


class Finetune(cli_test.Case):
    def train(self, out, *args, **how):
        """The lines of --json, read."""
        done = self.rullama("finetune", BASE, *CPU, "--data", FACTS, "-o", self.folder / out, "--json", *args, **how)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def refuse(self, *args, names, code=1, **how):
        return self.refused("finetune", BASE, *CPU, "-o", self.folder / "out", *args, names=names, code=code, **how)

    def read(self, name):
        return (self.folder / name).read_bytes()

    def test_a_folder_as_peft_has_it(self):
        lines = self.train("out", *SIX, "--target-modules", "q_proj,down_proj", "--lora-alpha", "6", "--rslora")
        last = lines.pop()
        self.assertEqual([s["step"] for s in lines], [1, 2, 3, 4, 5, 6])
        for step in lines:
            self.assertLessEqual({"steps", "epoch", "loss", "lr", "grad_norm", "tokens", "tokens_per_s"}, set(step))
        self.assertEqual((last["steps"], last["end"], last["final_loss"]), (6, "complete", lines[-1]["loss"]))
        config = json.loads(self.read("out/adapter_config.json"))
        self.assertEqual((config["peft_type"], config["r"], config["lora_alpha"], config["use_rslora"]), ("LORA", 4, 6, True))
        self.assertEqual(sorted(config["target_modules"]), ["down_proj", "q_proj"])
        weights = self.read("out/adapter_model.safetensors")
        header = json.loads(weights[8:8 + struct.unpack("<Q", weights[:8])[0]])
        self.assertEqual(header["base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"]["shape"][0], 4)
        logged = [json.loads(line) for line in self.read("out/training.jsonl").splitlines()]
        self.assertEqual(logged, lines)
        plot = xml.etree.ElementTree.fromstring(self.read("out/loss.svg"))
        self.assertEqual(sum(1 for e in plot.iter() if e.tag.endswith("polyline")), 3)
        # and it is of use
        with_it = self.rullama("logits", BASE, *CPU, "--tokens", "2,5", "--lora", self.folder / "out").stdout
        self.assertNotEqual(with_it, self.rullama("logits", BASE, *CPU, "--tokens", "2,5").stdout)

    def test_a_file_with_its_settings_beside_it_and_answers_before_and_after(self):
        done = self.rullama("finetune", BASE, *CPU, "--data", FACTS, "--eval-data", FACTS, "-o",
                            self.folder / "new" / "a.safetensors", "--num-epochs", "2", "--samples", "2")
        self.assertEqual(sorted(f.name for f in (self.folder / "new").iterdir()),
                         ["a.checkpoint.safetensors", "a.loss.svg", "a.safetensors", "a.training.jsonl",
                          "adapter_config.json"])
        self.assertEqual(done.stdout.count("before:"), 2)
        self.assertEqual(done.stdout.count("after:"), 2)
        for text in ["12 examples from 12 rows", "to be predicted", "33-64", "step 6/6", "loss", "tok/s", "ETA"]:
            self.assertIn(text, done.stderr)
        self.assertEqual(done.stderr.count("eval loss"), 2)

    def test_a_kill_and_a_restart_change_no_bit(self):
        straight = self.train("straight", *QUICK, "--max-steps", "40")
        args = ["finetune", BASE, *CPU, "--data", FACTS, "-o", self.folder / "killed", "--json", *QUICK, "--max-steps",
                "40", "--save-steps", "4"]
        with subprocess.Popen([cli_test.PROGRAM, *map(str, args)], env=self.env, stdout=subprocess.PIPE, text=True) as p:
            for line in p.stdout:
                if json.loads(line)["step"] >= 14:
                    p.send_signal(signal.SIGKILL)
                    break
        self.assertFalse((self.folder / "killed" / "adapter_model.safetensors").exists())
        remains = self.folder / "killed" / "checkpoint.safetensors.a1B2c3"  # as if it was killed while it wrote
        remains.write_bytes(b"a part")
        again = self.train("killed", *QUICK, "--max-steps", "40", "--save-steps", "4", "--resume")
        self.assertFalse(remains.exists())
        self.assertGreater(again[0]["step"], 12)
        self.assertEqual(self.read("killed/adapter_model.safetensors"), self.read("straight/adapter_model.safetensors"))
        self.assertEqual([json.loads(s)["loss"] for s in self.read("killed/training.jsonl").splitlines()],
                         [s["loss"] for s in straight[:-1]])

    def test_one_training_at_a_time_writes_into_a_folder(self):
        args = ["finetune", BASE, *CPU, "--data", FACTS, "-o", self.folder / "out", *QUICK, "--max-steps", "100000", "--json"]
        with subprocess.Popen([cli_test.PROGRAM, *map(str, args)], env=self.env, stdout=subprocess.PIPE, text=True) as p:
            p.stdout.readline()
            for more in [(), ("--force",), ("--resume",)]:
                self.refuse("--data", FACTS, *SIX, *more, names=["another training is writing into", "out", "-o"])
            self.refused("finetune", BASE, *CPU, "--data", FACTS, "-o", self.folder / "out" / "b.safetensors", *SIX,
                         names="another training")  # adapter_config.json would be both's
            self.train("elsewhere", *SIX)
            p.kill()
        self.train("out", *SIX, "--force")  # what is killed holds nothing

    def test_ctrl_c_saves(self):
        self.saves_at(signal.SIGINT)

    def test_sigterm_saves(self):
        self.saves_at(signal.SIGTERM)

    def saves_at(self, how):
        args = ["finetune", BASE, *CPU, "--data", FACTS, "-o", self.folder / "out", *QUICK, "--max-steps", "100000", "--json"]
        with subprocess.Popen([cli_test.PROGRAM, *map(str, args)], env=self.env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as p:
            p.stdout.readline()
            p.send_signal(how)
            out, err = p.communicate(timeout=cli_test.WALL_LIMIT)
        self.assertEqual(p.returncode, 130, err)
        self.assertIn("--resume", err)
        last = json.loads(out.splitlines()[-1])
        self.assertEqual(last["end"], "cancelled")
        for name in ["adapter_model.safetensors", "checkpoint.safetensors", "loss.svg"]:
            self.assertTrue((self.folder / "out" / name).exists(), name)

    def test_resume_without_a_checkpoint_begins_and_with_other_settings_is_refused(self):
        self.train("out", *SIX, "--resume")
        before = self.read("out/adapter_model.safetensors")
        self.refuse("--data", FACTS, *SIX, names=["out/adapter_model.safetensors", "--resume", "--force"])
        self.refuse("--data", FACTS, "--lora-r", "8", "--max-steps", "6", "--resume", names=["another --lora-r (4)"])
        self.refuse("--data", FACTS, *SIX, "--resume", "--learning-rate", "1e-3", names=["--learning-rate", "0.0002"])
        other = self.folder / "other.jsonl"
        other.write_text('{"text": "something else"}\n')
        self.refuse("--data", other, *SIX, "--resume", names=["--data", "checkpoint.safetensors"])
        self.assertEqual(self.read("out/adapter_model.safetensors"), before)
        self.refuse("--data", FACTS, *SIX, "--resume", "--target-modules", "q_proj", names=["checkpoint.safetensors", "targets"])
        self.refuse("--data", FACTS, *SIX, "--resume", "--mixed-precision", names=["checkpoint.safetensors", "--mixed-precision"])
        self.refused("finetune", MODELS / "g4-e2b.f32.gguf", *CPU, "-o", self.folder / "out", "--data", FACTS, *SIX, "--resume",
                     names=["checkpoint.safetensors", "MODEL"])
        checkpoint = self.folder / "out" / "checkpoint.safetensors"
        whole = checkpoint.read_bytes()
        header = json.dumps({"__metadata__": {"steps": "6", "note": "[" * 2_000_000}}).encode()
        checkpoint.write_bytes(struct.pack("<Q", len(header)) + header)
        self.refuse("--data", FACTS, *SIX, "--resume", names=["checkpoint.safetensors", "no checkpoint"])
        checkpoint.write_bytes(whole)
        (self.folder / "out" / "training.jsonl").write_text("[" * 2_000_000 + '\n{"step": 1, "loss"')
        again = self.train("out", *SIX, "--resume")
        self.assertEqual(len(again), 1, "nothing was left to train")
        self.assertEqual((again[0]["steps"], again[0]["final_loss"]), (6, None), "the log is lost, the training is not")
        self.assertEqual(self.read("out/adapter_model.safetensors"), before)

    def test_nothing_of_the_users_is_written_over(self):
        out = self.folder / "out"
        self.train("out", *SIX)
        kept = self.read("out/adapter_model.safetensors")
        (out / "checkpoint.safetensors").unlink()
        self.refuse("--data", FACTS, *SIX, "--resume", names=["adapter_model.safetensors", "no checkpoint", "--force"])
        self.assertEqual(self.read("out/adapter_model.safetensors"), kept)
        mine = out / "training.jsonl"
        mine.write_bytes(FACTS.read_bytes())
        for flag in ["--force", "--resume"]:
            self.refuse("--data", mine, *SIX, flag, names=["training.jsonl", "-o"])
            self.refuse("--data", FACTS, "--eval-data", mine, *SIX, flag, names=["training.jsonl", "-o"])
            self.assertEqual(mine.read_bytes(), FACTS.read_bytes())
        model = self.folder / "model.safetensors"
        model.write_bytes(BASE.read_bytes())
        self.refused("finetune", model, *CPU, "--data", FACTS, "-o", model, "--force", names="model.safetensors")
        self.assertEqual(model.read_bytes(), BASE.read_bytes())

    def test_a_disk_that_takes_no_checkpoint_costs_no_training(self):
        (self.folder / "out" / "checkpoint.safetensors").mkdir(parents=True)
        done = self.rullama("finetune", BASE, *CPU, "--data", FACTS, "-o", self.folder / "out", *SIX, "--force", code=1)
        self.assertRegex(done.stderr, "checkpoint.safetensors.* failed: .*the adapter is whole, in .*adapter_model.safetensors")
        self.rullama("logits", BASE, *CPU, "--tokens", "2,5", "--lora", self.folder / "out")

    def test_a_folder_that_cannot_be_made_is_known_before_the_first_answer(self):
        (self.folder / "plain").write_text("mine")
        self.refused("finetune", BASE, *CPU, "--data", FACTS, "-o", self.folder / "plain" / "a.safetensors", names="plain")

    def test_remarks_go_with_json_too(self):
        done = self.rullama("finetune", BASE, *CPU, "--data", FACTS, "-o", self.folder / "out", *QUICK, "--max-steps", "1", "--json",
                            "--max-length", "64", "--warmup-steps", "1")
        self.assertIn("longer than --max-length 64", done.stderr)
        self.assertIn("--warmup-steps 1", done.stderr)

    def test_the_same_target_twice_is_one(self):
        self.train("one", *SIX, "--target-modules", "q_proj")
        self.train("two", *SIX, "--target-modules", "q_proj,q_proj")
        self.assertEqual(self.read("one/adapter_model.safetensors"), self.read("two/adapter_model.safetensors"))

    def test_an_adapter_that_is_no_number_is_not_written(self):
        done = self.rullama("finetune", BASE, *CPU, "--data", FACTS, "-o", self.folder / "out", *QUICK, "--max-steps", "1",
                            "--learning-rate", "1e38", "--weight-decay", "100", code=1)  # the step itself overflows
        self.assertIn("no finite numbers", done.stderr)
        self.assertFalse((self.folder / "out" / "adapter_model.safetensors").exists())

    def test_training_goes_on_from_an_adapter(self):
        first = self.train("first", *SIX)
        more = self.train("second", "--max-steps", "2", "--samples", "0", "--init-adapter", self.folder / "first")
        self.assertLess(more[0]["loss"], first[0]["loss"])
        self.assertEqual(json.loads(self.read("second/adapter_config.json"))["r"], 4)
        self.refuse("--data", FACTS, "--init-adapter", self.folder / "first", "--lora-r", "8", names=["--lora-r 8", "rank is 4"])
        self.refuse("--data", FACTS, "--init-adapter", self.folder / "none", names="none")

    def test_what_was_learnt_by_heart_is_the_answer(self):
        row, base = self.folder / "one.jsonl", self.folder / "base.f32"
        row.write_text('{"prompt": "The word is", "completion": " xylophone!"}\n')
        done = self.rullama("finetune", BASE, *CPU, "--data", row, "-o", self.folder / "out", "--json", "--lora-r", "4", "--lora-alpha",
                            "8", "--max-steps", "30", "--learning-rate", "1e-2", "--add-eos", "--samples", "1")
        sample, = json.loads(done.stdout.splitlines()[-1])["samples"]
        self.assertNotEqual(sample["before"], " xylophone!")
        self.assertEqual(sample["after"], " xylophone!")
        dumps = []
        for lora in [(), ("--lora", f"{self.folder / 'out'}:0"), ("--lora", self.folder / "out")]:
            self.rullama("logits", BASE, *CPU, "--tokens", "2,5,9", "--all", "--dump", base, *lora)
            dumps.append(base.read_bytes())
        self.assertEqual(dumps[0], dumps[1], "an adapter that is off leaves the base model as it is")
        self.assertNotEqual(dumps[0], dumps[2])

    def test_early_stopping_keeps_the_best(self):
        flags = (*QUICK, "--max-steps", "200", "--learning-rate", "0.3", "--eval-data", FACTS, "--eval-steps", "2",
                 "--lr-scheduler", "constant", "--early-stopping")
        lines = self.train("out", *flags, "2")
        self.assertEqual(lines[-1]["end"], "early")
        losses = [s["eval_loss"] for s in lines[:-1] if "eval_loss" in s]
        self.assertEqual(losses.index(min(losses)), len(losses) - 3)
        # a step that changes nothing measures what was written
        again = self.train("again", "--samples", "0", "--init-adapter", self.folder / "out", "--max-steps", "1",
                           "--learning-rate", "1e-30", "--eval-data", FACTS)
        self.assertAlmostEqual(again[0]["eval_loss"], min(losses), delta=1e-4)
        # what ended early stays as it is
        best = self.read("out/adapter_model.safetensors")
        stayed = self.train("out", *flags, "2", "--resume")
        self.assertEqual([line.get("end") for line in stayed], ["early"])
        self.assertEqual(self.read("out/adapter_model.safetensors"), best)
        # with a longer patience it goes on as if it had had it from the start
        whole = self.train("whole", *flags, "3")
        more = self.train("out", *flags, "3", "--resume")
        self.assertEqual((more[-1]["end"], len(lines) + len(more) - 1), (whole[-1]["end"], len(whole)))
        self.assertGreater(len(more), 1)
        self.assertEqual(self.read("out/adapter_model.safetensors"), self.read("whole/adapter_model.safetensors"))

    def test_what_is_wrong_is_named(self):
        bad = self.folder / "bad.jsonl"
        bad.write_text('{"text": "fine"}\n{"text": 7}\n')
        self.refuse("--data", bad, names=[f"{bad}:2: ", "text"])
        self.refuse("--data", self.folder / "none.jsonl", names="none.jsonl")
        self.refuse("--data", FACTS, "--eval-data", bad, names=f"{bad}:2: ")
        for args, names in [(("--target-modules", "q_proj,knee_proj"), ["knee_proj", "q_proj"]),
                            (("--max-length", "100000000"), ["--max-length", "context"]),
                            (("--max-length", "4"), ["--max-length"]), (("--batch-size", "0"), ["--batch-size"]),
                            (("--early-stopping", "2"), ["--eval-data"]), (("--learning-rate", "0"), ["--learning-rate"]),
                            (("--num-epochs", "-1"), ["--num-epochs"]), (("--lora-dropout", "1"), ["--lora-dropout"]),
                            (("--weight-decay", "-1"), ["--weight-decay"]), (("--weight-decay", "inf"), ["--weight-decay"]),
                            (("--learning-rate", "1e39"), ["--learning-rate"]), (("--lora-alpha", "nan"), ["--lora-alpha"]),
                            (("--lora-alpha", "inf"), ["--lora-alpha"])]:
            with self.subTest(args=args):
                self.refuse("--data", FACTS, *args, "--force", names=names)
        done = self.rullama("finetune", BASE, *CPU, "--data", FACTS, "-o", self.folder / "out", "--learning-rate", "1e30",
                            "--samples", "0", code=1)
        self.assertRegex(done.stderr, "step [0-9]+: the loss is no longer a number; use a smaller --learning-rate")
        for args, names in [(("--lora-r", "0"), "--lora-r"), (("--samples", "9"), "--samples"), (("--lr-scheduler", "sawtooth"), "sawtooth"), ((), "--data")]:
            data = ("--data", FACTS) if args else ()
            self.refuse(*data, *args, names=[names, "--help"], code=2)
        self.refuse("--data", FACTS, "--epochs", "3", names=["no option '--epochs'", "--help"], code=2)
        self.refused("finetune", BASE, *CPU, "--data", FACTS, "-o", self.folder / "a.gguf", names=["a.gguf", "rullama export"])
        here = self.folder / "file.txt"
        here.write_text("mine")
        self.refused("finetune", BASE, *CPU, "--data", FACTS, "-o", here, names="file.txt")
        self.assertEqual(here.read_text(), "mine")

    def test_data_may_come_through_a_pipe(self):
        out, args = self.folder / "out", (*QUICK, "--max-steps", "1")
        self.rullama("finetune", BASE, *CPU, "--data", "-", "-o", out, *args, stdin=FACTS.read_text())
        self.train("file", *args)
        self.assertEqual(self.read("out/adapter_model.safetensors"), self.read("file/adapter_model.safetensors"))
        self.refuse("--data", "-", "--force", stdin='{"text": "fine"}\n{"text": 7}\n', names=["-:2: ", "text"])

    def test_a_target_that_the_model_lacks(self):
        gemma3 = MODELS / "g3-270m.q8_0.gguf"
        self.refused("finetune", gemma3, *CPU, "--data", FACTS, "-o", self.folder / "out", "--target-modules",
                     "per_layer_input_gate", names=["per_layer_input_gate"])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    cli_test.PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
