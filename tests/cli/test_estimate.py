"""Profiles that are estimated from configurations: as a user meets them, and what is refused.

Figures are compared with a second implementation in test_estimate_forms.py.
"""

import json
import shlex

import tool
from tool import BAD_INPUT, DONE, USAGE, ToolTest

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 6,
         "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 128,
         "vocab_size": 1000}


class Estimate(ToolTest):
    def configuration(self, **changes):
        """A small Llama; keys that are None are left out."""
        document = {**LLAMA, **changes}
        return self.write("config.json", {key: value for key, value in document.items()
                                          if value is not None})

    def estimate(self, *more, **changes):
        return self.run_tool("estimate", self.configuration(**changes), "--gpu", "H100",
                             "--sequence", "128", "-o", "out.json", *more)

    def topology(self, **devices):
        return self.write("t.json", {
            "schema": "dapple-topology/1", "name": "made", "source": "made up",
            "devices": devices or {"H100-80GB": {"memory": "80 GiB"}},
            "servers": [{"name": f"node-{i}", "count": 1, "device": kind, "devices": 4,
                         "links": {"kind": "switch", "bandwidth": "300 GB/s", "latency": "3 us"},
                         "nics": [{"bandwidth": "25 GB/s", "latency": "5 us"}]}
                        for i, kind in enumerate(devices or ["H100-80GB"])],
            "network": {"kind": "switch", "bandwidth": "25 GB/s", "latency": "1 us"}})

    def plan(self, *more):
        return self.run_tool("--model", self.configuration(), "--topo", "t.json",
                             "--global-batch", "16", "-o", "plan.json", *more)

    def test_a_plan_from_a_configuration(self):
        self.topology()
        run = self.plan("--sequence", "128")
        self.assertEqual(run.returncode, DONE, run.stderr)
        plan = self.read("plan.json")
        self.assertEqual(plan["model"]["profile"]["device"], "H100-80GB")
        self.assertRegex(plan["warnings"][0], "times are estimated by calibration h100-nanotron, not "
                                              "measured; it was fitted to 34 runs of .*, and such "
                                              "runs left out of the fit were .* % off on average")
        self.assertIn("memory is estimated without what frameworks keep", plan["warnings"][1])
        self.assertEqual(len(plan["parallelisms"]), 2 * 4)  # degrees 1 to 8; full or nothing
        run = self.run_tool("verify", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        # The same profile as a file makes the same plan.
        run = self.estimate()
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("8 layers estimated for H100-80GB", run.stdout)
        run = self.run_tool("--model", "out.json", "--topo", "t.json", "--global-batch", "16",
                            "-o", "again.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.read("again.json"), plan)

    def test_the_reason_of_one_server_is_worded_as_of_one(self):
        self.topology()
        self.assertEqual(self.plan("--sequence", "128").returncode, DONE)
        plan = self.read("plan.json")
        now, then = "and there is 1 node-0", "and there are 1 node-0"
        records = [one for one in plan["parallelisms"] if one["reason"].endswith(now)]
        self.assertEqual({one["parallelism"]["tensor"] for one in records}, {8})
        # Plans of older versions have another wording, and none a third one.
        for words, code in ((then, DONE), ("and there be 1 node-0", BAD_INPUT)):
            for one in records:
                one["reason"] = one["reason"].replace(now, words)
            run = self.run_tool("verify", self.write("older.json", plan))
            self.assertEqual(run.returncode, code, run.stdout + run.stderr)
            now = words

    def test_the_gpu_is_the_topology_s(self):
        # The kind of device has another name of the GPU.
        self.topology(**{"H100-SXM": {"memory": "80 GiB"}})
        for more in ((), ("--gpu", "h100")):
            run = self.plan("--sequence", "128", *more)
            self.assertEqual(run.returncode, DONE, run.stderr)
            self.assertEqual(self.read("plan.json")["model"]["profile"]["device"], "H100-SXM")
        self.topology(card={"memory": "1 GiB"})
        run = self.plan("--sequence", "128")
        self.assert_error(run, USAGE, "--gpu: expected one of V100-16GB, ",
                          'got "card", a kind of device of the topology')

    def test_a_topology_of_several_gpus(self):
        self.topology(**{"H100-SXM": {"memory": "80 GiB"}, "A100-80GB": {"memory": "80 GiB"}})
        run = self.plan("--sequence", "128")
        self.assertEqual(run.returncode, DONE, run.stderr)
        plan = self.read("plan.json")
        profile = plan["model"]["profile"]
        self.assertEqual(profile["device"], "A100-80GB")
        layer = profile["layers"][1]
        self.assertEqual([times["device"] for times in layer["other_times"]], ["H100-SXM"])
        warnings = [text for text in plan["warnings"] if "times are estimated" in text]
        self.assertEqual(len(warnings), 2, plan["warnings"])
        run = self.run_tool("verify", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        # Each kind has the times that it has alone, also in every variant.
        run = self.run_tool("estimate", self.configuration(), "--gpu", "A100-80GB,H100", "--sequence",
                            "128", "-o", "both.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("estimated for A100-80GB and H100-80GB", run.stdout)
        # The error is that of the calibration that is farther off: 3.6 % of A100, 5.2 % of H100.
        self.assertEqual(self.read("both.json")["calibration_error"], 0.051939653)
        self.assertEqual(self.estimate().returncode, DONE)
        alone = self.read("out.json")["layers"]
        both = self.read("both.json")["layers"]
        self.assertEqual(len(both), len(alone))
        for one, two in zip(alone, both):
            for own, joined in zip([one, *one.get("variants", [])], [two, *two.get("variants", [])]):
                times, = joined["other_times"]
                self.assertEqual(times["device"], "H100-80GB")
                self.assertEqual(times.get("fixed_overhead_ns"), own.get("fixed_overhead_ns"))
                for a, b in zip(own["measurements"], times["measurements"]):
                    self.assertEqual(b, {key: a[key] for key in b})
        # Of the kinds of a topology all are to be known, unless one is named.
        self.topology(card={"memory": "80 GiB", "time_scale": {"H100-80GB": 2}},
                      **{"H100-80GB": {"memory": "80 GiB"}})
        run = self.plan("--sequence", "128")
        self.assert_error(run, USAGE, "--gpu: ", 'got "card", a kind of device of the topology')
        run = self.plan("--sequence", "128", "--gpu", "H100")
        self.assertEqual(run.returncode, DONE, run.stderr)
        for names in ("H100,H100-80GB", "H100,", ","):
            run = self.run_tool("estimate", self.configuration(), "--gpu", names, "--sequence",
                                "128", "-o", "none.json")
            self.assert_error(run, USAGE, "--gpu: expected ")

    def test_a_gpu_without_a_calibration(self):
        run = self.run_tool("estimate", self.configuration(), "--gpu", "L4", "--sequence", "128",
                            "-o", "out.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("not measured; it is of A100-80GB, as there is none of L4",
                      self.read("out.json")["warnings"][0])
        # That of the nearest relative is taken where there is one.
        run = self.run_tool("estimate", self.configuration(), "--gpu", "H200", "--sequence", "128",
                            "-o", "out.json")
        self.assertIn("h100-nanotron, not measured; it is of H100-80GB, as there is none of H200",
                      self.read("out.json")["warnings"][0])

    def test_an_encoder_and_a_decoder(self):
        run = self.run_tool("estimate", self.write("config.json", {
            "model_type": "t5", "d_model": 64, "d_kv": 8, "d_ff": 128, "num_layers": 2,
            "num_heads": 8, "vocab_size": 100}), "--gpu", "H100", "--sequence", "64",
            "--decoder-sequence", "32", "-o", "out.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        layers = {layer["name"]: layer for layer in self.read("out.json")["layers"]}
        self.assertEqual(list(layers), ["embedding", "encoder.0", "encoder.1", "encoder_norm",
                                        "decoder_embedding", "decoder.0", "decoder.1", "head"])
        self.assertEqual(layers["decoder.1"]["inputs"], ["encoder_norm", "decoder.0"])
        self.assertEqual(layers["decoder_embedding"]["tied_to"], "embedding")
        self.assertEqual(layers["encoder.1"]["measurements"][0]["output_bytes"], 64 * 64 * 2)
        self.assertEqual(layers["decoder.1"]["measurements"][0]["output_bytes"], 32 * 64 * 2)

    def test_what_configurations_lack(self):
        for changes, *words in (
                ({"model_type": "mamba"}, "config.json: /model_type: expected one of the families "
                 "bert, deepseek_v3,", "profiles/README.md", 'got "mamba"'),
                ({"hidden_size": None}, "/hidden_size: expected an integer from 1 to 1048576, "
                 "but the key is missing"),
                ({"hidden_size": 0}, "/hidden_size: expected"),
                ({"hidden_size": 1 << 40}, "/hidden_size: expected"),
                ({"hidden_size": "64"}, "/hidden_size: expected"),
                ({"num_hidden_layers": 10**9}, "/num_hidden_layers: expected"),
                ({"num_key_value_heads": 3}, "/num_attention_heads: expected a multiple of the "
                 "heads of keys and values, of which there are 3, got 8"),
                ({"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5},
                 "/num_experts_per_tok: expected at most as many"),
                ({"model_type": "qwen2", "layer_types": ["full_attention"]},
                 "/layer_types: expected one for each of 6 layers, got 1"),
                ({"attention_dropout": 2}, "/attention_dropout: expected")):
            with self.subTest(changes=changes):
                run = self.estimate(**changes)
                self.assert_error(run, BAD_INPUT, *words)
                self.assertFalse((self.folder / "out.json").exists())
        # Several faults are told at once, and null is as good as nothing.
        run = self.estimate(hidden_size=None, vocab_size=-1)
        self.assert_error(run, BAD_INPUT, "/hidden_size", "/vocab_size")
        (self.folder / "config.json").write_text(json.dumps({**LLAMA, "head_dim": None}))
        run = self.run_tool("estimate", "config.json", "--gpu", "H100", "--sequence", "128")
        self.assertEqual(run.returncode, DONE, run.stderr)
        for text, words in (
                ("{", "config.json: line 1, column 2: expected"),
                ("[]", "expected an object"), ("{}", "/model_type: expected"),
                ('{"model_type": ""}', "/model_type: expected one of the families"),
                ('{"model_type": "vit", "model_type": "llama"}', "model_type"),
                ('{"schema": "dapple-profile/1"}', 'a model\'s configuration with "model_type"')):
            (self.folder / "config.json").write_text(text)
            run = self.run_tool("estimate", "config.json", "--gpu", "H100", "--sequence", "128")
            self.assert_error(run, BAD_INPUT, words)
        self.topology()
        (self.folder / "config.json").write_text(json.dumps(LLAMA) + "x")
        run = self.run_tool("--model", "config.json", "--topo", "t.json", "--sequence", "128")
        self.assert_error(run, BAD_INPUT, "config.json: line 1, column")
        # Every key once, as other readers may take another of them.
        (self.folder / "config.json").write_text(
            json.dumps(LLAMA)[:-1] + ', "hidden_size": 2048}')
        run = self.run_tool("estimate", "config.json", "--gpu", "H100", "--sequence", "128")
        self.assert_error(run, BAD_INPUT, "/hidden_size: ", "once")

    def test_options_that_do_not_fit(self):
        for more, *words in (
                (("--gpu", "H1000"), "--gpu"),
                (("--precision", "fp8"), "--precision"),
                (("--recompute", "core"), "--recompute: expected none, or different sets of "
                 "core_attn, norm,"),
                (("--recompute", "full,full"), "--recompute"),
                (("--recompute", "full+norm"), "--recompute"),
                (("--recompute", "moe"), "--recompute: expected parts that llama has, got moe"),
                (("--decoder-sequence", "4"), "--decoder-sequence: expected a model with an "
                 "encoder and a decoder, got llama"),
                (("--imbalance", "0.5"), "--imbalance: expected 1 or more"),
                (("--max-context", "1024", "--recompute", "full,norm,mlp,core_attn,norm+mlp"),
                 "--max-context: expected at most 128 ways to run a layer")):
            with self.subTest(more=more):
                options = ["--gpu", "H100", "--sequence", "4096", *more]
                if more[0] in ("--gpu", "--sequence"):
                    options = ["--sequence", "4096", *more]
                run = self.run_tool("estimate", self.configuration(num_attention_heads=64,
                                                                   num_key_value_heads=64),
                                    "-o", "out.json", *options)
                self.assert_error(run, USAGE, *words)
        run = self.run_tool("estimate", self.configuration(), "--gpu", "H100")
        self.assert_error(run, USAGE, "--sequence: expected the number of tokens of a sample")
        run = self.run_tool("estimate", self.configuration(), "--gpu", "V100", "--sequence", "128")
        self.assert_error(run, USAGE, "--precision: expected one that V100-16GB has matrix units "
                          "for, fp32, fp16, got bf16")
        run = self.run_tool("estimate", self.configuration(), "--gpu", "H100", "--sequence",
                            str(1 << 24), "--attention", "unfused")
        self.assert_error(run, BAD_INPUT, "config.json: expected a model whose layers have at most")
        # Learned positions end somewhere.
        gpt = self.write("gpt.json", {"model_type": "gpt2", "n_embd": 64, "n_head": 8,
                                      "n_layer": 2, "n_positions": 100, "vocab_size": 10})
        run = self.run_tool("estimate", gpt, "--gpu", "H100", "--sequence", "101")
        self.assert_error(run, USAGE, "--sequence: expected at most 100 tokens")
        # With a profile there is nothing to estimate.
        self.topology()
        run = self.run_tool("--model", self.write("m.json", tool.small_profile()), "--topo",
                            "t.json", "--sequence", "5")
        self.assert_error(run, USAGE, "--sequence: expected only with a model's configuration")

    def test_figures_of_other_gpus(self):
        gpus = {"schema": "dapple-gpus/1",
                "calibrations": [{"name": "half", "matrix": 0.5, "attention": 0.5, "memory": 0.5,
                                  "launch_floor": "3 ms", "source": "made up"}],
                "gpus": [{"name": "mine", "also": ["the other"], "calibration": "half",
                          "memory": "1 GiB", "memory_bandwidth": "100 GB/s",
                          "peak": {"fp32": "1 TFLOP/s"}, "source": "made up"}]}
        run = self.estimate("--gpus", self.write("g.json", gpus), "--precision", "fp32")
        self.assertEqual(run.returncode, DONE, run.stderr)  # Other GPUs stay as they are.
        run = self.estimate("--gpus", "g.json", "--gpu", "yours", "--precision", "fp32")
        self.assert_error(run, USAGE, "--gpu")
        run = self.run_tool("estimate", self.configuration(), "--gpus", "g.json", "--gpu",
                            "THE OTHER", "--sequence", "8", "--precision", "fp32", "-o", "out.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        block = self.read("out.json")["layers"][1]["measurements"]
        self.assertEqual(block[0]["forward_ns"], 3_000_000)
        self.assertEqual(block[0]["backward_ns"], 6_000_000)
        self.assertGreater(block[-1]["forward_ns"], 3_000_000)
        # How far off its calibration is nobody knows, nor then how far off those of both are.
        self.assertNotIn("calibration_error", self.read("out.json"))
        known = {**gpus, "calibrations": [{**gpus["calibrations"][0], "left_out_error": 0.25}]}
        self.write("known.json", known)
        for table, both, error in (("g.json", "H100,mine", None), ("g.json", "mine,H100", None),
                                   ("known.json", "H100,mine", 0.25)):
            run = self.run_tool("estimate", self.configuration(), "--gpus", table, "--gpu", both,
                                "--sequence", "8", "--precision", "fp32", "-o", "out.json")
            self.assertEqual(run.returncode, DONE, run.stderr)
            self.assertEqual(self.read("out.json").get("calibration_error"), error)
        for change, *words in (
                ({"gpus": [gpus["gpus"][0]] * 2}, "expected GPUs with names of their own, got"),
                ({"gpus": [{**gpus["gpus"][0], "peak": {}}]}, "/gpus/0/peak: expected the rate"),
                ({"gpus": [{**gpus["gpus"][0], "peak": {"bf16": "989 TFLOPS"}}]},
                 '/gpus/0/peak/bf16: expected a rate such as "989.4 TFLOP/s"'),
                ({"gpus": [{**gpus["gpus"][0], "calibration": "whole"}]},
                 "expected as calibration of mine one of the file's, got whole"),
                ({"calibrations": [{**gpus["calibrations"][0], "matrix": 1.5}]},
                 "/calibrations/0/matrix"),
                *(({"calibrations": [{**gpus["calibrations"][0], "left_out_error": error}]},
                   "/calibrations/0/left_out_error: expected a number from 0 to 1000 ", got)
                  for error, got in ((-0.05, "got -0.05"), ("5 %", 'got "5 %"'),
                                     (1000.5, "got 1000.5"))),
                ({"frameworks": [{"name": "mine"}]}, "/frameworks/0", "source"),
                ({"frameworks": [{"name": "mine", "source": "x"}] * 2},
                 "expected frameworks with names of their own, got mine twice"),
                ({"frameworks": [{"name": "mine", "source": "x", "bytes_per_parameter": 65}]},
                 "/frameworks/0/bytes_per_parameter"),
                ({"frameworks": [{"name": "mine", "source": "x", "keeps_gathered_inputs": 1}]},
                 "/frameworks/0/keeps_gathered_inputs"),
                ({"frameworks": [{"name": "mine", "source": "x", "keeps_activated_gates": 1}]},
                 "/frameworks/0/keeps_activated_gates"),
                ({"frameworks": [{"name": "mine", "source": "x", "keeps_core_output_twice": 1}]},
                 "/frameworks/0/keeps_core_output_twice"),
                ({"frameworks": [{"name": "mine", "source": "x" * 1001}]},
                 "/frameworks/0/source: expected a text of at most 1000 characters"),
                ({"frameworks": {}}, "/frameworks: expected an array"),
                ({"more": 1}, "/more")):
            with self.subTest(change=change):
                run = self.estimate("--gpus", self.write("g.json", {**gpus, **change}))
                self.assert_error(run, BAD_INPUT, "g.json: ", *words)

    def test_what_a_framework_keeps_is_counted_and_said(self):
        run = self.estimate("--framework", "nanotron")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("memory is estimated with what nanotron keeps in addition to the model: ", run.stderr)
        self.assertEqual(self.read("out.json")["optimizer"]["framework_bytes_per_parameter_byte"],
                         1.5)
        run = self.estimate()
        self.assertIn("memory is estimated without what frameworks keep", run.stderr)
        self.assertNotIn("framework_bytes_per_parameter_byte", self.read("out.json")["optimizer"])
        run = self.estimate("--framework", "none")
        self.assert_error(run, USAGE, "--framework: expected one of megatron-lm, nanotron, "
                          "nanotron-keeping-gathered, got none")

    def test_the_framework_of_a_target_is_counted(self):
        self.topology()
        for words, framework in ((("--for", "megatron"), "megatron-lm"),
                                 (("--for", "megatron-lm"), "megatron-lm"),
                                 (("--framework", "megatron"), "megatron-lm"),
                                 (("--for", "megatron", "--framework", "nanotron"), "nanotron"),
                                 (("--for", "deepspeed"), None)):
            with self.subTest(words=words):
                run = self.plan("--sequence", "128", "--no-baselines", *words)
                self.assertEqual(run.returncode, DONE, run.stderr)
                plan = self.read("plan.json")
                kept = (f"memory is estimated with what {framework} keeps" if framework
                        else "memory is estimated without what frameworks keep")
                self.assertTrue(any(kept in warning for warning in plan["warnings"]),
                                plan["warnings"])
                if "--for" in words:
                    self.assertEqual(plan["request"]["for"], words[1].removesuffix("-lm"))
        self.assertEqual(self.plan("--sequence", "128", "--for", "megatron-lm", "--runtime",
                                   "megatron-lm").returncode, DONE)
        run = self.run_tool("export", "plan.json", "--to", "megatron-lm", "-o", "a.sh")
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool("export", "plan.json", "--to", "megatron", "-o", "b.sh")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual((self.folder / "a.sh").read_text(), (self.folder / "b.sh").read_text())
        self.assertIn("--bf16", (self.folder / "a.sh").read_text())

    def test_degrees_that_are_asked_for_are_estimated(self):
        heads = {"num_attention_heads": 32, "num_key_value_heads": 16, "hidden_size": 256}
        self.topology()

        def tensor_degrees(*words):
            run = self.run_tool("--model", self.configuration(**heads), "--topo", "t.json",
                                "--global-batch", "16", "--sequence", "128", "--no-baselines", "-o",
                                "plan.json", *words)
            self.assertEqual(run.returncode, DONE, run.stderr)
            plan = self.read("plan.json")
            layer = plan["model"]["profile"]["layers"][1]
            return (max(variant["tensor_parallel"] for variant in layer["variants"]),
                    plan.get("parallelism", {}).get("tensor", 1))

        # A group of sixteen takes all four servers of four devices.
        topology = self.read("t.json")
        topology["servers"][0]["count"] = 4
        self.write("t.json", topology)
        self.assertEqual(tensor_degrees()[0], 8)
        self.assertEqual(tensor_degrees("--max-tensor", "2")[0], 8)
        self.assertEqual(tensor_degrees("--max-tensor", "16")[0], 16)
        self.assertEqual(tensor_degrees("--pin", "tensor=16"), (16, 16))
        self.assertFalse([text for text in self.read("plan.json")["warnings"] if "--max" in text])
        heads.update(num_attention_heads=4, num_key_value_heads=4)
        self.assertEqual(tensor_degrees("--max-tensor", "16")[0], 4)
        self.assertIn("--max-tensor 16: the largest degree is 4, as larger powers of two do not "
                      "divide the model's heads, widths or tokens", self.read("plan.json")["warnings"])
        heads.update(num_attention_heads=32, num_key_value_heads=16)
        self.assertEqual(tensor_degrees("--pin", "tensor=16"), (16, 16))
        run = self.run_tool("verify", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)

    def test_pinned_degrees_that_do_not_divide_the_model_are_refused_by_name(self):
        self.topology()
        model = {"num_attention_heads": 8, "num_key_value_heads": 4}
        mixture = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
        for changes, pin, words in (
                (model, "tensor=3", "8 attention heads cannot be divided among 3 tensor-parallel"),
                ({"num_attention_heads": 12, "num_key_value_heads": 4, "hidden_size": 96},
                 "tensor=6", "4 heads of keys and values cannot be divided among 6 tensor-"),
                ({**model, "intermediate_size": 129}, "tensor=2",
                 "129 columns of the feed-forward layer cannot be divided among 2 tensor-"),
                (model, "context=3", "128 tokens cannot be divided among 3 context-parallel"),
                (model, "experts=2", "no block has experts that could be divided among 2 expert-"),
                ({**model, **mixture}, "experts=3",
                 "8 experts cannot be divided among 3 expert-parallel ranks"),
                (model, "expert-tensor=2",
                 "no block has experts that could be divided among 2 expert-tensor-parallel ranks"),
                ({**model, **mixture, "intermediate_size": 130}, "expert-tensor=4",
                 "130 columns of an expert cannot be divided among 4 expert-tensor-parallel ranks")):
            with self.subTest(pin=pin, words=words):
                run = self.run_tool("--model", self.configuration(**changes), "--topo", "t.json",
                                    "--global-batch", "16", "--sequence", "128", "--pin", pin,
                                    "-o", "plan.json")
                self.assert_error(run, USAGE, "--pin: expected degrees that divide the model, but "
                                  + words)
        run = self.run_tool("--model", self.configuration(**model, **mixture), "--topo", "t.json",
                            "--global-batch", "16", "--sequence", "128", "--pin", "experts=4",
                            "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.read("plan.json")["parallelism"]["experts"], 4)

    def test_why_pinned_degrees_have_no_groups_is_said_of_the_degree_that_is_the_cause(self):
        self.topology()
        mixture = self.configuration(
            model_type="mixtral", num_local_experts=8, num_experts_per_tok=2)
        inputs = ("--model", mixture, "--topo", "t.json", "--global-batch", "16", "--sequence",
                  "128", "--pin", "expert-tensor=8", "-o", "plan.json", "--pin")
        got = "expected degrees of parallelism that layers and servers have, got experts "
        # The batch has too few samples for so many ranks, too, but no other one has such groups.
        self.assert_error(self.run_tool(*inputs, "experts=8"), BAD_INPUT,
                          f"--pin: {got}8, expert-tensor 8: a group has 64 devices, and there are 4")
        self.assert_error(self.run_tool(*inputs, "experts=1"), BAD_INPUT,
                          f"--pin: {got}1, expert-tensor 8: devices share an expert only where "
                          "experts are on different devices")
        run = self.run_tool("estimate", mixture, "--gpu", "H100", "--sequence", "128",
                            "--max-expert-tensor", "2", "-o", "saved.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        inputs = ("--model", "saved.json", "--topo", "t.json", "--global-batch", "16", "--pin",
                  "experts=8", "-o", "plan.json", "--pin")
        self.assert_error(self.run_tool(*inputs, "expert-tensor=8"), BAD_INPUT,
                          f"{got}8, expert-tensor 8: not every layer has a variant of expert-tensor "
                          "8, but of 1, 2")

    def test_pins_leave_few_of_many_ways(self):
        self.topology()
        mixture = self.configuration(
            model_type="mixtral", num_local_experts=8, num_experts_per_tok=2)
        # Degrees of 1 to 4, 1 to 16, 1 to 8 and, with experts, 1 to 4, not all of which go together.
        many = ("--sequence", "128", "--max-context", "16", "--max-expert-tensor", "4")
        run = self.run_tool("estimate", mixture, "--gpu", "H100", "-o", "m.json", *many)
        self.assert_error(run, USAGE, "expected at most 128 ways to run a layer, got ",
                          "fewer are left by smaller values of --max-tensor, --max-context, "
                          "--max-experts or --max-expert-tensor\n")
        self.assertNotIn("--pin", run.stderr)
        inputs = ("--model", mixture, "--topo", "t.json", "--global-batch", "16", "-o", "plan.json",
                  *many)
        run = self.run_tool(*inputs, "--recompute", "full,norm")
        self.assert_error(run, USAGE, "--max-experts or --max-expert-tensor, by --pin with their "
                          "degrees or by fewer sets of --recompute\n")
        run = self.run_tool(*inputs, "--pin", "context=1", "--recompute", "full,norm,mlp,core_attn")
        self.assertIn(run.returncode, (DONE, USAGE), run.stderr)
        run = self.run_tool(*inputs, "--pin", "tensor=2", "--pin", "context=2", "--pin", "experts=2",
                            "--pin", "expert-tensor=2")
        self.assertEqual(run.returncode, DONE, run.stderr)
        plan = self.read("plan.json")
        self.assertEqual(plan["parallelism"]["context"], 2)
        self.assertFalse([text for text in plan["warnings"] if "is not planned" in text])
        self.assertEqual(self.run_tool("verify", "plan.json").returncode, DONE)
        # The same pins where there are few ways anyway.
        run = self.run_tool(*inputs[:-4], "--max-context", "2", "--max-expert-tensor", "2", "--pin",
                            "tensor=2", "--pin", "context=2", "--pin", "experts=2", "--pin",
                            "expert-tensor=2")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.read("plan.json")["predicted"], plan["predicted"])

    def test_devices_that_share_an_expert(self):
        # 128 tokens on two tensor ranks, each of two experts: a rank sends 2 * 64 rows of 64 numbers
        # of two bytes, 16 KiB, and two that share an expert have those of both.
        self.topology()
        mixture = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2,
                   "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64,
                   "intermediate_size": 96}
        inputs = ("--model", self.configuration(**mixture), "--topo", "t.json", "--global-batch",
                  "16", "--sequence", "128")
        pins = ("--pin", "tensor=2", "--pin", "experts=2", "--pin", "expert-tensor=2")
        run = self.run_tool(*inputs, *pins, "--pin", "stages=1", "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        plan = self.read("plan.json")
        self.assertEqual(plan["parallelism"], {"tensor": 2, "sequence": True, "experts": 2,
                                               "expert_tensor": 2})
        self.assertEqual(plan["request"]["pins"]["expert_tensor"], 2)
        self.assertEqual(self.run_tool("verify", "plan.json").returncode, DONE)
        block = next(layer for layer in plan["model"]["profile"]["layers"]
                     if layer["name"] == "block")
        own, whole = (next(variant for variant in block["variants"] if (
            variant["tensor_parallel"], variant.get("expert_parallel"), "recompute" in variant,
            variant.get("expert_tensor_parallel")) == (2, 2, False, sharing)) for sharing in (2, 1))
        # Two experts of three matrices of 64 by 96, and half of that; two bytes each.
        self.assertEqual(whole["expert_parameter_bytes"], 2 * 3 * 64 * 96 * 2)
        self.assertEqual(own["expert_parameter_bytes"], 3 * 64 * 96 * 2)
        exchange = {"kind": "all-to-all", "over": "experts", "bytes_per_sample": 16 << 10, "count": 2}
        shared = [{"kind": kind, "over": "expert-tensor", "bytes_per_sample": 32 << 10}
                  for kind in ("all-gather", "reduce-scatter")]
        for way in ("forward", "backward"):
            self.assertEqual([one for one in own[f"{way}_collectives"] if "over" in one],
                             [exchange, *shared])
            self.assertEqual([one for one in whole[f"{way}_collectives"] if "over" in one],
                             [exchange])
        # Kept besides are the rows of the other rank, while activations are twice as many of half
        # the width.
        self.assertEqual(own["measurements"][0]["stash_bytes"]
                         - whole["measurements"][0]["stash_bytes"], 16 << 10)
        # Layouts, exports and alternatives know them.
        run = self.run_tool("estimate", inputs[1], "--gpu", "H100", "--sequence", "128",
                            "--max-expert-tensor", "2", "-o", "saved.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool("simulate", "--layout", "tp=2,sp=on,ep=2,etp=2,mbs=1,pp=1,dp=2",
                            "--model", "saved.json", "--topo", "t.json", "--global-batch", "16")
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool("export", "plan.json", "--to", "megatron", "-o", "-")
        self.assertIn("--expert-tensor-parallel-size 2", run.stdout)
        run = self.run_tool(*inputs, "--max-expert-tensor", "2", "--alternatives", "9", "-o",
                            "free.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.run_tool("verify", "free.json").returncode, DONE)
        run = self.run_tool(*inputs, "--pin", "expert-tensor=1", "-o", "whole.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool(*inputs, "--pin", "expert-tensor=0", "-o", "plan.json")
        self.assert_error(run, USAGE, "expected expert-tensor=N with N from 1 to 1024")

    def test_layouts_without_variants_name_the_nearest_forms(self):
        self.topology()
        mixture = self.configuration(
            model_type="mixtral", num_local_experts=8, num_experts_per_tok=2)
        run = self.run_tool("estimate", mixture, "--gpu", "H100", "--sequence", "128",
                            "--max-context", "4", "-o", "saved.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        inputs = ("--model", "saved.json", "--topo", "t.json", "--global-batch", "16")
        run = self.run_tool("simulate", *inputs, "--layout", "tp=2,sp=on,cp=3,ep=2,etp=1,mbs=1")
        # Degrees of 1 to 4, 1 to 4 and 1 to 8, of which a group of 12 has no 8 experts.
        self.assert_error(run, BAD_INPUT, "expected degrees for which all layers have variants, ",
                          "tensor 2, sequence, context 2, experts 2; ", " others, got tensor 2, "
                          "sequence, context 3, experts 2")
        self.assertRegex(run.stderr, r"; or one of \d\d others, got ")
        self.assertLess(len(run.stderr), 500)

    def test_saved_estimates_refuse_degrees_by_name_too(self):
        self.topology()
        configuration = self.configuration(
            num_attention_heads=12, num_key_value_heads=4, hidden_size=96, model_type="mixtral",
            num_local_experts=8, num_experts_per_tok=2)
        run = self.run_tool("estimate", configuration, "--gpu", "H100", "--sequence", "128", "-o",
                            "saved.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.read("saved.json")["blocks"],
                         [{"attention_heads": 12, "key_value_heads": 4, "experts": 8}])
        for pin, layout, words in (
                ("tensor=5", "tp=5", "12 attention heads cannot be divided among 5 tensor-parallel"),
                ("tensor=6", "tp=6", "4 heads of keys and values cannot be divided among 6 tensor-"),
                ("experts=3", "ep=3", "8 experts cannot be divided among 3 expert-parallel ranks")):
            inputs = ("--model", "saved.json", "--topo", "t.json", "--global-batch", "16")
            with self.subTest(pin=pin):
                run = self.run_tool(*inputs, "--pin", pin, "-o", "plan.json")
                self.assert_error(run, BAD_INPUT, words)
                run = self.run_tool("simulate", *inputs, "--layout", f"{layout},mbs=1")
                self.assert_error(run, BAD_INPUT,
                                  "--layout: expected degrees that divide the model, but " + words)

    def test_an_exported_decoder_has_the_names_of_torchtitan(self):
        self.topology()
        run = self.plan("--sequence", "128", "--for", "torchtitan", "--pin", "stages=2")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.read("plan.json")["model"]["profile"]["precision"], "bf16")
        for target, name in (("torchtitan", "t.sh"), ("torch-csv", "t.csv")):
            run = self.run_tool("export", "plan.json", "--to", target, "-o", name)
            self.assertEqual(run.returncode, DONE, run.stderr)
        text = (self.folder / "t.sh").read_text()
        self.assertIn('[["tok_embeddings"', text)
        self.assertIn('"layers.0", "layers.1"', text)
        self.assertIn('"norm", "output"]]', text)
        # They are read back, and mean the same layers.
        self.write("model.json", self.read("plan.json")["model"]["profile"])
        run = self.run_tool("import", "plan", "t.sh", "t.csv", "--model", "model.json", "--topo",
                            "t.json", "-o", "back.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual([stage["layers"] for stage in self.read("back.json")["stages"]],
                         [stage["layers"] for stage in self.read("plan.json")["stages"]])
        # The head is both modules, in this order.
        for words, fault in (('"output", "norm"', 'expected a layer of the profile, got "output"'),
                             ('"output"', 'expected a layer of the profile, got "output"'),
                             ('"norm"', 'expected "output" behind "norm", got nothing'),
                             ('"norm", "norm"', 'expected "output" behind "norm", got "norm"')):
            with self.subTest(words=words):
                self.write("wrong.sh", text.replace('"norm", "output"', words))
                run = self.run_tool("import", "plan", "wrong.sh", "t.csv", "--model", "model.json",
                                    "--topo", "t.json", "-o", "back.json")
                self.assert_error(run, BAD_INPUT, "module_fqns_per_model_part", fault)

    def test_names_are_not_code(self):
        folder = self.folder / "$(touch x); \x1b[31m"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(LLAMA))
        run = self.run_tool("estimate", f"{folder}/config.json", "--gpu", "H100", "--sequence",
                            "128")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertNotIn("\x1b", run.stdout)
        (written,) = self.folder.glob("*.profile.json")
        self.assertRegex(written.name, r"^[A-Za-z0-9._-]+$")

    def test_shipped_profiles_are_what_their_commands_make(self):
        readme = (tool.ROOT / "profiles" / "README.md").read_text()
        commands = [line.strip() for line in readme.splitlines()
                    if line.strip().startswith("dapple-plan estimate profiles/")]
        self.assertGreaterEqual(len(commands), 5)
        for command in commands:
            words = shlex.split(command)[1:]
            shipped = tool.ROOT / words[-1]
            words = [str(tool.ROOT / word) if word.startswith("profiles/") else word
                     for word in words]
            with self.subTest(profile=shipped.name):
                run = self.run_tool(*words[:-1], "out.json")
                self.assertEqual(run.returncode, DONE, run.stderr)
                self.assertEqual((self.folder / "out.json").read_text(), shipped.read_text())


if __name__ == "__main__":
    tool.main()
