"""The same training by PyTorch, where it is installed: the losses of dapple-exec are its losses."""

import re
import subprocess
import sys

import tool
from tool import ARGUMENTS, DONE, ROOT, ToolTest
from trainable import cores, small_gpt

TRAINER = ROOT / "tools" / "train_torch.py"
STEPS = 10
LOSS = re.compile(r"step +\d+  loss (\d+\.\d+)")


class BesideTorch(ToolTest):
    def run_exec(self, *arguments):
        binary = ARGUMENTS.executor
        result = self.run_tool("train", "--plan", "gpt.json", "--tokens", "text.tokens", *arguments,
                               binary=binary)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return result

    def run_torch(self, *arguments):
        return subprocess.run([sys.executable, "-B", TRAINER, *map(str, arguments)],
                              cwd=self.folder, capture_output=True, text=True, check=False,
                              timeout=tool.SECONDS)

    def setUp(self):
        super().setUp()
        self.run_tool("--model", self.write("profile.json", small_gpt()), "--topo",
                      self.write("topology.json", cores(2, "10 MB/s")), "-o", "gpt.json")
        tokens = subprocess.run([ROOT / "tools" / "make_text"], check=True, capture_output=True)
        (self.folder / "text.tokens").write_bytes(tokens.stdout)
        self.run_exec("--steps", 1, "--optimizer", "sgd", "--learning-rate", "1e-9",
                      "--save-weights", "first.safetensors")

    def test_ten_steps_of_adamw_have_the_same_losses(self):
        settings = ["--steps", STEPS, "--clip-norm", "0.5", "--weight-decay", "0.1"]
        ours = LOSS.findall(self.run_exec("--weights", "first.safetensors", *settings).stdout)
        result = self.run_torch("first.safetensors", "--tokens", "text.tokens", "--global-batch",
                                16, "--micro-batch", 8, "--heads", 4, *settings)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        theirs = LOSS.findall(result.stdout)
        self.assertEqual((len(ours), len(theirs)), (STEPS, STEPS))
        for our_loss, their_loss in zip(ours, theirs, strict=True):
            self.assertAlmostEqual(float(our_loss), float(their_loss), delta=1e-4)

    def test_what_is_no_file_of_weights_is_refused(self):
        for weights in ("none.safetensors", self.write("text", "no weights at all")):
            result = self.run_torch(weights, "--tokens", "text.tokens", "--global-batch", 16)
            self.assertEqual((result.returncode, result.stdout), (3, ""))
            self.assertTrue(result.stderr.startswith("error: "), result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1)
        result = self.run_torch("first.safetensors", "--tokens", "text.tokens", "--global-batch",
                                16, "--micro-batch", 5)
        self.assertEqual(result.returncode, 2)


if __name__ == "__main__":
    tool.main_with_torch()
