#!/usr/bin/env python3
"""Checks every shipped profile and topology and every golden document against its JSON Schema, and
that the schemas refuse what the readers refuse.

    check_schemas.py SOURCE_FOLDER [DOCUMENT...]

A document names its schema by its key "schema". Needs python3-jsonschema.
"""

import copy
import json
import pathlib
import sys

import jsonschema


class Checker:
    def __init__(self, folder):
        self.schemas = {}
        for path in sorted(folder.glob("*.schema.json")):
            schema = json.loads(path.read_text())
            jsonschema.Draft202012Validator.check_schema(schema)
            self.schemas[schema["title"]] = schema
        self.by_id = {s["$id"]: s for s in self.schemas.values() if "$id" in s}

    def errors(self, document):
        schema = self.schemas[document["schema"]]
        resolver = jsonschema.RefResolver.from_schema(schema, store=self.by_id)
        validator = jsonschema.Draft202012Validator(schema, resolver=resolver)
        return list(validator.iter_errors(document))


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


def main(source, extra):
    checker = Checker(source / "src" / "io" / "schemas")
    kinds = {f"dapple-{kind}/1" for kind in ("profile", "topology", "plan", "timeline", "schedule")}
    if set(checker.schemas) != kinds:
        print(f"expected schemas of {sorted(kinds)}, got {sorted(checker.schemas)}")
        return 1
    paths = sorted(source.glob("profiles/*.json")) + sorted(source.glob("topologies/*.json"))
    if len(paths) < 17:
        print(f"expected at least 17 shipped profiles and topologies, got {len(paths)}")
        return 1
    paths += sorted(source.glob("tests/golden/*.json")) + extra
    faults = []
    spoiled_kinds = set()
    for path in paths:
        document = json.loads(path.read_text())
        for error in checker.errors(document):
            place = "/".join(str(step) for step in error.absolute_path)
            faults.append(f"{path}: /{place}: {error.message[:200]}")
        if document["schema"] not in spoiled_kinds or "matrix" in path.read_text():
            spoiled_kinds.add(document["schema"])
            faults += spoil(checker, document, path)
    print("\n".join(faults) if faults else f"{len(paths)} documents agree with their schemas")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]]))
