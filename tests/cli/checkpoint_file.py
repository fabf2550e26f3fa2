"""Checkpoints as files, without the product: their parts, and the digest that they have."""

import ctypes
import ctypes.util
import json

XXHASH = ctypes.CDLL(ctypes.util.find_library("xxhash"))
XXHASH.XXH3_64bits.restype = ctypes.c_uint64
XXHASH.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def fingerprint(content):
    return XXHASH.XXH3_64bits(content, len(content))


def header_and_tensors(content):
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def file_of(header, tensors):
    """As the product writes it, but for its digest."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + tensors


def as_version_1(content):
    """The same model as a file of version 1, which had no digest."""
    header, tensors = header_and_tensors(content)
    header["__metadata__"]["format"] = "dapple-checkpoint/1"
    header["__metadata__"].pop("digest", None)
    return file_of(header, tensors)


def is_whole(content):
    """Whether it is a checkpoint with the digest of its bytes."""
    if len(content) < 8:
        return False
    digits = header_and_tensors(content)[0]["__metadata__"]["digest"]
    before = b'"digest":"'
    blank = content.replace(before + digits.encode(), before + b"0" * 16, 1)
    return digits == f"{fingerprint(blank):016x}"
