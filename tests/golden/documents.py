"""The golden documents and the commands that make them.

pair.profile.json, pair.topology.json and racks.topology.json are both inputs and goldens: what is
golden about them is that they are canonical, so they are what the plan made from them embeds.
"""

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


def run(binary, *arguments):
    """What the program prints on stdout; an error if it fails."""
    process = subprocess.run([str(binary), *map(str, arguments)], capture_output=True, check=False)
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


def documents(binary):
    """Every golden document as the program writes it now: name of its file -> bytes."""
    written = {f"{name}.plan.json": run(binary, "--model", SOURCE / profile, "--topo",
                                        SOURCE / topology, *options, "-o", "-")
               for name, (profile, topology, *options) in PLANS.items()}
    for name, words in IMPORTS.items():
        files = [FOLDER / "interop" / word if (FOLDER / "interop" / word).is_file() else word
                 for word in words]
        written[f"interop/{name}.topology.json"] = run(
            binary, "import", "topology", *files, "--name", name, "-o", "-")
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
    return written
