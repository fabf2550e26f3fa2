"""Runs whose layers were measured too: iterations and memory simulated on these layers' times, in place of
estimated ones, beside the measured ones. Nothing is fitted to iterations."""

import csv
import io
import json
import pathlib
import subprocess

RUNS = pathlib.Path(__file__).resolve().parent / "runs"
# Table, runtime, the bandwidth of a server as measured between one pair of GPUs by its own network figures
# (sailor/providers/multizone_bandwidths_het.json), what the framework keeps on a GPU besides, and what
# others report of these runs.
SETS = [
    ("sailor-gh", "deepspeed", 22_934_533_176, 5_060_000_000, "Sailor 8.9"),
    ("sailor-mit", "deepspeed", 2_857_700_000, 800_000_000, "Sailor 6.1"),
]
# Four GPUs share every layer, and are one device of the topology with the NIC of their server.
GPUS_OF_DEVICE = 4
BLOCKS = 24
# Activations of a sample over a boundary: 2,048 tokens of 1,024 in single precision, which cross once, as each
# of the four GPUs sends a quarter.
BOUNDARY_BYTES = 2048 * 1024 * 4
# What the backward of a layer needs besides, for each sample and GPU, which was not measured: the gradients of
# the scores of attention behind and before the softmax, of four heads in single precision, as the stashes of
# blocks have the scores of attention that is not fused; and the gradient of the logits.
WORKSPACE_BYTES = {"embedding": 0, "head": 2048 * 50304 // GPUS_OF_DEVICE * 4}
WORKSPACE_BYTES_OF_BLOCK = 2 * 4 * 2048 * 2048 * 4


def rows_of(name):
    text = (RUNS / f"{name}.csv").read_text()
    return list(csv.DictReader(line for line in io.StringIO(text) if not line.startswith("#")))


def layer_names():
    return ["embedding", "first block", *["other blocks"] * (BLOCKS - 1), "head"]


def profile_of(run, layers):
    """The profile that a run is simulated on. A stage whose replicas are of several kinds takes as long as
    the slowest of them, so that each of its layers has the figures of that."""
    names, kinds = layer_names(), run["kinds"].split(":")
    counts, micro_batch = [int(count) for count in run["layers"].split(":")], int(run["mbs"])
    made, steps = [], []
    for stage, count in enumerate(counts):
        first = len(made)

        def time(kind, key):
            return sum(int(layers[kind, micro_batch, name][key])
                       for name in names[first:first + count])

        of_kinds = kinds[stage].split("+")
        forward, backward = (max(of_kinds, key=lambda kind: time(kind, key))
                             for key in ("forward_ns", "backward_ns"))
        steps += [int(layers[kind, micro_batch, names[first]]["step_ns"]) for kind in of_kinds]
        for name in names[first:first + count]:
            sizes = layers[forward, micro_batch, name]
            made.append({
                "name": f"{len(made)} {name}",
                "parameter_bytes": GPUS_OF_DEVICE * int(sizes["parameter_bytes"]),
                "measurements": [{
                    "batch_size": micro_batch,
                    "forward_ns": int(sizes["forward_ns"]),
                    "backward_ns": int(layers[backward, micro_batch, name]["backward_ns"]),
                    "output_bytes": 0 if name == "head" else micro_batch * BOUNDARY_BYTES,
                    "stash_bytes": GPUS_OF_DEVICE * micro_batch * int(sizes["stash_bytes"]),
                    "workspace_bytes": GPUS_OF_DEVICE * micro_batch
                    * WORKSPACE_BYTES.get(name, WORKSPACE_BYTES_OF_BLOCK)}]})
    largest = max(sum(layer["parameter_bytes"] for layer in made[sum(counts[:s]):sum(counts[:s + 1])])
                  for s in range(len(counts)))
    return {"schema": "dapple-profile/1", "name": run["id"], "source": "see the tables", "device": "group",
            "batch_scaling": "proportional",
            "optimizer": {"name": "adam", "state_bytes_per_parameter_byte": 2,
                          "step_ns_per_parameter_byte": round(max(steps) / largest, 9)},
            "layers": made}


def topology_of(run, bandwidth, reserved):
    link = {"bandwidth": f"{bandwidth} B/s", "latency": "0 us", "source": "see the tables"}
    servers = servers_of(run)
    return {"schema": "dapple-topology/1", "name": "servers", "source": "see the tables",
            "devices": {"group": {"memory": f"{GPUS_OF_DEVICE * 200} GB",
                                  "reserved": f"{GPUS_OF_DEVICE * reserved} B",
                                  "source": "any memory"}},
            "servers": [{"name": "server", "count": servers, "device": "group", "devices": 1,
                         "nics": [link]}],
            "network": {"kind": "switch", **link}}


def simulated(binary, run, layers, bandwidth, reserved, runtime, folder):
    """The simulated iteration in seconds, and the bytes on the fullest GPU."""
    profile, topology = folder / "profile.json", folder / "topology.json"
    profile.write_text(json.dumps(profile_of(run, layers)))
    topology.write_text(json.dumps(topology_of(run, bandwidth, reserved)))
    stages = run["layers"].split(":")
    words = [f"pp={len(stages)}", f"dp={run['dp']}", f"mbs={run['mbs']}", f"gbs={run['gbs']}"]
    if len(stages) > 1:
        words.append(f"layers={run['layers']}")
    done = subprocess.run([binary, "simulate", "--layout", ",".join(words), "--model", profile, "--topo",
                           topology, "--runtime", runtime, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{run['id']}: {done.stderr}")
    predicted = json.loads(done.stdout)["plans"][0]["predicted"]
    peak = max(device["peak_memory_bytes"] for device in predicted["devices"])
    return predicted["iteration_ns"] / 1e9, peak / GPUS_OF_DEVICE + reserved


def scored(binary, name, runtime, bandwidth, reserved, folder):
    """Every run of a table with its simulated figures."""
    layers = {(row["gpu"], int(row["micro_batch"]), row["layer"]): row
              for row in rows_of("sailor-layers")}
    rows = []
    for run in rows_of(name):
        time, memory = simulated(binary, run, layers, bandwidth, reserved, runtime, folder)
        rows.append({**run, "simulated_s": time, "simulated_bytes": memory})
    return rows


def servers_of(run):
    return len(run["layers"].split(":")) * int(run["dp"])


def reserved_by_others(rows, run, reserved):
    """The bytes that a framework keeps on a GPU besides by which the runs on other numbers of servers are
    nearest to their measured memory on average: those of one of these runs."""
    others = [(row["simulated_bytes"] - reserved, float(row["memory_bytes"])) for row in rows
              if servers_of(row) != servers_of(run)]
    return min(sorted(measured - own for own, measured in others),
               key=lambda kept: sum(abs((own + kept) / measured - 1) for own, measured in others))
