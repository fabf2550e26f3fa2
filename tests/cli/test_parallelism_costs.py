"""Plans of groups that share every layer, costed a second time.

What import writes as the costs of stages and the memory of devices is compared, to the nanosecond
and to the byte, with an implementation of docs/model.md in exact numbers that shares no code with
the program. The cases are drawn by seeds; DAPPLE_TEST_SCALE=N tries N times as many. A case that
differs is repeated by its seed alone with DAPPLE_TEST_CASE=SEED.
"""

import collections
import itertools
import json
import math
import os
import random
import sys
from fractions import Fraction

import tool
from tool import BAD_INPUT, DONE, ToolTest

CASES = 120  # enough that every subject of SUBJECTS is met
BUCKET = 25 << 20  # bytes; what import closes a bucket at
MOST = 10**15  # byte/s; the bandwidth of a ring before any port has narrowed it
TICKS = 1024  # of a nanosecond
SECOND = 10**9  # nanoseconds

# What a stage can be about; a run has to meet each.
SUBJECTS = (
    "a group", "no group", "degree 2", "degree 3", "degree 4", "degree 8", "sequence parallelism",
    "recomputation", "an all-reduce in a layer", "an all-gather in a layer",
    "a reduce-scatter in a layer", "an empty collective", "a measured collective",
    "a collective below its table", "a collective within its table", "a collective above its table",
    "replicas on several servers", "groups on one NIC", "a group with several NICs",
    "a tie between stages", "several buckets", "several measurements", "a fixed overhead",
    "a repeated layer", "a skipped stage", "a time scale", "two kinds of servers", "uplinks",
    "a hierarchical all-reduce", "a flat ring through NICs", "measured replicas", "a workspace",
    "sharded state", "a sharded reduction on several servers")


def divide_up(a, b):
    return -(-a // b)


def factor(number):
    """A decimal number of a file, exactly."""
    return Fraction(repr(number))


def scale_up(size, number):
    return math.ceil(size * factor(number))


def amount(quantity):
    """A quantity of a topology in its base unit; the cases here have no other."""
    return int(quantity.split()[0])


def occupation(size, bandwidth):
    """Ticks that `size` bytes, possibly a fraction of one, are on their way."""
    return math.ceil(Fraction(size * SECOND * TICKS) / bandwidth)


def round_up(ticks):
    return divide_up(ticks, TICKS)


# Layers.


def expanded(layers):
    """Layers with their copies, as plans number them."""
    return [{**{key: value for key, value in layer.items() if key != "repeat"}, "name": name}
            for layer in layers for name in
            ([f"{layer['name']}.{copy}" for copy in range(layer["repeat"])] if "repeat" in layer
             else [layer["name"]])]


def chosen_figures(layer, degree, sequence):
    """The figures of a layer, or of its variant for the degree."""
    if degree == 1:
        return layer
    for variant in layer["variants"]:
        if (variant["tensor_parallel"] == degree
                and variant.get("sequence_parallel", False) == sequence):
            return variant
    raise LookupError("the layer has no such variant")


class Model:
    """Layers as one device of a group sees them."""

    def __init__(self, profile, degree, sequence):
        self.names = [layer["name"] for layer in profile["layers"]]
        self.figures = [chosen_figures(layer, degree, sequence) for layer in profile["layers"]]
        self.scaling = profile.get("batch_scaling")
        self.device = profile["device"]
        optimizer = profile["optimizer"]
        self.state = optimizer["state_bytes_per_parameter_byte"]
        self.gradient = optimizer.get("gradient_bytes_per_parameter_byte", 1)
        self.step = optimizer.get("step_ns_per_parameter_byte", 0)
        self.last_consumer = [-1] * len(self.names)
        for number, layer in enumerate(profile["layers"]):
            for name in layer.get("inputs", self.names[max(0, number - 1):number]):
                self.last_consumer[self.names.index(name)] = number
        self.ties = collections.defaultdict(list)  # owner: users
        for number, layer in enumerate(profile["layers"]):
            if "tied_to" in layer:
                self.ties[self.names.index(layer["tied_to"])].append(number)

    def time(self, layer, key, samples, scale):
        """Nanoseconds of a layer's own computation."""
        points = [(m["batch_size"], m[key]) for m in self.figures[layer]["measurements"]]
        if len(points) == 1:
            size, time = points[0]
            overhead = min(self.figures[layer].get("fixed_overhead_ns", 0), time)
            batch = samples if self.scaling == "proportional" else max(samples, size)
            exact = overhead + Fraction((time - overhead) * batch, size)
        elif samples <= points[0][0]:
            exact = Fraction(points[0][1])
        else:
            pairs = zip(points, points[1:])
            low, high = next((pair for pair in pairs if samples <= pair[1][0]), points[-2:])
            if samples > high[0] and high[1] < low[1]:
                exact = Fraction(high[1])
            else:
                slope = Fraction(high[1] - low[1], high[0] - low[0])
                exact = low[1] + slope * (samples - low[0])
        return math.ceil(exact * scale)

    def size(self, layer, key, samples):
        largest = self.figures[layer]["measurements"][-1]
        return divide_up(largest.get(key, 0) * samples, largest["batch_size"])

    def boundary(self, cut, samples):
        if cut in (0, len(self.names)):
            return 0
        return sum(self.size(layer, "output_bytes", samples) for layer in range(cut)
                   if self.last_consumer[layer] >= cut)

    def own(self, layer):
        return self.figures[layer]["parameter_bytes"]

    def parameters(self, begin, end):
        return sum(map(self.own, range(begin, end))) + sum(
            self.own(owner) for owner, users in self.ties.items()
            if owner < begin and any(begin <= user < end for user in users))

    def stages_of_tie(self, owner, stages):
        members = [owner, *self.ties[owner]]
        return [number for number, (begin, end) in enumerate(stages)
                if any(begin <= layer < end for layer in members)]

    def buckets(self, stage, stages):
        """Sizes of the gradients that the replicas of a stage reduce together."""
        begin, end = stages[stage]
        sizes, still_open = [], 0
        for layer in reversed(range(begin, end)):
            if layer in self.ties and len(self.stages_of_tie(layer, stages)) > 1:
                continue
            still_open += scale_up(self.own(layer), self.gradient)
            if still_open >= BUCKET:
                sizes.append(still_open)
                still_open = 0
        return sizes + [still_open] * (still_open > 0)


# Devices and links.


class Server:
    def __init__(self, group, number):
        self.group = group
        self.name = f"{group['name']}{number}"
        self.bandwidth = amount(group["links"]["bandwidth"])
        self.latency = amount(group["links"]["latency"])
        self.nics = []  # numbers

    def measured_points(self, servers, devices):
        """Sizes and times of all-reduces that were measured over so many devices, if any were."""
        ranks = servers * devices
        for table in self.group.get("bus_bandwidth", []):
            if (table.get("servers", 1), table["devices"]) == (servers, devices):
                return [(amount(point["size"]),
                         divide_up(2 * (ranks - 1) * amount(point["size"]) * SECOND,
                                   ranks * amount(point["bandwidth"])))
                        for point in table["points"]]
        return None


class Device:
    def __init__(self, name, server, kind, nic):
        self.name = name
        self.server = server
        self.kind = kind
        self.nic = nic


def nics_of_devices(nics, devices):
    """For each device of a server the NIC that it uses."""
    if not nics:
        return [None] * devices
    if "devices" not in nics[0]:
        return [device * len(nics) // devices for device in range(devices)]
    return [next(number for number, nic in enumerate(nics) if device in nic["devices"])
            for device in range(devices)]


def grouped_nics(nics, devices, degree, port):
    """NICs of a server (bandwidth, latency) as groups of devices see them, and that of each group.

    Groups that use one NIC have a part of it for each device. The NICs of a group that has several
    become one, as wide as the narrowest part of one of its devices. None where a group has several
    NICs of which another one uses some.
    """
    used = nics_of_devices(nics, devices)
    groups = [set(used[first:first + degree]) for first in range(0, devices, degree)]
    made, numbers = [], {}
    for first, group in zip(range(0, devices, degree), groups):
        if len(group) > 1 and sum(1 for other in groups if other & group) > 1:
            return None
        key = tuple(sorted(group))
        if key not in numbers:
            parts = [min(amount(nics[nic]["bandwidth"]), port)
                     // (used[first:first + degree].count(nic)) for nic in key]
            numbers[key] = len(made)
            made.append((min(parts), max(amount(nics[nic]["latency"]) for nic in key)))
    return made, [numbers[tuple(sorted(group))] for group in groups]


class Topology:
    """What plans of one degree see: a device is a group of so many, with the figures of each."""

    def __init__(self, document, degree):
        self.degree = degree
        self.kinds = document["devices"]
        self.servers, self.devices, self.nics = [], [], []
        network = document.get("network", {"bandwidth": "1 B/s", "latency": "0 ns"})
        self.network_port = amount(network["bandwidth"])
        self.network_latency = amount(network["latency"])
        for group in document["servers"]:
            for number in range(group["count"]):
                self.add_server(Server(group, number))
        # Uplinks as (bandwidth, latency), and their whole bandwidth before it is divided among the
        # devices of a group; the rack of each server and the pod of each rack.
        self.uplink, self.whole, self.rack_of, self.pod_of = {}, {}, [], []
        self.add_uplinks("rack", document.get("racks", []), "servers", self.rack_of,
                         [server.together for server in self.servers])
        self.add_uplinks("pod", document.get("pods", []), "racks", self.pod_of,
                         [self.whole["rack", rack] for rack in
                          range(max(self.rack_of, default=-1) + 1)])

    def add_server(self, server):
        group, number = server.group, len(self.servers)
        self.servers.append(server)
        nics, count = group.get("nics", []), group["devices"]
        if self.degree == 1:
            made = [(min(amount(nic["bandwidth"]), self.network_port), amount(nic["latency"]))
                    for nic in nics]
            used = nics_of_devices(nics, count)
        elif nics:
            made, used = grouped_nics(nics, count, self.degree, self.network_port)
        else:
            made, used = [], [None] * (count // self.degree)
        for place, nic in enumerate(used):
            first = place * self.degree
            last = "" if self.degree == 1 else f"-{first + self.degree - 1}"
            self.devices.append(Device(f"{server.name}:{first}{last}", number, group["device"],
                                       None if nic is None else len(self.nics) + nic))
        server.together = sum(min(amount(nic["bandwidth"]), self.network_port) for nic in nics)
        server.nics = list(range(len(self.nics), len(self.nics) + len(made)))
        self.nics += made

    def add_uplinks(self, kind, groups, members, place, together):
        """Uplinks of racks or pods, whose members can send so much each."""
        number = 0
        for group in groups:
            for _ in range(group["count"]):
                low, high = len(place), len(place) + group[members]
                if "bandwidth" in group["uplink"]:
                    whole = amount(group["uplink"]["bandwidth"])
                else:
                    exact = sum(together[low:high]) / factor(group["uplink"]["oversubscription"])
                    whole = min(MOST, max(1, math.floor(exact)))
                place += [number] * group[members]
                self.whole[kind, number] = whole
                self.uplink[kind, number] = (max(1, whole // self.degree),
                                             amount(group["uplink"]["latency"]))
                number += 1

    def scale(self, device, profiled):
        return 1 if device.kind == profiled else factor(
            self.kinds[device.kind]["time_scale"][profiled])

    def memory_limit(self, device):
        kind = self.kinds[device.kind]
        return amount(kind["memory"]) - amount(kind.get("reserved", "0 B"))

    def capacity(self, port):
        way, number, _ = port
        if way == "device":
            return self.servers[self.devices[number].server].bandwidth
        if way == "nic":
            return self.nics[number][0]
        return self.uplink[way, number][0]

    def uplinks(self, a, b):
        """The ports of racks and pods that a message passes on its way between two servers."""
        if not self.rack_of or self.rack_of[a] == self.rack_of[b]:
            return []
        racks = [("rack", self.rack_of[a], "out"), ("rack", self.rack_of[b], "in")]
        pods = [self.pod_of[rack] for _, rack, _ in racks] if self.pod_of else [0, 0]
        if pods[0] == pods[1]:
            return racks
        return [racks[0], ("pod", pods[0], "out"), ("pod", pods[1], "in"), racks[1]]

    def route(self, a, b):
        """Ports and latency between two devices, by number."""
        one, other = self.devices[a], self.devices[b]
        if one.server == other.server:
            return ([("device", a, "out"), ("device", b, "in")],
                    self.servers[one.server].latency)
        uplinks = self.uplinks(one.server, other.server)
        return ([("nic", one.nic, "out"), *uplinks, ("nic", other.nic, "in")],
                self.nics[one.nic][1] + self.nics[other.nic][1] + self.network_latency
                + sum(self.uplink[way, number][1] for way, number, _ in uplinks))

    def collective(self, server, kind, size):
        """Nanoseconds of a collective in a group of a server."""
        if size == 0:
            return 0
        points = server.measured_points(1, self.degree)
        rounds = (2 if kind == "all-reduce" or points else 1) * (self.degree - 1)
        time = (round_up(occupation(Fraction(rounds * size, self.degree), server.bandwidth))
                + rounds * server.latency)
        if points:
            time = measured_time(points, size, time)
            return time if kind == "all-reduce" else divide_up(time, 2)
        return time


def measured_time(points, size, by_links):
    if size < points[0][0]:
        return min(by_links, points[0][1])
    for (low, time), (high, later) in zip(points, points[1:]):
        if low <= size < high:
            return time + divide_up((later - time) * (size - low), high - low)
    return divide_up(points[-1][1] * size, points[-1][0])


# All-reduces between devices.


class Ring:
    """A ring set: members, bandwidth and latency of a hop."""

    def __init__(self, members, bandwidth, latency):
        self.members = members
        self.bandwidth = bandwidth
        self.latency = latency

    def busy(self, size, passes):
        return occupation(Fraction(passes * size * (self.members - 1), self.members),
                          self.bandwidth)

    def pauses(self, passes):
        return passes * (self.members - 1) * self.latency


def narrowed(bandwidth, taken, topology):
    """What a ring set's bandwidth comes to where each port carries the share `taken` of it."""
    for port, share in taken.items():
        bandwidth = min(bandwidth, max(1, math.floor(topology.capacity(port) / share)))
    return bandwidth


def flat_ring(topology, members):
    taken, latency = collections.Counter(), 0
    for a, b in zip(members, [*members[1:], members[0]]):
        ports, of_hop = topology.route(a, b)
        taken.update(ports)
        latency = max(latency, of_hop)
    return Ring(len(members), narrowed(MOST, {port: Fraction(n) for port, n in taken.items()},
                                       topology), latency)


def by_server(topology, members):
    held = collections.defaultdict(list)
    for member in members:
        held[topology.devices[member].server].append(member)
    return held


def hierarchical_rings(topology, held):
    """Rings inside the servers and across them, for servers with equally many members each."""
    inside = [flat_ring(topology, members) for members in held.values()]
    inner = Ring(inside[0].members, min(ring.bandwidth for ring in inside),
                 max(ring.latency for ring in inside))
    servers = list(held)
    latency, together_of_all = 0, []
    taken = collections.Counter()
    for server, after in zip(servers, [*servers[1:], servers[0]]):
        for a, b in zip(held[server], held[after]):
            latency = max(latency, topology.route(a, b)[1])
        nics = {topology.devices[member].nic for member in held[server]}
        together = sum(topology.nics[nic][0] for nic in nics)
        together_of_all.append(together)
        for nic in nics:
            for direction in ("out", "in"):
                taken["nic", nic, direction] += Fraction(topology.nics[nic][0], together)
        for port in topology.uplinks(server, after):
            taken[port] += Fraction(1)
    return inner, Ring(len(servers), narrowed(min(together_of_all), taken, topology), latency)


class AllReduce:
    """All-reduces over devices, given by number: two passes around a ring, or the first of them, a
    reduce-scatter."""

    def __init__(self, topology, members, passes=2):
        self.passes = passes
        self.topology = topology
        self.members = sorted(members)
        self.held = by_server(topology, self.members)
        self.used = set()  # names of what times were made of

    def by_links(self, size):
        ways = [("flat", [flat_ring(self.topology, self.members)])]
        counts = {len(members) for members in self.held.values()}
        if len(self.held) > 1 and len(counts) == 1 and counts != {1}:
            ways.append(("hierarchical", hierarchical_rings(self.topology, self.held)))
        times = [(round_up(sum(ring.busy(size, self.passes) for ring in rings))
                  + sum(ring.pauses(self.passes) for ring in rings), name)
                 for name, rings in ways]
        time, name = min(times, key=lambda way: way[0])
        self.used.add(name)
        return time

    def points(self):
        """What was measured of so many devices; groups of several have nothing measured."""
        servers = list(self.held)
        counts = {len(members) for members in self.held.values()}
        first = self.topology.servers[servers[0]]
        if (self.topology.degree > 1 or len(counts) > 1
                or any(self.topology.servers[server].group is not first.group
                       or self.topology.uplinks(servers[0], server) for server in servers)):
            return None
        return first.measured_points(len(servers), counts.pop())

    def time(self, size):
        if len(self.members) < 2 or size == 0:
            return 0
        points = self.points()
        if points:
            points = [(measured, divide_up(self.passes * time, 2)) for measured, time in points]
            self.used.add("measured")
            return measured_time(points, size, self.by_links(size))
        return self.by_links(size)


# Plans.


def shares(samples, replicas):
    """First sample and number of samples of each replica."""
    first = 0
    for number in range(replicas):
        count = samples // replicas + (number < samples % replicas)
        yield first, count
        first += count


class Plan:
    """A plan of a file, to be costed: what it decides, and nothing of what it says it costs."""

    def __init__(self, document, profile, topology):
        parallelism = document.get("parallelism", {})
        self.degree = parallelism.get("tensor", 1)
        self.sequence = parallelism.get("sequence", False)
        self.is_sharded = parallelism.get("sharding") == "optimizer"
        self.model = Model(profile, self.degree, self.sequence)
        self.topology = Topology(topology, self.degree)
        numbers = {device.name: n for n, device in enumerate(self.topology.devices)}
        self.stages = [tuple(stage["layers"]) for stage in document["stages"]]
        self.devices = [[numbers[name] for name in stage["devices"]]
                        for stage in document["stages"]]
        self.recomputes = [stage["recompute"] for stage in document["stages"]]
        self.samples = document["micro_batch_size"]
        self.micro_batches = document["num_micro_batches"]
        self.depths = document["schedule"]["warmup_depths"]
        self.used = [set() for _ in self.stages]  # what all-reduces of each stage were made of

    def layers_of(self, stage):
        return range(*self.stages[stage])

    def compute(self, stage, device, samples):
        """Nanoseconds of forward and backward of one replica."""
        scale = self.topology.scale(self.topology.devices[device], self.model.device)
        server = self.topology.servers[self.topology.devices[device].server]
        times = {}
        for way in ("forward", "backward"):
            times[way] = 0
            for layer in self.layers_of(stage):
                times[way] += self.model.time(layer, f"{way}_ns", samples, scale)
                for collective in self.model.figures[layer].get(f"{way}_collectives", []):
                    times[way] += collective.get("count", 1) * self.topology.collective(
                        server, collective["kind"], samples * collective["bytes_per_sample"])
        forward = times["forward"]
        return forward, times["backward"] + (forward if self.recomputes[stage] else 0)

    def sent(self, stage):
        """Bytes of one micro-batch to the next stage."""
        if stage + 1 == len(self.stages):
            return 0
        total = 0
        sending, receiving = (list(zip(shares(self.samples, len(devices)), devices))
                              for devices in self.devices[stage:stage + 2])
        for ((first, count), sender), ((at, needed), receiver) in itertools.product(sending,
                                                                                    receiving):
            overlap = min(first + count, at + needed) - max(first, at)
            if overlap > 0 and sender != receiver:
                total += self.model.boundary(self.stages[stage][1], overlap)
        return total

    def buckets(self, stage):
        return self.model.buckets(stage, self.stages) if len(self.devices[stage]) > 1 else []

    def ties_of(self, stage):
        """Owners of ties in which a stage takes part with others, and the stages of each."""
        for owner in self.model.ties:
            stages = self.model.stages_of_tie(owner, self.stages)
            if stage in stages and len(stages) > 1:
                yield owner, stages

    def all_reduce(self, stage):
        ring = AllReduce(self.topology, self.devices[stage], 1 if self.is_sharded else 2)
        total = sum(map(ring.time, self.buckets(stage)))
        self.used[stage] |= ring.used
        for owner, stages in self.ties_of(stage):
            ring = AllReduce(self.topology, itertools.chain(*(self.devices[s] for s in stages)))
            total += ring.time(scale_up(self.model.own(owner), self.model.gradient))
            self.used[stage] |= ring.used
        return total

    def update(self, stage):
        """The optimizer's step, or that of a shard and the all-gather of the parameters."""
        parameters = self.model.parameters(*self.stages[stage])
        step = scale_up(parameters, self.model.step)
        if not self.is_sharded:
            return step
        gather = AllReduce(self.topology, self.devices[stage], 1).time(parameters)
        return divide_up(step, len(self.devices[stage])) + gather

    def costs(self, stage):
        """What the file should say under stages[].costs."""
        replicas = [self.compute(stage, device, count) for device, (_, count)
                    in zip(self.devices[stage], shares(self.samples, len(self.devices[stage])))]
        return {
            "forward_ns": max(forward for forward, _ in replicas),
            "backward_ns": max(backward for _, backward in replicas),
            "send_bytes": self.sent(stage),
            "gradient_buckets_bytes": self.buckets(stage),
            "all_reduce_ns": self.all_reduce(stage),
            "optimizer_step_ns": self.update(stage),
        }

    def memory(self, stage, samples):
        """The peak of a device with so many samples of each micro-batch, in bytes."""
        begin, end = self.stages[stage]
        depths = [min(depth, self.micro_batches) for depth in self.depths]
        weights = self.model.parameters(begin, end)
        shards = len(self.devices[stage]) if self.is_sharded else 1
        fixed = (weights + scale_up(weights, self.model.gradient)
                 + divide_up(scale_up(weights, self.model.state), shards) + max(self.buckets(stage), default=0)
                 + max(self.model.size(layer, "workspace_bytes", samples)
                       for layer in self.layers_of(stage)))
        if stage > 0:
            waiting = max(0, depths[stage - 1] - depths[stage])
            fixed += (4 + waiting) * self.model.boundary(begin, samples)
        if stage + 1 < len(self.stages):
            waiting = max(0, depths[stage] - depths[stage + 1])
            fixed += (4 + waiting) * self.model.boundary(end, samples)
        stash = sum(self.model.size(layer, "stash_bytes", samples)
                    for layer in self.layers_of(stage))
        if not self.recomputes[stage]:
            return fixed + depths[stage] * stash
        kept = (self.model.boundary(begin, samples) if stage > 0
                else self.model.size(0, "stash_bytes", samples))
        return fixed + depths[stage] * kept + stash

    def predicted_devices(self):
        """What the file should say of each device that is used, by name."""
        said = {}
        for stage, devices in enumerate(self.devices):
            for device, (_, count) in zip(devices, shares(self.samples, len(devices))):
                kind = self.topology.devices[device]
                said[kind.name] = {
                    "peak_memory_bytes": self.memory(stage, count),
                    "memory_limit_bytes": self.topology.memory_limit(kind),
                }
        return said

    def subjects(self, stage):
        """Which of SUBJECTS a stage is about. Costs have to be asked for before."""
        layers, devices = self.layers_of(stage), self.devices[stage]
        figures = [self.model.figures[layer] for layer in layers]
        hosts = {self.topology.devices[device].server for device in devices}
        for _, stages in self.ties_of(stage):
            hosts |= {self.topology.devices[device].server
                      for other in stages for device in self.devices[other]}
        groups = [self.topology.servers[host].group for host in hosts]
        crosses = len(hosts) > 1 and self.all_reduce(stage) > 0
        collectives = [(c["kind"], c["bytes_per_sample"]) for f in figures for c in
                       f.get("forward_collectives", []) + f.get("backward_collectives", [])]
        sizes = [size * count for size in (size for _, size in collectives if size > 0)
                 for _, count in shares(self.samples, len(devices))]
        tables = [self.topology.servers[host].measured_points(1, self.degree) for host in hosts]
        of_nics = [(nics_of_devices(group["nics"], group["devices"]), group["devices"])
                   for group in groups if crosses]
        sets = [[set(used[first:first + self.degree]) for first in range(0, count, self.degree)]
                for used, count in of_nics]
        met = {
            "a group": self.degree > 1,
            "no group": self.degree == 1,
            f"degree {self.degree}": self.degree > 1,
            "sequence parallelism": self.sequence,
            "recomputation": self.recomputes[stage],
            "an empty collective": any(size == 0 for _, size in collectives),
            "a measured collective": bool(sizes and tables[0]),
            "a collective below its table": any(
                size < tables[0][0][0] for size in sizes if tables[0]),
            "a collective within its table": any(
                tables[0][0][0] <= size < tables[0][-1][0] for size in sizes if tables[0]),
            "a collective above its table": any(
                tables[0][-1][0] <= size for size in sizes if tables[0]),
            "replicas on several servers": crosses,
            "groups on one NIC": self.degree > 1 and any(
                a & b for groups in sets for a, b in itertools.combinations(groups, 2)),
            "a group with several NICs": self.degree > 1 and any(
                len(group) > 1 for groups in sets for group in groups),
            "a tie between stages": any(True for _ in self.ties_of(stage)),
            "several buckets": len(self.buckets(stage)) > 1,
            "several measurements": any(len(f["measurements"]) > 1 for f in figures),
            "a fixed overhead": any(f.get("fixed_overhead_ns", 0) > 0 for f in figures),
            "a repeated layer": any("." in self.model.names[layer] for layer in layers),
            "a skipped stage": any(
                layer < self.stages[stage][0] and last >= self.stages[stage][1]
                for layer, last in enumerate(self.model.last_consumer)),
            "a time scale": any(self.topology.scale(self.topology.devices[device],
                                                    self.model.device) != 1 for device in devices),
            "two kinds of servers": len({group["name"] for group in groups}) > 1,
            "uplinks": crosses and any(self.topology.uplinks(a, b)
                                       for a, b in itertools.permutations(hosts, 2)),
            "a hierarchical all-reduce": "hierarchical" in self.used[stage],
            "a flat ring through NICs": crosses and "flat" in self.used[stage],
            "measured replicas": "measured" in self.used[stage],
            "sharded state": self.is_sharded and len(devices) > 1,
            "a sharded reduction on several servers": self.is_sharded and len(
                {self.topology.devices[device].server for device in devices}) > 1,
            "a workspace": any(m.get("workspace_bytes", 0) for f in figures
                               for m in f["measurements"]),
            **{f"an {kind} in a layer" if kind[0] == "a" else f"a {kind} in a layer": any(
                (kind == other and size > 0) for other, size in collectives)
               for kind in ("all-reduce", "all-gather", "reduce-scatter")},
        }
        return [subject for subject, is_met in met.items() if is_met]


# Random cases.


class Draw:
    """A profile, a topology and a layout, all by one seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.degree = self.choice(1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4, 8, 8)
        self.sequence = self.degree > 1 and self.chance(0.5)
        self.topology = self.draw_topology()
        self.profile = self.draw_profile()
        self.layers = expanded(self.profile["layers"])
        self.layout, self.more = self.draw_layout()

    def number(self, low, high):
        """An odd number between powers of two, small ones as likely as large ones."""
        bits = self.random.uniform(math.log2(low), math.log2(high))
        return int(2**bits) | 1

    def choice(self, *choices):
        return self.random.choice(choices)

    def chance(self, probability):
        return self.random.random() < probability

    # Profiles.

    def draw_measurements(self, count):
        measured, batch = [], self.random.randint(1, 5)
        time = self.number(100, 10**7)
        for _ in range(count):
            backward = self.number(100, 10**7)
            one = {"batch_size": batch, "forward_ns": time, "backward_ns": backward,
                   "output_bytes": self.choice(0, self.number(1, 10**7), self.number(1, 10**7)),
                   "stash_bytes": self.number(1, 10**8)}
            if self.chance(0.3):  # Whole backwards do not depend on it.
                one["input_gradient_ns"] = self.random.randint(0, backward)
                one["weight_gradient_ns"] = backward - one["input_gradient_ns"]
            if self.chance(0.5):
                one["workspace_bytes"] = self.number(1, 10**8)
            measured.append(one)
            batch += self.random.randint(1, 4)
            time = max(1, time + self.number(1, 10**6) * self.choice(1, 1, -1))
        return measured

    def draw_figures(self, parameters):
        figures = {"parameter_bytes": self.number(*self.parameters) if parameters else 0,
                   "measurements": self.draw_measurements(self.choice(1, 1, 2, 3))}
        if len(figures["measurements"]) == 1 and self.chance(0.4):
            times = (figures["measurements"][0][key] for key in ("forward_ns", "backward_ns"))
            figures["fixed_overhead_ns"] = self.random.randint(1, min(times))
        return figures

    def draw_collectives(self):
        drawn = []
        for _ in range(self.random.randint(0, 3)):
            one = {"kind": self.choice("all-reduce", "all-gather", "reduce-scatter"),
                   "bytes_per_sample": self.choice(0, self.number(1, 10**8), *(
                       self.number(1, 10**7) for _ in range(5)))}
            if self.chance(0.4):
                one["count"] = self.random.randint(1, 5)
            drawn.append(one)
        return drawn

    def draw_variants(self, parameters):
        """The variant that is used and others that are not, in any order."""
        keys = {(degree, sequence) for degree in (2, 3, 4, 8) for sequence in (False, True)
                if self.chance(0.1)}
        if self.degree > 1:
            keys.add((self.degree, self.sequence))
        variants = []
        for degree, sequence in sorted(keys, key=lambda _: self.random.random()):
            variant = {"tensor_parallel": degree, **self.draw_figures(parameters)}
            if sequence or self.chance(0.3):
                variant["sequence_parallel"] = sequence
            for key in ("forward_collectives", "backward_collectives"):
                drawn = self.draw_collectives()
                if drawn:
                    variant[key] = drawn
            variants.append(variant)
        return variants

    def draw_layers(self):
        names = [f"layer-{letter}" for letter in "abcdefgh"[:self.random.randint(1, 8)]]
        graph, tied = self.chance(0.5), self.chance(0.6)
        self.parameters = self.choice((1, 10**6), (10**6, 10**8))
        layers, owners = [], []
        for number, name in enumerate(names):
            parameters = self.chance(0.8)
            layer = {"name": name, **self.draw_figures(parameters)}
            variants = self.draw_variants(parameters)
            if variants:
                layer["variants"] = variants
            if graph and number > 0:
                layer["inputs"] = self.random.sample(names[:number], self.random.randint(
                    0 if self.chance(0.1) else 1, min(number, 3)))
            if tied and owners and self.chance(0.4):
                layer["tied_to"] = self.random.choice(owners)
            elif not graph and self.chance(0.15):
                layer["repeat"] = self.random.randint(2, 4)
            elif parameters:
                owners.append(name)
            layers.append(layer)
        return layers

    def draw_profile(self):
        optimizer = {"name": "adam", "state_bytes_per_parameter_byte": self.choice(
            0, 1, 2, 0.123456789, 3.7)}
        if self.chance(0.5):
            optimizer["gradient_bytes_per_parameter_byte"] = self.choice(1, 2, 0.5, 0.333333333)
        if self.chance(0.8):
            optimizer["step_ns_per_parameter_byte"] = self.choice(0.01, 0.000123457, 1.3)
        return {"schema": "dapple-profile/1", "name": "drawn", "source": "made up",
                "device": "card", "optimizer": optimizer, "layers": self.draw_layers(),
                "batch_scaling": self.choice("proportional", "floor")}

    # Topologies.

    def draw_nic(self):
        return {"bandwidth": f"{self.number(10**7, 10**11)} B/s",
                "latency": f"{self.number(1, 10**5)} ns"}

    def draw_nics(self, devices):
        """NICs of a server: dealt evenly, or with lists in which a NIC is either for groups that
        have no other or for one group alone."""
        if self.chance(0.5):
            most = devices + 1 if self.chance(0.2) else self.choice(1, 2, devices)
            nics = [self.draw_nic() for _ in range(self.random.randint(1, most))]
            if self.degree == 1 or grouped_nics(nics, devices, self.degree, MOST):
                return nics
        lists = [[] for _ in range(self.random.randint(1, 2))]  # first the shared ones
        shared = len(lists)
        for first in range(0, devices, self.degree):
            group = range(first, first + self.degree)
            if self.chance(0.6):
                self.random.choice(lists[:shared]).extend(group)
                continue
            own = [[] for _ in range(self.random.randint(1, self.degree))]
            for device in group:
                self.random.choice(own).append(device)
            lists += own
        lists = [numbers for numbers in lists if numbers]
        self.random.shuffle(lists)
        return [{**self.draw_nic(), "devices": numbers} for numbers in lists]

    def draw_table(self, servers, devices):
        """A table of measured all-reduces, in which no message is faster than a smaller one."""
        points, size, time = [], self.number(100, 10**6), self.number(10**3, 10**6)
        ranks = servers * devices
        while not points or self.chance(0.6):
            bandwidth = max(1, 2 * (ranks - 1) * size * SECOND // (ranks * time))
            points.append({"size": f"{size} B", "bandwidth": f"{bandwidth} B/s"})
            size += self.number(100, 10**7)
            time += self.number(10**3, 10**6)
        table = {"devices": devices, "points": points}
        if servers > 1 or self.chance(0.3):
            table["servers"] = servers
        return table

    def draw_tables(self, own, count, devices):
        """The given tables, which the groups of servers have in common, and others."""
        tables = list(own)
        for servers, held in itertools.product(range(1, count + 1), range(1, devices + 1)):
            if servers * held > 1 and (servers > 1 or held != self.degree) and self.chance(0.6):
                tables.append(self.draw_table(servers, held))
        self.random.shuffle(tables)
        return tables

    def draw_links(self):
        return {"kind": "switch", "bandwidth": f"{self.number(10**8, 10**12)} B/s",
                "latency": f"{self.number(1, 10**4)} ns"}

    def draw_topology(self):
        links = self.draw_links()
        measured = self.chance(0.4 if self.degree > 1 else 0.8)
        own = [self.draw_table(1, self.degree)] if measured and self.degree > 1 else []
        parts = self.choice((1,), (2,), (3,), (4,), (2,), (4,), (1, 1), (1, 2), (2, 2), (3, 1))
        kinds = [self.choice("card", "other") for _ in parts]
        even = self.chance(0.6) and self.random.randint(1, 8 // self.degree)
        servers = []
        for number, (count, kind) in enumerate(zip(parts, kinds)):
            devices = self.degree * (even or self.random.randint(1, 8 // self.degree))
            group = {"name": ("node", "box")[number], "count": count, "device": kind,
                     "devices": devices, "links": links}
            if self.degree == 1 and self.chance(0.5):  # Groups need the same everywhere.
                group["links"] = self.draw_links()
            if sum(parts) > 1 or self.chance(0.2):
                group["nics"] = self.draw_nics(devices)
            tables = self.draw_tables(own, count, devices) if measured else []
            if tables:
                group["bus_bandwidth"] = tables
            servers.append(group)
        topology = {
            "schema": "dapple-topology/1", "name": "drawn", "servers": servers,
            "devices": {kind: {"memory": f"{self.number(10**6, 10**11)} B",
                               "reserved": f"{self.number(1, 10**6 // 2)} B"}
                        for kind in ("card", "other")},
        }
        topology["devices"]["other"]["time_scale"] = {"card": self.choice(0.31, 1.7, 0.123456789)}
        if sum(parts) > 1:
            topology["network"] = {"kind": "switch",
                                   "bandwidth": f"{self.number(10**8, 10**11)} B/s",
                                   "latency": f"{self.number(1, 10**4)} ns"}
            if self.chance(0.3):
                topology["racks"] = self.draw_uplinks("servers", sum(parts))
                if len(topology["racks"]) > 1 and self.chance(0.5):
                    topology["pods"] = self.draw_uplinks("racks", len(topology["racks"]))
        if self.chance(0.3):
            topology["overlap_slowdown"] = 1.25
        return topology

    def draw_uplinks(self, members, left):
        """Racks of servers or pods of racks."""
        drawn = []
        while left > 0:
            most = left if drawn or left == 1 else left - 1  # Two of them, where that can be.
            held = self.random.randint(1, most)
            uplink = {"latency": f"{self.number(1, 10**4)} ns"}
            if self.chance(0.6):
                uplink["bandwidth"] = f"{self.number(10**7, 10**11)} B/s"
            else:
                uplink["oversubscription"] = self.choice(1, 2, 1.3, 3.123456789)
            drawn.append({"count": 1, members: held, "uplink": uplink})
            left -= held
        return drawn

    # Layouts.

    def draw_layout(self):
        devices = sum(group["count"] * group["devices"] for group in self.topology["servers"])
        groups = devices // self.degree
        count = len(self.layers)
        # Copies of a layer are taken for transformer blocks, of which each stage needs one.
        copies = [layer["repeat"] for layer in self.profile["layers"] if "repeat" in layer]
        ranks = self.random.randint(1, min([count, groups, *copies]))
        replicas = self.choice(self.random.randint(1, groups // ranks), groups // ranks)
        cuts = sorted(self.random.sample(range(1, count), ranks - 1))
        counts = [end - begin for begin, end in zip([0, *cuts], [*cuts, count])]
        samples, micro_batches = self.random.randint(1, 7), self.random.randint(1, 6)
        words = [f"pp={ranks}", f"mbs={samples}", f"gbs={samples * replicas * micro_batches}",
                 f"layers={':'.join(map(str, counts))}"]
        if ranks * replicas < groups or self.chance(0.7):
            words.append(f"dp={replicas}")
        if self.degree > 1:
            words.append(f"tp={self.degree}")
        if self.sequence or self.chance(0.2):
            words.append(f"sp={'on' if self.sequence else 'off'}")
        if self.chance(0.4):
            words.append(f"zero={self.choice(0, 1, 1)}")
        if self.chance(0.4):
            words.append("recompute=full")
        elif self.chance(0.3):
            words.append("recompute=none")
        self.random.shuffle(words)
        more = []
        if self.degree == 1 and self.chance(0.4):  # Groups cannot be placed by hand.
            names = [f"{group['name']}{number}:{device}" for group in self.topology["servers"]
                     for number in range(group["count"]) for device in range(group["devices"])]
            more = ["--devices", ",".join(self.random.sample(names, ranks * replicas))]
        return ",".join(words), more


def differences(ours, theirs, place=""):
    """Where two documents differ, a line each."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        return [line for key in ours
                for line in differences(ours[key], theirs[key], f"{place}/{key}")]
    return [] if ours == theirs else [f"{place}: expected {ours}, the file says {theirs}"]


class ParallelismCosts(ToolTest):
    def compare(self, seed):
        """What differs in the case of a seed, and how many stages are about each subject."""
        draw = Draw(seed)
        run = self.run_tool("import", "plan", "--layout", draw.layout, "--model",
                            self.write("m.json", draw.profile), "--topo",
                            self.write("t.json", draw.topology), "--unlimited-memory", "-o",
                            "plan.json", *draw.more)
        met = collections.Counter()
        if run.returncode != DONE:
            return [f"exit code {run.returncode}: {run.stderr.strip()}"], met
        document = self.read("plan.json")
        # What was asked for was done.
        words = dict(word.split("=") for word in draw.layout.split(","))
        parallelism = document.get("parallelism", {})
        faults = differences(
            {"tensor": draw.degree, "sequence": draw.sequence, "samples": int(words["gbs"]),
             "sharding": "optimizer" if words.get("zero") == "1" else None},
            {"tensor": parallelism.get("tensor", 1),
             "sequence": parallelism.get("sequence", False),
             "sharding": parallelism.get("sharding"),
             "samples": document["global_batch_size"]})
        if faults:
            return faults, met
        plan = Plan(document, {**draw.profile, "layers": draw.layers}, draw.topology)
        counts = [end - begin for begin, end in plan.stages]
        faults += differences(
            {"layers": words["layers"],
             "recompute": [words.get("recompute") == "full"] * len(counts),
             "families": "1f1b",
             "samples": [int(words["mbs"])] * len(plan.devices),
             "devices": "" if draw.more else list(range(len(counts) * len(plan.devices[0])))},
            {"layers": ":".join(map(str, counts)), "recompute": plan.recomputes,
             "families": document["schedule"]["family"],
             "samples": [plan.samples // len(devices) for devices in plan.devices],
             "devices": "" if draw.more else list(itertools.chain(*plan.devices))})
        # Costs and memory.
        for number, stage in enumerate(document["stages"]):
            faults += differences(plan.costs(number), stage["costs"], f"/stages/{number}/costs")
            met.update(plan.subjects(number))
            met["stages"] += 1
        said = {device.pop("device"): device for device in document["predicted"]["devices"]}
        for device in said.values():
            device.pop("busy_fraction")
        faults += differences(plan.predicted_devices(), said, "/predicted/devices")
        met["devices"] += len(said)
        return faults, met

    def test_refusals(self):
        profile = tool.small_profile()
        variant = {"tensor_parallel": 2, **{key: profile["layers"][0][key]
                                            for key in ("parameter_bytes", "measurements")}}
        layer = profile["layers"].pop()
        del layer["repeat"]
        profile["layers"] = [{**layer, "name": name, "variants": [
            variant, {**variant, "tensor_parallel": 3},
            {**variant, "tensor_parallel": 4, "sequence_parallel": True}]} for name in "ab"]
        profile["layers"][0]["variants"].append({**variant, "tensor_parallel": 8})
        topology = tool.small_topology()
        server = topology["servers"][0]
        server["devices"] = 4
        nic = server["nics"][0]
        link = {key: server["links"][key] for key in ("bandwidth", "latency")}
        matrix = {"kind": "matrix", "kinds": {"direct": link}, "matrix": [
            ["-" if row == column else "direct" for column in range(4)] for row in range(4)]}
        other = {**server, "name": "box", "links": {**server["links"], "latency": "6 us"}}
        for words, servers, parts in (
                ("tp=3", [server], ("3", "node has 4")),
                ("tp=8", [{**server, "devices": 8}], ("variants", "got 8")),  # one layer has it
                ("tp=5", [{**server, "devices": 5}], ("variants", "got 5")),
                ("tp=2,sp=on", [server], ("variants", "got 2 with sequence parallelism")),
                ("tp=4,sp=off", [server], ("variants", "got 4")),
                ("tp=1,sp=on", [server], ("sequence parallelism",)),
                ("tp=2", [{**server, "links": matrix}], ("switch", "node has a link matrix")),
                ("tp=2", [server, other], ("same links", "box", "node")),
                ("tp=2", [{**server, "devices": 6, "nics": [nic] * 4}], ("NICs", "node")),
                ("tp=2", [{**server, "nics": [{**nic, "devices": [0, 2]},
                                              {**nic, "devices": [1, 3]}]}], ("NICs", "node")),
                ("tp=2,dp=3,pp=2", [server], ("at most 4", "got 2 times 3")),
                ("tp=0", [server], ("tp: expected", 'got "0"')),
                ("tp=two", [server], ("tp: expected", 'got "two"')),
                ("tp=2,sp=yes", [server], ("sp: expected", "yes"))):
            files = ("--model", self.write("m.json", profile), "--topo",
                     self.write("t.json", {**topology, "servers": servers}))
            for command in (("simulate",), ("import", "plan", "-o", "plan.json")):
                with self.subTest(words=words, command=command):
                    run = self.run_tool(*command, "--layout", f"mbs=1,{words}", *files)
                    self.assert_error(run, BAD_INPUT, "error: --layout: ", *parts)
                    self.assertEqual(run.stderr.strip().count("\n"), 0, run.stderr)
                    self.assertEqual(run.stdout, "")
        self.assertFalse((self.folder / "plan.json").exists())

    def test_costs_and_memory_of_random_plans(self):
        only = os.environ.get("DAPPLE_TEST_CASE")
        met, wrong = collections.Counter(), []
        for seed in [int(only)] if only else range(CASES * tool.SCALE):
            faults, of_case = self.compare(seed)
            met += of_case
            if faults:
                draw = Draw(seed)
                wrong.append("\n  ".join([f"seed {seed}: --layout {draw.layout}"
                                          f" {' '.join(draw.more)}".rstrip(), *faults]))
        if tool.SCALE > 1:
            print(json.dumps(met, indent=1), file=sys.stderr)
        self.assertFalse(wrong, f"{len(wrong)} cases differ:\n" + "\n".join(wrong[:20]))
        if not only:
            self.assertEqual([subject for subject in SUBJECTS if not met[subject]], [])


if __name__ == "__main__":
    tool.main()
