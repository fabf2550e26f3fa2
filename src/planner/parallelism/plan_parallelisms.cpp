#include "dapple/planner/parallelism/plan_parallelisms.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/cost/compatible.h"
#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/candidates/plan_pool.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/planner/restricted/restricted.h"
#include "dapple/profile/variants.h"
#include "dapple/search/placement/placement_space.h"
#include "dapple/topology/servers_of_kind.h"
#include "planner/candidates/work_lower_bound.h"
#include "planner/parallelism/best_uniform.h"
#include "planner/parallelism/one_kind.h"
#include "planner/request/asked_families.h"
#include "planner/request/part_of_search.h"
#include "planner/request/stop_question.h"
#include "planner/result/median_choice.h"

namespace dapple::planner {
namespace {

std::variant<MadePlan, Infeasible> plan_as_restricted(
    const PlanningContext& context, const std::optional<PlanRestriction>& restriction) {
  return restriction ? make_restricted_plan(context, *restriction) : make_plan(context);
}

/// One part of the space: the plans of one form of parallelism, or with any of several forms in
/// each stage.
struct Part {
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
  std::int64_t open = 0;
  /// The plans of the part that were simulated, where these are to be kept.
  std::unique_ptr<PlanPool> pool = nullptr;

  bool is_mixed() const { return !stage_forms.empty(); }
};

class ParallelismComparison {
 public:
  /// Compares the forms `among` some, or all where that is null.
  ParallelismComparison(const PlanningContext& context,
                        const std::optional<PlanRestriction>& restriction,
                        const std::set<Parallelism>* among)
      : context_(context),
        restriction_(restriction),
        among_(among),
        is_stopped_(context.progress) {}

  std::variant<MadePlan, Infeasible> run();

 private:
  void take_parts();
  void refuse_without_parts() const;
  void take_plan_of_one_kind();
  void look_ahead();
  void take_plan_of_other_layers(Part& part) const;
  PlanningContext context_to_look_ahead(Part& part, const PlannerOptions& options,
                                        Duration fastest) const;
  void search(Part& part);
  void settle_mixed_plan();
  void take(Part& part, MadePlan made);
  void take(Part& part, Infeasible infeasible);
  void renew_baselines();
  void keep_plans();
  MadePlan finish();
  Part* part_of(const Parallelism& form, const std::vector<Parallelism>& stage_forms);
  std::vector<ParallelismRecord> records();
  void merge_schedules(PlanDocument& document) const;
  PlanningContext context_of(const Part& part, const PlannerOptions& options) const;
  void leave_out_unused_forms();
  bool is_best(const Part& part) const {
    return part.parallelism == best_parallelism_ && part.stage_forms == best_stage_forms_;
  }

  const PlanningContext context_;
  const std::optional<PlanRestriction>& restriction_;
  const std::set<Parallelism>* among_;
  StopQuestion is_stopped_;
  std::vector<AskedParallelism> asked_;
  std::vector<Part> parts_;
  std::optional<MadePlan> best_;
  // Those of the part of the best plan.
  Parallelism best_parallelism_;
  std::vector<Parallelism> best_stage_forms_;
  Parallelism first_searched_;
  std::optional<Infeasible> closest_;
};

void ParallelismComparison::take_parts() {
  asked_ = asked_parallelisms(context_, restriction_, among_);
  for (const AskedParallelism& asked : asked_) {
    const auto* inputs = std::get_if<PlanInputs>(&asked.inputs);
    if (inputs == nullptr) continue;
    parts_.push_back({.parallelism = asked.parallelism,
                      .stage_forms = asked.stage_forms,
                      .inputs = inputs,
                      .topology = Topology{inputs->topology}});
    if (context_.pool != nullptr) parts_.back().pool = std::make_unique<PlanPool>();
  }
}

/// Throws if none of the forms that are asked for has groups, which the pinned degree or sharding
/// excludes.
void ParallelismComparison::refuse_without_parts() const {
  if (!parts_.empty()) return;
  const PlannerOptions& options = context_.options;
  const auto& pins = options.pins;
  std::string reason = "not every layer has a variant of that degree";
  if (pins.tensor && options.max_tensor.value_or(*pins.tensor) < *pins.tensor) {
    reason = "the largest degree allowed is " + std::to_string(*options.max_tensor);
  } else if (!asked_.empty()) {
    reason = std::get<NoGroups>(asked_.front().inputs).reason;
  } else if (options.sharding == Sharding::Full || pins.shards) {
    reason = "no number of devices can share a device's parameters";
  }
  const std::vector<Parallelism> every = parallelisms_of(context_.profile);
  const bool has_parts = std::any_of(every.begin(), every.end(), [&](const Parallelism& form) {
    return !pins.recomputation || form.recomputes == pins.recomputation->parts;
  });
  if (!has_parts) {
    throw Error(
        ErrorKind::BadInput, "",
        {{"/request/pins",
          fmt::format("expected parts that layers recompute in some variant, or none, got {}",
                      to_text(pins.recomputation->parts))}});
  }
  if (pins.recomputation && !pins.recomputation->parts.none() && !pins.has_degrees()) {
    throw Error(ErrorKind::BadInput, "",
                {{"/request/pins", fmt::format("expected what layers can recompute, got {}: {}",
                                               to_text(*pins.recomputation), reason)}});
  }
  if (!pins.has_degrees()) {
    throw Error(
        ErrorKind::BadInput, "",
        {{"/request/sharding", "expected state that can be sharded so, got none: " + reason}});
  }
  std::vector<std::string> got;
  const auto name = [&](const char* degree, const std::optional<std::int64_t>& pin) {
    if (pin) got.push_back(fmt::format("{} {}", degree, *pin));
  };
  name("tensor", pins.tensor);
  name("context", pins.context);
  name("experts", pins.experts);
  name("shards", pins.shards);
  throw Error(ErrorKind::BadInput, "",
              {{"/request/pins",
                fmt::format("expected degrees of parallelism that layers and servers have, got {}: "
                            "{}",
                            fmt::join(got, ", "), reason)}});
}

/// Returns the context for a part: plans no faster than those of the parts before need not be
/// found.
PlanningContext ParallelismComparison::context_of(const Part& part,
                                                  const PlannerOptions& options) const {
  PlanningContext context{part.inputs->profile, part.topology, options, context_.progress};
  context.pool = part.pool.get();
  if (best_) context.to_beat = best_->document.prediction.iteration;
  if (part.first.is_infinite()) return context;
  context.first_plan = &part.first_plan;
  context.first_iteration = part.first;
  return context;
}

/// Makes the fastest plan on devices of one kind alone the first plan of the first part that has
/// it.
void ParallelismComparison::take_plan_of_one_kind() {
  std::set<Parallelism> allowed;
  for (const Part& part : parts_) {
    if (!part.is_mixed()) allowed.insert(part.parallelism);
  }
  const auto found = plan_of_one_kind(context_, restriction_, &allowed);
  if (!found) return;
  for (Part& part : parts_) {
    auto plan = in_whole(*found, *part.inputs, part.topology, context_.options);
    if (!plan) continue;
    part.first_plan = std::move(plan->plan);
    part.first = plan->iteration;
    part.is_first_of_one_kind = true;
    return;
  }
}

/// Makes the fastest first plan of the parts in which other layers recompute, or none, the first
/// plan of a part, unless none of them fits there.
void ParallelismComparison::take_plan_of_other_layers(Part& part) const {
  const Parallelism form = without_recomputation(part.parallelism);
  for (const Part& other : parts_) {
    if (other.first.is_infinite() || without_recomputation(other.parallelism) != form) continue;
    Plan plan = other.first_plan;
    const Evaluation evaluation =
        evaluate(plan, part.inputs->profile, part.topology, context_.options.mode());
    if (!context_.options.ignore_memory && !evaluation.shortages.empty()) continue;
    if (evaluation.prediction.iteration >= part.first) continue;
    part.first = evaluation.prediction.iteration;
    part.first_plan = std::move(plan);
  }
}

/// Returns the context for the first plan of a part. Where only some layers of a stage recompute,
/// of which there are many forms, a plan of one of the others will do unless there is one that is
/// faster than those found for any.
PlanningContext ParallelismComparison::context_to_look_ahead(Part& part,
                                                             const PlannerOptions& options,
                                                             Duration fastest) const {
  const bool may_take_others = !part.parallelism.recomputed_layers.is_all() && !restriction_ &&
                               context_.pool == nullptr && !asks_for_families(context_.options);
  if (may_take_others) take_plan_of_other_layers(part);
  PlanningContext context = context_of(part, options);
  if (!may_take_others || part.first.is_infinite()) return context;
  context.to_beat = std::min(fastest, part.first);
  context.only_faster = true;
  return context;
}

/// Makes the first plan of every part whose bound is below those before, by the DAPPLE planner, and
/// sorts the parts by their times.
void ParallelismComparison::look_ahead() {
  if (context_.options.planner != PlannerKind::Exact || parts_.size() == 1) return;
  PlannerOptions options = context_.options;
  options.planner = PlannerKind::Dapple;
  options.baselines = false;
  options.every_family = false;
  if (asks_for_families(context_.options)) options.family.reset();
  // The DAPPLE planner deals no micro-batches, which the plans that are asked for may.
  for (Part& part : parts_) {
    part.lower_bound = work_lower_bound(context_of(part, context_.options));
  }
  // Parts with several forms come last.
  const auto by = [](const auto& key) {
    return [key](const Part& a, const Part& b) {
      return std::pair(a.is_mixed(), key(a)) < std::pair(b.is_mixed(), key(b));
    };
  };
  // Those in which only some layers recompute follow the others, whose plans they may have.
  std::stable_sort(parts_.begin(), parts_.end(), by([](const Part& part) {
                     return std::pair(!part.parallelism.recomputed_layers.is_all(),
                                      *part.lower_bound);
                   }));
  // These plans are among those that are asked for, unless that is another family alone.
  const bool are_asked_for = !asks_for_families(context_.options) || context_.options.every_family;
  Duration fastest = Duration::infinite();
  for (const Part& part : parts_) fastest = std::min(fastest, part.first);
  for (Part& part : parts_) {
    if (is_stopped_()) break;
    if (are_asked_for && *part.lower_bound >= fastest) continue;
    // A faster plan of another family would not be asked for.
    if (!are_asked_for && part.is_first_of_one_kind) continue;
    auto made = plan_as_restricted(context_to_look_ahead(part, options, fastest),
                                   restriction_for(restriction_, part.parallelism));
    if (auto* plan = std::get_if<MadePlan>(&made)) {
      // A first plan under another family may be faster.
      if (plan->document.prediction.iteration < part.first) {
        part.first = plan->document.prediction.iteration;
        part.first_plan = std::move(plan->document.plan);
      }
      fastest = std::min(fastest, part.first);
    } else if (!asks_for_families(context_.options)) {
      auto& infeasible = std::get<Infeasible>(made);
      // On several kinds of device other orders of them, or shares by speed, may need less memory.
      part.is_settled = infeasible.is_certain && !infeasible.stopped &&
                        kinds_in_use(context_.topology).size() == 1 &&
                        !may_fit_only_dealt(context_.options);
      if (part.is_settled) take(part, std::move(infeasible));
    }
  }
  std::stable_sort(parts_.begin(), parts_.end(), by([](const Part& part) { return part.first; }));
}

/// Searches a part. The baselines are those of the first part that is searched.
void ParallelismComparison::search(Part& part) {
  if (part.is_settled) return;
  PlannerOptions options = context_.options;
  options.baselines = options.baselines && !best_ && !part.is_mixed();
  const PlanningContext context = context_of(part, options);
  if (context_.options.planner == PlannerKind::Exact) {
    if (!part.lower_bound) part.lower_bound = work_lower_bound(context);
    const Duration enough = gap_threshold(context.to_beat, context_.options.target_gap);
    if (*part.lower_bound >= enough) {
      part.outcome = ParallelismOutcomeKind::NotSearched;
      part.is_complete = true;
      return;
    }
  }
  // Parts that were not come to are left with the bound of their work; a stop before any plan takes
  // the first one that is found without a search.
  if (is_stopped_() && best_) return;
  auto made = plan_as_restricted(context, restriction_for(restriction_, part.parallelism));
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
  part.schedules = made.document.schedules;
  part.outcome = ParallelismOutcomeKind::Found;
  part.is_complete = made.document.search.complete;
  part.open = made.document.search.open;
  const bool is_better = !best_ || prediction.iteration < best_->document.prediction.iteration ||
                         (prediction.iteration == best_->document.prediction.iteration &&
                          !part.is_mixed() && part.parallelism < best_parallelism_);
  if (!is_better) return;
  best_parallelism_ = part.parallelism;
  best_stage_forms_ = part.stage_forms;
  best_ = std::move(made);
}

void ParallelismComparison::take(Part& part, Infeasible infeasible) {
  part.missing = infeasible.missing();
  const bool is_none = infeasible.is_certain || infeasible.lower_bound.is_infinite();
  if (part.lower_bound) part.lower_bound = std::max(*part.lower_bound, infeasible.lower_bound);
  if (is_none && !infeasible.stopped) {
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

/// Returns the part of a form of parallelism, or null where there are no such groups.
Part* ParallelismComparison::part_of(const Parallelism& form,
                                     const std::vector<Parallelism>& stage_forms) {
  const auto found = std::find_if(parts_.begin(), parts_.end(), [&](const Part& some) {
    return some.parallelism == form && some.stage_forms == stage_forms;
  });
  return found == parts_.end() ? nullptr : &*found;
}

std::vector<ParallelismRecord> ParallelismComparison::records() {
  std::vector<ParallelismRecord> records;
  const Duration of_plan = best_->document.prediction.iteration;
  for (const AskedParallelism& asked : asked_) {
    ParallelismRecord& record = records.emplace_back();
    record.parallelism = asked.parallelism;
    record.stage_forms = asked.stage_forms;
    const Part* const part = part_of(asked.parallelism, asked.stage_forms);
    if (part == nullptr) {
      record.reason = std::get<NoGroups>(asked.inputs).reason;
      continue;
    }
    record.iteration = part->iteration;
    record.lower_bound = part->lower_bound;
    record.shape = part->shape;
    record.missing = std::min(part->missing, Bytes{kMaxCount});
    const bool is_plan = is_best(*part);
    record.reason =
        text_of(ParallelismReason{.kind = is_plan ? ParallelismOutcomeKind::IsPlan : part->outcome,
                                  .plan = of_plan,
                                  .found = part->iteration,
                                  .lower_bound = part->lower_bound});
  }
  return records;
}

/// Makes the records of schedule families those of all parts: the best plan of a family that was
/// found in any of them, and the least of the bounds.
void ParallelismComparison::merge_schedules(PlanDocument& document) const {
  const Duration of_plan = document.prediction.iteration;
  for (std::size_t i = 0; i < document.schedules.size(); ++i) {
    ScheduleRecord& record = document.schedules[i];
    const ScheduleRecord own = record;
    for (const Part& part : parts_) {
      if (is_best(part)) continue;
      const bool has_record = i < part.schedules.size();
      const std::optional<Duration>& bound =
          has_record ? part.schedules[i].lower_bound : part.lower_bound;
      if (bound && (!record.lower_bound || *bound < *record.lower_bound)) {
        // A family without a bound of its own has plans of this part.
        record.lower_bound = bound;
      }
      if (!has_record || !part.schedules[i].iteration) continue;
      if (record.iteration && *record.iteration <= *part.schedules[i].iteration) continue;
      record.iteration = part.schedules[i].iteration;
      record.shape = part.schedules[i].shape;
      record.missing = {};
    }
    const bool is_alone = document.schedules.size() == 1;
    if (is_alone) record.lower_bound = document.prediction.lower_bound;
    if (record == own) continue;
    FamilyReason reason{.kind = FamilyOutcomeKind::NotSearched,
                        .plan = of_plan,
                        .lower_bound = record.lower_bound,
                        .bubble = document.prediction.bubble_fraction};
    if (record.iteration) {
      reason.kind = FamilyOutcomeKind::Found;
      reason.found = *record.iteration;
    }
    if (record.family == recorded_family(document.plan.family)) {
      reason.kind = FamilyOutcomeKind::IsPlan;
    }
    record.reason = text_of(reason);
  }
}

/// Searches the part of the best plan again, with its baselines, where these were made for another
/// part.
void ParallelismComparison::renew_baselines() {
  if (!context_.options.baselines || best_parallelism_ == first_searched_ || is_stopped_()) return;
  Part* const part = part_of(best_parallelism_, best_stage_forms_);
  check(part != nullptr, "the plan is of no part of the space");
  part->first_plan = best_->document.plan;
  part->first = best_->document.prediction.iteration;
  MadePlan found = *std::exchange(best_, std::nullopt);
  search(*part);
  // A stop leaves the plan as it was found, without baselines.
  if (!best_) best_ = std::move(found);
}

/// Keeps only the forms in which stages of a plan run, in the order of the first stage of each, the
/// form of the first stage being that of the plan. Where groups have different sizes, the plan's
/// own form stays, which says of how many devices the smallest ones are.
void ParallelismComparison::leave_out_unused_forms() {
  PlanDocument& document = best_->document;
  Plan& plan = document.plan;
  std::vector<Parallelism> used;
  if (has_larger_groups(plan)) used.push_back(plan.parallelism);
  for (StagePlan& stage : plan.stages) {
    const Parallelism form = form_of(plan, stage);
    const auto found = std::find(used.begin(), used.end(), form);
    stage.form = index_at<FormIndex>(static_cast<std::size_t>(found - used.begin()));
    if (found == used.end()) used.push_back(form);
  }
  plan.parallelism = used.front();
  plan.stage_forms.assign(used.begin() + 1, used.end());
  auto inputs =
      group_inputs(context_.profile, context_.topology, plan.parallelism, plan.stage_forms);
  check(std::holds_alternative<PlanInputs>(inputs), "stages have forms that cannot be mixed");
  document.profile = std::move(std::get<PlanInputs>(inputs).profile);
  // The speedup is over the forms that are left.
  const std::optional<Duration> bound = document.prediction.lower_bound;
  best_->evaluation =
      evaluate(plan, document.profile, Topology{document.topology}, context_.options.mode());
  document.prediction = best_->evaluation.prediction;
  set_proven_bound(document.prediction, bound);
  // A plan of one form, or on groups of one size, may have been found only among others.
  const auto is_of_plan = [&](const Part& some) {
    ParallelismRecord record;
    record.parallelism = some.parallelism;
    record.stage_forms = some.stage_forms;
    return is_of(record, plan);
  };
  const Part* const own = part_of(best_parallelism_, best_stage_forms_);
  if (own != nullptr && is_of_plan(*own)) return;
  const auto part = std::find_if(parts_.begin(), parts_.end(), is_of_plan);
  if (part == parts_.end()) return;
  part->iteration = document.prediction.iteration;
  part->shape = shape_of(plan);
  best_parallelism_ = part->parallelism;
  best_stage_forms_ = part->stage_forms;
}

/// Leaves out the forms that the best plan does not use, and searches those that it uses again,
/// with baselines, where these are asked for. The bound and the record stay those of all forms.
void ParallelismComparison::settle_mixed_plan() {
  best_->document.plan.parallelism = best_parallelism_;
  leave_out_unused_forms();
  std::size_t forms = 0;
  while (context_.options.baselines && !is_stopped_() &&
         forms != best_->document.plan.stage_forms.size() + 1) {
    const MadePlan found = *best_;
    const PlanDocument& known = found.document;
    forms = known.plan.stage_forms.size() + 1;
    const Topology topology{known.topology};
    PlanningContext context{known.profile, topology, context_.options, context_.progress};
    context.first_plan = &known.plan;
    context.first_iteration = known.prediction.iteration;
    auto again = plan_as_restricted(context, restriction_);
    auto* plan = std::get_if<MadePlan>(&again);
    if (plan == nullptr) return;
    plan->document.search = known.search;
    plan->document.plan.parallelism = known.plan.parallelism;
    plan->document.plan.stage_forms = known.plan.stage_forms;
    best_ = std::move(*plan);
    leave_out_unused_forms();
  }
}

/// Keeps the plans of the best plan's part, unless its stages differ in form: then only those forms
/// are left that they use, which other plans may not have.
void ParallelismComparison::keep_plans() {
  if (context_.pool == nullptr || !best_stage_forms_.empty()) return;
  Part* const part = part_of(best_parallelism_, {});
  if (part != nullptr) *context_.pool = std::move(*part->pool);
}

/// Sets what of the best plan's document is about all parts.
MadePlan ParallelismComparison::finish() {
  keep_plans();
  PlanDocument& document = best_->document;
  if (best_stage_forms_.empty()) document.plan.parallelism = best_parallelism_;
  if (!document.plan.parallelism.is_none() || !document.plan.stage_forms.empty()) {
    document.ungrouped = {context_.profile, context_.topology.description()};
  }
  SearchRecord& search = document.search;
  search.outside = outside_space(context_.profile, context_.options.sharding,
                                 context_.options.mixes_forms, context_.options.mixes_group_sizes);
  if (asked_.size() == 1) return std::move(*best_);
  std::optional<Duration> bound = document.prediction.iteration;
  search.open = 0;
  for (const AskedParallelism& asked : asked_) {
    const Part* const found = part_of(asked.parallelism, asked.stage_forms);
    if (found == nullptr) continue;
    const Part& part = *found;
    // A part whose plans provably do not fit has no bound to add.
    const bool has_none = part.outcome == ParallelismOutcomeKind::NoneFits;
    if (!has_none && !part.lower_bound) bound.reset();
    if (bound && part.lower_bound) bound = std::min(*bound, *part.lower_bound);
    const bool may_be_faster =
        part.lower_bound && *part.lower_bound < document.prediction.iteration;
    if (may_be_faster) search.open += part.open;
    if (is_best(part) || part.is_complete || !may_be_faster) continue;
    search.cut.push_back(cut_of_parallelism(part.parallelism, part.stage_forms));
  }
  if (context_.options.baselines && !best_->baselines.empty()) {
    if (auto uniform = best_uniform(asked_, context_)) {
      document.baselines.push_back(uniform->figures);
      best_->baselines.push_back(std::move(*uniform));
    }
  }
  set_proven_bound(document.prediction, bound);
  search.complete = search.complete && search.cut.empty() && bound.has_value();
  document.parallelisms = records();
  merge_schedules(document);
  document.warnings = warnings_of(document, Topology{document.topology});
  return std::move(*best_);
}

std::variant<MadePlan, Infeasible> ParallelismComparison::run() {
  take_parts();
  refuse_without_parts();
  take_plan_of_one_kind();
  look_ahead();
  for (Part& part : parts_) {
    if (part.is_mixed()) continue;
    const bool is_first = !best_;
    search(part);
    if (is_first && best_) first_searched_ = part.parallelism;
  }
  if (best_) renew_baselines();
  for (Part& part : parts_) {
    if (part.is_mixed()) search(part);
  }
  if (best_ && !best_stage_forms_.empty()) settle_mixed_plan();
  if (best_) return finish();
  if (!closest_) return stopped_before_a_plan();
  const std::vector<Parallelism> every = parallelisms_of(context_.profile);
  const bool are_forms_left = std::any_of(every.begin(), every.end(), [&](const Parallelism& form) {
    return std::none_of(asked_.begin(), asked_.end(), [&](const AskedParallelism& asked) {
      return form_of_layers(asked.parallelism) == form;
    });
  });
  if (are_forms_left && !closest_->stopped) {
    closest_->remedy = {.kind = RemedyKind::EveryParallelism};
  }
  return std::move(*closest_);
}

/// Whether a remedy is more memory or devices.
bool is_more_hardware(RemedyKind kind) {
  return kind == RemedyKind::MoreDevices || kind == RemedyKind::OnlyMoreMemory ||
         kind == RemedyKind::MoreMemory || kind == RemedyKind::SomeMemory;
}

/// Whether there is a form of parallelism that is asked for and has groups.
bool has_parts(const PlanningContext& context, const std::optional<PlanRestriction>& restriction) {
  const std::vector<AskedParallelism> asked = asked_parallelisms(context, restriction);
  return std::any_of(asked.begin(), asked.end(), [](const AskedParallelism& form) {
    return std::holds_alternative<PlanInputs>(form.inputs);
  });
}

/// Names sharded state as the remedy where nothing but more hardware was found to help, and the
/// DAPPLE planner finds a plan with it.
void look_for_sharded_remedy(Infeasible& infeasible, const PlanningContext& context,
                             const std::optional<PlanRestriction>& restriction) {
  const PlannerOptions& asked = context.options;
  const bool is_lacking =
      infeasible.shortage && !infeasible.stopped && is_more_hardware(infeasible.remedy.kind);
  if (!is_lacking || asked.sharding != Sharding::None ||
      asked.optimizer == OptimizerTiming::PerBucket || asks_for_families(asked)) {
    return;
  }
  PlannerOptions options = asked;
  options.planner = PlannerKind::Dapple;
  options.baselines = false;
  const bool may_shard_optimizer = !restriction || restriction->shards_optimizer;
  const bool may_shard_all = !restriction || restriction->shards_all_state;
  for (const Sharding sharding : {Sharding::Optimizer, Sharding::Full}) {
    const bool is_full = sharding == Sharding::Full;
    if (is_full ? !may_shard_all : !may_shard_optimizer) continue;
    options.sharding = sharding;
    if (is_full && !has_parts(context.with(options), restriction)) continue;
    const auto made = ParallelismComparison(context.with(options), restriction, nullptr).run();
    if (!std::holds_alternative<MadePlan>(made)) continue;
    infeasible.remedy = {.kind = is_full ? RemedyKind::AllStateSharded : RemedyKind::ShardedState};
    return;
  }
}

/// Returns what the target runtime lacks for a form of parallelism; empty if it lacks nothing.
std::string lack_of(const std::optional<PlanRestriction>& restriction, const Parallelism& form) {
  if (!restriction) return "";
  const char* what = nullptr;
  if (form.tensor > 1 && !restriction->tensor_parallel) what = "tensor parallelism";
  if (form.sequence && !restriction->sequence_parallel) what = "sequence parallelism";
  if (form.context > 1 && !restriction->context_parallel) what = "context parallelism";
  if (form.experts > 1 && !restriction->expert_parallel) what = "expert parallelism";
  const bool has_whole_sequence = form.tensor > 1 && !form.sequence;
  if (form.experts > 1 && has_whole_sequence && restriction->experts_need_sequence) {
    what = "experts beside tensor parallelism without sequence parallelism";
  }
  if (form.context > 1 && form.full_shards == 1 && restriction->context_shards_state) {
    what = "context parallelism with whole parameters";
  }
  if (!restriction->recomputed_parts.includes(form.recomputes) ||
      !restriction->recomputed_layers.has(form.recomputation())) {
    what = "such recomputation";
  }
  if (form.shards_optimizer && !restriction->shards_optimizer) what = "sharded state";
  if (form.full_shards > 1 && !restriction->shards_all_state) what = "sharded parameters";
  return what == nullptr ? "" : "the files for " + restriction->runtime + " have no " + what;
}

/// Whether a schedule that is asked for has several stages on a device.
bool may_have_loops(const PlannerOptions& options, const PlanRestriction& restriction) {
  if (!options.every_family) return options.family && has_loops(*options.family);
  return std::any_of(restriction.families.begin(), restriction.families.end(), has_loops);
}

/// Returns why the request excludes every plan of a form; empty if it does not.
std::string exclusion_of(const PlanningContext& context,
                         const std::optional<PlanRestriction>& restriction,
                         const Parallelism& form) {
  const PlannerOptions& options = context.options;
  if (form.copies() > 1 && options.optimizer == OptimizerTiming::PerBucket) {
    return "groups whose devices hold the same parameters update them all at the end";
  }
  // A rank may have no sample of a micro-batch.
  if (options.global_batch_size < form.replicas_in_group()) {
    return fmt::format("a batch of {} has no sample for each of {} data-parallel ranks",
                       options.global_batch_size, form.replicas_in_group());
  }
  const std::int64_t samples = options.micro_batch_size.value_or(options.global_batch_size);
  if (restriction && samples % form.replicas_in_group() != 0) {
    return fmt::format("{} data-parallel ranks do not divide a batch of {}",
                       form.replicas_in_group(), samples);
  }
  const bool is_every_nth = form.recomputed_layers.kind() == LayerSelection::Kind::EveryNth;
  if (is_every_nth && restriction && restriction->recomputed_layers.every_nth &&
      may_have_loops(options, *restriction)) {
    return fmt::format(
        "{} counts layers through all stages of a device, of which schedules that are asked for "
        "have several",
        restriction->runtime);
  }
  return lack_of(restriction, form);
}

/// Returns the forms with all state sharded, by rising number of shards: the pinned one, or all of
/// which groups are parts of a server or whole servers.
std::vector<Parallelism> fully_sharded_forms(const PlanningContext& context,
                                             const Parallelism& form) {
  const std::optional<std::int64_t>& pin = context.options.pins.shards;
  const std::int64_t devices = context.topology.device_count();
  const std::int64_t most = pin.value_or(devices / form.tensor);
  std::vector<Parallelism> forms;
  for (std::int64_t count = std::max<std::int64_t>(2, pin.value_or(2)); count <= most; ++count) {
    Parallelism sharded = form;
    sharded.full_shards = count;
    if (!sharded.is_sound()) continue;
    // A pinned number without groups is kept, so that the reason is named.
    const bool has_groups =
        pin || (devices % sharded.group_size() == 0 &&
                std::holds_alternative<GroupedTopology>(group_devices(context.topology, sharded)));
    if (has_groups) forms.push_back(sharded);
  }
  return forms;
}

/// Returns a form and, where its layers recompute and it is asked for, those in which only some of
/// every stage do: the first ones, in numbers of at most three binary digits before zeros, 1 to 8,
/// 10, 12, 14, 16, 20 and so on, and every second, third and fourth one.
std::vector<Parallelism> recomputing_forms(const PlanningContext& context,
                                           const std::optional<PlanRestriction>& restriction,
                                           const Parallelism& form) {
  const Pins& pins = context.options.pins;
  if (pins.recomputation && pins.recomputation->parts != form.recomputes) return {};
  std::vector<Parallelism> forms{form};
  if (pins.recomputation) {
    const LayerSelection layers = pins.recomputation->layers;
    const bool is_in_all = layers.contains_all_of(layers_that_recompute(context.profile, form));
    if (!is_in_all) forms.front().recomputed_layers = layers;
    return forms;
  }
  if (form.recomputes.none() || !searches_some_layers(context, restriction)) return forms;
  const auto add = [&](LayerSelection layers) {
    forms.push_back(form);
    forms.back().recomputed_layers = layers;
  };
  const std::int64_t most = layers_that_recompute(context.profile, form);
  const bool has_first = !restriction || restriction->recomputed_layers.first;
  for (std::int64_t layers = 1, step = 1; has_first && layers < most; layers += step) {
    add(LayerSelection::first(layers));
    if (layers == 8 * step) step *= 2;
  }
  const bool has_every_nth = !restriction || restriction->recomputed_layers.every_nth;
  for (std::int64_t n = 2; has_every_nth && n <= std::min<std::int64_t>(most, 4); ++n) {
    add(LayerSelection::every(n));
  }
  return forms;
}

/// Returns the ways to shard state of a form that has none sharded.
std::vector<Parallelism> sharded_forms(const PlanningContext& context, const Parallelism& form) {
  const Sharding asked = context.options.sharding;
  const std::optional<std::int64_t>& shards = context.options.pins.shards;
  std::vector<Parallelism> forms;
  if (shards.value_or(1) == 1) {
    if (asked == Sharding::None || asked == Sharding::Any) forms.push_back(form);
    if (asked == Sharding::Optimizer || asked == Sharding::Any) {
      forms.push_back(form);
      forms.back().shards_optimizer = true;
    }
  }
  if (asked != Sharding::Full && asked != Sharding::Any) return forms;
  const std::vector<Parallelism> sharded = fully_sharded_forms(context, form);
  forms.insert(forms.end(), sharded.begin(), sharded.end());
  return forms;
}

/// Throws if the layers of all forms, of which each has its own, would take too much memory.
void refuse_too_many(const std::vector<Parallelism>& forms, const ModelProfile& profile) {
  constexpr std::size_t kMostLayers = 2'000'000;  // some GiB
  if (forms.size() * profile.layers.size() <= kMostLayers) return;
  throw Error(
      ErrorKind::BadInput, "",
      {{"/request/pins",
        fmt::format("expected at most {} layers in all forms of parallelism together, which "
                    "pinned degrees make fewer, got {} forms of {} layers",
                    kMostLayers, forms.size(), profile.layers.size())}});
}

/// Returns the form with as many data-parallel ranks in a group as groups of that size have, or
/// nothing if its own groups are not parts of them.
std::optional<Parallelism> filled_to(Parallelism form, std::int64_t group_size) {
  if (form.group_size() == group_size) return form;
  const std::int64_t of_sample = form.tensor * form.context;
  if (form.full_shards > 1 || group_size % of_sample != 0) return std::nullopt;
  form.group_replicas = group_size / of_sample;
  if (form.group_size() != group_size || !form.is_sound()) return std::nullopt;
  return form;
}

/// Returns the inputs of a form, if it has groups on which sums of its work stay in their range.
std::variant<PlanInputs, NoGroups> inputs_of(const PlanningContext& context,
                                             const Parallelism& form) {
  auto grouped = group_inputs(context.profile, context.topology, form);
  const auto* const inputs = std::get_if<PlanInputs>(&grouped);
  if (inputs == nullptr) return grouped;
  const Topology topology{inputs->topology};
  if (!check_compatible(inputs->profile, topology, context.options.global_batch_size).empty()) {
    return NoGroups{"/layers", "times or sizes leave their range"};
  }
  return grouped;
}

/// Appends the sets of forms, of those that are asked for, that stages of one plan may have, and
/// forms with more data-parallel ranks in a group that are in no set with another one.
void add_mixed_forms(const PlanningContext& context, std::vector<AskedParallelism>& asked) {
  const std::size_t uniform = asked.size();
  std::set<std::int64_t> sizes;
  for (const AskedParallelism& form : asked) {
    if (std::holds_alternative<PlanInputs>(form.inputs)) {
      sizes.insert(form.parallelism.group_size());
    }
  }
  for (const std::int64_t size : sizes) {
    std::vector<PlanInputs> sets;
    for (std::size_t i = 0; i < uniform; ++i) {
      if (!asked[i].parallelism.recomputed_layers.is_all() && !context.options.pins.recomputation)
        continue;
      const std::optional<Parallelism> form = filled_to(asked[i].parallelism, size);
      if (!form || !exclusion_of(context, std::nullopt, *form).empty()) continue;
      auto grouped = inputs_of(context, *form);
      auto* inputs = std::get_if<PlanInputs>(&grouped);
      if (inputs == nullptr) continue;
      const auto set = std::find_if(sets.begin(), sets.end(), [&](const PlanInputs& some) {
        return mixing_fault(some, *inputs).empty();
      });
      if (set == sets.end()) {
        sets.push_back(std::move(*inputs));
      } else {
        set->profile.stage_forms.push_back(std::move(inputs->profile));
      }
    }
    for (PlanInputs& set : sets) {
      // A form with groups of its own size is among those above.
      const bool is_one = set.profile.stage_forms.empty();
      if (is_one && set.profile.parallelism.group_replicas == 1) continue;
      AskedParallelism& mixed = asked.emplace_back();
      mixed.parallelism = set.profile.parallelism;
      mixed.stage_forms = stage_forms_of(set.profile);
      mixed.inputs = std::move(set);
    }
  }
}

/// Whether plans may have stages with groups of different sizes: their replicas are together and
/// share every micro-batch, and all devices are of one kind.
bool may_mix_group_sizes(const PlanningContext& context) {
  const PlannerOptions& options = context.options;
  return options.mixes_group_sizes && options.planner == PlannerKind::Exact &&
         options.replicas == Replicas::Together && !may_deal(options) && !options.pins.in_order &&
         kinds_in_use(context.topology).size() == 1;
}

/// Whether stages may have larger groups of so many devices of a topology: all pools of
/// interchangeable devices consist of such groups.
bool have_pools_groups(const Topology& topology, std::int64_t devices) {
  const std::vector<search::DevicePool> pools = search::device_pools(topology);
  return std::all_of(pools.begin(), pools.end(),
                     [&](const search::DevicePool& pool) { return pool.size % devices == 0; });
}

/// Whether stages may have a further form beside those of a set.
bool may_join(const PlanInputs& set, const PlanInputs& further) {
  if (!mixing_fault(set, further).empty()) return false;
  for (const ModelProfile& form : set.profile.stage_forms) {
    if (!mixing_fault({form, set.topology}, further).empty()) return false;
  }
  return have_pools_groups(Topology{set.topology},
                           devices_per_replica(set.profile, further.profile));
}

/// Appends the sets of the first `uniform` forms in which stages of one plan may be although their
/// groups have different sizes.
void add_forms_of_any_size(const PlanningContext& context, std::size_t uniform,
                           std::vector<AskedParallelism>& asked) {
  std::vector<const PlanInputs*> forms;
  for (std::size_t i = 0; i < uniform; ++i) {
    const auto* inputs = std::get_if<PlanInputs>(&asked[i].inputs);
    const bool is_in_all = asked[i].parallelism.recomputed_layers.is_all();
    if (inputs != nullptr && (is_in_all || context.options.pins.recomputation)) {
      forms.push_back(inputs);
    }
  }
  std::stable_sort(forms.begin(), forms.end(), [](const PlanInputs* a, const PlanInputs* b) {
    return a->profile.parallelism.group_size() < b->profile.parallelism.group_size();
  });
  std::vector<PlanInputs> sets;
  for (const PlanInputs* const form : forms) {
    const Topology topology{form->topology};
    if (!check_compatible(form->profile, topology, context.options.global_batch_size).empty()) {
      continue;
    }
    const auto set = std::find_if(sets.begin(), sets.end(),
                                  [&](const PlanInputs& some) { return may_join(some, *form); });
    if (set != sets.end()) {
      set->profile.stage_forms.push_back(form->profile);
    } else if (search::PlacementSpace(topology).is_complete()) {
      sets.push_back(*form);
    }
  }
  for (PlanInputs& set : sets) {
    if (!has_larger_groups(set.profile)) continue;
    AskedParallelism& mixed = asked.emplace_back();
    mixed.parallelism = set.profile.parallelism;
    mixed.stage_forms = stage_forms_of(set.profile);
    mixed.inputs = std::move(set);
  }
}

}  // namespace

bool searches_some_layers(const PlanningContext& context,
                          const std::optional<PlanRestriction>& restriction) {
  if (context.options.recomputed_layers == RecomputedLayers::All ||
      context.options.pins.recomputation || context.options.mixes_forms ||
      (restriction && !restriction->recomputed_layers.has_some())) {
    return false;
  }
  const std::vector<Parallelism> forms = parallelisms_of(context.profile);
  return std::any_of(forms.begin(), forms.end(), [&](const Parallelism& form) {
    return !form.recomputes.none() && (!restriction || form.recomputes == kWholeLayer);
  });
}

std::vector<AskedParallelism> asked_parallelisms(const PlanningContext& context,
                                                 const std::optional<PlanRestriction>& restriction,
                                                 const std::set<Parallelism>* among) {
  const PlannerOptions& options = context.options;
  const auto is_pinned = [](const std::optional<std::int64_t>& pin, std::int64_t degree) {
    return pin.value_or(degree) == degree;
  };
  std::vector<Parallelism> forms;
  for (const Parallelism& parallelism : parallelisms_of(context.profile)) {
    if (!is_pinned(options.pins.tensor, parallelism.tensor) ||
        !is_pinned(options.pins.context, parallelism.context) ||
        !is_pinned(options.pins.experts, parallelism.experts) ||
        parallelism.tensor > options.max_tensor.value_or(parallelism.tensor)) {
      continue;
    }
    for (const Parallelism& form : recomputing_forms(context, restriction, parallelism)) {
      const std::vector<Parallelism> sharded = sharded_forms(context, form);
      forms.insert(forms.end(), sharded.begin(), sharded.end());
    }
  }
  if (among != nullptr) {
    std::erase_if(forms, [&](const Parallelism& form) { return among->count(form) == 0; });
  }
  refuse_too_many(forms, context.profile);
  std::sort(forms.begin(), forms.end());
  std::vector<AskedParallelism> asked;
  for (const Parallelism& form : forms) {
    if (const std::string reason = exclusion_of(context, restriction, form); !reason.empty()) {
      asked.push_back({.parallelism = form, .inputs = NoGroups{"/request", reason}});
    } else {
      asked.push_back({.parallelism = form, .inputs = inputs_of(context, form)});
    }
  }
  const std::size_t uniform = asked.size();
  if (options.mixes_forms) add_mixed_forms(context, asked);
  if (may_mix_group_sizes(context)) add_forms_of_any_size(context, uniform, asked);
  return asked;
}

namespace {

/// Sets what the document says of the layers that recompute.
void set_recomputed_layers(MadePlan& made, const PlanningContext& context,
                           const std::optional<PlanRestriction>& restriction) {
  PlanDocument& document = made.document;
  const bool is_searched = searches_some_layers(context, restriction);
  if (document.request) {
    document.request->recomputed_layers =
        is_searched ? RecomputedLayers::Any : RecomputedLayers::All;
  }
  const SelectableLayers all{.first = true, .every_nth = true};
  const SelectableLayers selectable = restriction ? restriction->recomputed_layers : all;
  const SelectableLayers searched = is_searched ? selectable : SelectableLayers{};
  if (recomputes_in_some_form(context.profile)) {
    document.search.outside += recomputation_outside_space(searched);
  }
}

/// Makes a plan from a profile without variants.
std::variant<MadePlan, Infeasible> plan_of_own_form(
    const PlanningContext& context, const std::optional<PlanRestriction>& restriction) {
  const auto of_one_kind = plan_of_one_kind(context, restriction, nullptr);
  if (!of_one_kind) return plan_as_restricted(context, restriction);
  const PlanInputs inputs{context.profile, context.topology.description()};
  const auto first = in_whole(*of_one_kind, inputs, context.topology, context.options);
  if (!first) return plan_as_restricted(context, restriction);
  PlanningContext from_first = context;
  from_first.first_plan = &first->plan;
  from_first.first_iteration = first->iteration;
  return plan_as_restricted(from_first, restriction);
}

/// Makes the fastest plan of any form of parallelism.
std::variant<MadePlan, Infeasible> make_fastest_plan(
    const PlanningContext& context, const std::optional<PlanRestriction>& restriction,
    const std::set<Parallelism>* among) {
  const bool has_variants = parallelisms_of(context.profile).size() > 1;
  const Pins& pins = context.options.pins;
  const bool is_pinned = pins.tensor.value_or(1) != 1 || pins.context.value_or(1) != 1 ||
                         pins.experts.value_or(1) != 1 || pins.shards.value_or(1) != 1 ||
                         pins.recomputation;
  const bool may_shard = context.options.sharding != Sharding::None;
  auto made = has_variants || is_pinned || may_shard
                  ? ParallelismComparison(context, restriction, among).run()
                  : plan_of_own_form(context, restriction);
  if (auto* infeasible = std::get_if<Infeasible>(&made)) {
    look_for_sharded_remedy(*infeasible, context, restriction);
  } else if (kinds_in_use(context.topology).size() > 1) {
    const bool are_by_speed =
        !restriction && has_shares_by_speed(context.options, context.topology);
    std::get<MadePlan>(made).document.search.outside +=
        shares_outside_space(are_by_speed ? Shares::Any : Shares::Equal);
  }
  if (auto* plan = std::get_if<MadePlan>(&made)) set_recomputed_layers(*plan, context, restriction);
  return made;
}

/// The part of the time limit that the search may take where plans are compared behind it.
constexpr double kPartOfSearch = 0.75;

}  // namespace

std::variant<MadePlan, Infeasible> make_plan_of_any_parallelism(
    const PlanningContext& context, const std::optional<PlanRestriction>& restriction,
    const std::set<Parallelism>* among) {
  if (!context.options.jitter) return make_fastest_plan(context, restriction, among);
  PlannerOptions options = context.options;
  options.jitter.reset();
  std::optional<PartOfSearch> part;
  if (context.progress != nullptr) part.emplace(*context.progress, kPartOfSearch);
  PlanPool pool;
  PlanningContext first = context.with(options);
  first.progress = part ? &*part : nullptr;
  first.pool = &pool;
  auto made = make_fastest_plan(first, restriction, among);
  if (auto* plan = std::get_if<MadePlan>(&made)) {
    choose_by_median(*plan, pool, context, restriction);
  }
  return made;
}

}  // namespace dapple::planner
