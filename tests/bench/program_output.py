"""What programs print, as figures: dapple-exec, PyTorch's training, tests and benchmarks on GPUs.

Every function takes the whole output and raises Unread where it does not say what is looked for.
"""
import re

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


class Unread(Exception):
    """An output that does not say what it should."""


def searched(pattern, text):
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise Unread(f"no {pattern!r} in an output that ends with {text[-200:]!r}")
    return found


def number(text):
    return float(text.replace(",", ""))


def losses(text):
    """Of dapple-exec train, or of tools/train_torch.py, step by step."""
    found = re.findall(r"^  step +\d+  loss ([0-9.]+|nan|inf)", text, re.MULTILINE)
    if not found:
        raise Unread("no losses")
    return [float(loss) for loss in found]


def seconds(text, line):
    """The time at the beginning of a line such as "  predicted  1.234 ms, simulated"."""
    found = searched(rf"^  {line} +([0-9.,]+) (ns|us|ms|s)\b", text)
    return number(found[1]) * SECONDS[found[2]]


def difference(text):
    """Measured over predicted, less one."""
    return float(searched(r"^  difference ([+-][0-9.]+) %", text)[1]) / 100


def samples_per_second(text):
    """Of the median step of dapple-exec train, from the start of one to that of the next."""
    return number(searched(r"^  whole step .*; ([0-9.,]+) samples/s$", text)[1])


def tokens_per_second(text):
    """Of the later half of the steps of tools/train_torch.py."""
    return number(searched(r"median of the later half ([0-9.]+) tokens/s", text)[1])


def verified(text):
    """How far gradients and losses are off, and whether dapple-exec takes that for rounding; None
    where it cannot tell, as rounding may have chosen other experts."""
    def worst(line):
        found = searched(rf"^  {line} +of [0-9,]+ \w+ (?:do not differ|differ by (\S+) at most)$",
                         text)
        return float(found[1] or 0)
    verdict = searched(r"^  (verified|failed|undecided): ", text)[1]
    holds = {"verified": True, "failed": False, "undecided": None}[verdict]
    return worst("gradients"), worst("losses"), holds


def passed_tests(text):
    """Of Catch2, where all have passed."""
    return int(searched(r"All tests passed \(\d+ assertions? in (\d+) test cases?\)", text)[1])


def sanitizer_errors(text):
    """Errors that compute-sanitizer's memcheck found, or hazards that its racecheck displays, and how
    many of them are of the vendor's libraries and no fault of ours: NCCL asks whether the GPU has a
    kernel and is told by an error that it has none; cuDNN's kernels for Hopper synchronize in a way
    that racecheck does not see."""
    of_libraries = len(re.findall(r"Program hit cudaErrorNoKernelImageForDevice|"
                                  r"Error: Race reported between \w+ access at cudnn_", text))
    found = searched(r"ERROR SUMMARY: (\d+) errors?|RACECHECK SUMMARY: (\d+) hazards? displayed", text)
    return int(found[1] or found[2]), of_libraries


def bench_tokens_per_second(text):
    """Of bench_cuda's whole step."""
    return number(searched(r"^step [0-9.]+ ms, ([0-9.]+) tokens/s", text)[1])
