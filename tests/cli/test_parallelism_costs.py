"""Plans of groups that share every layer, costed a second time.

What import writes as the costs of stages and the memory of devices, and what simulate says of their
transfers, reductions and memory as a runtime runs them, is compared, to the nanosecond and to the
byte, with an implementation of docs/model.md in exact numbers that shares no code with the program. The cases are drawn by seeds; DAPPLE_TEST_SCALE=N tries N times as many. A case that
differs is repeated by its seed alone with DAPPLE_TEST_CASE=SEED.
"""

import collections
import copy
import itertools
import json
import math
import random
from fractions import Fraction

import tool
from tool import BAD_INPUT, DONE, ToolTest

CASES = 480  # enough that every subject of SUBJECTS is met, and those with a number so often
BUCKET = 25 << 20  # bytes; what import closes a bucket at
MOST = 10**15  # byte/s; the bandwidth of a ring before any port has narrowed it
TICKS = 1024  # of a nanosecond
SECOND = 10**9  # nanoseconds

# What a stage can be about; a run has to meet each.
SUBJECTS = (
    "a group", "no group", "degree 2", "degree 3", "degree 4", "degree 8", "sequence parallelism",
    "recomputation", "recomputed parts of layers",
    "layers that recompute nothing beside others that do", "first layers alone recomputing",
    "every second layer recomputing", "every third layer recomputing",
    "every n-th of fewer layers recomputing",
    "an all-reduce in a layer", "an all-gather in a layer",
    "a reduce-scatter in a layer", "a send-receive in a layer", "an empty collective",
    "a send-receive that the core hides", "a send-receive that the core hides in part",
    "a send-receive beside a core of no time", "a measured send-receive", "a measured collective",
    "a collective below its table", "a collective within its table", "a collective above its table",
    "replicas on several servers", "groups on one NIC", "a group with several NICs",
    "a tie between stages", "several buckets", "several measurements", "a fixed overhead",
    "a repeated layer", "a skipped stage", "a time scale", "times on another kind of device",
    "two kinds of servers", "uplinks",
    "a hierarchical all-reduce", "a flat ring through NICs", "measured replicas", "a workspace",
    "sharded state", "a sharded reduction on several servers", "context parallelism",
    "expert parallelism", "expert tensor parallelism below the tensor degree",
    "expert tensor parallelism above the tensor degree", "an all-to-all in a layer",
    "a collective over context ranks", "a collective over expert ranks",
    "a collective over expert-tensor ranks",
    "data-parallel ranks in a group", "a group of several servers", "tensor ranks on several servers", "a ring between servers",
    "a ring through a part of each server", "an all-to-all between servers",
    "an all-to-all through a part of each server", "copies that are merged",
    "copies that are sent on", "merged copies within a server", "one copy that could be merged",
    "as many copies as there are experts", "servers of one device in a group",
    "a reduction in a group", "a reduction in a group of several servers",
    "a reduction of experts in a group", "sharded optimizer state in a group", "all state sharded",
    "optimizer state sharded over some ranks", "groups with the same shards of optimizer state",
    "groups on several servers with the same shards of optimizer state",
    "optimizer state sharded over ranks of several servers",
    "optimizer state of experts sharded over some ranks",
    "optimizer state sharded over ranks with parts of sequences",
    "a tie under optimizer state sharded over some ranks",
    "all state sharded over several servers", "replicas that shard all state each",
    "a gather not hidden", "a gather hidden", "a scatter not hidden", "a scatter hidden",
    "a gather of experts", "recomputation with sharded parameters",
    "layers without experts under expert parallelism", "a tie under sharded state",
    "a tied layer gathered", "experts without expert parallelism",
    "a layer as it is in a group",
    "a NIC that no device uses in a ring between servers", "experts of the owner of a tie",
    "collectives between servers without a figure",
    "groups on servers with other links", "unevenly many samples for replicas", "unevenly many samples for data-parallel ranks",
    "a transfer through NICs", "a transfer within a server", "a transfer between several replicas",
    "a transfer of groups", "transfers that block", "serial transfers",
    "a reduction behind the last backward", "a reduction of a tie behind the last backward",
    "tensors that ranks share unevenly", "tensors that ranks have divided", "scatter-gather asked for beside whole tensors",
    "a runtime's bytes of gradient", "a runtime's bytes of framework", "a runtime's reserved memory")

# What stages choose: of each so many stages are costed, for each time of the scale.
LEAST_STAGES = 30
DIMENSIONS = {
    "tensor parallelism": lambda form: form.tensor > 1,
    "tensor ranks on several servers": None,  # as its subject says
    "sequence parallelism": lambda form: form.sequence,
    "context parallelism": lambda form: form.context > 1,
    "expert parallelism": lambda form: form.experts > 1,
    "expert tensor parallelism of another degree":
        lambda form: form.experts > 1 and form.expert_tensor != form.tensor,
    "sharded state": None,
    "all state sharded": lambda form: form.shares_all,
    "replicas that shard all state each": None,
    "optimizer state sharded over some ranks": lambda form: form.shares_some,
    "data-parallel ranks in a group": lambda form: form.ranks > 1,
    "recomputation": None,
    "recomputed parts of layers": lambda form: form.recompute is not None,
    "first layers alone recomputing": None,
    "every n-th layer recomputing": None,
    "scatter-gather boundaries": None,
    "a send-receive in a layer": None,
    "a send-receive that the core hides in part": None,
}


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


# Forms of parallelism.


class Form:
    """Degrees of parallelism within a group of devices, and what follows from them."""

    def __init__(self, tensor=1, sequence=False, context=1, experts=1, expert_tensor=None,
                 sharding=None, shards=1, recompute=None, recomputed_layers=0, recompute_every=0,
                 data=1):
        self.tensor, self.sequence, self.context, self.experts = tensor, sequence, context, experts
        self.expert_tensor = tensor if expert_tensor is None else expert_tensor
        self.sharding, self.shards, self.recompute = sharding, shards, recompute
        self.recomputed_layers, self.recompute_every = recomputed_layers, recompute_every
        self.shares_optimizer, self.shares_all = sharding == "optimizer", sharding == "full"
        self.dense = tensor * context
        self.sparse = experts * self.expert_tensor
        # Whether only the devices of each group shard the optimizer's state, or all replicas do.
        self.shares_some = self.shares_optimizer and shards > 1
        self.shares_over_replicas = self.shares_optimizer and shards == 1
        self.size = tensor * shards if shards > 1 else max(self.dense * data, self.sparse)
        self.ranks = self.size // self.dense  # data-parallel ones
        # How many devices hold the same parameters, outside experts and of experts.
        self.copies = self.size // tensor
        self.expert_copies = self.size // self.sparse if experts > 1 else self.copies
        # Members of each ring, and their distance.
        self.rings = {
            "tensor": (tensor, 1), "context": (context, tensor),
            "experts": (experts, self.expert_tensor),
            "expert-tensor": (self.expert_tensor if experts > 1 else 1, 1), "copies": (self.copies, tensor),
            "expert copies": (self.expert_copies, self.sparse if experts > 1 else tensor)}

    def key(self):
        """What a variant has to be for."""
        return (self.tensor, self.sequence, self.context, self.experts, self.expert_tensor,
                self.recompute)

    def fits(self, devices):
        """Whether servers of so many devices can have such groups."""
        return all(devices % size == 0 or size % devices == 0
                   for size in (self.tensor, self.expert_tensor, self.dense, self.sparse,
                                self.size))

    def as_stated(self):
        """What a plan file says of it, defaults included."""
        return {"tensor": self.tensor, "sequence": self.sequence, "context": self.context,
                "experts": self.experts, "sharding": self.sharding, "shards": self.shards,
                "recompute": self.recompute, "recomputed_layers": self.recomputed_layers,
                "recompute_every": self.recompute_every,
                "expert_tensor": self.expert_tensor if self.experts > 1 else None}


# Layers.


def expanded(layers):
    """Layers with their copies, as plans number them."""
    return [{**{key: value for key, value in layer.items() if key != "repeat"}, "name": name}
            for layer in layers for name in
            ([f"{layer['name']}.{copy}" for copy in range(layer["repeat"])] if "repeat" in layer
             else [layer["name"]])]


def key_of(variant):
    """As Form.key()."""
    tensor = variant["tensor_parallel"]
    return (tensor, variant.get("sequence_parallel", False), variant.get("context_parallel", 1),
            variant.get("expert_parallel", 1), variant.get("expert_tensor_parallel", tensor),
            variant.get("recompute"))


def chosen_figures(layer, form):
    """The figures of a layer, or of its variant for the form."""
    variants = {key_of(variant): variant for variant in layer.get("variants", [])}
    key = form.key()
    if all(variant.get("expert_parallel", 1) == 1 for variant in variants.values()):
        key = (*key[:3], 1, form.tensor, form.recompute)  # It has no experts.
    if all("recompute" not in variant for variant in variants.values()):
        key = (*key[:5], None)  # It recomputes nothing.
    return layer if key == (1, False, 1, 1, 1, None) else variants[key]


def states_none(figures, ranks):
    """Whether a variant has no collective over these ranks; over those that share an expert, none
    over the tensor ranks either where these are the same."""
    tensor = figures["tensor_parallel"]
    are_same = (ranks == "expert-tensor"
                and figures.get("expert_tensor_parallel", tensor) == tensor)
    names = (ranks, "tensor") if are_same else (ranks,)
    return all(one.get("over", "tensor") not in names for way in ("forward", "backward")
               for one in figures.get(f"{way}_collectives", []))


def layer_without_collectives(layers, form, ranks):
    """The name of the layer of which no figure for collectives over several of these ranks is known,
    though it or some layer has to have one; nothing if all are."""
    variants = [(layer, figures) for layer in layers for figures in [chosen_figures(layer, form)]
                if figures is not layer
                and ("expert" not in ranks or figures.get("expert_parallel", 1) > 1)]
    for layer, figures in variants:
        divides = {
            "tensor": figures.get("expert_parallel", 1) == 1
                      and figures["parameter_bytes"] < layer["parameter_bytes"],
            "context": False,
            "experts": figures.get("expert_parameter_bytes", 0) > 0,
            "expert-tensor": figures.get("expert_parameter_bytes", 0) > 0}[ranks]
        if divides and states_none(figures, ranks):
            return layer["name"]
    if variants and all(states_none(figures, ranks) for _, figures in variants):
        return variants[0][0]["name"]
    return None


def kept(form):
    """The same form with nothing recomputed."""
    other = copy.copy(form)
    other.recompute, other.recomputed_layers, other.recompute_every = None, 0, 0
    return other


class Model:
    """Layers as one device of a group sees them, for numbers of samples of the whole group."""

    def __init__(self, profile, form):
        self.form = form
        self.names = [layer["name"] for layer in profile["layers"]]
        self.figures = [chosen_figures(layer, form) for layer in profile["layers"]]
        self.divided = [self.is_divided(layer, own)
                        for layer, own in zip(profile["layers"], self.figures)]
        self.scaling = profile.get("batch_scaling")
        self.measured = [profile["device"]] + sorted(
            times["device"] for times in profile["layers"][0].get("other_times", []))
        optimizer = profile["optimizer"]
        self.state = optimizer["state_bytes_per_parameter_byte"]
        self.gradient = optimizer.get("gradient_bytes_per_parameter_byte", 1)
        self.framework = optimizer.get("framework_bytes_per_parameter_byte", 0)
        self.step = optimizer.get("step_ns_per_parameter_byte", 0)
        self.last_consumer = [-1] * len(self.names)
        for number, layer in enumerate(profile["layers"]):
            for name in layer.get("inputs", self.names[max(0, number - 1):number]):
                self.last_consumer[self.names.index(name)] = number
        self.ties = collections.defaultdict(list)  # owner: users
        self.owner_of = {}  # user: owner
        for number, layer in enumerate(profile["layers"]):
            if "tied_to" in layer:
                self.owner_of[number] = self.names.index(layer["tied_to"])
                self.ties[self.owner_of[number]].append(number)

    def time(self, layer, key, samples, source):
        """Nanoseconds of a layer's own computation."""
        samples = divide_up(samples, self.form.ranks)
        device, scale = source
        figures = next((times for times in self.figures[layer].get("other_times", [])
                        if times["device"] == device), self.figures[layer])
        is_core = key.endswith("_core_ns")
        points = [(m["batch_size"], m.get(key, 0) if is_core else m[key])
                  for m in figures["measurements"]]
        if len(points) == 1:
            size, time = points[0]
            overhead = 0 if is_core else min(figures.get("fixed_overhead_ns", 0), time)
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
        samples = divide_up(samples, self.form.ranks)
        largest = self.figures[layer]["measurements"][-1]
        return divide_up(largest.get(key, 0) * samples, largest["batch_size"])

    def boundary(self, cut, samples):
        if cut in (0, len(self.names)):
            return 0
        return sum(self.size(layer, "output_bytes", samples) for layer in range(cut)
                   if self.last_consumer[layer] >= cut)

    def is_divided(self, layer, own):
        """Whether a rank has less than three quarters of what one without tensor ranks has."""
        whole, of_rank = layer["measurements"][-1], own["measurements"][-1]
        return self.form.tensor > 1 and (
            Fraction(of_rank["output_bytes"] * self.form.context, of_rank["batch_size"])
            < Fraction(3 * whole["output_bytes"], 4 * whole["batch_size"]))

    def crosses_divided(self, cut):
        return any(self.divided[layer] for layer in range(cut) if self.last_consumer[layer] >= cut)

    def own(self, layer):
        return self.figures[layer]["parameter_bytes"]

    def own_experts(self, layer):
        """The part of a layer's own parameters that belongs to experts."""
        return self.figures[layer].get("expert_parameter_bytes", 0)

    def own_reduced(self, layer):
        """The parameters of a layer whose gradients one device reduces with other groups."""
        experts = self.own_experts(layer)
        return (divide_up(self.own(layer) - experts, self.form.copies)
                + divide_up(experts, self.form.expert_copies))

    def copied_owners(self, begin, end):
        """Layers before these whose parameters some of these use."""
        return [owner for owner, users in self.ties.items()
                if owner < begin and any(begin <= user < end for user in users)]

    def parameters(self, begin, end):
        return sum(map(self.own, [*range(begin, end), *self.copied_owners(begin, end)]))

    def reduced(self, begin, end):
        return sum(map(self.own_reduced, [*range(begin, end), *self.copied_owners(begin, end)]))

    def whole(self, layer):
        """Parameters that a layer needs, outside experts and of experts."""
        experts = self.own_experts(layer)
        owned = self.own(self.owner_of[layer]) if layer in self.owner_of else 0
        return self.own(layer) - experts + owned, experts

    def gathered(self, layer):
        """Bytes of whole parameters and gradients while a layer runs whose state is sharded."""
        if not self.form.shares_all:
            return 0
        whole = sum(self.whole(layer))
        ahead = max((sum(self.whole(other)) for other in (layer - 1, layer + 1)
                     if 0 <= other < len(self.names)), default=0)
        return whole + ahead + scale_up(whole, self.gradient)

    def workspace(self, layer, samples):
        return self.size(layer, "workspace_bytes", samples) + self.gathered(layer)

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
            still_open += scale_up(self.own_reduced(layer), self.gradient)
            if still_open >= BUCKET:
                sizes.append(still_open)
                still_open = 0
        return sizes + [still_open] * (still_open > 0)


# Devices and links.


class Server:
    """A server, or several consecutive ones that hold one group of devices."""

    def __init__(self, group, first, count):
        self.group = group
        self.name = group["name"] + (str(first) if count == 1 else f"[{first}-{first + count - 1}]")
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


class GroupRing:
    """Devices of a group that have collectives in common.

    Each server has `near` of them. In an all-to-all they send to each other with the bandwidth
    `within` and to those of other servers with the bandwidth `between`. Where copies are merged, a
    member of each other server sends on what it has received.
    """

    def __init__(self, members, near, bandwidth, latency, within, between, points):
        self.members, self.near = members, near
        self.bandwidth, self.latency = bandwidth, latency
        self.within, self.between = within, between
        self.points = points  # measured ones, if there are any

    def by_links(self, rounds, size):
        return (round_up(occupation(Fraction(rounds * size, self.members), self.bandwidth))
                + rounds * self.latency)

    def crossing(self, merged):
        """The part of its tensor that a member sends to other servers: of each token one to each
        that has one of its experts, of which there are equally many sets of each size."""
        servers, apart = self.members // self.near, Fraction(self.members - self.near, self.members)
        if merged is None or servers == 1:
            return apart
        copies, experts = merged["copies"], merged["experts"]
        elsewhere = math.comb(experts - experts // servers, copies)
        once = (servers - 1) * (1 - Fraction(elsewhere, math.comb(experts, copies))) / copies
        return min(apart, Fraction(math.ceil(once * 10**9), 10**9))

    def time(self, kind, size, merged=None):
        if size == 0 or self.members == 1:
            return 0
        if kind == "all-to-all":
            merges = merged is not None and merged["copies"] > 1
            near = Fraction(self.near - 1, self.near if merges else self.members)
            ways = [(near, self.within), (self.crossing(merged), self.between)]
            return self.latency + max(round_up(occupation(part * size, bandwidth))
                                      for part, bandwidth in ways if part > 0)
        if kind == "send-receive":
            rounds, of_all = 2 * (self.members - 1), self.members * size
            if self.points:
                return divide_up(measured_time(self.points, of_all, self.by_links(rounds, of_all)),
                                 rounds)
            return round_up(occupation(size, self.bandwidth)) + self.latency
        passes = 2 if kind == "all-reduce" else 1
        if self.points:
            whole = measured_time(self.points, size, self.by_links(2 * (self.members - 1), size))
            return divide_up(passes * whole, 2)
        return self.by_links(passes * (self.members - 1), size)

    def subjects(self, kind, size, merged):
        """Which of SUBJECTS a collective that takes time is about."""
        passes, is_exchange = self.near < self.members, kind == "all-to-all"
        name = "an all-to-all" if is_exchange else "a ring"
        points = [size for size, _ in self.points or []] if not is_exchange else []
        if kind == "send-receive":
            size *= self.members
        return {subject for subject, is_met in {
            f"{name} between servers": passes,
            f"{name} through a part of each server": passes and self.near > 1,
            "copies that are merged":
                passes and merged and self.time(kind, size, merged) < self.time(kind, size),
            "copies that are sent on": passes and merged and (
                self.time(kind, size, merged) > self.latency
                + round_up(occupation(self.crossing(merged) * size, self.between))),
            "merged copies within a server": not passes and merged,
            "one copy that could be merged": passes and merged and merged["copies"] == 1,
            "as many copies as there are experts":
                passes and merged and merged["copies"] == merged["experts"],
            "a measured collective": points,
            "a measured send-receive": points and kind == "send-receive",
            "a collective below its table": points and size < points[0],
            "a collective within its table": points and points[0] <= size < points[-1],
            "a collective above its table": points and points[-1] <= size,
        }.items() if is_met}


class Topology:
    """What plans of one form see: a device is a group of them, with the figures of each."""

    def __init__(self, document, form):
        self.size = form.size
        self.kinds = document["devices"]
        self.servers, self.devices, self.nics = [], [], []
        network = document.get("network", {"bandwidth": "1 B/s", "latency": "0 ns"})
        self.network_port = amount(network["bandwidth"])
        self.network_latency = amount(network["latency"])
        together = []  # what the NICs of each server can send
        for group in document["servers"]:
            held = divide_up(self.size, group["devices"])  # by how many servers
            together += [self.together(group)] * group["count"]
            for first in range(0, group["count"], held):
                self.add_server(Server(group, first, held), held)
        # Uplinks as (bandwidth, latency), and their whole bandwidth before it is divided among the
        # devices of a group; the rack of each server and the pod of each rack.
        self.uplink, self.whole, self.rack_of, self.pod_of = {}, {}, [], []
        self.add_uplinks("rack", document.get("racks", []), "servers", self.rack_of, together)
        self.add_uplinks("pod", document.get("pods", []), "racks", self.pod_of,
                         [self.whole["rack", rack] for rack in
                          range(max(self.rack_of, default=-1) + 1)])
        # Groups of several servers have equally many of each kind, all in one rack.
        self.rack_of = self.rack_of[::divide_up(self.size, document["servers"][0]["devices"])]
        # By the name of the servers.
        self.rings = {group["name"]: {name: self.ring(group, *ring)
                                      for name, ring in form.rings.items()}
                      for group in document["servers"]}

    def together(self, group):
        """What the NICs of a server can send at once, used or not."""
        return sum(min(amount(nic["bandwidth"]), self.network_port)
                   for nic in group.get("nics", []))

    def ring(self, group, members, distance):
        """Every so many-th device of a group."""
        server, devices = Server(group, 0, 1), group["devices"]
        if members * distance <= devices:
            return GroupRing(members, members, server.bandwidth, server.latency, server.bandwidth,
                             None, server.measured_points(1, members))
        abreast = min(distance, devices)
        bandwidth = max(1, self.together(group) // abreast)
        if devices > 1:
            bandwidth = min(bandwidth, server.bandwidth)
        latency = self.network_latency + 2 * max(
            amount(group["nics"][nic]["latency"])
            for nic in nics_of_devices(group["nics"], devices))
        return GroupRing(members, devices // abreast, bandwidth, latency, server.bandwidth,
                         max(1, self.together(group) // devices), None)

    def add_server(self, server, held):
        """A server, or several that hold one group."""
        group, number = server.group, len(self.servers)
        self.servers.append(server)
        nics, count = group.get("nics", []), group["devices"]
        of_group = min(self.size, count)
        if self.size == 1:
            made = [(min(amount(nic["bandwidth"]), self.network_port), amount(nic["latency"]))
                    for nic in nics]
            used = nics_of_devices(nics, count)
        elif nics:
            made, used = grouped_nics(nics, count, of_group, self.network_port)
        else:
            made, used = [], [None] * (count // of_group)
        for place, nic in enumerate(used):
            first = place * of_group
            last = "" if of_group == 1 else f"-{first + of_group - 1}"
            self.devices.append(Device(f"{server.name}:{first}{last}", number, group["device"],
                                       None if nic is None else len(self.nics) + nic))
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
                self.uplink[kind, number] = (max(1, whole // self.size),
                                             amount(group["uplink"]["latency"]))
                number += 1

    def source(self, device, measured):
        """The kind whose times hold for a device, and the factor on them."""
        if device.kind in measured:
            return device.kind, 1
        scales = self.kinds[device.kind]["time_scale"]
        return next((kind, factor(scales[kind])) for kind in measured if kind in scales)

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
        if (self.topology.size > 1 or len(counts) > 1
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
        self.form = Form(**document.get("parallelism", {}))
        self.model = Model(profile, self.form)
        self.topology = Topology(topology, self.form)
        numbers = {device.name: n for n, device in enumerate(self.topology.devices)}
        self.stages = [tuple(stage["layers"]) for stage in document["stages"]]
        self.devices = [[numbers[name] for name in stage["devices"]]
                        for stage in document["stages"]]
        self.recomputes = [stage["recompute"] for stage in document["stages"]]
        self.samples = document["micro_batch_size"]
        self.micro_batches = document["num_micro_batches"]
        self.depths = document["schedule"]["warmup_depths"]
        self.boundaries = "whole"  # as a file without a runtime has it
        self.used = [set() for _ in self.stages]  # what all-reduces of each stage were made of
        self.met = [set() for _ in self.stages]  # subjects that its costs were about
        self.keep_all_but_some(profile)

    def keep_all_but_some(self, profile):
        """Only the first layers of each stage recompute, of those that have the parts, or every
        n-th of them, if the form says so."""
        first, every = self.form.recomputed_layers, self.form.recompute_every
        if not first and not every:
            return
        for stage in range(len(self.stages)):
            having = [layer for layer in self.layers_of(stage)
                      if "recompute" in self.model.figures[layer]]
            chosen = having[:first] if first else having[every - 1::every]
            for layer in set(having) - set(chosen):
                self.model.figures[layer] = chosen_figures(profile["layers"][layer],
                                                           kept(self.form))
            if first and len(having) > first:
                self.met[stage].add("first layers alone recomputing")
            elif every and len(having) > every:
                self.met[stage] |= {"every n-th layer recomputing",
                                    {2: "every second layer recomputing",
                                     3: "every third layer recomputing"}[every]}
            elif every and having and not chosen:
                self.met[stage].add("every n-th of fewer layers recomputing")

    def layers_of(self, stage):
        return range(*self.stages[stage])

    def collective(self, stage, device, ring, kind, size, merged=None):
        """Nanoseconds of a collective in a group."""
        server = self.topology.servers[self.topology.devices[device].server]
        of_servers = [rings[ring] for rings in self.topology.rings.values()]
        own = self.topology.rings[server.group["name"]][ring]
        time = own.time(kind, size, merged)
        if time > 0:
            self.met[stage] |= own.subjects(kind, size, merged)
            if any(other.time(kind, size, merged) != time for other in of_servers):
                self.met[stage].add("groups on servers with other links")
        return time

    def collectives_of_layer(self, stage, device, layer, way, samples):
        """Nanoseconds of the collectives of a layer's forward or backward."""
        total = 0
        for one in self.model.figures[layer].get(f"{way}_collectives", []):
            kind, over = one["kind"], one.get("over", "tensor")
            size = divide_up(samples, self.form.ranks) * one["bytes_per_sample"]
            time = self.collective(stage, device, over, kind, size, one.get("merged"))
            if time > 0:
                self.met[stage] |= {f"{'an' if kind[0] == 'a' else 'a'} {kind} in a layer",
                                    f"a collective over {over.removesuffix('s')} ranks"}
            self.met[stage] |= {"an empty collective"} if size == 0 else set()
            hidden = self.hidden(stage, device, layer, one, samples)
            if time > 0 and "beside" in one:
                self.met[stage].add("a send-receive beside a core of no time" if hidden == 0 else
                                    "a send-receive that the core hides" if time <= hidden else
                                    "a send-receive that the core hides in part")
            total += one.get("count", 1) * max(0, time - hidden)
        return total

    def hidden(self, stage, device, layer, one, samples):
        """Nanoseconds of computation beside a collective: a step of as many as there are members."""
        if "beside" not in one:
            return 0
        core = self.model.time(layer, one["beside"] + "_ns", samples, self.source(device))
        return core // self.form.rings[one.get("over", "tensor")][0]

    def around_layer(self, stage, device, layer):
        """Nanoseconds of gathering a layer's parameters and of scattering its gradients."""
        if not self.form.shares_all:
            return 0, 0
        dense, experts = self.model.whole(layer)
        gather_of_experts = self.collective(stage, device, "expert copies", "all-gather", experts)
        gather = self.collective(stage, device, "copies", "all-gather", dense) + gather_of_experts
        scatter = (self.collective(stage, device, "copies", "reduce-scatter",
                                   scale_up(dense, self.model.gradient))
                   + self.collective(stage, device, "expert copies", "reduce-scatter",
                                     scale_up(experts, self.model.gradient)))
        if gather_of_experts > 0:
            self.met[stage].add("a gather of experts")
        if gather > 0 and layer in self.model.owner_of:
            self.met[stage].add("a tied layer gathered")
        return gather, scatter

    def source(self, device):
        return self.topology.source(self.topology.devices[device], self.model.measured)

    def compute(self, stage, device, samples):
        """Nanoseconds of forward and backward of one replica."""
        source = self.source(device)
        total = {"forward": 0, "backward": 0}
        for layer in self.layers_of(stage):
            gather, scatter = self.around_layer(stage, device, layer)
            for way, around in ("forward", gather), ("backward", gather + scatter):
                time = (self.model.time(layer, f"{way}_ns", samples, source)
                        + self.collectives_of_layer(stage, device, layer, way, samples))
                total[way] += max(time, around)
                if around > 0:
                    self.met[stage].add(f"a {'gather' if way == 'forward' else 'scatter'} "
                                        f"{'not ' if around > time else ''}hidden")
        forward = total["forward"]
        return forward, total["backward"] + (forward if self.recomputes[stage] else 0)

    def passed(self, stage, samples, is_back):
        """Bytes of so many samples that the next stage needs, or this one of their gradients."""
        return self.model.boundary(self.stages[stage][1], samples)

    def flows(self, stage, is_back=False):
        """Senders, receivers and bytes of one micro-batch to the next stage, or back."""
        if stage + 1 == len(self.stages):
            return
        sending, receiving = (list(zip(shares(self.samples, len(devices)), devices))
                              for devices in self.devices[stage:stage + 2])
        for ((first, count), sender), ((at, needed), receiver) in itertools.product(sending,
                                                                                    receiving):
            overlap = min(first + count, at + needed) - max(first, at)
            if overlap > 0 and sender != receiver:
                ends = (receiver, sender) if is_back else (sender, receiver)
                yield *ends, self.passed(stage, overlap, is_back)

    def ranks_that_share(self, cut):
        """How many ranks send a share each of a tensor that all of them have; 1 if it is whole, or
        divided already."""
        are_near = all(self.form.tensor <= server.group["devices"]
                       for server in self.topology.servers)
        is_cut = self.boundaries == "scatter-gather" and not self.form.sequence and are_near
        is_cut = is_cut and not self.model.crosses_divided(cut)
        return self.form.tensor if is_cut else 1

    def share(self, size, cut):
        return divide_up(size, self.ranks_that_share(cut))

    def sent(self, stage):
        """Bytes of one micro-batch to the next stage."""
        return sum(self.share(size, self.stages[stage][1]) for _, _, size in self.flows(stage))

    def gathers(self, stage, is_back):
        """Nanoseconds in which each receiver gathers what it gets of a micro-batch."""
        received = collections.Counter()
        for _, receiver, size in self.flows(stage, is_back):
            received[receiver] += size
        ranks = self.ranks_that_share(self.stages[stage][1])
        if self.model.crosses_divided(self.stages[stage][1]) and self.boundaries != "whole":
            self.met[stage].add("tensors that ranks have divided")
        if ranks == 1:
            return dict.fromkeys(received, 0)
        if any(received.values()):
            self.met[stage].add("scatter-gather boundaries")
        if any(size % ranks for _, _, size in self.flows(stage, is_back)):
            self.met[stage].add("tensors that ranks share unevenly")
        return {receiver: self.collective(stage, receiver, "tensor", "all-gather", size)
                for receiver, size in received.items()}

    def transfers(self, stage):
        """Nanoseconds and bytes of a micro-batch to the next stage, and of its gradient back."""
        both = []
        for is_back in (False, True):
            carried, latency, whole = collections.Counter(), collections.Counter(), 0
            gathering = self.gathers(stage, is_back)
            for sender, receiver, of_all in self.flows(stage, is_back):
                ports, of_route = self.topology.route(sender, receiver)
                size = self.share(of_all, self.stages[stage][1])
                whole += size
                for port in ports if size > 0 else ():
                    carried[port] += size
                    latency[port] = max(latency[port], of_route + gathering[receiver])
                    self.met[stage].add("a transfer through NICs" if port[0] == "nic" else
                                        "a transfer within a server")
            time = max((round_up(occupation(size, self.topology.capacity(port))) + latency[port]
                        for port, size in carried.items()), default=0)
            both.append((time, whole))
        if both[0][1] > 0 and self.form.size > 1:
            self.met[stage].add("a transfer of groups")
        if both[0][1] > 0 and max(map(len, self.devices[stage:stage + 2])) > 1:
            self.met[stage].add("a transfer between several replicas")
        return both

    def buckets(self, stage):
        return self.model.buckets(stage, self.stages) if len(self.devices[stage]) > 1 else []

    def ties_of(self, stage):
        """Owners of ties in which a stage takes part with others, and the stages of each."""
        for owner in self.model.ties:
            stages = self.model.stages_of_tie(owner, self.stages)
            if stage in stages and len(stages) > 1:
                yield owner, stages

    def reductions(self, stage):
        """Nanoseconds of the reductions of each bucket, and of each tie."""
        ring = AllReduce(self.topology, self.devices[stage],
                         1 if self.form.shares_over_replicas else 2)
        of_buckets, of_ties = list(map(ring.time, self.buckets(stage))), []
        self.used[stage] |= ring.used
        for owner, stages in self.ties_of(stage):
            ring = AllReduce(self.topology, itertools.chain(*(self.devices[s] for s in stages)))
            of_ties.append(ring.time(scale_up(self.model.own_reduced(owner), self.model.gradient)))
            self.used[stage] |= ring.used
        return of_buckets, of_ties

    def all_reduce(self, stage):
        return sum(map(sum, self.reductions(stage)))

    def in_group(self, stage):
        """Nanoseconds that the devices of a group take to reduce gradients among themselves."""
        if self.form.shares_all:
            return 0
        return max(self.in_group_of(stage, device) for device in self.devices[stage])

    def in_group_of(self, stage, device):
        """Nanoseconds that the devices of one group take for that."""
        experts = sum(map(self.model.own_experts, self.layers_of(stage)))
        total = 0
        for ring, size, subject in (
                ("copies", self.model.parameters(*self.stages[stage]) - experts,
                 "a reduction in a group"),
                ("expert copies", experts, "a reduction of experts in a group")):
            gradient = scale_up(size, self.model.gradient)
            after = size if self.form.shares_optimizer else gradient
            time = (self.collective(stage, device, ring, "reduce-scatter", gradient)
                    + self.collective(stage, device, ring, "all-gather", after))
            if time > 0:
                self.met[stage].add(subject)
            total += time
        return total

    def update(self, stage):
        """The optimizer's step, or that of a shard and the all-gather of the parameters."""
        in_group = self.in_group(stage)
        if not self.form.sharding:
            return in_group + scale_up(self.model.parameters(*self.stages[stage]), self.model.step)
        reduced = self.model.reduced(*self.stages[stage])
        step = scale_up(reduced, self.model.step)
        if self.form.shares_all:
            return step
        if self.form.shares_some:
            return in_group + step
        gather = AllReduce(self.topology, self.devices[stage], 1).time(reduced)
        return in_group + divide_up(step, len(self.devices[stage])) + gather

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
        reduced = self.model.reduced(begin, end)
        weights = reduced if self.form.shares_all else self.model.parameters(begin, end)
        if self.form.shares_some:
            state = scale_up(reduced, self.model.state)
        elif self.form.shares_optimizer:
            state = divide_up(scale_up(reduced, self.model.state), len(self.devices[stage]))
        else:
            state = scale_up(weights, self.model.state)
        fixed = (weights + scale_up(weights, self.model.gradient) + state
                 + scale_up(weights, self.model.framework)
                 + max(self.buckets(stage), default=0)
                 + max(self.model.workspace(layer, samples) for layer in self.layers_of(stage)))
        if stage > 0:
            waiting = max(0, depths[stage - 1] - depths[stage])
            tensor = self.model.boundary(begin, samples)
            fixed += (2 + waiting) * tensor + 2 * self.share(tensor, begin)
        if stage + 1 < len(self.stages):
            waiting = max(0, depths[stage] - depths[stage + 1])
            tensor = self.model.boundary(end, samples)
            fixed += (2 + waiting) * tensor + 2 * self.share(tensor, end)
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
        layers, devices, form = self.layers_of(stage), self.devices[stage], self.form
        figures = [self.model.figures[layer] for layer in layers]
        hosts = {self.topology.devices[device].server for device in devices}
        for _, stages in self.ties_of(stage):
            hosts |= {self.topology.devices[device].server
                      for other in stages for device in self.devices[other]}
        groups = [self.topology.servers[host].group for host in hosts]
        crosses = len(hosts) > 1 and self.all_reduce(stage) > 0
        of_nics = [(nics_of_devices(group["nics"], group["devices"]), group["devices"])
                   for group in groups if crosses]
        sets = [[set(used[first:first + form.size]) for first in range(0, count, form.size)]
                for used, count in of_nics]
        several = form.size > self.topology.servers[0].group["devices"]
        is_tied = any(True for _ in self.ties_of(stage))
        met = {
            "a group": form.size > 1,
            "no group": form.size == 1,
            f"degree {form.tensor}": form.tensor > 1,
            "sequence parallelism": form.sequence,
            "recomputation": self.recomputes[stage],
            "recomputed parts of layers": form.recompute is not None,
            "layers that recompute nothing beside others that do": form.recompute is not None
                and any("recompute" not in f for f in figures),
            "replicas on several servers": crosses,
            "groups on one NIC": form.size > 1 and any(
                a & b for groups in sets for a, b in itertools.combinations(groups, 2)),
            "a group with several NICs": form.size > 1 and any(
                len(group) > 1 for groups in sets for group in groups),
            "a tie between stages": is_tied,
            "several buckets": len(self.buckets(stage)) > 1,
            "several measurements": any(len(f["measurements"]) > 1 for f in figures),
            "a fixed overhead": any(f.get("fixed_overhead_ns", 0) > 0 for f in figures),
            "a repeated layer": any("." in self.model.names[layer] for layer in layers),
            "a skipped stage": any(
                layer < self.stages[stage][0] and last >= self.stages[stage][1]
                for layer, last in enumerate(self.model.last_consumer)),
            "a time scale": any(self.source(device)[1] != 1 for device in devices),
            "times on another kind of device": any(
                self.source(device)[0] != self.model.measured[0] for device in devices),
            "two kinds of servers": len({group["name"] for group in groups}) > 1,
            "uplinks": crosses and any(self.topology.uplinks(a, b)
                                       for a, b in itertools.permutations(hosts, 2)),
            "a hierarchical all-reduce": "hierarchical" in self.used[stage],
            "a flat ring through NICs": crosses and "flat" in self.used[stage],
            "measured replicas": "measured" in self.used[stage],
            "sharded state": form.shares_over_replicas and len(devices) > 1,
            "a sharded reduction on several servers": form.shares_over_replicas and len(
                {self.topology.devices[device].server for device in devices}) > 1,
            "a workspace": any(m.get("workspace_bytes", 0) for f in figures
                               for m in f["measurements"]),
            "a layer as it is in a group": form.size > 1 and any(
                "tensor_parallel" not in f for f in figures),
            "a NIC that no device uses in a ring between servers": (
                "a ring between servers" in self.met[stage]
                and any(len(group["nics"]) > group["devices"] for group in groups)),
            "experts of the owner of a tie": any(
                self.model.own_experts(owner) > 0
                for owner in self.model.copied_owners(*self.stages[stage])),
            "unevenly many samples for replicas": self.samples % len(devices) > 0,
            "unevenly many samples for data-parallel ranks": any(
                count % form.ranks > 0 for _, count in shares(self.samples, len(devices))),
            "context parallelism": form.context > 1,
            "expert parallelism": form.experts > 1,
            "expert tensor parallelism below the tensor degree":
                form.experts > 1 and form.expert_tensor < form.tensor,
            "expert tensor parallelism above the tensor degree":
                form.experts > 1 and form.expert_tensor > form.tensor,
            "data-parallel ranks in a group": form.ranks > 1,
            "a group of several servers": several,
            "tensor ranks on several servers":
                form.tensor > self.topology.servers[0].group["devices"],
            "servers of one device in a group":
                several and self.topology.servers[0].group["devices"] == 1,
            "a reduction in a group of several servers":
                several and "a reduction in a group" in self.met[stage],
            "sharded optimizer state in a group": form.shares_optimizer and form.copies > 1,
            "all state sharded": form.shares_all,
            "optimizer state sharded over some ranks": form.shares_some,
            "groups with the same shards of optimizer state":
                form.shares_some and len(devices) > 1,
            "groups on several servers with the same shards of optimizer state":
                form.shares_some and crosses,
            "optimizer state sharded over ranks of several servers": form.shares_some and several,
            "optimizer state of experts sharded over some ranks":
                form.shares_some and form.expert_copies > 1
                and any(map(self.model.own_experts, self.layers_of(stage))),
            "optimizer state sharded over ranks with parts of sequences":
                form.shares_some and form.context > 1,
            "a tie under optimizer state sharded over some ranks": is_tied and form.shares_some,
            "all state sharded over several servers": form.shares_all and several,
            "replicas that shard all state each": form.shares_all and len(devices) > 1,
            "recomputation with sharded parameters": form.shares_all and self.recomputes[stage],
            "layers without experts under expert parallelism": form.experts > 1 and any(
                f.get("expert_parallel", 1) == 1 for f in figures),
            "a tie under sharded state": is_tied and form.shares_all,
            "experts without expert parallelism": form.experts == 1 and form.copies > 1 and any(
                f.get("expert_parameter_bytes", 0) > 0 for f in figures),
            **dict.fromkeys(self.met[stage], True),
            **{name: is_chosen(form) for name, is_chosen in DIMENSIONS.items() if is_chosen},
        }
        return [subject for subject, is_met in met.items() if is_met]


# Random cases.


class Draw:
    """A profile, a topology and a layout, all by one seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.form = self.draw_form()
        if self.chance(0.5):
            self.form.recompute = self.choice("core_attn", "full", "norm+mlp", "moe_act", "moe")
            self.form.recomputed_layers, self.form.recompute_every = self.choice(
                (0, 0), (1, 0), (1, 0), (2, 0), (0, 2), (0, 2), (0, 3), (0, 3))
        # Devices of a server that belong to one group, and servers that do.
        sizes = [devices for devices in range(1, self.form.size)
                 if self.form.fits(devices) and self.form.size <= 4 * devices]
        self.held = self.random.choice(sizes) if sizes and self.chance(0.6) else self.form.size
        self.hosts = self.form.size // self.held
        # Kinds of device that the profile has times of besides its own.
        self.others = self.choice([], [], ["other"], ["other", "spare"], ["spare"])
        self.topology = self.draw_topology()
        self.profile = self.draw_profile()
        self.layers = expanded(self.profile["layers"])
        self.layout, self.more = self.draw_layout()
        may_cut = self.form.tensor > 1 and not self.form.sequence
        self.runtime = self.draw_runtime() if self.chance(0.95 if may_cut else 0.5) else None

    def number(self, low, high):
        """An odd number between powers of two, small ones as likely as large ones."""
        bits = self.random.uniform(math.log2(low), math.log2(high))
        return int(2**bits) | 1

    def choice(self, *choices):
        return self.random.choice(choices)

    def chance(self, probability):
        return self.random.random() < probability

    def draw_form(self):
        tensor = self.choice(1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4, 8, 8)
        sharding = self.choice(None, None, None, "optimizer", "optimizer")
        form = Form(tensor, tensor > 1 and self.chance(0.5), sharding=sharding)
        if self.chance(0.4):
            return form
        while True:
            tensor = self.choice(1, 1, 2, 2, 3, 4)
            experts = self.choice(1, 1, 2, 3, 4, 8)
            expert_tensor = self.choice(tensor, 1, 2, 4) if experts > 1 else tensor
            sharding = self.choice(None, *["optimizer"] * 3, *["full"] * 3)
            shards = 1
            if sharding == "full" or sharding and self.chance(0.9):
                shards = self.choice(2, 3, 4, 6, 8, 16, *[2, 2, 4] * (sharding == "optimizer"))
            form = Form(tensor, tensor > 1 and self.chance(0.5), self.choice(1, 1, 2, 2, 3, 4),
                        experts, expert_tensor, sharding, shards)
            if (form.size in range(2, 17) and form.fits(form.size)
                    and all(a % b == 0 or b % a == 0 for a, b in itertools.combinations(
                        (form.dense, form.sparse, form.size), 2))
                    and all(form.size % size == 0 for size in (form.dense, form.sparse))):
                return form

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
            for way in ("forward", "backward"):
                if self.chance(0.5):
                    one[f"{way}_core_ns"] = self.random.randint(0, one[f"{way}_ns"])
            measured.append(one)
            batch += self.random.randint(1, 4)
            time = max(1, time + self.number(1, 10**6) * self.choice(1, 1, -1))
        return measured

    def draw_times(self):
        times = {"measurements": self.draw_measurements(self.choice(1, 1, 2, 3))}
        if len(times["measurements"]) == 1 and self.chance(0.4):
            one = times["measurements"][0]
            # The core of attention grows with the samples: it has no part of the overhead.
            most = min(one[f"{way}_ns"] - one.get(f"{way}_core_ns", 0)
                       for way in ("forward", "backward"))
            if most > 0:
                times["fixed_overhead_ns"] = self.random.randint(1, most)
        return times

    def draw_figures(self, parameters):
        figures = {"parameter_bytes": self.number(*self.parameters) if parameters else 0,
                   **self.draw_times()}
        if self.others:
            figures["other_times"] = []
            for device in self.random.sample(self.others, len(self.others)):
                times = {"device": device, **self.draw_times()}
                for one in times["measurements"]:
                    for key in ("output_bytes", "stash_bytes", "workspace_bytes"):
                        one.pop(key, None)
                figures["other_times"].append(times)
        return figures

    def draw_collectives(self, key):
        """Collectives of a variant, over ranks of which it has several."""
        tensor, _, context, experts, expert_tensor, _ = key
        over = [name for name, degree in (
            ("tensor", tensor), ("context", context), ("experts", experts),
            ("expert-tensor", expert_tensor if experts > 1 else 1)) if degree > 1]
        if not over:
            return []
        drawn = []
        for _ in range(self.random.randint(0, 3)):
            one = {"kind": self.choice("all-reduce", "all-gather", "reduce-scatter", "all-to-all",
                                       "send-receive"),
                   "bytes_per_sample": self.choice(0, self.number(1, 10**8), *(
                       self.number(1, 10**7) for _ in range(5)))}
            ranks = self.random.choice(over)
            if ranks != "tensor" or self.chance(0.3):
                one["over"] = ranks
            if self.chance(0.4):
                one["count"] = self.random.randint(1, 5)
            if one["kind"] == "send-receive" and self.chance(0.7):
                one["beside"] = self.choice("forward_core", "backward_core")
            if one["kind"] == "all-to-all" and ranks == "experts" and self.chance(0.6):
                one["merged"] = self.draw_merged(experts)
            drawn.append(one)
        return drawn

    def draw_merged(self, ranks):
        """Copies of each token for different ones of all experts."""
        experts = ranks * self.choice(1, 2, 3, 16, 64)
        copies = self.choice(1, 2, 3, 8, experts, self.random.randint(1, experts))
        return {"copies": min(copies, experts), "experts": experts}

    def draw_variants(self, parameters, needs_experts, layer):
        """The variant that is used and others that are not, in any order."""
        form = self.form
        has_experts = form.experts > 1 and (needs_experts or self.chance(0.6))
        keys = {(degree, sequence, 1, 1, degree) for degree in (2, 3, 4, 8)
                for sequence in (False, True) if self.chance(0.1)}
        keys |= {(form.tensor, form.sequence, context, 1, form.tensor) for context in (1, 2, 4)
                 if self.chance(0.1)}
        if has_experts or form.experts == 1:
            keys |= {(tensor, False, 1, experts, expert_tensor) for tensor, experts, expert_tensor
                     in ((1, 2, 1), (2, 2, 1), (4, 4, 1)) if self.chance(0.1)}
        own = form.key()[:5] if has_experts else (*form.key()[:3], 1, form.tensor)
        keys = {(*key, None) for key in keys}
        if form.recompute and not (needs_experts or self.chance(0.7)):
            keys.add((*own, None))
        else:
            keys.add((*own, form.recompute))
            if form.recomputed_layers or form.recompute_every:
                keys.add((*own, None))
            keys |= {(*own, parts) for parts in ("norm", "core_attn+mlp")
                     if form.recompute and self.chance(0.2)}
        keys.discard((1, False, 1, 1, 1, None))
        variants = []
        ordered = sorted(keys, key=str)  # Sets have another order in each run.
        self.random.shuffle(ordered)
        for key in ordered:
            tensor, sequence, context, experts, expert_tensor, recompute = key
            variant = {"tensor_parallel": tensor, **self.draw_figures(parameters)}
            if sequence or self.chance(0.3):
                variant["sequence_parallel"] = sequence
            if context > 1 or self.chance(0.1):
                variant["context_parallel"] = context
            if experts > 1 or self.chance(0.1):
                variant["expert_parallel"] = experts
            if recompute:
                variant["recompute"] = recompute
            if expert_tensor != tensor or experts > 1 and self.chance(0.3):
                variant["expert_tensor_parallel"] = expert_tensor
            if parameters and self.chance(0.8 if experts > 1 else 0.2):
                variant["expert_parameter_bytes"] = self.random.randint(
                    0, variant["parameter_bytes"])
            for way in ("forward_collectives", "backward_collectives"):
                drawn = self.draw_collectives(key)
                if drawn:
                    variant[way] = drawn
            if tensor > 1 and not sequence and self.chance(0.97):
                self.keep_output(layer, variant)
            variants.append(variant)
        return variants

    def keep_output(self, layer, variant):
        """All tensor ranks have the output that one without others has."""
        whole, own = layer["measurements"][-1], variant["measurements"][-1]
        own["output_bytes"] = divide_up(whole["output_bytes"] * own["batch_size"],
                                        whole["batch_size"] * variant.get("context_parallel", 1))

    def layer_without_collectives(self):
        """A layer without a figure for collectives of ranks on several servers, with these ranks
        and the form; nothing if there is none."""
        has_both = any(self.stated_layers().values())
        for form in [kept(self.form), self.form] if has_both else [self.form]:
            for ranks in ("tensor", "context", "experts", "expert-tensor"):
                members, distance = form.rings[ranks]
                if members == 1 or all(members * distance <= group["devices"]
                                       for group in self.topology["servers"]):
                    continue
                name = layer_without_collectives(self.layers, form, ranks)
                if name is not None:
                    return name, ranks, form
        return None

    def state_none(self, name, ranks, form):
        """Adds a collective of no bytes to the layer's variant."""
        layer = next(layer for layer in self.profile["layers"]
                     if layer["name"] in (name, name.rpartition(".")[0]))
        figures = chosen_figures(layer, form)
        way = self.choice("forward_collectives", "backward_collectives")
        figures.setdefault(way, []).append(
            {"kind": self.choice("all-reduce", "all-gather", "reduce-scatter", "all-to-all"),
             "over": ranks, "bytes_per_sample": 0})
        self.layers = expanded(self.profile["layers"])

    def stated_layers(self):
        """Which layers of a stage the file says that recompute; nothing where all do."""
        having = sum("recompute" in chosen_figures(layer, self.form) for layer in self.layers)
        first, every = self.form.recomputed_layers, self.form.recompute_every
        return {"recomputed_layers": first if first < having else 0,
                "recompute_every": every if having else 0}

    def keep_sizes(self, layer):
        """A layer that may recompute or not has the same parameters and outputs both ways."""
        recomputing = chosen_figures(layer, self.form)
        if "recompute" not in recomputing:
            return
        own = chosen_figures(layer, kept(self.form))
        recomputing["parameter_bytes"] = own["parameter_bytes"]
        recomputing.pop("expert_parameter_bytes", None)
        if "expert_parameter_bytes" in own:
            recomputing["expert_parameter_bytes"] = own["expert_parameter_bytes"]
        recomputing.pop("fixed_overhead_ns", None)
        recomputing["measurements"] = [
            {**{key: measured[key] for key in ("batch_size", "forward_ns", "output_bytes")},
             "backward_ns": self.number(100, 10**7), "stash_bytes": self.number(1, 10**8),
             **({"workspace_bytes": self.number(1, 10**8)} if self.chance(0.5) else {})}
            for measured in own["measurements"]]

    def draw_layers(self):
        names = [f"layer-{letter}" for letter in "abcdefgh"[:self.random.randint(1, 8)]]
        graph, tied = self.chance(0.5), self.chance(0.6)
        self.parameters = self.choice((1, 10**6), (10**6, 10**8))
        layers, owners = [], []
        for number, name in enumerate(names):
            parameters = self.chance(0.8)
            layer = {"name": name, **self.draw_figures(parameters)}
            variants = self.draw_variants(parameters, number == 0, layer)
            if variants:
                layer["variants"] = variants
            if variants and (self.form.recomputed_layers or self.form.recompute_every):
                self.keep_sizes(layer)
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
        if self.chance(0.3):
            optimizer["framework_bytes_per_parameter_byte"] = self.choice(1, 0.333333333, 2.5)
        if self.chance(0.8):
            optimizer["step_ns_per_parameter_byte"] = self.choice(0.01, 0.000123457, 1.3)
        return {"schema": "dapple-profile/1", "name": "drawn", "source": "made up",
                "device": "card", "optimizer": optimizer, "layers": self.draw_layers(),
                "batch_scaling": self.choice("proportional", "floor")}

    # Runtimes.

    def draw_runtime(self):
        runtime = {"schema": "dapple-runtime/1", "name": "drawn", "source": "made up",
                   "transfers": self.choice("overlapped", "blocking", "serial"),
                   "gradient_overlap": self.choice("buckets", "none", "none"), "depths": "any"}
        boundaries = self.choice("whole", None, *["scatter-gather"] * 7)
        if boundaries:
            runtime["boundaries"] = boundaries
        if self.chance(0.5):
            runtime["framework_bytes_per_parameter_byte"] = self.choice(0, 1, 0.123456789, 2.5)
        if self.chance(0.5):
            runtime["reserved"] = f"{self.number(1, 10**6 // 2)} B"
        if self.chance(0.4):
            runtime["gradient_bytes_per_parameter_byte"] = self.choice(0, 1, 2, 0.333333333)
        return runtime

    def under_runtime(self):
        """The profile, its layers expanded, and the topology with what the runtime keeps."""
        profile, topology = copy.deepcopy({**self.profile, "layers": self.layers}), copy.deepcopy(
            self.topology)
        for key in ("gradient_bytes_per_parameter_byte", "framework_bytes_per_parameter_byte"):
            if key in self.runtime:
                profile["optimizer"][key] = self.runtime[key]
        for kind in topology["devices"].values():
            least = max(amount(kind["reserved"]), amount(self.runtime.get("reserved", "0 B")))
            kind["reserved"] = f"{least} B"
        return profile, topology

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
            if self.held == 1 or grouped_nics(nics, devices, self.held, MOST):
                return nics
        lists = [[] for _ in range(self.random.randint(1, 2))]  # first the shared ones
        shared = len(lists)
        for first in range(0, devices, self.held):
            group = range(first, first + self.held)
            if self.chance(0.6):
                self.random.choice(lists[:shared]).extend(group)
                continue
            own = [[] for _ in range(self.random.randint(1, self.held))]
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

    def within_servers(self):
        """How many members rings of a group have that are within one server."""
        return sorted({members for members, distance in self.form.rings.values()
                       if members > 1 and (members * distance <= self.held or self.hosts == 1)})

    def draw_tables(self, own, count, devices):
        """The given tables, which the groups of servers have in common, and others."""
        tables = list(own)
        for servers, held in itertools.product(range(1, count + 1), range(1, devices + 1)):
            if (servers * held > 1 and (servers > 1 or held not in self.within_servers())
                    and self.chance(0.6)):
                tables.append(self.draw_table(servers, held))
        self.random.shuffle(tables)
        return tables

    def draw_links(self):
        return {"kind": "switch", "bandwidth": f"{self.number(10**8, 10**12)} B/s",
                "latency": f"{self.number(1, 10**4)} ns"}

    def draw_topology(self):
        links = self.draw_links()
        is_grouped = self.form.size > 1
        measured = self.chance(0.4 if is_grouped else 0.8)
        own = [self.draw_table(1, members) for members in self.within_servers()
               if measured and self.chance(0.8)]
        # Groups of several servers have as many of each kind, with the same NICs.
        parts = self.choice((1,), (2,), (3,), (4,), (2,), (4,), (1, 1), (1, 2), (2, 2), (3, 1))
        if self.form.shares_some:  # Several stages have several groups.
            parts = self.choice(parts, (4,), (2, 2), (3, 1))
        if self.hosts > 1:
            parts = [self.hosts * part for part in self.choice(
                (1,), (2,), (2,), (1, 1), (1, 2), *[(4,), (2, 2)] * self.form.shares_some)]
        kinds = [self.choice("card", "other") for _ in parts]
        most = max(1, 8 // self.held) if self.hosts == 1 else 1
        even = self.chance(0.6) and self.random.randint(1, most)
        nics = self.draw_nics(self.held) if self.hosts > 1 else None
        servers = []
        for number, (count, kind) in enumerate(zip(parts, kinds)):
            devices = self.held * (even or self.random.randint(1, most))
            group = {"name": ("node", "box")[number], "count": count, "device": kind,
                     "devices": devices, "links": links}
            is_alike = is_grouped and kinds[0] == kind  # Groups need that.
            of_group = own
            if not is_alike and self.chance(0.5):
                group["links"] = self.draw_links()
                of_group = [self.draw_table(1, members) for members in self.within_servers()
                            if measured and self.chance(0.5)]
            if sum(parts) > 1 or self.chance(0.2):
                group["nics"] = nics or self.draw_nics(devices)
            tables = self.draw_tables(of_group, count, devices) if measured else []
            if tables:
                group["bus_bandwidth"] = tables
            servers.append(group)
        topology = {
            "schema": "dapple-topology/1", "name": "drawn", "servers": servers,
            "devices": {kind: {"memory": f"{self.number(10**6, 10**11)} B",
                               "reserved": f"{self.number(1, 10**6 // 2)} B"}
                        for kind in ("card", "other")},
        }
        scaled = ["spare"] if "spare" in self.others and self.chance(0.5) else ["card"]
        scaled += ["spare"] if self.chance(0.3) else []
        topology["devices"]["other"]["time_scale"] = {
            kind: self.choice(0.31, 1.7, 0.123456789) for kind in scaled}
        if sum(parts) > 1:
            topology["network"] = {"kind": "switch",
                                   "bandwidth": f"{self.number(10**8, 10**11)} B/s",
                                   "latency": f"{self.number(1, 10**4)} ns"}
            if self.chance(0.3):
                topology["racks"] = self.draw_uplinks("servers", sum(parts) // self.hosts,
                                                      self.hosts)
                if len(topology["racks"]) > 1 and self.chance(0.5):
                    topology["pods"] = self.draw_uplinks("racks", len(topology["racks"]))
        if self.chance(0.3):
            topology["overlap_slowdown"] = 1.25
        return topology

    def draw_uplinks(self, members, left, together=1):
        """Racks of servers or pods of racks, of which so many stay together."""
        drawn = []
        while left > 0:
            most = left if drawn or left == 1 else left - 1  # Two of them, where that can be.
            held = self.random.randint(1, most)
            uplink = {"latency": f"{self.number(1, 10**4)} ns"}
            if self.chance(0.6):
                uplink["bandwidth"] = f"{self.number(10**7, 10**11)} B/s"
            else:
                uplink["oversubscription"] = self.choice(1, 2, 1.3, 3.123456789)
            drawn.append({"count": 1, members: held * together, "uplink": uplink})
            left -= held
        return drawn

    # Layouts.

    def draw_layout(self):
        devices = sum(group["count"] * group["devices"] for group in self.topology["servers"])
        groups, form = devices // self.form.size, self.form
        count = len(self.layers)
        # Copies of a layer are taken for transformer blocks, of which each stage needs one.
        copies = [layer["repeat"] for layer in self.profile["layers"] if "repeat" in layer]
        most = min([count, groups, *copies])
        if form.recomputed_layers or form.recompute_every:
            most = min(most, max(1, count // 3))  # Stages have layers that do and others.
        elif form.shares_all and groups > 1 and self.chance(0.7):
            most = min(most, groups // 2)  # There are replicas that do so each.
        # Layouts count all ranks where others have the same shards, or where one group is a stage.
        is_alone = form.shares_some and (groups == 1 or most >= groups and self.chance(0.3))
        if form.shares_some and not is_alone:
            most = min(most, groups // 2)
        ranks = groups if is_alone else self.random.randint(1, most)
        if not is_alone and form.tensor > 1 and not form.sequence and self.chance(0.8):
            ranks = most  # Tensors may cross boundaries in shares.
        least = 2 if form.shares_some and not is_alone else 1
        replicas = self.choice(self.random.randint(least, groups // ranks), groups // ranks)
        cuts = sorted(self.random.sample(range(1, count), ranks - 1))
        counts = [end - begin for begin, end in zip([0, *cuts], [*cuts, count])]
        samples, micro_batches = self.random.randint(1, 7), self.random.randint(1, 6)
        everyone = replicas * form.ranks  # data-parallel ranks
        words, more = [f"pp={ranks}", f"layers={':'.join(map(str, counts))}"], []
        whole = samples * everyone  # micro-batch
        if self.chance(0.3):  # Not equally many for each rank.
            whole = self.random.randint(replicas, 7 * everyone)
            whole = max(whole, divide_up(everyone, micro_batches))  # The batch has one for each.
            more += ["--micro-batch", str(whole)]
        else:
            words.append(f"mbs={samples}")
        words.append(f"gbs={whole * micro_batches}")
        self.micro_batch = whole
        states_shards = form.shares_some or form.shares_all and (
            replicas > 1 or self.chance(0.5))
        # Shards over all ranks that a layout counts are those without a number.
        may_count_ranks = replicas > 1 or not form.shares_some
        if may_count_ranks and (ranks * replicas < groups or form.shares_all and not states_shards
                                or self.chance(0.7)):
            words.append(f"dp={everyone}")
        if form.tensor > 1:
            words.append(f"tp={form.tensor}")
        if form.sequence or self.chance(0.2):
            words.append(f"sp={'on' if form.sequence else 'off'}")
        if form.context > 1 or self.chance(0.1):
            words.append(f"cp={form.context}")
        if form.experts > 1 or self.chance(0.1):
            words.append(f"ep={form.experts}")
        if form.experts > 1 and (form.expert_tensor != form.tensor or self.chance(0.3)):
            words.append(f"etp={form.expert_tensor}")
        if form.sharding or self.chance(0.3):
            of_zero = {None: 0, "optimizer": "full-keep" if whole % 2 else 1,
                       "full": 3}[form.sharding]
            words.append(f"zero={of_zero}")
        if states_shards:
            words.append(f"fsdp={form.shards}")
        if form.recompute:
            some = (f":{form.recomputed_layers}" if form.recomputed_layers
                    else f":1/{form.recompute_every}" if form.recompute_every else "")
            words.append(f"recompute={form.recompute}{some}")
        elif self.chance(0.4):
            words.append("recompute=full")
        elif self.chance(0.3):
            words.append("recompute=none")
        self.random.shuffle(words)
        if form.size == 1 and self.chance(0.4):  # Groups cannot be placed by hand.
            names = [f"{group['name']}{number}:{device}" for group in self.topology["servers"]
                     for number in range(group["count"]) for device in range(group["devices"])]
            more += ["--devices", ",".join(self.random.sample(names, ranks * replicas))]
        return ",".join(words), more


class Timeline:
    """What simulate says of when things happen, on links that nothing shares."""

    def __init__(self, document, plan, runtime):
        self.plan, self.runtime = plan, runtime
        self.actions = {}  # of all devices that do one together
        for action in document["actions"]:
            self.actions[action["action"]] = (action["start_ns"], action["end_ns"],
                                              action.get("bytes", 0))

    def lasting(self, name):
        """Nanoseconds and bytes of an action; none of one that is left out."""
        start, end, size = self.actions.get(name, (0, 0, 0))
        return end - start, size

    def faults(self, met):
        found = []
        for stage in range(len(self.plan.stages)):
            found += self.faults_of_transfers(stage, met)
            if self.runtime["gradient_overlap"] == "none":
                found += self.faults_of_reductions(stage, met)
            met.update(self.plan.met[stage] & {
                "a transfer through NICs", "a transfer within a server", "a transfer of groups",
                "a transfer between several replicas", "scatter-gather boundaries",
                "tensors that ranks share unevenly", "tensors that ranks have divided"})
        return found

    def faults_of_transfers(self, stage, met):
        if stage + 1 == len(self.plan.stages):
            return []
        blocks = self.runtime["transfers"] != "overlapped"
        # Behind the first one others may have to wait for those before them.
        expected = self.plan.transfers(stage)
        names = [(f"{stage}SEND_F{batch}", f"{stage + 1}SEND_B{batch}")
                 for batch in range(self.plan.micro_batches if blocks else 1)]
        if blocks and expected[0][0] > 0:
            met["transfers that block" if self.runtime["transfers"] == "blocking" else
                "serial transfers"] += 1
        return [line for pair in names for name, figures in zip(pair, expected)
                for line in differences(figures, self.lasting(name), f"timeline: {name}")]

    def faults_of_reductions(self, stage, met):
        """Buckets are reduced one after another behind the last backward, and ties then."""
        of_buckets, of_ties = self.plan.reductions(stage)
        end = self.actions[f"{stage}B{self.plan.micro_batches - 1}"][1]
        found = []
        for number, time in enumerate(of_buckets):
            name = f"{stage}REDUCE_GRAD{number}"
            found += differences((end, end + time), self.actions.get(name, (end, end))[:2],
                                 f"timeline: {name}")
            end += time
            met["a reduction behind the last backward"] += time > 0
        names = [name for name in self.actions if name.startswith(f"{stage}REDUCE_TIED")]
        lasted = sorted(self.lasting(name)[0] for name in names)
        found += differences(sorted(time for time in of_ties if time > 0),
                             [time for time in lasted if time > 0],
                             f"timeline: {stage}REDUCE_TIED")
        met["a reduction of a tie behind the last backward"] += sum(time > 0 for time in of_ties)
        return found


def differences(ours, theirs, place=""):
    """Where two documents differ, a line each."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        return [line for key in ours
                for line in differences(ours[key], theirs[key], f"{place}/{key}")]
    return [] if ours == theirs else [f"{place}: expected {ours}, the file says {theirs}"]


class ParallelismCosts(ToolTest):
    def imported(self, draw):
        return self.run_tool("import", "plan", "--layout", draw.layout, "--model",
                             self.write("m.json", draw.profile), "--topo",
                             self.write("t.json", draw.topology), "--unlimited-memory", "-o",
                             "plan.json", *draw.more)

    def state_collectives(self, draw, met):
        """What is not refused although collectives between servers have no figure. Each that has
        none is stated to have no bytes then."""
        while True:
            found = draw.layer_without_collectives()
            if found is None:
                return []
            name, ranks, form = found
            run = self.imported(draw)
            words = f"variant of layer {name} states no collectives over {form.rings[ranks][0]} " \
                f"{ranks.removesuffix('s')}-parallel ranks"
            if run.returncode != BAD_INPUT or words not in run.stderr:
                return [f"expected {words!r}, got exit code {run.returncode}: {run.stderr.strip()}"]
            draw.state_none(name, ranks, form)
            met["collectives between servers without a figure"] += 1

    def compare(self, seed):
        """What differs in the case of a seed, and how many stages are about each subject."""
        draw = Draw(seed)
        met = collections.Counter()
        if faults := self.state_collectives(draw, met):
            return faults, met
        run = self.imported(draw)
        if run.returncode != DONE:
            return [f"exit code {run.returncode}: {run.stderr.strip()}"], met
        document = self.read("plan.json")
        # What was asked for was done.
        words = dict(word.split("=") for word in draw.layout.split(","))
        faults = differences(
            {**draw.form.as_stated(), "samples": int(words["gbs"]),
             **draw.stated_layers()},
            {**Form(**document.get("parallelism", {})).as_stated(),
             "samples": document["global_batch_size"]})
        known = {device.name for device in Topology(draw.topology, draw.form).devices}
        faults += [f"/stages/{number}/devices: expected some of {sorted(known)}, got {name}"
                   for number, stage in enumerate(document["stages"])
                   for name in stage["devices"] if name not in known]
        if faults:
            return faults, met
        plan = Plan(document, {**draw.profile, "layers": draw.layers}, draw.topology)
        counts = [end - begin for begin, end in plan.stages]
        used = list(itertools.chain(*plan.devices))
        if "--devices" not in draw.more:
            faults += differences(list(range(len(counts) * len(plan.devices[0]))), used, "/devices")
        faults += differences(
            {"layers": words["layers"],
             "recompute": [words.get("recompute") == "full" and not draw.form.recompute]
                          * len(counts),
             "families": "1f1b",
             "samples": draw.micro_batch},
            {"layers": ":".join(map(str, counts)), "recompute": plan.recomputes,
             "families": document["schedule"]["family"],
             "samples": plan.samples})
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
        if draw.runtime:
            faults += self.compare_simulated(draw, document, met)
        return faults, met

    def compare_simulated(self, draw, document, met):
        """What differs where simulate runs the plan as a runtime does. Counts in `met`."""
        runtime = draw.runtime
        may_cut = runtime.get("boundaries") == "scatter-gather"
        is_of_words = not draw.more and draw.chance(0.1 if may_cut else 0.2)
        what = (("--layout", draw.layout, "--model", "m.json", "--topo", "t.json") if is_of_words
                else ("plan.json", "--recost", "--timeline", "timeline.json"))
        run = self.run_tool("simulate", *what, "--runtime", self.write("r.json", runtime),
                            "--contention", "off", "--json")
        if run.returncode != DONE:
            return [f"exit code of simulate {run.returncode}: {run.stderr.strip()}"]
        plan = Plan(document, *draw.under_runtime())
        plan.boundaries = runtime.get("boundaries", "whole")
        met["scatter-gather asked for beside whole tensors"] += (
            plan.boundaries == "scatter-gather" and plan.ranks_that_share(0) == 1)
        said = {device.pop("device"): device
                for device in json.loads(run.stdout)["plans"][0]["predicted"]["devices"]}
        for device in said.values():
            device.pop("busy_fraction")
        faults = differences(plan.predicted_devices(), said, "simulate: /predicted/devices")
        for key, subject in (("gradient_bytes_per_parameter_byte", "bytes of gradient"),
                             ("framework_bytes_per_parameter_byte", "bytes of framework"),
                             ("reserved", "reserved memory")):
            met[f"a runtime's {subject}"] += key in runtime
        if not is_of_words:
            faults += Timeline(self.read("timeline.json"), plan, runtime).faults(met)
        return faults

    def assert_refused(self, words, profile, topology, *parts):
        """A layout is refused by all commands that take one, in one line that has the parts."""
        files = ("--model", self.write("m.json", profile), "--topo", self.write("t.json", topology))
        for command in (("simulate",), ("import", "plan", "-o", "plan.json")):
            with self.subTest(words=words, command=command):
                run = self.run_tool(*command, "--layout", f"mbs=1,{words}", *files)
                self.assert_error(run, BAD_INPUT, "error: --layout: ", *parts)
                self.assertEqual(run.stderr.strip().count("\n"), 0, run.stderr)
                self.assertEqual(run.stdout, "")
        self.assertFalse((self.folder / "plan.json").exists())

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
            self.assert_refused(words, profile, {**topology, "servers": servers}, *parts)

    def test_refusals_of_groups_of_other_degrees(self):
        profile = tool.small_profile()
        layer = profile["layers"][0]
        figures = {key: layer[key] for key in ("parameter_bytes", "measurements")}
        layer["variants"] = [{"tensor_parallel": tensor, "context_parallel": context,
                              "expert_parallel": experts, **figures}
                             for tensor, context, experts in ((2, 1, 1), (1, 2, 1), (1, 4, 1),
                                                              (1, 1, 4), (1, 1, 8))]
        topology = tool.small_topology()
        server = topology["servers"][0]
        server["devices"] = 4
        nic = server["nics"][0]
        root = {"bandwidth": "16 GB/s", "latency": "1 us", "devices": [0, 1, 2, 3], "nics": [0]}
        rack = {"count": 2, "servers": 1, "uplink": {"bandwidth": "1 GB/s", "latency": "1 us"}}
        for words, changes, parts in (
                ("cp=3", {}, ("variants", "got tensor 1, context 3")),
                ("ep=3", {}, ("variants", "got tensor 1, experts 3")),
                ("ep=4,etp=2", {}, ("variants", "got tensor 1, experts 4 x 2")),
                ("zero=2", {}, ("zero: expected 0, 1, 3 or full-keep", 'got "2"')),
                ("fsdp=2", {}, ("fsdp: needs zero=1, 3 or full-keep", "got none")),
                ("zero=0,fsdp=4", {}, ("fsdp: needs zero=1, 3 or full-keep",)),
                ("zero=1,fsdp=1", {}, ("fsdp: expected 2 or more shards, got 1",)),
                ("zero=1,fsdp=two", {}, ("fsdp: expected a number", 'got "two"')),
                ("zero=1,fsdp=3,cp=2", {}, ("parts of each other", "optimizer sharded over 3")),
                ("zero=full-keep,fsdp=3", {}, ("groups of 3 devices", "node has 4")),
                ("zero=1,dp=6,fsdp=4", {}, ("dp: expected a multiple of 4", "got 6")),
                ("zero=3", {}, ("zero: 3 needs fsdp=... or dp=...", "got neither")),
                ("zero=3,fsdp=3,cp=2", {}, ("parts of each other", "sharded over 3")),
                ("zero=3,fsdp=3", {}, ("groups of 3 devices", "node has 4")),
                ("zero=3,fsdp=6,cp=2", {}, ("groups of 6 devices", "node has 4")),
                ("zero=3,fsdp=16", {}, ("groups of 4 servers", "there are 2 node")),
                ("zero=3,fsdp=8", {"servers": [{**server, "count": 1}]},
                 ("groups of 2 servers", "there is 1 node")),
                ("ep=8", {"servers": [{**server, "count": 3}]},
                 ("groups of 2 servers", "there are 3 node")),
                ("ep=8", {"servers": [{**server, "pcie_roots": [root]}]},
                 ("no PCIe roots", "node has PCIe roots")),
                ("ep=8", {"servers": [{**server, "count": 1, "devices": 8}, {
                    **server, "name": "box"}]}, ("box", "node")),
                ("ep=8", {"servers": [server, {**server, "name": "box", "nics": [nic, nic]}]},
                 ("box", "node")),
                ("ep=8", {"racks": [rack]}, ("groups of 2 servers", "each rack", "one has 1")),
                ("ep=4,dp=2", {}, ("dp: expected a multiple of 4", "got 2")),
                ("zero=3,dp=6,fsdp=4", {}, ("dp: expected a multiple of 4", "got 6")),
                ("zero=3,dp=8,fsdp=4,pp=2", {}, ("at most 2", "got 2 times 2"))):
            self.assert_refused(words, profile, {**topology, **changes}, *parts)

    def test_costs_and_memory_of_random_plans(self):
        def words_of(seed):
            draw = Draw(seed)
            return f"--layout {draw.layout} {' '.join(draw.more)}".rstrip()

        self.assert_cases_agree(CASES, SUBJECTS, self.compare, words_of,
                                {**dict.fromkeys(DIMENSIONS, LEAST_STAGES), "stages": 300})


if __name__ == "__main__":
    tool.main()
