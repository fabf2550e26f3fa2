"""How ranks with different experts exchange tokens: prices of a dispatcher that merges copies with
their arithmetic, estimates for runtimes that have one, and what is refused. Costs of stages are
compared with a second implementation in test_parallelism_costs.py."""

import tool
from tool import BAD_INPUT, DONE, ToolTest

MILLISECOND = 10**6  # nanoseconds; a megabyte takes one at 1 GB/s
RANKS = 4
MERGED = {"copies": 2, "experts": 8}
OWN = {"schema": "dapple-runtime/1", "name": "own", "source": "made up", "transfers": "overlapped",
       "gradient_overlap": "buckets", "depths": "any"}


def exchange(merged=None, **changes):
    """Two all-to-alls of 14 MB of tokens, each of which goes to two experts."""
    one = {"kind": "all-to-all", "over": "experts", "bytes_per_sample": 28 * 10**6, "count": 2}
    return {**one, **({"merged": merged} if merged else {}), **changes}


def profile(one):
    """Two layers of experts on four ranks, which compute each in 10 and 20 ms."""
    figures = {"batch_size": 1, "forward_ns": 10 * MILLISECOND, "backward_ns": 20 * MILLISECOND,
               "output_bytes": 0, "stash_bytes": 0}
    variant = {"tensor_parallel": 1, "expert_parallel": RANKS, "parameter_bytes": 1000,
               "expert_parameter_bytes": 1000, "measurements": [figures],
               "forward_collectives": [one], "backward_collectives": [one]}
    whole = {**figures, "forward_ns": 40 * MILLISECOND, "backward_ns": 80 * MILLISECOND}
    return {"schema": "dapple-profile/1", "name": "made", "source": "made up",
            "global_batch_size": 4, "device": "card", "batch_scaling": "proportional",
            "optimizer": {"name": "sgd", "state_bytes_per_parameter_byte": 0},
            "layers": [{"name": f"block.{i}", "parameter_bytes": 4000, "measurements": [whole],
                        "variants": [variant]} for i in range(2)]}


def topology(servers=2, inside="10 GB/s"):
    """Four devices, with a NIC of 1 GB/s each."""
    link = {"bandwidth": "1 GB/s", "latency": "0 ns", "source": "made up"}
    return {"schema": "dapple-topology/1", "name": "made", "source": "made up",
            "devices": {"card": {"memory": "1 GB", "reserved": "0 B"}},
            "servers": [{"name": "s", "count": servers, "device": "card",
                         "devices": RANKS // servers, "nics": [link] * (RANKS // servers),
                         "links": {"kind": "switch", **link, "bandwidth": inside}}],
            "network": {"kind": "switch", **link}}


class Dispatcher(ToolTest):
    def exchanged(self, one, cluster=None):
        """Nanoseconds of one all-to-all in the plan, in which each rank has a sample."""
        plan = self.verified_plan(profile(one), cluster or topology(), "--pin", f"experts={RANKS}")
        predicted = plan["predicted"]
        self.assertEqual(predicted["lower_bound_ns"], predicted["iteration_ns"])
        exchanged = predicted["time_parts"]["collectives_ns"]
        self.assertEqual(predicted["iteration_ns"], 60 * MILLISECOND + exchanged)
        self.assertEqual(exchanged % 8, 0)
        return exchanged // 8

    def test_a_token_goes_once_to_another_server(self):
        # Half of 28 MB one by one. Merged, neither copy of a token is for the other server in 4 * 3
        # of 8 * 7 cases, and 11/14 of 14 MB pass: 11/28 of 28 MB, in billionths rounded up.
        self.assertEqual(self.exchanged(exchange()), 14 * MILLISECOND)
        self.assertEqual(self.exchanged(exchange(MERGED)), 11 * MILLISECOND + 1)
        self.assertEqual(self.exchanged(exchange({"copies": 1, "experts": 8})), 14 * MILLISECOND)
        # All of four experts: a quarter.
        self.assertEqual(self.exchanged(exchange({"copies": 4, "experts": 4})), 7 * MILLISECOND)

    def test_copies_are_sent_on_within_a_server(self):
        # A rank sends a quarter of 28 MB to the other one at 0.5 GB/s and, where copies are merged,
        # as much that has come from the other server.
        slow = topology(inside="0.5 GB/s")
        self.assertEqual(self.exchanged(exchange(), slow), 14 * MILLISECOND)
        self.assertEqual(self.exchanged(exchange(MERGED), slow), 28 * MILLISECOND)
        # Within one server nothing is merged: three quarters at 1 GB/s.
        one = topology(1, "1 GB/s")
        self.assertEqual(self.exchanged(exchange(), one), 21 * MILLISECOND)
        self.assertEqual(self.exchanged(exchange(MERGED), one), 21 * MILLISECOND)

    def estimated(self, *more):
        """Layers of a small configuration with experts, as the plan has them."""
        config = {"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 96,
                  "vocab_size": 1000, "num_local_experts": 4, "num_experts_per_tok": 2}
        cluster = topology()
        cluster["devices"] = {"H100": {"memory": "80 GiB", "reserved": "0 B", "source": "made up"}}
        cluster["servers"][0]["device"] = "H100"
        run = self.run_tool("--model", self.write("config.json", config), "--topo",
                            self.write("h100.json", cluster), "--sequence", "64", "--global-batch",
                            "4", "--max-tensor", "1", "-o", "plan.json", *more)
        self.assertEqual(run.returncode, DONE, run.stderr)
        return self.read("plan.json")["model"]["profile"]["layers"]

    def test_configurations_are_estimated_as_the_runtime_has_it(self):
        plain = self.estimated()
        for words in (("megatron",), ("dapple-exec",)):
            self.assertFalse(list(merged_of(self.estimated("--runtime", *words))))
        own = self.write("own.json", {**OWN, "dispatcher": "all-to-all"})
        self.assertEqual(self.estimated("--runtime", own), plain)
        self.assertNotIn("dispatcher", self.read("plan.json")["runtime"])
        own = self.write("own.json", {**OWN, "dispatcher": "merging"})
        layers = self.estimated("--runtime", own)
        self.assertEqual(self.read("plan.json")["runtime"]["dispatcher"], "merging")
        self.assertEqual(self.run_tool("verify", "plan.json").returncode, DONE)
        # Every exchange between experts, recomputed ones too, and nothing else is otherwise.
        stated = list(merged_of(layers))
        self.assertTrue(any("recompute" in variant for variant, _ in stated))
        for _, one in stated:
            self.assertEqual(one.pop("merged"), {"copies": 2, "experts": 4})
        self.assertEqual(len(stated), sum(
            one["kind"] == "all-to-all" for layer in layers for variant in layer["variants"]
            for one in collectives_of(variant)))
        self.assertEqual(layers, plain)

    def test_the_launch_line_of_megatron_asks_for_it(self):
        flags = "  --moe-token-dispatcher-type flex\n  --moe-enable-deepep\n"
        for merged in (MERGED, None):
            self.verified_plan(profile(exchange(merged)), topology(), "--pin", f"experts={RANKS}")
            run = self.run_tool("export", "plan.json", "--to", "megatron", "-o", "back.sh")
            self.assertEqual(run.returncode, DONE, run.stderr)
            script = (self.folder / "back.sh").read_text()
            self.assertEqual(flags in script, merged is not None)
            self.assertEqual(script.count("--moe"), 2 if merged else 0)
            run = self.run_tool("import", "plan", "back.sh", "--model", "m.json", "--topo",
                                "t.json", "-o", "back.json")
            self.assertEqual(run.returncode, DONE, run.stderr)
            self.assertEqual(self.read("back.json")["predicted"]["iteration_ns"],
                             self.read("plan.json")["predicted"]["iteration_ns"])
            self.assertNotIn("deepep", run.stderr)
        for asked in (flags, "  --moe-token-dispatcher-type flex\n", "  --moe-enable-deepep\n"):
            self.assertIn("that the dispatcher merges copies of tokens is left out: the profile prices "
                          "a copy of each token for every expert", self.warnings_of(script, asked))
        self.verified_plan(profile(exchange(MERGED)), topology(), "--pin", f"experts={RANKS}")
        for asked in ("", "  --moe-token-dispatcher-type alltoall\n"):
            self.assertIn("that the dispatcher sends a copy of each token for every expert is left out: "
                          "the profile prices copies that are merged", self.warnings_of(script, asked))

    def warnings_of(self, script, flags):
        """Of the plan that a script with more flags is imported as, for the inputs of the last plan."""
        self.write("back.sh", script.replace(")\n", flags + ")\n", 1))
        run = self.run_tool("import", "plan", "back.sh", "--model", "m.json", "--topo", "t.json",
                            "-o", "back.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        return self.read("back.json")["warnings"]

    # What is refused.

    def test_keys_that_mean_nothing_are_refused(self):
        place = "m.json: /layers/0/variants/0/forward_collectives/0/merged"
        only = ': expected no such key, as only all-to-alls over experts merge copies, got '
        for one, words in (
                (exchange(MERGED, kind="all-gather"), only),
                (exchange(MERGED, over="context"), only),
                (exchange({"copies": 9, "experts": 8}), "/copies: expected an integer from 1 to 8"),
                (exchange({"copies": 0, "experts": 8}), "/copies: expected an integer from 1 to 8"),
                (exchange({"copies": 2, "experts": 6}),
                 "/experts: expected a multiple of the 4 expert-parallel ranks, got 6"),
                (exchange({"copies": 2, "experts": 1 << 21}),
                 "/experts: expected an integer from 1 to 1048576"),
                (exchange({"copies": 1.5, "experts": 8}), "/copies: expected an integer"),
                (exchange({"experts": 8}), "/copies: expected an integer"),
                (exchange({"copies": 2}), "/experts: expected an integer"),
                (exchange({**MERGED, "servers": 2}), "/servers"),
                (exchange(2), ": expected an object, got 2")):
            with self.subTest(one=one):
                document = profile(exchange())
                first = document["layers"][0]
                first["variants"] = [{**first["variants"][0], "forward_collectives": [one]}]
                run = self.run_plan(document, topology())
                self.assert_error(run, BAD_INPUT, place + words)
                self.assertEqual(run.stderr.count("error: "), 1, run.stderr)

    def test_unknown_dispatchers_and_false_claims_are_told(self):
        for name in ("flex", "", True):
            own = self.write("own.json", {**OWN, "dispatcher": name})
            run = self.run_tool("plan", *self.small_inputs(), "--runtime", own)
            self.assert_error(run, BAD_INPUT,
                              'own.json: /dispatcher: expected "all-to-all" or "merging", got ')
        own = self.write("own.json", {**OWN, "dispatcher": "merging"})
        plan = self.verified_plan(profile(exchange(MERGED)), topology(), "--pin",
                                  f"experts={RANKS}", "--runtime", own)
        self.assert_false_claim_is_told(plan, "/runtime_sha256",
                                        lambda d: d["runtime"].pop("dispatcher"))

        def one_by_one(document):
            for _, one in list(merged_of(document["model"]["profile"]["layers"])):
                one.pop("merged")

        self.assert_false_claim_is_told(plan, "", one_by_one)


def collectives_of(variant):
    return [one for way in ("forward", "backward") for one in variant.get(f"{way}_collectives", [])]


def merged_of(layers):
    """Variants and their collectives that merge copies."""
    return ((variant, one) for layer in layers for variant in layer["variants"]
            for one in collectives_of(variant) if "merged" in one)


if __name__ == "__main__":
    tool.main()
