"""dapple-exec train: models that learn, plans that are verified, training that is gone on with."""

import json
import math
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import time
import unittest

import tool
from checkpoint_file import as_version_1, file_of, header_and_tensors, is_whole
from tool import ARGUMENTS, BAD_INPUT, DONE, ENVIRONMENT, ROOT, SCALE, USAGE, ToolTest
from trainable import cores, perceptron, small_gpt, small_llama

LAUNCHER = ROOT / "tests" / "exec" / "run_mpi"
KILLS = 6 if SCALE == 1 else 20 * SCALE  # of trainings that write checkpoints
LIMIT = 1 << 20  # bytes of a file, above those of a checkpoint


class Training(ToolTest):
    def train(self, *arguments, **options):
        """Runs dapple-exec, which is built beside dapple-plan."""
        binary = ARGUMENTS.executor
        return self.run_tool("train", *arguments, binary=binary, **options)

    def plan(self, name, profile, topology, *more):
        result = self.run_tool("--model", self.write("profile.json", profile), "--topo",
                               self.write("topology.json", topology), "-o", name, *more)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return name

    def pipeline(self, name="plan.json"):
        """Two stages: over such links gradients take longer than all else."""
        self.plan(name, perceptron(), cores(2, "1 MB/s"))
        self.assertEqual(len(self.read(name)["stages"]), 2)
        return name

    def losses(self, result):
        self.assertEqual(result.returncode, DONE, result.stderr)
        return re.findall(r"step +(\d+)  loss (\d+\.\d+)", result.stdout)

    def test_help_fits_a_screen(self):
        lines = self.train("--help").stdout.splitlines()
        self.assertLessEqual(len(lines), 40)
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertIn("Example", lines)

    def small_gpt(self, name):
        self.plan(name, small_gpt(), cores(2, "10 MB/s"), "--pin", "replicas=1")
        self.assertEqual(len(self.read(name)["stages"]), 2)

    def test_stages_that_share_weights_train_as_one_device_does(self):
        self.small_gpt("gpt.json")
        shared = self.run_tool("schedule", "gpt.json").stdout
        self.assertEqual(shared.count("REDUCE_TIED0"), 2)
        for family in ["1f1b", "interleaved", "zb-v"]:
            with self.subTest(family=family):
                self.run_tool("reschedule", "gpt.json", "--schedule", family, "-o", "other.json")
                result = self.train("--plan", "other.json", "--steps", "3", "--clip-norm", "1",
                                    "--verify")
                self.assertEqual(result.returncode, DONE, result.stdout + result.stderr)
                self.assertIn("verified", result.stdout)
        # Both copies go into one tensor, and out of it again.
        whole = self.losses(self.train("--plan", "gpt.json", "--steps", "4"))
        self.train("--plan", "gpt.json", "--steps", "2", "--checkpoint", "half")
        self.assertEqual(self.losses(self.train("--plan", "gpt.json", "--steps", "2", "--resume",
                                                "half")), whole[2:])

    def test_kernels_are_chosen_and_the_portable_ones_have_the_same_losses_everywhere(self):
        self.small_gpt("gpt.json")
        losses = self.losses(self.train("--plan", "gpt.json", "--steps", "3", "--kernels",
                                        "portable"))
        self.assertEqual(losses, [("1", "5.55722"), ("2", "5.54549"), ("3", "5.54347")])
        verified = self.train("--plan", "gpt.json", "--steps", "2", "--kernels", "baseline",
                              "--verify")
        self.assertEqual(verified.returncode, DONE, verified.stdout)
        result = self.train("--plan", "gpt.json", "--kernels", "abacus")
        self.assertEqual(result.returncode, USAGE)
        self.assertRegex(result.stderr, "--kernels: expected .*portable.*, got .*abacus")

    def test_a_small_gpt_learns_a_small_text(self):
        self.small_gpt("gpt.json")
        tokens = subprocess.run([ROOT / "tools" / "make_text"], check=True, capture_output=True)
        (self.folder / "text.tokens").write_bytes(tokens.stdout)
        steps, loss = (30, 3.3) if ARGUMENTS.sanitized else (150, 1.3)
        losses = self.losses(self.train(
            "--plan", "gpt.json", "--tokens", "text.tokens", "--steps", steps, "--learning-rate",
            "0.002", "--clip-norm", "1"))
        self.assertEqual(len(losses), steps)
        # One of 256 bytes at first: log 256 is 5.5. A character of the text is worth about one.
        self.assertGreater(float(losses[0][1]), 5)
        self.assertLess(float(losses[-1][1]), loss)

    def test_a_small_llama_has_the_same_losses_under_every_plan(self):
        of_plans = []
        for name, cluster, pins in [("one", cores(1, "1 GB/s"), []),
                                    ("stages", cores(3, "1 GB/s"),
                                     ["--pin", "stages=3", "--pin", "replicas=1"]),
                                    ("replicas", cores(4, "1 GB/s"),
                                     ["--pin", "stages=2", "--pin", "replicas=2"])]:
            plan = self.plan(f"{name}.json", small_llama(), cluster, *pins)
            arguments = ["--plan", plan, "--steps", "3", "--clip-norm", "1"]
            of_plans.append([float(loss) for _, loss in self.losses(self.train(*arguments))])
            self.assertEqual(len(of_plans[-1]), 3)
            verified = self.train(*arguments, "--verify")
            self.assertEqual(verified.returncode, DONE, verified.stdout + verified.stderr)
        one, stages, replicas = of_plans
        self.assertEqual(len(self.read("stages.json")["stages"]), 3)
        self.assertEqual(len(self.read("replicas.json")["stages"][0]["devices"]), 2)
        self.assertEqual(stages, one)
        for loss, expected in zip(replicas, one, strict=True):
            self.assertAlmostEqual(loss, expected, delta=2e-5)
        self.assertGreater(one[0], 5)  # one of 256 bytes at first, and log 256 is 5.5

    def test_a_small_llama_learns_a_small_text_and_has_no_weights_of_gpt2(self):
        self.plan("llama.json", small_llama(), cores(2, "1 GB/s"), "--pin", "stages=2",
                  "--pin", "replicas=1")
        tokens = subprocess.run([ROOT / "tools" / "make_text"], check=True, capture_output=True)
        (self.folder / "text.tokens").write_bytes(tokens.stdout)
        steps, loss = (30, 3.3) if ARGUMENTS.sanitized else (150, 1.3)
        losses = self.losses(self.train(
            "--plan", "llama.json", "--tokens", "text.tokens", "--steps", steps,
            "--learning-rate", "0.002", "--clip-norm", "1"))
        self.assertLess(float(losses[-1][1]), loss)
        self.assert_error(self.train("--plan", "llama.json", "--save-weights", "weights"),
                          BAD_INPUT, "as GPT-2 has, got layer \"")

    def test_heads_that_cannot_be_are_refused_before_training(self):
        profile = small_llama()
        profile["layers"][1]["op"]["kv_heads"] = 3
        self.plan("heads.json", profile, cores(1, "1 GB/s"))
        self.assert_error(self.train("--plan", "heads.json"), BAD_INPUT,
                          "layer block.0/op/kv_heads: expected a divisor of heads, 4, got 3")

    def test_a_plan_is_verified_against_one_device(self):
        plans = [self.pipeline(), self.plan("copies.json", perceptron(), cores(3, "100 GB/s")),
                 self.plan("zero-bubble.json", perceptron(), cores(2, "1 MB/s"), "--schedule",
                           "zb-h1")]
        for plan in plans:
            with self.subTest(plan=plan):
                result = self.train("--plan", plan, "--steps", "3", "--verify")
                self.assertEqual(result.returncode, DONE, result.stdout + result.stderr)
                # Without replicas the same sums are made in the same order.
                same = all(len(stage["devices"]) == 1 for stage in self.read(plan)["stages"])
                self.assertIn(f"of 8 tensors {'do not differ' if same else 'differ by'}",
                              result.stdout)
                self.assertIn("verified", result.stdout)

    def test_a_gpu_trains_as_a_core_does_and_where_there_is_none_one_error_says_so(self):
        self.pipeline()
        result = self.train("--plan", "plan.json", "--device", "cuda", "--oversubscribe",
                            "--steps", "2", "--verify")
        if result.returncode == DONE:
            self.assertIn("trained on 2 threads, in fp32 on GPUs", result.stdout)
            self.assertIn("verified", result.stdout)
            return
        self.assert_error(result, ENVIRONMENT, "CUDA: ")
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)

    def test_training_goes_on_from_a_checkpoint_with_the_same_losses(self):
        self.pipeline()
        whole = self.losses(self.train("--plan", "plan.json", "--steps", "6", "--checkpoint", "a",
                                       "--seed", "5", "--optimizer", "adam"))
        self.train("--plan", "plan.json", "--steps", "4", "--checkpoint", "b", "--seed", "5",
                   "--optimizer", "adam", "--checkpoint-every", "2")
        rest = self.losses(self.train("--plan", "plan.json", "--steps", "2", "--resume", "b",
                                      "--checkpoint", "b"))
        self.assertEqual(rest, whole[4:])
        self.assertEqual((self.folder / "a").read_bytes(), (self.folder / "b").read_bytes())
        # Another plan, of one device.
        self.plan("one.json", perceptron(), cores(1, "1 MB/s"))
        self.train("--plan", "plan.json", "--steps", "4", "--checkpoint", "c", "--seed", "5",
                   "--optimizer", "adam")
        other = self.losses(self.train("--plan", "one.json", "--steps", "2", "--resume", "c"))
        for (step, loss), (expected_step, expected) in zip(other, whole[4:], strict=True):
            self.assertEqual(step, expected_step)
            self.assertAlmostEqual(float(loss), float(expected), places=4)

    def test_a_training_that_diverges_ends_before_anything_is_saved(self):
        self.pipeline()
        wild = ("--plan", "plan.json", "--steps", "40", "--learning-rate", "1000", "--optimizer",
                "sgd", "--resume", "start")
        self.train("--plan", "plan.json", "--steps", "1", "--optimizer", "sgd", "--checkpoint",
                   "start")
        for more in (("--checkpoint", "good", "--checkpoint-every", "1"), ("--verify",)):
            with self.subTest(more=more):
                self.assert_error(self.train(*wild, *more), BAD_INPUT, "error: step ",
                                  "expected a loss that is a number, got none")
        # Saved were steps with a loss: training goes on from there, to diverge again.
        self.assert_error(self.train("--plan", "plan.json", "--steps", "40", "--resume", "good"),
                          BAD_INPUT, "expected a loss that is a number")

    def test_weights_are_gpt_2s_by_name_and_start_another_training(self):
        self.small_gpt("gpt.json")
        result = self.train("--plan", "gpt.json", "--steps", "3", "--save-weights", "w.safetensors")
        whole = self.losses(self.train("--plan", "gpt.json", "--steps", "4", "--optimizer", "sgd"))
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("weights    w.safetensors", result.stdout)
        content = (self.folder / "w.safetensors").read_bytes()
        header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
        self.assertEqual(header["wte.weight"]["shape"], [256, 64])
        self.assertEqual(header["h.3.attn.c_attn.weight"]["shape"], [64, 192])
        self.assertNotIn("lm_head.weight", header)
        # Begun from what was made before any step, it is the same training.
        self.train("--plan", "gpt.json", "--steps", "1", "--optimizer", "sgd", "--learning-rate",
                   "1e-9", "--save-weights", "first.safetensors")
        again = self.train("--plan", "gpt.json", "--steps", "4", "--optimizer", "sgd", "--weights",
                           "first.safetensors")
        self.assertIn("from given weights", again.stdout)
        for (_, ours), (_, loss) in zip(self.losses(again), whole, strict=True):
            self.assertAlmostEqual(float(ours), float(loss), places=4)
        both = self.train("--plan", "gpt.json", "--weights", "first.safetensors", "--resume", "x")
        self.assertEqual(both.returncode, USAGE)
        self.assertIn("--weights: cannot be used with --resume", both.stderr)
        other = self.train("--plan", self.pipeline(), "--weights", "first.safetensors")
        self.assertEqual(other.returncode, BAD_INPUT)
        self.assertIn("expected an embedding here, as GPT-2 has", other.stderr)
        # Before the first step, not behind the last.
        other = self.train("--plan", "plan.json", "--steps", "1000000", "--save-weights", "no",
                           "--checkpoint", "nothing")
        self.assertEqual((other.returncode, other.stdout), (BAD_INPUT, ""))
        self.assertIn("expected an embedding here, as GPT-2 has", other.stderr)

    def test_a_checkpoint_that_is_read_is_not_overwritten_by_something_else(self):
        self.pipeline()
        self.train("--plan", "plan.json", "--steps", "1", "--checkpoint", "start")
        before = (self.folder / "start").read_bytes()
        for option in ("--timeline", "--trace"):
            self.assert_error(
                self.train("--plan", "plan.json", "--steps", "1", "--resume", "start", option,
                           "start"), USAGE,
                f"{option}: expected another file than that of --resume")
        self.assertEqual((self.folder / "start").read_bytes(), before)

    def test_a_file_without_a_name_is_noticed_before_the_first_step(self):
        self.pipeline()
        for option in ("--checkpoint", "--timeline", "--trace"):
            result = self.train("--plan", "plan.json", "--steps", "1", option, "")
            self.assert_error(result, USAGE,
                              f"{option}: expected the name of a file, got an empty one",
                              "dapple-exec train --help shows the options")
            self.assertEqual(result.stdout, "")

    def test_what_is_told_goes_to_stderr_beside_a_checkpoint_on_stdout(self):
        self.pipeline()
        arguments = ("--plan", "plan.json", "--steps", "2", "--learning-rate", "1e-4",
                     "--checkpoint")
        binary = ARGUMENTS.executor
        result = subprocess.run([binary, "train", *arguments, "-"], cwd=self.folder, check=False,
                                capture_output=True, timeout=tool.SECONDS)
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn(b"step    2", result.stderr)
        self.train(*arguments, "model")
        self.assertEqual((self.folder / "model").read_bytes(), result.stdout)

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_a_signal_to_the_launcher_ends_the_training_with_a_checkpoint_and_a_summary(self):
        self.pipeline()
        binary = ARGUMENTS.executor
        # Of Ctrl-C the launcher makes a failure of its own; what it passes on is none.
        for number, codes in ((signal.SIGUSR1, (DONE,)), (signal.SIGINT, (DONE, 1))):
            with self.subTest(signal=number), subprocess.Popen(
                    [LAUNCHER, "2", binary, "train", "--plan", "plan.json", "--steps", "1000000",
                     "--checkpoint", "model"], cwd=self.folder, text=True, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE) as process:
                for line in process.stdout:
                    if "step    3" in line:
                        break
                process.send_signal(number)
                rest, errors = process.communicate(timeout=tool.SECONDS)
                self.assertIn(process.returncode, codes, errors)
                self.assertNotIn("error:", errors)
                step = re.search(r"checkpoint model, step (\d+)", rest).group(1)
                resumed = self.losses(self.train("--plan", "plan.json", "--steps", "1", "--resume",
                                                 "model"))
                self.assertEqual(int(resumed[0][0]), int(step) + 1)

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_ranks_train_as_threads_do(self):
        self.pipeline()
        self.replicas("sharded.json", 2, "optimizer")
        binary = ARGUMENTS.executor
        for plan in ("plan.json", "sharded.json"):
            with self.subTest(plan=plan):
                arguments = ("--plan", plan, "--steps", "3", "--clip-norm", "0.5", "--checkpoint")
                threads = self.losses(self.train(*arguments, "threads"))
                ranks = self.losses(self.run_tool(2, binary, "train", *arguments, "ranks",
                                                  binary=LAUNCHER))
                self.assertEqual(ranks, threads)
                self.assertEqual((self.folder / "ranks").read_bytes(),
                                 (self.folder / "threads").read_bytes())
                verified = self.run_tool(2, binary, "train", "--plan", plan, "--verify",
                                         binary=LAUNCHER)
                self.assertEqual(verified.returncode, DONE, verified.stderr)
                self.assertIn("verified", verified.stdout)

    def replicas(self, name, count, sharding):
        """One stage on so many devices."""
        self.plan(name, perceptron(), cores(count, "100 GB/s"), "--pin", "stages=1", "--pin",
                  f"replicas={count}", "--shard", sharding)

    def test_sharded_state_trains_as_whole_state_and_either_goes_on_from_the_other(self):
        shardings = ("optimizer", "none")
        for sharding in shardings:
            self.replicas(f"{sharding}.json", 3, sharding)
            self.assertEqual(self.read(f"{sharding}.json").get("parallelism", {}).get("sharding"),
                             None if sharding == "none" else sharding)
        whole = {sharding: self.losses(self.train("--plan", f"{sharding}.json", "--steps", "4",
                                                  "--checkpoint", f"{sharding}.end"))
                 for sharding in shardings}
        self.assertEqual(whole["optimizer"], whole["none"])
        end = (self.folder / "none.end").read_bytes()
        self.assertEqual((self.folder / "optimizer.end").read_bytes(), end)
        for first, then in (shardings, shardings[::-1]):
            with self.subTest(first=first, then=then):
                self.train("--plan", f"{first}.json", "--steps", "2", "--checkpoint", "half")
                resumed = self.losses(self.train("--plan", f"{then}.json", "--steps", "2",
                                                 "--resume", "half", "--checkpoint", "end"))
                self.assertEqual(resumed, whole["none"][2:])
                self.assertEqual((self.folder / "end").read_bytes(), end)
        verified = self.train("--plan", "optimizer.json", "--verify", "--clip-norm", "0.5")
        self.assertEqual(verified.returncode, DONE, verified.stdout + verified.stderr)
        self.assertIn("verified", verified.stdout)

    def test_what_was_measured_can_be_compared_with_what_was_predicted(self):
        self.pipeline()
        result = self.train("--plan", "plan.json", "--steps", "3", "--timeline", "measured.json",
                            "--trace", "trace.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(self.read("measured.json")["origin"], "measured")
        self.assertTrue(self.read("trace.json"))
        compared = self.run_tool("diff", "plan.json", "measured.json")
        self.assertEqual(compared.returncode, DONE, compared.stderr)
        self.assertIn("forward of stage 1", compared.stdout)

    def long_training(self):
        """One that writes a checkpoint, once it has made three steps."""
        self.pipeline()
        binary = ARGUMENTS.executor
        process = subprocess.Popen([binary, "train", "--plan", "plan.json", "--steps", "1000000",
                                    "--checkpoint", "model"], cwd=self.folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if "step    3" in line:
                return process
        self.fail(process.stderr.read())

    def test_an_interrupt_ends_the_training_with_a_checkpoint(self):
        process = self.long_training()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=tool.SECONDS)
        self.assertEqual(process.returncode, DONE, errors)
        step = re.search(r"checkpoint model, step (\d+)", rest).group(1)
        self.assertIn(f"  interrupted after step {step} of 1000000\n", rest)
        resumed = self.losses(self.train("--plan", "plan.json", "--steps", "1", "--resume",
                                         "model"))
        self.assertEqual(int(resumed[0][0]), int(step) + 1)

    def test_an_interrupt_of_a_training_without_a_checkpoint_says_that_nothing_is_kept(self):
        self.pipeline()
        binary = ARGUMENTS.executor
        with subprocess.Popen([binary, "train", "--plan", "plan.json", "--steps", "1000000"],
                              cwd=self.folder, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                if "step    3" in line:
                    break
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=tool.SECONDS)[0]
        self.assertEqual(process.returncode, DONE)
        self.assertRegex(rest, r"  interrupted after step \d+ of 1000000; the model is not kept, "
                               r"as --checkpoint is not given\n")

    def test_verbose_says_which_kernels_compute_and_which_thread_is_which_device(self):
        self.pipeline()
        result = self.train("--plan", "plan.json", "--steps", "1", "-v", "--kernels", "portable")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertRegex(result.stderr, r"^computes by the portable kernels\nthread 0 is ")
        quiet = self.train("--plan", "plan.json", "--steps", "1")
        self.assertEqual(quiet.stderr, "")

    def test_every_nth_step_is_told_of_and_the_last(self):
        self.pipeline()
        whole = self.losses(self.train("--plan", "plan.json", "--steps", "10"))
        self.assertEqual([step for step, _ in whole], [str(step) for step in range(1, 11)])
        for every, steps in ((4, (4, 8, 10)), (5, (5, 10)), (100, (10,))):
            told = self.losses(self.train("--plan", "plan.json", "--steps", "10", "--log-every",
                                          every))
            self.assertEqual(told, [whole[step - 1] for step in steps])
        self.assertNotIn("interrupted", self.train("--plan", "plan.json").stdout)

    def test_a_terminal_that_is_closed_ends_the_training_with_a_checkpoint(self):
        process = self.long_training()
        process.send_signal(signal.SIGHUP)
        rest, errors = process.communicate(timeout=tool.SECONDS)
        self.assertEqual(process.returncode, DONE, errors)
        self.assertRegex(rest, r"checkpoint model, step (\d+)")

    def test_a_full_disk_for_its_words_ends_the_training_with_a_checkpoint(self):
        self.pipeline()
        arguments = ("--plan", "plan.json", "--steps", "1000000", "--checkpoint", "model")
        said = re.compile(r"^error: <stdout>: cannot be written: ([\w ]+); the training has ended "
                          r"after step (\d+), and the model is in model\n$")
        # From the first word on, and behind a few of them.
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = self.train(*arguments, stdout=full)
        self.assertEqual(result.returncode, ENVIRONMENT, result.stderr)
        reason, step = said.match(result.stderr).groups()
        self.assertEqual((reason, step), ("No space left on device", "1"))
        with open(self.folder / "log", "wb") as log:
            log.write(bytes(LIMIT - 400))
        with open(self.folder / "log", "ab") as log:
            result = self.train(*arguments, stdout=log, preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_FSIZE, (LIMIT, LIMIT)))
        self.assertEqual(result.returncode, ENVIRONMENT, result.stderr)
        reason, step = said.match(result.stderr).groups()
        self.assertEqual(reason, "File too large")
        self.assertGreater(int(step), 3)
        resumed = self.losses(self.train("--plan", "plan.json", "--steps", "1", "--resume",
                                         "model"))
        self.assertEqual(int(resumed[0][0]), int(step) + 1)
        # Where nothing was to be kept, it says so.
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = self.train(*arguments[:4], stdout=full)
        self.assert_error(result, ENVIRONMENT, "the training has ended after step 1, and the "
                          "model is not kept, as --checkpoint is not given")

    def test_a_full_disk_for_its_messages_costs_no_checkpoint(self):
        self.pipeline()
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.train("--plan", "plan.json", "--steps", "3", "--checkpoint", "model", stderr=full)
        resumed = self.losses(self.train("--plan", "plan.json", "--steps", "1", "--resume",
                                         "model"))
        self.assertEqual(int(resumed[0][0]), 4)

    def test_a_reader_who_stops_does_not_stop_the_training(self):
        self.pipeline()
        read, write = os.pipe()
        os.set_blocking(write, False)
        filling = 0
        try:
            while True:
                filling += os.write(write, bytes(4096))
        except BlockingIOError:
            os.set_blocking(write, True)
        binary = ARGUMENTS.executor
        with subprocess.Popen([binary, "train", "--plan", "plan.json", "--steps", "300",
                               "--timeout", "1", "--checkpoint", "model"], cwd=self.folder,
                              stdout=write, stderr=subprocess.PIPE, text=True) as process:
            os.close(write)
            deadline = time.monotonic() + tool.SECONDS
            while not (self.folder / "model").exists():
                self.assertIsNone(process.poll(), "it did not wait for its reader")
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            time.sleep(1.5)  # longer than any device waits for another one
            with open(read, "rb") as reader:
                shown = reader.read()[filling:].decode()
            errors = process.stderr.read()
        self.assertEqual((process.returncode, errors), (DONE, ""))
        self.assertEqual(re.findall(r"step +(\d+)  loss", shown),
                         [str(step) for step in range(1, 301)])
        self.assertIn("checkpoint model, step 300", shown)

    def test_a_reader_who_goes_ends_the_training_with_a_checkpoint(self):
        process = self.long_training()
        process.stdout.close()
        # As of any command whose results cannot all be written; who has gone is told nothing.
        self.assertEqual(process.wait(tool.SECONDS), ENVIRONMENT)
        self.assertEqual(process.stderr.read(), "")
        process.stderr.close()
        resumed = self.losses(self.train("--plan", "plan.json", "--steps", "1", "--resume",
                                         "model"))
        self.assertGreater(int(resumed[0][0]), 3)

    def test_what_is_wrong_with_the_command_line_is_named(self):
        for arguments, expected in (
                ((), "--plan: a plan file is required"),
                (("--plan", "p", "--steps", "0"), "--steps: expected a whole number from 1"),
                (("--plan", "p", "--optimizer", "lion"), "--optimizer: expected"),
                (("--plan", "p", "--log-every", "0"), "--log-every: expected a whole number from 1"),
                (("--plan", "p", "--log-every", "2", "--verify"),
                 "--log-every: cannot be used with --verify, which reports no steps"),
                (("--plan", "p", "--learning-rate", "0"), "--learning-rate: expected a number"),
                (("--plan", "p", "--clip-norm", "-1"), "--clip-norm: expected a number above 0"),
                (("--plan", "p", "--checkpoint-every", "2"),
                 "--checkpoint-every: needs --checkpoint FILE"),
                (("--plan", "p", "--verify", "--timeline", "t"),
                 "--timeline: cannot be used with --verify, which writes"),
                (("--plan", "p", "--checkpoint", "-", "--checkpoint-every", "2"),
                 "--checkpoint-every: needs a file as --checkpoint"),
                (("p", "q"), "q: expected a plan file and options, got more"),
                (("p", "--plan", "q"), "p: expected a plan file and options, got more"),
                (("--plan", "-", "--tokens", "-"),
                 "--tokens: expected a file, got \"-\" for --plan and --tokens both"),
                (("--plan", "p", "--learning-rate", "1e-12"), "--learning-rate: expected a number"),
                (("--plan", "p", "--device", "tpu"), "--device: expected"),
                (("--plan", "p", "--device", "cuda", "--precision", "fp8"),
                 "--precision: expected"),
                (("--plan", "p", "--precision", "bf16"),
                 "--precision: a CPU computes in fp32 only; bf16 needs --device cuda"),
                (("--plan", "p", "--oversubscribe"), "--oversubscribe: needs --device cuda"),
        ):
            with self.subTest(arguments=arguments):
                self.assert_error(self.train(*arguments), USAGE, expected)

    def test_plans_that_cannot_be_trained_are_refused_and_the_layer_is_named(self):
        self.make_plan("plain.json")
        self.assert_error(self.train("--plan", "plain.json"), BAD_INPUT, "layer", "op")
        wrong = perceptron()
        wrong["layers"][0]["measurements"][0]["output_bytes"] = 128
        self.plan("half.json", wrong, cores(1, "1 MB/s"))
        self.assert_error(self.train("--plan", "half.json"), BAD_INPUT,
                          "expected output_bytes 256 at batch size 1", "linear", "got 128",
                          "dapple-exec profile")
        self.pipeline()
        self.assert_error(self.train("--plan", "plan.json", "--device", "cuda", "--precision",
                                     "bf16"), BAD_INPUT,
                          "expected output_bytes 128 at batch size 1", "in half precision, got 256")
        self.plan("odd.json", perceptron(), cores(4, "1 GB/s"), "--shard", "full", "--pin",
                  "shards=4", "--micro-batch", "6")
        self.assert_error(self.train("--plan", "odd.json"), BAD_INPUT,
                          "/micro_batch_size: expected a multiple of 4", "got 6")
        self.plan("parts.json", perceptron(), cores(2, "1 MB/s"), "--optimizer-step", "per-bucket")
        self.assert_error(self.train("--plan", "parts.json", "--clip-norm", "1"), BAD_INPUT,
                          "/gradients/optimizer_step: expected \"at-end\"")

    def header_and_tensors(self, name):
        return header_and_tensors((self.folder / name).read_bytes())

    def write_tensors(self, name, header, tensors):
        """A checkpoint of version 1, where it is one."""
        content = file_of(header, tensors)
        (self.folder / name).write_bytes(as_version_1(content) if "__metadata__" in header and
                                         "steps" in header["__metadata__"] else content)

    def test_numbers_that_are_none_are_named_where_they_are_loaded(self):
        self.small_gpt("gpt.json")
        self.train("--plan", "gpt.json", "--steps", "1", "--checkpoint", "model", "--save-weights",
                   "weights")
        for option, file, tensor in (("--resume", "model", "block-2.norm1.scale"),
                                     ("--weights", "weights", "h.2.ln_1.weight")):
            with self.subTest(option=option):
                header, tensors = self.header_and_tensors(file)
                found = [name for name in header if name == tensor or
                         name.endswith(".norm1.scale")][-1]
                place = header[found]["data_offsets"][0] + 4 * 5
                tensors = tensors[:place] + struct.pack("<f", math.nan) + tensors[place + 4:]
                self.write_tensors("spoilt", header, tensors)
                self.assert_error(self.train("--plan", "gpt.json", option, "spoilt"), BAD_INPUT,
                                  f"error: spoilt: /{found}: expected finite numbers, got nan as "
                                  "number 6 of 64")

    def test_a_checkpoint_that_has_changed_is_refused(self):
        self.pipeline()
        self.train("--plan", "plan.json", "--steps", "2", "--checkpoint", "model")
        content = (self.folder / "model").read_bytes()
        self.assertTrue(is_whole(content))
        dice = random.Random(3801)
        places = [8 * content.index(part) + dice.randrange(8 * len(part)) for part in (
            b'"steps":"2"', b'"learning_rate":"0.001"', b'"linear.1.weight"', b"[64,64]")]
        places += [dice.randrange(8 * len(content)) for _ in range(20)]
        for place in places:
            with self.subTest(bit=place):
                changed = bytearray(content)
                changed[place // 8] ^= 1 << place % 8
                (self.folder / "changed").write_bytes(changed)
                result = self.train("--plan", "plan.json", "--steps", "1", "--resume", "changed")
                self.assert_error(result, BAD_INPUT, "error: changed: ")
                self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        # A digit that is another digit is what only the digest sees.
        (self.folder / "changed").write_bytes(content.replace(b'"steps":"2"', b'"steps":"3"'))
        self.assert_error(self.train("--plan", "plan.json", "--resume", "changed"), BAD_INPUT,
                          "error: changed: /__metadata__/digest: expected ",
                          ": the file is not as it was written")

    def test_a_checkpoint_of_version_1_is_read_with_a_warning(self):
        found = ROOT / "tests" / "found" / "checkpoints"
        self.plan("plan.json", json.loads((found / "model.profile.json").read_text()),
                  cores(1, "1 MB/s"))
        result = self.train("--plan", "plan.json", "--steps", "1", "--resume",
                            found / "version-1.safetensors", "--checkpoint", "model")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("from step 3", result.stdout)
        self.assertEqual(" ".join(result.stderr.split()),
                         f"warning: {found / 'version-1.safetensors'} is a dapple-checkpoint/1, "
                         "which has no digest: whether it is as it was written cannot be checked")
        # What comes of it has one, and so needs no warning.
        self.assertTrue(is_whole((self.folder / "model").read_bytes()))
        result = self.train("--plan", "plan.json", "--steps", "1", "--resume", "model")
        self.assertEqual((result.returncode, result.stderr), (DONE, ""))

    def test_a_training_that_is_killed_leaves_a_whole_checkpoint_or_none(self):
        self.pipeline()
        before = sorted(os.listdir(self.folder))
        binary = ARGUMENTS.executor
        arguments = [binary, "train", "--plan", "plan.json", "--checkpoint", "model"]
        dice = random.Random(3802)
        for number in range(KILLS):
            # Two at once end it even where the first is only to be remembered.
            deadly = dice.random() < 0.5
            signals = [signal.SIGKILL] if deadly else [
                dice.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))] * dice.choice((1, 2))
            with subprocess.Popen([*arguments, "--checkpoint-every", "1", "--steps", "1000000"],
                                  cwd=self.folder, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True) as process:
                time.sleep(dice.uniform(0, 0.3))
                for each in signals:
                    process.send_signal(each)
                errors = process.communicate(timeout=tool.SECONDS)[1]
            with self.subTest(kill=number, signals=signals):
                told = ("interrupted: it ends after the step that it is at; a second time ends it at "
                        "once\n")
                self.assertIn(errors, ("", told))
                self.assertIn(process.returncode, (DONE, -signals[0]))
                left = sorted(set(os.listdir(self.folder)) - {"model"})
                if not deadly:
                    self.assertEqual(left, before)
                checkpoint = self.folder / "model"
                if checkpoint.exists():
                    self.assertTrue(is_whole(checkpoint.read_bytes()))
            if number % 3 == 2 and checkpoint.exists():
                checkpoint.unlink()
        # What SIGKILL has left is gone once the same file is written again.
        subprocess.run([*arguments, "--steps", "1"], cwd=self.folder, check=True,
                       capture_output=True, timeout=tool.SECONDS)
        self.assertEqual(sorted(os.listdir(self.folder)), sorted([*before, "model"]))

    def test_steps_are_counted_as_far_as_a_checkpoint_can(self):
        self.pipeline()
        self.train("--plan", "plan.json", "--steps", "1", "--checkpoint", "model")
        header, tensors = self.header_and_tensors("model")
        header["__metadata__"]["steps"] = "999999999999999"
        self.write_tensors("last", header, tensors)
        self.assert_error(self.train("--plan", "plan.json", "--resume", "last", "--steps", "2"),
                          USAGE, "--steps: expected at most 1 more after the 999999999999999 of "
                          "last, got 2")
        self.train("--plan", "plan.json", "--resume", "last", "--steps", "1", "--checkpoint", "end")
        self.assert_error(self.train("--plan", "plan.json", "--resume", "end", "--steps", "1"),
                          USAGE, "--steps: expected at most 0 more after the 1000000000000000")

    def test_files_without_an_end_are_not_read(self):
        self.small_gpt("gpt.json")
        for option in ("--weights", "--resume", "--tokens"):
            with self.subTest(option=option):
                self.assert_error(self.train("--plan", "gpt.json", option, "/dev/zero"),
                                  ENVIRONMENT,
                                  "error: /dev/zero: expected a file, or a pipe, got a device")
        with open("/dev/zero", encoding="utf-8") as endless:
            self.assert_error(self.train("--plan", "gpt.json", "--weights", "-", stdin=endless),
                              ENVIRONMENT, "expected a file, or a pipe, got a device")
        # Nor is what no memory has room for: the file takes none on the disk.
        with open(self.folder / "large", "wb") as large:
            large.truncate(1 << 41)
        self.assert_error(self.train("--plan", "gpt.json", "--tokens", "large"), ENVIRONMENT,
                          "error: large: expected at most 1024 GiB, got more")
        # A pipe is read as a file is.
        self.train("--plan", "gpt.json", "--steps", "1", "--checkpoint", "model")
        binary = ARGUMENTS.executor
        piped = subprocess.run(f"cat model | {binary} train --plan gpt.json --steps 1 --resume -",
                               cwd=self.folder, shell=True, check=False, capture_output=True,
                               text=True, timeout=tool.SECONDS)
        self.assertIn("from step 1", piped.stdout, piped.stderr)
        os.mkfifo(self.folder / "pipe")
        with subprocess.Popen("cat model > pipe", cwd=self.folder, shell=True) as writer:
            resumed = self.train("--plan", "gpt.json", "--steps", "1", "--resume", "pipe")
        self.assertEqual((resumed.returncode, writer.returncode), (DONE, 0), resumed.stderr)

    def test_files_that_do_not_fit_the_model_are_refused(self):
        self.pipeline()
        self.assert_error(self.train("--plan", "plan.json", "--resume", "none"), ENVIRONMENT,
                          "none")
        self.write("text", "no checkpoint at all")
        self.assert_error(self.train("--plan", "plan.json", "--resume", "text"), BAD_INPUT,
                          "text: bytes 0 to 7: expected the length of a safetensors header")
        self.train("--plan", "plan.json", "--steps", "1", "--checkpoint", "model", "--optimizer",
                   "sgd")
        self.assert_error(self.train("--plan", "plan.json", "--resume", "model", "--optimizer",
                                     "adam"), BAD_INPUT,
                          "model: /__metadata__/optimizer: expected adam, with which "
                          "training continues, got sgd, whose state is another")
        small = perceptron()
        small["layers"][0]["repeat"] = 2
        self.plan("small.json", small, cores(1, "1 MB/s"))
        result = self.train("--plan", "small.json", "--resume", "model")
        self.assert_error(result, BAD_INPUT, "expected no such tensor", "; 3 more differ: a "
                          "checkpoint of another model?")
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assert_error(self.train("--plan", "plan.json", "--tokens", "text"), BAD_INPUT, "text")


if __name__ == "__main__":
    tool.main()
