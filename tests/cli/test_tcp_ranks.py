"""dapple-exec as the ranks of a job over TCP, started one by one as torchrun or a person does: what
comes out, and how it ends when one dies, hangs, never comes or is another job's. Of ranks that are
killed in random moments a few are tried; with DAPPLE_TEST_SCALE=10 it is fifty."""

import os
import random
import re
import resource
import signal
import socket
import subprocess
import time

import tcp_peer
import test_train
import tool
from checkpoint_file import as_version_1
from tcp_peer import Peer
from tool import ARGUMENTS, DONE, ENVIRONMENT, SCALE, USAGE, ToolTest



def free_port():
    """Below those that Linux gives to whoever asks for any."""
    while True:
        port = random.randrange(10000, 32000)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Job:
    """Ranks that were started, each with what it said."""

    def __init__(self, test, port=None):
        self.test = test
        self.port = port or free_port()
        self.processes = {}

    def start(self, rank, size, *arguments, name=None, out=None, most_files=None, **variables):
        binary = ARGUMENTS.executor
        files = [open(self.test.folder / f"{stream}-{name or rank}", "w", encoding="utf-8")
                 for stream in ("out", "err")]
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(size),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port), **variables}
        limits = None if most_files is None else lambda: resource.setrlimit(
            resource.RLIMIT_NOFILE, (most_files, most_files))
        process = subprocess.Popen([binary, *map(str, arguments)], cwd=self.test.folder,
                                   stdin=subprocess.DEVNULL, stdout=out or files[0],
                                   stderr=files[1], env=environment, preexec_fn=limits)
        for file in files:
            file.close()
        self.test.addCleanup(process.wait)
        self.test.addCleanup(process.kill)
        self.processes[name or rank] = process
        return process

    def codes(self):
        return {rank: process.wait(tool.SECONDS) for rank, process in self.processes.items()}

    def said(self, stream, rank):
        return (self.test.folder / f"{stream}-{rank}").read_text(encoding="utf-8")

    def errors(self):
        return "".join(self.said("err", rank) for rank in self.processes)


class TcpRanks(ToolTest):
    def run_job(self, size, *arguments):
        """Exit codes by rank, what the first one says, and all errors."""
        job = Job(self)
        for rank in range(size):
            job.start(rank, size, *arguments)
        codes = job.codes()
        return codes, job.said("out", 0), job.errors()

    def all_with(self, code, size):
        return {rank: code for rank in range(size)}

    def training_plan(self, size, name="plan.json"):
        """Gradients would take longer than all else over such links: a stage for each core."""
        test_train.Training.plan(self, name, test_train.perceptron(),
                                 test_train.cores(size, "1 MB/s"))
        self.assertEqual(len(self.read(name)["stages"]), size)

    def replay_plan(self):
        self.make_deep_plan()
        stages = self.read("plan.json")["stages"]
        return len({device for stage in stages for device in stage["devices"]})

    def test_ranks_train_as_threads_do(self):
        for size in (2, 4):
            with self.subTest(size=size):
                self.training_plan(size)
                arguments = ("train", "--plan", "plan.json", "--steps", 3, "--clip-norm", 0.5,
                             "--checkpoint")
                binary = ARGUMENTS.executor
                threads = self.run_tool(*arguments, "threads", binary=binary)
                self.assertEqual(threads.returncode, DONE, threads.stderr)
                codes, shown, errors = self.run_job(size, *arguments, "ranks")
                self.assertEqual(codes, self.all_with(DONE, size), errors)
                losses = re.compile(r"step +\d+  loss \d+\.\d+")
                self.assertEqual(losses.findall(shown), losses.findall(threads.stdout))
                self.assertEqual((self.folder / "ranks").read_bytes(),
                                 (self.folder / "threads").read_bytes())
                self.assertIn(f"trained on {size} ranks", shown)

    def test_ranks_shard_the_optimizer_state_as_threads_do(self):
        test_train.Training.plan(self, "plan.json", test_train.perceptron(),
                                 test_train.cores(3, "100 GB/s"), "--shard", "optimizer", "--pin",
                                 "stages=1", "--pin", "replicas=3")
        arguments = ("train", "--plan", "plan.json", "--steps", 3, "--checkpoint")
        threads = self.run_tool(*arguments, "threads", binary=ARGUMENTS.executor)
        self.assertEqual(threads.returncode, DONE, threads.stderr)
        codes, _, errors = self.run_job(3, *arguments, "ranks")
        self.assertEqual(codes, self.all_with(DONE, 3), errors)
        self.assertEqual((self.folder / "ranks").read_bytes(),
                         (self.folder / "threads").read_bytes())

    def test_a_wrong_number_of_ranks_is_said_once(self):
        size = self.replay_plan()
        codes, _, errors = self.run_job(2, "replay", "--plan", "plan.json")
        self.assertEqual(codes, self.all_with(USAGE, 2), errors)
        self.assertRegex(errors, rf"^error: rank [01]: expected {size} ranks, one for each device "
                                 r"of the plan, got 2\ndapple-exec replay --help shows the options\n$")
        # Who is alone does not wait for others of whom there are too many, or too few.
        started = time.monotonic()
        job = Job(self)
        job.start(0, size + 1, "replay", "--plan", "plan.json", "--timeout", 100)
        self.assertEqual(job.codes(), {0: USAGE})
        self.assertIn(f"error: rank 0: expected {size} ranks, one for each device", job.errors())
        self.assertLess(time.monotonic() - started, 50)

    def test_what_is_wrong_with_one_rank_ends_all_at_once(self):
        self.training_plan(3)
        for more, code, said in ((("--steps", 0), USAGE, "--steps: expected a whole number"),
                                 (("--resume", "none"), ENVIRONMENT, "none: cannot be read"),
                                 (("--no",), USAGE, "--no: unknown option")):
            for wrong in (0, 2):
                with self.subTest(more=more, rank=wrong):
                    started = time.monotonic()
                    job = Job(self)
                    for rank in range(3):
                        job.start(rank, 3, "train", "--plan", "plan.json", "--timeout", 100,
                                  *(more if rank == wrong else ()))
                    codes = job.codes()
                    self.assertEqual(codes.pop(wrong), code, job.errors())
                    self.assertEqual(set(codes.values()), {ENVIRONMENT})
                    self.assertEqual(job.errors().count("error:"), 1, job.errors())
                    self.assertIn(f"error: rank {wrong}: {said}", job.said("err", wrong))
                    self.assertLess(time.monotonic() - started, 50)

    def test_what_is_wrong_with_all_ranks_is_said_once_and_by_who_is_alone_too(self):
        self.training_plan(2)
        for plan, code in (("plan.json", USAGE), ("none.json", ENVIRONMENT)):
            for ranks in (2, 1):
                with self.subTest(plan=plan, ranks=ranks):
                    job = Job(self)
                    for rank in range(ranks):
                        job.start(rank, 2, "train", "--plan", plan,
                                  *(("--stesp", 1) if code == USAGE else ("--timeout", 100)))
                    self.assertEqual(job.codes(), self.all_with(code, ranks))
                    self.assertEqual(job.errors().count("error: rank "), 1, job.errors())

    def test_a_signal_to_any_rank_ends_the_training_with_a_checkpoint(self):
        self.training_plan(3)
        for rank, number in ((0, signal.SIGINT), (1, signal.SIGTERM), (2, signal.SIGINT)):
            with self.subTest(rank=rank):
                job = self.long_training(3)
                job.processes[rank].send_signal(number)
                self.assertEqual(job.codes(), self.all_with(DONE, 3), job.errors())
                self.assertEqual(job.errors(), "")
                self.assertRegex(job.said("out", 0), r"checkpoint model, step \d+")

    def test_a_signal_to_any_rank_ends_the_replay_with_what_it_has(self):
        size = self.replay_plan()
        for rank in (0, size - 1):
            with self.subTest(rank=rank):
                job = Job(self)
                for other in range(size):
                    job.start(other, size, "replay", "--plan", "plan.json", "--iterations", 100000,
                              "-v")
                deadline = time.monotonic() + 60
                while any("rank" not in job.said("err", one) for one in range(size)):
                    self.assertLess(time.monotonic(), deadline, job.errors())
                    time.sleep(0.02)
                time.sleep(0.5)
                job.processes[rank].send_signal(signal.SIGINT)
                self.assertEqual(job.codes(), self.all_with(DONE, size), job.errors())
                self.assertRegex(job.said("out", 0), r"  interrupted after \d+ of 100000 iterations")

    def test_a_reader_who_goes_ends_the_training_with_a_checkpoint(self):
        self.training_plan(2)
        read, write = os.pipe()
        job = self.long_training(2, out=write)
        os.close(write)
        with open(read, encoding="utf-8") as shown:
            for line in shown:
                if "step    3" in line:
                    break
        self.assertEqual(job.codes(), {0: ENVIRONMENT, 1: DONE}, job.errors())
        self.assertEqual(job.errors(), "")
        self.assertTrue((self.folder / "model").exists())

    def long_training(self, size, out=None):
        """One that writes a checkpoint, once it has made three steps; or whose first rank's words go
        elsewhere."""
        job = Job(self)
        for rank in range(size):
            job.start(rank, size, "train", "--plan", "plan.json", "--steps", 1000000,
                      "--checkpoint", "model", out=out if rank == 0 else None)
        deadline = time.monotonic() + 60
        while out is None and "step    3" not in job.said("out", 0):
            self.assertLess(time.monotonic(), deadline, job.errors())
            time.sleep(0.02)
        return job

    def test_a_rank_that_goes_before_others_have_come_may_come_again(self):
        self.training_plan(3)
        arguments = ("train", "--plan", "plan.json", "--steps", 2)
        for _ in range(1 + SCALE):
            job = Job(self)
            job.start(0, 3, *arguments)
            for number in (signal.SIGKILL, signal.SIGTERM):
                gone = job.start(1, 3, *arguments)
                time.sleep(0.5)
                gone.send_signal(number)
                gone.wait(tool.SECONDS)
            job.start(1, 3, *arguments)
            job.start(2, 3, *arguments)
            self.assertEqual(job.codes(), self.all_with(DONE, 3), job.errors())

    def test_ranks_with_different_files_do_not_begin(self):
        self.training_plan(2)
        binary = ARGUMENTS.executor
        for name, steps in (("one", 1), ("two", 2)):
            self.run_tool("train", "--plan", "plan.json", "--steps", steps, "--checkpoint", name,
                          binary=binary)
        content = as_version_1((self.folder / "one").read_bytes())
        (self.folder / "one").write_bytes(content)
        (self.folder / "other").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        for first, second in ((["--resume", "one"], ["--resume", "other"]),
                              ([], ["--checkpoint", "end"])):
            job = Job(self)
            for rank, more in enumerate((first, second)):
                job.start(rank, 2, "train", "--plan", "plan.json", *more)
            self.assertLessEqual(set(job.codes().values()), {USAGE, ENVIRONMENT})
            self.assertRegex(job.errors(), "error: rank .* was given, got others")
            self.assertFalse((self.folder / "end").exists())

    def test_ranks_with_different_plans_do_not_begin(self):
        size = self.replay_plan()
        job = Job(self)
        for rank in range(size):
            job.start(rank, size, "replay", "--plan", "plan.json", "--iterations",
                      3 if rank == 1 else 2)
        # Who has seen it says so; the others end because of that.
        self.assertLessEqual(set(job.codes().values()), {USAGE, ENVIRONMENT})
        self.assertEqual(job.errors().count("error:"), 1, job.errors())
        self.assertRegex(job.errors(), r"rank \d \(node\d:\d\): expected the plan and the options "
                                       r"that rank \d \(node\d:\d\) was given, got others")

    def disturb(self, rank, number, delay, timeout):
        """Starts a long replay, sends one rank the signal, and sees all others end: their only
        error."""
        size = self.replay_plan()
        job = Job(self)
        for other in range(size):
            job.start(other, size, "replay", "--plan", "plan.json", "--iterations", 100000,
                      "--timeout", timeout, "-v")
        deadline = time.monotonic() + 60
        while any("rank" not in job.said("err", one) for one in range(size)):
            self.assertLess(time.monotonic(), deadline, job.errors())
            time.sleep(0.02)
        time.sleep(delay)
        os.kill(job.processes[rank].pid, number)
        started = time.monotonic()
        for other in range(size):
            if other != rank:
                self.assertEqual(job.processes[other].wait(tool.SECONDS), ENVIRONMENT)
        self.assertLess(time.monotonic() - started, timeout + 5)
        self.assertEqual(job.errors().count("error:"), 1, job.errors())
        return job

    def test_a_rank_that_is_killed_ends_all_and_is_named(self):
        dice = random.Random(3701)
        for round_number in range(5 * SCALE):
            rank = round_number % 4
            with self.subTest(rank=rank, round=round_number):
                job = self.disturb(rank, signal.SIGKILL, dice.uniform(0.2, 0.5), timeout=30)
                self.assertRegex(job.errors(), rf"error: rank {rank} \(node\d:\d\): \d\w+: "
                                               "terminated or became unreachable")

    def test_a_rank_that_hangs_ends_all_in_time_and_ends_once_it_goes_on(self):
        job = self.disturb(1, signal.SIGSTOP, 0.1, timeout=4)
        self.assertRegex(job.errors(), r"rank \d \(node\d:\d\): \w+: "
                                       r"(expected|no heartbeat for 3.6 s)")
        self.assertIn("rank 1 (node", job.errors())
        os.kill(job.processes[1].pid, signal.SIGCONT)
        self.assertEqual(job.processes[1].wait(tool.SECONDS), ENVIRONMENT)
        self.assertEqual(job.errors().count("error:"), 1, job.errors())

    def test_a_rank_that_never_comes_ends_all_in_time(self):
        job = Job(self)
        size = self.replay_plan()
        for rank in (0, 1):
            job.start(rank, size, "replay", "--plan", "plan.json", "--timeout", 1)
        self.assertEqual(job.codes(), self.all_with(ENVIRONMENT, 2))
        self.assertEqual(job.errors(), f"error: rank 0: start: expected all {size} ranks to connect "
                                       "within 1 s, but rank 2 did not\n")

    def test_who_does_not_find_rank_0_says_so_in_time(self):
        self.replay_plan()
        for address, said in (("127.0.0.1", 'got "Connection refused"'),
                              ("10.255.255.1", "expected rank 0 at 10.255.255.1:")):
            with self.subTest(address=address):
                job = Job(self)
                job.start(1, 4, "replay", "--plan", "plan.json", "--timeout", 1,
                          MASTER_ADDR=address)
                self.assertEqual(job.codes(), {1: ENVIRONMENT})
                self.assertEqual(job.errors().count("error: rank 1: start: expected rank 0 at"), 1)
                self.assertIn(said, job.errors())

    def test_a_port_in_use_is_named(self):
        self.replay_plan()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            job = Job(self, port=taken.getsockname()[1])
            job.start(0, 4, "replay", "--plan", "plan.json")
            self.assertEqual(job.codes(), {0: ENVIRONMENT})
            self.assertEqual(job.errors(), f"error: rank 0: start: expected port {job.port} to "
                                           'listen on, got "Address already in use"\n')

    def test_strangers_and_ranks_of_other_jobs_change_nothing(self):
        self.training_plan(2)
        arguments = ("train", "--plan", "plan.json", "--steps", 2)
        job = Job(self)
        job.start(0, 2, *arguments)
        deadline = time.monotonic() + 30
        strangers = []
        for content in (b"", b"GET / HTTP/1.1\r\nHost: rank\r\n\r\n", bytes(1000),
                        random.Random(3702).randbytes(100000)):
            while True:
                try:
                    stranger = socket.create_connection(("127.0.0.1", job.port))
                    break
                except ConnectionRefusedError:
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.02)
            stranger.settimeout(10)
            try:
                stranger.sendall(content)
            except ConnectionError:  # it has already been turned away
                pass
            strangers.append(stranger)
            self.addCleanup(stranger.close)
        self.training_plan(3, "three.json")
        job.start(1, 3, "train", "--plan", "three.json", name="other")
        self.assertEqual(job.processes["other"].wait(tool.SECONDS), ENVIRONMENT)
        self.assertEqual(job.said("err", "other"), "error: rank 1: start: expected a job of 3 "
                                                   "ranks, got one of 2\n")
        job.start(1, 2, *arguments)
        self.assertEqual(job.codes(), {0: DONE, 1: DONE, "other": ENVIRONMENT}, job.errors())

    def test_a_rank_beyond_all_numbers_is_nobody_and_who_is_turned_away_learns_no_job(self):
        self.training_plan(2)
        arguments = ("train", "--plan", "plan.json", "--steps", 2)
        job = Job(self)
        job.start(0, 2, *arguments)
        for rank, size, verdict in (((1 << 32) + 1, 2, tcp_peer.NO_SUCH_RANK),
                                    ((1 << 64) - 1, 2, tcp_peer.NO_SUCH_RANK),
                                    (0, 2, tcp_peer.NO_SUCH_RANK), (2, 2, tcp_peer.NO_SUCH_RANK),
                                    (1, (1 << 32) + 2, tcp_peer.OTHER_SIZE),
                                    (1, 3, tcp_peer.OTHER_SIZE)):
            with self.subTest(rank=rank, size=size):
                peer = Peer(job.port, rank, size)
                self.assertTrue(peer.is_proven_to)
                self.assertEqual((peer.verdict, peer.size, peer.host, peer.job), (verdict, 2, 0, 0))
                peer.close()
        job.start(1, 2, *arguments)
        self.assertEqual(job.codes(), self.all_with(DONE, 2), job.errors())

    def test_only_who_knows_the_secret_is_a_rank(self):
        self.training_plan(2)
        arguments = ("train", "--plan", "plan.json", "--steps", 2)
        secret = "a secret of this test"
        (self.folder / "secret").write_text(secret + "\n")
        job = Job(self)
        job.start(0, 2, *arguments, DAPPLE_SECRET=secret)
        for other in (b"", b"another secret of this test"):
            peer = Peer(job.port, 1, 2, other)
            self.assertEqual((peer.verdict, peer.size, peer.host, peer.job),
                             (tcp_peer.UNPROVEN, 0, 0, 0))
            self.assertFalse(peer.is_proven_to)
            peer.close()
        for name, variables, got in (("none", {}, "none"),
                                     ("other", {"DAPPLE_SECRET": secret + "!"}, "another")):
            process = job.start(1, 2, *arguments, name=name, **variables)
            self.assertEqual(process.wait(tool.SECONDS), ENVIRONMENT)
            self.assertEqual(job.said("err", name),
                             "error: rank 1: start: rejected by rank 0: expected "
                             f"the job's secret, got {got}\n")
            del job.processes[name]
        job.start(1, 2, *arguments, DAPPLE_SECRET_FILE="secret")
        self.assertEqual(job.codes(), self.all_with(DONE, 2), job.errors())
        self.assertEqual(job.errors(), "")

    def test_a_secret_that_is_none_is_named_and_not_shown(self):
        self.training_plan(2)
        (self.folder / "empty").write_text("\n")
        for variables, said in (
                ({"DAPPLE_SECRET": "short one"},
                 "DAPPLE_SECRET: expected a secret of 16 to 4096 bytes, got 9"),
                ({"DAPPLE_SECRET": ""}, "DAPPLE_SECRET: expected a secret of 16 to 4096 bytes, got 0"),
                ({"DAPPLE_SECRET_FILE": "empty"},
                 "DAPPLE_SECRET_FILE: expected a secret of 16 to 4096 bytes, got 0"),
                ({"DAPPLE_SECRET_FILE": "gone"}, "gone: cannot be read: No such file or directory"),
                ({"DAPPLE_SECRET_FILE": "empty", "DAPPLE_SECRET": "x" * 20},
                 "DAPPLE_SECRET: cannot be used with DAPPLE_SECRET_FILE")):
            with self.subTest(variables=variables):
                job = Job(self)
                job.start(0, 2, "train", "--plan", "plan.json", **variables)
                self.assertEqual(job.codes(), {0: ENVIRONMENT})
                self.assertEqual(job.errors(), f"error: {said}\n")

    def test_a_proof_is_good_for_one_handshake(self):
        self.training_plan(3)
        secret = "a secret of this test"
        job = Job(self)
        arguments = ("train", "--plan", "plan.json", "--steps", 1)
        job.start(0, 3, *arguments, DAPPLE_SECRET=secret)
        heard = Peer(job.port, 1, 3, secret.encode())
        self.assertEqual(heard.verdict, tcp_peer.WELCOME)
        self.assertTrue(heard.is_proven_to)
        heard.close()
        again = Peer(job.port, 1, 3, secret.encode(), hello=heard.hello, proof=heard.proof)
        self.assertEqual((again.verdict, again.job), (tcp_peer.UNPROVEN, 0))
        again.close()
        for rank in (1, 2):
            job.start(rank, 3, *arguments, DAPPLE_SECRET=secret)
        self.assertEqual(job.codes(), self.all_with(DONE, 3), job.errors())

    def test_who_does_not_know_the_secret_is_not_taken_for_rank_0(self):
        self.training_plan(2)
        with socket.create_server(("127.0.0.1", 0)) as impostor:
            job = Job(self, port=impostor.getsockname()[1])
            job.start(1, 2, "train", "--plan", "plan.json", "--timeout", 2,
                      DAPPLE_SECRET="a secret of this test")
            impostor.settimeout(tool.SECONDS)
            connection = impostor.accept()[0]
            connection.settimeout(tool.SECONDS)
            tcp_peer.received(connection, 88)
            connection.sendall(tcp_peer.packed(tcp_peer.MAGIC, tcp_peer.ORDER, tcp_peer.VERSION, 0,
                                               1, 2, 3, 4))
            tcp_peer.received(connection, 32)
            connection.sendall(tcp_peer.packed(tcp_peer.WELCOME, 2, 0, 77, 1, 2, 3, 4))
            self.assertEqual(connection.recv(1), b"")  # it hangs up
            connection.close()
            self.assertEqual(job.codes(), {1: ENVIRONMENT})
        self.assertIn("error: rank 1: start: expected rank 0 at 127.0.0.1:", job.errors())

    def test_a_rank_that_fails_while_ranks_meet_says_when_by_the_clock_of_rank_0(self):
        self.training_plan(3)
        ahead = 10**15
        with socket.create_server(("127.0.0.1", 0)) as listening:
            job = Job(self, port=listening.getsockname()[1])
            job.start(2, 3, "train", "--plan", "plan.json")
            listening.settimeout(tool.SECONDS)
            connection = listening.accept()[0]
            self.addCleanup(connection.close)
            connection.settimeout(tool.SECONDS)
            root = tcp_peer.Root(connection, 3, ahead)
            before = time.monotonic_ns() + ahead
            root.send_peer_table(bytes(3 * 24))
            kind, notice, moment = root.received_header()[:3]
            after = time.monotonic_ns() + ahead
        self.assertEqual((kind, notice), (tcp_peer.NOTICE, tcp_peer.FAILURE))
        # Clocks are compared to within half of a round trip.
        self.assertTrue(before - 10**9 <= moment <= after + 10**9, (before, moment, after))
        self.assertEqual(job.codes(), {2: ENVIRONMENT})
        self.assertEqual(job.errors(), "error: rank 2: start: expected the port of rank 1 from rank 0, "
                                       "got 0\n")

    def test_who_is_called_and_says_nothing_is_called_again(self):
        self.training_plan(2)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            job = Job(self, port=silent.getsockname()[1])
            job.start(1, 2, "train", "--plan", "plan.json", "--timeout", 7)
            silent.settimeout(tool.SECONDS)
            first, second = silent.accept()[0], silent.accept()[0]
            self.assertIsNone(job.processes[1].poll())
            first.close()
            second.close()
            self.assertEqual(job.codes(), {1: ENVIRONMENT})

    def test_a_thousand_who_say_nothing_do_not_keep_a_job_from_meeting(self):
        self.training_plan(2)
        arguments = ("train", "--plan", "plan.json", "--steps", 2, "--timeout", 20)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, before[1]), before[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        hello = tcp_peer.packed(tcp_peer.MAGIC, tcp_peer.ORDER, tcp_peer.VERSION, 1, 2, 99, *range(5))
        for words in (b"", hello):
            with self.subTest(words=len(words)):
                job = Job(self)
                job.start(0, 2, *arguments, most_files=256)
                strangers = []
                for _ in range(1000):
                    strangers.append(tcp_peer.connected(job.port))
                    try:
                        strangers[-1].sendall(words)
                    except ConnectionError:  # it has already been hung up on
                        pass
                started = time.monotonic()
                job.start(1, 2, *arguments, most_files=256)
                self.assertEqual(job.codes(), self.all_with(DONE, 2), job.errors())
                self.assertLess(time.monotonic() - started, 15)
                for stranger in strangers:
                    stranger.close()

    def test_a_rank_that_says_what_no_rank_says_is_named(self):
        self.training_plan(2)
        for said in (tcp_peer.envelope(tcp_peer.NOTICE, 99),
                     tcp_peer.envelope(tcp_peer.NOTICE, (1 << 32) + tcp_peer.HEARTBEAT),
                     tcp_peer.envelope(tcp_peer.NOTICE, tcp_peer.HEARTBEAT, 0, 0, 200 << 56),
                     tcp_peer.envelope(tcp_peer.NOTICE, tcp_peer.HEARTBEAT, 0, 0, 5),
                     tcp_peer.envelope(tcp_peer.NOTICE, tcp_peer.BARRIER_RELEASE, 0, 1),
                     tcp_peer.envelope(tcp_peer.FRAME, 0, 200 << 56),
                     tcp_peer.envelope(tcp_peer.PIECE, 8) + bytes(8),
                     tcp_peer.envelope(77),
                     bytes(72)):
            with self.subTest(said=tcp_peer.unpacked(said[:72])):
                job = Job(self)
                job.start(0, 2, "train", "--plan", "plan.json", "--timeout", 20)
                peer = Peer(job.port, 1, 2)
                self.addCleanup(peer.close)
                peer.take_place(2)
                peer.connection.sendall(said)
                self.assertEqual(job.codes(), {0: ENVIRONMENT})
                self.assertRegex(job.errors(), r"^error: rank 1( \(node0:1\))?: expected [^\n]*\n$")
                self.assertNotIn("bug", job.errors())
                self.assertNotIn("heartbeat", job.errors())

    def test_a_job_that_anybody_can_join_from_elsewhere_says_so(self):
        self.training_plan(2)
        for variables, warns in (({}, True), ({"DAPPLE_SECRET": "a secret of this test"}, False)):
            job = Job(self)
            for rank in range(2):
                job.start(rank, 2, "train", "--plan", "plan.json", "--steps", 1,
                          MASTER_ADDR="0.0.0.0", **variables)
            self.assertEqual(job.codes(), self.all_with(DONE, 2), job.errors())
            self.assertEqual("warning: anyone who reaches port " in job.errors(), warns)
            self.assertEqual(job.said("err", 1), "")

    def test_an_environment_that_says_only_a_part_is_named(self):
        self.training_plan(2)
        arguments = ("train", "--plan", "plan.json", "--steps", 1)
        binary = ARGUMENTS.executor
        ranked = {"RANK": "0", "WORLD_SIZE": "2"}
        for variables, said in (
                (ranked, "error: MASTER_ADDR: expected the address of rank 0's host, or its name"),
                ({**ranked, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"},
                 'error: MASTER_PORT: expected a number from 1 to 65535, got "0"'),
                ({**ranked, "RANK": "2"}, 'error: RANK: expected a number from 0 to 1, got "2"'),
                ({**ranked, "WORLD_SIZE": "two"}, "error: WORLD_SIZE: expected a number from 1 to"),
        ):
            with self.subTest(variables=variables):
                result = self.run_tool(*arguments, binary=binary, environment=variables)
                self.assertEqual(result.returncode, ENVIRONMENT, result.stderr)
                self.assertIn(said, result.stderr)
        # One of two is nobody's rank.
        result = self.run_tool(*arguments, binary=binary, environment={"RANK": "0"})
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("trained on 2 threads", result.stdout)


if __name__ == "__main__":
    tool.main()
