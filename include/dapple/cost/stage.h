// The costs of a stage: of each of its replicas, of the slowest of them, of its gradient buckets
// and of its optimizer step.
//
// Source: DAPPLE (PPoPP'21) section 4. Departure: a stage's costs are those of its slowest replica,
// and each replica's own costs are kept beside them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/all_reduce.h"
#include "dapple/cost/memory.h"
#include "dapple/profile/collective.h"

namespace dapple {

/// What each kind of pass over a stage takes of the NIC of a replica's device, recomputation
/// included. Beside it computes are send-receives and what gathers and scatters sharded state.
struct StageTraffic {
  PassTraffic forward;
  PassTraffic backward;
  PassTraffic input_gradient;
  PassTraffic weight_gradient;

  friend bool operator==(const StageTraffic&, const StageTraffic&) = default;
};

/// When the buckets of a stage are ready on replicas with equal shares on the same kind of device.
struct BucketMoments {
  /// Measured from the start of the last backward.
  std::vector<Duration> in_backward;
  /// Measured from the start of the last weight gradient.
  std::vector<Duration> in_weights;
  /// What of the backward's traffic, and of the weight gradient's, comes before each bucket.
  std::vector<PassTraffic> traffic_in_backward = {};
  std::vector<PassTraffic> traffic_in_weights = {};
};

/// The costs of one replica of a stage.
struct ReplicaCost {
  DeviceIndex device;
  std::int64_t samples = 0;
  Duration forward;
  /// The whole backward, including recomputation.
  Duration backward;
  /// The first part of the backward if it is run in two; the rest is the weight gradient.
  Duration input_gradient;
  /// What of the forward and of the backward is collectives of the replica's group, without those
  /// of recomputation.
  Duration collectives = {};
  /// What its passes take of the device's NIC; part of their times.
  StageTraffic traffic = {};
  /// The position in StageCost::moments.
  std::size_t moments = 0;
  MemoryCost memory;
  Bytes memory_limit;
};

struct StageCost {
  /// In the order of StagePlan::devices, of which a replica has so many each.
  std::vector<ReplicaCost> replicas;
  std::int32_t devices_per_replica = 1;

  /// The following times are each the maximum over the replicas; recomputation is part of both
  /// `backward` and `input_gradient`.
  Duration forward;
  Duration backward;
  Duration recomputation;
  Duration input_gradient;
  Duration weight_gradient;

  /// When each bucket is ready on the slowest replica, measured from the start of the last backward
  /// and from the start of the last weight gradient.
  std::vector<Duration> bucket_ready;
  std::vector<Duration> bucket_ready_in_weights;
  /// One entry for each distinct pair of share and device kind of the replicas.
  std::vector<BucketMoments> moments;
  std::vector<AllReduceCost> buckets;

  /// The time to reduce all tied gradients to which the stage contributes, one after another on
  /// idle links.
  Duration tied_reduction;
  /// The same for those to which no earlier stage contributes; their reductions start after those
  /// of the stage's own buckets.
  Duration tied_reduction_from_here;

  /// The update of the parameters: the optimizer's step and, where its state is sharded, an
  /// all-gather of the parameters.
  Duration optimizer_step;
  /// If parameters are updated bucket by bucket, the parts of the optimizer step, which add up to
  /// it: one for each bucket and, if some parameters are tied to other stages, one more for these.
  /// In the latter case there is a part for the other parameters even if there is no bucket. Empty
  /// if there is neither a bucket nor a tie, and if parameters are updated all at once.
  std::vector<Duration> bucket_steps;

  /// Whether the last of `bucket_steps` is that of tied parameters.
  bool has_tied_step() const {
    return bucket_steps.size() > std::max<std::size_t>(1, buckets.size());
  }
};

/// Whether collectives of some pass pass NICs. O(replicas).
bool has_traffic(const StageCost& stage);

}  // namespace dapple
