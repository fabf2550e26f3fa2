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

/// Whether `a` dominates `b` (C6): no coefficient of `a` is larger.
bool dominates(const CompletionFunction& a, const CompletionFunction& b) {
  return a.end <= b.end && a.last <= b.last && a.span <= b.span && a.trip <= b.trip &&
         a.own <= b.own && a.waves <= b.waves && a.steep <= b.steep && a.slowest <= b.slowest &&
         a.crossing <= b.crossing && a.tail_parts <= b.tail_parts &&
         (a.begin == CompletionFunction::kNoCut ||
          (a.begin == b.begin && a.sent <= b.sent && a.received <= b.received));
}

/// Returns a function that dominates both (C6).
CompletionFunction componentwise_minimum(const CompletionFunction& a, const CompletionFunction& b) {
  CompletionFunction best;
  best.end = std::min(a.end, b.end);
  best.last = std::min(a.last, b.last);
  best.span = std::min(a.span, b.span);
  best.trip = std::min(a.trip, b.trip);
  best.steep = std::min(a.steep, b.steep);
  best.waves = std::min(a.waves, b.waves);
  best.own = std::min(a.own, b.own);
  best.crossing = std::min(a.crossing, b.crossing);
  best.tail_parts = std::min(a.tail_parts, b.tail_parts);
  best.slowest = std::min(a.slowest, b.slowest);
  best.sent = std::min(a.sent, b.sent);
  best.received = std::min(a.received, b.received);
  best.last_stage = a.last_stage;
  best.begin = a.begin == b.begin ? a.begin : CompletionFunction::kNoCut;
  return best;
}

/// Which functions of a list are comparable, and how many comparable ones are kept.
struct Dominance {
  // Whether functions are comparable even if their last stages are of different classes.
  bool across_classes = false;
  std::size_t most = SIZE_MAX;
};

/// Inserts a function unless a comparable one dominates it, and drops those that it dominates.
/// Beyond `dominance.most` comparable functions it is merged with the nearest one instead, which
/// may lower bounds but never raises them (C6).
void insert(std::vector<CompletionFunction>& functions, const CompletionFunction& function,
            const Dominance& dominance) {
  const auto comparable = [&](const CompletionFunction& other) {
    return dominance.across_classes || other.last_stage == function.last_stage;
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

/// Puts a boundary behind the last stage (C3): turns a function of the label in front of the
/// boundary into one of the label behind it.
CompletionFunction with_boundary(const CompletionFunction& function,
                                 const BoundaryLowerBound& boundary) {
  const Duration there_and_back = boundary.forward + boundary.backward;
  CompletionFunction result = function;
  result.slowest = std::max(function.slowest, boundary.pace);
  // The last transfer waits for the last forward, and for all others at their port (B4), (B9).
  result.last = std::max(function.last + boundary.forward, function.end + boundary.forward_queue);
  result.end += boundary.forward;
  result.crossing = function.crossed(boundary.forward);
  result.span += there_and_back;
  result.trip = std::max({function.trip + there_and_back,
                          function.span + boundary.forward_queue + boundary.backward,
                          function.span + boundary.forward + boundary.backward_queue});
  result.steep += function.waves * there_and_back;
  // `sent` leaves out the transfer back and `received` the transfer forth, because (C5) counts the
  // transfers of the next stage itself.
  result.sent = function.span + boundary.forward;
  result.received = function.span + boundary.backward;
  return result;
}

/// Adds the trade-off of the stage's depth K (C4). The first backward waits for K forwards, which
/// arrive no faster than `function.slowest`, and the last forward waits for M - K backwards. One
/// bound rises with K and the other one falls, so no depth makes the end earlier than where they
/// cross. `function.end` is the earliest start of the stage's first forward, and `span` adds the
/// time from its last backward to the end of the iteration.
void add_depth_tradeoff(CompletionFunction& result, const CompletionFunction& function,
                        const StageBound& stage, Duration span, std::int64_t micro_batches) {
  result.crossing = function.crossed(stage.forward);
  result.tail_parts = function.tail_parts;
  // Up to this tail the bound without the trade-off does not grow; beyond it, it grows faster than
  // this term.
  const Duration tail = std::max(Duration{}, result.own - result.last);
  const Duration both = stage.forward + stage.backward;
  const Duration rise = std::max(function.slowest, stage.forward) - stage.forward;
  const Duration fall = stage.backward - rise;
  if (rise > Duration{} && fall > Duration{}) {
    const Duration rising = span + micro_batches * both - rise;
    // The tail behind is still to be added to this one.
    const Duration falling = function.end + micro_batches * both - rise;
    CompletionFunction other;
    other.crossing = {
        divide_down(Wide{rising.ns} * fall.ns + Wide{falling.ns} * rise.ns, stage.backward.ns)};
    other.tail_parts =
        divide_down(Wide{rise.ns} * CompletionFunction::kTailParts, stage.backward.ns);
    if (other.crossed(tail) > result.crossed(tail)) {
      result.crossing = other.crossing;
      result.tail_parts = other.tail_parts;
    }
  }
  if (result.crossed(tail) > result.own) return;
  result.crossing = Duration{};
  result.tail_parts = 0;
}

/// Puts one more stage behind (C2). `function` includes the boundary to it; the function of no
/// stages is all zero.
CompletionFunction with_stage(const CompletionFunction& function, const StageBound& stage,
                              std::int64_t micro_batches) {
  const Duration both = stage.forward + stage.backward;
  const std::int64_t depth = std::min(stage.depth_limit, micro_batches);
  const std::int64_t rest = micro_batches - 1;
  // These are span_s and last_s of (C2). Both follow from (B9): E >= V + A, and the last forward
  // waits for all others and for a slot.
  const Duration span = std::max(function.span, function.end + stage.after_backward);
  const Duration last = std::max(function.last, function.end + rest * stage.forward +
                                                    (micro_batches - depth) * stage.backward);
  CompletionFunction result;
  result.end = function.end + stage.forward;
  result.last = last + stage.forward;
  result.span = span + both;  // (B2)
  // The terms with one round trip are (B3b) and (B3c).
  const Duration drained = rest * stage.backward + (micro_batches - depth) * stage.forward;
  const Duration filled = rest * stage.forward + (micro_batches - depth) * stage.backward;
  result.trip = std::max(function.trip, span + std::max(drained, filled)) + both;
  // The term with several round trips is (B3a).
  result.waves = function.waves;
  result.steep = function.steep + function.waves * both;
  const std::int64_t waves = rest / depth + 1;
  const Duration steep =
      span + (rest % depth) * std::max(stage.forward, stage.backward) + waves * both;
  if (waves == 1) {
    result.trip = std::max(result.trip, steep);
  } else if (waves > result.waves || (waves == result.waves && steep > result.steep)) {
    result.waves = waves;
    result.steep = steep;
  }
  result.slowest = std::max(function.slowest, stage.forward);
  result.sent = function.sent + stage.forward;
  result.received = function.received + stage.backward;
  // These terms are (B1) and (B8).
  result.own = std::max(
      {function.own, span + stage.work(micro_batches), last + both + stage.after_backward});
  add_depth_tradeoff(result, function, stage, span, micro_batches);
  return result;
}

}  // namespace

Duration completed(const CompletionFunction& function, const BoundLabel& label) {
  return std::max({function.end + label.end, function.last + label.tail, function.span + label.span,
                   function.trip + label.round_trip,
                   function.waves * label.round_trip + function.steep, function.crossed(label.tail),
                   function.own});
}

CompletionBounds::CompletionBounds(const CostModel& costs, PlacementSpace& placements,
                                   const SearchProblem& problem, Duration threshold,
                                   const Allowance::Limits& limits)
    : costs_(costs),
      placements_(placements),
      problem_(problem),
      micro_batches_(problem.num_micro_batches()),
      end_of_model_{costs.layer_count()},
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
                                const Allowance::Limits& limits) {
  const Wide of_cuts = Wide{AllocationClasses::count(placements)} * (costs.layer_count() + 1) *
                       static_cast<std::int64_t>(sizeof(std::vector<CompletionFunction>));
  return of_cuts + AllocationClasses::least_kept(placements).count <= limits.kept.count;
}

const StageColumn& CompletionBounds::column(CutIndex end, AllocationClassIndex devices,
                                            bool recompute) {
  const std::tuple key{end, devices, recompute};
  const auto found = least_columns_.find(key);
  if (found != least_columns_.end()) return found->second;
  const std::vector<const DeviceAllocation*>& allocations = classes_.allocations(devices);
  const StageColumn& column =
      least_columns_.emplace(key, columns_.least(end, allocations, recompute)).first->second;
  allowance_.spend(static_cast<std::int64_t>(column.stages.size() * allocations.size()));
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
    if (classes_.replicas(devices) > problem_.micro_batch_size) continue;
    if (!classes_.counts_for_itself(devices)) continue;
    const std::optional<AllocationClassIndex> used_after = classes_.sum(used, devices);
    if (!used_after) continue;
    const std::vector<CompletionFunction> functions = functions_before(cut, used, devices);
    Extension extension{.cut = cut, .devices = devices, .used_after = *used_after};
    if (is_heavy(cut, devices)) extension.tracked_begin = cut;
    for (const bool recompute : {false, true}) {
      extension.recompute = recompute;
      append_stages(functions, extension);
    }
  }
}

/// Returns the functions of a state, with the boundary to a stage on `devices` appended. At the
/// first cut that is the function of no stages, which is all zero.
std::vector<CompletionFunction> CompletionBounds::functions_before(CutIndex cut,
                                                                   AllocationClassIndex used,
                                                                   AllocationClassIndex devices) {
  if (cut == CutIndex{}) return {CompletionFunction{}};
  std::vector<CompletionFunction> functions;
  for (const CompletionFunction& function : kept_[cut][used]) {
    const BoundaryLowerBound& boundary = classes_.between(cut, function.last_stage, devices);
    if (boundary.is_possible) functions.push_back(append_boundary(function, boundary, cut));
  }
  return functions;
}

/// Appends the stages of `extension`, for every last layer, to each of the functions. Stages that
/// reach the threshold by their work (B1), or leave too much work behind (P1), are fathomed.
void CompletionBounds::append_stages(const std::vector<CompletionFunction>& functions,
                                     const Extension& extension) {
  const auto replicas = static_cast<std::int64_t>(classes_.replicas(extension.devices));
  const double left = capacity(classes_.rest(extension.used_after));
  // If no device is left for the layers behind it, the stage takes all of them.
  for (CutIndex end = left > 0 ? extension.cut.next() : end_of_model_; end <= end_of_model_;
       end = end.next()) {
    const bool is_last = end == end_of_model_;
    const StageColumn& stages = column(end, extension.devices, false);
    if (extension.cut < stages.first) return;
    if (!allowance_.spend(static_cast<std::int64_t>(functions.size()))) return;
    // Recomputation does not lower the bound of a stage that can hold all micro-batches without it.
    if (extension.recompute && !stages.memory_limits && !problem_.pins.recompute) continue;
    const StageBound& stage = column(end, extension.devices, extension.recompute).at(extension.cut);
    if (stage.work(micro_batches_) >= threshold_) return;
    if (stage.depth_limit == 0 || (!is_last && left <= 0)) continue;
    const LayerRange layers = layers_between(extension.cut, end);
    if (!problem_.pins.allow(layers, replicas, extension.recompute)) continue;
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
  CompletionFunction grown = with_stage(function, stage, micro_batches_);
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
  const auto more = static_cast<std::int64_t>(state.size()) - count_before;
  allowance_.keep(more * Bytes{sizeof(CompletionFunction)});
}

/// Appends the boundary at `cut` to the function (C3). Where links are shared, both boundaries of
/// the last stage are now known, and (C5) is applied.
CompletionFunction CompletionBounds::append_boundary(const CompletionFunction& function,
                                                     const BoundaryLowerBound& boundary,
                                                     CutIndex cut) const {
  CompletionFunction result = with_boundary(function, boundary);
  if (function.begin == CompletionFunction::kNoCut) return result;
  const AllocationClasses::BusyTimes busy =
      classes_.busy_with_neighbours(function.last_stage, function.begin, cut);
  result.own = std::max({function.own, function.sent + busy.out, function.received + busy.in});
  return result;
}

/// Whether transfers over the boundary at `cut` may matter beside those of the next boundary. Only
/// there does a function keep where its last stage begins (C5), because this makes functions
/// incomparable and their lists longer.
bool CompletionBounds::is_heavy(CutIndex cut, AllocationClassIndex devices) const {
  if (!problem_.links_are_shared || cut == CutIndex{}) return false;
  constexpr std::int64_t kPart = 5;  // a fifth of the threshold, one way
  const AllocationClasses::BusyTimes twice = classes_.busy_with_neighbours(devices, cut, cut);
  return twice.out.ns / 2 >= threshold_.ns / kPart;
}

double CompletionBounds::capacity(AllocationClassIndex devices) const {
  double sum = 0;
  const ClassCounts& counts = classes_.counts(devices);
  for (const DeviceClassIndex index : counts.indices()) {
    sum += counts[index] * work_.speed(placements_.device_classes()[index].kind);
  }
  return sum;
}

/// Leaves devices idle at a cut: a function also counts for states with more devices in use.
void CompletionBounds::leave_idle(CutIndex cut) {
  for (const AllocationClassIndex used : classes_.all()) {
    for (const DeviceClassIndex index : placements_.device_classes().indices()) {
      ClassCounts more = classes_.counts(used);
      if (more[index]++ == placements_.device_classes()[index].size) continue;
      std::vector<CompletionFunction>& next = kept_[cut][classes_.class_of(more)];
      for (const CompletionFunction& function : kept_[cut][used]) {
        insert(next, function, {.most = most_alike_});
      }
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
  const auto [entry, is_new] = choices_.try_emplace({state.cut, free, side});
  std::vector<CompletionFunction>& choices = entry->second;
  if (!is_new) return choices;
  std::map<AllocationClassIndex, BoundaryLowerBound> boundaries;
  for (const CompletionFunction& function : kept_[state.cut][free]) {
    const auto [boundary, is_unknown] = boundaries.try_emplace(function.last_stage);
    if (is_unknown) {
      boundary->second = classes_.before(state.cut, function.last_stage, state.allocation);
    }
    if (boundary->second.is_possible) {
      CompletionFunction choice = append_boundary(function, boundary->second, state.cut);
      choice.begin = CompletionFunction::kNoCut;
      insert(choices, choice, {.across_classes = true});
    }
  }
  function_count_ += static_cast<std::int64_t>(choices.size());
  choice_count_ += static_cast<std::int64_t>(choices.size());
  return choices;
}

}  // namespace dapple::search
