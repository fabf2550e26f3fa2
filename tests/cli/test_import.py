"""Other tools' files as topologies, profiles and plans: what is printed, asked for and written, and
that it is planned on, costed and checked."""

import re

import tool
from tool import BAD_INPUT, DONE, ENVIRONMENT, USAGE, ToolTest

SAMPLES = tool.ROOT / "tests" / "golden" / "interop"
BOX = ("import", "topology", SAMPLES / "box.smi.txt")
FIGURES = ("--device", "card", "--memory", "1 GiB", "--reserved", "100 MiB", "--nvlink-bandwidth",
           "20 GB/s", "--pcie-bandwidth", "12 GB/s", "--socket-bandwidth", "10 GB/s")
NETWORK = ("--servers", "2", "--nic-bandwidth", "10 Gbit/s")


class Import(ToolTest):
    def test_help_and_document_name_every_tool_whose_files_are_imported(self):
        version = self.run_tool("--version").stdout
        document = (tool.ROOT / "docs" / "interop.md").read_text()
        for part, kind, title in (("topology", "topologies", "topologies"),
                                  ("model", "profiles", "profiles"), ("plan", "plans", "plans")):
            tools = re.search(rf"^imports {kind} of (.*)$", version, re.MULTILINE)[1].split(", ")
            section = re.search(rf"^## Other \w+'? {title}$(.*?)^## ", document,
                                re.MULTILINE | re.DOTALL)[1]
            for name in tools:
                with self.subTest(part=part, tool=name):
                    self.assertIn(name, self.run_tool("import", part, "--help").stdout)
                    self.assertIn(name, section)

    def test_an_imported_topology_is_planned_on(self):
        result = self.run_tool(*BOX, *FIGURES, *NETWORK, "--name", "box", "-o", "box.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("topology written to box.json", result.stdout)
        plan = self.run_tool("--model", self.write("small.json", tool.small_profile()),
                             "--topo", "box.json", "-o", "plan.json")
        self.assertEqual(plan.returncode, DONE, plan.stderr)
        self.assertEqual(self.run_tool("validate", "plan.json").returncode, DONE)

    def test_the_effective_bandwidth_of_each_kind_of_link_is_printed(self):
        text = self.run_tool(*BOX, *FIGURES, *NETWORK).stdout
        # 10 Gbit/s are 1.25 GB/s; NV2 is two links of 20 GB/s.
        for words in ("direct link NV1 +20.00 ", "direct link NV2 +40.00 ",
                      "host path of a device +12.00 ", "out of a socket +10.00 ", "NIC +1.250 "):
            self.assertRegex(text, words)
        self.assertTrue((self.folder / "imported.topology.json").exists())

    def test_the_document_goes_to_stdout_and_the_words_to_stderr(self):
        result = self.run_tool("import", "topology", "-", *FIGURES, "-o", "-",
                               input=(SAMPLES / "box.smi.txt").read_text())
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertTrue(result.stdout.startswith('{\n  "schema": "dapple-topology/1"'))
        self.assertIn("direct link NV2", result.stderr)

    def test_a_network_faster_than_its_nics_is_doubted(self):
        result = self.run_tool(*BOX, *FIGURES, *NETWORK, "--network-bandwidth", "20 GB/s")
        self.assertEqual(result.returncode, DONE)
        self.assertIn("warning: the network has 20 GB/s a port and the NICs only 1.25 GB/s",
                      result.stderr)

    def test_what_is_missing_is_asked_for_at_once(self):
        result = self.run_tool(*BOX, "--servers", "2")
        self.assert_error(result, USAGE, "--device: expected", "--nvlink-bandwidth: expected",
                          "--pcie-bandwidth: expected", "--socket-bandwidth: expected",
                          "--nic-bandwidth: expected")
        self.assertFalse(list(self.folder.iterdir()))

    def test_options_that_would_do_nothing_are_refused(self):
        for more in (("--nodes", "a"), ("--rack-uplink", "2"), ("--pod-uplink", "2"),
                     ("--network-bandwidth", "1 GB/s")):
            with self.subTest(more=more):
                self.assert_error(self.run_tool(*BOX, *FIGURES, *more), USAGE,
                                  f"{more[0]}: expected only with")

    def test_figures_that_nothing_is_made_with_are_named(self):
        linked = self.write("linked.txt", "\tGPU0\tGPU1\tCPU Affinity\n"
                            "GPU0\tX\tNV2\t0-3\nGPU1\tNV2\tX\t0-3\n")
        result = self.run_tool("import", "topology", linked, *FIGURES, "--nics", "2")
        self.assertEqual(result.returncode, DONE, result.stderr)
        for option in ("--pcie-bandwidth", "--socket-bandwidth", "--nics"):
            self.assertIn(f"{option} is not used", result.stderr)
        self.assertNotIn("--nvlink-bandwidth is not used", result.stderr)
        self.assertNotIn("is not used", self.run_tool(*BOX, *FIGURES).stderr)
        known = self.run_tool(*BOX, *FIGURES[2:], "--device", "V100-16GB")
        self.assertIn("a V100-16GB has 16384 MiB, --memory says 1024", known.stderr)

    def test_wrong_command_lines_and_files_are_refused(self):
        self.assert_error(self.run_tool("import"), USAGE,
                          "import: expected one of topology, model, plan after it")
        self.assert_error(self.run_tool("import", "topologi"), USAGE, "nearest is topology")
        self.assert_error(self.run_tool("import", "topology"), USAGE, "import topology: expected")
        self.assert_error(self.run_tool(*BOX, "--nic-bandwidth", "fast"), USAGE,
                          "--nic-bandwidth: expected a bandwidth such as")
        self.assert_error(self.run_tool(*BOX, "--format", "xml"), USAGE,
                          "--format: expected detect, nvidia-smi, nccl-xml")
        self.assert_error(self.run_tool(*BOX, "--name", ""), USAGE,
                          "--name: expected a name of 1 to 200 characters")
        self.assert_error(self.run_tool(*BOX, *FIGURES, "--servers", "65536", "--nic-bandwidth",
                                        "10 Gbit/s"), USAGE,
                          "--servers: expected at most 65536 devices, got 262144")
        self.assert_error(self.run_tool("import", "topology", "-", "-"), USAGE,
                          "FILE 2: expected a file, got \"-\" for FILE 1 and FILE 2 both")
        self.assert_error(self.run_tool("import", "topology", "gone.txt"), ENVIRONMENT, "gone.txt")
        self.assert_error(self.run_tool("import", "topology", self.write("odd.txt", "hello\n")),
                          BAD_INPUT, "odd.txt: expected a file of nvidia-smi topo -m")
        self.assert_error(self.run_tool(*BOX, "--format", "slurm"), BAD_INPUT,
                          "line 1: expected KEY=VALUE")


class OtherKinds(ToolTest):
    """Files that were given for something else."""

    def test_on_a_terminal_an_error_fits_its_columns(self):
        self.write("odd.txt", "hello\n")
        code, shown = self.run_on_terminal("import", "topology", "odd.txt", columns=80)
        self.assertEqual(code, BAD_INPUT)
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in shown.splitlines()]
        self.assertGreater(len(lines), 1)
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertTrue(all(line.startswith("       ") for line in lines[1:]), lines)

    def test_it_is_said_what_a_file_looks_like_and_who_takes_it(self):
        topology = self.write("2x2.json", tool.small_topology())
        profile = self.write("small.json", tool.small_profile())
        smi, graph = SAMPLES / "box.smi.txt", SAMPLES / "pair.gpus=4.txt"
        for command, words in (
                (("--model", smi, "--topo", topology),
                 f"expected a layer profile, got a file of nvidia-smi, which dapple-plan import topology"),
                (("--model", profile, "--topo", graph),
                 f"expected a topology, got a file of pipedream, which dapple-plan import model takes"),
                (("import", "plan", graph, "--model", graph, "--topo", topology),
                 f"expected a layer profile, got a file of pipedream, which dapple-plan import model"),
                (("import", "plan", smi, "--model", profile, "--topo", topology),
                 "got a file of nvidia-smi, which dapple-plan import topology takes"),
                (("import", "model", topology),
                 "got a topology, which --topo takes"),
                (("import", "topology", profile),
                 "got a layer profile, which --model takes"),
                (("export", SAMPLES / "pair.megatron.sh", "--to", "megatron"),
                 f"expected a plan, got a file of megatron, which dapple-plan import plan takes"),
                (("validate", graph),
                 f"expected a plan, got a file of pipedream, which dapple-plan import plan takes"),
                (("diff", smi, smi), f"expected a plan, got a file of nvidia-smi")):
            with self.subTest(command=command):
                self.assert_error(self.run_tool(*command), BAD_INPUT, words)


class Models(ToolTest):
    ASKED = ("--optimizer", "adam", "--profile-device", "card")

    def imported(self, *arguments):
        result = self.run_tool("import", "model", *arguments)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return result

    def test_an_imported_profile_is_planned(self):
        result = self.imported(SAMPLES / "small.piper.json", *self.ASKED, "-o", "profile.json")
        self.assertIn("small.piper: 4 layers measured on card", result.stdout)
        self.assertIn("profile written to profile.json", result.stdout)
        self.assertIn("warning: variants that recompute are left out", result.stderr)
        plan = self.run_tool("--model", "profile.json", "--topo",
                             self.write("2x2.json", tool.small_topology()), "-o", "plan.json")
        self.assertEqual(plan.returncode, DONE, plan.stderr)
        self.assertEqual(self.run_tool("validate", "plan.json").returncode, DONE)

    def test_the_summary_says_how_narrow_the_cuts_of_a_graph_are(self):
        # A fork, a wide branch of two nodes and a narrow one, and their end; then 18 branches.
        def graph(outputs, edges):
            nodes = "".join(f"node{number} -- Op() -- forward_compute_time=1, "
                            f"backward_compute_time=0, activation_size={size}, parameter_size=0\n"
                            for number, size in outputs.items())
            return nodes + "".join(f"\tnode{a} -- node{b}\n" for a, b in edges)

        options = ("--optimizer", "sgd", "--profile-device", "card", "--profile-batch", "1",
                   "--global-batch", "8", "-o", "p.json")
        for name, outputs, edges, order, words in (
                ("branches", {1: 10240, 2: 30720, 3: 20480, 4: 40960, 5: 1024, 6: 1024},
                 ((1, 2), (2, 3), (1, 4), (4, 5), (3, 6), (5, 6)), "145236",
                 "  mean cut        14.0 KiB, 31.1 % below the greedy order's, and the least of any "
                 "order (11 down-sets)\n"),
                ("pair", {1: 1024, 2: 1024, 3: 1024}, ((1, 2), (1, 3)), "123",
                 "  mean cut        1.00 KiB, the least of any order (5 down-sets)\n"),
                ("chain", {1: 1024, 2: 1024, 3: 1024}, ((1, 2), (2, 3)), "123", ""),
                ("many", {number: 1024 for number in range(20)},
                 [(0, number) for number in range(1, 20)], None,
                 ", in a greedy order, as the graph has too many down-sets to find the least\n")):
            with self.subTest(name=name):
                result = self.imported(self.write(f"{name}.txt", graph(outputs, edges)),
                                       *options)
                self.assertIn(words, result.stdout)
                self.assertEqual("mean cut" in result.stdout, bool(words))
                if order:
                    self.assertEqual([layer["name"] for layer in self.read("p.json")["layers"]],
                                     [f"Op.{number}" for number in order])

    def test_a_folder_of_metis_is_one_profile_under_the_name_asked_for(self):
        self.imported(*sorted(SAMPLES.glob("DeviceType.*.json")), "--optimizer", "adam",
                      "--global-batch", "64", "--backward-ratio", "2", "--output-size", "1 MiB",
                      "--name", "folder")
        profile = self.read("folder.profile.json")
        self.assertEqual(profile["name"], "folder")
        self.assertEqual([m["batch_size"] for m in profile["layers"][0]["measurements"]], [1, 4])

    def test_the_folder_itself_may_be_named(self):
        (self.folder / "metis").mkdir()
        for file in SAMPLES.glob("DeviceType.*.json"):
            (self.folder / "metis" / file.name).write_bytes(file.read_bytes())
        asked = ["--optimizer", "adam", "--global-batch", "64", "--backward-ratio", "2",
                 "--output-size", "1 MiB", "--name", "folder"]
        self.imported("metis", *asked)
        self.assertEqual(len(self.read("folder.profile.json")["layers"][0]["measurements"]), 2)
        (self.folder / "none").mkdir()
        result = self.run_tool("import", "model", "none", *asked)
        self.assertEqual(result.returncode, USAGE)
        self.assertIn("expected a folder with files, got none", result.stderr)

    def test_the_profile_goes_to_stdout_and_the_words_to_stderr(self):
        result = self.run_tool("import", "model", "-", *self.ASKED, "-o", "-",
                               input=(SAMPLES / "small.piper.json").read_text())
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertTrue(result.stdout.startswith('{\n  "schema": "dapple-profile/1"'))
        self.assertIn("4 layers", result.stderr)

    def test_what_is_missing_is_asked_for_and_nothing_is_written(self):
        piper = SAMPLES / "small.piper.json"
        self.assert_error(self.run_tool("import", "model", piper), USAGE, "--optimizer: expected")
        self.assert_error(self.run_tool("import", "model", piper, "--optimizer", "adam"), USAGE,
                          "--profile-device: the kind of device")
        self.assert_error(self.run_tool("import", "model", piper, *self.ASKED, "--layers", "3"),
                          USAGE, "--layers: expected none for a Piper graph")
        self.assert_error(self.run_tool("import", "model"), USAGE, "expected one file or more")
        self.assert_error(self.run_tool("import", "model", self.write("odd.txt", "hello\n")),
                          BAD_INPUT, "odd.txt: expected a profile of PipeDream, Piper")
        self.assert_error(self.run_tool("import", "model", self.write("cut.json", '{"layer_kinds": [\n')),
                          BAD_INPUT, "cut.json: line 2, column 1: ")
        self.assert_error(self.run_tool("import", "model", piper, *self.ASKED, "-o", piper), USAGE,
                          "would be overwritten")
        self.assert_error(self.run_tool("import", "model", piper, *self.ASKED, "--name", ""), USAGE,
                          "--name: expected")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["cut.json", "odd.txt"])


class Plans(ToolTest):
    def ground(self, **topology):
        """A model of numbered blocks between an embedding and a head, on two servers of two."""
        profile = tool.small_profile()
        layer = profile["layers"].pop()
        del layer["repeat"]
        names = ["embedding", *(f"block.{i}" for i in range(4)), "head"]
        profile["layers"] = [{**layer, "name": name} for name in names]
        return ("--model", self.write("blocks.json", profile),
                "--topo", self.write("2x2.json", tool.small_topology(**topology)))

    LAYOUT = ('--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "Et*2|t*2L" '
              "--micro-batch-size 1 --global-batch-size 16")

    def test_a_plan_for_nanotron_comes_back_as_it_was(self):
        ground = ("--model", tool.ROOT / "profiles" / "llama-3-8b.json", "--topo",
                  tool.ROOT / "topologies" / "8xH100.json")
        result = self.run_tool("import", "plan", "--layout",
                               "pp=2,dp=2,tp=2,mbs=1,zero=1,layers=18:14", *ground, "-o",
                               "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        result = self.run_tool("export", "plan.json", "--to", "nanotron", "-o", "config.yaml")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("cuts the model into stages itself", result.stderr)
        result = self.run_tool("import", "plan", "config.yaml", *ground, "-o", "again.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        plan, again = self.read("plan.json"), self.read("again.json")
        for key in ("stages", "parallelism", "micro_batch_size", "predicted"):
            self.assertEqual(plan[key], again[key])
        result = self.run_tool("import", "plan", "--layout", "pp=2,dp=2,tp=2,mbs=1,zero=1", *ground,
                               "-o", "even.json")
        self.assert_error(self.run_tool("export", "even.json", "--to", "nanotron"), BAD_INPUT,
                          "expected stages of 18, 14 blocks, as nanotron cuts the model itself, "
                          "got 16, 16")

    def test_an_imported_plan_is_costed_simulated_and_sound(self):
        script = self.write("megatron.sh", "OPTIONS=(" + self.LAYOUT + ")")
        result = self.run_tool("import", "plan", script, *self.ground(), "--replicas", "2",
                               "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("iteration", result.stdout)
        self.assertIn("plan written to plan.json", result.stdout)
        plan = self.read("plan.json")
        self.assertEqual([stage["layers"] for stage in plan["stages"]], [[0, 3], [3, 6]])
        self.assertEqual(plan["search_space"]["planner"], "import")
        for command in ("validate", "simulate", "verify"):
            self.assertEqual(self.run_tool(command, "plan.json").returncode, DONE)

    def test_a_layout_may_stand_on_the_command_line_and_devices_too(self):
        result = self.run_tool("import", "plan", "--layout", self.LAYOUT, *self.ground(),
                               "--devices", "node1:0-1,node0:1,node0:0", "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual([stage["devices"] for stage in self.read("plan.json")["stages"]],
                         [["node1:0", "node1:1"], ["node0:1", "node0:0"]])

    def test_a_device_that_was_not_profiled_needs_a_time_scale(self):
        ground = self.ground()
        topology = self.read("2x2.json")
        topology["devices"]["other"] = topology["devices"].pop("card")
        topology["servers"][0]["device"] = "other"
        self.write("2x2.json", topology)
        command = ("import", "plan", "--layout", self.LAYOUT, *ground, "--replicas", "2", "-o",
                   "plan.json")
        self.assert_error(self.run_tool(*command), BAD_INPUT, "2x2.json: /devices/other: ",
                          "(--time-scale X gives it)")
        self.assertEqual(self.run_tool(*command, "--time-scale", "0.5").returncode, DONE)

    def test_so_many_micro_batches_as_no_search_would_look_at_are_refused(self):
        layout = self.LAYOUT.replace("--global-batch-size 16", "--global-batch-size 2000000")
        self.assert_error(self.run_tool("import", "plan", "--layout", layout, *self.ground(),
                                        "--replicas", "2", "-o", "plan.json"), BAD_INPUT,
                          "--layout: expected at most 131072 micro-batches, got 1000000")

    def test_an_export_comes_back_as_the_plan_that_it_was(self):
        ground = self.ground()
        made = self.run_tool(*ground, "--pin", "depths=least", "--pin", "stages=2", "--pin",
                             "replicas=2", "-o", "plan.json")
        self.assertEqual(made.returncode, DONE, made.stderr)
        for targets in (("megatron",), ("deepspeed",), ("torchtitan", "torch-csv"),
                        ("pipedream",)):
            with self.subTest(targets=targets):
                for target in targets:
                    self.run_tool("export", "plan.json", "--to", target, "-o", target)
                result = self.run_tool("import", "plan", *targets, *ground, "-o", "again.json")
                self.assertEqual(result.returncode, DONE, result.stderr)
                plan, again = self.read("plan.json"), self.read("again.json")
                self.assertEqual(again["stages"], plan["stages"])
                self.assertEqual(again["predicted"]["iteration_ns"],
                                 plan["predicted"]["iteration_ns"])
                compared = self.run_tool("diff", "plan.json", "again.json")
                self.assertIn("The plans are the same.", compared.stdout)

    def test_a_device_of_several_gpus_stays_one_on_its_way_through_other_files(self):
        imported = self.run_tool("import", "model", SAMPLES / "small.piper.json", "--optimizer",
                                 "adam", "--profile-device", "card", "--tensor-parallel", "2",
                                 "--backward-ratio", "2", "-o", "pairs.json")
        self.assertEqual(imported.returncode, DONE, imported.stderr)
        self.assertEqual(self.read("pairs.json")["tensor_parallel"], 2)
        ground = ("--model", "pairs.json", "--topo", self.write("topology.json",
                                                                tool.small_topology()))
        for targets in (("megatron",), ("deepspeed",), ("torchtitan", "torch-csv"), ("sailor",)):
            with self.subTest(targets=targets):
                made = self.run_tool(*ground, "--for", targets[0], "--pin", "stages=1", "--pin",
                                     "replicas=2", "-o", "plan.json")
                self.assertEqual(made.returncode, DONE, made.stderr)
                for target in targets:
                    exported = self.run_tool("export", "plan.json", "--to", target, "-o", target)
                    self.assertEqual(exported.returncode, DONE, exported.stderr)
                back = ("import", "plan", *targets, "--topo", "topology.json", "-o", "again.json")
                result = self.run_tool(*back, "--model", "pairs.json")
                self.assertEqual(result.returncode, DONE, result.stderr)
                plan, again = (self.read(name)["stages"] for name in ("plan.json", "again.json"))
                if targets[0] == "sailor":  # whose files have no place for devices
                    plan[0]["devices"] = again[0]["devices"]
                self.assertEqual(again, plan)
                single = {**self.read("pairs.json"), "tensor_parallel": 1}
                self.assert_error(self.run_tool(*back, "--model", self.write("one.json", single)),
                                  USAGE, "--tensor-parallel: expected 2, the plan's degree")
                other = {**self.read("pairs.json"), "tensor_parallel": 8}
                self.assert_error(self.run_tool(*back, "--model", self.write("other.json", other)),
                                  BAD_INPUT, "expected tensor-parallel degree 8, that of the "
                                  "profile, got 2")
        for target in ("pipedream", "torch-python"):
            self.assert_error(self.run_tool(*ground, "--for", target, "-o", "plan.json"), BAD_INPUT,
                              "/tensor_parallel: expected 1, as ", "of several GPUs, got 2")

    def test_a_plan_that_does_not_fit_is_written_only_if_asked_for(self):
        ground = self.ground(memory="10 MiB")
        command = ("import", "plan", "--layout", self.LAYOUT, *ground, "--replicas", "2", "-o",
                   "plan.json")
        self.assert_error(self.run_tool(*command), BAD_INPUT,
                          "--layout: stage 0: memory exceeded: devices node0:0-1 need",
                          "--unlimited-memory takes it all the same")
        self.assertFalse((self.folder / "plan.json").exists())
        result = self.run_tool(*command, "--unlimited-memory")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("the plan does not fit: 4 devices are short of memory",
                      " ".join(self.read("plan.json")["warnings"]))

    def test_wrong_command_lines_and_files_are_refused(self):
        ground = self.ground()
        odd = self.write("odd.txt", "hello\n")
        self.assert_error(self.run_tool("import", "plan"), USAGE, "expected one file or more")
        self.assert_error(self.run_tool("import", "plan", odd, *ground), BAD_INPUT,
                          "odd.txt: expected a plan of PipeDream, Megatron-LM")
        self.assert_error(self.run_tool("import", "plan", odd, *ground[:2]), USAGE, "--topo")
        self.assert_error(self.run_tool("import", "plan", odd, *ground, "--layout", "Et|tL"), USAGE,
                          "--layout: replaces files")
        for devices in ("node0:3-1", "node0:a-b", "node0:0-9999999"):
            with self.subTest(devices=devices):
                self.assert_error(self.run_tool("import", "plan", "--layout", self.LAYOUT, *ground,
                                                "--devices", devices), USAGE, "--devices: expected")
        for replicas in ("0", "two", "1,,1", "-1"):
            with self.subTest(replicas=replicas):
                self.assert_error(self.run_tool("import", "plan", "--layout", self.LAYOUT, *ground,
                                                "--replicas", replicas), USAGE, "--replicas")
        self.assertFalse((self.folder / "blocks.imported.plan.json").exists())


if __name__ == "__main__":
    tool.main()
