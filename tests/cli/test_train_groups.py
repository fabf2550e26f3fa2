"""dapple-exec train and profile: plans whose devices are groups that share layers or all state."""

import array
import itertools
import json
import re
import struct
import subprocess
import unittest

import tool
from checkpoint_file import as_version_1, file_of, header_and_tensors
from tool import (ARGUMENTS, BAD_INPUT, DONE, ENVIRONMENT, NOT_VERIFIED, ROOT, SCALE, USAGE,
                  ToolTest)
from trainable import cores, perceptron

LAUNCHER = ROOT / "tests" / "exec" / "run_mpi"
TCP_LAUNCHER = ROOT / "tests" / "exec" / "run_tcp"
STEPS = 20
# Degree, sequence parallelism, pinned stages and replicas, sharded state (all of it over two) and
# context ranks, of gpt2-tiny, which has four heads and four blocks.
LAYOUTS = [(degree, sequence, stages, replicas, shard)
           for degree, sequence in [(1, "off"), (2, "off"), (2, "on"), (4, "off"), (4, "on")]
           for stages, replicas in [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1)]
           for shard in (("none", "optimizer") if replicas > 1 else ("none",))]
LAYOUTS += [(degree, sequence, 3, 1, "none")
            for degree, sequence in [(1, "off"), (2, "off"), (2, "on"), (4, "off"), (4, "on")]]
LAYOUTS += [(1, "off", 1, 1, "full"), (1, "off", 2, 2, "full"), (1, "off", 4, 1, "full"),
            (2, "off", 1, 2, "full"), (2, "on", 2, 1, "full")]
LAYOUTS = [(*layout, 1) for layout in LAYOUTS]
FIRST_OF_CONTEXT = len(LAYOUTS)
LAYOUTS += [(2, "on", 2, 1, "none", 2), (1, "off", 1, 1, "none", 2), (1, "off", 2, 2, "none", 2),
            (1, "off", 4, 1, "none", 4), (2, "off", 1, 1, "none", 4), (4, "on", 1, 1, "none", 2),
            (1, "off", 2, 2, "optimizer", 2), (1, "off", 2, 1, "full", 2)]

# What ranks can share or keep less of, as plans say it, and the replicas of a stage.
DIMENSIONS = {
    "tensor": {"tensor": 2}, "shares": {"tensor": 2, "boundaries": "scatter-gather"},
    "sequence": {"tensor": 2, "sequence": True},
    "context": {"context": 2}, "experts": {"experts": 2},
    "divided experts": {"tensor": 2, "sequence": True, "experts": 2, "expert_tensor": 2},
    "sharded optimizer": {"sharding": "optimizer", "replicas": 2},
    "optimizer sharded over some": {"sharding": "optimizer", "shards": 2, "replicas": 2},
    "sharded state": {"sharding": "full", "shards": 2},
    "sharded state of replicas": {"sharding": "full", "shards": 2, "replicas": 2},
    "recomputed parts": {"recompute": "core_attn"},
    "recomputed first layers": {"recompute": "full", "recomputed_layers": 1},
}
MOST_DIFFERENCE = 1e-5  # of a tensor's gradient, of the largest number in it

# One device without groups.
ALONE = ["--pin", "replicas=1", "--pin", "context=1", "--pin", "recompute=none"]


class TrainedGroups(ToolTest):
    def executor(self, *arguments, ranks=None, launcher=LAUNCHER):
        if ranks is None:
            return self.run_tool(*arguments, binary=ARGUMENTS.executor)
        return self.run_tool(ranks, ARGUMENTS.executor, *arguments, binary=launcher)

    def measured(self, name="gpt2-tiny", degrees="2,4", *more):
        result = self.executor("profile", "--spec", ROOT / "profiles" / f"{name}.json", "-o",
                               "profile.json", "--tensor", degrees, "--repeat", 1,
                               "--batch-sizes", "1,4", "--device-name", "core", *more)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return result

    def plan(self, name, degree, stages, *more, sequence=None, devices=16, divided=False):
        """Plans with sequence parallelism or without, and with experts that are divided among
        ranks or whole, as far as they are on different ones."""
        profile = self.read("profile.json")
        if sequence is not None:
            for layer in profile["layers"]:
                layer["variants"] = [
                    variant for variant in layer["variants"]
                    if variant.get("sequence_parallel", False) == sequence and
                    ("expert_parallel" not in variant or
                     (variant["expert_tensor_parallel"] > 1) == divided)]
        result = self.run_tool("--model", self.write("variants.json", profile), "--topo",
                               self.write("topology.json", cores(devices, "1 GB/s")), "-o", name,
                               "--global-batch", 8, "--pin", f"tensor={degree}", "--pin",
                               f"stages={stages}", "--no-baselines", *more)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return name

    def losses(self, *arguments, ranks=None, launcher=LAUNCHER):
        result = self.executor("train", *arguments, ranks=ranks, launcher=launcher)
        self.assertEqual(result.returncode, DONE, result.stdout + result.stderr)
        return [float(loss) for loss in re.findall(r"step +\d+  loss (\d+\.\d+)", result.stdout)]

    def test_layouts_have_the_same_losses(self):
        self.measured("gpt2-tiny", "2,4", "--context", "2,4")
        self.assertGreaterEqual(FIRST_OF_CONTEXT, 40)
        if SCALE >= 10:
            layouts = LAYOUTS
        else:
            # All state sharded, and context ranks, whatever else is tried.
            others = slice(9, 41, 30) if ARGUMENTS.sanitized else slice(0, 41, 9)
            layouts = LAYOUTS[others] + LAYOUTS[41:FIRST_OF_CONTEXT + 1]
        expected = None
        for degree, sequence, stages, replicas, shard, context in layouts:
            with self.subTest(degree=degree, sequence=sequence, stages=stages, replicas=replicas,
                              shard=shard, context=context):
                plan = self.plan("plan.json", degree, stages, "--pin", f"replicas={replicas}",
                                 "--pin", f"context={context}", "--shard", shard,
                                 *(["--pin", "shards=2", "--micro-batch", 4]
                                   if shard == "full" else []),
                                 sequence=sequence == "on")
                form = self.read(plan).get("parallelism", {})
                self.assertEqual(form.get("sharding", "none"), shard)
                self.assertEqual(form.get("tensor", 1), degree)
                self.assertEqual(form.get("context", 1), context)
                self.assertEqual(form.get("sequence", False), sequence == "on" and degree > 1)
                losses = self.losses(plan, "--steps", STEPS, "--clip-norm", 1)
                self.assertEqual(len(losses), STEPS)
                expected = expected or losses
                for loss, other in zip(losses, expected, strict=True):
                    self.assertAlmostEqual(loss, other, delta=1e-4)

    def test_gradients_are_those_of_one_device_and_training_goes_on_under_other_degrees(self):
        self.measured("llama-tiny", "2")
        whole = self.plan("whole.json", 1, 1, "--pin", "replicas=1")
        pair = self.plan("pair.json", 2, 2, "--pin", "replicas=2", sequence=True)
        verified = self.executor("train", pair, "--steps", 2, "--verify", "--clip-norm", 1)
        self.assertEqual(verified.returncode, DONE, verified.stdout + verified.stderr)
        self.assertIn("on 8 threads in groups of 2, 8 samples a step", verified.stdout)
        self.assertIn("verified", verified.stdout)
        expected = self.losses(whole, "--steps", 6)
        losses = self.losses(pair, "--steps", 2, "--checkpoint", "two")
        losses += self.losses(whole, "--steps", 2, "--resume", "two", "--checkpoint", "four")
        losses += self.losses(pair, "--steps", 2, "--resume", "four", "--checkpoint", "six")
        for loss, other in zip(losses, expected, strict=True):
            self.assertAlmostEqual(loss, other, delta=1e-4)
        # Checkpoints know no groups.
        self.losses(whole, "--steps", 2, "--checkpoint", "whole")
        shapes = [{name: tensor["shape"] for name, tensor in header_and_tensors(
            (self.folder / file).read_bytes())[0].items() if name != "__metadata__"}
                  for file in ("two", "whole")]
        self.assertEqual(shapes[0], shapes[1])

    def test_parts_of_sequences_have_the_same_losses(self):
        self.measured("llama-tiny", "2", "--context", "2,4")
        expected = self.losses(self.plan("whole.json", 1, 1, *ALONE), "--steps", 4)
        for number, (tensor, sequence, stages, *pins) in enumerate([
                (1, False, 1, "context=4"), (1, False, 2, "context=2"), (2, True, 1, "context=2"),
                (1, False, 1, "context=2", "shards=4")]):
            with self.subTest(tensor=tensor, stages=stages, pins=pins):
                shard = ["--shard", "full", "--micro-batch", 4] if len(pins) > 1 else []
                plan = self.plan(f"{number}.json", tensor, stages, "--pin", "replicas=1", *shard,
                                 *(word for pin in pins for word in ("--pin", pin)),
                                 sequence=sequence)
                losses = self.losses(plan, "--steps", 4, "--clip-norm", 10)
                for loss, other in zip(losses, expected, strict=True):
                    self.assertAlmostEqual(loss, other, delta=1e-4)
                verified = self.executor("train", plan, "--steps", 1, "--verify")
                self.assertEqual(verified.returncode, DONE, verified.stdout + verified.stderr)
        # Ranks with parts of the same sequences, and groups of them, shard the optimizer's state.
        for number, replicas in enumerate((1, 2)):
            plan = self.plan(f"sharded{number}.json", 1, 1, "--pin", "context=2", "--pin",
                             f"replicas={replicas}", "--shard", "optimizer")
            self.assertEqual(self.read(plan)["parallelism"],
                             {"tensor": 1, "context": 2, "sharding": "optimizer"})
            losses = self.losses(plan, "--steps", 2, "--clip-norm", 10, "--checkpoint", "two")
            losses += self.losses("0.json", "--steps", 2, "--resume", "two")
            for loss, other in zip(losses, expected, strict=True):
                self.assertAlmostEqual(loss, other, delta=1e-4)

    def test_parts_that_are_computed_again_change_no_loss(self):
        self.measured("gpt2-tiny", "2", "--recompute", "full,core_attn+mlp")
        for tensor in (1, 2):
            losses = set()
            for parts in ("none", "full", "core_attn+mlp"):
                plan = self.plan("plan.json", tensor, 2, "--pin", "replicas=1", "--pin",
                                 f"recompute={parts}")
                losses.add(tuple(self.losses(plan, "--steps", 4)))
            # One stage may recompute what another one keeps.
            plan = self.plan("plan.json", tensor, 2, "--pin", "replicas=1", "--pin",
                             "recompute=none")
            mixed = self.read(plan)
            form = mixed.get("parallelism", {"tensor": 1})
            mixed["stage_forms"] = [{**form, "recompute": "core_attn+mlp"}]
            for number in (0, 1):
                stages = [{**stage, "form": int(i == number)}
                          for i, stage in enumerate(mixed["stages"])]
                self.write("mixed.json", {**mixed, "stages": stages})
                losses.add(tuple(self.losses("mixed.json", "--steps", 4)))
                verified = self.executor("train", "mixed.json", "--steps", 1, "--verify")
                self.assertEqual(verified.returncode, DONE, verified.stdout + verified.stderr)
            self.assertEqual(len(losses), 1)
        blocks = next(layer for layer in self.read("profile.json")["layers"]
                      if layer["name"].startswith("block"))
        kept = {(variant["tensor_parallel"], variant.get("sequence_parallel", False),
                 variant.get("recompute")): variant["measurements"][0]["stash_bytes"]
                for variant in blocks["variants"]}
        self.assertEqual(len(kept), 2 + 2 * 3)
        # What a pinned part is refused for is not the part, where layers have it.
        result = self.run_tool("--model", "profile.json", "--topo", self.write("two.json", cores(
            2, "1 GB/s")), "--shard", "full", "--pin", "tensor=2", "--pin", "recompute=full")
        self.assert_error(result, BAD_INPUT,
                          "no number of devices can share a device's parameters")
        # The input alone; with heads and feed-forward computed again, the scores are not kept.
        self.assertEqual(kept[1, False, "full"], 4 * 64 * 64)
        self.assertLess(kept[1, False, "core_attn+mlp"],
                        blocks["measurements"][0]["stash_bytes"] - 4 * 4 * 64 * 64)

    def test_a_small_mixtral_has_the_same_losses_in_every_group_and_learns(self):
        self.measured("mixtral-tiny", "2", "--context", "2", "--recompute", "moe")
        expected = self.losses(self.plan("whole.json", 1, 1, *ALONE), "--steps", 4)
        for number, (tensor, sequence, pins) in enumerate([
                (2, True, ["stages=2"]), (1, False, ["context=2", "recompute=moe"]),
                (2, False, ["shards=2", "replicas=1"])]):
            shard = ["--shard", "full", "--micro-batch", 4] if "shards=2" in pins else []
            plan = self.plan(f"{number}.json", tensor, 1 + ("stages=2" in pins), *shard,
                             *(word for pin in pins if pin != "stages=2"
                               for word in ("--pin", pin)), sequence=sequence)
            for loss, other in zip(self.losses(plan, "--steps", 4), expected, strict=True):
                self.assertAlmostEqual(loss, other, delta=1e-4)
            verified = self.executor("train", plan, "--steps", 1, "--verify")
            self.assertEqual(verified.returncode, DONE, verified.stdout + verified.stderr)
        text = subprocess.run([ROOT / "tools" / "make_text"], check=True, capture_output=True)
        (self.folder / "text.tokens").write_bytes(text.stdout)
        losses = self.losses("whole.json", "--tokens", "text.tokens", "--steps", 30,
                             "--learning-rate", "0.003", "--clip-norm", 1)
        self.assertGreater(losses[0], 5)
        self.assertLess(losses[-1], 3.3)

    def test_experts_on_different_ranks_have_the_same_losses(self):
        self.measured("mixtral-tiny", "2", "--context", "2", "--experts", "2,4", "--expert-tensor")
        expected = self.losses(self.plan("whole.json", 1, 1, *ALONE), "--steps", STEPS)
        layouts = [
            (1, False, 2, ["experts=4", "context=1"], "none", False),
            (2, True, 1, ["experts=2", "context=1"], "none", False),
            (1, False, 1, ["experts=2", "context=2"], "optimizer", False),
            (1, False, 1, ["experts=4", "context=2"], "none", False),
            (1, False, 2, ["experts=2", "context=1", "replicas=2"], "optimizer", False),
            (2, True, 1, ["experts=2", "context=1"], "none", True),
            (2, True, 2, ["experts=2", "context=1"], "optimizer", True),
            (2, True, 1, ["experts=2", "context=2", "replicas=1"], "optimizer", True)]
        for number, (tensor, sequence, stages, pins, shard, divided) in enumerate(layouts):
            with self.subTest(tensor=tensor, stages=stages, pins=pins, shard=shard):
                plan = self.plan(f"{number}.json", tensor, stages, "--micro-batch", 4, "--shard",
                                 shard, *(word for pin in pins for word in ("--pin", pin)),
                                 sequence=sequence, divided=divided)
                form = self.read(plan)["parallelism"]
                self.assertIn(f"experts={form['experts']}", pins)
                self.assertEqual(form["expert_tensor"], tensor if divided else 1)
                self.assertEqual(form.get("sharding", "none"), shard)
                steps = STEPS if SCALE >= 10 else 4
                losses = self.losses(plan, "--steps", steps, "--clip-norm", 10)
                for loss, other in zip(losses, expected):
                    self.assertAlmostEqual(loss, other, delta=1e-4)
                verified = self.executor("train", plan, "--steps", 1, "--verify")
                self.assertEqual(verified.returncode, DONE, verified.stdout + verified.stderr)
        # A training goes on with other groups, and without.
        losses = []
        order = ["0.json", "6.json", "whole.json", "7.json", "4.json"]
        for number, plan in enumerate(order):
            start = ["--resume", f"after{number}"] if number else []
            losses += self.losses(plan, "--steps", STEPS // len(order), "--clip-norm", 10,
                                  "--checkpoint", f"after{number + 1}", *start)
        for loss, other in zip(losses, expected, strict=True):
            self.assertAlmostEqual(loss, other, delta=1e-4)
        # Ranks may be processes.
        self.assertEqual(self.losses("7.json", "--steps", 2, ranks=4),
                         self.losses("7.json", "--steps", 2))
        block = next(layer for layer in self.read("profile.json")["layers"]
                     if layer["name"].startswith("block"))
        variant = next(one for one in block["variants"] if one.get("expert_parallel", 1) == 4)
        # One of four experts of three matrices of 64 x 96, and the router and attention.
        self.assertEqual(variant["expert_parameter_bytes"], 4 * 3 * 64 * 96)
        kinds = {one["kind"] for one in variant["forward_collectives"]}
        self.assertEqual(kinds, {"all-to-all"})
        # Rows to two experts and back, those to them behind a number for each of the experts.
        sizes = sorted(one["bytes_per_sample"] for one in variant["forward_collectives"])
        self.assertEqual(sizes[-1], 4 * (64 * 2 * 64 + 4))
        # Two of four experts, of each of which the other rank has the other half. What comes to a
        # rank of 32 positions' rows, behind four numbers, passes between the two that share
        # experts, too, and as much is summed as goes back.
        variant = next(one for one in block["variants"]
                       if one.get("expert_tensor_parallel", 1) == 2 and one["expert_parallel"] == 2
                       and "context_parallel" not in one)
        self.assertEqual(variant["expert_parameter_bytes"], 2 * 4 * 3 * 64 * 96 // 2)
        sizes = {one.get("over", "tensor"): [] for one in variant["forward_collectives"]}
        for one in variant["forward_collectives"]:
            if one["kind"] == "all-to-all":
                sizes[one.get("over", "tensor")].append(one["bytes_per_sample"])
        there = 4 * (32 * 2 * 64 + 4)
        self.assertIn(there, sizes["experts"])
        back, = (size for size in sizes["experts"] if size != there)
        self.assertEqual(sorted(sizes["tensor"]), [2 * back, 2 * (back + 4 * 4)])

    def test_experts_that_may_be_others_are_named_and_decide_nothing(self):
        self.measured("mixtral-tiny", "2")
        whole = self.plan("whole.json", 1, 1, *ALONE)
        pair = self.plan("pair.json", 2, 1, "--pin", "replicas=1", sequence=False)
        self.losses(whole, "--steps", 1, "--checkpoint", "one")
        header, tensors = header_and_tensors((self.folder / "one").read_bytes())

        def with_routers(name, value):
            changed = bytearray(tensors)
            for tensor, about in header.items():
                if not tensor.endswith("router.weight"):
                    continue
                begin, end = about["data_offsets"]
                numbers = [value(i) for i in range((end - begin) // 4)]
                changed[begin:end] = struct.pack(f"<{len(numbers)}f", *numbers)
            (self.folder / name).write_bytes(as_version_1(file_of(header, bytes(changed))))
            return self.executor("train", pair, "--steps", 1, "--verify", "--resume", name)

        # All scores are equal on both sides, so the same experts are chosen.
        result = with_routers("equal", lambda _: 0)
        self.assertEqual(result.returncode, DONE, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"routing    of layer block\S*, sample 0, token 0 in step 2 "
                         r"has a margin of 0 between\n +scores 2 and 3 \(0.25 and 0.25\), expected "
                         r"more than 0.001: rounding may choose other experts\n  verified: ")
        # Columns that are equal but for their last bits.
        result = with_routers("close", lambda i: (i // 4 % 7 - 3) * (1 + (i * 7 % 5) * 2e-7))
        self.assertEqual(result.returncode, NOT_VERIFIED, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"gradients  of \d+ tensors differ by .*\n.*\n.*\n"
                         r"  routing    of layer block\S*, sample \d, token \d+ in step 2 has a "
                         r"margin of \S+ between\n(.*\n)+  undecided: it may do what one device "
                         r"does, within 1e-05, with other experts")

    # Stages in different forms.

    def measured_halves(self, *degrees, model="gpt2-tiny", tied=False):
        """Measures a model whose blocks are two layers, and whose head has weights of its own
        unless it is tied."""
        specification = json.loads((ROOT / "profiles" / f"{model}.json").read_text())
        layers = []
        for layer in specification["layers"]:
            if layer["name"] == "head":
                layer.pop("tied_to", None)
                layer.update({"parameter_bytes": 0, "tied_to": "tokens"} if tied else
                             {"parameter_bytes": 4 * 64 * 256})
                layer["op"].update(bias=False, transposed=True)
            halves = ("early", "late") if "repeat" in layer else ()
            layers += [{**layer, "name": name, "repeat": layer["repeat"] // 2}
                       for name in halves] or [layer]
        result = self.executor("profile", "--spec", self.write(
            "halves.json", {**specification, "layers": layers}), "-o", "profile.json", *degrees,
                               "--repeat", 1, "--batch-sizes", "1,4", "--device-name", "core")
        self.assertEqual(result.returncode, DONE, result.stderr)

    def plan_by_stage(self, name, forms, *more, replicas=1, devices=None):
        """Plans stages on groups of four in any forms, where the layers up to the early blocks, the
        late ones and those behind them are fast in one form each: tensor, sequence, context and
        expert parallelism, or on so many devices in groups of any size. Returns the forms of
        stages."""
        profile = self.read("profile.json")
        parts = {"tokens": 0, "positions": 0, "early": 0, "late": 1}
        for layer in profile["layers"]:
            fast = forms[parts.get(layer["name"].split(".")[0], len(forms) - 1)]
            for figures in [layer, *layer.get("variants", [])]:
                form = (figures.get("tensor_parallel", 1),
                        figures.get("sequence_parallel", False),
                        figures.get("context_parallel", 1))
                experts = figures.get("expert_parallel", 1)
                is_fast = form == fast[:3] and (experts == (*fast, 1)[3] or
                                                layer["op"].get("experts") is None)
                for point in figures["measurements"]:
                    point.pop("input_gradient_ns", None)
                    point.pop("weight_gradient_ns", None)
                    point.update(forward_ns=10 ** 5 if is_fast else 10 ** 8,
                                 backward_ns=2 * 10 ** 5 if is_fast else 2 * 10 ** 8)
        topology = cores(devices or 4 * len(forms) * replicas, "100 GB/s")
        pins = (["--pin", f"stages={len(forms)}", "--pin", f"replicas={replicas}"]
                if devices is None else [])
        result = self.run_tool("--model", self.write("halves.json", profile), "--topo",
                               self.write("topology.json", topology), "-o", name,
                               "--global-batch", 8, "--per-stage", "--no-baselines", *pins, *more)
        self.assertEqual(result.returncode, DONE, result.stderr)
        plan = self.read(name)
        used = [plan.get("parallelism", {"tensor": 1}), *plan["stage_forms"]]
        return [used[stage.get("form", 0)] for stage in plan["stages"]]

    def test_stages_in_different_forms_have_the_losses_of_one_device(self):
        self.measured_halves("--tensor", "2,4", "--context", "2,4")
        cases = [
            ([(4, False, 1), (1, False, 1)], 1, [],
             [{"tensor": 4}, {"tensor": 1, "data": 4}]),
            ([(4, True, 1), (2, False, 2)], 2, [],
             [{"tensor": 4, "sequence": True}, {"tensor": 2, "context": 2}]),
            ([(4, False, 1), (2, True, 1), (1, False, 1)], 1, ["--micro-batch", 4],
             [{"tensor": 4}, {"tensor": 2, "sequence": True, "data": 2},
              {"tensor": 1, "data": 4}]),
            # Two of four ranks have no sample.
            ([(1, False, 1), (4, True, 1)], 1, ["--micro-batch", 2],
             [{"tensor": 1, "data": 4}, {"tensor": 4, "sequence": True}]),
            ([(2, True, 1), (1, False, 4)], 1, ["--shard", "optimizer"],
             [{"tensor": 2, "sequence": True, "data": 2, "sharding": "optimizer"},
              {"tensor": 1, "context": 4, "sharding": "optimizer"}]),
            ([(1, False, 4), (4, True, 1)], 2, ["--shard", "optimizer"],
             [{"tensor": 1, "context": 4, "sharding": "optimizer"},
              {"tensor": 4, "sequence": True, "sharding": "optimizer"}]),
            ([(1, False, 1), (1, False, 4)], 1, ["--shard", "full"],
             [{"tensor": 1, "sharding": "full", "shards": 4},
              {"tensor": 1, "context": 4, "sharding": "full", "shards": 4}])]
        whole = self.plan("whole.json", 1, 1, *ALONE)
        expected = self.losses(whole, "--steps", STEPS, "--clip-norm", 1)
        for number, (forms, replicas, more, found) in enumerate(cases):
            with self.subTest(forms=found):
                plan = f"{number}.json"
                self.assertEqual(self.plan_by_stage(plan, forms, *more, replicas=replicas), found)
                losses = self.losses(plan, "--steps", STEPS, "--clip-norm", 1)
                for loss, other in zip(losses, expected, strict=True):
                    self.assertAlmostEqual(loss, other, delta=1e-4)
                verified = self.executor("train", plan, "--steps", 1, "--verify", "--clip-norm", 1)
                self.assertEqual(verified.returncode, DONE, verified.stdout + verified.stderr)
        # What is sent between stages is what the plan prices.
        for plan in ("0.json", "2.json"):
            result = self.executor("train", plan, "--steps", 1, "--timeline", "measured.json")
            self.assertEqual(result.returncode, DONE, result.stderr)
            result = self.run_tool("simulate", plan, "--timeline", "simulated.json")
            self.assertEqual(result.returncode, DONE, result.stderr)
            measured, simulated = (
                {action["action"]: action["bytes"] for action in self.read(name)["actions"]
                 if "SEND" in action["action"]} for name in ("measured.json", "simulated.json"))
            self.assertGreaterEqual(len(measured), 2)
            self.assertEqual(measured, simulated)
        # A training goes on in other forms, and without.
        losses = []
        for number, plan in enumerate(["0.json", "4.json", whole, "6.json", "1.json"]):
            start = ["--resume", f"after{number}"] if number else []
            losses += self.losses(plan, "--steps", STEPS // 5, "--clip-norm", 1, "--checkpoint",
                                  f"after{number + 1}", *start)
        for loss, other in zip(losses, expected, strict=True):
            self.assertAlmostEqual(loss, other, delta=1e-4)
        # Ranks may be processes.
        for plan, ranks in (("0.json", 8), ("4.json", 8)):
            self.assertEqual(self.losses(plan, "--steps", 3, "--clip-norm", 1, ranks=ranks),
                             self.losses(plan, "--steps", 3, "--clip-norm", 1))
            verified = self.executor("train", plan, "--steps", 1, "--verify", ranks=ranks)
            self.assertEqual(verified.returncode, DONE, verified.stdout + verified.stderr)

    def test_groups_of_different_sizes_have_the_losses_of_one_device(self):
        self.measured_halves("--tensor", "2,4", "--context", "2")
        # Fast forms, options, and the sizes of the groups of each stage.
        cases = [
            ([(1, False, 2), (4, True, 1)], [], [[2], [4]]),
            ([(1, False, 2), (4, True, 1)], ["--shard", "optimizer"], [[2, 2], [4]]),
            ([(2, True, 1), (1, False, 1), (4, True, 1)], [], [[2], [1, 1], [4]]),
            ([(4, True, 1), (2, False, 1), (1, False, 1)], ["--pin", "replicas=2"],
             [[1, 1], [2, 2], [1, 1]]),
            ([(4, True, 1), (2, False, 1), (1, False, 1)],
             ["--schedule", "gpipe", "--pin", "replicas=1"], [[4], [2], [1]])]
        expected = self.losses(self.plan("whole.json", 1, 1, *ALONE), "--steps", STEPS,
                               "--clip-norm", 1)
        for number, (forms, more, sizes) in enumerate(cases):
            with self.subTest(sizes=sizes):
                plan = f"{number}.json"
                self.plan_by_stage(plan, forms, "--groups", "any", "--micro-batch", 4, "--pin",
                                   f"stages={len(forms)}", *more, devices=8)
                self.assertEqual(self.groups_of(plan), sizes)
                losses = self.losses(plan, "--steps", STEPS, "--clip-norm", 1)
                for loss, other in zip(losses, expected, strict=True):
                    self.assertAlmostEqual(loss, other, delta=1e-4)
                verified = self.executor("train", plan, "--steps", 1, "--verify", "--clip-norm", 1)
                self.assertEqual(verified.returncode, DONE, verified.stdout + verified.stderr)
        self.assertIn("on 7 threads in groups of 1, 2 and 4, 8 samples a step", verified.stdout)
        # A training goes on with groups of other sizes, of one size, and without.
        losses = []
        for number, plan in enumerate(["1.json", "4.json", "whole.json", "2.json", "3.json"]):
            start = ["--resume", f"after{number}"] if number else []
            losses += self.losses(plan, "--steps", STEPS // 5, "--clip-norm", 1, "--checkpoint",
                                  f"after{number + 1}", *start)
        for loss, other in zip(losses, expected, strict=True):
            self.assertAlmostEqual(loss, other, delta=1e-4)
        # Ranks may be processes.
        for plan, ranks in (("0.json", 6), ("3.json", 8)):
            on_threads = self.losses(plan, "--steps", 3, "--clip-norm", 1)
            for launcher in (LAUNCHER, TCP_LAUNCHER):
                self.assertEqual(self.losses(plan, "--steps", 3, "--clip-norm", 1, ranks=ranks,
                                             launcher=launcher), on_threads)
            verified = self.executor("train", plan, "--steps", 1, "--verify", ranks=ranks)
            self.assertEqual(verified.returncode, DONE, verified.stdout + verified.stderr)

    def groups_of(self, name):
        """Returns the sizes of the groups of each stage of a plan."""
        plan = self.read(name)
        def size(form):
            return (form.get("tensor", 1) * form.get("context", 1) * form.get("data", 1)
                    if "shards" not in form else form.get("tensor", 1) * form["shards"])
        forms = [size(form) for form in [plan.get("parallelism", {}), *plan["stage_forms"]]]
        found = []
        for stage in plan["stages"]:
            own = forms[stage.get("form", 0)]
            found.append([own] * (len(stage["devices"]) * forms[0] // own))
        return found

    def test_tied_weights_of_stages_in_different_forms(self):
        self.measured_halves("--tensor", "2", "--context", "2", tied=True)
        expected = self.losses(self.plan("whole.json", 1, 1, *ALONE), "--steps", 4)
        for shard in ("none", "optimizer"):
            forms = self.plan_by_stage("tied.json", [(2, True, 1), (2, False, 2)],
                                       "--shard", shard)
            sharding = {} if shard == "none" else {"sharding": shard}
            self.assertEqual(forms, [{"tensor": 2, "sequence": True, "data": 2, **sharding},
                                     {"tensor": 2, "context": 2, **sharding}])
            losses = self.losses("tied.json", "--steps", 4, "--clip-norm", 10)
            for loss, other in zip(losses, expected, strict=True):
                self.assertAlmostEqual(loss, other, delta=1e-4)
            verified = self.executor("train", "tied.json", "--steps", 1, "--verify")
            self.assertEqual(verified.returncode, DONE, verified.stdout + verified.stderr)

    def test_tied_weights_of_stages_with_experts_and_without(self):
        self.measured_halves("--experts", "4", model="mixtral-tiny", tied=True)
        expected = self.losses(self.plan("whole.json", 1, 1, *ALONE), "--steps", 3)
        for shard in ("none", "optimizer"):
            self.plan_by_stage("plan.json", [(1, False, 1), (1, False, 1, 4)], "--micro-batch", 4,
                               "--shard", shard)
            losses = self.losses("plan.json", "--steps", 3, "--clip-norm", 10)
            for loss, other in zip(losses, expected, strict=True):
                self.assertAlmostEqual(loss, other, delta=1e-4)

    def test_experts_in_some_stages(self):
        self.measured_halves("--tensor", "2", "--context", "2", "--experts", "2,4",
                             model="mixtral-tiny")
        expected = self.losses(self.plan("whole.json", 1, 1, *ALONE), "--steps", 4)
        for number, (forms, found) in enumerate([
                ([(1, False, 1, 4), (2, True, 1, 2)],
                 [{"tensor": 1, "experts": 4, "expert_tensor": 1},
                  {"tensor": 2, "sequence": True, "data": 2, "experts": 2, "expert_tensor": 1}]),
                ([(2, False, 1), (1, False, 2, 4)],
                 [{"tensor": 2, "data": 2},
                  {"tensor": 1, "context": 2, "experts": 4, "expert_tensor": 1}])]):
            with self.subTest(forms=found):
                self.assertEqual(self.plan_by_stage("plan.json", forms, "--micro-batch", 4), found)
                losses = self.losses("plan.json", "--steps", 4, "--clip-norm", 10)
                for loss, other in zip(losses, expected, strict=True):
                    self.assertAlmostEqual(loss, other, delta=1e-4)
                verified = self.executor("train", "plan.json", "--steps", 1, "--verify")
                self.assertEqual(verified.returncode, DONE, verified.stdout + verified.stderr)

    def test_stages_in_different_forms_that_are_not_trained_are_refused(self):
        self.measured_halves("--experts", "2,4", model="mixtral-tiny")
        self.plan_by_stage("plan.json", [(1, False, 1, 4), (1, False, 1, 2)], "--micro-batch", 4)
        self.plan_by_stage("plan.json", [(1, False, 1, 4), (1, False, 1, 2)], "--micro-batch", 2)
        self.assert_error(self.executor("train", "plan.json"), BAD_INPUT,
                          "/stages/0/devices/0: expected at least 4 samples of a micro-batch, as so "
                          "many devices of the group have different samples, and experts for those "
                          "of each other, got 2")
        self.measured_halves("--tensor", "2", "--experts", "4", model="mixtral-tiny", tied=True)
        self.plan_by_stage("plan.json", [(1, False, 1), (1, False, 1, 4)], "--micro-batch", 4)
        plan = self.read("plan.json")
        plan["stage_forms"] = [{"tensor": 1, "sharding": "full", "shards": 4}]
        self.write("plan.json", plan)
        self.assert_error(self.executor("train", "plan.json"), BAD_INPUT,
                          "/stages/1/form: expected parameters that are divided as those of stage 0, "
                          "tensor 1, data 4, as both stages use those of layer 0, got tensor 1, "
                          "all state sharded over 4")

    def test_experts_that_cannot_be_are_refused(self):
        profile = json.loads((ROOT / "profiles" / "mixtral-tiny.json").read_text())
        block = profile["layers"][1]["op"]
        for change, place, expected in [
                ({"experts_per_token": 5}, "experts_per_token", "expected at most experts, 4, got 5"),
                ({"experts": 0}, "experts", "expected"),
                ({"experts": None}, "experts", "key is missing"),
                ({"experts_per_token": None}, "experts_per_token", "key is missing"),
                ({"experts": 1 << 20, "feed_forward": 1 << 20, "hidden": 1 << 20},
                 "experts", "weights together")]:
            changed = {key: value for key, value in {**block, **change}.items()
                       if value is not None}
            profile["layers"][1]["op"] = changed
            result = self.executor("profile", "--spec", self.write("odd.json", profile))
            self.assertEqual(result.returncode, BAD_INPUT, result.stderr)
            self.assertIn(f"/op/{place}", result.stderr)
            self.assertIn(expected, result.stderr)
        for name, parts, expected in [
                ("mixtral-tiny", "mlp", "expected a transformer block with a feed-forward"),
                ("gpt2-tiny", "moe", "expected a transformer block with experts"),
                ("mlp", "full", "expected a transformer block with parts")]:
            self.assert_error(
                self.executor("profile", "--spec", ROOT / "profiles" / f"{name}.json",
                              "--recompute", parts), BAD_INPUT, expected)

    def runtime(self, boundaries):
        return ("--runtime", self.write(f"{boundaries}.json", {
            "schema": "dapple-runtime/1", "name": "made", "source": "made up",
            "transfers": "overlapped", "gradient_overlap": "buckets", "depths": "any",
            "boundaries": boundaries}))

    def plan_of_dimension(self, form, stages):
        """Plans the form, as plans state it, and checks that it is that of the plan."""
        form = dict(form)
        has_experts = "experts" in form
        if form.get("recompute") == "core_attn":
            form["recompute"] += "+moe" if has_experts else "+mlp"
        replicas = form.pop("replicas", 1)
        boundaries = form.pop("boundaries", "whole")
        words = form.get("recompute", "none")
        if "recomputed_layers" in form:
            words += f":{form['recomputed_layers']}"
        pins = {"context": 1, "replicas": replicas, "recompute": words,
                **{key: form[key] for key in ("context", "shards", "experts") if key in form}}
        plan = self.plan("plan.json", form.get("tensor", 1), stages, "--micro-batch", 4, "--shard",
                         form.get("sharding", "none"), *self.runtime(boundaries),
                         *itertools.chain(*(("--pin", f"{key}={value}")
                                            for key, value in pins.items())),
                         sequence=form.get("sequence", False), divided="expert_tensor" in form)
        document = self.read(plan)
        stated = {"tensor": 1, **form, **({"expert_tensor": form.get("expert_tensor", 1)}
                                          if has_experts else {})}
        self.assertEqual(document.get("parallelism", {"tensor": 1}), stated)
        self.assertEqual(document.get("boundaries", "whole"), boundaries)
        self.assertEqual([len(stage["devices"]) for stage in document["stages"]],
                         [replicas] * stages)
        size = form.get("tensor", 1) * form.get("shards", max(form.get("context", 1), (
            form.get("experts", 1) * form.get("expert_tensor", 1) // form.get("tensor", 1))))
        return plan, stages * replicas * size

    def gradients(self, plan, **how):
        """The gradients of one step, by tensor: what momentum begins with."""
        result = self.executor("train", plan, "--steps", 1, "--optimizer", "momentum",
                               "--checkpoint", "after", **how)
        self.assertEqual(result.returncode, DONE, result.stdout + result.stderr)
        header, tensors = header_and_tensors((self.folder / "after").read_bytes())
        return {name: array.array("f", tensors[slice(*about["data_offsets"])])
                for name, about in header.items() if name.endswith(".moment1")}

    def test_gradients_of_every_dimension_and_pair_on_processes(self):
        kinds = DIMENSIONS.items()
        forms = [(name, form, 2 if form.get("replicas", 1) == 1 else 1) for name, form in kinds]
        pairs = [(f"{one}, {other}", {**form, **more}, 2 if "boundaries" in form else 1)
                 for (one, form), (other, more) in itertools.combinations(kinds, 2)
                 if not (form.keys() - {"replicas"}) & more.keys()]
        # Ranks with other experts have other tokens.
        pairs = [(name, form, stages) for name, form, stages in pairs
                 if not {"experts", "tensor"} <= form.keys() or "sequence" in form]
        self.assertEqual((len(forms), len(pairs)), (12, 50))
        if SCALE >= 10:
            forms += pairs
        elif ARGUMENTS.sanitized:
            forms = forms[::4]
        for model, has_experts, more in (("llama-tiny", False, ["--recompute", "full,core_attn+mlp"]),
                                         ("mixtral-tiny", True, ["--experts", "2", "--expert-tensor",
                                                                 "--recompute",
                                                                 "full,core_attn+moe"])):
            self.measured(model, "2", "--context", "2", *more)
            expected = self.gradients(self.plan("whole.json", 1, 1, *ALONE))
            for name, form, stages in forms:
                if ("experts" in form) != has_experts:
                    continue
                with self.subTest(name):
                    plan, ranks = self.plan_of_dimension(form, stages)
                    gradients = self.gradients(plan, ranks=ranks)
                    self.assert_close(gradients, expected)

    def assert_close(self, gradients, expected):
        self.assertEqual(gradients.keys(), expected.keys())
        for tensor, numbers in expected.items():
            difference = max(abs(a - b) for a, b in zip(gradients[tensor], numbers, strict=True))
            self.assertLessEqual(difference, MOST_DIFFERENCE * max(map(abs, numbers)), tensor)

    def test_ranks_send_shares_to_other_numbers_of_replicas(self):
        # Each of two tensor ranks sends half; a single replica gets its samples from several. What
        # goes to the loss is divided among the ranks already.
        self.measured("llama-tiny", "2")
        expected = self.gradients(self.plan("whole.json", 1, 1, *ALONE))
        profile = self.read("profile.json")
        names = [layer["name"] for layer in profile["layers"]]
        for cut, part in (("norm", 2), ("loss", 1)):
            # The stage in front is worth two devices of three.
            for name, layer in zip(names, profile["layers"]):
                each = 10**6 if names.index(name) < names.index(cut) else 10**5
                for figures in [layer, *layer.get("variants", [])]:
                    for point in figures["measurements"]:
                        point.pop("input_gradient_ns", None)
                        point.pop("weight_gradient_ns", None)
                        point.update(forward_ns=each * point["batch_size"],
                                     backward_ns=2 * each * point["batch_size"])
            self.write("profile.json", profile)
            sent = []
            for boundaries in "whole", "scatter-gather":
                with self.subTest(cut=cut, boundaries=boundaries):
                    plan = self.plan("plan.json", 2, 2, "--micro-batch", 4, "--pin", f"cut={cut}",
                                     *self.runtime(boundaries), sequence=False, devices=6)
                    self.assertEqual([len(stage["devices"]) for stage in self.read(plan)["stages"]],
                                     [2, 1])
                    for ranks in None, 6:
                        self.assert_close(self.gradients(plan, ranks=ranks), expected)
                    self.losses(plan, "--steps", 2, "--timeline", "timeline.json")
                    sent.append({action["action"]: action["bytes"]
                                 for action in self.read("timeline.json")["actions"]
                                 if "SEND" in action["action"]})
            self.assertEqual({name: size // part for name, size in sent[0].items()}, sent[1])

    def test_shares_that_are_not_sent_are_refused(self):
        self.measured_halves("--tensor", "2,4")
        self.plan_by_stage("plan.json", [(4, False, 1), (2, False, 1)],
                           *self.runtime("scatter-gather"))
        self.assert_error(self.executor("train", "plan.json"), BAD_INPUT,
                          "/boundaries: expected whole tensors")
        self.measured(degrees="2")
        plan = self.plan("plan.json", 2, 2, *self.runtime("scatter-gather"), sequence=False)
        self.assert_error(self.executor("replay", plan), BAD_INPUT,
                          "/boundaries: expected whole tensors, as a replay gathers no shares")

    def test_ranks_of_groups_are_processes(self):
        self.measured(degrees="2")
        plan = self.plan("plan.json", 2, 2, "--pin", "replicas=1", sequence=True)
        on_threads = self.losses(plan, "--steps", 3)
        self.assertEqual(self.losses(plan, "--steps", 3, ranks=4), on_threads)
        result = self.executor("train", plan, ranks=2)
        self.assertEqual(result.returncode, USAGE)
        self.assertIn("expected 4 ranks, one for each device of the plan, got 2", result.stderr)

    def test_a_profile_has_what_a_rank_holds_and_exchanges(self):
        self.measured(degrees="2")
        profile = self.read("profile.json")
        layers = {layer["name"]: layer for layer in profile["layers"]}
        whole = 4 * 64 * 64
        for name, parameters in [("tokens", 256 * 64 // 2), ("positions", 64 * 64), ("norm", 128),
                                 ("head", 0), ("loss", 0)]:
            for variant in layers[name]["variants"]:
                self.assertEqual(variant["parameter_bytes"], 4 * parameters, name)
        block = next(layer for name, layer in layers.items() if name.startswith("block"))
        plain, divided = block["variants"]
        self.assertEqual(divided["sequence_parallel"], True)
        # Two all-reduces of activations each way, or as many halves of them and two more gathers for
        # the gradients of weights.
        self.assertEqual(plain["forward_collectives"],
                         [{"kind": "all-reduce", "bytes_per_sample": whole, "count": 2}])
        self.assertEqual(plain["backward_collectives"], plain["forward_collectives"])
        counts = {one["kind"]: one["count"] for one in divided["backward_collectives"]}
        self.assertEqual(counts, {"all-gather": 4, "reduce-scatter": 2})
        self.assertEqual(divided["measurements"][0]["output_bytes"], whole // 2)
        # Keys and values of all positions, and once more with their gradients.
        self.measured("gpt2-tiny", "2", "--context", "4")
        block = next(layer for layer in self.read("profile.json")["layers"]
                     if layer["name"].startswith("block"))
        forms = [(variant["tensor_parallel"], variant.get("sequence_parallel", False),
                  variant.get("context_parallel", 1)) for variant in block["variants"]]
        self.assertEqual(forms, [(2, False, 1), (2, True, 1), (1, False, 4), (2, False, 4),
                                 (2, True, 4)])
        gathered = {"kind": "all-gather", "over": "context", "bytes_per_sample": 2 * whole}
        alone = block["variants"][2]
        self.assertEqual(alone["forward_collectives"], [gathered])
        self.assertEqual(alone["backward_collectives"],
                         [gathered, {**gathered, "kind": "reduce-scatter"}])
        self.assertEqual(alone["measurements"][0]["output_bytes"], whole // 4)

    def test_what_ranks_cannot_share_is_refused_by_name(self):
        profile = ["profile", "--repeat", 1, "--spec"]
        specification = ROOT / "profiles" / "gpt2-tiny.json"
        for degrees, expected in [("3", "layer block.0/op: expected a multiple of 3 heads, got 4"),
                                  ("8", "layer block.0/op: expected a multiple of 8 heads, got 4")]:
            self.assert_error(self.executor(*profile, specification, "--tensor", degrees),
                              BAD_INPUT, expected)
        for option in ("--tensor", "--context", "--experts"):
            for degrees in ("1", "1,2", "4,2", "2,2", "0", "65", "x", ""):
                result = self.executor(*profile, specification, option, degrees)
                self.assert_error(result, USAGE, f"{option}: expected")
        for parts in ("", "all", "norm", "full+mlp", "full,full", "full,,mlp", "moe_act"):
            self.assert_error(self.executor(*profile, specification, "--recompute", parts), USAGE,
                              "--recompute: expected full, core_attn, mlp, moe or such with")
        self.assert_error(self.executor(*profile, specification, "--context", "3"), BAD_INPUT,
                          "layer tokens/op: expected a multiple of 6 positions, got 64")
        self.assert_error(
            self.executor(*profile, self.write("mlp.json", perceptron()), "--tensor", "2"),
            BAD_INPUT, "layer linear.0/op: expected a linear layer only before the loss")
        llama = ROOT / "profiles" / "llama-tiny.json"
        self.assert_error(self.executor(*profile, llama, "--tensor", "4"), BAD_INPUT,
                          "expected a multiple of 4 heads of keys and values, got 2")
        mixtral = ROOT / "profiles" / "mixtral-tiny.json"
        experts = json.loads(mixtral.read_text())["layers"][1]["op"]["experts"]
        for degree in (3, experts + 1):
            self.assert_error(
                self.executor(*profile, mixtral, "--experts", degree), BAD_INPUT,
                f"/op: expected a multiple of {degree} experts, got {experts}, in a model that "
                f"{degree} expert-parallel ranks share")

    def test_dense_blocks_and_blocks_with_experts_recompute_what_they_have(self):
        profile = json.loads((ROOT / "profiles" / "mixtral-tiny.json").read_text())
        dense = json.loads(json.dumps(profile["layers"][1]))
        dense.pop("repeat")
        dense.update(name="dense", parameter_bytes=4 * (64 * 128 + 64 * 64 + 3 * 64 * 96
                                                                  + 128))
        for key in ("experts", "experts_per_token"):
            dense["op"].pop(key)
        profile["layers"].insert(1, dense)
        self.write("mixed.json", profile)
        result = self.executor("profile", "--spec", "mixed.json", "-o", "profile.json",
                               "--recompute", "mlp,moe,core_attn+moe", "--repeat", 1,
                               "--batch-sizes", "1,4", "--device-name", "core")
        self.assertEqual(result.returncode, DONE, result.stderr)
        layers = {layer["name"]: layer for layer in self.read("profile.json")["layers"]}
        parts = {name: [variant["recompute"] for variant in layers[name].get("variants", [])]
                 for name in layers}
        self.assertEqual(parts["dense"], ["mlp", "core_attn+moe"])
        self.assertEqual(parts["block.0" if "block.0" in parts else "block"],
                         ["moe", "core_attn+moe"])
        self.assertEqual(parts["tokens"], [])

    def test_groups_need_samples_of_their_own(self):
        self.measured(degrees="2")
        plan = self.plan("plan.json", 1, 1, "--pin", "replicas=2", "--shard", "full", "--pin",
                         "shards=4", "--micro-batch", 4)
        self.assert_error(self.executor("train", plan), BAD_INPUT, "/stages/0/devices: expected at "
                          "most 1 groups, as a micro-batch has 4 samples and 4 devices of each")
        plan = self.plan("plan.json", 1, 1, "--pin", "replicas=2", "--shard", "full", "--pin",
                         "shards=2", "--micro-batch", 8)
        result = self.executor("train", plan, "--steps", 1)
        self.assertIn("on 4 threads in groups of 2, 8 samples a step", result.stdout)

    def test_groups_train_on_gpus_where_there_are_any(self):
        self.measured(degrees="2")
        plan = self.plan("plan.json", 2, 2, "--pin", "replicas=1")
        on_gpus = ("--steps", 2, "--device", "cuda", "--oversubscribe")
        result = self.executor("train", plan, *on_gpus)
        if result.returncode != DONE:
            self.assert_error(result, ENVIRONMENT, "CUDA")
            return
        for loss, other in zip(self.losses(plan, *on_gpus), self.losses(plan, "--steps", 2),
                               strict=True):
            self.assertAlmostEqual(loss, other, delta=1e-4)

    def test_plans_that_no_group_can_train_are_refused(self):
        self.measured(degrees="2")
        document = self.read("profile.json")
        for layer in document["layers"]:
            for variant in layer["variants"]:
                if layer["name"] == "tokens":
                    variant["parameter_bytes"] += 4
        self.write("profile.json", document)
        plan = self.plan("odd.json", 2, 1, "--pin", "replicas=1")
        self.assert_error(self.executor("train", plan), BAD_INPUT,
                          "expected parameter_bytes 32768 in the variant of \"tokens\" for tensor "
                          "parallelism, 4 for each parameter of a rank, got 32772")


if __name__ == "__main__":
    tool.main()
