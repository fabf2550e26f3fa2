"""What --explain finds is what searches of files find in which the same is otherwise, and the parts of
the iteration that it prints are those of the plan's file."""

import copy
import json
import re

import tool
from tool import DONE, INFEASIBLE, USAGE, ToolTest

NETWORK = {"schema": "dapple-topology/1", "name": "made", "source": "made up",
           "devices": {"card": {"memory": "32 MiB"}},
           "servers": [{"name": "node", "count": 2, "device": "card", "devices": 2,
                        "links": {"kind": "switch", "bandwidth": "10 GB/s", "latency": "3 us"},
                        "nics": [{"bandwidth": "1 GB/s", "latency": "1 us"}]}],
           "network": {"kind": "switch", "bandwidth": "1 GB/s", "latency": "1 us"}}


class Explain(ToolTest):
    def explained(self, profile, topology, *more):
        return self.run_tool("--model", self.write("m.json", profile), "--topo",
                             self.write("t.json", topology), "--explain", "-o", "p.json", *more)

    def rows(self, text):
        """The table of searches, by what is otherwise."""
        lines = text[text.index("\nwith  "):].strip().splitlines()[2:]
        return {cells[0]: cells[1:] for cells in
                (re.split(r"  +", line.strip()) for line in lines) if len(cells) == 4}

    def searched(self, profile, topology, *more):
        """The iteration in seconds that a search of its own finds; None if no plan fits."""
        run = self.run_tool("--model", self.write("m2.json", profile), "--topo",
                            self.write("t2.json", topology), "-o", "p2.json", "--no-baselines",
                            *more)
        self.assertIn(run.returncode, (DONE, INFEASIBLE), run.stderr)
        if run.returncode == INFEASIBLE:
            return None
        return self.read("p2.json")["predicted"]["iteration_ns"] * 1e-9

    def assert_found(self, row, expected):
        if expected is None:
            self.assertEqual(row[:2], ["-", "no plan fits"])
            return
        number, unit = row[0].split()
        seconds = float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
        self.assertAlmostEqual(seconds / expected, 1, delta=1e-3)

    def changed(self, **servers):
        topology = copy.deepcopy(NETWORK)
        topology["servers"][0].update(servers)
        return topology

    def test_searches_are_those_of_files_that_say_so(self):
        for memory, batch in (("32 MiB", 16), ("14 MiB", 4)):
            profile = tool.small_profile(global_batch_size=batch)
            topology = copy.deepcopy(NETWORK)
            topology["devices"]["card"]["memory"] = memory
            run = self.explained(profile, topology)
            self.assertEqual(run.returncode, DONE, run.stderr)
            found = self.rows(run.stdout)
            self.assertEqual(list(found), ["links between servers twice as fast",
                                           "a quarter more memory", "one more server"])
            faster = copy.deepcopy(topology)
            faster["servers"][0]["nics"][0]["bandwidth"] = "2 GB/s"
            faster["network"]["bandwidth"] = "2 GB/s"
            self.assert_found(found["links between servers twice as fast"],
                              self.searched(profile, faster))
            roomier = copy.deepcopy(topology)
            roomier["devices"]["card"]["memory"] = f"{float(memory.split()[0]) * 1.25} MiB"
            self.assert_found(found["a quarter more memory"], self.searched(profile, roomier))
            larger = copy.deepcopy(topology)
            larger["servers"][0]["count"] = 3
            self.assert_found(found["one more server"], self.searched(profile, larger))

    def test_what_faster_links_save_is_said_in_percent(self):
        run = self.explained(tool.small_profile(), NETWORK)
        before = self.read("p.json")["predicted"]["iteration_ns"] * 1e-9
        faster = copy.deepcopy(NETWORK)
        faster["servers"][0]["nics"][0]["bandwidth"] = "2 GB/s"
        faster["network"]["bandwidth"] = "2 GB/s"
        saved = 100 * (1 - self.searched(tool.small_profile(), faster) / before)
        self.assertGreater(saved, 1)
        self.assertEqual(self.rows(run.stdout)["links between servers twice as fast"][1],
                         f"{saved:.1f} % faster")

    def test_parts_are_those_of_the_file(self):
        run = self.explained(tool.small_profile(), NETWORK)
        table = run.stdout[run.stdout.index("\niteration of"):].split("\n\n")[0].strip()
        head, _, ours, *others = table.splitlines()
        parts = self.read("p.json")["predicted"]["time_parts"]
        names = re.split(r"  +", head.strip())[1:]
        keys = [re.sub("[ -]", "_", "optimizer step" if name == "step" else name) + "_ns"
                for name in names]
        self.assertLessEqual({key for key, time in parts.items() if time}, set(keys))
        for key, text in zip(keys, re.split(r"  +", ours.strip())[1:]):
            number, unit = text.split()
            scale = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1}[unit]
            self.assertAlmostEqual(float(number) * scale, parts.get(key, 0),
                                   delta=0.001 * sum(parts.values()))
        baselines = [one["name"] for one in self.read("p.json")["baselines"]
                     if one.get("missing_bytes", 0) == 0]
        self.assertEqual([line.split("  ")[0] for line in others], baselines)

    def test_where_no_plan_fits(self):
        topology = copy.deepcopy(NETWORK)
        topology["devices"]["card"]["memory"] = "7 MiB"
        profile = tool.small_profile()
        run = self.explained(profile, topology)
        self.assertEqual(run.returncode, INFEASIBLE, run.stderr)
        found = self.rows(run.stderr)
        self.assertEqual(list(found), [
            "links between servers twice as fast", "a quarter more memory", "one more server",
            "twice the memory", "--shard optimizer", "--shard full"])
        for words, sharding in (("--shard optimizer", "optimizer"), ("--shard full", "full")):
            self.assert_found(found[words], self.searched(profile, topology, "--shard", sharding))
        roomier = copy.deepcopy(topology)
        roomier["devices"]["card"]["memory"] = "14 MiB"
        self.assert_found(found["twice the memory"], self.searched(profile, roomier))
        self.assertEqual(found["twice the memory"][1], "fits")

    def test_what_is_impossible_leaves_the_rest_as_it_is(self):
        """Whatever a change makes impossible, the plan or the reasons why there is none are told."""
        alone = copy.deepcopy(NETWORK)
        alone["servers"][0].update(count=1, devices=1)
        del alone["servers"][0]["links"]
        alone["devices"]["card"]["memory"] = "2 MiB"
        run = self.explained(tool.small_profile(), alone)
        self.assertEqual(run.returncode, INFEASIBLE, run.stderr)
        self.assertIn("tightest device", run.stderr)
        change, is_so = self.rows(run.stderr)["--shard full"][:2]
        self.assertEqual(change, "-")
        self.assertTrue(is_so.startswith("impossible: expected state that can be sharded"), is_so)
        # A third server cannot share what two of them share in groups of four.
        run = self.explained(tool.small_profile(), NETWORK, "--shard", "full", "--pin", "shards=4")
        self.assertEqual(run.returncode, DONE, run.stderr)
        change, is_so = self.rows(run.stdout)["one more server"][:2]
        self.assertEqual(change, "-")
        self.assertIn("impossible: expected degrees of parallelism", is_so)
        self.assertTrue((self.folder / "p.json").exists())
        # One more server would have the name of another, or no NIC.
        named = copy.deepcopy(NETWORK)
        named["servers"] = [{**NETWORK["servers"][0], "name": "a1", "count": 1},
                            {**NETWORK["servers"][0], "name": "a", "count": 10}]
        single = copy.deepcopy(NETWORK)
        single["servers"][0]["count"] = 1
        del single["servers"][0]["nics"]
        for topology in (named, single):
            run = self.explained(tool.small_profile(), topology)
            self.assertEqual(run.returncode, DONE, run.stderr)
            grown = self.rows(run.stdout).get("one more server", ["-", "impossible"])
            self.assertEqual(grown[0], "-")
            self.assertTrue(grown[1].startswith("impossible"), grown)

    def test_a_model_is_read_once(self):
        topology = self.write("t.json", NETWORK)
        run = self.run_tool("--model", "-", "--topo", topology, "--explain", "-o", "p.json",
                            input=json.dumps(tool.small_profile()))
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("a quarter more memory", run.stdout)

    def test_half_the_launch_floors_of_an_estimate(self):
        config = {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4,
                  "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 1000}
        topology = copy.deepcopy(NETWORK)
        topology["devices"] = {"H100-80GB": {"memory": "80 GiB"}}
        topology["servers"][0]["device"] = "H100-80GB"
        options = ("--sequence", "256", "--global-batch", "8")
        run = self.explained(config, topology, *options)
        self.assertEqual(run.returncode, DONE, run.stderr)
        gpus = json.loads((tool.ROOT / "topologies" / "gpus.json").read_text())
        for calibration in gpus["calibrations"]:
            for key in ("launch_floor", "collective_floor"):
                number, unit = calibration[key].split()
                nanoseconds = round(float(number) * {"us": 1000, "ms": 1_000_000, "ns": 1}[unit])
                calibration[key] = f"{(nanoseconds + 1) // 2} ns"
        self.assert_found(self.rows(run.stdout)["half the launch floors"], self.searched(
            config, topology, *options, "--gpus", self.write("gpus.json", gpus)))

    def test_what_it_cannot_be_used_with(self):
        run = self.explained(tool.small_profile(), NETWORK, "--json")
        self.assert_error(run, USAGE, "--explain: cannot be used with --json")


if __name__ == "__main__":
    tool.main()
