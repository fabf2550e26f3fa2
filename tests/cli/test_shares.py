"""Shares by speed on devices of several kinds, with their arithmetic."""

import tool
from tool import BAD_INPUT, DONE, INFEASIBLE, ToolTest

MILLISECOND = 10**6  # nanoseconds
MEBIBYTE = 1 << 20


def profile(batch=4, layers=1, parameters=0, stash=0):
    """Layers that take 1 ms forward and 2 ms backward a sample."""
    measured = {"batch_size": 1, "forward_ns": MILLISECOND, "backward_ns": 2 * MILLISECOND,
                "output_bytes": 0, "stash_bytes": stash}
    return {"schema": "dapple-profile/1", "name": "made", "source": "made up",
            "global_batch_size": batch, "device": "fast", "batch_scaling": "proportional",
            "optimizer": {"name": "sgd", "state_bytes_per_parameter_byte": 0},
            "layers": [{"name": f"layer{i}", "parameter_bytes": parameters,
                        "measurements": [measured]} for i in range(layers)]}


def topology(slowness=3, memory=(1 << 30, 1 << 30)):
    """A server with a fast device and one with a slow device."""
    link = {"bandwidth": "1 GB/s", "latency": "0 ns", "source": "made up"}
    servers = [{"name": kind, "count": 1, "device": kind, "devices": 1, "nics": [link],
                "links": {"kind": "switch", **link}} for kind in ("fast", "slow")]
    return {"schema": "dapple-topology/1", "name": "made", "source": "made up",
            "devices": {"fast": {"memory": f"{memory[0]} B", "reserved": "0 B"},
                        "slow": {"memory": f"{memory[1]} B", "reserved": "0 B",
                                 "time_scale": {"fast": slowness}}},
            "servers": servers, "network": {"kind": "switch", **link}}


class Shares(ToolTest):
    def assert_iteration(self, plan, iteration):
        self.assertEqual(plan["predicted"]["iteration_ns"], iteration)
        self.assertEqual(plan["predicted"]["lower_bound_ns"], iteration)

    def test_the_slow_device_has_fewer_samples(self):
        # Four samples of 3 ms, or of 9 ms on the slow device: three and one take 9 ms on both. Two
        # each would take 18 ms, and the fast device alone 12 ms.
        plan = self.verified_plan(profile(), topology())
        self.assertEqual(plan["stages"][0]["samples"], [3, 1])
        self.assertEqual(plan["request"]["shares"], "auto")
        self.assert_iteration(plan, 9 * MILLISECOND)
        shown = self.run_tool("simulate", "plan.json").stdout
        self.assertRegex(shown, r"fast0:0, slow0:0 +3, 1 ")
        self.assertIn("; shares of micro-batches other than equal ones and those by speed",
                      plan["search_space"]["outside"])
        equal = self.verified_plan(profile(), topology(), "--shares", "equal")
        self.assertNotIn("samples", equal["stages"][0])
        self.assertNotIn("shares", equal["request"])
        self.assertIn("; unequal shares of micro-batches", equal["search_space"]["outside"])
        self.assert_iteration(equal, 12 * MILLISECOND)
        pinned = self.verified_plan(profile(), topology(), "--shares", "equal", "--pin", "replicas=2")
        self.assert_iteration(pinned, 18 * MILLISECOND)

    def test_shares_stay_equal_where_they_are_asked_for_or_have_to_be(self):
        alike = topology()
        alike["servers"][1]["device"] = "fast"
        for cluster, options in [(alike, ()), (topology(), ("--replicas", "independent")),
                                 (topology(), ("--for", "torch-csv")),
                                 (topology(), ("--runtime", "megatron")),
                                 (topology(), ("--schedule", "zb-h1"))]:
            with self.subTest(options=options):
                run = self.run_plan(profile(), cluster, *options)
                self.assertEqual(run.returncode, DONE, run.stderr)
                plan = self.read("plan.json")
                self.assertNotIn("shares", plan["request"])
                self.assertTrue(all("samples" not in stage for stage in plan["stages"]))

    def test_a_plan_that_fits_only_with_shares_by_speed_is_found(self):
        # A sample needs 1 MiB. The slow device has room for one, and the fast one for three.
        model = profile(stash=MEBIBYTE)
        cluster = topology(memory=(3 * MEBIBYTE, MEBIBYTE))
        pins = ("--pin", "replicas=2", "--micro-batch", "4")
        plan = self.verified_plan(model, cluster, *pins)
        self.assertEqual(plan["stages"][0]["samples"], [3, 1])
        run = self.run_plan(model, cluster, *pins, "--shares", "equal")
        self.assertEqual(run.returncode, INFEASIBLE, run.stderr)
        smaller = topology(memory=(3 * MEBIBYTE - 1, MEBIBYTE))
        run = self.run_plan(model, smaller, *pins)
        self.assertEqual(run.returncode, INFEASIBLE, run.stderr)

    def test_a_false_bound_and_shares_that_were_not_asked_for_are_found(self):
        plan = self.verified_plan(profile(), topology())
        for change in [lambda file: file["request"].pop("shares"),
                       lambda file: file["stages"][0].update(samples=[2, 2]),
                       lambda file: file["stages"][0].update(samples=[4, 0])]:
            file = self.read("plan.json")
            change(file)
            run = self.run_tool("verify", self.write("false.json", file))
            self.assertEqual(run.returncode, BAD_INPUT, run.stdout + run.stderr)
        # A bound that holds for equal shares alone.
        equal = self.verified_plan(profile(), topology(), "--shares", "equal")
        equal["request"]["shares"] = "auto"
        equal["search_space"]["searched"] = plan["search_space"]["searched"]
        equal["search_space"]["outside"] = plan["search_space"]["outside"]
        run = self.run_tool("verify", self.write("false.json", equal))
        self.assertEqual(run.returncode, BAD_INPUT, run.stdout + run.stderr)
        self.assertIn("lower_bound_ns", run.stderr)
        self.assertEqual(plan["stages"][0]["samples"], [3, 1])

    def test_no_runtime_takes_them_and_other_commands_do(self):
        self.verified_plan(profile(), topology())
        run = self.run_tool("export", "plan.json", "--to", "torch-csv", "-o", "out.csv")
        self.assertEqual(run.returncode, BAD_INPUT, run.stderr)
        self.assertIn("/stages/0/samples: expected replicas with equal shares, got 3, 1",
                      run.stderr)
        for arguments in [("validate", "plan.json"), ("report", "plan.json", "-o", "page.html"),
                          ("schedule", "plan.json", "--format", "json"),
                          ("reschedule", "plan.json", "--schedule", "gpipe", "-o", "gpipe.json")]:
            run = self.run_tool(*arguments)
            self.assertEqual(run.returncode, DONE, run.stderr)
        file = self.read("plan.json")
        file["stages"][0]["samples"] = [2, 2]
        run = self.run_tool("diff", "plan.json", self.write("other.json", file))
        self.assertRegex(run.stdout, "2: fast0:0, slow0:0; samples 3, 1 ")
        self.assertRegex(run.stdout, "2: fast0:0, slow0:0  ")
        run = self.run_tool("export", "other.json", "--to", "torch-csv", "-o", "out.csv")
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool("diff", "plan.json", "other.json", "--json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn('"samples": [3, 1]', run.stdout)


if __name__ == "__main__":
    tool.main()
