#include "dapple/planner/parallelism/plan_parallelisms.h"

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
#include "dapple/planner/candidates/plan_pool.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/parallelism/asked_parallelisms.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/planner/restricted/restricted.h"
#include "dapple/profile/variants.h"
#include "dapple/topology/servers_of_kind.h"
#include "planner/candidates/work_lower_bound.h"
#include "planner/one_family/plan_one_family.h"
#include "planner/parallelism/best_uniform.h"
#include "planner/parallelism/one_kind.h"
#include "planner/parallelism/part_progress.h"
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

/// Whether every plan of a part with one form is one of a mixed part, too, of which all groups have
/// that form's size.
bool covers(const Part& mixed, const Part& part) {
  if (!mixed.is_mixed() || part.is_mixed()) return false;
  std::vector<Parallelism> forms = mixed.stage_forms;
  forms.push_back(mixed.parallelism);
  const std::int64_t size = part.parallelism.group_size();
  return std::find(forms.begin(), forms.end(), part.parallelism) != forms.end() &&
         std::all_of(forms.begin(), forms.end(),
                     [&](const Parallelism& form) { return form.group_size() == size; });
}

/// With more devices than this, first plans of a part are only looked for below the fastest one of
/// any part. With so many or fewer they take little time, and show what other forms are good for.
constexpr std::int32_t kMostDevicesWithoutLimit = 32;

/// The part of the time limit that first plans of all parts may take together.
constexpr double kPartOfLookingAhead = 0.5;

/// Returns why no form of the profile has the pinned degrees: the first degree that none has, or
/// that they do not go together.
std::string reason_without_variants(const ModelProfile& profile, const Pins& pins) {
  if (pins.experts == 1 && pins.expert_tensor.value_or(1) > 1) {
    return "devices share an expert only where experts are on different devices";
  }
  const std::vector<Parallelism> forms = parallelisms_of(profile);
  std::string missing;
  const auto look_for = [&](const char* name, std::int64_t Parallelism::*degree,
                            const std::optional<std::int64_t>& pin) {
    if (!pin || !missing.empty()) return;
    std::set<std::int64_t> degrees;
    for (const Parallelism& form : forms) degrees.insert(form.*degree);
    if (degrees.contains(*pin)) return;
    missing = fmt::format("not every layer has a variant of {} {}, but of {}", name, *pin,
                          fmt::join(degrees, ", "));
  };
  look_for("tensor", &Parallelism::tensor, pins.tensor);
  look_for("context", &Parallelism::context, pins.context);
  look_for("experts", &Parallelism::experts, pins.experts);
  look_for("expert-tensor", &Parallelism::expert_tensor, pins.expert_tensor);
  return missing.empty() ? "not every layer has a variant of these degrees together" : missing;
}

/// Returns why none of the forms that are asked for has groups.
std::string reason_without_parts(const PlanningContext& context,
                                 const std::vector<AskedParallelism>& asked) {
  const PlannerOptions& options = context.options;
  const Pins& pins = options.pins;
  std::string fault = indivisible_blocks(context.profile.blocks,
                                         {.tensor = pins.tensor.value_or(1),
                                          .context = pins.context.value_or(1),
                                          .experts = pins.experts.value_or(1)},
                                         context_exchange_of(context.profile));
  if (!fault.empty()) return fault;
  if (pins.tensor && options.max_tensor.value_or(*pins.tensor) < *pins.tensor) {
    return "the largest degree allowed is " + std::to_string(*options.max_tensor);
  }
  if (!asked.empty()) {
    const auto least =
        std::min_element(asked.begin(), asked.end(), [](const auto& a, const auto& b) {
          return a.parallelism.group_size() < b.parallelism.group_size();
        });
    const std::int64_t size = least->parallelism.group_size();
    const std::int32_t devices = context.topology.device_count();
    if (size <= devices) return std::get<NoGroups>(asked.front().inputs).reason;
    // Whatever else forbids a group, no other request makes one of so many devices.
    return fmt::format("a group has {} devices, and there {} {}", size, devices == 1 ? "is" : "are",
                       devices);
  }
  const bool has_variants =
      std::ranges::any_of(parallelisms_of(context.profile), [&](const Parallelism& form) {
        return pins.tensor.value_or(form.tensor) == form.tensor &&
               pins.context.value_or(form.context) == form.context &&
               pins.experts.value_or(form.experts) == form.experts &&
               pins.expert_tensor.value_or(form.expert_tensor) == form.expert_tensor;
      });
  if (has_variants && (options.sharding == Sharding::Full || pins.shards)) {
    return "no number of devices can share a device's parameters";
  }
  return reason_without_variants(context.profile, pins);
}

class ParallelismComparison {
 public:
  /// Compares the forms `among` some, or all where that is null.
  ParallelismComparison(const PlanningContext& context,
                        const std::optional<PlanRestriction>& restriction,
                        const std::set<Parallelism>* among)
      : context_(context),
        restriction_(restriction),
        among_(among),
        is_stopped_(context.progress),
        progress_(context.progress) {}

  std::variant<MadePlan, Infeasible> run();

 private:
  void take_parts();
  void refuse_without_parts() const;
  void take_plan_of_one_kind();
  PlannerOptions options_to_look_ahead() const;
  void sort_by_first_plans();
  Duration fastest_first_plan() const;
  void look_ahead();
  void make_first_plans(DappleSteps steps);
  void begin(const Part& part);
  void take_plan_of_other_layers(Part& part) const;
  PlanningContext context_to_look_ahead(Part& part, const PlannerOptions& options,
                                        Duration fastest);
  /// Whether nothing but the fastest plan and what is proven of the others is asked for.
  bool only_fastest_counts() const {
    return !restriction_ && context_.pool == nullptr && !asks_for_families(context_.options);
  }
  bool has_first_plan_in_mixed(const Part& part) const;
  const Part* search_mixed_in_front();
  void search(Part& part);
  void settle_mixed_plan();
  void take(Part& part, MadePlan made);
  void take(Part& part, Infeasible infeasible);
  void start_from_best_uniform();
  void renew_baselines();
  void keep_plans();
  MadePlan finish();
  Infeasible explain();
  Part* part_of(const Parallelism& form, const std::vector<Parallelism>& stage_forms);
  std::vector<ParallelismRecord> records();
  void merge_schedules(PlanDocument& document) const;
  PlanningContext context_of(const Part& part, const PlannerOptions& options);
  void leave_out_unused_forms();
  bool is_best(const Part& part) const {
    return part.parallelism == best_parallelism_ && part.stage_forms == best_stage_forms_;
  }

  const PlanningContext context_;
  const std::optional<PlanRestriction>& restriction_;
  const std::set<Parallelism>* among_;
  StopQuestion is_stopped_;
  PartProgress progress_;
  std::vector<AskedParallelism> asked_;
  std::vector<Part> parts_;
  std::optional<MadePlan> best_;
  // Those of the part of the best plan.
  Parallelism best_parallelism_;
  std::vector<Parallelism> best_stage_forms_;
  // The part whose search made the baselines.
  std::optional<Parallelism> first_searched_;
  std::optional<BaselinePlan> best_uniform_;
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
  const std::string reason = reason_without_parts(context_, asked_);
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
  name("expert-tensor", pins.expert_tensor);
  name("shards", pins.shards);
  throw Error(ErrorKind::BadInput, "",
              {{"/request/pins",
                fmt::format("expected degrees of parallelism that layers and servers have, got {}: "
                            "{}",
                            fmt::join(got, ", "), reason)}});
}

/// Returns the context for a part: plans no faster than those of the parts before need not be
/// found.
PlanningContext ParallelismComparison::context_of(const Part& part, const PlannerOptions& options) {
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
  const CostModel costs(part.inputs->profile, part.topology);
  for (const Part& other : parts_) {
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
/// devices, or many such parts as only some layers of a stage recompute, only plans faster than
/// those found for any part are looked for.
PlanningContext ParallelismComparison::context_to_look_ahead(Part& part,
                                                             const PlannerOptions& options,
                                                             Duration fastest) {
  const bool may_limit = only_fastest_counts();
  const bool is_in_some_layers = !part.parallelism.recomputed_layers.is_all();
  if (may_limit && is_in_some_layers) take_plan_of_other_layers(part);
  PlanningContext context = context_of(part, options);
  const bool are_many = context_.topology.device_count() > kMostDevicesWithoutLimit;
  if (!may_limit || part.first.is_infinite() || !(are_many || is_in_some_layers)) return context;
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
  for (const Part& part : parts_) fastest = std::min(fastest, part.first);
  return fastest;
}

/// Sorts the parts by the times of their first plans, those with several forms last.
void ParallelismComparison::sort_by_first_plans() {
  std::stable_sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) {
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
  for (Part& part : parts_) {
    part.lower_bound = work_lower_bound(context_of(part, context_.options));
  }
  std::stable_sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) {
    return std::pair(a.is_mixed(), *a.lower_bound) < std::pair(b.is_mixed(), *b.lower_bound);
  });
  make_first_plans(DappleSteps::Opening);
  start_from_best_uniform();
  sort_by_first_plans();
  // Those in which only some layers of every stage recompute follow the others, whose plans they
  // may have. They come last, as stages that differ in these layers are mostly faster.
  std::stable_sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) {
    const auto key = [](const Part& part) {
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
  for (Part& part : parts_) {
    if (is_over()) break;
    if (steps == DappleSteps::Opening && !part.parallelism.recomputed_layers.is_all()) continue;
    if (are_asked_for && *part.lower_bound >= fastest) continue;
    if (has_first_plan_in_mixed(part)) continue;
    // A faster plan of another family would not be asked for.
    if (!are_asked_for && part.is_first_of_one_kind) continue;
    begin(part);
    PlanningContext context = context_to_look_ahead(part, options, fastest);
    context.progress = time ? &*time : nullptr;
    context.dapple_steps = steps;
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

/// Whether only some layers of every stage recompute in a part, and a mixed part that has all of
/// its plans has a first plan.
bool ParallelismComparison::has_first_plan_in_mixed(const Part& part) const {
  return only_fastest_counts() && !part.parallelism.recomputed_layers.is_all() &&
         std::any_of(parts_.begin(), parts_.end(), [&](const Part& mixed) {
           return !mixed.first.is_infinite() && covers(mixed, part);
         });
}

/// Searches the mixed part with the fastest first plan before all others, if none of one form is as
/// fast, and returns it, or null. What it proves holds for the parts that it covers, too, so that
/// these need not be searched where it is closed.
const Part* ParallelismComparison::search_mixed_in_front() {
  if (!only_fastest_counts()) return nullptr;
  Part* mixed = nullptr;
  Duration fastest_of_one_form = Duration::infinite();
  for (Part& part : parts_) {
    if (!part.is_mixed()) {
      fastest_of_one_form = std::min(fastest_of_one_form, part.first);
    } else if (mixed == nullptr || part.first < mixed->first) {
      mixed = &part;
    }
  }
  if (mixed == nullptr || mixed->first >= fastest_of_one_form) return nullptr;
  search(*mixed);
  for (Part& part : parts_) {
    if (!covers(*mixed, part) || !part.lower_bound || !mixed->lower_bound) continue;
    part.lower_bound = std::max(*part.lower_bound, *mixed->lower_bound);
  }
  return mixed;
}

/// Tells that a part is searched from now on.
void ParallelismComparison::begin(const Part& part) {
  if (parts_.size() == 1) return progress_.begin("", Duration::infinite());
  std::optional<Duration> bound = Duration::infinite();
  for (const Part& other : parts_) {
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
  begin(part);
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
  const bool is_better =
      !best_ || prediction.iteration < best_->document.prediction.iteration ||
      (prediction.iteration == best_->document.prediction.iteration && !part.is_mixed() &&
       (!best_stage_forms_.empty() || part.parallelism < best_parallelism_));
  if (!is_better) return;
  best_parallelism_ = part.parallelism;
  best_stage_forms_ = part.stage_forms;
  best_ = std::move(made);
}

void ParallelismComparison::take(Part& part, Infeasible infeasible) {
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
    // Whether nothing is known of some part.
    bool is_open = false;
    for (const Part& part : parts_) {
      if (is_best(part)) continue;
      const bool has_record = i < part.schedules.size();
      const std::optional<Duration>& bound =
          has_record ? part.schedules[i].lower_bound : part.lower_bound;
      is_open = is_open || (!has_record && !part.lower_bound &&
                            part.outcome != ParallelismOutcomeKind::NoneFits);
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
    if (is_open) record.lower_bound.reset();
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

/// Makes the baseline best-uniform and, where it is faster than the first plans of all parts and
/// among those that are asked for, the first plan of its part. No plan that is found is slower
/// then, and forms that cannot beat it are not searched.
void ParallelismComparison::start_from_best_uniform() {
  const PlannerOptions& options = context_.options;
  // What a target runtime cannot express is never chosen, and made for comparison only.
  if (asked_.size() == 1 || (restriction_ && !options.baselines)) return;
  const Duration fastest = fastest_first_plan();
  std::map<Parallelism, Duration> bounds;
  for (const Part& part : parts_) {
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
  Part* const part = part_of(best_uniform_->plan.parallelism, {});
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
  Part* const part = part_of(best_parallelism_, best_stage_forms_);
  check(part != nullptr, "the plan is of no part of the space");
  MadePlan found = *std::exchange(best_, std::nullopt);
  part->first_plan = found.document.plan;
  part->first = found.document.prediction.iteration;
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
  if (asked_.size() == 1) {
    // The warnings of the part are not those of the profile with all of its variants.
    document.warnings = warnings_of(document, Topology{document.topology});
    return std::move(*best_);
  }
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
  if (context_.options.baselines && !best_->baselines.empty() && best_uniform_) {
    document.baselines.push_back(best_uniform_->figures);
    best_->baselines.push_back(*std::move(best_uniform_));
  }
  set_proven_bound(document.prediction, bound);
  search.complete = search.complete && search.cut.empty() && bound.has_value();
  document.parallelisms = records();
  merge_schedules(document);
  document.warnings = warnings_of(document, Topology{document.topology});
  return std::move(*best_);
}

/// Explains by the closest form why there is no plan. The claims cover the plans of all parts.
Infeasible ParallelismComparison::explain() {
  const bool is_any_stopped = std::any_of(parts_.begin(), parts_.end(), [](const Part& part) {
    return part.outcome == ParallelismOutcomeKind::Stopped;
  });
  if (!closest_ || is_any_stopped) return stopped_before_a_plan();
  Infeasible none = *std::move(closest_);
  none.lower_bound = Duration::infinite();
  for (const Part& part : parts_) {
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
  refuse_without_parts();
  take_plan_of_one_kind();
  look_ahead();
  const Part* const in_front = search_mixed_in_front();
  for (Part& part : parts_) {
    if (part.is_mixed()) continue;
    const bool is_first = !best_;
    search(part);
    if (is_first && best_) first_searched_ = part.parallelism;
  }
  if (best_) renew_baselines();
  for (Part& part : parts_) {
    if (part.is_mixed() && &part != in_front) search(part);
  }
  if (best_ && !best_stage_forms_.empty()) settle_mixed_plan();
  return best_ ? std::variant<MadePlan, Infeasible>(finish()) : explain();
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
                         pins.experts.value_or(1) != 1 || pins.expert_tensor.value_or(1) != 1 ||
                         pins.shards.value_or(1) != 1 || pins.recomputation;
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
