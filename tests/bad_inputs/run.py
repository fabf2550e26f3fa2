#!/usr/bin/env python3
"""Bad inputs through the built program: the exact message, the exit code, and nothing left behind.

    run.py DAPPLE_PLAN [PART OF A CASE'S NAME]

A case is a file in profile/, topology/, plan/ or graph/ that is named by its defect; beside it,
NAME.expected holds the exit code and what must be on stderr. The sound documents of which the cases
are variants are in sound/. Cases that are no files of their own (a folder as file, an output that
cannot be written, a document cut off at every place) are made here.
"""

import os
import pathlib
import random
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOUND = HERE / "sound"
TIME_LIMIT = 60  # seconds, for one run; hostile numbers must not make work
MEMORY_LIMIT = 2 << 30
GRAPH_OPTIONS = ["--profile-batch", "4", "--optimizer", "sgd", "--global-batch", "8"]
GRAPH_OPTIONS += ["--profile-device", "D"]

# How the program is given a file of each kind, from inside the folder of the cases.
COMMANDS = {
    "profile": lambda name: ["--model", name, "--topo", str(SOUND / "topology.json")],
    "topology": lambda name: ["--model", str(SOUND / "profile.json"), "--topo", name],
    "graph": lambda name: ["--model", name, "--topo", str(SOUND / "topology.json"), *GRAPH_OPTIONS],
    "plan": lambda name: ["validate", name],
}


class Tests:
    def __init__(self, binary, only):
        self.binary = binary
        self.only = only
        self.count = 0
        self.faults = []

    def wants(self, name):
        return self.only in name

    def check(self, name, holds, message):
        if not holds:
            self.faults.append(f"{name}: {message}")

    def run(self, arguments, folder, stdin=b""):
        # A sanitizer reserves more address space than any limit leaves.
        limited = not os.environ.get("DAPPLE_NO_MEMORY_LIMIT")
        shell = f"ulimit -v {MEMORY_LIMIT >> 10}; exec " if limited else "exec "
        return subprocess.run(
            ["sh", "-c", shell + '"$0" "$@"', self.binary, *arguments],
            cwd=folder, input=stdin, capture_output=True, timeout=TIME_LIMIT, check=False,
        )

    def refuses(self, name, arguments, folder, code, message, stdin=b""):
        """Runs one case: the exit code, stderr to the letter, nothing on stdout."""
        self.count += 1
        run = self.run(arguments, folder, stdin)
        error = run.stderr.decode(errors="backslashreplace").replace(f"{SOUND}/", "sound/")
        self.check(name, run.returncode == code,
                   f"expected exit code {code}, got {run.returncode}: {error[:500]}")
        self.check(name, error == message, f"expected on stderr\n{message}got\n{error[:2000]}")
        self.check(name, run.stdout == b"", f"expected nothing on stdout, got {run.stdout[:200]}")

    def fails_cleanly(self, name, arguments, folder, stdin=b""):
        """A refusal in whatever words: exit code 3, a line that says why, no crash."""
        self.count += 1
        run = self.run(arguments, folder, stdin)
        self.check(name, run.returncode == 3, f"expected exit code 3, got {run.returncode}")
        self.check(name, run.stderr.startswith(b"error: "), f"got on stderr {run.stderr[:300]}")


def files_of(folder):
    return sorted(p.relative_to(folder) for p in folder.rglob("*"))


def test_sound(tests, scratch):
    """The sound documents are sound: else the cases would fail for another reason."""
    for kind, file in (("profile", "profile.json"), ("topology", "topology.json"),
                       ("graph", "graph.txt"), ("plan", "plan.json")):
        outputs = [] if kind == "plan" else ["-o", str(scratch / "sound.json")]
        run = tests.run(COMMANDS[kind](file) + outputs, SOUND)
        tests.count += 1
        tests.check(file, run.returncode == 0, f"expected it to be sound, got {run.stderr[:500]}")
    (scratch / "sound.json").unlink(missing_ok=True)


def test_files(tests, scratch):
    number = 0
    for kind, command in COMMANDS.items():
        for case in sorted((HERE / kind).iterdir()):
            if case.suffix == ".expected":
                continue
            number += 1
            name = f"{kind}/{case.stem}"
            if not tests.wants(name):
                continue
            first, _, message = case.with_suffix(".expected").read_text().partition("\n")
            outputs = [] if kind == "plan" else ["-o", str(scratch / "plan.json")]
            tests.refuses(name, command(case.name) + outputs, HERE / kind, int(first.split()[1]),
                          message)
            # The profile, the topology or the schedule is just as wrong for the other commands.
            if kind == "plan" and case.stem != "memory_exceeded":
                tests.fails_cleanly(name + " (simulate)", ["simulate", case.name], HERE / kind)
                tests.fails_cleanly(name + " (schedule)", ["schedule", case.name], HERE / kind)
                tests.fails_cleanly(name + " (verify)", ["verify", case.name], HERE / kind)
    tests.check("cases", number >= 150, f"expected at least 150 files, got {number}")
    tests.check("cases", files_of(scratch) == [], f"left behind: {files_of(scratch)}")


def test_cut_off(tests, scratch):
    """Every document cut off at places all over it."""
    for kind, file, step in (("profile", "profile.json", 11), ("topology", "topology.json", 11),
                             ("plan", "plan.json", 67)):
        whole = (SOUND / file).read_bytes().rstrip()
        if not tests.wants(f"cut_off_{kind}"):
            continue
        for size in range(0, len(whole), step):
            (scratch / file).write_bytes(whole[:size])
            outputs = [] if kind == "plan" else ["-o", "out.json"]
            tests.fails_cleanly(f"{kind} cut off behind {size} bytes", COMMANDS[kind](file) + outputs,
                                scratch)
        (scratch / file).unlink()
    tests.check("cut off", files_of(scratch) == [], f"left behind: {files_of(scratch)}")


def made_documents():
    """Documents too large or too odd for a file in the project: name, bytes, message."""
    profile = (SOUND / "profile.json").read_bytes()
    head = profile[: profile.index(b'"layers"')]
    depth = "expected at most 64 levels of nesting, got more"
    noise = random.Random(1).randbytes(100_000).replace(b"\0", b"x")
    yield "nesting_of_100", b"[" * 100 + b"]" * 100, depth
    yield "nesting_of_a_million", b'{"a":' * 1_000_000, depth
    operation = b'"op": ' + b'{"a": ' * 70 + b"1" + b"}" * 70 + b', "repeat": 2'
    yield "nesting_inside_an_operation", profile.replace(b'"repeat": 2', operation), depth
    yield "six_million_values", b"[" + b"0," * 6_000_000 + b"0]", \
        "expected at most 5000000 JSON values, got more"
    yield "number_of_a_thousand_digits", \
        profile.replace(b'"parameter_bytes": 1000000', b'"parameter_bytes": ' + b"9" * 1000), \
        'line 12, column 26: expected a number in the range of a double, got "' + "9" * 80 + '..."'
    yield "number_of_a_hundred_digits", \
        profile.replace(b'"parameter_bytes": 1000000', b'"parameter_bytes": ' + b"9" * 100), \
        "/layers/0/parameter_bytes: expected an integer from 0 to 1000000000000000, got " \
        + "9" * 40 + "..."
    layers = b",".join(b"0" for _ in range(5_000))
    faults = [f"/layers/{i}: expected an object, got 0" for i in range(100)]
    yield "five_thousand_faults", head + b'"layers": [' + layers + b"]}", \
        "\nerror: FILE: ".join(faults + ["and 4900 more faults, not shown"])
    yield "noise", noise, None


def test_made(tests, scratch):
    for name, content, message in made_documents():
        if not tests.wants(name):
            continue
        (scratch / "made.json").write_bytes(content)
        arguments = COMMANDS["profile"]("made.json") + ["-o", "out.json"]
        if message is None:
            tests.fails_cleanly(name, arguments, scratch)
        else:
            message = f"error: FILE: {message}\n".replace("FILE", "made.json")
            tests.refuses(name, arguments, scratch, 3, message)
        (scratch / "made.json").unlink()
    tests.check("made", files_of(scratch) == [], f"left behind: {files_of(scratch)}")


def test_environment(tests, scratch):
    """Files that cannot be read or written: exit code 5."""
    profile, topology = str(SOUND / "profile.json"), str(SOUND / "topology.json")
    plan = ["--model", profile, "--topo", topology]
    (scratch / "folder").mkdir()
    (scratch / "old.json").write_text("old")
    long_name = "x" * 300

    def reads(name, path, why):
        for kind in ("profile", "topology", "plan", "graph"):
            tests.refuses(f"{name} ({kind})", COMMANDS[kind](path), scratch, 5,
                          f"error: {path}: {why}\n")

    def writes(name, option, path, pattern):
        tests.count += 1
        run = tests.run(plan + [option, path] + (["-o", "out.json"] if option != "-o" else []), scratch)
        error = run.stderr.decode()
        tests.check(name, run.returncode == 5, f"expected exit code 5, got {run.returncode}: {error}")
        tests.check(name, error.startswith("error: ") and pattern in error, f"got on stderr {error}")
        # The plan may have been written before the other output failed; then all of it is there.
        if (scratch / "out.json").exists():
            run = tests.run(["validate", "out.json"], scratch)
            tests.check(name, run.returncode == 0, f"expected a whole plan, got {run.stderr[:300]}")
            (scratch / "out.json").unlink()

    reads("folder_as_file", "folder", "expected a file, got a directory")
    reads("missing_file", "missing.json", "cannot be read: No such file or directory")
    reads("file_below_a_file", "old.json/a", "cannot be read: Not a directory")
    reads("endless_file", "/dev/zero", "expected at most 256 MiB, got more")
    tests.refuses("nothing_on_stdin", COMMANDS["profile"]("-"), scratch, 3,
                  "error: <stdin>: expected a JSON document, got an empty file\n")
    for option in ("-o", "--trace"):
        writes(f"folder_as_output {option}", option, "folder", "folder")
        writes(f"output_in_a_missing_folder {option}", option, "no/out.json", "no")
        writes(f"output_with_too_long_a_name {option}", option, long_name, "File name too long")
        writes(f"output_on_a_full_device {option}", option, "/dev/full", "No space left on device")
    tests.check("environment", (scratch / "old.json").read_text() == "old", "a file was changed")
    left = [str(name) for name in files_of(scratch) if str(name) not in ("folder", "old.json")]
    tests.check("environment", left == [], f"left behind: {left}")


def test_forbidden(tests, scratch):
    """Permissions: an output folder that may not be written, a file that may not be read."""
    if os.geteuid() == 0:
        print("skipped: nothing is forbidden to the superuser")
        return
    folder = scratch / "closed"
    folder.mkdir()
    (folder / "secret.json").write_text("{}")
    (folder / "secret.json").chmod(0)
    folder.chmod(0o555)
    plan = ["--model", str(SOUND / "profile.json"), "--topo", str(SOUND / "topology.json")]
    tests.count += 1
    run = tests.run(plan + ["-o", "closed/plan.json"], scratch)
    tests.check("unwritable_folder", run.returncode == 5, f"got exit code {run.returncode}")
    tests.check("unwritable_folder", b"Permission denied" in run.stderr, f"got {run.stderr}")
    tests.refuses("unreadable_file", COMMANDS["plan"]("closed/secret.json"), scratch, 5,
                  "error: closed/secret.json: cannot be read: Permission denied\n")
    folder.chmod(0o755)


def main():
    tests = Tests(os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
    parts = [test_sound, test_files, test_cut_off, test_made]
    if not tests.only:
        parts += [test_environment, test_forbidden]
    for part in parts:
        with tempfile.TemporaryDirectory() as scratch:
            part(tests, pathlib.Path(scratch))
    print("\n".join(tests.faults))
    print(f"{tests.count} runs, {len(tests.faults)} faults")
    return 1 if tests.faults else 0


if __name__ == "__main__":
    sys.exit(main())
