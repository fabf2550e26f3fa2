#!/usr/bin/env python3
"""Trains GPT-2 with PyTorch on the samples that dapple-exec takes: what its losses and its speed
are compared with.

    dapple-exec train --plan gpt2.plan.json --tokens TOKENS --steps 1 --optimizer sgd \\
        --learning-rate 1e-9 --save-weights gpt2.safetensors
    tools/train_torch.py gpt2.safetensors --tokens TOKENS --global-batch 8 --steps 10

Weights are GPT-2's as published, in safetensors. A step takes the same pieces of the tokens as a
step of dapple-exec with the same --seed and prints the mean loss before it. Single precision, or
bf16 by autocast with weights and sums in single precision; --compile, the fused attention and the
fused AdamW are PyTorch's own. Exit code 2: usage, 3: bad input, 5: no PyTorch.
"""

import argparse
import json
import pathlib
import statistics
import struct
import sys
import time


def parsed_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=pathlib.Path)
    parser.add_argument("--tokens", type=pathlib.Path, required=True)
    parser.add_argument("--global-batch", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, help="all of them unless given")
    parser.add_argument("--heads", type=int, help="one for 64 of the hidden size unless given")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--weight-decay", type=float, default=0)
    parser.add_argument("--clip-norm", type=float)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    arguments.micro_batch = arguments.micro_batch or arguments.global_batch
    if arguments.global_batch % arguments.micro_batch != 0:
        parser.error("--micro-batch must divide --global-batch")
    return arguments


try:
    import torch
    from torch.nn import functional
except ImportError:
    if __name__ != "__main__":
        raise
    parsed_arguments()  # --help does without
    sys.exit(print("error: PyTorch is not installed (Debian: python3-torch)", file=sys.stderr) or 5)

WORD = (1 << 64) - 1
KINDS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def mix(bits):
    """splitmix64's (Steele, Lea and Flood 2014), as include/dapple/core/random.h has it."""
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & WORD
    return bits ^ (bits >> 31)


def number_of(state, place):
    return mix((state + (place + 1) * 0x9E3779B97F4A7C15) & WORD)


def stream_of(state, number):
    return mix(number_of(state, number))


def batch_of(tokens, sequence, seed, step, samples):
    """Inputs and targets [samples, sequence] of a step, each sample from a stream of its own."""
    of_step = stream_of(mix(seed), step)
    starts = [number_of(stream_of(of_step, sample), 0) % (len(tokens) - sequence)
              for sample in samples]
    piece = torch.stack([tokens[start:start + sequence + 1] for start in starts])
    return piece[:, :-1], piece[:, 1:]


def read_weights(path):
    """The tensors of a safetensors file in single precision, masks and prefixes left out."""
    content = path.read_bytes()
    length, = struct.unpack("<Q", content[:8])
    weights = {}
    for name, entry in json.loads(content[8:8 + length]).items():
        name = name.removeprefix("transformer.")
        if name == "__metadata__" or name.endswith((".attn.bias", ".attn.masked_bias")):
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensor = torch.frombuffer(bytearray(content[begin:end]), dtype=KINDS[entry["dtype"]])
        weights[name] = tensor.reshape(entry["shape"]).to(torch.float32)
    return weights


class Gpt2(torch.nn.Module):
    """Pre-norm blocks, the head tied to the embedding unless the weights have one of its own."""

    def __init__(self, weights, heads):
        super().__init__()
        self.heads = heads
        self.blocks = 1 + max(int(name.split(".")[1]) for name in weights if name[:2] == "h.")
        # Names of modules and parameters have no dots.
        self.weights = torch.nn.ParameterDict({name.replace(".", "/"): torch.nn.Parameter(tensor)
                                               for name, tensor in weights.items()})

    def of(self, *name):
        return self.weights["/".join(map(str, name))]

    def norm(self, x, *name):
        return functional.layer_norm(x, x.shape[-1:], self.of(*name, "weight"),
                                     self.of(*name, "bias"))

    def linear(self, x, *name):
        return functional.linear(x, self.of(*name, "weight").t(), self.of(*name, "bias"))

    def attention(self, x, block):
        batch, sequence, hidden = x.shape
        q, k, v = (part.reshape(batch, sequence, self.heads, -1).transpose(1, 2)
                   for part in self.linear(x, "h", block, "attn", "c_attn").split(hidden, dim=-1))
        if hasattr(functional, "scaled_dot_product_attention"):
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) / (hidden // self.heads) ** 0.5
            later = torch.ones(sequence, sequence, dtype=torch.bool, device=x.device).triu(1)
            mixed = scores.masked_fill(later, float("-inf")).softmax(dim=-1) @ v
        return self.linear(mixed.transpose(1, 2).reshape(x.shape), "h", block, "attn", "c_proj")

    def feed_forward(self, x, block):
        inner = functional.gelu(self.linear(x, "h", block, "mlp", "c_fc"), approximate="tanh")
        return self.linear(inner, "h", block, "mlp", "c_proj")

    def forward(self, inputs, targets):
        x = functional.embedding(inputs, self.of("wte", "weight"))
        x = x + self.of("wpe", "weight")[:inputs.shape[1]]
        for block in range(self.blocks):
            x = x + self.attention(self.norm(x, "h", block, "ln_1"), block)
            x = x + self.feed_forward(self.norm(x, "h", block, "ln_2"), block)
        has_head = "lm_head/weight" in self.weights
        head = self.of("lm_head" if has_head else "wte", "weight")
        logits = functional.linear(self.norm(x, "ln_f"), head)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    arguments = parsed_arguments()
    micro_batch = arguments.micro_batch
    try:
        weights = read_weights(arguments.weights)
        content = bytearray(arguments.tokens.read_bytes())
        sequence, hidden = weights["wpe.weight"].shape
    except (OSError, ValueError, KeyError, struct.error) as error:
        sys.exit(print(f"error: {error!r}", file=sys.stderr) or 3)
    # 16 bits without a sign, which PyTorch does not compute with.
    tokens = torch.frombuffer(content, dtype=torch.int16).to(torch.int64) & 0xFFFF
    is_cuda = arguments.device.startswith("cuda")
    model = Gpt2(weights, arguments.heads or hidden // 64).to(arguments.device)
    loss_of = torch.compile(model) if arguments.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate,
                                  weight_decay=arguments.weight_decay,
                                  **({"fused": True} if is_cuda else {}))
    times = []
    for step in range(arguments.steps):
        start = time.perf_counter()
        loss = torch.zeros((), device=arguments.device)
        for first in range(0, arguments.global_batch, micro_batch):
            inputs, targets = (part.to(arguments.device, non_blocking=True) for part in batch_of(
                tokens, sequence, arguments.seed, step, range(first, first + micro_batch)))
            with torch.autocast(arguments.device.split(":")[0], dtype=torch.bfloat16,
                                enabled=arguments.precision == "bf16"):
                share = loss_of(inputs, targets) * micro_batch / arguments.global_batch
            share.backward()
            loss += share.detach()
        if arguments.clip_norm:
            torch.nn.utils.clip_grad_norm_(model.parameters(), arguments.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = float(loss)  # waits for the device
        times.append(time.perf_counter() - start)
        print(f"  step {step + 1:4}  loss {value:.5f}  "
              f"{arguments.global_batch * sequence / times[-1]:.0f} tokens/s", flush=True)
    usual = statistics.median(times[len(times) // 2:])  # what is compiled is so by then
    print(f"  median of the later half {arguments.global_batch * sequence / usual:.0f} tokens/s, "
          f"PyTorch {torch.__version__}, {arguments.precision}"
          f"{', compiled' if arguments.compile else ''}")


if __name__ == "__main__":
    main()
