"""Whole micro-batches dealt to replicas in turn, with their arithmetic."""

import re

import tool
from tool import BAD_INPUT, DONE, INFEASIBLE, USAGE, ToolTest

MILLISECOND = 10**6  # nanoseconds
MEGABYTE = 10**6


def layer(name, forward, stash):
    """A layer that takes as long for one sample as for two, and twice as long backward."""
    return {"name": name, "parameter_bytes": 400 * MEGABYTE,
            "measurements": [{"batch_size": 2, "forward_ns": forward * MILLISECOND,
                              "backward_ns": 2 * forward * MILLISECOND, "output_bytes": 0,
                              "stash_bytes": 2 * stash * MEGABYTE}]}


def profile(stash=300):
    return {"schema": "dapple-profile/1", "name": "made", "source": "made up",
            "global_batch_size": 8, "device": "gpu", "batch_scaling": "floor",
            "optimizer": {"name": "sgd", "state_bytes_per_parameter_byte": 0},
            "layers": [layer("a", 4, 0), layer("b", 2, stash)]}


def topology(devices=3, memory=1500 * MEGABYTE):
    link = {"bandwidth": "1 TB/s", "latency": "0 ns", "source": "made up"}
    return {"schema": "dapple-topology/1", "name": "made", "source": "made up",
            "devices": {"gpu": {"memory": f"{memory} B", "reserved": "0 B"}},
            "servers": [{"name": "s", "count": 1, "device": "gpu", "devices": devices,
                         "nics": [link], "links": {"kind": "switch", **link}}],
            "network": {"kind": "switch", **link}}


class Deal(ToolTest):
    def run_dealt(self, *more, cluster=None):
        return self.run_plan(profile(), cluster or topology(), *more)

    def planned(self, *more, cluster=None):
        return self.verified_plan(profile(), cluster or topology(), *more)

    def test_micro_batches_are_dealt_where_neither_halves_nor_large_ones_will_do(self):
        # The 400 MB of parameters of a layer and as many of gradients leave no room for both layers
        # on one of the devices of 1.5 GB, nor for the stash of four samples of layer b. Of
        # micro-batches of two samples, layer a takes 4 + 8 ms, and as long for one sample, so that
        # nothing is gained if two devices share them: 4 micro-batches take 48 ms. Dealt to two
        # devices, micro-batches follow each other through layer b, which takes 2 + 4 ms: the last of
        # the four has gone back through it at 4 + 4 * 6 ms, and then has 8 ms of layer a. The
        # all-reduce of 400 MB over two devices takes 0.4 ms.
        split = self.planned()
        self.assertEqual(split["predicted"]["iteration_ns"], 48 * MILLISECOND)
        self.assertNotIn("replication", split["request"])
        dealt = self.planned("--deal")
        self.assertEqual(dealt["stages"][0]["replication"], "deal")
        self.assertEqual(dealt["request"]["replication"], "auto")
        self.assertIn("micro-batches: shared by replicas, or dealt to them in turn",
                      dealt["search_space"]["searched"])
        iteration = 36 * MILLISECOND + 400_000
        self.assertEqual(dealt["predicted"]["iteration_ns"], iteration)
        self.assertEqual(dealt["predicted"]["lower_bound_ns"], iteration)
        for options in (("--pin", "replicas=1"), ("--jitter", "5%"),
                        ("--pin", "stages=1", "--unlimited-memory")):
            with self.subTest(options=options):
                pinned = self.planned("--deal", *options)
                self.assertGreaterEqual(pinned["predicted"]["iteration_ns"],
                                        pinned["predicted"]["lower_bound_ns"])

    def test_gpipe_deals_too(self):
        # Nothing can be shared of a micro-batch of one sample. Of eight of them, which take 6 + 12 ms
        # each through both layers, one of three replicas has three. GPipe's depth is that of all.
        plan = self.planned("--schedule", "gpipe", "--deal", "--unlimited-memory",
                            "--micro-batch", "1", "--pin", "stages=1")
        self.assertEqual(plan["stages"][0]["replication"], "deal")
        self.assertGreaterEqual(plan["predicted"]["iteration_ns"], 54 * MILLISECOND)
        self.assertEqual(plan["predicted"]["lower_bound_ns"], plan["predicted"]["iteration_ns"])
        self.assertEqual(plan["schedule"]["warmup_depths"], [8])

    def test_a_pinned_number_of_replicas_may_exceed_the_samples_of_a_micro_batch(self):
        options = ("--micro-batch", "1", "--pin", "replicas=3", "--unlimited-memory")
        self.assertNotEqual(self.run_dealt(*options).returncode, DONE)
        plan = self.planned(*options, "--deal")
        self.assertEqual(plan["stages"][0]["replication"], "deal")

    def test_false_claims_are_refused(self):
        plan = self.planned("--deal")
        for change, place in [
                (lambda file: file["request"].pop("replication"), "/request/replication"),
                (lambda file: file["predicted"].update(
                    lower_bound_ns=plan["predicted"]["iteration_ns"] + 1),
                 "/predicted/lower_bound_ns")]:
            with self.subTest(place=place):
                changed = self.read("plan.json")
                change(changed)
                run = self.run_tool("verify", self.write("changed.json", changed))
                self.assertEqual(run.returncode, BAD_INPUT, run.stdout)
                self.assertIn(place, run.stdout + run.stderr)
        # A plan that shares every micro-batch is not the fastest of those that may deal them.
        split = self.planned()
        split["request"]["replication"] = "auto"
        split["search_space"]["searched"] = plan["search_space"]["searched"]
        run = self.run_tool("verify", self.write("changed.json", split))
        self.assertEqual(run.returncode, BAD_INPUT, run.stdout)
        self.assertIn("expected at most", run.stdout + run.stderr)

    def test_options_beside_which_none_deals_are_refused(self):
        for options, expected in [
                (("--schedule", "zb-h1"), "needs --schedule 1f1b or gpipe"),
                (("--schedule", "auto"), "needs --schedule 1f1b or gpipe"),
                (("--replicas", "independent"), "needs --replicas together"),
                (("--planner", "dapple"), "needs --planner exact"),
                (("--runtime", "deepspeed"), "needs transfers that overlap with computation"),
                (("--pin", "depths=least"), "got depths=least"),
                (("--for", "torch-csv"), "cannot be used with --for"),
                (("--proof", "p.json"), "cannot be used with --proof"),
                (("--orders",), "cannot be used with --orders"),
                (("--alternatives", "2"), "cannot be used with --alternatives")]:
            with self.subTest(options=options):
                run = self.run_dealt("--deal", *options)
                self.assertEqual(run.returncode, USAGE, run.stdout + run.stderr)
                self.assertIn(expected, run.stderr)

    def test_a_form_is_closed_only_by_a_bound_that_holds_for_dealt_micro_batches(self):
        # A sample takes 0.3 ms on one device: four take 1.2 ms and, dealt to four devices, 0.3 ms and
        # an all-reduce of 1 MB, which takes 2 * 3 / 4 * 1 MB / 1 TB/s = 1.5 us. Two tensor-parallel
        # devices take 0.285 ms, so that two such groups are no faster.
        def measured(forward, backward):
            return [{"batch_size": 1, "forward_ns": forward, "backward_ns": backward,
                     "output_bytes": 0, "stash_bytes": 0}]
        model = profile()
        model["global_batch_size"] = 4
        model["layers"] = [{"name": "a", "parameter_bytes": MEGABYTE,
                            "measurements": measured(100_000, 200_000),
                            "variants": [{"tensor_parallel": 2, "parameter_bytes": MEGABYTE // 2,
                                          "measurements": measured(95_000, 190_000)}]}]
        run = self.run_tool("--model", self.write("m.json", model), "--topo",
                            self.write("t.json", topology(devices=4)), "-o", "plan.json", "--deal",
                            "--micro-batch", "1")
        self.assertEqual(run.returncode, DONE, run.stderr)
        plan = self.read("plan.json")
        self.assertEqual(plan["predicted"]["iteration_ns"], 301_500)
        self.assertEqual(plan["predicted"]["lower_bound_ns"], 301_500)
        self.assertEqual(self.run_tool("verify", "plan.json").returncode, DONE)

    def test_under_gpipe_a_plan_may_fit_only_if_micro_batches_are_dealt(self):
        # GPipe holds the stash of all eight samples, 300 MB each, beside 1.6 GB of both layers: 4.0 GB.
        # Of three replicas none has more than three of eight micro-batches, and holds 2.5 GB and a
        # bucket of 800 MB.
        cluster = topology(memory=3800 * MEGABYTE)
        options = ("--schedule", "gpipe", "--micro-batch", "1", "--pin", "stages=1", "--pin",
                   "recompute=off")
        self.assertEqual(self.run_dealt(*options, cluster=cluster).returncode, INFEASIBLE)
        plan = self.planned(*options, "--deal", cluster=cluster)
        self.assertEqual(plan["stages"][0]["replication"], "deal")

    def test_depths_with_which_stages_wait_for_ever_are_refused(self):
        plan = self.planned("--deal")
        # The second stage runs four forwards before its first backward, of which the two replicas of
        # the first one send two at a depth of one.
        plan["schedule"]["warmup_depths"] = [1, 4]
        run = self.run_tool("verify", self.write("changed.json", plan))
        plan["schedule"]["digest"] = re.search(r"/schedule/digest.* generates, (\w+)", run.stderr)[1]
        for command in ("simulate", "verify", "report"):
            with self.subTest(command=command):
                more = ("-o", "report.html") if command == "report" else ()
                run = self.run_tool(command, self.write("changed.json", plan), *more)
                self.assertEqual(run.returncode, BAD_INPUT, run.stdout + run.stderr)
                self.assertIn("deadlock: stage 0", run.stderr + run.stdout)

    def test_depths_are_of_the_micro_batches_of_a_replica(self):
        # Of four micro-batches each of two replicas has two: files may say three, and mean no more.
        plan = self.planned("--deal")
        self.assertEqual(plan["num_micro_batches"], 4)
        self.assertEqual(len(plan["stages"][0]["devices"]), 2)
        plan["schedule"]["warmup_depths"][0] = 3
        for command in ("simulate", "validate"):
            with self.subTest(command=command):
                run = self.run_tool(command, self.write("changed.json", plan))
                self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        self.run_tool("report", "changed.json", "-o", "report.html")
        self.assertRegex((self.folder / "report.html").read_text(), r'"depth":2[,}]')
        # Under GPipe a file has the depth of all eight, and each of three replicas three at most.
        run = self.run_dealt("--schedule", "gpipe", "--deal", "--unlimited-memory", "--micro-batch",
                            "1", "--pin", "stages=1")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.read("plan.json")["schedule"]["warmup_depths"], [8])
        row = next(line for line in run.stdout.splitlines() if line.startswith("    0  "))
        self.assertRegex(row, r" 3  +\d+\.\d+ (of|GiB)")
        self.run_tool("report", "plan.json", "-o", "report.html")
        self.assertRegex((self.folder / "report.html").read_text(), r'"depth":3[,}]')

    def test_where_not_all_placements_are_tried_the_bound_is_of_the_work(self):
        cluster = topology(devices=8)
        cluster["servers"][0]["count"] = 8
        plan = self.planned("--deal", "--unlimited-memory", cluster=cluster)
        self.assertTrue(any(line.startswith("micro-batches dealt to replicas in turn")
                            for line in plan["search_space"]["cut"]))
        self.assertFalse(plan["search_space"]["complete"])


if __name__ == "__main__":
    tool.main()
