"""dapple-exec as the ranks of an MPI job: what it measures, and how it ends when a rank dies, hangs
or cannot go on. Of ranks that are killed one after another in random moments a few are tried; with
DAPPLE_TEST_SCALE=10 it is fifty."""

import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time
import unittest

import test_train
import tool
from tool import ARGUMENTS, BAD_INPUT, DONE, ENVIRONMENT, ROOT, SCALE, USAGE, ToolTest
from trainable import cores, perceptron

LAUNCHER = ROOT / "tests" / "exec" / "run_mpi"
NAMED = re.compile(r"rank \d+ \(node\d:\d\): ")


def processes_below(ancestor):
    """Pids of all descendants of a process, by what /proc says of each one's parent."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = []
    waiting = [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_running(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
class Ranks(ToolTest):
    def setUp(self):
        super().setUp()
        self.make_deep_plan()
        stages = self.read("plan.json")["stages"]
        self.ranks = len({device for stage in stages for device in stage["devices"]})

    def command(self, ranks, *arguments):
        binary = ARGUMENTS.executor
        return [str(LAUNCHER), str(ranks), str(binary), *map(str, arguments)]

    def execute(self, ranks, *arguments):
        """One error at most, whatever the launcher adds."""
        launcher, *rest = self.command(ranks, *arguments)
        result = self.run_tool(*rest, binary=launcher)
        self.assertLessEqual(result.stderr.count("error:"), 1, result.stderr)
        return result

    def test_ranks_measure_what_threads_do(self):
        result = self.execute(self.ranks, "replay", "--plan", "plan.json", "--iterations", 2, "-v",
                              "--timeline", "measured.json", "--trace", "trace.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn(f"deep on 2x2, replayed on {self.ranks} ranks, 2 iterations", result.stdout)
        for rank in range(self.ranks):
            self.assertIn(f"rank {rank} (node", result.stderr)
        # The bytes are the plan's, whatever carries them.
        binary = ARGUMENTS.executor
        threads = self.run_tool("replay", "--plan", "plan.json", "--iterations", 1, binary=binary)
        sent = re.compile(r"sent +[\d.]+ [KMG]iB")
        self.assertEqual(sent.findall(result.stdout), sent.findall(threads.stdout))
        compared = self.run_tool("diff", "plan.json", "measured.json")
        self.assertEqual(compared.returncode, DONE, compared.stderr)

    def test_one_rank_says_what_is_wrong_with_all(self):
        result = self.execute(2, "replay", "--plan", "plan.json")
        self.assertEqual(result.returncode, USAGE, result.stderr)
        self.assertRegex(result.stderr, rf"error: rank [01]: expected {self.ranks} ranks, one for "
                                        "each device of the plan, got 2")
        result = self.execute(2, "replay", "--plan", "plan.json", "--pace", "fast")
        self.assertEqual(result.returncode, USAGE, result.stderr)
        result = self.execute(2, "replay", "--plan", "none.json")
        self.assertEqual(result.returncode, ENVIRONMENT, result.stderr)
        self.assertRegex(result.stderr, "error: rank [01]: none.json: cannot be read")
        self.write("bad.json", "{")
        result = self.execute(2, "replay", "--plan", "bad.json")
        self.assertEqual(result.returncode, BAD_INPUT, result.stderr)
        for arguments, expected in (
                (("replay", "--plan", "-"), "--plan: expected a file, which every rank can read"),
                (("train", "--plan", "plan.json", "--tokens", "-"), "--tokens: expected a file"),
                (("train", "--plan", "plan.json", "--resume", "-"), "--resume: expected a file"),
                (("replay", "--plna", "plan.json"), "--plna: unknown option, nearest is --plan"),
                (("profile", "--spec", "s"), "profile cannot be run by a launcher"),
        ):
            with self.subTest(arguments=arguments):
                result = self.execute(2, *arguments)
                self.assertEqual(result.returncode, USAGE, result.stderr)
                self.assertRegex(result.stderr, "error: rank [01]: " + re.escape(expected))

    def test_what_is_wrong_with_one_rank_ends_all_at_once(self):
        binary = ARGUMENTS.executor
        self.write("bad.json", "{")
        for wrong, (arguments, code, said) in enumerate((
                ("replay --plan plan.json --iterations 0", USAGE, "--iterations: expected a whole"),
                ("replay --plan none.json", ENVIRONMENT, "none.json: cannot be read"),
                ("replay --plan bad.json", BAD_INPUT, "bad.json: line 1"))):
            with self.subTest(arguments=arguments):
                self.write("start", f"[ $OMPI_COMM_WORLD_RANK = {wrong} ] && exec {binary} "
                                    f"{arguments}\nexec {binary} replay --plan plan.json --timeout "
                                    "100 --iterations 100000\n")
                started = time.monotonic()
                result = self.run_tool(self.ranks, "sh", "start", binary=LAUNCHER)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertEqual(result.stderr.count("error:"), 1, result.stderr)
                self.assertIn(f"error: rank {wrong}: {said}", result.stderr)
                self.assertLess(time.monotonic() - started, 60)

    def disturb(self, rank, number, delay, timeout, of_watcher=False, stops_watcher=False):
        """Starts a long replay, sends one rank the signal, or who watches it, and sees it end: its
        only error."""
        # What it says goes to a file: a pipe would be held open by whoever is left behind.
        with open(self.folder / "said", "w+", encoding="utf-8") as said:
            job = subprocess.Popen(
                self.command(self.ranks, "replay", "--plan", "plan.json", "--iterations", 100000,
                             "--timeout", timeout),
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)
            try:
                workers = self.await_workers(job.pid)
                time.sleep(delay)
                everyone = processes_below(job.pid)
                if stops_watcher:
                    os.kill(parent_of(workers[rank]), signal.SIGSTOP)
                os.kill(parent_of(workers[rank]) if of_watcher else workers[rank], number)
                started = time.monotonic()
                code = job.wait(timeout + 20)
                took = time.monotonic() - started
            finally:
                job.kill()
            said.seek(0)
            text = said.read()
        # The launcher says itself how what it has started was killed.
        self.assertEqual(code, 128 + number if of_watcher else ENVIRONMENT, text)
        self.assertEqual(text.count("error:"), 1, text)
        self.assertRegex(text, NAMED)
        # The launcher takes a few seconds more to end the others.
        self.assertLess(took, timeout + 10)
        deadline = time.monotonic() + 15
        while any(map(is_running, everyone)) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual([pid for pid in everyone if is_running(pid)], [])
        return text

    def await_workers(self, launcher, threads=6):
        """Pids of the processes that work, by rank: each is the child of one that watches it."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            workers = {}
            for pid in processes_below(launcher):
                try:
                    variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                    names = (pathlib.Path(f"/proc/{pid}/comm").read_text().strip(),
                             len(list(pathlib.Path(f"/proc/{pid}/task").iterdir())))
                except OSError:
                    continue
                ranks = [int(entry.partition(b"=")[2]) for entry in variables
                         if entry.startswith(b"OMPI_COMM_WORLD_RANK=")]
                # Who watches has one thread; who works, has streams and MPI's once it has begun.
                if ranks and names[0] == "dapple-exec" and names[1] >= threads:
                    workers[ranks[0]] = pid
            if len(workers) == self.ranks:
                return workers
            time.sleep(0.05)
        self.fail("the ranks did not start")

    def test_a_signal_to_any_process_of_a_rank_ends_the_training_with_a_checkpoint(self):
        test_train.Training.plan(self, "cores.json", perceptron(), cores(2, "1 MB/s"))
        self.ranks = 2
        for number, of_watcher in ((signal.SIGTERM, False), (signal.SIGTERM, True),
                                   (signal.SIGINT, False), (signal.SIGUSR1, True)):
            with self.subTest(signal=number, of_watcher=of_watcher), subprocess.Popen(
                    self.command(2, "train", "--plan", "cores.json", "--steps", 1000000,
                                 "--checkpoint", "model"),
                    cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True) as job:
                for line in job.stdout:
                    if "step    3" in line:
                        break
                worker = self.await_workers(job.pid, threads=2)[1]
                os.kill(parent_of(worker) if of_watcher else worker, number)
                rest, errors = job.communicate(timeout=tool.SECONDS)
                self.assertEqual((job.returncode, errors), (DONE, ""))
                self.assertRegex(rest, r"checkpoint model, step \d+")

    def test_a_rank_that_is_killed_ends_all_and_is_named(self):
        dice = random.Random(3601)
        for round_number in range(5 * SCALE):
            rank = round_number % self.ranks
            with self.subTest(rank=rank, round=round_number):
                text = self.disturb(rank, signal.SIGKILL, dice.uniform(0, 0.3), timeout=30)
                self.assertRegex(text, rf"rank {rank} \(node\d:\d\): \d\w+: killed by "
                                       r"signal 9")

    def test_a_rank_that_is_killed_behind_a_stopped_watcher_ends_all_at_once(self):
        started = time.monotonic()
        text = self.disturb(1, signal.SIGKILL, 0.1, timeout=60, stops_watcher=True)
        self.assertRegex(text, r"rank 1 \(node\d:\d\): \d\w+: killed by signal 9")
        self.assertLess(time.monotonic() - started, 40)

    def test_who_watches_a_rank_and_is_killed_ends_all_and_is_named(self):
        text = self.disturb(1, signal.SIGKILL, 0.1, timeout=30, of_watcher=True)
        self.assertRegex(text, r"rank 1 \(node\d:\d\): \d\w+: the process that supervises it "
                               "was killed")

    def test_who_watches_a_rank_and_is_stopped_still_sees_its_end(self):
        with subprocess.Popen(
                self.command(self.ranks, "replay", "--plan", "plan.json", "--iterations", 100),
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True) as job:
            os.kill(parent_of(self.await_workers(job.pid)[1]), signal.SIGSTOP)
            shown, errors = job.communicate(timeout=tool.SECONDS)
        self.assertEqual(job.returncode, DONE, errors)
        self.assertIn("100 iterations", shown)

    def test_a_rank_that_does_not_start_ends_all_in_time(self):
        binary = ARGUMENTS.executor
        for missing in (0, 1):
            self.write("start", f"[ $OMPI_COMM_WORLD_RANK = {missing} ] && kill -STOP $$\n"
                                "exec \"$@\"\n")
            result = self.run_tool(2, "sh", "start", binary, "replay", "--plan", "plan.json",
                                   "--timeout", 2, binary=LAUNCHER)
            # What the launcher makes of it is its own affair: some crash.
            self.assertNotEqual(result.returncode, DONE)
            self.assertEqual(result.stderr.count("error: MPI: start: expected all ranks to start "
                                                 "within 2 s, but some did not\n"), 1,
                             result.stderr)

    def test_a_rank_that_hangs_ends_all_in_time(self):
        for rank in range(min(self.ranks, 1 + SCALE)):
            with self.subTest(rank=rank):
                text = self.disturb(rank, signal.SIGSTOP, 0.1, timeout=4)
                self.assertIn(f"rank {rank} (node", text)


if __name__ == "__main__":
    tool.main()
