#include "search/bounds/transfer_shape.h"

#include <algorithm>
#include <numeric>

#include "dapple/profile/boundary_shares.h"

namespace dapple::search {
namespace {

std::vector<TransferEnd> transfer_ends(const BoundarySide& side, std::int64_t micro_batch_size) {
  std::vector<TransferEnd> ends;
  const std::int32_t members = side.devices_per_replica;
  const ReplicaShares shares(micro_batch_size, std::ssize(side.devices) / members, side.samples);
  for (std::int32_t i = 0; i < std::ssize(side.devices); ++i) {
    ends.push_back({.device = side.devices[static_cast<std::size_t>(i)],
                    .samples = shares.of(i / members),
                    .member = i % members,
                    .members = members});
  }
  return ends;
}

/// The transfer of tensors of one byte for each part of a sample, so that sizes are numbers of
/// samples, counted in parts.
TransferCost samples_moved(const std::vector<TransferEnd>& from, const std::vector<TransferEnd>& to,
                           const CostModel& costs) {
  const std::int64_t parts = costs.largest_group();
  return transfer_cost(
      from, to, [&](std::int64_t samples) { return Bytes{samples * parts}; }, costs.topology());
}

std::vector<PortShape> port_shapes(const TransferCost& cost, const Topology& topology) {
  std::vector<PortShape> shapes;
  for (const PortLoad& load : cost.ports) {
    const PortShape shape{.samples = load.size.count,
                          .bandwidth = topology.ports()[load.port.position()].bandwidth,
                          .latency = load.latency,
                          .gathered = load.received.count};
    const auto alike = std::find_if(shapes.begin(), shapes.end(), [&](const PortShape& other) {
      return other.bandwidth == shape.bandwidth && other.latency == shape.latency;
    });
    if (alike == shapes.end()) {
      shapes.push_back(shape);
    } else {
      *alike = std::max(*alike, shape);
    }
  }
  std::sort(shapes.begin(), shapes.end());
  return shapes;
}

std::vector<PortShape> pair_shapes(const TransferCost& cost) {
  std::vector<PortShape> shapes;
  for (const PairFlow& flow : cost.flows) {
    shapes.push_back({.samples = flow.size.count,
                      .bandwidth = flow.route.bandwidth,
                      .latency = flow.route.latency,
                      .gathered = flow.received.count});
  }
  std::sort(shapes.begin(), shapes.end());
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  return shapes;
}

/// Lower bound on the bytes of `samples` of the samples of which `whole` bytes are the size.
Bytes least_size(std::int64_t samples, Bytes whole, std::int64_t tensors, std::int64_t all) {
  const std::int64_t sure = std::max<std::int64_t>(0, whole.count - tensors);
  return {divide_down(Wide{sure} * samples, all)};
}

/// Lower bound on the time in which a device gathers so many samples, whatever its form.
Duration gather_bound(std::int64_t samples, const BoundaryVolume& volume) {
  Duration least;
  bool is_first = true;
  for (const BoundaryVolume::Gathered& of_form : volume.gathered) {
    const Bytes size = least_size(samples, of_form.whole, of_form.tensors, of_form.samples);
    const Duration time = least_gather_time(*of_form.form, size);
    least = is_first ? time : std::min(least, time);
    is_first = false;
  }
  return least;
}

PortBound bound_of(const PortShape& shape, const BoundaryVolume& volume) {
  const Bytes size = sure_size(shape.samples, volume);
  return {.size = size,
          .bandwidth = shape.bandwidth,
          .time = round_up(occupation(size, shape.bandwidth)) + shape.latency +
                  gather_bound(shape.gathered, volume)};
}

/// The time for which one micro-batch occupies the port that decides the time of a transfer,
/// rounded down. Only that port counts, because the time of one port and the occupation of another
/// are no bound together.
Duration pace_of(const std::vector<PortBound>& ports) {
  Duration longest;
  Duration pace;
  for (const PortBound& port : ports) {
    const Duration busy = queue_at(port, 2);
    if (port.time > longest) pace = busy;
    if (port.time == longest) pace = std::max(pace, busy);
    longest = std::max(longest, port.time);
  }
  return pace;
}

/// One direction of a boundary.
struct WayBound {
  Duration time;
  Duration pace;
  std::vector<PortBound> ports;
};

/// Computes c or d and the queues of (B4). Where replicas are independent, the time is that of the
/// quickest pair (R1), and the ports are those of all flows (R3).
WayBound bound_way(const std::vector<PortShape>& shapes, const std::vector<PortShape>& pairs,
                   const BoundaryVolume& volume) {
  WayBound way;
  if (volume.whole.count == 0) return way;
  for (const PortShape& shape : shapes) {
    way.ports.push_back(bound_of(shape, volume));
    way.time = std::max(way.time, way.ports.back().time);
  }
  way.pace = pace_of(way.ports);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const PortBound pair = bound_of(pairs[i], volume);
    way.time = i == 0 ? pair.time : std::min(way.time, pair.time);
    way.pace = i == 0 ? queue_at(pair, 2) : std::min(way.pace, queue_at(pair, 2));
  }
  return way;
}

}  // namespace

TransferShape transfer_shape(const BoundarySides& sides, std::int64_t micro_batch_size,
                             const CostModel& costs, Replicas replicas) {
  const std::vector<TransferEnd> front = transfer_ends(sides.front, micro_batch_size);
  const std::vector<TransferEnd> back = transfer_ends(sides.back, micro_batch_size);
  const TransferCost there = samples_moved(front, back, costs);
  const TransferCost here = samples_moved(back, front, costs);
  TransferShape shape{.forward = port_shapes(there, costs.topology()),
                      .backward = port_shapes(here, costs.topology())};
  if (replicas == Replicas::Independent) {
    shape.forward_pairs = pair_shapes(there);
    shape.backward_pairs = pair_shapes(here);
  }
  return shape;
}

std::vector<TransferShape> dealt_shapes(const BoundarySides& sides, std::int64_t micro_batch_size,
                                        const CostModel& costs) {
  // Replica i of a stage that deals has micro-batches i, i + r, i + 2r and so on.
  const auto lanes = [](const BoundarySide& side) {
    return side.deals ? std::ssize(side.devices) : std::ptrdiff_t{1};
  };
  const auto one_lane = [](const BoundarySide& side, std::ptrdiff_t lane) {
    return side.deals ? BoundarySide{.devices = {side.devices[static_cast<std::size_t>(lane)]},
                                     .samples = {}}
                      : side;
  };
  const std::ptrdiff_t common = std::gcd(lanes(sides.front), lanes(sides.back));
  std::vector<TransferShape> shapes;
  for (std::ptrdiff_t front = 0; front < lanes(sides.front); ++front) {
    for (std::ptrdiff_t back = front % common; back < lanes(sides.back); back += common) {
      shapes.push_back(transfer_shape({one_lane(sides.front, front), one_lane(sides.back, back)},
                                      micro_batch_size, costs, Replicas::Together));
    }
  }
  std::sort(shapes.begin(), shapes.end());
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  return shapes;
}

std::int64_t least_overlap(std::int64_t micro_batch_size, std::int64_t front, std::int64_t back) {
  std::int64_t least = micro_batch_size;
  for (std::int64_t i = 0, j = 0; i < front && j < back;) {
    const SampleRange one = replica_share(micro_batch_size, front, i);
    const SampleRange other = replica_share(micro_batch_size, back, j);
    least = std::min(least, std::min(one.end, other.end) - std::max(one.begin, other.begin));
    if (one.end <= other.end) ++i;
    if (other.end <= one.end) ++j;
  }
  return least;
}

// The size of every tensor is rounded up on its own, so the bytes of some samples may be up to one
// byte per tensor less than their share of the whole.
Bytes sure_size(std::int64_t samples, const BoundaryVolume& volume) {
  return least_size(samples, volume.whole, volume.tensors, volume.samples);
}

BoundaryBound boundary_bound(const TransferShape& shape, const BoundaryVolume& volume,
                             std::int64_t num_micro_batches, Transfers transfers) {
  const WayBound forward = bound_way(shape.forward, shape.forward_pairs, volume);
  const WayBound backward = bound_way(shape.backward, shape.backward_pairs, volume);
  BoundaryBound boundary;
  boundary.forward = forward.time;
  boundary.backward = backward.time;
  boundary.forward_pace = forward.pace;
  boundary.backward_pace = backward.pace;
  boundary.forward_queue = longest_queue(forward.ports, num_micro_batches);
  boundary.backward_queue = longest_queue(backward.ports, num_micro_batches);
  boundary.occupied = occupied_by(transfers, forward.time, backward.time);
  return boundary;
}

BoundaryBound least_of(const BoundaryBound& a, const BoundaryBound& b) {
  BoundaryBound least;
  least.forward = std::min(a.forward, b.forward);
  least.backward = std::min(a.backward, b.backward);
  least.forward_pace = std::min(a.forward_pace, b.forward_pace);
  least.backward_pace = std::min(a.backward_pace, b.backward_pace);
  least.forward_queue = std::min(a.forward_queue, b.forward_queue);
  least.backward_queue = std::min(a.backward_queue, b.backward_queue);
  least.occupied = std::min(a.occupied, b.occupied);
  return least;
}

/// Computes c and d of (L2).
BoundaryBound dealt_boundary_bound(const std::vector<TransferShape>& shapes,
                                   const BoundaryVolume& volume) {
  BoundaryBound least;
  bool is_first = true;
  for (const TransferShape& shape : shapes) {
    const BoundaryBound other = boundary_bound(shape, volume, 1, Transfers::Overlapped);
    least = is_first ? other : least_of(least, other);
    is_first = false;
  }
  // Transfers of different replicas may be under way at the same time.
  least.forward_pace = {};
  least.backward_pace = {};
  return least;
}

void raise_queues(BoundaryBound& boundary, const PortShape& forward, const PortShape& backward,
                  const BoundaryVolume& volume, std::int64_t num_micro_batches) {
  if (volume.whole.count == 0) return;
  const auto raise = [&](const PortShape& shape, Duration time, Duration& queue, Duration& pace) {
    const PortBound port = bound_of(shape, volume);
    queue = std::max(queue, longest_queue({port}, num_micro_batches));
    if (port.time >= time) pace = std::max(pace, queue_at(port, 2));
  };
  raise(forward, boundary.forward, boundary.forward_queue, boundary.forward_pace);
  raise(backward, boundary.backward, boundary.backward_queue, boundary.backward_pace);
}

BoundaryVolume boundary_volume(const CostModel& costs, CutIndex cut,
                               std::int64_t micro_batch_size) {
  const std::int64_t parts = costs.largest_group();
  // A flow has no more than its share between stages in one form, and the most between others.
  const auto volume_in = [&](const CostModel& form, std::int64_t shares) {
    const GroupShape& group = form.profile().group;
    const std::int64_t samples = group.replicas * group.samples_of_replica(micro_batch_size);
    return BoundaryVolume{.whole = form.boundary_size(cut.value, micro_batch_size),
                          .tensors = form.layer_count(),
                          .samples = parts * samples * shares};
  };
  // The volume is that of the form with the fewest sure bytes per sample.
  const auto is_less = [](const BoundaryVolume& a, const BoundaryVolume& b) {
    const auto sure = [](const BoundaryVolume& volume) {
      return Wide{std::max<std::int64_t>(0, volume.whole.count - volume.tensors)};
    };
    return sure(a) * b.samples < sure(b) * a.samples;
  };
  BoundaryVolume least = volume_in(costs, costs.shares(cut.value));
  bool are_gathered = costs.shares(cut.value) > 1;
  for (FormIndex form{1}; form.value < costs.form_count(); form = form.next()) {
    const CostModel& in_form = costs.in(form);
    const BoundaryVolume other = volume_in(in_form, in_form.shares(cut.value));
    if (is_less(other, least)) least = other;
    are_gathered = are_gathered && in_form.shares_with(FormIndex{}, cut.value) > 1;
  }
  for (FormIndex form; are_gathered && form.value < costs.form_count(); form = form.next()) {
    const BoundaryVolume whole = volume_in(costs.in(form), 1);
    least.gathered.push_back({.form = &costs.in(form).profile(),
                              .whole = whole.whole,
                              .tensors = whole.tensors,
                              .samples = whole.samples});
  }
  return least;
}

}  // namespace dapple::search
