"""Runs the built program in a folder of its own, on small inputs made here."""

import argparse
import collections
import copy
import fcntl
import importlib.util
import json
import os
import pathlib
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BERT = ROOT / "profiles" / "bert-large.json"
DGX1 = ROOT / "topologies" / "8xV100.json"

SKIPPED = 77  # ctest's sign
DONE, BUG, USAGE, BAD_INPUT, INFEASIBLE, ENVIRONMENT, NOT_VERIFIED = range(7)
SCALE = max(1, int(float(os.environ.get("DAPPLE_TEST_SCALE", "1"))))  # of random trials
SECONDS = 600  # for one run; far more than any takes, sanitizers included

# Schedule families that plan: the schema's list is the code's, as a test of io says.
SCHEMA = json.loads((ROOT / "src" / "io" / "schemas" / "plan.schema.json").read_text())
FAMILIES = [family for family in SCHEMA["$defs"]["request"]["properties"]["schedule"]["enum"]
            if family != "auto"]

ARGUMENTS = argparse.Namespace(binary=None, executor=None, other_binary=None, sanitized=False)


def small_profile(**changes):
    """Six layers of 1 ms forward and 2 ms backward at batch 4, 1 MiB of everything."""
    mebibyte = 1 << 20
    profile = {
        "schema": "dapple-profile/1",
        "name": "small",
        "source": "made up",
        "global_batch_size": 16,
        "device": "card",
        "batch_scaling": "proportional",
        "optimizer": {
            "name": "adam",
            "state_bytes_per_parameter_byte": 2,
            "step_ns_per_parameter_byte": 0.01,
        },
        "layers": [{
            "name": "layer",
            "repeat": 6,
            "parameter_bytes": mebibyte,
            "measurements": [{
                "batch_size": 4,
                "forward_ns": 1000000,
                "backward_ns": 2000000,
                "output_bytes": mebibyte,
                "stash_bytes": mebibyte,
            }],
        }],
    }
    profile.update(changes)
    return profile


def small_topology(memory="1 GiB", **changes):
    """Two servers of two devices."""
    topology = {
        "schema": "dapple-topology/1",
        "name": "2x2",
        "source": "made up",
        "devices": {"card": {"memory": memory, "reserved": "0 B", "source": "made up"}},
        "servers": [{
            "name": "node",
            "count": 2,
            "device": "card",
            "devices": 2,
            "links": {"kind": "switch", "bandwidth": "10 GB/s", "latency": "5 us",
                      "source": "made up"},
            "nics": [{"bandwidth": "10 Gbit/s", "latency": "15 us", "source": "made up"}],
        }],
        "network": {"kind": "switch", "bandwidth": "10 Gbit/s", "latency": "0 us",
                    "source": "made up"},
    }
    topology.update(changes)
    return topology


class ToolTest(unittest.TestCase):
    """A test with an empty folder in which the program runs."""

    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, content):
        """Writes a document, or text as it is, and returns its name."""
        text = content if isinstance(content, str) else json.dumps(content, indent=1)
        (self.folder / name).write_text(text)
        return name

    def run_tool(self, *arguments, binary=None, environment=None, **options):
        """Runs the program; its output as text, unless stdout or stderr go elsewhere."""
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(
            [binary or ARGUMENTS.binary, *map(str, arguments)], cwd=self.folder, text=True,
            timeout=SECONDS, check=False,
            env={**os.environ, "LC_ALL": "C", "COLUMNS": "100", **(environment or {})}, **options)

    def run_on_terminal(self, *arguments, binary=None, columns=100, environment=None):
        """Runs the program with stdout and stderr on a terminal; exit code and all that it shows."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        variables = {**os.environ, "LC_ALL": "C", "TERM": "xterm", **(environment or {})}
        for name in ("NO_COLOR", "COLUMNS"):
            if name not in (environment or {}):
                variables.pop(name, None)
        process = subprocess.Popen([binary or ARGUMENTS.binary, *map(str, arguments)],
                                   cwd=self.folder, stdin=subprocess.DEVNULL, stdout=theirs,
                                   stderr=theirs, env=variables)
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # what Linux says when the last writer has closed it
                break
            if not part:
                break
            shown += part
        os.close(ours)
        return process.wait(SECONDS), shown.decode().replace("\r\n", "\n")

    def small_inputs(self):
        """Arguments for a search that takes no time."""
        return ("--model", self.write("small.json", small_profile()),
                "--topo", self.write("2x2.json", small_topology()))

    def run_plan(self, model, cluster, *more):
        """Plans for these documents; the plan is in plan.json."""
        return self.run_tool("--model", self.write("m.json", model), "--topo",
                             self.write("t.json", cluster), "-o", "plan.json", *more)

    def verified_plan(self, model, cluster, *more):
        """The plan for these documents, whose bound "verify" derives again."""
        run = self.run_plan(model, cluster, *more)
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        self.assertEqual(self.run_tool("verify", "plan.json").returncode, DONE)
        return self.read("plan.json")

    def make_plan(self, name="plan.json", *more):
        result = self.run_tool(*self.small_inputs(), "-o", name, *more)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return name

    def make_deep_plan(self, *more):
        """A plan of three stages or more: a layer's weights, gradients and Adam state take 4 x 100
        MiB, so a device of 1 GiB has no room for three of the six layers."""
        profile = small_profile(name="deep")
        profile["layers"][0]["parameter_bytes"] = 100 << 20
        result = self.run_tool("--model", self.write("deep.json", profile),
                               "--topo", self.write("2x2.json", small_topology()), "-o", "plan.json",
                               *more)
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertGreaterEqual(len(self.read("plan.json")["stages"]), 3)
        return "plan.json"

    def read(self, name):
        return json.loads((self.folder / name).read_text())

    def assert_error(self, result, code, *parts):
        """The exit code, "error: " before each fault, the parts in stderr, no trace of a crash."""
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertTrue(result.stderr.startswith("error: "), result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)
        self.assertNotIn("bug in dapple-plan", result.stderr)

    def assert_false_claim_is_told(self, plan, place, change):
        """`verify` refuses the plan that change(document) makes of this one, and names the place."""
        document = copy.deepcopy(plan)
        change(document)
        run = self.run_tool("verify", self.write("false.json", document))
        self.assertEqual(run.returncode, BAD_INPUT, run.stdout + run.stderr)
        self.assertIn(place, run.stderr + run.stdout)

    def assert_cases_agree(self, cases, subjects, compare, words_of, least=None):
        """compare(seed) finds no fault for any seed below `cases` times the scale, or for the one of
        DAPPLE_TEST_CASE, and all seeds together meet each subject, those of `least` as often as it
        says, times the scale. It returns a seed's faults and the subjects that it meets;
        words_of(seed) is what a fault is reported with."""
        only = os.environ.get("DAPPLE_TEST_CASE")
        met, wrong = collections.Counter(), []
        for seed in [int(only)] if only else range(cases * SCALE):
            faults, of_case = compare(seed)
            met += of_case
            if faults:
                wrong.append("\n  ".join([f"seed {seed}: {words_of(seed)}", *faults[:20]]))
        if SCALE > 1:
            print(json.dumps(met, indent=1), file=sys.stderr)
        self.assertFalse(wrong, f"{len(wrong)} cases differ:\n" + "\n".join(wrong[:20]))
        if not only:
            self.assertEqual([subject for subject in subjects if not met[subject]], [])
            self.assertEqual({subject: met[subject] for subject, count in (least or {}).items()
                              if met[subject] < count * SCALE}, {})


def main_with_torch():
    """main() where PyTorch is installed; elsewhere ctest is told that the test was skipped."""
    if importlib.util.find_spec("torch") is None:
        print("skipped: PyTorch is not installed (Debian: python3-torch)")
        sys.exit(SKIPPED)
    main()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--executor", type=pathlib.Path, help="dapple-exec (default: beside it)")
    parser.add_argument("--other-binary", type=pathlib.Path)
    parser.add_argument("--sanitized", action="store_true", help="it takes many times longer")
    known, rest = parser.parse_known_args()
    ARGUMENTS.binary = str(known.binary.resolve())
    ARGUMENTS.executor = str((known.executor or known.binary.with_name("dapple-exec")).resolve())
    ARGUMENTS.sanitized = known.sanitized
    if known.other_binary:
        ARGUMENTS.other_binary = str(known.other_binary.resolve())
    unittest.main(module="__main__", argv=[sys.argv[0], *rest])
