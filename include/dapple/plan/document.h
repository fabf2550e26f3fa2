// All that a plan file holds, so that nothing else is needed to simulate, check or run the plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/prediction.h"
#include "dapple/plan/request.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// Another way to train the same model, simulated with the same costs.
struct Baseline {
  std::string name;
  std::string shape;  // shape_of() its plan
  Duration iteration;
  TimeParts parts;  // of the iteration
  bool feasible = true;
  Bytes missing;  // on its tightest device
  /// Memory keeps some stage from holding as many micro-batches as there are stages from it on, the
  /// least that can keep it busy.
  bool depth_limited = false;
};

/// What no plan of ours has, whatever is asked for: no bound speaks of plans that do.
inline constexpr std::string_view kOutsideSpace =
    "tensor, sequence and expert parallelism; sharded state";

/// The planner of a plan whose schedule alone was chosen.
inline constexpr std::string_view kReschedulePlanner = "reschedule";

/// What was searched. `complete` only if nothing of the declared space was left out.
struct SearchRecord {
  std::string planner;
  bool complete = false;
  std::vector<std::string> searched;   // the dimensions, in words
  std::vector<std::string> cut;        // what was left out, and why
  std::string outside{kOutsideSpace};  // what was never in the space; empty in files without it
  std::int64_t states = 0;
  std::int64_t candidates = 0;  // complete plans; of a rescheduled one, orders or depths tried
  std::int64_t simulated = 0;
  std::int64_t open = 0;  // plans and parts of plans that may be faster: the gap lies in them
  std::int64_t kept = 0;  // partial plans and bounds in memory in the end, some 200 bytes each
};

/// What is known of the plans of one schedule family, where several were looked at.
struct ScheduleRecord {
  ScheduleFamily family = ScheduleFamily::OneFOneB;
  std::optional<Duration> iteration;    // of the best plan found, if any
  std::optional<Duration> lower_bound;  // no plan of the family is faster
  std::string shape;                    // shape_of() the best plan; empty without one
  Bytes missing;                        // by the one that comes closest, where nothing fits
  std::string reason;                   // why it is not the plan's family, or by how much it is

  friend bool operator==(const ScheduleRecord&, const ScheduleRecord&) = default;
};

struct PlanDocument {
  std::string tool;  // "dapple-plan 0.1.0"
  ModelProfile profile;
  TopologyDescription topology;
  Plan plan;
  Prediction prediction;
  std::vector<Baseline> baselines;
  /// Nothing where no planner chose the plan, or the file is of a version that did not say.
  std::optional<PlanRequest> request = {};
  SearchRecord search;
  std::vector<ScheduleRecord> schedules = {};  // none where 1F1B or GPipe alone was searched
  std::vector<std::string> warnings;
};

}  // namespace dapple
