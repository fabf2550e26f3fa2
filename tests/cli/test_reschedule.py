"""A plan under another schedule, through files."""

import re

import tool
from tool import BAD_INPUT, DONE, INFEASIBLE, NOT_VERIFIED, USAGE, ToolTest

LOOPED = ("interleaved", "breadth-first")
ORDERED = ("list-scheduled", "zb-h1", "zb-h2", "zb-v")


class Rescheduling(ToolTest):
    def setUp(self):
        super().setUp()
        # Two stages of three layers, four micro-batches.
        self.make_plan("plan.json", "--pin", "stages=2", "--micro-batch", "4")

    def reschedule(self, family, *more):
        return self.run_tool("reschedule", "plan.json", "--schedule", family, "-o", "new.json",
                             *more)

    def test_documents_have_a_row_of_every_family(self):
        self.assertEqual({"gpipe", "1f1b", *LOOPED, *ORDERED}, set(tool.FAMILIES))
        schedules = (tool.ROOT / "docs" / "schedules.md").read_text()
        rows = " ".join(re.findall(r"^\| (`.*?) \|", schedules, re.MULTILINE))
        glossary = (tool.ROOT / "docs" / "glossary.md").read_text()
        listed = re.search(r"^\| schedule family \| (.*?) \|", glossary, re.MULTILINE)[1]
        for family in tool.FAMILIES:
            with self.subTest(family=family):
                self.assertIn(f"`{family}`", rows)
                self.assertIn(f"`{family}`", listed)

    def test_every_family_gives_a_plan_that_is_sound_and_takes_what_it_says(self):
        for family in ("gpipe", "1f1b", *LOOPED, *ORDERED):
            with self.subTest(family=family):
                result = self.reschedule(family)
                self.assertEqual(result.returncode, DONE, result.stderr)
                plan = self.read("new.json")
                self.assertEqual(plan["schedule"]["family"], family)
                self.assertEqual(plan["schedule"]["order"] is not None, family in ORDERED)
                for command in ("validate", "simulate", "schedule"):
                    again = self.run_tool(command, "new.json")
                    self.assertEqual(again.returncode, DONE, again.stderr)
                verified = self.run_tool("verify", "new.json")
                self.assertEqual(verified.returncode, DONE, verified.stdout + verified.stderr)
                self.assertIn("same figures as in the file",
                              self.run_tool("simulate", "new.json").stdout)
                predicted = plan["predicted"]
                if family in ORDERED:
                    self.assertLessEqual(predicted["lower_bound_ns"], predicted["iteration_ns"])
                    self.assertFalse(plan["search_space"]["complete"])
                else:
                    self.assertIsNone(predicted["lower_bound_ns"])

    def test_what_was_tried_is_recorded_and_said(self):
        for family in ("gpipe", "1f1b", *LOOPED, *ORDERED):
            with self.subTest(family=family):
                result = self.reschedule(family, "-v")
                plan = self.read("new.json")
                record = plan["search_space"]
                is_searched = family == "1f1b" or family in ORDERED
                self.assertEqual(record["candidates"] > 0, is_searched)
                self.assertEqual(record["simulated"] > 0, is_searched)
                if is_searched:
                    self.assertIn(f"{record['candidates']:,} tried, {record['simulated']:,} "
                                  "simulated", result.stdout)
                predicted = plan["predicted"]
                is_open = (family in ORDERED and
                           predicted["lower_bound_ns"] < predicted["iteration_ns"])
                self.assertEqual(record["open"], int(is_open))
                # Files of before that was counted say 0, which is not false.
                for count in {0, 1, 2} - {record["open"]}:
                    record["open"] = count
                    self.write("other.json", plan)
                    verified = self.run_tool("verify", "other.json")
                    if is_open and count == 0:
                        self.assertEqual(verified.returncode, DONE, verified.stderr)
                    else:
                        self.assert_error(verified, BAD_INPUT, "/search_space/open: expected 0")

    def test_more_orders_are_tried_if_asked_for(self):
        # Three stages do not divide the devices evenly: the best order is not proven to be.
        self.make_plan("plan.json", "--pin", "stages=3", "--micro-batch", "2")
        tried = []
        for orders in (8, 800):
            self.assertEqual(self.reschedule("zb-v", "--orders", orders).returncode, DONE)
            tried.append(self.read("new.json")["search_space"]["candidates"])
        self.assertLess(tried[0], tried[1])
        # The bound on orders is derived anew, and not one nanosecond more.
        plan = self.read("new.json")
        figures = plan["predicted"]
        self.assertLess(figures["lower_bound_ns"], figures["iteration_ns"])
        self.assertEqual(self.run_tool("verify", "new.json").returncode, DONE)
        figures["lower_bound_ns"] += 1
        gap = figures["iteration_ns"] - figures["lower_bound_ns"]
        figures["optimality_gap"] = gap / figures["iteration_ns"]
        verified = self.run_tool("verify", self.write("other.json", plan))
        self.assertEqual(verified.returncode, NOT_VERIFIED, verified.stdout + verified.stderr)

    def test_devices_of_looped_schedules_hold_several_stages(self):
        for family in LOOPED:
            for chunks in (2, 3):
                with self.subTest(family=family, chunks=chunks):
                    result = self.reschedule(family, "--chunks", chunks)
                    self.assertEqual(result.returncode, DONE, result.stderr)
                    stages = self.read("new.json")["stages"]
                    self.assertEqual(len(stages), 2 * chunks)
                    for number, stage in enumerate(stages):
                        self.assertEqual(stage["devices"], stages[number % 2]["devices"])

    def test_an_order_in_a_file_is_taken(self):
        self.assertEqual(self.reschedule("zb-h1").returncode, DONE)
        filed = self.read("new.json")
        text = self.write("order.txt", self.run_tool("schedule", "new.json").stdout)
        result = self.reschedule("given", "--order", text)
        self.assertEqual(result.returncode, DONE, result.stderr)
        given = self.read("new.json")
        self.assertEqual(given["schedule"]["order"], filed["schedule"]["order"])
        self.assertEqual(given["predicted"]["iteration_ns"], filed["predicted"]["iteration_ns"])

    def test_the_own_order_of_a_plan_can_be_given_whatever_its_family(self):
        for family in (*LOOPED, *ORDERED):
            with self.subTest(family=family):
                self.assertEqual(self.reschedule(family).returncode, DONE)
                filed = self.read("new.json")
                text = self.write("order.txt", self.run_tool("schedule", "new.json").stdout)
                result = self.run_tool("reschedule", "new.json", "--schedule", "given",
                                       "--order", text, "-o", "given.json")
                self.assertEqual(result.returncode, DONE, result.stderr)
                given = self.read("given.json")
                self.assertEqual(given["stages"], filed["stages"])
                self.assertEqual(given["predicted"]["iteration_ns"],
                                 filed["predicted"]["iteration_ns"])

    def test_an_order_that_cannot_be_given_is_refused_for_one_reason(self):
        self.assertEqual(self.reschedule("zb-v").returncode, DONE)
        text = self.write("order.txt", self.run_tool("schedule", "new.json").stdout)
        result = self.reschedule("given", "--order", text)
        self.assert_error(result, BAD_INPUT, "line 1: expected an action of a stage on node",
                          " (0), got 3F0: the order is of a plan with more stages than this one's 2")
        listed = self.write("schedule.csv", self.run_tool("schedule", "plan.json", "--format",
                                                          "csv").stdout)
        self.assert_error(self.reschedule("given", "--order", listed), BAD_INPUT,
                          "line 1: expected the text form of schedule or PyTorch's CSV (the target "
                          "torch-csv), got the CSV of schedule")
        result = self.reschedule("given", "--order", self.write("order.txt", "0F0\n1F0\n"))
        self.assertEqual(result.returncode, INFEASIBLE)
        self.assertRegex(result.stderr, r"^error: no given schedule of these stages: .* \(\d+ more "
                                        r"faults are not listed\)\n  cheapest remedy  .*\n$")

    def test_backwards_count_as_half_only_where_they_are_split_and_not_measured(self):
        measured = {"input_gradient_ns": 1200000, "weight_gradient_ns": 800000}
        for parts, count in ((0, 6), (5, 1), (6, 0)):
            layers = tool.small_profile()["layers"]
            layer = {**layers[0], "repeat": 1}
            point = layer["measurements"][0]
            layers = [{**layer, "name": f"l{i}",
                       "measurements": [{**point, **measured} if i < parts else point]}
                      for i in range(6)]
            result = self.run_tool(
                "--model", self.write("parts.json", tool.small_profile(layers=layers)), "--topo",
                self.write("2x2.json", tool.small_topology()), "--pin", "stages=2", "-o",
                "plan.json")
            self.assertEqual(result.returncode, DONE, result.stderr)
            self.assertEqual(self.reschedule("zb-h1").returncode, DONE)
            said = [warning for warning in self.read("new.json")["warnings"] if "half" in warning]
            self.assertEqual(said, {
                6: ["the profile does not measure the parts of its layers' backwards: each counts "
                    "as half"],
                1: ["the profile does not measure the parts of the backward of 1 of 6 layers with "
                    "parameters: each counts as half"],
                0: []}[count])
            # An order of whole backwards has no halves.
            text = self.write("order.txt", self.run_tool("schedule", "plan.json").stdout)
            self.assertEqual(self.reschedule("given", "--order", text).returncode, DONE)
            self.assertNotIn("half", " ".join(self.read("new.json")["warnings"]))

    def test_devices_stay_idle_for_a_reason_that_is_known(self):
        idle = "3 of 4 devices stay idle: "
        plan = self.make_plan("plan.json", "--pin", "stages=1", "--pin", "replicas=1")
        self.assertIn(idle + "no plan that was found with what is pinned gains from them",
                      self.read(plan)["warnings"])
        self.assertEqual(self.reschedule("gpipe").returncode, DONE)
        self.assertIn(idle + "the plan does not use them", self.read("new.json")["warnings"])

    def test_the_same_again_is_the_same_to_the_byte(self):
        for family in ORDERED:
            with self.subTest(family=family):
                self.reschedule(family)
                first = (self.folder / "new.json").read_bytes()
                self.reschedule(family)
                self.assertEqual((self.folder / "new.json").read_bytes(), first)

    def test_wrong_uses_are_named(self):
        self.assert_error(self.reschedule("interleaved", "--chunks", "1"), USAGE,
                          "--chunks: expected 2 or more, as 1f1b has one stage per device, got 1")
        self.assert_error(self.reschedule("zb"), USAGE, "--schedule: expected ", "got \"zb\"")
        self.assert_error(self.reschedule("zb-h1", "--chunks", "2"), USAGE,
                          "--chunks: needs --schedule interleaved or breadth-first")
        self.assert_error(self.reschedule("given"), USAGE, "--order: a file is required")
        self.assert_error(self.reschedule("1f1b", "--orders", "9"), USAGE,
                          "--orders: expected a schedule whose order is searched, ", "got 1f1b")
        self.assert_error(self.reschedule("gpipe", "--time-limit", "9"), USAGE,
                          "--time-limit: expected a schedule that is searched, ", "got gpipe")
        self.assert_error(self.reschedule("1f1b", "--order", self.write("o.txt", "0F0")), USAGE,
                          "--order: needs --schedule given")
        self.assert_error(self.reschedule("given", "--order", self.write("o.txt", "0F0,0X0\n")),
                          BAD_INPUT, "o.txt: line 1: expected an action such as 2F0, got \"0X0\"")
        self.assert_error(self.run_tool("reschedule", "plan.json"), USAGE, "--schedule: a schedule family is required")
        self.assert_error(self.run_tool("reschedule", "--schedule", "gpipe"), USAGE,
                          "reschedule: expected one plan file, got 0")

    def test_what_does_not_fit_is_said_and_nothing_is_written(self):
        result = self.reschedule("interleaved", "--chunks", "4")
        self.assertEqual(result.returncode, INFEASIBLE)
        self.assertEqual(result.stderr,
                         "error: no interleaved schedule of these stages: expected at least 8 "
                         "layers, one for each stage, got 6\n"
                         "  cheapest remedy  \"plan --schedule interleaved\", which chooses stages "
                         "for it\n")
        self.assertFalse((self.folder / "new.json").exists())

    def test_what_memory_lacks_is_said_with_the_remedy(self):
        # Three layers' stash is 300 MiB: two micro-batches fit into 1 GiB, GPipe's four do not.
        profile = tool.small_profile()
        profile["layers"][0]["measurements"][0]["stash_bytes"] = 100 << 20
        arguments = ("--model", self.write("wide.json", profile),
                     "--topo", self.write("2x2.json", tool.small_topology()), "--micro-batch", "4",
                     "--pin", "stages=2", "--pin", "replicas=1", "--pin", "recompute=off",
                     "-o", "plan.json")
        self.assertEqual(self.run_tool(*arguments).returncode, DONE)
        result = self.reschedule("gpipe")
        self.assertEqual(result.returncode, INFEASIBLE)
        self.assertRegex(
            result.stderr,
            r"^error: no gpipe schedule of these stages: what it holds does not fit into memory\n"
            r"  tightest device  node\d:\d needs 1\.\d+ GiB, has 1\.00 GiB: \d+\.?\d* MiB "
            r"\(\d+ bytes\) are missing\n"
            r"  cheapest remedy  --schedule 1f1b: it holds fewer micro-batches at a time\n$")
        self.assertEqual(self.reschedule("1f1b").returncode, DONE)
        # Of one layer's 2000 MiB not even one micro-batch fits.
        profile["layers"][0]["measurements"][0]["stash_bytes"] = 2000 << 20
        self.write("wide.json", profile)
        self.assertEqual(self.run_tool(*arguments, "--unlimited-memory").returncode, DONE)
        for family in ("1f1b", *ORDERED):
            with self.subTest(family=family):
                result = self.reschedule(family)
                self.assertEqual(result.returncode, INFEASIBLE)
                self.assertRegex(result.stderr, r"^error: no [a-z0-9-]+ schedule of these stages: .* "
                                                r"fits? into memory.*\n  tightest device  .*\n"
                                                r"  cheapest remedy  \"plan --schedule [a-z0-9-]+\", "
                                                r"which chooses stages for it, or more memory\n$")


if __name__ == "__main__":
    tool.main()
