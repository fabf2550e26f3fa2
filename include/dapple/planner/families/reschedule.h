// Another schedule for the devices and micro-batches of a plan: any family, with what it asks for
// filled in. Orders that depend on costs come from schedule_search/, with a bound.
//
// Sources: Zero Bubble Pipeline Parallelism (ICLR'24) for H1, H2 and V; Megatron-LM (SC'21) for
// interleaving; Lamy-Poirier (MLSys'23) for breadth-first.
// Departure: H1 and H2 are limits on what is in flight on any stage (as 1F1B on its first stage, so
// as many micro-batches as stages; twice that less one), V on the memory of 1F1B, under which any
// order may be found; the papers fix some of it by hand.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "dapple/cost/memory.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/request.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/planner/request/planner.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

/// Whether reschedule() searches the orders of the family, which follow from costs.
inline bool searches_order(ScheduleFamily family) {
  return carries_order(family) && family != ScheduleFamily::Given;
}

struct Reschedule {
  ScheduleFamily family = ScheduleFamily::OneFOneB;
  std::int64_t chunks_per_device = 1;  // of the looped families; a V has two, the others one
  std::vector<std::vector<Action>> order = {};  // of the family Given: per group of devices
  Contention contention = Contention::Shared;
  Replicas replicas = Replicas::Together;
  /// Orders tried where costs decide; nothing: 20,000, fewer where each of them takes long. More
  /// are never worse: reschedule() searches with every number that is no more than this and is the
  /// usual one times or by a power of four, and keeps the best order; reorder() searches once.
  std::optional<std::int64_t> evaluations = {};
  Bytes memory_limit = kDefaultMemoryLimit;     // of what the search and the simulations keep
  std::function<bool()> should_stop = nullptr;  // asked between simulations; nothing: never
};

/// What was looked at to find an order or warm-up depths.
struct OrderEffort {
  std::int64_t tried = 0;      // orders built or changed, or plans of other depths
  std::int64_t simulated = 0;  // the best of these orders, or all of these plans

  friend OrderEffort operator+(const OrderEffort& a, const OrderEffort& b) {
    return {.tried = a.tried + b.tried, .simulated = a.simulated + b.simulated};
  }
};

struct Rescheduled {
  Plan plan;
  Evaluation evaluation;
  /// No order of these stages, with no more in flight than the family and the memory allow, has a
  /// shorter iteration. Only where the order was searched.
  std::optional<Duration> lower_bound;
  /// should_stop() ended the search before it was through: another time the plan may differ.
  bool is_stopped = false;
  OrderEffort effort;
};

/// The warning in a plan whose search of orders was ended early, by a time limit or a signal.
std::string stop_warning(StopReason reason);

/// Why a plan cannot run under a schedule.
struct NoSchedule {
  std::vector<std::string> reasons;
  /// Where memory is the reason: of the device that lacks most, in the order that needs the least.
  std::optional<MemoryShortage> shortage = {};
  /// The plan has more micro-batches on more stages than can be searched within the memory limit.
  bool is_too_long = false;
};

/// The plan's groups of devices under another schedule. Its stages stay as they are if each group
/// keeps as many as it has, in the places that the family has for them, and for a given order,
/// which is one of the plan's own stages; else layers are cut anew, so that the slowest stage is as
/// fast as can be. Warm-up depths are the best found where the family has a choice, no worse than
/// the given plan's own where these are depths of the family and fit, and its own where no others
/// are faster. Where the family carries its order, that is the best found by simulation, no worse
/// than the given plan's own where that is an order of the family and fits. Deterministic, unless
/// stopped. The work on orders is at most 2 * 10^9 tasks times devices, or four orders. Requires:
/// check_plan(plan, ...) finds at most missing memory.
std::variant<Rescheduled, NoSchedule> reschedule(const Plan& plan, const ModelProfile& profile,
                                                 const Topology& topology,
                                                 const Reschedule& options);

}  // namespace dapple::planner
