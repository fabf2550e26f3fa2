"""What commands print with --json: what they say to people, as a dapple-result/1."""

import json

import tool
from tool import BAD_INPUT, DONE, ENVIRONMENT, INFEASIBLE, NOT_VERIFIED, USAGE, ToolTest


class Results(ToolTest):
    def result(self, code, *arguments):
        """The result of a command that ends with this exit code."""
        run = self.run_tool(*arguments, "--json")
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        result = json.loads(run.stdout)
        self.assertEqual(result["schema"], "dapple-result/1")
        self.assertEqual(result["exit_code"], code)
        self.assertEqual(result["tool"], self.run_tool("--version").stdout.splitlines()[0])
        faults = [": ".join(part for part in (fault["source"], fault["place"], fault["message"])
                            if part) for fault in result["faults"]]
        errors = [line.removeprefix("error: ") for line in run.stderr.splitlines()
                  if line.startswith("error: ")]
        if code != INFEASIBLE:
            self.assertEqual(faults, errors)
        return result

    def assert_parts(self, result, *parts):
        for part in ("simulation", "verification", "no_plan"):
            self.assertEqual(result[part] is not None, part in parts, part)

    def test_a_plan_is_described_as_in_its_file(self):
        result = self.result(DONE, *self.small_inputs(), "-o", "plan.json")
        plan = self.read("plan.json")
        self.assert_parts(result)
        (made,) = result["plans"]
        self.assertEqual((made["file"], made["model"], made["topology"]),
                         ("plan.json", plan["model"]["name"], plan["topology"]["name"]))
        self.assertEqual(made["predicted"], plan["predicted"])
        self.assertEqual(made["warnings"], plan["warnings"])
        # The same plan has the same hash, whoever reads it.
        self.run_tool("simulate", "plan.json", "--timeline", "timeline.json")
        self.assertEqual(made["sha256"], self.read("timeline.json")["plan_sha256"])
        for command in ("validate", "simulate", "verify"):
            (read,) = self.result(DONE, command, "plan.json")["plans"]
            for key in ("file", "sha256", "model", "topology", "shape"):
                self.assertEqual(read[key], made[key])

    def test_no_plan_is_explained(self):
        profile = tool.small_profile()
        profile["layers"][0]["parameter_bytes"] = 1 << 32
        inputs = ("--model", self.write("large.json", profile), "--topo",
                  self.write("2x2.json", tool.small_topology()))
        result = self.result(INFEASIBLE, *inputs)
        self.assert_parts(result, "no_plan")
        self.assertEqual(result["plans"], [])
        reasons = result["no_plan"]
        tightest = reasons["tightest_device"]
        self.assertEqual(tightest["limit_bytes"], 1 << 30)
        self.assertIsNone(reasons["reason"])
        self.assertTrue(reasons["certain"])
        said = self.run_tool(*inputs).stderr
        self.assertIn(f"({tightest['needed_bytes'] - tightest['limit_bytes']} bytes)", said)
        for text in (tightest["device"], tightest["closest_plan"], reasons["remedy"]):
            self.assertIn(text, said)
        pinned = self.result(INFEASIBLE, *self.small_inputs(), "--pin", "replicas=3", "--pin",
                             "stages=2")["no_plan"]
        self.assertEqual(pinned["pins"], ["stages=2", "replicas=3"])
        self.assertIn("6 devices", pinned["reason"])
        self.assertIsNone(pinned["tightest_device"])

    def test_memory_that_may_not_be_enough_is_called_the_least(self):
        # One micro-batch in flight on every stage is counted, and these have more.
        profile = tool.small_profile()
        profile["layers"][0]["parameter_bytes"] = 1 << 30
        inputs = ("--model", self.write("large.json", profile), "--topo",
                  self.write("2x2.json", tool.small_topology()), "--pin", "stages=4")
        for more, is_least in (((), False), (("--schedule", "auto"), False),
                               (("--schedule", "interleaved"), True),
                               (("--pin", "depths=least"), True), (("--for", "deepspeed"), True)):
            with self.subTest(more=more):
                reasons = self.result(INFEASIBLE, *inputs, *more)["no_plan"]
                self.assertEqual(reasons["tightest_device"].get("is_least", False), is_least)
                said = self.run_tool(*inputs, *more).stderr
                self.assertRegex(said, r": at least \d.* are missing" if is_least else
                                 r"has [^:]*: \d.* are missing")
                if "more memory per device" in said:
                    self.assertEqual(" at least " in said.splitlines()[-1], is_least, said)

    def test_each_file_is_validated(self):
        self.make_plan()
        bad = self.read("plan.json")
        bad["schedule"]["warmup_depths"][0] = bad["num_micro_batches"] + 1
        self.write("bad.json", bad)
        result = self.result(ENVIRONMENT, "validate", "bad.json", "plan.json", "nowhere.json")
        self.assertEqual([plan["file"] for plan in result["plans"]], ["plan.json"])
        self.assertEqual({(fault["source"], fault["place"]) for fault in result["faults"]},
                         {("bad.json", "/schedule/warmup_depths/0"), ("nowhere.json", "")})
        self.assertIsNone(result["plans"][0]["predicted"])
        self.assert_parts(result)

    def test_a_simulation_is_compared_with_the_file(self):
        self.make_plan()
        plan = self.read("plan.json")
        result = self.result(DONE, "simulate", "plan.json", "--trace", "trace.json")
        self.assert_parts(result, "simulation")
        self.assertTrue((self.folder / "trace.json").exists())
        iteration = plan["predicted"]["iteration_ns"]
        self.assertEqual(result["simulation"],
                         {"iteration_in_file_ns": iteration, "same_as_file": True})
        predicted = result["plans"][0]["predicted"]
        for key in ("iteration_ns", "bubble_fraction", "time_parts", "devices"):
            self.assertEqual(predicted[key], plan["predicted"][key])
        slow = tool.small_topology()
        slow["servers"][0]["links"]["bandwidth"] = "1 MB/s"
        result = self.result(DONE, "simulate", "plan.json", "--recost", "--topo",
                             self.write("slow.json", slow))
        self.assertEqual(result["simulation"],
                         {"iteration_in_file_ns": iteration, "same_as_file": False})
        self.assertGreater(result["plans"][0]["predicted"]["iteration_ns"], iteration)

    def test_a_verification_says_what_it_confirmed(self):
        self.make_plan()
        plan = self.read("plan.json")
        whole = self.result(DONE, "verify", "plan.json")["verification"]
        self.assertEqual((whole["bound"], whole["unchecked"]), ("proven", []))
        self.assertGreaterEqual(whole["proven_ns"], plan["predicted"]["lower_bound_ns"])
        self.make_plan("hard.json", "--global-batch", "7", "--contention", "off")
        stated = self.read("hard.json")["predicted"]["lower_bound_ns"]
        part = self.result(NOT_VERIFIED, "verify", "hard.json", "--budget", "1")["verification"]
        self.assertEqual((part["bound"], part["proof"]), ("not-proven", "least-work"))
        self.assertLess(part["proven_ns"], stated)
        self.make_plan("dapple.json", "--planner", "dapple")
        none = self.result(DONE, "verify", "dapple.json")["verification"]
        self.assertEqual((none["bound"], none["proof"], none["proven_ns"]),
                         ("not-stated", None, None))

    def test_a_false_claim_is_a_fault(self):
        self.make_plan()
        plan = self.read("plan.json")
        plan["predicted"]["iteration_ns"] += 1
        result = self.result(BAD_INPUT, "verify", self.write("false.json", plan))
        self.assertIn("/predicted/iteration_ns", {fault["place"] for fault in result["faults"]})
        self.assertEqual(result["plans"], [])
        self.assert_parts(result)

    def test_nothing_else_is_on_stdout(self):
        self.make_plan()
        for other in (("simulate", "plan.json", "--trace", "-"),
                      ("simulate", "plan.json", "--timeline", "-"),
                      (*self.small_inputs(), "-o", "-")):
            with self.subTest(other=other):
                run = self.run_tool(*other, "--json")
                self.assertEqual((run.returncode, run.stdout), (USAGE, ""))
                self.assertRegex(run.stderr, "error: --json: expected another file than that of --")
        run = self.run_tool("simulate", "plan.json", "--asynchronous", "--json")
        self.assertEqual((run.returncode, run.stdout), (USAGE, ""))
        self.assertIn("error: --json: ", run.stderr)
        quiet = self.run_tool("simulate", "plan.json", "--json", "--quiet")
        self.assertEqual(quiet.stdout, self.run_tool("simulate", "plan.json", "--json").stdout)
        from_stdin = self.run_tool("validate", "-", "--json",
                                   input=(self.folder / "plan.json").read_text())
        self.assertEqual(json.loads(from_stdin.stdout)["plans"][0]["file"], "<stdin>")

    def test_names_are_escaped(self):
        profile = tool.small_profile(name="a\u202eb")
        self.result(DONE, "--model", self.write("odd.json", profile), "--topo",
                    self.write("2x2.json", tool.small_topology()), "-o", "plan.json")
        run = self.run_tool("simulate", "plan.json", "--json")
        self.assertNotIn("\u202e", run.stdout)
        self.assertEqual(json.loads(run.stdout)["plans"][0]["model"], profile["name"])


if __name__ == "__main__":
    tool.main()
