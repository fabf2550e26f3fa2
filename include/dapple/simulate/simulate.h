// Executes a schedule with costs, event by event, and says what happens when.
//
// Streams of a lane are first in, first out; sends are eager and take no compute time. A lane
// starts a micro-batch, or its share of it, when the last that it needs of its input has arrived,
// takes as long as its slowest device, and sends what it makes when that has it. So replicas on one
// lane act as one machine, and replicas on lanes of their own (generate() with
// Replicas::Independent) meet where transfers do, and at all-reduces: a bucket is reduced when
// every replica has it. Without contention a port carries what it has of a transfer in one piece,
// from when all that send through it have made their parts, and who waits for some of that waits
// for all of it: where nothing is dealt or slowed down, no lane on its own does anything later than
// together. An all-reduce goes through its phases round by round, and between rounds its links are
// free for others. All computation takes whole nanoseconds; links keep remainders in ticks
// (core/quantity.h) and an arrival is rounded up to a whole nanosecond. What ends at equal times is
// served in the order in which it was set going, the lower lane first at the start, so a run is
// reproducible.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "dapple/cost/plan_cost.h"
#include "dapple/schedule/schedule.h"
#include "dapple/timeline/timeline.h"
#include "dapple/topology/topology.h"

namespace dapple::simulate {

struct SimulationOptions {
  Contention contention = Contention::Shared;
  bool record = true;           // keep the timeline, not only the end
  bool free_transfers = false;  // transfers take no time (to see what is exposed)
  bool free_all_reduce = false;
  std::function<bool()> should_stop = {};  // asked every kEventsBetweenQuestions events
  static constexpr std::int64_t kEventsBetweenQuestions = 4096;
};

struct SimulationResult {
  Duration iteration;       // INT64_MAX where it was told to stop
  std::int64_t events = 0;  // exact work counter
  Timeline timeline;        // empty unless recorded
};

/// Requires: validate(schedule, plan) is empty and `costs` are those of the same plan; a schedule
/// that deadlocks throws Bug. O(actions log lanes) where no port is shared.
SimulationResult simulate(const Schedule& schedule, const PlanCost& costs, const Topology& topology,
                          const SimulationOptions& options = {});

}  // namespace dapple::simulate
