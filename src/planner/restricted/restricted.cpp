#include "dapple/planner/restricted/restricted.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/planner/candidates/plan_pool.h"
#include "dapple/planner/candidates/score.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"
#include "planner/candidates/work_lower_bound.h"
#include "planner/families/plan_families.h"
#include "planner/one_family/dapple_planner.h"
#include "planner/one_family/plan_one_family.h"
#include "planner/request/asked_families.h"
#include "planner/request/stop_question.h"
#include "planner/restricted/restricted_families.h"
#include "planner/restricted/restricted_parts.h"

namespace dapple::planner {
namespace {

class RestrictedPlanner {
 public:
  RestrictedPlanner(const PlanningContext& context, const PlanRestriction& restriction)
      : context_(context), restriction_(restriction) {}

  std::variant<MadePlan, Infeasible> run() {
    const StopQuestion is_stopped(context_.progress);
    std::vector<Pins> parts = restricted_parts(context_, restriction_);
    if (parts.empty()) {
      const auto layers = static_cast<std::int32_t>(context_.profile.layers.size());
      closest_.emplace().conflict = NoSuchSplit{layers};
      return explain();
    }
    const bool needs_first_plans = !context_.has_slower_first_plan();
    if (context_.options.planner == PlannerKind::Exact && needs_first_plans) {
      look_ahead(parts, is_stopped);
    }
    for (const Pins& part : parts) {
      const bool has_first_plan = !best_ && context_.first_plan != nullptr;
      if (is_stopped() && !has_first_plan) {
        is_stopped_ = true;
        leave_open();
        break;
      }
      auto made = plan_part(part);
      if (auto* plan = std::get_if<MadePlan>(&made)) {
        take(std::move(*plan));
      } else {
        take(std::get<Infeasible>(std::move(made)));
      }
    }
    if (best_) {
      if (context_.options.baselines && has_baselines_ && !is_stopped()) renew_dapple();
      return finish();
    }
    if (closest_ && !is_stopped_) return explain();
    return stopped_before_a_plan();
  }

 private:
  /// Makes a plan for every part with the DAPPLE planner, and sorts the parts by the times of these
  /// plans, so that in later parts only faster plans are searched for.
  void look_ahead(std::vector<Pins>& parts, const StopQuestion& is_stopped) {
    if (asks_for_families(context_.options)) return;
    std::vector<std::pair<Duration, Pins>> by_time;
    for (const Pins& part : parts) {
      if (is_stopped()) return;
      PlannerOptions options = context_.options;
      options.pins = part;
      options.planner = PlannerKind::Dapple;
      options.baselines = false;
      auto made = plan_one_family(context_.with(options), known());
      auto* plan = std::get_if<MadePlan>(&made);
      const bool is_of_part = plan != nullptr && is_asked_for(plan->document.plan, options);
      by_time.emplace_back(is_of_part ? plan->document.prediction.iteration : Duration::infinite(),
                           part);
      if (is_of_part && (!best_ || is_better(*plan, *best_))) best_ = std::move(*plan);
    }
    std::stable_sort(by_time.begin(), by_time.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    parts.clear();
    for (auto& [time, part] : by_time) parts.push_back(std::move(part));
  }

  /// Makes the plan of one part. The baselines do not depend on the part and are made only once.
  std::variant<MadePlan, Infeasible> plan_part(const Pins& part) {
    PlannerOptions options = context_.options;
    options.pins = part;
    options.baselines = context_.options.baselines && !has_baselines_;
    if (asks_for_families(options)) return make_plan(context_.with(options));
    std::vector<SimulatedPlan> plans = known();
    for (const BaselinePlan& baseline : baselines_) {
      if (!baseline.figures.feasible || !is_asked_for(baseline.plan, options)) continue;
      plans.push_back({.plan = baseline.plan, .iteration = baseline.figures.iteration});
    }
    return plan_one_family(context_.with(options), std::move(plans));
  }

  /// Returns the best plan so far, of any part.
  std::vector<SimulatedPlan> known() const {
    if (!best_) return {};
    return {{.plan = best_->document.plan, .iteration = best_->document.prediction.iteration}};
  }

  void take(MadePlan made) {
    if (!has_baselines_) {
      has_baselines_ = true;
      baselines_ = made.baselines;
    }
    const Prediction& prediction = made.document.prediction;
    if (prediction.lower_bound) {
      bound_ = std::min(bound_, *prediction.lower_bound);
    } else {
      is_proven_ = false;
    }
    const SearchRecord& record = made.document.search;
    states_ += record.states;
    candidates_ += record.candidates;
    simulated_ += record.simulated;
    open_ += record.open;
    kept_ += record.kept;
    // The new one of equal plans is kept, as its part was searched in full. A part whose best plan
    // is that of another part does not look for plans that need less memory than it.
    if (best_ && !made.frugal && have_same_shape(best_->document.plan, made.document.plan)) {
      made.frugal = best_->frugal;
    }
    if (!best_ || !is_better(*best_, made)) best_ = std::move(made);
  }

  void take(Infeasible infeasible) {
    if (infeasible.stopped || !infeasible.is_proven()) leave_open(infeasible.lower_bound);
    is_stopped_ = is_stopped_ || infeasible.stopped;
    if (infeasible.stopped) return;
    const bool is_shortage = !infeasible.conflict;
    const bool is_closer =
        !closest_ ||
        (is_shortage && (closest_->conflict || infeasible.missing() < closest_->missing()));
    if (is_closer) closest_ = std::move(infeasible);
  }

  /// Lowers the bound for a part in which no plan was found, to `proven` or, if that is more, to
  /// the one that holds for all plans.
  void leave_open(Duration proven = {}) {
    has_open_ = true;
    if (context_.options.planner != PlannerKind::Exact) {
      is_proven_ = false;
      return;
    }
    if (!work_bound_) work_bound_ = work_lower_bound(context_);
    bound_ = std::min(bound_, std::max(proven, *work_bound_));
  }

  /// Replaces the baseline of the DAPPLE planner, which was made for one part, by its plan for the
  /// unrestricted request.
  void renew_dapple() {
    const PlannerOptions options = options_to_start(context_.options);
    PlanningContext start = context_.with(options);
    // The target may not express these plans, so none of them may be chosen.
    start.pool = nullptr;
    const DapplePlans dapple = plan_by_dapple(start);
    const char* const name = *std::rbegin(kBaselineNames);
    std::erase_if(baselines_, [&](const BaselinePlan& plan) { return plan.figures.name == name; });
    if (auto baseline = baseline_of(dapple, start)) { baselines_.push_back(*std::move(baseline)); }
  }

  static bool is_better(const MadePlan& a, const MadePlan& b) {
    return better({.plan = a.document.plan, .iteration = a.document.prediction.iteration},
                  {.plan = b.document.plan, .iteration = b.document.prediction.iteration});
  }

  MadePlan finish() {
    PlanDocument& document = best_->document;
    set_proven_bound(document.prediction, is_proven_ ? std::optional(bound_) : std::nullopt);
    SearchRecord& record = document.search;
    set_baselines(*best_, baselines_);
    record.complete = false;
    record.states = states_;
    record.candidates = candidates_;
    record.simulated = simulated_;
    // What one part left open may be no faster than the best plan of another.
    const Prediction& prediction = document.prediction;
    record.open = is_gap_closed(prediction) ? 0 : open_;
    record.kept = kept_;
    // Remove what was pinned only in the part of the best plan, as it was free in the whole space.
    std::erase_if(record.cut, is_cut_of_pin);
    for (std::string& pinned : cuts_of_pins(context_.options.pins, context_.profile)) {
      record.cut.push_back(std::move(pinned));
    }
    record.cut.push_back(
        cut_of_runtime(inexpressible_parts(restriction_, restriction_.least_depths)));
    return std::move(*best_);
  }

  /// Explains by the closest part why there is no plan. The claims cover the plans of all parts.
  Infeasible explain() {
    closest_->is_certain = closest_->is_certain && !has_open_;
    closest_->lower_bound = is_proven_ ? bound_ : Duration{};
    closest_->pins = context_.options.pins;
    closest_->runtime = restriction_.runtime;
    closest_->remedy = {.kind = RemedyKind::EveryRuntime};
    return std::move(*closest_);
  }

  const PlanningContext context_;
  const PlanRestriction& restriction_;
  std::optional<MadePlan> best_;
  std::optional<Infeasible> closest_;
  std::vector<BaselinePlan> baselines_;
  bool has_baselines_ = false;
  // Whether the bound holds for all parts.
  bool is_proven_ = true;
  // Whether some part may have plans although none was found.
  bool has_open_ = false;
  // The bound that holds for all plans, once it is needed.
  std::optional<Duration> work_bound_;
  bool is_stopped_ = false;
  Duration bound_ = Duration::infinite();
  std::int64_t states_ = 0;
  std::int64_t candidates_ = 0;
  std::int64_t simulated_ = 0;
  std::int64_t open_ = 0;
  std::int64_t kept_ = 0;
};

}  // namespace

std::variant<MadePlan, Infeasible> make_restricted_plan(const PlanningContext& context,
                                                        const PlanRestriction& restriction) {
  auto made = context.options.every_family ? plan_restricted_families(context, restriction)
                                           : RestrictedPlanner(context, restriction).run();
  if (auto* plan = std::get_if<MadePlan>(&made)) {
    plan->document.request = request_of(context.options);
    plan->document.request->target = restriction.target;
    plan->document.request->shares = Shares::Equal;
    plan->document.request->replications = Replications::Split;
    plan->document.warnings = warnings_of(plan->document, context.topology);
  }
  return made;
}

}  // namespace dapple::planner
