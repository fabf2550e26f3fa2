"""What a search can be told: when to stop, how good is good enough, what is pinned."""

import json
import os
import resource
import signal
import subprocess
import time

import tool
from tool import BAD_INPUT, DONE, INFEASIBLE, NOT_VERIFIED, USAGE, ToolTest

# So large that any search of it takes seconds.
LARGE = ("--model", tool.ROOT / "profiles" / "gnmt-16.json",
         "--topo", tool.ROOT / "topologies" / "16x8xH100.json", "--threads", "1")
PLANNERS = ("exact", "dapple")
PATIENCE = 20  # seconds within which a search that was told to stop has ended, sanitizers included


def layer(name, inputs, mebibytes, forward=1000000):
    """A layer of a graph, without parameters, at batch 4."""
    return {"name": name, "inputs": inputs, "parameter_bytes": 0,
            "measurements": [{"batch_size": 4, "forward_ns": forward, "backward_ns": 2 * forward,
                              "output_bytes": mebibytes << 20, "stash_bytes": 1 << 20}]}


class Orders(ToolTest):
    """What other orders of the layers could gain."""
    HEAD = layer("head", [], 1)
    WIDE = (layer("wide", ["head"], 64), layer("wider", ["wide"], 64))
    NARROW = (layer("narrow", ["head"], 8), layer("narrower", ["narrow"], 1))
    END = layer("end", ["wider", "narrower"], 1)

    def compared(self, layers, *more):
        profile = self.write("graph.json", tool.small_profile(layers=list(layers)))
        run = self.run_tool("--model", profile, "--topo", self.write("t.json", self.topology()),
                            "--orders", "-o", "p.json", *more)
        self.assertEqual(run.returncode, DONE, run.stderr)
        lines = run.stdout.partition("Other orders: ")[2].partition("\nplan written")[0]
        return " ".join(lines.split()), self.read("p.json")["predicted"]["iteration_ns"]

    @staticmethod
    def topology():
        return tool.small_topology("16 GiB")

    def test_the_best_plan_of_any_order_is_not_below_the_bound(self):
        orders = [(self.HEAD, *self.NARROW, *self.WIDE, self.END),
                  (self.HEAD, self.WIDE[0], self.NARROW[0], self.NARROW[1], self.WIDE[1], self.END),
                  (self.HEAD, *self.WIDE, *self.NARROW, self.END)]
        found = [self.compared(layers) for layers in orders]
        best = min(iteration for _, iteration in found)
        for words, iteration in found:
            self.assertIn("the layers have 11 down-sets, and no plan over any order of them", words)
            if iteration > best:
                self.assertIn("is below", words)
            if "is below" in words:
                bound = float(words.partition("is below ")[2].split()[0]) * 1000000
                self.assertLess(bound, best * 1.001)

    def test_layers_that_stand_in_a_chain_have_one_order(self):
        words, _ = self.compared((self.HEAD, *self.NARROW))
        self.assertEqual(words, "the layers have one order only")

    def test_more_down_sets_than_can_be_listed_are_named(self):
        layers = [layer("head", [], 1)] + [layer(f"l{i}", ["head"], 1) for i in range(18)]
        words, _ = self.compared(layers, "--micro-batch", "16", "--time-limit", "2")
        self.assertEqual(words, "not compared, as the layers have more than 200000 down-sets or are "
                                "too many")

    def wide_graph(self):
        """Twelve layers side by side, with 4,097 down-sets, on 16 devices: comparing them takes half a
        minute, where the plan, of one stage, is found at once."""
        layers = [layer("head", [], 1)]
        layers += [layer(f"l{i}", ["head"], 64, (1 + i % 3) * 1000000) for i in range(12)]
        for one in layers:
            one["parameter_bytes"] = 100 << 20
        topology = self.topology()
        topology["servers"][0]["devices"] = 8
        return ("--model", self.write("wide.json", tool.small_profile(global_batch_size=64,
                                                                      layers=layers)),
                "--topo", self.write("t.json", topology), "--pin", "stages=1", "--no-baselines",
                "--orders", "-o", "plan.json")

    def test_a_time_limit_ends_the_comparison_too(self):
        begin = time.monotonic()
        run = self.run_tool(*self.wide_graph(), "--time-limit", "1")
        self.assertLess(time.monotonic() - begin, PATIENCE)
        self.assertEqual(run.returncode, DONE, run.stderr)
        words = " ".join(run.stdout.split())
        self.assertRegex(words, r"Other orders: the layers have 4097 down-sets, .* is below .* by the "
                                r"work alone, as not all stages were tried; --time-limit ended the "
                                r"comparison plan written to plan.json")

    def test_a_signal_ends_the_comparison_and_the_plan_is_written(self):
        process = subprocess.Popen([tool.ARGUMENTS.binary, *map(str, self.wide_graph())],
                                   cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        time.sleep(2)
        self.assertIsNone(process.poll(), "the comparison ended before it was interrupted")
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        shown, errors = process.communicate(timeout=tool.SECONDS)
        self.assertLess(time.monotonic() - begin, PATIENCE)
        self.assertEqual((process.returncode, errors), (DONE, ""))
        self.assertIn("; the comparison was interrupted", " ".join(shown.split()))
        self.assertEqual(self.run_tool("verify", "plan.json").returncode, DONE)

    def test_what_has_no_bound_is_refused(self):
        ground = ("--model", self.write("m.json", tool.small_profile()), "--topo",
                  self.write("t.json", self.topology()), "--orders", "-o", "p.json")
        for words in (("--schedule", "auto"), ("--schedule", "zb-h1"),
                      ("--replicas", "independent"), ("--per-stage",), ("--json",)):
            with self.subTest(words=words):
                self.assert_error(self.run_tool(*ground, *words), USAGE, "--orders: ")


class Stopping(ToolTest):
    def assert_stopped_with_a_plan(self, code, stderr, why):
        self.assertEqual(code, DONE, stderr)
        warnings = self.read("plan.json")["warnings"]
        self.assertTrue(any(why in warning for warning in warnings), warnings)
        result = self.run_tool("validate", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)

    def test_a_time_limit_ends_the_search_with_the_best_plan_so_far(self):
        for planner in PLANNERS:
            with self.subTest(planner=planner):
                begin = time.monotonic()
                result = self.run_tool(*LARGE, "--planner", planner, "--time-limit", "0.5", "-o",
                                       "plan.json")
                self.assertLess(time.monotonic() - begin, PATIENCE)
                self.assert_stopped_with_a_plan(
                    result.returncode, result.stderr,
                    "the search was stopped by --time-limit 0.5 before ")

    def test_a_signal_ends_the_search_with_the_best_plan_so_far(self):
        for planner in PLANNERS:
            for number in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(planner=planner, number=number):
                    process = self.start(*LARGE, "--planner", planner, "-o", "plan.json")
                    time.sleep(1)
                    process.send_signal(number)
                    begin = time.monotonic()
                    stderr = process.communicate(timeout=tool.SECONDS)[1]
                    self.assertLess(time.monotonic() - begin, PATIENCE)
                    self.assert_stopped_with_a_plan(process.returncode, stderr,
                                                    "the search was interrupted before ")

    def test_a_second_signal_ends_the_program_at_once(self):
        process = self.start(*LARGE, "--planner", "dapple", "-o", "plan.json")
        time.sleep(1)
        # Both arrive together, the first one first.
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            process.send_signal(number)
        process.communicate(timeout=tool.SECONDS)
        self.assertEqual(process.returncode, -signal.SIGTERM)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_signal_that_was_ignored_before_stays_so(self):
        process = self.start(*LARGE, "--planner", "dapple", "--time-limit", "1", "-o", "plan.json",
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        stderr = process.communicate(timeout=tool.SECONDS)[1]
        self.assert_stopped_with_a_plan(process.returncode, stderr, "--time-limit 1")

    def test_a_search_that_had_no_time_has_an_even_split(self):
        # A single sample cannot go round more than one group of devices.
        for schedule, *batch in (("1f1b",), ("zb-h1",), ("auto",),
                                 ("interleaved", "--global-batch", "1")):
            with self.subTest(schedule=schedule):
                result = self.run_tool(*LARGE, "--schedule", schedule, *batch, "--time-limit",
                                       "0.000000001", "-o", "plan.json")
                self.assert_stopped_with_a_plan(result.returncode, result.stderr,
                                                "the search was stopped by --time-limit ")
                plan = self.read("plan.json")["predicted"]
                self.assertLessEqual(0, plan["lower_bound_ns"])
                self.assertLessEqual(plan["lower_bound_ns"], plan["iteration_ns"])

    def test_a_search_that_had_no_time_for_any_plan_that_fits_says_so(self):
        (self.folder / "small.json").write_text(json.dumps(tool.small_topology(memory="4 MiB")))
        self.write("model.json", tool.small_profile())
        result = self.run_tool("--model", "model.json", "--topo", "small.json", "--time-limit",
                               "0.000000001", "-o", "plan.json")
        self.assert_error(result, INFEASIBLE,
                          "no plan was found before the search was stopped: small on 2x2")
        self.assertNotIn("tightest", result.stderr)
        self.assertFalse((self.folder / "plan.json").exists())

    def test_a_limit_that_is_not_reached_leaves_no_trace_in_the_plan(self):
        self.make_plan("free.json")
        self.make_plan("limited.json", "--time-limit", "1000", "--gap", "0")
        self.assertEqual((self.folder / "limited.json").read_bytes(),
                         (self.folder / "free.json").read_bytes())

    def start(self, *arguments, **options):
        return subprocess.Popen([tool.ARGUMENTS.binary, *map(str, arguments)], cwd=self.folder,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, **options)


class Gaps(ToolTest):
    """Searches that end with a gap, and why more time would not close it."""

    STAYS = ": more time would not close the gap"

    def gap_warnings(self, *arguments):
        result = self.run_tool(*arguments, "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        plan = self.read("plan.json")
        verified = self.run_tool("verify", "plan.json", "--budget", "100")
        self.assertIn(verified.returncode, (DONE, NOT_VERIFIED), verified.stderr)
        return plan, [each for each in plan["warnings"] if each.endswith(self.STAYS)]

    def test_a_large_cluster_is_planned_with_a_bound_on_all_placements(self):
        plan, warnings = self.gap_warnings(
            "--model", tool.ROOT / "profiles" / "bert-large.json", "--topo",
            tool.ROOT / "topologies" / "64x8xH100-rails.json", "--no-baselines")
        self.assertEqual(plan["search_space"]["planner"], "diagrams")
        self.assertFalse(plan["search_space"]["complete"])
        # More than the work alone proves, which is below 12 ms.
        self.assertGreater(plan["predicted"]["lower_bound_ns"], 14_000_000)
        self.assertLess(plan["predicted"]["optimality_gap"], 0.1)
        self.assertEqual(warnings, ["the bound counts the least for where stages are placed and for "
                                    "part of what their depths cost" + self.STAYS])
        # A planner that searched otherwise is a false claim.
        plan["search_space"]["planner"] = "exact"
        self.write("plan.json", plan)
        result = self.run_tool("verify", "plan.json", "--budget", "100")
        self.assertEqual(result.returncode, BAD_INPUT, result.stderr)

    def test_many_devices_of_several_kinds_take_no_table_of_all_states(self):
        if tool.ARGUMENTS.sanitized:
            self.skipTest("sanitizers take memory and minutes of their own")
        topology = tool.small_topology()
        topology["devices"]["old"] = {**topology["devices"]["card"], "time_scale": {"card": 2}}
        server = {**topology["servers"][0], "devices": 1}
        topology["servers"] = [{**server, "count": 1000},
                               {**server, "name": "older", "device": "old", "count": 1000}]
        inputs = ("--model", self.write("small.json", tool.small_profile()),
                  "--topo", self.write("many.json", topology), "--micro-batch", 4)
        gibibytes = (2 << 30, 2 << 30)
        result = self.run_tool(
            *inputs, "--no-baselines", "-o", "plan.json",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, gibibytes))
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(self.read("plan.json")["search_space"]["planner"], "exact")
        verified = self.run_tool("verify", "plan.json", "--budget", "100")
        self.assertIn(verified.returncode, (DONE, NOT_VERIFIED), verified.stderr)

    def test_many_kinds_keep_no_more_than_the_limit(self):
        if tool.ARGUMENTS.sanitized:
            self.skipTest("sanitizers take memory and minutes of their own")
        topology = tool.small_topology()
        card, server = topology["devices"]["card"], {**topology["servers"][0], "devices": 1}
        kinds = {f"kind-{i}": {**card, "time_scale": {"card": 1 + i / 10}} for i in range(10)}
        topology["devices"] = {"card": card, **kinds}
        topology["servers"] = [{**server, "name": f"{row}-{kind}-", "device": kind, "count": 1}
                               for row in "ab" for kind in topology["devices"]]
        gibibytes = (2 << 30, 2 << 30)
        result = self.run_tool(
            "--model", self.write("small.json", tool.small_profile()), "--topo",
            self.write("kinds.json", topology), "--micro-batch", 2, "--no-baselines", "-o",
            "plan.json", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, gibibytes))
        self.assertEqual(result.returncode, DONE, result.stderr)

    def test_diagrams_close_what_the_exact_search_has_no_room_for(self):
        # All placements are tried on two kinds of devices, but some searches would keep more than
        # 64 MiB.
        topology = json.loads(
            (tool.ROOT / "topologies" / "16x1xV100-10g.json").read_text(encoding="utf-8"))
        [server], [(kind, device)] = topology["servers"], topology["devices"].items()
        topology["devices"]["slower"] = {**device, "time_scale": {kind: 1.1}}
        topology["servers"] = [{**server, "count": 8},
                               {**server, "count": 8, "name": "slower", "device": "slower"}]
        plan, warnings = self.gap_warnings(
            "--model", tool.ROOT / "profiles" / "resnet-50.json", "--topo",
            self.write("kinds.json", topology), "--memory-limit", "64 MiB")
        self.assertEqual((plan["predicted"]["optimality_gap"], warnings), (0, []))
        self.assertEqual(plan["search_space"]["planner"], "diagrams")
        self.assertEqual(self.run_tool("verify", "plan.json").returncode, DONE)

    def test_placements_that_were_not_tried_are_named_and_not_the_budget(self):
        mixed = ("--model", tool.ROOT / "profiles" / "bert-48.json", "--topo",
                 tool.ROOT / "topologies" / "mixed-A100-V100.json", "--shares", "equal")
        sentence = "the bound holds also for placements that were not tried" + self.STAYS
        plan, warnings = self.gap_warnings(*mixed)
        self.assertGreater(plan["predicted"]["optimality_gap"], 0)
        self.assertEqual((plan["search_space"]["open"], warnings), (0, [sentence]))
        # A gap that the placements that were tried reach, and all of them do not.
        plan, warnings = self.gap_warnings(*mixed, "--gap", "0.2%")
        self.assertEqual(warnings, [sentence])
        self.assertEqual(self.gap_warnings(*mixed, "--gap", "2%")[1], [])
        # What files of older versions say is no false claim.
        plan, _ = self.gap_warnings(*mixed)
        plan["warnings"] = ["the search has spent its budget of work" + self.STAYS]
        self.write("older.json", plan)
        self.assertNotIn("/warnings", self.run_tool("verify", "older.json").stderr)
        plan["warnings"] = ["the search has spent its budget of patience" + self.STAYS]
        self.write("other.json", plan)
        self.assert_error(self.run_tool("verify", "other.json"), tool.BAD_INPUT, "/warnings/0")

    def test_families_that_were_not_searched_through_are_named(self):
        plan, warnings = self.gap_warnings(*self.small_inputs(), "--schedule", "auto")
        below = [record["family"] for record in plan["schedules"]
                 if record["lower_bound_ns"] is not None
                 and record["lower_bound_ns"] < plan["predicted"]["iteration_ns"]]
        expected = ("the bound holds also for plans of " + ", ".join(below) +
                    " that were not tried" + self.STAYS)
        self.assertEqual(warnings, [expected] if below else [])


class Pinning(ToolTest):
    def stages(self, *pins):
        """Stages of the plan with these pins: first layer, replicas, recomputation of each."""
        for planner in PLANNERS:
            arguments = [part for pin in pins for part in ("--pin", pin)]
            plan = self.read(self.make_plan("plan.json", "--planner", planner, *arguments))
            yield [(stage["layers"][0], len(stage["devices"]), stage["recompute"])
                   for stage in plan["stages"]]

    def test_the_number_of_stages_is_as_pinned(self):
        for count in (1, 3):
            for stages in self.stages(f"stages={count}"):
                self.assertEqual(len(stages), count)

    def test_every_stage_has_as_many_replicas_as_pinned(self):
        for stages in self.stages("replicas=1"):
            self.assertEqual({stage[1] for stage in stages}, {1})
        for stages in self.stages("stages=1", "replicas=3"):
            self.assertEqual([stage[1] for stage in stages], [3])

    def test_replicas_are_searched_as_pinned_also_where_fewer_have_the_same_largest_share(self):
        # Two and three replicas of four samples have two at most; 32 devices are many for the
        # DAPPLE search, which looks at two alone unless three are pinned.
        result = self.run_tool(
            "--model", tool.ROOT / "profiles" / "bert-48.json",
            "--topo", tool.ROOT / "topologies" / "4x8xA100.json", "--planner", "dapple",
            "--global-batch", "64", "--micro-batch", "4", "--no-baselines",
            "--pin", "replicas=3", "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        plan = self.read("plan.json")
        self.assertEqual({len(stage["devices"]) for stage in plan["stages"]}, {3})
        # What was made without a search took 278.7 ms.
        self.assertLess(plan["predicted"]["iteration_ns"], 270_000_000)

    def test_recomputation_is_everywhere_or_nowhere_as_pinned(self):
        for stages in self.stages("recompute=on"):
            self.assertTrue(all(stage[2] for stage in stages))
        for stages in self.stages("recompute=off"):
            self.assertFalse(any(stage[2] for stage in stages))

    def test_cut_layers_begin_a_stage_and_joined_ones_do_not(self):
        for stages in self.stages("cut=layer.1", "join=3", "join=layer.2", "join=2"):
            begins = {stage[0] for stage in stages}
            self.assertIn(1, begins)
            self.assertFalse(begins & {2, 3})

    def test_a_pin_that_is_none_is_refused_with_what_was_expected(self):
        for pins, expected in (
                (("depth=1",), "expected stages=N, replicas=N, tensor=N, context=N, experts=N, "
                               "expert-tensor=N, shards=N, recompute=on|off|PARTS, depths=least, "
                               "cut=LAYER or join=LAYER, got \"depth=1\""),
                (("stages",), "expected stages=N with N from 1 to 4"),
                (("stages=0",), "got \"0\""),
                (("stages=5",), "from 1 to 4, as there are 6 layers and 4 devices, got \"5\""),
                (("replicas=5",), "expected replicas=N with N from 1 to 4"),
                (("replicas=2x",), "got \"2x\""),
                (("recompute=yes",), "expected recompute=on or recompute=off of stages, or the parts "
                                     "that layers recompute"),
                (("cut=6",), "expected cut=LAYER with the name of a layer or its number, 1 to 5, "
                             "got \"6\""),
                (("join=layr.3",), "got \"layr.3\", nearest is layer.3"),
                (("cut=0",), "a layer behind the first, which always begins a stage, got \"0\""),
                (("join=layer.0",), "a layer behind the first"),
                (("stages=2", "stages=3"), "expected one value of stages, got two"),
                (("recompute=on", "recompute=off"), "expected one value of recompute"),
                (("cut=3", "join=layer.3"), "each layer in cut or in join, got layer.3 in both"),
                (("cut=1", "cut=2", "stages=2"), "expected stages from 3 to 6, as 2 layers are cut "
                                                 "and 0 joined, got 2"),
                (("join=1", "join=2", "join=3", "stages=4"), "expected stages from 1 to 3"),
                (("cut=1", "cut=2", "cut=3", "cut=4"), "expected at most 3 cuts, as there are 4 "
                                                       "devices, got 4")):
            with self.subTest(pins=pins):
                arguments = [part for pin in pins for part in ("--pin", pin)]
                result = self.run_tool(*self.small_inputs(), *arguments)
                self.assert_error(result, USAGE, "error: --pin: ", expected)

    def test_the_same_pin_twice_is_one(self):
        for stages in self.stages("stages=2", "stages=2", "cut=3", "cut=layer.3"):
            self.assertEqual([stage[0] for stage in stages], [0, 3])

    def test_pins_that_need_more_devices_than_there_are_name_the_one_to_leave_out(self):
        result = self.run_tool(*self.small_inputs(), "--pin", "stages=3", "--pin", "replicas=2")
        self.assert_error(result, INFEASIBLE, "no plan was found with what is pinned: small on 2x2",
                          "pinned           stages=3, replicas=2",
                          "3 stages of 2 replicas need 6 devices, there are 4",
                          "cheapest remedy  leave out --pin stages=3")
        self.assertNotIn("tightest", result.stderr)

    def test_more_replicas_than_samples_are_a_contradiction(self):
        result = self.run_tool(*self.small_inputs(), "--micro-batch", "2", "--pin", "replicas=3")
        self.assert_error(result, INFEASIBLE,
                          "3 replicas need micro-batches of 3 samples or more, the largest has 2",
                          "leave out --pin replicas=3")

    def test_a_pin_that_memory_does_not_allow_is_named(self):
        # Four times 100 MiB for each layer's weights, gradients and Adam state: two layers fit.
        profile = tool.small_profile(name="deep")
        profile["layers"][0]["parameter_bytes"] = 100 << 20
        inputs = ("--model", self.write("deep.json", profile),
                  "--topo", self.write("2x2.json", tool.small_topology()))
        result = self.run_tool(*inputs, "--pin", "recompute=off", "--pin", "stages=2")
        self.assert_error(result, INFEASIBLE, "no plan fits with what is pinned: deep on 2x2",
                          "closest plan     2 stages on 2 devices",
                          "cheapest remedy  leave out --pin stages=2")
        self.assertRegex(result.stderr, r"\([1-9]\d* bytes\) are missing")


if __name__ == "__main__":
    tool.main()
