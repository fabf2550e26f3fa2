"""Plan files that were written before plans knew forms of parallelism.

They say what they said: they are valid, take the same time and memory and are verified, and where
the same is asked for of the same model and topology, the same plan is found.
"""

import json

import tool
from tool import DONE, ToolTest

PLANS = sorted((tool.ROOT / "tests" / "found" / "before_variants").glob("*.plan.json"))
# Of replicas on two kinds of devices the faster ones have taken more samples since.
FASTER_SINCE = ("mixed-devices.plan.json",)
# Of plans that take equally long, the one with measured batches is chosen since.
MEASURED_SINCE = ("gpipe-contention-off.plan.json",)


class OldPlans(ToolTest):
    def for_each(self, check):
        """Calls check(file, document) for each plan."""
        self.assertEqual(len(PLANS), 12)
        for path in PLANS[::5] if tool.ARGUMENTS.sanitized else PLANS:
            with self.subTest(path.name):
                check(path, json.loads(path.read_text()))

    def test_old_plans_are_valid_and_take_the_same_time_and_memory(self):
        def check(path, plan):
            self.assertNotIn("parallelism", plan)
            self.assertEqual(self.run_tool("validate", path).returncode, DONE)
            run = self.run_tool("simulate", path, "--json")
            self.assertEqual(run.returncode, DONE, run.stderr)
            found = json.loads(run.stdout)["plans"][0]["predicted"]
            self.assertEqual(found["iteration_ns"], plan["predicted"]["iteration_ns"])
            self.assertEqual(found["devices"], plan["predicted"]["devices"])

        self.for_each(check)

    def test_old_plans_are_verified(self):
        # Bounds of half of them could not be confirmed when they were written (exit code 6).
        def check(path, _):
            run = self.run_tool("verify", path)
            self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)

        self.for_each(check)

    def words(self, request):
        """What asks for the same."""
        words = ["--schedule", request["schedule"], "--bucket-size",
                 f"{request['bucket_bytes']} B", "--optimizer-step", request["optimizer_step"],
                 "--contention", request["contention"], "--replicas", request["replicas"]]
        if request["planner"] != "exact":
            words += ["--planner", request["planner"]]
        if request["micro_batch_size"]:
            words += ["--micro-batch", request["micro_batch_size"]]
        pins = request["pins"]
        chosen = {"stages": pins["stages"], "replicas": pins["replicas"], "recompute":
                  {True: "on", False: "off", None: None}[pins["recompute"]]}
        for what, value in chosen.items():
            words += ["--pin", f"{what}={value}"] if value is not None else []
        return words

    def decided(self, plan):
        return {"stages": [{key: stage[key] for key in ("layers", "devices", "replication",
                                                        "recompute", "costs")}
                           for stage in plan["stages"]],
                "schedule": plan["schedule"], "micro-batch": plan["micro_batch_size"],
                "iteration": plan["predicted"]["iteration_ns"],
                "devices": plan["predicted"]["devices"]}

    def measured(self, plan):
        """The smallest batch that every layer was measured at."""
        return max(min(measurement["batch_size"] for measurement in layer["measurements"])
                   for layer in plan["model"]["profile"]["layers"])

    def test_the_same_is_planned_where_the_same_is_asked_for(self):
        def check(path, plan):
            run = self.run_plan(plan["model"]["profile"], plan["topology"]["description"],
                                "--global-batch", plan["global_batch_size"], "--no-baselines",
                                *self.words(plan["request"]))
            self.assertEqual(run.returncode, DONE, run.stderr)
            decided, before = self.decided(self.read("plan.json")), self.decided(plan)
            if path.name in FASTER_SINCE:
                self.assertLess(decided["iteration"], before["iteration"])
            elif path.name in MEASURED_SINCE:
                self.assertEqual(decided["iteration"], before["iteration"])
                self.assertEqual([(stage["layers"], stage["devices"]) for stage in decided["stages"]],
                                 [(stage["layers"], stage["devices"]) for stage in before["stages"]])
                self.assertLess(before["micro-batch"] // 8, self.measured(plan))
                self.assertEqual(decided["micro-batch"] // 8, self.measured(plan))
            else:
                self.assertEqual(decided, before)

        self.for_each(check)


if __name__ == "__main__":
    tool.main()
