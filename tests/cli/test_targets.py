"""plan --for TARGET on random small problems: what is planned is exported without a refusal, and it is
the best that the target can do.

The problems are drawn by seeds; DAPPLE_TEST_SCALE=N tries N times as many of them."""

import json
import random
import re

import tool
from tool import BAD_INPUT, DONE, INFEASIBLE, NOT_VERIFIED, USAGE, ToolTest

EXPORTED = ("megatron", "deepspeed", "torch-python", "torch-csv", "torchtitan", "colossalai", "nanotron",
            "pipedream", "sailor")
PROBLEMS = 6 * tool.SCALE  # for each target


def nanotron_counts(blocks, head, stages):
    """Blocks of each stage, as nanotron's models/base.py cuts: parameters of each block, those of the
    head, number of stages. None where some stage would have no block."""
    share = (sum(blocks) + head) / stages
    counts, cost, left = [0], 0, stages - 1
    for block in blocks:
        counts[-1] += 1
        cost += block
        if cost > share * len(counts) and left:
            counts.append(0)
            left -= 1
    return counts if len(counts) == stages and all(counts) else None


class Problem:
    """A model of blocks between an embedding and a head, on a few servers."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.draw = draw
        self.blocks = draw.randint(2, 6)
        names = ["embedding", *(f"block.{i}" for i in range(self.blocks)), "head"]
        of_block = draw.choice((1, 2, 4)) << 20
        self.parameters = [draw.choice((0, 1, 2, 8, 16)) << 20, *[of_block] * self.blocks,
                           draw.choice((0, 1, 4, 16)) << 20]
        layers = [self.layer(name, size) for name, size in zip(names, self.parameters)]
        if draw.random() < 0.5:
            for layer in layers:
                layer["variants"] = [self.variant(layer)]
        self.profile = tool.small_profile(layers=layers, global_batch_size=draw.choice((4, 6, 8, 12)))
        server = {**tool.small_topology()["servers"][0], "count": draw.choice((1, 2, 3)),
                  "devices": draw.choice((1, 2, 4))}
        self.topology = tool.small_topology(
            memory=draw.choice(("100 MiB", "200 MiB", "1 GiB")), servers=[server])
        self.devices = server["count"] * server["devices"]
        self.more = draw.choice(((), ("--shard", "auto"), ("--schedule", "auto"), ("--pin", "recompute=off"),
                                 ("--pin", f"stages={draw.randint(1, 3)}"), ("--runtime", "nanotron")))

    def layer(self, name, parameters):
        forward = self.draw.randint(2, 30) * 100_000
        return {"name": name, "parameter_bytes": parameters, "measurements": [
            {"batch_size": 4, "forward_ns": forward, "backward_ns": 2 * forward,
             "output_bytes": self.draw.choice((1, 4)) << 18, "stash_bytes": 1 << 20}]}

    def variant(self, layer):
        measured = layer["measurements"][0]
        half = {key: value // 2 for key, value in measured.items()
                if key in ("forward_ns", "backward_ns", "stash_bytes")}
        return {"tensor_parallel": 2, "parameter_bytes": layer["parameter_bytes"] // 2,
                "measurements": [{**measured, **half}]}


class Targets(ToolTest):
    def ground(self, problem):
        return ("--model", self.write("model.json", problem.profile), "--topo",
                self.write("topology.json", problem.topology))

    def check(self, target, seed):
        """Plans a problem for a target. Returns whether there is a plan."""
        problem = Problem(seed)
        made = self.run_tool("plan", *self.ground(problem), "--for", target, *problem.more, "-o",
                             "plan.json")
        if made.returncode != DONE:
            # Sharded state, tied options and pinned stages may be what a target lacks.
            self.assertIn(made.returncode, (INFEASIBLE, USAGE, BAD_INPUT), made.stderr)
            return False
        run = self.run_tool("export", "plan.json", "--to", target, "-o", "-")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertTrue(run.stdout)
        run = self.run_tool("verify", "plan.json")
        self.assertIn(run.returncode, (DONE, NOT_VERIFIED), run.stdout + run.stderr)
        return True

    def test_what_is_planned_for_a_target_is_exported_to_it(self):
        for number, target in enumerate(EXPORTED):
            planned = 0
            for trial in range(PROBLEMS):
                with self.subTest(target=target, seed=(number, trial)):
                    planned += self.check(target, 1000 * number + trial)
            self.assertGreater(planned, PROBLEMS // 3, target)

    def fastest_layout(self, problem):
        """The shortest iteration over nanotron's own stages, with all devices but in their order."""
        global_batch = problem.profile["global_batch_size"]
        best = None
        for stages in range(1, problem.devices + 1):
            counts = nanotron_counts(problem.parameters[1:-1], problem.parameters[-1], stages)
            if counts is None or problem.devices % stages:
                continue
            replicas = problem.devices // stages
            counts[0] += 1
            counts[-1] += 1
            for size in range(1, global_batch // replicas + 1):
                micro_batches = global_batch // (size * replicas)
                if global_batch % (size * replicas) or micro_batches < stages - 1:
                    continue
                words = (f"pp={stages},dp={replicas},mbs={size},gbs={global_batch},layers="
                         + ":".join(map(str, counts)))
                run = self.run_tool("import", "plan", "--layout", words, *self.ground(problem),
                                    "--unlimited-memory", "-o", "layout.json")
                self.assertEqual(run.returncode, DONE, run.stderr)
                took = self.read("layout.json")["predicted"]["iteration_ns"]
                best = took if best is None else min(best, took)
        return best

    def test_no_stages_that_nanotron_cuts_are_faster(self):
        compared = 0
        for seed in range(5000, 5000 + 2 * PROBLEMS):
            problem = Problem(seed)
            with self.subTest(seed=seed):
                run = self.run_tool("plan", *self.ground(problem), "--for", "nanotron",
                                    "--max-tensor", "1", "--unlimited-memory", "-o", "plan.json")
                self.assertEqual(run.returncode, DONE, run.stderr)
                plan = self.read("plan.json")
                blocks = [sum(1 <= layer <= problem.blocks for layer in range(*stage["layers"]))
                          for stage in plan["stages"]]
                self.assertEqual(blocks, nanotron_counts(problem.parameters[1:-1],
                                                         problem.parameters[-1], len(blocks)))
                predicted = plan["predicted"]
                self.assertLessEqual(predicted["lower_bound_ns"], predicted["iteration_ns"])
                self.assertGreaterEqual(plan["num_micro_batches"], len(blocks) - 1)
                fastest = self.fastest_layout(problem)
                if fastest is None:
                    continue
                compared += 1
                self.assertLessEqual(predicted["iteration_ns"], fastest)
                used = {device for stage in plan["stages"] for device in stage["devices"]}
                if len(used) == problem.devices and not any(s["recompute"] for s in plan["stages"]):
                    self.assertEqual(predicted["iteration_ns"], fastest)
        self.assertGreater(compared, PROBLEMS)

    def four_blocks(self):
        """A model of four blocks that nanotron cuts into 4, 3 and 1, or 2, 1 and 1 of them."""
        def layer(name, mebibytes):
            return {"name": name, "parameter_bytes": mebibytes << 20, "measurements": [
                {"batch_size": 4, "forward_ns": 1_000_000, "backward_ns": 2_000_000,
                 "output_bytes": 1 << 20, "stash_bytes": 1 << 20}]}

        layers = [layer("embedding", 1), *(layer(f"block.{i}", 4) for i in range(4)), layer("head", 1)]
        return ("--model", self.write("four.json", tool.small_profile(layers=layers)), "--topo",
                self.write("2x2.json", tool.small_topology()))

    def test_the_number_of_nanotron_s_stages_can_be_pinned_and_its_proof_is_data(self):
        ground = self.four_blocks()
        for stages, boundaries in ((1, []), (2, [4]), (3, [3, 4])):
            run = self.run_tool("plan", *ground, "--for", "nanotron", "--pin", f"stages={stages}",
                                "--proof", "proof.json", "-o", "plan.json")
            self.assertEqual(run.returncode, DONE, run.stderr)
            plan = self.read("plan.json")
            self.assertEqual([stage["layers"][0] for stage in plan["stages"]], [0, *boundaries])
            for problem in self.read("proof.json")["problems"]:
                self.assertEqual(problem["stages"], stages)
            run = self.run_tool("verify", "plan.json", "--proof", "proof.json")
            self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        run = self.run_tool("plan", *ground, "--for", "nanotron", "--proof", "proof.json", "-o",
                            "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        problems = self.read("proof.json")["problems"]
        self.assertGreater(len({problem["stages"] for problem in problems}), 1)
        run = self.run_tool("verify", "plan.json", "--proof", "proof.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        proof = self.read("proof.json")
        proof["problems"][0]["stages"] = 4
        run = self.run_tool("verify", "plan.json", "--proof", self.write("proof.json", proof))
        self.assertEqual(run.returncode, BAD_INPUT, run.stdout + run.stderr)
        self.assertIn("/problems/0", run.stdout + run.stderr)

    def executor(self, *arguments):
        return self.run_tool(*arguments, binary=tool.ARGUMENTS.executor)

    def plan_for_executor(self, seed):
        """Words that ask for some of the plans that dapple-exec may train, and some that it may not."""
        draw = random.Random(seed)
        words = ["--global-batch", draw.choice((3, 4, 6, 8)), "--shard",
                 draw.choice(("none", "optimizer", "full", "auto"))]
        pins = draw.choice(((), ("tensor=2",), ("context=2",), ("recompute=full",), ("stages=2",),
                            ("tensor=2", "stages=2"), ("recompute=core_attn", "replicas=1"),
                            ("recompute=full:1", "stages=2"), ("replicas=3",)))
        words += [word for pin in pins for word in ("--pin", pin)]
        if draw.random() < 0.3 and "--shard" in words:
            words += ["--schedule", draw.choice(("auto", "gpipe", "zb-h1", "interleaved"))]
        return words

    def test_what_is_planned_for_dapple_exec_is_trained_and_replayed(self):
        spec = json.loads((tool.ROOT / "profiles" / "gpt2-tiny.json").read_text())
        run = self.executor("profile", "--spec", self.write("spec.json", spec), "--tensor", "2",
                                "--context", "2", "--recompute", "full,core_attn", "--batch-sizes", "1,2",
                                "--repeat", "2", "-o", "model.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        topology = tool.ROOT / "topologies" / "4xcpu.json"
        trained = 0
        for trial in range(PROBLEMS):
            words = self.plan_for_executor(trial)
            with self.subTest(words=words):
                run = self.run_tool("plan", "--model", "model.json", "--topo", topology, "--for",
                                    "dapple-exec", *words, "-o", "plan.json")
                if run.returncode != DONE:
                    self.assertIn(run.returncode, (INFEASIBLE, USAGE, BAD_INPUT), run.stderr)
                    continue
                plan = self.read("plan.json")
                self.assertEqual(plan["request"]["for"], "dapple-exec")
                run = self.executor("train", "plan.json", "--steps", "1")
                self.assertEqual(run.returncode, DONE, run.stderr)
                run = self.run_tool("verify", "plan.json")
                self.assertIn(run.returncode, (DONE, NOT_VERIFIED), run.stdout + run.stderr)
                trained += 1
        self.assertGreater(trained, PROBLEMS // 2)
        # Plans of a form of which dapple-exec may refuse some are not made for it.
        run = self.run_tool("plan", "--model", "model.json", "--topo", topology, "--for", "dapple-exec",
                            "--global-batch", "8", "--shard", "full", "--pin", "context=1", "-o",
                            "plan.json")
        self.assertEqual(run.returncode, BAD_INPUT, run.stdout)
        self.assertIn("dapple-exec refuses plans in which devices of a group have different numbers of "
                      "samples", " ".join(run.stderr.split()))
        run = self.run_tool("plan", "--model", "model.json", "--topo", topology, "--global-batch", "8",
                            "--shard", "full", "--pin", "shards=2", "--pin", "context=1", "-o",
                            "full.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        full = self.read("full.json")
        full["request"]["for"] = "dapple-exec"
        run = self.run_tool("verify", self.write("full.json", full))
        self.assertEqual(run.returncode, BAD_INPUT, run.stdout + run.stderr)
        self.assertIn("/request/for", run.stdout + run.stderr)

    def assert_trained_for_executor(self, model, *words):
        """The plan for dapple-exec, which trains it; its bound is derived anew."""
        run = self.run_tool("plan", "--model", model, "--topo",
                            tool.ROOT / "topologies" / "4xcpu.json", "--for", "dapple-exec",
                            "--global-batch", "8", *words, "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.executor("train", "plan.json", "--steps", "1")
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool("verify", "plan.json")
        self.assertIn(run.returncode, (DONE, NOT_VERIFIED), run.stdout + run.stderr)
        return self.read("plan.json")

    def test_stages_that_recompute_different_numbers_of_layers_are_planned_for_dapple_exec(self):
        run = self.executor("profile", "--spec", tool.ROOT / "profiles" / "llama-tiny.json",
                            "--recompute", "full", "--batch-sizes", "1", "--repeat", "2", "-o",
                            "model.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        model = self.read("model.json")
        for layer in model["layers"]:
            for figures in (layer, *layer.get("variants", [])):
                for measured in figures["measurements"]:
                    for key in ("input_gradient_ns", "weight_gradient_ns"):
                        measured.pop(key, None)
                    passes = 3 if "recompute" in figures else 2
                    measured.update(forward_ns=10**6, backward_ns=passes * 10**6)
        self.write("model.json", model)
        topology = json.loads((tool.ROOT / "topologies" / "4xcpu.json").read_text())
        topology["servers"][0]["devices"] = 2
        losses = set()
        layers = set()
        for memory in ("1 GiB", "2700 KiB", "2400 KiB"):
            topology["devices"]["cpu"]["memory"] = memory
            run = self.run_tool("plan", "--model", "model.json", "--topo",
                                self.write("small.json", topology), "--for", "dapple-exec",
                                "--global-batch", "8", "--micro-batch", "1", "--pin", "stages=2",
                                "--per-stage", "--recompute-layers", "auto", "-o", "plan.json")
            self.assertEqual(run.returncode, DONE, run.stderr)
            plan = self.read("plan.json")
            forms = [plan.get("parallelism", {}), *plan.get("stage_forms", [])]
            layers.add(tuple(form.get("recomputed_layers", "all" if "recompute" in form else 0)
                             for form in (forms[stage.get("form", 0)] for stage in plan["stages"])))
            run = self.executor("train", "plan.json", "--steps", "3")
            self.assertEqual(run.returncode, DONE, run.stderr)
            losses.add(tuple(re.findall(r"loss (\S+)", run.stdout)))
            run = self.run_tool("verify", "plan.json")
            self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        self.assertEqual(len(losses), 1, losses)
        self.assertEqual(len(losses.pop()), 3)
        self.assertEqual(layers, {(0, 0), (1, 0), ("all", 1)})

    def test_stages_of_several_forms_and_dealt_ones_are_planned_for_dapple_exec(self):
        for name in ("llama-tiny", "gpt2-tiny"):  # in the second one layers share parameters
            run = self.executor("profile", "--spec", tool.ROOT / "profiles" / f"{name}.json",
                                "--tensor", "2", "--context", "2", "--batch-sizes", "1,2",
                                "--repeat", "2", "-o", f"{name}.json")
            self.assertEqual(run.returncode, DONE, run.stderr)
            # The first layers are faster by tensor ranks, the others by parts of the sequences.
            model = self.read(f"{name}.json")
            for number, layer in enumerate(model["layers"]):
                for variant in layer["variants"]:
                    by_tensor = variant["tensor_parallel"] > 1
                    of_first = number < len(model["layers"]) // 2
                    for measured in variant["measurements"]:
                        for key in ("input_gradient_ns", "weight_gradient_ns"):
                            measured.pop(key, None)
                        time = 1000 if by_tensor == of_first else 10**8
                        measured.update(forward_ns=time, backward_ns=time)
            self.write(f"{name}.json", model)
            for words in (("--groups", "any", "--pin", "stages=2"), ("--shard", "auto"),
                          ("--deal", "--micro-batch", "1")):
                with self.subTest(name=name, words=words):
                    self.assert_trained_for_executor(f"{name}.json", "--per-stage", *words)
        plan = self.assert_trained_for_executor("llama-tiny.json", "--per-stage", "--pin", "stages=2")
        self.assertEqual(len(plan["stage_forms"]), 1)
        plan["request"]["for"] = "deepspeed"
        run = self.run_tool("verify", self.write("other.json", plan))
        self.assertEqual(run.returncode, BAD_INPUT, run.stdout + run.stderr)
        self.assertIn("/request/per_stage", run.stdout + run.stderr)
        plan = self.assert_trained_for_executor(
            "llama-tiny.json", "--deal", "--micro-batch", "1", "--pin", "tensor=1", "--pin",
            "context=1", "--pin", "stages=2", "--pin", "replicas=2")
        self.assertEqual([stage["replication"] for stage in plan["stages"]], ["deal"] * 2)
        for word in ("--per-stage", "--deal"):  # other targets have neither
            run = self.run_tool("plan", "--model", "llama-tiny.json", "--topo",
                                tool.ROOT / "topologies" / "4xcpu.json", "--for", "megatron", word)
            self.assert_error(run, USAGE, word, "cannot be used with --for")

    def test_forms_that_dapple_exec_does_not_train_are_left_out_by_name(self):
        config = tool.ROOT / "profiles" / "configurations" / "mixtral-8x7b-v0.1.json"
        run = self.run_tool("plan", "--model", config, "--topo", tool.ROOT / "topologies" / "8xH100.json",
                            "--sequence", "512", "--global-batch", "8", "--for", "dapple-exec",
                            "--no-sequence-parallel", "--max-experts", "2", "--recompute", "full,norm",
                            "--planner", "dapple", "-o", "plan.json")
        self.assertIn(run.returncode, (DONE, INFEASIBLE), run.stderr)
        if run.returncode == DONE:
            reasons = {record["reason"] for record in self.read("plan.json")["parallelisms"]}
            self.assertIn("dapple-exec has no such recomputation", " ".join(reasons))

    def test_forms_that_only_fit_at_fewer_micro_batches_in_flight_do_not_lower_the_bound(self):
        # Some of these forms fit at smaller depths than Megatron-LM's alone. That no plan of them fits
        # at its own is proven by a search, and not left to the bound of their work.
        profile = tool.ROOT / "profiles" / "mixtral-8x7b.json"
        made = self.run_tool("--model", profile, "--topo", tool.ROOT / "topologies" / "4x8xA100.json",
                             "--time-scale", "2", "--global-batch", "64", "--shard", "optimizer",
                             "--for", "megatron", "--runtime", "megatron", "--pin", "tensor=4",
                             "--no-baselines", "--quiet", "-o", "moe.plan.json")
        self.assertEqual(made.returncode, DONE, made.stderr)
        plan = self.read("moe.plan.json")
        open_forms = [form for form in plan["parallelisms"] if form["reason"].startswith("none was found")]
        self.assertTrue(open_forms)
        iteration = plan["predicted"]["iteration_ns"]
        for form in open_forms:
            self.assertEqual(form["lower_bound_ns"], iteration)
        self.assertEqual(plan["predicted"]["lower_bound_ns"], iteration)

    def test_what_nanotron_does_not_cut_is_refused(self):
        ground = self.four_blocks()
        for pins in (("stages=4",), ("stages=2", "cut=block.1"), ("stages=2", "join=block.3"),
                     ("cut=block.1",)):
            with self.subTest(pins=pins):
                run = self.run_tool("plan", *ground, "--for", "nanotron",
                                    *(word for pin in pins for word in ("--pin", pin)), "-o", "plan.json")
                self.assert_error(run, USAGE, "--pin: expected stages as nanotron cuts the model itself, "
                                  f"got {', '.join(pins)}, which it has at no number of stages")
        # Of two boundaries one can be pinned.
        run = self.run_tool("plan", *ground, "--for", "nanotron", "--pin", "cut=block.2", "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual([stage["layers"] for stage in self.read("plan.json")["stages"]],
                         [[0, 3], [3, 4], [4, 6]])
        # nanotron's 1F1B needs two micro-batches on three stages.
        self.assertEqual(self.run_tool("plan", *ground, "--for", "nanotron", "--pin", "stages=3",
                                       "--micro-batch", "8", "-o", "plan.json").returncode, DONE)
        run = self.run_tool("plan", *ground, "--for", "nanotron", "--pin", "stages=3", "--micro-batch",
                            "16", "-o", "plan.json")
        self.assert_error(run, INFEASIBLE, "what nanotron can express")

    def test_a_plan_with_other_stages_is_none_for_nanotron(self):
        ground = self.four_blocks()
        run = self.run_tool("plan", *ground, "--for", "colossalai", "--pin", "stages=2", "--pin",
                            "cut=block.2", "-o", "other.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        other = self.read("other.json")
        other["request"]["for"] = "nanotron"
        other["request"]["pins"]["cuts"] = []
        run = self.run_tool("verify", self.write("other.json", other))
        self.assertEqual(run.returncode, BAD_INPUT, run.stdout + run.stderr)
        self.assertIn("/request/for", run.stdout + run.stderr)
        run = self.run_tool("import", "plan", "--layout", "pp=3,dp=1,mbs=16,gbs=16,layers=3:1:2", *ground,
                            "-o", "few.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assert_error(self.run_tool("export", "few.json", "--to", "nanotron"), BAD_INPUT,
                          "/num_micro_batches: expected at least 2, as many as nanotron begins with on "
                          "3 stages, got 1")


if __name__ == "__main__":
    tool.main()
