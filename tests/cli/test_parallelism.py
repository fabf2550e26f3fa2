"""Plans whose devices are groups with tensor parallelism: planned, costed, verified, exchanged."""

import copy
import json
import math
import random

import tool
from tool import BAD_INPUT, DONE, INFEASIBLE, NOT_VERIFIED, USAGE, ToolTest

MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30


def variant(degree, sequence, layer):
    """A part of the layer, and an all-reduce for each sample or the two halves of one."""
    def part(count):
        return -(-count // degree)

    measured = layer["measurements"][0]
    kinds = ["reduce-scatter", "all-gather"] if sequence else ["all-reduce"]
    collectives = [{"kind": kind, "bytes_per_sample": 65536} for kind in kinds]
    made = {"tensor_parallel": degree, "parameter_bytes": part(layer["parameter_bytes"]),
            "measurements": [{"batch_size": measured["batch_size"],
                              "forward_ns": part(measured["forward_ns"]),
                              "backward_ns": part(measured["backward_ns"]),
                              "output_bytes": part(measured["output_bytes"]) if sequence
                              else measured["output_bytes"],
                              "stash_bytes": part(measured["stash_bytes"])}],
            "forward_collectives": collectives, "backward_collectives": collectives}
    if sequence:
        made["sequence_parallel"] = True
    return made


class Parallelism(ToolTest):
    def profile(self, forms=((2, False), (2, True), (4, True)), parameters=MEBIBYTE, blocks=6,
                **changes):
        """Blocks between an embedding and a head."""
        profile = tool.small_profile(**changes)
        layer = profile["layers"].pop()
        del layer["repeat"]
        layer["parameter_bytes"] = parameters
        layer["variants"] = [variant(degree, sequence, layer) for degree, sequence in forms]
        names = ["embedding", *(f"block.{i}" for i in range(blocks)), "head"]
        profile["layers"] = [{**layer, "name": name} for name in names]
        return profile

    def topology(self, memory="1 GiB", devices=4):
        topology = tool.small_topology(memory)
        topology["servers"][0]["devices"] = devices
        return topology

    def ground(self, memory="1 GiB", devices=4, **changes):
        return ("--model", self.write("blocks.json", self.profile(**changes)),
                "--topo", self.write("2xN.json", self.topology(memory, devices)))

    def planned(self, *more, memory="1 GiB", **changes):
        run = self.run_tool(*self.ground(memory, **changes), "-o", "plan.json", *more)
        self.assertEqual(run.returncode, DONE, run.stderr)
        return self.read("plan.json")

    def imported(self, layout, *more, name="plan.json"):
        run = self.run_tool("import", "plan", "--layout", layout, *self.ground(), "-o", name, *more)
        self.assertEqual(run.returncode, DONE, run.stderr)
        return self.read(name)

    def test_memory_decides_for_groups(self):
        # Weights, gradients and state of a layer are 400 MiB, of its half 200, and of five halves one of
        # four groups has two; of quarters, of 100, one of two groups has three.
        large = {"parameters": 100 * MEBIBYTE, "blocks": 3}
        plan = self.planned(memory="350 MiB", **large)
        self.assertEqual(plan["parallelism"], {"tensor": 4, "sequence": True})
        records = {record["parallelism"]["tensor"]: record for record in plan["parallelisms"]}
        self.assertIsNone(records[1]["iteration_ns"])
        self.assertGreater(records[1]["missing_bytes"], 0)
        self.assertIn("no plan of it fits memory", records[1]["reason"])
        limit = 350 * MEBIBYTE
        # Eight micro-batches of two samples. A layer takes 125 us forward and 250 us backward, each
        # with a reduce-scatter and an all-gather over four devices: three rounds of 5 us, in which
        # three quarters of 2 x 64 KiB pass at 10 GB/s.
        collectives = 2 * (3 * 5000 + -(-(2 * 65536 * 3 // 4) // 10))
        layer = 125_000 + 250_000 + 2 * collectives
        # The group with three layers is never idle: the second, with two, is that much faster, so that
        # gradients are back, whatever transfers take, when five micro-batches have begun. The step is
        # 0.01 ns for each byte of 3 x 25 MiB.
        self.assertEqual([stage["layers"] for stage in plan["stages"]], [[0, 3], [3, 5]])
        self.assertEqual(plan["schedule"]["warmup_depths"], [5, 1])
        self.assertEqual(plan["predicted"]["iteration_ns"],
                         8 * 3 * layer + -(-3 * 25 * MEBIBYTE // 100))
        # A device holds a quarter of 400 MiB for each layer. A layer keeps 128 KiB of a micro-batch, and
        # as much is sent each way: of the first three layers for five micro-batches, of the last two for
        # one, and four buffers beside those in which four more micro-batches wait.
        part = 2 * 65536
        peaks = [3 * 100 * MEBIBYTE + (5 * 3 + 4 + 4) * part,
                 2 * 100 * MEBIBYTE + (1 * 2 + 4 + 4) * part]
        self.assertEqual([(device["peak_memory_bytes"], device["memory_limit_bytes"])
                          for device in plan["predicted"]["devices"]],
                         [(peak, limit) for peak in peaks])
        # Whole layers and two halves are 50 MiB above the limit, and what a sample keeps.
        for record in plan["parallelisms"][:-1]:
            self.assertGreater(record["missing_bytes"], 50 * MEBIBYTE)
        run = self.run_tool("verify", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        # Held to one device for each layer, no plan fits.
        for option in (("--pin", "tensor=1"), ("--max-tensor", "1")):
            run = self.run_tool(*self.ground("350 MiB", **large), *option)
            self.assertEqual(run.returncode, INFEASIBLE, run.stdout + run.stderr)
            self.assertIn("fewer of --pin, --max-tensor and --shard", run.stderr)

    def test_options_without_effect_are_named(self):
        plain = ("--model", self.write("plain.json", tool.small_profile()), "--topo",
                 self.write("t.json", self.topology()), "-o", "plan.json")
        texts = {"--max-tensor": "with tensor parallelism", "--per-stage": "in another form",
                 "--recompute-layers": "that recompute"}
        for words in (("--max-tensor", "2"), ("--per-stage",), ("--recompute-layers", "auto")):
            with self.subTest(words=words):
                run = self.run_tool(*plain, *words)
                self.assertEqual(run.returncode, DONE, run.stderr)
                said = [text for text in self.read("plan.json")["warnings"]
                        if "has no effect, as the profile has no variants of layers " in text]
                self.assertEqual(len(said), 1, said)
                self.assertTrue(said[0].startswith(words[0]), said)
                self.assertIn(texts[words[0]], said[0])
                run = self.run_tool("verify", "plan.json")
                self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        for words in ((), ("--max-tensor", "2"), ("--per-stage",)):
            for text in self.planned(*words)["warnings"]:
                self.assertNotIn("has no effect", text)

    def test_reasons_in_whole_percents_are_verified_too(self):
        plan = self.planned()
        places = [i for i, record in enumerate(plan["parallelisms"])
                  if "the best one seen is" in record["reason"]]
        self.assertTrue(places, plan["parallelisms"])
        record = plan["parallelisms"][places[0]]
        slower = record["iteration_ns"] / plan["predicted"]["iteration_ns"] - 1
        tenths, end = f"{math.ceil(slower * 1000) / 10:.1f}", record["reason"].split(" % slower")[1]
        begin = "only faster plans were looked for; the best one seen is "
        self.assertEqual(record["reason"], f"{begin}{tenths} % slower{end}")
        for percents, code in ((math.ceil(slower * 100), DONE),
                               (math.ceil(slower * 100) + 1, BAD_INPUT)):
            record["reason"] = f"{begin}{percents} % slower{end}"
            self.write("older.json", plan)
            run = self.run_tool("verify", "older.json")
            self.assertEqual(run.returncode, code, run.stdout + run.stderr)

    def test_the_plan_names_its_groups_and_the_records_their_forms(self):
        plan = self.planned("--pin", "tensor=2")
        self.assertEqual(plan["parallelism"]["tensor"], 2)
        self.assertEqual(len(plan["parallelisms"]), 2)
        names = {device for stage in plan["stages"] for device in stage["devices"]}
        self.assertLessEqual(names, {"node0:0-1", "node0:2-3", "node1:0-1", "node1:2-3"})
        # The documents that the plan was made from are in it as they were.
        self.assertEqual(plan["model"]["profile"]["layers"][0]["variants"][0]["tensor_parallel"], 2)
        self.assertEqual(plan["topology"]["description"]["servers"][0]["devices"], 4)
        self.assertEqual(plan["request"]["pins"]["tensor"], 2)
        self.assertIn("pinned: tensor=2", plan["search_space"]["cut"])
        self.assertFalse(plan["search_space"]["complete"])

    def test_all_forms_are_searched_and_the_bound_is_of_all(self):
        plan = self.planned()
        forms = [(record["parallelism"]["tensor"], record["parallelism"].get("sequence", False))
                 for record in plan["parallelisms"]]
        self.assertEqual(forms, [(1, False), (2, False), (2, True), (4, True)])
        self.assertTrue(plan["search_space"]["complete"])
        bound = plan["predicted"]["lower_bound_ns"]
        for record in plan["parallelisms"]:
            self.assertLessEqual(bound, record["lower_bound_ns"])
            if record["iteration_ns"] is not None:
                self.assertGreaterEqual(record["iteration_ns"], plan["predicted"]["iteration_ns"])
        self.assertIn("context and expert parallelism", plan["search_space"]["outside"])
        run = self.run_tool("verify", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        shown = self.run_tool(*self.ground(), "-o", "plan.json").stdout
        self.assertIn("parallelism", shown)
        self.assertIn("tensor 4, sequence", shown)

    def test_a_profile_without_variants_has_no_such_keys(self):
        run = self.run_tool(*self.small_inputs(), "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        plan = self.read("plan.json")
        for key in ("parallelism", "parallelisms"):
            self.assertNotIn(key, plan)
        self.assertNotIn("max_tensor", plan["request"])
        self.assertNotIn("tensor", plan["request"]["pins"])

    def test_every_command_takes_such_a_plan(self):
        plan = self.planned("--pin", "tensor=4")
        iteration = plan["predicted"]["iteration_ns"]
        run = self.run_tool("validate", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool("simulate", "plan.json", "--json", "--trace", "trace.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        result = json.loads(run.stdout)
        self.assertTrue(result["simulation"]["same_as_file"])
        self.assertIn("node0:0-3", (self.folder / "trace.json").read_text())
        run = self.run_tool("simulate", "plan.json", *self.ground())
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.write("faster.json", self.topology())
        topology = self.topology()
        topology["servers"][0]["links"]["bandwidth"] = "1 GB/s"
        run = self.run_tool("simulate", "plan.json", "--recost", "--topo",
                            self.write("slow.json", topology), "--json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        # Slower links make slower collectives.
        slow = json.loads(run.stdout)["plans"][0]["predicted"]["iteration_ns"]
        self.assertGreater(slow, iteration)
        for arguments in (("report", "plan.json", "-o", "page.html"),
                          ("schedule", "plan.json"), ("diff", "plan.json", "plan.json"),
                          ("reschedule", "plan.json", "--schedule", "gpipe", "-o", "gpipe.json"),
                          ("verify", "gpipe.json"), ("simulate", "gpipe.json")):
            run = self.run_tool(*arguments)
            self.assertEqual(run.returncode, DONE, (arguments, run.stderr))
        self.assertEqual(self.read("gpipe.json")["parallelism"], plan["parallelism"])

    def test_collectives_are_a_part_of_the_iteration(self):
        predicted = self.planned("--pin", "tensor=2")["predicted"]
        parts = predicted["time_parts"]
        self.assertGreater(parts["collectives_ns"], 0)
        self.assertEqual(sum(parts.values()), predicted["iteration_ns"])
        shown = self.run_tool("simulate", "plan.json").stdout
        self.assertIn("  collectives  ", shown)
        self.assertNotIn("collectives_ns",
                         self.planned("--pin", "tensor=1")["predicted"]["time_parts"])

    def test_a_wide_server_decides_for_groups(self):
        # One sample at a time leaves replicas and stages nothing to do beside each other: four layers
        # of 4 ms in a row, or quarters of them, with collectives of microseconds.
        profile = self.profile(blocks=2, forms=((4, True),), global_batch_size=1)
        for layer in profile["layers"]:
            for figures in (layer, layer["variants"][0]):
                figures["measurements"][0]["batch_size"] = 1
            for collective in layer["variants"][0]["forward_collectives"]:
                collective["bytes_per_sample"] = 4000
        topology = self.topology(devices=4)
        topology["servers"][0].update(count=1, links={"kind": "switch", "bandwidth": "100 GB/s",
                                                      "latency": "1 us"})
        run = self.run_tool("--model", self.write("deep.json", profile), "--topo",
                            self.write("wide.json", topology), "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        plan = self.read("plan.json")
        self.assertEqual(plan["parallelism"], {"tensor": 4, "sequence": True})
        # Forward 4 x 250 us and backward 4 x 500 us, and in each of four layers twice a
        # reduce-scatter and an all-gather over four devices: 3 rounds of 1 us, and 3/4 of 4,000
        # bytes; a MiB of parameters, a quarter each, at 0.01 ns per byte.
        collectives = 4 * 2 * 2 * (3 * 1000 + 3000 * 10 // 1000)
        step = -(-4 * (MEBIBYTE // 4) // 100)
        self.assertEqual(plan["predicted"]["time_parts"]["collectives_ns"], collectives)
        self.assertEqual(plan["predicted"]["iteration_ns"],
                         4 * 250_000 + 4 * 500_000 + collectives + step)
        alone = plan["parallelisms"][0]
        self.assertGreaterEqual(alone["lower_bound_ns"], plan["predicted"]["iteration_ns"])

    def test_baselines_are_plans_of_the_same_groups(self):
        self.planned("--pin", "tensor=2", "--write-baselines", "others")
        for name in ("data-parallel", "1f1b-even"):
            file = f"others/{name}.plan.json"
            self.assertEqual(self.read(file)["parallelism"]["tensor"], 2)
            run = self.run_tool("verify", file)
            self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)

    def test_the_best_uniform_plan_is_of_any_form(self):
        plan = self.planned("--write-baselines", "others")
        uniform = plan["baselines"][-1]
        self.assertEqual(uniform["name"], "best-uniform")
        self.assertTrue(uniform["feasible"])
        self.assertGreaterEqual(uniform["iteration_ns"], plan["predicted"]["iteration_ns"])
        even = []
        for degree in ("1", "2", "4"):
            pinned = self.planned("--pin", f"tensor={degree}")
            even += [(baseline["iteration_ns"], degree) for baseline in pinned["baselines"]
                     if baseline["name"] in ("data-parallel", "1f1b-even") and baseline["feasible"]]
        self.assertLessEqual(uniform["iteration_ns"], min(even)[0])
        written = self.read("others/best-uniform.plan.json")
        self.assertEqual(written["predicted"]["iteration_ns"], uniform["iteration_ns"])
        form = written["parallelism"]
        self.assertTrue(uniform["shape"].endswith(f"; tensor {form['tensor']}" + (
            ", sequence" if form.get("sequence") else "")), uniform["shape"])
        run = self.run_tool("validate", "others/best-uniform.plan.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        uniform["iteration_ns"] += 1
        uniform["time_parts"]["bubble_ns"] += 1
        self.write("tampered.json", plan)
        run = self.run_tool("verify", "tampered.json")
        self.assert_error(run, BAD_INPUT, f"/baselines/{len(plan['baselines']) - 1}/iteration_ns")
        # A file without it, as earlier ones are, is as true as before.
        plan["baselines"].pop()
        self.write("earlier.json", plan)
        self.assertEqual(self.run_tool("verify", "earlier.json").returncode, DONE)
        self.assertNotIn("best-uniform", [baseline["name"] for baseline in
                                          self.planned("--pin", "tensor=4")["baselines"]])

    def random_ground(self, draw):
        """A profile of unequal layers whose gradients take long to reduce, so that pipelines pay."""
        profile = self.profile(parameters=draw.randint(1, 12) * MEBIBYTE,
                               blocks=draw.randint(6, 14))
        profile["layers"] = [copy.deepcopy(layer) for layer in profile["layers"]]
        for layer in profile["layers"]:
            factor = draw.randint(5, 10)
            for part in (layer, *layer["variants"]):
                figures = part["measurements"][0]
                figures["forward_ns"] *= factor
                figures["backward_ns"] *= factor
        return ("--model", self.write("random.json", profile), "--topo",
                self.write("2xN.json", self.topology(f"{draw.randint(80, 400)} MiB",
                                                     draw.choice((2, 4)))))

    def test_no_plan_is_slower_than_the_best_uniform_one(self):
        draw = random.Random(20261128)
        shapes = []
        for trial in range(6 * tool.SCALE):
            ground = self.random_ground(draw)
            for family in ("1f1b", "interleaved", "auto"):
                with self.subTest(trial=trial, family=family):
                    run = self.run_tool(*ground, "--global-batch", 4, "--schedule", family, "-o",
                                        "plan.json")
                    if run.returncode == INFEASIBLE:
                        continue
                    self.assertEqual(run.returncode, DONE, run.stderr)
                    plan = self.read("plan.json")
                    found = [each for each in plan["baselines"] if each["name"] == "best-uniform"]
                    if not found:
                        continue
                    uniform, = found
                    self.assertTrue(uniform["feasible"])
                    self.assertGreaterEqual(uniform["iteration_ns"],
                                            plan["predicted"]["iteration_ns"])
                    shapes.append((family, uniform["shape"]))
                    run = self.run_tool("verify", "plan.json")
                    self.assertIn(run.returncode, (DONE, NOT_VERIFIED), run.stdout + run.stderr)
        looped = {family for family, shape in shapes if "stages each" in shape}
        self.assertEqual(looped, {"interleaved", "auto"}, shapes)

    def test_an_even_split_into_many_stages_is_not_missed(self):
        # Twenty equal layers on two devices: with ten stages each these wait least, which is more
        # stages than the search of the schedule looks at; replicas would reduce large gradients.
        profile = self.profile(forms=((2, False),), parameters=12 * MEBIBYTE, blocks=18)
        figures = profile["layers"][0]["measurements"][0]  # of all layers
        figures.update(forward_ns=1_000_000, backward_ns=2_000_000, output_bytes=64)
        run = self.run_tool("--model", self.write("twenty.json", profile), "--topo",
                            self.write("2x1.json", self.topology("4 GiB", devices=1)),
                            "--global-batch", 2, "--schedule", "interleaved", "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        plan = self.read("plan.json")
        self.assertLessEqual(plan["predicted"]["iteration_ns"],
                             plan["baselines"][-1]["iteration_ns"])
        self.assertEqual(len(plan["stages"]), 20)
        run = self.run_tool("verify", "plan.json")
        self.assertIn(run.returncode, (DONE, NOT_VERIFIED), run.stdout + run.stderr)

    def test_layouts_of_every_degree(self):
        table = "tp,sp,pp,dp,mbs\n1,off,2,4,1\n2,off,2,2,1\n2,on,2,2,1\n4,on,2,1,1\n"
        run = self.run_tool("simulate", "--layouts", self.write("table.csv", table),
                            *self.ground(), "--csv")
        self.assertEqual(run.returncode, DONE, run.stderr)
        lines = run.stdout.splitlines()
        self.assertEqual(len(lines), 5)
        column = lines[0].split(",").index("devices")
        self.assertEqual([line.split(",")[column] for line in lines[1:]], ["8"] * 4)
        for line, layout in zip(lines[1:], table.splitlines()[1:]):
            words = dict(zip(table.splitlines()[0].split(","), layout.split(",")))
            plan = self.imported(",".join(f"{word}={value}" for word, value in words.items()))
            self.assertIn(str(plan["predicted"]["iteration_ns"]), line.split(","))

    def test_megatron_s_options_come_back(self):
        for layout, more in (("tp=2,sp=on,pp=2,dp=2,mbs=1", ["--sequence-parallel"]),
                             ("tp=2,sp=off,pp=2,dp=2,mbs=1", []),
                             ("tp=4,pp=2,dp=1,mbs=1", ["--sequence-parallel"])):
            with self.subTest(layout=layout):
                plan = self.imported(layout)
                run = self.run_tool("export", "plan.json", "--to", "megatron", "-o", "options.sh")
                self.assertEqual(run.returncode, DONE, run.stderr)
                text = (self.folder / "options.sh").read_text()
                self.assertIn(f"--tensor-model-parallel-size {plan['parallelism']['tensor']}\n",
                              text)
                for option in ["--sequence-parallel"]:
                    self.assertEqual(option in text, option in more)
                run = self.run_tool("import", "plan", "options.sh", *self.ground(), "-o",
                                    "again.json")
                self.assertEqual(run.returncode, DONE, run.stderr)
                again = self.read("again.json")
                for part in ("parallelism", "stages", "schedule", "predicted"):
                    self.assertEqual(plan[part], again[part])

    def test_devices_of_groups_are_placed(self):
        plan = self.imported("tp=2,sp=on,pp=2,dp=1,mbs=1", "--devices", "node1:2-3,node0:0,node0:1")
        self.assertEqual([stage["devices"] for stage in plan["stages"]],
                         [["node1:2-3"], ["node0:0-1"]])
        for devices in ("node1:1-2,node0:0-1", "node1:2-3,node0:0", "node1:3,node1:2,node0:0-1"):
            fault = self.refused("import", "plan", "--layout", "tp=2,sp=on,pp=2,dp=1,mbs=1",
                                 *self.ground(), "--devices", devices, code=USAGE)
            self.assertIn("expected whole groups of 2 devices, as node0:0-1", fault)

    def test_other_targets_take_groups_or_refuse_them_by_name(self):
        self.imported("tp=2,sp=on,pp=2,dp=2,mbs=1")
        run = self.run_tool("export", "plan.json", "--to", "torchtitan", "-o", "titan.sh")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("--parallelism.tensor_parallel_degree 2",
                      (self.folder / "titan.sh").read_text())
        for target, words in (("deepspeed", "the files for DeepSpeed have no sequence"),
                              ("pipedream", "no place for devices of several GPUs"),
                              ("torch-python", "no place for devices of several GPUs")):
            run = self.run_tool("export", "plan.json", "--to", target, "-o", target)
            self.assertEqual(run.returncode, BAD_INPUT, run.stdout + run.stderr)
            self.assertIn("plan.json: /parallelism/", run.stderr)
            self.assertIn(words, run.stderr)
        run = self.run_tool("export", "plan.json", "--to", "ranks", "-o", "ranks.sh")
        self.assertEqual(run.returncode, DONE, run.stderr)

    def test_plans_for_a_runtime(self):
        plan = self.planned("--for", "megatron", parameters=20 * MEBIBYTE, memory="100 MiB")
        self.assertIn("parallelism", plan)
        run = self.run_tool("export", "plan.json", "--to", "megatron", "-o", "options.sh")
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool("verify", "plan.json")
        self.assertNotEqual(run.returncode, BAD_INPUT, run.stdout + run.stderr)
        # What is written for DeepSpeed has no sequence parallelism, which the records say.
        plan = self.planned("--for", "deepspeed", parameters=20 * MEBIBYTE, memory="100 MiB")
        self.assertNotIn("sequence", plan.get("parallelism", {}))
        reasons = {(record["parallelism"]["tensor"], record["parallelism"].get("sequence", False)):
                   record["reason"] for record in plan["parallelisms"]}
        for form in ((2, True), (4, True)):
            self.assertEqual(reasons[form],
                             "the files for DeepSpeed have no sequence parallelism")
        self.assertNotEqual(self.run_tool("verify", "plan.json").returncode, BAD_INPUT)

    def test_schedules_of_groups(self):
        plan = self.planned("--schedule", "auto")
        self.assertGreater(len(plan["schedules"]), 2)
        self.assertEqual(len(plan["parallelisms"]), 4)
        run = self.run_tool("verify", "plan.json", "--budget", "1000000")
        self.assertNotEqual(run.returncode, BAD_INPUT, run.stdout + run.stderr)

    def refused(self, *arguments, code=BAD_INPUT):
        run = self.run_tool(*arguments)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        errors = [line for line in run.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(errors), 1, run.stderr)
        return errors[0]

    def test_impossible_degrees_are_refused_by_name(self):
        fault = self.refused(*self.ground(), "--pin", "tensor=3")
        self.assertIn("not every layer has a variant", fault)
        fault = self.refused(*self.ground(devices=3), "--pin", "tensor=2")
        self.assertIn("need a multiple of that in each server, and node has 3", fault)
        fault = self.refused(*self.ground(), "--pin", "tensor=4", "--max-tensor", "2")
        self.assertIn("got tensor 4: the largest degree allowed is 2", fault)
        fault = self.refused("simulate", "--layout", "tp=2,pp=2,dp=4,mbs=1", *self.ground())
        self.assertIn("at most 4, the groups of 2 devices of the topology, got 2 times 4", fault)
        fault = self.refused(*self.ground(), "--pin", "tensor=zero", code=USAGE)
        self.assertIn("expected tensor=N", fault)
        fault = self.refused("simulate", "--layout", "tp=3,mbs=1", *self.ground())
        self.assertIn("expected tensor parallelism of degree 1, 2, 2 with sequence parallelism, 4 "
                      "with sequence parallelism, for which all layers have variants, got 3", fault)
        fault = self.refused("simulate", "--layout", "tp=4,sp=off,mbs=1", *self.ground())
        self.assertIn("got 4", fault)
        fault = self.refused("simulate", "--layout", "tp=2,mbs=1", *self.ground(devices=3))
        self.assertIn("node has 3", fault)
        fault = self.refused("simulate", "--layout", "sp=on,mbs=1", *self.ground())
        self.assertIn("sequence parallelism needs tensor parallelism", fault)
        fault = self.refused("simulate", "--layout", "tp=2,sp=yes,mbs=1", *self.ground())
        self.assertIn("sp: expected on or off", fault)
        # Where one form has no groups, the others are searched, and the record says why.
        run = self.run_tool(*self.ground(devices=6), "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        record = self.read("plan.json")["parallelisms"][-1]
        self.assertEqual(record["parallelism"], {"tensor": 4, "sequence": True})
        self.assertIn("need a multiple of that", record["reason"])
        self.assertEqual(self.run_tool("verify", "plan.json").returncode, DONE)

    def test_the_executor_replays_groups_and_trains_only_what_was_measured(self):
        executor = tool.ARGUMENTS.executor
        if executor is None:
            self.skipTest("no executor was given")
        profile = json.loads((tool.ROOT / "profiles" / "gpt2-tiny.json").read_text())
        for number, layer in enumerate(profile["layers"]):
            layer["measurements"] = [{"batch_size": 1, "forward_ns": 1000000 + number,
                                      "backward_ns": 2000000, "output_bytes": 4096,
                                      "stash_bytes": 4096}]
            layer["variants"] = [variant(2, False, layer)]
        profile.update(device="card", batch_scaling="proportional", global_batch_size=4)
        run = self.run_tool("--model", self.write("tiny.json", profile), *self.ground()[2:],
                            "--pin", "tensor=2", "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool("replay", "plan.json", binary=executor)
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool("train", "plan.json", "--steps", "1", binary=executor)
        self.assertEqual(run.returncode, BAD_INPUT, run.stderr)
        self.assertIn("expected output_bytes 16384 at batch size 1 for the output of \"tokens\"",
                      run.stderr)

    def test_a_replay_reduces_and_scatters_sharded_state(self):
        executor = tool.ARGUMENTS.executor
        if executor is None:
            self.skipTest("no executor was given")
        sent = {}
        for stage in ("0", "1"):
            self.imported(f"zero={stage},pp=1,dp=2,mbs=8", name=f"{stage}.json")
            run = self.run_tool("replay", f"{stage}.json", "--iterations", "1", binary=executor)
            self.assertEqual(run.returncode, DONE, run.stderr)
            line = next(line for line in run.stdout.splitlines() if line.startswith("  sent"))
            sent[stage] = line.split()[1:3]
        # Two devices pass eight layers of a MiB around the ring, each twice, or once.
        self.assertEqual(sent, {"0": ["16.0", "MiB"], "1": ["8.00", "MiB"]})

    def test_false_claims_about_forms_are_found(self):
        plan = self.planned()
        for change, place in (
                (lambda plan: plan["parallelisms"].pop(), "/parallelisms"),
                (lambda plan: plan["parallelisms"][1].update(lower_bound_ns=1), "/predicted"),
                (lambda plan: plan["parallelisms"][2].update(parallelism={"tensor": 4}),
                 "/parallelisms/2/parallelism"),
                (lambda plan: plan["search_space"].update(outside="nothing"),
                 "/search_space/outside")):
            tampered = json.loads(json.dumps(plan))
            change(tampered)
            self.write("tampered.json", tampered)
            run = self.run_tool("verify", "tampered.json")
            self.assertEqual(run.returncode, BAD_INPUT, run.stdout + run.stderr)
            self.assertIn(place, run.stderr)

    def test_a_plan_s_parallelism_is_checked_as_it_is_read(self):
        plan = self.planned("--pin", "tensor=2")
        for parallelism, words in (
                ({"tensor": 1}, "a degree above 1"),
                ({"tensor": 3}, "has no variant for tensor 3"),
                ({"tensor": 4}, "has no variant for tensor 4"),
                ({"tensor": 0}, "1 to 1024"),
                ({"tensor": 2, "sequence": 1}, "true or false"),
                ({}, "tensor"), ([], "object"), ({"tensor": 2, "expert": 1}, "expert")):
            with self.subTest(parallelism=parallelism):
                self.write("bad.json", {**plan, "parallelism": parallelism})
                run = self.run_tool("simulate", "bad.json")
                self.assertEqual(run.returncode, BAD_INPUT, run.stderr)
                self.assertIn("/parallelism", run.stderr)
                self.assertIn(words, run.stderr)
        # Without the key the names of groups are no devices.
        del plan["parallelism"]
        self.write("bad.json", plan)
        run = self.run_tool("simulate", "bad.json")
        self.assertEqual(run.returncode, BAD_INPUT)
        self.assertIn("/stages/0/devices/0", run.stderr)

    def test_plans_of_different_groups_are_compared_device_by_device(self):
        # Two stages of two groups of two on two servers of four, and one stage of two groups of four.
        plans = {"a": self.imported("tp=2,sp=on,pp=2,mbs=1", name="two.json"),
                 "b": self.imported("tp=4,zero=1,pp=1,mbs=1", name="four.json")}
        run = self.run_tool("diff", "two.json", "four.json", "--json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        compared = json.loads(run.stdout)
        memory = {f"node{node}:{device}": {} for node in range(2) for device in range(4)}
        for side, size in (("a", 2), ("b", 4)):
            plan = plans[side]
            self.assertEqual(compared[side]["iteration_ns"], plan["predicted"]["iteration_ns"])
            self.assertEqual(compared[side]["parallelism"], plan["parallelism"])
            groups = [figures["peak_memory_bytes"] for figures in plan["predicted"]["devices"]]
            self.assertEqual(len(groups), 8 // size)
            for i, device in enumerate(memory):
                memory[device][f"{side}_peak_bytes"] = groups[i // size]
        self.assertEqual({one.pop("device"): one for one in compared["memory"]},
                         {device: {**peaks, "limit_bytes": GIBIBYTE} for device, peaks in
                          memory.items()})
        self.assertEqual(compared["moved_devices"],
                         [{"devices": list(memory)[4:], "from": [1], "to": [0]}])
        self.assertEqual(compared["stages"][0]["b"]["devices"], list(memory))
        self.assertFalse(compared["same_plan"])
        shown = self.run_tool("diff", "two.json", "four.json").stdout
        for row in (r"devices used +8 +8 +same", r"tensor +2 +4\n", r"sharded +none +optimizer\n",
                    r"4 devices +node1:0-3 +1 +0\n"):
            self.assertRegex(shown, row)
        self.assertNotRegex(shown, "(sequence|context|experts) +")

    def test_groups_that_shard_are_compared_with_those_that_do_not(self):
        for zero in (0, 1):
            self.imported(f"tp=4,zero={zero},pp=1,mbs=1", name=f"{zero}.json")
        run = self.run_tool("diff", "0.json", "1.json", "--json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        for device in json.loads(run.stdout)["memory"]:
            # Quarters of eight layers are 2 MiB, with 4 MiB of state, of which each of two groups has half.
            self.assertEqual(device["a_peak_bytes"] - device["b_peak_bytes"], 2 * MEBIBYTE)

    def test_layers_without_a_variant_are_named(self):
        profile = self.profile()
        profile["layers"][3]["variants"] = profile["layers"][3]["variants"][:2]
        run = self.run_tool("--model", self.write("some.json", profile), *self.ground()[2:], "-o",
                            "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("tensor 4 with sequence parallelism is not planned: layer block.2 has no "
                      "variant for it", self.read("plan.json")["warnings"])
        self.assertEqual(self.run_tool("verify", "plan.json").returncode, DONE)

    def sharded_ground(self, memory):
        """One layer, too little to recompute, on four devices."""
        profile = tool.small_profile(global_batch_size=8)
        layer = profile["layers"].pop()
        del layer["repeat"]
        layer["parameter_bytes"] = 100 * MEBIBYTE
        profile["layers"] = [layer]
        topology = self.topology()
        topology["servers"][0]["count"] = 1
        topology["devices"]["card"]["memory"] = memory
        return ("--model", self.write("one.json", profile), "--topo",
                self.write("four.json", topology))

    def test_memory_decides_for_sharded_state(self):
        # Weights, gradients and two states of 100 MiB each are 400 MiB, of a quarter of the states
        # 250; a sample keeps a quarter of a MiB, and the bucket has 100.
        ground = self.sharded_ground("360 MiB")
        run = self.run_tool(*ground)
        self.assertEqual(run.returncode, INFEASIBLE, run.stdout + run.stderr)
        self.assertIn("cheapest remedy  --shard optimizer", run.stderr)
        run = self.run_tool(*ground, "--shard", "auto", "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        plan = self.read("plan.json")
        self.assertEqual(plan["parallelism"], {"tensor": 1, "sharding": "optimizer"})
        self.assertEqual([len(stage["devices"]) for stage in plan["stages"]], [4])
        stash = plan["micro_batch_size"] // 4 * MEBIBYTE // 4
        self.assertEqual(plan["predicted"]["devices"][0]["peak_memory_bytes"],
                         350 * MEBIBYTE + stash)
        # A quarter of the step of 0.01 ns a byte, and three rounds of 5 us in which three quarters
        # of the parameters pass at 10 GB/s.
        size = 100 * MEBIBYTE
        step = -(-(-(-size // 100)) // 4)
        gather = -(-(size * 3 // 4) // 10) + 3 * 5000
        self.assertEqual(plan["stages"][0]["costs"]["optimizer_step_ns"], step + gather)
        self.assertEqual(plan["stages"][0]["costs"]["all_reduce_ns"], gather)
        self.assertEqual(plan["request"]["sharding"], "auto")
        self.assertIn("sharded gradients alone", plan["search_space"]["outside"])
        self.assertIsNone(plan["parallelisms"][0]["iteration_ns"])
        for command in (("verify",), ("simulate",), ("validate",), ("report", "-o", "page.html")):
            run = self.run_tool(command[0], "plan.json", *command[1:])
            self.assertEqual(run.returncode, DONE, (command, run.stdout, run.stderr))
        for change in ({"sharding": "optimizer"}, {}):
            plan["request"].pop("sharding", None)
            plan["request"].update(change)
            self.write("tampered.json", plan)
            self.assertEqual(self.run_tool("verify", "tampered.json").returncode, BAD_INPUT)

    def test_sharded_state_is_exchanged(self):
        plan = self.imported("zero=1,pp=2,dp=2,mbs=1")
        self.assertEqual(plan["parallelism"], {"tensor": 1, "sharding": "optimizer"})
        whole = self.imported("zero=0,pp=2,dp=2,mbs=1", name="whole.json")
        self.assertNotIn("parallelism", whole)
        peaks = [document["predicted"]["devices"][0]["peak_memory_bytes"]
                 for document in (plan, whole)]
        # Four layers of a MiB with two states, of which half is on the other replica.
        self.assertEqual(peaks[1] - peaks[0], 4 * MEBIBYTE)
        for target, words in (("megatron", "--use-distributed-optimizer"),
                              ("deepspeed", '"zero_optimization": {"stage": 1}')):
            run = self.run_tool("export", "plan.json", "--to", target, "-o", target)
            self.assertEqual(run.returncode, DONE, run.stderr)
            self.assertIn(words, (self.folder / target).read_text())
        for file in ("megatron", "deepspeed"):
            run = self.run_tool("import", "plan", file, *self.ground(), "-o", "again.json")
            self.assertEqual(run.returncode, DONE, run.stderr)
            again = self.read("again.json")
            for part in ("parallelism", "stages", "predicted"):
                self.assertEqual(plan[part], again[part])
        settings = (self.folder / "deepspeed").read_text()
        self.write("stage.py", settings.replace('"stage": 1', '"stage": 2'))
        fault = self.refused("import", "plan", "stage.py", *self.ground())
        self.assertIn("zero_optimization: expected stage 0 or 1", fault)
        options = (self.folder / "megatron").read_text()
        for more, words in (
                ("--use-megatron-fsdp", "--use-megatron-fsdp: expected none"),
                ("--num-distributed-optimizer-instances 2",
                 "--num-distributed-optimizer-instances: needs --use-distributed-optimizer")):
            self.write("more.sh", options.replace("--use-distributed-optimizer", more))
            self.assertIn(words, self.refused("import", "plan", "more.sh", *self.ground()))
        run = self.run_tool("export", "plan.json", "--to", "chakra", "-o", "traces")
        self.assertIn("reduce-scatter is in the traces as an all-reduce of half its size",
                      run.stderr)
        run = self.run_tool("export", "plan.json", "--to", "colossalai", "-o", "no.py")
        self.assertEqual(run.returncode, BAD_INPUT)
        self.assertIn("/parallelism/sharding: expected none, as the files for ColossalAI have no "
                      "sharded state", run.stderr)
        fault = self.refused(*self.ground(), "--for", "colossalai", "--shard", "optimizer")
        self.assertIn("the files for ColossalAI have no sharded state", fault)
        fault = self.refused(*self.ground(), "--shard", "auto", "--optimizer-step", "per-bucket",
                             code=USAGE)
        self.assertIn("--shard", fault)
        fault = self.refused("simulate", "plan.json", "--asynchronous", code=USAGE)
        self.assertIn("expected a plan without sharded state", fault)
        plan["gradients"]["optimizer_step"] = "per-bucket"
        self.write("bad.json", plan)
        fault = self.refused("simulate", "bad.json")
        self.assertIn("/gradients/optimizer_step: expected at-end, as the optimizer's state is "
                      "sharded", fault)

    def test_faults_of_variants(self):
        def changed(change):
            profile = self.profile()
            change(profile["layers"][1]["variants"][0], profile)
            return self.write("bad.json", profile)

        for change, words in (
                (lambda v, _: v.update(tensor_parallel=1), "/variants/0/tensor_parallel"),
                (lambda v, _: v.update(tensor_parallel=4, sequence_parallel=True),
                 "expected one variant of each parallelism"),
                (lambda v, _: v.update(parameter_bytes=0), "expected parameters where the layer"),
                (lambda v, _: v.update(measurements=[]), "at least one measurement"),
                (lambda v, _: v["forward_collectives"][0].update(kind="gossip"), "all-gather"),
                (lambda v, _: v["forward_collectives"][0].update(count=0), "count"),
                (lambda v, _: v.update(forward_collectives=v["forward_collectives"] * 17),
                 "at most 16 collectives"),
                (lambda v, _: v.update(color="red"), "color"),
                (lambda _, profile: profile.update(tensor_parallel=2), "as layers have variants")):
            with self.subTest(words=words):
                run = self.run_tool("--model", changed(change), *self.ground()[2:])
                self.assertEqual(run.returncode, BAD_INPUT, run.stderr)
                self.assertIn(words, run.stderr)


if __name__ == "__main__":
    tool.main()
