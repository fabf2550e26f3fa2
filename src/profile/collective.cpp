#include "dapple/profile/collective.h"

#include <algorithm>
#include <set>

#include "dapple/core/error.h"

namespace dapple {
namespace {

/// Returns so many nanoseconds, rounded up in ticks, but no more than kMaxCount.
Duration quotient(Wide numerator, Wide denominator) {
  // Every plan with such a time is refused, as its iteration leaves the range.
  if (numerator / denominator > kMaxCount) return {kMaxCount};
  return round_up(Ticks{divide_up(numerator * kTicksPerNanosecond, denominator)});
}

/// Returns how long a port is busy with `moved` / `members` bytes.
Duration busy_time(Wide moved, std::int64_t members, Bandwidth bandwidth) {
  return quotient(moved * kNanosecondsPerSecond, Wide{members} * bandwidth.bytes_per_second);
}

/// Returns the time of an all-reduce, or of one of its halves, from the ring's links.
Duration time_on_links(std::int64_t rounds, Bytes size, const GroupRing& ring) {
  return busy_time(Wide{rounds} * size.count, ring.members, ring.bandwidth) + rounds * ring.latency;
}

Duration all_reduce_time(Bytes size, const GroupRing& ring) {
  return measured_time(ring.measured, size, time_on_links(2 * (ring.members - 1), size, ring));
}

/// Returns the time in which each member sends its tensor to the next one, as in one of the rounds
/// of an all-reduce of the tensors of all.
Duration send_receive_time(Bytes size, const GroupRing& ring) {
  if (ring.measured.empty()) return busy_time(size.count, 1, ring.bandwidth) + ring.latency;
  return {divide_up(all_reduce_time(ring.members * size, ring).ns, 2 * (ring.members - 1))};
}

/// Whether some copies of a token may go to a server together.
bool merges(const std::optional<MergedCopies>& merged, const GroupRing& ring) {
  return merged && merged->copies > 1 && ring.passes_servers();
}

/// Returns the part of its tensor, in billionths rounded up, that a member sends to other servers
/// where each token goes once to every server that has one of its experts. They are as likely to
/// be any of all experts, of which each server has as many. O(copies).
std::int64_t merged_billionths(const MergedCopies& merged, std::int64_t servers) {
  // Nine digits more than are used, so that what has few digits is not rounded.
  constexpr Wide kSpare = 1'000'000'000;
  constexpr Wide kWhole = Wide{1'000'000'000} * kOne.billionths;
  // How likely it is that no copy of a token is for a certain server.
  Wide none = kWhole * kSpare;
  for (std::int64_t chosen = 0; chosen < merged.copies && none > 0; ++chosen) {
    const std::int64_t elsewhere = (servers - 1) * merged.experts - servers * chosen;
    none = std::max<Wide>(0, none * elsewhere / (servers * (merged.experts - chosen)));
  }
  const Wide some = kWhole - (none + kSpare / 2) / kSpare;
  return divide_up((servers - 1) * some, merged.copies * (kWhole / kOne.billionths));
}

/// Returns how long the port of a member to other servers is busy with an all-to-all.
Duration busy_between_servers(Bytes size, const GroupRing& ring,
                              const std::optional<MergedCopies>& merged) {
  const std::int64_t others = ring.members - ring.members_in_server;
  const Duration one_by_one =
      busy_time(Wide{others} * size.count, ring.members, ring.between_servers);
  if (!merges(merged, ring)) return one_by_one;
  const std::int64_t sent = merged_billionths(*merged, ring.members / ring.members_in_server);
  // A billionth of a second is a nanosecond. Rounding up may have made it more.
  return std::min(one_by_one,
                  quotient(Wide{sent} * size.count, ring.between_servers.bytes_per_second));
}

/// Returns the time in which a member sends its parts for all others to them.
Duration all_to_all_time(Bytes size, const GroupRing& ring,
                         const std::optional<MergedCopies>& merged) {
  // Where copies are merged, a member also sends on those that have come from each other server.
  const std::int64_t sources =
      merges(merged, ring) ? ring.members / ring.members_in_server : std::int64_t{1};
  const Duration within = busy_time(Wide{sources} * (ring.members_in_server - 1) * size.count,
                                    ring.members, ring.within_server);
  return std::max(within, busy_between_servers(size, ring, merged)) + ring.latency;
}

/// Returns the numbers of samples, from one to `most`, at which the time per sample can be least:
/// the ends of the range, every measured size and both sides of it, and where the core turns that
/// is computed beside.
std::set<std::int64_t> turning_points(const Collective& collective, std::int64_t most,
                                      const GroupRing& ring, const CoreOfSamples& core) {
  std::set<std::int64_t> points{1, most};
  const auto add = [&](std::int64_t samples) {
    points.insert(std::clamp<std::int64_t>(samples, 1, most));
  };
  // A send-receive is a part of an all-reduce of the tensors of all members.
  const bool is_of_one = collective.kind == CollectiveKind::SendReceive;
  const std::int64_t measured_per_sample =
      (is_of_one ? ring.members : 1) * collective.size_per_sample.count;
  for (const MeasuredReduction& measured : ring.measured) {
    // The time may jump at the smallest measured size, so that a size of its own is neither side.
    add((measured.size.count - 1) / measured_per_sample);
    const std::int64_t within = measured.size.count / measured_per_sample;
    add(within);
    add(within + 1);
  }
  if (collective.beside == Beside::Nothing) return points;
  for (const std::int64_t samples : core.turning_points) add(samples);
  return points;
}

/// Returns so much of a collective of that time as computation hides.
Duration hidden_of(Duration time, const Collective& collective, const GroupRing& ring,
                   const CoreTimes& core) {
  return std::min(time, Duration{core.of(collective.beside).ns / ring.members});
}

/// Returns a collective's use of a NIC, of which so much time is hidden.
PassTraffic traffic_of(const NicUse& use, Duration hidden) {
  const Duration exposed = use.time - hidden;
  if (exposed == use.time) return {.in_turn = use, .beside = {}};
  const Duration busy{divide_up(Wide{use.busy.ns} * exposed.ns, use.time.ns)};
  const NicUse in_turn{exposed, busy};
  return {.in_turn = in_turn, .beside = use - in_turn};
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
    case CollectiveKind::SendReceive:
      return "send-receive";
  }
  throw Bug("a collective is of no kind");
}

std::string_view to_string(ContextExchange exchange) {
  switch (exchange) {
    case ContextExchange::AllGather:
      return "all-gather";
    case ContextExchange::Ring:
      return "ring";
    case ContextExchange::AllToAll:
      return "all-to-all";
  }
  throw Bug("context ranks exchange nothing");
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

Duration collective_time(CollectiveKind kind, Bytes size, const GroupRing& ring,
                         const std::optional<MergedCopies>& merged) {
  if (ring.members < 2 || size.count == 0) return {};
  if (kind == CollectiveKind::AllReduce) return all_reduce_time(size, ring);
  if (kind == CollectiveKind::AllToAll) return all_to_all_time(size, ring, merged);
  if (kind == CollectiveKind::SendReceive) return send_receive_time(size, ring);
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
                          const GroupShape& group, const CoreTimes& core) {
  Duration time;
  for (const Collective& collective : collectives) {
    const GroupRing& ring = group.ring(collective.over);
    const Duration one = collective_time(collective.kind, samples * collective.size_per_sample,
                                         ring, collective.merged);
    time += collective.count * (one - hidden_of(one, collective, ring, core));
  }
  return time;
}

bool GroupShape::passes_servers() const {
  return copies.passes_servers() || expert_copies.passes_servers() ||
         std::any_of(rings.begin(), rings.end(),
                     [](const GroupRing& some) { return some.passes_servers(); });
}

NicUse nic_use(CollectiveKind kind, Bytes size, const GroupRing& ring,
               const std::optional<MergedCopies>& merged) {
  if (!ring.passes_servers() || size.count == 0) return {};
  const Duration time = collective_time(kind, size, ring, merged);
  // Every device sends what is for other servers, or its part of what the rings of its server send.
  Duration busy;
  if (kind == CollectiveKind::AllToAll) {
    busy = busy_between_servers(size, ring, merged);
  } else if (kind == CollectiveKind::SendReceive) {
    busy = busy_time(size.count, ring.members_in_server, ring.between_servers);
  } else {
    const std::int64_t passes = kind == CollectiveKind::AllReduce ? 2 : 1;
    busy = busy_time(Wide{passes} * (ring.members - 1) * size.count,
                     ring.members * ring.members_in_server, ring.between_servers);
  }
  return {time, std::min(busy, time)};
}

PassTraffic nic_use(const std::vector<Collective>& collectives, std::int64_t samples,
                    const GroupShape& group, const CoreTimes& core) {
  PassTraffic sum;
  for (const Collective& collective : collectives) {
    const GroupRing& ring = group.ring(collective.over);
    const NicUse use =
        nic_use(collective.kind, samples * collective.size_per_sample, ring, collective.merged);
    const PassTraffic one = traffic_of(use, hidden_of(use.time, collective, ring, core));
    sum.in_turn += collective.count * one.in_turn;
    sum.beside += collective.count * one.beside;
  }
  return sum;
}

double least_collectives_per_sample(const std::vector<Collective>& collectives, std::int64_t most,
                                    const GroupShape& group, const CoreOfSamples& core) {
  double sum = 0;
  for (const Collective& collective : collectives) {
    if (collective.size_per_sample.count == 0) continue;
    const GroupRing& ring = group.ring(collective.over);
    const bool is_beside = collective.beside != Beside::Nothing;
    // The time is linear between the turning points, or the lesser of a line and a constant, and
    // that of the core is linear, so that per sample their difference is least at one of them.
    double least = 1e300;
    for (const std::int64_t samples : turning_points(collective, most, ring, core)) {
      const Bytes size = samples * collective.size_per_sample;
      const Duration whole = collective_time(collective.kind, size, ring, collective.merged);
      const CoreTimes times = is_beside ? core.at(samples) : CoreTimes{};
      const Duration exposed = whole - hidden_of(whole, collective, ring, times);
      // Rounding up twice added less than two nanoseconds, and rounding the hidden part down less
      // than one; elsewhere rounding up the core may have hidden half of one more.
      const double rounded = is_beside ? 4.0 : 2.0;
      const double time = std::max(0.0, static_cast<double>(exposed.ns) - rounded);
      least = std::min(least, time / static_cast<double>(samples));
    }
    sum += static_cast<double>(collective.count) * least;
  }
  return sum;
}

}  // namespace dapple
