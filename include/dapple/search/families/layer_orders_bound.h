// Lower bound on every plan over every topological order of the layers of a graph. The stages of
// such a plan are the differences of nested down-sets (profile/down_sets.h), whatever the order
// that the profile has. The equations are (G1)-(G5) of docs/bounds.md.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/cost_model.h"
#include "dapple/profile/down_sets.h"
#include "dapple/search/allowance.h"

namespace dapple::search {

struct LayerOrdersProblem {
  std::int64_t global_batch_size = 1;
  /// Divisors of the global batch size, at least one.
  std::vector<std::int64_t> micro_batch_sizes;
  OptimizerTiming optimizer = OptimizerTiming::AtEnd;
  /// Whether transfers over different boundaries share links.
  bool links_are_shared = true;
  /// A step is counted for each stage that is put behind a partial plan, and for each pair of
  /// nested down-sets. Sizes of micro-batches have the steps that those before them leave.
  Allowance::Limits limits = {};
};

struct LayerOrdersBound {
  Duration bound;
  /// Whether some micro-batch size was bounded by the work alone, as the allowance ended.
  bool is_of_work = false;
};

/// Returns the down-sets of a profile's layers, or nothing if there are too many to list.
std::optional<DownSets> down_sets_of(const ModelProfile& profile);

/// Returns a lower bound on plans over all orders of the layers with one stage per device and
/// unsplit backwards, in whatever order computations run, whose replicas start together; or `most`
/// if none of them is below `most`. Memory is not counted, and pins are not. If some are below, the
/// bound is at most 1/65,536 of `most` below the largest one that the equations prove.
/// Requires: `sets` are those of the model's layers; stages have one form of parallelism; most > 0.
LayerOrdersBound bound_of_layer_orders(const CostModel& costs, const DownSets& sets,
                                       const LayerOrdersProblem& problem, Duration most);

}  // namespace dapple::search
