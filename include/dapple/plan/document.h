// The contents of a plan file, which suffice to simulate, check or run the plan.
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
#include "dapple/plan/runtime.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/profile/model_profile.h"
#include "dapple/profile/parallelism.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// A baseline: a plan that another planner or a rule of thumb would choose for the same model,
/// simulated with the same costs.
struct Baseline {
  std::string name;
  /// shape_of() its plan.
  std::string shape;
  Duration iteration;
  /// The parts of the iteration.
  TimeParts parts;
  bool feasible = true;
  /// The memory missing on the device with the largest shortage, if the baseline is infeasible.
  Bytes missing;
  /// Whether memory keeps some stage from holding as many micro-batches as there are stages from it
  /// to the end, the least number that can keep it busy.
  bool depth_limited = false;
};

/// What no lower bound holds for where layers are not divided and no state is sharded.
inline constexpr std::string_view kOutsideSpace =
    "tensor, sequence and expert parallelism; sharded state";

/// The name of the planner in a plan of which only the schedule was chosen.
inline constexpr std::string_view kReschedulePlanner = "reschedule";

/// A summary of the search.
struct SearchRecord {
  std::string planner;
  /// True only if nothing of the declared space was left out.
  bool complete = false;
  /// The dimensions of the space, in words.
  std::vector<std::string> searched;
  /// What was left out, and why.
  std::vector<std::string> cut;
  /// What was never in the space; empty if read from a file that does not state it.
  std::string outside{kOutsideSpace};
  std::int64_t states = 0;
  /// The number of complete plans; for a rescheduled plan, that of the orders or depths tried.
  std::int64_t candidates = 0;
  std::int64_t simulated = 0;
  /// The number of plans and partial plans that may still be faster; they account for the gap.
  std::int64_t open = 0;
  /// The number of partial plans and bounds in memory at the end, of some 200 bytes each.
  std::int64_t kept = 0;
  /// The iteration of the fastest plan that was found, where the plan is one of those close to it
  /// that vary less (PlanRequest::jitter).
  std::optional<Duration> fastest = {};
};

/// The result of searching one schedule family, if several families were searched.
struct ScheduleRecord {
  ScheduleFamily family = ScheduleFamily::OneFOneB;
  /// The iteration time of the best plan found, if any.
  std::optional<Duration> iteration;
  /// A lower bound on the iteration time of every plan of the family.
  std::optional<Duration> lower_bound;
  /// shape_of() the best plan; empty without one.
  std::string shape;
  /// The memory missing for the plan that comes closest to fitting, if no plan fits.
  Bytes missing;
  /// Why the family is not that of the plan, or how its best plan compares with the plan.
  std::string reason;

  friend bool operator==(const ScheduleRecord&, const ScheduleRecord&) = default;
};

/// The result of searching one form of parallelism, or a set of forms that stages may mix, if
/// several were searched.
struct ParallelismRecord {
  Parallelism parallelism;
  /// The other forms that single stages may have; empty where all stages have one form.
  std::vector<Parallelism> stage_forms = {};
  /// The iteration time of the best plan found, if any.
  std::optional<Duration> iteration;
  /// A lower bound on the iteration time of every plan of this form; nothing if none can fit, or
  /// none was proven.
  std::optional<Duration> lower_bound;
  /// shape_of() the best plan; empty without one.
  std::string shape;
  /// The memory missing for the plan that comes closest to fitting, if no plan fits.
  Bytes missing;
  /// Why the plan is not of this form, or how the best plan of this form compares with the plan.
  std::string reason;

  friend bool operator==(const ParallelismRecord&, const ParallelismRecord&) = default;
};

/// Whether a record is of the part of the space that the plan belongs to: that of its form or,
/// where its stages differ or form groups as no form by itself does, that of the forms of all its
/// stages.
bool is_of(const ParallelismRecord& record, const Plan& plan);

/// What a plan is made from.
struct PlanInputs {
  ModelProfile profile;
  TopologyDescription topology;
};

struct PlanDocument {
  /// The program and its version, such as "dapple-plan 0.1.0".
  std::string tool;
  /// The profile and the topology as the plan's devices are: where these are groups, the figures
  /// of each of their devices (cost/device_groups.h).
  ModelProfile profile;
  TopologyDescription topology;
  /// The profile and the topology that the groups were formed from; absent if there are none.
  std::optional<PlanInputs> ungrouped = {};
  /// What executes the plan; absent if the plan was made for none in particular. The profile and
  /// the topology have what it keeps in memory.
  std::optional<Runtime> runtime = {};
  Plan plan;
  Prediction prediction;
  std::vector<Baseline> baselines;
  /// Absent if no planner chose the plan, or if the file's version does not record the request.
  std::optional<PlanRequest> request = {};
  SearchRecord search;
  /// Empty if only 1F1B or only GPipe was searched.
  std::vector<ScheduleRecord> schedules = {};
  /// Empty if only one form of parallelism was asked for.
  std::vector<ParallelismRecord> parallelisms = {};
  std::vector<std::string> warnings;

  /// Return the profile and the topology that the plan was made from.
  const ModelProfile& original_profile() const { return ungrouped ? ungrouped->profile : profile; }
  const TopologyDescription& original_topology() const {
    return ungrouped ? ungrouped->topology : topology;
  }
};

}  // namespace dapple
