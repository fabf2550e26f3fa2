"""What the commands do with plans: the same bytes for the same content, checks, comparisons."""

import csv
import io
import json
import re
import urllib.parse

import tool
from tool import BAD_INPUT, DONE, ENVIRONMENT, INFEASIBLE, USAGE, ToolTest


def reversed_keys(value):
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(list(value))}
    if isinstance(value, list):
        return [reversed_keys(entry) for entry in value]
    return value


class SameBytes(ToolTest):
    CASES = ((tool.BERT, tool.DGX1), (tool.ROOT / "profiles" / "gnmt-16.json",
                                      tool.ROOT / "topologies" / "2x8xV100.json"))

    def plan_text(self, model, topology, *more, **options):
        result = self.run_tool("--model", model, "--topo", topology, "-o", "-", *more, **options)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return result.stdout

    def test_runs_threads_and_key_order_do_not_change_a_plan(self):
        if tool.ARGUMENTS.sanitized:
            self.skipTest("with sanitizers, as many searches take half a minute")
        for model, topology in self.CASES:
            with self.subTest(model=model.name, topology=topology.name):
                expected = self.plan_text(model, topology)
                self.assertEqual(self.plan_text(model, topology), expected)
                for threads in ("1", "2", "5"):
                    self.assertEqual(self.plan_text(model, topology, "--threads", threads), expected)
                permuted = [self.write(f"permuted-{path.name}",
                                       reversed_keys(json.loads(path.read_text())))
                            for path in (model, topology)]
                self.assertEqual(self.plan_text(*permuted), expected)

    def test_a_program_of_another_compiler_writes_the_same_plan(self):
        if tool.ARGUMENTS.other_binary is None:
            self.skipTest("no --other-binary to compare with")
        for model, topology in self.CASES:
            self.assertEqual(
                self.plan_text(model, topology, binary=tool.ARGUMENTS.other_binary),
                self.plan_text(model, topology))

    def test_no_name_of_a_file_or_folder_is_in_a_plan(self):
        self.make_plan()
        self.assertNotIn(str(self.folder), (self.folder / "plan.json").read_text())
        self.assertNotIn("small.json", (self.folder / "plan.json").read_text())


class Planning(ToolTest):
    def test_the_plan_follows_what_was_asked(self):
        plan = self.read(self.make_plan("plan.json", "--global-batch", "24", "--micro-batch", "3",
                                        "--schedule", "gpipe"))
        self.assertEqual(plan["global_batch_size"], 24)
        self.assertEqual(plan["micro_batch_size"], 3)
        self.assertEqual(plan["num_micro_batches"], 8)
        self.assertEqual(plan["schedule"]["family"], "gpipe")
        self.assertEqual(self.read(self.make_plan())["global_batch_size"], 16)

    def test_gradients_are_handled_as_asked_and_the_file_says_how(self):
        inputs = ("--model", tool.ROOT / "profiles" / "vgg-19.json",
                  "--topo", tool.ROOT / "topologies" / "2x8xV100.json", "-o", "plan.json")
        times = {}
        for size, step in (("25MiB", "at-end"), ("100 MiB", "at-end"), ("auto", "at-end"),
                           ("25 MiB", "per-bucket")):
            result = self.run_tool(*inputs, "--bucket-size", size, "--optimizer-step", step)
            self.assertEqual(result.returncode, DONE, result.stderr)
            plan = self.read("plan.json")
            self.assertEqual(plan["gradients"]["optimizer_step"], step)
            if size != "auto":
                self.assertEqual(plan["gradients"]["bucket_bytes"], int(size[:-3]) << 20)
            self.assertEqual(plan["predicted"]["optimality_gap"], 0)
            times[size, step] = plan["predicted"]["iteration_ns"]
            verdict = self.run_tool("validate", "plan.json")
            self.assertEqual(verdict.returncode, DONE, verdict.stderr)
            steady = self.run_tool("simulate", "plan.json", "--asynchronous")
            self.assertEqual(steady.returncode, DONE, steady.stderr)
            self.assertIn("Without flushes", steady.stdout)
        # Small buckets are reduced beside the backward, and steps beside reductions.
        self.assertLess(times["25MiB", "at-end"], times["100 MiB", "at-end"])
        self.assertLess(times["auto", "at-end"], times["25MiB", "at-end"])
        self.assertLess(times["25 MiB", "per-bucket"], times["25MiB", "at-end"])

    def test_a_micro_batch_that_does_not_divide_the_batch_is_refused(self):
        result = self.run_tool(*self.small_inputs(), "--micro-batch", "5")
        self.assertNotEqual(result.returncode, DONE)
        self.assertRegex(result.stderr, r"error: .*5")

    def test_no_plan_at_all_names_device_missing_bytes_and_remedy(self):
        profile = self.write("small.json", tool.small_profile())
        topology = self.write("tight.json", tool.small_topology(memory="4 MiB"))
        result = self.run_tool("--model", profile, "--topo", topology)
        self.assert_error(result, INFEASIBLE, "no plan fits: small on 2x2", "remedy")
        self.assertRegex(result.stderr, r"tightest device  node[01]:[01] needs .*, has 4\.00 MiB: "
                                        r".* \([1-9]\d* bytes\) are missing")
        self.assertEqual(result.stdout, "")
        self.assertFalse((self.folder / "small.plan.json").exists())

    def test_without_a_memory_limit_a_plan_is_made_that_validate_refuses(self):
        profile = self.write("small.json", tool.small_profile())
        topology = self.write("tight.json", tool.small_topology(memory="4 MiB"))
        result = self.run_tool("--model", profile, "--topo", topology, "--unlimited-memory")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertTrue(any("--unlimited-memory" in warning
                            for warning in self.read("small.plan.json")["warnings"]))
        self.assert_error(self.run_tool("validate", "small.plan.json"), BAD_INPUT,
                          "memory exceeded")

    def test_a_plan_that_is_as_fast_with_less_memory_is_named(self):
        inputs = ("--model", tool.ROOT / "profiles" / "resnet-50.json",
                  "--topo", tool.ROOT / "topologies" / "2x8xV100.json")
        named = (r"^Less memory: --micro-batch 256 is as fast with ([\d.]+) GiB a device, but "
                 r"further below measured batches$")
        told = self.run_tool(*inputs, "-o", "plan.json").stdout
        found = re.search(named, told, re.MULTILINE)
        self.assertIsNotNone(found, told)
        run = self.run_tool(*inputs, "--micro-batch", 256, "-o", "less.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertNotIn("Less memory", run.stdout)
        plan, less = (self.read(name)["predicted"] for name in ("plan.json", "less.json"))
        self.assertEqual(plan["iteration_ns"], less["iteration_ns"])
        peaks = [max(device["peak_memory_bytes"] for device in one["devices"])
                 for one in (plan, less)]
        self.assertLess(peaks[1], peaks[0] / 2)
        self.assertAlmostEqual(peaks[1] / 2**30, float(found[1]), places=2)
        # Neither without baselines nor among pinned plans is it another one.
        for words in (["--no-baselines"], ["--pin", "stages=1"]):
            told = self.run_tool(*inputs, *words, "-o", "again.json").stdout
            self.assertEqual(re.search(named, told, re.MULTILINE)[1], found[1])
            self.assertEqual(self.read("again.json")["micro_batch_size"], 2048)

    def test_what_would_need_less_memory_is_said_of_the_plan_that_is_written(self):
        inputs = ("--model", tool.ROOT / "profiles" / "vgg-19.json",
                  "--topo", tool.ROOT / "topologies" / "8xV100.json", "--no-baselines")
        named = "Less memory: --micro-batch 32 is as fast with 2.13 GiB a device"
        # A runtime's parts are searched one by one, and the plan of one is known in the others.
        self.assertIn(named, self.run_tool(*inputs, "--for", "deepspeed", "-o", "plan.json").stdout)
        # Another schedule is faster, and the plan under 1F1B is not written.
        told = self.run_tool(*inputs, "--schedule", "auto", "-o", "plan.json").stdout
        self.assertNotEqual(self.read("plan.json")["schedule"]["family"], "1f1b")
        self.assertNotIn("Less memory", told)

    def test_of_equally_fast_plans_with_measured_batches_the_least_memory_is_chosen(self):
        # VGG-19 was measured at batches of 32, here 256 on 8 devices.
        run = self.run_tool("--model", tool.ROOT / "profiles" / "vgg-19.json",
                            "--topo", tool.ROOT / "topologies" / "8xV100.json", "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        plan = self.read("plan.json")
        self.assertEqual(plan["micro_batch_size"], 256)
        for size in (512, 1024):
            run = self.run_tool("--model", tool.ROOT / "profiles" / "vgg-19.json",
                                "--topo", tool.ROOT / "topologies" / "8xV100.json",
                                "--micro-batch", size, "-o", "more.json")
            self.assertEqual(run.returncode, DONE, run.stderr)
            more = self.read("more.json")
            self.assertEqual(more["predicted"]["iteration_ns"], plan["predicted"]["iteration_ns"])
            self.assertGreater(more["predicted"]["devices"][0]["peak_memory_bytes"],
                               plan["predicted"]["devices"][0]["peak_memory_bytes"])

    def test_every_written_plan_fits_and_is_valid(self):
        plan = self.make_plan()
        for device in self.read(plan)["predicted"]["devices"]:
            self.assertLessEqual(device["peak_memory_bytes"], device["memory_limit_bytes"])
        result = self.run_tool("validate", plan)
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertTrue(result.stdout.startswith("valid: plan.json: small on 2x2"), result.stdout)

    def test_a_pipedream_graph_is_read_directly_and_what_it_lacks_is_asked_for(self):
        graph = self.write("graph.txt", "".join(
            f"node{i} -- Layer(x) -- forward_compute_time=1.0, backward_compute_time=2.0, "
            f"activation_size=1048576.0, parameter_size=1048576.0\n" for i in range(1, 5)) +
            "".join(f"\tnode{i} -- node{i + 1}\n" for i in range(1, 4)))
        topology = self.write("2x2.json", tool.small_topology())
        inputs = ("--model", graph, "--topo", topology, "-o", "plan.json")
        self.assert_error(self.run_tool(*inputs), USAGE, "--profile-batch", "--optimizer",
                          "--global-batch")
        result = self.run_tool(*inputs, "--profile-batch", "4", "--optimizer", "sgd",
                               "--global-batch", "16", "--profile-device", "card")
        self.assertEqual(result.returncode, DONE, result.stderr)
        plan = self.read("plan.json")
        self.assertEqual(len(plan["model"]["profile"]["layers"]), 4)
        # Neither --stash nor --batch-scaling was given, so both assumptions are warned of.
        self.assertGreaterEqual(len(plan["warnings"]), 2)
        self.assertEqual(self.run_tool("validate", "plan.json").returncode, DONE)


class Traces(ToolTest):
    def test_a_trace_has_an_event_for_every_computation_on_every_device(self):
        plan = self.read(self.make_plan("plan.json", "--trace", "trace.json"))
        events = self.read("trace.json")["traceEvents"]
        passes = [event for event in events if event["ph"] == "X" and
                  event["cat"] == "compute" and re.match(r"[FB]\d", event["name"])]
        devices = sum(len(stage["devices"]) for stage in plan["stages"])
        self.assertEqual(len(passes), 2 * plan["num_micro_batches"] * devices)
        ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X"]
        self.assertAlmostEqual(max(ends) * 1000, plan["predicted"]["iteration_ns"], delta=1)

    def test_simulate_writes_the_same_trace_as_plan(self):
        self.make_plan("plan.json", "--trace", "trace.json")
        result = self.run_tool("simulate", "plan.json", "--trace", "again.json", "--timeline",
                               "timeline.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual((self.folder / "again.json").read_text(),
                         (self.folder / "trace.json").read_text())
        timeline = self.read("timeline.json")
        self.assertEqual(timeline["schema"], "dapple-timeline/1")
        self.assertEqual(timeline["origin"], "predicted")


class Simulating(ToolTest):
    def test_a_plan_simulated_anew_has_the_figures_of_its_file(self):
        plan = self.make_plan()
        result = self.run_tool("simulate", plan)
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], "same figures as in the file")
        same = self.run_tool("simulate", plan, "--model", "small.json", "--topo", "2x2.json")
        self.assertEqual(same.stdout, result.stdout)

    def test_another_model_or_topology_is_refused_unless_recosted(self):
        plan = self.make_plan()
        slower = tool.small_profile()
        slower["layers"][0]["measurements"][0]["forward_ns"] *= 2
        self.write("slower.json", slower)
        result = self.run_tool("simulate", plan, "--model", "slower.json")
        self.assert_error(result, BAD_INPUT, "--model", "sha256", "--recost")
        recosted = self.run_tool("simulate", plan, "--model", "slower.json", "--recost")
        self.assertEqual(recosted.returncode, DONE, recosted.stderr)
        self.assertIn("differs from the file", recosted.stdout.splitlines()[-1])
        self.assertRegex(recosted.stdout.splitlines()[-1], r"\(\+\d")
        topology = self.write("other.json", tool.small_topology(memory="2 GiB"))
        self.assert_error(self.run_tool("simulate", plan, "--topo", topology), BAD_INPUT, "--topo",
                          "--recost")

    def test_a_topology_without_the_plans_devices_is_refused_by_name(self):
        plan = self.make_plan()
        other = tool.small_topology()
        other["servers"][0]["name"] = "host"
        result = self.run_tool("simulate", plan, "--recost", "--topo", self.write("o.json", other))
        self.assert_error(result, BAD_INPUT, "/stages/0/devices: expected", "node0:0-1")

    def test_a_model_of_fewer_layers_is_refused(self):
        plan = self.make_plan()
        fewer = tool.small_profile()
        fewer["layers"][0]["repeat"] = 5
        result = self.run_tool("simulate", plan, "--recost", "--model", self.write("f.json", fewer))
        self.assert_error(result, BAD_INPUT, "/layers")


    def test_an_unsound_plan_is_refused_by_every_command_that_would_run_it(self):
        plan = self.read(self.make_deep_plan())
        plan["stages"][1]["devices"][0] = plan["stages"][0]["devices"][0]
        bad = self.write("bad.json", plan)
        for arguments in (("simulate", bad), ("simulate", bad, "--timeline", "t.json"),
                          ("schedule", bad), ("schedule", bad, "--format", "json"),
                          ("diff", "plan.json", bad), ("diff", bad, "plan.json")):
            with self.subTest(arguments=arguments):
                self.assert_error(self.run_tool(*arguments), BAD_INPUT,
                                  "error: bad.json: /stages/1/devices/0: ", "used twice")
        self.assertFalse((self.folder / "t.json").exists())


class Jitter(ToolTest):
    """simulate --jitter: devices that are not equally fast."""

    def servers(self, slow=None):
        """Three servers of one device each, one of which may take a tenth longer."""
        topology = tool.small_topology()
        server = {**topology["servers"][0], "count": 1, "devices": 1}
        topology["servers"] = [{**server, "name": f"s{i}"} for i in range(3)]
        if slow is not None:
            topology["devices"]["late"] = {**topology["devices"]["card"], "time_scale": {"card": 1.1}}
            topology["servers"][slow]["device"] = "late"
        return self.write(f"three-{slow}.json", topology)

    def planned(self):
        model = self.write("small.json", tool.small_profile(global_batch_size=64))
        run = self.run_tool("--model", model, "--topo", self.servers(), "--pin", "stages=3",
                            "--micro-batch", 4, "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        return self.read("plan.json")

    def told(self, *more):
        run = self.run_tool("simulate", "plan.json", *more)
        self.assertEqual(run.returncode, DONE, run.stderr)
        return run.stdout

    def test_without_deviation_every_iteration_is_that_of_the_plan(self):
        self.planned()
        told = self.told("--jitter", "0")
        self.assertRegex(told, r"Jitter +median [\d.]+ ms \(\+0\.0 %\), 95th percentile [\d.]+ ms "
                               r"\(\+0\.0 %\)\n +of 200 iterations")

    def test_one_slower_device_costs_what_a_topology_with_it_does(self):
        plan = self.planned()
        found = re.findall(r"([+-][\d.]+) % in stage (\d)", self.told("--jitter", "5%"))
        self.assertEqual(sorted(stage for _, stage in found), ["0", "1", "2"])
        for change, stage in found:
            slow = int(plan["stages"][int(stage)]["devices"][0][1])
            told = self.told("--topo", self.servers(slow), "--recost", "--json")
            iteration = json.loads(told)["plans"][0]["predicted"]["iteration_ns"]
            self.assertAlmostEqual(100 * (iteration / plan["predicted"]["iteration_ns"] - 1),
                                   float(change), delta=0.051)

    def test_more_deviation_is_slower_and_every_run_draws_the_same(self):
        self.planned()
        tails = []
        for deviation in ("1%", "5%", "20%"):
            told = self.told("--jitter", deviation)
            self.assertEqual(told, self.told("--jitter", deviation))
            median, tail = (float(number) for number in re.search(
                r"median [\d.]+ ms \(([+-][\d.]+) %\), 95th percentile [\d.]+ ms \(([+-][\d.]+) %\)",
                told).groups())
            self.assertLess(median, tail)
            tails.append(tail)
        self.assertEqual(tails, sorted(tails))

    def test_what_jitter_does_not_go_with(self):
        self.planned()
        for words in (("--jitter", "1"), ("--jitter", "-0.1"), ("--seed", "2"),
                      ("--jitter", "5%", "--seed", "0")):
            run = self.run_tool("simulate", "plan.json", *words)
            self.assertEqual(run.returncode, USAGE)
            self.assertRegex(run.stderr, "--(jitter|seed): ")


class PlansUnderJitter(ToolTest):
    """plan --jitter: of the fastest plans the one that varies least."""

    JITTER = ("--jitter", "20%", "--seed", 3)

    def model(self):
        """Wide activations: a slower plan sends less."""
        profile = tool.small_profile()
        profile["layers"][0]["measurements"][0]["output_bytes"] = 4 << 20
        return self.write("small.json", profile)

    def planned(self, name, *more):
        topology = self.write("2x2.json", tool.small_topology())
        run = self.run_tool("--model", self.model(), "--topo", topology, "-o", name, *more)
        self.assertEqual(run.returncode, DONE, run.stderr)
        return run

    def simulated(self, name, *more):
        run = self.run_tool("simulate", name, *self.JITTER, *more)
        self.assertEqual(run.returncode, DONE, run.stderr)
        return run.stdout

    def test_the_plan_states_what_simulate_finds_and_verify_confirms_it(self):
        text = self.planned("robust.json", *self.JITTER, "--threads", 1).stdout
        self.planned("again.json", *self.JITTER, "--threads", 2)
        self.assertEqual((self.folder / "robust.json").read_bytes(),
                         (self.folder / "again.json").read_bytes())
        self.planned("fastest.json")
        robust, fastest = self.read("robust.json"), self.read("fastest.json")
        found = robust["predicted"]["jitter"]
        self.assertEqual(robust["request"].pop("jitter"), {"deviation": 0.2, "seed": 3})
        self.assertEqual(robust["request"], fastest["request"])
        self.assertEqual(robust["search_space"]["fastest_ns"], fastest["predicted"]["iteration_ns"])
        self.assertLess(fastest["predicted"]["iteration_ns"], robust["predicted"]["iteration_ns"])
        self.assertEqual(robust["predicted"]["lower_bound_ns"], fastest["predicted"]["lower_bound_ns"])
        of_others = [json.loads(self.simulated(name, "--json"))["plans"][0]["predicted"]["jitter"]
                     for name in ("robust.json", "fastest.json")]
        self.assertEqual(of_others[0], found)
        self.assertLess(found["median_ns"], of_others[1]["median_ns"])
        block = re.search(r"Jitter .*\n.*\n.*\n", text)[0]
        self.assertIn(block, self.simulated("robust.json"))
        self.assertRegex(text, r"of \d+ plans compared, this has the least median, [\d.]+ % below that "
                               r"of the fastest;\n +without jitter it is [\d.]+ % slower\n")
        self.assertEqual(self.run_tool("verify", "robust.json").returncode, DONE)

    def test_figures_that_are_not_those_of_the_plan_are_refused(self):
        self.planned("plan.json", *self.JITTER)
        for place, key in (("/predicted/jitter", "median_ns"), ("/predicted/jitter", "draws"),
                           ("/predicted/jitter", "percentile_95_ns"), ("/search_space", "fastest_ns"),
                           ("/request/jitter", "seed"), ("/request/jitter", "deviation")):
            plan = self.read("plan.json")
            owner = plan
            for step in place[1:].split("/"):
                owner = owner[step]
            owner[key] = owner[key] / 2 if key == "deviation" else owner[key] + 1
            with self.subTest(key=key):
                self.assert_error(self.run_tool("verify", self.write("claimed.json", plan)),
                                  BAD_INPUT, "claimed.json: ")

    def test_the_report_and_the_result_show_the_figures(self):
        self.planned("plan.json", *self.JITTER)
        run = self.run_tool("report", "plan.json", "-o", "plan.html")
        self.assertEqual(run.returncode, DONE, run.stderr)
        page = (self.folder / "plan.html").read_text()
        for name in ("jitter", "median", "95th percentile", "device 10 % slower", "fastest plan"):
            self.assertTrue(f'"name":"{name}"' in page, name)
        told = json.loads(self.planned("plan.json", *self.JITTER, "--json").stdout)
        self.assertEqual(told["plans"][0]["predicted"]["jitter"],
                         self.read("plan.json")["predicted"]["jitter"])

    def test_what_jitter_of_a_plan_does_not_go_with(self):
        topology = self.write("2x2.json", tool.small_topology())
        for words in (("--jitter", "1"), ("--jitter", "five"), ("--jitter", "-5%"), ("--seed", 2),
                      ("--jitter", "5%", "--seed", "1.5"),
                      ("--jitter", "5%", "--alternatives", 2)):
            run = self.run_tool("--model", self.model(), "--topo", topology, *words)
            self.assertEqual(run.returncode, USAGE)
            self.assertRegex(run.stderr, "--(jitter|seed): ")


class Validating(ToolTest):
    def assert_fault(self, change, *parts):
        """A plan with one thing changed is refused for it."""
        plan = self.read(self.make_deep_plan())
        change(plan)
        self.write("changed.json", plan)
        self.assert_error(self.run_tool("validate", "changed.json"), BAD_INPUT,
                          "error: changed.json: ", *parts)

    def test_hashes_that_are_not_of_the_content_are_named(self):
        def change(plan):
            plan["model"]["profile"]["layers"][0]["parameter_bytes"] += 1
        self.assert_fault(change, "/model/sha256")

    def test_a_device_used_twice_is_named(self):
        def change(plan):
            plan["stages"][1]["devices"][0] = plan["stages"][0]["devices"][0]
        device = self.read(self.make_deep_plan())["stages"][0]["devices"][0]
        self.assert_fault(change, "/stages/1/devices/0", device)

    def test_depths_that_deadlock_are_named(self):
        def change(plan):
            plan["schedule"]["warmup_depths"][0] = 1
            plan["schedule"]["warmup_depths"][1] = 2
        self.assert_fault(change, "/schedule/warmup_depths/1")

    def test_memory_exceeded_is_named_with_the_missing_bytes(self):
        def change(plan):
            # As many layers as there are on the first stage, one on each of the others.
            stages = plan["stages"]
            last = 6 - (len(stages) - 1)
            for number, stage in enumerate(stages):
                stage["layers"] = [0, last] if number == 0 else [last + number - 1, last + number]
        self.assert_fault(change, "memory exceeded", "missing")

    def test_layers_left_out_are_named(self):
        def change(plan):
            plan["stages"][-1]["layers"][1] -= 1
        self.assert_fault(change, "layer")

    def test_batches_that_do_not_multiply_are_named(self):
        def change(plan):
            plan["global_batch_size"] += 1
        self.assert_fault(change, "/global_batch_size", "micro-batches")

    def test_every_file_gets_its_verdict(self):
        good = self.make_plan()
        self.write("bad.json", "{")
        result = self.run_tool("validate", good, "bad.json", good)
        self.assertEqual(result.returncode, BAD_INPUT)
        self.assertEqual(result.stdout.count("valid: "), 2)
        self.assertIn("error: bad.json: ", result.stderr)


class Comparing(ToolTest):
    def test_a_plan_is_the_same_as_itself(self):
        plan = self.make_plan()
        result = self.run_tool("diff", plan, plan)
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], "The plans are the same.")

    def test_two_plans_are_compared_and_the_faster_is_named(self):
        a = self.make_plan("a.json")
        b = self.make_plan("b.json", "--micro-batch", "16", "--schedule", "gpipe")
        times = [self.read(name)["predicted"]["iteration_ns"] for name in (a, b)]
        self.assertNotEqual(*times)
        result = self.run_tool("diff", a, b)
        self.assertEqual(result.returncode, DONE, result.stderr)
        faster = "A" if times[0] < times[1] else "B"
        self.assertTrue(result.stdout.splitlines()[-1].startswith(f"{faster} is faster"))

    def slower_plan(self):
        """The plan of a model that takes longer, under the name of the usual one."""
        slower = tool.small_profile()
        slower["layers"][0]["measurements"][0]["backward_ns"] *= 2
        self.write("slower.json", slower)
        self.assertEqual(self.run_tool("--model", "slower.json", "--topo", "2x2.json", "-o",
                                       "b.json").returncode, DONE)
        return "b.json"

    def compare(self, *arguments):
        result = self.run_tool("diff", *arguments, "--json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        return json.loads(result.stdout)

    def test_plans_of_different_models_are_costed_with_the_first(self):
        a = self.make_plan("a.json")
        b = self.slower_plan()
        result = self.run_tool("diff", a, b)
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("both are costed with A's model; B was made from another", result.stdout)
        self.assertEqual(self.compare(a, b)["model"]["sha256"],
                         self.read(a)["model"]["sha256"])
        given = self.compare(a, b, "--model", "slower.json")
        self.assertEqual(given["model"]["sha256"], self.read(b)["model"]["sha256"])
        self.assertEqual(given["notes"], [])
        self.assertEqual(given["b"]["iteration_ns"], self.read(b)["predicted"]["iteration_ns"])

    def test_plans_of_different_batches_are_judged_by_their_samples_per_second(self):
        a = self.make_plan("a.json")
        b = self.make_plan("b.json", "--global-batch", "32")
        shown = self.run_tool("diff", a, b).stdout
        self.assertRegex(shown, r"global batch +16 +32")
        rates = [self.read(plan)["predicted"]["samples_per_second"] for plan in (a, b)]
        self.assertLess(*rates)
        self.assertIn("An iteration is of 16 samples with A and of 32 with B: by samples per second\n"
                      f"B is faster, {rates[1] / rates[0]:.3f} x.\n", shown)
        self.assertNotIn("loses by", shown)

    def test_a_plan_that_the_other_model_cannot_cost_is_named(self):
        a = self.make_plan("a.json")
        longer = tool.small_profile()
        longer["layers"][0]["repeat"] = 7
        self.write("longer.json", longer)
        self.run_tool("--model", "longer.json", "--topo", "2x2.json", "-o", "b.json")
        self.assert_error(self.run_tool("diff", a, "b.json"), BAD_INPUT, "b.json: /stages")
        elsewhere = tool.small_topology()
        elsewhere["servers"][0]["name"] = "host"
        self.write("hosts.json", elsewhere)
        self.run_tool("--model", "small.json", "--topo", "hosts.json", "-o", "c.json")
        self.assert_error(self.run_tool("diff", a, "c.json"), BAD_INPUT,
                          "c.json: /stages/0/devices: expected devices of the topology 2x2, got "
                          "host0:0")

    def test_the_parts_of_a_difference_add_up_to_it(self):
        a = self.make_plan("a.json", "--pin", "stages=2")
        b = self.make_plan("b.json", "--pin", "stages=3", "--micro-batch", "2")
        comparison = self.compare(a, b)
        self.assertEqual(sum(comparison["b_less_a"].values()), comparison["b_less_a_ns"])
        for key, name in (("a", a), ("b", b)):
            plan = self.read(name)
            self.assertEqual(comparison[key]["iteration_ns"], plan["predicted"]["iteration_ns"])
            self.assertEqual([pair[key]["layers"] for pair in comparison["stages"] if pair[key]],
                             [stage["layers"] for stage in plan["stages"]])
            peaks = {entry["device"]: entry[f"{key}_peak_bytes"] for entry in comparison["memory"]}
            self.assertEqual({device: peak for device, peak in peaks.items() if peak is not None},
                             {entry["device"]: entry["peak_memory_bytes"]
                              for entry in plan["predicted"]["devices"]})

    def test_what_moved_is_said(self):
        a = self.make_plan("a.json", "--pin", "stages=2", "--pin", "cut=3", "--pin", "replicas=2")
        b = self.make_plan("b.json", "--pin", "stages=2", "--pin", "cut=4", "--pin", "replicas=2")
        comparison = self.compare(a, b)
        self.assertEqual(comparison["moved_layers"], [{"layers": [3, 4], "from": 1, "to": 0}])
        self.assertEqual(comparison["moved_devices"], [])
        self.assertFalse(comparison["same_plan"])
        text = self.run_tool("diff", a, b).stdout
        self.assertRegex(text, r"\nlayer  layer\.3 +1 +0\n")
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        self.assertTrue(self.compare(a, a)["same_plan"])


class Baselines(ToolTest):
    NAMES = ["data-parallel", "gpipe-even", "1f1b-even", "straight", "pipedream", "dapple"]

    def test_they_are_written_valid_and_simulate_to_what_the_plan_says_of_them(self):
        for contention in ("on", "off"):
            plan = self.read(self.make_plan("plan.json", "--write-baselines", contention,
                                            "--contention", contention))
            self.assertEqual([each["name"] for each in plan["baselines"]], self.NAMES)
            for baseline in plan["baselines"]:
                with self.subTest(baseline["name"], contention=contention):
                    path = f"{contention}/{baseline['name']}.plan.json"
                    written = self.read(path)
                    self.assertEqual(written["predicted"]["iteration_ns"], baseline["iteration_ns"])
                    self.assertEqual(written["predicted"]["time_parts"], baseline["time_parts"])
                    self.assertEqual(sum(baseline["time_parts"].values()), baseline["iteration_ns"])
                    self.assertGreaterEqual(baseline["iteration_ns"],
                                            plan["predicted"]["iteration_ns"])
                    self.assertEqual(self.run_tool("validate", path).returncode, DONE)
                    result = self.run_tool("simulate", path, "--contention", contention)
                    self.assertEqual(result.stdout.splitlines()[-1], "same figures as in the file")

    def test_one_that_does_not_fit_is_written_with_what_it_lacks_and_refused_by_validate(self):
        # Four times 100 MiB per layer; a device has room for two of the six.
        profile = tool.small_profile(name="deep")
        profile["layers"][0]["parameter_bytes"] = 100 << 20
        result = self.run_tool("--model", self.write("deep.json", profile), "--topo",
                               self.write("2x2.json", tool.small_topology()), "-o", "plan.json",
                               "--write-baselines", "baselines/")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("does not fit, lacks ", result.stdout)
        baseline = self.read("plan.json")["baselines"][0]
        self.assertEqual((baseline["name"], baseline["feasible"]), ("data-parallel", False))
        path = "baselines/data-parallel.plan.json"
        written = self.read(path)
        self.assertIn(f"does not fit: {baseline['missing_bytes']} bytes missing",
                      written["warnings"])
        self.assert_error(self.run_tool("validate", path), BAD_INPUT, "memory exceeded",
                          f"{baseline['missing_bytes']} are missing")
        result = self.run_tool("simulate", path)
        self.assertEqual(result.stdout.splitlines()[-1], "same figures as in the file")

    def test_they_can_be_left_out(self):
        result = self.run_tool(*self.small_inputs(), "-o", "plan.json", "--no-baselines")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertNotIn("compared with", result.stdout)
        self.assertEqual(self.read("plan.json")["baselines"], [])
        self.assert_error(self.run_tool(*self.small_inputs(), "--no-baselines",
                                        "--write-baselines", "folder"), USAGE, "--write-baselines")

    def test_a_folder_that_cannot_be_written_to_is_refused_before_the_search(self):
        inputs = self.small_inputs()
        for path in ("none/folder", "small.json"):
            result = self.run_tool(*inputs, "--write-baselines", path)
            self.assert_error(result, ENVIRONMENT, path)
            self.assertEqual(result.stdout, "")
        self.assert_error(self.run_tool(*inputs, "--write-baselines", "-"), USAGE, "directory")
        (self.folder / "folder").mkdir()
        self.assert_error(self.run_tool(*inputs, "--write-baselines", "folder", "-o",
                                        "folder/straight.plan.json"), USAGE, "--output")

    def test_a_file_in_the_place_of_the_folder_is_named_with_what_was_expected(self):
        inputs = self.small_inputs()
        result = self.run_tool(*inputs, "--write-baselines", "small.json")
        self.assert_error(result, ENVIRONMENT)
        self.assertEqual(result.stderr.splitlines(),
                         ["error: small.json: expected a directory for --write-baselines, got a "
                          "file"])
        result = self.run_tool(*inputs, "-o", "small.json/plan.json")
        self.assertEqual(result.stderr, "error: small.json/plan.json: expected a directory to write "
                                        "to, got small.json, which is a file\n")
        result = self.run_tool(*inputs, "-o", "none/plan.json")
        self.assertEqual(result.stderr, "error: none/plan.json: expected a directory to write to, "
                                        "got nothing at none\n")

    def test_an_error_leaves_no_folder_behind(self):
        inputs = self.small_inputs()
        for name in ("new", "new/"):
            self.assert_error(self.run_tool(*inputs, "--write-baselines", name, "-o", "/dev/full"),
                              ENVIRONMENT, "/dev/full")
            self.assertFalse((self.folder / "new").exists())
        (self.folder / "old").mkdir()
        self.assert_error(self.run_tool(*inputs, "--write-baselines", "old", "-o", "/dev/full"),
                          ENVIRONMENT, "/dev/full")
        self.assertEqual(list((self.folder / "old").iterdir()), [])

    def test_the_cause_of_a_difference_is_named(self):
        self.make_plan("plan.json", "--write-baselines", "folder")
        result = self.run_tool("diff", "plan.json", "folder/straight.plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertRegex(result.stdout, r"\nB loses by [a-z-]+( step)? [\d.]+ [mu]?s")


class Doubts(ToolTest):
    """Figures that can hardly be right are told where they arise, and in the plan."""

    def plan_of(self, measurements, *more, device="card", **figures):
        """The plan for six layers with these measurements, and what is printed."""
        profile = tool.small_profile(device=device)
        layer = profile["layers"][0]
        layer["measurements"] = [{**layer["measurements"][0], **each} for each in measurements]
        topology = tool.small_topology(**figures)
        topology["devices"] = {device: topology["devices"]["card"]}
        topology["servers"][0]["device"] = device
        made = self.run_tool("--model", self.write("model.json", profile), "--topo",
                             self.write("topo.json", topology), *more, "-o", "plan.json")
        self.assertEqual(made.returncode, DONE, made.stderr)
        return self.read("plan.json"), made.stdout

    def test_a_time_in_the_wrong_unit(self):
        plan, shown = self.plan_of([{"forward_ns": 3 * 10**9, "backward_ns": 6 * 10**9}])
        self.assertIn("layers above a second a sample: layer.0 takes 2.25 s for a sample",
                      plan["warnings"][0])
        self.assertIn("and 5 other layers likewise", plan["warnings"][0])
        self.assertIn("layers above a second a sample", shown)

    def test_times_and_sizes_that_do_not_grow(self):
        plan, _ = self.plan_of([{"batch_size": 2, "forward_ns": 1200000, "stash_bytes": 1 << 20},
                                {"batch_size": 8}])
        self.assertIn("times that fall as the batch grows: layer.0 forward takes 1200000 ns for 2 "
                      "samples and 1000000 ns for 8", plan["warnings"][0])
        self.assertIn("sizes that do not grow in proportion to the batch: the output of layer.0",
                      plan["warnings"][1])

    def test_a_speedup_that_devices_cannot_make(self):
        # A sample alone costs a tenth of one among sixteen.
        plan, _ = self.plan_of([{"batch_size": 1, "forward_ns": 100000, "backward_ns": 100000,
                                 "output_bytes": 1 << 16, "stash_bytes": 1 << 16},
                                {"batch_size": 16, "forward_ns": 16000000,
                                 "backward_ns": 16000000}])
        self.assertGreater(plan["predicted"]["speedup_over_one_device"], 4)
        self.assertRegex("\n".join(plan["warnings"]),
                         r"the plan is \d[\d.]* times as fast as one device, and has \d")

    def test_gpus_of_which_nothing_is_reserved(self):
        measured = [{}]
        plan, _ = self.plan_of(measured, device="V100-16GB")
        warning = next(each for each in plan["warnings"] if "reserved" in each)
        fullest = max(plan["predicted"]["devices"], key=lambda each: each["peak_memory_bytes"])
        spare = fullest["memory_limit_bytes"] - fullest["peak_memory_bytes"]
        self.assertIn(f"nothing of the memory of V100-16GB is reserved", warning)
        self.assertIn(f"{fullest['device']} has {spare / 2**30:.3g} GiB to spare, "
                      f"{100 * spare / fullest['peak_memory_bytes']:.1f} % of what it needs", warning)
        # Nobody knows what a card is.
        plan, _ = self.plan_of(measured)
        self.assertFalse([each for each in plan["warnings"] if "reserved" in each])

    def test_a_plan_that_leans_on_small_batches_is_shown_under_both_scalings(self):
        pins = ("--micro-batch", "4", "--pin", "replicas=2", "--pin", "stages=2")
        for scaling, measured in (("proportional", 64), ("proportional", 16), ("floor", 64)):
            profile = tool.small_profile(batch_scaling=scaling)
            profile["layers"][0]["measurements"][0]["batch_size"] = measured
            made = self.run_tool("--model", self.write("model.json", profile), "--topo",
                                 self.write("topo.json", tool.small_topology()), *pins, "-o",
                                 f"{scaling}.json")
            self.assertEqual(made.returncode, DONE, made.stderr)
            shown = " ".join(made.stdout.split())
            if measured == 16:  # 2 samples are an eighth
                self.assertNotIn("Small batches", shown)
                continue
            # 2 of 64 samples: 3 ms of 3 layers are 0.2813 ms in proportion.
            self.assertRegex(shown, "Small batches: replicas work on 2 samples at a time, and the "
                             r"smallest batch measured has 64: [\d.]+ ms if times are in proportion, "
                             r"[\d.]+ ms if a small batch takes as long as a measured one \(floor\)")
            simulated = " ".join(self.run_tool("simulate", f"{scaling}.json").stdout.split())
            self.assertIn(re.search(r"smallest batch measured has 64: .* \(floor\)", shown)[0],
                          simulated)
            iteration = self.read(f"{scaling}.json")["predicted"]["iteration_ns"] / 1e6
            own = re.search(r"([\d.]+) ms if times are in" if scaling == "proportional" else
                            r"([\d.]+) ms if a small batch", shown)[1]
            self.assertAlmostEqual(float(own), iteration, delta=0.001 * iteration)
            if scaling == "floor":
                self.assertNotIn("searched under floor", shown)
            else:
                self.assertIn("A plan searched under floor is no faster then", shown)

    def test_a_plan_searched_under_floor_says_what_it_gains(self):
        profile = tool.small_profile()
        profile["layers"][0]["measurements"][0]["batch_size"] = 64
        made = self.run_tool("--model", self.write("model.json", profile), "--topo",
                             self.write("topo.json", tool.small_topology()), "-o", "plan.json")
        shown = " ".join(made.stdout.split())
        own = re.search(r"([\d.]+) ms if a small batch takes as long", shown)
        searched = re.search(r"A plan searched under floor takes ([\d.]+) ms then, ([\d.]+) % less: ",
                             shown)
        self.assertIsNotNone(searched, shown)
        self.assertAlmostEqual(float(searched[2]), 100 * (1 - float(searched[1]) / float(own[1])),
                               delta=0.1)
        floored = self.run_tool("--model",
                                self.write("floor.json", {**profile, "batch_scaling": "floor"}),
                                "--topo", "topo.json", "--planner", "dapple", "-o", "floor.plan.json")
        self.assertEqual(floored.returncode, DONE, floored.stderr)
        self.assertAlmostEqual(float(searched[1]) * 1e6,
                               self.read("floor.plan.json")["predicted"]["iteration_ns"], delta=1e4)


class Scheduling(ToolTest):
    def setUp(self):
        super().setUp()
        self.plan = self.read(self.make_deep_plan())

    def schedule(self, form):
        result = self.run_tool("schedule", "plan.json", "--format", form)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return result.stdout

    def test_the_text_has_every_micro_batch_once_forward_and_once_backward_per_device(self):
        lines = self.schedule("text").splitlines()
        self.assertEqual(len(lines), sum(len(stage["devices"]) for stage in self.plan["stages"]))
        for line in lines:
            _, _, actions = line.partition(": ")
            stage = re.match(r"\d+", actions.split()[0]).group()
            for kind in "FB":
                found = re.findall(rf"(?<!\S){stage}{kind}(\d+)", actions)
                self.assertEqual(sorted(map(int, found)),
                                 list(range(self.plan["num_micro_batches"])))

    def test_json_and_csv_say_the_same(self):
        document = json.loads(self.schedule("json"))
        self.assertEqual(document["schema"], "dapple-schedule/1")
        self.assertEqual(document["digest"], self.plan["schedule"]["digest"])
        rows = list(csv.DictReader(io.StringIO(self.schedule("csv"))))
        actions = [(device["device"], action) for device in document["devices"]
                   for action in device["actions"]]
        self.assertEqual(len(rows), len(actions))
        for row, (device, action) in zip(rows, actions):
            self.assertEqual(row["device"], device)
            for key in ("kind", "stream", "stage"):
                self.assertEqual(row[key], str(action[key]))
            for key in ("micro_batch", "bucket", "bytes"):
                self.assertEqual(row[key], str(action.get(key, "")))
            self.assertEqual(row["peers"], ";".join(f"{peer['device']}={peer['bytes']}"
                                                    for peer in action.get("peers", ())))

    def test_names_in_csv_are_neither_formulas_nor_separators(self):
        for name in ("=1+1", "+1", "-1", "@sum", "a,b;c=d", 'say "x"', "100%", "a-b+c@d"):
            topology = tool.small_topology()
            topology["servers"][0]["name"] = name
            made = self.run_tool("--model", "deep.json", "--topo", self.write("odd.json", topology),
                                 "-o", "odd.plan.json")
            self.assertEqual(made.returncode, DONE, made.stderr)
            names = {device for stage in self.read("odd.plan.json")["stages"]
                     for device in stage["devices"]}
            text = self.run_tool("schedule", "odd.plan.json", "--format", "csv").stdout
            self.assertTrue(all(line.count(",") == 8 for line in text.splitlines()), text)
            self.assertNotIn('"', text)
            rows = list(csv.DictReader(io.StringIO(text)))
            self.assertEqual({urllib.parse.unquote(row["device"]) for row in rows}, names)
            for row in rows:
                self.assertNotIn(row["device"][0], "=+-@")
                for peer in filter(None, row["peers"].split(";")):
                    device, size = peer.split("=")
                    self.assertIn(urllib.parse.unquote(device), names)
                    self.assertGreater(int(size), 0)
        self.assertIn("a-b+c@d0:0,", text)

    def test_a_timeline_beside_its_plan_is_a_document_too(self):
        simulated = self.run_tool("simulate", "plan.json", "--timeline", "timeline.json")
        self.assertEqual(simulated.returncode, DONE, simulated.stderr)
        timeline = self.read("timeline.json")
        first = min(action["start_ns"] for action in timeline["actions"])
        for action in timeline["actions"]:  # twice as long, all of it
            action["start_ns"] = first + 2 * (action["start_ns"] - first)
            action["end_ns"] = first + 2 * (action["end_ns"] - first)
        self.write("measured.json", timeline)
        result = self.run_tool("diff", "plan.json", "measured.json", "--json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        document = json.loads(result.stdout)
        self.assertEqual(document["schema"], "dapple-measurement/1")
        iteration = document["iteration"]
        self.assertEqual(iteration["measured_ns"], 2 * iteration["predicted_ns"])
        for length in document["lengths"]:
            self.assertEqual(length["measured_ns"], 2 * length["predicted_ns"], length)
        slowest = document["slower_than_predicted"]
        self.assertEqual([entry["beyond_ns"] for entry in slowest],
                         sorted((entry["beyond_ns"] for entry in slowest), reverse=True))
        self.assertTrue(slowest)

    def test_json_follows_its_schema(self):
        try:
            import jsonschema
        except ImportError:
            self.skipTest("python3-jsonschema is not installed")
        schemas = tool.ROOT / "src" / "io" / "schemas"
        schema = json.loads((schemas / "schedule.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(json.loads(self.schedule("json")))

    def test_bytes_sent_equal_bytes_received_pair_by_pair(self):
        sent, received = {}, {}
        for device in json.loads(self.schedule("json"))["devices"]:
            for action in device["actions"]:
                for peer in action.get("peers", ()):
                    if action["kind"].startswith("send"):
                        key = (action["kind"][5:], action["micro_batch"], device["device"],
                               peer["device"])
                        sent[key] = sent.get(key, 0) + peer["bytes"]
                    elif action["kind"].startswith("receive"):
                        key = (action["kind"][8:], action["micro_batch"], peer["device"],
                               device["device"])
                        received[key] = received.get(key, 0) + peer["bytes"]
        self.assertEqual(sent, received)
        boundaries = len(self.plan["stages"]) - 1
        self.assertGreaterEqual(len(sent), 2 * boundaries * self.plan["num_micro_batches"])


if __name__ == "__main__":
    tool.main()
