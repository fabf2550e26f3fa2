#!/usr/bin/env python3
"""Measures a PyTorch model layer by layer, for dapple-plan to plan from.

    tools/profile_torch.py MODEL.py:make_layers --batch 1,2,4,8 --input-shape 3,224,224 -o PROFILE

MODEL.py:make_layers() returns a torch.nn.Sequential or a list of modules, each fed by the one
before. What the first one takes is made by make_input(batch_size) of the same file, or is random of
--input-shape, the samples' dimension left out. From a program of yours:

    from profile_torch import profile_layers
    profile = profile_layers(layers, make_input, batch_sizes=[1, 2, 4, 8], name="mine")

Each layer runs forward and backward at every batch size, on the CPU by the clock or on a GPU by its
events; medians count. What it keeps for its backward is seen as autograd saves it: its input
included, its parameters and its output not. The first layer's input gets no gradient. Parameters
that several layers share are counted at the first, to which a layer that has all of its parameters is
tied. Exit code 2: usage, 3: the model cannot be run, 5: PyTorch, a GPU or a file is missing.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import platform
import statistics
import sys
import time

try:
    import torch
except ImportError:
    if __name__ != "__main__":
        raise
    torch = None  # --help does without

OPTIMIZERS = {  # how it is made, and bytes of its state per byte of parameters
    "sgd": (lambda parameters: torch.optim.SGD(parameters, lr=1e-6), 0),
    "momentum": (lambda parameters: torch.optim.SGD(parameters, lr=1e-6, momentum=0.9), 1),
    "rmsprop": (lambda parameters: torch.optim.RMSprop(parameters, lr=1e-6), 1),
    "adam": (lambda parameters: torch.optim.Adam(parameters, lr=1e-6), 2),
    "adamw": (lambda parameters: torch.optim.AdamW(parameters, lr=1e-6), 2),
}
ROUND, MOST_ROUNDS = 15, 8  # of runs, until medians are stable
TRUSTED_DRIFT = 0.02  # the share by which medians of both halves of the runs differ
SLOWEST_STEP = 1000  # nanoseconds per byte of parameters, by the profile's schema


class ModelError(Exception):
    """What cannot be measured, and where."""


def tensors_of(value):
    """All tensors of a layer's input or output: one, or several in tuples, lists, dictionaries."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return []
    return [tensor for part in value for tensor in tensors_of(part)]


def detached(value, wants_gradient):
    """The same as a leaf of a new graph."""
    if isinstance(value, torch.Tensor):
        leaf = value.detach()
        return leaf.requires_grad_(wants_gradient and leaf.is_floating_point())
    if isinstance(value, dict):
        return {key: detached(part, wants_gradient) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(detached(part, wants_gradient) for part in value)
    return value


def moved(value, device):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, (tuple, list)):
        return type(value)(moved(part, device) for part in value)
    return value


def size_of(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def storages_of(tensors):
    """The memory behind tensors, address -> bytes: views of one tensor are kept once."""
    storages = {}
    for tensor in tensors:
        storage = (tensor.untyped_storage() if hasattr(tensor, "untyped_storage")
                   else tensor.storage())
        storages[storage.data_ptr()] = storage.nbytes()
    return storages


class Stopwatch:
    """Times of what runs on a device, in nanoseconds."""

    def __init__(self, device):
        self.is_cuda = device.type == "cuda"

    def now(self):
        if not self.is_cuda:
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, start, end):
        if not self.is_cuda:
            return end - start
        end.synchronize()
        return round(start.elapsed_time(end) * 1e6)


def run(layer, value):
    return layer(*value) if isinstance(value, tuple) else layer(value)


def backward(outputs):
    """From gradients of ones; nothing where no output has one."""
    roots = [output for output in outputs if output.requires_grad]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])


def stash_bytes(layer, value, parameters):
    """What is kept from the end of the forward to the end of the backward."""
    saved = []

    def pack(tensor):
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = tensors_of(run(layer, value))
    kept = storages_of(saved + tensors_of(value))
    inputs = storages_of(tensors_of(value))
    for address in [*storages_of(parameters), *storages_of(outputs)]:
        # A layer that works in place hands its input on, which is still its input.
        if address not in inputs:
            kept.pop(address, None)
    # Of an input that is a view of something larger the layer keeps its own part.
    own = size_of(tensors_of(value))
    return own + sum(size for address, size in kept.items() if address not in inputs)


def drift_of(times):
    """By which share the medians of the first and the second half of the times differ."""
    half = len(times) // 2
    middle = statistics.median(times)
    if half < 2 or middle == 0:
        return 0
    return abs(statistics.median(times[:half]) - statistics.median(times[half:])) / middle


def measure_layer(layer, value, watch, repeats, warm_up, drifts):
    """Median times of one layer on one input, and its sizes; the output comes along. Without a number
    of repeats there are as many as make the medians stable, up to a limit. Their drift is added to
    `drifts`."""
    parameters = list(layer.parameters())
    forward_times, backward_times, times = [], [], []
    round_of, most = (repeats, repeats) if repeats else (ROUND, MOST_ROUNDS * ROUND)
    for repeat in range(warm_up + most):
        done = repeat - warm_up
        if done > 0 and done % round_of == 0 and drift_of(times) <= TRUSTED_DRIFT:
            break
        start = watch.now()
        output = run(layer, value)
        middle = watch.now()
        backward(tensors_of(output))
        end = watch.now()
        if repeat >= warm_up:
            forward_times.append(watch.between(start, middle))
            backward_times.append(watch.between(middle, end))
            times.append(forward_times[-1] + backward_times[-1])
    drifts.append(drift_of(times))
    if not tensors_of(output):
        raise ModelError(f"expected tensors as its output, got {type(output).__name__}")
    can_learn = any(tensor.requires_grad for tensor in tensors_of(output))
    return {
        "forward_ns": round(statistics.median(forward_times)),
        "backward_ns": round(statistics.median(backward_times)) if can_learn else 0,
        "output_bytes": size_of(tensors_of(output)),
        "stash_bytes": stash_bytes(layer, value, parameters),
    }, output


def step_time(layers, optimizer, watch, repeats, warm_up):
    """Nanoseconds of an optimizer's step for each byte of parameters."""
    parameters = list({id(p): p for layer in layers for p in layer.parameters()
                       if p.requires_grad}.values())
    if not parameters:
        return 0
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    made = OPTIMIZERS[optimizer][0](parameters)
    times = []
    for _ in range(warm_up + repeats):
        start = watch.now()
        made.step()
        times.append(watch.between(start, watch.now()))
    return round(statistics.median(times[warm_up:]) / max(1, size_of(parameters)), 9)


def named(layers):
    """Names that tell the layers apart: a Sequential's own, else Linear.0, Linear.1, ..."""
    if isinstance(layers, torch.nn.Sequential):
        # Not named_children(), which tells a module that stands in it twice once.
        children = list(layers._modules.items())
    elif isinstance(layers, (list, tuple, torch.nn.ModuleList)):
        children = [(str(number), module) for number, module in enumerate(layers)]
    else:
        raise ModelError("expected a torch.nn.Sequential or a list of modules, got "
                         f"{type(layers).__name__}")
    result, counts = [], {}
    for name, module in children:
        if not isinstance(module, torch.nn.Module):
            raise ModelError(f"layer {name}: expected a torch.nn.Module, got {type(module).__name__}")
        if name.isdigit():
            kind = type(module).__name__
            counts[kind] = counts.get(kind, -1) + 1
            name = f"{kind}.{counts[kind]}"
        result.append((name, module))
    if not result:
        raise ModelError("expected at least one layer, got none")
    return result


def profile_layers(layers, make_input, batch_sizes, name, *, device="cpu", device_name=None,
                   optimizer="adam", global_batch_size=None, repeats=None, warm_up=3):
    """A dapple-profile/1 of the layers as a dictionary. Leaves gradients and parameters changed.

    layers: a torch.nn.Sequential or modules in their order; make_input(batch_size): what the first
    takes, a tensor or a tuple of its arguments, samples first; batch_sizes: rising; repeats: how
    often each layer is run, by default until its median is stable. Raises ModelError where a layer fails or makes no tensors.
    """
    if not batch_sizes or sorted(set(batch_sizes)) != list(batch_sizes) or batch_sizes[0] < 1:
        raise ModelError(f"expected rising batch sizes of at least 1, got {list(batch_sizes)}")
    device = torch.device(device)
    watch = Stopwatch(device)
    pairs = [(layer_name, module.to(device).train()) for layer_name, module in named(layers)]
    holders, lost, entries = {}, 0, []  # of a parameter the first layer that has it
    drifts = []
    for number, (layer_name, module) in enumerate(pairs):
        own = [p for p in module.parameters() if id(p) not in holders]
        shared = [p for p in module.parameters() if id(p) in holders]
        entry = {"name": layer_name, "parameter_bytes": size_of(own), "measurements": []}
        others = {holders[id(p)] for p in shared}
        # A layer is tied to all that one before it holds itself.
        if len(others) == 1 and sum(holder in others for holder in holders.values()) == len(shared):
            entry["tied_to"] = pairs[others.pop()][0]
        else:
            lost += len(shared)
        holders.update((id(p), number) for p in own)
        entries.append(entry)
    for batch_size in batch_sizes:
        value = moved(make_input(batch_size), device)
        if not tensors_of(value):
            raise ModelError(f"expected tensors as the model's input, got {type(value).__name__}")
        for number, (layer_name, module) in enumerate(pairs):
            value = detached(value, wants_gradient=number > 0)
            try:
                figures, value = measure_layer(module, value, watch, repeats, warm_up, drifts)
            except (ModelError, RuntimeError, TypeError, ValueError, IndexError) as fault:
                raise ModelError(f"layer {layer_name}, {batch_size} samples: {fault}") from fault
            entries[number]["measurements"].append({"batch_size": batch_size, **figures})
    if device_name is None:
        device_name = torch.cuda.get_device_name(device) if watch.is_cuda else "cpu"
    profile = {
        "schema": "dapple-profile/1",
        "name": name,
        "source": f"measured with PyTorch {torch.__version__} on {device_name}, "
                  f"{torch.get_num_threads()} threads, {platform.machine()}; "
                  f"medians of {repeats or f'{ROUND} or more'} after {warm_up}",
    }
    step = step_time([module for _, module in pairs], optimizer, watch, repeats or ROUND, warm_up)
    notes = []
    if lost:
        notes.append(f"{lost} parameter tensors that earlier layers hold too are counted there, and "
                     "reduced as if they were used there alone")
    if step > SLOWEST_STEP:
        notes.append(f"the optimizer's step took {step} ns per byte, more than a profile can say")
    unstable = sum(drift > TRUSTED_DRIFT for drift in drifts)
    if unstable:
        profile["warnings"] = [
            f"measured times are not stable: in {unstable} of {len(drifts)} measurements the medians "
            f"of the first and of the second half of the runs differ by more than "
            f"{100 * TRUSTED_DRIFT:.0f} %, by up to {100 * max(drifts):.0f} %; a quieter machine or "
            "more runs (--repeat) make them truer"]
    if notes:
        profile["notes"] = notes
    if global_batch_size:
        profile["global_batch_size"] = global_batch_size
    profile["device"] = device_name
    if len(batch_sizes) == 1:
        profile["batch_scaling"] = "proportional"
    profile["optimizer"] = {
        "name": optimizer,
        "state_bytes_per_parameter_byte": OPTIMIZERS[optimizer][1],
        "step_ns_per_parameter_byte": min(step, SLOWEST_STEP),
    }
    profile["layers"] = entries
    return profile


# --- the command line -----------------------------------------------------------------------------

def guarded(function, *arguments):
    """Calls what somebody else wrote; its errors are the model's."""
    try:
        return function(*arguments)
    except Exception as fault:
        raise ModelError(f"{type(fault).__name__}: {fault}") from fault


def load(target):
    """The function and the module of "MODEL.py:make_layers"."""
    path, colon, function = target.rpartition(":")
    if not colon or not path:
        raise ModelError(f"expected FILE.py:FUNCTION, got {target!r}")
    if not pathlib.Path(path).is_file():
        raise ModelError(f"{path}: no such file")
    sys.path.insert(0, str(pathlib.Path(path).resolve().parent))
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    if spec is None:
        raise ModelError(f"{path}: expected a Python file, FILE.py")
    module = importlib.util.module_from_spec(spec)
    guarded(spec.loader.exec_module, module)
    if not callable(getattr(module, function, None)):
        raise ModelError(f"{path}: expected a function {function}, got none")
    return getattr(module, function), module


def input_maker(module, shape):
    if shape:
        return lambda batch_size: torch.randn(batch_size, *shape)
    if callable(getattr(module, "make_input", None)):
        return module.make_input
    raise ModelError("expected make_input(batch_size) beside the layers, or --input-shape, got none")


def numbers(text):
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or min(values) < 1 or max(values) > 2**31 - 1:
        raise argparse.ArgumentTypeError(f"expected numbers from 1 with commas between, got {text!r}")
    return values


def count(text):
    return numbers(text if "," not in text else "")[0]


def write(path, text):
    """All of it or nothing."""
    if path == "-":
        sys.stdout.write(text)
        return
    beside = f"{path}.{os.getpid()}.part"
    try:
        pathlib.Path(beside).write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        pathlib.Path(beside).unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description="Measures a PyTorch model layer by layer.",
                                     epilog="The profile is for dapple-plan --model.")
    parser.add_argument("layers", metavar="FILE.py:FUNCTION", help="what makes the layers")
    parser.add_argument("--batch", type=numbers, required=True, metavar="N,N,...", help="rising")
    parser.add_argument("--input-shape", type=numbers, metavar="N,N,...", help="of one sample")
    parser.add_argument("--name", help="of the model (default: the file's)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1 (default: cpu)")
    parser.add_argument("--device-name", help="what topologies call it (default: its own name)")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adam", help="(default: adam)")
    parser.add_argument("--global-batch", type=count, metavar="N", help="the profile's default")
    parser.add_argument("--repeat", type=count, metavar="N", help="run each layer N times (default: "
                        f"{ROUND} to {MOST_ROUNDS * ROUND}, until its median is stable)")
    parser.add_argument("--threads", type=count, metavar="N", help="of the CPU (default: all)")
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help="(default: stdout)")
    options = parser.parse_args()
    if torch is None:
        sys.exit(print("error: PyTorch is not installed (Debian: python3-torch)", file=sys.stderr) or 5)
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit(print("error: --device: expected a GPU that PyTorch can use, got none",
                       file=sys.stderr) or 5)
    try:
        make_layers, module = load(options.layers)
        profile = profile_layers(
            guarded(make_layers), input_maker(module, options.input_shape), options.batch,
            options.name or pathlib.Path(options.layers.rpartition(":")[0]).stem,
            device=options.device, device_name=options.device_name, optimizer=options.optimizer,
            global_batch_size=options.global_batch, repeats=options.repeat)
        write(options.output, json.dumps(profile, indent=2) + "\n")
    except (ModelError, RuntimeError) as fault:
        sys.exit(print(f"error: {options.layers}: {fault}", file=sys.stderr) or 3)
    except OSError as fault:
        sys.exit(print(f"error: {fault}", file=sys.stderr) or 5)


if __name__ == "__main__":
    main()
