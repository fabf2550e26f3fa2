"""Proofs of bounds: plans whose proof is checked, and proofs that were tampered with."""

import copy
import json
import unittest

import tool
from tool import BAD_INPUT, DONE, NOT_VERIFIED, USAGE, ToolTest

NODES = "resnet-50", "4x8xA100"  # a problem of it needs nodes
SEARCH = "gnmt-16", "2x8xV100"  # a problem of it is searched again


class Proofs(ToolTest):
    def plan(self, of, *more, code=DONE):
        model, topology = of
        result = self.run_tool("--model", tool.ROOT / "profiles" / f"{model}.json", "--topo",
                               tool.ROOT / "topologies" / f"{topology}.json", "--no-baselines",
                               "-o", "plan.json", "--proof", "proof.json", *more)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def verify(self, proof):
        return self.run_tool("verify", "plan.json", "--proof", self.write("other.json", proof))

    def refused(self, proof, *parts):
        result = self.verify(proof)
        self.assertEqual(result.returncode, BAD_INPUT, (parts, result.stdout))
        self.assertIn("error: other.json: ", result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)

    def test_what_was_written_is_accepted(self):
        for of, repeated in ((NODES, False), (SEARCH, True)):
            with self.subTest(of=of):
                result = self.plan(of)
                self.assertIn("proof written to proof.json\n", result.stdout)
                checked = self.run_tool("verify", "plan.json", "--proof", "proof.json")
                self.assertEqual(checked.returncode, DONE, checked.stderr)
                words = " ".join(checked.stdout.split())
                self.assertRegex(words, r"bound proven anew: no plan below (\S+ ms); the file "
                                        r"claims \1 \(from the work that every plan has, and the "
                                        r"proofs of \d+ problems, \d+ nodes")
                self.assertEqual("without nodes were searched again" in words, repeated, words)
                proof = self.read("proof.json")
                self.assertEqual(any(problem.get("nodes") for problem in proof["problems"]),
                                 not repeated)
                self.assertEqual(proof["lower_bound_ns"],
                                 self.read("plan.json")["predicted"]["lower_bound_ns"])

    def test_a_figure_that_is_changed_by_one_is_refused(self):
        self.plan(NODES)
        proof = self.read("proof.json")
        nodes = [(position, number) for position, problem in enumerate(proof["problems"])
                 for number in range(len(problem["nodes"]))]
        # Each figure of some node, and all of all nodes where many random trials are asked for.
        figures = (0, 1, *range(5, 13))
        for figure in figures:
            shown = nodes if tool.SCALE > 1 else [nodes[figure % len(nodes)]]
            for position, number in shown:
                # With a lower depth a node may stand for others of its state too.
                for change in (1,) if figure == 5 else (1, -1):
                    other = copy.deepcopy(proof)
                    other["problems"][position]["nodes"][number][figure] += change
                    self.refused(other, f"/problems/{position}/nodes")

    def test_what_is_left_out_added_or_moved_is_refused(self):
        self.plan(NODES)
        proof = self.read("proof.json")
        problems = proof["problems"]
        position = next(i for i, problem in enumerate(problems) if problem["nodes"])
        for number in (0, len(problems[position]["nodes"]) - 1):
            other = copy.deepcopy(proof)
            del other["problems"][position]["nodes"][number]
            self.refused(other, f"/problems/{position}/nodes: expected a node for stages from layer")
        other = copy.deepcopy(proof)
        nodes = other["problems"][position]["nodes"]
        nodes.append(nodes[0])
        self.refused(other, f"/problems/{position}/nodes/{len(nodes) - 1}: expected nodes by falling "
                            "layer, then by rising number of devices, got another order")
        other = copy.deepcopy(proof)
        other["problems"].append(other["problems"][0])
        self.refused(other, f"/problems/{len(problems)}: expected no more problems, got that of "
                            f"micro-batches of {problems[0]['micro_batch_size']}, buckets of ")
        other = copy.deepcopy(proof)
        del other["problems"][0]
        self.refused(other, "/problems/0: expected the proof of micro-batches of "
                            f"{problems[0]['micro_batch_size']}, buckets of ",
                     f"got that of micro-batches of {problems[1]['micro_batch_size']}, ")
        other["problems"] = []
        self.refused(other, "/problems/0: expected the proof of micro-batches of ", "got none")

    def test_a_proof_is_of_one_plan_and_one_bound(self):
        self.plan(NODES)
        proof = self.read("proof.json")
        other = dict(proof, plan_sha256="0" * 64)
        self.refused(other, "/plan_sha256: expected ", "got 000000000000..., that of another one")
        for more in (1, -1):
            other = dict(proof, lower_bound_ns=proof["lower_bound_ns"] + more)
            self.refused(other, "/lower_bound_ns: expected "
                                f"{proof['lower_bound_ns']}, as the plan states, got ")
        self.refused("[1", "line 1")
        # Figures that do not fit into any type.
        position = next(i for i, problem in enumerate(proof["problems"]) if problem["nodes"])
        for figure, value in ((2, 1 << 31), (6, 1 << 60), (0, 10**6), (1, 2**31 - 1), (4, 10**15)):
            other = copy.deepcopy(proof)
            other["problems"][position]["nodes"][0][figure] = value
            self.refused(other, f"/problems/{position}/nodes")

    def test_the_proof_of_a_targets_plan_names_its_parts(self):
        self.plan(("bert-large", "8xV100"), "--for", "megatron", "--global-batch", "32")
        problems = self.read("proof.json")["problems"]
        self.assertTrue(problems)
        for problem in problems:
            self.assertIn("replicas", problem)
            self.assertIn("recompute", problem)
        result = self.run_tool("verify", "plan.json", "--proof", "proof.json")
        self.assertEqual(result.returncode, DONE, result.stdout + result.stderr)

    def test_forms_of_parallelism_are_proven_one_by_one(self):
        self.plan(("llama-3-8b", "8xH100"), "--shard", "auto", "--global-batch", "64")
        forms = [json.dumps(problem["parallelism"]) for problem in
                 self.read("proof.json")["problems"]]
        self.assertGreater(len(set(forms)), 1)
        result = self.run_tool("verify", "plan.json", "--proof", "proof.json")
        self.assertEqual(result.returncode, DONE, result.stdout + result.stderr)

    def test_forms_whose_plans_a_set_has_are_proven_with_it(self):
        self.plan(("llama-3-8b", "8xH100"), "--per-stage", "--recompute-layers", "auto")
        plan, proof = self.read("plan.json"), self.read("proof.json")
        sets = [problem for problem in proof["problems"] if "stage_forms" in problem]
        self.assertEqual(len(sets), len(proof["problems"]))
        self.assertEqual(self.verify(proof).returncode, DONE)
        # Of the forms that the first set has, which has groups of one device, none was searched.
        first = [problem for problem in sets if problem["parallelism"] == sets[0]["parallelism"]]
        forms = [first[0]["parallelism"], *first[0]["stage_forms"]]
        records = [record for record in plan["parallelisms"]
                   if record["parallelism"] in forms and "stage_forms" not in record]
        self.assertEqual(len(records), len(forms))
        for record in records:
            self.assertIn("not searched", record["reason"])
        # Files of older versions have proofs of such forms, in front of those of sets.
        some_layers = [form for form in forms if form.get("recomputed_layers") == 2]
        self.assertEqual(len(some_layers), 1)
        own = [{**{key: value for key, value in problem.items() if key != "stage_forms"},
                "parallelism": some_layers[0]} for problem in first]
        self.assertEqual(self.verify({**proof, "problems": own + proof["problems"]}).returncode,
                         DONE)
        if len(own) > 1:
            self.refused({**proof, "problems": own[1:] + proof["problems"]}, "/problems/0")

    def test_what_is_written_for_any_schedule_is_accepted(self):
        written = 0
        for schedule in ("gpipe", "interleaved", "list-scheduled", "zb-h1", "auto"):
            for of in (("bert-large", "8xV100"), ("vgg-19", "8xV100")):
                with self.subTest(schedule=schedule, of=of):
                    result = self.run_tool(
                        "--model", tool.ROOT / "profiles" / f"{of[0]}.json", "--topo",
                        tool.ROOT / "topologies" / f"{of[1]}.json", "--no-baselines", "--schedule",
                        schedule, "-o", "plan.json", "--proof", "proof.json")
                    if result.returncode == NOT_VERIFIED:
                        self.assertIn("no proof is written: what the search proved of schedules "
                                      "other than 1f1b and gpipe could not be derived again",
                                      result.stderr)
                        self.assertFalse((self.folder / "proof.json").exists())
                        continue
                    self.assertEqual(result.returncode, DONE, result.stderr)
                    checked = self.run_tool("verify", "plan.json", "--proof", "proof.json")
                    self.assertEqual(checked.returncode, DONE, checked.stdout + checked.stderr)
                    (self.folder / "proof.json").unlink()
                    written += 1
        self.assertGreater(written, 4)

    def test_a_result_names_the_proof(self):
        self.plan(NODES)
        result = self.run_tool("verify", "plan.json", "--proof", "proof.json", "--json")
        verification = json.loads(result.stdout)["verification"]
        self.assertEqual((verification["bound"], verification["proof"]), ("proven", "proof-file"))

    def test_usage(self):
        made = ("--model", tool.ROOT / "profiles" / "gnmt-16.json", "--topo",
                tool.ROOT / "topologies" / "8xV100.json")
        self.assert_error(self.run_tool(*made, "--planner", "dapple", "--proof", "proof.json"),
                          USAGE, "error: --proof: needs --planner exact")
        self.assert_error(self.run_tool(*made, "-o", "same.json", "--proof", "same.json"), USAGE,
                          "same.json")
        self.assertEqual(list(self.folder.iterdir()), [])
        result = self.run_tool(*made, "-o", "plan.json", "--no-baselines", "--proof", "-")
        self.assertEqual(json.loads(result.stdout)["schema"], "dapple-proof/1")
        again = self.run_tool("verify", "plan.json", "--proof", "-", input=result.stdout)
        self.assertEqual(again.returncode, DONE, again.stderr)


if __name__ == "__main__":
    tool.main()
