// The parts into which the space of plans is divided by their forms of parallelism.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dapple/plan/document.h"
#include "dapple/plan/record_text.h"
#include "dapple/planner/candidates/plan_pool.h"
#include "dapple/planner/parallelism/asked_parallelisms.h"

namespace dapple::planner {

/// One part of the space: the plans of one form of parallelism, or with any of several forms in
/// each stage.
struct SpacePart {
  Parallelism parallelism;
  std::vector<Parallelism> stage_forms;
  const PlanInputs* inputs;
  Topology topology;
  /// The first plan that was found and its iteration, infinite without one.
  Plan first_plan = {};
  Duration first = Duration::infinite();
  bool is_first_of_one_kind = false;
  /// Whether it is known that no plan of the part fits.
  bool is_settled = false;
  /// Lower bound on every plan of the part; nothing while none is proven.
  std::optional<Duration> lower_bound = {};
  /// The best plan, where one was found.
  std::optional<Duration> iteration = {};
  std::string shape = {};
  Bytes missing = {};
  /// The records of schedule families, where several or one beyond 1F1B were asked for.
  std::vector<ScheduleRecord> schedules = {};
  ParallelismOutcomeKind outcome = ParallelismOutcomeKind::Stopped;
  bool is_complete = false;
  bool is_searched = false;
  std::int64_t open = 0;
  /// The plans of the part that were simulated, where these are to be kept.
  std::unique_ptr<PlanPool> pool = nullptr;

  bool is_mixed() const { return !stage_forms.empty(); }
};

/// Whether every plan of a part with one form is one of a mixed part, too.
inline bool covers(const SpacePart& mixed, const SpacePart& part) {
  return !part.is_mixed() &&
         are_plans_of_set(part.parallelism, mixed.parallelism, mixed.stage_forms);
}

}  // namespace dapple::planner
