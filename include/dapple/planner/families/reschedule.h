// Puts the devices and micro-batches of a plan under another schedule family, and fills in what the
// family needs: stages, depths or an order. Orders that depend on costs come from schedule_search/,
// with a lower bound.
//
// Sources: Zero Bubble Pipeline Parallelism (ICLR'24) for H1, H2 and V; Megatron-LM (SC'21) for
// interleaving; Lamy-Poirier (MLSys'23) for breadth-first.
// Departure: H1 and H2 are limits on the micro-batches in flight on any stage (H1: as many as
// stages, as on the first stage under 1F1B; H2: twice that less one), and V is a limit on memory
// (that of 1F1B). Any order within these limits may be found, where the papers fix some of it by
// hand.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/memory.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/request.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

/// Whether reschedule() searches the orders of the family, because they depend on costs.
inline bool searches_order(ScheduleFamily family) {
  return carries_order(family) && family != ScheduleFamily::Given;
}

struct Reschedule {
  ScheduleFamily family = ScheduleFamily::OneFOneB;
  /// The stages per device in the looped families; two under V, one under all others.
  std::int64_t chunks_per_device = 1;
  /// The order of the family Given, per group of devices.
  std::vector<std::vector<Action>> order = {};
  Contention contention = Contention::Shared;
  Replicas replicas = Replicas::Together;
  /// The orders to try where the order is searched; if not given 20,000, or fewer where an order
  /// has many tasks. More never make the result worse: reschedule() runs a search with every number
  /// of orders that is no more than this and is the default number multiplied or divided by a power
  /// of four, and keeps the best order. reorder() searches once.
  std::optional<std::int64_t> evaluations = {};
  /// The memory limit of what the search and the simulations keep.
  Bytes memory_limit = kDefaultMemoryLimit;
  /// Polled between simulations; the search never stops early without it.
  std::function<bool()> should_stop = nullptr;
};

/// The work done to find an order or warm-up depths.
struct OrderEffort {
  /// Orders built or changed, or plans tried at other depths.
  std::int64_t tried = 0;
  /// Simulations: of the best of these orders, or of all these plans.
  std::int64_t simulated = 0;

  friend OrderEffort operator+(const OrderEffort& a, const OrderEffort& b) {
    return {.tried = a.tried + b.tried, .simulated = a.simulated + b.simulated};
  }
};

struct Rescheduled {
  Plan plan;
  Evaluation evaluation;
  /// Lower bound on the iteration of every order of these stages within the limits that the family
  /// and the memory set on what is in flight; only where the order was searched.
  std::optional<Duration> lower_bound;
  /// Whether should_stop() ended the search early, so that another run may give another plan.
  bool is_stopped = false;
  OrderEffort effort;
};

// The reasons for which a plan cannot run under a schedule.

/// The plan would not be sound; the faults after the first mostly follow from it.
struct PlanFaults {
  std::vector<Violation> faults;
};
/// The family needs a layer for each of its stages.
struct TooFewLayers {
  std::int64_t stages = 1;
  std::int64_t layers = 1;
};
/// The plan has more stage passes than can be simulated within the memory limit.
struct TooLongToSimulate {
  std::int64_t micro_batches = 1;
  std::int64_t stages = 1;
  std::int64_t passes = 1;
  std::int64_t most_passes = 1;
  Bytes memory_limit;
};
/// Its orders have more tasks than can be searched within the memory limit.
struct TooLongToSearch {
  std::int64_t tasks = 1;
  std::int64_t most_tasks = 1;
  Bytes memory_limit;
};
/// A stage deals its micro-batches, which the family does not.
struct DealsMicroBatches {};
/// Not even one micro-batch in flight on every stage fits into memory.
struct NoDepthsFit {};
/// No order fits into memory, not even one micro-batch after the other.
struct NoOrderFits {};
/// The plan under the schedule, whose order leaves no choice, does not fit into memory.
struct DoesNotFit {};
using Refusal = std::variant<PlanFaults, TooFewLayers, TooLongToSimulate, TooLongToSearch,
                             DealsMicroBatches, NoDepthsFit, NoOrderFits, DoesNotFit>;

/// Why a plan cannot run under a schedule.
struct NoSchedule {
  Refusal reason;
  /// Where memory is the reason: the largest shortage of any device, in the order that needs the
  /// least memory.
  std::optional<MemoryShortage> shortage = {};
};

/// Puts the plan's groups of devices under another schedule.
///
/// The stages stay as they are for a given order, which is an order of the plan's own stages, and
/// where every group of devices keeps its number of stages in the places that the family has for
/// them. Otherwise the layers are split anew, so that the slowest stage is as fast as possible.
///
/// Where the family leaves warm-up depths open, the result has the best ones found; they are no
/// worse than those of the given plan, where these are depths of the family and fit, and are kept
/// if no others are faster. Where the family carries its order, the result has the best order found
/// by simulation, no worse than that of the given plan, where it is an order of the family and
/// fits.
///
/// Deterministic, unless stopped. The work on orders is at most 2 * 10^9 tasks times devices, or
/// four orders. Requires: check_plan(plan, ...) finds no violations but missing memory.
std::variant<Rescheduled, NoSchedule> reschedule(const Plan& plan, const ModelProfile& profile,
                                                 const Topology& topology,
                                                 const Reschedule& options);

}  // namespace dapple::planner
