#!/usr/bin/env python3
"""Model files whose metadata or tensors do not belong together: malformed_test.py PROGRAM [unittest's options].

Each is refused before a device is asked for: exit status 1, one line that names the file and the key or tensor, within
0.1 s of the processor's time and with less memory than the file and 64 MB. tests/formats has the files that cannot even
be parsed; G23 to G35 are numbers of one list of malformed files.
"""

import math
import os
import pathlib
import struct
import sys
import unittest

import cli_test
from cli_test import CPU, GEMMA3, GEMMA4, GREEDY, MODELS

EXPERTS = MODELS / "g4-26b.q8_0.gguf"
SLOWDOWN = float(os.environ.get("RULLAMA_TEST_SLOWDOWN", "1"))  # of a build with sanitizers
SECONDS, MEMORY = 0.1 * SLOWDOWN, 64e6 * SLOWDOWN
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, U32: 4, I32: 4, F32: 4, BOOL: 1, 10: 8, 11: 8, 12: 8}


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(value)) + value


def u32(value):
    return struct.pack("<II", U32, value)


def f32(value):
    return struct.pack("<If", F32, value)


def string(value):
    return struct.pack("<I", STRING) + text(value)


def array(kind, values):
    pack = text if kind == STRING else struct.Struct({U32: "<I", I32: "<i", F32: "<f", BOOL: "<B"}[kind]).pack
    return struct.pack("<IIQ", ARRAY, kind, len(values)) + b"".join(map(pack, values))


class Gguf:
    """The parts of a sound file: values of keys as bytes with their type, and tensors [dims, type, offset]."""

    def __init__(self, path):
        self.data, self.at = path.read_bytes(), 8
        tensors, pairs = self.take("QQ")
        self.keys = {}
        for _ in range(pairs):
            key = self.text().decode()
            start = self.at
            self.skip(*self.take("I"))
            self.keys[key] = self.data[start : self.at]
        self.tensors = {}
        for _ in range(tensors):
            name = self.text().decode()
            self.tensors[name] = [list(self.take("Q" * self.take("I")[0])), *self.take("IQ")]
        self.body = self.data[(self.at + 31) // 32 * 32 :]
        self.arch = self.keys["general.architecture"][12:].decode()

    def take(self, layout):
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def text(self):
        (size,) = self.take("Q")
        self.at += size
        return self.data[self.at - size : self.at]

    def skip(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            element, count = self.take("IQ")
            for _ in range(count):
                self.skip(element)
        else:
            self.at += SIZES[kind]

    def strings(self, key):
        self.at = self.data.index(self.keys[key]) + 8
        return [self.text() for _ in range(*self.take("Q"))]

    def bytes(self):
        out = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))
        for key, value in self.keys.items():
            out += text(key) + value
        for name, (dims, kind, offset) in self.tensors.items():
            out += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        return out + bytes(-len(out) % 32) + self.body


class Malformed(cli_test.Case):
    def check(self, file, *names, command=("run", *GREEDY, "x")):
        """Runs the program on `file`; measures it alone, three times at most: another process may slow it."""
        name, *rest = command
        for attempt in range(3):
            err = self.folder / "stderr"
            with open(err, "wb") as to, open(self.folder / "stdout", "wb") as out:
                pid = os.posix_spawn(cli_test.PROGRAM, [cli_test.PROGRAM, name, str(file), *rest], self.env,
                                     file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1),
                                                   (os.POSIX_SPAWN_DUP2, to.fileno(), 2)])
                _, status, used = os.wait4(pid, 0)
            said = err.read_text(errors="replace")
            self.assertEqual(os.waitstatus_to_exitcode(status), 1, said)
            self.assertRegex(said, r"\Arullama: [^\n]+\n\Z")
            for part in (file.name, *names):
                self.assertIn(part, said)
            self.assertEqual((self.folder / "stdout").read_bytes(), b"")
            if used.ru_utime + used.ru_stime < SECONDS:
                break
        self.assertLess(used.ru_utime + used.ru_stime, SECONDS, "seconds of processor time: " + said)
        self.assertLess(used.ru_maxrss * 1024, file.stat().st_size + MEMORY, "bytes of memory: " + said)

    def refuse(self, base, damage, *names, **how):
        file = self.folder / "bad-model.gguf"
        gguf = Gguf(base)
        damage(gguf)
        file.write_bytes(gguf.bytes())
        self.check(file, *names, **how)

    def keys(self, base, cases):
        """`cases`: (key below the architecture, its value or None for no such key, parts of the message)."""
        for key, value, *names in cases:
            with self.subTest(key=key, value=value):
                def damage(gguf):
                    full = key if "general." in key or "split." in key or "tokenizer." in key else f"{gguf.arch}.{key}"
                    gguf.keys.pop(full, None)
                    if value is not None:
                        gguf.keys[full] = value
                self.refuse(base, damage, key, *names)

    def test_the_parts_make_the_whole_again(self):
        for base in (GEMMA3, GEMMA4, EXPERTS):
            file = self.folder / "same.gguf"
            file.write_bytes(Gguf(base).bytes())
            runs = [self.json("run", f, *GREEDY, "x", "-n", "4", keys="tokens")["tokens"] for f in (base, file)]
            self.assertEqual(*runs)

    def test_G24_architecture(self):
        self.keys(GEMMA3, [("general.architecture", None), ("general.architecture", u32(3), "u32"),
                           ("general.architecture", string("llama"), "'llama'"),
                           ("general.architecture", string("gemma4 "), "'gemma4 '")])

    def test_G25_block_count(self):
        self.keys(GEMMA3, [("block_count", None), ("block_count", u32(0), "is 0"), ("block_count", string("7")),
                           ("block_count", u32(2**31), "2147483648")])

        def one_more(gguf):
            gguf.keys["gemma3.block_count"] = u32(8)
            del gguf.keys["gemma3.attention.sliding_window_pattern"]
        self.refuse(GEMMA3, one_more, "'blk.7.attn_norm.weight' is missing")
        self.keys(GEMMA4, [("feed_forward_length", array(U32, [64, 64]), "2 entries")])
        self.refuse(GEMMA4, lambda g: g.keys.update({"gemma4.block_count": u32(1024)}), "each of 1024 layers")

    def test_G26_heads_and_width(self):
        self.keys(GEMMA3, [("attention.head_count", u32(0), "is 0"), ("attention.head_count_kv", u32(0), "is 0"),
                           ("attention.head_count_kv", u32(8), "is 8"), ("attention.head_count_kv", u32(3), "is 3"),
                           ("attention.head_count_kv", array(U32, [1] * 6), "6 entries"),
                           ("attention.head_count_kv", array(U32, [1] * 6 + [0]), "is 0"),
                           ("attention.head_count", array(STRING, ["4"] * 7)), ("embedding_length", u32(0), "is 0"),
                           ("embedding_length", u32(2**31)), ("attention.key_length", u32(0), "is 0"),
                           ("attention.key_length", u32(2**31)), ("attention.value_length", u32(64)),
                           ("context_length", u32(0)), ("feed_forward_length", u32(0))])
        for key, value, tensor in [("attention.head_count", 2, "blk.0.attn_q.weight"),
                                   ("attention.head_count_kv", 2, "blk.0.attn_k.weight"),
                                   ("feed_forward_length", 32, "blk.0.ffn_gate.weight"),
                                   ("embedding_length", 32, "token_embd.weight")]:
            with self.subTest(key=key):
                self.refuse(GEMMA3, lambda g: g.keys.update({f"gemma3.{key}": u32(value)}), f"'{tensor}' has shape")

    def test_G27_shared_layers_and_windows(self):
        pattern = "attention.sliding_window_pattern"
        self.keys(GEMMA4, [("attention.shared_kv_layers", u32(5), "is 5"), ("attention.shared_kv_layers", u32(4)),
                           ("attention.shared_kv_layers", string("2")), ("attention.sliding_window", u32(0), "is 0"),
                           ("attention.sliding_window", None), (pattern, array(BOOL, [1, 0]), "2 entries"),
                           (pattern, array(F32, [1.0] * 5)), (pattern, string("SSFSF")), (pattern, None),
                           ("embedding_length_per_layer_input", u32(2**31))])
        self.refuse(GEMMA4, lambda g: g.keys.update({"gemma4.embedding_length_per_layer_input": u32(64)}),
                    "'per_layer_token_embd.weight' has shape")

    def test_G28_experts(self):
        self.keys(EXPERTS, [("expert_used_count", u32(7), "is 7"), ("expert_used_count", u32(0), "is 0"),
                            ("expert_count", u32(2**31)), ("expert_count", u32(0)), ("expert_count", None),
                            ("expert_feed_forward_length", None)])
        self.refuse(EXPERTS, lambda g: g.keys.update({"gemma4.expert_count": u32(5)}), "'blk.0.ffn_gate_inp.weight'")

    def test_G29_numbers(self):
        inf, nan = math.inf, math.nan
        for key, values in [("attention.layer_norm_rms_epsilon", (nan, 0, -1e-6, inf)),
                            ("final_logit_softcapping", (nan, -30, inf)), ("rope.freq_base", (0, inf, nan, -1e4)),
                            ("rope.freq_base_swa", (0, inf, nan, -1e4))]:
            self.keys(GEMMA4, [(key, f32(v)) for v in values] + [(key, string("x"))])

    def test_G30_tensors(self):
        for base, names in [(GEMMA3, ["token_embd.weight", "output_norm.weight", "blk.3.ffn_down.weight"]),
                            (GEMMA4, ["rope_freqs.weight", "per_layer_model_proj.weight", "blk.1.post_norm.weight"]),
                            (EXPERTS, ["blk.0.ffn_gate_exps.weight", "blk.1.pre_ffw_norm_2.weight"])]:
            for name in names:
                with self.subTest(tensor=name):
                    self.refuse(base, lambda g: g.tensors.pop(name), f"'{name}' is missing")

        def shape(dims, kind=None):
            def damage(gguf):
                tensor = gguf.tensors["blk.2.attn_output.weight"]
                tensor[0], tensor[1] = dims, tensor[1] if kind is None else kind
            return damage
        for dims in [[64, 128], [128, 63], [128], [64, 64, 2], [128, 32, 1, 2]]:
            with self.subTest(dims=dims):
                self.refuse(GEMMA3, shape(dims), "'blk.2.attn_output.weight' has shape")
        self.refuse(GEMMA3, shape([128, 64], 24), "'blk.2.attn_output.weight' has type I8")
        self.refuse(GEMMA3, lambda g: g.tensors["blk.2.attn_norm.weight"].__setitem__(1, 1),
                    "'blk.2.attn_norm.weight' has type F16")

    def test_G30_a_tensor_more_does_no_harm(self):
        gguf, file = Gguf(GEMMA3), self.folder / "more.gguf"
        gguf.tensors["v.extra.weight"] = [[3], 0, len(gguf.body)]
        gguf.body += bytes(32)
        file.write_bytes(gguf.bytes())
        self.json("run", file, *GREEDY, "x", "-n", "1", keys="tokens")

    def test_G31_vocabulary(self):
        tokens = Gguf(GEMMA3).strings("tokenizer.ggml.tokens")
        n = len(tokens)
        self.keys(GEMMA3, [("tokenizer.ggml.tokens", array(STRING, tokens[:-1]), f"{n - 1} entries", f"{n} rows"),
                           ("tokenizer.ggml.tokens", array(STRING, tokens + ["more"]), f"{n + 1} entries"),
                           ("tokenizer.ggml.tokens", array(STRING, [])), ("tokenizer.ggml.tokens", None),
                           ("tokenizer.ggml.tokens", array(STRING, tokens[:-1] + ["x" * 2**20]), "1048576 bytes"),
                           ("tokenizer.ggml.scores", array(F32, [0.0] * (n - 1))),
                           ("tokenizer.ggml.scores", array(F32, [math.nan] * n)),
                           ("tokenizer.ggml.token_type", array(I32, [1] * (n + 1))),
                           ("tokenizer.ggml.token_type", array(I32, [9] * n)),
                           ("tokenizer.ggml.model", string("gpt2"), "'gpt2'"), ("tokenizer.ggml.model", None)])
        for key in ("bos_token_id", "eos_token_id", "unknown_token_id", "padding_token_id"):
            self.keys(GEMMA3, [(f"tokenizer.ggml.{key}", u32(n), str(n)), (f"tokenizer.ggml.{key}", u32(2**32 - 1)),
                               (f"tokenizer.ggml.{key}", string("2"))])
        self.keys(GEMMA3, [("tokenizer.ggml.eos_token_ids", array(U32, [1, n]), str(n))])
        self.refuse(GEMMA3, lambda g: g.keys.update({"tokenizer.ggml.bos_token_id": u32(n)}),
                    "tokenizer.ggml.bos_token_id", command=("tokenize", "x"))

    def test_G31_merges(self):
        merges = Gguf(GEMMA4).strings("tokenizer.ggml.merges")
        key = "tokenizer.ggml.merges"
        self.keys(GEMMA4, [(key, array(STRING, merges + ["no such"]), f"entry {len(merges)}", "'no'"),
                           (key, array(STRING, ["the"]), "entry 0"), (key, array(STRING, [" "]), "entry 0"),
                           (key, array(STRING, ["a "]), "entry 0"), (key, array(U32, [1]))])
        # Merges of merges in the wrong order, twice and in circles of rank end as well.
        gguf, file = Gguf(GEMMA4), self.folder / "odd.gguf"
        gguf.keys[key] = array(STRING, merges[::-1] + merges)
        file.write_bytes(gguf.bytes())
        told = "the river runs past the old mill " * 20
        ids = self.json("tokenize", file, told, "--no-bos", keys="ids")["ids"]
        self.assertEqual(self.rullama("tokenize", file, "--ids", ",".join(map(str, ids))).stdout.rstrip("\n"), told)

    def test_G32_chat_template(self):
        """A template is never run: the vocabulary says which format a model has. One of 100 MB is not even read."""
        gguf, file = Gguf(GEMMA3), self.folder / "large-template.gguf"
        large, name = 100 << 20, "tokenizer.chat_template"
        head = b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + text("general.architecture") + string("gemma3") + text(name)
        with open(file, "wb") as out:
            out.write(head + struct.pack("<IQ", STRING, large))
            out.truncate(len(head) + 12 + large)
        for command in (("run", *GREEDY, "x"), ("inspect",), ("tokenize", "x")):
            self.check(file, name, str(large), command=command)
        for template in ["{% for i in range(10**12) %}x{% endfor %}", "{{ ''.__class__.__mro__ }}",
                         "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{" * 10**6]:
            gguf.keys[name] = string(template)
            sound = self.folder / "template.gguf"
            sound.write_bytes(gguf.bytes())
            made = self.json("run", sound, *CPU, "hello", "--temp", "0", "-n", "2", keys="tokens prompt_tokens")
            plain = self.json("run", GEMMA3, *CPU, "hello", "--chat", "--temp", "0", "-n", "2", keys="tokens")
            self.assertEqual(made["tokens"], plain["tokens"])

    def test_G33_weights_that_are_no_numbers(self):
        def damaged(tensor, value):
            gguf, file = Gguf(GEMMA3), self.folder / "nan.gguf"
            at = gguf.tensors[tensor][2]
            gguf.body = gguf.body[:at] + value + gguf.body[at + len(value) :]
            file.write_bytes(gguf.bytes())
            return file
        known = self.json("devices", keys="devices")["devices"]
        devices = ["cpu", "gpu"] if len(known) > 1 else ["cpu"]
        for scale in (math.nan, math.inf):  # of one block
            file = damaged("blk.3.ffn_down.weight", struct.pack("<e", scale))
            for device in devices:
                with self.subTest(scale=scale, device=device):
                    self.refused("run", file, "--raw", "x", "-n", "4", "--device", device, names=["no numbers"])
        file = damaged("output_norm.weight", struct.pack("<f", math.nan) * 64)
        for command in (("run", *GREEDY, "x", "-n", "4"), ("run", *CPU, "--raw", "x", "-n", "4"),
                        ("logits", *CPU, "--raw", "x"), ("perplexity", "/dev/stdin", *CPU)):
            with self.subTest(command=command):
                self.refused(command[0], file, *command[1:], names=["no numbers"], stdin="some text to score")

    def test_G23_half_a_file(self):
        whole = GEMMA3.read_bytes()
        file = self.folder / "cut.gguf"
        file.write_bytes(whole[: len(whole) // 2])
        self.check(file, "needs")

    def test_G35_one_part_of_a_split_file(self):
        self.refuse(GEMMA3, lambda g: g.keys.update({"split.count": u32(2)}), "'split.count'", "2 parts")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    cli_test.PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
