#!/usr/bin/env python3
"""Checks every shipped profile and topology and every golden document against its JSON Schema, that
the schemas refuse keys that the readers refuse, and that users are told of every key.

    check_schemas.py SOURCE_FOLDER [--binary DAPPLE_PLAN]

With a binary also the plan, timeline and schedule that it writes. A document names its schema by its
key "schema". Needs python3-jsonschema.
"""

import argparse
import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    sys.exit(f"{sys.executable} lacks the package jsonschema (Debian: python3-jsonschema)")


def with_references(node, rewrite):
    """A copy of a schema in which every reference is rewritten."""
    if isinstance(node, dict):
        return {key: rewrite(value) if key == "$ref" else with_references(value, rewrite)
                for key, value in node.items()}
    return [with_references(value, rewrite) for value in node] if isinstance(node, list) else node


def inside(reference, file):
    """The place in a bundle of what a schema refers to; `file` is the schema's own place, or empty
    for that of the bundle itself."""
    other, _, fragment = reference.partition("#")
    name = other or file
    return (f"#/$defs/{name}" if name else "#") + fragment


def bundle(schema, by_file):
    """The schema with the files that it refers to among its own definitions: releases of jsonschema
    differ in how they resolve references between files, not in those inside one."""
    whole = with_references(schema, lambda reference: inside(reference, ""))
    whole.pop("$id")
    for name, other in by_file.items():
        whole.setdefault("$defs", {})[name] = with_references(other,
                                               lambda reference, at=name: inside(reference, at))
        whole["$defs"][name].pop("$id")
    return whole


class Checker:
    def __init__(self, folder):
        by_file = {path.name: json.loads(path.read_text()) for path in folder.glob("*.schema.json")}
        self.schemas = {}
        for schema in by_file.values():
            jsonschema.Draft202012Validator.check_schema(schema)
            self.schemas[schema["title"]] = bundle(schema, by_file)

    def errors(self, document):
        schema = self.schemas[document["schema"]]
        return list(jsonschema.Draft202012Validator(schema).iter_errors(document))


def objects(value, place=""):
    """All objects of a document with their JSON pointers; not those with keys of any name."""
    if isinstance(value, dict):
        if not place.endswith(("/op", "/devices", "/kinds", "/time_scale")):
            yield value, place
        for key, member in value.items():
            if key != "op":
                yield from objects(member, f"{place}/{key}")
    elif isinstance(value, list):
        for position, element in enumerate(value[:3]):
            yield from objects(element, f"{place}/{position}")


def spoil(checker, document, name):
    """Every object must refuse a key that is not its own. Returns the faults of the schema."""
    faults = []
    spoiled = copy.deepcopy(document)
    for value, place in list(objects(spoiled)):
        value["no such key"] = 1
        if not checker.errors(spoiled):
            faults.append(f"{name}: {place or '/'} may have any key")
        del value["no such key"]
    return faults


def written_documents(binary, source, folder):
    """Runs the program for one document of each kind that only it writes."""
    plan, timeline, schedule, comparison, measurement, proof, certificate = (
        folder / f"{kind}.json"
        for kind in ("plan", "timeline", "schedule", "comparison", "measurement", "proof",
                     "certificate"))
    model = source / "profiles" / "bert-48.json"
    topology = source / "topologies" / "8xV100.json"
    commands = [
        ["plan", "--model", model, "--topo", topology, "--micro-batch", "8", "--runtime",
         "deepspeed", "-o", plan],
        ["plan", "--model", source / "profiles" / "resnet-50.json", "--topo",
         source / "topologies" / "4x8xA100.json", "--no-baselines", "-o", folder / "other.json",
         "--proof", proof],
        # The last search finds no plan.
        ["pareto", "--model", source / "profiles" / "bert-48.json", "--topo",
         source / "topologies" / "8xV100.json", "--micro-batch", "8", "--gap", "5%", "--against",
         "memory", "--certificate", certificate],
        ["simulate", plan, "--timeline", timeline],
        ["schedule", plan, "--format", "json"],
    ]
    for command in commands:
        run = subprocess.run([binary, *command], capture_output=True, text=True, check=True)
    schedule.write_text(run.stdout)
    for other, document in ((plan, comparison), (timeline, measurement)):
        run = subprocess.run([binary, "diff", plan, other, "--json"], capture_output=True,
                             text=True, check=True)
        document.write_text(run.stdout)
    subprocess.run([binary, "export", plan, "--to", "chakra", "-o", folder / "traces"],
                   capture_output=True, check=True)
    export = folder / "traces" / "dapple-export.json"
    return [plan, timeline, schedule, comparison, measurement, proof, certificate, export,
            *written_results(binary, source, plan, folder)]


def written_results(binary, source, plan, folder):
    """Runs each command that writes a result, also with a plan that is damaged and where no plan
    fits, so that every part of a result is there."""
    damaged = folder / "damaged.json"
    damaged.write_text(plan.read_text().replace('"iteration_ns": ', '"iteration_ns": 1', 1))
    profile, topology = (json.loads(plan.read_text())[key][part]
                         for key, part in (("model", "profile"), ("topology", "description")))
    profile["layers"][0]["parameter_bytes"] = 1 << 44
    inputs = {"large.json": profile, "topology.json": topology}
    for name, document in inputs.items():
        (folder / name).write_text(json.dumps(document))
    commands = [["validate", plan, damaged, folder / "nowhere.json"], ["simulate", plan],
                ["verify", plan, "--budget", "1"], ["verify", damaged],
                ["verify", folder / "certificate.json"],
                ["plan", "--model", folder / "large.json", "--topo", folder / "topology.json"],
                ["plan", "--model", source / "profiles" / "llama-3-8b.json", "--topo",
                 source / "topologies" / "8xH100.json", "--no-baselines", "--alternatives", "2",
                 "-o", folder / "best.json"]]
    results = []
    for position, command in enumerate(commands):
        run = subprocess.run([binary, *command, "--json"], capture_output=True, text=True)
        results.append(folder / f"result{position}.json")
        results[-1].write_text(run.stdout)
    return results


# Which document tells users of the keys of a schema.
DOCUMENTED = {"profile": "profiles/README.md", "topology": "topologies/README.md",
              "plan": "docs/formats.md", "gpus": "topologies/README.md",
              "runtime": "docs/formats.md", "proof": "docs/formats.md",
              "trade-off": "docs/formats.md"}


def keys_of(node):
    """The names of all members that a schema knows."""
    if isinstance(node, list):
        return set().union(*map(keys_of, node))
    if not isinstance(node, dict):
        return set()
    properties = node.get("properties")
    own = set(properties) if isinstance(properties, dict) else set()
    return own.union(*map(keys_of, node.values()))


def untold_keys(source):
    """Returns the keys of which users are not told as faults."""
    faults = []
    for kind, document in DOCUMENTED.items():
        schema = json.loads((source / "src" / "io" / "schemas" / f"{kind}.schema.json").read_text())
        code = " ".join(re.findall(r"`[^`\n]+`", (source / document).read_text()))
        told = set(re.findall(r"\w+", code))
        faults += [f"{document}: nothing is said of {key}" for key in sorted(keys_of(schema) - told)]
    return faults


def check(checker, paths):
    faults = []
    spoiled_kinds = set()
    for path in paths:
        document = json.loads(path.read_text())
        for error in checker.errors(document):
            place = "/".join(str(step) for step in error.absolute_path)
            faults.append(f"{path}: /{place}: {error.message[:200]}")
        if document["schema"] not in spoiled_kinds or path.stem == "8xV100":
            spoiled_kinds.add(document["schema"])
            faults += spoil(checker, document, path)
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--binary")
    arguments = parser.parse_args()
    source = arguments.source
    checker = Checker(source / "src" / "io" / "schemas")
    kinds = {f"dapple-{kind}/1" for kind in ("profile", "topology", "plan", "timeline", "schedule",
                                               "comparison", "measurement", "export", "result",
                                               "gpus", "runtime", "proof", "trade-off")}
    if set(checker.schemas) != kinds:
        print(f"expected schemas of {sorted(kinds)}, got {sorted(checker.schemas)}")
        return 1
    paths = [path for folder in ("profiles", "topologies", "profiles/runtimes")
             for path in sorted(source.glob(f"{folder}/*.json"))]
    if len(paths) < 17:
        print(f"expected at least 17 shipped profiles and topologies, got {len(paths)}")
        return 1
    # Those of nn/ are numbers of another program, no documents; nor are other tools' files, but
    # what was made of them.
    paths += sorted(source.glob("tests/golden/interop/*.topology.json"))
    paths += [path for path in sorted(source.glob("tests/golden/**/*.json"))
              if path.parent.name != "interop" and "nn" not in path.relative_to(source).parts]
    paths += [path for kind in ("profile", "topology", "plan")
              for path in sorted(source.glob(f"tests/golden/interop/*.{kind}.json"))]
    with tempfile.TemporaryDirectory() as folder:
        if arguments.binary:
            paths += written_documents(arguments.binary, source, pathlib.Path(folder))
        faults = check(checker, paths) + untold_keys(source)
    print("\n".join(faults) if faults else f"{len(paths)} documents agree with their schemas")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
