"""How context-parallel ranks exchange keys and values: prices with their arithmetic, the kinds that
runtimes have, and what is refused. Estimates of each kind are compared with a second implementation
in test_estimate_forms.py, costs of stages in test_parallelism_costs.py."""

import copy
import json

import tool
from tool import BAD_INPUT, DONE, USAGE, ToolTest

MILLISECOND = 10**6  # nanoseconds; a megabyte takes one at 1 GB/s
MEGABYTE = 10**6
RANKS = 4
LLAMA = {"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 2,
         "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 2048,
         "vocab_size": 1000}


def passed(megabytes, count, beside=None):
    one = {"kind": "send-receive", "over": "context", "bytes_per_sample": megabytes * MEGABYTE,
           "count": count}
    return {**one, "beside": beside} if beside else one


def exchanged(kind, megabytes):
    return [{"kind": kind, "over": "context", "bytes_per_sample": megabytes * MEGABYTE}]


# What four ranks do with keys and values of 3 MB each, of both passes.
RING = ([passed(3, 3, "forward_core")],
        [passed(3, 2, "backward_core"), passed(6, 2, "backward_core"), passed(3, 1)])
GATHERS = (exchanged("all-gather", 12), exchanged("all-gather", 12) + exchanged("reduce-scatter", 12))
ALL_TO_ALLS = (exchanged("all-to-all", 12), exchanged("all-to-all", 12))


def layer(name, exchange, parameters):
    """A layer that a rank computes in 10 and 20 ms, 8 and 16 ms of which are the core."""
    figures = {"batch_size": 1, "forward_ns": 10 * MILLISECOND, "backward_ns": 20 * MILLISECOND,
               "output_bytes": 0, "stash_bytes": 0}
    core = {"forward_core_ns": 8 * MILLISECOND, "backward_core_ns": 16 * MILLISECOND}
    variant = {"tensor_parallel": 1, "context_parallel": RANKS, "parameter_bytes": parameters,
               "measurements": [{**figures, **core}], "forward_collectives": exchange[0],
               "backward_collectives": exchange[1]}
    whole = {**figures, "forward_ns": 40 * MILLISECOND, "backward_ns": 80 * MILLISECOND}
    return {"name": name, "parameter_bytes": parameters, "measurements": [whole],
            "variants": [variant]}


def profile(exchange, parameters=0):
    return {"schema": "dapple-profile/1", "name": "made", "source": "made up",
            "global_batch_size": 4, "device": "card", "batch_scaling": "proportional",
            "optimizer": {"name": "sgd", "state_bytes_per_parameter_byte": 0},
            "layers": [layer(f"block.{i}", exchange, parameters) for i in range(2)]}


def topology(**kind):
    link = {"bandwidth": "1 GB/s", "latency": "0 ns", "source": "made up"}
    device = next(iter(kind), "card")
    return {"schema": "dapple-topology/1", "name": "made", "source": "made up",
            "devices": {device: {"memory": "1 GB", "reserved": "0 B", **kind.get(device, {})}},
            "servers": [{"name": "s", "count": 2, "device": device, "devices": RANKS,
                         "nics": [link], "links": {"kind": "switch", **link}}],
            "network": {"kind": "switch", **link}}


class Context(ToolTest):
    def simulated(self, exchange, cluster=None):
        """Milliseconds of an iteration of four samples on one group."""
        run = self.run_tool("simulate", "--layout", f"cp={RANKS},pp=1,dp=1,mbs=1", "--model",
                            self.write("m.json", profile(exchange)), "--topo",
                            self.write("t.json", cluster or topology()), "--json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        return json.loads(run.stdout)["plans"][0]["predicted"]["iteration_ns"] / MILLISECOND

    def test_a_ring_is_hidden_behind_the_core_hop_by_hop(self):
        # A quarter of the core takes 2 ms forward and 4 ms backward, a hop of 3 MB takes 3 ms:
        # 10 + 3 (3 - 2) = 13 ms forward, and backward 20 + 0 + 2 (6 - 4) + 3 = 27 ms.
        self.assertEqual(self.simulated(RING), 4 * 2 * (13 + 27))
        # A gather of 12 MB takes 9 ms.
        self.assertEqual(self.simulated(GATHERS), 4 * 2 * (10 + 9 + 20 + 18))
        # A rank sends three quarters of its 12 MB.
        self.assertEqual(self.simulated(ALL_TO_ALLS), 4 * 2 * (10 + 9 + 20 + 9))

    def test_slower_devices_hide_more_of_it(self):
        # At half the speed a step takes 4 ms, longer than a hop, and 8 ms, longer than two; only
        # the last hop, beside which nothing is computed, is left.
        slow = topology(slow={"time_scale": {"card": 2}})
        self.assertEqual(self.simulated(RING, slow), 4 * 2 * (20 + 40 + 3))

    def test_plans_of_every_kind_are_verified(self):
        for exchange, stages in ((RING, 80), (GATHERS, 114), (ALL_TO_ALLS, 96)):
            with self.subTest(stages=stages):
                plan = self.verified_plan(profile(exchange), topology(), "--pin",
                                          f"context={RANKS}", "--micro-batch", "2")
                predicted = plan["predicted"]
                # Each of two replicas has a sample of both micro-batches, and nothing is reduced.
                self.assertEqual(predicted["iteration_ns"], 2 * stages * MILLISECOND)
                self.assertEqual(predicted["lower_bound_ns"], predicted["iteration_ns"])
                self.assertEqual(predicted["time_parts"]["collectives_ns"],
                                 2 * (stages - 60) * MILLISECOND)

    # Estimates, and the kinds that runtimes have.

    def clusters(self):
        return self.write("gpus.json", {
            "schema": "dapple-topology/1", "name": "made", "source": "made up",
            "devices": {"H100-80GB": {"memory": "80 GiB"}},
            "servers": [{"name": "node", "count": 1, "device": "H100-80GB", "devices": 8,
                         "links": {"kind": "switch", "bandwidth": "300 GB/s", "latency": "3 us"}}]})

    def planned(self, *more):
        return self.run_tool("--model", self.write("config.json", LLAMA), "--topo", self.clusters(),
                             "--global-batch", "8", "--sequence", "4096", "-o", "plan.json", *more)

    def kinds(self):
        """Kinds of collectives over context ranks in the plan's profile."""
        return {one["kind"] for each in self.read("plan.json")["model"]["profile"]["layers"]
                for variant in each["variants"]
                for way in ("forward_collectives", "backward_collectives")
                for one in variant.get(way, []) if one.get("over") == "context"}

    def test_configurations_are_estimated_as_the_runtime_has_it(self):
        gathers = {"all-gather", "reduce-scatter"}
        for runtime, kinds in (("megatron", {"send-receive"}), ("nanotron", {"send-receive"}),
                               ("torchtitan", gathers), ("dapple-exec", gathers),
                               ("deepspeed", {"all-to-all"}), (None, gathers)):
            with self.subTest(runtime=runtime):
                words = ("--pin", "context=2", "--max-context", "2")
                run = self.planned(*words, *(("--runtime", runtime) if runtime else ()))
                self.assertEqual(run.returncode, DONE, run.stderr)
                self.assertEqual(self.kinds(), kinds)
        run = self.planned(*words, "--runtime", "megatron", "--context-kind", "all-to-all")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.kinds(), {"all-to-all"})

    def test_heads_that_context_ranks_cannot_divide_are_refused_by_name(self):
        words = ("--max-context", "4", "--pin", "context=4")
        told = "2 heads of keys and values on a device cannot be divided among 4 context-parallel"
        run = self.planned(*words, "--pin", "tensor=2", "--context-kind", "all-to-all")
        self.assert_error(run, USAGE, "--pin: expected degrees that divide the model, but " + told)
        run = self.planned(*words, "--pin", "tensor=2", "--context-kind", "ring")
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.planned(*words, "--pin", "tensor=1", "--context-kind", "all-to-all")
        self.assertEqual(run.returncode, DONE, run.stderr)
        # Of a saved estimate too.
        self.write("model.json", self.read("plan.json")["model"]["profile"])
        inputs = ("--model", "model.json", "--topo", "gpus.json", "--global-batch", "8")
        self.assert_error(self.run_tool(*inputs, "--pin", "context=4", "--pin", "tensor=2", "-o",
                                        "plan.json"), BAD_INPUT, told)
        self.assert_error(self.run_tool("simulate", *inputs, "--layout", "tp=2,cp=4,mbs=1,dp=1"),
                          BAD_INPUT, told)

    # Other programs.

    def test_exports_say_the_kind_or_refuse_it(self):
        lacking = "expected 1, as the files for {} have no context parallelism{}, got 4"
        for exchange, name, of_megatron, of_torchtitan, of_nanotron in (
                (RING, "ring", "p2p", "alltoall", True),
                (GATHERS, "all-gather", "all_gather", "allgather", False),
                (ALL_TO_ALLS, "all-to-all", "a2a", None, False)):
            self.verified_plan(profile(exchange, MEGABYTE), topology(), "--pin",
                               f"context={RANKS}", "--pin", "stages=1", "--shard", "optimizer")

            def exported(target):
                return self.run_tool("export", "plan.json", "--to", target, "-o", "-")

            with self.subTest(exchange=name):
                run = exported("megatron")
                self.assertEqual(run.returncode, DONE, run.stderr)
                self.assertIn(f"  --context-parallel-size 4\n  --cp-comm-type {of_megatron}\n",
                              run.stdout)
                self.assert_exchange_is_read(run.stdout, "--cp-comm-type", of_megatron, name)
                run = exported("torchtitan")
                if of_torchtitan:
                    self.assertEqual(run.returncode, DONE, run.stderr)
                    self.assertIn("  --parallelism.context_parallel_rotate_method "
                                  f"{of_torchtitan}\n", run.stdout)
                    self.assert_exchange_is_read(
                        run.stdout, "--parallelism.context_parallel_rotate_method", of_torchtitan,
                        name)
                else:
                    self.assert_error(run, BAD_INPUT, "/parallelism/context: " + lacking.format(
                        "torchtitan", f" by {name}"))
                run = exported("nanotron")
                if of_nanotron:
                    self.assertEqual(run.returncode, DONE, run.stderr)
                else:
                    self.assert_error(run, BAD_INPUT, lacking.format("nanotron", f" by {name}"))
                self.assert_error(exported("deepspeed"), BAD_INPUT, lacking.format("DeepSpeed", ""))

    def assert_exchange_is_read(self, script, option, exported, name):
        """An exported script is imported, and not if it names an exchange of no price."""
        for stated in (exported, "a2a+p2p"):
            file = self.write("back.sh", script.replace(f"{option} {exported}", f"{option} {stated}"))
            run = self.run_tool("import", "plan", file, "--model", "m.json", "--topo", "t.json", "-o",
                                "back.json")
            if stated == exported:
                self.assertEqual(run.returncode, DONE, run.stderr)
            else:
                self.assert_error(run, BAD_INPUT,
                                  f"{option}: expected {exported}, as the profile prices context "
                                  f"parallelism by {name}, got 'a2a+p2p'")

    def test_plans_for_a_target_have_a_kind_that_it_has(self):
        for target, exchange, code in (("megatron", ALL_TO_ALLS, DONE),
                                       ("torchtitan", ALL_TO_ALLS, BAD_INPUT),
                                       ("dapple-exec", RING, BAD_INPUT),
                                       ("dapple-exec", GATHERS, DONE)):
            with self.subTest(target=target, code=code):
                run = self.run_plan(profile(exchange, MEGABYTE), topology(), "--for", target, "--pin",
                                    f"context={RANKS}", "--shard", "optimizer")
                self.assertEqual(run.returncode, code, run.stdout + run.stderr)
                if code == BAD_INPUT:
                    self.assertIn("dapple-exec has no context parallelism by ring"
                                  if target == "dapple-exec" else
                                  "the files for torchtitan have no such context parallelism",
                                  " ".join(run.stderr.split()))

    def test_forms_that_a_target_cannot_run_are_named_with_the_option_that_keeps_them(self):
        told = ("forms with context {} are left out, as {} has no context parallelism by {}, by which "
                "they are priced; --context-kind {} keeps them")
        for target, more, *words in (
                ("nanotron", (), "2, 4", "nanotron", "all-gather", "ring"),
                ("dapple-exec", ("--context-kind", "ring"), "2, 4", "dapple-exec", "ring",
                 "all-gather"),
                ("torchtitan", ("--context-kind", "all-to-all"), "2", "torchtitan", "all-to-all",
                 "all-gather or ring")):
            with self.subTest(target=target):
                pins = () if words[0] == "2, 4" else ("--pin", "tensor=2")
                run = self.planned("--max-context", "4", "--for", target, *more, *pins)
                self.assertEqual(run.returncode, DONE, run.stderr)
                self.assertIn(told.format(*words), self.read("plan.json")["warnings"])
        # With the option, and where nothing is left out because of it, there is no such warning.
        for words in (("nanotron", "--context-kind", "ring"), ("nanotron", "--runtime", "nanotron"),
                      ("deepspeed",), ("nanotron", "--pin", "context=1")):
            run = self.planned("--max-context", "4", "--for", *words)
            self.assertEqual(run.returncode, DONE, run.stderr)
            self.assertFalse([text for text in self.read("plan.json")["warnings"]
                              if "left out" in text and "forms" in text])
        run = self.planned("--pin", "context=2", "--for", "nanotron")
        self.assert_error(run, BAD_INPUT, "the files for nanotron have no such context parallelism; "
                          + told.format("2", "nanotron", "all-gather", "ring"))

    def test_each_form_has_its_own_kind(self):
        # Two ranks pass keys and values around a ring, four gather them.
        document = profile(GATHERS, MEGABYTE)
        two = ([passed(3, 1, "forward_core")], [passed(3, 1, "backward_core"), passed(6, 1)])
        for each in document["layers"]:
            ring = copy.deepcopy(each["variants"][0])
            ring.update(context_parallel=2, forward_collectives=two[0], backward_collectives=two[1])
            each["variants"].insert(0, ring)
        for target, ranks, other, option in (
                ("nanotron", 2, 4, ""), ("dapple-exec", 4, 2, ""),
                ("megatron", 2, None, "--cp-comm-type p2p"),
                ("megatron", 4, None, "--cp-comm-type all_gather"),
                ("torchtitan", 4, None, "context_parallel_rotate_method allgather")):
            with self.subTest(target=target, ranks=ranks):
                words = ("--for", target, "--shard", "optimizer", "--pin")
                run = self.run_plan(document, topology(), *words, f"context={ranks}")
                self.assertEqual(run.returncode, DONE, run.stderr)
                if target == "dapple-exec":
                    continue
                run = self.run_tool("export", "plan.json", "--to", target, "-o", "-")
                self.assertEqual(run.returncode, DONE, run.stderr)
                self.assertIn(option, run.stdout)
                if target != "nanotron":
                    self.write("back.sh", run.stdout)
                    run = self.run_tool("import", "plan", "back.sh", "--model", "m.json", "--topo",
                                        "t.json", "-o", "back.json")
                    self.assertNotIn("as the profile prices", run.stderr)
                if other:
                    run = self.run_plan(document, topology(), *words, f"context={other}")
                    self.assert_error(run, BAD_INPUT, f"forms with context {other} are left out")

    def test_dapple_exec_runs_all_gathers_alone(self):
        self.verified_plan(profile(RING), topology(), "--pin", f"context={RANKS}")
        run = self.run_tool("train", "plan.json", binary=tool.ARGUMENTS.executor)
        self.assert_error(run, BAD_INPUT, "/parallelism/context: expected 1, as context-parallel "
                          "ranks are run with all-gathers of keys and values alone, got 4 by ring")

    # What is refused.

    def test_false_claims_and_unknown_words_are_told(self):
        runtime = {"schema": "dapple-runtime/1", "name": "own", "source": "made up",
                   "transfers": "overlapped", "gradient_overlap": "buckets", "depths": "any"}
        inputs = ("--model", self.write("m.json", profile(RING)), "--topo",
                  self.write("t.json", topology()))
        own = self.write("own.json", {**runtime, "context": "rings"})
        self.assert_error(self.run_tool("plan", *inputs, "--runtime", own), BAD_INPUT,
                          'own.json: /context: expected "all-gather", "ring" or "all-to-all", got '
                          '"rings"')
        plan = self.verified_plan(profile(RING), topology(), "--pin", f"context={RANKS}",
                                  "--runtime", self.write("own.json", {**runtime, "context": "ring"}))
        self.assertEqual(plan["runtime"]["context"], "ring")
        self.assert_false_claim_is_told(plan, "/runtime_sha256",
                                        lambda d: d["runtime"].update(context="all-gather"))
        # A price of another kind.
        self.assert_false_claim_is_told(
            plan, "", lambda d: [each["variants"][0].update(forward_collectives=GATHERS[0])
                                 for each in d["model"]["profile"]["layers"]])

    def test_a_core_without_times_hides_nothing_and_is_told_once(self):
        document = profile(RING)
        for each in document["layers"]:
            del each["variants"][0]["measurements"][0]["forward_core_ns"]
        plan = self.verified_plan(document, topology(), "--pin", f"context={RANKS}")
        told = ("send-receives beside a core of attention that takes no time: block.0 states no "
                "forward_core_ns, and 1 other layer likewise; nothing of them is hidden")
        self.assertEqual(plan["warnings"].count(told), 1)
        # Plans of older versions lack the warning, and none may have another one.
        plan["warnings"].remove(told)
        run = self.run_tool("verify", self.write("older.json", plan))
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        plan["warnings"].insert(0, told.replace("block.0", "block.1"))
        self.assertEqual(self.run_tool("verify", self.write("older.json", plan)).returncode,
                         BAD_INPUT)
        plan = self.verified_plan(profile(RING), topology(), "--pin", f"context={RANKS}")
        self.assertFalse([text for text in plan["warnings"] if "send-receives" in text])

    def test_an_unknown_kind_is_the_only_fault_of_a_collective(self):
        document = copy.deepcopy(profile(RING))
        document["layers"][0]["variants"][0]["forward_collectives"][0]["kind"] = "send-recv"
        run = self.run_plan(document, topology())
        self.assert_error(run, BAD_INPUT, "/forward_collectives/0/kind: expected ")
        self.assertNotIn("beside", run.stderr)

    def test_help_says_what_the_kind_is_unless_it_is_given(self):
        run = self.run_tool("help", "estimate")
        self.assertIn("(default: all-gather)", " ".join(run.stdout.split()))
        self.assertEqual(self.run_tool("help", "--install", "share").returncode, DONE)
        page = (self.folder / "share" / "man" / "man1" / "dapple-plan-plan.1").read_text()
        self.assertIn("(default: that of --runtime, or all-gather)",
                      " ".join(page.replace("\\", "").split()))

    def test_what_a_profile_cannot_mean_is_refused(self):
        def refused(change, place, words):
            document = copy.deepcopy(profile(RING))
            change(document["layers"][1]["variants"][0])
            self.assert_error(self.run_plan(document, topology()), BAD_INPUT,
                              f"m.json: /layers/1/variants/0/{place}: expected {words}")

        refused(lambda v: v["forward_collectives"][0].update(kind="all-gather"),
                "forward_collectives/0/beside",
                "no such key, as only send-receives pass beside the core of attention, got")
        refused(lambda v: v["forward_collectives"][0].update(beside="core"),
                "forward_collectives/0/beside", '"forward_core" or "backward_core", got "core"')
        refused(lambda v: v["forward_collectives"][0].update(count=1025),
                "forward_collectives/0/count", "an integer from 1 to 1024, got 1025")
        refused(lambda v: v["measurements"][0].update(forward_core_ns=10_000_001),
                "measurements/0/forward_core_ns", "at most the whole pass, 10000000 ns, got 10000001")
        refused(lambda v: v.update(fixed_overhead_ns=2 * MILLISECOND + 1), "fixed_overhead_ns",
                "at most the layer's shorter time without the core of attention, 2000000 ns, got "
                "2000001")
        refused(lambda v: v["measurements"][0].update(backward_core_ns=-1),
                "measurements/0/backward_core_ns", "an integer from 0 to 1000000000000000, got -1")


if __name__ == "__main__":
    tool.main()
