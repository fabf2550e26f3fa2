"""Help, version, and what is said of a wrong command line."""

import re

import tool
from tool import BAD_INPUT, DONE, ENVIRONMENT, USAGE, ToolTest

COMMANDS = ("plan", "simulate", "validate", "verify", "diff", "schedule", "report", "reschedule",
            "export", "import", "estimate", "calibrate")
PARTS = (("import", "topology"), ("import", "model"), ("import", "plan"))


class Help(ToolTest):
    def test_help_of_everything_fits_a_screen_and_has_an_example(self):
        for arguments in ((), *((command,) for command in COMMANDS), *PARTS):
            for option in ("--help", "-h"):
                with self.subTest(arguments=arguments, option=option):
                    result = self.run_tool(*arguments, option)
                    self.assertEqual(result.returncode, DONE)
                    self.assertEqual(result.stderr, "")
                    lines = result.stdout.splitlines()
                    self.assertLessEqual(len(lines), 50 if arguments == ("plan",) else 40)
                    self.assertLessEqual(max(map(len, lines)), 80)
                    self.assertIn("Example", result.stdout)

    def test_help_names_every_command(self):
        text = self.run_tool("--help").stdout
        for command in COMMANDS:
            self.assertRegex(text, rf"(?m)^  {command} ")

    def test_every_option_in_a_help_text_is_one_that_the_command_takes(self):
        commands = [(command,) for command in COMMANDS if command != "import"]
        for command in (*commands, *PARTS):
            text = self.run_tool(*command, "--help").stdout
            # What stands in quotes is an option of another program; examples are of several
            # commands, and are run by test_examples.py.
            own = re.sub(r'"[^"]*"', "", text.partition("\nExample")[0])
            for option in sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", own))):
                with self.subTest(command=command, option=option):
                    result = self.run_tool(*command, option)
                    self.assertNotIn("unknown option", result.stderr)

    def test_no_arguments_at_all_is_a_usage_error_that_shows_the_help(self):
        result = self.run_tool()
        self.assertEqual(result.returncode, USAGE)
        self.assertEqual(result.stdout, "")
        self.assertIn("Usage", result.stderr)

    def test_version_names_the_formats_that_are_read(self):
        result = self.run_tool("--version")
        self.assertEqual(result.returncode, DONE)
        self.assertRegex(result.stdout, r"^dapple-plan \d+\.\d+\.\d+\n")
        for schema in ("dapple-profile/1", "dapple-topology/1", "dapple-plan/1"):
            self.assertIn(schema, result.stdout)


    def test_help_of_a_command_is_what_the_command_says(self):
        for arguments in ((), *((command,) for command in COMMANDS), *PARTS):
            expected = self.run_tool(*arguments, "--help")
            for words in (("help", *arguments), ("help", *arguments, "--help")):
                result = self.run_tool(*words)
                self.assertEqual(result.returncode, DONE, result.stderr)
                self.assertEqual(result.stdout, expected.stdout)
        self.assert_error(self.run_tool("help", "simulat"), USAGE, "nearest is simulate")

    def test_behind_help_stands_a_command_and_nothing_more(self):
        for words, extra in ((("plan", "extra"), "extra"), (("import", "plan", "x"), "x"),
                             (("verify", "--budget"), "--budget")):
            with self.subTest(words=words):
                self.assert_error(self.run_tool("help", *words), USAGE,
                                  f"error: {extra}: expected nothing after the name of a command")

    def test_help_names_every_exit_code(self):
        text = self.run_tool("--help").stdout
        codes = text.partition("Exit code: ")[2]
        self.assertEqual(re.findall(r"\b\d\b", codes), ["0", "1", "2", "3", "4", "5", "6"])

    def test_switches_of_every_command_may_stand_before_its_name(self):
        plan = self.make_plan()
        for switch in ("-q", "--quiet", "-v", "--verbose"):
            for command in (("validate", plan), ("plan", *self.small_inputs(), "-o", "p.json"),
                            (*self.small_inputs(), "-o", "p.json"), ("help", "plan"),
                            ("--version",)):
                with self.subTest(switch=switch, command=command):
                    # What is written is named as the command was given; times are not told.
                    before, behind = self.run_tool(switch, *command), self.run_tool(*command, switch)
                    self.assertEqual(before.returncode, DONE, before.stderr)
                    if command[0] not in ("help", "--version"):
                        self.assertEqual((before.stdout, before.stderr),
                                         (behind.stdout, behind.stderr))
        self.assert_error(self.run_tool("-q", "simulat"), USAGE, "nearest is simulate")
        self.assert_error(self.run_tool("-q"), USAGE, "--model")
        self.assert_error(self.run_tool("-q", "validate", plan, "-q"), USAGE, "--quiet: given twice")
        self.assert_error(self.run_tool("-q", binary=tool.ARGUMENTS.executor), USAGE,
                          "-q: expected a command before the options")

    def test_the_first_screen_says_how_to_get_the_rest(self):
        text = self.run_tool().stderr
        self.assertIn("plan --help", text)
        self.assertIn("dapple-plan help COMMAND", text)
        self.assertIn("dapple-plan plan --help shows the options", self.run_tool("--model").stderr)


class Quiet(ToolTest):
    def test_a_quiet_command_says_nothing_when_all_is_well(self):
        inputs = self.small_inputs()
        plan = self.make_plan()
        for arguments in ((*inputs, "-o", "q.json"), ("simulate", plan, "--trace", "t.json"),
                          ("validate", plan), ("verify", plan),
                          ("export", plan, "--to", "hostfile", "-o", "hosts"),
                          ("report", plan, "-o", "p.html"),
                          ("reschedule", plan, "--schedule", "gpipe", "-o", "g.json")):
            for option in ("-q", "--quiet"):
                with self.subTest(arguments=arguments):
                    result = self.run_tool(*arguments, option)
                    self.assertEqual((result.returncode, result.stdout, result.stderr),
                                     (DONE, "", ""))
        self.assertEqual(self.read("q.json"), self.read(plan))

    def test_results_that_were_asked_for_are_there(self):
        plan = self.make_plan()
        for arguments in ((*self.small_inputs(), "-o", "-"), ("diff", plan, plan),
                          ("schedule", plan)):
            loud, quiet = self.run_tool(*arguments), self.run_tool(*arguments, "-q")
            self.assertEqual((quiet.stdout, quiet.stderr), (loud.stdout, ""))

    def test_what_the_summary_warns_of_is_told_all_the_same(self):
        topology = tool.small_topology()
        topology["devices"] = {"V100": topology["devices"]["card"]}
        topology["servers"][0]["device"] = "V100"
        inputs = ("--model", self.write("small.json", tool.small_profile(device="V100")),
                  "--topo", self.write("v100.json", topology))
        self.assertEqual(self.run_tool(*inputs, "-o", "plan.json").returncode, DONE)
        layout = ("--pipeline-model-parallel-size 2 --micro-batch-size 4 "
                  "--pipeline-model-parallel-layout Ettt|tttL")
        for arguments in ((*inputs, "-o", "q.json"), ("simulate", "plan.json"),
                          ("reschedule", "plan.json", "--schedule", "gpipe", "-o", "g.json"),
                          ("import", "plan", "--layout", layout, "--replicas", "2", *inputs,
                           "-o", "i.json")):
            with self.subTest(arguments=arguments):
                quiet = self.run_tool(*arguments, "-q")
                self.assertEqual((quiet.returncode, quiet.stdout), (DONE, ""), quiet.stderr)
                loud = self.run_tool(*arguments, environment={"COLUMNS": "200"}).stdout
                warnings = [line.removeprefix("warning: ") for line in quiet.stderr.splitlines()]
                self.assertIn("nothing of the memory of V100 is reserved", quiet.stderr)
                for warning in warnings:
                    self.assertIn(" ".join(warning.split()), " ".join(loud.split()))

    def test_errors_are_told_all_the_same(self):
        self.assert_error(self.run_tool("validate", "none.json", "-q"), ENVIRONMENT, "none.json")
        code, shown = self.run_on_terminal(*self.small_inputs(), "-q")
        self.assertEqual((code, shown), (DONE, ""))

    def test_quiet_and_verbose_exclude_each_other(self):
        self.assert_error(self.run_tool(*self.small_inputs(), "-q", "-v"), USAGE, "--quiet")


class WrongCommandLines(ToolTest):
    def test_an_unknown_command_or_option_names_the_nearest(self):
        for arguments, suggestion in (
                (("simulat",), "simulate"), (("dif",), "diff"), (("vlaidate",), "validate"),
                (("--modle", "x"), "--model"), (("plan", "--theads=2"), "--threads"),
                (("--treads", "2"), "--threads"), (("schedule", "--fromat"), "--format")):
            with self.subTest(arguments=arguments):
                self.assert_error(self.run_tool(*arguments), USAGE, "unknown",
                                  "nearest is " + suggestion)

    def test_a_wrong_value_names_the_nearest(self):
        inputs = self.small_inputs()
        for option, value, nearest in (
                ("--schedule", "1F1B", "1f1b"), ("--schedule", "zbv", "zb-v"),
                ("--schedule", "interleave", "interleaved"), ("--planner", "Exact", "exact"),
                ("--for", "megatrom", "megatron"), ("--pin", "cut=Layer.2", "layer.2"),
                ("--pin", "stage=2", "stages="), ("--pin", "Recompute=on", "recompute="),
                ("--pin", "dephts=least", "depths="), ("--pin", "depths=leats", "least"),
                ("--pin", "recompute=offf", "off"), ("--micro-batch", "atuo", "auto"),
                ("--bucket-size", "Auto", "auto")):
            with self.subTest(option=option, value=value):
                result = self.run_tool(*inputs, option, value)
                self.assert_error(result, USAGE, f"error: {option}: ", f", nearest is {nearest}")
        for option, value in (("--contention", "x"), ("--planner", "best"), ("--pin", "zzzz=2")):
            result = self.run_tool(*inputs, option, value)
            self.assert_error(result, USAGE)
            self.assertNotIn("nearest", result.stderr)

    def test_what_resembles_nothing_gets_no_suggestion(self):
        result = self.run_tool("--zzzzzzzzzz")
        self.assert_error(result, USAGE, "unknown option")
        self.assertNotIn("nearest", result.stderr)

    def test_numbers_must_be_whole_and_positive(self):
        for value in ("0", "-1", "1.5", "1e3", "", "x", "99999999999999999999", "2 "):
            with self.subTest(value=value):
                self.assert_error(
                    self.run_tool(*self.small_inputs(), f"--global-batch={value}"), USAGE,
                    "--global-batch")

    def test_values_outside_the_choices_are_named_with_the_choices(self):
        others = [family for family in tool.FAMILIES if family != "1f1b"]
        for option, value, expected in (
                ("--bucket-size", "25", "expected a size such as \"25 MiB\" (B with k, M, G, T, Ki, "
                 "Mi or Gi), at least 1 B, got \"25\""),
                ("--bucket-size", "0.3 B", "expected a size such as \"25 MiB\" (B with k, M, G, T, "
                 "Ki, Mi or Gi), at least 1 B, got \"0.3 B\""),
                ("--optimizer-step", "never", "expected at-end or per-bucket, got \"never\""),
                ("--schedule", "zb", f"expected 1f1b, auto, {', '.join(others[:-1])} or {others[-1]}, "
                                     "got \"zb\""),
                ("--planner", "best", "expected exact or dapple, got \"best\""),
                ("--gap", "1 %", "expected a fraction such as \"1%\" or \"0.01\""),
                ("--gap", "100%", "at least 0 and below 1, got \"100%\""),
                ("--gap", "1", "below 1"),
                ("--gap", "-0.1", "at least 0"),
                ("--gap", "%", "got \"%\""),
                ("--gap", "0.0000000001", "expected a fraction"),
                ("--time-limit", "0", "expected seconds, a number above 0"),
                ("--time-limit", "-1", "above 0"),
                ("--time-limit", "inf", "got \"inf\""),
                ("--time-limit", "5s", "got \"5s\""),
                ("--time-limit", "1000000.5", "at most 1000000"),
                ("--contention", "maybe", "expected on or off, got \"maybe\""),
                ("--time-scale", "nan", "expected a number above 0"),
                ("--time-scale", "0", "expected a number above 0"),
                ("--time-scale", "1.0000000001", "at most nine decimals"),
                ("--threads", "1000", "from 1 to 256")):
            with self.subTest(option=option, value=value):
                self.assert_error(self.run_tool(*self.small_inputs(), option, value), USAGE,
                                  f"error: {option}: ", expected)

    def test_a_gap_for_a_planner_that_proves_none_is_refused(self):
        self.assert_error(self.run_tool(*self.small_inputs(), "--planner", "dapple", "--gap", "1%"),
                          USAGE, "--gap: needs --planner exact")

    def test_an_option_given_twice_or_without_its_value_is_refused(self):
        self.assert_error(self.run_tool("--model", "a", "--model", "b"), USAGE, "--model: given twice")
        for option in ("--gap", "--time-limit"):
            self.assert_error(self.run_tool(option, "1", option, "1"), USAGE,
                              f"{option}: given twice")
        self.assert_error(self.run_tool("--model"), USAGE, "--model", "expected a value")
        self.assert_error(self.run_tool("--unlimited-memory=yes"), USAGE, "--unlimited-memory")

    def test_missing_inputs_are_named(self):
        self.assert_error(self.run_tool("plan"), USAGE, "--model")
        self.assert_error(self.run_tool("--model", "x"), USAGE, "--topo")
        for arguments, names in (
                (("--model", "-", "--topo", "-"), "--model and --topo"),
                (("diff", "-", "-"), "A and B"),
                (("diff", "a", "-", "--topo", "-"), "B and --topo"),
                (("simulate", "-", "--model", "-"), "--model and the plan"),
                (("reschedule", "-", "--schedule", "given", "--order", "-"),
                 "the plan and --order"),
                (("validate", "-", "a", "-"), "FILE 1 and FILE 3"),
        ):
            with self.subTest(arguments=arguments):
                self.assert_error(self.run_tool(*arguments), USAGE,
                                  f"expected a file, got \"-\" for {names} both")
        for command in ("simulate", "validate", "verify", "diff", "schedule"):
            self.assert_error(self.run_tool(command), USAGE, command)
        self.assert_error(self.run_tool("diff", "one"), USAGE, "expected two plan files, got 1")

    def test_a_word_among_the_options_is_refused(self):
        self.assert_error(self.run_tool("plan", "small.json"), USAGE, "small.json")

    def test_options_for_foreign_profiles_are_refused_with_one_of_ours(self):
        for option, value in (("--profile-batch", "4"), ("--optimizer", "sgd"),
                              ("--batch-scaling", "floor"), ("--stash", "2"),
                              ("--profile-device", "card")):
            with self.subTest(option=option):
                self.assert_error(self.run_tool(*self.small_inputs(), option, value), USAGE, option)

    def test_a_time_scale_that_would_do_nothing_is_refused(self):
        self.assert_error(self.run_tool(*self.small_inputs(), "--time-scale", "2"), USAGE,
                          "--time-scale")

    def test_recost_without_anything_to_cost_with_is_refused(self):
        plan = self.make_plan()
        self.assert_error(self.run_tool("simulate", plan, "--recost"), USAGE, "--recost")


class BadInputs(ToolTest):
    def test_a_missing_file_is_an_environment_error(self):
        self.assert_error(self.run_tool("--model", "none.json", "--topo", "none.json"), ENVIRONMENT,
                          "none.json")
        self.assert_error(self.run_tool("validate", "none.json"), ENVIRONMENT, "none.json")

    def test_a_fault_names_file_place_expectation_and_find(self):
        self.write("bad.json", tool.small_profile(global_batch_size=-3))
        self.write("2x2.json", tool.small_topology())
        result = self.run_tool("--model", "bad.json", "--topo", "2x2.json")
        self.assert_error(result, BAD_INPUT)
        self.assertRegex(result.stderr, r"error: bad\.json: /global_batch_size: expected .*-3")

    def test_inputs_given_the_wrong_way_round_are_bad_input(self):
        model, topology = self.small_inputs()[1::2]
        self.assert_error(self.run_tool("--model", topology, "--topo", model), BAD_INPUT,
                          f"{topology}: expected a layer profile, got a topology, "
                          "which --topo takes")
        self.assert_error(self.run_tool("--model", model, "--topo", model), BAD_INPUT,
                          f"{model}: expected a topology, got a layer profile, "
                          "which --model takes")

    def test_bandwidths_are_read_as_vendors_write_them(self):
        plans = []
        for written in ("10 Gbit/s", "10 Gbps", "10 Gb/s"):
            topology = tool.small_topology()
            topology["servers"][0]["nics"][0]["bandwidth"] = written
            result = self.run_tool("--model", self.write("small.json", tool.small_profile()),
                                   "--topo", self.write("t.json", topology), "-o", "-")
            self.assertEqual(result.returncode, DONE, result.stderr)
            plans.append(result.stdout)
        self.assertEqual(plans[1:], plans[:1] * 2)

    def test_a_device_that_was_not_profiled_needs_a_time_scale(self):
        other = tool.small_topology()
        other["devices"] = {"other": other["devices"]["card"]}
        other["servers"][0]["device"] = "other"
        inputs = ("--model", self.write("small.json", tool.small_profile()),
                  "--topo", self.write("other.json", other), "-o", "plan.json")
        self.assert_error(self.run_tool(*inputs), BAD_INPUT, "other", "(--time-scale X gives it)")
        result = self.run_tool(*inputs, "--time-scale", "0.5")
        self.assertEqual(result.returncode, DONE, result.stderr)
        kinds = self.read("plan.json")["topology"]["description"]["devices"]
        self.assertEqual(kinds["other"]["time_scale"], {"card": 0.5})
        # The command has no such option.
        again = self.run_tool("simulate", "plan.json", "--topo", "other.json", "--recost")
        self.assert_error(again, BAD_INPUT, "or a time_scale for it, got \"other\" without one")
        self.assertNotIn("--time-scale", again.stderr)

    def test_a_batch_that_neither_side_says_is_a_usage_error(self):
        profile = tool.small_profile()
        del profile["global_batch_size"]
        self.write("small.json", profile)
        self.write("2x2.json", tool.small_topology())
        result = self.run_tool("--model", "small.json", "--topo", "2x2.json")
        self.assert_error(result, USAGE, "--global-batch")


if __name__ == "__main__":
    tool.main()
