"""Every example of the documents and of the help texts, run as written from a clone: commands that
print what the document shows, and files that later examples of it read."""

import importlib.machinery
import importlib.util
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import unittest

import tool
from tool import ARGUMENTS, DONE, ROOT, SCALE, ToolTest

# Folders of a clone that examples read from.
SHARED = ("profiles", "topologies", "tools", "tests")
BLOCK = re.compile(r"^```console\n(?P<console>.*?)^```$|(?<=\n\n)(?P<plain>(?:    [^\n]*\n)+)",
                   re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
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


def update_docs():
    """tools/update_docs as a module."""
    loader = importlib.machinery.SourceFileLoader("update_docs", str(ROOT / "tools/update_docs"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def anchors_of(text):
    """Anchors of a document's headings, as hosts of repositories make them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


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
        self.enter_folder()
        binaries = pathlib.Path(ARGUMENTS.binary).parent, pathlib.Path(ARGUMENTS.executor).parent
        self.environment = {**os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": "100",
                            "PATH": ":".join([*map(str, binaries), os.environ["PATH"]]),
                            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def enter_folder(self, document=ROOT / "README.md"):
        """One with what the document's commands read, and nothing that earlier ones have written."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        update_docs().provide_inputs(document, self.folder, SHARED)

    def run_as_written(self, commands):
        # Whatever fails ends the block, as a reader would stop there.
        return subprocess.run(["bash", "-e", "-c", commands], cwd=self.folder, text=True,
                              env=self.environment, capture_output=True, timeout=300, check=False)

    def check_commands(self, commands):
        result = self.run_as_written(commands)
        self.assertEqual(result.returncode, DONE, f"{commands}\n{result.stdout}{result.stderr}")
        self.assertNotIn("error:", result.stderr, commands)

    def test_the_documents_show_what_their_commands_print(self):
        for document in update_docs().documents():
            with self.subTest(document=document.relative_to(ROOT)):
                self.enter_folder(document)
                self.check_document(document)

    def test_every_example_has_files_that_its_commands_write(self):
        for document in (ROOT / "docs" / "examples").glob("*/README.md"):
            self.assertNotEqual(update_docs().expected_files(document), [], document)

    def test_the_commands_beside_the_profiles_run(self):
        self.check_document(ROOT / "profiles" / "README.md")

    def test_links_between_documents_lead_somewhere(self):
        for document in [*update_docs().documents(), *ROOT.glob("*.md"), *ROOT.glob("*/README.md")]:
            for target in LINK.findall(document.read_text()):
                if re.match(r"\w+:", target):
                    continue
                path, _, anchor = target.partition("#")
                linked = (document.parent / path).resolve() if path else document
                with self.subTest(document=document.name, target=target):
                    self.assertTrue(linked.exists())
                    if anchor:
                        self.assertIn(anchor, anchors_of(linked.read_text()))

    def test_code_that_the_documents_name_is_there(self):
        names = set()
        for folder in ("include", "src", "tests", "tools"):
            for path in sorted((ROOT / folder).rglob("*")):
                if path.is_file() and path.suffix in ("", ".h", ".cpp", ".cu", ".py", ".cmake"):
                    names.update(re.findall(r"\w+", path.read_text(errors="replace")))
        for document in [*update_docs().documents(), ROOT / "CONTRIBUTING.md"]:
            for quoted in re.findall(r"`([^`\n]+)`", document.read_text()):
                with self.subTest(document=document.name, quoted=quoted):
                    if re.fullmatch(r"(src|include|tests|tools|docs)/[\w./-]*\w", quoted):
                        self.assertTrue((ROOT / quoted).exists())
                    if re.fullmatch(r"[A-Za-z_][\w:.]*\(\)", quoted):
                        self.assertEqual(set(re.findall(r"\w+", quoted)) - names, set())

    def check_document(self, path):
        rerun = update_docs().rerun
        for block in BLOCK.finditer(path.read_text()):
            console, plain = block["console"], block["plain"]
            if console is not None:
                again = rerun(console, self.folder, self.environment)
                self.assertEqual(f"```console\n{console}```", again,
                                 "tools/update_docs puts the real output there")
                continue
            commands = re.sub("(?m)^    ", "", plain).replace("29500", free_port())
            if any(re.search(pattern, commands, re.MULTILINE) for pattern in NOT_RUN):
                continue
            if SCALE == 1 and any(re.search(pattern, commands) for pattern in LONG):
                continue
            with self.subTest(commands=commands):
                self.check_commands(commands)
        for expected in update_docs().expected_files(path):
            with self.subTest(file=expected.name):
                self.assertEqual((self.folder / expected.name).read_bytes(), expected.read_bytes(),
                                 "tools/update_docs puts the real file there")

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
