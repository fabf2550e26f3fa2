"""Tensors that each tensor rank has whole, sent whole or in shares, with their arithmetic."""

import json

import tool
from tool import BAD_INPUT, DONE, ToolTest

MILLISECOND = 10**6  # nanoseconds
MEGABYTE = 10**6
GATHER = 120_000  # nanoseconds: 3/4 of 16 MB at 100 GB/s


def layer(name):
    """A layer of 10 and 20 ms a sample on four devices, each of which has its 16 MB whole, and which
    send each other nothing within it."""
    figures = {"parameter_bytes": 1000 * MEGABYTE, "measurements": [
        {"batch_size": 1, "forward_ns": 10 * MILLISECOND, "backward_ns": 20 * MILLISECOND,
         "output_bytes": 16 * MEGABYTE, "stash_bytes": 0}]}
    return {"name": name, **figures, "variants": [
        {"tensor_parallel": 4, "sequence_parallel": sequence, **figures,
         "forward_collectives": [{"kind": "all-reduce", "bytes_per_sample": 0}]}
        for sequence in (False, True)]}


def profile(*names):
    return {"schema": "dapple-profile/1", "name": "made", "source": "made up",
            "global_batch_size": 4, "device": "gpu", "batch_scaling": "proportional",
            "optimizer": {"name": "sgd", "state_bytes_per_parameter_byte": 0},
            "layers": [layer(name) for name in names or ("a", "b")]}


def topology(memory=80_000 * MEGABYTE, devices=4):
    """Two servers whose devices share a NIC of 1 GB/s, and have 100 GB/s to each other."""
    link = {"bandwidth": "1 GB/s", "latency": "0 ns", "source": "made up"}
    wide = {"bandwidth": "100 GB/s", "latency": "0 ns", "source": "made up"}
    return {"schema": "dapple-topology/1", "name": "made", "source": "made up",
            "devices": {"gpu": {"memory": f"{memory} B", "reserved": "0 B"}},
            "servers": [{"name": "s", "count": 8 // devices, "device": "gpu", "devices": devices,
                         "nics": [link], "links": {"kind": "switch", **wide}}],
            "network": {"kind": "switch", **wide}}


class Boundaries(ToolTest):
    def runtime(self, boundaries=None, **changes):
        return ("--runtime", self.write("own.json", {
            "schema": "dapple-runtime/1", "name": "own", "source": "made up",
            "transfers": "overlapped", "gradient_overlap": "buckets", "depths": "any",
            **({"boundaries": boundaries} if boundaries else {}), **changes}))

    def planned(self, *options, names=()):
        return self.verified_plan(profile(*names), topology(), "--pin", "tensor=4", *options)

    def predicted(self, *words):
        run = self.run_tool("simulate", *words, "--json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        return json.loads(run.stdout)["plans"][0]["predicted"]

    def test_shares_alone_make_two_stages_worth_it(self):
        # One server computes 4 samples in 4 * 60 = 240 ms. Over the boundary of two stages each of
        # its four ranks sends 16 MB by its part of the NIC, 250 MB/s: 64 ms a sample, which is
        # longer than all of that for 4. A share takes 16 ms, and the gather 0.12 ms:
        # 10 + 16.12 + 4 * 30 + 16.12 + 20 = 182.24 ms.
        for contention in "off", "on":
            with self.subTest(contention=contention):
                options = ("--contention", contention)
                for whole in self.runtime("whole"), self.runtime():
                    plan = self.planned(*options, *whole)
                    self.assertEqual(plan["predicted"]["iteration_ns"], 240 * MILLISECOND)
                    self.assertEqual(len(plan["stages"]), 1)
                    self.assertNotIn("boundaries", plan)
                cut = self.planned(*options, *self.runtime("scatter-gather"))
                self.assertEqual(cut["predicted"]["iteration_ns"],
                                 150 * MILLISECOND + 2 * (16 * MILLISECOND + GATHER))
                self.assertEqual(cut["predicted"]["lower_bound_ns"],
                                 cut["predicted"]["iteration_ns"])
                self.assertEqual(cut["boundaries"], "scatter-gather")
                self.assertEqual(cut["stages"][0]["costs"]["send_bytes"], 4 * MEGABYTE)

    def test_another_runtime_sends_the_plan_otherwise(self):
        # Stage 1 gets activations at 74, 138, 202 and 266 ms, and the last gradient is back
        # 30 + 64 ms later, for 20 ms more. All micro-batches are in flight.
        plan = self.planned("--contention", "off", *self.runtime("scatter-gather"))
        self.assertEqual(plan["schedule"]["warmup_depths"][0], 4)
        whole = self.predicted("plan.json", "--recost", *self.runtime("whole"))
        self.assertEqual(whole["iteration_ns"], 380 * MILLISECOND)
        again = self.predicted("plan.json", "--recost", *self.runtime("scatter-gather"))
        self.assertEqual(again["iteration_ns"], plan["predicted"]["iteration_ns"])
        # In buffers of a device, two whole and two of a share: 2 * 12 MB less for the only boundary.
        peaks = [[device["peak_memory_bytes"] for device in predicted["devices"]]
                 for predicted in (whole, again)]
        self.assertEqual([a - b for a, b in zip(*peaks)], [24 * MEGABYTE] * 2)

    def test_the_gather_is_a_part_of_a_call(self):
        # As 10.12 of the model has it: (M + 1)(F + B) + (M + 1) x, with x = 16.12 ms of a call.
        plan = self.planned("--contention", "off", "--pin", "stages=2", "--micro-batch", "1",
                            *self.runtime("scatter-gather", transfers="blocking", depths="least"))
        self.assertEqual(plan["predicted"]["iteration_ns"],
                         5 * (30 * MILLISECOND + 16 * MILLISECOND + GATHER))

    def test_tensors_are_whole_where_shares_do_not_help(self):
        layout = ("--model", self.write("m.json", profile()), "--contention", "off")
        near = ("--topo", self.write("near.json", topology()))
        far = ("--topo", self.write("far.json", topology(devices=2)))
        for words, more in (("tp=4,sp=on", near), ("tp=4", far), ("tp=1", near)):
            with self.subTest(words=words):
                times = [self.predicted("--layout", f"{words},pp=2,mbs=1,dp=1", *layout, *more,
                                        *self.runtime(boundaries))
                         for boundaries in ("whole", "scatter-gather")]
                self.assertEqual(times[0], times[1])

    def test_logits_that_ranks_have_divided_are_sent_as_they_are(self):
        # The output of b is a quarter on each rank, and the loss needs no time.
        model = json.loads(json.dumps(profile("a", "b", "loss")))
        for variant in model["layers"][1]["variants"]:
            variant["measurements"][0]["output_bytes"] //= 4
        layout = ("--layout", "tp=4,sp=off,pp=2,mbs=1,dp=1,layers=2:1", "--model",
                  self.write("m.json", model), "--topo", self.write("t.json", topology()),
                  "--contention", "off")
        times = [self.predicted(*layout, *self.runtime(boundaries))
                 for boundaries in ("whole", "scatter-gather")]
        self.assertEqual(times[0], times[1])

    def test_exports_say_how_tensors_are_sent(self):
        no_partition = '"pipeline": {"pipe_partitioned": False, "grad_partitioned": False},'
        pins = ("--pin", "stages=2", "--pin", "depths=least")
        for boundaries in "whole", "scatter-gather":
            self.planned(*pins, *self.runtime(boundaries), names=("block.0", "block.1"))
            for target in "deepspeed", "megatron", "torchtitan", "chakra":
                with self.subTest(boundaries=boundaries, target=target):
                    out = "traces" if target == "chakra" else "-"
                    run = self.run_tool("export", "plan.json", "--to", target, "-o", out)
                    self.assertEqual(run.returncode, DONE, run.stderr)
                    is_left_out = "tensor ranks send shares" in " ".join(run.stderr.split())
                    is_said = target == "deepspeed"
                    self.assertEqual(is_left_out, boundaries != "whole" and not is_said)
                    self.assertEqual(no_partition in run.stdout, boundaries == "whole" and is_said)

    def test_false_claims_and_unknown_words_are_told(self):
        plan = self.planned(*self.runtime("scatter-gather"))

        def told(place, change):
            self.assert_false_claim_is_told(plan, place, change)

        told("/boundaries", lambda d: d.pop("boundaries"))
        told("/runtime_sha256", lambda d: d["runtime"].pop("boundaries"))
        # As in files without the hash.
        told("/boundaries", lambda d: (d.pop("runtime_sha256"), d["runtime"].pop("boundaries")))
        told("/boundaries", lambda d: d.update(boundaries="halves"))
        run = self.run_tool("plan", "--model", self.write("m.json", profile()), "--topo",
                            self.write("t.json", topology()), *self.runtime("halves"))
        self.assert_error(run, BAD_INPUT, "own.json: /boundaries: expected", '"scatter-gather"',
                          '"halves"')


if __name__ == "__main__":
    tool.main()
