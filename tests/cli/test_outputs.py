"""Where results go, and that no fault on the way leaves half of one."""

import json
import os
import pathlib
import re
import resource
import subprocess
import unittest

import tool
from tool import DONE, ENVIRONMENT, USAGE, ToolTest


class Streams(ToolTest):
    def test_without_output_the_summary_is_on_stdout_and_its_last_line_names_the_plan(self):
        result = self.run_tool(*self.small_inputs())
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(result.stderr, "")
        self.assertEqual(result.stdout.splitlines()[-1], "plan written to ./small.plan.json")
        self.assertEqual(self.read("small.plan.json")["schema"], "dapple-plan/1")

    def test_output_to_stdout_puts_the_plan_there_alone_and_the_summary_on_stderr(self):
        result = self.run_tool(*self.small_inputs(), "-o", "-")
        self.assertEqual(result.returncode, DONE)
        self.assertEqual(json.loads(result.stdout)["schema"], "dapple-plan/1")
        self.assertIn("small on 2x2", result.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), ["2x2.json", "small.json"])

    def test_stdout_and_file_get_the_same_bytes(self):
        name = self.make_plan()
        result = self.run_tool(*self.small_inputs(), "-o", "-")
        self.assertEqual(result.stdout, (self.folder / name).read_text())

    def test_an_input_may_come_from_stdin(self):
        inputs = self.small_inputs()
        expected = self.run_tool(*inputs, "-o", "-").stdout
        for option, name in zip(inputs[::2], inputs[1::2]):
            others = [part for pair in zip(inputs[::2], inputs[1::2]) for part in pair
                      if pair[0] != option]
            result = self.run_tool(*others, option, "-", "-o", "-",
                                   input=(self.folder / name).read_text())
            self.assertEqual(result.stdout, expected)

    def test_a_trace_on_stdout_is_alone_there(self):
        result = self.run_tool(*self.small_inputs(), "--trace", "-")
        self.assertEqual(result.returncode, DONE)
        self.assertIn("traceEvents", json.loads(result.stdout))
        self.assertEqual(result.stderr.splitlines()[-1], "plan written to ./small.plan.json")

    def test_no_escape_sequence_or_progress_leaves_for_what_is_no_terminal(self):
        result = self.run_tool(*self.small_inputs())
        self.assertNotIn("\x1b", result.stdout + result.stderr)
        self.assertNotIn("\r", result.stderr)

    def test_what_is_drawn_follows_the_locale(self):
        inputs = self.small_inputs()
        for locale, is_ascii in (("C", True), ("C.UTF-8", False), ("en_US.utf8", False)):
            result = self.run_tool(*inputs, environment={"LC_ALL": locale, "PYTHONUTF8": "1"},
                                   encoding="utf-8")
            self.assertEqual(result.stdout.isascii(), is_ascii, locale)

    def test_the_summary_is_as_wide_as_the_environment_says(self):
        inputs = self.small_inputs()
        for columns in (80, 100, 160):
            result = self.run_tool(*inputs, environment={"COLUMNS": str(columns)})
            self.assertLessEqual(max(map(len, result.stdout.splitlines())), columns)

    def test_verbose_says_on_stderr_what_is_done(self):
        result = self.run_tool(*self.small_inputs(), "-v")
        self.assertEqual(result.returncode, DONE)
        self.assertIn("6 layers", result.stderr)


class Terminal(ToolTest):
    def test_colours_are_for_terminals_that_want_them(self):
        plan = self.make_plan()
        code, shown = self.run_on_terminal("simulate", plan)
        self.assertEqual(code, DONE, shown)
        self.assertIn("\x1b[", shown)
        for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            code, shown = self.run_on_terminal("simulate", plan, environment=variables)
            self.assertEqual(code, DONE, shown)
            self.assertNotIn("\x1b", shown)

    def test_the_summary_fits_the_terminal(self):
        plan = self.make_plan()
        for columns in (80, 120, 180):
            shown = re.sub(r"\x1b\[[0-9;]*m", "",
                           self.run_on_terminal("simulate", plan, columns=columns)[1])
            self.assertLessEqual(max(map(len, shown.splitlines())), columns)

    def test_progress_is_one_line_that_is_gone_at_the_end(self):
        code, shown = self.run_on_terminal("--model", tool.BERT, "--topo", tool.DGX1)
        self.assertEqual(code, DONE, shown)
        progress, cleared, summary = shown.rpartition("\r\x1b[K")
        self.assertTrue(cleared)
        self.assertRegex(progress, r"\x1b\[Kbest [\d.]+ \w+, ")
        self.assertRegex(progress, r"[\d,]+ candidates, [\d,]+ simulated, [\d,]+ states")
        self.assertNotIn("\n", progress)
        self.assertIn("plan written to", summary)


class Failures(ToolTest):
    def leftovers(self, *expected):
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(expected))

    def test_a_full_disk_on_stdout_is_an_environment_error(self):
        plan = self.make_plan()
        for arguments in (("schedule", plan), ("simulate", plan), ("validate", plan), ("--help",),
                          ("--version",), (*self.small_inputs(), "-o", "-")):
            with self.subTest(arguments=arguments), open("/dev/full", "w") as full:
                result = self.run_tool(*arguments, stdout=full)
                self.assertEqual(result.returncode, ENVIRONMENT)
                self.assertIn("No space left", result.stderr)

    def test_a_closed_stdout_is_an_environment_error_and_no_file_takes_its_place(self):
        inputs = self.small_inputs()
        command = " ".join(map(str, (tool.ARGUMENTS.binary, *inputs, "-o", "plan.json")))
        result = subprocess.run(["sh", "-c", command + " >&-"], cwd=self.folder, text=True,
                                capture_output=True, timeout=tool.SECONDS, check=False)
        self.assertEqual(result.returncode, ENVIRONMENT, result.stderr)
        self.assertEqual(self.read("plan.json")["schema"], "dapple-plan/1")

    def test_closed_standard_streams_crash_nothing(self):
        plan = self.make_plan()
        for closed in (">&- 2>&-", "<&- >&- 2>&-", "2>&-", "<&-"):
            result = subprocess.run(
                ["sh", "-c", f"{tool.ARGUMENTS.binary} validate {plan} {closed}"], cwd=self.folder,
                capture_output=True, timeout=tool.SECONDS, check=False)
            expected = ENVIRONMENT if ">&- 2" in closed else DONE
            self.assertEqual(result.returncode, expected, closed)

    def test_a_reader_that_goes_away_is_no_crash_and_no_message(self):
        plan = self.make_plan("plan.json", "--global-batch", "4096", "--micro-batch", "4")
        command = f"{tool.ARGUMENTS.binary} schedule {plan} --format json; echo code $? >&2"
        result = subprocess.run(["sh", "-c", f"({command}) | head -c 10"], cwd=self.folder, text=True,
                                capture_output=True, timeout=tool.SECONDS, check=False)
        self.assertEqual(result.stderr, f"code {ENVIRONMENT}\n")

    def test_an_output_that_cannot_be_written_is_refused_before_the_search(self):
        inputs = self.small_inputs()
        (self.folder / "folder").mkdir()
        for option in ("-o", "--trace"):
            for path, reason in (("none/plan.json", "none"), ("folder", "directory"),
                                 ("small.json/plan.json", "small.json")):
                with self.subTest(option=option, path=path):
                    result = self.run_tool(*inputs, option, path)
                    self.assert_error(result, ENVIRONMENT, path, reason)
                    self.assertEqual(result.stdout, "")
                    self.leftovers("2x2.json", "small.json", "folder")

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_a_folder_without_permission_is_an_environment_error(self):
        inputs = self.small_inputs()
        (self.folder / "locked").mkdir(mode=0o500)
        self.assert_error(self.run_tool(*inputs, "-o", "locked/plan.json"), ENVIRONMENT, "locked")

    def test_a_full_disk_under_the_plan_is_an_environment_error(self):
        self.assert_error(self.run_tool(*self.small_inputs(), "-o", "/dev/full"), ENVIRONMENT,
                          "/dev/full")
        self.assertTrue(pathlib.Path("/dev/full").is_char_device())

    def test_a_file_beyond_the_limit_on_its_size_is_one_error_and_the_old_one_stays(self):
        self.write("plan.json", "old")

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

        inputs = self.small_inputs()
        result = self.run_tool(*inputs, "-o", "plan.json", preexec_fn=limit)
        self.assert_error(result, ENVIRONMENT, "plan.json: cannot be written: File too large")
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertEqual((self.folder / "plan.json").read_text(), "old")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["2x2.json", "plan.json", "small.json"])

    def test_two_outputs_to_one_file_are_a_usage_error(self):
        inputs = self.small_inputs()
        for first, second in (("x.json", "x.json"), ("x.json", "./x.json"), ("-", "-")):
            self.assert_error(self.run_tool(*inputs, "-o", first, "--trace", second), USAGE,
                              "--trace")
        self.assert_error(self.run_tool(*inputs, "--trace", "small.plan.json"), USAGE, "--trace")
        self.leftovers("2x2.json", "small.json")

    def test_an_output_never_overwrites_an_input(self):
        inputs = self.small_inputs()
        before = (self.folder / "small.json").read_bytes()
        self.assert_error(self.run_tool(*inputs, "-o", "./small.json"), USAGE, "overwritten")
        self.assertEqual((self.folder / "small.json").read_bytes(), before)
        plan = self.make_plan()
        self.assert_error(self.run_tool("simulate", plan, "--trace", plan), USAGE, "overwritten")

    def test_a_failed_run_leaves_an_old_plan_as_it_was(self):
        plan = self.make_plan()
        before = (self.folder / plan).read_bytes()
        self.write("bad.json", tool.small_profile(layers=[]))
        result = self.run_tool("--model", "bad.json", "--topo", "2x2.json", "-o", plan)
        self.assertEqual(result.returncode, tool.BAD_INPUT)
        self.assertEqual((self.folder / plan).read_bytes(), before)

    def test_a_name_that_is_no_file_name_still_gives_a_default_output(self):
        self.write("odd.json", tool.small_profile(name="../a b/\u00e9"))
        self.write("2x2.json", tool.small_topology())
        result = self.run_tool("--model", "odd.json", "--topo", "2x2.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.leftovers("2x2.json", "odd.json", "..-a-b---.plan.json")


if __name__ == "__main__":
    tool.main()
