// The collective operations that the devices of a group need to share a layer, and their time.
//
// Source: Patarasu and Yuan 2009 (ring all-reduce); Korthikanti et al. 2022 section 4.2.2 (an
// all-reduce is a reduce-scatter and an all-gather); GShard (Lepikhin et al. 2020) section 3
// (all-to-all between experts); DeepSeek-V3 (DeepSeek-AI 2024) section 3.2.2 (a token is sent once
// to each server with experts of it); Liu et al. 2023 section 3 (ring attention passes keys and
// values on while it computes).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple {

/// In a send-receive every member sends its tensor to the next one of the ring.
enum class CollectiveKind : std::uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  SendReceive
};

inline constexpr CollectiveKind kCollectiveKinds[] = {
    CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
    CollectiveKind::AllToAll, CollectiveKind::SendReceive};

/// Returns "all-reduce", "all-gather", "reduce-scatter", "all-to-all" or "send-receive".
std::string_view to_string(CollectiveKind kind);

/// The devices of a group that take part in a collective: those that share a layer's parameters,
/// those that share a sequence, those that hold different experts, or those that share an expert.
enum class CollectiveMembers : std::uint8_t { Tensor, Context, Experts, ExpertTensor };

inline constexpr CollectiveMembers kCollectiveMembers[] = {
    CollectiveMembers::Tensor, CollectiveMembers::Context, CollectiveMembers::Experts,
    CollectiveMembers::ExpertTensor};

/// Returns "tensor", "context", "experts" or "expert-tensor".
std::string_view to_string(CollectiveMembers members);

/// The computation beside which a send-receive passes: none, or a step of the core of attention.
/// The core has as many steps as the ring has members.
enum class Beside : std::uint8_t { Nothing, ForwardCore, BackwardCore };

/// The times in which a layer computes the core of attention, in its forward and in its backward.
struct CoreTimes {
  Duration forward;
  Duration backward;

  Duration of(Beside beside) const {
    if (beside == Beside::Nothing) return {};
    return beside == Beside::ForwardCore ? forward : backward;
  }
  friend bool operator==(const CoreTimes&, const CoreTimes&) = default;
};

/// What an all-to-all sends where a dispatcher merges: so many copies of each token, for different
/// ones of all experts. Those for experts of one other server are sent there once, to a member that
/// sends them on.
struct MergedCopies {
  std::int64_t copies = 1;
  std::int64_t experts = 1;

  friend bool operator==(const MergedCopies&, const MergedCopies&) = default;
};

/// Equal collective operations, one after another, for every micro-batch.
struct Collective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  CollectiveMembers over = CollectiveMembers::Tensor;
  /// The whole tensor that is reduced or gathered, or what each member of an all-to-all holds or of
  /// a send-receive sends, for one sample.
  Bytes size_per_sample;
  std::int64_t count = 1;
  /// Nothing but for send-receives.
  Beside beside = Beside::Nothing;
  /// Nothing but for all-to-alls over experts whose dispatcher merges.
  std::optional<MergedCopies> merged = {};

  friend bool operator==(const Collective&, const Collective&) = default;
};

/// How context-parallel ranks give each other the keys and values that all of them need: by
/// gathering them, by passing them on around a ring beside the core of attention, or by computing
/// whole sequences of some heads each.
enum class ContextExchange : std::uint8_t { AllGather, Ring, AllToAll };

inline constexpr ContextExchange kContextExchanges[] = {
    ContextExchange::AllGather, ContextExchange::Ring, ContextExchange::AllToAll};

/// Returns "all-gather", "ring" or "all-to-all".
std::string_view to_string(ContextExchange exchange);

/// A measured all-reduce.
struct MeasuredReduction {
  Bytes size;
  Duration time;

  friend bool operator==(const MeasuredReduction&, const MeasuredReduction&) = default;
};

/// Returns the time of an all-reduce of `size` bytes that takes `on_links` by the links alone, as
/// far as it was measured: linear between measurements, above the largest at its bandwidth, and
/// below the smallest no more than that one's time. O(log measurements). Requires: `measured` by
/// rising size.
Duration measured_time(const std::vector<MeasuredReduction>& measured, Bytes size,
                       Duration on_links);

/// A ring over the devices of a group.
struct GroupRing {
  std::int64_t members = 1;
  /// The bandwidth of the narrowest hop, and the largest latency of one.
  Bandwidth bandwidth{kMaxCount};
  Duration latency;
  /// All-reduces that were measured over such a group, by rising size; may be empty.
  std::vector<MeasuredReduction> measured = {};
  /// The members within one server, and the bandwidths that one of them has to those and to all
  /// others. An all-to-all uses both at once.
  std::int64_t members_in_server = 1;
  Bandwidth within_server{kMaxCount};
  Bandwidth between_servers{kMaxCount};

  /// Whether its members are on several servers.
  bool passes_servers() const { return members_in_server < members; }

  friend bool operator==(const GroupRing&, const GroupRing&) = default;
};

/// What collectives over rings that pass servers take of the NIC of one of their devices.
struct NicUse {
  /// The time that they take on idle links.
  Duration time;
  /// The time for which the NIC would be busy with their bytes at its full bandwidth.
  Duration busy;

  NicUse& operator+=(const NicUse& other) {
    time += other.time;
    busy += other.busy;
    return *this;
  }
  friend NicUse operator+(NicUse a, const NicUse& b) { return a += b; }
  friend NicUse operator-(const NicUse& a, const NicUse& b) {
    return {a.time - b.time, a.busy - b.busy};
  }
  friend NicUse operator*(std::int64_t count, const NicUse& use) {
    return {count * use.time, count * use.busy};
  }
  friend bool operator==(const NicUse&, const NicUse&) = default;
};

/// What a pass over layers, or over the first of them, takes of the NIC of a device, for
/// collectives over several servers.
struct PassTraffic {
  /// Collectives beside which nothing is computed.
  NicUse in_turn;
  /// Those that pass while layers compute.
  NicUse beside;

  friend PassTraffic operator+(const PassTraffic& a, const PassTraffic& b) {
    return {a.in_turn + b.in_turn, a.beside + b.beside};
  }
  friend PassTraffic operator-(const PassTraffic& a, const PassTraffic& b) {
    return {a.in_turn - b.in_turn, a.beside - b.beside};
  }
  friend bool operator==(const PassTraffic&, const PassTraffic&) = default;
};

/// What a device is a part of in its group; of a single device by default.
struct GroupShape {
  /// The rings of collectives within layers, by CollectiveMembers.
  std::array<GroupRing, std::size(kCollectiveMembers)> rings = {};
  /// The rings over the devices that hold, or share, the same parameters: those outside experts,
  /// and those of one expert.
  GroupRing copies = {};
  GroupRing expert_copies = {};
  /// The number of data-parallel replicas in the group. Each has an equal part of the group's
  /// samples, rounded up.
  std::int64_t replicas = 1;
  /// Whether `copies` and `expert_copies` hold a shard each of all state.
  bool shards_all_state = false;
  /// Whether they hold a shard each of the optimizer's state alone, and other groups of the stage
  /// the same shards.
  bool shards_optimizer = false;

  const GroupRing& ring(CollectiveMembers members) const {
    return rings[static_cast<std::size_t>(members)];
  }
  /// Whether any of its rings passes servers.
  bool passes_servers() const;
  /// Returns the samples of the replica in the group that has the most of the group's.
  std::int64_t samples_of_replica(std::int64_t samples) const {
    return divide_up(samples, replicas);
  }

  friend bool operator==(const GroupShape&, const GroupShape&) = default;
};

/// Returns the time of one collective over a tensor of `size` bytes on idle links, in whole
/// nanoseconds rounded up; zero for one member or no bytes. With n members an all-reduce takes
/// 2(n-1)/n * size / bandwidth + 2(n-1) * latency, or what was measured: below the smallest
/// measurement no more than that. An all-gather and a reduce-scatter take half of it each. In an
/// all-to-all, each member sends 1/n of its tensor to every other one, over its ports within and
/// between servers at the same time, and the latency counts once. Where copies are merged, it
/// sends each token once to every other server that balanced routing makes it expect, in billionths
/// of its tensor rounded up, and sends on what it receives so (docs/model.md, section 2.3). A
/// send-receive takes size / bandwidth + latency, or a (n-1)-th of an all-gather of the tensors of
/// all members, if that was measured. Links count as busy for no more than kMaxCount nanoseconds.
/// O(log measurements + copies).
Duration collective_time(CollectiveKind kind, Bytes size, const GroupRing& ring,
                         const std::optional<MergedCopies>& merged = {});

/// Lower bound on collective_time() over a tensor of `size` bytes or any larger one, which may take
/// less where that was measured. O(measurements).
Duration least_collective_time(CollectiveKind kind, Bytes size, const GroupRing& ring);

/// Returns the time of all collectives for `samples` samples of a data-parallel rank, one after
/// another, without what of each is hidden behind computation: of a send-receive beside the core,
/// whose times for so many samples are `core`, so much as one step of it takes, rounded down.
/// O(collectives log measurements).
Duration collectives_time(const std::vector<Collective>& collectives, std::int64_t samples,
                          const GroupShape& group, const CoreTimes& core);

/// Returns what one collective over a tensor of `size` bytes takes of the NIC of one of its
/// devices: collective_time(), for which the NIC may be busy all the time or less, where latencies
/// or ports within servers decide. Nothing within one server. O(log measurements + copies).
NicUse nic_use(CollectiveKind kind, Bytes size, const GroupRing& ring,
               const std::optional<MergedCopies>& merged = {});

/// Returns what all collectives for `samples` samples of a data-parallel rank take of its NIC. What
/// of one is hidden is beside; the NIC is busy in it, and in the rest, in proportion to their
/// times, that of the rest rounded up. O(collectives log measurements).
PassTraffic nic_use(const std::vector<Collective>& collectives, std::int64_t samples,
                    const GroupShape& group, const CoreTimes& core);

/// The times of the core of a layer, for lower bounds over numbers of samples.
struct CoreOfSamples {
  /// Returns them for a number of samples.
  std::function<CoreTimes(std::int64_t)> at;
  /// The numbers of samples between which they are linear but for rounding up.
  std::vector<std::int64_t> turning_points;
};

/// Lower bound on collectives_time() per sample, in nanoseconds, for any number of samples from one
/// to `most`. O(collectives * (measurements + turning points) * measurements).
double least_collectives_per_sample(const std::vector<Collective>& collectives, std::int64_t most,
                                    const GroupShape& group, const CoreOfSamples& core);

}  // namespace dapple
