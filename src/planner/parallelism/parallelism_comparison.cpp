#include "planner/parallelism/parallelism_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/planner/restricted/restricted.h"
#include "dapple/profile/variants.h"
#include "dapple/topology/servers_of_kind.h"
#include "planner/candidates/work_lower_bound.h"
#include "planner/one_family/diagram_planner.h"
#include "planner/one_family/plan_one_family.h"
#include "planner/parallelism/best_uniform.h"
#include "planner/parallelism/missing_forms.h"
#include "planner/parallelism/one_kind.h"
#include "planner/parallelism/part_records.h"
#include "planner/request/part_of_search.h"

namespace dapple::planner {
namespace {

/// With more devices than this, first plans of a part are only looked for below the fastest one of
/// any part. With so many or fewer they take little time, and show what other forms are good for.
constexpr std::int32_t kMostDevicesWithoutLimit = 32;

/// The part of the time limit that first plans of all parts may take together.
constexpr double kPartOfLookingAhead = 0.5;

}  // namespace

std::variant<MadePlan, Infeasible> plan_as_restricted(
    const PlanningContext& context, const std::optional<PlanRestriction>& restriction) {
  return restriction ? make_restricted_plan(context, *restriction) : make_plan(context);
}

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

/// Returns the context for a part: plans no faster than those of the parts before need not be
/// found.
PlanningContext ParallelismComparison::context_of(const SpacePart& part,
                                                  const PlannerOptions& options) {
  PlanningContext context{part.inputs->profile, part.topology, options, progress_.follower()};
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
  for (const SpacePart& part : parts_) {
    if (!part.is_mixed()) allowed.insert(part.parallelism);
  }
  const auto found = plan_of_one_kind(context_, restriction_, &allowed);
  if (!found) return;
  for (SpacePart& part : parts_) {
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
void ParallelismComparison::take_plan_of_other_layers(SpacePart& part) const {
  const Parallelism form = without_recomputation(part.parallelism);
  const CostModel costs(part.inputs->profile, part.topology);
  for (const SpacePart& other : parts_) {
    if (other.first.is_infinite() || other.is_mixed()) continue;
    if (without_recomputation(other.parallelism) != form) continue;
    Plan plan = other.first_plan;
    const auto iteration = iteration_below(part.first, plan, costs, context_.options);
    if (!iteration) continue;
    part.first = *iteration;
    part.first_plan = std::move(plan);
  }
}

/// Returns the context for the first plan of a part. Where there is one already, and there are many
/// devices, many forms in the part, or many such parts as only some layers of a stage recompute,
/// only plans faster than those found for any part are looked for.
PlanningContext ParallelismComparison::context_to_look_ahead(SpacePart& part,
                                                             const PlannerOptions& options,
                                                             Duration fastest) {
  const bool may_limit = only_fastest_counts();
  const bool is_in_some_layers = !part.parallelism.recomputed_layers.is_all();
  if (may_limit && is_in_some_layers) take_plan_of_other_layers(part);
  PlanningContext context = context_of(part, options);
  const bool are_many = context_.topology.device_count() > kMostDevicesWithoutLimit;
  const bool is_of_many = are_many || is_in_some_layers || part.is_mixed();
  if (!may_limit || part.first.is_infinite() || !is_of_many) return context;
  context.to_beat = std::min(fastest, part.first);
  context.only_faster = true;
  return context;
}

/// Returns the options with which parts are looked at before any is searched: those of the DAPPLE
/// planner.
PlannerOptions ParallelismComparison::options_to_look_ahead() const {
  PlannerOptions options = context_.options;
  options.planner = PlannerKind::Dapple;
  options.baselines = false;
  options.every_family = false;
  if (asks_for_families(context_.options)) options.family.reset();
  return options;
}

/// Returns the time of the fastest first plan of any part, which is infinite if there is none.
Duration ParallelismComparison::fastest_first_plan() const {
  Duration fastest = Duration::infinite();
  for (const SpacePart& part : parts_) fastest = std::min(fastest, part.first);
  return fastest;
}

/// Sorts the parts by the times of their first plans, those with several forms last.
void ParallelismComparison::sort_by_first_plans() {
  std::stable_sort(parts_.begin(), parts_.end(), [](const SpacePart& a, const SpacePart& b) {
    return std::pair(a.is_mixed(), a.first) < std::pair(b.is_mixed(), b.first);
  });
}

/// Bounds every part by its work, and makes the first plan of those whose bound is below the plans
/// before, by the DAPPLE planner: first of opening plans alone, so that a good form is soon known
/// where there are many, and then of all its plans. In the end, parts are sorted by their times.
/// Best-uniform, which may be faster than opening plans, is made in between.
void ParallelismComparison::look_ahead() {
  if (context_.options.planner != PlannerKind::Exact || parts_.size() == 1) {
    return start_from_best_uniform();
  }
  // The DAPPLE planner deals no micro-batches, which the plans that are asked for may.
  std::map<Parallelism, Duration> bounds;
  for (SpacePart& part : parts_) {
    const auto bound_of_work = [&] { return work_lower_bound(context_of(part, context_.options)); };
    if (part.is_mixed()) {
      part.lower_bound = bound_of_work();
      continue;
    }
    const auto [known, is_new] =
        bounds.try_emplace(representative_of_some_layers(part.parallelism));
    if (is_new) known->second = bound_of_work();
    part.lower_bound = known->second;
  }
  std::stable_sort(parts_.begin(), parts_.end(), [](const SpacePart& a, const SpacePart& b) {
    return std::pair(a.is_mixed(), *a.lower_bound) < std::pair(b.is_mixed(), *b.lower_bound);
  });
  make_first_plans(DappleSteps::Opening);
  start_from_best_uniform();
  sort_by_first_plans();
  // Those in which only some layers of every stage recompute follow the others, whose plans they
  // may have. They come last, as stages that differ in these layers are mostly faster.
  std::stable_sort(parts_.begin(), parts_.end(), [](const SpacePart& a, const SpacePart& b) {
    const auto key = [](const SpacePart& part) {
      return std::pair(!part.is_mixed() && !part.parallelism.recomputed_layers.is_all(),
                       part.is_mixed());
    };
    return key(a) < key(b);
  });
  make_first_plans(DappleSteps::Searches);
  sort_by_first_plans();
}

/// Makes the first plan, or only opening plans, of every part whose bound is below the plans
/// before, until part of the time limit is over.
void ParallelismComparison::make_first_plans(DappleSteps steps) {
  const PlannerOptions options = options_to_look_ahead();
  std::optional<PartOfSearch> time;
  if (progress_.follower() != nullptr) time.emplace(progress_, kPartOfLookingAhead);
  const StopQuestion is_over(time ? &*time : nullptr);
  // These plans are among those that are asked for, unless that is another family alone.
  const bool are_asked_for = !asks_for_families(context_.options) || context_.options.every_family;
  Duration fastest = fastest_first_plan();
  for (SpacePart& part : parts_) {
    if (is_over()) break;
    if (steps == DappleSteps::Opening && !part.parallelism.recomputed_layers.is_all()) continue;
    if (are_asked_for && *part.lower_bound >= fastest) continue;
    if (has_first_plan_in_mixed(part)) continue;
    if (steps != DappleSteps::Opening && is_left_to_diagrams(part, fastest)) continue;
    // A faster plan of another family would not be asked for.
    if (!are_asked_for && part.is_first_of_one_kind) continue;
    begin(part);
    PlanningContext context = context_to_look_ahead(part, options, fastest);
    context.progress = time ? &*time : nullptr;
    const bool is_narrow = steps == DappleSteps::Searches && is_of_mixed(part);
    context.dapple_steps = is_narrow ? DappleSteps::NarrowSearch : steps;
    auto made = plan_as_restricted(context, restriction_for(restriction_, part.parallelism));
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
                        !may_fit_only_dealt(context_.options, part.topology);
      if (part.is_settled) take(part, std::move(infeasible));
    }
  }
}

/// Whether a part is mixed, or has no plans that a mixed part does not have. There an exact search
/// in many forms finds better plans than the DAPPLE search, however thorough that is.
bool ParallelismComparison::is_of_mixed(const SpacePart& part) const {
  return only_fastest_counts() &&
         (part.is_mixed() || std::any_of(parts_.begin(), parts_.end(), [&](const SpacePart& mixed) {
            return covers(mixed, part);
          }));
}

/// Whether only some layers of every stage recompute in a part, and a mixed part that has all of
/// its plans has a first plan.
bool ParallelismComparison::has_first_plan_in_mixed(const SpacePart& part) const {
  return only_fastest_counts() && !part.parallelism.recomputed_layers.is_all() &&
         std::any_of(parts_.begin(), parts_.end(), [&](const SpacePart& mixed) {
           return !mixed.first.is_infinite() && covers(mixed, part);
         });
}

/// Whether decision diagrams will find the plans of a mixed part that are faster than the fastest
/// one known, which takes less time than the DAPPLE searches in many forms.
bool ParallelismComparison::is_left_to_diagrams(const SpacePart& part, Duration fastest) const {
  return only_fastest_counts() && part.is_mixed() && !fastest.is_infinite() &&
         is_for_diagrams({part.inputs->profile, part.topology, context_.options});
}

/// Whether a mixed part is searched before the parts of one form: where it has the fastest first
/// plan, or has all plans of several parts that may have faster plans than those known.
bool ParallelismComparison::is_worth_searching_in_front(const SpacePart& mixed) const {
  Duration fastest = fastest_first_plan();
  const bool is_first = std::all_of(parts_.begin(), parts_.end(), [&](const SpacePart& part) {
    return part.is_mixed() ? mixed.first <= part.first : mixed.first < part.first;
  });
  if (is_first) return true;
  if (best_) fastest = std::min(fastest, best_->document.prediction.iteration);
  constexpr std::ptrdiff_t kSeveral = 2;
  const auto is_covered = [&](const SpacePart& part) {
    return covers(mixed, part) && !part.is_settled && part.lower_bound &&
           *part.lower_bound < gap_threshold(fastest, context_.options.target_gap);
  };
  return std::count_if(parts_.begin(), parts_.end(), is_covered) >= kSeveral;
}

/// Searches mixed parts before all others where that is worth it. What this proves holds for the
/// parts that they cover, too, so that these need not be searched where it is enough.
void ParallelismComparison::search_mixed_in_front() {
  if (!only_fastest_counts()) return;
  for (SpacePart& mixed : parts_) {
    if (!mixed.is_mixed() || !is_worth_searching_in_front(mixed)) continue;
    search(mixed);
    for (SpacePart& part : parts_) {
      if (!covers(mixed, part) || !part.lower_bound || !mixed.lower_bound) continue;
      part.lower_bound = std::max(*part.lower_bound, *mixed.lower_bound);
    }
  }
}

/// Tells that a part is searched from now on.
void ParallelismComparison::begin(const SpacePart& part) {
  if (parts_.size() == 1) return progress_.begin("", Duration::infinite());
  std::optional<Duration> bound = Duration::infinite();
  for (const SpacePart& other : parts_) {
    if (&other == &part || other.outcome == ParallelismOutcomeKind::NoneFits) continue;
    if (!other.lower_bound) bound.reset();
    if (bound && other.lower_bound) bound = std::min(*bound, *other.lower_bound);
  }
  const std::string form = part.is_mixed()
                               ? fmt::format("any of {} forms", part.stage_forms.size() + 1)
                               : short_text(part.parallelism);
  progress_.begin(fmt::format("form {} of {} ({})", &part - parts_.data() + 1, parts_.size(), form),
                  bound);
}

/// Searches a part. The baselines are those of the first part that is searched.
void ParallelismComparison::search(SpacePart& part) {
  if (part.is_settled || std::exchange(part.is_searched, true)) return;
  PlannerOptions options = context_.options;
  options.baselines = options.baselines && !best_ && !part.is_mixed();
  PlanningContext context = context_of(part, options);
  // Its first plan is that of a search, and an exact one follows.
  const bool is_found = part.is_mixed() && !part.first.is_infinite() && only_fastest_counts();
  if (context_.options.planner == PlannerKind::Exact) {
    if (is_found) context.dapple_steps = DappleSteps::Opening;
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
  begin(part);
  auto made = plan_as_restricted(context, restriction_for(restriction_, part.parallelism));
  if (auto* plan = std::get_if<MadePlan>(&made)) {
    take(part, std::move(*plan));
  } else {
    take(part, std::get<Infeasible>(std::move(made)));
  }
}

void ParallelismComparison::take(SpacePart& part, MadePlan made) {
  const Prediction& prediction = made.document.prediction;
  part.iteration = prediction.iteration;
  part.lower_bound = prediction.lower_bound;
  part.shape = shape_of(made.document.plan);
  part.schedules = made.document.schedules;
  part.outcome = ParallelismOutcomeKind::Found;
  part.is_complete = made.document.search.complete;
  part.open = made.document.search.open;
  const bool is_better =
      !best_ || prediction.iteration < best_->document.prediction.iteration ||
      (prediction.iteration == best_->document.prediction.iteration && !part.is_mixed() &&
       (!best_stage_forms_.empty() || part.parallelism < best_parallelism_));
  if (!is_better) return;
  best_parallelism_ = part.parallelism;
  best_stage_forms_ = part.stage_forms;
  best_ = std::move(made);
}

void ParallelismComparison::take(SpacePart& part, Infeasible infeasible) {
  part.missing = infeasible.missing();
  if (part.lower_bound) part.lower_bound = std::max(*part.lower_bound, infeasible.lower_bound);
  if (infeasible.is_proven() && !infeasible.stopped) {
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
SpacePart* ParallelismComparison::part_of(const Parallelism& form,
                                          const std::vector<Parallelism>& stage_forms) {
  const auto found = std::find_if(parts_.begin(), parts_.end(), [&](const SpacePart& some) {
    return some.parallelism == form && some.stage_forms == stage_forms;
  });
  return found == parts_.end() ? nullptr : &*found;
}

/// Makes the baseline best-uniform and, where it is faster than the first plans of all parts and
/// among those that are asked for, the first plan of its part. No plan that is found is slower
/// then, and forms that cannot beat it are not searched.
void ParallelismComparison::start_from_best_uniform() {
  const PlannerOptions& options = context_.options;
  // What a target runtime cannot express is never chosen, and made for comparison only.
  if (asked_.size() == 1 || (restriction_ && !options.baselines)) return;
  const Duration fastest = fastest_first_plan();
  std::map<Parallelism, Duration> bounds;
  for (const SpacePart& part : parts_) {
    if (!part.is_mixed() && part.lower_bound && options.pins.empty()) {
      bounds.emplace(part.parallelism, *part.lower_bound);
    }
  }
  best_uniform_ = best_uniform(asked_, context_, uniform_families(options, restriction_),
                               options.baselines ? Duration::infinite() : fastest, bounds);
  if (!best_uniform_ || restriction_) return;
  const Baseline& figures = best_uniform_->figures;
  const bool is_faster = figures.feasible && figures.iteration < fastest;
  if (!is_faster || !is_asked_for(best_uniform_->plan, options)) return;
  SpacePart* const part = part_of(best_uniform_->plan.parallelism, {});
  check(part != nullptr, "best-uniform is of no part of the space");
  part->first_plan = best_uniform_->plan;
  // While parts are searched, the first form is that of the profile.
  part->first_plan.parallelism = {};
  part->first = figures.iteration;
  part->is_first_of_one_kind = false;
}

/// Searches the part of the best plan again, from that plan and with its baselines, where these
/// were made for another part.
void ParallelismComparison::renew_baselines() {
  if (!context_.options.baselines || !best_stage_forms_.empty() || is_stopped_()) return;
  if (best_parallelism_ == first_searched_) return;
  SpacePart* const part = part_of(best_parallelism_, best_stage_forms_);
  check(part != nullptr, "the plan is of no part of the space");
  MadePlan found = *std::exchange(best_, std::nullopt);
  part->first_plan = found.document.plan;
  part->first = found.document.prediction.iteration;
  part->is_searched = false;
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
  const auto is_of_plan = [&](const SpacePart& some) {
    ParallelismRecord record;
    record.parallelism = some.parallelism;
    record.stage_forms = some.stage_forms;
    return is_of(record, plan);
  };
  const SpacePart* const own = part_of(best_parallelism_, best_stage_forms_);
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
  SpacePart* const part = part_of(best_parallelism_, {});
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
  if (asked_.size() == 1) {
    // The warnings of the part are not those of the profile with all of its variants.
    document.warnings = warnings_of(document, Topology{document.topology});
    return std::move(*best_);
  }
  std::optional<Duration> bound = document.prediction.iteration;
  search.open = 0;
  for (const AskedParallelism& asked : asked_) {
    const SpacePart* const found = part_of(asked.parallelism, asked.stage_forms);
    if (found == nullptr) continue;
    const SpacePart& part = *found;
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
  if (context_.options.baselines && !best_->baselines.empty() && best_uniform_) {
    document.baselines.push_back(best_uniform_->figures);
    best_->baselines.push_back(*std::move(best_uniform_));
  }
  set_proven_bound(document.prediction, bound);
  search.complete = search.complete && search.cut.empty() && bound.has_value();
  const auto is_of_plan = [&](const SpacePart& part) { return is_best(part); };
  document.parallelisms =
      records_of_forms(asked_, parts_, is_of_plan, document.prediction.iteration);
  merge_schedules(document, parts_, is_of_plan);
  document.warnings = warnings_of(document, Topology{document.topology});
  return std::move(*best_);
}

/// Explains by the closest form why there is no plan. The claims cover the plans of all parts.
Infeasible ParallelismComparison::explain() {
  const bool is_any_stopped = std::any_of(parts_.begin(), parts_.end(), [](const SpacePart& part) {
    return part.outcome == ParallelismOutcomeKind::Stopped;
  });
  if (!closest_ || is_any_stopped) return stopped_before_a_plan();
  Infeasible none = *std::move(closest_);
  none.lower_bound = Duration::infinite();
  for (const SpacePart& part : parts_) {
    if (part.outcome == ParallelismOutcomeKind::NoneFits) continue;
    none.is_certain = false;
    none.lower_bound = std::min(none.lower_bound, part.lower_bound.value_or(Duration{}));
  }
  const std::vector<Parallelism> every = parallelisms_of(context_.profile);
  const bool are_forms_left = std::any_of(every.begin(), every.end(), [&](const Parallelism& form) {
    return std::none_of(asked_.begin(), asked_.end(), [&](const AskedParallelism& asked) {
      return form_of_layers(asked.parallelism) == form;
    });
  });
  if (are_forms_left) none.remedy = {.kind = RemedyKind::EveryParallelism};
  return none;
}

std::variant<MadePlan, Infeasible> ParallelismComparison::run() {
  take_parts();
  if (parts_.empty()) refuse_without_forms(context_, asked_);
  take_plan_of_one_kind();
  look_ahead();
  search_mixed_in_front();
  for (SpacePart& part : parts_) {
    if (part.is_mixed()) continue;
    const bool is_first = !best_;
    search(part);
    if (is_first && best_) first_searched_ = part.parallelism;
  }
  if (best_) renew_baselines();
  for (SpacePart& part : parts_) {
    if (part.is_mixed()) search(part);
  }
  if (best_ && !best_stage_forms_.empty()) settle_mixed_plan();
  return best_ ? std::variant<MadePlan, Infeasible>(finish()) : explain();
}

}  // namespace dapple::planner
