"""Replicas that start together and independent ones."""

import json

import tool
from tool import BAD_INPUT, DONE, USAGE, ToolTest

# Stages of unlike shares on unlike devices: what a replica waits for makes a difference.
UNLIKE = ("--model", tool.ROOT / "profiles" / "vgg-19.json",
          "--topo", tool.ROOT / "topologies" / "mixed-A100-V100.json",
          "--planner", "dapple", "--micro-batch", "64", "--no-baselines")
ONE_EACH = ("--model", tool.ROOT / "profiles" / "bert-48.json",
            "--topo", tool.ROOT / "topologies" / "16x1xV100-25g.json",
            "--pin", "replicas=1", "--planner", "dapple", "--no-baselines")


class Replicas(ToolTest):
    def plan(self, name, *options):
        result = self.run_tool("plan", *options, "-o", name)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return result.stdout

    def test_the_file_says_only_what_is_not_the_usual_way(self):
        self.plan("together.json", *UNLIKE)
        self.plan("same.json", *UNLIKE, "--replicas", "together")
        self.plan("apart.json", *UNLIKE, "--replicas", "independent")
        self.assertEqual((self.folder / "together.json").read_bytes(),
                         (self.folder / "same.json").read_bytes())
        self.assertNotIn("replicas", self.read("together.json")["predicted"])
        self.assertEqual(self.read("apart.json")["predicted"]["replicas"], "independent")

    def test_the_summary_says_what_the_other_way_would_change(self):
        together = self.plan("together.json", *UNLIKE)
        apart = self.plan("apart.json", *UNLIKE, "--replicas", "independent")
        self.assertRegex(together, r"\nIndependent replicas: [0-9.]+ ms \([0-9.]+ % less\)\n")
        self.assertRegex(apart, r"\nReplicas together: [0-9.]+ ms \([0-9.]+ % more\)\n")
        # The same plan the other way takes what was said, and says what it takes this way.
        other = self.run_tool("simulate", "apart.json", "--replicas", "together").stdout
        said = apart.split("Replicas together: ")[1].split(" (")[0]
        self.assertIn(f"iteration           {said}, simulated", other)
        own = self.read("apart.json")["predicted"]["iteration_ns"]
        self.assertIn(f"Independent replicas: {own / 1e6:.1f} ms", other)

    def test_with_one_replica_per_stage_there_is_no_other_way(self):
        together = self.plan("together.json", *ONE_EACH)
        apart = self.plan("apart.json", *ONE_EACH, "--replicas", "independent")
        self.assertNotIn("\nReplicas ", together + apart)
        figures = [self.read(name)["predicted"] for name in ("together.json", "apart.json")]
        self.assertEqual(figures[1].pop("replicas"), "independent")
        self.assertEqual(*figures)

    def test_other_commands_go_by_the_file(self):
        self.plan("apart.json", *UNLIKE, "--replicas", "independent")
        simulated = self.run_tool("simulate", "apart.json", "--trace", "trace.json",
                                  "--timeline", "timeline.json")
        self.assertIn("same figures as in the file", simulated.stdout)
        self.assertEqual(self.run_tool("verify", "apart.json").returncode, DONE)
        report = self.run_tool("report", "apart.json", "-o", "page.html", "--svg", "figure.svg")
        self.assertEqual(report.returncode, DONE, report.stderr)
        for name in ("page.html", "figure.svg"):
            self.assertIn("stage 0 replica 1", (self.folder / name).read_text())
        own = self.run_tool("diff", "apart.json", "apart.json").stdout
        as_usual = self.run_tool("diff", "apart.json", "apart.json", "--replicas", "together")
        self.assertNotEqual(own, as_usual.stdout)
        self.assertEqual(self.run_tool("reschedule", "apart.json", "--schedule", "gpipe", "-o",
                                       "gpipe.json").returncode, DONE)
        self.assertEqual(self.read("gpipe.json")["predicted"]["replicas"], "independent")

    def test_the_share_of_a_replica_is_a_line_of_its_own(self):
        self.plan("apart.json", *UNLIKE, "--replicas", "independent")
        self.run_tool("simulate", "apart.json", "--timeline", "timeline.json")
        # The last samples of stage 0 are fewer: its replica is through with them earlier.
        ends = {}
        stage = self.read("apart.json")["stages"][0]
        for device in self.read("timeline.json")["actions"]:
            if device["action"] == "0F0":
                ends[device["device"]] = device["end_ns"]
        first, last = stage["devices"][0], stage["devices"][-1]
        self.assertLess(ends[last], ends[first])

    def test_a_file_that_says_the_other_way_is_refuted(self):
        self.plan("apart.json", *UNLIKE, "--replicas", "independent")
        plan = self.read("apart.json")
        del plan["predicted"]["replicas"]
        (self.folder / "wrong.json").write_text(json.dumps(plan))
        self.assert_error(self.run_tool("verify", "wrong.json"), BAD_INPUT,
                          "/predicted/iteration_ns: expected ")

    def test_wrong_words_are_refused(self):
        self.assert_error(self.run_tool("plan", *UNLIKE, "--replicas", "alone"), USAGE,
                          '--replicas: expected together or independent, got "alone"')
        self.assert_error(self.run_tool("plan", *UNLIKE, "--replicas", "together", "--replicas",
                                        "independent"), USAGE, "--replicas: given twice")
        self.assert_error(self.run_tool("plan", *UNLIKE, "--replicas"), USAGE, "--replicas: ")
        self.assert_error(self.run_tool("verify", "plan.json", "--replicas", "together"), USAGE,
                          "--replicas")

    def test_schedules_beyond_1f1b_are_planned_with_replicas_together(self):
        for family in ("auto", "zb-v"):
            self.assert_error(
                self.run_tool(*self.small_inputs(), "--schedule", family, "--replicas",
                              "independent"), USAGE,
                f"--replicas: independent replicas need --schedule 1f1b or gpipe, got {family}")


if __name__ == "__main__":
    tool.main()
