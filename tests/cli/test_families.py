"""Every family of schedules on one to four stages, with equal and unequal numbers of replicas, with
and without recomputation: gradients and losses beside those of one device, on threads and on
ranks of MPI. Which of all combinations a run tries is drawn by a seed; DAPPLE_TEST_SCALE=10 is all."""

import itertools
import random
import re
import shutil
import unittest

import tool
from tool import ARGUMENTS, DONE, ROOT, SCALE, ToolTest
from trainable import cores, perceptron

LAUNCHER = ROOT / "tests" / "exec" / "run_mpi"
REPLICAS = ((1,), (2,), (3,), (1, 1), (3, 1), (1, 2), (2, 2), (1, 1, 1), (2, 1, 3), (1, 3, 1),
            (1, 1, 1, 1), (1, 2, 1, 3))
LAYERS = 8  # and the loss: two stages on each of four devices


class Families(ToolTest):
    def setUp(self):
        super().setUp()
        self.binary = ARGUMENTS.executor
        profile = perceptron(global_batch_size=24)
        profile["layers"][0]["repeat"] = LAYERS
        self.write("profile.json", profile)

    def plan(self, family, replicas, recomputes):
        """The plan of that family in plan.json."""
        stages = len(replicas)
        ranks = iter(range(sum(replicas)))
        self.write("conf.json", {
            "module_to_stage_map": [layer * stages // (LAYERS + 1) for layer in range(LAYERS + 1)],
            "stage_to_rank_map": {str(stage): list(itertools.islice(ranks, count))
                                  for stage, count in enumerate(replicas)}})
        self.write("topology.json", cores(sum(replicas), "1 GB/s"))
        # As many micro-batches as the looped families take: a multiple of the stages.
        result = self.run_tool("import", "plan", "conf.json", "--model", "profile.json", "--topo",
                               "topology.json", "--micro-batch", 4 if stages == 3 else 6,
                               "--replication", "split", "-o", "imported.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        plan = self.read("imported.json")
        for stage in plan["stages"]:
            stage["recompute"] = recomputes
        orders = ("--orders", 200) if family.startswith("zb-") or family == "list-scheduled" else ()
        result = self.run_tool("reschedule", self.write("changed.json", plan), "--schedule", family,
                               *orders, "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        plan = self.read("plan.json")
        self.assertEqual({stage["recompute"] for stage in plan["stages"]}, {recomputes})
        return plan

    def check(self, plan, ranks):
        """Verifies two steps on that many ranks, or on threads."""
        arguments = ("train", "--plan", "plan.json", "--steps", 2, "--verify")
        if ranks:
            result = self.run_tool(ranks, self.binary, *arguments, binary=LAUNCHER)
        else:
            result = self.run_tool(*arguments, binary=self.binary)
        self.assertEqual(result.returncode, DONE, result.stdout + result.stderr)
        self.assertIn("verified:  it is", result.stdout)
        # With one replica a stage the same sums are made in the same order.
        if all(len(stage["devices"]) == 1 for stage in plan["stages"]):
            self.assertIn("of 16 tensors do not differ", result.stdout)

    def test_each_trains_as_one_device_does(self):
        every = list(itertools.product(tool.FAMILIES, REPLICAS, (False, True)))
        random.Random(3711).shuffle(every)
        if SCALE < 10:
            every = every[:(8 if ARGUMENTS.sanitized else 24) * SCALE]
        for family, replicas, recomputes in every:
            with self.subTest(family=family, replicas=replicas, recomputes=recomputes):
                plan = self.plan(family, replicas, recomputes)
                self.check(plan, 0)
                if shutil.which("mpirun"):
                    self.check(plan, sum(replicas))


if __name__ == "__main__":
    tool.main()
