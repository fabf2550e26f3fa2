#include "search/exact/completion_bounds.h"

#include <algorithm>
#include <utility>

namespace dapple::search {
namespace {

constexpr std::int32_t kFamiliesBetweenQuestions = 16;

/// The most functions kept for one state whose last stages have the same device counts; fewer where
/// there are many states.
constexpr std::size_t kMostAlike = 64;
constexpr std::size_t kMostAlikeOfMany = 4;

/// Whether `a` dominates `b`: no coefficient of `a` is larger (C6).
bool is_as_good(const CompletionFunction& a, const CompletionFunction& b) {
  return a.end <= b.end && a.last <= b.last && a.span <= b.span && a.trip <= b.trip &&
         a.own <= b.own && a.waves <= b.waves && a.steep <= b.steep && a.slowest <= b.slowest &&
         a.crossing <= b.crossing && a.tail_parts <= b.tail_parts &&
         (a.begin == CompletionFunction::kNone ||
          (a.begin == b.begin && a.sent <= b.sent && a.received <= b.received));
}

/// The component-wise minimum of both, which dominates both (C6).
CompletionFunction better_of_each(const CompletionFunction& a, const CompletionFunction& b) {
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
  best.families = a.families;
  best.begin = a.begin == b.begin ? a.begin : CompletionFunction::kNone;
  return best;
}

/// Which functions of a list are comparable, and how many comparable ones are kept.
struct Alike {
  // Whether functions are comparable even if their last stages have different device counts.
  bool any_families = false;
  std::size_t most = SIZE_MAX;
};

/// Adds a function unless a comparable one dominates it, and drops those that it dominates. Beyond
/// `alike.most` comparable functions it is merged with the nearest one instead, which may lower
/// bounds but never raises them (C6).
void add(std::vector<CompletionFunction>& functions, const CompletionFunction& function,
         const Alike& alike) {
  const auto comparable = [&](const CompletionFunction& other) {
    return alike.any_families || other.families == function.families;
  };
  std::size_t count = 0;
  for (const CompletionFunction& other : functions) {
    if (!comparable(other)) continue;
    if (is_as_good(other, function)) return;
    ++count;
  }
  std::erase_if(functions, [&](const CompletionFunction& other) {
    return comparable(other) && is_as_good(function, other);
  });
  if (count < alike.most) {
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
    *nearest = better_of_each(*nearest, function);
  }
}

/// Puts a boundary behind the last stage (C3): turns a function of the label in front of the
/// boundary into one of the label behind it.
CompletionFunction with_boundary(const CompletionFunction& function,
                                 const BoundaryLowerBound& boundary) {
  const Duration there_and_back = boundary.forward + boundary.backward;
  CompletionFunction result = function;
  result.slowest = std::max(function.slowest, boundary.pace);
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
void cross(CompletionFunction& result, const CompletionFunction& function, const StageBound& stage,
           Duration span, std::int64_t micro_batches) {
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
  const Duration span = std::max(function.span, function.end + stage.after_backward);
  const std::int64_t depth = std::min(stage.depth_limit, micro_batches);
  const std::int64_t rest = micro_batches - 1;
  // Lines 2 and 3 of the bound (B2), (B3), as terms of the round trip behind.
  const Duration drained = rest * stage.backward + (micro_batches - depth) * stage.forward;
  const Duration filled = rest * stage.forward + (micro_batches - depth) * stage.backward;
  CompletionFunction result;
  result.end = function.end + stage.forward;
  // The last forward waits for all others and for a slot (B9).
  const Duration last = std::max(function.last, function.end + rest * stage.forward +
                                                    (micro_batches - depth) * stage.backward);
  result.last = last + stage.forward;
  result.span = span + both;
  result.trip = std::max(function.trip, span + std::max(drained, filled)) + both;
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
  result.own = std::max(
      {function.own, span + stage.work(micro_batches), last + both + stage.after_backward});
  cross(result, function, stage, span, micro_batches);
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
      micro_batches_(problem.global_batch_size / problem.micro_batch_size),
      threshold_(threshold),
      allowance_(limits),
      tables_(costs),
      least_(threshold),
      most_alike_(placements.is_complete() ? kMostAlike : kMostAlikeOfMany),
      families_(costs, placements, problem),
      columns_(costs, problem, threshold),
      work_(costs, problem.micro_batch_size, problem.global_batch_size) {
  const std::size_t cuts_by_families = static_cast<std::size_t>(costs.layer_count() + 1) *
                                       static_cast<std::size_t>(families_.size());
  tables_.add_to(allowance_);
  allowance_.keep({static_cast<std::int64_t>(cuts_by_families * sizeof(kept_.front()))});
  is_stopped_ = allowance_.is_over();
  if (is_stopped_) return;
  kept_.resize(cuts_by_families);
  grow_from(0, 0);
  for (std::int32_t cut = 1; cut < costs_.layer_count() && !is_stopped_; ++cut) {
    for (std::int32_t used = 1; used < families_.size(); ++used) grow_from(cut, used);
    leave_idle(cut);
  }
  is_stopped_ = is_stopped_ || allowance_.is_over();
  if (is_stopped_) kept_.clear();
  for (const auto& [key, stages] : least_columns_) {
    allowance_.keep({-static_cast<std::int64_t>(stages.stages.size() * sizeof(StageBound))});
  }
  least_columns_.clear();
  for (const std::vector<CompletionFunction>& functions : kept_) {
    function_count_ += static_cast<std::int64_t>(functions.size());
  }
}

bool CompletionBounds::has_room(const CostModel& costs, const PlacementSpace& placements,
                                const Allowance::Limits& limits) {
  const Wide of_cuts = Wide{StageFamilies::count(placements)} * (costs.layer_count() + 1) *
                       static_cast<std::int64_t>(sizeof(std::vector<CompletionFunction>));
  return of_cuts + StageFamilies::least_kept(placements).count <= limits.kept.count;
}

std::vector<CompletionFunction>& CompletionBounds::kept(std::int32_t cut, std::int32_t used) {
  return kept_[static_cast<std::size_t>(cut) * static_cast<std::size_t>(families_.size()) +
               static_cast<std::size_t>(used)];
}

const StageColumn& CompletionBounds::column(std::int32_t end, std::int32_t families,
                                            bool recompute) {
  const std::tuple key{end, families, recompute};
  const auto found = least_columns_.find(key);
  if (found != least_columns_.end()) return found->second;
  const std::vector<const DeviceAllocation*>& allocations = families_.allocations(families);
  const StageColumn& column =
      least_columns_.emplace(key, columns_.least(end, allocations, recompute)).first->second;
  allowance_.spend(static_cast<std::int64_t>(column.stages.size() * allocations.size()));
  allowance_.keep({static_cast<std::int64_t>(column.stages.size() * sizeof(StageBound))});
  return column;
}

/// Puts every stage that begins at `cut` behind the functions whose stages use exactly these
/// devices.
void CompletionBounds::grow_from(std::int32_t cut, std::int32_t used) {
  if (cut > 0 && kept(cut, used).empty()) return;
  is_stopped_ = is_stopped_ || must_stop();
  for (std::int32_t families = 1; families < families_.size() && !is_stopped_; ++families) {
    if (families % kFamiliesBetweenQuestions == 0) is_stopped_ = must_stop();
    if (families_.replicas(families) > problem_.micro_batch_size) continue;
    if (!families_.counts_for_itself(families)) continue;
    const std::int32_t after = families_.sum(used, families);
    if (after < 0) continue;
    std::vector<CompletionFunction> functions;
    if (cut == 0) functions.emplace_back();
    if (cut > 0) {
      for (const CompletionFunction& function : kept(cut, used)) {
        const BoundaryLowerBound& boundary = families_.between(cut, function.families, families);
        if (boundary.is_possible) functions.push_back(over_boundary(function, boundary, cut));
      }
    }
    for (const bool recompute : {false, true}) {
      put_behind(functions,
                 {.cut = cut, .families = families, .after = after, .recompute = recompute});
    }
  }
}

/// Puts the stages of `extension`, for every last layer, behind each of the functions.
void CompletionBounds::put_behind(const std::vector<CompletionFunction>& functions,
                                  const Extension& extension) {
  const auto replicas = static_cast<std::int64_t>(families_.replicas(extension.families));
  const double left = capacity(families_.rest(extension.after));
  const bool is_heavy_boundary = is_heavy(extension.cut, extension.families);
  // If no device is left for the layers behind it, the stage takes all of them.
  const std::int32_t first_end = left > 0 ? extension.cut + 1 : costs_.layer_count();
  for (std::int32_t end = first_end; end <= costs_.layer_count(); ++end) {
    const bool is_last = end == costs_.layer_count();
    const StageColumn& stages = column(end, extension.families, false);
    if (extension.cut < stages.first) return;
    if (!allowance_.spend(static_cast<std::int64_t>(functions.size()))) return;
    // Recomputation does not lower the bound of a stage that can hold all micro-batches without it.
    if (extension.recompute && !stages.memory_limits && !problem_.pins.recompute) continue;
    const StageBound& stage =
        column(end, extension.families, extension.recompute).at(extension.cut);
    if (stage.work(micro_batches_) >= threshold_) return;
    if (stage.depth_limit == 0 || (!is_last && left <= 0)) continue;
    if (!problem_.pins.allow({extension.cut, end}, replicas, extension.recompute)) continue;
    const LayerRange rest{end, costs_.layer_count()};
    if (!is_last && work_.busiest(rest, left) >= threshold_) continue;
    for (const CompletionFunction& before : functions) {
      CompletionFunction function = with_stage(before, stage, micro_batches_);
      if (problem_.any_order) {
        function.crossing = {};
        function.tail_parts = 0;
      }
      if (function.own >= threshold_) continue;
      function.families = extension.families;
      if (is_heavy_boundary) function.begin = extension.cut;
      if (is_last) {
        least_ = std::min(least_, function.own);
      } else {
        std::vector<CompletionFunction>& alike = kept(end, extension.after);
        const auto count_before = static_cast<std::int64_t>(alike.size());
        add(alike, function, {.most = most_alike_});
        const auto more = static_cast<std::int64_t>(alike.size()) - count_before;
        allowance_.keep(more * Bytes{sizeof(CompletionFunction)});
      }
    }
  }
}

/// Puts the boundary in front of `cut` behind the function. Where links are shared, both boundaries
/// of the last stage are now known, and (C5) is applied.
CompletionFunction CompletionBounds::over_boundary(const CompletionFunction& function,
                                                   const BoundaryLowerBound& boundary,
                                                   std::int32_t cut) const {
  CompletionFunction result = with_boundary(function, boundary);
  if (function.begin == CompletionFunction::kNone) return result;
  const StageFamilies::Joint joint = families_.with_both(function.families, function.begin, cut);
  result.own = std::max({function.own, function.sent + joint.out, function.received + joint.in});
  return result;
}

/// Whether transfers over the boundary in front of `cut` may matter beside those of the next
/// boundary. Only there does a function keep where its last stage begins, because this makes
/// functions incomparable and their lists longer.
bool CompletionBounds::is_heavy(std::int32_t cut, std::int32_t families) const {
  if (!problem_.links_are_shared || cut == 0) return false;
  constexpr std::int64_t kPart = 5;  // a fifth of the threshold, one way
  const StageFamilies::Joint twice = families_.with_both(families, cut, cut);
  return twice.out.ns / 2 >= threshold_.ns / kPart;
}

double CompletionBounds::capacity(std::int32_t families) const {
  double sum = 0;
  const std::vector<std::int32_t>& counts = families_.counts(families);
  for (std::size_t family = 0; family < counts.size(); ++family) {
    sum += counts[family] * work_.speed(placements_.families()[family].kind);
  }
  return sum;
}

/// Leaves devices idle at a cut: a function also counts for states with more devices in use.
void CompletionBounds::leave_idle(std::int32_t cut) {
  for (std::int32_t used = 0; used < families_.size(); ++used) {
    for (std::size_t family = 0; family < placements_.families().size(); ++family) {
      std::vector<std::int32_t> more = families_.counts(used);
      if (more[family]++ == placements_.families()[family].size) continue;
      std::vector<CompletionFunction>& next = kept(cut, families_.number(more));
      for (const CompletionFunction& function : kept(cut, used))
        add(next, function, {.most = most_alike_});
    }
  }
}

std::int32_t CompletionBounds::free_families(std::int32_t used) {
  const auto use = static_cast<std::size_t>(used);
  if (use >= free_families_.size()) free_families_.resize(use + 1, -1);
  if (free_families_[use] < 0) {
    free_families_[use] = families_.number(placements_.free_families(used));
  }
  return free_families_[use];
}

const std::vector<CompletionFunction>& CompletionBounds::choices(const Behind& behind) {
  const std::int32_t free = free_families(behind.used);
  const std::int32_t side = placements_.is_complete()
                                ? behind.allocation
                                : placements_.allocation(behind.allocation).replicas;
  const auto [entry, is_new] = choices_.try_emplace({behind.cut, free, side});
  std::vector<CompletionFunction>& choices = entry->second;
  if (!is_new) return choices;
  std::map<std::int32_t, BoundaryLowerBound> boundaries;
  for (const CompletionFunction& function : kept(behind.cut, free)) {
    const auto [boundary, is_unknown] = boundaries.try_emplace(function.families);
    if (is_unknown) {
      boundary->second = families_.before(behind.cut, function.families, behind.allocation);
    }
    if (boundary->second.is_possible) {
      CompletionFunction choice = over_boundary(function, boundary->second, behind.cut);
      choice.begin = CompletionFunction::kNone;
      add(choices, choice, {.any_families = true});
    }
  }
  function_count_ += static_cast<std::int64_t>(choices.size());
  choice_count_ += static_cast<std::int64_t>(choices.size());
  return choices;
}

}  // namespace dapple::search
