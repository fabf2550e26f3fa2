"""Plans of other schedule families than 1F1B, and of the best of all."""

import json

import tool
from tool import BAD_INPUT, DONE, INFEASIBLE, NOT_VERIFIED, USAGE, ToolTest

BEYOND = [family for family in tool.FAMILIES if family not in ("gpipe", "1f1b")]


class Families(ToolTest):
    def plan(self, family, *more):
        return self.read(self.make_plan(f"{family}.json", "--schedule", family, *more))

    def test_1f1b_is_the_default(self):
        self.make_plan("default.json")
        self.make_plan("1f1b.json", "--schedule", "1f1b")
        default = (self.folder / "default.json").read_bytes()
        self.assertEqual((self.folder / "1f1b.json").read_bytes(), default)
        self.assertNotIn(b'"schedules"', default)

    def test_each_family_alone_gives_a_sound_plan_of_it_with_a_bound(self):
        for family in BEYOND:
            with self.subTest(family=family):
                plan = self.plan(family)
                self.assertEqual(plan["schedule"]["family"], family)
                self.assertEqual([record["family"] for record in plan["schedules"]], [family])
                record, = plan["schedules"]
                predicted = plan["predicted"]
                self.assertEqual(record["iteration_ns"], predicted["iteration_ns"])
                self.assertEqual(record["lower_bound_ns"], predicted["lower_bound_ns"])
                self.assertLessEqual(predicted["lower_bound_ns"], predicted["iteration_ns"])
                self.assertEqual(plan["search_space"]["complete"], predicted["optimality_gap"] == 0)
                for command in ("validate", "simulate"):
                    again = self.run_tool(command, f"{family}.json")
                    self.assertEqual(again.returncode, DONE, again.stderr)
                verified = self.run_tool("verify", f"{family}.json")
                self.assertEqual(verified.returncode, DONE, verified.stderr + verified.stdout)

    def test_the_bound_of_list_schedules_is_verified_beyond_the_work(self):
        # Behind one backward all of 64 MiB of gradients are reduced over 1.25 GB/s, whatever the order.
        profile = tool.small_profile(global_batch_size=4)
        profile["layers"][0].update(repeat=1, parameter_bytes=64 << 20)
        ground = ("--model", self.write("one.json", profile),
                  "--topo", self.write("2x2.json", tool.small_topology()))
        run = self.run_tool(*ground, "--schedule", "list-scheduled", "--pin", "replicas=4",
                            "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        predicted = self.read("plan.json")["predicted"]
        self.assertEqual(predicted["lower_bound_ns"], predicted["iteration_ns"])
        run = self.run_tool("verify", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        # Not one nanosecond more is confirmed, and a budget of one partial plan confirms less.
        run = self.run_tool("verify", "plan.json", "--budget", "1")
        self.assertIn(run.returncode, (DONE, NOT_VERIFIED), run.stderr)

    def test_no_family_is_certain_to_have_no_plan_because_1f1b_has_none(self):
        # Two devices hold 17.15 GB of parameters and as much of gradients each. Of consecutive layers
        # one of them has 20 GB or more; with two stages each they may have 5 + 1 + 8 + ... GB, 17 GB
        # on both: layers 0, 4 and 5, and layers 1, 2, 3 and 6.
        sizes = (5, 6, 9, 1, 8, 4, 1)
        layers = [{"name": f"layer{i}", "parameter_bytes": size * 10**9,
                   "measurements": [{"batch_size": 1, "forward_ns": 1000, "backward_ns": 2000,
                                     "output_bytes": 1000, "stash_bytes": 1000}]}
                  for i, size in enumerate(sizes)]
        profile = tool.small_profile(layers=layers, global_batch_size=2)
        profile["optimizer"] = {"name": "sgd", "state_bytes_per_parameter_byte": 0}
        for memory, certain in (("34300 MB", False), ("33000 MB", True)):
            topology = tool.small_topology(memory)
            topology["servers"][0]["count"] = 1
            run = self.run_tool("--model", self.write("m.json", profile),
                                "--topo", self.write("t.json", topology), "--schedule", "auto",
                                "--json", "-o", "plan.json")
            self.assertEqual(run.returncode, INFEASIBLE, run.stderr)
            self.assertEqual(json.loads(run.stdout)["no_plan"]["certain"], certain, run.stderr)
            # Nor does a single family with several stages on a device, unless no plan fits.
            run = self.run_tool("--model", "m.json", "--topo", "t.json", "--schedule", "interleaved",
                                "--json", "-o", "plan.json")
            self.assertEqual(run.returncode, INFEASIBLE, run.stderr)
            no_plan = json.loads(run.stdout)["no_plan"]
            self.assertEqual(no_plan["certain"], certain, run.stderr)
            self.assertIsNotNone(no_plan["tightest_device"], run.stderr)
            run = self.run_tool("--model", "m.json", "--topo", "t.json", "--json", "-o", "plan.json")
            self.assertTrue(json.loads(run.stdout)["no_plan"]["certain"], run.stderr)

    def test_a_plan_in_the_order_of_gpipe_is_in_the_record_of_1f1b(self):
        # One micro-batch of two samples on two stages has that order; a transfer takes 4 ms.
        profile = tool.small_profile(global_batch_size=2)
        profile["layers"] = [
            {"name": f"layer{i}", "parameter_bytes": 0,
             "measurements": [{"batch_size": 2, "forward_ns": 6, "backward_ns": 26,
                               "output_bytes": 12 * 10**6, "stash_bytes": stash * 10**6}]}
            for i, stash in enumerate((84, 122))]
        topology = tool.small_topology("101500001 B")
        topology["servers"][0].update(count=4, devices=1,
                                      nics=[{"bandwidth": "3 GB/s", "latency": "6 ns"}])
        del topology["servers"][0]["links"]
        topology["network"]["bandwidth"] = "3 GB/s"
        run = self.run_tool("--model", self.write("m.json", profile),
                            "--topo", self.write("t.json", topology), "--schedule", "auto",
                            "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        plan = self.read("plan.json")
        self.assertEqual(plan["schedule"]["family"], "gpipe")
        records = {record["family"]: record for record in plan["schedules"]}
        self.assertEqual(records["1f1b"]["reason"], "this plan")
        run = self.run_tool("verify", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)

    def test_auto_is_no_slower_than_any_family_and_its_bound_holds_for_all(self):
        best = self.plan("auto")
        records = {record["family"]: record for record in best["schedules"]}
        self.assertEqual(set(records), {"gpipe", "1f1b", *BEYOND})
        predicted = best["predicted"]
        self.assertEqual(records[best["schedule"]["family"]]["iteration_ns"],
                         predicted["iteration_ns"])
        bounds = [record["lower_bound_ns"] for record in records.values()]
        self.assertEqual(predicted["lower_bound_ns"], min(*bounds, predicted["iteration_ns"]))
        for family in ("1f1b", *BEYOND):
            with self.subTest(family=family):
                found = self.plan(family)["predicted"]["iteration_ns"]
                self.assertGreaterEqual(found, predicted["lower_bound_ns"])
                if family == "1f1b":
                    self.assertLessEqual(predicted["iteration_ns"], found)
        for record in records.values():
            self.assertTrue(record["reason"])

    def test_the_threads_do_not_change_the_plan(self):
        self.make_plan("one.json", "--schedule", "auto", "--threads", "1")
        for threads in ("2", "5"):
            self.make_plan("more.json", "--schedule", "auto", "--threads", threads)
            self.assertEqual((self.folder / "one.json").read_bytes(),
                             (self.folder / "more.json").read_bytes())

    def test_the_summary_says_what_each_family_would_give(self):
        result = self.run_tool(*self.small_inputs(), "--schedule", "auto")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("\nschedules  ", result.stdout)
        for family in ("1f1b", *BEYOND):
            self.assertRegex(result.stdout, rf"\n{family} +")

    def test_a_time_limit_ends_it_with_what_there_is(self):
        # On a busy machine nothing may have been found by then, which is said too.
        result = self.run_tool(*self.small_inputs(), "--schedule", "auto", "--time-limit", "0.01",
                               "-o", "plan.json")
        if result.returncode == INFEASIBLE:
            self.assertIn("no plan was found before the search was stopped", result.stderr)
            return
        self.assertEqual(result.returncode, DONE, result.stderr)
        verified = self.run_tool("verify", "plan.json")
        self.assertEqual(verified.returncode, NOT_VERIFIED, verified.stderr)
        self.assertIn("the search was stopped, and cannot be repeated",
                      " ".join(verified.stdout.split()))
        reasons = [record["reason"] for record in self.read("plan.json")["schedules"]]
        self.assertEqual(len(reasons), 8)

    def test_a_longer_search_states_no_lower_bound(self):
        golden = tool.ROOT / "tests" / "golden"
        for family in ("interleaved", "breadth-first", "zb-v"):
            with self.subTest(family=family):
                bounds = []
                for more in (("--time-limit", "0.000000001"), ()):
                    result = self.run_tool(
                        "plan", "--model", golden / "pair.profile.json", "--topo",
                        golden / "pair.topology.json", "--schedule", family, *more, "-o", "plan.json")
                    self.assertEqual(result.returncode, DONE, result.stderr)
                    bounds.append(self.read("plan.json")["predicted"]["lower_bound_ns"])
                self.assertLessEqual(*bounds)
                self.assertGreater(bounds[0], 0)

    def test_pins_hold_for_every_family(self):
        plan = self.plan("auto", "--pin", "stages=2")
        self.assertEqual(len(plan["stages"]), 2)
        self.assertIn("pinned: stages=2", plan["search_space"]["cut"])

    def test_a_family_that_does_not_fit_says_what_is_missing(self):
        profile = self.write("small.json", tool.small_profile())
        topology = self.write("tight.json", tool.small_topology(memory="4 MiB"))
        for family in ("zb-h1", "auto"):
            result = self.run_tool("--model", profile, "--topo", topology, "--schedule", family)
            self.assert_error(result, INFEASIBLE, "no plan fits: small on 2x2", "are missing")

    def test_auto_finds_what_fits_only_where_a_device_holds_stages_apart(self):
        # Weights, gradients and Adam's state are four times the parameters: 1,200 MiB twice and 400
        # twice. Of two stages in a row one has 2,000 MiB or more, in turns each device has 1,600.
        profile = tool.small_profile(name="uneven")
        layer, = profile["layers"]
        del layer["repeat"]
        profile["layers"] = [{**layer, "name": f"layer{i}", "parameter_bytes": size << 20}
                             for i, size in enumerate((300, 300, 100, 100))]
        topology = tool.small_topology(memory="1800 MiB")
        topology["servers"][0]["count"] = 1
        inputs = ("--model", self.write("uneven.json", profile), "--topo",
                  self.write("two.json", topology), "-o", "plan.json")
        alone = self.run_tool(*inputs)
        self.assertEqual(alone.returncode, INFEASIBLE, alone.stderr)
        result = self.run_tool(*inputs, "--schedule", "auto")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(self.read("plan.json")["schedule"]["chunks_per_device"], 2)
        self.assertEqual(self.run_tool("verify", "plan.json").returncode, DONE)

    def test_without_a_memory_limit_families_are_planned_too(self):
        profile = self.write("small.json", tool.small_profile())
        topology = self.write("tight.json", tool.small_topology(memory="4 MiB"))
        result = self.run_tool("--model", profile, "--topo", topology, "--schedule", "zb-h2",
                               "--unlimited-memory", "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(self.read("plan.json")["schedule"]["family"], "zb-h2")

    def test_the_planners_are_those_of_1f1b(self):
        result = self.run_tool(*self.small_inputs(), "--schedule", "zb-h1", "--planner", "exact")
        self.assert_error(result, USAGE, "--planner", "gpipe or auto, got zb-h1")
        plan = self.plan("auto", "--planner", "dapple")
        self.assertIsNone(plan["predicted"]["lower_bound_ns"])
        self.assertFalse(plan["search_space"]["complete"])

    def test_what_is_no_family_is_refused(self):
        for word in ("given", "zb", "2f2b"):
            result = self.run_tool(*self.small_inputs(), "--schedule", word)
            self.assert_error(result, USAGE, "--schedule", word)

    def test_another_schedule_for_a_plan_forgets_what_the_families_gave(self):
        self.make_plan("plan.json", "--schedule", "auto")
        result = self.run_tool("reschedule", "plan.json", "--schedule", "zb-h1", "-o", "new.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertNotIn("schedules", self.read("new.json"))


class Asynchronous(ToolTest):
    def test_a_plan_is_shown_without_flushes_beside_its_iteration(self):
        self.make_plan("plan.json", "--pin", "stages=2", "--micro-batch", "4")
        plain = self.run_tool("simulate", "plan.json").stdout
        result = self.run_tool("simulate", "plan.json", "--asynchronous")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertRegex(result.stdout, r"Without flushes  \S+ m?s a micro-batch, \S+ m?s for the 4 of "
                                        r"an iteration \([+-]\d")
        self.assertRegex(result.stdout, r"versions of weights: \d+, \d+; memory up to \S+ [GM]iB")
        self.assertNotIn("Without flushes", plain)

    def test_other_schedules_have_no_such_state(self):
        self.make_plan("plan.json", "--schedule", "gpipe")
        self.assert_error(self.run_tool("simulate", "plan.json", "--asynchronous"), USAGE,
                          "--asynchronous", "expected a plan under 1f1b, got one under gpipe")


class Claims(ToolTest):
    def claimed(self, change):
        plan = self.read(self.make_plan("plan.json", "--schedule", "auto"))
        change(plan["schedules"])
        return self.run_tool("verify", self.write("claimed.json", plan))

    def test_what_families_claim_is_held_against_the_plan(self):
        def faster(records):
            other = next(r for r in records if r["iteration_ns"] is not None
                         and r["family"] == "1f1b")
            other["iteration_ns"] = 1
        result = self.claimed(faster)
        self.assertEqual(result.returncode, BAD_INPUT)
        self.assertIn("/schedules/1/iteration_ns: expected", result.stderr)

    def test_a_family_stands_there_once(self):
        result = self.claimed(lambda records: records.append(dict(records[0])))
        self.assert_error(result, BAD_INPUT,
                          '/schedules/8/family: expected a family of its own, got "gpipe" again')

    def test_the_bound_is_the_least_of_all(self):
        def lower(records):
            records[0]["lower_bound_ns"] = 1
        self.assert_error(self.claimed(lower), BAD_INPUT,
                          "/predicted/lower_bound_ns: expected at most that of gpipe of 1")

    def test_records_are_read_strictly(self):
        plan = self.read(self.make_plan("plan.json", "--schedule", "zb-h1"))
        for change, message in (
                (lambda r: r.update(family="zb-h3"), '/schedules/0/family: expected'),
                (lambda r: r.pop("reason"), "/schedules/0"),
                (lambda r: r.update(seconds=1), "/schedules/0/seconds"),
                (lambda r: r.update(iteration_ns=1.5), "/schedules/0/iteration_ns")):
            wrong = json.loads(json.dumps(plan))
            change(wrong["schedules"][0])
            self.assert_error(self.run_tool("validate", self.write("wrong.json", wrong)), BAD_INPUT,
                              message)
        plan["schedules"] = []
        self.assert_error(self.run_tool("validate", self.write("wrong.json", plan)), BAD_INPUT,
                          "/schedules: expected records of one or more schedule families")


if __name__ == "__main__":
    tool.main()
