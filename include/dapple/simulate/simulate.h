// Simulates a schedule with costs, event by event, and returns when each action happens
// (docs/model.md, section 10).
//
// The streams of a lane are first in, first out; sends are eager and take no compute time, unless
// transfers block (section 10.12). A lane starts a micro-batch, or its share of it, when the last
// part of the input that it needs has arrived, takes as long as its slowest device, and sends its
// output when it is complete. Replicas on one lane thus act as one machine. Independent replicas
// (generate() with Replicas::Independent) have a lane each and synchronize only through transfers
// and all-reduces: a bucket is reduced when every replica has it. Without contention a port carries
// all of its share of a transfer in one piece, from when all senders through it have made their
// parts, and a receiver that waits for some of that piece waits for all of it; hence, unless micro-
// batches are dealt or computation is slowed down, no independent replica does anything later than
// replicas together would. An all-reduce runs its phases round by round, and between rounds its
// links are free for other flows. The collectives of layers within a computation are part of its
// time or, with Contention::SharedWithCollectives, flows as well, which follow what is computed up
// to a milestone or the end; those that gather or scatter sharded state run beside that. All
// computation takes whole nanoseconds; links keep remainders in ticks (core/quantity.h), and an
// arrival is rounded up to a whole nanosecond. Events at equal times are processed in the order in
// which they were scheduled, at the start by ascending lane, so a run is reproducible.
#pragma once

#include <cstdint>
#include <functional>

#include "dapple/cost/plan_cost.h"
#include "dapple/schedule/schedule.h"
#include "dapple/timeline/timeline.h"
#include "dapple/topology/topology.h"

namespace dapple::simulate {

struct SimulationOptions {
  Contention contention = Contention::Shared;
  /// Without transfers, as with `free_transfers`, nothing blocks.
  Transfers transfers = Transfers::Overlapped;
  /// Whether the timeline is recorded, not only the iteration.
  bool record = true;
  /// Whether transfers or reductions take no time, to see how much of them is exposed.
  bool free_transfers = false;
  bool free_all_reduce = false;
  /// The simulation ends once what some lane has still to compute shows that the iteration takes
  /// so long or longer. It then returns a lower bound of that at least. Only without `record`.
  Duration enough = Duration::infinite();
  /// Called every kEventsBetweenPolls events; the simulation stops if it returns true.
  std::function<bool()> should_stop = {};
  static constexpr std::int64_t kEventsBetweenPolls = 4096;
};

struct SimulationResult {
  /// The simulated iteration; infinite if `should_stop` ended the simulation, and a lower bound if
  /// `enough` did.
  Duration iteration;
  /// The number of events, a deterministic measure of the work.
  std::int64_t events = 0;
  /// Empty unless recorded.
  Timeline timeline;
};

/// Simulates one iteration. Requires: validate(schedule, plan) is empty and `costs` are those of
/// the same plan; where transfers block, mode_faults() of the plan is empty (plan/runtime.h).
/// Throws Bug for a schedule that deadlocks. O(actions log lanes) if no port is shared.
SimulationResult simulate(const Schedule& schedule, const PlanCost& costs, const Topology& topology,
                          const SimulationOptions& options = {});

}  // namespace dapple::simulate
