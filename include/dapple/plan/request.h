// What was asked of the planner, as a plan file records it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/pins.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple {

enum class PlannerKind {
  Exact,   // proves how far the plan is from the best
  Dapple,  // the DAPPLE planner alone: proves nothing
};

/// "exact", "dapple".
std::string_view to_string(PlannerKind planner);

/// What a search may keep in memory, counted by the sizes of what it keeps.
inline constexpr Bytes kDefaultMemoryLimit{std::int64_t{2} << 30};

/// What ended a search before it was done.
enum class StopReason { None, TimeLimit, Signal };

/// What was asked of the planner, defaults included: every option that shaped the space of plans,
/// the proof, or what the plan was compared with. With the profile, the topology and the global
/// batch size it determines the plan file, unless the search was stopped.
struct PlanRequest {
  PlannerKind planner = PlannerKind::Exact;
  std::optional<ScheduleFamily> family = ScheduleFamily::OneFOneB;  // every family if not given
  std::optional<std::int64_t> micro_batch_size;  // all divisors of the global batch if not given
  std::optional<Bytes> bucket_size = kDefaultBucketSize;  // of gradients; several if not given
  OptimizerTiming optimizer = OptimizerTiming::AtEnd;
  SimulationMode mode = {};
  bool ignore_memory = false;                // as if every device had room for everything
  Bytes memory_limit = kDefaultMemoryLimit;  // of the planner itself
  Factor target_gap = {};                    // the search may end once the proven gap is no larger
  Pins pins = {};
  std::string target;     // the runtime that has to express the plan, as --for names it, or empty
  bool baselines = true;  // compared with them
  StopReason stopped_by = StopReason::None;
  std::optional<Duration> time_limit = {};       // where that is what stopped the search
  std::vector<std::string> input_warnings = {};  // about the files that were read

  friend bool operator==(const PlanRequest&, const PlanRequest&) = default;
};

}  // namespace dapple
