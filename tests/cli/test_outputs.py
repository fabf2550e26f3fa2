"""Where results go, and that no fault on the way leaves half of one."""

import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import time
import unittest

import tool
from tool import ARGUMENTS, DONE, ENVIRONMENT, USAGE, ToolTest


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
        self.assertRegex(progress, r"[\d,]+ partial plans, ([\d,]+ complete, )?[\d,]+ simulated")
        self.assertNotIn("\n", progress)
        self.assertIn("plan written to", summary)


    def test_a_progress_line_has_room_or_fewer_parts_and_no_half_number(self):
        shown = self.run_on_terminal("--model", tool.BERT, "--topo", tool.DGX1, columns=60)[1]
        lines = [line for line in shown.split("\r\x1b[K")[1:-1] if line]
        self.assertTrue(lines)
        for line in lines:
            self.assertLess(len(line), 60)
            self.assertRegex(line, r"^(best|bound|[\d,]+ partial plans)")
            self.assertRegex(line, r"(ms|s|%|plans|complete|simulated)$")

    def test_nothing_is_cut_whatever_the_width(self):
        profile = tool.small_profile()
        profile["layers"][0]["name"] = "a_rather_long_name_of_a_layer_with_0123456789_in_it"
        result = self.run_tool("--model", self.write("m.json", profile), "--topo",
                               self.write("t.json", tool.small_topology()), "-o", "plan.json",
                               "--pin", "stages=2", environment={"COLUMNS": "60"})
        self.assertEqual(result.returncode, DONE, result.stderr)
        name = r"3: a_rather_long_name_of_a_layer_with_0123456789_in_it\.0\.\.2 "
        self.assertRegex(result.stdout, name)
        for columns in (80, 120):
            code, shown = self.run_on_terminal("simulate", "plan.json", columns=columns)
            self.assertEqual(code, DONE, shown)
            shown = re.sub(r"\x1b\[[0-9;]*m", "", shown)
            self.assertLessEqual(max(map(len, shown.splitlines())), columns)
            self.assertNotIn("~", shown.partition("Timeline")[0])
            self.assertIn("0123456789", shown)


class LongSearches(ToolTest):
    def test_a_line_every_ten_seconds_says_that_the_search_goes_on(self):
        # The clock goes on while the program is stopped, so that the test costs no work.
        profile = tool.small_profile()
        profile["layers"][0]["repeat"] = 60
        topology = tool.small_topology()
        topology["servers"][0].update(count=8, devices=8)
        inputs = ("--model", self.write("m.json", profile), "--topo",
                  self.write("t.json", topology), "--global-batch", "256", "-o", "plan.json",
                  "--schedule", "auto")
        for options, expected in (
                ((), r"^after 1\d s: .*\n"),
                (("-q",), r"^warning: the search was interrupted [^\n]*\n$")):
            process = subprocess.Popen([ARGUMENTS.binary, *inputs, *options], cwd=self.folder,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(0.3)
            process.send_signal(signal.SIGSTOP)
            time.sleep(10)
            process.send_signal(signal.SIGCONT)
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=tool.SECONDS)[1]
            self.assertEqual(process.returncode, DONE, said)
            self.assertRegex(said, expected)


# Bytes that are no UTF-8, control characters, a direction that others follow, no width, nothing at all.
HOSTILE = b"a\xff\xc3\x1b[31m\x9b\x07\r\nvalid: \xe2\x80\xae\xe2\x80\x8b\xef\xbb\xbf\xc2\xad\xf3\xa0\x81\x81z"
SHOWN = b"a???[31m????valid: ?????z"
HIDDEN_NAME = "m\u202e\u200b\u2066\ufeff\u00ad\u061cz"


class Hostile(ToolTest):
    """Nothing that a terminal or a reader takes for something else leaves in a message or a table."""

    def run_raw(self, *arguments):
        return subprocess.run([tool.ARGUMENTS.binary, *arguments], cwd=self.folder,
                              capture_output=True, timeout=tool.SECONDS, check=False,
                              env={**os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": "200"})

    def check_shown(self, text):
        shown = text.decode()  # fails where it is not UTF-8
        for character in shown:
            is_break = character in "\n\t"
            self.assertTrue(is_break or (character.isprintable() and character != "\u00ad"),
                            (character, shown))

    def test_file_names_are_shown_as_one_word_of_one_line(self):
        inputs = self.small_inputs()
        made = self.run_raw(*inputs, "-o", HOSTILE, "--trace", HOSTILE + b".trace")
        self.assertEqual(made.returncode, DONE, made.stderr)
        self.assertIn(b"\nplan written to " + SHOWN + b"\n", made.stdout)
        self.assertIn(b"\ntrace written to " + SHOWN + b".trace\n", made.stdout)
        self.assertTrue((self.folder / os.fsdecode(HOSTILE)).exists())
        for command in (("validate", HOSTILE), ("verify", HOSTILE), ("simulate", HOSTILE),
                        ("diff", HOSTILE, HOSTILE), ("report", HOSTILE, "-o", HOSTILE + b".html"),
                        ("export", HOSTILE, "--to", "rankfile", "-o", HOSTILE + b".rank"),
                        ("reschedule", HOSTILE, "--schedule", "gpipe", "-o", HOSTILE + b"2"),
                        ("validate", HOSTILE + b".html"), ("validate", b"none" + HOSTILE),
                        ("simulate", HOSTILE, "--" + "trace", b"none" + HOSTILE + b"/x"),
                        ("plan", "--" + "model", HOSTILE, "--topo", HOSTILE), (HOSTILE,),
                        ("plan", b"--" + HOSTILE), ("plan", "--pin", HOSTILE, *inputs),
                        ("plan", "--micro-batch", HOSTILE, *inputs),
                        ("import", "model", HOSTILE), ("import", "topology", HOSTILE),
                        ("-v", *inputs, "-o", HOSTILE + b"3")):
            with self.subTest(command=command):
                result = self.run_raw(*command)
                self.check_shown(result.stdout)
                self.check_shown(result.stderr)
                self.assertNotIn(b"\nvalid: ?", result.stdout + result.stderr)
                self.assertNotIn(b"bug in", result.stderr)

    def test_names_in_files_are_shown_without_what_is_hidden(self):
        profile = tool.small_profile(name=HIDDEN_NAME)
        profile["layers"][0]["name"] = HIDDEN_NAME
        topology = tool.small_topology(name=HIDDEN_NAME)
        topology["servers"][0]["name"] = HIDDEN_NAME
        self.write("model.json", profile)
        self.write("topo.json", topology)
        inputs = ("--model", "model.json", "--topo", "topo.json")
        made = self.run_raw(*inputs, "--pin", "stages=2", "-o", "plan.json")
        self.assertEqual(made.returncode, DONE, made.stderr)
        self.assertEqual(self.read("plan.json")["model"]["name"], HIDDEN_NAME)
        topology["devices"]["card"]["memory"] = "16 MiB"
        self.write("less.json", topology)
        for command in (("simulate", "plan.json"), ("diff", "plan.json", "plan.json"),
                        (*inputs, "--pin", "stages=2", "-o", "plan.json"),
                        ("validate", "plan.json"), ("verify", "plan.json"),
                        ("plan", "--model", "model.json", "--topo", "less.json"),
                        (*inputs, "--pin", "cut=" + HIDDEN_NAME + ".99"),
                        ("export", "plan.json", "--to", "megatron", "-o", "-"),
                        ("export", "plan.json", "--to", "rankfile", "-o", "-"),
                        ("reschedule", "plan.json", "--schedule", "zb-h1", "-o", "other.json")):
            with self.subTest(command=command):
                result = self.run_raw(*command)
                self.check_shown(result.stdout)
                self.check_shown(result.stderr)
        # What programs read has the same values, by escapes.
        schedule = self.run_raw("schedule", "plan.json", "--format", "json").stdout.decode()
        self.check_shown(schedule.replace("\n", "").encode())
        self.assertIn(HIDDEN_NAME, json.dumps(json.loads(schedule), ensure_ascii=False))

    def test_a_terminal_gets_its_own_colours_and_no_others(self):
        self.small_inputs()
        for name in ("plan\x1b[8m.json", "plan\x1b]0;title\x07.json"):
            code, shown = self.run_on_terminal("--model", "small.json", "--topo", "2x2.json", "-o",
                                               name)
            self.assertEqual(code, DONE, shown)
            self.assertIn("\x1b[1m", shown)
            self.assertNotIn("\x1b[8m", shown)
            self.assertNotIn("\x1b]", shown)
            self.assertNotIn("\x07", shown)


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
        (self.folder / "link.json").symlink_to("x.json")  # to a file that is not there yet
        for first, second in (("x.json", "x.json"), ("x.json", "./x.json"), ("-", "-"),
                              ("x.json", "link.json"), ("link.json", "x.json")):
            self.assert_error(self.run_tool(*inputs, "-o", first, "--trace", second), USAGE,
                              "--trace")
        self.assert_error(self.run_tool(*inputs, "--trace", "small.plan.json"), USAGE, "--trace")
        self.leftovers("2x2.json", "small.json", "link.json")

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
