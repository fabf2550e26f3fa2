// What a stage costs: each of its replicas, the slowest of them, its buckets and its optimizer
// step.
//
// Source: DAPPLE (PPoPP'21) section 4. Departure: a stage's costs are those of its slowest replica,
// beside each one's own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/all_reduce.h"
#include "dapple/cost/memory.h"

namespace dapple {

/// When the buckets of a stage are ready on replicas with the same share on the same kind of
/// device.
struct BucketMoments {
  std::vector<Duration> in_backward;  // from the start of the last backward
  std::vector<Duration> in_weights;   // from the start of the last weight gradient
};

/// One device's share of a stage.
struct ReplicaCost {
  DeviceIndex device;
  std::int64_t samples = 0;
  Duration forward;
  Duration backward;        // recomputation included
  Duration input_gradient;  // the part of it that goes first, if it is run in two; W is the rest
  std::size_t moments = 0;  // position in StageCost::moments
  MemoryCost memory;
  Bytes memory_limit;
};

struct StageCost {
  std::vector<ReplicaCost> replicas;  // in the order of StagePlan::devices
  Duration forward;                   // slowest replica
  Duration backward;
  Duration recomputation;              // part of `backward`, of the slowest replica
  Duration input_gradient;             // slowest replica
  Duration weight_gradient;            // slowest replica
  std::vector<Duration> bucket_ready;  // from the start of the last backward, slowest replica
  std::vector<Duration> bucket_ready_in_weights;  // from the start of the last weight gradient
  std::vector<BucketMoments> moments;             // of the replicas that differ
  std::vector<AllReduceCost> buckets;
  /// Of all tied gradients that the stage adds to, one after another, on idle links; and of those
  /// that no stage before it adds to, which begin no earlier than behind its own.
  Duration tied_reduction;
  Duration tied_reduction_from_here;
  Duration optimizer_step;
  /// Where parameters are updated bucket by bucket, parts of the step that add up to it: one per
  /// bucket and, where some parameters are tied, one for these, with one before it for all others
  /// even where there is no bucket. Empty where there would be none, and where parameters are
  /// updated all at once.
  std::vector<Duration> bucket_steps;

  /// Whether the last of the bucket steps is that of tied parameters.
  bool has_tied_step() const {
    return bucket_steps.size() > std::max<std::size_t>(1, buckets.size());
  }
};

}  // namespace dapple
