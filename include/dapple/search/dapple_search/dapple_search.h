// The DAPPLE planner's dynamic programming over stage partition, replication and placement.
//
// Source: DAPPLE (PPoPP'21) section 4. Departures: 1. it grows plans from the last stage to the
// first and compares partial plans by a lower bound of their pipeline's latency (bound.h), where
// the paper compares whole plans by an estimate around a pivot; 2. it keeps several partial plans
// per state; 3. recomputation is chosen per stage and memory limits the depth; 4. devices may stay
// idle.
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

struct SearchProblem {
  std::int64_t global_batch_size = 1;
  std::int64_t micro_batch_size = 1;  // divides the global batch
  GradientSynchronization gradients = {};
  bool ignore_memory = false;
  bool gpipe = false;             // every stage holds all micro-batches
  bool any_order = false;         // bounds of the exact search hold beyond 1F1B's order
  bool links_are_shared = false;  // boundaries slow each other: bounds may count on it
  // What the bounds of the exact search are of; the DAPPLE search knows stages that act as one.
  Replicas replicas = Replicas::Together;
  Pins pins = {};
  std::int64_t most_passes =
      kMaxStagePasses;  // of a plan that can be simulated; for least_memory()
};

/// How much of the space is looked at.
struct SearchEffort {
  Duration incumbent{INT64_MAX};    // plans that cannot be faster are dropped
  std::int32_t states_per_cut = 1;  // of the most promising (first layer, front placement)
  std::int32_t labels_per_state = 1;
  std::int32_t candidates = 1;     // complete plans to return
  bool all_replica_counts = true;  // or only those that make the largest share smaller
  /// A step for each stage that is costed or tried in front of a partial plan; once the allowance
  /// ends, so does the search, with what it has.
  Allowance::Limits limits = {};
};

/// A complete plan but for its warm-up depths.
struct Candidate {
  std::int64_t micro_batch_size = 1;
  GradientSynchronization gradients = {};
  std::vector<StagePlan> stages;  // without gradient buckets
  Duration bound;                 // no depths make it faster
};

struct SearchOutcome {
  std::vector<Candidate> candidates;  // by rising bound
  std::int64_t states = 0;            // stages tried in front of a partial plan
  std::int64_t narrowed = 0;          // partial plans left behind by the effort's limits
};

/// Deterministic. O(layers^2 * placements^2 * labels) at most, far less with a good incumbent.
SearchOutcome search_dapple(const CostModel& costs, const SearchProblem& problem,
                            const SearchEffort& effort);

}  // namespace dapple::search
