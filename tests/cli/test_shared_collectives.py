"""Collectives between the servers of a group that share NICs with what stages send, with their
arithmetic, and plan files that do not say that they do."""

import copy
import json
import random
import re

import tool
from tool import BAD_INPUT, DONE, ToolTest

MEGABYTE = 10**6
MILLISECOND = 10**6  # nanoseconds; a megabyte takes one at 1 GB/s

LAYOUT = "tp=2,pp=2,dp=1,mbs=1"


def sample(forward, backward, output=2):
    return [{"batch_size": 1, "forward_ns": forward * MILLISECOND,
             "backward_ns": backward * MILLISECOND, "output_bytes": output * MEGABYTE,
             "stash_bytes": 0}]


def hide(variant, direction, draws):
    """Lets a send-receive of a variant pass beside a part of its computation, more often than not."""
    passing, (measured,) = variant[f"{direction}_collectives"][0], variant["measurements"]
    if passing["kind"] == "send-receive" and draws.random() < 0.8:
        passing["beside"] = f"{direction}_core"
        measured[f"{direction}_core_ns"] = draws.randint(0, measured[f"{direction}_ns"])


class SharedCollectives(ToolTest):
    def profile(self, batch=2, tensor=2, reduced=2, **changes):
        """Two layers, which on a group take 1 ms forward and 2 ms backward without all-reduces."""
        variant = {"tensor_parallel": tensor, "parameter_bytes": 0, "measurements": sample(1, 2),
                   "forward_collectives": [{"kind": "all-reduce",
                                            "bytes_per_sample": reduced * MEGABYTE}]}
        return {"schema": "dapple-profile/1", "name": "made", "source": "made up",
                "global_batch_size": batch, "device": "card", "batch_scaling": "proportional",
                "optimizer": {"name": "sgd", "state_bytes_per_parameter_byte": 0},
                "layers": [{"name": f"layer{i}", "parameter_bytes": 0,
                            "measurements": sample(2, 4), "variants": [variant], **changes}
                           for i in range(2)]}

    def topology(self, servers=4, devices=1, inside=200, nic=1):
        def link(bandwidth):
            return {"bandwidth": f"{bandwidth} GB/s", "latency": "0 ns", "source": "made up"}
        return {"schema": "dapple-topology/1", "name": "made", "source": "made up",
                "devices": {"card": {"memory": "1 TB", "reserved": "0 B"}},
                "servers": [{"name": "node", "count": servers, "device": "card",
                             "devices": devices, "nics": [link(nic)],
                             "links": {"kind": "switch", **link(inside)}}],
                "network": {"kind": "switch", **link(nic)}}

    def done(self, *arguments):
        run = self.run_tool(*arguments)
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        return run

    def ground(self, profile, topology):
        return ("--model", self.write("m.json", profile), "--topo", self.write("t.json", topology))

    def times(self, profile, topology, layout=LAYOUT):
        """Milliseconds of an iteration with contention and without."""
        times = []
        for contention in ("on", "off"):
            self.done("import", "plan", "--layout", layout, *self.ground(profile, topology),
                      "--contention", contention, "-o", f"{contention}.json")
            predicted = self.read(f"{contention}.json")["predicted"]
            self.assertEqual(predicted.get("collectives"), "shared" if contention == "on" else None)
            self.done("verify", f"{contention}.json")
            times.append(predicted["iteration_ns"] / MILLISECOND)
        return times

    def test_tensor_ranks_on_two_servers_beside_transfers(self):
        # An all-reduce of 2 MB over two ranks passes each NIC of 1 GB/s for 2 ms, so that a forward
        # takes 1 + 2 ms; tensors of 2 MB between stages take 2 ms.
        #   0F0 [0, 3], and with 0F1, of which the all-reduce follows at 4, its output sets off. At 4
        #   half of that is sent; both halve the NIC until 6, and the all-reduce has the rest to 7.
        #   1F0 [6, 11]: its all-reduce from 7 halves the NIC with 0F1's output, [7, 11].
        #   1B0 [11, 13], its gradient halved by the all-reduce of 1F1 [13, 17] from 14 on: [13, 16].
        #   0B0 [16, 18], 1B1 [17, 19], its gradient [19, 21], 0B1 [21, 23].
        # Else 1F0 begins at 5, 1F1 at 10, 1B1 ends at 15, and 0B1 at 19.
        self.assertEqual(self.times(self.profile(), self.topology()), [23, 19])

    def test_a_ring_that_leaves_half_of_the_nic_is_not_slowed(self):
        # Four ranks on two servers of two, whose switch lets the ring have 1 GB/s where the NICs
        # would let it have 2: 2 * 3/4 * 4 MB take 6 ms, with half of the NIC. A rank has 1 GB/s of
        # it, so that transfers have the other half.
        #   0F0 [0, 7], its output 1 ms alone and 2 ms beside the all-reduce of 0F1: [7, 10].
        #   1F0 [10, 17], 1B0 [17, 19], 1F1 [19, 26], 1B1 [26, 28], its gradient [28, 30] alone, as
        #   both forwards of stage 0 are over; 0B1 [30, 32].
        profile = self.profile(tensor=4, reduced=4)
        topology = self.topology(devices=2, inside=1, nic=2)
        self.assertEqual(self.times(profile, topology, "tp=4,pp=2,dp=1,mbs=1"), [32, 31])

    def test_a_ring_of_two_servers_beside_transfers(self):
        # A hop of 4 MB passes each NIC for 4 ms, half of it beside one of two steps of 2 ms of a core,
        # which is the whole forward of 4 ms, and half of it behind, so that a forward takes 6 ms.
        #   0F0 [0, 6], and 0F1: what is hidden shares the NIC with 0F0's output, both [6, 10], with
        #   all of the core; the other half [10, 12].
        #   1F0 [10, 16] beside 0F1's output, [12, 14], as its hidden half is over at 12.
        #   1B0 [16, 18], and 1F1, whose hidden half shares the NIC with the gradient: both [18, 22],
        #   the other half [22, 24]. 0B0 [22, 24], 1B1 [24, 26], its gradient [26, 28], 0B1 [28, 30].
        # Else the gradient is there at 18, as stage 1 begins at 8: 1B1 ends at 24, and 0B1 at 28.
        profile = self.profile()
        for layer in profile["layers"]:
            layer["variants"] = [{
                "tensor_parallel": 1, "context_parallel": 2, "parameter_bytes": 0,
                "measurements": [{**sample(4, 2)[0], "forward_core_ns": 4 * MILLISECOND}],
                "forward_collectives": [{"kind": "send-receive", "over": "context",
                                         "bytes_per_sample": 4 * MEGABYTE,
                                         "beside": "forward_core"}]}]
        self.assertEqual(self.times(profile, self.topology(), "cp=2,pp=2,dp=1,mbs=1"), [30, 28])

    def test_sharded_state_of_two_servers_beside_transfers(self):
        # Half of a layer's 2 MB is gathered in 1 ms and its gradients are scattered in as long,
        # beside 3 ms of forward and 6 ms of backward. A data-parallel rank has one sample.
        #   0F0 [0, 3], its output beside the gather of 0F1: both 2 ms at half, 1 ms: [3, 6].
        #   1F0 [6, 9], 0F1's output beside its gather: [6, 9]. 1B0 [9, 15], 1F1 [15, 18], with the
        #   gradient beside its gather: [15, 18]. 0B0 [18, 24], 1B1 [18, 24].
        #   Its gradient [24, 26], 0B1 [26, 32]. Gathers and scatters are hidden all the while.
        profile = self.profile(batch=4, parameter_bytes=2 * MEGABYTE, measurements=sample(3, 6),
                               variants=[])
        for layer in profile["layers"]:
            del layer["variants"]
        plans = []
        for contention in ("on", "off"):
            self.done(*self.ground(profile, self.topology()), "--shard", "full", "--pin", "shards=2",
                      "--pin", "stages=2", "--pin", "depths=least", "--micro-batch", "2",
                      "--contention", contention, "-o", "plan.json")
            self.done("verify", "plan.json")
            plans.append(self.read("plan.json"))
        self.assertEqual([plan["predicted"]["iteration_ns"] / MILLISECOND for plan in plans], [32, 31])
        self.assertEqual([plan["request"].get("collectives") for plan in plans], ["shared", None])

    def test_ranks_on_two_servers_need_figures(self):
        none = {"kind": "all-reduce", "bytes_per_sample": 0}
        # Layers of their own, as the two here have one list of variants.
        stated, unstated = (json.loads(json.dumps(self.profile())) for _ in range(2))
        for layer in stated["layers"]:
            layer["variants"][0]["forward_collectives"] = [none]
        del unstated["layers"][1]["variants"][0]["forward_collectives"]
        unstated["layers"][1]["parameter_bytes"] = 2 * MEGABYTE
        unstated["layers"][1]["variants"][0]["parameter_bytes"] = MEGABYTE
        words = ("variant of layer layer1 states no collectives over 2 tensor-parallel ranks, which "
                 "would be on 2 servers")
        far, near = self.topology(), self.topology(servers=2, devices=2)
        # Where a request, a layout or a file demands such groups.
        for arguments in (("simulate", "--layout", LAYOUT), ("--pin", "tensor=2"),
                          ("--pin", "tensor=2", "--pin", "stages=2", "--per-stage"),
                          ("import", "plan", "--layout", LAYOUT, "-o", "plan.json")):
            run = self.run_tool(*arguments, *self.ground(unstated, far))
            self.assert_error(run, BAD_INPUT, words)
            self.done(*arguments, *self.ground(unstated, near))
            self.done(*arguments, *self.ground(stated, far))
        self.done("--pin", "tensor=2", *self.ground(stated, far), "-o", "plan.json")
        plan = self.read("plan.json")
        for layer in plan["model"]["profile"]["layers"]:
            del layer["variants"][0]["forward_collectives"]
        run = self.run_tool("validate", self.write("old.json", plan))
        plan["model"]["sha256"] = re.search("[0-9a-f]{64}", run.stderr).group()  # that is expected
        name = self.write("old.json", plan)
        for command in ("validate", "simulate", "verify"):
            self.assert_error(self.run_tool(command, name), BAD_INPUT, "/parallelism: ",
                              "states no collectives over 2 tensor-parallel ranks")
        # Plans that are free to have others have none, and say why.
        self.done(*self.ground(unstated, far), "-o", "free.json")
        free = self.read("free.json")
        self.assertNotIn("parallelism", free)
        self.assertIn(words, next(record["reason"] for record in free["parallelisms"]
                                  if record["parallelism"]["tensor"] == 2))
        self.assertNotIn("tensor 2", next((one["name"] + one["shape"] for one in free["baselines"]
                                           if one["name"] == "best-uniform"), ""))
        self.done("verify", "free.json")
        # Where no layer must have any, one has to state that there are none.
        for layer in unstated["layers"]:
            layer["variants"] = [{**layer["variants"][0], "tensor_parallel": 1,
                                  "context_parallel": 2, "parameter_bytes": layer["parameter_bytes"]}]
            layer["variants"][0].pop("forward_collectives", None)
        layout = ("simulate", "--layout", "cp=2,pp=2,dp=1,mbs=1")
        self.assert_error(self.run_tool(*layout, *self.ground(unstated, far)), BAD_INPUT,
                          "layer layer0 states no collectives over 2 context-parallel ranks")
        unstated["layers"][1]["variants"][0]["backward_collectives"] = [{**none, "over": "context"}]
        self.done(*layout, *self.ground(unstated, far))

    def planned(self, *more):
        self.done(*self.ground(self.profile(), self.topology()), "--pin", "stages=2", "--pin",
                  "tensor=2", "--micro-batch", "1", "-o", "plan.json", *more)
        return self.read("plan.json")

    def test_the_planner_chooses_by_it(self):
        # With two forwards before the first backward nothing passes beside an all-reduce but the
        # activations.
        plan = self.planned()
        self.assertLess(plan["predicted"]["iteration_ns"], 23 * MILLISECOND)
        self.assertEqual(plan["predicted"]["lower_bound_ns"], plan["predicted"]["iteration_ns"])
        self.done("verify", "plan.json")

    def older(self):
        """A plan as one of an older version: nothing competes in it but collectives, so that it takes
        as long as without contention. The depths are pinned, as GPipe is as fast in less memory, and
        fewer of its all-reduces compete with transfers."""
        plan = self.planned("--contention", "off", "--pin", "depths=least")
        for part in (plan["predicted"], plan["request"]):
            part["contention"] = "on"
        plan["warnings"] = [line for line in plan["warnings"] if "--contention off" not in line]
        return plan

    def test_a_file_of_an_older_version_is_as_it_was(self):
        self.write("old.json", self.older())
        self.done("validate", "old.json")
        self.done("verify", "old.json")
        self.assertIn("same figures as in the file", self.done("simulate", "old.json").stdout)
        shown = self.done("simulate", "old.json", "--contention", "on").stdout
        self.assertIn("iteration 19.00 ms there, 23.00 ms here", shown)

    def test_keys_that_contradict_each_other_are_refused(self):
        plan = self.planned()
        for change, message in (
                (("predicted", "contention", "off"),
                 '/predicted/collectives: expected none where contention is off, got "shared"'),
                (("request", "collectives", "fixed"),
                 '/request/collectives: expected "shared", got "fixed"')):
            wrong = copy.deepcopy(plan)
            wrong[change[0]][change[1]] = change[2]
            self.assert_error(self.run_tool("validate", self.write("wrong.json", wrong)), BAD_INPUT,
                              message)
        for part, message in (("request", 'expected "shared", as predicted, got none'),
                              ("predicted", 'expected none, as predicted, got "shared"')):
            wrong = copy.deepcopy(plan)
            del wrong[part]["collectives"]
            run = self.run_tool("verify", self.write("wrong.json", wrong))
            self.assertEqual(run.returncode, BAD_INPUT, run.stdout + run.stderr)
            if part == "request":
                self.assertIn(message, run.stdout + run.stderr)

    def random_ground(self, draws):
        """A few layers with collectives of any kind over groups of two servers, and six servers."""
        layers = draws.randint(2, 4)
        profile = self.profile(batch=draws.randint(2, 5))
        for i in range(layers):
            kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-receive")
            variant = {"tensor_parallel": 2, "parameter_bytes": draws.choice((0, MEGABYTE)),
                       "measurements": sample(draws.randint(0, 3), draws.randint(0, 4),
                                              draws.randint(0, 4))}
            for direction in ("forward", "backward"):
                if draws.random() < 0.7:
                    variant[f"{direction}_collectives"] = [
                        {"kind": draws.choice(kinds),
                         "bytes_per_sample": draws.randint(1, 4 * MEGABYTE)}]
                    hide(variant, direction, draws)
            if not any(key.endswith("collectives") for key in variant):
                variant["forward_collectives"] = [{"kind": "all-reduce", "bytes_per_sample": 0}]
            layer = {"name": f"layer{i}", "parameter_bytes": 2 * variant["parameter_bytes"],
                     "measurements": sample(4, 8, 4), "variants": [variant]}
            profile["layers"][i:] = [layer]
        topology = self.topology(servers=6)
        topology["servers"][0]["nics"][0]["latency"] = draws.choice(("0 ns", "70 us"))
        return layers, self.ground(profile, topology)

    def test_no_plan_is_below_the_bound_of_all(self):
        slower = 0
        for seed in range(12 * tool.SCALE):
            draws = random.Random(seed)
            layers, ground = self.random_ground(draws)
            options = (*ground, "--pin", "tensor=2", "--no-baselines",
                       *draws.choice(((), ("--replicas", "independent"), ("--schedule", "gpipe"))))
            self.done(*options, "-o", "plan.json")
            best = self.read("plan.json")["predicted"]
            self.done("verify", "plan.json")
            for stages in range(1, min(layers, 3) + 1):
                for size in (1, 2):
                    run = self.run_tool(*options, "--pin", f"stages={stages}", "--micro-batch", size,
                                        "-o", "part.json")
                    if run.returncode != DONE:
                        continue
                    part = self.read("part.json")["predicted"]
                    self.assertGreaterEqual(part["iteration_ns"], best["lower_bound_ns"], seed)
                    self.assertGreaterEqual(part["iteration_ns"], part["lower_bound_ns"], seed)
                    slower += part["iteration_ns"] > best["iteration_ns"]
        self.assertGreater(slower, 0)

    def test_groups_within_servers_have_no_such_key(self):
        profile = self.profile()
        self.done(*self.ground(profile, self.topology(2, 4)), "-o", "plan.json")
        plan = self.read("plan.json")
        self.assertNotIn("collectives", plan["predicted"])
        self.assertNotIn("collectives", plan["request"])


if __name__ == "__main__":
    tool.main()
