"""Manual pages and completions as "help --install" writes them, and as CMake installs them."""

import os
import pathlib
import re
import shutil
import subprocess

import tool
from tool import ARGUMENTS, DONE, USAGE, ToolTest

PROGRAMS = {"dapple-plan": ("plan", "pareto", "simulate", "validate", "verify", "diff", "schedule",
                            "report", "reschedule", "export", "import", "import topology", "import model",
                            "import plan", "estimate", "calibrate"),
            "dapple-exec": ("replay", "profile", "train")}
# An option in a help text, at the begin of a row.
ROW = re.compile(r"^  (?:-(\w), )?--([a-z][a-z-]*)", re.MULTILINE)


class ManualTest(ToolTest):
    """Writes the manual of both programs into the folder."""

    def setUp(self):
        super().setUp()
        self.binaries = {"dapple-plan": ARGUMENTS.binary, "dapple-exec": ARGUMENTS.executor}
        for binary in self.binaries.values():
            result = self.run_tool("help", "--install", "share", binary=binary)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (DONE, "", ""))
        self.share = pathlib.Path(self.folder) / "share"

    def page(self, program, command=""):
        name = "-".join([program, *command.split()])
        return self.share / "man" / "man1" / f"{name}.1"

    def help(self, program, command):
        return self.run_tool("help", *command.split(), binary=self.binaries[program]).stdout


class Manual(ManualTest):
    def test_there_is_a_page_for_each_program_and_command(self):
        expected = {self.page(program, command).name for program, commands in PROGRAMS.items()
                    for command in ("", *commands)}
        self.assertEqual({path.name for path in (self.share / "man" / "man1").iterdir()}, expected)
        for program in PROGRAMS:
            self.assertTrue((self.share / "bash-completion/completions" / program).is_file())
            self.assertTrue((self.share / "zsh/site-functions" / f"_{program}").is_file())

    def test_a_page_has_every_option_and_every_example_of_the_help(self):
        for program, commands in PROGRAMS.items():
            for command in ("", *commands):
                with self.subTest(program=program, command=command):
                    roff = self.page(program, command).read_text()
                    text = roff.replace("\\-", "-").replace("\\e", "\\").replace("\\(aq", "'")
                    shown = self.help(program, command)
                    sections = re.findall(r'^\.SH "(.*)"$', roff, re.MULTILINE)
                    self.assertEqual(sections[:3], ["NAME", "SYNOPSIS", "DESCRIPTION"])
                    self.assertEqual(sections[-2:], ["EXAMPLES", "SEE ALSO"])
                    self.assertIn("EXIT STATUS", sections)
                    others = set(re.findall(r"^\.BR (.*) \(1\),?$", text, re.MULTILINE))
                    pages = {path.stem for path in self.page(program).parent.iterdir()}
                    self.assertTrue(others and others <= pages - {self.page(program, command).stem})
                    options = ROW.findall(shown.replace("First options", "\f").partition("\f")[0])
                    options += [("v", "verbose"), ("q", "quiet"), ("h", "help")]
                    for letter, name in options:
                        entry = f"\n.TP\n\\fB-{letter}\\fR, " if letter else "\n.TP\n"
                        self.assertIn(f"{entry}\\fB--{name}\\fR", text)
                    examples = shown.partition("\nExample\n")[2].partition("\n\n")[0]
                    for line in examples.splitlines():
                        self.assertIn(line.strip(), text)

    def test_groff_has_no_complaint_about_any_page(self):
        if not shutil.which("groff"):
            self.skipTest("no groff here: Debian's package groff-base has it")
        for page in sorted((self.share / "man" / "man1").iterdir()):
            with self.subTest(page=page.name):
                result = subprocess.run(["groff", "-man", "-ww", "-Tutf8", page], check=False,
                                        capture_output=True, text=True)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertNotRegex(result.stdout, r"\\[-e(&]")

    def test_cmake_installs_what_the_programs_write(self):
        build = pathlib.Path(ARGUMENTS.binary).parent.parent
        if not (build / "share").is_dir() or not shutil.which("cmake"):
            self.skipTest("the target manual was not built")
        prefix = pathlib.Path(self.folder) / "prefix"
        subprocess.run(["cmake", "--install", build, "--prefix", prefix, "--component", "manual"],
                       check=True, capture_output=True)
        installed = {path.relative_to(prefix / "share"): path.read_bytes()
                     for path in (prefix / "share").rglob("*") if path.is_file()}
        written = {path.relative_to(self.share): path.read_bytes()
                   for path in self.share.rglob("*") if path.is_file()}
        self.assertEqual(installed, written)

    def test_a_folder_must_be_named(self):
        for words in ((), ("",), ("-",), ("a", "b")):
            self.assert_error(self.run_tool("help", "--install", *words), USAGE, "--install",
                              "expected one folder")


class Completion(ManualTest):
    """Completes by the functions themselves, without a terminal."""

    def complete_in_bash(self, *words):
        program = words[0]
        script = self.share / "bash-completion/completions" / program
        commands = (f"source {script}; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); "
                    f"_{program.replace('-', '_')}; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        result = subprocess.run(["bash", "--norc", "-c", commands, "bash", "x", *words],
                                cwd=self.folder, check=True, capture_output=True, text=True)
        self.assertEqual(result.stderr, "")
        return result.stdout.split("\n")[:-1]

    def check_bash(self, words, expected):
        with self.subTest(words=words):
            self.assertEqual(sorted(filter(None, self.complete_in_bash(*words))), sorted(expected))

    def test_bash_completes_commands_options_and_choices(self):
        for words, expected in (
                (("dapple-plan", "re"), ["report", "reschedule"]),
                (("dapple-plan", "-q", "sim"), ["simulate"]),
                (("dapple-plan", "help", "ver"), ["verify"]),
                (("dapple-plan", "import", ""), ["topology", "model", "plan"]),
                (("dapple-plan", "import", "topology", "--form"), ["--format"]),
                (("dapple-plan", "import", "plan", "--replication", ""), ["split", "deal"]),
                (("dapple-plan", "--sched"), ["--schedule"]),
                (("dapple-plan", "--vers"), ["--version"]),
                (("dapple-plan", "--schedule", "zb"),
                 [family for family in tool.FAMILIES if family.startswith("zb")]),
                (("dapple-plan", "plan", "--planner", ""), ["exact", "dapple"]),
                (("dapple-plan", "simulate", "--contention", "=", "o"), ["on", "off"]),
                (("dapple-plan", "simulate", "--contention", "="), ["on", "off"]),
                (("dapple-plan", "plan", "--threads", ""), []),
                (("dapple-plan", "export", "p", "--to", "torch"),
                 ["torch-python", "torch-csv", "torchtitan"]),
                (("dapple-exec", "train", "--precision", "b"), ["bf16"]),
                (("dapple-exec", "tra"), ["train"])):
            self.check_bash(words, expected)

    def test_bash_completes_every_option_of_every_help(self):
        for program, commands in PROGRAMS.items():
            for command in commands:
                if command == "import":
                    continue
                with self.subTest(program=program, command=command):
                    offered = self.complete_in_bash(program, *command.split(), "-")
                    for letter, name in ROW.findall(self.help(program, command)):
                        self.assertIn(f"--{name}", offered)
                        if letter:
                            self.assertIn(f"-{letter}", offered)

    def test_bash_completes_files_and_folders(self):
        self.write("a plan.json", {})
        os.mkdir(pathlib.Path(self.folder) / "a folder")
        for words in (("dapple-plan", "--model", "a"), ("dapple-plan", "simulate", "a"),
                      ("dapple-exec", "train", "--resume", "a"), ("dapple-plan", "diff", "x", "a")):
            self.check_bash(words, ["a folder", "a plan.json"])
        self.check_bash(("dapple-plan", "--write-baselines", "a"), ["a folder"])

    def complete_in_zsh(self, *words):
        """What the function passes to those of zsh that offer words: options, or commands."""
        program = words[0]
        script = self.share / "zsh/site-functions" / f"_{program}"
        commands = ("_arguments() { print -rl -- \"$@\" }\n"
                    "_describe() { print -rl -- \"${(@P)2}\" }\n"
                    "words=(\"${@[2,-2]}\"); CURRENT=${#words}; source \"$1\"")
        result = subprocess.run(["zsh", "-f", "-c", commands, "zsh", script, *words, "end"],
                                check=True, capture_output=True, text=True)
        self.assertEqual(result.stderr, "")
        return result.stdout.splitlines()

    def test_zsh_completes_commands_options_and_choices(self):
        if not shutil.which("zsh"):
            self.skipTest("no zsh here: Debian's package zsh has it")
        names = [line.partition(":")[0] for line in self.complete_in_zsh("dapple-plan", "s")]
        self.assertEqual(names, [*(command for command in PROGRAMS["dapple-plan"]
                                   if " " not in command), "help"])
        parts = self.complete_in_zsh("dapple-plan", "-q", "import", "")
        self.assertEqual([line.partition(":")[0] for line in parts], ["topology", "model", "plan"])
        for program, commands in PROGRAMS.items():
            for command in commands:
                if command == "import":
                    continue
                with self.subTest(program=program, command=command):
                    offered = "\n".join(self.complete_in_zsh(program, *command.split(), "-"))
                    for _, name in ROW.findall(self.help(program, command)):
                        self.assertRegex(offered, rf"(?m)^\*?(\(.*\))?--{name}=?\[")
        default = self.complete_in_zsh("dapple-plan", "--model", "")
        self.assertTrue(any(line.startswith("--model=[") and line.endswith(":FILE:_files")
                            for line in default), default)
        formats = self.complete_in_zsh("dapple-plan", "schedule", "--format", "")
        self.assertTrue(any(line.endswith(":FORMAT:(text csv json)") for line in formats), formats)


if __name__ == "__main__":
    tool.main()
