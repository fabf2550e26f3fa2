"""dapple-exec profile: a profile that can be planned from, and what it refuses."""

import os
import re
import signal
import subprocess
import sys
import time

import tool
from tool import ARGUMENTS, BAD_INPUT, DONE, ENVIRONMENT, USAGE, ToolTest


def linear(inputs, outputs):
    return {"parameter_bytes": 4 * (inputs * outputs + outputs),
            "op": {"kind": "linear", "inputs": inputs, "outputs": outputs}}


def specification(**changes):
    """Two equal layers of 8 x 8 weights, and a loss over 8 classes."""
    model = {
        "schema": "dapple-profile/1",
        "name": "two",
        "source": "made up",
        "global_batch_size": 8,
        "device": "",
        "optimizer": {"name": "adam", "state_bytes_per_parameter_byte": 2},
        "layers": [
            {"name": "same", "repeat": 2, **linear(8, 8)},
            {"name": "loss", "parameter_bytes": 0,
             "op": {"kind": "softmax_cross_entropy", "classes": 8}},
        ],
    }
    model.update(changes)
    return model


class Profiling(ToolTest):
    def profile(self, *arguments, **options):
        """Runs dapple-exec, which is built beside dapple-plan."""
        binary = ARGUMENTS.executor
        return self.run_tool("profile", *arguments, binary=binary, **options)

    def test_help_fits_a_screen(self):
        lines = self.profile("--help").stdout.splitlines()
        self.assertLessEqual(len(lines), 40)
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertIn("Example", lines)

    def test_an_interrupt_ends_it_with_the_passes_that_were_made(self):
        binary = ARGUMENTS.executor
        spec = self.write("two.json", specification())
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([binary, "profile", "--spec", spec, "--repeat", "10000",
                                   "--batch-sizes", "1,4096", "-o", "profile.json"],
                                  cwd=self.folder, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE) as process:
                time.sleep(0.7)
                process.send_signal(number)
                shown, errors = process.communicate(timeout=tool.SECONDS)
            self.assertEqual(process.returncode, DONE, errors)
            passes = re.search(r"^warning: interrupted: the profile has the medians of (\d+) of "
                               r"10000 passes\n", errors, re.MULTILINE).group(1)
            self.assertTrue(errors.startswith(
                "interrupted: it ends after the pass that it is at; a second time ends it at once\n"),
                errors)
            self.assertIn("profile written to profile.json", shown)
            profile = self.read("profile.json")
            self.assertRegex(profile["source"], rf"medians of {passes} pass(es)? over all layers")
            for layer in profile["layers"]:
                self.assertEqual([point["batch_size"] for point in layer["measurements"]], [1, 4096])

    def test_an_interrupt_is_answered_before_the_pass_ends(self):
        spec = self.write("two.json", specification())
        with subprocess.Popen([ARGUMENTS.executor, "profile", "--spec", spec, "--repeat", "10000",
                               "--batch-sizes", "100000", "-o", "profile.json"], cwd=self.folder,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True) as process:
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            began = time.monotonic()
            self.assertIn("interrupted: ", process.stderr.readline())
            self.assertLess(time.monotonic() - began, 5)
            process.kill()

    def test_tools_of_pytorch_help_without_it(self):
        self.write("torch.py", "raise ImportError('there is none')\n")
        for name in ("profile_torch.py", "train_torch.py"):
            command = [sys.executable, tool.ROOT / "tools" / name]
            asked = {"cwd": self.folder, "env": {**os.environ, "PYTHONPATH": str(self.folder)},
                     "capture_output": True, "text": True, "check": False, "timeout": tool.SECONDS}
            shown = subprocess.run([*command, "--help"], **asked)
            self.assertEqual((shown.returncode, shown.stderr), (DONE, ""))
            self.assertIn("--global-batch", shown.stdout)
            needed = (["model.py:make", "--batch", "1"] if name.startswith("profile") else
                      ["weights", "--tokens", "t", "--global-batch", "1"])
            refused = subprocess.run([*command, *needed], **asked)
            self.assertEqual(refused.returncode, ENVIRONMENT)
            self.assertEqual(refused.stderr, "error: PyTorch is not installed (Debian: "
                                             "python3-torch)\n")

    def test_a_measured_specification_can_be_planned_from_and_measured_again(self):
        result = self.profile("--spec", self.write("two.json", specification()), "--batch-sizes",
                              "1,3", "--repeat", "3", "--device-name", "card")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("profile written to ./two.profile.json", result.stdout)
        profile = self.read("two.profile.json")
        self.assertEqual(profile["device"], "card")
        self.assertIn("medians of 3 passes", profile["source"])
        self.assertGreater(profile["optimizer"]["step_ns_per_parameter_byte"], 0)
        same, loss = profile["layers"]
        self.assertEqual(same["repeat"], 2)
        self.assertEqual(same["op"], linear(8, 8)["op"])
        # Of a sample: 8 floats of input, which the layer keeps, and 8 of output; the loss keeps 8
        # and makes one.
        for layer, output, stash in ((same, 32, 32), (loss, 4, 32)):
            self.assertEqual([point["batch_size"] for point in layer["measurements"]], [1, 3])
            for point in layer["measurements"]:
                samples = point["batch_size"]
                self.assertEqual(point["output_bytes"], output * samples)
                self.assertEqual(point["stash_bytes"], stash * samples)
                self.assertEqual(point["backward_ns"],
                                 point["input_gradient_ns"] + point["weight_gradient_ns"])
                self.assertGreater(point["forward_ns"], 0)
        topology = self.write("2x2.json", tool.small_topology())
        planned = self.run_tool("--model", "two.profile.json", "--topo", topology, "-o", "plan.json")
        self.assertEqual(planned.returncode, DONE, planned.stderr)
        # Measured anew, it says once what it was made from.
        again = self.profile("--spec", "two.profile.json", "--batch-sizes", "2", "-o", "-",
                             environment={"COLUMNS": "80"})
        self.assertEqual(again.returncode, DONE, again.stderr)
        self.assertIn('"batch_scaling": "proportional"', again.stdout)
        self.assertEqual(again.stdout.count("made up"), 1)
        self.assertEqual(again.stdout.count("measured together"), 1)
        self.assertIn("weight grad", again.stderr)
        # On a busy machine it warns in a sentence that others may break.
        lines = [line for line in again.stderr.splitlines() if not line.startswith("warning: ")]
        self.assertLessEqual(max(map(len, lines)), 80)

    def test_what_is_wrong_with_the_command_line_is_named(self):
        model = self.write("two.json", specification())
        for arguments, expected in (
                ((), "--spec: a specification is required"),
                (("--spec", model, "--batch-sizes", "2,1"), "expected ascending numbers, got 1 after 2"),
                (("--spec", model, "--batch-sizes", "1,,2"), "--batch-sizes: expected a value"),
                (("--spec", model, "--batch-sizes", "1,x"), "--batch-sizes: expected a whole number"),
                (("--spec", model, "--repeat", "0"), "--repeat: expected a whole number"),
                (("--spec", model, "--device-name", ""), "--device-name: expected a name"),
                (("--spec", model, "--device-name", "a\nb"),
                 "--device-name: expected a name"),
                (("--spec", model, "--device", "cuda", "--cores", "2"),
                 "--cores: needs --device cpu, got cuda"),
                (("--spec", model, "--precision", "fp16"),
                 "--precision: a CPU computes in fp32 only"),
                (("--spec", model, "-o", model), "two.json"),
                (("--spec", model, "more"), "more: expected options only"),
        ):
            with self.subTest(arguments=arguments):
                self.assert_error(self.profile(*arguments), USAGE, expected)

    def test_a_model_that_cannot_be_run_is_refused(self):
        short = specification()
        short["layers"][0]["parameter_bytes"] = 4
        wrong = specification()
        wrong["layers"][1]["op"]["classes"] = 9
        for name, model, expected in (
                ("short.json", short,
                 "short.json: layer same.0/parameter_bytes: expected 288, 4 for each parameter of "
                 "its op, got 4"),
                ("wrong.json", wrong,
                 "wrong.json: layer loss/op: expected an input whose last dimension is 9, got [8]"),
                ("other.json", specification(optimizer={"name": "rmsprop",
                                                        "state_bytes_per_parameter_byte": 1}),
                 "other.json: /optimizer/name: expected sgd, momentum, adam or adamw, got "
                 "\"rmsprop\""),
                ("state.json", specification(optimizer={"name": "adam",
                                                        "state_bytes_per_parameter_byte": 1}),
                 "state.json: /optimizer/state_bytes_per_parameter_byte: expected 2, as for adam"),
                ("times.json", tool.small_profile(),
                 "times.json: layers: expected an \"op\" in each, which says what the layer does, "
                 "got none"),
        ):
            with self.subTest(name=name):
                self.write(name, model)
                self.assert_error(self.profile("--spec", name), BAD_INPUT, expected)

    def test_a_specification_is_not_planned_from(self):
        model = self.write("two.json", specification())
        topology = self.write("2x2.json", tool.small_topology())
        self.assert_error(self.run_tool("--model", model, "--topo", topology), BAD_INPUT,
                          "/layers: expected measurements, got a specification")


if __name__ == "__main__":
    tool.main()
