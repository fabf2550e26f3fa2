#include "search/exact/completion_bounds.h"

#include <algorithm>

namespace dapple::search {
namespace {

/// After so many classes of devices the allowance is polled again.
constexpr std::int32_t kClassesBetweenPolls = 16;

/// The most functions kept for one state whose last stages are of one class; fewer where there are
/// many states.
constexpr std::size_t kMostAlike = 64;
constexpr std::size_t kMostAlikeOfMany = 4;

/// Which functions of a list are comparable, and how many comparable ones are kept.
struct Dominance {
  // Whether functions are comparable even if their last stages are of different classes, or only
  // one of them deals its micro-batches.
  bool across_classes = false;
  std::size_t most = SIZE_MAX;
};

/// Inserts a function unless a comparable one dominates it, and drops those that it dominates.
/// Beyond `dominance.most` comparable functions it is merged with the nearest one instead, which
/// may lower bounds but never raises them (C6).
void insert(std::vector<CompletionFunction>& functions, const CompletionFunction& function,
            const Dominance& dominance) {
  const auto comparable = [&](const CompletionFunction& other) {
    return dominance.across_classes ||
           (other.last_stage == function.last_stage && other.last_deals == function.last_deals);
  };
  std::size_t count = 0;
  for (const CompletionFunction& other : functions) {
    if (!comparable(other)) continue;
    if (dominates(other, function)) return;
    ++count;
  }
  std::erase_if(functions, [&](const CompletionFunction& other) {
    return comparable(other) && dominates(function, other);
  });
  if (count < dominance.most) {
    functions.push_back(function);
    return;
  }
  // The comparable function with the nearest `own` and `end`.
  const auto distance = [&](const CompletionFunction& other) {
    return std::max(other.own, function.own) - std::min(other.own, function.own) +
           (std::max(other.end, function.end) - std::min(other.end, function.end));
  };
  auto nearest = functions.end();
  for (auto other = functions.begin(); other != functions.end(); ++other) {
    if (!comparable(*other)) continue;
    if (nearest == functions.end() || distance(*other) < distance(*nearest)) nearest = other;
  }
  if (nearest == functions.end()) {
    functions.push_back(function);
  } else {
    *nearest = componentwise_minimum(*nearest, function);
  }
}

}  // namespace

CompletionBounds::CompletionBounds(const CostModel& costs, PlacementSpace& placements,
                                   const SearchProblem& problem, Duration threshold,
                                   const Allowance::Limits& limits)
    : costs_(costs),
      placements_(placements),
      problem_(problem),
      end_of_model_{costs.layer_count()},
      forms_(stage_forms(costs, problem.may_deal && placements.is_complete())),
      threshold_(threshold),
      allowance_(limits),
      tables_(costs),
      least_(threshold),
      most_alike_(placements.is_complete() ? kMostAlike : kMostAlikeOfMany),
      classes_(costs, placements, problem),
      columns_(costs, problem, threshold),
      work_(costs, problem.micro_batch_size, problem.global_batch_size) {
  const std::size_t cuts = end_of_model_.position() + 1;
  tables_.add_to(allowance_);
  allowance_.keep({static_cast<std::int64_t>(cuts * classes_.size() *
                                             sizeof(std::vector<CompletionFunction>))});
  is_stopped_ = allowance_.is_over();
  if (is_stopped_) return;
  for (std::size_t cut = 0; cut < cuts; ++cut) {
    kept_.push_back(
        IndexedVector<AllocationClassIndex, std::vector<CompletionFunction>>(classes_.size()));
  }
  enumerate();
  is_stopped_ = is_stopped_ || allowance_.is_over();
  if (is_stopped_) kept_.clear();
  for (const auto& [key, stages] : least_columns_) {
    allowance_.keep({-static_cast<std::int64_t>(stages.stages.size() * sizeof(StageBound))});
  }
  least_columns_.clear();
  for (const auto& states : kept_) {
    for (const std::vector<CompletionFunction>& functions : states) {
      function_count_ += static_cast<std::int64_t>(functions.size());
    }
  }
}

bool CompletionBounds::has_room(const CostModel& costs, const PlacementSpace& placements,
                                const SearchProblem& problem, const Allowance::Limits& limits) {
  const Wide of_cuts = Wide{AllocationClasses::count(placements)} * (costs.layer_count() + 1) *
                       static_cast<std::int64_t>(sizeof(std::vector<CompletionFunction>));
  return of_cuts +
             AllocationClasses::least_kept(costs, placements, problem.micro_batch_size).count <=
         limits.kept.count;
}

const StageColumn& CompletionBounds::column(CutIndex end, AllocationClassIndex devices,
                                            StageForm form) {
  const std::tuple key{end, devices, form};
  const auto found = least_columns_.find(key);
  if (found != least_columns_.end()) return found->second;
  std::vector<StageDevices> representatives;
  for (const DeviceAllocation* allocation : classes_.allocations(devices)) {
    if (allocation->devices_per_replica != form.devices_per_replica) continue;
    if (form.deals && !allocation->samples.empty()) continue;
    representatives.push_back({.devices = allocation->devices,
                               .samples = allocation->samples,
                               .reductions = {&allocation->reduction}});
  }
  const StageColumn& column =
      least_columns_.emplace(key, columns_.least(end, representatives, end.previous(), form))
          .first->second;
  allowance_.spend(static_cast<std::int64_t>(column.stages.size() * representatives.size()));
  allowance_.keep({static_cast<std::int64_t>(column.stages.size() * sizeof(StageBound))});
  return column;
}

/// Goes through the states (cut, devices used) from the first cut to the last. The functions of a
/// state are complete once all cuts in front of it have been extended.
void CompletionBounds::enumerate() {
  extend_state({}, AllocationClasses::kNoDevices);
  for (CutIndex cut{1}; cut < end_of_model_ && !is_stopped_; cut = cut.next()) {
    for (const AllocationClassIndex used : classes_.not_empty()) extend_state(cut, used);
    leave_idle(cut);
  }
}

/// Appends every stage that begins at `cut` to the functions of the state, whose stages use exactly
/// these devices.
void CompletionBounds::extend_state(CutIndex cut, AllocationClassIndex used) {
  if (cut > CutIndex{} && kept_[cut][used].empty()) return;
  is_stopped_ = is_stopped_ || must_stop();
  for (const AllocationClassIndex devices : classes_.not_empty()) {
    if (!is_stopped_ && devices.value % kClassesBetweenPolls == 0) is_stopped_ = must_stop();
    if (is_stopped_) return;
    if (!classes_.counts_for_itself(devices)) continue;
    const std::optional<AllocationClassIndex> used_after = classes_.sum(used, devices);
    if (!used_after) continue;
    for (const bool deals : {false, true}) {
      const AllocationClasses::Side stage{classes_.replicas(devices), deals};
      Extension extension{.cut = cut, .devices = devices, .used_after = *used_after};
      const auto is_tried_here = [&](StageForm form) {
        return form.deals == deals && is_tried(form, devices);
      };
      if (std::none_of(forms_.begin(), forms_.end(), is_tried_here)) continue;
      const std::vector<CompletionFunction> functions = functions_before(cut, used, devices, deals);
      if (is_heavy(cut, stage)) extension.tracked_begin = cut;
      for (const StageForm form : forms_) {
        if (!is_tried_here(form)) continue;
        extension.form = form;
        append_stages(functions, extension);
      }
    }
  }
}

/// Whether a stage on devices of that class may run in that form.
bool CompletionBounds::is_tried(StageForm form, AllocationClassIndex devices) const {
  return problem_.allows(form, classes_.replicas(devices)) &&
         (form.devices_per_replica == 1 ||
          classes_.has_replicas_of(devices, form.devices_per_replica));
}

/// Returns the functions of a state, with the boundary to a stage on `devices` appended. At the
/// first cut that is the function of no stages, which is all zero.
std::vector<CompletionFunction> CompletionBounds::functions_before(CutIndex cut,
                                                                   AllocationClassIndex used,
                                                                   AllocationClassIndex devices,
                                                                   bool deals) {
  if (cut == CutIndex{}) return {CompletionFunction{}};
  std::vector<CompletionFunction> functions;
  for (const CompletionFunction& function : kept_[cut][used]) {
    if (deals || function.last_deals) {
      const BoundaryBound bound = bound_dealt(cut, function, {classes_.replicas(devices), deals});
      functions.push_back(append_boundary(function, bound, cut));
      continue;
    }
    const BoundaryLowerBound& boundary = classes_.between(cut, function.last_stage, devices);
    if (boundary) functions.push_back(append_boundary(function, *boundary, cut));
  }
  return functions;
}

/// Returns the bounds of the boundary between the last stage of a function and the stage behind it,
/// one of which deals its micro-batches.
BoundaryBound CompletionBounds::bound_dealt(CutIndex cut, const CompletionFunction& front,
                                            AllocationClasses::Side back) {
  const AllocationClasses::Side side{classes_.replicas(front.last_stage), front.last_deals};
  const auto [entry, is_new] = dealt_boundaries_.try_emplace({cut, side, back});
  if (is_new) entry->second = classes_.bound_dealt(cut, side, back);
  return entry->second;
}

/// Appends the stages of `extension`, for every last layer, to each of the functions. Stages that
/// reach the threshold by their work (B1), or leave too much work behind (P1), are fathomed.
void CompletionBounds::append_stages(const std::vector<CompletionFunction>& functions,
                                     const Extension& extension) {
  const auto devices = static_cast<std::int64_t>(classes_.replicas(extension.devices));
  const double left = classes_.capacity(classes_.rest(extension.used_after), work_);
  // If no device is left for the layers behind it, the stage takes all of them.
  for (CutIndex end = left > 0 ? extension.cut.next() : end_of_model_; end <= end_of_model_;
       end = end.next()) {
    const bool is_last = end == end_of_model_;
    const StageColumn& stages = column(end, extension.devices, extension.form.plain());
    if (extension.cut < stages.first) return;
    if (!allowance_.spend(static_cast<std::int64_t>(functions.size()))) return;
    // Recomputation does not lower the bound of a stage that can hold all micro-batches without it.
    if (extension.form.recompute && !is_worth_recomputing(stages, problem_.pins)) continue;
    const StageBound& stage = column(end, extension.devices, extension.form).at(extension.cut);
    if (stage.work(problem_.micro_batches_of(extension.form, devices)) >= threshold_) return;
    if (stage.depth_limit == 0 || (!is_last && left <= 0)) continue;
    const LayerRange layers = layers_between(extension.cut, end);
    const std::int64_t replicas = devices / extension.form.devices_per_replica;
    if (!problem_.pins.allow(layers, replicas, extension.form.recompute)) continue;
    if (!is_last && work_.busiest(layers_between(end, end_of_model_), left) >= threshold_) continue;
    for (const CompletionFunction& function : functions) {
      append_stage(function, stage, extension, end);
    }
  }
}

/// Appends a stage (C2) that ends at `end`. Functions that reach the threshold by themselves are
/// fathomed; those of complete plans only lower the root bound (C7).
void CompletionBounds::append_stage(const CompletionFunction& function, const StageBound& stage,
                                    const Extension& extension, CutIndex end) {
  const std::int32_t replicas = classes_.replicas(extension.devices);
  CompletionFunction grown =
      with_stage(function, stage,
                 {.num_micro_batches = problem_.micro_batches_of(extension.form, replicas),
                  .lanes = extension.form.deals ? replicas : 1});
  if (problem_.any_order) {
    grown.crossing = {};
    grown.tail_parts = 0;
  }
  if (grown.own >= threshold_) return;
  if (end == end_of_model_) {
    least_ = std::min(least_, grown.own);
    return;
  }
  grown.last_stage = extension.devices;
  grown.begin = extension.tracked_begin;
  std::vector<CompletionFunction>& state = kept_[end][extension.used_after];
  const auto count_before = static_cast<std::int64_t>(state.size());
  insert(state, grown, {.most = most_alike_});
  keep(static_cast<std::int64_t>(state.size()) - count_before);
}

/// Appends the boundary at `cut` to the function (C3). Where links are shared, both boundaries of
/// the last stage are now known, and (C5) is applied.
CompletionFunction CompletionBounds::append_boundary(const CompletionFunction& function,
                                                     const BoundaryBound& boundary,
                                                     CutIndex cut) const {
  CompletionFunction result = with_boundary(function, boundary);
  if (function.begin == CompletionFunction::kNoCut) return result;
  const AllocationClasses::BusyTimes busy = classes_.busy_with_neighbours(
      {classes_.replicas(function.last_stage), function.last_deals}, function.begin, cut);
  result.own = std::max({function.own, function.sent + busy.out, function.received + busy.in});
  return result;
}

/// Whether transfers over the boundary at `cut` may matter beside those of the next boundary. Only
/// there does a function keep where its last stage begins (C5), because this makes functions
/// incomparable and their lists longer.
bool CompletionBounds::is_heavy(CutIndex cut, AllocationClasses::Side stage) const {
  if (!problem_.links_are_shared || cut == CutIndex{}) return false;
  constexpr std::int64_t kPart = 5;  // a fifth of the threshold, one way
  const AllocationClasses::BusyTimes twice = classes_.busy_with_neighbours(stage, cut, cut);
  return twice.out.ns / 2 >= threshold_.ns / kPart;
}

/// Leaves devices idle at a cut: a function also counts for states with more devices in use.
void CompletionBounds::leave_idle(CutIndex cut) {
  for (const AllocationClassIndex used : classes_.all()) {
    const std::vector<CompletionFunction>& functions = kept_[cut][used];
    if (functions.empty()) continue;
    for (const AllocationClassIndex more : classes_.with_one_more(used)) {
      std::vector<CompletionFunction>& state = kept_[cut][more];
      const auto count_before = static_cast<std::int64_t>(state.size());
      for (const CompletionFunction& function : functions) {
        insert(state, function, {.most = most_alike_});
      }
      keep(static_cast<std::int64_t>(state.size()) - count_before);
      // Where not all placements are tried, classes may be many.
      const std::int64_t steps = placements_.is_complete() ? 0 : std::ssize(functions);
      is_stopped_ = is_stopped_ || !allowance_.spend(steps);
      if (is_stopped_) return;
    }
  }
}

AllocationClassIndex CompletionBounds::free_class(UseIndex used) {
  if (!free_classes_.contains(used)) free_classes_.resize(used.next().position(), kUnknown);
  AllocationClassIndex& free = free_classes_[used];
  if (free == kUnknown) free = classes_.class_of(placements_.free_by_class(used));
  return free;
}

const std::vector<CompletionFunction>& CompletionBounds::choices(const PartialPlanState& state) {
  const AllocationClassIndex free = free_class(state.used);
  const std::int32_t side = placements_.is_complete()
                                ? state.allocation.value
                                : placements_.allocation(state.allocation).replicas;
  const auto [entry, is_new] = choices_.try_emplace({state.cut, free, side, state.deals});
  std::vector<CompletionFunction>& choices = entry->second;
  if (!is_new) return choices;
  const std::int32_t replicas = placements_.allocation(state.allocation).replicas;
  std::map<std::pair<AllocationClassIndex, bool>, BoundaryLowerBound> boundaries;
  for (const CompletionFunction& function : kept_[state.cut][free]) {
    const auto [boundary, is_unknown] =
        boundaries.try_emplace({function.last_stage, function.last_deals});
    if (is_unknown && (state.deals || function.last_deals)) {
      boundary->second = bound_dealt(state.cut, function, {replicas, state.deals});
    } else if (is_unknown) {
      boundary->second = classes_.before(state.cut, function.last_stage, state.allocation);
    }
    if (boundary->second) {
      CompletionFunction choice = append_boundary(function, *boundary->second, state.cut);
      choice.begin = CompletionFunction::kNoCut;
      insert(choices, choice, {.across_classes = true});
    }
  }
  function_count_ += static_cast<std::int64_t>(choices.size());
  choice_count_ += static_cast<std::int64_t>(choices.size());
  return choices;
}

}  // namespace dapple::search
