#!/usr/bin/env python3
"""tools/run_schedule.py SCHEDULE.json runs action lists as a runtime would, computing nothing.

Every device issues its actions in order. A send leaves at once; a receive waits for what its peers
send; the reductions of a device are done one after another, each with all its peers; an optimizer
step waits for those of its stage that were begun. Exit code 0, 2 usage, 3 mismatch or deadlock.
"""
import json
import pathlib
import sys
from types import SimpleNamespace

BEFORE = {"forward": (), "backward": ("forward",), "input_gradient": ("forward",),
          "weight_gradient": ("forward", "input_gradient")}
INPUT = {"forward": "activation", "backward": "gradient", "input_gradient": "gradient"}
MADE_BY = {"activation": ("forward",), "gradient": ("backward", "input_gradient")}
FROM = {"activation": -1, "gradient": 1}  # the stage that sends it, seen from the receiver's


def end_reduction(world):
    """Ends one that stands first on all of its devices; those that it was, if any."""
    heads = {name: begun[0].get("tie", begun[0]["action"])  # a tie's stages differ
             for name, begun in world.reductions.items() if begun}
    for head in heads.values():
        if all(heads.get(member) == head for member in world.groups[head][1:]):
            return [world.reductions[member].pop(0) for member in world.groups[head][1:]]
    return []


def program(name, actions, world):
    """Does a device's actions, and yields what it has to wait for."""
    done, own = world.done[name], world.reductions[name]
    for position, action in enumerate(actions):
        def require(condition, message, place=f"{name}, action {position}, {action['action']}"):
            if not condition:
                raise ValueError(f"mismatch at {place}: {message}")
        kind, stage, batch = action["kind"], action["stage"], action.get("micro_batch")
        verb, tensor = (kind + "_").split("_")[:2]
        if kind in BEFORE:
            require(batch in world.batches, f"expected micro-batches below {len(world.batches)}")
            require((kind, stage, batch) not in done, "expected once, has been done before")
            is_fed = kind in INPUT and stage + FROM[INPUT[kind]] in world.stages
            for before in (*BEFORE[kind], *(["receive_" + INPUT[kind]] if is_fed else [])):
                require((before, stage, batch) in done, f"expected its {before} before it")
        elif verb == "send":
            require(any((made, stage, batch) in done for made in MADE_BY[tensor]),
                    f"expected the {' or '.join(MADE_BY[tensor])} that makes it before it")
            for peer in action["peers"]:
                world.messages[name, peer["device"], tensor, stage, batch] = peer["bytes"]
        elif verb == "receive":
            for peer in action["peers"]:
                key = (peer["device"], name, tensor, stage + FROM[tensor], batch)
                while key not in world.messages:
                    yield f"{name} at {action['action']} from {peer['device']}"
                sent, size = world.messages.pop(key), peer["bytes"]
                require(sent == size, f"expected {size} bytes, {key[0]} sent {sent}")
        elif kind in ("all_reduce", "reduce_tied"):
            group = [action["bytes"], *sorted([name, *(peer["device"] for peer in action["peers"])])]
            first = world.groups.setdefault(action.get("tie", action["action"]), group)
            require(group == first, f"expected a peer's bytes and devices, {first}, got {group}")
            own.append(action)
        else:
            while any("tie" in begun or begun["stage"] == stage for begun in own):
                yield f"{name} at {action['action']}"
        done.add((kind, stage, batch))


def run(schedule):
    """Raises ValueError where the schedule does not run to its end."""
    if schedule.get("schema") != "dapple-schedule/1":
        raise ValueError("expected a dapple-schedule/1, of dapple-plan schedule --format json")
    lists, reasons = {entry["device"]: entry["actions"] for entry in schedule["devices"]}, None
    world = SimpleNamespace(  # what the devices share
        batches=range(schedule["num_micro_batches"]), messages={}, groups={},
        stages={action["stage"] for actions in lists.values() for action in actions},
        done={name: set() for name in lists}, reductions={name: [] for name in lists})
    devices = [program(name, actions, world) for name, actions in lists.items()]
    while reasons != [] or any(world.reductions.values()):
        waits = [(next(device, None), device) for device in devices]
        before, reasons = reasons, [reason for reason, _ in waits if reason]
        devices = [device for reason, device in waits if reason]
        if reasons == before and not end_reduction(world):
            begun = [f"{name} in {a[0]['action']}" for name, a in world.reductions.items() if a]
            raise ValueError("deadlock: " + ", ".join(reasons + begun))
    for _, receiver, tensor, stage, batch in world.messages:
        raise ValueError(f"mismatch: {receiver} never receives {tensor} {batch} of stage {stage}")
    for kinds in (("forward",), ("backward", "weight_gradient")):
        made = {key[1:] for key in set().union(*world.done.values()) if key[0] in kinds}
        for stage, batch in sorted({(s, b) for s in world.stages for b in world.batches} - made):
            raise ValueError(f"mismatch: stage {stage} lacks the {kinds[0]} of micro-batch {batch}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(print(__doc__, file=sys.stderr) or 2)
    try:
        schedule = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
        run(schedule)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as fault:
        what = fault if isinstance(fault, (OSError, ValueError)) else f"no schedule, {fault!r}"
        sys.exit(print(f"error: {sys.argv[1]}: {what}", file=sys.stderr) or 3)
    actions = sum(len(entry["actions"]) for entry in schedule["devices"])
    print(f"{sys.argv[1]}: {actions} actions of {len(schedule['devices'])} devices run to their end")
