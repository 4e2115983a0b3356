#!/usr/bin/env python3
"""docs/command-line.md against the program: page_test.py PROGRAM [unittest's options].

Every command and option of --help is named in the command's section, every example runs, and what --json prints has no
key that the section does not name.
"""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import unittest

import cli_test

PAGE = cli_test.MODELS.parents[2] / "docs" / "command-line.md"
LORA = cli_test.MODELS.parent / "lora"
SHARED = "Model and device"


def sections():
    parts = re.split(r"^## (.*)\n", PAGE.read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def section(command):
    """Its title is the command and its arguments in capitals."""
    for title, text in sections().items():
        if re.fullmatch(rf"rullama {command}(( [A-Z\[].*)|( bash))?", title):
            return text
    return None


def named(text):
    return set(re.findall(r"`([^`\n]+)`", text)) | set(re.findall(r"-{1,2}[a-zA-Z][\w-]*", text))


class Page(cli_test.Case):
    def commands(self, *of):
        listed = self.rullama(*of, "--help").stdout.partition("Subcommands:\n")[2].partition("\n\n")[0]
        for name in re.findall(r"^  (\S+)", listed, flags=re.M):
            yield (*of, name)
            yield from self.commands(*of, name)

    def test_every_command_and_option_is_named(self):
        commands = list(self.commands())
        self.assertIn(("bench", "ops"), commands)
        shared = named(sections()[SHARED])
        for command in commands:
            with self.subTest(command=command):
                text = section(" ".join(command))
                self.assertIsNotNone(text, f"{PAGE.name} needs a section '## rullama {' '.join(command)} ...'")
                options = self.rullama(*command, "--help").stdout.partition("Options:\n")[2].partition("\n\n")[0]
                found = set(re.findall(r"(?:^  |,)(-{1,2}[\w-]+)", options, flags=re.M)) - {"-h", "--help"}
                self.assertEqual(found - named(text) - shared, set(), "options that the section does not name")
                gone = {o for o in named(text) if re.fullmatch(r"--[\w-]+", o)} - found - shared - {"--help"}
                self.assertEqual(gone, set(), "options that the section names and the command does not have")

    def test_examples_run(self):
        (self.folder / "rullama").symlink_to(cli_test.PROGRAM)
        self.env["PATH"] = f"{self.folder}:{self.env['PATH']}"
        for name, file in [("model.gguf", cli_test.MODELS / "g3-270m.f16.gguf"), ("gemma4.gguf", cli_test.GEMMA4),
                           ("adapter.gguf", LORA / "g3-f16.adapter.gguf")]:
            shutil.copy(file, self.folder / name)
        (self.folder / "letter.txt").write_text("the river runs past the old mill\n" * 4)
        (self.folder / "messages.json").write_text('[{"role": "user", "content": "Hello"}]')
        shutil.copy(LORA.parent / "finetune" / "facts.jsonl", self.folder / "train.jsonl")
        tool = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {}}}
        (self.folder / "tools.json").write_text(json.dumps([tool]))
        for title, text in sections().items():
            examples = re.findall(r"^    (.*rullama .*)$", text, flags=re.M)
            self.assertTrue(examples or title == SHARED, f"{title} has no example")
            for example in examples:
                with self.subTest(example=example):
                    done = subprocess.run(["bash", "-c", example], cwd=self.folder, env=self.env, capture_output=True,
                                          stdin=subprocess.DEVNULL, text=True, timeout=cli_test.WALL_LIMIT)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    if "--json" in shlex.split(example):
                        made = json.loads(done.stdout)
                        keys = set(made if isinstance(made, dict) else made[0])
                        self.assertEqual(keys - named(text), set(), "keys that the section does not name")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    cli_test.PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
