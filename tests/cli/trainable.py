"""Small models with what their layers do, and machines to train them on."""

import json

from tool import ROOT

FLOAT = 4


def measured(layer, output, milliseconds):
    """A layer with made-up times, and the sizes that it really has."""
    return {**layer, "measurements": [{
        "batch_size": 1,
        "forward_ns": int(milliseconds * 1e6),
        "backward_ns": int(2 * milliseconds * 1e6),
        "output_bytes": FLOAT * output,
        "stash_bytes": FLOAT * output,
    }]}


def perceptron(**changes):
    """Four linear layers of 64 x 64, and a loss over 64 classes."""
    linear = {"parameter_bytes": FLOAT * (64 * 64 + 64),
              "op": {"kind": "linear", "inputs": 64, "outputs": 64}}
    loss = {"name": "loss", "parameter_bytes": 0,
            "op": {"kind": "softmax_cross_entropy", "classes": 64}}
    profile = {
        "schema": "dapple-profile/1",
        "name": "perceptron",
        "source": "made up",
        "global_batch_size": 12,
        "device": "core",
        "batch_scaling": "proportional",
        "optimizer": {"name": "adamw", "state_bytes_per_parameter_byte": 2},
        "layers": [measured({"name": "linear", "repeat": 4, **linear}, 64, 1),
                   measured(loss, 1, 0.01)],
    }
    profile.update(changes)
    return profile


def cores(count, bandwidth):
    return {
        "schema": "dapple-topology/1",
        "name": "cores",
        "source": "made up",
        "devices": {"core": {"memory": "1 GiB", "source": "made up"}},
        "servers": [{"name": "node", "count": 1, "device": "core", "devices": count,
                     "links": {"kind": "switch", "bandwidth": bandwidth, "latency": "1 us",
                               "source": "made up"}}],
    }


def small_gpt():
    """gpt2-tiny, in two stages over slow links; they share the weights of embedding and head."""
    return shipped("gpt2-tiny")


def small_llama():
    return shipped("llama-tiny")


def shipped(name):
    """A specification of a model of 64 hidden numbers, with made-up times."""
    profile = json.loads((ROOT / "profiles" / f"{name}.json").read_text())
    outputs = {"linear": 64 * 256, "softmax_cross_entropy": 1}  # of others 64 * 64
    profile.update(device="core", batch_scaling="proportional")
    profile["layers"] = [measured(layer, outputs.get(layer["op"]["kind"], 64 * 64), 1)
                         for layer in profile["layers"]]
    return profile
