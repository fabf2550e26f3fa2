// The use case: search, simulate the candidates, choose, and write down why.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/memory.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/plan/document.h"
#include "dapple/plan/pins.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/prediction.h"
#include "dapple/plan/request.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/planner/request/baselines.h"
#include "dapple/profile/model_profile.h"
#include "dapple/schedule/schedule.h"
#include "dapple/simulate/simulate.h"
#include "dapple/timeline/timeline.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

/// How far a search is.
struct SearchProgress {
  std::int64_t states = 0;
  std::int64_t candidates = 0;
  std::int64_t simulated = 0;
  std::optional<Duration> best;   // simulated iteration of the best plan so far
  std::optional<Duration> bound;  // no plan is faster; nothing is proven yet where it is missing
};

/// Told how far the planner is, and asked whether it shall go on; called from one thread at a time.
class Progress {
 public:
  virtual ~Progress() = default;
  virtual void update(const SearchProgress& progress) = 0;
  /// Asked at short intervals. Once true, the planner ends with the best plan so far and the bound
  /// proven by then.
  virtual bool should_stop() { return false; }
  /// Asked instead in the first of two parts of a search: true also where the other one shall have
  /// what time is left.
  virtual bool should_end_first_part() { return should_stop(); }
};

struct PlannerOptions {
  std::int64_t global_batch_size = 1;
  std::optional<std::int64_t> micro_batch_size =
      {};  // all divisors of the global batch if not given
  std::optional<Bytes> bucket_size = kDefaultBucketSize;  // of gradients; several if not given
  OptimizerTiming optimizer = OptimizerTiming::AtEnd;
  std::optional<ScheduleFamily> family = {};  // 1F1B at any depth (GPipe's included) if not given
  bool every_family = false;                  // all of them but Given; `family` is not given then
  Contention contention = Contention::Shared;
  Replicas replicas = Replicas::Together;
  bool ignore_memory = false;  // as if every device had room for everything
  /// What the planner keeps at a time, counted by the sizes of its elements, so that the plan is
  /// the same on any machine. What a search has no room for stays open, and plans that are too long
  /// to be simulated within it are not made.
  Bytes memory_limit = kDefaultMemoryLimit;
  int threads = 2;  // >= 1; the plan does not depend on it
  PlannerKind planner = PlannerKind::Exact;
  Factor target_gap = {};  // the exact search ends once the proven gap is no larger
  Pins pins = {};
  bool baselines = true;  // compare with them, and never end up with a slower plan

  SimulationMode mode() const { return {contention, replicas}; }
};

/// The request that the plan's file records for these options.
PlanRequest request_of(const PlannerOptions& options);

/// The options that were asked for, for a plan of that global batch; as many threads as by default.
PlannerOptions options_of(const PlanRequest& request, std::int64_t global_batch_size);

/// No plan fits: what comes closest, what it lacks, and what would help.
struct Infeasible {
  bool stopped = false;           // told to stop before it was known: nothing below is filled
  bool is_certain = true;         // that there is none, and not only that none was found
  std::vector<std::string> pins;  // what was pinned, as texts
  std::string conflict;  // why no plan is as pinned, whatever memory there is; then no closest plan
  std::string device;    // name of the tightest device of the plan that comes closest
  Bytes needed;
  Bytes limit;
  std::string closest_plan;  // its shape in words
  std::string remedy;        // the cheapest that was found to work
  Bytes missing() const { return needed - limit; }
};

/// A plan costed and simulated.
struct Evaluation {
  PlanCost costs;
  Schedule schedule;
  Timeline timeline;
  Prediction prediction;
  /// The iteration if replicas were treated the other way; nothing where there is no other or it
  /// would take too long.
  std::optional<Duration> otherwise;
  std::vector<MemoryShortage> shortages;
};
/// Fills the plan's gradient buckets if it has none. Calls `beside` once, and rethrows what it
/// throws: where the plan is long, on a second thread beside the simulation. Requires:
/// validate(plan, ...) is empty.
Evaluation evaluate(Plan& plan, const ModelProfile& profile, const Topology& topology,
                    SimulationMode mode, const std::function<void()>& beside = {});

/// (iteration - lower_bound) / iteration. Requires: 0 <= lower_bound <= iteration.
double optimality_gap(Duration iteration, Duration lower_bound);

/// Plans that take no less need not be looked for, as one of that iteration is within the gap that
/// is allowed. Requires: gap below 1.
Duration gap_threshold(Duration iteration, Factor gap);

/// What planning ends with.
struct MadePlan {
  PlanDocument document;
  Evaluation evaluation;                // of the document's plan
  std::vector<BaselinePlan> baselines;  // of the document's baselines, in their order
  /// A stop came before all baselines were chosen, and the gap that was asked for, above zero, was
  /// proven nevertheless: the stop shows in the last baseline, which is left out.
  bool lacks_baselines = false;
};

/// The fastest feasible plan that the planner finds, no slower than any feasible baseline.
/// Requires: check_compatible() is empty. Deterministic, unless stopped. Throws Error(BadInput) if
/// options contradict each other (a micro-batch size that does not divide the global batch).
std::variant<MadePlan, Infeasible> make_plan(const ModelProfile& profile, const Topology& topology,
                                             const PlannerOptions& options,
                                             Progress* progress = nullptr);

/// Whether no plan is faster than this one by more than the gap that was asked for. Requires: the
/// document has a request.
bool has_reached_gap(const PlanDocument& document);

/// Whether nothing is left to be proven that was asked for, so that a stop that came later has
/// changed nothing: the gap is closed, or, of one family without a target, the one that was asked
/// for is reached. Requires: the document has a request.
bool is_search_done(const PlanDocument& document);

/// Faults of a plan for its model and topology, each by name: structure, schedule, memory.
std::vector<Violation> check_plan(const Plan& plan, const ModelProfile& profile,
                                  const Topology& topology);

/// What the figures lean on that a reader should know: batch sizes far from a measured one, idle
/// devices, and why they are, no optimizer time, a single-device time that would not fit.
std::vector<std::string> warnings_about(const Plan& plan, const ModelProfile& profile,
                                        const Topology& topology, std::string_view why_idle);

/// Warns of doubtful figures in the profile (profile/doubts.h), of a speedup above the number of
/// the plan's devices, and of GPUs without reserved memory, with the free memory of the fullest
/// one; then of what the function above warns of. Requires: the document's prediction is that of
/// its plan.
std::vector<std::string> warnings_about(const PlanDocument& document, const Topology& topology);

/// All that the file of a plan warns of: what was said of its inputs, warnings_about() the
/// document, how it was asked for, and what ended the search before the gap was closed. Requires:
/// the document has a request.
std::vector<std::string> warnings_of(const PlanDocument& document, const Topology& topology);

/// Two plans costed and simulated alike.
struct PlanComparison {
  Prediction first;
  Prediction second;
};
/// What two plans are costed and simulated with; outlives the call.
struct ComparisonGround {
  const ModelProfile& profile;
  const Topology& topology;
  SimulationMode mode = {};
};

/// Requires: both plans valid on that ground.
PlanComparison compare_plans(Plan first, Plan second, const ComparisonGround& ground);

}  // namespace dapple::planner
