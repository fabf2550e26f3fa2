"""tests/bench/on_gpu where there is no GPU: what it skips, what it makes on a core, and what it
reads in the output of our programs."""

import json
import os
import pathlib
import subprocess
import sys

import tool
from tool import ARGUMENTS, DONE, ROOT, USAGE, ToolTest
from trainable import cores, perceptron

sys.path.insert(0, str(ROOT / "tests" / "bench"))
import program_output as output  # noqa: E402

SCRIPT = ROOT / "tests" / "bench" / "on_gpu"


class OnGpu(ToolTest):
    def on_gpu(self, *arguments, **environment):
        return subprocess.run(
            [sys.executable, "-B", SCRIPT, *map(str, arguments)], cwd=self.folder, check=False,
            capture_output=True, text=True, timeout=3 * tool.SECONDS,
            env={**os.environ, "TMPDIR": str(self.folder), **environment})

    def built(self):
        return pathlib.Path(ARGUMENTS.binary).parent

    def test_without_a_gpu_all_is_skipped_and_the_table_says_so(self):
        # No nvidia-smi is found there.
        result = self.on_gpu(self.built(), "out", "--only", "machine,speed-350M",
                             PATH=str(self.folder))
        self.assertEqual((result.returncode, result.stderr), (DONE, ""))
        table = (self.folder / "out" / "on_gpu.md").read_text()
        for name in ("machine", "speed-350M"):
            self.assertIn(f"| {name} | 0.0 | skipped: no GPU here |", table)

    def test_steps_are_listed_and_others_refused(self):
        listed = self.on_gpu("--list")
        self.assertEqual(listed.returncode, DONE)
        self.assertIn("losses-bf16", listed.stdout)
        # A call may take nine minutes.
        for line in listed.stdout.splitlines():
            self.assertLessEqual(int(line.split()[1]), 540)
        refused = self.on_gpu(self.built(), "out", "--only", "machine,walk")
        self.assertEqual(refused.returncode, USAGE)
        self.assertIn("no such step: walk", refused.stderr)
        self.assertEqual(self.on_gpu("out").returncode, USAGE)

    def test_steps_on_a_core_find_what_must_hold(self):
        result = self.on_gpu(self.built(), "out", "--stand-in", "--only",
                             "machine,verify-fp32,verify-llama-fp32,verify-bf16,groups-fp32,agree")
        self.assertEqual((result.returncode, result.stderr), (DONE, ""))
        results = json.loads((self.folder / "out" / "results.json").read_text())
        self.assertEqual({name: result["end"] for name, result in results.items()},
                         {"machine": "done", "verify-fp32": "done", "verify-llama-fp32": "done",
                          "groups-fp32": "done", "agree": "done",
                          "verify-bf16": "skipped: a core computes in fp32 only"})
        self.assertEqual(len(results["agree"]["rows"]), 2)
        self.assertEqual([row["holds"] for row in results["groups-fp32"]["rows"]], [True] * 9)
        table = (self.folder / "out" / "on_gpu.md").read_text()
        self.assertIn("| gpt2-tiny, 2 stages, fp32: gradients and losses beside one core's | ",
                      table)
        self.assertNotIn("**no**", table)
        self.assertIn("dapple-exec train", (self.folder / "out" / "log.txt").read_text())
        # Several calls make one table.
        (self.folder / "first.json").write_text(json.dumps({"agree": results["agree"]}))
        (self.folder / "second.json").write_text(json.dumps({"machine": results["machine"]}))
        joined = self.on_gpu("--join", "first.json", "second.json")
        self.assertEqual(joined.returncode, DONE)
        self.assertLess(joined.stdout.index("| machine |"), joined.stdout.index("| agree |"))

    def test_a_step_that_fails_leaves_the_others(self):
        programs = self.folder / "programs"
        programs.mkdir()
        for name in ("dapple-exec", "dapple-plan"):
            (programs / name).write_text("#!/bin/sh\necho out of luck >&2\nexit 5\n")
            (programs / name).chmod(0o755)
        result = self.on_gpu(programs, "out", "--stand-in", "--only", "verify-fp32,test-nccl,loop")
        self.assertEqual(result.returncode, DONE)
        self.assertIn("failed: dapple-exec: exit code 5: out of luck", result.stdout)
        self.assertIn("skipped: exec_nccl_host_test was not built", result.stdout)
        self.assertEqual(result.stdout.count("out of luck"), 2)

    def test_what_is_read_is_what_dapple_exec_tells(self):
        self.run_tool("--model", self.write("profile.json", perceptron()), "--topo",
                      self.write("topology.json", cores(2, "10 MB/s")), "-o", "plan.json")
        binary = ARGUMENTS.executor
        told = self.run_tool("train", "--plan", "plan.json", "--steps", 3, binary=binary).stdout
        self.assertEqual(len(output.losses(told)), 3)
        self.assertGreater(output.samples_per_second(told), 0)
        predicted = self.read("plan.json")["predicted"]["iteration_ns"] * 1e-9
        self.assertAlmostEqual(output.seconds(told, "predicted"), predicted, delta=predicted / 1000)
        measured = output.seconds(told, "measured")
        self.assertAlmostEqual(output.difference(told), measured / predicted - 1, delta=0.01)
        told = self.run_tool("train", "--plan", "plan.json", "--steps", 1, "--verify",
                             binary=binary).stdout
        gradients, losses, holds = output.verified(told)
        self.assertTrue(holds)
        self.assertLess(max(gradients, losses), 1e-5)
        undecided = told.replace("  verified: ", "  undecided: ")
        self.assertEqual(output.verified(undecided), (gradients, losses, None))
        told = self.run_tool("replay", "--plan", "plan.json", "--iterations", 1,
                             binary=binary).stdout
        self.assertGreater(output.seconds(told, "measured"), 0)
        for read in (output.losses, output.verified, output.passed_tests, output.sanitizer_errors,
                     output.bench_tokens_per_second, output.tokens_per_second):
            with self.assertRaises(output.Unread):
                read("something else")

    def test_what_is_read_is_what_others_tell(self):
        self.assertEqual(output.passed_tests("All tests passed (1 assertion in 1 test case)\n"), 1)
        self.assertEqual(output.sanitizer_errors("========= ERROR SUMMARY: 2 errors\n"), (2, 0))
        self.assertEqual(output.sanitizer_errors(
            "========= Program hit cudaErrorNoKernelImageForDevice (error 209) due to \"none\"\n"
            "========= Invalid __global__ write of size 4 bytes\n"
            "========= ERROR SUMMARY: 2 errors\n"), (2, 1))
        self.assertEqual(output.sanitizer_errors(
            "========= Error: Race reported between Read access at cudnn_sdpa+0x2f0\n"
            "=========     and Write access at cudnn_sdpa+0x45e0 [32 hazards]\n"
            "========= Error: Race reported between Write access at add_bias+0x10\n"
            "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n"), (2, 1))
        self.assertEqual(output.bench_tokens_per_second(
            "\nstep 41.20 ms, 397670 tokens/s, 340 TFLOP/s, 43 % of the best product\n"), 397670)
        self.assertEqual(output.tokens_per_second(
            "  median of the later half 91234 tokens/s, PyTorch 2.11.0, bf16, compiled\n"), 91234)


if __name__ == "__main__":
    tool.main()
