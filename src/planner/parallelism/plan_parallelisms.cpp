#include "dapple/planner/parallelism/plan_parallelisms.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/cost/compatible.h"
#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/planner/restricted/restricted.h"
#include "dapple/profile/variants.h"
#include "planner/candidates/work_lower_bound.h"
#include "planner/request/asked_families.h"
#include "planner/request/stop_question.h"

namespace dapple::planner {
namespace {

std::variant<MadePlan, Infeasible> plan_as_restricted(
    const PlanningContext& context, const std::optional<PlanRestriction>& restriction) {
  return restriction ? make_restricted_plan(context, *restriction) : make_plan(context);
}

/// One part of the space: the plans of one form of parallelism.
struct Part {
  Parallelism parallelism;
  PlanInputs inputs;
  Topology topology;
  /// The first plan that was found and its iteration, infinite without one.
  Plan first_plan = {};
  Duration first = Duration::infinite();
  /// Whether it is known that no plan of the part fits.
  bool is_settled = false;
  /// Lower bound on every plan of the part; nothing while none is proven.
  std::optional<Duration> lower_bound = {};
  /// The best plan, where one was found.
  std::optional<Duration> iteration = {};
  std::string shape = {};
  Bytes missing = {};
  ParallelismOutcomeKind outcome = ParallelismOutcomeKind::Stopped;
  bool is_complete = false;
  std::int64_t open = 0;
};

class ParallelismComparison {
 public:
  ParallelismComparison(const PlanningContext& context,
                        const std::optional<PlanRestriction>& restriction)
      : context_(context), restriction_(restriction), is_stopped_(context.progress) {}

  std::variant<MadePlan, Infeasible> run();

 private:
  void take_parts();
  void refuse_pinned_without_groups() const;
  void look_ahead();
  void search(Part& part);
  void take(Part& part, MadePlan made);
  void take(Part& part, Infeasible infeasible);
  void renew_baselines();
  MadePlan finish();
  std::vector<ParallelismRecord> records() const;
  PlanningContext context_of(const Part& part, const PlannerOptions& options) const;

  const PlanningContext context_;
  const std::optional<PlanRestriction>& restriction_;
  StopQuestion is_stopped_;
  std::vector<AskedParallelism> asked_;
  std::vector<Part> parts_;
  std::optional<MadePlan> best_;
  Parallelism best_parallelism_;
  Parallelism first_searched_;
  std::optional<Infeasible> closest_;
};

void ParallelismComparison::take_parts() {
  asked_ = asked_parallelisms(context_, restriction_);
  for (AskedParallelism& asked : asked_) {
    auto* inputs = std::get_if<PlanInputs>(&asked.inputs);
    if (inputs == nullptr) continue;
    Topology topology{inputs->topology};
    // Sums of a form with more work than the profile's own layers may leave their range.
    if (!check_compatible(inputs->profile, topology, context_.options.global_batch_size).empty()) {
      asked.inputs = NoGroups{"/layers", "times or sizes leave their range"};
      continue;
    }
    parts_.push_back(
        {.parallelism = asked.parallelism, .inputs = *inputs, .topology = std::move(topology)});
  }
}

/// Throws if the only form that is asked for has no groups.
void ParallelismComparison::refuse_pinned_without_groups() const {
  if (!parts_.empty()) return;
  const Pins& pins = context_.options.pins;
  check(pins.tensor.has_value(), "no form of parallelism is asked for");
  std::string reason = "not every layer has a variant of that degree";
  if (restriction_ && !restriction_->tensor_parallel) {
    reason = restriction_->runtime + " has no tensor parallelism";
  }
  if (!asked_.empty()) reason = std::get<NoGroups>(asked_.front().inputs).reason;
  throw Error(ErrorKind::BadInput, "",
              {{"/request/pins/tensor",
                "expected a tensor-parallel degree that layers and servers have, got " +
                    std::to_string(*pins.tensor) + ": " + reason}});
}

/// Returns the context for a part: plans no faster than those of the parts before need not be
/// found.
PlanningContext ParallelismComparison::context_of(const Part& part,
                                                  const PlannerOptions& options) const {
  PlanningContext context{part.inputs.profile, part.topology, options, context_.progress};
  if (best_) context.to_beat = best_->document.prediction.iteration;
  if (part.first.is_infinite()) return context;
  context.first_plan = &part.first_plan;
  context.first_iteration = part.first;
  return context;
}

/// Makes the first plan of every part, by the DAPPLE planner, and sorts the parts by their times.
void ParallelismComparison::look_ahead() {
  if (context_.options.planner != PlannerKind::Exact || parts_.size() == 1) return;
  PlannerOptions options = context_.options;
  options.planner = PlannerKind::Dapple;
  options.baselines = false;
  options.every_family = false;
  if (asks_for_families(context_.options)) options.family.reset();
  for (Part& part : parts_) {
    if (is_stopped_()) return;
    auto made = plan_as_restricted(context_of(part, options), restriction_);
    if (auto* plan = std::get_if<MadePlan>(&made)) {
      part.first = plan->document.prediction.iteration;
      part.first_plan = std::move(plan->document.plan);
    } else if (!asks_for_families(context_.options)) {
      auto& infeasible = std::get<Infeasible>(made);
      part.is_settled = infeasible.is_certain && !infeasible.stopped;
      if (part.is_settled) take(part, std::move(infeasible));
    }
  }
  std::stable_sort(parts_.begin(), parts_.end(),
                   [](const Part& a, const Part& b) { return a.first < b.first; });
}

/// Searches a part. The baselines are those of the first part that is searched.
void ParallelismComparison::search(Part& part) {
  if (part.is_settled) return;
  PlannerOptions options = context_.options;
  options.baselines = options.baselines && !best_;
  const PlanningContext context = context_of(part, options);
  if (context_.options.planner == PlannerKind::Exact) {
    part.lower_bound = work_lower_bound(context);
    const Duration enough = gap_threshold(context.to_beat, context_.options.target_gap);
    if (*part.lower_bound >= enough) {
      part.outcome = ParallelismOutcomeKind::NotSearched;
      part.is_complete = true;
      return;
    }
  }
  // Parts that were not come to are left with the bound of their work.
  if (is_stopped_()) return;
  auto made = plan_as_restricted(context, restriction_);
  if (auto* plan = std::get_if<MadePlan>(&made)) {
    take(part, std::move(*plan));
  } else {
    take(part, std::get<Infeasible>(std::move(made)));
  }
}

void ParallelismComparison::take(Part& part, MadePlan made) {
  const Prediction& prediction = made.document.prediction;
  part.iteration = prediction.iteration;
  part.lower_bound = prediction.lower_bound;
  part.shape = shape_of(made.document.plan);
  part.outcome = ParallelismOutcomeKind::Found;
  part.is_complete = made.document.search.complete;
  part.open = made.document.search.open;
  const bool is_better = !best_ || prediction.iteration < best_->document.prediction.iteration ||
                         (prediction.iteration == best_->document.prediction.iteration &&
                          part.parallelism < best_parallelism_);
  if (!is_better) return;
  best_parallelism_ = part.parallelism;
  best_ = std::move(made);
}

void ParallelismComparison::take(Part& part, Infeasible infeasible) {
  part.missing = infeasible.missing();
  if (infeasible.is_certain && !infeasible.stopped) {
    part.lower_bound.reset();
    part.is_complete = true;
    part.outcome = ParallelismOutcomeKind::NoneFits;
  } else if (!infeasible.stopped) {
    part.outcome = ParallelismOutcomeKind::NoneFound;
  }
  infeasible.parallelism = part.parallelism;
  const bool is_closer = !closest_ || closest_->stopped ||
                         (!infeasible.stopped && !infeasible.conflict &&
                          (closest_->conflict || infeasible.missing() < closest_->missing()));
  if (is_closer) closest_ = std::move(infeasible);
}

std::vector<ParallelismRecord> ParallelismComparison::records() const {
  std::vector<ParallelismRecord> records;
  const Duration of_plan = best_->document.prediction.iteration;
  for (const AskedParallelism& asked : asked_) {
    ParallelismRecord& record = records.emplace_back();
    record.parallelism = asked.parallelism;
    const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& some) {
      return some.parallelism == asked.parallelism;
    });
    if (part == parts_.end()) {
      record.reason = std::get<NoGroups>(asked.inputs).reason;
      continue;
    }
    record.iteration = part->iteration;
    record.lower_bound = part->lower_bound;
    record.shape = part->shape;
    record.missing = part->missing;
    const bool is_plan = part->parallelism == best_parallelism_;
    record.reason =
        text_of(ParallelismReason{.kind = is_plan ? ParallelismOutcomeKind::IsPlan : part->outcome,
                                  .plan = of_plan,
                                  .found = part->iteration,
                                  .lower_bound = part->lower_bound});
  }
  return records;
}

/// Searches the part of the best plan again, with its baselines, where these were made for another
/// part.
void ParallelismComparison::renew_baselines() {
  if (!context_.options.baselines || best_parallelism_ == first_searched_ || is_stopped_()) return;
  const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& some) {
    return some.parallelism == best_parallelism_;
  });
  part->first_plan = best_->document.plan;
  part->first = best_->document.prediction.iteration;
  best_.reset();
  search(*part);
}

/// Sets what of the best plan's document is about all parts.
MadePlan ParallelismComparison::finish() {
  PlanDocument& document = best_->document;
  document.plan.parallelism = best_parallelism_;
  if (!best_parallelism_.is_none()) {
    document.ungrouped = {context_.profile, context_.topology.description()};
  }
  SearchRecord& search = document.search;
  search.outside = outside_space(context_.profile);
  if (asked_.size() == 1) return std::move(*best_);
  std::optional<Duration> bound = document.prediction.iteration;
  search.open = 0;
  std::sort(parts_.begin(), parts_.end(),
            [](const Part& a, const Part& b) { return a.parallelism < b.parallelism; });
  for (const Part& part : parts_) {
    // A part whose plans provably do not fit has no bound to add.
    const bool has_none = part.outcome == ParallelismOutcomeKind::NoneFits;
    if (!has_none && !part.lower_bound) bound.reset();
    if (bound && part.lower_bound) bound = std::min(*bound, *part.lower_bound);
    const bool may_be_faster =
        part.lower_bound && *part.lower_bound < document.prediction.iteration;
    if (may_be_faster) search.open += part.open;
    if (part.parallelism == best_parallelism_ || part.is_complete || !may_be_faster) continue;
    search.cut.push_back(cut_of_parallelism(part.parallelism));
  }
  set_proven_bound(document.prediction, bound);
  search.complete = search.complete && search.cut.empty() && bound.has_value();
  document.parallelisms = records();
  document.warnings = warnings_of(document, Topology{document.topology});
  return std::move(*best_);
}

std::variant<MadePlan, Infeasible> ParallelismComparison::run() {
  take_parts();
  refuse_pinned_without_groups();
  look_ahead();
  for (Part& part : parts_) {
    const bool is_first = !best_;
    search(part);
    if (is_first && best_) first_searched_ = part.parallelism;
  }
  if (best_) renew_baselines();
  if (best_) return finish();
  return closest_ ? std::move(*closest_) : stopped_before_a_plan();
}

}  // namespace

std::vector<AskedParallelism> asked_parallelisms(
    const PlanningContext& context, const std::optional<PlanRestriction>& restriction) {
  const PlannerOptions& options = context.options;
  std::vector<AskedParallelism> asked;
  for (const Parallelism& parallelism : parallelisms_of(context.profile)) {
    if (options.pins.tensor.value_or(parallelism.tensor) != parallelism.tensor) continue;
    if (parallelism.tensor > options.max_tensor.value_or(parallelism.tensor)) continue;
    if (restriction && !restriction->tensor_parallel && !parallelism.is_none()) continue;
    if (restriction && !restriction->sequence_parallel && parallelism.sequence) continue;
    asked.push_back({parallelism, group_inputs(context.profile, context.topology, parallelism)});
  }
  return asked;
}

std::variant<MadePlan, Infeasible> make_plan_of_any_parallelism(
    const PlanningContext& context, const std::optional<PlanRestriction>& restriction) {
  const bool has_variants = parallelisms_of(context.profile).size() > 1;
  const bool is_pinned = context.options.pins.tensor.value_or(1) != 1;
  if (!has_variants && !is_pinned) return plan_as_restricted(context, restriction);
  return ParallelismComparison(context, restriction).run();
}

}  // namespace dapple::planner
