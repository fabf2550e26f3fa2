"""Constants of a GPU that are fitted to runs: those that made the runs are found again, runs that do
not determine them are refused, and so are tables that are none."""

import csv
import io
import json
import os

import tool
from tool import BAD_INPUT, DONE, USAGE, ToolTest

# What the runs are made with.
TRUE = {"name": "true", "matrix": 0.6, "attention": 0.3, "memory": 0.7, "launch_floor": "200 us",
        "collective_floor": "50 us", "source": "made up"}
START = {"name": "start", "matrix": 0.9, "attention": 0.9, "memory": 0.9, "launch_floor": "0 us",
         "collective_floor": "0 us", "source": "made up"}


class Calibrate(ToolTest):
    def setUp(self):
        super().setUp()
        for name, hidden, layers in (("small", 512, 4), ("middle", 1024, 4), ("large", 4096, 2)):
            self.write(f"{name}.json", {
                "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers,
                "num_attention_heads": 8, "intermediate_size": 4 * hidden, "vocab_size": 32000})
        self.write("t.json", {
            "schema": "dapple-topology/1", "name": "made", "source": "made up",
            "devices": {"card": {"memory": "80 GiB"}},
            "servers": [{"name": "node", "count": 1, "device": "card", "devices": 4,
                         "links": {"kind": "switch", "bandwidth": "300 GB/s", "latency": "3 us"}}]})

    def gpus(self, name, calibration):
        return self.write(name, {
            "schema": "dapple-gpus/1", "calibrations": [calibration],
            "gpus": [{"name": "card", "calibration": calibration["name"], "memory": "80 GiB",
                      "memory_bandwidth": "2000 GB/s", "peak": {"bf16": "300 TFLOP/s"},
                      "source": "made up"}]})

    def table(self, rows, name="runs.csv"):
        stream = io.StringIO()
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return self.write(name, "# Made up.\n\n" + stream.getvalue())

    def rows(self, models=("small", "middle", "large")):
        return [{"id": f"{model}-{sequence}-{tensor}-{samples}", "group": f"{model} on 4",
                 "configuration": f"{model}.json", "topology": "t.json", "sequence": sequence,
                 "tp": tensor, "dp": 4 // tensor, "mbs": samples, "gbs": 32, "iteration_s": 1}
                for model in models for sequence in (512, 8192) for tensor in (1, 4)
                for samples in (1, 4)]

    def calibrate(self, table, *more):
        return self.run_tool("calibrate", table, "--gpu", "card", *more)

    def made_runs(self, **changes):
        """Runs as the true constants have them."""
        rows = self.rows(**changes)
        run = self.calibrate(self.table(rows), "--gpus", self.gpus("true.json", TRUE), "--fit",
                             "none", "--csv")
        self.assertEqual(run.returncode, DONE, run.stderr)
        priced = list(csv.DictReader(io.StringIO(run.stdout)))
        self.assertEqual([row["id"] for row in priced], [row["id"] for row in rows])
        for row, price in zip(rows, priced):
            row["iteration_s"] = price["estimated_s"]
        return rows

    def test_the_constants_are_found_again(self):
        table = self.table(self.made_runs())
        run = self.calibrate(table, "--gpus", self.gpus("start.json", START), "--fit",
                             "matrix,attention,memory,launch_floor,collective_floor", "--name",
                             "found", "-o", "found.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("24 runs in 3 groups", run.stdout)
        found, = (each for each in self.read("found.json")["calibrations"]
                  if each["name"] == "found")
        for key in ("matrix", "attention", "memory"):
            self.assertAlmostEqual(found[key] / TRUE[key], 1, delta=0.01)
        for key in ("launch_floor", "collective_floor"):
            number, unit = found[key].split()
            self.assertAlmostEqual(float(number) * {"us": 1, "ns": 0.001}[unit],
                                   float(TRUE[key].split()[0]), delta=3)
        self.assertLess(found["left_out_error"], 0.01)
        self.assertEqual(found["fitted_runs"], [row["id"] for row in self.rows()])
        # It is the GPU's now, and estimates say how far off it is.
        run = self.run_tool("estimate", "small.json", "--gpus", "found.json", "--gpu", "card",
                            "--sequence", "512", "-o", "p.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("by calibration found, not measured; it was fitted to 24 runs of runs.csv, and "
                      "such runs left out of the fit were 0", run.stderr)
        run = self.run_tool("estimate", "small.json", "--gpus", "found.json", "--gpu", "card",
                            "--sequence", "512", "-o", "p.json", "--calibration", "start")
        self.assertIn("by calibration start, not measured\n", run.stderr)
        # Nothing that is read is written over, and what is written can be read.
        for output in ("found.json", table, "small.json", "t.json"):
            run = self.calibrate(table, "--gpus", "found.json", "-o", output)
            self.assert_error(run, USAGE, "--output")
        for name in ("", "a\nb", "\x1b[31m", "x" * 201):
            run = self.calibrate(table, "--gpus", "found.json", "-o", "new.json", "--name", name)
            self.assert_error(run, USAGE, "--name")
        self.assertFalse((self.folder / "new.json").exists())

    def test_runs_that_took_much_longer_than_the_others_count_less(self):
        rows = self.made_runs()
        for row in rows[::7]:
            row["iteration_s"] = 3 * float(row["iteration_s"])
        run = self.calibrate(self.table(rows), "--gpus", "true.json", "--fit", "matrix", "--name",
                             "found", "-o", "found.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        found, = (each for each in self.read("found.json")["calibrations"]
                  if each["name"] == "found")
        # By least squares it would be a sixth less.
        self.assertAlmostEqual(found["matrix"] / TRUE["matrix"], 1, delta=0.02)

    def test_what_a_framework_keeps_in_memory(self):
        """Two bytes for each parameter on the fullest GPU, the activated gates and the gathered
        inputs of its blocks."""
        gpus = json.loads((self.folder / self.gpus("true.json", TRUE)).read_text())
        kept = {"name": "mine", "keeps_gathered_inputs": True, "keeps_activated_gates": True,
                "bytes_per_parameter": 2, "source": "made up"}
        self.write("gpus.json", {**gpus, "frameworks": [kept]})
        row = {**self.rows()[0], "tp": 4, "dp": 1, "sequence": 512, "mbs": 1}

        def bytes_of(**more):
            run = self.calibrate(self.table([{**row, **more}]), "--gpus", "gpus.json", "--fit",
                                 "none", "--csv")
            self.assertEqual(run.returncode, DONE, run.stderr)
            return int(next(csv.DictReader(io.StringIO(run.stdout)))["estimated_bytes"])

        hidden, layers, vocabulary = 512, 4, 32000
        blocks = layers * (4 * hidden**2 + 3 * hidden * 4 * hidden) // 4
        norms = (2 * layers + 1) * hidden
        parameters = blocks + norms + 2 * vocabulary * hidden // 4
        gathered = (2 * layers + 1) * (512 * hidden * 2) * 3 // 4
        gates = layers * (512 * 4 * hidden * 2) // 4
        self.assertEqual(bytes_of(framework="mine") - bytes_of(),
                         2 * parameters + gathered + gates)
        self.assertEqual(bytes_of(framework="mine", sp="off") - bytes_of(sp="off"),
                         2 * parameters + gates)
        run = self.calibrate(self.table([{**row, "framework": "yours"}]), "--gpus", "gpus.json")
        self.assert_error(run, BAD_INPUT, 'runs.csv: line 4: framework: expected one of mine, '
                          'megatron-lm, nanotron, nanotron-keeping-gathered, got "yours"')

    def priced(self, row):
        run = self.calibrate(self.table([row]), "--gpus", "true.json", "--fit", "none", "--csv")
        self.assertEqual(run.returncode, DONE, run.stderr)
        return next(csv.DictReader(io.StringIO(run.stdout)))

    def planned(self, *more):
        """What a file says of the two stages of a run."""
        run = self.run_tool("estimate", "small.json", "--gpu", "card", "--gpus", "true.json",
                            "--sequence", "512", "--global-batch", "32", "-o", "p.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool("import", "plan", "--layout", "pp=2,dp=2,mbs=1,gbs=32,layers=5:1", "--model",
                            "p.json", "--topo", "t.json", "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool("simulate", "--layout", "pp=2,dp=2,mbs=1,gbs=32,layers=5:1", "--model", "p.json",
                            "--topo", "t.json", "--json", *more)
        self.assertEqual(run.returncode, DONE, run.stderr)
        return self.read("plan.json"), json.loads(run.stdout)["plans"][0]["predicted"]

    def test_runs_are_simulated_as_their_runtime_runs_them(self):
        self.gpus("true.json", TRUE)
        row = {**self.rows()[0], "tp": 1, "pp": 2, "dp": 2, "mbs": 1, "layers": "5:1"}
        times = {}
        for runtime in ("", "nanotron", "nanotron-ddp", "deepspeed"):
            times[runtime] = float(self.priced({**row, "runtime": runtime})["estimated_s"])
            _, predicted = self.planned(*(("--runtime", runtime) if runtime else ()))
            self.assertAlmostEqual(times[runtime] * 1e9, predicted["iteration_ns"], delta=1)
        self.assertLess(times[""], times["nanotron-ddp"])
        self.assertLess(times["nanotron-ddp"], times["nanotron"])
        for change in ({"vpp": 2, "layers": ""}, {"pp": 1, "vpp": 2, "layers": ""}):
            run = self.calibrate(self.table([{**row, **change, "runtime": "nanotron"}]), "--gpus",
                                 "true.json", "--fit", "none")
            self.assert_error(run, BAD_INPUT, "runs.csv: line 4: /schedule/family: expected 1f1b or "
                              "gpipe, got interleaved, as transfers are serial")
        run = self.calibrate(self.table([{**row, "runtime": "mine"}]), "--gpus", "true.json")
        self.assert_error(run, BAD_INPUT, "runs.csv: line 4: runtime: expected deepspeed or "
                          "megatron or nanotron", 'got "mine"')

    def test_memory_of_the_last_stage(self):
        self.gpus("true.json", TRUE)
        row = {**self.rows()[0], "tp": 1, "pp": 2, "dp": 2, "mbs": 1, "layers": "5:1",
               "memory_bytes": 10**9}
        plan, _ = self.planned()
        sizes = {one["device"]: one["peak_memory_bytes"] for one in plan["predicted"]["devices"]}
        last = max(sizes[device] for device in plan["stages"][-1]["devices"])
        self.assertNotEqual(last, max(sizes.values()))
        for of, size in (("", max(sizes.values())), ("all", max(sizes.values())),
                         ("last_stage", last)):
            self.assertEqual(int(self.priced({**row, "memory_of": of})["estimated_bytes"]), size)
        run = self.calibrate(self.table([{**row, "memory_of": "last_stage", "memory_bytes": ""}]),
                             "--gpus", "true.json")
        self.assert_error(run, BAD_INPUT, "line 4: memory_of: last_stage needs memory_bytes")
        run = self.calibrate(self.table([{**row, "memory_of": "first"}]), "--gpus", "true.json")
        self.assert_error(run, BAD_INPUT, "memory_of: expected all or last_stage", 'got "first"')

    def operations(self, tokens, matrix, memory, changes=(), name="ops.csv"):
        """A table of operations as a card with these fractions takes them: two tensor degrees of a
        gated layer."""
        heads, groups, hidden, inner = 32, 8, 4096, 14336
        rows = []
        for count in tokens:
            for degree in (1, 4):
                projected = (heads + 2 * groups) * (hidden // heads) // degree

                def product(columns, width):
                    size = 2 * (count * (width + columns) + width * columns)
                    return (2 * count * columns * width / (300e12 * matrix)
                            + size / (2000e9 * memory)) * 1e3

                def passed(numbers):
                    return 2 * numbers / (2000e9 * memory) * 1e3

                times = {"attn_pre_proj": product(projected, hidden),
                         "attn_post_proj": product(hidden, hidden // degree),
                         "mlp_up_proj": product(2 * inner // degree, hidden),
                         "mlp_down_proj": product(hidden, inner // degree),
                         "mlp_act": passed(3 * count * inner // degree),
                         "add": passed(3 * count * hidden)}
                rows.append({**{f"time_stats.{key}.median": f"{time:.9f}"
                                for key, time in times.items()},
                             "n_head": heads, "n_kv_head": groups, "n_embd": hidden,
                             "n_expanded_embd": inner, "use_gated_mlp": "True",
                             "num_tokens": count, "num_tensor_parallel_workers": degree})
        for number, key, value in changes:
            rows[number][key] = value
        stream = io.StringIO()
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return self.write(name, stream.getvalue())

    def fractions_of(self, name):
        return next(one for one in self.read("found.json")["calibrations"] if one["name"] == name)

    def test_fractions_are_fitted_to_operations(self):
        gpus = self.gpus("start.json", {**START, "launch_floor": TRUE["launch_floor"],
                                        "collective_floor": TRUE["collective_floor"]})
        table = self.table(self.made_runs())
        # What 512 tokens take does not count.
        short = [(number, f"time_stats.{name}.median", "9")
                 for number in (0, 1) for name in ("add", "mlp_up_proj")]
        files = (self.operations((512, 1024, 4096), 0.6, 0.7, short) + ","
                 + self.operations((2048,), 0.6, 0.7, name="more.csv"))
        run = self.calibrate(table, "--gpus", gpus, "--ops", files, "--name", "found", "-o",
                             "found.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertRegex(run.stdout, r"36 operations\n  fitted     0\.[01] % off on average")
        found = self.fractions_of("found")
        self.assertAlmostEqual(found["matrix"], 0.6, delta=0.001)
        self.assertAlmostEqual(found["memory"], 0.7, delta=0.001)
        self.assertEqual(found["attention"], 0.9)
        self.assertNotIn("fitted_runs", found)
        self.assertIn("36 operations and tried on 24 runs of runs.csv", found["source"])
        # What operations do not tell is fitted to the runs.
        run = self.calibrate(table, "--gpus", gpus, "--ops", files, "--fit",
                             "attention,matrix,memory", "--name", "found", "-o", "found.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        found = self.fractions_of("found")
        for key in ("matrix", "attention", "memory"):
            self.assertAlmostEqual(found[key], TRUE[key], delta=0.005)
        self.assertEqual(len(found["fitted_runs"]), 24)
        self.assertLess(found["left_out_error"], 0.01)

    def test_tables_that_have_no_operations(self):
        gpus = self.gpus("start.json", START)
        table = self.table(self.rows())

        def refused(changes, *words, fit="matrix"):
            path = self.operations((1024,), 0.6, 0.7, changes)
            run = self.calibrate(table, "--gpus", gpus, "--ops", path, "--fit", fit, "-o",
                                 "found.json")
            self.assert_error(run, BAD_INPUT, "ops.csv: ", *words)
            self.assertFalse((self.folder / "found.json").exists())

        add = "time_stats.add.median"
        refused([(0, "num_tokens", "many")], "line 2: num_tokens: expected a whole number from 1",
                'got "many"')
        refused([(1, "use_gated_mlp", "yes")], "line 3: use_gated_mlp: expected True or False")
        refused([(1, "n_head", "30")], "line 3: expected heads that divide n_embd")
        for value in ("-1", "0", "nan", "1e300", ""):
            refused([(0, add, value)], f"line 2: {add}: expected milliseconds above 0")
        refused([(number, "num_tokens", "64") for number in (0, 1)],
                "expected operations over 1024 tokens or more, got none")
        for text, words in ((f"{add},{add}\n1,2\n", "expected each column once"),
                            ("a,b\n1,2\n", 'expected a column "n_head", got none'),
                            ("", "got none")):
            run = self.calibrate(table, "--gpus", gpus, "--ops", self.write("bad.csv", text))
            self.assert_error(run, BAD_INPUT, "bad.csv: ", words)
        path = self.operations((1024,), 0.6, 0.7)
        run = self.calibrate(table, "--gpus", gpus, "--ops", path, "--fit", "attention")
        self.assert_error(run, USAGE, "--ops: expected matrix or memory in --fit")
        run = self.calibrate(table, "--gpus", gpus, "--ops", path, "-o", path)
        self.assert_error(run, USAGE, "--output")

    def test_runs_name_files(self):
        gpus = self.gpus("start.json", START)
        (self.folder / "folder.json").mkdir()
        os.mkfifo(self.folder / "pipe.json")
        self.write("bad.json", {"model_type": "llama"})
        for key in ("configuration", "topology"):
            for name, code, words in (
                    ("none.json", 5, ("runs.csv: line 4: ", "none.json: cannot be read")),
                    ("folder.json", BAD_INPUT, ("runs.csv: line 4: expected a regular file",)),
                    ("pipe.json", BAD_INPUT, ("runs.csv: line 4: expected a regular file",)),
                    ("bad.json", BAD_INPUT, ("runs.csv: line 4: ", "bad.json: ")),
                    ("t.json\0y", BAD_INPUT, (f"line 4: {key}: expected a file's name without",))):
                with self.subTest(key=key, name=name):
                    rows = [{**self.rows()[0], key: name}]
                    run = self.calibrate(self.table(rows), "--gpus", gpus, "--fit", "none")
                    self.assert_error(run, code, *words)

    def test_runs_that_kept_constants_have_seen_are_told(self):
        rows = self.made_runs()
        run = self.calibrate(self.table(rows), "--gpus", "true.json", "--fit", "matrix,memory",
                             "--name", "found", "-o", "found.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertNotIn("their errors are too small", run.stdout)
        self.assertEqual(self.fractions_of("found")["fitted_constants"], ["matrix", "memory"])
        told = "constants that are kept were fitted to 24 of these runs (found)"
        for fit, is_told in (("matrix", True), ("none", True), ("matrix,memory", False)):
            run = self.calibrate(self.table(rows), "--gpus", "found.json", "--fit", fit)
            self.assertEqual(told in run.stdout, is_told, run.stdout)

    def test_figures_of_runs(self):
        rows = self.made_runs()
        rows[0]["iteration_s"] = float(rows[0]["iteration_s"]) * 2
        run = self.calibrate(self.table(rows), "--gpus", "true.json", "--fit", "none", "--csv")
        priced = list(csv.DictReader(io.StringIO(run.stdout)))
        self.assertEqual([round(float(row["error"]), 6) for row in priced], [-0.5] + [0] * 23)
        self.assertEqual({row["left_out_s"] for row in priced}, {""})
        self.assertIn("estimated  2.1 % off on average, median 0.0 %, bias -2.1 %", run.stderr)

    def test_constants_that_runs_do_not_determine(self):
        rows = [row for row in self.made_runs(models=("large",)) if row["sequence"] == 8192]
        for row in rows:
            row["sp"] = ""
        start = self.gpus("start.json", {**TRUE, "launch_floor": "0 us", "collective_floor": "0 us"})
        run = self.calibrate(self.table(rows), "--gpus", start, "--fit", "matrix,launch_floor")
        self.assert_error(run, BAD_INPUT, "expected runs that launch_floor changes, got none")
        run = self.run_tool("calibrate", "runs.csv", "--gpu", "A100-80GB", "--fit", "matrix")
        self.assert_error(run, BAD_INPUT, "runs.csv: line 4: expected a topology of A100-80GB, as "
                                          "--gpu says, got card")
        run = self.calibrate(self.table(rows[:1]), "--gpus", start, "--fit", "matrix,memory")
        self.assert_error(run, BAD_INPUT, "expected at least as many runs as constants, 2, got 1")
        alike = [{**rows[0], "id": str(number)} for number in range(3)]
        run = self.calibrate(self.table(alike), "--gpus", start, "--fit", "matrix,attention")
        self.assert_error(run, BAD_INPUT, "expected runs that tell the fitted constants apart, got a "
                                          "condition number of")

    def test_a_floor_of_minutes_is_found(self):
        rows = self.made_runs()
        for row in rows:
            row["iteration_s"] = 1000
        run = self.calibrate(self.table(rows), "--gpus", "true.json", "--fit", "launch_floor", "-o",
                             "found.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("launch_floor changes", run.stdout)

    def test_tables_that_are_none(self):
        rows = self.rows()[:2]
        self.gpus("true.json", TRUE)
        for change, *words in (
                ({"iteration_s": ""}, "line 4: expected a value of iteration_s, got none"),
                ({"iteration_s": "-1"}, "line 4: iteration_s: expected a number of seconds above 0"),
                ({"sequence": "1e3"}, "line 4: sequence: expected a whole number"),
                ({"precision": "fp7"}, 'line 4: precision: expected fp32 or tf32 or bf16 or fp16'),
                ({"recompute": "some"}, "line 4: recompute: expected none, full, or parts"),
                ({"attention": "fast"}, "line 4: attention: expected fused or unfused"),
                ({"id": "\x1b[31m"}, "line 4: id: expected 1 to 200 characters"),
                ({"colour": "red"}, "line 3: expected columns id, group,", 'got "colour"'),
                ({"tp": "3"}, "line 4: ",
                 "8 attention heads cannot be divided among 3 tensor-parallel ranks"),
                ({"pp": "9"}, "line 4: "),
                ({"sequence": ""}, "line 4: expected the number of tokens of a sample"),
                ({"id": rows[1]["id"]}, "expected each id once")):
            with self.subTest(change=change):
                table = [{**rows[0], **change}, {**rows[1], **dict.fromkeys(change, "")}
                         if "id" not in change else rows[1]]
                if "colour" not in change:
                    table[1] = {**table[1], **{key: rows[1].get(key, "") for key in change}}
                run = self.calibrate(self.table(table), "--gpus", "true.json")
                self.assert_error(run, BAD_INPUT, "runs.csv: ", *words)
        for text, words in (("", "got none"), ("# nothing\n", "got none"),
                            ("id\n1\n", 'line 1: expected a column "configuration", got none'),
                            ("id,id\n", 'line 1: expected each column once, got "id" twice'),
                            ("id,configuration,topology,iteration_s\na,b\n",
                             "line 2: expected 4 cells, as the first row has, got 2")):
            with self.subTest(text=text):
                run = self.calibrate(self.write("x.csv", text), "--gpus", "true.json")
                self.assert_error(run, BAD_INPUT, "x.csv: ", words)
        run = self.calibrate(self.table([{**rows[0], "configuration": "nowhere.json"}]), "--gpus",
                             "true.json")
        self.assert_error(run, tool.ENVIRONMENT, "nowhere.json")
        run = self.run_tool("calibrate", "runs.csv")
        self.assert_error(run, USAGE, "--gpu: expected the GPU of the runs, got none")
        run = self.calibrate("runs.csv", "--fit", "matrix,colour", "--gpus", "true.json")
        self.assert_error(run, USAGE, "--fit: expected none, or different ones of matrix,")
        run = self.calibrate("runs.csv", "--fit", "none", "-o", "x.json", "--gpus", "true.json")
        self.assert_error(run, USAGE, "--output: expected constants to fit")

    def test_a_name_is_no_formula(self):
        rows = self.rows()[:1]
        rows[0]["id"] = '=HYPERLINK("x")'
        self.gpus("true.json", TRUE)
        run = self.calibrate(self.write("r.csv", ",".join(rows[0]) + "\n" + ",".join(
            json.dumps(value) if "HYPER" in str(value) else str(value)
            for value in rows[0].values())), "--gpus", "true.json", "--fit", "none", "--csv")
        self.assertNotRegex(run.stdout, r"(?m)^=")


if __name__ == "__main__":
    tool.main()
