"""Plan files whose claims are true, and ones that were tampered with."""

import re
import signal
import subprocess
import time

import tool
from tool import BAD_INPUT, DONE, NOT_VERIFIED, ToolTest


class Verifying(ToolTest):
    def verify(self, plan):
        return self.run_tool("verify", self.write("claimed.json", plan))

    def claim(self, plan, bound):
        """The plan as if its whole space had been searched and this bound proven, in a file that
        does not say what was asked."""
        plan.pop("request", None)
        iteration = plan["predicted"]["iteration_ns"]
        plan["predicted"]["lower_bound_ns"] = bound
        plan["predicted"]["optimality_gap"] = max(0, iteration - bound) / iteration
        plan["search_space"].update(complete=True, cut=[], planner="exact", searched=[
            "stage boundaries", "replicas per stage",
            "placement: every set of devices, replicas in the order of their numbers",
            "micro-batch sizes that divide the global batch", "warm-up depths",
            "recomputation per stage", "idle devices"])

    def small_plan(self, *more):
        return self.read(self.make_plan("plan.json", "--planner", "dapple", *more))

    def test_a_plan_as_it_was_written_is_verified(self):
        for more in ((), ("--contention", "off"), ("--schedule", "gpipe"), ("--planner", "exact")):
            with self.subTest(more=more):
                result = self.run_tool("verify", self.make_plan("plan.json", *more))
                self.assertEqual(result.returncode, DONE, result.stderr)
                self.assertTrue(result.stdout.startswith("verified: plan.json: small on 2x2\n"))
                self.assertIn("as simulated anew", result.stdout)

    def test_a_plan_without_a_bound_is_said_to_have_none(self):
        self.assertIn("bound    the file states no bound",
                      self.verify(self.small_plan()).stdout)

    def test_a_true_bound_is_derived_anew(self):
        plan = self.read(self.make_plan("plan.json", "--replicas", "independent"))
        result = self.verify(plan)
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertRegex(" ".join(result.stdout.split()),
                         r"bound proven anew: no plan below (\S+ ms); the file claims \1 \(every "
                         r"plan that could be faster was examined: [1-9][\d,]* partial plans, \d+ "
                         r"simulated\)")

    def test_a_bound_that_is_too_large_to_derive_is_said_to_be_so(self):
        # With contention what NICs send proves the bound at once. With sharding the bound is proven
        # for some forms of it, which says nothing about the others.
        for budget, more in ((3, ()), (300, ("--shard", "auto"))):
            result = self.run_tool("--model", tool.ROOT / "profiles" / "resnet-50.json", "--topo",
                                   tool.ROOT / "topologies" / "2x8xV100.json", "--no-baselines",
                                   "--contention", "off", "-o", "claimed.json", *more)
            self.assertEqual(result.returncode, DONE, result.stderr)
            result = self.run_tool("verify", "claimed.json", "--budget", budget)
            self.assertEqual(result.returncode, NOT_VERIFIED, result.stderr)
            self.assertTrue(result.stdout.startswith("nothing is false, but not all is verified: "))
            self.assertRegex(" ".join(result.stdout.split()),
                             r"bound proven anew: no plan below \S+ ms; the file claims \S+ ms "
                             r"\(from the work that every plan has; [\d,]+ partial plans were not "
                             r"enough for more, --budget allows them\)")

    def test_the_budget_holds_for_all_that_is_tried_and_what_stopped_it_is_said(self):
        result = self.run_tool("--model", tool.ROOT / "profiles" / "resnet-50.json", "--topo",
                               tool.ROOT / "topologies" / "2x8xV100.json", "--no-baselines",
                               "--contention", "off", "-o", "large.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        for budget in (10, 100, 1000):
            words = " ".join(self.run_tool("verify", "large.json", "--budget", budget)
                             .stdout.split())
            tried = re.search(r"; ([\d,]+) partial plans were not enough for more, --budget allows",
                              words)
            self.assertLessEqual(int(tried[1].replace(",", "")), budget, words)
        result = self.run_tool("verify", "large.json", "--time-limit", "0.3", "--budget",
                               1 << 30)
        self.assertEqual(result.returncode, NOT_VERIFIED, result.stderr)
        words = " ".join(result.stdout.split())
        self.assertRegex(words, r"; stopped by --time-limit after [\d,]+ partial plans?\)")
        self.assertNotIn("--budget", words)
        process = subprocess.Popen([tool.ARGUMENTS.binary, "verify", "large.json", "--budget",
                                    str(1 << 30)], cwd=self.folder, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        shown, errors = process.communicate(timeout=tool.SECONDS)
        self.assertEqual((process.returncode, errors), (NOT_VERIFIED, ""))
        self.assertRegex(" ".join(shown.split()), r"; interrupted after [\d,]+ partial plans?\)")

    def test_a_bound_above_what_another_plan_takes_is_refuted_by_that_plan(self):
        best = self.small_plan()["predicted"]["iteration_ns"]
        plan = self.small_plan("--pin", "stages=1")
        slower = plan["predicted"]["iteration_ns"]
        self.assertGreater(slower, best)
        self.claim(plan, slower)
        plan["baselines"] = []  # some of which are faster too
        self.assert_error(self.verify(plan), BAD_INPUT,
                          "error: claimed.json: /predicted/lower_bound_ns: expected at most ",
                          "which a plan takes (micro-batches of ", f"got {slower}")

    def test_every_figure_that_is_not_the_plans_is_named(self):
        plan = self.small_plan()
        expected = []

        def spoil(owner, place, key, value):
            expected.append(f"error: claimed.json: {place}/{key}: expected "
                            f"{owner[key]}, got {value}")
            owner[key] = value

        predicted = plan["predicted"]
        spoil(predicted, "/predicted", "iteration_ns", predicted["iteration_ns"] + 1)
        spoil(predicted, "/predicted", "bubble_fraction", 0.5)
        spoil(predicted, "/predicted", "exposed_transfer_ns", 1)
        spoil(predicted, "/predicted", "exposed_all_reduce_ns", 2)
        device = predicted["devices"][0]
        for key in ("peak_memory_bytes", "memory_limit_bytes"):
            spoil(device, "/predicted/devices/0", key, device[key] - 1)
        costs = plan["stages"][0]["costs"]
        for key in ("forward_ns", "backward_ns", "send_bytes", "all_reduce_ns",
                    "optimizer_step_ns"):
            spoil(costs, "/stages/0/costs", key, costs[key] + 1)
        result = self.verify(plan)
        self.assert_error(result, BAD_INPUT, *expected)
        self.assertEqual(len(result.stderr.splitlines()), len(expected), result.stderr)

    def test_a_plan_simulated_with_the_other_contention_is_false(self):
        # The middle one of three servers gets activations and gradients through the same NIC.
        topology = tool.small_topology()
        topology["servers"][0].update(count=3, devices=1,
                                      nics=[{"bandwidth": "1 Gbit/s", "latency": "15 us"}])
        result = self.run_tool("--model", self.write("small.json", tool.small_profile()),
                               "--topo", self.write("3x1.json", topology), "--planner", "dapple",
                               "--pin", "cut=2", "--pin", "cut=4", "--micro-batch", "4",
                               "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        plan = self.read("plan.json")
        self.assertEqual(self.verify(plan).returncode, DONE)
        plan["predicted"]["contention"] = "off"
        self.assert_error(self.verify(plan), BAD_INPUT, "/predicted/iteration_ns: expected ")

    def test_a_certificate_that_contradicts_itself_is_refused(self):
        def complete_although_cut(plan):
            plan["search_space"]["cut"] = ["placements: some"]

        def no_bound(plan):
            plan["predicted"]["lower_bound_ns"] = None

        def no_gap(plan):
            plan["predicted"]["optimality_gap"] = None

        def another_gap(plan):
            plan["predicted"]["optimality_gap"] = 0.25

        def above_the_iteration(plan):
            plan["predicted"]["lower_bound_ns"] = plan["predicted"]["iteration_ns"] + 1
            plan["predicted"]["optimality_gap"] = 0

        for change, fault in (
                (complete_although_cut, "/search_space/complete: expected false, as "
                                        "/search_space/cut names 1 part left out, got true"),
                (no_bound, "/predicted/lower_bound_ns: expected a bound, as the search is said to "
                           "be complete, got null"),
                (no_gap, "/predicted/optimality_gap: expected a gap, as there is a bound, got null"),
                (another_gap, "/predicted/optimality_gap: expected 0.5, got 0.25"),
                (above_the_iteration, "/predicted/lower_bound_ns: expected at most the iteration")):
            with self.subTest(change=change.__name__):
                plan = self.small_plan("--micro-batch", "16", "--pin", "stages=1")
                self.assertEqual(plan["predicted"]["iteration_ns"] % 2, 0)
                self.claim(plan, plan["predicted"]["iteration_ns"] // 2)
                change(plan)
                self.assert_error(self.verify(plan), BAD_INPUT, "error: claimed.json: " + fault)

    def test_a_bound_of_a_space_that_was_cut_is_derived_for_what_was_asked(self):
        for more in (("--pin", "stages=2"), ("--micro-batch", "4"), ("--for", "megatron"),
                     ("--bucket-size", "auto"), ("--schedule", "gpipe")):
            with self.subTest(more=more):
                result = self.run_tool("verify", self.make_plan("plan.json", *more))
                self.assertEqual(result.returncode, DONE, result.stdout + result.stderr)

    def test_families_of_a_target_have_no_common_bound_beside_the_dapple_planner(self):
        for target in ("torch-csv", "torch-python", "torchtitan"):
            with self.subTest(target=target):
                made = self.make_deep_plan("--for", target, "--schedule", "auto", "--planner",
                                           "dapple")
                plan = self.read(made)
                self.assertEqual(plan["search_space"]["planner"], "families")
                self.assertIsNone(plan["predicted"]["lower_bound_ns"])
                result = self.run_tool("verify", made)
                self.assertIn(result.returncode, (DONE, NOT_VERIFIED), result.stderr)

    def test_parts_of_the_time_and_baselines_are_checked(self):
        changes = (
            (lambda plan: plan["predicted"]["time_parts"].update(compute_ns=7),
             "/predicted/time_parts/compute_ns: expected "),
            (lambda plan: plan["baselines"][0].update(iteration_ns=1),
             "/baselines/0/time_parts: expected parts of an iteration of 1, got "),
            (lambda plan: plan["baselines"][0].update(missing_bytes=3),
             "/baselines/0/feasible: expected false, got true"),
            (lambda plan: plan["baselines"].append(plan["baselines"][0]),
             "/name: expected a name of its own, got "),
        )
        for change, fault in changes:
            with self.subTest(fault=fault):
                plan = self.read(self.make_plan())
                change(plan)
                result = self.verify(plan)
                self.assertEqual(result.returncode, BAD_INPUT, result.stdout)
                self.assertIn(fault, result.stderr)

    def test_a_plan_that_does_not_fit_is_said_not_to(self):
        profile = tool.small_profile()
        profile["layers"][0]["parameter_bytes"] = 1 << 30
        result = self.run_tool("--model", self.write("large.json", profile), "--topo",
                               self.write("2x2.json", tool.small_topology()), "--unlimited-memory",
                               "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertRegex(self.run_tool("verify", "plan.json").stdout,
                         r"memory   does not fit: node0:0 needs \S+ GiB and has ")

    def test_an_unsound_plan_and_a_missing_file_are_refused(self):
        plan = self.small_plan()
        plan["schedule"]["warmup_depths"][0] = plan["num_micro_batches"] + 1
        self.assert_error(self.verify(plan), BAD_INPUT, "/schedule/warmup_depths/0")
        self.assertEqual(self.run_tool("verify", "nowhere.json").returncode, tool.ENVIRONMENT)

    def test_records_of_another_search_are_open_unless_they_are_contradicted(self):
        run = self.run_tool("--model", tool.ROOT / "profiles" / "llama-3-8b.json", "--topo",
                            tool.ROOT / "topologies" / "8xH100.json", "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        plan = self.read("plan.json")
        position, record = next((i, record) for i, record in enumerate(plan["parallelisms"])
                                if record["iteration_ns"] and record["lower_bound_ns"] and
                                not record["reason"].startswith("this plan"))
        found = record["iteration_ns"]
        # The counts of another version's search differ, and only its outcomes are claims.
        plan["search_space"]["simulated"] += 1
        self.assertEqual(self.verify(plan).returncode, DONE)
        for change, place in [
                ({"shape": "2, 4 of 2"}, None), ({"reason": "found slower"}, None),
                ({"iteration_ns": found + 1}, None), ({"lower_bound_ns": None}, None),
                ({"iteration_ns": 2 * found, "lower_bound_ns": found + 1}, "lower_bound_ns"),
                ({"iteration_ns": record["lower_bound_ns"] - 1, "lower_bound_ns": None},
                 "iteration_ns"),
                # None was found; only without a bound is it claimed that none fits.
                ({"iteration_ns": None, "shape": "", "missing_bytes": 8}, None),
                ({"iteration_ns": None, "shape": "", "missing_bytes": 8, "lower_bound_ns": None},
                 "missing_bytes")]:
            plan["parallelisms"][position] = {**record, **change}
            run = self.verify(plan)
            if place is None:
                self.assertEqual(run.returncode, NOT_VERIFIED, run.stdout + run.stderr)
                self.assertIn("1 record of schedules and parallelism: another version's search",
                              " ".join(run.stdout.split()))
            else:
                self.assert_error(run, BAD_INPUT, f"/parallelisms/{position}/{place}")
        # The same counts are those of the same search.
        plan["search_space"]["simulated"] -= 1
        plan["parallelisms"][position] = {**record, "shape": "2, 4 of 2"}
        self.assert_error(self.verify(plan), BAD_INPUT, f"/parallelisms/{position}/shape")


class Found(ToolTest):
    """Files that were once called verified."""

    def test_no_tampered_file_is_verified(self):
        places = {
            "0.baseline_infeasible": None, "baseline-slower-2x": None,
            "0.baseline_renamed": "/baselines/0/name",
            "0.planner_renamed": "/search_space/planner",
            "0.searched_emptied": "/search_space/searched",
            "auto-complete-true": "/search_space/complete",
            "bucket-bytes-1GB-buckets-of-25MiB": "/stages/0/costs/gradient_buckets_bytes",
            "bucket-bytes-2": "/stages/1/costs/gradient_buckets_bytes",
            "bucket-bytes-7": "/stages/0/costs/gradient_buckets_bytes",
            "false-proof-by-bucket-bytes-102": "/stages/0/costs/gradient_buckets_bytes",
            "false-proof-by-bucket-bytes-39": "/stages/1/costs/gradient_buckets_bytes",
            "open-5-gap-0": "/search_space/open",
            "racks-gap8-claims-complete-gap0": "/search_space/searched/2",
            "racks-gap8-claims-gap0": "/warnings", "warnings-removed": None,
            "weaker-bounds-of-families": None}
        folder = tool.ROOT / "tests" / "found" / "verify"
        self.assertEqual({path.stem for path in folder.glob("*.json")} - set(places),
                         {"102.model", "102.topo"})
        for name, place in places.items():
            with self.subTest(name=name):
                result = self.run_tool("verify", folder / f"{name}.json")
                if place is None:
                    self.assertEqual(result.returncode, NOT_VERIFIED, result.stderr)
                else:
                    self.assert_error(result, BAD_INPUT, f"{name}.json: {place}: expected ")


class Contention(ToolTest):
    def test_simulate_takes_the_contention_of_the_plan_unless_told_otherwise(self):
        plan = self.make_plan("plan.json", "--contention", "off")
        self.assertEqual(self.read(plan)["predicted"]["contention"], "off")
        result = self.run_tool("simulate", plan)
        self.assertEqual(result.stdout.splitlines()[-1], "same figures as in the file")
        self.assertEqual(self.run_tool("simulate", plan, "--contention", "off").stdout,
                         result.stdout)
        self.assertEqual(self.read(self.make_plan())["predicted"]["contention"], "on")

    def test_plans_made_without_contention_are_compared_without(self):
        plan = self.make_plan("plan.json", "--contention", "off")
        result = self.run_tool("diff", plan, plan)
        off = self.run_tool("diff", plan, plan, "--contention", "off")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(result.stdout, off.stdout)


if __name__ == "__main__":
    tool.main()
