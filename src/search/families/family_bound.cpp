#include "dapple/search/families/family_bound.h"

#include <algorithm>
#include <functional>

#include "search/bounds/prefix_bound.h"
#include "search/families/layer_lower_bounds.h"

namespace dapple::search {
namespace {

/// The most stages that are tried to find out whether some time is sufficient.
constexpr std::int64_t kMostWork = 8'000'000;
/// The percentages by which the bound of a shape may exceed the least time.
constexpr int kSteps[] = {0, 1, 2, 4, 7, 12, 20, 35, 60, 100};

/// Returns the least time between `least` and `most` that is enough, or `most` if no smaller one
/// is. If the allowance ends first, returns the largest time of which it is known that no smaller
/// one is enough.
/// Requires: every time above one that is enough is enough.
Duration least_enough(Duration least, Duration most, const std::function<bool(Duration)>& is_enough,
                      const Allowance& allowance) {
  std::int64_t too_little = least.ns - 1;
  std::int64_t enough = std::min(least, most).ns;
  // Steps grow from small ones, because a time far above the least one takes long to check.
  std::int64_t step = std::max<std::int64_t>(1, least.ns / 64);
  while (enough < most.ns) {
    const bool is_found = is_enough({enough});
    // A check that was cut short may have missed a solution.
    if (allowance.is_over()) return {too_little + 1};
    if (is_found) break;
    too_little = enough;
    enough = std::min(most.ns, enough + step);
    step *= 2;
  }
  while (enough - too_little > 1) {
    const std::int64_t middle = too_little + (enough - too_little) / 2;
    const bool is_found = is_enough({middle});
    if (allowance.is_over()) return {too_little + 1};
    (is_found ? enough : too_little) = middle;
  }
  return {enough};
}

/// The best stages for the first `end` layers on the first `used` devices.
///
/// | member    | symbol, docs/bounds.md | unit | equations                 |
/// | --------- | ---------------------- | ---- | ------------------------- |
/// | head      | least head_s           | ns   | (F3), (F4), (F5)          |
/// | both_ways | least head_s + way_s   | ns   | (F3), (F4), (F5)          |
struct Label {
  // The least head: the time to the start of the first forward behind.
  Duration head = Duration::infinite();
  // The least sum of head and way back, which may be that of other stages.
  Duration both_ways = Duration::infinite();
  // First layer and replicas of the last of the stages with the least head.
  std::int32_t begin = -1;
  std::int32_t replicas = 0;
  // The number of stages, as label() takes it, of the label in front of that stage.
  std::int32_t choice = 0;

  bool is_reached() const { return !head.is_infinite(); }
};

}  // namespace

class FamilyBound::Search {
 public:
  Search(const CostModel& costs, const FamilyProblem& problem)
      : problem_(problem),
        layer_bounds_(costs, problem.global_batch_size, problem.micro_batch_size,
                      problem.ignore_memory),
        allowance_(problem.limits),
        layers_(costs.layer_count()),
        devices_(costs.topology().device_count()) {}

  Duration of_work(Duration most) const;
  Duration of_pipelines(Duration most);
  Duration of_loops(Duration most) const;
  std::vector<Candidate> shapes(Duration least, std::int32_t most_stages);

 private:
  /// What grow() computes labels for. Labels are by number of stages (0 for all, if stages are not
  /// counted), layers and devices.
  struct Reach {
    std::int32_t most_stages = 0;  // 0: stages are not counted
    bool as_pinned = false;
    // The time within which every stage must be done.
    Duration within;
  };
  bool is_small(std::int32_t most_stages) const;
  /// A memoized stage that begins at the current layer; it is needed for every number of used
  /// devices.
  struct KnownStage {
    bool is_known = false;
    bool fits = false;
    StageLowerBound bounds;
  };
  const KnownStage& known_stage(LayerRange layers, std::size_t share);
  void grow(const Reach& reach);
  void grow_from(const Reach& reach, std::int32_t stages, std::int32_t begin, std::int32_t used);
  Label& label(std::int32_t stages, std::int32_t end, std::int32_t used) {
    const std::int32_t row = stages * (layers_ + 1) + end;
    return labels_[static_cast<std::size_t>(row) * static_cast<std::size_t>(devices_ + 1) +
                   static_cast<std::size_t>(used)];
  }
  bool is_within(const StageLowerBound& stage, const Label& front, Duration within) const;
  /// Returns the least number of devices that suffices for all layers in that many stages, or
  /// nullopt if none does.
  std::optional<std::int32_t> devices_of_all(std::int32_t stages);
  std::vector<StagePlan> stages_of(std::int32_t stages, std::int32_t used);
  bool have_time(Duration within) const;
  bool has_one_group_time(Duration within) const;
  std::vector<Duration> times_away(bool with_way_back) const;
  Wide device_time(Duration within, bool with_way_back) const;
  std::int64_t most_layers(Duration within, bool with_way_back) const;

  FamilyProblem problem_;
  LayerLowerBounds layer_bounds_;
  mutable Allowance allowance_;
  std::int32_t layers_;
  std::int32_t devices_;
  std::vector<Label> labels_;
  // Indexed by position in replica_counts(), then end.
  std::vector<KnownStage> known_stages_;
};

bool FamilyBound::Search::is_small(std::int32_t most_stages) const {
  if (!layer_bounds_.knows_stages()) return false;
  const std::int64_t stages = std::int64_t{layers_} * layers_ / 2 * devices_;
  const auto shares = static_cast<std::int64_t>(layer_bounds_.replica_counts().size());
  return stages * shares * std::max(1, most_stages) <= kMostWork;
}

/// Whether a stage can be done within a time, behind stages with that label (F4).
bool FamilyBound::Search::is_within(const StageLowerBound& stage, const Label& front,
                                    Duration within) const {
  const std::int64_t all = layer_bounds_.micro_batches();
  const Duration work = all * (stage.forward + stage.backward);
  // If the optimizer steps bucket by bucket, all steps but the last may be done by then.
  const bool is_at_end = problem_.optimizer == OptimizerTiming::AtEnd;
  // The last backward may be in one piece, also where others are split.
  const Duration reduced = work - stage.backward + stage.reduction;
  const Duration end = std::max(work + stage.optimizer_step,
                                reduced + (is_at_end ? stage.optimizer_step : Duration{}));
  const Duration before_way_back =
      problem_.split_backward ? all * (stage.forward + stage.input_gradient) : work;
  return front.head + end <= within && front.both_ways + before_way_back <= within;
}

const FamilyBound::Search::KnownStage& FamilyBound::Search::known_stage(LayerRange layers,
                                                                        std::size_t share) {
  KnownStage& known = known_stages_[share * static_cast<std::size_t>(layers_ + 1) +
                                    static_cast<std::size_t>(layers.end)];
  if (known.is_known) return known;
  const std::int32_t replicas = layer_bounds_.replica_counts()[share];
  known.is_known = true;
  known.fits = problem_.has_loops || layer_bounds_.fits(layers, replicas);
  if (known.fits) known.bounds = layer_bounds_.stage(layers, replicas);
  return known;
}

/// Puts every stage behind one label, and improves the labels behind these stages (F3), (F5).
void FamilyBound::Search::grow_from(const Reach& reach, std::int32_t stages, std::int32_t begin,
                                    std::int32_t used) {
  const Label front = label(stages, begin, used);
  const std::int32_t behind = reach.most_stages == 0 ? 0 : stages + 1;
  const std::vector<std::int32_t>& counts = layer_bounds_.replica_counts();
  for (std::size_t share = 0; share < counts.size(); ++share) {
    const std::int32_t replicas = counts[share];
    if (used + replicas > devices_) break;
    const std::int32_t left = devices_ - used - replicas;
    for (std::int32_t end = left == 0 ? layers_ : begin + 1; end <= layers_; ++end) {
      if (!allowance_.spend(1)) return;
      const LayerRange range{begin, end};
      const KnownStage& known = known_stage(range, share);
      if (!known.fits) break;
      const StageLowerBound& stage = known.bounds;
      if (front.head + layer_bounds_.micro_batches() * (stage.forward + stage.backward) >
          reach.within) {
        break;
      }
      if (!is_within(stage, front, reach.within)) continue;
      if (reach.as_pinned &&
          !problem_.pins.allow(range, replicas, problem_.pins.recompute.value_or(false))) {
        continue;
      }
      const Duration there =
          end == layers_ ? Duration{} : layer_bounds_.crossing({end}, replicas, left);
      // (F3): on the first stage the rest of the backward and the optimizer step follow.
      const Duration back = begin == 0                ? stage.backward + stage.optimizer_step
                            : problem_.split_backward ? stage.input_gradient
                                                      : stage.backward;
      Label& next = label(behind, end, used + replicas);
      next.both_ways = std::min(next.both_ways, front.both_ways + stage.forward + back + 2 * there);
      if (front.head + stage.forward + there >= next.head) continue;
      next.head = front.head + stage.forward + there;
      next.begin = begin;
      next.replicas = replicas;
      next.choice = stages;
    }
  }
}

void FamilyBound::Search::grow(const Reach& reach) {
  labels_.assign(static_cast<std::size_t>(reach.most_stages + 1) *
                     static_cast<std::size_t>(layers_ + 1) * static_cast<std::size_t>(devices_ + 1),
                 {});
  label(0, 0, 0).head = {};
  label(0, 0, 0).both_ways = {};
  for (std::int32_t begin = 0; begin < layers_ && allowance_.spend(1); ++begin) {
    known_stages_.assign(
        layer_bounds_.replica_counts().size() * static_cast<std::size_t>(layers_ + 1), {});
    for (std::int32_t stages = 0; stages <= std::max(0, reach.most_stages - 1); ++stages) {
      for (std::int32_t used = 0; used < devices_; ++used) {
        if (label(stages, begin, used).is_reached()) grow_from(reach, stages, begin, used);
      }
    }
  }
}

std::optional<std::int32_t> FamilyBound::Search::devices_of_all(std::int32_t stages) {
  for (std::int32_t used = 1; used <= devices_; ++used) {
    if (label(stages, layers_, used).is_reached()) return used;
  }
  return std::nullopt;
}

/// Returns the bound of (F8).
Duration FamilyBound::Search::of_work(Duration most) const {
  return least_enough(
      {}, most,
      [&](Duration within) {
        return layer_bounds_.device_time_of_work() + layer_bounds_.device_time_of_steps() <=
               Wide{within.ns} * devices_;
      },
      Allowance({}));
}

/// Returns the bound of (F5).
Duration FamilyBound::Search::of_pipelines(Duration most) {
  const auto is_enough = [&](Duration within) {
    grow({.most_stages = 0, .as_pinned = false, .within = within});
    return devices_of_all(0).has_value();
  };
  const Duration work = of_work(most);
  if (work == most || !is_small(0) || !allowance_.spend(1)) return work;
  // One check tells whether any plan is below `most`, which is seldom the case.
  const bool is_any_below = is_enough(most - Duration{1});
  if (allowance_.is_over()) return work;
  if (!is_any_below) return most;
  return least_enough(work, most, is_enough, allowance_);
}

/// Whether a single group of devices, which holds all layers, can be done within a time (F7). This
/// is data parallelism in another order of computations.
bool FamilyBound::Search::has_one_group_time(Duration within) const {
  const auto& counts = layer_bounds_.replica_counts();
  return std::any_of(counts.begin(), counts.end(), [&](std::int32_t replicas) {
    const StageLowerBound& stage = layer_bounds_.whole_model(replicas);
    const std::int64_t micro_batches = layer_bounds_.micro_batches();
    return micro_batches * (stage.forward + stage.backward) + stage.optimizer_step <= within &&
           micro_batches * stage.forward + stage.reduction <= within;
  });
}

/// Whether the groups of devices have time for all work (F6) and for whole layers (F7).
bool FamilyBound::Search::have_time(Duration within) const {
  if (has_one_group_time(within)) return true;
  if (devices_ == 1) return false;
  const Wide work = layer_bounds_.device_time_of_work();
  const bool has_way_back = !problem_.split_backward;
  return device_time(within, false) >= work + layer_bounds_.device_time_of_steps() &&
         most_layers(within, false) >= layers_ &&
         (!has_way_back ||
          (device_time(within, true) >= work && most_layers(within, true) >= layers_));
}

/// Lower bounds on the time for which a group has no work yet or, with the way back, no more work,
/// by the number of groups in front of it.
std::vector<Duration> FamilyBound::Search::times_away(bool with_way_back) const {
  std::vector<Duration> away{{}};
  const std::int32_t groups = std::min(devices_, layers_);
  for (std::int32_t group = 0; group + 1 < groups; ++group) {
    const LayerLowerBound& layer = layer_bounds_.layer({group});
    Duration here = layer.forward + layer_bounds_.least_crossing();
    if (with_way_back) here += layer.backward + layer_bounds_.least_crossing();
    away.push_back(away.back() + here);
  }
  return away;
}

/// Upper bound on the device time that two or more groups have for work (F6).
Wide FamilyBound::Search::device_time(Duration within, bool with_way_back) const {
  Wide sum = 0;
  std::int64_t left = devices_;
  for (const Duration away : times_away(with_way_back)) {
    const std::int64_t most = std::min<std::int64_t>(problem_.micro_batch_size, devices_ - 1);
    const std::int64_t replicas = std::min(most, left);
    sum += Wide{replicas} * std::max(Duration{}, within - away).ns;
    left -= replicas;
  }
  return sum;
}

/// Upper bound on the layers that the groups have time for (F7); all layers if a layer may take no
/// time.
std::int64_t FamilyBound::Search::most_layers(Duration within, bool with_way_back) const {
  const Duration least = layer_bounds_.least_layer();
  if (least.ns == 0) return layers_;
  std::int64_t sum = 0;
  for (const Duration away : times_away(with_way_back)) {
    sum += std::max(Duration{}, within - away).ns / least.ns;
  }
  return sum;
}

Duration FamilyBound::Search::of_loops(Duration most) const {
  if (!layer_bounds_.may_fit()) return most;
  return least_enough(
      {}, most, [&](Duration within) { return have_time(within); }, Allowance({}));
}

std::vector<StagePlan> FamilyBound::Search::stages_of(std::int32_t stages, std::int32_t used) {
  std::vector<StagePlan> result;
  std::int32_t end = layers_;
  while (end > 0) {
    const Label& last = label(stages, end, used);
    StagePlan& stage = result.emplace_back();
    stage.layers = {last.begin, end};
    stage.recompute = problem_.pins.recompute.value_or(false);
    used -= last.replicas;
    for (std::int32_t i = 0; i < last.replicas; ++i) stage.devices.push_back({used + i});
    end = last.begin;
    stages = last.choice;
  }
  std::reverse(result.begin(), result.end());
  return result;
}

std::vector<Candidate> FamilyBound::Search::shapes(Duration least, std::int32_t most_stages) {
  most_stages = std::min({most_stages, devices_, layers_});
  while (most_stages > 1 && !is_small(most_stages)) most_stages /= 2;
  if (!is_small(most_stages)) return {};
  std::vector<Candidate> found(static_cast<std::size_t>(most_stages));
  for (const int percent : kSteps) {
    const Duration within = least + Duration{divide_up(Wide{least.ns} * percent, 100)};
    grow({.most_stages = most_stages, .as_pinned = true, .within = within});
    if (allowance_.is_over()) break;
    for (std::int32_t stages = 1; stages <= most_stages; ++stages) {
      Candidate& candidate = found[static_cast<std::size_t>(stages) - 1];
      const std::optional<std::int32_t> used = devices_of_all(stages);
      if (!candidate.stages.empty() || !used) continue;
      candidate = {.micro_batch_size = problem_.micro_batch_size,
                   .stages = stages_of(stages, *used),
                   .bound = within};
    }
  }
  std::erase_if(found, [](const Candidate& candidate) { return candidate.stages.empty(); });
  return found;
}

FamilyBound::FamilyBound(const CostModel& costs, const FamilyProblem& problem)
    : search_(std::make_unique<Search>(costs, problem)) {}
FamilyBound::~FamilyBound() = default;

Duration FamilyBound::of_pipelines(Duration most) {
  return search_->of_pipelines(most);
}
Duration bound_of_work_alone(const CostModel& costs, const FamilyProblem& problem) {
  return PrefixBound(costs, problem.micro_batch_size, problem.global_batch_size).work_alone();
}

Duration FamilyBound::of_loops(Duration most) const {
  return search_->of_loops(most);
}
Duration FamilyBound::of_work(Duration most) const {
  return search_->of_work(most);
}
std::vector<Candidate> FamilyBound::shapes(Duration least, std::int32_t most_stages) {
  return search_->shapes(least, most_stages);
}

}  // namespace dapple::search
