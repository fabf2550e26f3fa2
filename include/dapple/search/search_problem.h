// The problem that the DAPPLE search and the exact search solve, and what they find.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/pins.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/search/stage_form.h"

namespace dapple::search {

struct SearchProblem {
  std::int64_t global_batch_size = 1;
  /// Divides the global batch size.
  std::int64_t micro_batch_size = 1;
  GradientSynchronization gradients = {};
  bool ignore_memory = false;
  /// Whether the order is GPipe's, in which every stage holds all micro-batches.
  bool gpipe = false;
  /// Whether the bounds of the exact search must hold for any order, not only for that of 1F1B.
  bool any_order = false;
  /// Whether links are shared, so that bounds may include how boundaries slow each other down.
  bool links_are_shared = false;
  /// Whether collectives of layers share them, too.
  bool collectives_share_links = false;
  /// The mode of replicas that the bounds of the exact search hold for. The DAPPLE search always
  /// assumes replicas that start together.
  Replicas replicas = Replicas::Together;
  /// The treatment of transfers that the bounds hold for.
  Transfers transfers = Transfers::Overlapped;
  Pins pins = {};
  /// Whether stages on several kinds of device may also have shares by speed, replicas being
  /// together.
  bool shares_by_speed = false;
  /// Whether stages may also deal whole micro-batches to their replicas in turn. The exact search
  /// tries this where it tries all placements; replicas are together and transfers overlap.
  bool may_deal = false;
  /// Most stage passes of a plan that can still be simulated; used by least_memory() only.
  std::int64_t most_passes = kMaxStagePasses;

  std::int64_t num_micro_batches() const { return global_batch_size / micro_batch_size; }
  /// Whether a stage on `devices` devices may run in that form: they are whole replicas, and each
  /// has a sample of every micro-batch or, where micro-batches are dealt, a whole one, and is not
  /// the only one.
  bool allows(StageForm form, std::int64_t devices) const {
    const std::int64_t count = devices / form.devices_per_replica;
    if (count * form.devices_per_replica != devices) return false;
    return form.deals ? count > 1 && count <= num_micro_batches() : count <= micro_batch_size;
  }
  /// The number of micro-batches that the busiest of `count` replicas of a stage processes, in part
  /// or whole (L1).
  std::int64_t micro_batches_of(StageForm form, std::int64_t count) const {
    return form.deals ? divide_up(num_micro_batches(), count) : num_micro_batches();
  }
};

/// A plan that is complete but for its warm-up depths.
struct Candidate {
  std::int64_t micro_batch_size = 1;
  GradientSynchronization gradients = {};
  /// The stages, without their gradient buckets.
  std::vector<StagePlan> stages;
  /// Lower bound on the plan's time, whatever its depths.
  Duration bound;
  /// The depths that the search assumed, by stage; empty if it assumed none. They may not fit
  /// memory.
  std::vector<std::int64_t> depths = {};
};

}  // namespace dapple::search
