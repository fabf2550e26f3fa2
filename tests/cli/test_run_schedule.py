"""The reference interpreter of action lists: what the program writes runs, what is damaged does not."""

import json
import subprocess
import sys

import tool
from tool import DONE, ToolTest

INTERPRETER = tool.ROOT / "tools" / "run_schedule.py"


class Running(ToolTest):
    def plan(self):
        """Two stages of two replicas each, with reductions in several buckets."""
        profile = tool.small_profile()
        result = self.run_tool("--model", self.write("small.json", profile), "--topo",
                               self.write("2x2.json", tool.small_topology()), "--pin", "stages=2",
                               "--pin", "replicas=2", "--bucket-size", "1 MiB",
                               "--optimizer-step", "per-bucket", "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        return "plan.json"

    def schedule(self, plan):
        result = self.run_tool("schedule", plan, "--format", "json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        return json.loads(result.stdout)

    def interpret(self, *arguments):
        return subprocess.run([sys.executable, "-B", INTERPRETER, *arguments], cwd=self.folder,
                              capture_output=True, text=True, check=False, timeout=tool.SECONDS)

    def assert_refused(self, schedule, *parts):
        result = self.interpret(self.write("damaged.json", schedule))
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertTrue(result.stderr.startswith("error: damaged.json: "), result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)

    def find(self, schedule, kind, device=0):
        actions = schedule["devices"][device]["actions"]
        return next(action for action in actions if action["kind"] == kind)

    def test_schedules_of_all_families_run_to_their_end(self):
        plan = self.plan()
        for family in tool.FAMILIES:
            with self.subTest(family=family):
                made = self.run_tool("reschedule", plan, "--schedule", family, "-o", "other.json")
                self.assertEqual(made.returncode, DONE, made.stderr)
                self.write("schedule.json", self.schedule("other.json"))
                result = self.interpret("schedule.json")
                self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("run to their end", result.stdout)

    def test_the_golden_schedule_runs_to_its_end(self):
        result = self.interpret(tool.ROOT / "tests" / "golden" / "pair.schedule.json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_sizes_must_be_those_that_are_sent(self):
        schedule = self.schedule(self.plan())
        self.find(schedule, "receive_activation", -1)["peers"][0]["bytes"] += 1
        self.assert_refused(schedule, "mismatch at node", "RECV_F0: expected ", " bytes, node")

    def test_what_is_sent_must_be_received(self):
        schedule = self.schedule(self.plan())
        self.find(schedule, "receive_activation", -1)["peers"].clear()
        self.assert_refused(schedule, "mismatch: node", "never receives activation 0 of stage 0")

    def test_a_receive_that_nobody_sends_is_a_deadlock(self):
        schedule = self.schedule(self.plan())
        self.find(schedule, "send_activation")["peers"].clear()
        self.assert_refused(schedule, "deadlock: ", " at 1RECV_F0 from ")

    def test_receives_in_a_circle_are_a_deadlock(self):
        schedule = self.schedule(self.plan())
        for entry in schedule["devices"]:
            if entry["stage"] == 0:
                actions = entry["actions"]
                first = next(a for a in actions if a["kind"] == "receive_gradient")
                actions.remove(first)
                actions.insert(0, first)
        self.assert_refused(schedule, "deadlock: ", " at 0RECV_B0 from ", " at 1RECV_F0 from ")

    def test_reductions_need_the_same_bytes_and_devices_everywhere(self):
        schedule = self.schedule(self.plan())
        self.find(schedule, "all_reduce")["bytes"] += 4
        self.assert_refused(schedule, "mismatch at node", "REDUCE_GRAD0: expected a peer's bytes and devices, [")
        schedule = self.schedule("plan.json")
        self.find(schedule, "all_reduce")["peers"].clear()
        self.assert_refused(schedule, "mismatch at node", "REDUCE_GRAD0: expected a peer's bytes and devices, [")

    def test_reductions_in_different_orders_are_a_deadlock(self):
        schedule = self.schedule(self.plan())
        actions = schedule["devices"][0]["actions"]
        first, second = [i for i, a in enumerate(actions) if a["kind"] == "all_reduce"][:2]
        actions[first], actions[second] = actions[second], actions[first]
        self.assert_refused(schedule, "deadlock: ", " in 0REDUCE_GRAD1", " in 0REDUCE_GRAD0")

    def test_computations_need_what_comes_before(self):
        schedule = self.schedule(self.plan())
        actions = schedule["devices"][0]["actions"]
        actions.remove(self.find(schedule, "forward"))
        self.assert_refused(schedule, "mismatch at ", "action 0, 0SEND_F0: expected the forward that makes it before it")
        schedule = self.schedule("plan.json")
        actions = schedule["devices"][-1]["actions"]
        actions.remove(self.find(schedule, "receive_activation", -1))
        self.assert_refused(schedule, "1F0: expected its receive_activation before it")
        schedule = self.schedule("plan.json")
        actions = schedule["devices"][0]["actions"]
        actions.insert(0, self.find(schedule, "forward"))
        self.assert_refused(schedule, "action 1, 0F0: expected once, has been done before")

    def test_every_micro_batch_must_be_there_and_no_other(self):
        schedule = self.schedule(self.plan())
        schedule["num_micro_batches"] += 1
        self.assert_refused(schedule, "mismatch: stage 0 lacks the forward of micro-batch ")
        schedule["num_micro_batches"] = 1
        self.assert_refused(schedule, "F1: expected micro-batches below 1")

    def test_what_is_no_schedule_is_refused(self):
        self.assert_refused("{", "line 1")
        self.assert_refused("[" * 100000, "no schedule, RecursionError")
        self.assert_refused({}, "expected a dapple-schedule/1, of dapple-plan schedule --format json")
        schema = {"schema": "dapple-schedule/1"}
        self.assert_refused(schema, "no schedule, KeyError('devices')")
        self.assert_refused({**schema, "devices": [7]}, "no schedule, TypeError(")
        self.assertEqual(self.interpret("none.json").returncode, 3)
        usage = self.interpret()
        self.assertEqual(usage.returncode, 2)
        self.assertIn("tools/run_schedule.py SCHEDULE.json", usage.stderr)


if __name__ == "__main__":
    tool.main()
