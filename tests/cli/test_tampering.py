"""Every kind of false claim in a plan file is refused with its place.

A kind is a place of the document with its positions left out, "/stages/*/costs/forward_ns", or a
change that keeps places beside it consistent, so that only making a claim anew shows that it is
false. Each kind is tried on one of the plans that have the place, chosen by the seed, and with
DAPPLE_TEST_SCALE=10 on each of them; with sanitizers a twenty-fifth is tried. Only what is listed
in UNCHECKED or in TRUE_EITHER_WAY, with its reason, may be changed without being refused.

Some 0.1 s each.
"""

import copy
import random

import tool
from tool import ARGUMENTS, BAD_INPUT, DONE, NOT_VERIFIED, ROOT, ToolTest

SEED = 20


def shipped(model, topology, *more):
    return ("--model", ROOT / "profiles" / f"{model}.json",
            "--topo", ROOT / "topologies" / f"{topology}.json", *more)


# Seven small plans, and four of sixteen devices.
SMALL = {"exact": (), "gpipe": ("--schedule", "gpipe"), "dapple": ("--planner", "dapple"),
         "auto": ("--schedule", "auto"), "zb-h1": ("--schedule", "zb-h1"),
         "jitter": ("--jitter", "20%"),
         "pinned": ("--pin", "stages=2", "--pin", "cut=3", "--bucket-size", "1 MiB",
                    "--contention", "off")}
LARGE = {"bert": shipped("bert-48", "2x8xV100", "--micro-batch", "8"),
         "amoebanet": shipped("amoebanet-36", "16x1xV100-10g", "--planner", "dapple"),
         "vgg": shipped("vgg-19", "2x8xV100", "--no-baselines"),
         "for-torch": shipped("bert-48", "2x8xV100", "--for", "torch-csv", "--micro-batch", "8")}

# What may be changed, and why it cannot be refused.
UNCHECKED = {
    "/tool": "which program wrote the file is not a claim about the plan",
    "/search_space/states": "a count of work", "/search_space/candidates": "a count of work",
    "/search_space/simulated": "a count of work", "/search_space/kept": "a count of work",
}

# What was asked leaves no trace in the plan: with either value all other claims are true.
TRUE_EITHER_WAY = {
    "/request/memory_limit_bytes": "a search that needed less finds the same plan",
    "/request/target_gap": "a gap that was reached was asked for as well as a wider one",
}

# Whose change makes something else false: the plan itself, and what decides how it is looked at.
OF_THE_PLAN = ("/schema", "/model", "/topology", "/global_batch_size", "/micro_batch_size",
               "/num_micro_batches", "/gradients", "/schedule", "/stages/*/layers",
               "/stages/*/devices", "/stages/*/replication", "/stages/*/recompute",
               "/predicted/contention", "/predicted/replicas", "/request", "/predicted/devices/*/device")
# A bound is compared with the gap beside it, a total with its parts, an outcome with its reason.
NEIGHBOURS = {"/predicted/lower_bound_ns": ("/predicted/optimality_gap", "/predicted/iteration_ns",
                                            "/schedules", "/search_space", "/baselines"),
              "/predicted/iteration_ns": ("/predicted",),
              "/predicted/jitter/slow_device_ns": ("/predicted/jitter",),
              "/search_space/fastest_ns": ("/warnings", "/search_space/open",
                                           "/predicted/lower_bound_ns"),
              "/baselines/*/iteration_ns": ("/baselines",),
              "/baselines/*/time_parts": ("/baselines",),
              "/baselines/*/missing_bytes": ("/baselines",),
              "/baselines/*/feasible": ("/baselines",),
              "/schedules": ("/schedules", "/predicted/lower_bound_ns", "/search_space/cut",
                             "/search_space/planner"),
              "/stages/*/costs/gradient_buckets_bytes": ("/stages",),
              "/search_space/cut": ("/search_space/complete",),
              "/search_space/complete": ("/predicted/lower_bound_ns",)}


def leaves(value, path=()):
    """All paths to values that hold no others, but those of the embedded documents."""
    if path in (("model", "profile"), ("topology", "description")):
        return
    if isinstance(value, dict):
        for key, member in value.items():
            yield from leaves(member, (*path, key))
    elif isinstance(value, list) and value:
        for position, element in enumerate(value):
            yield from leaves(element, (*path, position))
    else:
        yield path


def kind_of(path):
    return "".join("/*" if isinstance(step, int) else "/" + step for step in path)


def pointer_of(path):
    return "".join(f"/{step}" for step in path)


def owner_of(document, path):
    for step in path[:-1]:
        document = document[step]
    return document


def changed(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value / 2 if value else 0.5
    if isinstance(value, str):
        return value + "x"
    return 1 if value is None else ["x"]


# Changes that keep what stands beside them consistent.
def slower_baseline(plan):
    baseline = plan["baselines"][1]
    baseline["time_parts"]["compute_ns"] += baseline["iteration_ns"]
    baseline["iteration_ns"] *= 2
    return "/baselines/1/iteration_ns"


def infeasible_baseline(plan):
    plan["baselines"][0].update(feasible=False, missing_bytes=1 << 30)
    return "/baselines/0/feasible"


def renamed_baseline(plan):
    plan["baselines"][0]["name"] = "mine"
    return "/baselines/0/name"


def swapped_baselines(plan):
    first, second = plan["baselines"][0], plan["baselines"][1]
    first["name"], second["name"] = second["name"], first["name"]
    return "/baselines/0"


def baseline_removed(plan):
    del plan["baselines"][2]
    return "/baselines"


def baselines_removed(plan):
    if not plan["baselines"]:
        raise IndexError
    plan["baselines"] = []
    return "/baselines"


def warnings_removed(plan):
    if not plan["warnings"]:
        raise IndexError
    plan["warnings"] = []
    return "/warnings"


def warning_added(plan):
    plan["warnings"].append("all is well")
    return "/warnings"


def searched_emptied(plan):
    plan["search_space"]["searched"] = []
    return "/search_space/searched"


def searched_dimension_removed(plan):
    del plan["search_space"]["searched"][1]
    return "/search_space/searched/1"


def searched_dimension_added(plan):
    plan["search_space"]["searched"].append("tensor parallelism")
    return "/search_space/searched"


def cut_removed(plan):
    cut = plan["search_space"]["cut"]
    del cut[0]
    return "/search_space/cut"


def cut_emptied_and_complete(plan):
    if not plan["search_space"]["cut"]:
        raise IndexError
    plan["search_space"].update(cut=[], complete=True)
    return ("/search_space", "/predicted/lower_bound_ns", "/baselines")


def cut_added(plan):
    plan["search_space"].update(cut=[*plan["search_space"]["cut"], "all that is slow"],
                                complete=False)
    return "/search_space/cut"


def open_plans_added(plan):
    plan["search_space"]["open"] += 5
    return "/search_space/open"


def another_planner(plan):
    names = {"exact": "dapple", "dapple": "exact", "families": "exact"}
    plan["search_space"]["planner"] = names[plan["search_space"]["planner"]]
    return "/search_space/planner"


def gap_closed(plan):
    predicted = plan["predicted"]
    if predicted["lower_bound_ns"] in (None, predicted["iteration_ns"]):
        raise IndexError
    predicted.update(lower_bound_ns=predicted["iteration_ns"], optimality_gap=0)
    return ("/warnings", "/schedules", "/search_space/open", "/predicted/lower_bound_ns")


def bound_claimed(plan):
    if plan["predicted"]["lower_bound_ns"] is not None:
        raise IndexError
    plan["predicted"].update(lower_bound_ns=plan["predicted"]["iteration_ns"], optimality_gap=0)
    return ("/predicted/lower_bound_ns", "/warnings", "/search_space")


def bound_dropped(plan):
    if plan["predicted"]["lower_bound_ns"] is None:
        raise IndexError
    plan["predicted"].update(lower_bound_ns=None, optimality_gap=None)
    return ("/predicted/lower_bound_ns", "/search_space/complete", "/warnings")


def family_added(plan):
    plan.setdefault("schedules", []).append({
        "family": "1f1b", "iteration_ns": plan["predicted"]["iteration_ns"], "lower_bound_ns": None,
        "shape": "", "missing_bytes": 0, "reason": "this plan"})
    return "/schedules"


def family_removed(plan):
    records = plan["schedules"]
    del records[-1]
    if not records:
        del plan["schedules"]
    return ("/schedules", "/search_space")


def family_slower(plan):
    record = next(record for record in plan["schedules"]
                  if record["iteration_ns"] and record["family"] != plan["schedule"]["family"])
    record["iteration_ns"] *= 2
    return "/schedules"


def buckets_of_another_size(plan):
    # In buckets of a byte every layer has one of its own.
    if not any(0 < len(stage["costs"]["gradient_buckets_bytes"]) < stage["layers"][1] - stage["layers"][0]
               for stage in plan["stages"]):
        raise IndexError
    plan["gradients"]["bucket_bytes"] = plan["request"]["bucket_bytes"] = 1
    return "/stages"


def asked(key, *values):
    """Another value of the request, the place and all that may contradict it."""
    def change(plan):
        request = plan["request"]
        request[key] = next(value for value in values if value != request[key])
        return ("/request", "/warnings", "/search_space", "/schedules", "/baselines", "/predicted")
    change.__name__ = "asked_" + key
    return change


def pinned(key, value):
    def change(plan):
        if plan["request"]["pins"][key]:
            raise IndexError
        plan["request"]["pins"][key] = value(plan) if callable(value) else value
        return ("/request/pins", "/search_space/cut")
    change.__name__ = "pinned_" + key
    return change


def stopped_by_a_signal(plan):
    plan["request"]["stopped_by"] = "signal"
    return ("/warnings", "/request/stopped_by")


def stopped_without_baselines(plan):
    """As if baselines had not been come to."""
    plan["request"]["stopped_by"] = "signal"
    baselines_removed(plan)
    return ("/warnings", "/request/stopped_by")


def stopped_before_a_baseline_was_good(plan):
    plan["request"]["stopped_by"] = "signal"
    slower_baseline(plan)
    return ("/warnings", "/request/stopped_by")


CHANGES = (
    slower_baseline, infeasible_baseline, renamed_baseline, swapped_baselines, baseline_removed,
    baselines_removed, warnings_removed, warning_added, searched_emptied,
    searched_dimension_removed, searched_dimension_added, cut_removed, cut_emptied_and_complete,
    cut_added, open_plans_added, another_planner, gap_closed, bound_claimed, bound_dropped,
    family_added, family_removed, family_slower, buckets_of_another_size, stopped_by_a_signal,
    stopped_without_baselines, stopped_before_a_baseline_was_good,
    asked("planner", "exact", "dapple"), asked("schedule", "gpipe", "zb-v"),
    asked("micro_batch_size", 1, 3), asked("bucket_bytes", 77, None),
    asked("optimizer_step", "at-end", "per-bucket"), asked("contention", "on", "off"),
    asked("replicas", "together", "independent"), asked("unlimited_memory", True, False),
    asked("for", "megatron", None), asked("baselines", True, False),
    asked("input_warnings", ["the file was old"]),
    pinned("stages", lambda plan: len(plan["stages"])),
    pinned("replicas", lambda plan: len(plan["stages"][0]["devices"])),
    pinned("recompute", True), pinned("least_depths", True), pinned("cuts", [1]),
    pinned("joints", [2]))


class Tampering(ToolTest):
    plans = {}  # made once for all tests; each changes copies

    def setUp(self):
        super().setUp()
        self.dice = random.Random(SEED)
        if self.plans:
            return
        for name, more in SMALL.items():
            self.plans[name] = self.read(self.make_plan("plan.json", *more))
        for name, arguments in LARGE.items():
            result = self.run_tool(*arguments, "-o", "plan.json")
            self.assertEqual(result.returncode, DONE, result.stderr)
            self.plans[name] = self.read("plan.json")

    def chosen(self, plans):
        """Those of the plans that a kind of change is tried on."""
        plans = list(plans)
        if tool.SCALE >= 10 or not plans:
            return plans
        chosen = self.dice.choice(plans)
        return [chosen] if not ARGUMENTS.sanitized or self.dice.random() < 0.04 else []

    def verify(self, plan):
        return self.run_tool("verify", self.write("claimed.json", plan))

    def assert_refused(self, name, kind, plan, places):
        result = self.verify(plan)
        with self.subTest(plan=name, kind=kind):
            self.assertEqual(result.returncode, BAD_INPUT, result.stdout + result.stderr)
            found = [place for place in places
                     if f"claimed.json: {place}" in result.stderr]
            self.assertTrue(found, f"{places} not in\n{result.stderr}")

    def test_plans_as_they_were_made_are_not_refused(self):
        for name, plan in self.plans.items():
            with self.subTest(plan=name):
                result = self.verify(plan)
                self.assertIn(result.returncode, (DONE, NOT_VERIFIED), result.stderr)
        for name in ("exact", "gpipe", "dapple", "auto", "zb-h1", "jitter", "pinned", "bert",
                     "amoebanet"):
            with self.subTest(plan=name):
                self.assertEqual(self.verify(self.plans[name]).returncode, DONE)

    def test_no_figure_can_be_changed(self):
        by_kind = {}
        for name, plan in self.plans.items():
            for path in leaves(plan):
                kind = kind_of(path)
                # A higher limit than the order needs is weaker and true.
                is_limit = kind == "/schedule/warmup_depths/*" and plan["schedule"]["order"]
                if kind not in UNCHECKED and kind not in TRUE_EITHER_WAY and not is_limit:
                    by_kind.setdefault(kind, {}).setdefault(name, []).append(path)
        self.assertGreaterEqual(len(by_kind), 60)
        for kind, plans in by_kind.items():
            for name in self.chosen(plans):
                path = self.dice.choice(plans[name])
                document = copy.deepcopy(self.plans[name])
                owner = owner_of(document, path)
                owner[path[-1]] = changed(owner[path[-1]])
                places = [pointer_of(path)]
                for start, more in NEIGHBOURS.items():
                    if kind.startswith(start):
                        places.extend(more)
                # Another plan has other figures: any place may be the first that is false.
                is_plan = kind.startswith(OF_THE_PLAN)
                self.assert_refused(name, kind, document, ["/"] if is_plan else places)

    def test_no_consistent_change_makes_a_false_claim_true(self):
        for change in CHANGES:
            changed_plans = {}
            for name, plan in self.plans.items():
                document = copy.deepcopy(plan)
                try:
                    places = change(document)
                except (IndexError, KeyError, StopIteration):
                    continue  # the plan has nothing of the kind
                changed_plans[name] = (document,
                                       (places,) if isinstance(places, str) else places)
            for name in self.chosen(changed_plans):
                self.assert_refused(name, change.__name__, *changed_plans[name])

    def test_what_was_asked_and_left_no_trace_is_true_either_way(self):
        for pointer, value in (("memory_limit_bytes", 1 << 40), ("target_gap", 0.5)):
            plan = copy.deepcopy(self.plans["exact"])
            self.assertIn("/request/" + pointer, TRUE_EITHER_WAY)
            plan["request"][pointer] = value
            with self.subTest(pointer=pointer):
                self.assertEqual(self.verify(plan).returncode, DONE)

    def unsearched_plans(self):
        """Plans that say what was done to them instead of what was asked, and what is the exit code
        of each as it is. All warn that the profile has no time of the optimizer."""
        profile = tool.small_profile()
        del profile["optimizer"]["step_ns_per_parameter_byte"]
        result = self.run_tool("--model", self.write("small.json", profile), "--topo",
                               self.write("2x2.json", tool.small_topology()),
                               "--write-baselines", "others", "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        plans = {"baseline": (self.read("others/data-parallel.plan.json"), DONE)}
        for family in ("gpipe", "zb-h1"):
            result = self.run_tool("reschedule", "plan.json", "--schedule", family, "-o",
                                   "other.json")
            self.assertEqual(result.returncode, DONE, result.stderr)
            plans[family] = (self.read("other.json"), DONE)
        result = self.run_tool("export", "plan.json", "--to", "pipedream", "-o", "stages.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        result = self.run_tool("import", "plan", "stages.json", "--model", "small.json", "--topo",
                               "2x2.json", "-o", "other.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        plans["import"] = (self.read("other.json"), NOT_VERIFIED)  # it warns of PipeDream too
        return plans

    def test_what_no_space_holds_is_said_as_it_is(self):
        exact = copy.deepcopy(self.plans["exact"])
        del exact["request"]
        for name, plan in {"without a request": exact,
                           "baseline": self.unsearched_plans()["baseline"][0]}.items():
            plan["search_space"]["outside"] = "nothing"
            self.assert_refused(name, "outside", plan, ("/search_space/outside",))

    def test_warnings_of_plans_that_nobody_searched_follow_from_the_plan(self):
        for name, (plan, code) in self.unsearched_plans().items():
            with self.subTest(plan=name):
                result = self.verify(plan)
                self.assertEqual(result.returncode, code, result.stdout + result.stderr)
            changed_plan = copy.deepcopy(plan)
            del changed_plan["warnings"][-1]
            self.assert_refused(name, "removed", changed_plan, ("/warnings",))
            changed_plan = copy.deepcopy(plan)
            changed_plan["warnings"].append("all is well")
            self.assert_refused(name, "added", changed_plan, ("/warnings",))

    def test_baselines_of_a_search_that_was_stopped_may_be_slower_but_not_faster(self):
        plan = copy.deepcopy(self.plans["dapple"])
        plan["request"].update(stopped_by="signal")
        plan["warnings"].append("the search was interrupted before it was through")
        self.assertEqual(self.verify(plan).returncode, DONE)
        for change in (slower_baseline, infeasible_baseline, baseline_removed, baselines_removed):
            document = copy.deepcopy(plan)
            change(document)
            with self.subTest(change=change.__name__):
                result = self.verify(document)
                self.assertEqual(result.returncode, NOT_VERIFIED, result.stdout + result.stderr)
                self.assertIn("baselines: the search was stopped", " ".join(result.stdout.split()))
        document = copy.deepcopy(plan)
        baseline = next(each for each in document["baselines"] if each["feasible"])
        baseline["time_parts"]["compute_ns"] -= 1
        baseline["iteration_ns"] -= 1
        self.assert_refused("stopped", "faster", document, ("/baselines",))

    def test_a_stop_where_the_gap_that_was_asked_for_was_reached_is_a_false_claim(self):
        for more in ((), ("--no-baselines",)):
            inputs = ("--model", tool.ROOT / "profiles" / "vgg-19.json", "--topo", tool.DGX1,
                      "--global-batch", "256", "--gap", "10%", *more)
            result = self.run_tool(*inputs, "-o", "plan.json")
            self.assertEqual(result.returncode, DONE, result.stderr)
            plan = self.read("plan.json")
            self.assertGreater(plan["predicted"]["optimality_gap"], 0)
            self.assertEqual(self.verify(plan).returncode, DONE)
            for reason in ("signal", "time-limit"):
                plan["request"].update(stopped_by=reason,
                                       time_limit_ns=1 if reason == "time-limit" else None)
                self.assert_refused("gap", reason, plan, ("/request/stopped_by",))

    def test_a_plan_within_its_gap_says_that_it_was_stopped_only_where_that_shows(self):
        inputs = ("--model", tool.ROOT / "profiles" / "vgg-19.json", "--topo", tool.DGX1,
                  "--global-batch", "256", "--gap", "50%")
        for limit in ("0.000001", "0.002", "0.004", "0.008", "0.02", "0.05"):
            for more in ((), ("--no-baselines",), ("--schedule", "auto")):
                result = self.run_tool(*inputs, "--time-limit", limit, "-o", "plan.json", *more)
                self.assertEqual(result.returncode, DONE, result.stderr)
                plan = self.read("plan.json")
                with self.subTest(limit=limit, more=more):
                    if more == ("--no-baselines",) and plan["predicted"]["optimality_gap"] <= 0.5:
                        self.assertIsNone(plan["request"]["stopped_by"])
                    self.assertIn(self.verify(plan).returncode, (DONE, NOT_VERIFIED))

    def test_the_time_limit_of_a_warning_may_be_rounded_as_in_older_files(self):
        result = self.run_tool("--model", tool.ROOT / "profiles" / "vgg-19.json", "--topo",
                               tool.DGX1, "--no-baselines", "--time-limit", "0.000007",
                               "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        plan = self.read("plan.json")
        said = "the search was stopped by --time-limit 7e-06 before the gap was closed"
        self.assertEqual(plan["warnings"][-1], said)
        self.assertIn(self.verify(plan).returncode, (DONE, NOT_VERIFIED))
        plan["warnings"][-1] = said.replace("7e-06", "7.000000000000001e-06")
        self.assertIn(self.verify(plan).returncode, (DONE, NOT_VERIFIED))
        plan["warnings"][-1] = said.replace("7e-06", "8e-06")
        self.assert_refused("stopped", "limit", plan, ("/warnings",))

    def test_what_is_weaker_and_true_is_no_false_claim(self):
        plan = copy.deepcopy(self.plans["zb-h1"])
        plan["predicted"]["speedup_over_one_device"] = None
        self.assertEqual(self.verify(plan).returncode, DONE)
        # The bound of an exhaustive search, a nanosecond lower: but then plans must be open.
        plan = copy.deepcopy(self.plans["exact"])
        iteration = plan["predicted"]["iteration_ns"]
        plan["predicted"]["lower_bound_ns"] = iteration - 1
        plan["predicted"]["optimality_gap"] = 1 / iteration
        self.assert_refused("exact", "weaker", plan, ("/warnings", "/search_space/open"))

    def test_without_the_request_nothing_but_figures_and_bound_is_confirmed(self):
        plan = copy.deepcopy(self.plans["exact"])
        del plan["request"]
        result = self.verify(plan)
        self.assertEqual(result.returncode, NOT_VERIFIED, result.stderr)
        self.assertIn("the file does not say what was asked", result.stdout)


if __name__ == "__main__":
    tool.main()
