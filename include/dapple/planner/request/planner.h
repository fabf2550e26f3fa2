// The interface of the planner: options, progress, and the making, evaluation, checking and
// comparison of plans.
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

/// The state of a running search.
struct SearchProgress {
  std::int64_t states = 0;
  std::int64_t candidates = 0;
  std::int64_t simulated = 0;
  /// The simulated iteration of the best plan so far.
  std::optional<Duration> best;
  /// Lower bound on the iteration of every plan; missing while nothing is proven.
  std::optional<Duration> bound;
};

/// Receives the progress of the planner, and tells it when to stop. Called from one thread at a
/// time.
class Progress {
 public:
  virtual ~Progress() = default;
  virtual void update(const SearchProgress& progress) = 0;
  /// Polled at short intervals. Once it returns true, the planner ends with the best plan so far
  /// and the bound proven by then.
  virtual bool should_stop() { return false; }
  /// Polled in place of should_stop() during the first of two parts of a search. It may return true
  /// earlier, to leave the remaining time to the second part.
  virtual bool should_end_first_part() { return should_stop(); }
};

struct PlannerOptions {
  std::int64_t global_batch_size = 1;
  /// If not given, all divisors of the global batch are tried.
  std::optional<std::int64_t> micro_batch_size = {};
  /// The size of gradient buckets; if not given, several are tried.
  std::optional<Bytes> bucket_size = kDefaultBucketSize;
  OptimizerTiming optimizer = OptimizerTiming::AtEnd;
  /// If not given, 1F1B at any depths, which includes GPipe.
  std::optional<ScheduleFamily> family = {};
  /// Whether all families but Given are tried; requires that `family` is not given.
  bool every_family = false;
  Contention contention = Contention::Shared;
  Replicas replicas = Replicas::Together;
  /// Whether to plan as if every device had unlimited memory.
  bool ignore_memory = false;
  /// The limit on what the planner keeps at a time, counted by the sizes of its elements, so that
  /// the plan is the same on any machine. What a search has no room for stays open, and plans that
  /// are too long to be simulated within the limit are not made.
  Bytes memory_limit = kDefaultMemoryLimit;
  int threads = 2;  // >= 1; the plan does not depend on it
  PlannerKind planner = PlannerKind::Exact;
  /// The exact search ends once the proven gap is no larger than this.
  Factor target_gap = {};
  Pins pins = {};
  /// Whether to compare with baselines, and never to return a slower plan than the best of them.
  bool baselines = true;

  SimulationMode mode() const { return {contention, replicas}; }
};

/// Returns the request that the plan's file records for these options.
PlanRequest request_of(const PlannerOptions& options);

/// Returns the options of a request, for a plan with this global batch, with the default number of
/// threads.
PlannerOptions options_of(const PlanRequest& request, std::int64_t global_batch_size);

/// The result where no plan fits: what comes closest, what it lacks, and what would help.
struct Infeasible {
  /// Whether the search was stopped before this was known; then nothing below is filled in.
  bool stopped = false;
  /// Whether it is proven that no plan fits, and not only that none was found.
  bool is_certain = true;
  /// The pins, as texts.
  std::vector<std::string> pins;
  /// Why no plan satisfies the pins, whatever memory there is; then there is no closest plan.
  std::string conflict;
  /// The name of the tightest device of the closest plan.
  std::string device;
  Bytes needed;
  Bytes limit;
  /// The shape of the closest plan in words.
  std::string closest_plan;
  /// The cheapest remedy that was found to work.
  std::string remedy;
  Bytes missing() const { return needed - limit; }
};

/// A plan with its costs and its simulation.
struct Evaluation {
  PlanCost costs;
  Schedule schedule;
  Timeline timeline;
  Prediction prediction;
  /// The iteration in the other mode for replicas (together or independent); nothing where the mode
  /// makes no difference or the simulation would take too long.
  std::optional<Duration> otherwise;
  std::vector<MemoryShortage> shortages;
};
/// Computes the costs of a plan and simulates it. Fills in the plan's gradient buckets if it has
/// none. Calls `beside` once and rethrows what it throws; where the plan is long, the call is made
/// on a second thread, beside the simulation. Requires: validate(plan, ...) is empty.
Evaluation evaluate(Plan& plan, const ModelProfile& profile, const Topology& topology,
                    SimulationMode mode, const std::function<void()>& beside = {});

/// Returns (iteration - lower_bound) / iteration. Requires: 0 <= lower_bound <= iteration.
double optimality_gap(Duration iteration, Duration lower_bound);

/// Returns iteration - floor(iteration * gap). A search may ignore plans that take this long or
/// longer, as a plan with the given iteration is within the gap of them. Requires: gap below 1.
Duration gap_threshold(Duration iteration, Factor gap);

/// The result of planning.
struct MadePlan {
  PlanDocument document;
  /// The evaluation of the document's plan.
  Evaluation evaluation;
  /// The plans of the document's baselines, in their order.
  std::vector<BaselinePlan> baselines;
  /// Whether the search was stopped before all baselines were chosen, although it proved the
  /// requested gap, which is above zero. The last baseline is then left out, so that the document
  /// shows that the search was stopped.
  bool lacks_baselines = false;
};

/// Returns the fastest feasible plan that the planner finds, no slower than any feasible baseline.
/// Requires: check_compatible() is empty. Deterministic, unless stopped. Throws Error(BadInput) if
/// options contradict each other (a micro-batch size that does not divide the global batch).
std::variant<MadePlan, Infeasible> make_plan(const ModelProfile& profile, const Topology& topology,
                                             const PlannerOptions& options,
                                             Progress* progress = nullptr);

/// Whether the exact planner proved that no plan is faster than this one by more than the requested
/// gap. Requires: the document has a request.
bool has_reached_gap(const PlanDocument& document);

/// Whether nothing that was requested is left to be proven, so that a later stop changed nothing:
/// the gap is closed, or, for 1F1B or GPipe alone without a target runtime, the requested gap is
/// reached. Requires: the document has a request.
bool is_search_done(const PlanDocument& document);

/// Returns the faults of a plan for its model and topology, with their places: in structure,
/// schedule and memory.
std::vector<Violation> check_plan(const Plan& plan, const ModelProfile& profile,
                                  const Topology& topology);

/// Returns warnings about the assumptions behind a plan's figures: batch sizes far from a measured
/// one; idle devices, with the reason `why_idle`; a single-device time for a model that no single
/// device has room for; parts of backwards that were not measured; no optimizer time.
std::vector<std::string> warnings_about(const Plan& plan, const ModelProfile& profile,
                                        const Topology& topology, std::string_view why_idle);

/// Returns warnings about doubtful figures in the profile (profile/doubts.h), about a speedup above
/// the number of the plan's devices, and about GPUs without reserved memory, with the free memory
/// of the fullest one; then the warnings of the function above. Requires: the document's prediction
/// is that of its plan.
std::vector<std::string> warnings_about(const PlanDocument& document, const Topology& topology);

/// Returns all warnings of a plan's file: those about its inputs, warnings_about() the document,
/// and those about the request and about what ended the search before the gap was closed. Requires:
/// the document has a request.
std::vector<std::string> warnings_of(const PlanDocument& document, const Topology& topology);

/// The predictions for two plans with the same costs and the same simulation mode.
struct PlanComparison {
  Prediction first;
  Prediction second;
};
/// The profile, topology and mode for a comparison; what it refers to must outlive the call.
struct ComparisonGround {
  const ModelProfile& profile;
  const Topology& topology;
  SimulationMode mode = {};
};

/// Evaluates both plans. Requires: both plans are valid for the profile and the topology.
PlanComparison compare_plans(Plan first, Plan second, const ComparisonGround& ground);

}  // namespace dapple::planner
