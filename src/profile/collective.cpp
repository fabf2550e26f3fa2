#include "dapple/profile/collective.h"

#include <algorithm>
#include <set>

#include "dapple/core/error.h"

namespace dapple {
namespace {

/// Returns how long a port is busy with `moved` / `members` bytes, but no more than kMaxCount.
Duration busy_time(Wide moved, std::int64_t members, Bandwidth bandwidth) {
  const Wide divisor = Wide{members} * bandwidth.bytes_per_second;
  // Every plan with such a time is refused, as its iteration leaves the range.
  if (moved * kNanosecondsPerSecond / divisor > kMaxCount) return {kMaxCount};
  return round_up(Ticks{divide_up(moved * kNanosecondsPerSecond * kTicksPerNanosecond, divisor)});
}

/// Returns the time of an all-reduce, or of one of its halves, from the ring's links.
Duration time_on_links(std::int64_t rounds, Bytes size, const GroupRing& ring) {
  return busy_time(Wide{rounds} * size.count, ring.members, ring.bandwidth) + rounds * ring.latency;
}

Duration all_reduce_time(Bytes size, const GroupRing& ring) {
  return measured_time(ring.measured, size, time_on_links(2 * (ring.members - 1), size, ring));
}

/// Returns the time in which a member sends its parts for all others to them.
Duration all_to_all_time(Bytes size, const GroupRing& ring) {
  const auto busy = [&](std::int64_t receivers, Bandwidth bandwidth) {
    return busy_time(Wide{receivers} * size.count, ring.members, bandwidth);
  };
  return std::max(busy(ring.members_in_server - 1, ring.within_server),
                  busy(ring.members - ring.members_in_server, ring.between_servers)) +
         ring.latency;
}

/// Returns the numbers of samples, from one to `most`, at which the time per sample can be least:
/// the ends of the range, and both sides of every measured size.
std::set<std::int64_t> turning_points(Bytes size_per_sample, std::int64_t most,
                                      const GroupRing& ring) {
  std::set<std::int64_t> points{1, most};
  for (const MeasuredReduction& measured : ring.measured) {
    const std::int64_t below = measured.size.count / size_per_sample.count;
    for (const std::int64_t samples : {below, below + 1}) {
      points.insert(std::clamp<std::int64_t>(samples, 1, most));
    }
  }
  return points;
}

}  // namespace

std::string_view to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::AllReduce:
      return "all-reduce";
    case CollectiveKind::AllGather:
      return "all-gather";
    case CollectiveKind::ReduceScatter:
      return "reduce-scatter";
    case CollectiveKind::AllToAll:
      return "all-to-all";
  }
  throw Bug("a collective is of no kind");
}

std::string_view to_string(CollectiveMembers members) {
  switch (members) {
    case CollectiveMembers::Tensor:
      return "tensor";
    case CollectiveMembers::Context:
      return "context";
    case CollectiveMembers::Experts:
      return "experts";
    case CollectiveMembers::ExpertTensor:
      return "expert-tensor";
  }
  throw Bug("a collective is of no members");
}

Duration measured_time(const std::vector<MeasuredReduction>& measured, Bytes size,
                       Duration on_links) {
  if (measured.empty()) return on_links;
  if (size < measured.front().size) return std::min(on_links, measured.front().time);
  const auto next = std::upper_bound(
      measured.begin(), measured.end(), size,
      [](Bytes wanted, const MeasuredReduction& point) { return wanted < point.size; });
  const MeasuredReduction& before = *(next - 1);
  if (next == measured.end()) {
    return {divide_up(Wide{before.time.ns} * size.count, before.size.count)};
  }
  const Duration more = next->time - before.time;
  return before.time + Duration{divide_up(Wide{more.ns} * (size - before.size).count,
                                          (next->size - before.size).count)};
}

Duration collective_time(CollectiveKind kind, Bytes size, const GroupRing& ring) {
  if (ring.members < 2 || size.count == 0) return {};
  if (kind == CollectiveKind::AllReduce) return all_reduce_time(size, ring);
  if (kind == CollectiveKind::AllToAll) return all_to_all_time(size, ring);
  if (ring.measured.empty()) return time_on_links(ring.members - 1, size, ring);
  return {divide_up(all_reduce_time(size, ring).ns, 2)};
}

Duration least_collective_time(CollectiveKind kind, Bytes size, const GroupRing& ring) {
  Duration least = collective_time(kind, size, ring);
  // Between measurements the time is linear, and above the largest it rises.
  for (const MeasuredReduction& measured : ring.measured) {
    if (measured.size > size) least = std::min(least, collective_time(kind, measured.size, ring));
  }
  return least;
}

Duration collectives_time(const std::vector<Collective>& collectives, std::int64_t samples,
                          const GroupShape& group) {
  Duration time;
  for (const Collective& collective : collectives) {
    const Bytes size = samples * collective.size_per_sample;
    time += collective.count * collective_time(collective.kind, size, group.ring(collective.over));
  }
  return time;
}

bool GroupShape::passes_servers() const {
  return copies.passes_servers() || expert_copies.passes_servers() ||
         std::any_of(rings.begin(), rings.end(),
                     [](const GroupRing& some) { return some.passes_servers(); });
}

NicUse nic_use(CollectiveKind kind, Bytes size, const GroupRing& ring) {
  if (!ring.passes_servers() || size.count == 0) return {};
  const Duration time = collective_time(kind, size, ring);
  // Every device sends what is for other servers, or its part of what the rings of its server send.
  Duration busy;
  if (kind == CollectiveKind::AllToAll) {
    busy = busy_time(Wide{ring.members - ring.members_in_server} * size.count, ring.members,
                     ring.between_servers);
  } else {
    const std::int64_t passes = kind == CollectiveKind::AllReduce ? 2 : 1;
    busy = busy_time(Wide{passes} * (ring.members - 1) * size.count,
                     ring.members * ring.members_in_server, ring.between_servers);
  }
  return {time, std::min(busy, time)};
}

NicUse nic_use(const std::vector<Collective>& collectives, std::int64_t samples,
               const GroupShape& group) {
  NicUse sum;
  for (const Collective& collective : collectives) {
    const Bytes size = samples * collective.size_per_sample;
    sum += collective.count * nic_use(collective.kind, size, group.ring(collective.over));
  }
  return sum;
}

double least_collectives_per_sample(const std::vector<Collective>& collectives, std::int64_t most,
                                    const GroupShape& group) {
  double sum = 0;
  for (const Collective& collective : collectives) {
    if (collective.size_per_sample.count == 0) continue;
    const GroupRing& ring = group.ring(collective.over);
    // The time is linear between the turning points, or the lesser of a line and a constant, so
    // that per sample it is least at one of them.
    double least = 1e300;
    for (const std::int64_t samples : turning_points(collective.size_per_sample, most, ring)) {
      const Bytes size = samples * collective.size_per_sample;
      // Rounding up twice added less than two nanoseconds.
      const double time =
          std::max(0.0, static_cast<double>(collective_time(collective.kind, size, ring).ns) - 2.0);
      least = std::min(least, time / static_cast<double>(samples));
    }
    sum += static_cast<double>(collective.count) * least;
  }
  return sum;
}

}  // namespace dapple
