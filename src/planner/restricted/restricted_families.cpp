#include "planner/restricted/restricted_families.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/restricted/restricted.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"
#include "planner/candidates/work_lower_bound.h"
#include "planner/request/stop_question.h"

namespace dapple::planner {
namespace {

/// Plans for one family after another, each with a bound of its own.
class RestrictedFamilies {
 public:
  RestrictedFamilies(const PlanningContext& context, const PlanRestriction& restriction)
      : context_(context), restriction_(restriction) {}

  std::variant<MadePlan, Infeasible> run() {
    const StopQuestion is_stopped(context_.progress);
    std::optional<Infeasible> first_failure;
    bool are_all_certain = true;
    for (const ScheduleFamily family : restriction_.families) {
      auto made = is_stopped() ? stopped_before_a_plan() : plan_for(family);
      if (auto* plan = std::get_if<MadePlan>(&made)) {
        take(family, std::move(*plan));
        continue;
      }
      const auto& infeasible = std::get<Infeasible>(made);
      // For looped families and split backwards some other plan may fit although none was found.
      const bool is_open = infeasible.stopped || !infeasible.is_proven();
      const std::optional<Duration> bound =
          is_open ? bound_of_open(infeasible.lower_bound) : std::nullopt;
      if (is_open) is_proven_ = is_proven_ && bound;
      bound_ = std::min(bound_, bound.value_or(bound_));
      records_.push_back(
          {.family = family,
           .iteration = std::nullopt,
           .lower_bound = bound,
           .shape = {},
           .missing = infeasible.missing(),
           .reason = text_of({.kind = infeasible.stopped ? FamilyOutcomeKind::Stopped
                                                         : FamilyOutcomeKind::NoneFound})});
      are_all_certain = are_all_certain && !is_open;
      if (!first_failure || infeasible.stopped) first_failure = infeasible;
    }
    if (best_) return finish();
    // The claims cover the plans of all families.
    first_failure->is_certain = first_failure->is_certain && are_all_certain;
    first_failure->lower_bound = is_proven_ ? bound_ : Duration{};
    return std::move(*first_failure);
  }

 private:
  std::variant<MadePlan, Infeasible> plan_for(ScheduleFamily family) const {
    const bool is_1f1b = family == ScheduleFamily::OneFOneB;
    PlannerOptions options = context_.options;
    options.every_family = false;
    options.family = is_1f1b ? std::nullopt : std::optional(family);
    options.baselines = context_.options.baselines && is_1f1b;
    PlanRestriction restriction = restriction_;
    restriction.least_depths = restriction_.least_depths && is_1f1b;
    return make_restricted_plan(context_.with(options), restriction);
  }

  /// Returns the bound of a family of which no plan was found: `proven` or, if that is more, the
  /// one that holds for all plans.
  std::optional<Duration> bound_of_open(Duration proven) {
    if (context_.options.planner != PlannerKind::Exact) return std::nullopt;
    if (!work_bound_) work_bound_ = work_lower_bound(context_);
    return std::max(proven, *work_bound_);
  }

  void take(ScheduleFamily family, MadePlan made) {
    const Prediction& prediction = made.document.prediction;
    records_.push_back({.family = family,
                        .iteration = prediction.iteration,
                        .lower_bound = prediction.lower_bound,
                        .shape = shape_of(made.document.plan),
                        .missing = {},
                        .reason = {}});
    is_proven_ = is_proven_ && prediction.lower_bound;
    bound_ = std::min(bound_, prediction.lower_bound.value_or(Duration{}));
    if (family == ScheduleFamily::OneFOneB) baselines_ = std::move(made.baselines);
    const SearchRecord& record = made.document.search;
    candidates_ += record.candidates;
    simulated_ += record.simulated;
    if (!best_ || prediction.iteration < best_->document.prediction.iteration) {
      best_ = std::move(made);
    }
  }

  MadePlan finish() {
    PlanDocument& document = best_->document;
    Prediction& prediction = document.prediction;
    set_proven_bound(prediction, is_proven_ ? std::optional(bound_) : std::nullopt);
    for (ScheduleRecord& record : records_) {
      if (!record.iteration) continue;
      const bool is_plan = record.family == recorded_family(document.plan.family);
      record.reason =
          text_of({.kind = is_plan ? FamilyOutcomeKind::IsPlan : FamilyOutcomeKind::Found,
                   .plan = prediction.iteration,
                   .found = *record.iteration});
    }
    std::sort(records_.begin(), records_.end(),
              [](const ScheduleRecord& a, const ScheduleRecord& b) { return a.family < b.family; });
    document.schedules = std::move(records_);
    if (is_gap_closed(prediction)) document.search.open = 0;
    document.search.candidates = candidates_;
    document.search.simulated = simulated_;
    set_baselines(*best_, std::move(baselines_));
    return std::move(*best_);
  }

  const PlanningContext context_;
  const PlanRestriction& restriction_;
  std::optional<MadePlan> best_;
  std::vector<BaselinePlan> baselines_;
  std::vector<ScheduleRecord> records_;
  bool is_proven_ = true;
  Duration bound_ = Duration::infinite();
  std::optional<Duration> work_bound_;
  std::int64_t candidates_ = 0;
  std::int64_t simulated_ = 0;
};

}  // namespace

std::variant<MadePlan, Infeasible> plan_restricted_families(const PlanningContext& context,
                                                            const PlanRestriction& restriction) {
  return RestrictedFamilies(context, restriction).run();
}

}  // namespace dapple::planner
