#include "planner/families/plan_families.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/candidates/plan_pool.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"
#include "planner/candidates/as_pinned.h"
#include "planner/candidates/work_lower_bound.h"
#include "planner/families/even_interleaved.h"
#include "planner/families/family_planner.h"
#include "planner/request/micro_batches.h"
#include "planner/request/stop_question.h"

namespace dapple::planner {
namespace {

/// Returns the topology, with unlimited memory where the options ignore memory.
Topology with_unlimited_memory(const Topology& topology, const PlannerOptions& options) {
  TopologyDescription description = topology.description();
  if (!options.ignore_memory) return Topology(std::move(description));
  for (DeviceKind& kind : description.devices) {
    kind.memory = {kMaxCount};
    kind.reserved = {};
  }
  return Topology(std::move(description));
}

class FamilyComparison {
 public:
  explicit FamilyComparison(const PlanningContext& context)
      : context_(context), topology_(with_unlimited_memory(context.topology, context.options)) {}

  std::variant<MadePlan, Infeasible> run(std::variant<MadePlan, Infeasible> first);

 private:
  struct ExaminedFamily {
    ScheduleFamily family;
    FamilyOutcome outcome;
  };
  void take_first(const MadePlan& first);
  void take_none(const Infeasible& none);
  void look_at(ScheduleFamily family);
  void take_even_plan(const PlanningContext& context, FamilyOutcome& outcome) const;
  // The iteration from which on plans need not be searched for to reach the requested gap.
  Duration enough() const { return context_.threshold(best_.iteration); }
  MadePlan make_document(std::optional<MadePlan> first);
  void fill_bound(PlanDocument& document) const;
  void fill_search(PlanDocument& document) const;
  std::vector<ScheduleRecord> records_of_first() const;
  std::vector<ScheduleRecord> records(const PlanDocument& document) const;
  ScheduleRecord record_of(const ExaminedFamily& examined, double bubble) const;
  FamilyReason reason_of(const ExaminedFamily& examined, double bubble) const;
  Infeasible explain() const;
  Infeasible with_all_families(Infeasible none) const;

  const PlanningContext context_;
  Topology topology_;
  std::vector<Plan> starts_;
  // The plan of the 1F1B planner and its bound, where 1F1B is requested. Where it found none, but
  // some plan may fit, the bound is of these.
  std::optional<SimulatedPlan> first_;
  std::optional<Duration> bound_of_first_;
  bool may_first_fit_ = false;
  bool is_first_stopped_ = false;
  // The memory that the closest plan under 1F1B lacks, where none fits.
  Bytes missing_;
  SimulatedPlan best_;
  std::vector<ExaminedFamily> examined_;
};

/// Makes the plan of the 1F1B planner and the baselines the plans to start from.
void FamilyComparison::take_first(const MadePlan& first) {
  const Prediction& prediction = first.document.prediction;
  starts_.push_back(first.document.plan);
  for (const BaselinePlan& baseline : first.baselines) starts_.push_back(baseline.plan);
  if (!context_.options.every_family) return;
  first_ = {.plan = first.document.plan, .iteration = prediction.iteration, .order = 0};
  bound_of_first_ = prediction.lower_bound;
  best_ = *first_;
}

/// Takes what is known of plans under 1F1B, of which none was found.
void FamilyComparison::take_none(const Infeasible& none) {
  if (none.shortage) missing_ = none.missing();
  is_first_stopped_ = none.stopped;
  may_first_fit_ = context_.options.every_family && (none.stopped || !none.is_proven());
  if (!may_first_fit_ || context_.options.planner != PlannerKind::Exact) return;
  bound_of_first_ = std::max(none.lower_bound, work_lower_bound(context_));
}

/// Takes the fastest even plan under the interleaved schedule where it is faster than what was
/// found, so that no plan is slower than the baseline best-uniform.
void FamilyComparison::take_even_plan(const PlanningContext& context,
                                      FamilyOutcome& outcome) const {
  const Duration most = std::min({best_.iteration, outcome.best.iteration, context_.to_beat});
  if (outcome.lower_bound >= most) return;
  SimulatedPlan even = best_even_interleaved(context, most);
  if (!even.feasible() || !is_as_pinned(even.plan, context_.options.pins)) return;
  if (context_.pool != nullptr) context_.pool->take(even);
  outcome.best = std::move(even);
}

void FamilyComparison::look_at(ScheduleFamily family) {
  PlanningContext context{context_.profile, topology_, context_.options, context_.progress,
                          context_.to_beat};
  context.pool = context_.pool;
  ExaminedFamily examined{
      .family = family,
      .outcome = plan_family(
          context,
          {.family = family, .starts = starts_, .to_beat = best_.iteration, .enough = enough()})};
  const Plan* const first = context_.first_plan;
  if (first != nullptr && first->family == family && context_.first_iteration < best_.iteration &&
      context_.first_iteration < examined.outcome.best.iteration) {
    examined.outcome.best = {.plan = *first, .iteration = context_.first_iteration};
  }
  if (family == ScheduleFamily::Interleaved) take_even_plan(context, examined.outcome);
  const SimulatedPlan& found = examined.outcome.best;
  if (found.feasible() && found.iteration < best_.iteration) {
    best_ = found;
    if (found.plan.chunks_per_device == 1) starts_.push_back(found.plan);
  }
  examined_.push_back(std::move(examined));
}

void FamilyComparison::fill_bound(PlanDocument& document) const {
  if (context_.options.every_family && (first_ || may_first_fit_) && !bound_of_first_) {
    return set_proven_bound(document.prediction, std::nullopt);
  }
  Duration bound = best_.iteration;
  if (bound_of_first_) bound = std::min(bound, *bound_of_first_);
  for (const ExaminedFamily& examined : examined_)
    bound = std::min(bound, examined.outcome.lower_bound);
  set_proven_bound(document.prediction, bound);
}

void FamilyComparison::fill_search(PlanDocument& document) const {
  SearchRecord& search = document.search;
  if (!first_) {
    search = {};
    search.planner = kFamiliesPlanner;
    search.searched = families_dimensions();
    search.cut = micro_batch_sizes(context_.options).cut;
    for (std::string& pinned : cuts_of_pins(context_.options.pins, context_.profile)) {
      search.cut.push_back(std::move(pinned));
    }
  }
  search.searched.emplace_back(kFamilies);
  const bool is_first_cut =
      may_first_fit_ && (!bound_of_first_ || *bound_of_first_ < best_.iteration);
  if (is_first_cut) search.cut.push_back(cut_of_family(ScheduleFamily::OneFOneB));
  for (const ExaminedFamily& examined : examined_) {
    const FamilyOutcome& outcome = examined.outcome;
    search.candidates += outcome.candidates;
    search.simulated += outcome.simulated;
    if (outcome.lower_bound >= best_.iteration) continue;
    search.cut.push_back(outcome.is_searched ? cut_shapes(examined.family, outcome.candidates)
                                             : cut_of_family(examined.family));
  }
  // Plans that the 1F1B search left open are no faster than the best plan, of another family.
  if (is_gap_closed(document.prediction)) search.open = 0;
  search.complete = search.cut.empty() && document.prediction.lower_bound.has_value();
}

/// Returns why the plan is of this family or not.
FamilyReason FamilyComparison::reason_of(const ExaminedFamily& examined, double bubble) const {
  using Kind = FamilyOutcomeKind;
  const FamilyOutcome& outcome = examined.outcome;
  FamilyReason reason{
      .plan = best_.iteration, .lower_bound = outcome.lower_bound, .bubble = bubble};
  if (examined.family == best_.plan.family) {
    reason.kind = Kind::IsPlan;
  } else if (outcome.lower_bound.is_infinite()) {
    reason.kind = Kind::NoneFits;
    reason.lower_bound.reset();
  } else if (outcome.is_stopped) {
    reason.kind = Kind::Stopped;
  } else if (!outcome.is_searched && !outcome.best.feasible()) {
    reason.kind = Kind::NotSearched;
  } else if (!outcome.best.feasible()) {
    reason.kind = outcome.shortage ? Kind::NoneFoundThatFits : Kind::NoneFoundThatRuns;
  } else {
    const Plan& found = outcome.best.plan;
    reason.kind = Kind::Found;
    reason.found = outcome.best.iteration;
    if (stages_by_device_group(found).size() > 1) reason.messages = found.chunks_per_device;
  }
  return reason;
}

ScheduleRecord FamilyComparison::record_of(const ExaminedFamily& examined, double bubble) const {
  const FamilyOutcome& outcome = examined.outcome;
  ScheduleRecord record{.family = examined.family,
                        .iteration = std::nullopt,
                        .lower_bound = std::nullopt,
                        .shape = {},
                        .missing = {},
                        .reason = text_of(reason_of(examined, bubble))};
  if (!outcome.lower_bound.is_infinite()) record.lower_bound = outcome.lower_bound;
  if (outcome.best.feasible()) {
    record.iteration = outcome.best.iteration;
    record.shape = shape_of(outcome.best.plan);
  } else if (outcome.shortage) {
    record.missing = outcome.shortage->missing();
  } else if (outcome.lower_bound.is_infinite()) {
    // One micro-batch in flight on one stage per device needs the same memory in any order.
    record.missing = missing_;
  }
  return record;
}

/// Returns the records of GPipe and 1F1B; GPipe is 1F1B with all micro-batches in flight.
std::vector<ScheduleRecord> FamilyComparison::records_of_first() const {
  ScheduleRecord gpipe{.family = ScheduleFamily::GPipe,
                       .iteration = std::nullopt,
                       .lower_bound = bound_of_first_,
                       .shape = {},
                       .missing = missing_,
                       .reason = text_of({.kind = FamilyOutcomeKind::SearchedAs1F1B})};
  ScheduleRecord record = gpipe;
  record.family = ScheduleFamily::OneFOneB;
  if (first_) {
    const bool is_best = best_.plan.family == first_->plan.family;
    record.iteration = first_->iteration;
    record.shape = shape_of(first_->plan);
    record.reason = text_of({.kind = is_best ? FamilyOutcomeKind::IsPlan : FamilyOutcomeKind::Found,
                             .plan = best_.iteration,
                             .found = first_->iteration});
  } else if (may_first_fit_) {
    record.reason = text_of(
        {.kind = is_first_stopped_ ? FamilyOutcomeKind::Stopped : FamilyOutcomeKind::NoneFound,
         .plan = best_.iteration,
         .lower_bound = bound_of_first_});
  } else {
    record.reason = text_of(
        {.kind = missing_.count > 0 ? FamilyOutcomeKind::NoneFits : FamilyOutcomeKind::NoneFound});
  }
  return {std::move(gpipe), std::move(record)};
}

/// Returns the records of all families searched, in the order of kScheduleFamilies.
std::vector<ScheduleRecord> FamilyComparison::records(const PlanDocument& document) const {
  std::vector<ScheduleRecord> records;
  if (context_.options.every_family) records = records_of_first();
  for (const ExaminedFamily& examined : examined_) {
    records.push_back(record_of(examined, document.prediction.bubble_fraction));
  }
  std::stable_sort(
      records.begin(), records.end(),
      [](const ScheduleRecord& a, const ScheduleRecord& b) { return a.family < b.family; });
  return records;
}

MadePlan FamilyComparison::make_document(std::optional<MadePlan> first) {
  const bool is_first_best = first_ && best_.plan.family == first_->plan.family;
  MadePlan made;
  if (first) made = *std::move(first);
  PlanDocument& document = made.document;
  if (!is_first_best) {
    document.profile = context_.profile;
    document.topology = context_.topology.description();
    document.plan = best_.plan;
    made.frugal.reset();
    made.evaluation =
        evaluate(document.plan, context_.profile, context_.topology, context_.options.mode());
    check(context_.options.ignore_memory || made.evaluation.shortages.empty(),
          "the chosen plan does not fit memory");
    document.prediction = made.evaluation.prediction;
    document.warnings = warnings_about(document, context_.topology);
  }
  fill_bound(document);
  fill_search(document);
  document.schedules = records(document);
  return made;
}

/// Explains by its closest shape why no plan was found, where a single family was searched.
Infeasible FamilyComparison::explain() const {
  Infeasible infeasible;
  infeasible.stopped = StopQuestion(context_.progress)();
  infeasible.pins = context_.options.pins;
  const FamilyOutcome& outcome = examined_.front().outcome;
  infeasible.remedy.kind = RemedyKind::EveryFamily;
  // Only some shapes were tried, so nothing is proven.
  infeasible.is_certain = false;
  if (!outcome.shortage) {
    infeasible.conflict =
        NoShapeUnderFamily{.family = examined_.front().family, .lacks_memory = missing_.count > 0};
    return infeasible;
  }
  infeasible.shortage = outcome.shortage;
  infeasible.closest = outcome.closest;
  return infeasible;
}

/// Returns why no plan was found under any family that was looked at, from why there is none under
/// 1F1B. With one stage per device, no order needs less than one micro-batch in flight under 1F1B;
/// devices with several stages may hold other layers, so that these may fit where 1F1B does not.
Infeasible FamilyComparison::with_all_families(Infeasible none) const {
  const auto* const few = none.conflict ? std::get_if<TooFewDevices>(&*none.conflict) : nullptr;
  const bool is_by_pins =
      few != nullptr ? few->replicas > few->devices
                     : none.conflict && std::holds_alternative<TooFewSamples>(*none.conflict);
  if (none.stopped || is_by_pins) return none;
  const bool fits_no_pipeline = none.is_proven();
  const bool counts_first = context_.options.every_family && !fits_no_pipeline;
  Duration bound = counts_first ? none.lower_bound : Duration::infinite();
  for (const ExaminedFamily& examined : examined_) {
    if (fits_no_pipeline && !has_loops(examined.family)) continue;
    bound = std::min(bound, examined.outcome.lower_bound);
  }
  none.lower_bound = bound;
  // The orders of a single family may have more micro-batches in flight.
  none.is_least_shortage = none.is_least_shortage || !context_.options.every_family;
  none.is_certain = none.is_certain && bound.is_infinite();
  return none;
}

std::variant<MadePlan, Infeasible> FamilyComparison::run(std::variant<MadePlan, Infeasible> first) {
  auto* made = std::get_if<MadePlan>(&first);
  if (made != nullptr) {
    take_first(*made);
  } else {
    take_none(std::get<Infeasible>(first));
  }
  const PlannerOptions& options = context_.options;
  for (const ScheduleFamily family : kFamiliesBeyond1F1B) {
    if (options.every_family || family == options.family) look_at(family);
  }
  if (best_.feasible()) {
    return make_document(made == nullptr ? std::nullopt : std::optional(std::move(*made)));
  }
  // Where memory cannot hold the model, the plan under 1F1B that comes closest says so for all.
  const bool is_like_1f1b = options.every_family || !has_loops(*options.family) ||
                            examined_.front().outcome.lower_bound.is_infinite();
  if (made == nullptr && is_like_1f1b) {
    return with_all_families(std::move(std::get<Infeasible>(first)));
  }
  return explain();
}

}  // namespace

std::variant<MadePlan, Infeasible> plan_families(std::variant<MadePlan, Infeasible> first,
                                                 const PlanningContext& context) {
  return FamilyComparison(context).run(std::move(first));
}

}  // namespace dapple::planner
