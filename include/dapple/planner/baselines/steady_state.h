// Simulates a plan without flushes: PipeDream's asynchronous 1F1B in its steady state, for
// comparison with the synchronous iteration. The effect of stale weights on convergence is not
// modelled.
//
// Micro-batches follow each other without end. Each stage reduces its gradients and takes an
// optimizer step after each backward, and it keeps the weights that a micro-batch in flight started
// with until the backward of that micro-batch is done. The order is 1F1B at the plan's depths,
// continued without a flush: the schedule of the first N micro-batches is generated, validated and
// simulated like that of any plan with N micro-batches, with the update as a part of each backward.
//
// The steady state is exact, not an average over a long run. The start of an action depends only on
// what happened up to D micro-batches before, where D follows from the largest depth and the turns
// of dealt replicas. If D consecutive micro-batches start, on every lane, P later than the
// micro-batches c before them, then so do all later ones, and P is the time of c micro-batches.
// Without contention no other state is carried over; with contention, the flows under way at any
// moment were also started within these micro-batches.
//
// Source: PipeDream (SOSP'19) section 3.2 (1F1B, weight stashing) and 3.3 (replicas in turn).
// Departures: 1. a stage sends its gradients back once its weights are updated; 2. a reduction is
// not slowed down by transfers, and only the part that the backward does not hide counts; 3. each
// dealt replica updates after its own backward, without waiting for the others; 4. each stage has
// the plan's warm-up depth, where PipeDream uses one depth for all.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/memory.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

struct SteadyState {
  /// The time that `micro_batches` micro-batches take.
  Duration period;
  std::int64_t micro_batches = 1;
  /// The largest number of weight versions held at once, per stage: one for each micro-batch in
  /// flight.
  std::vector<std::int64_t> weight_versions;
  /// The peak memory per stage, on the replica that needs the most, weight versions included.
  std::vector<Bytes> peak_memory;
  std::vector<MemoryShortage> shortages;  // worst first
};

/// Returns the time of `count` micro-batches in the steady state, rounded up to a whole nanosecond.
/// O(1).
Duration time_of(const SteadyState& steady, std::int64_t count);

/// Computes the steady state of a plan; returns nothing where none is reached within a fixed number
/// of micro-batches. Requires: a sound plan of the family 1F1B. O(actions simulated).
std::optional<SteadyState> steady_state(const Plan& plan, const ModelProfile& profile,
                                        const Topology& topology, Contention contention);

}  // namespace dapple::planner
