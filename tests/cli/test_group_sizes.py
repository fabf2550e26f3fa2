"""Plans whose stages have different forms, on groups of different sizes or of one, costed a second
time.

Plans are made for models of which some layers fit on one device and gain nothing from tensor
parallelism, and others fit on several devices only, and for such whose layers are fast in one form
each, of as many devices. What their files say of the costs of stages and of the memory of devices is
compared, to the nanosecond and to the byte, with an implementation of docs/model.md that shares no
code with the program: each stage is costed on the topology of its own groups
(test_parallelism_costs.py), and what a boundary carries is counted device by device.
"""

import collections
import random

import tool
from test_parallelism_costs import (Form, Model, Plan, Timeline, differences, divide_up, expanded,
                                    key_of, shares)
from tool import DONE, ToolTest

CASES = 150  # enough that every subject of SUBJECTS is met
SUBJECTS = ("groups of different sizes", "groups of one size", "three sizes of groups",
            "a larger group sends to smaller ones", "smaller groups send to a larger one",
            "replicas of smaller groups", "replicas of larger groups",
            "reductions of larger groups between servers", "sharded optimizer state")
# The same of plans on groups of one size. Some of their stages have these forms beside others.
CASES_OF_ONE_SIZE = 80
SUBJECTS_OF_ONE_SIZE = (
    "tensor parallelism", "sequence parallelism", "context parallelism", "expert parallelism",
    "experts that are divided", "data-parallel ranks", "all state sharded",
    "sharded optimizer state", "replicas", "several servers", "three forms",
    "a transfer to another form")


class Case:
    """A model, a topology and what is asked for, drawn by a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.degrees = self.random.choice(((2,), (4,), (2, 4), (2, 4)))
        self.shards = self.random.random() < 0.25
        self.batch = self.random.choice((2, 3, 4, 6))
        unit = self.random.randint(10**6, 10**8)  # bytes of parameters that a device has room for
        kinds = ["small"] * self.random.randint(1, 2) + [
            f"large{self.random.choice(self.degrees)}" for _ in range(self.random.randint(1, 2))]
        self.random.shuffle(kinds)
        self.profile = {
            "schema": "dapple-profile/1", "name": "drawn", "source": "made up",
            "global_batch_size": self.batch, "device": "card", "batch_scaling": "proportional",
            "optimizer": {"name": "adam", "state_bytes_per_parameter_byte": 2,
                          "step_ns_per_parameter_byte": self.random.choice((0.01, 0.000123457))},
            "layers": [self.layer(f"{kind}.{number}", kind, unit)
                       for number, kind in enumerate(kinds)]}
        # Weights, gradients and state are four times the parameters, and some room is for tensors.
        self.topology = self.draw_topology(5 * unit)

    def measurements(self, ns):
        return [{"batch_size": 1, "forward_ns": ns, "backward_ns": 2 * ns + self.random.randint(0, 9),
                 "output_bytes": self.random.randint(1, 3000),
                 "stash_bytes": self.random.randint(1, 3000)}]

    def layer(self, name, kind, unit):
        """One that fits on a device by itself, or on as many devices as its kind says."""
        needed = 1 if kind == "small" else int(kind[len("large"):])
        parameters = unit * needed - self.random.randint(0, unit // 10)
        ns = self.random.randint(10**6, 2 * 10**6)
        variants = [{"tensor_parallel": degree, "parameter_bytes": divide_up(parameters, degree),
                     "measurements": self.measurements(ns if kind == "small" else
                                                       divide_up(ns * needed, degree)),
                     "forward_collectives": [
                         {"kind": "all-reduce", "bytes_per_sample": self.random.randint(0, 10**4)}]}
                    for degree in self.degrees]
        return {"name": name, "parameter_bytes": parameters, "variants": variants,
                "measurements": self.measurements(ns * needed)}

    def draw_topology(self, memory):
        def link(low, high):
            return {"bandwidth": f"{self.random.randint(low, high)} B/s",
                    "latency": f"{self.random.randint(1, 2000)} ns", "source": "made up"}
        servers, devices = self.random.choice(((1, 4), (1, 8), (2, 4), (2, 8)))
        nics = [link(10**9, 10**11)] * self.random.choice((1, devices))
        return {"schema": "dapple-topology/1", "name": "drawn", "source": "made up",
                "devices": {"card": {"memory": f"{memory} B", "reserved": "0 B"}},
                "servers": [{"name": "node", "count": servers, "device": "card",
                             "devices": devices, "nics": nics if servers > 1 else [],
                             "links": {"kind": "switch", **link(10**10, 10**12)}}],
                **({"network": {"kind": "switch", **link(10**9, 10**11)}} if servers > 1 else {})}


class OneSize:
    """A model whose layers are fast in one form each, all of groups of one size, by a seed."""

    # Variants that devices of a group can have: tensor, sequence, context, experts and divided.
    FORMS = {2: ((2, False, 1, 1, 2), (2, True, 1, 1, 2), (1, False, 2, 1, 1), (1, False, 1, 2, 1),
                 (1, False, 1, 1, 1)),
             4: ((4, False, 1, 1, 4), (4, True, 1, 1, 4), (2, True, 2, 1, 2), (1, False, 4, 1, 1),
                 (2, False, 1, 1, 2), (1, False, 2, 1, 1), (1, False, 1, 4, 1), (2, True, 1, 2, 1),
                 (2, True, 1, 2, 2), (1, False, 2, 4, 1), (1, False, 1, 1, 1))}

    def __init__(self, seed):
        self.random = random.Random(seed)
        size = self.random.choice((2, 4, 4))
        self.forms = self.random.sample(self.FORMS[size], self.random.choice((2, 2, 3)))
        self.shard = self.random.choice(("none", "none", "optimizer", "full"))
        self.shards = self.shard == "optimizer"
        replicas, stages = self.random.choice((1, 1, 2)), len(self.forms)
        groups = stages * replicas
        servers = self.random.choice((1, 1 if groups % 2 else groups // 2))
        self.words = ["--pin", f"stages={stages}", "--pin", f"replicas={replicas}", "--shard",
                      self.shard]
        self.profile = {
            "schema": "dapple-profile/1", "name": "drawn", "source": "made up",
            "global_batch_size": 8 * replicas, "device": "card", "batch_scaling": "proportional",
            "optimizer": {"name": "adam", "state_bytes_per_parameter_byte": 2,
                          "gradient_bytes_per_parameter_byte": self.random.choice((1, 2)),
                          "step_ns_per_parameter_byte": self.random.choice((0.01, 0.000123457))},
            "layers": [self.layer(f"layer-{form}-{number}", form) for form in range(stages)
                       for number in range(self.random.randint(1, 2))]}
        self.topology = self.draw_topology(servers, groups * size // servers)

    def figures(self, is_fast, tensor, parts):
        time = self.random.randint(10**5, 2 * 10**5) * (1 if is_fast else 1000)
        return {"parameter_bytes": divide_up(self.random.randint(10**5, 10**7), tensor),
                "measurements": [{"batch_size": 1, "forward_ns": time, "backward_ns": 2 * time,
                                  "output_bytes": divide_up(self.random.randint(1, 3000), parts),
                                  "stash_bytes": self.random.randint(1, 3000),
                                  "workspace_bytes": self.random.randint(1, 3000)}]}

    def layer(self, name, fast):
        alone, variants = (1, False, 1, 1, 1), []
        layer = {"name": name, **self.figures(self.forms[fast] == alone, 1, 1)}
        for number, form in enumerate(self.forms):
            tensor, sequence, context, experts, expert_tensor = form
            if form == alone:
                continue
            parts = context * (tensor if sequence else 1)
            variant = {"tensor_parallel": tensor, **self.figures(number == fast, tensor, parts)}
            if sequence:
                variant["sequence_parallel"] = True
            if context > 1:
                variant["context_parallel"] = context
            if experts > 1:
                variant |= {"expert_parallel": experts, "expert_tensor_parallel": expert_tensor,
                            "expert_parameter_bytes": variant["parameter_bytes"] // 2}
            over = [ranks for ranks, degree in (("tensor", tensor), ("context", context),
                                                ("experts", experts)) if degree > 1]
            for way in ("forward_collectives", "backward_collectives"):
                variant[way] = [{"kind": self.random.choice((
                    "all-reduce", "all-gather", "reduce-scatter", "all-to-all")), "over": ranks,
                                 "bytes_per_sample": self.random.randint(1, 10**4)}
                                for ranks in over]
            assert key_of(variant)[:5] == form
            variants.append(variant)
        return {**layer, "variants": variants}

    def draw_topology(self, servers, devices):
        def link(low, high):
            return {"bandwidth": f"{self.random.randint(low, high)} B/s",
                    "latency": f"{self.random.randint(1, 2000)} ns", "source": "made up"}
        nics = [link(10**9, 10**11)] * self.random.choice((1, devices))
        return {"schema": "dapple-topology/1", "name": "drawn", "source": "made up",
                "devices": {"card": {"memory": "1000000000 B", "reserved": "0 B"}},
                "servers": [{"name": "node", "count": servers, "device": "card",
                             "devices": devices, "nics": nics if servers > 1 else [],
                             "links": {"kind": "switch", **link(10**10, 10**12)}}],
                **({"network": {"kind": "switch", **link(10**9, 10**11)}} if servers > 1 else {})}


def place_of(name):
    """The server of a group of devices, and the number of its first one there."""
    server, _, numbers = name.partition(":")
    return server, int(numbers.split("-")[0])


class SizesOfGroups:
    """A plan of a file, of which each stage is costed by itself."""

    def __init__(self, document, case):
        self.document, self.case = document, case
        self.forms = [Form(**document.get("parallelism", {})),
                      *(Form(**form) for form in document.get("stage_forms", []))]
        self.stages = document["stages"]
        self.samples = document["micro_batch_size"]
        self.profile = {**case.profile, "layers": expanded(case.profile["layers"])}

    def form(self, stage):
        return self.forms[self.stages[stage].get("form", 0)]

    def devices_each(self, stage):
        """The devices of the plan that make up a replica."""
        return self.form(stage).size // self.forms[0].size

    def groups(self, stage):
        """The names of a stage's own groups, of each of which the plan has several parts."""
        size, names = self.form(stage).size, self.stages[stage]["devices"]
        groups = []
        for first in range(0, len(names), self.devices_each(stage)):
            server, number = place_of(names[first])
            groups.append(f"{server}:{number}" + (f"-{number + size - 1}" if size > 1 else ""))
        return groups

    def alone(self, stage):
        """The plan as the groups of one stage see it, without the devices of others."""
        document = {**self.document, "stages": [
            {**other, "devices": self.groups(stage) if number == stage else []}
            for number, other in enumerate(self.stages)]}
        of_stage = self.stages[stage].get("form", 0)
        document["parallelism"] = ([self.document.get("parallelism", {}),
                                    *self.document.get("stage_forms", [])][of_stage])
        plan = Plan(document, self.profile, self.case.topology)
        plan.sent = lambda number: self.sent(number)
        return plan

    def sent(self, stage):
        """Bytes of one micro-batch to the next stage, counted receiver by receiver."""
        if stage + 1 == len(self.stages):
            return 0
        model = Model(self.profile, self.form(stage + 1))
        cut = self.stages[stage]["layers"][1]
        mine, theirs = self.devices_each(stage), self.devices_each(stage + 1)
        total = 0
        for first, count in shares(self.samples, len(self.groups(stage))):
            for at, needed in shares(self.samples, len(self.groups(stage + 1))):
                overlap = min(first + count, at + needed) - max(first, at)
                if overlap <= 0:
                    continue
                whole = model.boundary(cut, overlap)
                senders = max(1, mine // theirs)  # of each device that receives
                total += theirs * senders * divide_up(whole, senders)
        return total

    def faults(self):
        faults, said = [], {}
        for device in self.document["predicted"]["devices"]:
            said[device["device"]] = device["peak_memory_bytes"]
        for number, stage in enumerate(self.stages):
            plan = self.alone(number)
            faults += differences(plan.costs(number), stage["costs"], f"/stages/{number}/costs")
            of_replicas = [count for _, count in shares(self.samples, len(self.groups(number)))]
            for position, name in enumerate(stage["devices"]):
                samples = of_replicas[position // self.devices_each(number)]
                faults += differences(plan.memory(number, samples), said[name], name)
        return faults

    def together(self):
        """The plan whose stages have their forms on groups of one size, for what passes between."""
        plan = Plan(self.document, self.profile, self.case.topology)
        # A device receives what it will hold.
        plan.passed = lambda stage, samples, is_back: Model(
            self.profile, self.form(stage + (not is_back))).boundary(
                self.stages[stage]["layers"][1], samples)
        return plan

    def subjects_of_one_size(self):
        forms = [self.form(stage) for stage in range(len(self.stages))]
        if len({form.key() + (form.size,) for form in forms}) == 1:
            return
        keys = {form.key() for form in forms}
        if len(keys) > 2:
            yield "three forms"
        for form in forms:
            for subject, is_met in (
                    ("tensor parallelism", form.tensor > 1), ("sequence parallelism", form.sequence),
                    ("context parallelism", form.context > 1),
                    ("expert parallelism", form.experts > 1),
                    ("experts that are divided", form.experts > 1 and form.expert_tensor > 1),
                    ("data-parallel ranks", form.ranks > 1),
                    ("all state sharded", form.shares_all),
                    ("sharded optimizer state", form.shares_optimizer)):
                if is_met:
                    yield subject
        if any(len(stage["devices"]) > 1 for stage in self.stages):
            yield "replicas"
        if len({place_of(name)[0] for stage in self.stages for name in stage["devices"]}) > 1:
            yield "several servers"
        if any(one.key() != other.key() and self.together().transfers(stage)[0][1] > 0
               for stage, (one, other) in enumerate(zip(forms, forms[1:]))):
            yield "a transfer to another form"

    def subjects(self):
        each = [self.devices_each(stage) for stage in range(len(self.stages))]
        yield "groups of different sizes" if max(each) > 1 else "groups of one size"
        if len(set(each)) > 2:
            yield "three sizes of groups"
        for mine, theirs in zip(each, each[1:]):
            if mine > theirs:
                yield "a larger group sends to smaller ones"
            if mine < theirs:
                yield "smaller groups send to a larger one"
        if max(each) == 1:
            return
        for stage, devices in enumerate(each):
            if len(self.groups(stage)) > 1:
                yield "replicas of larger groups" if devices > 1 else "replicas of smaller groups"
                servers = {place_of(group)[0] for group in self.groups(stage)}
                if devices > 1 and len(servers) > 1:
                    yield "reductions of larger groups between servers"
        if self.case.shards:
            yield "sharded optimizer state"


class GroupSizes(ToolTest):
    def compare(self, seed):
        case = Case(seed)
        run = self.run_tool("--model", self.write("m.json", case.profile), "--topo",
                            self.write("t.json", case.topology), "-o", "plan.json", "--per-stage",
                            "--groups", "any", "--no-baselines",
                            *(("--shard", "optimizer") if case.shards else ()))
        if run.returncode == tool.INFEASIBLE:
            return [], collections.Counter()
        if run.returncode != DONE:
            return [f"exit code {run.returncode}: {run.stderr.strip()}"], collections.Counter()
        document = self.read("plan.json")
        if any("data" in form for form in
               (document.get("parallelism", {}), *document.get("stage_forms", []))):
            # Data-parallel ranks in groups of one size: the cases below are about those.
            return [], collections.Counter(("groups of one size",))
        plan = SizesOfGroups(document, case)
        return plan.faults(), collections.Counter(plan.subjects())

    def test_costs_and_memory_of_random_plans(self):
        self.assert_cases_agree(CASES, SUBJECTS, self.compare, lambda seed: "planned")

    def compare_one_size(self, seed):
        case, met = OneSize(seed), collections.Counter()
        run = self.run_tool("--model", self.write("m.json", case.profile), "--topo",
                            self.write("t.json", case.topology), "-o", "plan.json", "--per-stage",
                            "--no-baselines", *case.words)
        if run.returncode == tool.INFEASIBLE:
            return [], met
        if run.returncode != DONE:
            return [f"exit code {run.returncode}: {run.stderr.strip()}"], met
        plan = SizesOfGroups(self.read("plan.json"), case)
        run = self.run_tool("simulate", "plan.json", "--contention", "off", "--timeline",
                            "timeline.json")
        if run.returncode != DONE:
            return [f"exit code of simulate {run.returncode}: {run.stderr.strip()}"], met
        timeline = Timeline(self.read("timeline.json"), plan.together(),
                            {"transfers": "overlapped", "gradient_overlap": "buckets"})
        return plan.faults() + timeline.faults(met), collections.Counter(
            plan.subjects_of_one_size())

    def test_costs_memory_and_transfers_of_plans_on_groups_of_one_size(self):
        self.assert_cases_agree(CASES_OF_ONE_SIZE, SUBJECTS_OF_ONE_SIZE, self.compare_one_size,
                                lambda seed: str(OneSize(seed).words))


if __name__ == "__main__":
    tool.main()
