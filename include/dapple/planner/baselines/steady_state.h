// A plan without flushes: PipeDream's asynchronous 1F1B in its steady state, for comparison with
// the synchronous iteration. What training makes of the older weights that it works with is
// another question.
//
// Micro-batches follow each other without end; each stage reduces its gradients and takes an
// optimizer step behind each backward, and keeps the weights that a micro-batch in flight began
// with until its backward is done. The order is that of 1F1B at the plan's depths, which without a
// flush only has no end: the first N micro-batches are what the one generator makes for N, the one
// validator checks, and the one simulator runs, with the update as a part of each backward.
//
// The steady state is exact, not an average over a long run. What starts depends on what happened
// up to D micro-batches before, where D is the largest depth and what its replicas do in turn; if D
// micro-batches in a row are P later than those c before them, on every lane, so are all that
// follow. P is then the time of c micro-batches. Without contention nothing else is carried over;
// with contention, flows that are under way are set going within these micro-batches too.
//
// Source: PipeDream (SOSP'19) section 3.2 (1F1B, weight stashing) and 3.3 (replicas in turn).
// Departures: 1. gradients leave a stage when its weights are updated; 2. a reduction is not slowed
// by transfers, and only what sticks out of the backward counts; 3. dealt replicas update when each
// has done its own, without waiting for the others; 4. depths are the plan's, where PipeDream has
// one for all.
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
  Duration period;  // of so many micro-batches:
  std::int64_t micro_batches = 1;
  std::vector<std::int64_t> weight_versions;  // per stage, most at once: one for each in flight
  std::vector<Bytes> peak_memory;         // per stage, of its neediest replica, versions included
  std::vector<MemoryShortage> shortages;  // worst first
};

/// `count` micro-batches in the steady state, rounded up to a whole nanosecond. O(1).
Duration time_of(const SteadyState& steady, std::int64_t count);

/// Nothing where no steady state shows within a fixed number of micro-batches. Requires: a sound
/// plan of the family 1F1B. O(actions simulated).
std::optional<SteadyState> steady_state(const Plan& plan, const ModelProfile& profile,
                                        const Topology& topology, Contention contention);

}  // namespace dapple::planner
