"""dapple-exec, run as a user runs it: what it refuses, and what a replay writes."""

import json
import re
import signal
import subprocess
import time

import tool
from tool import ARGUMENTS, BAD_INPUT, DONE, ENVIRONMENT, USAGE, ToolTest


class Executing(ToolTest):
    def execute(self, *arguments, **options):
        """Runs dapple-exec, which is built beside dapple-plan."""
        binary = ARGUMENTS.executor
        return self.run_tool(*arguments, binary=binary, **options)

    def test_help_fits_a_screen(self):
        for arguments in (("--help",), ("-h",), ("replay", "--help")):
            result = self.execute(*arguments)
            self.assertEqual(result.returncode, DONE)
            self.assertLessEqual(len(result.stdout.splitlines()), 40)
            self.assertLessEqual(max(map(len, result.stdout.splitlines())), 80)
            self.assertIn("Example", result.stdout)
        version = self.execute("--version").stdout
        self.assertEqual(version.split()[0], "dapple-exec")
        self.assertRegex(version, r"computes on this CPU by its (\w+) kernels; has \1, .*portable\n")
        self.assertEqual(self.execute().returncode, USAGE)

    def test_libraries_of_gpus_are_loaded_by_what_uses_them_alone(self):
        loaded = subprocess.run(["ldd", ARGUMENTS.executor], check=True, capture_output=True,
                                text=True).stdout
        self.assertIn("libc.so", loaded)
        self.assertNotRegex(loaded, "libcu(da|blas|dnn)|libnccl")

    def test_what_is_wrong_with_the_command_line_is_named(self):
        for arguments, expected in (
                (("walk",), "walk: unknown command"),
                (("--plan", "p"), "--plan: expected a command before the options"),
                (("replay",), "--plan: a plan file is required"),
                (("replay", "--plan", "p", "--iterations", "0"),
                 "--iterations: expected a whole number from 1 to 100000, got \"0\""),
                (("replay", "--plan", "p", "--pace", "-1"), "--pace: expected a number above 0"),
                (("replay", "--plan", "p", "--timeout", "x"),
                 "--timeout: expected seconds, a number above 0"),
                (("replay", "--plna", "p"), "--plna"),
                (("replay", "--plan", "p", "--slow-stage", "1"),
                 "--slow-stage: expected STAGE:FACTOR, such as 1:1.2, got \"1\""),
                (("replay", "--plan", "p", "--slow-stage", "one:2"), "--slow-stage: expected STAGE"),
                (("replay", "--plan", "p", "--slow-link", "0:2:2"),
                 "--slow-link: expected two stages that follow each other, as others send each "
                 "other nothing, got 0 and 2"),
                (("replay", "--plan", "p", "--slow-link", "0:2"),
                 "--slow-link: expected STAGE:NEIGHBOUR:FACTOR, such as 0:1:2, got \"0:2\""),
                (("replay", "p", "q"), "q: expected a plan file and options, got more"),
                (("replay", "p", "--plan", "q"), "p: expected a plan file and options, got more"),
                (("replay", "--plan", "p", "--slow-link", "0:1:2", "--unpaced-links"),
                 "--slow-link: cannot be used with --unpaced-links"),
                (("replay", "--plan", "p", "--device", "gpu"),
                 "--device: expected cpu or cuda, got \"gpu\""),
                (("replay", "--plan", "p", "--oversubscribe"),
                 "--oversubscribe: needs --device cuda"),
                (("replay", "--plan", "p", "--device", "cuda", "--pace", "2"),
                 "--pace: cannot be used with --device cuda unless --oversubscribe is given, as GPUs "
                 "have real links"),
                (("replay", "--plan", "p", "--device", "cuda", "--slow-link", "0:1:2"),
                 "--slow-link: cannot be used with --device cuda"),
                (("replay", "--plan", "p", "--device", "cuda", "--unpaced-links"),
                 "--unpaced-links: cannot be used with --device cuda"),
        ):
            with self.subTest(arguments=arguments):
                self.assert_error(self.execute(*arguments), USAGE, expected)

    def test_a_file_that_is_no_sound_plan_is_refused(self):
        self.assert_error(self.execute("replay", "--plan", "none.json"), ENVIRONMENT, "none.json")
        self.write("bad.json", "{")
        self.assert_error(self.execute("replay", "--plan", "bad.json"), BAD_INPUT, "bad.json")
        plan = self.read(self.make_plan())
        plan["stages"][0]["layers"] = [1, 2]
        self.write("plan.json", plan)
        self.assert_error(self.execute("replay", "--plan", "plan.json"), BAD_INPUT, "/stages/0/")

    def test_a_replay_measures_every_action_of_the_schedule_on_every_device(self):
        # Three stages, so that some transfers cross servers.
        self.make_deep_plan()
        result = self.execute("replay", "--plan", "plan.json", "--iterations", "3", "--timeline",
                              "measured.json", "--trace", "trace.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("deep on 2x2, replayed on", result.stdout)
        for word in ("predicted", "measured", "difference", "sent"):
            self.assertIn(word, result.stdout)
        measured = self.read("measured.json")
        self.assertEqual(measured["schema"], "dapple-timeline/1")
        self.assertEqual(measured["origin"], "measured")
        schedule = self.run_tool("schedule", "plan.json")
        self.assertEqual(schedule.returncode, DONE, schedule.stderr)
        for line in schedule.stdout.splitlines():
            device, actions = line.rsplit(": ", 1)
            done = [entry["action"] for entry in measured["actions"] if entry["device"] == device]
            expected = [action for action in actions.split() if "RECV" not in action]
            self.assertEqual(sorted(done), sorted(expected))
        for entry in measured["actions"]:
            self.assertLessEqual(entry["start_ns"], entry["end_ns"])
        self.assertGreater(len(self.read("trace.json")["traceEvents"]), len(measured["actions"]))

    def test_a_plan_is_replayed_on_a_gpu_where_there_is_one(self):
        self.make_deep_plan()
        result = self.execute("replay", "--plan", "plan.json", "--device", "cuda",
                              "--oversubscribe", "--iterations", "2", "--timeline", "measured.json")
        if result.returncode == DONE:
            self.assertIn("that spin on GPUs", result.stdout)
            self.assertEqual(self.run_tool("diff", "plan.json", "measured.json").returncode, DONE)
            return
        self.assert_error(result, ENVIRONMENT, "CUDA: ")
        self.assertFalse((self.folder / "measured.json").exists())

    def test_diff_sets_what_was_measured_beside_what_was_predicted(self):
        self.make_deep_plan()
        result = self.execute("replay", "--plan", "plan.json", "--iterations", "1", "--timeline",
                              "measured.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        # Stage 1 computes twice as long as it did, one action after another.
        timeline = self.read("measured.json")
        for entry in timeline["actions"]:
            entry["start_ns"] *= 2
            longer = entry["action"].startswith(("1F", "1B"))
            entry["end_ns"] *= 2
            if not longer:
                entry["start_ns"] = (entry["start_ns"] + entry["end_ns"]) // 2
        self.write("slowed.json", timeline)
        result = self.run_tool("diff", "plan.json", "slowed.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("iteration", result.stdout)
        self.assertIn("Slower than predicted", result.stdout)
        named = result.stdout.split("Slower than predicted", 1)[1].splitlines()[1]
        self.assertIn("of stage 1", named)
        # A single action that is slow is hidden by the median, and shown all the same.
        self.assertEqual(self.run_tool("simulate", "plan.json", "--timeline", "t.json").returncode,
                         DONE)
        timeline = self.read("t.json")
        first = next(entry["end_ns"] for entry in timeline["actions"] if entry["action"] == "0F0")
        for entry in timeline["actions"]:
            for key in ("start_ns", "end_ns"):
                entry[key] += 9 * first if entry[key] >= first else 0
        self.write("outlier.json", timeline)
        result = self.run_tool("diff", "plan.json", "outlier.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertRegex(result.stdout, r"forward of stage 0 .* same +\+900\.0 %, micro-batch 0\n")
        self.assertEqual(result.stdout.count(", micro-batch "), 1)
        result = self.run_tool("diff", "plan.json", "outlier.json", "--json")
        beyond = [(length["stage"], length["farthest"]["index"],
                   length["farthest"]["measured_ns"] - length["farthest"]["predicted_ns"])
                  for length in json.loads(result.stdout)["lengths"]]
        self.assertEqual([each for each in beyond if each[2] != 0], [(0, 0, 9 * first)])
        # The other way round it is no plan; another plan's timeline is refused.
        self.assert_error(self.run_tool("diff", "measured.json", "plan.json"), BAD_INPUT, "expected a plan, got a dapple-timeline file")
        self.make_plan("other.json")
        refused = self.run_tool("diff", "other.json", "measured.json")
        self.assert_error(refused, BAD_INPUT, "measured.json: /plan_sha256: expected")
        self.assertEqual(len(refused.stderr.splitlines()), 1, refused.stderr)
        # Half of an iteration is none.
        timeline = self.read("measured.json")
        count = len(timeline["actions"])
        del timeline["actions"][count // 2:]
        self.write("half.json", timeline)
        self.assert_error(self.run_tool("diff", "plan.json", "half.json"), BAD_INPUT,
                          "/actions: expected every action of the plan once on each of its devices, "
                          f"got {count - count // 2} missing and 0 unknown")
        timeline["actions"] = []
        self.write("none.json", timeline)
        self.assert_error(self.run_tool("diff", "plan.json", "none.json"), BAD_INPUT,
                          f"got {count} missing and 0 unknown")
        # Nor are actions that are written in another way.
        timeline = self.read("measured.json")
        for other in ("0F0 ", "00F0", "0F0\n", "0f0"):
            timeline["actions"][0]["action"] = other
            self.write("other.json", timeline)
            self.assert_error(self.run_tool("diff", "plan.json", "other.json"), BAD_INPUT,
                              "/actions/0/action: expected an action such as \"2F0\"")
        # Where no action is sound, each is named.
        timeline = self.read("measured.json")
        for entry in timeline["actions"]:
            entry["device"] = "nope"
        self.write("nope.json", timeline)
        self.assert_error(self.run_tool("diff", "plan.json", "nope.json"), BAD_INPUT,
                          "/actions/0/device: expected the name of a device")
        timeline["actions"] = self.read("measured.json")["actions"]
        timeline["actions"].append(timeline["actions"][0])
        self.write("twice.json", timeline)
        self.assert_error(self.run_tool("diff", "plan.json", "twice.json"), BAD_INPUT,
                          "got 0 missing and 1 unknown or more than once")
        # A device computes one thing at a time.
        timeline = self.read("measured.json")
        first, second = [entry for entry in timeline["actions"]
                         if entry["device"] == timeline["actions"][0]["device"]
                         and entry["stream"] == "compute"][:2]
        first["end_ns"] = second["start_ns"] + 1
        self.write("overlap.json", timeline)
        self.assert_error(self.run_tool("diff", "plan.json", "overlap.json"), BAD_INPUT,
                          f"/actions: expected what {first['device']} computes one after another, "
                          f"got {second['action']} from {second['start_ns']} ns on, before "
                          f"{first['action']} has ended")
        self.assert_error(self.run_tool("diff", "plan.json", "measured.json", "--model", "x"),
                          USAGE, "--model: cannot be used with a timeline")

    def test_diff_names_the_stage_and_the_link_that_are_slower_than_planned(self):
        self.make_deep_plan()
        stages = len(self.read("plan.json")["stages"])
        # Where this machine is busy with other things, other lines stand beside it.
        for option, expected in ((("--slow-stage", "1:2"), "of stage 1: "),
                                 (("--slow-link", "0:1:8"), "activations from stage 0 to 1: "),
                                 (("--slow-link", "1:0:8"), "gradients from stage 1 to 0: ")):
            with self.subTest(option=option):
                result = self.execute("replay", "--plan", "plan.json", "--iterations", 3, "--pace",
                                      3, "--timeline", "measured.json", *option)
                self.assertEqual(result.returncode, DONE, result.stderr)
                result = self.run_tool("diff", "plan.json", "measured.json")
                self.assertEqual(result.returncode, DONE, result.stderr)
                self.assertIn("Slower than predicted", result.stdout)
                self.assertIn(expected, result.stdout.split("Slower than predicted", 1)[1])
        for option, stage in (("--slow-stage", f"{stages}:2"),
                              ("--slow-link", f"{stages - 1}:{stages}:2")):
            self.assert_error(self.execute("replay", "--plan", "plan.json", option, stage), USAGE,
                              f"{option}: expected stages of the plan, 0 to {stages - 1}, got {stages}")

    def test_what_is_told_goes_to_stderr_beside_a_result_on_stdout(self):
        self.make_plan()
        result = self.execute("replay", "--plan", "plan.json", "--iterations", "1", "--timeline",
                              "-")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(json.loads(result.stdout)["origin"], "measured")
        self.assertIn("measured", result.stderr)

    def test_verbose_says_which_thread_is_which_device_and_what_it_runs(self):
        plan = self.read(self.make_plan("plan.json", "--pin", "stages=2"))
        result = self.execute("replay", "plan.json", "--iterations", "1", "-v")
        self.assertEqual(result.returncode, DONE, result.stderr)
        devices = [device for stage in plan["stages"] for device in stage["devices"]]
        said = re.findall(r"^thread (\d+) is (\S+): stage (\d), 3 layers, ", result.stderr, re.M)
        self.assertEqual([(thread, device) for thread, device, _ in said],
                         [(str(i), device) for i, device in enumerate(devices)])
        self.assertEqual({stage for _, _, stage in said}, {"0", "1"})

    def test_an_interrupt_ends_a_replay_with_the_iterations_that_were_made(self):
        self.make_plan()
        binary = ARGUMENTS.executor
        for number in (signal.SIGINT, signal.SIGHUP):
            with subprocess.Popen([binary, "replay", "--plan", "plan.json", "--iterations", "100000",
                                   "--timeline", "measured.json"], cwd=self.folder, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                time.sleep(0.7)
                process.send_signal(number)
                shown, errors = process.communicate(timeout=tool.SECONDS)
            self.assertEqual(process.returncode, DONE, errors)
            self.assertTrue(errors.startswith("interrupted: it ends after the iteration"), errors)
            done = re.search(r"  interrupted after (\d+) of 100000 iterations\n", shown).group(1)
            self.assertIn(f", {done} iteration", shown)
            self.assertEqual(self.read("measured.json")["origin"], "measured")

    def test_a_machine_that_cannot_keep_up_is_told_a_pace(self):
        """Messages of more bytes a second than any machine copies."""
        mebibyte = 1 << 20
        topology = tool.small_topology()
        topology["servers"][0]["links"]["bandwidth"] = "100000 GB/s"
        topology["servers"][0]["nics"][0]["bandwidth"] = "100000 GB/s"
        topology["network"]["bandwidth"] = "100000 GB/s"
        profile = tool.small_profile()
        layer = profile["layers"][0]["measurements"][0]
        layer.update(forward_ns=20000, backward_ns=20000, output_bytes=64 * mebibyte)
        made = self.run_tool("--model", self.write("fast.json", profile), "--topo",
                             self.write("wide.json", topology), "--pin", "stages=2", "-o",
                             "plan.json")
        self.assertEqual(made.returncode, DONE, made.stderr)
        for pace in ("1", "20"):
            result = self.execute("replay", "--plan", "plan.json", "--iterations", "2", "--pace",
                                  pace)
            self.assertEqual(result.returncode, DONE, result.stderr)
            told = re.search(r"may not keep up with [\d.,]+ GB/s of messages; --pace (\d+) shows",
                             " ".join(result.stderr.split()))
            self.assertIsNotNone(told, result.stdout + result.stderr)
            self.assertGreater(int(told.group(1)), int(pace))
            self.assertLessEqual(int(told.group(1)), 1000)

    def test_progress_is_shown_on_a_terminal_alone(self):
        self.make_plan()
        binary = ARGUMENTS.executor
        code, shown = self.run_on_terminal("replay", "--plan", "plan.json", "--iterations", "2",
                                           binary=binary)
        self.assertEqual(code, DONE, shown)
        self.assertIn("iteration 1 of 2", shown)
        self.assertNotIn("iteration 1 of", self.execute("replay", "--plan", "plan.json",
                                                        "--iterations", "2").stderr)

    def test_nothing_is_quicker_than_predicted_at_any_pace(self):
        self.make_plan()
        predicted = self.read("plan.json")["predicted"]["iteration_ns"]
        for pace in (1, 3):
            result = self.execute("replay", "--plan", "plan.json", "--iterations", "2", "--pace",
                                  pace, "--timeline", "measured.json")
            self.assertEqual(result.returncode, DONE, result.stderr)
            end = max(entry["end_ns"] for entry in self.read("measured.json")["actions"])
            # Replicas that need not wait for each other may be a little ahead of the simulation.
            self.assertGreaterEqual(end, 0.9 * predicted)


if __name__ == "__main__":
    tool.main()
