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
#include "dapple/search/allowance.h"
#include "dapple/search/search_problem.h"

namespace dapple::search {

/// How much of the space the DAPPLE search visits.
struct SearchEffort {
  /// Plans whose bound is not below it are dropped.
  Duration incumbent = Duration::infinite();
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
