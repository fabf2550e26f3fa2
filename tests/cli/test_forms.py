"""Instances in which one form of parallelism alone decides, with their arithmetic, and exchange of
such plans with other runtimes."""

import json
import shutil

import tool
from tool import BAD_INPUT, DONE, INFEASIBLE, NOT_VERIFIED, USAGE, ToolTest

MEBIBYTE = 1 << 20
MILLISECOND = 10**6  # nanoseconds


def divide_up(a, b):
    return -(-a // b)


def sample(forward=MILLISECOND, backward=2 * MILLISECOND, output=1024, stash=1024):
    return [{"batch_size": 1, "forward_ns": forward, "backward_ns": backward,
             "output_bytes": output, "stash_bytes": stash}]


class Forms(ToolTest):
    def profile(self, layers, batch, parameters=64 * MEBIBYTE, state=2, **changes):
        """Layers of 1 ms forward and 2 ms backward a sample, which hold next to nothing beside."""
        return {"schema": "dapple-profile/1", "name": "made", "source": "made up",
                "global_batch_size": batch, "device": "card", "batch_scaling": "proportional",
                "optimizer": {"name": "adam" if state else "sgd",
                              "state_bytes_per_parameter_byte": state},
                "layers": [{"name": f"layer{i}", "parameter_bytes": parameters,
                            "measurements": sample(), **changes} for i in range(layers)]}

    def topology(self, servers, devices, memory, inside="200 GB/s", nic="1 GB/s"):
        link = {"bandwidth": nic, "latency": "0 ns", "source": "made up"}
        return {"schema": "dapple-topology/1", "name": "made", "source": "made up",
                "devices": {"card": {"memory": f"{memory} B", "reserved": "0 B"}},
                "servers": [{"name": "node", "count": servers, "device": "card",
                             "devices": devices, "nics": [link] * (servers > 1),
                             "links": {"kind": "switch", "bandwidth": inside, "latency": "0 ns",
                                       "source": "made up"}}],
                **({"network": {"kind": "switch", **link}} if servers > 1 else {})}

    def planned(self, profile, topology, *more):
        run = self.run_tool("--model", self.write("m.json", profile), "--topo",
                            self.write("t.json", topology), "-o", "plan.json", *more)
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        plan = self.read("plan.json")
        run = self.run_tool("verify", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        return plan

    def assert_form(self, plan, iteration, **form):
        self.assertEqual(plan.get("parallelism"), form or None)
        self.assertEqual(plan["predicted"]["iteration_ns"], iteration)
        self.assertEqual(plan["predicted"]["lower_bound_ns"], iteration)

    def test_full_sharding_instead_of_a_pipeline(self):
        # Four layers of P = 64 MiB on four devices, a sample for each. Whole, a device holds 4 P of
        # weights, 4 P of gradients and 8 P of state. Of shards over all four it holds 4 P, and
        # while a layer runs, that, a neighbour and its gradients: 3 P more.
        size = 64 * MEBIBYTE
        profile = self.profile(4, 4)
        plan = self.planned(profile, self.topology(1, 4, 8 * size), "--shard", "auto")
        # Four layers of 3 ms. Gathers of three quarters of P take 0.3 ms, and gradients as long.
        self.assert_form(plan, 12 * MILLISECOND, tensor=1, sharding="full", shards=4)
        memory = plan["predicted"]["devices"][0]["peak_memory_bytes"]
        self.assertEqual(memory, 4 * size + 3 * size + 4 * 1024)
        # Without it, four stages take seven turns of 3 ms, and send 1,024 bytes three times each way.
        plan = self.planned(profile, self.topology(1, 4, 8 * size))
        self.assert_form(plan, 7 * 3 * MILLISECOND + 2 * 3 * divide_up(1024, 200))
        self.assertEqual([stage["layers"] for stage in plan["stages"]],
                         [[0, 1], [1, 2], [2, 3], [3, 4]])

    def test_a_form_whose_times_leave_their_range_has_no_baseline(self):
        # Between servers 23 MB a sample take 23 million seconds at 1 B/s, more than a time may be.
        slow = sample(forward=1, output=23 * 10**6)
        profile = self.profile(2, 2, parameters=0, variants=[
            {"tensor_parallel": 2, "parameter_bytes": 0, "measurements": slow}])
        plan = self.planned(profile, self.topology(2, 2, 10**12, nic="1 B/s"))
        reasons = {record["parallelism"]["tensor"]: record["reason"] for record in plan["parallelisms"]}
        self.assertEqual(reasons[2], "times or sizes leave their range")
        best, = [line for line in plan["baselines"] if line["name"] == "best-uniform"]
        self.assertIn("tensor 1", best["shape"])

    def test_records_of_other_layers_that_recompute_are_verified_where_a_median_chose_the_plan(self):
        # Layers of unequal length, of which the first has all parameters, on three devices: first plans
        # of forms in which only some layers recompute are then made by themselves.
        profile = self.profile(4, 4, parameters=0, state=0)
        for i, layer in enumerate(profile["layers"]):
            layer["parameter_bytes"] = 0 if i else 10**8
            backward = 2 * (1 + i) * MILLISECOND
            layer["measurements"] = sample(backward=backward, output=1000)
            layer["variants"] = [{"tensor_parallel": 1, "recompute": "mlp",
                                  "parameter_bytes": layer["parameter_bytes"],
                                  "measurements": sample(backward=backward + MILLISECOND, output=1000,
                                                         stash=512)}]
        topology = self.topology(1, 3, 10**12, inside="10 GB/s")
        plan = self.planned(profile, topology, "--recompute-layers", "auto", "--jitter", "5%")
        self.assertGreater(len(plan["parallelisms"]), 3)

    def test_hybrid_sharding_where_the_network_is_slow(self):
        # Four layers on two devices of each of two servers, without optimizer state, so that ZeRO-1
        # gains nothing: 8 P leave no room for a sample. Of shards over two devices a device holds
        # 4 P, 3 P while a layer runs, and a bucket of half of P: one sample, of 8 MiB in each
        # layer, fits.
        size = 64 * MEBIBYTE
        profile = self.profile(4, 200, state=0, measurements=sample(stash=8 * MEBIBYTE))
        topology = self.topology(2, 2, 8 * size)
        plan = self.planned(profile, topology, "--shard", "auto", "--pin", "stages=1")
        # 50 micro-batches of 12 ms. Each device reduces its half of the gradients with the other
        # server at its half of the NIC, a layer in size / 2 / 0.5 bytes a ns, the first 6 ms after
        # the last micro-batch begins.
        self.assert_form(plan, (49 * 12 + 6) * MILLISECOND + 4 * size, tensor=1, sharding="full",
                         shards=2)
        # Shards over all four pass the network for each layer and micro-batch, of five samples on
        # each device: three quarters of P at 1 GB/s, three times.
        plan = self.planned(profile, topology, "--shard", "full", "--pin", "stages=1", "--pin",
                            "shards=4")
        self.assert_form(plan, 10 * 4 * 3 * (3 * size // 4), tensor=1, sharding="full", shards=4)

    def test_parameters_are_kept_where_they_fit(self):
        # full-keep against full: two layers of P = 64 MiB on two devices at 10 GB/s, where half of P
        # takes 3.4 ms, which 1 ms of forward and 2 of backward do not hide.
        size = 64 * MEBIBYTE
        profile = self.profile(2, 8)
        profile["optimizer"]["step_ns_per_parameter_byte"] = 0.1
        topology = self.topology(1, 2, 9 * size, "10 GB/s")
        options = ("--pin", "stages=1", "--micro-batch", "2")
        half = divide_up(size // 2, 10)
        step = divide_up(divide_up(2 * size, 10), 2)
        # Parameters that are kept are gathered once, after the step. Whole layers take 24 ms. Buckets
        # of one layer each are scattered in half of P, the first beside the other layer's backward of
        # 2 ms; then half of the step, and both layers are gathered.
        kept = 22 * MILLISECOND + 2 * half + step + divide_up(size, 10)
        # Gathered anew they pass for each of four micro-batches and two layers, before forward and
        # backward, and gradients after it; the step is of half.
        gathered = 4 * 2 * 3 * half + step
        self.assertLess(kept, gathered)
        plan = self.planned(profile, topology, "--shard", "full-keep", *options)
        # 2 P of weights, 2 P of gradients, half of 4 P of state, and the bucket.
        self.assert_form(plan, kept, tensor=1, sharding="optimizer")
        for device in plan["predicted"]["devices"]:
            self.assertEqual(device["peak_memory_bytes"], (2 + 2 + 4 // 2 + 1) * size + 2 * 1024)
        self.assertEqual(plan["request"]["sharding"], "optimizer")
        chosen = self.planned(profile, topology, "--shard", "auto", *options)
        self.assert_form(chosen, kept, tensor=1, sharding="optimizer")
        plan = self.planned(profile, topology, "--shard", "full", *options)
        # Half of 8 P, and while a layer runs, that, the other and gradients.
        self.assert_form(plan, gathered, tensor=1, sharding="full", shards=2)
        self.assertEqual(plan["predicted"]["devices"][0]["peak_memory_bytes"],
                         (8 // 2 + 3) * size + 2 * 1024)
        # Layouts have the same name for it, and the same figures.
        ground = ("--model", "m.json", "--topo", "t.json", "--json")
        found = {}
        for zero in ("full-keep", "1", "3"):
            run = self.run_tool("simulate", "--layout", f"pp=1,dp=2,mbs=1,zero={zero}", *ground)
            self.assertEqual(run.returncode, DONE, run.stderr)
            found[zero] = json.loads(run.stdout)["plans"][0]["predicted"]["iteration_ns"]
        self.assertEqual(found, {"full-keep": kept, "1": kept, "3": gathered})
        # Two shards of two ranks are all.
        run = self.run_tool("simulate", "--layout", "pp=1,dp=2,mbs=1,zero=full-keep,fsdp=2", *ground)
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(json.loads(run.stdout)["plans"][0]["predicted"]["iteration_ns"], kept)

    def test_optimizer_state_sharded_within_servers(self):
        # Four layers of P = 64 MiB on two devices of each of two servers with 14 P each. Whole, a
        # device holds 4 P of weights, 4 P of gradients and 8 P of state, which is too much.
        size = 64 * MEBIBYTE
        profile = self.profile(4, 8, measurements=sample(4 * MILLISECOND, 8 * MILLISECOND))
        profile["optimizer"]["step_ns_per_parameter_byte"] = 0.01
        topology = self.topology(2, 2, 14 * size, nic="10 GB/s")
        options = ("--pin", "stages=1", "--micro-batch", "4")
        # Two micro-batches of four layers of 12 ms. All gradients but those of the first layer are
        # reduced while the layers before it run. Over all four devices, that layer's are scattered
        # within the servers, half of P at 200 GB/s, and then between them, half of P at 10 GB/s;
        # behind a quarter of the step all four layers are gathered the same way.
        compute = 2 * 4 * 12 * MILLISECOND
        over_all = lambda bytes: divide_up(bytes, 2 * 200) + divide_up(bytes, 2 * 10)
        step = divide_up(4 * size, 100)
        of_all = compute + over_all(size) + divide_up(step, 4) + over_all(4 * size)
        plan = self.planned(profile, topology, "--shard", "optimizer", *options)
        found = plan["predicted"]["iteration_ns"]
        self.assertEqual(plan["parallelism"], {"tensor": 1, "sharding": "optimizer"})
        self.assertLessEqual(abs(found - of_all), 2)
        # In each server by itself, half of that layer's gradients are all-reduced with the other
        # server, at half of the NIC for each device. Gradients are scattered within the server, half
        # of 4 P, the step is of half, and parameters are gathered within the server.
        within = divide_up(4 * size, 2 * 200)
        of_servers = compute + divide_up(size, 10) + 2 * within + divide_up(2 * size, 100)
        self.assertLess(of_servers, of_all)
        plan = self.planned(profile, topology, "--shard", "optimizer", "--pin", "shards=2", *options)
        self.assert_form(plan, of_servers, tensor=1, sharding="optimizer", shards=2)
        self.assertEqual(plan["request"]["pins"]["shards"], 2)
        self.assertEqual(plan["stages"][0]["devices"], ["node0:0-1", "node1:0-1"])
        # 4 P of weights and of gradients, half of 8 P of state, and the largest bucket.
        for device in plan["predicted"]["devices"]:
            self.assertEqual(device["peak_memory_bytes"], 12 * size + size // 2 + 4 * 1024)
        self.assertIn("optimizer state sharded over 2", self.run_tool("simulate", "plan.json").stdout)
        # One group of all four gathers and scatters between servers, behind the last backward.
        plan = self.planned(profile, topology, "--shard", "optimizer", "--pin", "shards=4", *options)
        three = divide_up(3 * 4 * size, 4 * 10)
        self.assert_form(plan, compute + 2 * three + divide_up(size, 100), tensor=1,
                         sharding="optimizer", shards=4)
        # Layouts say the same.
        ground = ("--model", "m.json", "--topo", "t.json", "--json")
        for words, expected in (("fsdp=2", of_servers), ("fsdp=4", found), ("sp=off", found)):
            run = self.run_tool("simulate", "--layout", f"pp=1,dp=4,mbs=1,zero=1,{words}", *ground)
            self.assertEqual(run.returncode, DONE, run.stderr)
            self.assertEqual(json.loads(run.stdout)["plans"][0]["predicted"]["iteration_ns"], expected)
        run = self.run_tool("plan", *ground[:4], "--shard", "none", *options, "-o", "none.json")
        self.assertEqual(run.returncode, INFEASIBLE, run.stdout + run.stderr)

    def test_sharded_optimizer_state_instead_of_recomputation(self):
        # Four layers of P = 64 MiB that keep 1.5 P of a sample, on two devices of 20 P. Whole state is
        # 16 P and a bucket P: with 6 P that a sample keeps, too much. Backwards that recompute take
        # 1 ms longer and keep next to nothing, but for the layer that runs. What layers hand on, 1.5 P
        # too, leaves no room for the buffers of two stages that overlap.
        size = 64 * MEBIBYTE
        kept = 3 * size // 2
        recomputing = {"tensor_parallel": 1, "recompute": "full", "parameter_bytes": size,
                       "measurements": sample(backward=3 * MILLISECOND, output=kept)}
        recomputing["measurements"][0]["workspace_bytes"] = kept
        profile = self.profile(4, 16, measurements=sample(output=kept, stash=kept),
                               variants=[recomputing])
        profile["optimizer"]["step_ns_per_parameter_byte"] = 0.01
        topology = self.topology(1, 2, 20 * size, "28 GB/s")
        half = divide_up(size // 2, 28)
        step = divide_up(4 * size, 100)
        # Both run eight micro-batches with a sample on each device. With half of the state elsewhere
        # there is room for what four layers keep of one. Buckets of a layer pass in half of P beside
        # the next layer's backward of 2 ms, all but the last; behind half of the step, parameters are
        # gathered.
        sharded = 8 * 4 * 3 * MILLISECOND + half + divide_up(step, 2) + divide_up(4 * size // 2, 28)
        plan = self.planned(profile, topology, "--shard", "auto")
        self.assert_form(plan, sharded, tensor=1, sharding="optimizer")
        for device in plan["predicted"]["devices"]:
            self.assertEqual(device["peak_memory_bytes"], (4 + 4 + 8 // 2 + 1) * size + 4 * kept)
        # Gradients pass beside the next layer's backward of 3 ms, twice half of P, and the step is
        # whole.
        recomputed = 8 * 4 * 4 * MILLISECOND + divide_up(size, 28) + step
        self.assertLess(sharded, recomputed)
        plan = self.planned(profile, topology)
        self.assert_form(plan, recomputed, tensor=1, recompute="full")
        for device in plan["predicted"]["devices"]:
            self.assertEqual(device["peak_memory_bytes"], (4 + 4 + 8 + 1) * size + 4 * 1024 + kept)
        # With neither, 3 P are missing.
        run = self.run_tool("--model", "m.json", "--topo", "t.json", "--pin", "stages=1", "--pin",
                            "replicas=2", "--pin", "recompute=none")
        self.assertEqual(run.returncode, INFEASIBLE, run.stdout + run.stderr)
        self.assertIn(f"({3 * size} bytes) are missing", run.stderr)
        for layout, iteration in (("zero=1", sharded), ("recompute=full", recomputed)):
            run = self.run_tool("simulate", "--layout", f"pp=1,dp=2,mbs=1,{layout}", "--model", "m.json",
                                "--topo", "t.json", "--json")
            self.assertEqual(run.returncode, DONE, run.stderr)
            self.assertEqual(json.loads(run.stdout)["plans"][0]["predicted"]["iteration_ns"], iteration)

    def test_context_parallelism_for_one_long_sequence(self):
        # One sample in a batch: only its sequence can be divided. Its keys and values are gathered
        # and their gradients scattered, 8 MiB at 200 GB/s over two devices.
        exchanged = 8 * MEBIBYTE
        half = sample(MILLISECOND // 2, MILLISECOND)
        variant = {"tensor_parallel": 1, "context_parallel": 2, "parameter_bytes": 1000,
                   "measurements": half,
                   "forward_collectives": [{"kind": "all-gather", "over": "context",
                                            "bytes_per_sample": exchanged}],
                   "backward_collectives": [{"kind": kind, "over": "context",
                                             "bytes_per_sample": exchanged}
                                            for kind in ("all-gather", "reduce-scatter")]}
        profile = self.profile(2, 1, parameters=1000, variants=[variant])
        plan = self.planned(profile, self.topology(1, 2, 1 << 30))
        hop = divide_up(exchanged // 2, 200)
        # Both devices hold all 2,000 bytes of parameters and reduce their gradients, 5 ns each way.
        self.assert_form(plan, 2 * (3 * MILLISECOND // 2 + 3 * hop) + 2 * divide_up(1000, 200),
                         tensor=1, context=2)
        self.assertIn("expert parallelism; sharded state", plan["search_space"]["outside"])
        # Whole, it passes both layers of 3 ms.
        plan = self.planned(profile, self.topology(1, 2, 1 << 30), "--pin", "context=1")
        self.assert_form(plan, 6 * MILLISECOND)

    def test_experts_that_fit_no_device(self):
        # One layer with 16 MiB outside experts and four experts of P = 64 MiB. Four times all of
        # it (weights, gradients, two of state) is 1,088 MiB, with one expert 320 MiB.
        own, size = 16 * MEBIBYTE, 64 * MEBIBYTE
        tokens = 4 * MEBIBYTE
        collectives = [{"kind": "all-to-all", "over": "experts", "bytes_per_sample": tokens,
                        "count": 2}]
        variant = {"tensor_parallel": 1, "expert_parallel": 4, "parameter_bytes": own + size,
                   "expert_parameter_bytes": size, "measurements": sample(),
                   "forward_collectives": collectives, "backward_collectives": collectives}
        profile = self.profile(1, 4, parameters=own + 4 * size, variants=[variant])
        plan = self.planned(profile, self.topology(1, 4, 512 * MEBIBYTE))
        # A sample on each device: 3 ms, four exchanges of three quarters, and what is outside
        # experts is reduced over all four.
        exchange = divide_up(3 * tokens // 4, 200)
        reduction = 2 * divide_up(3 * own // 4, 200)
        self.assert_form(plan, 3 * MILLISECOND + 4 * exchange + reduction, tensor=1, experts=4,
                         expert_tensor=1)
        self.assertEqual(plan["predicted"]["devices"][0]["peak_memory_bytes"],
                         4 * (own + size) + 1024)
        run = self.run_tool("--model", "m.json", "--topo", "t.json", "--pin", "experts=1")
        self.assertEqual(run.returncode, tool.INFEASIBLE)

    def test_recomputing_what_keeps_most(self):
        # Four layers on one device keep 100 MiB each, 60 of them within their feed-forward layers,
        # which take 0.4 ms of the forward. Keeping all takes 400 MiB, and a stage that recomputes
        # needs as much again for the micro-batch in hand. Without these parts four layers keep
        # 160 MiB, and the one that recomputes has 60; of whole layers, 4 and 100.
        def variant(parts, backward, kept, again):
            measured = sample(backward=backward, stash=kept * MEBIBYTE)
            measured[0]["workspace_bytes"] = again * MEBIBYTE
            return {"tensor_parallel": 1, "recompute": parts, "parameter_bytes": 1000,
                    "measurements": measured}

        profile = self.profile(4, 2, parameters=1000, measurements=sample(stash=100 * MEBIBYTE),
                               variants=[variant("mlp", 2_400_000, 40, 60),
                                         variant("full", 3_000_000, 1, 100)])
        memory = 4 * 4000
        plan = self.planned(profile, self.topology(1, 1, memory + 220 * MEBIBYTE))
        self.assert_form(plan, 2 * 4 * 3_400_000, tensor=1, recompute="mlp")
        device = plan["predicted"]["devices"][0]
        self.assertEqual(device["peak_memory_bytes"], memory + 220 * MEBIBYTE)
        self.assertEqual([stage["recompute"] for stage in plan["stages"]], [False])
        # With a byte less, whole layers are recomputed; with room for all, nothing is.
        plan = self.planned(profile, self.topology(1, 1, memory + 220 * MEBIBYTE - 1))
        self.assert_form(plan, 2 * 4 * 4_000_000, tensor=1, recompute="full")
        plan = self.planned(profile, self.topology(1, 1, memory + 400 * MEBIBYTE))
        self.assert_form(plan, 2 * 4 * 3_000_000)
        # A pin decides, too, and says what it wants.
        plan = self.planned(profile, self.topology(1, 1, memory + 400 * MEBIBYTE), "--pin",
                            "recompute=full")
        self.assert_form(plan, 2 * 4 * 4_000_000, tensor=1, recompute="full")
        run = self.run_tool("--model", "m.json", "--topo", "t.json", "--pin", "recompute=norm")
        self.assert_error(run, BAD_INPUT,
                          "--pin: expected parts that layers recompute in some variant")
        run = self.run_tool("--model", "m.json", "--topo", "t.json", "--pin", "recompute=nrom")
        self.assert_error(run, USAGE, '"nrom", nearest is norm')

    def test_recomputing_the_first_layers_alone(self):
        # Four layers on one device keep 100 MiB each, or 1 MiB where they recompute, and then 100
        # while one does. So 400 MiB without recomputation, 401 with one layer that recomputes, 302
        # with two, 203 with three, 104 with all. A layer takes 1 ms again.
        again = sample(backward=3 * MILLISECOND, stash=MEBIBYTE)
        again[0]["workspace_bytes"] = 100 * MEBIBYTE
        profile = self.profile(4, 2, parameters=1000, measurements=sample(stash=100 * MEBIBYTE),
                               variants=[{"tensor_parallel": 1, "recompute": "full",
                                          "parameter_bytes": 1000, "measurements": again}])
        memory = 4 * 4000
        for room, layers in ((400, None), (302, 2), (203, 3), (104, 4)):
            for less in (0, 1) if layers in (None, 2, 3) else (0,):
                with self.subTest(room=room, less=less):
                    plan = self.planned(profile, self.topology(1, 1, memory + room * MEBIBYTE - less),
                                        "--recompute-layers", "auto")
                    count = {None: 2, 2: 3, 3: 4}[layers] if less else layers
                    form = {None: {}, 4: {"tensor": 1, "recompute": "full"}}.get(
                        count, {"tensor": 1, "recompute": "full", "recomputed_layers": count})
                    self.assert_form(plan, 2 * (4 * 3 + (count or 0)) * MILLISECOND, **form)
        self.assertEqual(plan["request"]["recomputed_layers"], "auto")
        # Without being asked for, all layers recompute, and a pin fixes how many.
        topology = self.topology(1, 1, memory + 302 * MEBIBYTE)
        plan = self.planned(profile, topology)
        self.assert_form(plan, 2 * 16 * MILLISECOND, tensor=1, recompute="full")
        self.assertIn("parts recomputed in some layers of a stage only",
                      plan["search_space"]["outside"])
        plan = self.planned(profile, topology, "--pin", "recompute=full:3")
        self.assert_form(plan, 2 * 15 * MILLISECOND, tensor=1, recompute="full", recomputed_layers=3)
        for pin in ("full:", "full:0", "full:x", "full:-1", "full:1:2", ":2", "full:100001"):
            run = self.run_tool("--model", "m.json", "--topo", "t.json", "--pin",
                                f"recompute={pin}")
            self.assert_error(run, USAGE, f'"{pin}"')
        # Where the number alone is wrong, it is what is named, and no nearest word.
        for pin, expected in (("full:0", "full:N with N from 1 to 100000"),
                              ("full:100001", "full:N with N from 1 to 100000"),
                              ("full:1/1", "full:1/N with N from 2 to 100000"),
                              ("core_attn+norm:x", "core_attn+norm:N with N from 1 to 100000")):
            run = self.run_tool("--model", "m.json", "--topo", "t.json", "--pin",
                                f"recompute={pin}")
            self.assert_error(run, USAGE, f'--pin: expected recompute={expected}, got "{pin}"')
            self.assertNotIn("nearest", run.stderr)
            run = self.run_tool("simulate", "--layout", f"pp=1,dp=1,mbs=1,recompute={pin}",
                                "--model", "m.json", "--topo", "t.json")
            self.assertIn(f'recompute: expected {expected}, got "{pin}"', run.stderr)
        layers = len(profile["layers"])
        for number in (layers, 10**12, -1):
            run = self.run_tool("--model", "m.json", "--topo", "t.json", "--pin", f"cut={number}")
            self.assertEqual(run.returncode, USAGE, run.stderr)
            self.assertIn(f'1 to {layers - 1}, got "{number}"', run.stderr)
            self.assertNotIn("nearest", run.stderr)
        # Layers that have other outputs where they recompute are all one way in a stage.
        for layer in profile["layers"]:
            layer["variants"][0]["measurements"][0]["output_bytes"] = 2048
        plan = self.planned(profile, topology, "--recompute-layers", "auto")
        self.assert_form(plan, 2 * 16 * MILLISECOND, tensor=1, recompute="full")
        run = self.run_tool("--model", "m.json", "--topo", "t.json", "--pin", "recompute=full:3")
        self.assert_error(run, BAD_INPUT, "layer layer0 has other parameters or another output")

    def again(self, profile, stashes, costs=()):
        """Gives each layer what it keeps, in MiB, and a variant that keeps 1 MiB and takes 1 ms, or
        as much as is said, again."""
        for number, (layer, kept) in enumerate(zip(profile["layers"], stashes)):
            layer["measurements"] = sample(stash=kept * MEBIBYTE)
            more = costs[number] if costs else MILLISECOND
            layer["variants"] = [{"tensor_parallel": 1, "recompute": "full", "parameter_bytes": 1000,
                                  "measurements": sample(backward=2 * MILLISECOND + more,
                                                         stash=MEBIBYTE)}]
        return profile

    def test_recomputing_every_second_layer(self):
        # Four layers on one device keep 10, 100, 10 and 100 MiB, or 1 MiB each where they
        # recompute, in 1 ms: 220 MiB in all. Without the last one 121 MiB (every fourth of the
        # stage). Without the first one 211, the first two 112, the first three 103. Without the
        # second and the last one 22 (every second one). All recomputing keep 4.
        profile = self.again(self.profile(4, 2, parameters=1000), (10, 100, 10, 100))
        options = ("--recompute-layers", "auto")
        for room, count, form in (
                (220, 0, None), (219, 1, {"recomputed_layers": 1}), (210, 1, {"recompute_every": 4}),
                (121, 1, {"recompute_every": 4}), (120, 2, {"recomputed_layers": 2}),
                (111, 2, {"recompute_every": 2}), (22, 2, {"recompute_every": 2}), (21, 4, {})):
            with self.subTest(room=room):
                plan = self.planned(profile, self.topology(1, 1, 16000 + room * MEBIBYTE), *options)
                form = {} if form is None else {"tensor": 1, "recompute": "full", **form}
                self.assert_form(plan, 2 * (4 * 3 + count) * MILLISECOND, **form)
        self.assertIn("or every second, third or fourth of every stage",
                      plan["search_space"]["outside"])
        # Without being asked for, all layers recompute, and a pin fixes which.
        topology = self.topology(1, 1, 16000 + 30 * MEBIBYTE)
        plan = self.planned(profile, topology)
        self.assert_form(plan, 2 * 16 * MILLISECOND, tensor=1, recompute="full")
        plan = self.planned(profile, topology, "--pin", "recompute=full:1/2")
        self.assert_form(plan, 2 * 14 * MILLISECOND, tensor=1, recompute="full", recompute_every=2)
        self.assertEqual(plan["request"]["pins"]["recompute_every"], 2)
        run = self.run_tool("simulate", "plan.json")
        self.assertIn("full in every 2nd layer of a stage", run.stdout)
        for pin in ("full:1/", "full:1/1", "full:1/0", "full:1/x", "full:2/3", "full:1/100001"):
            run = self.run_tool("--model", "m.json", "--topo", "t.json", "--pin",
                                f"recompute={pin}")
            self.assert_error(run, USAGE, f'"{pin}"')
        # Each stage counts from its first layer: of stages of three and one layers the second one
        # recomputes, which keeps 10 MiB at two micro-batches in flight. That leaves 2 * 21 MiB
        # there, and 100 in the other stage.
        plan = self.planned(self.again(self.profile(4, 2, parameters=1000), (10, 100, 10, 100)),
                            self.topology(1, 2, 12000 + 101 * MEBIBYTE), "--pin",
                            "recompute=full:1/2", "--pin", "cut=layer3", "--micro-batch", "1")
        said = [stage["costs"]["backward_ns"] for stage in plan["stages"]]
        self.assertEqual(said, [7 * MILLISECOND, 2 * MILLISECOND])

    def test_stages_that_shrink_with_more_layers(self):
        # Of three layers the last one keeps 100 MiB. Where every second layer recomputes it does so
        # in a stage with one layer in front of it, not alone nor in a stage of all three: only the
        # plan with the first layer apart fits into 50 MiB.
        profile = self.again(self.profile(3, 2, parameters=1000), (1, 1, 100))
        for planner in ("exact", "dapple"):
            plan = self.planned(profile, self.topology(1, 2, 12000 + 50 * MEBIBYTE), "--pin",
                                "recompute=full:1/2", "--planner", planner)
            self.assertEqual([stage["layers"] for stage in plan["stages"]], [[0, 1], [1, 3]])
        # Likewise where it is the work that shrinks: all three take 10 ms, the last two 106.
        profile = self.again(self.profile(3, 2, parameters=1000), (1, 1, 1),
                             (MILLISECOND, MILLISECOND, 100 * MILLISECOND))
        plan = self.planned(profile, self.topology(1, 1, 1 << 30), "--pin", "recompute=full:1/2")
        self.assert_form(plan, 2 * 10 * MILLISECOND, tensor=1, recompute="full", recompute_every=2)
        # Two stages of a layer each recompute nothing, also on one device.
        profile = self.again(self.profile(2, 4, parameters=1000), (1, 1))
        topology = self.topology(1, 1, 1 << 30)
        plan = self.planned(profile, topology, "--pin", "recompute=full:1/2")
        self.assert_form(plan, 4 * 7 * MILLISECOND, tensor=1, recompute="full", recompute_every=2)
        for schedule in ("interleaved", "zb-v", "breadth-first"):
            plan = self.planned(profile, topology, "--pin", "recompute=full:1/2", "--schedule",
                                schedule)
            self.assert_form(plan, 4 * 6 * MILLISECOND, tensor=1, recompute="full",
                             recompute_every=2)

    # Exchange.

    def two_degrees(self):
        """A small layer that gains nothing from tensor parallelism, and one too large for a
        device: P = 64 MiB, 4 P of weights, gradients and state, of which a device has 3 P."""
        size = 64 * MEBIBYTE
        own = self.profile(1, 8, parameters=MEBIBYTE)["layers"][0]
        large = self.profile(1, 8, parameters=size, measurements=sample(2 * MILLISECOND,
                                                                        4 * MILLISECOND))
        profile = self.profile(0, 8)
        profile["layers"] = [
            {**own, "name": "small", "variants": [{"tensor_parallel": 2, "parameter_bytes":
                                                   MEBIBYTE // 2, "measurements": sample()}]},
            {**large["layers"][0], "name": "large", "variants": [
                {"tensor_parallel": 2, "parameter_bytes": size // 2,
                 "measurements": sample(MILLISECOND // 2, MILLISECOND)}]}]
        return profile, self.topology(1, 4, 3 * size)

    def test_different_degrees_in_two_stages(self):
        profile, topology = self.two_degrees()
        plan = self.planned(profile, topology, "--per-stage", "--proof", "proof.json")
        # Micro-batches of two: the small layer takes 3 ms for one on each of two data-parallel
        # devices, the large one as long for both on two tensor-parallel ones. The second stage
        # computes all the time, behind one forward and in front of one backward; it gets two whole
        # outputs, the first gets one gradient on each device, and its ranks reduce 1 MiB.
        sent = divide_up(2 * 1024, 200) + divide_up(1024, 200)
        reduced = 2 * divide_up(MEBIBYTE // 2, 200)
        self.assertEqual(plan["predicted"]["iteration_ns"], 15 * MILLISECOND + sent + reduced)
        self.assertEqual(plan["predicted"]["lower_bound_ns"], plan["predicted"]["iteration_ns"])
        self.assertEqual(plan["parallelism"], {"tensor": 1, "data": 2})
        self.assertEqual(plan["stage_forms"], [{"tensor": 2}])
        self.assertEqual([stage.get("form", 0) for stage in plan["stages"]], [0, 1])
        self.assertEqual(plan["request"]["per_stage"], True)
        self.assertIn({"parallelism": {"tensor": 1, "data": 2}, "stage_forms": [{"tensor": 2}]},
                      [{key: value for key, value in record.items()
                        if key in ("parallelism", "stage_forms")}
                       for record in plan["parallelisms"]])
        self.assertIn("groups whose size differs", plan["search_space"]["outside"])
        run = self.run_tool("verify", "plan.json", "--proof", "proof.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        # Alike, two groups train half of the batch each: 4 samples of 3 + 1.5 ms, and more.
        alike = self.planned(profile, topology)
        self.assertGreater(alike["predicted"]["iteration_ns"], 18 * MILLISECOND)
        self.assertNotIn("stage_forms", alike)
        self.assertNotIn("per_stage", alike["request"])

    def test_micro_batches_may_have_fewer_samples_than_ranks(self):
        # One of two data-parallel devices has none, and plans in which stages differ count.
        profile, topology = self.two_degrees()
        for layer in profile["layers"][:1]:
            layer["variants"][0]["measurements"] = sample(2 * MILLISECOND, 4 * MILLISECOND)
        one = self.planned(profile, topology, "--per-stage", "--micro-batch", "1")
        # The small layer, which takes 6 ms on two tensor-parallel devices, takes 3 ms.
        self.assertEqual(one["stage_forms"], [{"tensor": 2}])
        self.assertLess(one["predicted"]["iteration_ns"], 27 * MILLISECOND)
        # A batch has a sample for each.
        self.write("bad.json", {**one, "global_batch_size": 1, "num_micro_batches": 1})
        self.assert_error(self.run_tool("simulate", "bad.json"), BAD_INPUT,
                          "/global_batch_size: expected a sample for each of 2 data-parallel ranks")

    def test_copies_of_tied_parameters_have_one_size_in_all_stages(self):
        # A gradient of half of the parameters cannot be added to one of all of them.
        profile, topology = self.two_degrees()
        last = {**profile["layers"][0], "name": "last", "tied_to": "small", "parameter_bytes": 0}
        last["variants"] = [{**last["variants"][0], "parameter_bytes": 0}]
        profile["layers"].append(last)
        plan = self.planned(profile, topology, "--per-stage", "--pin", "stages=2")
        self.assertNotIn("stage_forms", plan)
        self.assertFalse([record for record in plan["parallelisms"] if "stage_forms" in record])
        stages = [{**stage, "form": i} for i, stage in enumerate(plan["stages"])]
        self.write("bad.json", {**plan, "parallelism": {"tensor": 2}, "stages": stages,
                                "stage_forms": [{"tensor": 1, "data": 2}]})
        self.assert_error(self.run_tool("simulate", "bad.json"), BAD_INPUT,
                          "devices hold other parts of the parameters of small, which are tied")

    def test_every_command_takes_stages_of_different_forms(self):
        profile, topology = self.two_degrees()
        plan = self.planned(profile, topology, "--per-stage", "--write-baselines", "others")
        summary = self.run_tool("simulate", "plan.json")
        self.assertEqual(summary.returncode, DONE, summary.stderr)
        for words in ("2 forms of parallelism", "tensor 1, data 2", "tensor 2"):
            self.assertIn(words, summary.stdout)
        run = self.run_tool("report", "plan.json", "-o", "page.html")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("tensor 1, data 2", (self.folder / "page.html").read_text())
        self.assertEqual(self.run_tool("validate", "plan.json").returncode, DONE)
        same = self.run_tool("simulate", "plan.json", "--recost", "--model", "m.json", "--topo",
                             "t.json", "--json")
        self.assertEqual(same.returncode, DONE, same.stderr)
        for path in (self.folder / "others").glob("*.plan.json"):
            run = self.run_tool("simulate", path)
            self.assertEqual(run.returncode, DONE, run.stderr)
        for target in ("megatron", "torchtitan", "deepspeed"):
            refused = self.run_tool("export", "plan.json", "--to", target)
            self.assertEqual(refused.returncode, BAD_INPUT, refused.stdout)
            self.assertIn("/stage_forms: expected none, as the files for", refused.stderr)
        self.assertEqual(json.loads(same.stdout)["plans"][0]["stage_forms"], [{"tensor": 2}])
        run = self.run_tool("diff", "plan.json", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("The plans are the same", run.stdout)
        # As the groups have one size, a plan of one form can be compared.
        self.planned(profile, topology, "--pin", "tensor=2")
        shutil.copy(self.folder / "plan.json", self.folder / "alike.json")
        self.write("plan.json", plan)
        run = self.run_tool("diff", "plan.json", "alike.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("; tensor 1, data 2", run.stdout)
        run = self.run_tool("diff", "plan.json", "alike.json", "--json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        compared = json.loads(run.stdout)
        self.assertFalse(compared["same_plan"])
        self.assertEqual(compared["stages"][0]["a"]["parallelism"], {"tensor": 1, "data": 2})
        self.assertEqual(plan["stages"][1]["costs"]["gradient_buckets_bytes"], [])

    def test_forms_of_stages_are_checked_as_they_are_read(self):
        profile, topology = self.two_degrees()
        whole = self.planned(profile, topology, "--per-stage")
        def fault(**changes):
            stages = [{**stage, "form": changes.pop(f"form{i}", stage.get("form", 0))}
                      for i, stage in enumerate(whole["stages"])]
            self.write("bad.json", {**whole, "stages": stages, **changes})
            run = self.run_tool("simulate", "bad.json")
            self.assertEqual(run.returncode, BAD_INPUT, run.stdout)
            return run.stderr
        self.assertIn("/stages/0/form: expected an integer from 0 to 1, got 2", fault(form0=2))
        self.assertIn("/stage_forms: expected one or more forms of parallelism, or no such key",
                      fault(stage_forms=[]))
        self.assertIn("/stage_forms/0: expected groups that layers and servers allow, like those of "
                      "the plan, got tensor 1, data 2: another one is the same",
                      fault(stage_forms=[{"tensor": 1, "data": 2}]))
        self.assertIn("/stage_forms/1: expected", fault(stage_forms=[{"tensor": 2}, {"tensor": 2}]))
        self.assertIn("its groups are of size 1, and those of tensor 1, data 2 of size 2",
                      fault(stage_forms=[{"tensor": 1}]))
        self.assertIn("the optimizer's state is sharded in all stages or in none",
                      fault(stage_forms=[{"tensor": 2, "sharding": "optimizer"}]))
        self.assertIn("no variant for tensor 2, context 2",
                      fault(stage_forms=[{"tensor": 2, "context": 2}]))
        bad = fault(parallelism={"tensor": 1, "data": 0})
        self.assertIn("/parallelism/data: expected", bad)
        self.assertNotIn("a degree above 1", bad)
        self.assertIn("/parallelism", fault(parallelism={"tensor": 1, "data": 2, "sharding": "full",
                                                         "shards": 2}))
        request = {**whole["request"], "for": "deepspeed"}
        run = self.run_tool("verify", self.write("other.json", {**whole, "request": request}))
        self.assertEqual(run.returncode, BAD_INPUT, run.stdout + run.stderr)
        self.assertIn("/request/per_stage: expected no such key with", run.stdout + run.stderr)
        for options, words in ((("--schedule", "auto"), "needs --schedule 1f1b or gpipe"),
                               (("--for", "megatron"), "cannot be used with --for"),
                               (("--alternatives", "2"), "cannot be used with --alternatives")):
            run = self.run_tool("--model", "m.json", "--topo", "t.json", "--per-stage", *options)
            self.assertEqual(run.returncode, USAGE, run.stdout)
            self.assertIn(words, run.stderr)

    # Groups of different sizes.

    def three_stages(self):
        """Two small layers that gain nothing from tensor parallelism, of which a device has room
        for one, and a large one that fits on two devices: P = 64 MiB, of which a layer holds 4 P,
        the large one 8 P, and a device has 5 P."""
        size = 64 * MEBIBYTE
        profile = self.profile(0, 4)
        profile["layers"] = [
            {"name": name, "parameter_bytes": size, "measurements": sample(),
             "variants": [{"tensor_parallel": 2, "parameter_bytes": size // 2,
                           "measurements": sample()}]} for name in ("first", "second")]
        profile["layers"].append(
            {"name": "large", "parameter_bytes": 2 * size,
             "measurements": sample(2 * MILLISECOND, 4 * MILLISECOND),
             "variants": [{"tensor_parallel": 2, "parameter_bytes": size,
                           "measurements": sample()}]})
        return profile, self.topology(1, 4, 5 * size)

    def test_groups_of_different_sizes(self):
        profile, topology = self.three_stages()
        plan = self.planned(profile, topology, "--per-stage", "--groups", "any")
        # Stages of one, one and two devices take 3 ms each for a sample, and the last one computes
        # all the time, behind two forwards and in front of two backwards. Its devices get a whole
        # output each from one device, and send it a half each of its gradient.
        sent = 3 * divide_up(1024, 200) + divide_up(2 * 1024, 200)
        self.assertEqual(plan["predicted"]["iteration_ns"], 18 * MILLISECOND + sent)
        self.assertEqual(plan["predicted"]["lower_bound_ns"], plan["predicted"]["iteration_ns"])
        self.assertTrue(plan["search_space"]["complete"])
        self.assertNotIn("parallelism", plan)
        self.assertEqual(plan["stage_forms"], [{"tensor": 2}])
        self.assertEqual([stage.get("form", 0) for stage in plan["stages"]], [0, 0, 1])
        self.assertEqual([stage["devices"] for stage in plan["stages"]],
                         [["node0:0"], ["node0:1"], ["node0:2", "node0:3"]])
        self.assertEqual(plan["request"]["group_sizes"], "any")
        self.assertIn({"parallelism": {"tensor": 1}, "stage_forms": [{"tensor": 2}]},
                      [{key: record[key] for key in ("parallelism", "stage_forms")
                        if key in record} for record in plan["parallelisms"]])
        self.assertIn("except in forms that one record lists", plan["search_space"]["outside"])
        # On groups of two, the small layers share one, which takes 6 ms for each of four samples.
        same = self.planned(profile, topology, "--per-stage")
        self.assertEqual(same["predicted"]["iteration_ns"], 24 * MILLISECOND)
        self.assertNotIn("group_sizes", same["request"])
        self.assertIn("groups whose size differs", same["search_space"]["outside"])

    def test_every_command_takes_groups_of_different_sizes(self):
        profile, topology = self.three_stages()
        plan = self.planned(profile, topology, "--per-stage", "--groups", "any")
        for command in (("simulate",), ("validate",), ("report", "-o", "page.html"),
                        ("diff", "plan.json"), ("reschedule", "-o", "r.json", "--schedule",
                                                "list-scheduled")):
            run = self.run_tool(command[0], "plan.json", *command[1:])
            self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        run = self.run_tool("simulate", "plan.json", "--trace", "trace.json", "--recost", "--model",
                            "m.json", "--topo", "t.json", "--json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(json.loads(run.stdout)["plans"][0]["predicted"]["iteration_ns"],
                         plan["predicted"]["iteration_ns"])
        refused = self.run_tool("export", "plan.json", "--to", "megatron")
        self.assertEqual(refused.returncode, BAD_INPUT, refused.stdout)
        self.assertIn("/stage_forms: expected none, as the files for", refused.stderr)
        # The devices of a group together send what the plan prices.
        run = self.run_tool("replay", "plan.json", "--iterations", "1", "--pace", "5", "--timeline",
                            "replayed.json", binary=tool.ARGUMENTS.executor)
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        run = self.run_tool("simulate", "plan.json", "--timeline", "simulated.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        sent = {action["action"]: action["bytes"] for action in self.read("simulated.json")["actions"]
                if "SEND" in action["action"]}
        self.assertEqual(len(sent), 4 * 4)
        for action in self.read("replayed.json")["actions"]:
            if "SEND" in action["action"]:
                sent[action["action"]] -= action["bytes"]
        self.assertEqual(set(sent.values()), {0})
        for command in ("simulate", "reschedule"):
            run = self.run_tool(command, "plan.json", "--replicas", "independent",
                                *(("-o", "r.json", "--schedule", "list-scheduled")
                                  if command == "reschedule" else ()))
            self.assert_error(run, BAD_INPUT, "expected together, as groups of stages have "
                              "different sizes")

    def test_larger_groups_are_checked_as_they_are_read(self):
        profile, topology = self.three_stages()
        plan = self.planned(profile, topology, "--per-stage", "--groups", "any")
        def fault(devices=None, **changes):
            stages = [dict(stage) for stage in plan["stages"]]
            for stage, own in zip(stages, devices or []):
                stage["devices"] = [f"node0:{number}" for number in own]
            self.write("bad.json", {**plan, "stages": stages, **changes})
            run = self.run_tool("simulate", "bad.json")
            self.assertEqual(run.returncode, BAD_INPUT, run.stdout)
            return run.stderr
        whole = "expected whole groups of 2 consecutive devices of the plan's own form, got "
        self.assertIn(f"/stages/2/devices/0: {whole}node0:1", fault([[0], [3], [1, 2]]))
        self.assertIn(f"/stages/2/devices/1: {whole}node0:1", fault([[3], [2], [0, 0]])
                      .replace("node0:0", "node0:1"))
        self.assertIn(f"/stages/2/devices: {whole}1 devices", fault([[0], [1], [2]]))
        dealt = [dict(stage) for stage in plan["stages"]]
        dealt[2]["replication"] = "deal"
        self.write("bad.json", {**plan, "stages": dealt})
        self.assert_error(self.run_tool("simulate", "bad.json"), BAD_INPUT,
                          "as its groups are larger than those of others")
        self.assertIn("of size 2, which has to be the smallest",
                      fault(parallelism={"tensor": 2}, stage_forms=[{"tensor": 1}]))
        for key, value in (("per_stage", False), ("replication", "auto"), ("planner", "dapple")):
            request = {**plan["request"], key: value}
            self.assertIn("/request/group_sizes: expected \"same\" but for per_stage",
                          fault(request=request))
        for options, words in ((("--deal",), "cannot be used with --deal"),
                               (("--proof", "p.json"), "cannot be used with --proof"),
                               (("--planner", "dapple"), "needs --planner exact"),
                               (("--replicas", "independent"), "needs --replicas together")):
            run = self.run_tool("--model", "m.json", "--topo", "t.json", "--per-stage",
                                "--groups", "any", *options)
            self.assertEqual(run.returncode, USAGE, run.stdout)
            self.assertIn(words, run.stderr)
        run = self.run_tool("--model", "m.json", "--topo", "t.json", "--groups", "any")
        self.assertEqual(run.returncode, USAGE, run.stdout)
        self.assertIn("needs --per-stage", run.stderr)

    def test_recomputed_parts_come_back(self):
        def variant(layer, parts, degree):
            return {"tensor_parallel": degree, "recompute": parts,
                    **{key: layer[key] for key in ("parameter_bytes", "measurements")}}

        profile = self.mixture()
        for layer in profile["layers"]:
            if layer["name"].startswith("block"):
                layer["variants"] += [variant(layer, "full", 1), variant(layer, "core_attn+norm", 1)]
        ground = ("--model", self.write("m.json", profile),
                  "--topo", self.write("t.json", self.topology(4, 4, 1 << 30)))
        for parts, target, options in (
                ("full", "megatron", ("--recompute-granularity full", "--recompute-num-layers 1")),
                ("full:3", "megatron", ("--recompute-granularity full", "--recompute-method block",
                                        "--recompute-num-layers 3")),
                ("core_attn+norm", "megatron", ("--recompute-granularity selective",
                                                "--recompute-modules core_attn layernorm")),
                ("full", "torchtitan", ("--activation_checkpoint.mode full",)),
                ("full:1/2", "torchtitan", ("--activation_checkpoint.mode selective",
                                            "--activation_checkpoint.selective_ac_option 2")),
                ("full", "deepspeed", ('"activation_checkpoint_interval", 1)',)),
                ("full", "colossalai", ("RECOMPUTE = True",))):
            with self.subTest(parts=parts, target=target):
                run = self.run_tool("import", "plan", "--layout",
                                    f"pp=2,dp=8,mbs=1,recompute={parts}", *ground, "-o", "plan.json")
                self.assertEqual(run.returncode, DONE, run.stderr)
                plan = self.read("plan.json")
                name, _, layers = parts.partition(":")
                count = {}
                if layers:
                    every, _, n = layers.rpartition("/")
                    count = {"recompute_every" if every else "recomputed_layers": int(n)}
                self.assertEqual(plan["parallelism"], {"tensor": 1, "recompute": name, **count})
                self.assertEqual([stage["recompute"] for stage in plan["stages"]], [False, False])
                text = self.exported(target)
                for option in options:
                    self.assertIn(option, text)
                if target == "colossalai":
                    continue
                files = ["export"]
                if target == "torchtitan":
                    run = self.run_tool("export", "plan.json", "--to", "torch-csv", "-o", "order")
                    self.assertEqual(run.returncode, DONE, run.stderr)
                    files.append("order")
                run = self.run_tool("import", "plan", *files, *ground, "-o", "back.json")
                self.assertEqual(run.returncode, DONE, run.stderr)
                back = self.read("back.json")
                for key in ("parallelism", "stages", "micro_batch_size"):
                    self.assertEqual(back[key], plan[key])
        # What a runtime does not recompute is refused, and not planned for it.
        run = self.run_tool("import", "plan", "--layout",
                            "pp=2,dp=8,mbs=1,recompute=core_attn+norm", *ground, "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        for target in ("torchtitan", "deepspeed", "pipedream", "sailor", "colossalai"):
            run = self.run_tool("export", "plan.json", "--to", target, "-o", "export")
            self.assert_error(run, BAD_INPUT, "/parallelism/recompute", "core_attn+norm")
        # First layers alone are recomputed by Megatron-LM only, and only as whole layers; every n-th
        # one by torchtitan only.
        for parts, targets in (("full:3", ("torchtitan", "deepspeed", "colossalai")),
                               ("full:1/2", ("megatron", "deepspeed", "colossalai")),
                               ("core_attn+norm:2", ("megatron",)),
                               ("core_attn+norm:1/2", ("megatron",))):
            key = "recompute_every" if "/" in parts else "recomputed_layers"
            run = self.run_tool("import", "plan", "--layout",
                                f"pp=2,dp=8,mbs=1,recompute={parts}", *ground, "-o", "first.json")
            self.assertEqual(run.returncode, DONE, run.stderr)
            for target in targets:
                run = self.run_tool("export", "first.json", "--to", target, "-o", "export")
                self.assert_error(run, BAD_INPUT, f"/parallelism/{key}", "in all layers")
        first = self.read("first.json")
        for form, words in (({"tensor": 1, "recomputed_layers": 2}, "layers recompute nothing"),
                            ({"tensor": 1, "recompute": "full", "recomputed_layers": 0}, "got 0"),
                            ({"tensor": 1, "recompute": "full", "recomputed_layers": 10**6},
                             "got 1000000")):
            self.write("bad.json", {**first, "parallelism": form})
            self.assert_error(self.run_tool("validate", "bad.json"), BAD_INPUT,
                              "/parallelism/recomputed_layers", words)
        for form, words in (({"tensor": 1, "recompute_every": 2}, "layers recompute nothing"),
                            ({"tensor": 1, "recompute": "full", "recompute_every": 1}, "got 1"),
                            ({"tensor": 1, "recompute": "full", "recompute_every": "2"},
                             'got "2"'),
                            ({"tensor": 1, "recompute": "full", "recompute_every": 2,
                              "recomputed_layers": 2}, "with recomputed_layers")):
            self.write("bad.json", {**first, "parallelism": form})
            self.assert_error(self.run_tool("validate", "bad.json"), BAD_INPUT,
                              "/parallelism/recompute_every", words)
        # Nor are stages that recompute all of their layers beside parts of them.
        both = self.read("plan.json")
        for stage in both["stages"]:
            stage["recompute"] = True
        self.write("both.json", both)
        run = self.run_tool("export", "both.json", "--to", "megatron", "-o", "export")
        self.assert_error(run, BAD_INPUT, "/stages/0/recompute",
                          "expected none with recomputed parts of layers, core_attn+norm")
        # Without such variants, whole layers are stages that recompute; parts are refused.
        bare = self.write("bare.json", self.mixture())
        run = self.run_tool("import", "plan", "--layout", "pp=2,dp=8,mbs=1,recompute=full",
                            "--model", bare, *ground[2:], "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual([stage["recompute"] for stage in self.read("plan.json")["stages"]],
                         [True, True])
        run = self.run_tool("import", "plan", "--layout", "pp=2,dp=8,mbs=1,recompute=norm",
                            "--model", bare, *ground[2:], "-o", "plan.json")
        self.assert_error(run, BAD_INPUT, "recompute: expected none, full, or parts")

    def mixture(self):
        """Blocks with experts between an embedding and a head, with variants of degrees of 2."""
        def variant(layer, **degrees):
            return {"tensor_parallel": 1, **degrees, "parameter_bytes": layer["parameter_bytes"],
                    "measurements": layer["measurements"]}

        profile = self.profile(6, 16, parameters=MEBIBYTE)
        for layer, name in zip(profile["layers"], ["embedding", *(f"block.{i}" for i in range(4)),
                                                   "head"]):
            layer["name"] = name
            layer["variants"] = [
                variant(layer, context_parallel=2),
                variant(layer, tensor_parallel=2, sequence_parallel=True, context_parallel=2)]
            if name.startswith("block"):
                layer["variants"] += [
                    variant(layer, expert_parallel=2),
                    variant(layer, tensor_parallel=2, sequence_parallel=True, context_parallel=2,
                            expert_parallel=4, expert_tensor_parallel=1,
                            expert_parameter_bytes=1000)]
        return profile

    def ground(self):
        return ("--model", self.write("m.json", self.mixture()),
                "--topo", self.write("t.json", self.topology(4, 4, 1 << 30)))

    def imported(self, layout, name="plan.json"):
        run = self.run_tool("import", "plan", "--layout", layout, *self.ground(), "-o", name)
        self.assertEqual(run.returncode, DONE, run.stderr)
        return self.read(name)

    def exported(self, target, *more):
        run = self.run_tool("export", "plan.json", "--to", target, "-o", "export", *more)
        self.assertEqual(run.returncode, DONE, run.stderr)
        return (self.folder / "export").read_text()

    def test_megatron_s_degrees_come_back(self):
        for layout, options in (
                ("cp=2,pp=2,dp=4,mbs=1", ("--context-parallel-size 2",)),
                ("ep=2,pp=2,dp=4,mbs=1,zero=1", ("--expert-model-parallel-size 2",
                                                 "--expert-tensor-parallel-size 1",
                                                 "--use-distributed-optimizer")),
                ("pp=1,dp=8,mbs=1,zero=1,fsdp=4", ("--use-distributed-optimizer",
                                                   "--num-distributed-optimizer-instances 2")),
                ("cp=2,pp=2,dp=4,mbs=1,zero=1,fsdp=4", ("--context-parallel-size 2",
                                                        "--num-distributed-optimizer-instances 2")),
                ("tp=2,cp=2,ep=4,etp=1,pp=2,dp=2,mbs=2", ("--tensor-model-parallel-size 2",
                                                          "--sequence-parallel",
                                                          "--context-parallel-size 2",
                                                          "--expert-model-parallel-size 4",
                                                          "--expert-tensor-parallel-size 1"))):
            with self.subTest(layout=layout):
                plan = self.imported(layout)
                text = self.exported("megatron")
                for option in options:
                    self.assertIn(f"  {option}\n", text)
                words = dict(word.split("=") for word in layout.split(","))
                self.assertIn(f"--micro-batch-size {words['mbs']}\n", text)
                self.assertEqual(plan["micro_batch_size"], int(words["mbs"]) * int(words["dp"]))
                run = self.run_tool("import", "plan", "export", *self.ground(), "-o", "again.json")
                self.assertEqual(run.returncode, DONE, run.stderr)
                again = self.read("again.json")
                for part in ("parallelism", "stages", "schedule", "predicted"):
                    self.assertEqual(plan[part], again[part])

    def test_megatron_s_instances_of_the_optimizer(self):
        self.imported("pp=2,dp=8,mbs=1,zero=1,fsdp=2")
        text = self.exported("megatron")
        option = "--num-distributed-optimizer-instances"
        self.assertIn(f"  {option} 4\n", text)
        bare = "\n".join(line for line in text.splitlines() if not line.startswith("# rank"))

        def imported(text, *more):
            self.write("script.sh", text)
            return self.run_tool("import", "plan", "script.sh", *self.ground(), "-o", "again.json",
                                 *more)

        # Without comments on ranks all of the topology's devices count, or those that are given.
        nodes = [f"node{node}:{device}" for node in range(4) for device in range(4)]
        for instances, more, shards, groups in ((4, (), 2, 4), (2, (), 4, 2),
                                                (2, ("--devices", ",".join(nodes[:8])), 2, 2),
                                                (2, ("--replicas", "2"), 4, 2)):
            run = imported(bare.replace(f"{option} 4", f"{option} {instances}"), *more)
            self.assertEqual(run.returncode, DONE, run.stderr)
            again = self.read("again.json")
            self.assertEqual(again["parallelism"],
                             {"tensor": 1, "sharding": "optimizer", "shards": shards})
            self.assertEqual([len(stage["devices"]) for stage in again["stages"]], [groups] * 2)
        # As many instances as ranks leave all state whole, and one is what there is without it.
        run = imported(bare.replace(f"{option} 4", f"{option} 8"), "--replicas", "8")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertNotIn("parallelism", self.read("again.json"))
        run = imported(bare.replace(f"{option} 4", f"{option} 1"), "--replicas", "8")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.read("again.json")["parallelism"],
                         {"tensor": 1, "sharding": "optimizer"})
        for change, more, words in (
                ((f"{option} 4", f"{option} 3"), (), (f"{option}: expected a divisor", "got 3")),
                ((f"{option} 4", f"{option} few"), (), (option, "few")),
                (("--use-distributed-optimizer", ""), (), ("needs --use-distributed-optimizer",)),
                (("", ""), ("--replicas", "2"), ("--replicas", "expected 4", "got 2"))):
            run = imported(bare.replace(*change) if change[0] else bare, *more)
            self.assertIn(run.returncode, (USAGE, BAD_INPUT), run.stdout + run.stderr)
            for word in words:
                self.assertIn(word, run.stderr)
        for target in ("deepspeed", "nanotron"):
            run = self.run_tool("export", "plan.json", "--to", target, "-o", "no")
            self.assert_error(run, BAD_INPUT, "/parallelism/shards: expected no such key",
                              "have no state sharded over a number of ranks, got 2")
        run = self.run_tool(*self.ground(), "--for", "deepspeed", "--shard", "optimizer", "--pin",
                            "shards=2", "-o", "no.json")
        self.assert_error(run, BAD_INPUT, "the files for DeepSpeed have no state sharded over a number")
        run = self.run_tool(*self.ground(), "--for", "megatron", "--shard", "optimizer", "--pin",
                            "shards=2", "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        self.assertEqual(self.read("plan.json")["parallelism"]["shards"], 2)
        self.exported("megatron")
        run = self.run_tool("verify", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)

    def blocks(self, count, batch, **changes):
        """An embedding, blocks that may recompute and a head."""
        profile = self.again(self.profile(count + 2, batch, parameters=1000, **changes),
                             (100,) * (count + 2))
        for number, layer in enumerate(profile["layers"]):
            layer["name"] = f"layers.{number - 1}"
        for number, name in ((0, "tok_embeddings"), (-1, "output")):
            profile["layers"][number]["name"] = name
            del profile["layers"][number]["variants"]
        return profile

    def test_torchtitan_counts_layers_through_all_stages_of_a_device(self):
        ground = ("--model", self.write("m.json", self.blocks(8, 8)),
                  "--topo", self.write("t.json", self.topology(1, 2, 1 << 32)))

        def layout(layers):
            run = self.run_tool("import", "plan", "--layout", "pp=2,vpp=2,schedule=interleaved,"
                                f"mbs=1,recompute=full:1/2,layers={layers}", *ground, "-o",
                                "plan.json")
            self.assertEqual(run.returncode, DONE, run.stderr)
            run = self.run_tool("export", "plan.json", "--to", "torch-csv", "-o", "order")
            return self.run_tool("export", "plan.json", "--to", "torchtitan", "-o", "export"), run

        # Two blocks in the first stage of either device: the second stages count from their first.
        for run in layout("3:2:2:3"):
            self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool("import", "plan", "export", "order", *ground, "-o", "back.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.read("back.json")["parallelism"],
                         {"tensor": 1, "recompute": "full", "recompute_every": 2})
        # A block in the first stage of the second device: its second stage begins with a second.
        for run in layout("3:1:3:3"):
            self.assert_error(run, BAD_INPUT, "/stages/3/layers", "multiple of 2", "got 1")
        text = (self.folder / "export").read_text()
        modules = json.dumps([["tok_embeddings", "layers.0", "layers.1"], ["layers.2"],
                              ["layers.3", "layers.4", "layers.5"],
                              ["layers.6", "layers.7", "output"]])
        first = text.index("module_fqns_per_model_part '") + len("module_fqns_per_model_part '")
        self.write("other", text[:first] + modules + text[text.index("'", first):])
        run = self.run_tool("import", "plan", "other", "order", *ground, "-o", "back.json")
        self.assert_error(run, BAD_INPUT, "other", "stage 3", "multiple of 2")
        # Every number below two is every layer, as in torchtitan; what is no number is refused.
        for option, words in (("1", {"tensor": 1, "recompute": "full"}),
                              ("0", {"tensor": 1, "recompute": "full"}), ("op", None),
                              ("x", "expected op or a number up to 100000, got 'x'")):
            self.write("other", text.replace("selective_ac_option 2",
                                                  f"selective_ac_option {option}"))
            run = self.run_tool("import", "plan", "other", "order", *ground, "-o", "back.json")
            if isinstance(words, str):
                self.assert_error(run, BAD_INPUT, "selective_ac_option", words)
                continue
            self.assertEqual(run.returncode, DONE, run.stderr)
            self.assertEqual(self.read("back.json").get("parallelism"), words)
        # A layer that recomputes but is no block would be counted by the plan alone.
        profile = self.blocks(8, 8)
        profile["layers"][0]["variants"] = profile["layers"][1]["variants"]
        ground = ("--model", self.write("m.json", profile), *ground[2:])
        for run in layout("3:2:2:3"):
            self.assert_error(run, BAD_INPUT, "/parallelism/recompute_every",
                              "tok_embeddings recomputes but is none")

    def test_every_nth_layer_is_planned_for_torchtitan(self):
        # Eight blocks on one device. Where every second one recomputes it holds 604 MiB.
        profile = self.blocks(8, 2)
        topology = self.topology(1, 1, 40000 + 610 * MEBIBYTE)
        options = ("--for", "torchtitan", "--recompute-layers", "auto")
        plan = self.planned(profile, topology, *options)
        self.assert_form(plan, 2 * (30 + 4) * MILLISECOND, tensor=1, recompute="full",
                         recompute_every=2)
        self.assertIn("selective_ac_option 2", self.exported("torchtitan"))
        forms = [record["parallelism"] for record in plan["parallelisms"]]
        self.assertEqual(forms, [{"tensor": 1}, {"tensor": 1, "recompute": "full"}, *(
            {"tensor": 1, "recompute": "full", "recompute_every": n} for n in (2, 3, 4))])
        # Schedules with several stages on a device count otherwise.
        run = self.run_tool("--model", "m.json", "--topo", "t.json", *options, "--schedule", "auto",
                            "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        plan = self.read("plan.json")
        self.assertEqual(plan["parallelism"], {"tensor": 1, "recompute": "full"})
        reasons = {record["reason"] for record in plan["parallelisms"]
                   if "recompute_every" in record["parallelism"]}
        self.assertEqual(reasons, {"torchtitan counts layers through all stages of a device, "
                                   "of which schedules that are asked for have several"})
        # Megatron-LM has first layers instead.
        plan = self.planned(profile, topology, "--for", "megatron", "--recompute-layers", "auto")
        self.assert_form(plan, 2 * (30 + 4) * MILLISECOND, tensor=1, recompute="full",
                         recomputed_layers=4)

    def test_torchtitan_accumulates_gradients_without_a_pipeline(self):
        # A local batch is what a rank takes at a time; there is no schedule.
        plan = self.imported("pp=1,dp=16,mbs=2,gbs=128")
        text = self.exported("torchtitan")
        self.assertIn("  --training.local_batch_size 2\n  --training.global_batch_size 128\n", text)
        self.assertNotIn("schedule", text)
        self.assertNotIn("microbatch", text)
        run = self.run_tool("import", "plan", "export", *self.ground(), "-o", "again.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        again = self.read("again.json")
        for part in ("stages", "micro_batch_size", "num_micro_batches", "predicted"):
            self.assertEqual(plan[part], again[part])

    def test_torchtitan_shards_all_state(self):
        plan = self.imported("cp=2,pp=2,dp=4,mbs=1,zero=3,fsdp=4")
        self.assertEqual(plan["parallelism"],
                         {"tensor": 1, "context": 2, "sharding": "full", "shards": 4})
        text = self.exported("torchtitan")
        for option in ("data_parallel_shard_degree 2", "data_parallel_replicate_degree 2",
                       "context_parallel_degree 2", "fsdp_reshard_after_forward always"):
            self.assertIn(f"  --parallelism.{option}\n", text)
        self.assertIn("rank = (pipeline rank * 2 + replica) * 4 + rank in group", text)
        (self.folder / "titan.sh").write_text(text)
        csv = self.exported("torch-csv")
        (self.folder / "schedule.csv").write_text(csv)
        run = self.run_tool("import", "plan", "titan.sh", "schedule.csv", *self.ground(), "-o",
                            "again.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        again = self.read("again.json")
        for part in ("parallelism", "micro_batch_size"):
            self.assertEqual(plan[part], again[part])
        for part in ("devices", "costs"):
            self.assertEqual([stage[part] for stage in plan["stages"]],
                             [stage[part] for stage in again["stages"]])
        # Under a pipeline torchtitan's default keeps parameters: only the optimizer's state is
        # sharded, over as many ranks.
        (self.folder / "titan.sh").write_text(text.replace("reshard_after_forward always",
                                                           "reshard_after_forward default"))
        run = self.run_tool("import", "plan", "titan.sh", "schedule.csv", *self.ground(), "-o",
                            "again.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.read("again.json")["parallelism"],
                         {"tensor": 1, "context": 2, "sharding": "optimizer", "shards": 4})
        (self.folder / "titan.sh").write_text(text.replace("after_forward always",
                                                           "after_forward often"))
        run = self.run_tool("import", "plan", "titan.sh", "schedule.csv", *self.ground(), "-o",
                            "again.json")
        self.assert_error(run, BAD_INPUT, "expected default, always or never, got 'often'")
        for target, words in (("deepspeed", "/parallelism/context: expected 1"),
                              ("megatron", "/parallelism/sharding: expected none, as the files for "
                                           "Megatron-LM have no sharded parameters, got full")):
            run = self.run_tool("export", "plan.json", "--to", target, "-o", "no")
            self.assert_error(run, BAD_INPUT, words)

    def test_torchtitan_keeps_parameters(self):
        def there_and_back(layout, *options):
            plan = self.imported(layout)
            text = self.exported("torchtitan")
            for option in options:
                self.assertIn(f"  --parallelism.{option}\n", text)
            (self.folder / "titan.sh").write_text(text)
            (self.folder / "schedule.csv").write_text(self.exported("torch-csv"))
            # Without a pipeline there is no order.
            files = ("titan.sh", "schedule.csv") if "schedule_csv" in text else ("titan.sh",)
            run = self.run_tool("import", "plan", *files, *self.ground(), "-o", "again.json")
            self.assertEqual(run.returncode, DONE, run.stderr)
            again = self.read("again.json")
            for part in ("parallelism", "stages", "predicted", "micro_batch_size",
                         "num_micro_batches", "global_batch_size"):
                self.assertEqual(plan.get(part), again.get(part))
            return plan, text, " ".join(again["warnings"])

        # Only the optimizer's state is sharded then, over all data-parallel and context ranks.
        never = "fsdp_reshard_after_forward never"
        plan, text, said = there_and_back(
            "cp=2,pp=2,dp=4,mbs=1,zero=full-keep", "data_parallel_shard_degree 4",
            "data_parallel_replicate_degree 1", "context_parallel_degree 2", never)
        self.assertEqual(plan["parallelism"],
                         {"tensor": 1, "context": 2, "sharding": "optimizer"})
        self.assertNotIn("longer than predicted", said)
        # Over some of them, of which others have the same shards.
        some, _, _ = there_and_back(
            "cp=2,pp=2,dp=4,mbs=1,zero=full-keep,fsdp=4", "data_parallel_shard_degree 2",
            "data_parallel_replicate_degree 2", "context_parallel_degree 2", never)
        self.assertEqual(some["parallelism"],
                         {"tensor": 1, "context": 2, "sharding": "optimizer", "shards": 4})
        # torchtitan's default is the same under a pipeline, and shards all state without one.
        (self.folder / "titan.sh").write_text(text.replace(never, never.replace("never", "default")))
        run = self.run_tool("import", "plan", "titan.sh", "schedule.csv", *self.ground(), "-o",
                            "again.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.read("again.json")["parallelism"], plan["parallelism"])
        plan, text, said = there_and_back("pp=1,dp=16,mbs=2,gbs=128", "data_parallel_replicate_degree 16")
        self.assertNotIn("parallel_shard_degree", text)
        self.assertNotIn("longer than predicted", said)
        warning = "without a pipeline, torchtitan gathers parameters"
        plan, text, said = there_and_back("pp=1,dp=16,mbs=2,gbs=128,zero=full-keep",
                                          "data_parallel_shard_degree 16", never)
        self.assertIn(warning, said)
        run = self.run_tool("export", "plan.json", "--to", "torchtitan", "-o", "export")
        self.assertIn(warning, run.stderr)
        text = "\n".join(line for line in text.splitlines() if not line.startswith("# ranks"))
        (self.folder / "titan.sh").write_text(text.replace(never, never.replace("never", "default")))
        run = self.run_tool("import", "plan", "titan.sh", *self.ground(), "-o", "again.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.read("again.json")["parallelism"],
                         {"tensor": 1, "sharding": "full", "shards": 16})
        _, _, said = there_and_back("pp=1,dp=16,mbs=2,gbs=32,zero=full-keep")
        self.assertNotIn("longer than predicted", said)
        # A single rank has nothing to share, but the plan is the same.
        there_and_back("pp=2,dp=1,mbs=1,zero=1", "data_parallel_shard_degree 1", never)
        # What torchtitan can run is planned for it.
        run = self.run_tool(*self.ground(), "--for", "torchtitan", "--shard", "full-keep", "-o",
                            "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.read("plan.json")["parallelism"]["sharding"], "optimizer")
        self.assertIn(never, self.exported("torchtitan"))
        run = self.run_tool("verify", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        plan = self.imported("cp=2,pp=2,dp=4,mbs=1")
        run = self.run_tool("export", "plan.json", "--to", "torchtitan", "-o", "no")
        self.assert_error(run, BAD_INPUT, "/parallelism/sharding: expected optimizer or full, as the "
                          "files for torchtitan have no context parallelism with whole parameters")

    def test_ranks_of_groups_of_servers(self):
        plan = self.imported("tp=2,cp=2,ep=4,etp=1,pp=1,dp=4,mbs=1,zero=3")
        self.assertEqual(plan["parallelism"]["shards"], 8)
        self.assertEqual(plan["stages"][0]["devices"], ["node[0-3]:0-3"])
        text = self.exported("ranks")
        self.assertIn("# server 1: node1, 4 processes\n  1:0) RANK=4 CUDA_VISIBLE_DEVICES=0,1,2,3",
                      text)
        text = self.exported("rankfile")
        self.assertIn("rank 5=node1 slot=1\n", text)
        text = self.exported("visible-devices")
        self.assertIn("  6) CUDA_VISIBLE_DEVICES=2 ;;  # node[0-3]:0-3", text)
        run = self.run_tool("simulate", "plan.json")
        self.assertIn("1x16: node0-3:0-3", run.stdout)
        names = ",".join(f"node{server}:{device}" for server in (2, 3, 0, 1)
                         for device in range(4))
        run = self.run_tool("import", "plan", "--layout", "cp=2,pp=1,dp=2,mbs=1,zero=3,fsdp=2",
                            *self.ground(), "--devices", "node1:2-3,node0:0-1", "-o", "few.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.read("few.json")["stages"][0]["devices"],
                         ["node1:2-3", "node0:0-1"])
        run = self.run_tool("import", "plan", "--layout", "cp=2,pp=1,dp=8,mbs=1,zero=3,fsdp=8",
                            *self.ground(), "--devices", names, "-o", "turned.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.read("turned.json")["stages"][0]["devices"],
                         ["node[2-3]:0-3", "node[0-1]:0-3"])

    def test_runtimes_plan_what_they_have(self):
        def forms(*more):
            run = self.run_tool(*self.ground(), "-o", "plan.json", *more)
            self.assertEqual(run.returncode, DONE, run.stderr)
            return {record["reason"] for record in self.read("plan.json")["parallelisms"]}

        reasons = forms("--for", "torchtitan", "--shard", "auto", "--planner", "dapple")
        for lack in ("no expert parallelism", "no context parallelism with whole parameters"):
            self.assertIn(f"the files for torchtitan have {lack}", reasons)
        self.assertNotIn("the files for torchtitan have no sharded state", reasons)
        # Files of older versions name PyTorch's runtime instead.
        plan = self.read("plan.json")
        text = json.dumps(plan).replace("the files for torchtitan", "the files for PyTorch's runtime")
        text = text.replace("what torchtitan cannot", "what PyTorch's runtime cannot")
        self.assertNotEqual(json.loads(text)["search_space"]["cut"], plan["search_space"]["cut"])
        for older, code in ((text, DONE), (text.replace("PyTorch's", "JAX's"), BAD_INPUT)):
            self.write("older.json", older)
            run = self.run_tool("verify", "older.json")
            self.assertIn(run.returncode, (code, NOT_VERIFIED) if code == DONE else (code,),
                          run.stdout + run.stderr)
        # So do those that were made when its files had no sharded optimizer state, of which no other
        # target may claim so.
        for target, code in (("torchtitan", DONE), ("megatron", BAD_INPUT)):
            forms("--for", target, "--shard", "auto")
            plan = self.read("plan.json")
            lacking = [record for record in plan["parallelisms"]
                       if record["parallelism"].get("sharding") == "optimizer"]
            self.assertTrue(lacking)
            for record in lacking:
                record.update(iteration_ns=None, lower_bound_ns=None, shape="", missing_bytes=0,
                              reason="the files for PyTorch's runtime have no sharded state")
            self.write("older.json", plan)
            run = self.run_tool("verify", "older.json")
            self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        reasons = forms("--for", "megatron", "--shard", "auto", "--planner", "dapple")
        self.assertIn("the files for Megatron-LM have no sharded parameters", reasons)
        self.assertNotIn("the files for Megatron-LM have no expert parallelism", reasons)

    def test_what_no_group_has_is_refused(self):
        for words, fault in (
                (("--pin", "shards=2"), "shards=2 needs --shard optimizer, full or auto, got none"),
                (("--shard", "optimizer", "--pin", "shards=3"),
                 "expected degrees of parallelism that layers and servers have, got shards 3"),
                (("--shard", "optimizer", "--pin", "shards=2", "--pin", "context=4"),
                 "expected degrees of parallelism that layers and servers have, got context 4"),
                (("--shard", "full", "--pin", "shards=3"),
                 "expected degrees of parallelism that layers and servers have, got shards 3"),
                (("--pin", "context=3"), "got context 3: not every layer has a variant"),
                (("--pin", "experts=8"), "got experts 8"),
                (("--shard", "full", "--pin", "shards=8", "--pin", "context=1", "--pin", "tensor=1",
                  "--global-batch", "4"),
                 "a batch of 4 has no sample for each of 8 data-parallel ranks"),
                (("--pin", "experts=0"), "expected experts=N with N from 1 to 65536"),
                (("--shard", "full", "--optimizer-step", "per-bucket"), "--shard: sharded state cannot be used")):
            with self.subTest(words=words):
                run = self.run_tool(*self.ground(), *words)
                self.assertIn(run.returncode, (USAGE, BAD_INPUT), run.stdout + run.stderr)
                self.assertIn(fault, run.stderr)

    def test_a_search_that_is_stopped_at_once_has_a_plan(self):
        run = self.run_tool(*self.ground(), "--shard", "auto", "--time-limit", "0.000001", "-o",
                            "plan.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        self.assertEqual(self.read("plan.json")["request"]["stopped_by"], "time-limit")
        run = self.run_tool("verify", "plan.json")
        self.assertIn(run.returncode, (DONE, tool.NOT_VERIFIED), run.stdout + run.stderr)

    def test_a_plan_s_degrees_are_checked_as_they_are_read(self):
        plan = self.imported("cp=2,pp=2,dp=4,mbs=1,zero=3,fsdp=4")
        for change, fault in (
                ({"shards": 1}, "/parallelism/shards: expected an integer from 2"),
                ({"shards": 3}, "/parallelism: expected degrees of tensor and context parallelism, "
                                "of experts and of shards whose groups are parts of each other, "
                                "got tensor 1, context 2, sharded over 3"),
                ({"shards": None}, "/parallelism/shards"),
                ({"sharding": None}, "/parallelism/shards: expected no such key"),
                ({"sharding": "optimizer", "shards": 1},
                 "/parallelism/shards: expected an integer from 2"),
                ({"sharding": "optimizer", "shards": 3},
                 "got tensor 1, context 2, optimizer sharded over 3"),
                ({"sharding": "half"}, 'expected "optimizer" or "full"'),
                ({"context": 3}, "/parallelism"),
                ({"experts": 2}, "/parallelism/expert_tensor"),
                ({"expert_tensor": 2}, "/parallelism/expert_tensor: expected no such key")):
            with self.subTest(change=change):
                parallelism = {**plan["parallelism"], **change}
                self.write("bad.json", {**plan, "parallelism": {
                    key: value for key, value in parallelism.items() if value is not None}})
                run = self.run_tool("validate", "bad.json")
                self.assert_error(run, BAD_INPUT, fault)


if __name__ == "__main__":
    tool.main()
