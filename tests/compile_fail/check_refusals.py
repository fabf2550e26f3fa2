"""Indices and quantities of different kinds cannot be confused: every source beside this script but
control.cpp has a line that ends with "// refused", and the compiler must report errors in that line
and in no other. control.cpp must compile.

    check_refusals.py INCLUDE-FOLDER COMPILER [OPTION...]
"""

import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parent
CONTROL = "control.cpp"


def lines_with_errors(source, command):
    """Numbers of the lines of `source` that the compiler refuses; other files count as line 0."""
    result = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    found = re.findall(r"^(.*?):(\d+):\d+: (?:fatal )?error:", result.stderr, re.MULTILINE)
    lines = {int(line) if pathlib.Path(path) == source else 0 for path, line in found}
    return lines if found or result.returncode == 0 else {0}


def refused_lines(source):
    """What `source` says that is refused, and nothing if it is the control."""
    lines = source.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("// refused")}


def main(arguments):
    if len(arguments) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    include, *compiler = arguments
    command = [*compiler, "-std=c++20", "-fsyntax-only", f"-I{include}"]
    failures = 0
    sources = sorted(FOLDER.glob("*.cpp"))
    for source in sources:
        expected = refused_lines(source)
        found = lines_with_errors(source, command)
        if found != expected or (not expected) != (source.name == CONTROL):
            print(f"{source.name}: expected errors in lines {sorted(expected)}, got {sorted(found)}")
            failures += 1
    print(f"{len(sources) - failures} passed, {failures} failed")
    return 1 if failures or len(sources) < 2 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
