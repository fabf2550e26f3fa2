// A plan run for real on threads, one per device, with sleeping for computing: its messages have
// their real sizes and share links that let them pass no faster than the topology's.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/plan.h"
#include "dapple/timeline/timeline.h"
#include "dapple/topology/topology.h"

namespace dapple {

struct ReplayOptions {
  std::int64_t iterations = 10;
  Factor pace = kOne;  // how many times longer everything takes than the plan says
  bool paces_links = true;
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // of every wait for another device
};

/// Times are those of the plan: what was measured, divided by the pace.
struct Replayed {
  std::vector<Duration> iterations;  // as they were measured, in their order
  Duration median;                   // of them, the lower one of two
  Timeline timeline;                 // of that iteration, a lane for each device
  Bytes sent;                        // per iteration, by all devices together
};

/// Requires: check_plan() finds no fault but memory. Throws Error(Environment) naming device and
/// action where a message does not come in time.
Replayed replay(const PlanDocument& document, const Topology& topology,
                const ReplayOptions& options);

}  // namespace dapple
