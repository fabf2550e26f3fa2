#include "search/exact/completion_bounds.h"

#include <algorithm>

namespace dapple::search {
namespace {

/// After so many kinds of stages the allowance is polled again.
constexpr std::size_t kKindsBetweenPolls = 16;

/// The least labels may take one of so many parts of the bytes that may be kept.
constexpr std::int64_t kPartOfLabels = 8;

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
    : placements_(placements),
      problem_(problem),
      end_of_model_{costs.layer_count()},
      threshold_(threshold),
      allowance_(limits),
      tables_(costs),
      least_(threshold),
      most_alike_(placements.is_complete() ? kMostAlike : kMostAlikeOfMany),
      stages_(costs, placements, problem, threshold) {
  const std::size_t cuts = end_of_model_.position() + 1;
  tables_.add_to(allowance_);
  allowance_.keep({static_cast<std::int64_t>(cuts * classes().size() *
                                             sizeof(std::vector<CompletionFunction>))});
  is_stopped_ = allowance_.is_over();
  if (is_stopped_) return;
  for (std::size_t cut = 0; cut < cuts; ++cut) {
    kept_.push_back(
        IndexedVector<AllocationClassIndex, std::vector<CompletionFunction>>(classes().size()));
  }
  enumerate_below(Bytes{(limits.kept - allowance_.kept()).count / kPartOfLabels});
  is_stopped_ = is_stopped_ || allowance_.is_over();
  if (is_stopped_) kept_.clear();
  stages_.release_stages(allowance_);
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

/// Computes the functions, with the help of least labels if these take at most `most_of_labels`.
void CompletionBounds::enumerate_below(Bytes most_of_labels) {
  const LeastLabels behind(stages_, threshold_, problem_.num_micro_batches(), most_of_labels,
                           allowance_);
  enumerate(behind);
  allowance_.keep(Bytes{} - behind.kept_bytes());
}

/// Goes through the states (cut, devices used) from the first cut to the last. The functions of a
/// state are complete once all cuts in front of it have been extended.
void CompletionBounds::enumerate(const LeastLabels& behind) {
  extend_state({}, AllocationClasses::kNoDevices, behind);
  for (CutIndex cut{1}; cut < end_of_model_ && !is_stopped_; cut = cut.next()) {
    for (const AllocationClassIndex used : classes().not_empty()) extend_state(cut, used, behind);
    leave_idle(cut);
  }
}

/// Appends every stage that begins at `cut` to the functions of the state, whose stages use exactly
/// these devices.
void CompletionBounds::extend_state(CutIndex cut, AllocationClassIndex used,
                                    const LeastLabels& behind) {
  if (cut > CutIndex{} && kept_[cut][used].empty()) return;
  is_stopped_ = is_stopped_ || must_stop();
  for (std::size_t kind = 0; kind < stages_.kinds().size(); ++kind) {
    if (!is_stopped_ && kind % kKindsBetweenPolls == 0) is_stopped_ = must_stop();
    if (is_stopped_) return;
    const CompletionStages::Kind stage = stages_.kinds()[kind];
    const std::optional<AllocationClassIndex> used_after = classes().sum(used, stage.devices);
    if (!used_after) continue;
    const std::vector<CompletionFunction> functions = functions_before(cut, used, stage);
    const Extension extension{
        .kind = stage,
        .used_after = *used_after,
        .tracked_begin = is_heavy(cut, stage) ? cut : CompletionFunction::kNoCut};
    for (const CompletionStages::Stage& appended : stages_.stages(cut, kind, allowance_)) {
      if (!stages_.may_be_behind(appended.end, *used_after)) continue;
      const bool is_last = appended.end == end_of_model_;
      const BoundLabel* least =
          is_last || !behind.is_known() ? nullptr : behind.behind(appended.end, kind, *used_after);
      if (!is_last && behind.is_known() && least == nullptr) continue;
      if (!allowance_.spend(std::ssize(functions))) return;
      for (const CompletionFunction& function : functions) {
        append_stage(function, appended, extension, least);
      }
    }
  }
}

/// Returns the functions of a state, with the boundary to a stage of that kind appended. At the
/// first cut that is the function of no stages, which is all zero.
std::vector<CompletionFunction> CompletionBounds::functions_before(CutIndex cut,
                                                                   AllocationClassIndex used,
                                                                   CompletionStages::Kind stage) {
  if (cut == CutIndex{}) return {CompletionFunction{}};
  std::vector<CompletionFunction> functions;
  for (const CompletionFunction& function : kept_[cut][used]) {
    const BoundaryBound* boundary = stages_.between(cut, last_stage(function), stage);
    if (boundary != nullptr) functions.push_back(append_boundary(function, *boundary, cut));
  }
  return functions;
}

/// Appends a stage (C2). Functions that reach the threshold, by themselves or with the least label
/// behind them, if there is one (C10), are fathomed; those of complete plans only lower the root
/// bound (C7).
void CompletionBounds::append_stage(const CompletionFunction& function,
                                    const CompletionStages::Stage& stage,
                                    const Extension& extension, const BoundLabel* behind) {
  CompletionFunction grown = with_stage(function, stage.figures, stage.work);
  if (problem_.any_order) {
    grown.crossing = {};
    grown.tail_parts = 0;
  }
  if (grown.own >= threshold_) return;
  if (stage.end == end_of_model_) {
    least_ = std::min(least_, grown.own);
    return;
  }
  if (behind != nullptr && completed(grown, *behind) >= threshold_) return;
  grown.last_stage = extension.kind.devices;
  grown.begin = extension.tracked_begin;
  std::vector<CompletionFunction>& state = kept_[stage.end][extension.used_after];
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
  const AllocationClasses::BusyTimes busy =
      classes().busy_with_neighbours(stages_.side(last_stage(function)), function.begin, cut);
  result.own = std::max({function.own, function.sent + busy.out, function.received + busy.in});
  return result;
}

/// Whether transfers over the boundary at `cut` may matter beside those of the next boundary. Only
/// there does a function keep where its last stage begins (C5), because this makes functions
/// incomparable and their lists longer.
bool CompletionBounds::is_heavy(CutIndex cut, CompletionStages::Kind stage) const {
  if (!problem_.links_are_shared || cut == CutIndex{}) return false;
  constexpr std::int64_t kPart = 5;  // a fifth of the threshold, one way
  const AllocationClasses::BusyTimes twice =
      classes().busy_with_neighbours(stages_.side(stage), cut, cut);
  return twice.out.ns / 2 >= threshold_.ns / kPart;
}

/// Leaves devices idle at a cut: a function also counts for states with more devices in use.
void CompletionBounds::leave_idle(CutIndex cut) {
  for (const AllocationClassIndex used : classes().all()) {
    const std::vector<CompletionFunction>& functions = kept_[cut][used];
    if (functions.empty()) continue;
    for (const AllocationClassIndex more : classes().with_one_more(used)) {
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
  if (free == kUnknown) free = classes().class_of(placements_.free_by_class(used));
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
      boundary->second = stages_.bound_dealt(state.cut, stages_.side(last_stage(function)),
                                             {replicas, state.deals});
    } else if (is_unknown) {
      boundary->second = classes().before(state.cut, function.last_stage, state.allocation);
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
