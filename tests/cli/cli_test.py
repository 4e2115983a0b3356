#!/usr/bin/env python3
"""Tests of the command line: cli_test.py PROGRAM [unittest's options and names]."""

import hashlib
import json
import os
import pathlib
import pty
import re
import shutil
import resource
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

MODELS = pathlib.Path(__file__).resolve().parent.parent / "data" / "models"
GEMMA3 = MODELS / "g3-270m.q8_0.gguf"
GEMMA4 = MODELS / "g4-e2b.q4_0.gguf"
PROGRAM = ""  # main() sets it
WALL_LIMIT = 60  # seconds, of a process that hangs
CPU = ("--device", "cpu")
GREEDY = (*CPU, "--raw", "--temp", "0")


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.env = {"PATH": os.environ.get("PATH", ""), "HOME": folder.name,
                    "OLLAMA_MODELS": str(self.folder / "store")}
        for name in ("VK_DRIVER_FILES", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LD_LIBRARY_PATH"):
            if name in os.environ:
                self.env[name] = os.environ[name]

    def rullama(self, *args, code=0, stdin=None, stdout=subprocess.PIPE):
        """Runs the program, which has to end with `code`."""
        source = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin.encode()}
        done = subprocess.run([PROGRAM, *map(str, args)], stdout=stdout, stderr=subprocess.PIPE, env=self.env,
                              timeout=WALL_LIMIT, **source)
        done.stdout = (done.stdout or b"").decode(errors="replace")
        done.stderr = done.stderr.decode(errors="replace")
        self.assertEqual(done.returncode, code, f"rullama {' '.join(map(str, args))}\n{done.stdout}{done.stderr}")
        return done

    def json(self, *args, keys, **how):
        """The one JSON object on stdout, which has at least `keys`."""
        out = self.rullama(*args, "--json", **how).stdout
        result = json.loads(out)
        self.assertEqual(out.count("\n"), 1, out)
        self.assertLessEqual(set(keys.split()), set(result), out)
        return result

    def refused(self, *args, names, code=1, **how):
        """An error: nothing on stdout and one line on stderr that names the thing."""
        done = self.rullama(*args, code=code, **how)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Arullama: [^\n]+\n\Z")
        for name in [names] if isinstance(names, str) else names:
            self.assertIn(name, done.stderr)
        return done.stderr


class Commands(Case):
    def test_wrong_command_lines_exit_2_and_name_the_help(self):
        for args, named in [((), "--help"), (("run",), "MODEL"), (("fly",), "fly"), (("list", "--nosuch"), "--nosuch"),
                            (("run", GEMMA3, "x", "-n", "many"), "many"), (("inspect",), "rullama inspect --help"),
                            (("bench",), "MODEL"), (("run", GEMMA3, "x", "--kv-type", "f8"), "f8"),
                            (("run", GEMMA3, "x", "--raw", "--chat"), "--chat"),
                            (("run", GEMMA3, "x", "--prompt-cache", ""), "--prompt-cache"),
                            (("bench", GEMMA3, "-p", "8", "-n", "4", "-c", "11"), "12 positions")]:
            with self.subTest(args=args):
                self.refused(*args, code=2, names=[named, "--help"])

    def test_errors_exit_1(self):
        for args, named in [(("inspect", "/no/file.gguf"), "/no/file.gguf"),
                            (("run", "/no/file.gguf", "x"), "/no/file.gguf"),
                            (("run", "nosuch:1b", "x"), "nosuch:1b"), (("inspect", self.folder), str(self.folder)),
                            (("run", GEMMA3, "x", "--device", "toaster"), "'toaster'"),
                            (("run", GEMMA3, *CPU), "prompt"), (("run", GEMMA3, *CPU, "--tokens", "1,99999"), "99999"),
                            (("run", GEMMA3, *CPU, "--tokens", "1,x"), "x"),
                            (("run", GEMMA3, *CPU, "x", "--tokens", "1"), "--tokens"),
                            (("tokenize", GEMMA3, "--ids", "99999"), "99999"),
                            (("render", GEMMA3, "/no/messages.json"), "/no/messages.json"),
                            (("perplexity", GEMMA3, "/no/text.txt", *CPU), "/no/text.txt")]:
            with self.subTest(args=args):
                self.refused(*args, names=named)

    def test_help_has_examples(self):
        self.assertIn("rullama", self.rullama("--version").stdout)
        overview = self.rullama("--help").stdout
        for name in "run list devices inspect tokenize render logits perplexity bench merge export completion".split():
            with self.subTest(command=name):
                self.assertIn(name, overview)
                text = self.rullama(name, "--help").stdout
                self.assertIn("Examples:\n", text)
                self.assertIn(f"rullama {name}", text.split("Examples:\n")[1])

    def test_list_and_devices(self):
        self.assertEqual(self.json("list", keys="models stores")["models"], [])
        self.assertIn(str(self.folder), self.rullama("list").stderr)
        devices = self.json("devices", keys="devices")["devices"]
        self.assertIn("cpu", [d["id"] for d in devices])

    def test_inspect(self):
        info = self.json("inspect", GEMMA3, keys="file version metadata tensors formats parameters")
        self.assertEqual(info["metadata"]["general.architecture"]["value"], "gemma3")
        self.assertEqual(len(info["tensors"]), info["tensor_count"])
        self.assertIn("gemma3", self.rullama("inspect", GEMMA3).stdout)

    def test_tokenize_there_and_back(self):
        for text in ["hi there", "", " two  spaces\n", "naïve 日本 🙂"]:
            with self.subTest(text=text):
                split = self.json("tokenize", GEMMA3, text, "--no-bos", keys="ids pieces")
                self.assertEqual(len(split["ids"]), len(split["pieces"]))
                if split["ids"]:
                    ids = ",".join(map(str, split["ids"]))
                    self.assertEqual(self.json("tokenize", GEMMA3, "--ids", ids, keys="text")["text"], text)
        with_bos = self.json("tokenize", GEMMA3, "hi", keys="ids")["ids"]
        self.assertEqual(with_bos[1:], self.json("tokenize", GEMMA3, "hi", "--no-bos", keys="ids")["ids"])

    def test_render(self):
        file = self.folder / "messages.json"
        file.write_text('[{"role": "user", "content": "hi"}]')
        made = self.json("render", GEMMA3, file, keys="text tokens opens_thought")
        self.assertEqual(made["text"], "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n")
        for wrong, *named in [("", "JSON"), ("[", "line 1"), ("7", "list"), ('[{"role": "king", "content": "x"}]', "king"),
                              ('[{"role": "user"}]', "message 1", "content"),
                              ('[{"role": "user", "content": "x"}, {"role": "assistant", "content": null}]', "message 2")]:
            with self.subTest(wrong=wrong):
                file.write_text(wrong)
                self.refused("render", GEMMA3, file, names=[str(file), *named])

    def test_logits(self):
        made = self.json("logits", GEMMA3, "hello", *CPU, "--raw", "--top", "3", "--all", keys="tokens positions")
        self.assertEqual([p["pos"] for p in made["positions"]], list(range(len(made["tokens"]))))
        top = made["positions"][-1]["top"]
        self.assertEqual([set(t) for t in top], [{"id", "piece", "logprob"}] * 3)
        self.assertEqual(top, sorted(top, key=lambda t: -t["logprob"]))
        dump = self.folder / "logits.f32"
        self.rullama("logits", GEMMA3, "hello", *CPU, "--raw", "--all", "--dump", dump)
        self.assertEqual(dump.stat().st_size, 4 * 473 * len(made["tokens"]))

    def test_perplexity(self):
        scores = self.json("perplexity", GEMMA3, "-", *CPU, stdin="a text to be scored\n" * 4,
                           keys="perplexity nll tokens fast")
        self.assertLessEqual({"perplexity", "kl_mean", "kl_p99", "top1_agreement"}, set(scores["fast"]))
        self.assertNotIn("fast", self.json("perplexity", GEMMA3, "-", *CPU, "--exact", stdin="a text", keys="nll"))

    def test_bench(self):
        self.json("bench", GEMMA3, *CPU, "-p", "4", "-n", "4", "-r", "1",
                  keys="device model prompt_tps decode_tps bytes_per_token decode_gbps peak_gbps host_rss_mb device_mb "
                       "first_token_s")

    def test_bench_fills_a_context_to_the_last_position(self):
        made = self.json("bench", GEMMA3, *CPU, "-p", "8", "-n", "4", "-c", "12", "-r", "1", keys="decode_tps")
        self.assertGreater(made["decode_tps"], 0)
        self.refused("bench", GEMMA3, *CPU, "-p", "999999", names=["--prompt-tokens 999999", "positions"])

    def test_bench_options_before_ops_and_train_are_not_lost(self):
        self.refused("bench", *CPU, "ops", "average_pool", code=2, names=["--device", "`bench ops`"])
        self.refused("bench", "-p", "4", "train", GEMMA3, code=2,  # which has no such option
                     names=["--prompt-tokens: is of no use to `bench train`"])
        self.refused("bench", GEMMA3, "ops", code=2, names=["MODEL", "`bench ops`"])

    def test_bench_of_ops(self):
        listed = json.loads(self.rullama("bench", "ops", "--list", "--json").stdout)
        self.assertEqual({key for row in listed for key in row}, {"op", "format", "shape"})
        formats = {}
        for row in listed:
            formats.setdefault(row["op"], set()).add(row["format"])
        every = set("F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K".split())
        for op in "matmul matmul_transposed embedding expert_matmul".split():
            self.assertEqual(formats[op], every, op)
        measured = json.loads(self.rullama("bench", "ops", "pool", *CPU, "--json").stdout)
        self.assertEqual({row["op"] for row in measured}, {"average_pool", "average_pool_2x2"})
        for row in measured:
            self.assertLessEqual({"op", "format", "shape", "seconds", "gbps", "gflops", "share"}, set(row))
            self.assertGreater(row["seconds"], 0)


class Run(Case):
    KEYS = "text tokens prompt_tokens finish_reason timings"

    def answer(self, *args, **how):
        return self.json("run", GEMMA3, *GREEDY, *args, keys=self.KEYS, **how)

    def test_one_answer_is_the_same_as_text_and_as_json(self):
        made = self.answer("hello", "-n", "8")
        self.assertLessEqual({"load_s", "prompt_tps", "decode_tps"}, set(made["timings"]))
        self.assertEqual((len(made["tokens"]), made["finish_reason"]), (8, "length"))
        plain = self.rullama("run", GEMMA3, *GREEDY, "hello", "-n", "8")
        self.assertEqual(plain.stdout, made["text"] + "\n")
        ids = self.json("tokenize", GEMMA3, "hello", keys="ids")["ids"]
        self.assertEqual(made["prompt_tokens"], len(ids))
        self.assertEqual(self.answer("--tokens", ",".join(map(str, ids)), "-n", "8")["tokens"], made["tokens"])
        self.assertEqual(self.answer("hello", "-n", "0")["tokens"], [])

    def test_every_model_answers(self):
        for model in sorted(MODELS.glob("*.gguf")):
            with self.subTest(model=model.name):
                made = self.json("run", model, *GREEDY, "hello", "-n", "4", "--ignore-eos", keys=self.KEYS)
                self.assertEqual(len(made["tokens"]), 4)

    def test_piped_text_comes_after_the_prompt(self):
        whole = self.answer("one\n\ntwo", "-n", "4")
        self.assertEqual(self.answer("one", "-n", "4", stdin="two\n")["tokens"], whole["tokens"])
        self.assertEqual(self.answer("-n", "4", stdin="one\n\ntwo")["tokens"], whole["tokens"])
        self.refused("run", GEMMA3, *GREEDY, stdin="", names="prompt")

    def test_the_same_seed_gives_the_same_answer(self):
        def tokens(seed):
            return self.json("run", GEMMA3, *CPU, "--raw", "hello", "--temp", "2", "--seed", seed, "-n", "24",
                             "--ignore-eos", keys="tokens seed")["tokens"]
        self.assertEqual(tokens(7), tokens(7))
        self.assertNotEqual(tokens(7), tokens(8))

    def test_stop_text_ends_the_answer_and_is_not_part_of_it(self):
        whole = self.answer("hello", "-n", "8")["text"]
        stop = whole[2:4]
        made = self.answer("hello", "-n", "8", "--stop", stop)
        self.assertEqual((made["text"], made["finish_reason"]), (whole[: whole.index(stop)], "stop"))
        self.assertEqual(self.answer("hello", "-n", "8", "--stop", "no such", "--stop", stop)["text"], made["text"])

    def test_a_full_context_is_said_and_slide_goes_on(self):
        args = ("run", GEMMA3, *GREEDY, "hello", "--ignore-eos", "-c", "16", "-n", "40")
        self.assertRegex(self.rullama(*args).stderr, "context of 16 positions is full; -c gives more")
        self.assertEqual(len(self.json(*args, "--slide", keys=self.KEYS)["tokens"]), 40)
        self.refused("run", GEMMA3, *GREEDY, "many words " * 40, "-c", "16", names=["16", "-c"])

    def test_D3_past_the_window(self):
        """80 tokens past a window of 16, as a reference with full masks has them; a context of 64 ends or slides."""
        all = json.loads((MODELS.parent / "expected/past_the_window.json").read_text())
        for name, expected in all.items():
            with self.subTest(model=name):
                ids = ",".join(map(str, expected["prompt"]))
                args = ("run", MODELS / f"{name}.gguf", *GREEDY, "--seed", "3", "--exact", "--kv-type", "f32",
                        "--ignore-eos", "-n", "80", "--tokens", ids)
                sure = next((i for i, m in enumerate(expected["greedy_margin"]) if m < 1e-3), 80)
                self.assertEqual(self.json(*args, keys=self.KEYS)["tokens"][:sure], expected["greedy"][:sure])
                short = self.json(*args, "-c", "64", keys=self.KEYS)["tokens"]
                self.assertEqual(short, expected["greedy"][: len(short)])
                self.assertIn(len(short), (59, 60))
                self.assertRegex(self.rullama(*args, "-c", "64").stderr, "context of 64 positions is full")
                self.assertEqual(len(self.json(*args, "-c", "64", "--slide", keys=self.KEYS)["tokens"]), 80)

    def test_D6_no_half_characters(self):
        def told(ids):
            return self.json("tokenize", GEMMA3, "--ids", ",".join(map(str, ids)), keys="text")["text"]
        ids = self.json("tokenize", GEMMA3, "\U0001FAE9", "--no-bos", keys="ids")["ids"]
        self.assertEqual(len(ids), 4, "the tiny vocabulary has it as bytes")
        self.assertEqual([told(ids), told(ids[:2]), told(ids[2:3])], ["\U0001FAE9", "\ufffd", "\ufffd"])
        for seed in range(4):  # hot: the text is full of loose bytes
            args = ("run", GEMMA3, *CPU, "--raw", "x", "--temp", "50", "--top-k", "0", "--top-p", "1", "--seed", seed,
                    "-n", "60", "--ignore-eos")
            made = self.json(*args, keys=self.KEYS)
            streamed = subprocess.run([PROGRAM, *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True,
                                      env=self.env, timeout=WALL_LIMIT).stdout
            self.assertEqual(streamed.decode(), made["text"] + "\n")
            self.assertEqual(made["text"], told(made["tokens"]))

    def test_prompt_cache(self):
        cache = self.folder / "prompt.cache"
        args = ("run", GEMMA3, *GREEDY, "hello hello hello", "-n", "8", "-v")
        plain = self.rullama(*args)
        first = self.rullama(*args, "--prompt-cache", cache)
        second = self.rullama(*args, "--prompt-cache", cache)
        self.assertEqual([first.stdout, second.stdout], [plain.stdout] * 2)
        whole, filled, kept = (re.search(r"\((\d+) evaluated\)", r.stderr)[1] for r in (plain, first, second))
        self.assertEqual([filled, kept], [whole, "0"], "tokens of the prompt that were evaluated")
        self.refused(*args[:-1], "--exact", "--prompt-cache", cache, names=[str(cache), "without --exact"])
        whole = cache.read_bytes()
        self.refused("run", GEMMA4, *GREEDY, "hello", "--prompt-cache", cache, names=str(cache))
        for size in (0, 1, 8, 40, len(whole) // 2, len(whole) - 1):
            with self.subTest(size=size):
                cache.write_bytes(whole[:size])
                self.refused("run", GEMMA3, *GREEDY, "hello", "--prompt-cache", cache, names=str(cache))
        # before the model is loaded
        self.refused("run", "/no/model", *GREEDY, "hello", "--prompt-cache", "/no/folder/cache",
                     names="/no/folder/cache")
        cache.write_bytes(whole)
        cache.chmod(0o400)
        self.assertEqual(self.rullama(*args, "--prompt-cache", cache).stdout, plain.stdout)
        trained = bytearray(GEMMA3.read_bytes())  # other weights of the same shape
        for at in range(len(trained) - 200000, len(trained), 34):
            trained[at + 5] ^= 1
        (self.folder / "trained.gguf").write_bytes(trained)
        self.refused("run", self.folder / "trained.gguf", *GREEDY, "hello hello hello", "--prompt-cache", cache,
                     names=[str(cache), "another model"])
        other = shutil.copy(GEMMA3, self.folder / "model.gguf")
        self.refused("run", other, *GREEDY, "hello", "--prompt-cache", other, names=[str(other), "another name"])
        self.assertEqual(other.read_bytes(), GEMMA3.read_bytes())


class Adapters(Case):
    BASE = MODELS / "g4-e2b.f32.gguf"
    PEFT = MODELS.parent / "lora" / "e2b-f32.adapter"  # scale 2
    GGUF = MODELS.parent / "lora" / "e2b-f32.adapter.gguf"

    def top(self, *more):
        out = self.json("logits", *more, self.BASE, *CPU, "--tokens", "2,281,382,310", "--exact", "--top", "3",
                        keys="positions")
        return [(t["id"], t["logprob"]) for t in out["positions"][0]["top"]]

    def test_a_prompt_cache_belongs_to_its_adapters(self):
        args = ("run", self.BASE, *GREEDY, "hello", "-n", "1", "--prompt-cache", self.folder / "prompt.cache")
        self.rullama(*args, "--lora", self.PEFT)
        self.refused(*args, names=["prompt.cache", "other adapters"])

    def test_both_kinds_of_file_mean_the_same_and_scale_0_is_the_base(self):
        base, peft = self.top(), self.top("--lora", self.PEFT)
        self.assertNotEqual(base, peft)
        self.assertEqual(self.top("--lora", self.PEFT / "adapter_model.safetensors"), peft)
        self.assertEqual(self.top("--lora", self.GGUF), peft)
        self.assertEqual(self.top("--lora", f"{self.GGUF}:0"), base)
        for (id_a, a), (id_b, b) in zip(self.top("--lora", f"{self.PEFT}:0.5", "--lora", f"{self.GGUF}:0.5"), peft):
            self.assertEqual(id_a, id_b)
            self.assertAlmostEqual(a, b, delta=1e-3)

    def test_settings_in_the_file_count_before_those_beside_it(self):
        made = self.folder / "adapter_model.safetensors"  # has them inside, PEFT's own file has not
        self.rullama("export", self.PEFT, "--model", self.BASE, "-o", made)
        beside, = self.folder.glob("adapter_config.json")
        expected, config = self.top("--lora", self.PEFT), json.loads(beside.read_text())
        for change in [{"lora_alpha": 2 * config["lora_alpha"]}, {"r": 1}, {"peft_type": "IA3"}]:
            beside.write_text(json.dumps(config | change))
            self.assertEqual(self.top("--lora", made), expected, change)
        shutil.copy(self.PEFT / "adapter_model.safetensors", made)
        beside.write_text(json.dumps(config | {"lora_alpha": 2 * config["lora_alpha"]}))
        self.assertNotEqual(self.top("--lora", made), expected)

    def test_a_wrong_one_is_named(self):
        for lora, names in [("/no/adapter", "/no/adapter"), (f"{self.PEFT}:much", [f"{self.PEFT}:much", "scale"]),
                            (f"{self.GGUF}:nan", "'nan' is no scale"), (f"{self.GGUF}:1e39", "'1e39' is no scale"),
                            (self.BASE, ["general.type", "adapter"]), (self.folder, "adapter_model.safetensors"),
                            (MODELS.parent / "lora" / "g3-f16.adapter.gguf", ["attn_", "another model"])]:
            with self.subTest(lora=lora):
                self.refused("logits", self.BASE, "--tokens", "2", *CPU, "--lora", lora, names=names)


class Merging(Case):
    BASE, PEFT, GGUF = Adapters.BASE, Adapters.PEFT, Adapters.GGUF

    def logits(self, *model):
        dump = self.folder / "logits.f32"
        self.rullama("logits", *model, *CPU, "--tokens", "2,281,382,310", "--exact", "--all", "--dump", dump)
        data = dump.read_bytes()
        return struct.unpack(f"<{len(data) // 4}f", data)

    def left(self):
        return sorted(p.name for p in self.folder.iterdir())

    def test_the_merged_model_is_the_adapted_one(self):
        out = self.folder / "merged.gguf"
        made = self.json("merge", self.BASE, "--lora", f"{self.PEFT}:0.5", "--lora", f"{self.GGUF}:0.5", "-o", out,
                         keys="output change rounding tensors")
        self.assertEqual(made["rounding"], 0)
        self.assertGreater(made["change"], 0.01)
        for t in made["tensors"]:
            self.assertEqual((t["from"], t["to"], t["added"]), ("F32", "F32", False))
        for a, b in zip(self.logits(out), self.logits(self.BASE, "--lora", self.PEFT), strict=True):
            self.assertAlmostEqual(a, b, delta=1e-4)
        self.rullama("merge", self.BASE, "--lora", f"{self.PEFT}:0", "-o", out, "--force")
        self.assertEqual(out.read_bytes(), self.BASE.read_bytes())

    def test_type_and_report(self):
        out = self.folder / "merged.gguf"
        done = self.rullama("merge", self.BASE, "--lora", f"{self.PEFT}:0.1", "-o", out, "--type", "q4_0")
        self.assertRegex(done.stdout, r"'blk.0.attn_q.weight' +F32 -> Q4_0 ")
        self.assertRegex(done.stdout, r"\n31 tensors of .* changed, by 1.8\d %; rounding is \d{3} % of that\n\Z")
        self.assertIn("--type F16 or Q8_0", done.stderr)
        formats = self.json("inspect", out, keys="formats")["formats"]
        self.assertEqual(formats["Q4_0"]["tensors"], 31)

    def test_refusals_leave_nothing(self):
        out = self.folder / "merged.gguf"
        ok = ("--lora", self.PEFT, "-o", out)
        self.refused("merge", self.BASE, "-o", out, code=2, names="--lora")
        self.refused("merge", self.BASE, "--lora", self.PEFT, code=2, names="--output")
        self.refused("merge", self.BASE, *ok, "--type", "Q2_K", code=2, names="Q2_K")
        self.refused("merge", "/no/file.gguf", *ok, names="/no/file.gguf")
        self.refused("merge", self.BASE, "--lora", "/no/adapter", "-o", out, names="/no/adapter")
        self.refused("merge", GEMMA3, *ok, names="another model")
        self.refused("merge", self.BASE, *ok, "--type", "Q4_K", names=["blk.0.attn_q.weight", "--type"])
        self.refused("merge", self.BASE, "--lora", self.PEFT, "-o", self.folder / "no" / "x.gguf", names="no/x.gguf")
        self.refused("merge", self.BASE, "--lora", self.PEFT, "-o", self.folder, names=str(self.folder))
        self.assertEqual(self.left(), [])

    def test_no_file_of_the_user_is_lost(self):
        model, adapter, link = self.folder / "m.gguf", self.folder / "a.gguf", self.folder / "link.gguf"
        model.write_bytes(self.BASE.read_bytes())
        adapter.write_bytes(self.GGUF.read_bytes())
        link.symlink_to(model)
        for out in (model, link, adapter):
            for force in ((), ("--force",)):
                self.refused("merge", model, "--lora", f"{adapter}:0.5", "-o", out, *force, names=[str(out), "is what is read here"])
        self.assertEqual(model.read_bytes(), self.BASE.read_bytes())
        self.assertEqual(adapter.read_bytes(), self.GGUF.read_bytes())
        peft = self.folder / "peft"
        shutil.copytree(self.PEFT, peft)
        inside = peft / "adapter_model.safetensors"
        self.refused("merge", model, "--lora", peft, "-o", inside, "--force", names=[str(inside), "is what is read here"])
        shutil.rmtree(peft)
        other = self.folder / "other.gguf"
        other.write_text("mine")
        self.refused("merge", model, "--lora", adapter, "-o", other, names=["other.gguf", "--force"])
        self.assertEqual(other.read_text(), "mine")
        self.rullama("merge", model, "--lora", adapter, "-o", other, "--force")
        self.assertEqual(self.left(), ["a.gguf", "link.gguf", "m.gguf", "other.gguf"])

    @unittest.skipUnless(os.path.exists("/dev/full"), "this system has no /dev/full")
    def test_a_full_disk_names_what_is_needed(self):
        link = self.folder / "full.gguf"
        link.symlink_to("/dev/full")
        self.refused("merge", self.BASE, "--lora", self.PEFT, "-o", link, names=["full.gguf", "needs 1.4 MB"])

    def test_export_there_and_back(self):
        gguf, peft = self.folder / "a.gguf", self.folder / "peft" / "adapter_model.safetensors"
        peft.parent.mkdir()
        adapted = self.logits(self.BASE, "--lora", self.PEFT)
        self.rullama("export", self.PEFT, "--model", self.BASE, "-o", gguf)
        self.assertEqual(self.logits(self.BASE, "--lora", gguf), adapted)
        made = self.json("export", gguf, "--model", self.BASE, "-o", peft, keys="output pairs")
        self.assertEqual(made["output"], [str(peft), str(peft.parent / "adapter_config.json")])
        self.assertEqual(self.logits(self.BASE, "--lora", peft.parent), adapted)
        config = json.loads((peft.parent / "adapter_config.json").read_text())
        self.assertEqual((config["peft_type"], config["r"], config["lora_alpha"]), ("LORA", 4, 8))
        self.assertEqual(sorted(config["target_modules"]),
                         sorted("q_proj k_proj v_proj o_proj gate_proj up_proj down_proj".split()))

        self.refused("export", gguf, "--model", self.BASE, "-o", peft, names=["adapter_model", "--force"])
        self.refused("export", gguf, "--model", self.BASE, "-o", gguf, "--force", names="is what is read here")
        self.refused("export", gguf, "--model", self.BASE, "-o", self.folder / "a.bin", names=[".gguf", ".safetensors"])
        self.refused("export", gguf, "--model", GEMMA3, "-o", self.folder / "b.gguf", names="another model")
        self.refused("export", gguf, "-o", self.folder / "b.gguf", code=2, names="--model")
        self.assertEqual(self.left(), ["a.gguf", "logits.f32", "peft"])


class BadFiles(Case):
    """Files that are no models are refused in one line and within a second of the processor's time."""

    def rejected(self, data, *names, commands=(("inspect",), ("run", *GREEDY, "x"))):
        file = self.folder / "bad.gguf"
        file.write_bytes(data)
        for command, *rest in commands:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            said = self.refused(command, file, *rest, names=names)
            self.assertTrue("bad.gguf" in said or "tensor 'blk.0" in said, said)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            self.assertLess(spent, 1, f"{command} took {spent:.2f} s of processor time")

    def test_no_gguf(self):
        self.rejected(b"", "empty")
        self.rejected(b"GGUG" + GEMMA3.read_bytes()[4:])
        self.rejected(b"\0" * 100)
        self.rejected(b"{\"not\": \"a model\"}" * 10)

    def test_versions(self):
        data = GEMMA3.read_bytes()
        for version in (0, 1, 4, 2**32 - 1):
            with self.subTest(version=version):
                self.rejected(data[:4] + struct.pack("<I", version) + data[8:], "version")
        self.rejected(data[:4] + struct.pack(">I", 3) + data[8:], "big-endian")

    def test_counts(self):
        data = GEMMA3.read_bytes()
        for at in (8, 16):  # tensors, keys
            for count in (2**64 - 1, 2**63, 2**61, 2**32, 10**6):
                with self.subTest(at=at, count=count):
                    self.rejected(data[:at] + struct.pack("<Q", count) + data[at + 8 :])

    def test_cut_anywhere(self):
        data = GEMMA3.read_bytes()
        for size in [1, 3, 4, 7, 8, 15, 16, 23, 24, *range(25, 16384, 1021), 16384, len(data) // 2, len(data) - 64]:
            with self.subTest(size=size):
                self.rejected(data[:size])

    def test_tensors(self):
        data, name = GEMMA3.read_bytes(), b"blk.0.attn_q.weight"
        at = data.index(name)
        run_only = (("run", *GREEDY, "x"),)
        self.rejected(data.replace(name, b"blk.0.attn_?.weight"), name.decode(), commands=run_only)
        shape = at + len(name) + 4
        columns, rows = struct.unpack_from("<QQ", data, shape)
        turned = data[:shape] + struct.pack("<QQ", rows, columns) + data[shape + 16 :]
        self.rejected(turned, name.decode(), commands=run_only)
        for sizes in [(2**63, 2), (2**32, 2**32), (columns, 2**60), (0, rows), (33, rows)]:
            with self.subTest(sizes=sizes):
                self.rejected(data[:shape] + struct.pack("<QQ", *sizes) + data[shape + 16 :], name.decode())
        for at, value in [(shape + 16, struct.pack("<I", 999)), (shape + 20, struct.pack("<Q", 2**64 - 32)),
                          (shape + 20, struct.pack("<Q", 7)), (shape - 4, struct.pack("<I", 2**32 - 1))]:
            with self.subTest(at=at - shape, value=value):
                self.rejected(data[:at] + value + data[at + len(value) :], name.decode())


    def test_a_file_that_is_cut_while_it_is_used(self):
        file = self.folder / "model.gguf"
        file.write_bytes(GEMMA3.read_bytes())
        with subprocess.Popen([PROGRAM, "run", file, *GREEDY, "x", "--ignore-eos", "--slide", "-c", "64"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=self.env) as running:
            self.assertTrue(running.stdout.read(1))
            os.truncate(file, 4096)
            said = running.communicate(timeout=WALL_LIMIT)[1].decode()
        self.assertEqual(running.returncode, 1, said)
        self.assertRegex(said, r"\Arullama: [^\n]+ became shorter[^\n]+\n\Z")


class Terminal:
    """The program in a terminal of its own."""

    def __init__(self, case, *args):
        try:
            self.pid, self.fd = pty.fork()
        except OSError as error:  # a container without /dev/pts
            print(f"SKIPPED {case.id()}: {error}", file=sys.stderr)
            case.skipTest(f"no pseudo-terminal can be had: {error}")
        if self.pid == 0:
            os.execve(PROGRAM, [PROGRAM, *map(str, args)], {**case.env, "TERM": "dumb"})
        self.case, self.seen, self.status = case, "", None
        case.addCleanup(self.close)

    def expect(self, pattern):
        """Reads until `pattern` appears; gives the text up to its end, which is used up."""
        end = time.monotonic() + WALL_LIMIT
        while not (found := re.search(pattern, self.seen)):
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            try:
                block = os.read(self.fd, 65536) if ready else b""
            except OSError:  # the program has left
                block = b""
            if not block:
                self.case.fail(f"{pattern!r} did not come; there was: {self.seen[-2000:]!r}")
            self.seen += block.decode(errors="replace")
        text, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return text

    def prompt(self):
        """Waits for the prompt; gives what was shown before it."""
        text = self.expect(r"(\A|\n)>>> ")
        end = time.monotonic() + WALL_LIMIT
        while termios.tcgetattr(self.fd)[3] & termios.ECHO and time.monotonic() < end:
            time.sleep(0.001)  # a key is the line editor's only when the terminal no longer echoes
        return text

    def send(self, text):
        os.write(self.fd, text.encode())

    def ask(self, line, pattern=">>> "):
        """Enters a line; what is shown until the next prompt has to have `pattern`."""
        self.send(line + "\r")
        self.expect(re.escape(line[-10:]))
        text = self.prompt()
        self.case.assertRegex(text, pattern)
        return text

    def leave(self):
        """The exit status."""
        end = time.monotonic() + WALL_LIMIT
        while self.status is None and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.seen += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    pass
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def close(self):
        if self.status is None:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


class Chat(Case):
    def chat(self, *args):
        terminal = Terminal(self, "run", GEMMA3, *CPU, "--chat", "--temp", "0", *args)
        terminal.prompt()
        return terminal

    def test_commands(self):
        chat = self.chat("-n", "4")
        chat.ask("/help", "/clear")
        chat.ask("/set temperature 0.5")
        chat.ask("/show parameters", r"temperature +0\.5")
        chat.ask("/set temperature hot", "'hot' is no value")
        chat.ask("/set top_p 7", "That cannot be")
        chat.ask("/set nosuch 1", "There is no setting 'nosuch'")
        chat.ask("/fly", "There is no command '/fly'")
        chat.ask("/set system Be brief.")
        chat.ask("/show system", r"Be brief\.")
        chat.ask("/show", "gemma3")
        chat.ask("hello there")
        chat.ask("/show messages", r"\[user\] hello there[\s\S]*\[(model|assistant)\]")
        chat.ask("/clear", "A new conversation")
        self.assertNotIn("hello there", chat.ask("/show messages"))
        chat.send("/bye\r")
        self.assertEqual(chat.leave(), 0)

    def test_ctrl_d_leaves_and_typed_lines_are_kept_for_the_next_chat(self):
        chat = self.chat("-n", "2")
        chat.ask("remember me")
        chat.send("\x04")
        self.assertEqual(chat.leave(), 0)
        history = self.folder / ".local/state/rullama/history"
        self.assertIn("remember", history.read_text())
        self.assertEqual(history.stat().st_mode & 0o077, 0)

    def test_ctrl_c_stops_the_answer_and_keeps_the_chat(self):
        chat = self.chat("--ignore-eos", "-c", "4096", "--slide")  # it would go on for ever
        chat.send("hello there\r")
        chat.expect(r"there\r?\n[\s\S]{200}")
        chat.send("\x03")
        chat.prompt()
        chat.ask("/show messages", r"\[user\] hello there")
        chat.send("half a line\x03")
        self.assertIn("Ctrl-D or /bye leaves.", chat.prompt())
        chat.send("/bye\r")
        self.assertEqual(chat.leave(), 0)

    def test_ctrl_c_before_the_answer_takes_the_question_back(self):
        # so long a prompt, token by token, takes half a second
        chat = self.chat("-c", "4096", "-b", "1", "-s", "word " * 1250)
        chat.send("hello there\r")
        chat.expect(r"there\r?\n")
        time.sleep(0.1)
        chat.send("\x03")
        chat.prompt()
        self.assertNotIn("hello there", chat.ask("/show messages"))
        chat.send("/bye\r")
        self.assertEqual(chat.leave(), 0)

    def test_a_conversation_beyond_the_context_is_said_and_the_chat_goes_on(self):
        chat = self.chat("-c", "48", "-n", "4")
        chat.ask("many words " * 6, r"context has 48; /clear begins anew")
        chat.ask("hi")
        chat.send("/bye\r")
        self.assertEqual(chat.leave(), 0)


class Output(Case):
    COMMANDS = (("inspect", GEMMA3), ("inspect", GEMMA3, "--json"), ("devices",), ("tokenize", GEMMA3, "hi"),
                ("run", GEMMA3, *GREEDY, "hello", "-n", "4"), ("completion", "bash"), ("--help",), ("run", "--help"))

    @unittest.skipUnless(os.path.exists("/dev/full"), "this system has no /dev/full")
    def test_a_full_disk_is_an_error(self):
        for args in self.COMMANDS:
            with self.subTest(args=args), open("/dev/full", "wb") as full:
                self.refused(*args, stdout=full, names="could not be written")
        link = self.folder / "full"  # not the device itself, which a rename would replace
        link.symlink_to("/dev/full")
        self.refused("logits", GEMMA3, "hi", *CPU, "--raw", "--dump", link, names=str(link))
        self.assertTrue(link.is_symlink())
        pipe = subprocess.run([PROGRAM, "logits", GEMMA3, "hi", *CPU, "--raw", "--json", "--dump", "/dev/stderr"],
                              stdin=subprocess.DEVNULL, capture_output=True, env=self.env, timeout=WALL_LIMIT)
        self.assertEqual((pipe.returncode, len(pipe.stderr)), (0, 4 * 473))

    def test_a_reader_that_leaves_ends_the_program_quietly(self):
        for args in (*self.COMMANDS[:5], ("run", GEMMA3, *GREEDY, "hello", "--ignore-eos", "--slide", "-c", "64")):
            with self.subTest(args=args):
                reader, writer = os.pipe()
                os.close(reader)
                done = subprocess.run([PROGRAM, *map(str, args)], stdin=subprocess.DEVNULL, stdout=writer,
                                      stderr=subprocess.PIPE, env=self.env, timeout=WALL_LIMIT)
                os.close(writer)
                self.assertIn(done.returncode, (-13, 1))
                self.assertLessEqual(done.stderr.count(b"\n"), 1, done.stderr)


class Store(Case):
    def put(self, name, tag, layers):
        """A model of the store, of layers (kind, contents)."""
        store = self.folder / "store"
        (store / "blobs").mkdir(parents=True, exist_ok=True)
        manifest = {"schemaVersion": 2, "layers": []}
        for kind, data in layers:
            digest = hashlib.sha256(data).hexdigest()
            (store / "blobs" / f"sha256-{digest}").write_bytes(data)
            manifest["layers"].append({"mediaType": f"application/vnd.ollama.image.{kind}",
                                       "digest": f"sha256:{digest}", "size": len(data)})
        file = store / "manifests" / "example.org" / "team" / name / tag
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(manifest))
        return file

    def test_list_and_run_by_name(self):
        name, data = "example.org/team/tiny:1b", GEMMA3.read_bytes()
        manifest = self.put("tiny", "1b", [("model", data), ("template", b"{{ .Prompt }}"), ("system", b"Be brief."),
                                           ("params", b'{"temperature": 0, "stop": ["<end_of_turn>"]}')])
        [model] = self.json("list", keys="models")["models"]
        self.assertEqual((model["name"], model["bytes"]), (name, len(data)))
        self.assertEqual(self.rullama("list", "--names").stdout, name + "\n")
        self.assertIn(name, self.rullama("list").stdout)
        by_name = self.json("run", name, *CPU, "hello", "-n", "6", keys="tokens prompt_tokens")
        by_path = self.json("run", GEMMA3, *CPU, "--chat", "--temp", "0", "-s", "Be brief.", "hello", "-n", "6",
                            keys="tokens prompt_tokens")
        self.assertEqual([by_name[k] for k in ("tokens", "prompt_tokens")],
                         [by_path[k] for k in ("tokens", "prompt_tokens")])
        self.refused("run", "example.org/team/tiny:2b", "x", names="example.org/team/tiny:2b")
        for damaged in ["{", '{"layers":' + "[" * 2_000_000]:
            manifest.write_text(damaged)
            self.refused("run", name, "x", names=[name, "damaged"])

    def test_a_missing_blob_is_named_and_does_not_hide_the_others(self):
        self.put("tiny", "1b", [("model", GEMMA3.read_bytes())])
        self.put("lost", "1b", [("model", b"x")])
        next((self.folder / "store/blobs").glob(f"sha256-{hashlib.sha256(b'x').hexdigest()}")).unlink()
        self.refused("run", "example.org/team/lost:1b", "x", names=["sha256-", "example.org/team/lost:1b"])
        self.assertIn("example.org/team/tiny:1b", self.rullama("list", "--names").stdout)

    def test_wrong_parameters_of_the_store_do_not_crash(self):
        for n, params in enumerate([b"", b"[", b"[1]", b'{"temperature": "hot", "stop": 7, "top_k": null}',
                                    b'{"temperature": 0, "top_k": -1}', b"[" * 2_000_000]):
            with self.subTest(params=params):
                self.put("odd", f"{n}b", [("model", GEMMA3.read_bytes()), ("params", params)])
                done = subprocess.run([PROGRAM, "run", f"example.org/team/odd:{n}b", *CPU, "--raw", "x", "-n", "2"],
                                      stdin=subprocess.DEVNULL, capture_output=True, env=self.env, timeout=WALL_LIMIT)
                self.assertIn(done.returncode, (0, 1), done.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
