// The DAPPLE planner's dynamic programming over stage partition, replication and placement.
//
// Source: DAPPLE (PPoPP'21) section 4. Departures: 1. plans are built from the last stage to the
// first, and partial plans are compared by a lower bound on the latency of their pipeline
// (bound.h), where the paper compares whole plans by an estimate around a pivot; 2. several partial
// plans are kept per state; 3. recomputation is chosen per stage, and memory limits the depth; 4.
// devices may stay idle.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/cost_model.h"
#include "dapple/plan/pins.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/search/allowance.h"

namespace dapple::search {

/// The problem that the DAPPLE search and the exact search solve.
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
  /// The mode of replicas that the bounds of the exact search hold for. The DAPPLE search always
  /// assumes replicas that start together.
  Replicas replicas = Replicas::Together;
  Pins pins = {};
  /// Most stage passes of a plan that can still be simulated; used by least_memory() only.
  std::int64_t most_passes = kMaxStagePasses;
};

/// How much of the space the DAPPLE search visits.
struct SearchEffort {
  /// Plans whose bound is not below it are dropped.
  Duration incumbent{INT64_MAX};
  /// How many states are expanded per cut, the most promising ones. A state is a first layer and
  /// the placement of the stage that begins there.
  std::int32_t states_per_cut = 1;
  std::int32_t labels_per_state = 1;
  /// The most complete plans to return.
  std::int32_t candidates = 1;
  /// Whether all replica counts are tried, or only those that make the largest share smaller.
  bool all_replica_counts = true;
  /// A step is counted for each stage that is costed or tried in front of a partial plan. When the
  /// allowance ends, the search returns what it has found so far.
  Allowance::Limits limits = {};
};

/// A plan that is complete but for its warm-up depths.
struct Candidate {
  std::int64_t micro_batch_size = 1;
  GradientSynchronization gradients = {};
  /// The stages, without their gradient buckets.
  std::vector<StagePlan> stages;
  /// Lower bound on the plan's time, whatever its depths.
  Duration bound;
};

struct SearchOutcome {
  /// Sorted by rising bound.
  std::vector<Candidate> candidates;
  /// Stages tried in front of a partial plan.
  std::int64_t states = 0;
  /// Partial and complete plans dropped because of the limits of the effort.
  std::int64_t narrowed = 0;
};

/// Searches for the plans with the least bounds. Deterministic. At most
/// O(layers^2 * placements^2 * labels), and far less with a good incumbent.
SearchOutcome search_dapple(const CostModel& costs, const SearchProblem& problem,
                            const SearchEffort& effort);

}  // namespace dapple::search
