"""simulate --layout and --layouts: plans from degrees of parallelism in words."""

import csv
import io
import json

import tool
from tool import BAD_INPUT, DONE, ENVIRONMENT, USAGE, ToolTest


class Layouts(ToolTest):
    def ground(self, memory="1 GiB", **changes):
        """A model of six blocks between an embedding and a head, on two servers of two."""
        profile = tool.small_profile(**changes)
        layer = profile["layers"].pop()
        del layer["repeat"]
        names = ["embedding", *(f"block.{i}" for i in range(6)), "head"]
        profile["layers"] = [{**layer, "name": name} for name in names]
        return ("--model", self.write("blocks.json", profile),
                "--topo", self.write("2x2.json", tool.small_topology(memory)))

    def imported(self, layout, *more):
        run = self.run_tool("import", "plan", "--layout", layout, *self.ground(), "-o", "plan.json",
                            *more)
        self.assertEqual(run.returncode, DONE, run.stderr)
        return self.read("plan.json")

    def simulated(self, layout, *more):
        run = self.run_tool("simulate", "--layout", layout, *self.ground(), "--json", *more)
        self.assertEqual(run.returncode, DONE, run.stderr)
        return json.loads(run.stdout)

    def test_a_layout_is_the_plan_that_megatron_s_options_are(self):
        for layout, options, replicas in (
                ("pp=2,dp=2,mbs=1", 'Et*3|t*3L" --micro-batch-size 1', 2),
                ("pp=2,dp=2,mbs=1,layers=2:4", 'Et*2|t*4L" --micro-batch-size 1', 2),
                ("pp=2,dp=1,mbs=2,vpp=3", 'Et|t|t|t|t|tL" --micro-batch-size 2', 1),
                ("pp=2,dp=2,mbs=1,recompute=full",
                 'Et*3|t*3L" --micro-batch-size 1 --recompute-granularity full', 2)):
            with self.subTest(layout=layout):
                ours = self.imported(layout)
                theirs = self.imported(
                    '--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "' + options,
                    "--replicas", str(replicas))
                for part in ("stages", "schedule", "predicted", "micro_batch_size"):
                    self.assertEqual(ours[part], theirs[part])
                predicted = self.simulated(layout)["plans"][0]["predicted"]
                self.assertEqual(predicted, ours["predicted"])

    def test_what_a_layout_does_not_say(self):
        # All four devices, the profile's samples, 1F1B; both ends are on the outer stages.
        plan = self.imported("pp=2,mbs=1")
        self.assertEqual([stage["layers"] for stage in plan["stages"]], [[0, 4], [4, 8]])
        self.assertEqual([len(stage["devices"]) for stage in plan["stages"]], [2, 2])
        self.assertEqual(plan["schedule"]["family"], "1f1b")
        self.assertEqual(plan["schedule"]["warmup_depths"], [2, 1])
        self.assertEqual(plan["micro_batch_size"], 2)
        self.assertEqual(self.imported("pp=2,mbs=1,gbs=4")["num_micro_batches"], 2)
        self.assertEqual(self.imported("pp=2,mbs=1", "--global-batch", "8")["num_micro_batches"], 4)
        self.assertEqual(self.imported("mbs=1")["stages"][0]["layers"], [0, 8])
        for words, family in (("schedule=gpipe", "gpipe"), ("vpp=3", "interleaved"),
                              ("vpp=3,schedule=breadth-first", "breadth-first")):
            plan = self.imported("pp=2,mbs=1," + words)
            self.assertEqual(plan["schedule"]["family"], family)
        # Numbers of all layers, not of blocks; a model without blocks.
        plan = self.imported("pp=2,mbs=1,layers=1:7")
        self.assertEqual([stage["layers"] for stage in plan["stages"]], [[0, 1], [1, 8]])
        profile = tool.small_profile()
        layer = profile["layers"].pop()
        del layer["repeat"]
        profile["layers"] = [{**layer, "name": name} for name in "abcdef"]
        run = self.run_tool("import", "plan", "--layout", "pp=4,mbs=1", "--model",
                            self.write("plain.json", profile), *self.ground()[2:], "-o",
                            "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual([stage["layers"] for stage in self.read("plan.json")["stages"]],
                         [[0, 2], [2, 4], [4, 5], [5, 6]])

    def test_a_plan_that_does_not_fit_is_simulated(self):
        run = self.run_tool("simulate", "--layout", "pp=1,dp=4,mbs=4", *self.ground("1 MiB"))
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("the plan does not fit", " ".join((run.stdout + run.stderr).split()))
        self.assertNotIn("file", run.stdout)

    def test_faults_of_layouts(self):
        for layout, fault in (
                ("", "expected one of pp, dp, "),
                ("pp", 'expected pp=VALUE, got "pp"'),
                ("pp=,mbs=1", 'expected pp=VALUE, got "pp="'),
                ("pp=2,pp=2", "expected pp once, got it twice"),
                ("xx=2", 'got "xx"'),
                ("pp=2", "expected mbs=..."),
                ("pp=0,mbs=1", 'pp: expected a number from 1 to 999999999, got "0"'),
                ("pp=-1,mbs=1", 'got "-1"'),
                ("pp=1e3,mbs=1", 'got "1e3"'),
                ("pp=99999999999999999999,mbs=1", "pp: expected a number"),
                ("pp=5,mbs=1", "pp: expected at most 4, the devices of the topology"),
                ("pp=4,mbs=1", "6 transformer blocks do not make 4 equal stages"),
                ("pp=2,dp=3,mbs=1", "pp times dp: expected at most 4, the devices of the topology, got 2 times 3"),
                ("pp=2,dp=999999999,mbs=1", "got 2 times 999999999"),
                ("pp=2,mbs=999999999", "global batch size: expected"),
                ("pp=2,vpp=999999999,mbs=1", "expected at most 6 stages"),
                ("pp=2,mbs=1,layers=3:4", "that add up to 7"),
                ("pp=2,mbs=1,layers=6", "expected 2 numbers"),
                ("pp=2,mbs=1,layers=0:6", 'for each stage, as 3:5, got "0:6"'),
                ("pp=2,mbs=1,schedule=zb-h1", "expected gpipe or 1f1b with one stage"),
                ("pp=2,vpp=3,mbs=1,schedule=1f1b", "expected interleaved or breadth-"),
                ("pp=2,mbs=1,recompute=some", "expected none, full, or parts of layers"),
                ("pp=2,mbs=1,tp=2", "tp: expected 1, the tensor-parallel degree"),
                ("pp=2,mbs=1,cp=2", "variants, tensor 1, got tensor 1, context 2"),
                ("pp=2,mbs=1,ep=2", "variants, tensor 1, got tensor 1, experts 2"),
                ("pp=2,mbs=1,etp=2", "etp: needs ep=..."),
                ("pp=2,mbs=1,zero=2", "zero: expected 0, 1, 3 or full-keep"),
                ("pp=2,mbs=1,zero=3", "zero: 3 needs fsdp=... or dp=..."),
                ("pp=2,mbs=1,fsdp=2", "fsdp: needs zero=1, 3 or full-keep"),
                ("pp=2,mbs=1,gbs=3", "global batch size: expected"),
                ("pp=2,mbs=\x1b[31m", "mbs: expected a number")):
            with self.subTest(layout=layout):
                run = self.run_tool("simulate", "--layout", layout, *self.ground())
                self.assert_error(run, BAD_INPUT, "error: --layout: ", fault)
                self.assertNotIn("\x1b", run.stderr)

    def test_that_experts_are_divided_unless_told_otherwise_is_said(self):
        experts = {"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 6,
                   "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 128,
                   "vocab_size": 1000, "num_local_experts": 4, "num_experts_per_tok": 2}
        run = self.run_tool("estimate", self.write("config.json", experts), "--gpu", "H100",
                            "--sequence", "128", "-o", "experts.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        topology = tool.small_topology("1 GiB")
        topology["devices"] = {"H100-80GB": {"memory": "80 GiB"}}
        topology["servers"][0].update(device="H100-80GB", devices=4)
        ground = ("--model", "experts.json", "--topo", self.write("t.json", topology),
                  "--global-batch", "16")
        run = self.run_tool("simulate", "--layout", "pp=1,tp=2,ep=2,mbs=1", *ground)
        self.assert_error(run, BAD_INPUT, "got tensor 2, experts 2 x 2; each expert is divided "
                          "among 2 devices", "with etp=1", "every device holds whole experts")
        run = self.run_tool("simulate", "--layout", "pp=1,tp=2,ep=2,etp=1,mbs=1", *ground)
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool("simulate", "--layout", "pp=1,tp=2,ep=2,etp=2,mbs=1", *ground)
        self.assert_error(run, BAD_INPUT, "got tensor 2, experts 2 x 2")
        self.assertNotIn("etp=1", run.stderr)

    def test_options_that_do_not_go_together(self):
        layout = ("--layout", "pp=2,mbs=1", *self.ground())
        plan = self.make_plan()
        table = ("--layouts", self.write("table.csv", "pp,mbs\n2,1\n"), *self.ground())
        for arguments, fault in (
                ((plan, *layout), "expected one plan file, --layout or --layouts, got 2"),
                ((*layout, *table[:2]), "got 2"),
                ((), "got 0"),
                (layout[:2], "--layout: needs --model and --topo"),
                (table[:4], "--layouts: needs --model and --topo"),
                ((*layout, "--timeline", "t.json"), "--timeline: needs a plan file"),
                ((*layout, "--recost"), "--recost: needs a plan file"),
                ((*layout, "--csv"), "--csv: needs --layouts"),
                ((plan, "--global-batch", "4"), "--global-batch: needs --layout"),
                ((plan, "--time-scale", "2"), "--time-scale: needs --layout"),
                (("--layout", "mbs=1,gbs=4", *self.ground(), "--global-batch", "4"),
                 "--global-batch: expected none with gbs, which states it, got both"),
                ((*table, "--json"), "--json: needs one plan"),
                ((*table, "--trace", "t.json"), "--trace: needs one plan"),
                ((*table, "--asynchronous"), "--asynchronous: needs one plan")):
            with self.subTest(arguments=arguments):
                self.assert_error(self.run_tool("simulate", *arguments), USAGE, "error: ", fault)
        for word, option in (("dp", "--replicas"), ("mbs", "--micro-batch"),
                             ("gbs", "--global-batch")):
            run = self.run_tool("import", "plan", "--layout", "pp=2,dp=2,mbs=1,gbs=8",
                                *self.ground(), option, "2")
            self.assert_error(run, USAGE, f"{option}: expected none with {word}")

    def test_a_table_has_a_row_for_each_layout(self):
        table = ("\n# what we ran\npp, dp,mbs,layers,recompute\r\n2,2,1,,\r\n4,1,1,1:2:2:1,full\n"
                 "4,1,1,,\n2,2,=1+1,,\n1,4,4,,\n")
        ground = self.ground()
        arguments = ("--layouts", self.write("table.csv", table), *ground)
        run = self.run_tool("simulate", *arguments, "--csv")
        self.assertEqual(run.returncode, BAD_INPUT)
        self.assertIn("error: table.csv: line 6: expected layers=", run.stderr)
        self.assertIn('error: table.csv: line 7: mbs: expected a number from 1 to 999999999, got '
                      '"=1+1"', run.stderr)
        rows = list(csv.DictReader(io.StringIO(run.stdout)))
        self.assertEqual(len(rows), 5)
        for row, layout in zip(rows, ("pp=2,dp=2,mbs=1", "pp=4,dp=1,mbs=1,layers=1:2:2:1,recompute="
                                      "full", None, None, "pp=1,dp=4,mbs=4")):
            if layout is None:
                self.assertEqual((row["iteration_ns"], row["fits"]), ("", ""))
                self.assertIn("expected", row["fault"])
                continue
            predicted = self.simulated(layout)["plans"][0]["predicted"]
            self.assertEqual(int(row["iteration_ns"]), predicted["iteration_ns"])
            self.assertEqual(float(row["samples_per_second"]), predicted["samples_per_second"])
            self.assertEqual(float(row["bubble_fraction"]), predicted["bubble_fraction"])
            self.assertEqual(int(row["peak_memory_bytes"]),
                             max(device["peak_memory_bytes"] for device in predicted["devices"]))
            self.assertEqual((row["fits"], row["fault"]), ("yes", ""))
        self.assertEqual([row["devices"] for row in rows], ["4", "4", "", "", "4"])
        self.assertEqual(rows[3]["mbs"], "")  # no formula for a spreadsheet
        shown = self.run_tool("simulate", *arguments)
        self.assertEqual(shown.returncode, BAD_INPUT)
        sound = [row for row in rows if row["iteration_ns"]]
        fastest = min(sound, key=lambda row: int(row["iteration_ns"]))
        lines = shown.stdout.splitlines()
        self.assertEqual(len(lines), 7)
        self.assertIn("fastest", lines[2 + rows.index(fastest)])
        self.assertEqual(shown.stdout.count("fastest"), 1)

    def test_tables_and_layouts_of_spreadsheets_and_editors(self):
        plain = self.run_tool("simulate", "--layouts", self.write("t.csv", "pp,mbs\n2,1\n"),
                              *self.ground(), "--csv").stdout
        for table in ("\ufeffpp,mbs\r\n2,1\r\n", '"pp","mbs"\n"2","1"\n', "pp,mbs\n2,1"):
            run = self.run_tool("simulate", "--layouts", self.write("t.csv", table),
                                *self.ground(), "--csv")
            self.assertEqual((run.returncode, run.stdout), (DONE, plain), run.stderr)
        wanted = self.imported("pp=2,mbs=1")
        for text in ("\n# ours\npp=2\n\nmbs=1\n", "\ufeffpp=2,mbs=1"):
            run = self.run_tool("import", "plan", self.write("layout.txt", text), *self.ground(),
                                "-o", "plan.json")
            self.assertEqual(run.returncode, DONE, run.stderr)
            self.assertEqual(self.read("plan.json"), wanted)

    def test_faults_of_rows_have_lines(self):
        table = self.write("t.csv", f"pp,dp,mbs,gbs\n2,4,1,\n2,2,1,{10**9 - 1}\n2,2,1,7\n")
        run = self.run_tool("simulate", "--layouts", table, *self.ground(), "--csv")
        self.assertEqual(run.returncode, BAD_INPUT)
        errors = [line for line in run.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual([line.split(": ")[2] for line in errors], ["line 2", "line 3", "line 4"])

    def test_many_faults_are_not_all_reported(self):
        for table in (",".join(["x"] * 200_000) + "\n", "pp,mbs\n" + "1\n" * 200_000,
                      "pp,mbs\n1," + "1," * 200_000 + "\n"):
            run = self.run_tool("simulate", "--layouts", self.write("t.csv", table), *self.ground())
            self.assertEqual(run.returncode, BAD_INPUT)
            self.assertLess(len(run.stderr), 3000)
        run = self.run_tool("simulate", "--layouts",
                            self.write("t.csv", "pp,mbs\n" + "9,1\n" * 100_001), *self.ground())
        self.assert_error(run, BAD_INPUT, "line 100002: expected at most 100000 layouts, got more")

    def test_devices_without_times_need_a_time_scale(self):
        ground = list(self.ground())
        ground[3] = self.write("other.json", {**tool.small_topology(), "devices": {
            "other": {"memory": "1 GiB", "reserved": "0 B", "source": "made up"}}})
        topology = self.read("other.json")
        topology["servers"][0]["device"] = "other"
        self.write("other.json", topology)
        run = self.run_tool("simulate", "--layout", "mbs=1", *ground)
        self.assert_error(run, BAD_INPUT, "error: other.json: /devices/other: expected the profiled "
                          "device", "--time-scale X gives it")
        twice = self.run_tool("simulate", "--layout", "pp=4,mbs=1,layers=1:2:2:1", *ground,
                              "--time-scale", "2", "--json")
        self.assertEqual(twice.returncode, DONE, twice.stderr)
        once = self.simulated("pp=4,mbs=1,layers=1:2:2:1")
        compute = [result["plans"][0]["predicted"]["time_parts"]["compute_ns"]
                   for result in (json.loads(twice.stdout), once)]
        self.assertEqual(compute[0], 2 * compute[1])

    def test_warnings_of_layouts(self):
        table = self.write("t.csv", "dp,mbs\n1,1\n4,1\n")
        for flag in ([], ["--csv"], ["-q"]):
            run = self.run_tool("simulate", "--layouts", table, *self.ground(), *flag)
            self.assertEqual(run.returncode, DONE, run.stderr)
            self.assertRegex(run.stderr, "(?i)^warning: line 2: .*idle")

    def test_a_table_says_what_does_not_fit(self):
        arguments = ("--layouts", self.write("table.csv", "pp,mbs\n1,4\n"), *self.ground("1 MiB"))
        run = self.run_tool("simulate", *arguments)
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("does not fit", run.stdout)
        self.assertNotIn("fastest", run.stdout)
        self.assertIn(",no,", self.run_tool("simulate", *arguments, "--csv").stdout)

    def test_faults_of_tables(self):
        for table, fault in (
                ("", "expected a row of words such as pp,dp,mbs and a row for each layout, got none"),
                ("pp,mbs\n", "got none"),
                ("pp,xx\n1,2\n", "line 1: expected one of pp, dp, "),
                ("pp,pp\n1,2\n", 'line 1: expected each column once, got "pp" twice'),
                ("pp,mbs\n1\n", "line 2: expected 2 values, one for each column, got 1"),
                ("pp,mbs\n1,1,1\n", "line 2: expected 2 values, one for each column, got 3"),
                ("{}", 'line 1: expected one of pp, dp, mbs')):
            with self.subTest(table=table):
                self.assert_error(
                    self.run_tool("simulate", "--layouts", self.write("t.csv", table),
                                  *self.ground(), "--csv"), BAD_INPUT, "error: t.csv: ", fault)
        self.assertEqual(self.run_tool("simulate", "--layouts", "nowhere.csv",
                                       *self.ground()).returncode, ENVIRONMENT)


if __name__ == "__main__":
    tool.main()
