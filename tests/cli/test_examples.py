"""Every example of README.md and of the help texts, run as written from a clone: commands that print
what the README says, and files that later examples read."""

import importlib.machinery
import importlib.util
import os
import pathlib
import re
import socket
import subprocess
import unittest

import tool
from tool import ARGUMENTS, DONE, ROOT, SCALE, ToolTest

# Folders of a clone that examples read from.
SHARED = ("profiles", "topologies", "tools", "tests")
BLOCK = re.compile(r"^```console\n(?P<console>.*?)^```$|(?<=\n\n)(?P<plain>(?:    [^\n]*\n)+)",
                   re.MULTILINE | re.DOTALL)
# What is not run here, and why.
NOT_RUN = {
    r"^tools/(demo|test)\b": "installs and builds",
    r"^cmake ": "builds",
    r"^export PATH=": "is about the build",
    r"--device cuda": "needs a GPU and PyTorch",
}
# More than ten seconds each; run where tests are asked to take longer.
LONG = (r"--pace 30 ", r"--steps 150 ")
HELP = (("dapple-plan", None), ("dapple-plan", "plan"), ("dapple-plan", "simulate"),
        ("dapple-plan", "validate"), ("dapple-plan", "verify"), ("dapple-plan", "diff"),
        ("dapple-plan", "schedule"), ("dapple-plan", "report"), ("dapple-plan", "reschedule"),
        ("dapple-plan", "export"), ("dapple-plan", "import"), ("dapple-plan", "import topology"),
        ("dapple-plan", "import model"), ("dapple-plan", "import plan"), ("dapple-exec", None),
        ("dapple-exec", "replay"), ("dapple-exec", "profile"), ("dapple-exec", "train"))


def update_readme():
    """tools/update_readme as a module."""
    loader = importlib.machinery.SourceFileLoader("update_readme", str(ROOT / "tools/update_readme"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def free_port():
    """One that nobody has: another run of these examples may have the one that they name."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def examples_of(help_text):
    """Commands below "Example", continued lines joined as they stand."""
    below = re.search(r"^Examples?\b.*\n((?:  .*\n)+)", help_text, re.MULTILINE)
    return re.sub("(?m)^  ", "", below[1]) if below else ""


class Examples(ToolTest):
    def setUp(self):
        super().setUp()
        for name in SHARED:
            os.symlink(ROOT / name, self.folder / name)
        binaries = pathlib.Path(ARGUMENTS.binary).parent, pathlib.Path(ARGUMENTS.executor).parent
        self.environment = {**os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": "100",
                            "PATH": ":".join([*map(str, binaries), os.environ["PATH"]]),
                            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def run_as_written(self, commands):
        # Whatever fails ends the block, as a reader would stop there.
        return subprocess.run(["bash", "-e", "-c", commands], cwd=self.folder, text=True,
                              env=self.environment, capture_output=True, timeout=300, check=False)

    def check_commands(self, commands):
        result = self.run_as_written(commands)
        self.assertEqual(result.returncode, DONE, f"{commands}\n{result.stdout}{result.stderr}")
        self.assertNotIn("error:", result.stderr, commands)

    def test_the_readme_shows_what_its_commands_print(self):
        self.check_document(ROOT / "README.md")

    def test_the_commands_beside_the_profiles_run(self):
        self.check_document(ROOT / "profiles" / "README.md")

    def check_document(self, path):
        rerun = update_readme().rerun
        for block in BLOCK.finditer(path.read_text()):
            console, plain = block["console"], block["plain"]
            if console is not None:
                again = rerun(console, self.folder, self.environment)
                self.assertEqual(f"```console\n{console}```", again,
                                 "tools/update_readme puts the real output there")
                continue
            commands = re.sub("(?m)^    ", "", plain).replace("29500", free_port())
            if any(re.search(pattern, commands, re.MULTILINE) for pattern in NOT_RUN):
                continue
            if SCALE == 1 and any(re.search(pattern, commands) for pattern in LONG):
                continue
            with self.subTest(commands=commands):
                self.check_commands(commands)

    def test_the_examples_of_every_help_text_run(self):
        for program, command in HELP:
            words = (command or "").split()
            text = self.run_as_written(" ".join([program, "help", *words])).stdout
            self.assertEqual(text, self.run_as_written(" ".join([program, *words, "-h"])).stdout)
            commands = examples_of(text)
            with self.subTest(program=program, command=command):
                self.assertIn(program, commands, text)
                self.check_commands(commands)


if __name__ == "__main__":
    tool.main()
