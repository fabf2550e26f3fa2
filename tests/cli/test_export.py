"""Plans as other runtimes and launchers take them."""

import ast
import csv
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import tool
from tool import BAD_INPUT, DONE, ENVIRONMENT, INFEASIBLE, USAGE, ToolTest

RUNTIMES = ("megatron", "deepspeed", "torch-python", "torch-csv", "torchtitan", "colossalai",
            "nanotron", "pipedream", "sailor")
TARGETS = (*RUNTIMES, "rankfile", "hostfile", "visible-devices", "ranks")
PROTO = tool.ROOT / "tests" / "golden" / "interop" / "chakra.proto"
PROTOBUF_TOOLS = shutil.which("protoc") and all(map(importlib.util.find_spec,
                                                    ("google", "google.protobuf")))

# Stands in for PyTorch: says what the exported file asks of it.
FAKE_TORCH = """
import sys
import types

CALLS = []


class Module:
    def __init__(self, *arguments, **options):
        self.arguments = arguments

    def to(self, device):
        return self

    def parameters(self):
        return [types.SimpleNamespace(requires_grad=True)]


class PipelineStage:
    def __init__(self, module, number, count, device, group):
        self.what = [len(module.arguments), number, count, group]


class Runtime:
    def __init__(self, stages, micro_batches, loss_fn):
        CALLS.append(["stages", [stage.what for stage in stages]])
        CALLS.append(["ranks", [stage.stage_index_to_group_rank for stage in stages]])
        CALLS.append(["neighbours", [[stage.prev_rank, stage.next_rank] for stage in stages]])
        CALLS.append(["micro-batches", micro_batches])

    def _load_csv(self, path):
        CALLS.append(["order", open(path).read()])


def module(name, **content):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(content)


module("torch", nn=types.SimpleNamespace(Module=Module, Sequential=Module))
module("torch.nn", Module=Module, Sequential=Module)
module("torch.nn.parallel", DistributedDataParallel=lambda inner, process_group, bucket_cap_mb: (
    CALLS.append(["replicas", process_group]), CALLS.append(["bucket", bucket_cap_mb]), inner)[2])
module("torch.utils")
module("torch.utils.checkpoint", checkpoint=None)
module("torch.distributed", get_rank=lambda: RANK, get_world_size=lambda: WORLD,
       new_group=lambda ranks: ranks)
module("torch.distributed.pipelining", PipelineStage=PipelineStage)
module("torch.distributed.pipelining.schedules", _PipelineScheduleRuntime=Runtime)
sys.modules["torch"].distributed = sys.modules["torch.distributed"]
"""


def megatron_stages(layout):
    """Layers of each stage, as Megatron-LM's documentation of the layout has them: E, t, m and L;
    | between stages, *n behind a letter or (...) repeats it, commas mean nothing."""
    text = layout.replace(",", "")
    while (group := re.search(r"\(([^()]*)\)\*(\d+)", text)) is not None:
        text = text[:group.start()] + group[1] * int(group[2]) + text[group.end():]
    text = re.sub(r"([EtmL|])\*(\d+)", lambda match: match[1] * int(match[2]), text)
    assert re.fullmatch(r"[EtmL|]+", text), layout
    return text.split("|")


class Exporting(ToolTest):
    def blocks(self):
        """A model of numbered blocks between an embedding and a head."""
        profile = tool.small_profile()
        names = ["embedding", *(f"block.{i}" for i in range(len(profile["layers"]) - 2)), "head"]
        for layer, name in zip(profile["layers"], names):
            layer["name"] = name
        return self.write("blocks.json", profile)

    def plan(self, *more):
        topology = self.write("topology.json", tool.small_topology())
        result = self.run_tool("--model", self.blocks(), "--topo", topology, "--pin",
                               "depths=least", "--pin", "stages=2", "--pin", "replicas=2", *more,
                               "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        return "plan.json"

    def export(self, plan, target):
        result = self.run_tool("export", plan, "--to", target, "-o", "-")
        self.assertEqual(result.returncode, DONE, result.stderr)
        return result.stdout

    def test_every_target_takes_a_plan_that_was_made_for_it(self):
        plan = self.plan()
        for target in TARGETS:
            if target == "nanotron":  # It cuts the model otherwise.
                continue
            with self.subTest(target=target):
                self.assertTrue(self.export(plan, target))

    def test_scripts_and_programs_are_sound(self):
        plan = self.plan()
        for target in ("deepspeed", "torch-python", "colossalai"):
            ast.parse(self.export(plan, target))
        for target in ("megatron", "torchtitan", "visible-devices", "ranks"):
            checked = subprocess.run(["bash", "-n"], input=self.export(plan, target), text=True,
                                     capture_output=True, check=False)
            self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    def uneven_plan(self, *more):
        """A plan of three stages for three servers of a device, the second with a slow NIC, which is
        best at an end of the pipeline, where one boundary crosses it and not two."""
        topology = tool.small_topology()
        server = {**topology["servers"][0], "devices": 1}
        slow = {**server["nics"][0], "bandwidth": "1 Gbit/s"}
        topology["servers"] = [{**server, "name": "fast", "count": 1},
                               {**server, "name": "slow", "count": 1, "nics": [slow]},
                               {**server, "name": "large", "count": 1}]
        made = self.run_tool("--model", self.blocks(), "--topo", self.write("uneven.json", topology),
                             "--pin", "stages=3", "--pin", "depths=least", "--pin", "replicas=1",
                             "--micro-batch", "4", *more, "-o", "uneven.plan.json")
        self.assertEqual(made.returncode, DONE, made.stderr)
        return self.read("uneven.plan.json")

    def moved(self, plan, order):
        """The plan with its stages' devices in that order, under a name of its own."""
        for stage, device in zip(plan["stages"], order):
            stage["devices"] = [device]
        layout = [stage["layers"][1] - stage["layers"][0] for stage in plan["stages"]]
        blocks = "|".join(("E" if i == 0 else "") + f"t*{count}" + ("L" if i == 2 else "")
                          for i, count in enumerate(layout))
        made = self.run_tool("import", "plan", "--layout",
                             "--pipeline-model-parallel-size 3 --micro-batch-size 4 "
                             f"--pipeline-model-parallel-layout {blocks} --global-batch-size 16",
                             "--replicas", "1", "--devices", ",".join(order), "--model",
                             "blocks.json", "--topo", "uneven.json", "-o", "moved.plan.json")
        self.assertEqual(made.returncode, DONE, made.stderr)
        return "moved.plan.json"

    def test_an_order_of_ranks_that_no_launcher_gives_is_told_and_given(self):
        plan = self.uneven_plan()
        # The slow server is at one end, where one boundary alone crosses its NIC.
        moved = self.moved(plan, ["large0:0", "fast0:0", "slow0:0"])
        for target, ending in (("megatron", ".megatron.sh"), ("deepspeed", ".py")):
            result = self.run_tool("export", moved, "--to", target, "-o", "job" + ending)
            self.assertEqual(result.returncode, DONE, result.stderr)
            said = " ".join(result.stderr.split())
            self.assertRegex(said, "launchers number processes server by server, device by device; "
                             r"with ranks in that order an iteration takes \d\S* ms instead of "
                             r"\d\S* ms: job(\.py)?.ranks.sh gives each process the plan's rank")
            self.assertIn("a wrapper that gives each process its rank written to job", result.stdout)
        wrapper = (self.folder / "job.ranks.sh").read_text()
        self.assertEqual(wrapper, self.export(moved, "ranks"))
        self.assertEqual([line.split(":")[0][2:] + line.split(":")[1] for line in
                          wrapper.splitlines() if line.startswith("  # server")],
                         ["# server 0 large0, 1 processes", "# server 1 fast0, 1 processes",
                          "# server 2 slow0, 1 processes"])
        for server, gpu in enumerate("000"):
            for name in ("GROUP_RANK", "CROSS_RANK", "SLURM_NODEID"):
                ran = subprocess.run(
                    ["sh", "job.ranks.sh", "sh", "-c", "echo $RANK $WORLD_SIZE $CUDA_VISIBLE_DEVICES"],
                    env={name: str(server), "LOCAL_RANK": "0", "RANK": "7", "PATH": "/usr/bin:/bin"},
                    cwd=self.folder, text=True, capture_output=True, check=True)
                self.assertEqual(ran.stdout, f"{server} 3 {gpu}\n")
        ran = subprocess.run(["sh", "job.ranks.sh", "true"], env={"GROUP_RANK": "0", "LOCAL_RANK": "1"},
                             cwd=self.folder, text=True, capture_output=True, check=False)
        self.assertEqual(ran.returncode, 2)
        to_stdout = self.run_tool("export", moved, "--to", "megatron", "-o", "-")
        self.assertIn("what --to ranks writes gives each", " ".join(to_stdout.stderr.split()))

    def test_a_plan_for_a_launcher_stands_in_its_order_and_costs_what_it_costs(self):
        free = self.uneven_plan()
        found = self.uneven_plan("--for", "megatron")
        devices = [stage["devices"][0] for stage in found["stages"]]
        self.assertEqual(devices, ["fast0:0", "slow0:0", "large0:0"])
        self.assertNotEqual([stage["devices"][0] for stage in free["stages"]], devices)
        self.assertGreater(found["predicted"]["iteration_ns"], free["predicted"]["iteration_ns"])
        result = self.run_tool("export", "uneven.plan.json", "--to", "megatron", "-o", "job.sh")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertNotIn("launchers number", " ".join(result.stderr.split()))
        self.assertFalse((self.folder / "job.sh.ranks.sh").exists())
        self.assertEqual(self.run_tool("verify", "uneven.plan.json").returncode, DONE)
        cut = " ".join(found["search_space"]["cut"])
        self.assertIn("devices in another order than its launcher's", cut)

    def test_names_of_layers_and_servers_run_nothing(self):
        profile = tool.small_profile()
        name = "b'); touch run; x=('$(touch run)`touch run`\\"
        profile["layers"][0]["name"] = name
        self.write("odd.json", profile)
        topology = self.write("topology.json", tool.small_topology())
        made = self.run_tool("--model", "odd.json", "--topo", topology, "--for", "torchtitan", "-o",
                             "plan.json")
        self.assertEqual(made.returncode, DONE, made.stderr)
        script = self.export("plan.json", "torchtitan") + 'printf "%s" "${PIPELINE_ARGS[9]}"\n'
        ran = subprocess.run(["bash"], input=script, text=True, capture_output=True, check=False,
                             cwd=self.folder)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertFalse((self.folder / "run").exists())
        names = [layer for part in json.loads(ran.stdout) for layer in part]
        self.assertEqual(names[0], name + ".0")
        servers = tool.small_topology()
        servers["servers"][0]["name"] = "node slots=9"
        self.write("servers.json", servers)
        self.run_tool("--model", self.blocks(), "--topo", "servers.json", "-o", "servers.plan.json")
        for target in ("rankfile", "hostfile"):
            result = self.run_tool("export", "servers.plan.json", "--to", target, "-o", "-")
            self.assertEqual((result.returncode, result.stdout), (BAD_INPUT, ""))
            self.assertIn('expected a host\'s name, of letters, digits', result.stderr)

    def test_each_rank_gets_its_own_device(self):
        wrapper = self.write("wrapper.sh", self.export(self.plan(), "visible-devices"))
        seen = []
        for rank in range(4):
            result = subprocess.run(["sh", wrapper, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"],
                                    env={"RANK": str(rank), "PATH": "/usr/bin:/bin"}, text=True,
                                    capture_output=True, cwd=self.folder, check=True)
            seen.append(result.stdout.strip())
        devices = [device.split(":")[1] for stage in self.read("plan.json")["stages"]
                   for device in stage["devices"]]
        self.assertEqual(seen, devices)
        unknown = subprocess.run(["sh", wrapper, "true"], env={"RANK": "4"}, text=True,
                                 capture_output=True, cwd=self.folder, check=False)
        self.assertEqual(unknown.returncode, 2)
        self.assertIn("expected a rank from 0 to 3, got '4'", unknown.stderr)

    @unittest.skipUnless(shutil.which("mpirun") and len(os.sched_getaffinity(0)) > 1,
                         "there is no mpirun, or one core")
    def test_open_mpi_places_ranks_as_the_rankfile_says(self):
        server = tool.small_topology()["servers"][0]
        one = tool.small_topology(servers=[{**server, "count": 1, "nics": []}])
        del one["network"]
        made = self.run_tool("--model", self.blocks(), "--topo", self.write("one.json", one),
                             "--pin", "stages=2", "-o", "plan.json")
        self.assertEqual(made.returncode, DONE, made.stderr)
        text = self.export("plan.json", "rankfile")
        self.assertEqual(text, "rank 0=node0 slot=0\nrank 1=node0 slot=1\n")
        ranks = self.write("ranks.txt", text.replace("node0", "localhost"))
        # Each process prints its rank and the one core that it may run on.
        result = subprocess.run(
            ["mpirun", "-q", "-np", "2", "-rf", ranks, "sh", "-c",
             "echo $OMPI_COMM_WORLD_RANK $(sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status)"],
            cwd=self.folder, text=True, capture_output=True, check=False, timeout=tool.SECONDS,
            env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                 "OMPI_MCA_plm": "isolated"})
        self.assertEqual(result.returncode, 0, result.stderr)
        cores = [line.split()[1] for line in sorted(result.stdout.splitlines())]
        self.assertEqual(len(cores), 2, result.stdout)
        self.assertEqual(len(set(cores)), 2, cores)
        self.assertTrue(all(core.isdigit() for core in cores), cores)

    def test_megatrons_layout_has_the_layers_of_every_stage(self):
        plan = self.plan()
        text = self.export(plan, "megatron")
        layout = re.search(r'--pipeline-model-parallel-layout "([^"]*)"', text)[1]
        stages = megatron_stages(layout)
        self.assertEqual([stage.count("t") for stage in stages],
                         [end - begin for begin, end in
                          (stage["layers"] for stage in self.read(plan)["stages"])])
        whole = "".join(stages)
        self.assertEqual(whole, "E" + "t" * (len(whole) - 2) + "L")
        size = int(re.search(r"--pipeline-model-parallel-size (\d+)", text)[1])
        self.assertEqual(len(stages), size)

    def launched(self, text):
        """What torchrun is given by the launch line of a script, whose comment it is."""
        command = text[text.index("\n#   ") + 1:].replace("#   ", "")
        fake = self.folder / "fake"
        fake.mkdir(exist_ok=True)
        (fake / "torchrun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (fake / "torchrun").chmod(0o755)
        ran = subprocess.run(["bash", "-u"], input=f"{text}OTHER_ARGS=(--seed 7)\n{command}",
                             text=True, capture_output=True, check=True, cwd=self.folder,
                             env={"PATH": f"{fake}:/usr/bin:/bin", "NODE_RANK": "1", "RANKS": "3",
                                  "MASTER_ADDR": "10.0.0.1"})
        words = ran.stdout.splitlines()
        program = words.index("pretrain_gpt.py")
        return words[:program], words[program + 1:]

    def test_megatrons_launch_line_starts_every_rank_with_the_arguments(self):
        text = self.export(self.plan(), "megatron")
        options, arguments = self.launched(text)
        self.assertEqual(options, ["--nnodes", "2", "--node-rank", "1", "--master-addr",
                                   "10.0.0.1", "--nproc-per-node", "2"])
        self.assertEqual(arguments[:2], ["--tensor-model-parallel-size", "1"])
        self.assertEqual(arguments[-2:], ["--seed", "7"])
        self.assertIn("# To start it on node0 and 1 more, with the number of each", text)
        # The comment is none of the words that are imported.
        made = self.run_tool("import", "plan", self.write("job.sh", text), "--replicas", "2",
                             "--model", self.blocks(), "--topo", "topology.json", "-o",
                             "back.json")
        self.assertEqual(made.returncode, DONE, made.stderr)
        self.assertEqual([stage["devices"] for stage in self.read("back.json")["stages"]],
                         [stage["devices"] for stage in self.read("plan.json")["stages"]])

    def test_megatrons_launch_line_counts_the_ranks_of_each_server(self):
        topology = tool.small_topology()
        server = topology["servers"][0]
        topology["servers"] = [{**server, "name": "large", "count": 1, "devices": 2},
                               {**server, "name": "small", "count": 1, "devices": 1,
                                "nics": server["nics"][:1]}]
        made = self.run_tool("--model", self.blocks(), "--topo",
                             self.write("odd.json", topology), "--for", "megatron", "--pin",
                             "stages=3", "-o", "plan.json")
        self.assertEqual(made.returncode, DONE, made.stderr)
        text = self.export("plan.json", "megatron")
        options, _ = self.launched(text)
        self.assertEqual(options[-2:], ["--nproc-per-node", "3"])  # what RANKS says
        self.assertIn("the number of its processes, 2 on large0, 1 on small0:", text)
        alone = {**topology, "servers": topology["servers"][:1]}
        del alone["network"]
        made = self.run_tool("--model", self.blocks(), "--topo",
                             self.write("alone.json", alone), "--for", "megatron", "--pin",
                             "stages=2", "-o", "plan.json")
        self.assertEqual(made.returncode, DONE, made.stderr)
        options, _ = self.launched(self.export("plan.json", "megatron"))
        self.assertEqual(options, ["--nproc-per-node", "2"])

    def test_an_order_comes_back_as_it_went(self):
        plan = self.plan()
        grid = self.write("order.csv", self.export(plan, "torch-csv"))
        rows = list(csv.reader(io.StringIO(self.export(plan, "torch-csv"))))
        self.assertEqual(len(rows), 2)
        self.assertEqual(len({len(row) for row in rows}), 1)
        result = self.run_tool("reschedule", plan, "--schedule", "given", "--order", grid, "-o",
                               "again.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(self.run_tool("schedule", plan).stdout,
                         self.run_tool("schedule", "again.json").stdout)

    def test_what_a_target_cannot_express_is_an_error(self):
        self.run_tool("reschedule", self.plan(), "--schedule", "gpipe", "-o", "gpipe.json")
        self.assert_error(self.run_tool("export", "gpipe.json", "--to", "megatron"), BAD_INPUT,
                          "gpipe.json: /schedule/family: expected 1f1b or interleaved, which "
                          "Megatron-LM runs, got gpipe")
        self.assertFalse((self.folder / "small.megatron.sh").exists())

    def test_a_refusal_says_how_to_plan_for_the_target(self):
        self.run_tool("reschedule", self.plan(), "--schedule", "gpipe", "-o", "gpipe.json")
        self.assert_error(self.run_tool("export", "gpipe.json", "--to", "deepspeed"), BAD_INPUT,
                          "gpipe.json: /schedule/family: expected 1f1b, which DeepSpeed runs",
                          "dapple-plan --for deepspeed makes the fastest one")

    def build(self, program, rank, processes):
        """What the exported program asks of PyTorch on one rank."""
        script = (f"RANK, WORLD = {rank}, {processes}\n{FAKE_TORCH}\n"
                  "import json, importlib\n"
                  f"program = importlib.import_module({program!r})\n"
                  "program.build([None] * program.STAGES[-1][1], 'cpu', None)\n"
                  "print(json.dumps(CALLS))\n")
        result = subprocess.run([sys.executable, "-B", "-c", script], cwd=self.folder, text=True,
                                capture_output=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [(call, value) for call, value in json.loads(result.stdout)]

    def test_every_process_of_pytorch_builds_its_own_stages(self):
        plan = self.plan()
        self.write("exported.py", self.export(plan, "torch-python"))
        stages = self.read(plan)["stages"]
        order = self.export(plan, "torch-csv")
        for rank in range(4):
            calls = dict(self.build("exported", rank, 4))
            stage = rank // 2
            begin, end = stages[stage]["layers"]
            pipeline = [rank % 2, rank % 2 + 2]
            self.assertEqual(calls["stages"], [[end - begin, stage, 2, pipeline]])
            self.assertEqual(calls["replicas"], [2 * stage, 2 * stage + 1])
            self.assertEqual(calls["ranks"], [{"0": 0, "1": 1}])
            self.assertEqual(calls["micro-batches"], self.read(plan)["num_micro_batches"])
            self.assertEqual(calls["order"], order)
            self.assertEqual(calls["bucket"], 25)

    def test_stages_of_a_v_are_given_to_the_devices_that_hold_them(self):
        self.run_tool("reschedule", self.plan(), "--schedule", "zb-v", "-o", "v.json")
        self.write("exported.py", self.export("v.json", "torch-python"))
        calls = dict(self.build("exported", 0, 4))
        self.assertEqual([stage[1] for stage in calls["stages"]], [0, 3])
        self.assertEqual(calls["ranks"][0], {"0": 0, "1": 1, "2": 1, "3": 0})
        calls = dict(self.build("exported", 3, 4))
        self.assertEqual(calls["neighbours"], [[1, 3], [3, 1]])

    def test_pipedream_and_sailor_get_stages_ranks_and_depths(self):
        plan = self.plan()
        written = self.read(plan)
        ends = [stage["layers"][1] for stage in written["stages"]]
        pipedream = json.loads(self.export(plan, "pipedream"))
        self.assertEqual(pipedream, {
            "module_to_stage_map": [0] * ends[0] + [1] * (ends[1] - ends[0] + 1),
            "stage_to_rank_map": {"0": [0, 1], "1": [2, 3]},
            "stage_to_depth_map": {"0": 1, "1": 0},
            "global_batch_size": written["global_batch_size"],
            "micro_batch_size": written["micro_batch_size"],
            "replication": "split",
            "recompute": False,
            "rank_to_device_map": [device for stage in written["stages"]
                                   for device in stage["devices"]]})
        sailor = json.loads(self.export(plan, "sailor"))
        replicas = [[[["card", 2, "2x2"]], 1]] * 2
        self.assertEqual(sailor, {
            "pipeline_list": [{
                "num_stages": 2,
                "layers_per_stage": [list(range(ends[0])), list(range(ends[0], ends[1]))],
                "tmp_per_stage": [replicas, replicas],
                "dp": [2, 2]}],
            "mbs": written["micro_batch_size"] // 2,
            "gbs": written["global_batch_size"]})

    def test_colossalai_gets_the_blocks_of_each_stage(self):
        plan = self.plan()
        end = self.read(plan)["stages"][0]["layers"][1]
        text = self.export(plan, "colossalai")
        self.assertIn(f"num_layers_per_stage=[{end}, {6 - end}],", text)
        self.assertIn("pp_size=2,", text)

    def chakra(self, plan):
        result = self.run_tool("export", plan, "--to", "chakra", "-o", "traces")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("execution traces, 5 files, written to traces\n", result.stdout)
        return self.read("traces/groups.json")

    def nodes(self, rank):
        """The nodes of a trace, as protobuf reads them with a schema of its own."""
        if not (self.folder / "chakra_pb2.py").exists():
            subprocess.run(["protoc", f"--proto_path={PROTO.parent}",
                            f"--python_out={self.folder}", PROTO.name], check=True)
        sys.path.insert(0, str(self.folder))
        self.addCleanup(sys.path.remove, str(self.folder))
        import chakra_pb2  # pylint: disable=import-error
        from google.protobuf.internal.decoder import _DecodeVarint32
        content = (self.folder / "traces" / f"trace.{rank}.et").read_bytes()
        messages, position = [], 0
        while position < len(content):
            size, position = _DecodeVarint32(content, position)
            messages.append(content[position:position + size])
            position += size
        self.assertEqual(chakra_pb2.GlobalMetadata.FromString(messages[0]).version, "0.0.4")
        return [chakra_pb2.Node.FromString(message) for message in messages[1:]]

    @unittest.skipUnless(PROTOBUF_TOOLS, "protobuf-compiler or python3-protobuf is not installed")
    def test_chakra_traces_say_what_the_schedule_says(self):
        plan = self.plan()
        groups = self.chakra(plan)
        self.assertEqual(groups, {"1": [0, 1], "2": [2, 3]})
        schedule = json.loads(self.run_tool("schedule", plan, "--format", "json").stdout)
        sent, received = {}, {}
        for rank, entry in enumerate(schedule["devices"]):
            nodes = self.nodes(rank)
            expected = [action["action"] for action in entry["actions"]
                        for _ in (action.get("peers", [0]) if action["stream"] != "collective"
                                  else [0])]
            self.assertEqual([node.name for node in nodes], expected)
            self.assertEqual([node.id for node in nodes], list(range(len(nodes))))
            for node in nodes:
                self.assertTrue(all(before < node.id
                                    for before in [*node.ctrl_deps, *node.data_deps]))
                values = {attribute.name: getattr(attribute, attribute.WhichOneof("value"))
                          for attribute in node.attr}
                self.assertIs(values["is_cpu_op"], False)
                if node.type == 4:
                    self.assertGreater(node.duration_micros, 0)
                elif node.type in (5, 6):
                    self.assertEqual(values["comm_src" if node.type == 5 else "comm_dst"], rank)
                    key = (values["comm_src"], values["comm_dst"], values["comm_tag"])
                    side = sent if node.type == 5 else received
                    self.assertNotIn(key, side)
                    side[key] = values["comm_size"]
                else:
                    self.assertEqual((node.type, values["comm_type"]), (7, 0))
                    self.assertIn(rank, groups[values["pg_name"]])
                    self.assertTrue(node.data_deps)
        self.assertEqual(sent, received)
        self.assertTrue(sent)

    def test_several_files_are_a_folder(self):
        plan = self.plan()
        self.assert_error(self.run_tool("export", plan, "--to", "chakra", "-o", "-"), USAGE,
                          "--output: expected the name of a folder, for several files, got \"-\"")
        self.assert_error(self.run_tool("export", plan, "--to", "chakra", "-o", self.folder), USAGE,
                          "--output: expected a folder without the plan, which would be overwritten")
        self.assertEqual(self.run_tool("export", plan, "--to", "chakra").returncode, DONE)
        names = ["dapple-export.json", "groups.json", *(f"trace.{rank}.et" for rank in range(4))]
        folder = self.folder / "small.chakra"
        self.assertEqual(sorted(os.listdir(folder)), names)
        made = self.read("small.chakra/dapple-export.json")
        self.assertEqual((made["schema"], made["target"], made["files"]),
                         ("dapple-export/1", "chakra", names[1:]))

    def plan_for(self, target, *more):
        """A plan for a target, of a model in which unequal replicas would pay."""
        profile = tool.small_profile()
        names = ["embedding", *(f"block.{i}" for i in range(4)), "head"]
        figures = profile["layers"][0]
        profile["layers"] = [{**figures, "name": name} for name in names]
        for layer in profile["layers"]:
            del layer["repeat"]
        measured = dict(figures["measurements"][0], forward_ns=3500000, backward_ns=7000000)
        profile["layers"][0]["measurements"] = [measured]
        return self.run_tool("--model", self.write("uneven.json", profile), "--topo",
                             self.write("topology.json", tool.small_topology()), *more,
                             *(["--for", target] if target else []), "-o", "for.json")

    def test_a_plan_for_a_target_can_be_exported_to_it(self):
        for target in RUNTIMES:
            with self.subTest(target=target):
                result = self.plan_for(target)
                self.assertEqual(result.returncode, DONE, result.stderr)
                self.assertTrue(self.export("for.json", target))
                self.assertEqual(self.run_tool("validate", "for.json").returncode, DONE)
                self.assertEqual(self.run_tool("verify", "for.json").returncode, DONE)
                search = self.read("for.json")["search_space"]
                self.assertIn("cannot express: replicas that differ", " ".join(search["cut"]))
                self.assertNotIn("pinned", " ".join(search["cut"]))

    def test_every_schedule_that_a_target_runs_is_looked_at(self):
        for target, families in (("deepspeed", ["1f1b"]), ("megatron", ["1f1b", "interleaved"]),
                                 ("torch-csv", [family for family in tool.FAMILIES
                                                if family != "gpipe"])):
            with self.subTest(target=target):
                result = self.plan_for(target, "--schedule", "auto")
                self.assertEqual(result.returncode, DONE, result.stderr)
                plan = self.read("for.json")
                records = {record["family"]: record for record in plan["schedules"]}
                self.assertEqual(list(records), families)
                found = [record["iteration_ns"] for record in records.values()
                         if record["iteration_ns"] is not None]
                predicted = plan["predicted"]
                self.assertEqual(predicted["iteration_ns"], min(found))
                self.assertEqual(records[plan["schedule"]["family"]]["reason"], "this plan")
                bounds = [record["lower_bound_ns"] for record in records.values()
                          if record["lower_bound_ns"] is not None]
                self.assertEqual(predicted["lower_bound_ns"], min(bounds))
                self.assertTrue(self.export("for.json", target))
                self.assertEqual(self.run_tool("validate", "for.json").returncode, DONE)
                self.assertEqual(self.run_tool("verify", "for.json").returncode, DONE)

    def test_pytorch_gets_no_split_backward_of_weights_that_layers_share(self):
        profile = tool.small_profile()
        figures = profile["layers"][0]
        del figures["repeat"]
        profile["layers"] = [{**figures, "name": f"block.{i}"} for i in range(4)]
        profile["layers"][3].update(parameter_bytes=0, tied_to="block.2")
        arguments = ("--model", self.write("tied.json", profile), "--topo",
                     self.write("topology.json", tool.small_topology()), "--for", "torch-csv", "-o",
                     "for.json", "--schedule")
        self.assert_error(self.run_tool(*arguments, "zb-h1"), USAGE,
                          "--schedule: expected whole backwards, as layers share weights")
        self.assertEqual(self.run_tool(*arguments, "auto").returncode, DONE)
        self.assertEqual([record["family"] for record in self.read("for.json")["schedules"]],
                         ["1f1b", "interleaved", "breadth-first", "list-scheduled"])

    def test_its_bound_is_of_what_the_target_can_express(self):
        free = self.plan_for(None)
        self.assertEqual(free.returncode, DONE, free.stderr)
        best = self.read("for.json")["predicted"]
        least = None
        for replicas in (1, 2, 4):
            for recompute in ("on", "off"):
                self.plan_for("deepspeed", "--pin", f"replicas={replicas}", "--pin",
                              f"recompute={recompute}")
                predicted = self.read("for.json")["predicted"]
                if least is None or predicted["iteration_ns"] < least:
                    least = predicted["iteration_ns"]
        self.plan_for("deepspeed")
        allowed = self.read("for.json")["predicted"]
        self.assertEqual(allowed["iteration_ns"], least)
        self.assertLessEqual(allowed["lower_bound_ns"], allowed["iteration_ns"])
        self.assertGreaterEqual(allowed["lower_bound_ns"], best["lower_bound_ns"])
        self.assertGreaterEqual(allowed["iteration_ns"], best["iteration_ns"])

    def test_what_a_target_cannot_be_planned_for_is_named(self):
        for arguments, words in (
                (("deepspeed", "--schedule", "zb-h1"), "--schedule: expected 1f1b, which DeepSpeed"),
                (("rankfile",), "--for: expected megatron, deepspeed, "),
                (("sailor", "--pin", "recompute=on"), "--pin: expected no recompute=on, which "
                                                      "Sailor does not have"),
                (("colossalai", "--pin", "cut=head"), "--pin: expected no cut=head, where ColossalAI "
                                                      "has no boundary")):
            with self.subTest(arguments=arguments):
                self.assert_error(self.plan_for(*arguments), USAGE, words)
        plain = tool.small_profile()
        plain["layers"][0]["repeat"] = 1
        self.assert_error(
            self.run_tool("--model", self.write("plain.json", plain), "--topo", "topology.json",
                          "--for", "megatron"),
            BAD_INPUT, "--model: /layers: expected transformer blocks, ", "Megatron-LM counts nothing else")

    def test_whoever_stops_planning_for_a_target_has_a_plan_and_a_bound(self):
        for more in ((), ("--schedule", "auto")):
            with self.subTest(more=more):
                result = self.plan_for("torch-csv", "--time-limit", "0.3", *more)
                if result.returncode == INFEASIBLE:
                    self.assertIn("no plan was found before", result.stderr)
                    continue
                self.assertEqual(result.returncode, DONE, result.stderr)
                predicted = self.read("for.json")["predicted"]
                self.assertLessEqual(predicted["lower_bound_ns"], predicted["iteration_ns"])
                self.assertTrue(self.export("for.json", "torch-csv"))

    def test_when_nothing_fits_for_a_target_it_is_said(self):
        huge = tool.small_profile()
        huge["layers"][0]["parameter_bytes"] = 1 << 32
        result = self.run_tool("--model", self.write("huge.json", huge), "--topo",
                               self.write("topology.json", tool.small_topology()), "--for",
                               "megatron")
        self.assert_error(result, INFEASIBLE, "what Megatron-LM can express", "are missing")

    def test_what_a_target_s_files_leave_out_is_a_warning(self):
        plan = self.plan()
        for target, words in (("megatron", "gradient buckets of 25 MiB"),
                              ("torch-csv", "layers and devices of stages"),
                              ("torchtitan", "the order of actions (torch-csv has it)"),
                              ("sailor", "which device each rank has (rankfile does)"),
                              ("visible-devices", "which server each rank has")):
            with self.subTest(target=target):
                result = self.run_tool("export", plan, "--to", target, "-o", "-")
                said = " ".join(result.stderr.split())
                self.assertIn(f"warning: not in the files of {target}: ", said)
                self.assertIn(words, said)
        self.assertEqual(self.run_tool("export", plan, "--to", "rankfile", "-o", "-").stderr, "")

    def test_a_folder_of_traces_takes_the_place_of_an_earlier_one_and_of_nothing_else(self):
        plan = self.plan()
        one = self.run_tool("--model", "blocks.json", "--topo", "topology.json", "--pin", "stages=1",
                            "--pin", "replicas=1", "-o", "one.json")
        self.assertEqual(one.returncode, DONE, one.stderr)
        export = ("export", "--to", "chakra", "-o", "traces")
        self.assertEqual(self.run_tool(*export, plan).returncode, DONE)
        self.assertEqual(self.run_tool(*export, "one.json").returncode, DONE)
        traces = self.folder / "traces"
        self.assertEqual(sorted(os.listdir(traces)),
                         ["dapple-export.json", "groups.json", "trace.0.et"])
        (traces / "notes").write_text("mine")
        self.assert_error(self.run_tool(*export, plan), ENVIRONMENT,
                          "traces: expected nothing but what export has made there, which it would "
                          "replace, got notes")
        (self.folder / "own").mkdir()
        (self.folder / "own" / "trace.0.et").write_text("mine")
        for name, words in (("own", "got one without a dapple-export.json that says so"),
                            ("one.json", "expected a folder, got a file"),
                            ("/dev/full", "expected a folder, got a file"),
                            ("none/traces", "cannot be written: No such file or directory")):
            self.assert_error(self.run_tool("export", plan, "--to", "chakra", "-o", name),
                              ENVIRONMENT, f"{name}: ", words)
        self.assertEqual((self.folder / "own" / "trace.0.et").read_text(), "mine")
        self.assertEqual((traces / "notes").read_text(), "mine")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["blocks.json", "one.json", "own", "plan.json", "topology.json", "traces"])

    def test_the_target_must_be_known(self):
        plan = self.plan()
        self.assert_error(self.run_tool("export", plan), USAGE, "--to: a target (one of megatron, ")
        self.assert_error(self.run_tool("export", plan, "--to", "tensorflow"), USAGE,
                          "--to: expected megatron, deepspeed, ", "got \"tensorflow\"")

    def test_without_a_name_the_file_is_named_after_the_model(self):
        result = self.run_tool("export", self.plan(), "--to", "hostfile")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("written to ./small.hostfile", result.stdout)
        self.assertTrue((self.folder / "small.hostfile").exists())

    def test_depths_are_pinned_for_1f1b_only(self):
        self.assert_error(
            self.run_tool(*self.small_inputs(), "--pin", "depths=least", "--schedule", "zb-h1"),
            USAGE, "--pin: depths=least needs --schedule 1f1b, got zb-h1")


if __name__ == "__main__":
    tool.main()
