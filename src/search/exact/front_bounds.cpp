#include "search/exact/front_bounds.h"

#include <algorithm>
#include <utility>

namespace dapple::search {
namespace {

constexpr std::int32_t kFamiliesBetweenQuestions = 16;

/// Fronts kept for one state with the same last stage's devices; fewer where there are many states.
constexpr std::size_t kMostAlike = 64;
constexpr std::size_t kMostAlikeOfMany = 4;

bool is_as_good(const Front& a, const Front& b) {
  return a.end <= b.end && a.last <= b.last && a.span <= b.span && a.trip <= b.trip &&
         a.own <= b.own && a.waves <= b.waves && a.steep <= b.steep && a.slowest <= b.slowest &&
         a.crossing <= b.crossing && a.tail_parts <= b.tail_parts &&
         (a.begin == Front::kNone ||
          (a.begin == b.begin && a.sent <= b.sent && a.received <= b.received));
}

/// At least as good as both, in everything.
Front better_of_each(const Front& a, const Front& b) {
  Front best;
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
  best.begin = a.begin == b.begin ? a.begin : Front::kNone;
  return best;
}

/// Adds a front unless another is as good; drops those that it is as good as. Where there are more
/// than `most` that are alike, two become one that is as good as either: bounds may fall, never
/// rise.
struct Alike {
  bool any_families = false;
  std::size_t most = SIZE_MAX;
};
void add(std::vector<Front>& fronts, const Front& front, const Alike& alike) {
  const auto comparable = [&](const Front& other) {
    return alike.any_families || other.families == front.families;
  };
  std::size_t count = 0;
  for (const Front& other : fronts) {
    if (!comparable(other)) continue;
    if (is_as_good(other, front)) return;
    ++count;
  }
  std::erase_if(fronts,
                [&](const Front& other) { return comparable(other) && is_as_good(front, other); });
  if (count < alike.most) {
    fronts.push_back(front);
    return;
  }
  // The one with the nearest end.
  const auto distance = [&](const Front& other) {
    return std::max(other.own, front.own) - std::min(other.own, front.own) +
           (std::max(other.end, front.end) - std::min(other.end, front.end));
  };
  auto nearest = fronts.end();
  for (auto other = fronts.begin(); other != fronts.end(); ++other) {
    if (!comparable(*other)) continue;
    if (nearest == fronts.end() || distance(*other) < distance(*nearest)) nearest = other;
  }
  if (nearest == fronts.end()) {
    fronts.push_back(front);
  } else {
    *nearest = better_of_each(*nearest, front);
  }
}

/// The terms of a front on the label that a boundary hands to its last stage, from those on the
/// label behind the boundary.
Front with_boundary(const Front& front, const BoundaryFloor& boundary) {
  const Duration there_and_back = boundary.forward + boundary.backward;
  Front result = front;
  result.slowest = std::max(front.slowest, boundary.pace);
  result.last = std::max(front.last + boundary.forward, front.end + boundary.forward_queue);
  result.end += boundary.forward;
  result.crossing = front.crossed(boundary.forward);
  result.span += there_and_back;
  result.trip = std::max({front.trip + there_and_back,
                          front.span + boundary.forward_queue + boundary.backward,
                          front.span + boundary.forward + boundary.backward_queue});
  result.steep += front.waves * there_and_back;
  // Without the way back, or there: the next stage's own transfers count for it.
  result.sent = front.span + boundary.forward;
  result.received = front.span + boundary.backward;
  return result;
}

/// A depth K holds the stage's first backward back until K forwards have arrived, no faster than
/// `pace`, and its last forward until M - K backwards are done: one rises with K, the other falls,
/// and where they cross no depth is better. `span` and `front.end`: from the begin of all to the
/// stage's first forward, with or without the way from its last backward to the end of all.
void cross(Front& result, const Front& front, const StageBound& stage, Duration span,
           std::int64_t micro_batches) {
  result.crossing = front.crossed(stage.forward);
  result.tail_parts = front.tail_parts;
  // Up to this tail what is known anyhow does not grow, and beyond it grows faster than this does.
  const Duration tail = std::max(Duration{}, result.own - result.last);
  const Duration both = stage.forward + stage.backward;
  const Duration rise = std::max(front.slowest, stage.forward) - stage.forward;
  const Duration fall = stage.backward - rise;
  if (rise > Duration{} && fall > Duration{}) {
    const Duration rising = span + micro_batches * both - rise;
    const Duration falling = front.end + micro_batches * both - rise;  // and the tail behind
    Front other;
    other.crossing = {
        divide_down(Wide{rising.ns} * fall.ns + Wide{falling.ns} * rise.ns, stage.backward.ns)};
    other.tail_parts = divide_down(Wide{rise.ns} * Front::kTailParts, stage.backward.ns);
    if (other.crossed(tail) > result.crossed(tail)) {
      result.crossing = other.crossing;
      result.tail_parts = other.tail_parts;
    }
  }
  if (result.crossed(tail) > result.own) return;
  result.crossing = Duration{};
  result.tail_parts = 0;
}

/// With one more stage behind. `front` includes the boundary to it; nothing before: all zero.
Front with_stage(const Front& front, const StageBound& stage, std::int64_t micro_batches) {
  const Duration both = stage.forward + stage.backward;
  const Duration span = std::max(front.span, front.end + stage.after_backward);
  const std::int64_t depth = std::min(stage.depth_limit, micro_batches);
  const std::int64_t rest = micro_batches - 1;
  // Lines 2 and 3 of the bound, as terms of the round trip behind.
  const Duration drained = rest * stage.backward + (micro_batches - depth) * stage.forward;
  const Duration filled = rest * stage.forward + (micro_batches - depth) * stage.backward;
  Front result;
  result.end = front.end + stage.forward;
  // The last forward waits for the others, and for slots.
  const Duration last = std::max(
      front.last, front.end + rest * stage.forward + (micro_batches - depth) * stage.backward);
  result.last = last + stage.forward;
  result.span = span + both;
  result.trip = std::max(front.trip, span + std::max(drained, filled)) + both;
  result.waves = front.waves;
  result.steep = front.steep + front.waves * both;
  const std::int64_t waves = rest / depth + 1;
  const Duration steep =
      span + (rest % depth) * std::max(stage.forward, stage.backward) + waves * both;
  if (waves == 1) {
    result.trip = std::max(result.trip, steep);
  } else if (waves > result.waves || (waves == result.waves && steep > result.steep)) {
    result.waves = waves;
    result.steep = steep;
  }
  result.slowest = std::max(front.slowest, stage.forward);
  result.sent = front.sent + stage.forward;
  result.received = front.received + stage.backward;
  result.own =
      std::max({front.own, span + stage.work(micro_batches), last + both + stage.after_backward});
  cross(result, front, stage, span, micro_batches);
  return result;
}

}  // namespace

Duration completed(const Front& front, const BoundLabel& label) {
  return std::max({front.end + label.end, front.last + label.tail, front.span + label.span,
                   front.trip + label.round_trip, front.waves * label.round_trip + front.steep,
                   front.crossed(label.tail), front.own});
}

FrontBounds::FrontBounds(const CostModel& costs, PlacementSpace& placements,
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
  for (const std::vector<Front>& fronts : kept_) {
    front_count_ += static_cast<std::int64_t>(fronts.size());
  }
}

bool FrontBounds::has_room(const CostModel& costs, const PlacementSpace& placements,
                           const Allowance::Limits& limits) {
  const Wide of_cuts = Wide{StageFamilies::count(placements)} * (costs.layer_count() + 1) *
                       static_cast<std::int64_t>(sizeof(std::vector<Front>));
  return of_cuts + StageFamilies::least_kept(placements).count <= limits.kept.count;
}

std::vector<Front>& FrontBounds::kept(std::int32_t cut, std::int32_t used) {
  return kept_[static_cast<std::size_t>(cut) * static_cast<std::size_t>(families_.size()) +
               static_cast<std::size_t>(used)];
}

const StageColumn& FrontBounds::column(std::int32_t end, std::int32_t families, bool recompute) {
  const std::tuple key{end, families, recompute};
  const auto found = least_columns_.find(key);
  if (found != least_columns_.end()) return found->second;
  const std::vector<const Taking*>& takings = families_.takings(families);
  const StageColumn& column =
      least_columns_.emplace(key, columns_.least(end, takings, recompute)).first->second;
  allowance_.spend(static_cast<std::int64_t>(column.stages.size() * takings.size()));
  allowance_.keep({static_cast<std::int64_t>(column.stages.size() * sizeof(StageBound))});
  return column;
}

/// Every stage that begins at `cut` behind the fronts that have just these devices.
void FrontBounds::grow_from(std::int32_t cut, std::int32_t used) {
  if (cut > 0 && kept(cut, used).empty()) return;
  is_stopped_ = is_stopped_ || is_out_of_patience();
  for (std::int32_t families = 1; families < families_.size() && !is_stopped_; ++families) {
    if (families % kFamiliesBetweenQuestions == 0) is_stopped_ = is_out_of_patience();
    if (families_.replicas(families) > problem_.micro_batch_size) continue;
    if (!families_.counts_for_itself(families)) continue;
    const std::int32_t after = families_.sum(used, families);
    if (after < 0) continue;
    std::vector<Front> fronts;
    if (cut == 0) fronts.emplace_back();
    if (cut > 0) {
      for (const Front& front : kept(cut, used)) {
        const BoundaryFloor& floor = families_.between(cut, front.families, families);
        if (floor.is_possible) fronts.push_back(over_boundary(front, floor, cut));
      }
    }
    for (const bool recompute : {false, true}) {
      put_behind(fronts,
                 {.cut = cut, .families = families, .after = after, .recompute = recompute});
    }
  }
}

void FrontBounds::put_behind(const std::vector<Front>& fronts, const Extension& extension) {
  const auto replicas = static_cast<std::int64_t>(families_.replicas(extension.families));
  const double left = capacity(families_.rest(extension.after));
  const bool is_heavy_boundary = is_heavy(extension.cut, extension.families);
  // Without a device for the layers behind it, a stage has all of them.
  const std::int32_t first_end = left > 0 ? extension.cut + 1 : costs_.layer_count();
  for (std::int32_t end = first_end; end <= costs_.layer_count(); ++end) {
    const bool is_last = end == costs_.layer_count();
    const StageColumn& stages = column(end, extension.families, false);
    if (extension.cut < stages.first) return;
    if (!allowance_.spend(static_cast<std::int64_t>(fronts.size()))) return;
    // What can hold all micro-batches gains nothing from recomputation, as far as bounds tell.
    if (extension.recompute && !stages.memory_limits && !problem_.pins.recompute) continue;
    const StageBound& stage =
        column(end, extension.families, extension.recompute).at(extension.cut);
    if (stage.work(micro_batches_) >= threshold_) return;
    if (stage.depth_limit == 0 || (!is_last && left <= 0)) continue;
    if (!problem_.pins.allow({extension.cut, end}, replicas, extension.recompute)) continue;
    const LayerRange rest{end, costs_.layer_count()};
    if (!is_last && work_.busiest(rest, left) >= threshold_) continue;
    for (const Front& before : fronts) {
      Front front = with_stage(before, stage, micro_batches_);
      if (problem_.any_order) {
        front.crossing = {};
        front.tail_parts = 0;
      }
      if (front.own >= threshold_) continue;
      front.families = extension.families;
      if (is_heavy_boundary) front.begin = extension.cut;
      if (is_last) {
        least_ = std::min(least_, front.own);
      } else {
        std::vector<Front>& alike = kept(end, extension.after);
        const auto count_before = static_cast<std::int64_t>(alike.size());
        add(alike, front, {.most = most_alike_});
        const auto more = static_cast<std::int64_t>(alike.size()) - count_before;
        allowance_.keep(more * Bytes{sizeof(Front)});
      }
    }
  }
}

/// Where links are shared, the front's last stage is now known from end to end.
Front FrontBounds::over_boundary(const Front& front, const BoundaryFloor& boundary,
                                 std::int32_t cut) const {
  Front result = with_boundary(front, boundary);
  if (front.begin == Front::kNone) return result;
  const StageFamilies::Joint joint = families_.with_both(front.families, front.begin, cut);
  result.own = std::max({front.own, front.sent + joint.out, front.received + joint.in});
  return result;
}

/// Whether transfers over the boundary before `cut` may matter beside those of the next one. To
/// remember where a stage begins keeps more fronts apart, so it is done only there.
bool FrontBounds::is_heavy(std::int32_t cut, std::int32_t families) const {
  if (!problem_.links_are_shared || cut == 0) return false;
  constexpr std::int64_t kPart = 5;  // a fifth of the threshold, one way
  const StageFamilies::Joint twice = families_.with_both(families, cut, cut);
  return twice.out.ns / 2 >= threshold_.ns / kPart;
}

double FrontBounds::capacity(std::int32_t families) const {
  double sum = 0;
  const std::vector<std::int32_t>& counts = families_.counts(families);
  for (std::size_t family = 0; family < counts.size(); ++family) {
    sum += counts[family] * work_.speed(placements_.families()[family].kind);
  }
  return sum;
}

/// A front may leave devices idle that the stages behind it leave as well.
void FrontBounds::leave_idle(std::int32_t cut) {
  for (std::int32_t used = 0; used < families_.size(); ++used) {
    for (std::size_t family = 0; family < placements_.families().size(); ++family) {
      std::vector<std::int32_t> more = families_.counts(used);
      if (more[family]++ == placements_.families()[family].size) continue;
      std::vector<Front>& next = kept(cut, families_.number(more));
      for (const Front& front : kept(cut, used)) add(next, front, {.most = most_alike_});
    }
  }
}

std::int32_t FrontBounds::free_families(std::int32_t used) {
  const auto use = static_cast<std::size_t>(used);
  if (use >= free_families_.size()) free_families_.resize(use + 1, -1);
  if (free_families_[use] < 0) {
    free_families_[use] = families_.number(placements_.free_families(used));
  }
  return free_families_[use];
}

const std::vector<Front>& FrontBounds::choices(const Behind& behind) {
  const std::int32_t free = free_families(behind.used);
  const std::int32_t side =
      placements_.is_complete() ? behind.taking : placements_.taking(behind.taking).replicas;
  const auto [entry, is_new] = choices_.try_emplace({behind.cut, free, side});
  std::vector<Front>& choices = entry->second;
  if (!is_new) return choices;
  std::map<std::int32_t, BoundaryFloor> floors;
  for (const Front& front : kept(behind.cut, free)) {
    const auto [floor, is_unknown] = floors.try_emplace(front.families);
    if (is_unknown) { floor->second = families_.before(behind.cut, front.families, behind.taking); }
    if (floor->second.is_possible) {
      Front choice = over_boundary(front, floor->second, behind.cut);
      choice.begin = Front::kNone;
      add(choices, choice, {.any_families = true});
    }
  }
  front_count_ += static_cast<std::int64_t>(choices.size());
  choice_count_ += static_cast<std::int64_t>(choices.size());
  return choices;
}

}  // namespace dapple::search
