"""A trace is what Perfetto takes without complaint: strict rules, checked on whole plans."""

import collections
import json
import math

import tool
from tool import DONE, ToolTest

KEYS = {
    "M": {"ph", "name", "pid", "args"},
    "X": {"ph", "name", "cat", "ts", "dur", "pid", "tid", "args"},
    "C": {"ph", "name", "ts", "pid", "args"},
    "s": {"ph", "id", "name", "cat", "ts", "pid", "tid"},
    "f": {"ph", "bp", "id", "name", "cat", "ts", "pid", "tid"},
}


def nanoseconds(microseconds):
    return round(microseconds * 1000)


class Trace(ToolTest):
    def trace_of(self, plan):
        result = self.run_tool("simulate", plan, "--trace", "trace.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        text = (self.folder / "trace.json").read_text()
        document = json.loads(text, parse_constant=self.fail)
        self.assertEqual(set(document), {"displayTimeUnit", "traceEvents"})
        return document["traceEvents"]

    def check(self, events):
        """All the rules; events of each phase."""
        phases = collections.defaultdict(list)
        for position, event in enumerate(events):
            keys = KEYS[event["ph"]]
            if event["name"] == "thread_name":
                keys = keys | {"tid"}
            self.assertEqual(set(event), keys)
            for key in ("ts", "dur"):
                if key in event:
                    self.assertTrue(math.isfinite(event[key]) and event[key] >= 0, event)
            phases[event["ph"]].append({**event, "position": position})
        self.check_names(phases)
        self.check_slices(phases["X"])
        self.check_counters(phases["C"])
        self.check_arrows(phases)
        return phases

    def check_names(self, phases):
        """Each process and thread has one name, and no event is on one without."""
        threads = [(event["pid"], event["tid"]) for event in phases["M"]
                   if event["name"] == "thread_name"]
        processes = [event["pid"] for event in phases["M"] if event["name"] == "process_name"]
        self.assertEqual(len(threads) + len(processes), len(phases["M"]))
        self.assertEqual(len(set(threads)), len(threads))
        self.assertEqual(len(set(processes)), len(processes))
        self.assertNotIn(0, {number for thread in threads for number in thread})
        for phase in "Xsf":
            for event in phases[phase]:
                self.assertIn((event["pid"], event["tid"]), threads)
        for event in phases["C"]:
            self.assertIn(event["pid"], processes)

    def check_slices(self, slices):
        """Slices of a track follow each other; they do not even nest."""
        ends = {}
        for event in slices:
            track = event["pid"], event["tid"]
            start = nanoseconds(event["ts"])
            self.assertGreaterEqual(start, ends.get(track, 0), event)
            ends[track] = start + nanoseconds(event["dur"])

    def check_counters(self, counters):
        last = {}
        for event in counters:
            self.assertEqual(set(event["args"]), {"bytes"})
            self.assertIsInstance(event["args"]["bytes"], int)
            self.assertGreaterEqual(event["ts"], last.get(event["name"], 0))
            last[event["name"]] = event["ts"]

    def check_arrows(self, phases):
        """Each has one start and one end, at the start of slices that stand before them."""
        slices = {(event["pid"], event["tid"], event["ts"], event["position"])
                  for event in phases["X"]}
        starts = {event["id"]: event for event in phases["s"]}
        ends = {event["id"]: event for event in phases["f"]}
        self.assertEqual(len(starts), len(phases["s"]))
        self.assertEqual(len(ends), len(phases["f"]))
        self.assertEqual(set(starts), set(ends))
        by_moment = collections.defaultdict(list)
        for pid, tid, moment, position in slices:
            by_moment[pid, tid, moment].append(position)
        for number, start in starts.items():
            end = ends[number]
            self.assertEqual((start["name"], start["cat"]), (end["name"], end["cat"]))
            self.assertLessEqual(start["ts"], end["ts"])
            self.assertEqual(end["bp"], "e")
            for event in (start, end):
                positions = by_moment[event["pid"], event["tid"], event["ts"]]
                self.assertTrue(positions, event)
                self.assertLess(min(positions), event["position"])

    def test_a_plan_of_several_stages(self):
        phases = self.check(self.trace_of(self.make_deep_plan()))
        names = {event["args"]["name"] for event in phases["M"]}
        self.assertTrue(any(name.endswith("send forward") for name in names))
        plan = self.read("plan.json")
        # An arrow for each micro-batch over each boundary, both ways, if stages have one device.
        if all(len(stage["devices"]) == 1 for stage in plan["stages"]):
            self.assertEqual(len(phases["s"]),
                             2 * plan["num_micro_batches"] * (len(plan["stages"]) - 1))

    def test_messages_that_overlap_by_their_latency_are_on_tracks_of_their_own(self):
        topology = tool.small_topology(memory="1 GiB")
        # A forward takes 1 ms: with 5 ms of latency several messages are on their way.
        topology["servers"][0]["nics"][0]["latency"] = "5 ms"
        topology["servers"][0]["links"]["latency"] = "5 ms"
        profile = tool.small_profile(global_batch_size=32)
        profile["layers"][0]["parameter_bytes"] = 80 << 20
        result = self.run_tool("--model", self.write("m.json", profile), "--topo",
                               self.write("t.json", topology), "--micro-batch", "4", "--pin",
                               "stages=4", "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        phases = self.check(self.trace_of("plan.json"))
        names = {event["args"]["name"] for event in phases["M"]}
        self.assertTrue(any(name.endswith("send forward 2") for name in names), names)

    def test_a_plan_whose_stages_have_replicas_and_reduce_gradients(self):
        result = self.run_tool("--model", tool.ROOT / "profiles" / "bert-48.json", "--topo",
                               tool.ROOT / "topologies" / "2x8xV100.json", "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        phases = self.check(self.trace_of("plan.json"))
        categories = {event["cat"] for event in phases["X"]}
        self.assertEqual(categories, {"compute", "transfer", "collective"})


if __name__ == "__main__":
    tool.main()
