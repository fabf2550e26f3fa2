"""Tensors that skip stages, handed on or sent straight, with their arithmetic."""

import os

import tool
from tool import BAD_INPUT, DONE, USAGE, ToolTest

MILLISECOND = 10**6  # nanoseconds
MEGABYTE = 10**6


def layer(name, output, inputs, forward=1, backward=2):
    """A layer with too many parameters for two of them on one device."""
    return {"name": name, "parameter_bytes": 400 * MEGABYTE, "inputs": inputs,
            "measurements": [{"batch_size": 1, "forward_ns": forward * MILLISECOND,
                              "backward_ns": backward * MILLISECOND, "output_bytes": output,
                              "stash_bytes": 0}]}


def profile():
    """Layer c consumes what layer a makes, and nothing of size that layer b makes."""
    return {"schema": "dapple-profile/1", "name": "made", "source": "made up",
            "global_batch_size": 1, "device": "gpu", "batch_scaling": "proportional",
            "optimizer": {"name": "sgd", "state_bytes_per_parameter_byte": 0},
            "layers": [layer("a", MEGABYTE, []), layer("b", 0, ["a"]), layer("c", 0, ["a", "b"])]}


def topology(memory=1000 * MEGABYTE, servers=3):
    """Servers of one device; a megabyte takes a millisecond from one to another."""
    link = {"bandwidth": "1 GB/s", "latency": "0 ns", "source": "made up"}
    wide = {"bandwidth": "1 TB/s", "latency": "0 ns", "source": "made up"}
    return {"schema": "dapple-topology/1", "name": "made", "source": "made up",
            "devices": {"gpu": {"memory": f"{memory} B", "reserved": "0 B"}},
            "servers": [{"name": "s", "count": servers, "device": "gpu", "devices": 1,
                         "nics": [link], "links": {"kind": "switch", **wide}}],
            "network": {"kind": "switch", **wide}}


class SkipTensors(ToolTest):
    def test_direct_tensors_arrive_beside_the_stage_between(self):
        # Forwards take 1 ms, backwards 2 ms, and the megabyte 1 ms from a server to another. Handed
        # on it passes two boundaries and so does its gradient: 3 + 6 + 2 + 2 ms. Sent straight it
        # reaches c while b computes, and only a waits for gradients that take time, the last of
        # them that of b's input: a, 1 ms to b, b, c, and back c, b, 1 ms to a, a. Where links are
        # shared, the NIC of a sends the megabyte twice in 2 ms.
        for options, forwarded, direct in [(("--contention", "off"), 13, 11), ((), 13, 12)]:
            with self.subTest(options=options):
                plan = self.verified_plan(profile(), topology(), *options)
                self.assertEqual(plan["predicted"]["iteration_ns"], forwarded * MILLISECOND)
                self.assertNotIn("skip_tensors", plan)
                plan = self.verified_plan(profile(), topology(), *options, "--skip-tensors",
                                          "direct")
                self.assertEqual(plan["predicted"]["iteration_ns"], direct * MILLISECOND)
                self.assertEqual(plan["predicted"]["lower_bound_ns"], direct * MILLISECOND)
                self.assertEqual(plan["skip_tensors"], "direct")
                self.assertEqual([stage["costs"]["send_bytes"] for stage in plan["stages"]],
                                 [2 * MEGABYTE, 0, 0])

    def test_memory_counts_what_is_received(self):
        # 400 MB of parameters and as many of gradients. Each boundary has four buffers, two in
        # either direction: forwarded, b has them at both of its sides, and straight only in front.
        used = {}
        for way in ("forwarded", "direct"):
            plan = self.verified_plan(profile(), topology(), "--skip-tensors", way,
                                      "--contention", "off")
            used[way] = [(device["peak_memory_bytes"] - 800 * MEGABYTE) // MEGABYTE
                         for device in plan["predicted"]["devices"]]
        self.assertEqual(used["forwarded"], [4, 8, 4])
        self.assertEqual(used["direct"], [8, 4, 4])
        # On less than a needs with direct tensors no plan has room for them.
        tight = topology(806 * MEGABYTE)
        self.assertNotEqual(self.run_plan(profile(), tight).returncode, DONE)
        self.assertNotEqual(self.run_plan(profile(), tight, "--skip-tensors", "direct").returncode,
                            DONE)
        self.verified_plan(profile(), topology(808 * MEGABYTE), "--skip-tensors", "direct")

    def test_what_is_shown(self):
        self.verified_plan(profile(), topology())
        self.write("forwarded.json", self.read("plan.json"))
        run = self.run_plan(profile(), topology(), "--skip-tensors", "direct")
        self.assertIn(", direct skip tensors", run.stdout)
        # The bound is not one of plans whose tensors are handed on.
        self.assertIn("none allowed below", run.stdout)
        run = self.run_tool("diff", "forwarded.json", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertRegex(run.stdout, r"skip tensors +forwarded +direct")
        run = self.run_tool("simulate", "plan.json", "--json")
        self.assertIn(f'"iteration_ns": {12 * MILLISECOND}', run.stdout)
        self.assertEqual(self.run_tool("report", "plan.json", "-o", "page.html").returncode, DONE)
        with open(os.path.join(self.folder, "page.html"), encoding="utf-8") as page:
            self.assertIn("direct skip tensors", page.read())

    def test_what_arrived_early_is_no_cause(self):
        # Layer a's 10 MB take 10 ms to layer d, and its kilobyte next to nothing to layers b and c.
        # Forwards of 1, 5, 10 and 1 ms follow each other, and then the gradient of the 10 MB goes
        # straight back: 17 of 27 ms are forwards, and what a sends decides nothing.
        model = profile()
        model["layers"] = [layer("a", 10 * MEGABYTE, [], backward=0),
                           layer("b", 0, ["a"], forward=5, backward=0),
                           layer("c", 0, ["b"], forward=10, backward=0),
                           layer("d", 0, ["a", "c"], backward=0)]
        model["layers"].insert(1, {**layer("small", 0, ["a"], forward=0, backward=0),
                                   "parameter_bytes": 0})
        model["layers"][2]["inputs"] = ["small"]
        model["layers"][3]["inputs"] = ["small", "b"]
        run = self.run_plan(model, topology(servers=4), "--skip-tensors", "direct", "--contention",
                            "off", "--trace", "trace.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool("simulate", "plan.json", "-v", "--timeline", "timeline.json")
        self.assertIn("Critical path  forward 63.0 %, gradients 37.0 %", run.stdout)
        self.assertEqual(self.read("timeline.json")["skips"], [[0, 2], [0, 3]])
        run = self.run_tool("diff", "plan.json", "timeline.json")
        self.assertRegex(run.stdout, r"waiting between actions +0 ms +0 ms +same")
        arrows = {"s": [], "f": []}
        for event in self.read("trace.json")["traceEvents"]:
            if event["ph"] in arrows:
                arrows[event["ph"]].append(event["id"])
        self.assertEqual(sorted(arrows["s"]), sorted(arrows["f"]))
        self.assertEqual(len(set(arrows["s"])), len(arrows["s"]))
        for skips in ([[0, 1]], [[0]], [0, 2], [["0", 2]], 3):
            timeline = {**self.read("timeline.json"), "skips": skips}
            run = self.run_tool("diff", "plan.json", self.write("bad.json", timeline))
            self.assertEqual(run.returncode, BAD_INPUT, run.stdout)
            self.assertIn("/skips", run.stderr)

    def test_other_ways_are_false_or_refused(self):
        plan = self.verified_plan(profile(), topology(), "--skip-tensors", "direct")
        del plan["skip_tensors"]
        run = self.run_tool("verify", self.write("changed.json", plan))
        self.assertEqual(run.returncode, BAD_INPUT, run.stdout)
        plan["skip_tensors"] = "straight"
        run = self.run_tool("validate", self.write("changed.json", plan))
        self.assertEqual(run.returncode, BAD_INPUT, run.stdout)
        self.assertIn("/skip_tensors", run.stdout + run.stderr)
        for command in (("export", "plan.json", "--to", "megatron"),
                        ("reschedule", "plan.json", "--schedule", "zb-h1")):
            with self.subTest(command=command):
                run = self.run_tool(*command)
                self.assertEqual(run.returncode, BAD_INPUT, run.stdout)
                self.assertIn("/skip_tensors", run.stdout + run.stderr)
                self.assertIn("expected forwarded", run.stdout + run.stderr)

    def test_options_that_exclude_direct_tensors_are_refused(self):
        for options, expected in [
                (("--schedule", "zb-h1"), "needs --schedule 1f1b or gpipe"),
                (("--schedule", "auto"), "needs --schedule 1f1b or gpipe"),
                (("--runtime", "deepspeed"), "needs transfers that overlap with computation"),
                (("--for", "torch-csv"), "cannot be used with --for"),
                (("--deal",), "cannot be used with --deal"),
                (("--per-stage",), "cannot be used with --per-stage"),
                (("--proof", "p.json"), "cannot be used with --proof"),
                (("--orders",), "cannot be used with --orders")]:
            with self.subTest(options=options):
                run = self.run_plan(profile(), topology(), "--skip-tensors", "direct", *options)
                self.assertEqual(run.returncode, USAGE, run.stdout)
                self.assertIn("--skip-tensors", run.stderr)
                self.assertIn(expected, run.stderr)


if __name__ == "__main__":
    tool.main()
