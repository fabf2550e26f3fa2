// The collective operations that the devices of a group need to share a layer, and their time.
//
// Source: Patarasu and Yuan 2009 (ring all-reduce); Korthikanti et al. 2022 section 4.2.2 (an
// all-reduce is a reduce-scatter and an all-gather).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple {

enum class CollectiveKind : std::uint8_t { AllReduce, AllGather, ReduceScatter };

inline constexpr CollectiveKind kCollectiveKinds[] = {
    CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter};

/// Returns "all-reduce", "all-gather" or "reduce-scatter".
std::string_view to_string(CollectiveKind kind);

/// Equal collective operations, one after another, for every micro-batch.
struct Collective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  /// The whole tensor that is reduced or gathered, for one sample.
  Bytes size_per_sample;
  std::int64_t count = 1;

  friend bool operator==(const Collective&, const Collective&) = default;
};

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

  friend bool operator==(const GroupRing&, const GroupRing&) = default;
};

/// Returns the time of one collective over a tensor of `size` bytes on idle links, in whole
/// nanoseconds rounded up; zero for one member or no bytes. With n members an all-reduce takes
/// 2(n-1)/n * size / bandwidth + 2(n-1) * latency, or what was measured: below the smallest
/// measurement no more than that. An all-gather and a reduce-scatter take half of it each.
/// O(log measurements).
Duration collective_time(CollectiveKind kind, Bytes size, const GroupRing& ring);

/// Returns the time of all collectives for `samples` samples, one after another. O(collectives log
/// measurements).
Duration collectives_time(const std::vector<Collective>& collectives, std::int64_t samples,
                          const GroupRing& ring);

/// Lower bound on collectives_time() per sample, in nanoseconds, for any number of samples from one
/// to `most`. O(collectives * measurements).
double least_collectives_per_sample(const std::vector<Collective>& collectives, std::int64_t most,
                                    const GroupRing& ring);

}  // namespace dapple
