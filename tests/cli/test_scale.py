"""Small rows of the benchmark tests/bench/scale: gaps, hidden plans, and threads. Its larger rows are
run by hand, as they take minutes."""

import importlib.machinery
import importlib.util
import random

import tool
from tool import DONE, ROOT, ToolTest

SEED = 7  # that of the benchmark's table


def benchmark():
    loader = importlib.machinery.SourceFileLoader("scale", str(ROOT / "tests" / "bench" / "scale"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("scale", loader))
    loader.exec_module(module)
    return module


SCALE = benchmark()


class Scale(ToolTest):
    def plan(self, inputs, *more, name="plan.json"):
        model, cluster = inputs
        run = self.run_tool("--model", model, "--topo", cluster, "--no-baselines", "--quiet", "-o",
                            name, *more)
        self.assertEqual(run.returncode, DONE, run.stderr)
        return self.read(name)

    def chain(self, layers, devices):
        return SCALE.write_problem(self.folder, SCALE.random_layers(layers, random.Random(SEED)),
                                   devices)

    def test_8_devices_leave_no_gap(self):
        plan = self.plan(self.chain(100, 8))
        self.assertEqual(plan["predicted"]["optimality_gap"], 0)

    def test_64_devices_leave_a_gap_of_two_percent_and_any_threads_write_the_same_bytes(self):
        inputs = self.chain(100, 64)
        plan = self.plan(inputs, "--gap", "2%", "--threads", 1, name="one.json")
        self.assertEqual(plan["search_space"]["planner"], "diagrams")
        self.assertLessEqual(plan["predicted"]["optimality_gap"], 0.02)
        self.plan(inputs, "--gap", "2%", "--threads", 2, name="two.json")
        self.assertEqual((self.folder / "one.json").read_bytes(),
                         (self.folder / "two.json").read_bytes())

    def test_the_plan_found_is_no_slower_than_a_hidden_one(self):
        for devices in (8, 16, 64):
            with self.subTest(devices=devices):
                layers, words = SCALE.planted_layers(100, devices, random.Random(SEED))
                inputs = SCALE.write_problem(self.folder, layers, devices)
                hidden = SCALE.simulated(tool.ARGUMENTS.binary, words, *inputs)
                # The hidden plan just fits.
                peak = max(device["peak_memory_bytes"] for device in hidden["devices"])
                inputs = SCALE.write_problem(self.folder, layers, devices,
                                             peak * 101 // 100 // SCALE.MIB + 1)
                plan = self.plan(inputs)["predicted"]
                self.assertLessEqual(plan["iteration_ns"], 1.03 * hidden["iteration_ns"])
                self.assertLessEqual(plan["optimality_gap"], 0.02)


if __name__ == "__main__":
    tool.main()
