"""The argument that the benchmarks of dapple-plan share."""

import argparse
import pathlib


def plan_binary(description):
    """Returns the PLAN that the command line names, absolute, or ends the program with its usage."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", metavar="PLAN", type=pathlib.Path, help="dapple-plan")
    binary = parser.parse_args().plan.resolve()
    if not binary.is_file():
        parser.error(f"{binary}: expected the program dapple-plan, got no file")
    return binary
