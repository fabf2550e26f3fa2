// The use case: search, simulate the candidates, choose, and write down why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/costs.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/schedule/schedule.h"
#include "dapple/simulate/simulate.h"
#include "dapple/timeline/timeline.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// Told how far the planner is; called from one thread at a time.
class Progress {
 public:
  virtual ~Progress() = default;
  virtual void update(std::int64_t states, std::int64_t candidates, std::int64_t simulated,
                      std::optional<Duration> best) = 0;
};

struct PlannerOptions {
  std::int64_t global_batch_size = 1;
  std::optional<std::int64_t> micro_batch_size;  // all divisors of the global batch if not given
  std::optional<ScheduleFamily> family;  // 1F1B at any depth (GPipe's included) if not given
  Contention contention = Contention::Shared;
  bool ignore_memory = false;  // as if every device had room for everything
  int threads = 2;             // >= 1; the plan does not depend on it
};

/// No plan fits: what comes closest, what it lacks, and what would help.
struct Infeasible {
  std::string device;  // name of the tightest device of the plan that comes closest
  Bytes needed;
  Bytes limit;
  std::string closest_plan;  // its shape in words
  std::string remedy;        // the cheapest that was found to work
  Bytes missing() const { return needed - limit; }
};

/// The fastest feasible plan that the DAPPLE planner finds. Requires: check_compatible() is empty.
/// Deterministic. Throws Error(BadInput) if options contradict each other (a micro-batch size that
/// does not divide the global batch).
std::variant<PlanDocument, Infeasible> make_plan(const ModelProfile& profile,
                                                 const Topology& topology,
                                                 const PlannerOptions& options,
                                                 Progress* progress = nullptr);

/// A plan costed and simulated.
struct Evaluation {
  PlanCost costs;
  Schedule schedule;
  Timeline timeline;
  Prediction prediction;
  std::vector<MemoryShortage> shortages;
};
/// Fills the plan's gradient buckets if it has none. Requires: validate(plan, ...) is empty.
Evaluation evaluate(Plan& plan, const ModelProfile& profile, const Topology& topology,
                    Contention contention);

/// Faults of a plan for its model and topology, each by name: structure, schedule, memory.
std::vector<Violation> check_plan(const Plan& plan, const ModelProfile& profile,
                                  const Topology& topology);

/// What the figures lean on that a reader should know: batch sizes far from a measured one, idle
/// devices, no optimizer time, a single-device time that would not fit.
std::vector<std::string> warnings_about(const Plan& plan, const ModelProfile& profile,
                                        const Topology& topology);

/// Two plans, stage by stage, costed and simulated alike.
struct StageDifference {
  std::optional<StagePlan> first;
  std::optional<StagePlan> second;
  std::optional<StageFigures> first_figures;
  std::optional<StageFigures> second_figures;
};
struct PlanComparison {
  Prediction first;
  Prediction second;
  std::vector<StageDifference> stages;
};
/// What two plans are costed and simulated with; outlives the call.
struct ComparisonGround {
  const ModelProfile& profile;
  const Topology& topology;
  Contention contention = Contention::Shared;
};

/// Requires: both plans valid on that ground.
PlanComparison compare_plans(Plan first, Plan second, const ComparisonGround& ground);

}  // namespace dapple
