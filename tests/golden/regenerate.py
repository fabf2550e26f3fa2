#!/usr/bin/env python3
"""Writes the golden documents anew, the only way in which they change.

    regenerate.py --binary DAPPLE_PLAN
"""

import argparse

import documents


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    written = documents.documents(parser.parse_args().binary)
    for name, text in sorted(written.items()):
        path = documents.FOLDER / name
        changed = not path.exists() or path.read_bytes() != text
        if changed:
            path.write_bytes(text)
        print(f"{'written  ' if changed else 'as it was'} {name}")


if __name__ == "__main__":
    main()
