"""One quick run of each command, with a result that is known by hand or from another command. The
other files here test each command in full; these tests are the ones that `tools/test --changed` runs."""

import csv
import json
import sys
import unittest

import tool
from tool import ARGUMENTS, BAD_INPUT, DONE, INFEASIBLE, ROOT, USAGE, ToolTest
from trainable import cores, perceptron

GOLDEN = ROOT / "tests" / "golden"
# The plan has two stages of three layers, each on both devices of a server, and 8 micro-batches of 2
# samples, so a device computes 0.75 ms forward and 1.5 ms backward for its one sample. The iteration
# is 8 x 2.25 ms of work, 2.25 ms in which the other stage does the first forward and the last
# backward, the transfers that nothing hides, the all-reduce of 3 MiB over 10 GB/s in a ring of two
# (314,573 ns and two latencies of 5 us), and the optimizer step at 0.01 ns a byte.
WORK_NS = 8 * 2_250_000 + 2_250_000
ALL_REDUCE_NS = 314_573 + 2 * 5_000
STEP_NS = 31_458


class Planner(ToolTest):
    def test_plan_and_what_reads_it(self):
        plan = self.make_plan()
        document = self.read(plan)
        predicted = document["predicted"]
        self.assertEqual([stage["layers"] for stage in document["stages"]], [[0, 3], [3, 6]])
        self.assertEqual(predicted["exposed_all_reduce_ns"], ALL_REDUCE_NS)
        self.assertEqual(predicted["iteration_ns"] - predicted["exposed_transfer_ns"],
                         WORK_NS + ALL_REDUCE_NS + STEP_NS)
        self.assertEqual(predicted["lower_bound_ns"], predicted["iteration_ns"])
        for command, sign in [("simulate", "same figures as in the file"), ("validate", "valid: "),
                              ("verify", "verified: "), ("diff", "same")]:
            with self.subTest(command=command):
                result = self.run_tool(command, plan, *([plan] if command == "diff" else []))
                self.assertEqual(result.returncode, DONE, result.stderr)
                self.assertIn(sign, result.stdout)

    def test_a_plan_that_claims_too_much_is_refused(self):
        document = self.read(self.make_plan())
        document["predicted"]["iteration_ns"] -= 1
        result = self.run_tool("verify", self.write("claimed.json", document))
        self.assertEqual(result.returncode, BAD_INPUT)
        self.assertIn("/predicted/iteration_ns", result.stderr)

    def test_a_plan_with_a_layer_missing_is_refused(self):
        document = self.read(self.make_plan())
        document["stages"][1]["layers"][0] += 1
        self.assert_error(self.run_tool("validate", self.write("gap.json", document)), BAD_INPUT,
                          "/stages/1/layers")

    def test_too_little_memory_has_no_plan(self):
        result = self.run_tool("--model", self.write("small.json", tool.small_profile()), "--topo",
                               self.write("2x2.json", tool.small_topology("2 MiB")))
        self.assertEqual(result.returncode, INFEASIBLE)

    def test_unknown_options_are_named(self):
        self.assert_error(self.run_tool("--modle", "x"), USAGE, "--modle", "nearest is --model")
        self.assert_error(self.run_tool("--model", "x", "--model", "y"), USAGE, "--model: given twice")

    def test_schedule(self):
        result = self.run_tool("schedule", self.make_plan())
        lines = result.stdout.splitlines()
        self.assertEqual(len(lines), 4)
        for line, backwards in zip(lines, (8, 8, 8, 8)):
            actions = line.split(": ")[1].split()
            self.assertEqual(sum("B" in action[1:2] for action in actions), backwards)
            self.assertEqual(actions[-1][1:], "STEP")

    def test_report(self):
        result = self.run_tool("report", self.make_plan(), "-o", "page.html")
        self.assertEqual(result.returncode, DONE, result.stderr)
        page = (self.folder / "page.html").read_text()
        self.assertIn("small on 2x2", page)
        self.assertTrue(page.rstrip().endswith("</html>"))

    def test_reschedule(self):
        plan = self.make_plan()
        result = self.run_tool("reschedule", plan, "--schedule", "zb-h1", "-o", "h1.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertLess(self.read("h1.json")["predicted"]["iteration_ns"],
                        self.read(plan)["predicted"]["iteration_ns"])
        self.assertEqual(self.run_tool("validate", "h1.json").returncode, DONE)

    def test_export_and_import(self):
        plan = self.make_plan()
        result = self.run_tool("export", plan, "--to", "torch-csv", "-o", "order.csv")
        self.assertEqual(result.returncode, DONE, result.stderr)
        with open(self.folder / "order.csv", encoding="utf-8") as stream:
            rows = list(csv.reader(stream))
        self.assertEqual([sum("F" in cell for cell in row) for row in rows], [8, 8])
        self.assertEqual(rows[0][:4], ["0F0", "0F1", "0F2", "0B0"])
        self.assertEqual(rows[1][:4], ["", "1F0", "1B0", "1F1"])
        result = self.run_tool("import", "plan", GOLDEN / "interop" / "pair.deepspeed.py",
                               GOLDEN / "interop" / "pair.settings.json", "--model",
                               GOLDEN / "pair.profile.json", "--topo", GOLDEN / "pair.topology.json",
                               "-o", "imported.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(self.run_tool("validate", "imported.json").returncode, DONE)

    def test_import_of_topologies_and_models(self):
        interop = GOLDEN / "interop"
        for kind, source, known, more in [
                ("topology", "ring.astra.yml", "ring.topology.json",
                 ("--device", "card", "--memory", "16 GiB")),
                ("model", "small.piper.json", "piper.profile.json",
                 ("--optimizer", "adam", "--profile-device", "card"))]:
            with self.subTest(kind=kind):
                result = self.run_tool("import", kind, interop / source, *more, "-o", "made.json")
                self.assertEqual(result.returncode, DONE, result.stderr)
                made, golden = self.read("made.json"), json.loads((interop / known).read_text())
                for text in ("source", "name"):  # they name the file by its path
                    made.pop(text), golden.pop(text)
                self.assertEqual(made.keys(), golden.keys())
                parts = "servers" if kind == "topology" else "layers"
                self.assertEqual(len(made[parts]), len(golden[parts]))


class Executor(ToolTest):
    def run_exec(self, *arguments):
        return self.run_tool(*arguments, binary=ARGUMENTS.executor)

    def plan_on_cores(self):
        """Two stages: over such links gradients take longer than all else."""
        result = self.run_tool("--model", self.write("profile.json", perceptron()), "--topo",
                               self.write("cores.json", cores(2, "1 MB/s")), "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(len(self.read("plan.json")["stages"]), 2)
        return "plan.json"

    def test_train(self):
        plan = self.plan_on_cores()
        result = self.run_exec("train", "--plan", plan, "--verify")
        self.assertEqual(result.returncode, DONE, result.stderr)
        result = self.run_exec("train", "--plan", plan, "--steps", "3", "--checkpoint",
                               "saved.safetensors")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertRegex(result.stdout, r"step +3 +loss \d")
        self.assertGreater((self.folder / "saved.safetensors").stat().st_size, 4 * 64 * 64 * 4)

    def test_replay(self):
        result = self.run_exec("replay", "--plan", self.plan_on_cores(), "--iterations", "2",
                               "--timeline", "timeline.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(self.read("timeline.json")["schema"], "dapple-timeline/1")

    def test_profile(self):
        specification = json.loads((ROOT / "profiles" / "mlp.json").read_text())
        result = self.run_exec("profile", "--spec", self.write("mlp.json", specification),
                               "--batch-sizes", "1", "--repeat", "1", "-o", "profile.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        layers = self.read("profile.json")["layers"]
        self.assertTrue(all(layer["measurements"][0]["forward_ns"] > 0 for layer in layers))


if __name__ == "__main__":
    # `--program planner` or `executor`: one of the two alone.
    program = sys.argv[sys.argv.index("--program") + 1]
    del sys.argv[sys.argv.index("--program"):sys.argv.index("--program") + 2]
    del globals()["Executor" if program == "planner" else "Planner"]
    tool.main()
