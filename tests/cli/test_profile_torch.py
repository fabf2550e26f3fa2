"""PyTorch models measured layer by layer, where PyTorch is installed."""

import json
import subprocess
import sys

import tool
from tool import DONE, ToolTest

PROFILER = tool.ROOT / "tools" / "profile_torch.py"

MODEL = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


def make_layers():
    return nn.Sequential(nn.Linear(32, 64), Block(), Block(), nn.Dropout(0.5), nn.Linear(64, 8))


def make_tokens():
    return [nn.Embedding(100, 16), nn.Flatten()]


def make_input(batch_size):
    return torch.arange(batch_size * 4).view(batch_size, 4) % 100


def make_shared():
    linear = nn.Linear(32, 32)
    return [linear, nn.ReLU(), linear]


def make_half_shared():
    layers = [nn.Linear(32, 32), nn.Linear(32, 32)]
    layers[1].weight = layers[0].weight
    return layers


def make_mismatch():
    return [nn.Linear(32, 16), nn.Linear(32, 16)]


def make_nothing():
    return []


def make_a_text():
    return ["linear"]


def fail():
    raise KeyError("a layer")
"""


class Profiling(ToolTest):
    def profile(self, *arguments):
        self.write("model.py", MODEL)
        return subprocess.run([sys.executable, "-B", PROFILER, *arguments], cwd=self.folder,
                              capture_output=True, text=True, check=False, timeout=tool.SECONDS)

    def measured(self, *arguments):
        result = self.profile(*arguments)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return json.loads(result.stdout)

    def test_sizes_are_those_of_the_layers(self):
        profile = self.measured("model.py:make_layers", "--batch", "2,4", "--input-shape", "32",
                                "--repeat", "3")
        self.assertEqual([layer["name"] for layer in profile["layers"]],
                         ["Linear.0", "Block.0", "Block.1", "Dropout.0", "Linear.1"])
        parameters = [32 * 64 + 64, 64 * 64 + 64, 64 * 64 + 64, 0, 64 * 8 + 8]
        self.assertEqual([layer["parameter_bytes"] for layer in profile["layers"]],
                         [4 * count for count in parameters])
        for samples, index in ((2, 0), (4, 1)):
            figures = [layer["measurements"][index] for layer in profile["layers"]]
            self.assertEqual([entry["batch_size"] for entry in figures], [samples] * 5)
            self.assertEqual([entry["output_bytes"] for entry in figures],
                             [4 * samples * width for width in (64, 64, 64, 64, 8)])
            # A linear layer keeps its input, tanh its own output; a dropout keeps a mask, whose
            # type differs from release to release.
            kept = [entry["stash_bytes"] for entry in figures]
            self.assertEqual([kept[i] for i in (0, 1, 2, 4)],
                             [4 * samples * width for width in (32, 128, 128, 64)])
            self.assertGreater(kept[3], 4 * samples * 64)
            self.assertLessEqual(kept[3], 2 * 4 * samples * 64)
            for entry in figures:
                self.assertGreater(entry["forward_ns"], 0)
                self.assertGreater(entry["backward_ns"], 0)

    def test_the_profile_can_be_planned_from(self):
        result = self.profile("model.py:make_layers", "--batch", "1,2,4", "--input-shape", "32",
                              "--repeat", "3", "--global-batch", "8", "-o", "mlp.json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        topology = tool.small_topology()
        topology["devices"] = {"cpu": topology["devices"]["card"]}
        topology["servers"][0]["device"] = "cpu"
        planned = self.run_tool("--model", "mlp.json", "--topo", self.write("cpus.json", topology),
                                "-o", "plan.json")
        self.assertEqual(planned.returncode, DONE, planned.stderr)
        self.assertEqual(self.read("plan.json")["model"]["name"], "model")

    def test_a_first_layer_of_numbers_keeps_them_and_gets_no_gradient(self):
        profile = self.measured("model.py:make_tokens", "--batch", "3", "--repeat", "2")
        embedding, flatten = (layer["measurements"][0] for layer in profile["layers"])
        self.assertEqual(embedding["stash_bytes"], 8 * 3 * 4)
        self.assertEqual(embedding["output_bytes"], 4 * 3 * 4 * 16)
        self.assertEqual(flatten["stash_bytes"], embedding["output_bytes"])
        self.assertEqual(profile["batch_scaling"], "proportional")

    def test_shared_parameters_are_counted_once_and_tied(self):
        profile = self.measured("model.py:make_shared", "--batch", "1", "--repeat", "2",
                                "--input-shape", "32", "--optimizer", "sgd")
        self.assertEqual(profile["optimizer"]["state_bytes_per_parameter_byte"], 0)
        layers = profile["layers"]
        self.assertEqual([layer["parameter_bytes"] for layer in layers],
                         [4 * (32 * 32 + 32), 0, 0])
        self.assertEqual([layer.get("tied_to") for layer in layers],
                         [None, None, layers[0]["name"]])

    def test_parameters_that_cannot_be_tied_are_noted(self):
        profile = self.measured("model.py:make_half_shared", "--batch", "1", "--repeat", "2",
                                "--input-shape", "32")
        self.assertEqual([layer["parameter_bytes"] for layer in profile["layers"]],
                         [4 * (32 * 32 + 32), 4 * 32])
        self.assertIn("1 parameter tensors that earlier layers hold too", profile["notes"][0])
        self.assertNotIn("tied_to", profile["layers"][1])

    def test_it_can_be_called_from_a_program(self):
        self.write("own.py", "import sys\n"
                   f"sys.path.insert(0, {str(PROFILER.parent)!r})\n"
                   "from profile_torch import profile_layers\n"
                   "import model\n"
                   "made = profile_layers(model.make_tokens(), model.make_input, [1, 2], 'own',\n"
                   "                      repeats=2)\n"
                   "print(len(made['layers']), made['name'])\n")
        self.write("model.py", MODEL)
        result = subprocess.run([sys.executable, "-B", "own.py"], cwd=self.folder, text=True,
                                capture_output=True, check=False, timeout=tool.SECONDS)
        self.assertEqual((result.returncode, result.stdout), (0, "2 own\n"), result.stderr)

    def test_what_cannot_be_measured_is_named(self):
        for target, words in (
                ("make_mismatch", "layer Linear.1, 2 samples: "),
                ("make_nothing", "expected at least one layer, got none"),
                ("make_a_text", "layer 0: expected a torch.nn.Module, got str"),
                ("fail", "KeyError: 'a layer'"),
                ("none", "expected a function none, got none")):
            with self.subTest(target=target):
                result = self.profile(f"model.py:{target}", "--batch", "2", "--input-shape", "32",
                                      "-o", "out.json")
                self.assertEqual(result.returncode, 3, result.stderr)
                self.assertIn(f"error: model.py:{target}: ", result.stderr)
                self.assertIn(words, result.stderr)
                self.assertNotIn("Traceback", result.stderr)
                self.assertFalse((self.folder / "out.json").exists())

    def test_what_is_asked_for_must_make_sense(self):
        result = self.profile("model.py:make_layers", "--batch", "4,2", "--input-shape", "32")
        self.assertEqual(result.returncode, 3)
        self.assertIn("expected rising batch sizes of at least 1, got [4, 2]", result.stderr)
        for batch in ("0", "two", "1,,2"):
            result = self.profile("model.py:make_layers", "--batch", batch)
            self.assertEqual(result.returncode, 2)
            self.assertIn("expected numbers from 1 with commas between", result.stderr)
        result = self.profile("none.py:make_layers", "--batch", "1")
        self.assertEqual(result.returncode, 3)
        self.assertIn("none.py: no such file", result.stderr)


if __name__ == "__main__":
    tool.main_with_torch()
