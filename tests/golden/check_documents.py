#!/usr/bin/env python3
"""Compares every golden document byte for byte with what the program writes now, and looks for samples
of other tools' files of which none is made.

    check_documents.py --binary DAPPLE_PLAN

Where they differ on purpose, regenerate.py writes them anew; read its diff before you keep it.
"""

import argparse
import difflib
import sys

import documents


def difference(name, golden, written):
    """The first lines of a diff."""
    lines = difflib.unified_diff(golden.decode().splitlines(), written.decode().splitlines(),
                                 f"golden/{name}", "written now", lineterm="", n=1)
    return "\n".join(line[:200] for line, _ in zip(lines, range(20)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    written = documents.documents(binary)
    faults = []
    for name, text in sorted(written.items()):
        path = documents.FOLDER / name
        if not path.exists():
            faults.append(f"{name}: there is no golden of it; regenerate.py writes it")
        elif path.read_bytes() != text:
            faults.append(f"{name}: differs\n{difference(name, path.read_bytes(), text)}")
    scripts = {".py"}
    for path in sorted(documents.FOLDER.iterdir()):
        is_document = path.is_file() and path.suffix not in scripts and path.name != "CMakeLists.txt"
        if is_document and path.name not in written:
            faults.append(f"{path.name}: nothing writes it")
    samples = documents.samples() | {"chakra.proto"}  # with which test_export.py reads exports
    for path in sorted((documents.FOLDER / "interop").iterdir()):
        if f"interop/{path.name}" not in written and path.name not in samples:
            faults.append(f"interop/{path.name}: no golden document is made of it")
    print("\n".join(faults) if faults else f"{len(written)} documents are as they were")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
