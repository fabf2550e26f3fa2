"""Other tools' files as topologies: what is printed, asked for and written, and that it is planned on."""

import tool
from tool import BAD_INPUT, DONE, ENVIRONMENT, USAGE, ToolTest

SAMPLES = tool.ROOT / "tests" / "golden" / "interop"
BOX = ("import", "topology", SAMPLES / "box.smi.txt")
FIGURES = ("--device", "card", "--memory", "1 GiB", "--reserved", "100 MiB", "--nvlink-bandwidth",
           "20 GB/s", "--pcie-bandwidth", "12 GB/s", "--socket-bandwidth", "10 GB/s")
NETWORK = ("--servers", "2", "--nic-bandwidth", "10 Gbit/s")


class Import(ToolTest):
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

    def test_wrong_command_lines_and_files_are_refused(self):
        self.assert_error(self.run_tool("import"), USAGE, "import: expected \"topology\"")
        self.assert_error(self.run_tool("import", "topology"), USAGE, "import: expected")
        self.assert_error(self.run_tool(*BOX, "--nic-bandwidth", "fast"), USAGE,
                          "--nic-bandwidth: expected a bandwidth such as")
        self.assert_error(self.run_tool(*BOX, "--format", "xml"), USAGE, "--format: expected")
        self.assert_error(self.run_tool("import", "topology", "gone.txt"), ENVIRONMENT, "gone.txt")
        self.assert_error(self.run_tool("import", "topology", self.write("odd.txt", "hello\n")),
                          BAD_INPUT, "odd.txt: expected a file of nvidia-smi topo -m")
        self.assert_error(self.run_tool(*BOX, "--format", "slurm"), BAD_INPUT,
                          "line 1: expected KEY=VALUE")


if __name__ == "__main__":
    tool.main()
