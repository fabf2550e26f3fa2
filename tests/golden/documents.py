"""The golden documents and the commands that make them.

pair.profile.json, pair.topology.json and racks.topology.json are both inputs and goldens: what is
golden about them is that they are canonical, so they are what the plan made from them embeds.
"""

import os
import pathlib
import subprocess
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
SOURCE = FOLDER.parent.parent

# Name of the plan: profile, topology, what else is asked for.
PLANS = {
    "pair": ("tests/golden/pair.profile.json", "tests/golden/pair.topology.json"),
    "pair-auto": ("tests/golden/pair.profile.json", "tests/golden/pair.topology.json",
                  "--schedule", "auto"),
    "racks": ("tests/golden/pair.profile.json", "tests/golden/racks.topology.json"),
    "bert-large-8xV100": ("profiles/bert-large.json", "topologies/8xV100.json"),
    "bert-48-2x8xV100": ("profiles/bert-48.json", "topologies/2x8xV100.json"),
    "vgg-19-mixed.independent": ("profiles/vgg-19.json", "topologies/mixed-A100-V100.json",
                                 "--replicas", "independent", "--micro-batch", "64",
                                 "--planner", "dapple", "--no-baselines"),
}

# What the pair's plan is compared with.
COMPARED = ("--model", SOURCE / "tests/golden/pair.profile.json", "--topo",
            SOURCE / "tests/golden/pair.topology.json", "--planner", "dapple", "--no-baselines",
            "--pin", "stages=3", "--micro-batch", "4")

# Name of an imported topology: files of other tools, what they do not say.
IMPORTS = {
    "box": ("box.smi.txt", "--device", "V100-16GB", "--servers", "2", "--nic-bandwidth",
            "100 Gbit/s", "--socket-bandwidth", "10 GB/s"),
    "switched": ("switched.xml", "--network-bandwidth", "200 Gbit/s"),
    "measured": ("switched.xml", "pair.nccl-tests.txt"),
    "bridged": ("bridged.hwloc.xml", "--device", "A100-40GB", "--socket-bandwidth", "16 GB/s"),
    "tree": ("tree.conf", "box.smi.txt", "--device", "card", "--memory", "8 GiB", "--nodes",
             "gpu[01-05]", "--nic-bandwidth", "25 Gbit/s", "--nvlink-bandwidth", "20 GB/s",
             "--pcie-bandwidth", "12 GB/s", "--socket-bandwidth", "6 GB/s", "--rack-uplink", "2",
             "--pod-uplink", "50 Gbit/s"),
    "ring": ("ring.astra.yml", "--device", "card", "--memory", "16 GiB"),
}

# Name of an imported profile: files of other planners, what they do not say.
MODELS = {
    "piper": ("small.piper.json", "--optimizer", "adam", "--profile-device", "card"),
    "piper-all": ("small.piper.json", "--optimizer", "sgd", "--profile-device", "card",
                  "--tensor-parallel", "all"),
    "piper-2": ("small.piper.json", "--optimizer", "sgd", "--profile-device", "two cards",
                "--tensor-parallel", "2", "--backward-ratio", "2", "--global-batch", "32"),
    "metis": ("DeviceType.card_tp1_bs1.json", "DeviceType.card_tp1_bs4.json", "--optimizer",
              "adam", "--global-batch", "32", "--backward-ratio", "2", "--output-size", "1 MiB"),
    "sailor": ("small.sailor.json", "--optimizer", "adam", "--global-batch", "32",
               "--profile-device", "GH-96"),
    "sailor-files": ("small.sailor-times.json", "small.sailor-sizes.json", "--optimizer", "adam",
                     "--global-batch", "32", "--profile-device", "V100-16"),
    "galvatron": ("small.computation.json", "small.memory.json", "--optimizer", "adam",
                  "--global-batch", "32", "--backward-ratio", "2", "--output-size", "1 MiB",
                  "--layers", "3", "--profile-device", "card"),
}

# Name of an imported plan, all for the pair: files of others, what they do not say.
IMPORTED_PLANS = {
    "megatron": ("pair.megatron.sh", "--replicas", "2"),
    "deepspeed": ("pair.deepspeed.py", "pair.settings.json"),
    "torch": ("pair.torchtitan.sh", "pair.torch.csv", "--devices", "mesh0:1,box0:0"),
    "layout": ("pair.layout.txt",),
    "sailor": ("pair.sailor.json",),
    "nanotron": ("pair.nanotron.yaml",),
    "pipedream": ("pair.gpus=4.txt", "pair.optimizer.txt", "--micro-batch", "4"),
    "pipedream-conf": ("pair.gpus=4.txt", "pair.conf.json", "--micro-batch", "4"),
}


def run(binary, *arguments, folder=None):
    """What the program prints on stdout, run in that folder; an error if it fails."""
    process = subprocess.run([str(pathlib.Path(binary).resolve()), *map(str, arguments)],
                             capture_output=True, check=False, cwd=folder,
                             env={**os.environ, "LC_ALL": "C", "COLUMNS": "80"})
    if process.returncode != 0:
        raise RuntimeError(f"{binary} {' '.join(map(str, arguments))}: exit code "
                           f"{process.returncode}\n{process.stderr.decode()}")
    return process.stdout


def embedded(plan, key):
    """The document under a key of the plan's second level, as it stands in a file of its own."""
    opening = f'    "{key}": {{\n'.encode()
    begin = plan.index(opening)
    end = plan.index(b"\n    }", begin)
    lines = plan[begin + len(opening):end].split(b"\n")
    return b"{\n" + b"".join(line[4:] + b"\n" for line in lines) + b"}\n"


def words_of(words):
    """Arguments of a command; what is a file of other tools, as a path."""
    return [FOLDER / "interop" / word if (FOLDER / "interop" / word).is_file() else word
            for word in words]


def samples():
    """The names of the files of other tools that documents are made of, among other words."""
    commands = (*IMPORTS.values(), *MODELS.values(), *IMPORTED_PLANS.values())
    return {word for words in commands for word in words}


def documents(binary):
    """Every golden document as the program writes it now: name of its file -> bytes."""
    written = {f"{name}.plan.json": run(binary, "--model", SOURCE / profile, "--topo",
                                        SOURCE / topology, *options, "-o", "-")
               for name, (profile, topology, *options) in PLANS.items()}
    for name, words in IMPORTS.items():
        written[f"interop/{name}.topology.json"] = run(
            binary, "import", "topology", *words_of(words), "--name", name, "-o", "-")
    for name, words in MODELS.items():
        written[f"interop/{name}.profile.json"] = run(
            binary, "import", "model", *words_of(words), "--name", name, "-o", "-")
    for name, words in IMPORTED_PLANS.items():
        written[f"interop/{name}.plan.json"] = run(
            binary, "import", "plan", *words_of(words), "--model", FOLDER / "pair.profile.json",
            "--topo", FOLDER / "pair.topology.json", "-o", "-")
    plan = written["pair.plan.json"]
    written["pair.profile.json"] = embedded(plan, "profile")
    written["pair.topology.json"] = embedded(plan, "description")
    written["racks.topology.json"] = embedded(written["racks.plan.json"], "description")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "pair.plan.json"
        path.write_bytes(plan)
        written["pair.schedule.txt"] = run(binary, "schedule", path)
        written["pair.schedule.csv"] = run(binary, "schedule", path, "--format", "csv")
        written["pair.schedule.json"] = run(binary, "schedule", path, "--format", "json")
        written["pair.timeline.json"] = run(binary, "simulate", path, "--timeline", "-")
        # A trace has no schema of ours, and is not to be taken for a document that has one.
        written["pair.trace"] = run(binary, "simulate", path, "--trace", "-")
        # A comparison tells the names of the files, so the program runs where they are.
        run(binary, *COMPARED, "-o", "other.json", folder=folder)
        for ending, form in (("json", ["--json"]), ("txt", [])):
            written[f"pair.comparison.{ending}"] = run(
                binary, "diff", "pair.plan.json", "other.json", *form, folder=folder)
    return written
