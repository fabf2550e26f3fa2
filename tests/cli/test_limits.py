"""Requests at the limits of what can be planned: each ends, within its work and memory, with a plan
or with the limit that it exceeds."""

import resource

import tool
from tool import ARGUMENTS, BAD_INPUT, DONE, INFEASIBLE, NOT_VERIFIED, USAGE, ToolTest

FOUND = tool.ROOT / "tests" / "found" / "limits"


def inputs(profile, topology):
    return ("--model", FOUND / f"{profile}.profile.json", "--topo", FOUND / f"{topology}.topo.json")


class StagePasses(ToolTest):
    """128 layers, 131,072 micro-batches of one sample: 16.8 million passes, if each layer is a
    stage; ten million can be simulated at most, fewer within two gibibytes."""

    INPUTS = inputs("128-layers-131072-micro-batches", "128-devices")

    def assert_refused(self, *arguments):
        result = self.run_tool(*self.INPUTS, *arguments, "-o", "plan.json")
        self.assert_error(
            result, INFEASIBLE,
            "128 stages, the fewest that are as pinned, and 131072 micro-batches make 16777216 "
            "stage passes; at most 4194304 can be simulated within --memory-limit 2.00 GiB",
            "a larger --micro-batch helps: 4 or more")
        self.assertFalse((self.folder / "plan.json").exists())

    def test_pins_that_leave_only_plans_with_too_many_are_refused_with_the_figures(self):
        self.assert_refused("--micro-batch", "1", "--pin", "stages=128")
        result = self.run_tool(*self.INPUTS, "--micro-batch", "1", "--pin", "stages=128",
                               "--memory-limit", "16 GiB", "-o", "plan.json")
        self.assert_error(result, INFEASIBLE, "at most 10000000 can be simulated\n",
                          "a larger --micro-batch helps: 2 or more")
        cuts = [part for layer in range(1, 128) for part in ("--pin", f"cut={layer}")]
        for planner in ("exact", "dapple"):
            self.assert_refused("--micro-batch", "1", "--planner", planner, "--no-baselines", *cuts)

    def test_with_a_larger_micro_batch_the_pinned_plan_is_made(self):
        plan = self.read(self.make_plan_of("--micro-batch", "64", "--pin", "stages=128"))
        self.assertEqual(len(plan["stages"]), 128)

    def test_without_the_pin_a_plan_is_made(self):
        plan = self.read(self.make_plan_of("--micro-batch", "1"))
        self.assertLessEqual(len(plan["stages"]) * plan["num_micro_batches"], 10_000_000)

    def test_a_page_of_a_very_long_plan_is_refused_with_the_figures(self):
        if ARGUMENTS.sanitized:
            self.skipTest("takes seconds in a release build, and minutes here")
        plan = self.make_plan_of("--micro-batch", "16", "--pin", "stages=128")
        result = self.run_tool("report", plan, "-o", "page.html")
        self.assert_error(
            result, BAD_INPUT, "plan.json: /num_micro_batches: expected a page of at most 1000000 "
            "passes of a micro-batch through a stage, got 1048576")
        self.assertFalse((self.folder / "page.html").exists())

    def make_plan_of(self, *arguments):
        result = self.run_tool(*self.INPUTS, "--planner", "dapple", "--no-baselines",
                               "--time-limit", "5", *arguments, "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        return "plan.json"


class Layers(ToolTest):
    """Small files that ask for many layers on few devices: what is searched is bounded by counted
    work and kept bytes."""

    KIBIBYTES = 2 << 20  # of memory, the default of --memory-limit

    def assert_planned(self, profile, topology):
        result = self.run_tool(*inputs(profile, topology), "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        figures = self.read("plan.json")["predicted"]
        self.assertLess(0, figures["lower_bound_ns"])
        self.assertLessEqual(figures["lower_bound_ns"], figures["iteration_ns"])
        if not ARGUMENTS.sanitized:
            kept = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            self.assertLess(kept, self.KIBIBYTES)

    def test_many_layers_on_one_device(self):
        self.assert_planned("99990-layers", "1-device")

    def test_many_layers_on_a_few_devices(self):
        if ARGUMENTS.sanitized:
            self.skipTest("takes half a minute in a release build, and minutes here")
        self.assert_planned("5000-layers", "16-devices")


class Orders(ToolTest):
    """Orders of a plan with many micro-batches are searched within the memory limit, too."""

    def setUp(self):
        super().setUp()
        profile = tool.small_profile(global_batch_size=65536)
        result = self.run_tool("--model", self.write("long.json", profile), "--topo",
                               self.write("2x2.json", tool.small_topology()), "--planner", "dapple",
                               "--no-baselines", "--micro-batch", "1", "--pin", "stages=4", "-o",
                               "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)

    def reschedule(self, *arguments):
        return self.run_tool("reschedule", "plan.json", "-o", "new.json", *arguments)

    def test_more_tasks_than_have_room_are_refused_with_the_figures(self):
        result = self.reschedule("--schedule", "zb-h1", "--memory-limit", "128 MiB")
        self.assert_error(result, INFEASIBLE, "no zb-h1 schedule of these stages: its orders have "
                          "786432 tasks; at most ", " can be searched within --memory-limit 0.12 GiB",
                          "cheapest remedy  a larger --memory-limit, or a plan with larger "
                          "micro-batches")
        result = self.reschedule("--schedule", "1f1b", "--memory-limit", "64 MiB")
        self.assert_error(result, INFEASIBLE, "65536 micro-batches on 4 stages make 262144 stage "
                          "passes; at most ", " can be simulated within --memory-limit 0.06 GiB")
        self.assertFalse((self.folder / "new.json").exists())
        self.assert_error(self.reschedule("--schedule", "zb-h1", "--memory-limit", "1 MiB"), USAGE,
                          "--memory-limit: expected 64 MiB or more, got 1 MiB")

    def test_with_room_a_few_orders_are_tried(self):
        if ARGUMENTS.sanitized:
            self.skipTest("takes seconds in a release build, and minutes here")
        result = self.reschedule("--schedule", "zb-h1", "--time-limit", "2")
        self.assertEqual(result.returncode, DONE, result.stderr)
        new = self.read("new.json")
        # The plan holds up to ten micro-batches, zb-h1 four: it may be slower.
        predicted = new["predicted"]
        self.assertLessEqual(predicted["lower_bound_ns"], predicted["iteration_ns"])
        # That it was stopped is said, and verify takes it for true.
        stopped = ("the search for the best order or depths was stopped by --time-limit before it "
                   "was through")
        self.assertEqual(new["warnings"][-1:], [stopped])
        result = self.run_tool("verify", "new.json")
        self.assertIn(result.returncode, (DONE, NOT_VERIFIED), result.stderr)
        new["warnings"][-1] = stopped.replace("before", "long before")
        self.write("new.json", new)
        self.assert_error(self.run_tool("verify", "new.json"), BAD_INPUT, "/warnings/")


if __name__ == "__main__":
    tool.main()
