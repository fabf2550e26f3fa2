"""--runtime: plans and simulations as a program that trains by a plan runs it."""

import hashlib
import json

import tool
from tool import BAD_INPUT, DONE, NOT_VERIFIED, USAGE, ToolTest

SERIAL = {
    "schema": "dapple-runtime/1", "name": "own", "source": "made up", "transfers": "serial",
    "gradient_overlap": "none", "depths": "any",
}


class Runtimes(ToolTest):
    def ground(self):
        return ("--model", self.write("small.json", tool.small_profile()),
                "--topo", self.write("topo.json", tool.small_topology()))

    def planned(self, *more):
        run = self.run_tool("plan", *self.ground(), "-o", "plan.json", *more)
        self.assertEqual(run.returncode, DONE, run.stderr)
        return self.read("plan.json")

    def own(self, **changes):
        return self.write("own.json", {**SERIAL, **changes})

    def done(self, *words):
        run = self.run_tool(*words)
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        return run.stdout

    def simulated(self, *words, code=DONE):
        run = self.run_tool("simulate", *words, "--json")
        self.assertEqual(run.returncode, code, run.stderr)
        return json.loads(run.stdout)["plans"][0]["predicted"] if code == DONE else run.stderr

    def test_a_plan_has_its_runtime_whole_and_is_verified_with_it(self):
        for runtime, transfers, overlap in (("deepspeed", "serial", "none"),
                                            ("megatron", "blocking", None)):
            plan = self.planned("--runtime", runtime, "--pin", "stages=3")
            shipped = tool.ROOT / "profiles" / "runtimes" / f"{runtime}.json"
            self.assertEqual(plan["runtime"], json.loads(shipped.read_text()))
            self.assertEqual(plan["predicted"]["transfers"], transfers)
            self.assertEqual(plan["request"]["transfers"], transfers)
            self.assertEqual(plan["gradients"].get("overlap"), overlap)
            self.assertEqual(plan["schedule"]["warmup_depths"], [3, 2, 1])
            self.assertIn(self.run_tool("verify", "plan.json").returncode, (DONE, NOT_VERIFIED))
            # The shipped files have the canonical form.
            self.assertEqual(plan["runtime_sha256"], hashlib.sha256(shipped.read_bytes()).hexdigest())
            again = self.simulated("plan.json")
            self.assertEqual(again["iteration_ns"], plan["predicted"]["iteration_ns"])
        kept = plan["model"]["profile"]["optimizer"]
        self.assertNotIn("framework_bytes_per_parameter_byte", kept)
        kept = self.planned("--runtime", "deepspeed")["model"]["profile"]["optimizer"]
        self.assertEqual(kept["framework_bytes_per_parameter_byte"], 1)

    def test_blocking_is_never_faster_and_its_bound_holds(self):
        times = {}
        for runtime in ("dapple-exec", "megatron", "deepspeed"):
            plan = self.planned("--runtime", runtime, "--pin", "stages=2", "--pin", "depths=least")
            predicted = plan["predicted"]
            self.assertLessEqual(predicted["lower_bound_ns"], predicted["iteration_ns"])
            times[runtime] = predicted["iteration_ns"]
        self.assertLess(times["dapple-exec"], times["megatron"])
        self.assertLess(times["megatron"], times["deepspeed"])
        none = self.planned("--pin", "stages=2", "--pin", "depths=least")
        self.assertEqual(none["predicted"]["iteration_ns"], times["dapple-exec"])
        self.assertNotIn("runtime", none)

    def test_interleaved_transfers_may_overlap_where_others_block(self):
        def own(**changes):
            return self.own(transfers="blocking", gradient_overlap="buckets", **changes)

        def priced(runtime, chunks):
            return self.simulated("--layout", f"pp=2,vpp={chunks},dp=1,mbs=1", *self.ground(),
                                  "--runtime", runtime)["iteration_ns"]

        free = {chunks: priced("dapple-exec", chunks) for chunks in (1, 3)}
        runtime = own(interleaved_transfers="overlapped")
        self.assertEqual(priced(runtime, 3), free[3])
        self.assertGreater(priced(runtime, 1), free[1])
        self.write("layouts.csv", "pp,vpp,dp,mbs\n2,1,1,1\n2,3,1,1\n")
        run = self.run_tool("simulate", "--layouts", "layouts.csv", *self.ground(), "--runtime",
                            runtime, "--csv")
        times = [int(row.split(",")[5]) for row in run.stdout.splitlines()[1:]]
        self.assertEqual(times, [priced(runtime, 1), free[3]])
        self.assertIn("expected 1f1b or gpipe, got interleaved, as transfers are blocking",
                      self.simulated("--layout", "pp=2,vpp=3,dp=1,mbs=1", *self.ground(),
                                     "--runtime", own(), code=BAD_INPUT))
        plan = self.planned("--runtime", "megatron", "--schedule", "interleaved")
        self.assertNotIn("transfers", plan["predicted"])
        self.assertEqual(plan["baselines"], [])
        run = self.run_tool("plan", *self.ground(), "--runtime", "megatron", "--schedule",
                            "interleaved", "--write-baselines", "folder")
        self.assertEqual(run.returncode, USAGE)
        self.assertIn("they are under 1f1b and gpipe, where transfers of megatron block", run.stderr)
        self.assertNotIn("transfers", plan["request"])
        self.assertIn(self.run_tool("verify", "plan.json").returncode, (DONE, NOT_VERIFIED))
        again = self.simulated("plan.json", "--recost", "--runtime", "megatron")
        self.assertEqual(again["iteration_ns"], plan["predicted"]["iteration_ns"])
        # What the runtime would have to do otherwise is a false claim.
        del plan["runtime"]["interleaved_transfers"], plan["runtime_sha256"]
        del plan["runtime"]["sources"]["interleaved_transfers"]
        self.assert_error(self.run_tool("validate", self.write("wrong.json", plan)), BAD_INPUT,
                          "/transfers", "expected blocking, as megatron has it, got overlapped")

    def test_plans_of_one_runtime_are_compared_with_the_transfers_that_each_has(self):
        runtime = self.own(transfers="blocking", interleaved_transfers="overlapped")
        plans = []
        for chunks, transfers in ((1, "blocking"), (3, None)):
            run = self.run_tool("import", "plan", "--layout", f"pp=2,vpp={chunks},dp=1,mbs=1",
                                *self.ground(), "--runtime", runtime, "-o", f"{chunks}.json")
            self.assertEqual(run.returncode, DONE, run.stderr)
            self.assertRegex(run.stdout, r"runtime +own")
            self.assertEqual("overlap with computation" in run.stdout, chunks == 3)
            plans.append(self.read(f"{chunks}.json"))
            self.assertEqual(plans[-1]["predicted"].get("transfers"), transfers)
            self.assertEqual(plans[-1]["runtime"]["name"], "own")
            self.assertEqual(plans[-1]["gradients"]["overlap"], "none")
            self.done("validate", f"{chunks}.json")
            self.assertEqual(self.simulated("--layout", f"pp=2,vpp={chunks},dp=1,mbs=1",
                                            *self.ground(), "--runtime", runtime)["iteration_ns"],
                             plans[-1]["predicted"]["iteration_ns"])
        compared = json.loads(self.done("diff", "1.json", "3.json", "--json"))
        self.assertNotIn("transfers", compared)
        for side, plan in zip("ab", plans, strict=True):
            self.assertEqual(compared[side]["iteration_ns"], plan["predicted"]["iteration_ns"])
            self.assertEqual(compared[side].get("transfers"), plan["predicted"].get("transfers"))
        self.assertIn("transfers are as the runtime has them: those of A are blocking, those of B "
                      "overlapped", " ".join(self.done("diff", "1.json", "3.json").split()))
        # Without that key the interleaved layout cannot be what the runtime does.
        run = self.run_tool("import", "plan", "--layout", "pp=2,vpp=3,dp=1,mbs=1", *self.ground(),
                            "--runtime", self.own(transfers="blocking"))
        self.assert_error(run, BAD_INPUT, "--layout: /schedule/family: expected 1f1b or gpipe")

    def test_a_plan_for_a_runtime_that_blocks_says_that_its_transfers_do_not(self):
        told = "Transfers: those of deepspeed block both stages, which --runtime deepspeed counts"
        for more, is_told in ((("--for", "deepspeed"), True), ((), False),
                              (("--for", "deepspeed", "--runtime", "deepspeed"), False),
                              (("--for", "dapple-exec"), False)):
            run = self.run_tool("plan", *self.ground(), "-o", "plan.json", "--pin", "stages=2", *more)
            self.assertEqual(run.returncode, DONE, run.stderr)
            self.assertEqual(told in run.stdout, is_told, run.stdout)
        # Where the runtime has no such plans, the advice would be refused.
        for more in ("--schedule", "interleaved"), ("--schedule", "auto"), ("--replicas", "independent"):
            run = self.run_tool("plan", *self.ground(), "-o", "plan.json", "--pin", "stages=2", "--for",
                                "torchtitan", *more)
            self.assertNotIn("Transfers: ", run.stdout)

    def test_reductions_behind_the_last_backward_are_all_exposed(self):
        pins = ("--pin", "stages=1", "--pin", "replicas=2", "--bucket-size", "1 MiB")
        for overlap in ("buckets", "none"):
            plan = self.planned(*pins, "--runtime", self.own(gradient_overlap=overlap))
            self.assertEqual(len(plan["stages"][0]["costs"]["gradient_buckets_bytes"]), 6)
            all_of_them = plan["stages"][0]["costs"]["all_reduce_ns"]
            exposed = plan["predicted"]["exposed_all_reduce_ns"]
            if overlap == "none":
                self.assertEqual(exposed, all_of_them)
            else:
                self.assertLess(exposed, all_of_them)

    def test_the_memory_that_it_keeps_is_the_devices(self):
        runtime = self.own(reserved="100 MiB", gradient_bytes_per_parameter_byte=2,
                           framework_bytes_per_parameter_byte=0.5)
        pins = ("--pin", "stages=2", "--pin", "replicas=1")
        bare = self.planned(*pins, "--runtime", self.write("none.json", SERIAL))
        plan = self.planned(*pins, "--runtime", runtime)

        def device(document):
            return document["predicted"]["devices"][0]

        self.assertEqual(device(bare)["memory_limit_bytes"] - device(plan)["memory_limit_bytes"],
                         100 << 20)
        parameters = sum(layer.get("repeat", 1) * layer["parameter_bytes"]
                         for layer in plan["model"]["profile"]["layers"])
        self.assertEqual(device(plan)["peak_memory_bytes"] - device(bare)["peak_memory_bytes"],
                         parameters // 2 * 3 // 2)

    def test_another_runtime_recosts_a_plan(self):
        plan = self.planned("--pin", "stages=3", "--pin", "depths=least")
        for runtime in ("megatron", "deepspeed"):
            again = self.simulated("plan.json", "--recost", "--runtime", runtime)
            self.assertGreater(again["iteration_ns"], plan["predicted"]["iteration_ns"])
            # A layout of the same stages is the same plan.
            words = (f"pp=3,dp=1,mbs={plan['micro_batch_size']},layers=2:2:2",
                     *self.ground(), "--runtime", runtime)
            if [stage["layers"] for stage in plan["stages"]] == [[0, 2], [2, 4], [4, 6]]:
                self.assertEqual(self.simulated("--layout", *words)["iteration_ns"],
                                 again["iteration_ns"])
        error = self.run_tool("simulate", "plan.json", "--runtime", "megatron")
        self.assertEqual(error.returncode, USAGE)
        self.assertIn("--recost", error.stderr)

    def test_gradients_of_another_size_are_reduced_in_buckets_of_their_own(self):
        profile = tool.small_profile()
        profile["layers"][0]["parameter_bytes"] = 10 << 20
        ground = ("--model", self.write("large.json", profile), "--topo",
                  self.write("topo.json", tool.small_topology()))
        run = self.run_tool(*ground, "-o", "plan.json", "--micro-batch", 4, "--pin", "stages=1",
                            "--pin", "replicas=4")
        self.assertEqual(run.returncode, DONE, run.stderr)
        stage, = self.read("plan.json")["stages"]
        self.assertEqual(stage["costs"]["gradient_buckets_bytes"], [30 << 20, 30 << 20])
        # Half as large, a bucket has five layers and not three.
        layout = ("--layout", "pp=1,dp=4,mbs=1", *ground)
        runtime = ("--runtime", self.own(gradient_bytes_per_parameter_byte=0.5))
        self.assertEqual(
            self.simulated("plan.json", "--recost", *runtime)["iteration_ns"],
            self.simulated(*layout, *runtime)["iteration_ns"])

    def test_memory_of_one_runtime_is_not_left_to_another(self):
        self.planned("--runtime", "deepspeed")
        refused = self.run_tool("simulate", "plan.json", "--recost", "--runtime", "megatron")
        self.assertEqual(refused.returncode, USAGE)
        self.assertIn("deepspeed keeps in memory", refused.stderr)
        self.simulated("plan.json", "--recost", "--runtime", "megatron", *self.ground())

    def test_depths_at_which_stages_wait_for_each_other_are_refused(self):
        plan = self.planned("--pin", "stages=2", "--micro-batch", 1)
        depths = plan["schedule"]["warmup_depths"]
        self.assertGreater(depths[0], depths[1] + 1)
        error = self.simulated("plan.json", "--recost", "--runtime", self.own(), code=BAD_INPUT)
        self.assertIn("/schedule/warmup_depths/0", error)
        # A search finds others.
        plan = self.planned("--pin", "stages=2", "--micro-batch", 1, "--runtime", self.own())
        depths = plan["schedule"]["warmup_depths"]
        self.assertLessEqual(depths[0], depths[1] + 1)

    def test_false_claims_about_the_runtime_are_told(self):
        plan = self.planned("--pin", "stages=3", "--runtime", "deepspeed")

        def told(place, change):
            self.assert_false_claim_is_told(plan, place, change)

        told("/predicted/transfers", lambda d: d["predicted"].pop("transfers"))
        told("/gradients/overlap", lambda d: d["gradients"].pop("overlap"))
        told("/request/transfers", lambda d: d["request"].pop("transfers"))
        told("/request/gradient_overlap", lambda d: d["request"].pop("gradient_overlap"))
        told("/runtime/name", lambda d: d["runtime"].pop("name"))

        def without_memory(document):
            document["runtime"]["framework_bytes_per_parameter_byte"] = 3

        told("/runtime", without_memory)
        told("/runtime_sha256", lambda d: d.update(runtime_sha256="0" * 64))
        told("/runtime_sha256", lambda d: d.update(runtime_sha256="none"))
        told("/runtime_sha256", lambda d: d["runtime"].update(source="somebody"))
        told("/runtime_sha256", lambda d: d["runtime"]["sources"].pop("depths"))
        told("/runtime_sha256", lambda d: d.pop("runtime"))
        del plan["runtime_sha256"]  # as in older files
        run = self.run_tool("verify", self.write("older.json", plan))
        self.assertIn(run.returncode, (DONE, NOT_VERIFIED), run.stdout + run.stderr)

    def test_options_that_a_runtime_excludes_are_refused(self):
        for words, part in ((("--schedule", "auto"), "1f1b or gpipe"),
                            (("--schedule", "zb-h1"), "1f1b or gpipe"),
                            (("--replicas", "independent"), "together"),
                            (("--optimizer-step", "per-bucket"), "at-end"),
                            (("--runtime", "megatronn"), "expected one of deepspeed")):
            run = self.run_tool("plan", *self.ground(), "--runtime", "deepspeed", *words) \
                if words[0] != "--runtime" else self.run_tool("plan", *self.ground(), *words)
            self.assertEqual(run.returncode, USAGE, run.stderr)
            self.assertIn(part, run.stderr)
        run = self.run_tool("plan", *self.ground(), "--runtime", "megatron", "--schedule", "auto")
        self.assertEqual(run.returncode, USAGE, run.stderr)
        self.assertIn("expected 1f1b, gpipe or interleaved for megatron, got auto", run.stderr)
        self.planned("--runtime", "deepspeed")
        run = self.run_tool("reschedule", "plan.json", "--schedule", "gpipe", "-o", "other.json")
        self.assertEqual(run.returncode, BAD_INPUT)
        self.assertIn("/runtime", run.stderr)
        # Nor may a plan be rescheduled to one whose transfers its runtime would not overlap.
        runtime = self.own(transfers="blocking", interleaved_transfers="overlapped")
        self.planned("--runtime", runtime, "--schedule", "interleaved")
        run = self.run_tool("reschedule", "plan.json", "--schedule", "1f1b", "-o", "other.json")
        self.assert_error(run, BAD_INPUT, "/runtime/transfers: expected overlapped ones, got blocking")

    def test_a_comparison_says_what_runtimes_do_otherwise(self):
        self.planned("--runtime", "megatron", "--pin", "stages=2")
        one = self.read("plan.json")
        self.planned("--runtime", "deepspeed", "--pin", "stages=2")
        run = self.run_tool("diff", self.write("one.json", one), "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        told = " ".join(run.stdout.split())
        for part in ("A is for the runtime megatron, B for deepspeed",
                     "those of A are blocking, those of B serial",
                     "gradients of B are reduced after the last backward"):
            self.assertIn(part, told)
        run = self.run_tool("diff", "one.json", "one.json")
        self.assertNotIn("runtime", run.stdout)

    def test_every_figure_of_a_shipped_runtime_has_a_source(self):
        files = sorted((tool.ROOT / "profiles" / "runtimes").glob("*.json"))
        self.assertGreaterEqual(len(files), 6)
        for file in files:
            runtime = json.loads(file.read_text())
            figures = set(runtime) - {"schema", "name", "source", "sources"}
            self.assertEqual(set(runtime["sources"]), figures, file.name)
            for key, source in runtime["sources"].items():
                self.assertGreater(len(source), 20, f"{file.name}: {key}")
            # The program has the same.
            self.assertEqual(self.planned("--runtime", runtime["name"])["runtime"], runtime)

    def test_a_source_is_of_a_figure_that_the_file_has(self):
        plan = self.planned("--runtime", self.own(sources={"depths": "seen", "transfers": ""}))
        self.assertEqual(plan["runtime"]["sources"], {"depths": "seen", "transfers": ""})
        for sources, place, words in (
                ({"reserved": "seen"}, "/sources/reserved", "the key of a figure that the runtime has"),
                ({"name": "seen"}, "/sources/name", "the key of a figure"),
                ({"depth": "seen"}, "/sources/depth", 'got "depth"'),
                ({"depths": 1}, "/sources/depths", "expected"), ([], "/sources", "expected")):
            run = self.run_tool("plan", *self.ground(), "--runtime", self.own(sources=sources))
            self.assertEqual(run.returncode, BAD_INPUT, sources)
            self.assertIn(f"own.json: {place}", run.stderr)
            self.assertIn(words, run.stderr)

    def estimated(self, *more):
        """What a plan of a small configuration has of its layers."""
        config = {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 4, "n_positions": 128,
                  "vocab_size": 1000}
        topology = {**tool.small_topology(memory="80 GiB"),
                    "devices": {"H100": {"memory": "80 GiB", "reserved": "0 B", "source": "made up"}}}
        topology["servers"] = [{**topology["servers"][0], "device": "H100"}]
        run = self.run_tool("plan", "--model", self.write("config.json", config), "--topo",
                            self.write("h100.json", topology), "--sequence", 128, "--global-batch", 4,
                            "--recompute", "none", "-o", "plan.json", *more)
        self.assertEqual(run.returncode, DONE, run.stderr)
        layers = self.read("plan.json")["model"]["profile"]["layers"]
        return layers[0], layers[-1]

    def test_configurations_are_estimated_as_the_runtime_has_them(self):
        def both(layer):
            """The layer on one device and on each of two that are tensor-parallel."""
            return layer, next(variant for variant in layer["variants"]
                               if variant["tensor_parallel"] == 2)

        def parameters(layer):
            return tuple(at["parameter_bytes"] // 2 for at in both(layer))

        def stashes(layer):
            """Bytes of a sample."""
            first = [at["measurements"][0] for at in both(layer)]
            return [measured["stash_bytes"] // measured["batch_size"] for measured in first]

        whole = self.estimated("--runtime", self.own())
        positions = 128 * 64
        self.assertEqual(parameters(whole[0]), (1000 * 64 + positions, 500 * 64 + positions))
        for words, one, two in ((("--runtime", self.own(vocabulary_multiple=300)), 1200, 600),
                                (("--runtime", "megatron"), 1024, 512),
                                (("--runtime", "megatron", "--vocabulary-multiple", "7"), 1001, 504),
                                (("--vocabulary-multiple", "600"), 1200, 600)):
            embedding, head = self.estimated(*words)
            self.assertEqual(parameters(embedding), (one * 64 + positions, two * 64 + positions), words)
            # The logits of a sample are kept in single precision.
            more = [a - b for a, b in zip(stashes(head), stashes(whole[1]))]
            self.assertEqual(more, [4 * 128 * (one - 1000), 4 * 128 * (two - 500)], words)

        def divides_sequence(layer):
            return layer["variants"][0].get("sequence_parallel", False)

        self.assertTrue(divides_sequence(whole[0]))
        self.assertFalse(divides_sequence(self.estimated("--runtime",
                                                         self.own(sequence_parallel=False))[0]))
        self.assertFalse(divides_sequence(self.estimated("--runtime", "deepspeed")[0]))
        self.assertFalse(divides_sequence(self.estimated("--runtime", self.own(),
                                                         "--no-sequence-parallel")[0]))
        for floor, least in (("1 ms", 1_000_000), ("70 us", 70_000)):
            embedding, head = self.estimated("--runtime", self.own(launch_floor=floor))
            for layer in (embedding, head):
                self.assertEqual(layer["measurements"][0]["forward_ns"], least)
        self.assertEqual(self.read("plan.json")["runtime"]["launch_floor"], "70 us")
        # A profile that states its layers keeps them.
        self.assertEqual(self.planned("--runtime", "megatron")["model"]["profile"]["layers"],
                         self.planned()["model"]["profile"]["layers"])

    def test_bad_files_are_refused_by_name(self):
        cases = [({"transfers": "quick"}, "/transfers"), ({"depths": 1}, "/depths"),
                 ({"interleaved_transfers": "blocking"}, "/interleaved_transfers"),
                 ({"gradient_overlap": None}, "/gradient_overlap"), ({"reserved": "-1 B"}, "/reserved"),
                 ({"framework_bytes_per_parameter_byte": 65}, "/framework_bytes_per_parameter_byte"),
                 ({"vocabulary_multiple": 0}, "/vocabulary_multiple"),
                 ({"vocabulary_multiple": 1.5}, "/vocabulary_multiple"),
                 ({"vocabulary_multiple": (1 << 20) + 1}, "/vocabulary_multiple"),
                 ({"sequence_parallel": "off"}, "/sequence_parallel"),
                 ({"launch_floor": 5}, "/launch_floor"), ({"launch_floor": "-1 us"}, "/launch_floor"),
                 ({"name": ""}, "/name"), ({"more": 1}, "/more"),
                 ({"schema": "dapple-runtime/2"}, "/schema")]
        for changes, place in cases:
            run = self.run_tool("plan", *self.ground(), "--runtime", self.own(**changes))
            self.assertEqual(run.returncode, BAD_INPUT, (changes, run.stderr))
            self.assertIn(f"own.json: {place}", run.stderr)
        for name in SERIAL:
            left = {key: value for key, value in SERIAL.items() if key != name}
            run = self.run_tool("plan", *self.ground(), "--runtime", self.write("own.json", left))
            self.assertEqual(run.returncode, BAD_INPUT)
            self.assertIn(f"/{name}", run.stderr)
        run = self.run_tool("plan", *self.ground(), "--runtime", self.own(reserved="2 GiB"))
        self.assertEqual(run.returncode, BAD_INPUT)
        self.assertIn("--runtime: /reserved: expected less than the 1.00 GiB of card", run.stderr)
        run = self.run_tool("plan", *self.ground(), "--runtime", "nowhere.json")
        self.assertNotIn(run.returncode, (DONE, 1))
        model = self.ground()[1]
        run = self.run_tool("plan", "--model", self.own(), "--topo", self.ground()[3])
        self.assertEqual(run.returncode, BAD_INPUT)
        self.assertIn("a dapple-runtime file", run.stderr)
        run = self.run_tool("plan", *self.ground(), "--runtime", model)
        self.assertEqual(run.returncode, BAD_INPUT)


class SharedNic(ToolTest):
    """The devices of a group reduce their shards through the NICs of their server."""

    # Bytes of a stage, servers, and the measured time of its reduction on servers of eight GPUs with a NIC of
    # 0.115 GB/s: older runs of OPT-350M, whose reductions eth-easl/sailor states.
    REDUCTIONS = [(832_950_272, 2, 7.17), (1_699_971_072, 4, 21.59), (630_722_560, 2, 5.46),
                  (832_950_272, 3, 8.89), (1_699_971_072, 6, 22.64)]

    def test_measured_reductions_are_met(self):
        measurement = {"batch_size": 1, "forward_ns": 1, "backward_ns": 1, "output_bytes": 0,
                       "stash_bytes": 0}
        for size, servers, measured in self.REDUCTIONS:
            profile = tool.small_profile(layers=[{
                "name": "stage", "parameter_bytes": size, "measurements": [measurement],
                "variants": [{"tensor_parallel": 8, "parameter_bytes": size // 8,
                              "measurements": [measurement]}]}])
            profile["optimizer"] = {"name": "sgd", "state_bytes_per_parameter_byte": 0,
                                    "step_ns_per_parameter_byte": 0}
            link = {"bandwidth": "0.115 GB/s", "latency": "0 us", "source": "measured by others"}
            topology = tool.small_topology(memory="24 GiB", network={"kind": "switch", **link})
            topology["servers"] = [{**topology["servers"][0], "count": servers, "devices": 8,
                                    "nics": [link]}]
            run = self.run_tool("simulate", "--layout", f"tp=8,pp=1,dp={servers},mbs=1,gbs={servers}",
                                "--model", self.write("profile.json", profile), "--topo",
                                self.write("topology.json", topology), "--runtime", "deepspeed",
                                "--json")
            self.assertEqual(run.returncode, DONE, run.stderr)
            predicted = json.loads(run.stdout)["plans"][0]["predicted"]
            took = predicted["exposed_all_reduce_ns"] / 1e9
            self.assertLess(abs(took / measured - 1), 0.12)
            # All shards of a server together cross its NIC, each way.
            self.assertAlmostEqual(took / (2 * (servers - 1) / servers * size / 0.115e9), 1, 3)


if __name__ == "__main__":
    tool.main()
