"""Plans as other runtimes and launchers take them."""

import ast
import csv
import io
import subprocess

import tool
from tool import BAD_INPUT, DONE, USAGE, ToolTest

TARGETS = ("megatron", "deepspeed", "torch-csv", "torchtitan", "rankfile", "hostfile",
           "visible-devices")


class Exporting(ToolTest):
    def blocks(self):
        """A model of numbered blocks between an embedding and a head."""
        profile = tool.small_profile()
        names = ["embedding", *(f"block.{i}" for i in range(len(profile["layers"]) - 2)), "head"]
        for layer, name in zip(profile["layers"], names):
            layer["name"] = name
        return self.write("blocks.json", profile)

    def plan(self, *more):
        topology = self.write("topology.json", tool.small_topology())
        result = self.run_tool("--model", self.blocks(), "--topo", topology, "--pin",
                               "depths=least", "--pin", "stages=2", "--pin", "replicas=2", *more,
                               "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        return "plan.json"

    def export(self, plan, target):
        result = self.run_tool("export", plan, "--to", target, "-o", "-")
        self.assertEqual(result.returncode, DONE, result.stderr)
        return result.stdout

    def test_every_target_takes_a_plan_that_was_made_for_it(self):
        plan = self.plan()
        for target in TARGETS:
            with self.subTest(target=target):
                self.assertTrue(self.export(plan, target))

    def test_scripts_and_programs_are_sound(self):
        plan = self.plan()
        ast.parse(self.export(plan, "deepspeed"))
        for target in ("megatron", "torchtitan", "visible-devices"):
            checked = subprocess.run(["bash", "-n"], input=self.export(plan, target), text=True,
                                     capture_output=True, check=False)
            self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    def test_each_rank_gets_its_own_device(self):
        wrapper = self.write("wrapper.sh", self.export(self.plan(), "visible-devices"))
        seen = []
        for rank in range(4):
            result = subprocess.run(["sh", wrapper, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"],
                                    env={"RANK": str(rank), "PATH": "/usr/bin:/bin"}, text=True,
                                    capture_output=True, cwd=self.folder, check=True)
            seen.append(result.stdout.strip())
        devices = [device.split(":")[1] for stage in self.read("plan.json")["stages"]
                   for device in stage["devices"]]
        self.assertEqual(seen, devices)
        unknown = subprocess.run(["sh", wrapper, "true"], env={"RANK": "4"}, text=True,
                                 capture_output=True, cwd=self.folder, check=False)
        self.assertEqual(unknown.returncode, 2)
        self.assertIn("expected a rank from 0 to 3, got '4'", unknown.stderr)

    def test_an_order_comes_back_as_it_went(self):
        plan = self.plan()
        grid = self.write("order.csv", self.export(plan, "torch-csv"))
        rows = list(csv.reader(io.StringIO(self.export(plan, "torch-csv"))))
        self.assertEqual(len(rows), 2)
        self.assertEqual(len({len(row) for row in rows}), 1)
        result = self.run_tool("reschedule", plan, "--schedule", "given", "--order", grid, "-o",
                               "again.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(self.run_tool("schedule", plan).stdout,
                         self.run_tool("schedule", "again.json").stdout)

    def test_what_a_target_cannot_express_is_an_error(self):
        self.run_tool("reschedule", self.plan(), "--schedule", "gpipe", "-o", "gpipe.json")
        self.assert_error(self.run_tool("export", "gpipe.json", "--to", "megatron"), BAD_INPUT,
                          "gpipe.json: /schedule/family: expected 1f1b or interleaved, which "
                          "Megatron-LM runs, got gpipe")
        self.assertFalse((self.folder / "small.megatron.sh").exists())

    def test_the_target_must_be_known(self):
        plan = self.plan()
        self.assert_error(self.run_tool("export", plan), USAGE, "--to: expected one of megatron, ")
        self.assert_error(self.run_tool("export", plan, "--to", "tensorflow"), USAGE,
                          "--to: expected megatron, deepspeed, ", "got \"tensorflow\"")

    def test_without_a_name_the_file_is_named_after_the_model(self):
        result = self.run_tool("export", self.plan(), "--to", "hostfile")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("written to ./small.hostfile", result.stdout)
        self.assertTrue((self.folder / "small.hostfile").exists())

    def test_depths_are_pinned_for_1f1b_only(self):
        self.assert_error(
            self.run_tool(*self.small_inputs(), "--pin", "depths=least", "--schedule", "zb-h1"),
            USAGE, "--pin: expected depths=least with --schedule 1f1b only, got zb-h1")


if __name__ == "__main__":
    tool.main()
