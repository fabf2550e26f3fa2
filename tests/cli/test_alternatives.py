"""Plans of other layouts than the chosen one (plan --alternatives)."""

import json
import signal
import subprocess
import time

import tool
from tool import DONE, INFEASIBLE, NOT_VERIFIED, USAGE, ToolTest

GAP = 1.001  # to which alternatives are searched


class Alternatives(ToolTest):
    def small(self):
        return ("--model", self.write("model.json", tool.small_profile()), "--topo",
                self.write("topology.json", tool.small_topology()), "--no-baselines", "-o",
                "plan.json")

    def llama(self):
        return ("--model", tool.ROOT / "profiles" / "llama-3-8b.json", "--topo",
                tool.ROOT / "topologies" / "8xH100.json", "--global-batch", "64",
                "--no-baselines", "-o", "plan.json")

    def result(self, *arguments):
        run = self.run_tool(*arguments, "--json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        return json.loads(run.stdout)

    def test_each_is_the_plan_that_its_options_make(self):
        for made, more in ((self.small(), ()), (self.llama(), ("--shard", "auto"))):
            with self.subTest(model=made[1]):
                result = self.result(*made, *more, "--alternatives", "4", "--write-alternatives",
                                     "other")
                best = result["plans"][0]["predicted"]["iteration_ns"]
                found = result["alternatives"]
                self.assertGreater(len(found), 1)
                times = [some["iteration_ns"] for some in found]
                self.assertEqual(times, sorted(times))
                self.assertEqual(len({some["options"] for some in found}), len(found))
                for position, some in enumerate(found, 1):
                    self.assertEqual(some["file"], f"other/alternative-{position}.plan.json")
                    self.assertGreaterEqual(some["iteration_ns"], best)
                    self.assertLessEqual(some["lower_bound_ns"], some["iteration_ns"])
                    own = self.result(*made[:-1], "own.json", *some["options"].split())
                    again = own["plans"][0]["predicted"]
                    self.assertGreaterEqual(again["iteration_ns"], some["lower_bound_ns"])
                    self.assertLessEqual(again["iteration_ns"], some["iteration_ns"])
                    self.assertLessEqual(some["iteration_ns"], GAP * again["iteration_ns"])
                    plan = self.read(some["file"])
                    self.assertEqual(plan["predicted"]["iteration_ns"], some["iteration_ns"])
                    checked = self.run_tool("verify", some["file"])
                    self.assertEqual(checked.returncode, DONE, checked.stdout + checked.stderr)

    def test_all_numbers_of_stages_that_divide_the_devices_are_layouts(self):
        result = self.result(*self.small(), "--alternatives", "100")
        numbers = {len(self.read("plan.json")["stages"])}
        for some in result["alternatives"]:
            self.assertIsNone(some["file"])
            numbers.add(int(some["options"].removeprefix("--pin stages=")))
        self.assertEqual(numbers, {1, 2, 4})

    def test_they_are_within_what_was_asked_for(self):
        result = self.result(*self.llama(), "--alternatives", "100", "--pin", "tensor=2")
        self.assertTrue(result["alternatives"])
        for some in result["alternatives"]:
            self.assertIn("--pin tensor=2", some["options"])
        result = self.result(*self.llama(), "--alternatives", "100", "--pin", "stages=2",
                             "--max-tensor", "4")
        self.assertTrue(result["alternatives"])
        for some in result["alternatives"]:
            self.assertIn("--pin stages=2", some["options"])
            self.assertNotIn("tensor=8", some["options"])
        # Nothing else is left.
        result = self.result(*self.small(), "--alternatives", "3", "--pin", "stages=2")
        self.assertEqual(result["alternatives"], [])
        run = self.run_tool(*self.small(), "--alternatives", "3", "--pin", "stages=2")
        self.assertIn("No plan of another layout was found\n", run.stdout)

    def test_the_table_names_layouts_and_what_differs(self):
        run = self.run_tool(*self.llama(), "--shard", "auto", "--alternatives", "3",
                            "--write-alternatives", "other/")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("another layout, by --pin", run.stdout)
        self.assertRegex(run.stdout, r"stages=\d+ tensor=\d+ .*--shard \w+ +[\d.]+ s +[\d.]+ % ")
        self.assertRegex(" ".join(run.stdout.split()),
                         r"\d of them (is|are) a tie with the plan, within the calibration's "
                         r"error of 5\.2 % \(docs/accuracy\.md\)\. To decide, measure: row")
        self.assertEqual(sorted(path.name for path in (self.folder / "other").iterdir()),
                         [f"alternative-{n}.plan.json" for n in (1, 2, 3)])

    def with_error(self, error):
        """The options of a small model whose profile states the error of its calibration."""
        changes = {} if error is None else {"calibration_error": error}
        model = self.write("stated.json", tool.small_profile(**changes))
        return ("--model", model, *self.small()[2:], "--alternatives", "100")

    def test_a_calibration_s_error_decides_what_is_a_tie(self):
        measured = self.result(*self.with_error(None))
        best = measured["plans"][0]["predicted"]["iteration_ns"]
        found = measured["alternatives"]
        self.assertEqual([some.get("tie") for some in found], [None] * 2)
        nearest, other = (some["iteration_ns"] / best - 1 for some in found)
        self.assertGreater(nearest, 0.001)
        self.assertGreater(other, nearest + 0.001)
        # Just below the nearest, just above it, and above both.
        for error, ties in ((nearest - 0.0005, 0), (nearest + 0.0005, 1), (other + 0.0005, 2)):
            with self.subTest(error=error):
                error = round(error, 9)
                inputs = self.with_error(error)
                result = self.result(*inputs)
                tie = {"calibration_error": error, "measure": "an iteration of each plan"}
                self.assertEqual(
                    [some.get("tie") for some in result["alternatives"]],
                    [tie] * ties + [None] * (2 - ties))
                self.assertEqual([{**some, "tie": None} for some in result["alternatives"]],
                                 [{**some, "tie": None} for some in found])
                self.assertEqual(self.read("plan.json")["model"]["profile"]["calibration_error"],
                                 error)
                text = " ".join(self.run_tool(*inputs).stdout.split())
                self.assertEqual("a tie with the plan" in text, ties > 0)
                self.assertNotIn("about the error of predictions", text)
                if ties > 0:
                    are, rows = [("is", "row 1"), ("are", "rows 1, 2")][ties - 1]
                    self.assertIn(
                        f"{ties} of them {are} a tie with the plan, within the calibration's error "
                        f"of {100 * error:.1f} % (docs/accuracy.md). To decide, measure: {rows}: "
                        "an iteration of each plan", text)
        # Of a measured profile no error is known.
        self.assertNotIn("a tie", self.run_tool(*self.with_error(None)).stdout)

    def test_estimates_of_older_versions_state_no_error(self):
        profile = json.loads((tool.ROOT / "profiles" / "llama-3-8b.json").read_text())
        self.assertEqual(profile.pop("calibration_error"), 0.051939653)
        inputs = ("--model", self.write("old.json", profile), *self.llama()[2:], "--shard", "auto",
                  "--alternatives", "3")
        self.assertFalse([some for some in self.result(*inputs)["alternatives"] if "tie" in some])
        run = self.run_tool(*inputs)
        self.assertIn("3 of them are within 5 % of the plan, about the error of predictions "
                      "(docs/accuracy.md): what\ndiffers most decides, once it is measured\n",
                      run.stdout)
        self.assertNotIn("a tie", run.stdout)

    def test_what_to_measure_follows_from_what_differs(self):
        # The plan has one stage and shards its state over all eight devices.
        inputs = (*self.llama(), "--pin", "stages=1", "--shard", "full", "--alternatives", "4")
        found = self.result(*inputs)["alternatives"]
        pinned = "--pin stages=1 --pin tensor={} --pin shards={} --pin recompute=none"
        both = "an iteration of each plan"
        self.assertEqual(
            [(some["options"], some.get("tie", {}).get("measure")) for some in found],
            [(pinned.format(1, 4),
              "gathers of parameters and reductions of gradients over 8 and 4 devices"),
             (pinned.format(2, 4), both), (pinned.format(2, 2), both), (pinned.format(4, 2), None)])
        self.assertIn("\n  row 1: gathers of parameters and reductions of gradients over 8 and 4 "
                      "devices\n  rows 2, 3: an iteration of each plan\n",
                      self.run_tool(*inputs).stdout)

    def test_those_of_the_dapple_planner_are_sound(self):
        result = self.result(*self.small(), "--planner", "dapple", "--alternatives", "2",
                             "--write-alternatives", "other")
        self.assertTrue(result["alternatives"])
        for some in result["alternatives"]:
            self.assertIsNone(some["lower_bound_ns"])
            checked = self.run_tool("verify", some["file"])
            self.assertEqual(checked.returncode, DONE, checked.stdout + checked.stderr)

    def test_an_interrupted_search_says_that_there_are_none_yet(self):
        process = subprocess.Popen(
            [tool.ARGUMENTS.binary, "--model", str(tool.ROOT / "profiles" / "gnmt-16.json"),
             "--topo", str(tool.ROOT / "topologies" / "16x1xV100-25g.json"), "--no-baselines", "-o",
             "plan.json", "--alternatives", "2", "--proof", "proof.json"], cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        shown, errors = process.communicate(timeout=tool.SECONDS)
        self.assertEqual(process.returncode, NOT_VERIFIED, errors)
        self.assertIn("No plan of another layout was found so far\ninterrupted: not all layouts were "
                      "searched\n", shown)
        self.assertIn("no proof is written: the search was interrupted", errors)
        self.assertFalse((self.folder / "proof.json").exists())

    def test_where_no_plan_fits_there_are_none(self):
        made = (*self.small()[:2], "--topo",
                self.write("tiny.json", tool.small_topology(memory="1 MiB")))
        run = self.run_tool(*made, "--alternatives", "3", "-o", "plan.json")
        self.assertEqual(run.returncode, INFEASIBLE, run.stderr)
        self.assertNotIn("layout", run.stdout)

    def test_usage(self):
        small = self.small()
        for value in ("0", "101", "x"):
            self.assert_error(self.run_tool(*small, "--alternatives", value), USAGE,
                              "--alternatives: expected a whole number from 1 to 100")
        self.assert_error(self.run_tool(*small, "--write-alternatives", "other"), USAGE,
                          "--write-alternatives: needs --alternatives")
        self.assert_error(self.run_tool(*small, "--alternatives", "2", "--write-alternatives", "-"),
                          USAGE, "--write-alternatives: expected a directory, got \"-\"")
        self.assert_error(
            self.run_tool(*small[:-1], "other/alternative-2.plan.json", "--alternatives", "2",
                          "--write-alternatives", "other"), tool.ENVIRONMENT, "other")
        (self.folder / "other").mkdir()
        self.assert_error(
            self.run_tool(*small[:-1], "other/alternative-2.plan.json", "--alternatives", "2",
                          "--write-alternatives", "other"), USAGE, "other/alternative-2.plan.json")
        pareto = self.run_tool("pareto", *small[:4], "--alternatives", "2")
        self.assertEqual(pareto.returncode, USAGE)


if __name__ == "__main__":
    tool.main()
