#include "dapple/planner/candidates/depths.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "dapple/plan/least_depth.h"
#include "dapple/search/bounds/bound.h"

namespace dapple::planner {

/// Computes K of (L3) from D.
Depths lane_depths(const Plan& plan, Depths depths) {
  if (plan.family == ScheduleFamily::GPipe) return depths;
  for (std::size_t s = 0; s < depths.size(); ++s) {
    depths[s] = divide_up(depths[s], dealt_to(plan.stages[s]));
  }
  return depths;
}

/// Computes the least D of (L3).
Depths pipeline_depths(const Plan& plan) {
  Depths depths = plan.warmup_depths;
  if (plan.family == ScheduleFamily::GPipe) return depths;
  std::int64_t behind = 1;
  for (std::size_t s = depths.size(); s-- > 0;) {
    behind = std::max(behind, (depths[s] - 1) * dealt_to(plan.stages[s]) + 1);
    depths[s] = behind;
  }
  return depths;
}

DepthLimits::DepthLimits(const Plan& plan, const CostModel& costs, bool ignore_memory,
                         Transfers transfers)
    : num_micro_batches_(plan.num_micro_batches),
      ignore_memory_(ignore_memory),
      blocks_(transfers != Transfers::Overlapped),
      deals_(deals_micro_batches(plan)),
      is_gpipe_(plan.family == ScheduleFamily::GPipe) {
  for (const StagePlan& stage : plan.stages) {
    StageLimits& limits = stages_.emplace_back();
    limits.lanes = dealt_to(stage);
    const CostModel& of_form = costs.in(stage.form);
    const std::vector<Bytes>& buckets = stage.gradient_buckets;
    const StageContext context{
        .layers = stage.layers,
        .recompute = stage.recompute,
        .depth = 1,
        .depth_before = stages_.size() == 1 ? 0 : 1,
        .depth_behind = stages_.size() == plan.stages.size() ? 0 : 1,
        .largest_bucket =
            buckets.empty() ? Bytes{} : *std::max_element(buckets.begin(), buckets.end()),
        .replicas = replicas_of(stage)};
    std::set<std::tuple<std::int64_t, std::int64_t, std::int32_t>> seen;
    for (std::size_t i = 0; i < stage.devices.size(); ++i) {
      const std::int64_t samples = samples_of(plan, stage, i).size();
      const std::int64_t micro_batches = micro_batches_of(plan, stage, i);
      const std::int32_t kind = costs.topology().device(stage.devices[i]).kind;
      if (!seen.insert({samples, micro_batches, kind}).second) continue;
      StageTensors tensors =
          of_form.tensors_of(plan, index_at<StageIndex>(stages_.size() - 1), samples);
      const MemoryCost memory = of_form.memory_cost(context, tensors, samples, kind);
      limits.replicas.push_back({.micro_batches = micro_batches,
                                 .fixed = memory.fixed() + memory.recompute_stash,
                                 .per_micro_batch = memory.per_micro_batch,
                                 .before = tensors.before,
                                 .behind = tensors.behind,
                                 .skips = std::move(tensors.skips),
                                 .limit = costs.topology().memory_limit(stage.devices[i])});
    }
  }
}

/// Returns the warm-up depth of a stage at a depth of the pipeline, as lane_depths() does.
std::int64_t DepthLimits::lane_depth(std::size_t stage, std::int64_t depth) const {
  return is_gpipe_ ? depth : divide_up(depth, stages_[stage].lanes);
}

bool DepthLimits::fits(std::size_t stage, const Depths& depths) const {
  const bool is_first = stage == 0;
  const bool is_last = stage + 1 == depths.size();
  const std::int64_t before = is_first ? 0 : lane_depth(stage - 1, depths[stage - 1]);
  const std::int64_t behind = is_last ? 0 : lane_depth(stage + 1, depths[stage + 1]);
  const std::int64_t own = lane_depth(stage, depths[stage]);
  const std::vector<Replica>& replicas = stages_[stage].replicas;
  return std::all_of(replicas.begin(), replicas.end(), [&](const Replica& replica) {
    const std::int64_t depth = std::min(own, replica.micro_batches);
    const std::int64_t waiting_before = is_first ? 0 : std::max<std::int64_t>(0, before - depth);
    const std::int64_t waiting_behind = is_last ? 0 : std::max<std::int64_t>(0, depth - behind);
    Bytes needed = replica.fixed + depth * replica.per_micro_batch +
                   waiting_before * replica.before + waiting_behind * replica.behind;
    for (const StageTensors::Skip& skip : replica.skips) {
      const std::int64_t other = lane_depth(skip.stage.position(), depths[skip.stage.position()]);
      const std::int64_t more = skip.is_before ? other - depth : depth - other;
      needed += std::max<std::int64_t>(0, more) * skip.size;
    }
    return needed <= replica.limit;
  });
}

/// Lowers depths that are more than one above that of the next stage, where transfers block.
void DepthLimits::lower_steps(Depths& depths) const {
  if (!blocks_) return;
  for (std::size_t s = depths.size() - 1; s-- > 0;) {
    depths[s] = std::min(depths[s], depths[s + 1] + 1);
  }
}

/// Returns a stage whose smaller depth may let `stage` fit; nothing if there is none.
std::optional<std::size_t> DepthLimits::stage_to_lower(std::size_t stage,
                                                       const Depths& depths) const {
  if (depths[stage] > 1) return stage;
  // Room can only come from fewer tensors that wait before the stage.
  const std::vector<Replica>& replicas = stages_[stage].replicas;
  const bool has_skips = std::any_of(replicas.begin(), replicas.end(),
                                     [](const Replica& replica) { return !replica.skips.empty(); });
  for (std::size_t before = stage; before-- > 0;) {
    if (depths[before] > 1) return before;
    if (!has_skips) break;
  }
  return std::nullopt;
}

std::optional<Depths> DepthLimits::fit(Depths wanted) const {
  Depths depths = std::move(wanted);
  for (std::int64_t& depth : depths) depth = std::clamp<std::int64_t>(depth, 1, num_micro_batches_);
  for (std::size_t s = 1; s < depths.size(); ++s) depths[s] = std::min(depths[s], depths[s - 1]);
  lower_steps(depths);
  if (ignore_memory_) return depths;
  // Reducing the depth of one stage leaves more tensors waiting at its neighbours, so start over
  // until all stages fit.
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t s = 0; s < depths.size(); ++s) {
      while (!fits(s, depths)) {
        const std::optional<std::size_t> lowered = stage_to_lower(s, depths);
        if (!lowered) return std::nullopt;
        --depths[*lowered];
        for (std::size_t t = *lowered + 1; t < depths.size(); ++t) {
          depths[t] = std::min(depths[t], depths[*lowered]);
        }
        lower_steps(depths);
        changed = true;
      }
    }
  }
  return depths;
}

bool DepthLimits::fit_as_they_are(const Depths& depths) const {
  for (std::size_t s = 1; blocks_ && s < depths.size(); ++s) {
    if (depths[s - 1] > depths[s] + 1) return false;
  }
  if (ignore_memory_) return true;
  for (std::size_t s = 0; s < depths.size(); ++s) {
    if (!fits(s, depths)) return false;
  }
  return true;
}

bool DepthLimits::narrow(search::DepthBox& box) const {
  if (!blocks_) return true;
  for (std::size_t s = box.most.size() - 1; s-- > 0;) {
    box.most[s] = std::min(box.most[s], box.most[s + 1] + 1);
    box.least[s] = std::max(box.least[s], box.least[s + 1]);
  }
  for (std::size_t s = 1; s < box.most.size(); ++s) {
    box.most[s] = std::min(box.most[s], box.most[s - 1]);
    box.least[s] = std::max(box.least[s], box.least[s - 1] - 1);
  }
  for (std::size_t s = 0; s < box.most.size(); ++s) {
    if (box.least[s] > box.most[s]) return false;
  }
  return true;
}

bool DepthLimits::may_fit(const search::DepthBox& box) const {
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    if (!ignore_memory_ && !may_fit(s, box)) return false;
  }
  return true;
}

bool DepthLimits::may_fit(std::size_t s, const search::DepthBox& box) const {
  const bool is_first = s == 0;
  const bool is_last = s + 1 == stages_.size();
  for (const Replica& replica : stages_[s].replicas) {
    Bytes per_depth = replica.per_micro_batch;
    Bytes needed = replica.fixed;
    if (deals_) {
      // What waits at the boundaries of dealt micro-batches is left out.
      const std::int64_t depth = std::min(lane_depth(s, box.least[s]), replica.micro_batches);
      if (needed + depth * per_depth > replica.limit) return false;
      continue;
    }
    // With a deeper stage fewer tensors wait before it and more behind it.
    if (!is_first) {
      per_depth -= replica.before;
      needed += box.least[s - 1] * replica.before;
    }
    if (!is_last) {
      per_depth += replica.behind;
      needed -= box.most[s + 1] * replica.behind;
    }
    needed += (per_depth.count > 0 ? box.least[s] : box.most[s]) * per_depth;
    if (needed > replica.limit) return false;
  }
  return true;
}

Depths DepthLimits::caps() const {
  Depths caps;
  std::int64_t cap = num_micro_batches_;
  for (const StageLimits& stage : stages_) {
    for (const Replica& replica : stage.replicas) {
      if (ignore_memory_ || replica.per_micro_batch.count == 0) continue;
      const std::int64_t room = (replica.limit - replica.fixed).count;
      const std::int64_t depth = room / replica.per_micro_batch.count;
      if (depth >= replica.micro_batches) continue;
      cap = std::min(cap, std::max<std::int64_t>(1, depth) * stage.lanes);
    }
    caps.push_back(cap);
  }
  lower_steps(caps);
  return caps;
}

std::int64_t count_legal_depths(std::size_t stages, std::int64_t num_micro_batches,
                                std::int64_t most) {
  // Combinations with repetition: (M + S - 1) choose S.
  Wide count = 1;
  for (std::size_t s = 1; s <= stages && count <= most; ++s) {
    const auto stage = static_cast<std::int64_t>(s);
    count = count * (num_micro_batches + stage - 1) / stage;
  }
  return static_cast<std::int64_t>(std::min<Wide>(count, most));
}

std::vector<Depths> legal_depths(std::size_t stages, std::int64_t num_micro_batches) {
  std::vector<Depths> all;
  Depths depths(stages, 1);
  while (true) {
    all.push_back(depths);
    // Find the last stage that may be one deeper without exceeding the one before it.
    std::size_t stage = stages;
    while (stage-- > 0) {
      const std::int64_t limit = stage == 0 ? num_micro_batches : depths[stage - 1];
      if (depths[stage] < limit) break;
      depths[stage] = 1;
      if (stage == 0) return all;
    }
    ++depths[stage];
  }
}

Depths depths_for_target(const Plan& plan, const PlanCost& costs, Duration target,
                         std::int64_t slack) {
  const std::int64_t num_micro_batches = plan.num_micro_batches;
  const std::size_t stages = costs.stages.size();
  Duration pace{1};
  std::vector<Duration> fill(stages);        // start of the first forward
  std::vector<Duration> round_trip(stages);  // of one micro-batch, from the stage on
  std::vector<Duration> tail(stages);        // from the start of the last forward to the end
  for (std::size_t s = 0; s < stages; ++s) {
    const StageCost& stage = costs.stages[s];
    pace = std::max(
        pace, Duration{divide_up((stage.forward + stage.backward).ns, dealt_to(plan.stages[s]))});
    if (s + 1 < stages) {
      fill[s + 1] = fill[s] + stage.forward + costs.boundaries[s].forward.front().time;
    }
  }
  for (std::size_t s = stages; s-- > 0;) {
    const StageCost& stage = costs.stages[s];
    round_trip[s] = stage.forward + stage.backward;
    if (s + 1 < stages) {
      const Duration there = costs.boundaries[s].forward.front().time;
      round_trip[s] += there + round_trip[s + 1] + costs.boundaries[s].backward.front().time;
      tail[s] = stage.forward + there + tail[s + 1];
    }
    const Duration after = search::time_after_last_backward(stage);
    tail[s] = std::max(tail[s], round_trip[s] + after);
  }
  Depths depths(stages, 1);
  for (std::size_t s = stages; s-- > 0;) {
    const StageCost& stage = costs.stages[s];
    std::int64_t depth = 1;
    if (s + 1 < stages) {
      // A micro-batch is away from this stage for a trip to the next stage and back. If the two
      // depths differ by less than the number of micro-batches that start in that time, the fixed
      // order makes both stages wait.
      const Duration trip = round_trip[s] - (s + 2 < stages ? round_trip[s + 2] : Duration{}) -
                            (s + 2 < stages ? costs.boundaries[s + 1].forward.front().time +
                                                  costs.boundaries[s + 1].backward.front().time
                                            : Duration{});
      depth = depths[s + 1] + std::max<std::int64_t>(0, divide_up(slack * trip.ns, pace.ns) - 1);
    }
    const std::int64_t lanes = dealt_to(plan.stages[s]);
    const std::int64_t own = divide_up(num_micro_batches, lanes);
    const Duration room = target - fill[s] - tail[s] - (own - 1) * stage.forward;
    const std::int64_t backwards =
        std::max<std::int64_t>(0, room.ns) / std::max<std::int64_t>(1, stage.backward.ns);
    depth = std::max(depth, (own - backwards) * lanes);
    depths[s] = std::clamp<std::int64_t>(depth, 1, num_micro_batches);
  }
  return depths;
}

Depths least_depths(std::size_t stages, std::int64_t num_micro_batches) {
  Depths depths;
  for (std::size_t s = 0; s < stages; ++s) {
    depths.push_back(least_depth(index_at<StageIndex>(s), stages, num_micro_batches));
  }
  return depths;
}

std::vector<Depths> depth_families(std::size_t stages, std::int64_t num_micro_batches) {
  std::vector<Depths> families;
  const auto add = [&](auto depth_at) {
    Depths depths;
    for (std::size_t s = 0; s < stages; ++s) {
      const auto to_end = static_cast<std::int64_t>(stages - s);
      depths.push_back(std::min<std::int64_t>(depth_at(to_end), num_micro_batches));
    }
    if (std::find(families.begin(), families.end(), depths) == families.end()) {
      families.push_back(std::move(depths));
    }
  };
  add([](std::int64_t to_end) { return 2 * to_end - 1; });
  add([](std::int64_t to_end) { return to_end; });
  for (const std::int64_t factor : {3, 4, 6, 10}) {
    add([&](std::int64_t to_end) { return factor * (to_end - 1) + 1; });
  }
  add([&](std::int64_t) { return num_micro_batches; });
  return families;
}

std::vector<Depths> depths_of_dealt(const Plan& plan) {
  std::vector<Depths> some;
  constexpr std::int64_t kMostTimes = 3;
  for (std::int64_t times = 1; times <= kMostTimes; ++times) {
    Depths& depths = some.emplace_back(plan.stages.size());
    std::int64_t replicas = 0;
    for (std::size_t s = depths.size(); s-- > 0;) {
      replicas += dealt_to(plan.stages[s]);
      depths[s] = std::min(times * replicas, plan.num_micro_batches);
    }
  }
  return some;
}

std::vector<Depths> neighbours(const Plan& plan) {
  const Depths depths = pipeline_depths(plan);
  std::vector<Depths> result;
  for (std::size_t s = 0; s < depths.size(); ++s) {
    Depths deeper = depths;
    const std::int64_t lanes = dealt_to(plan.stages[s]);
    for (std::size_t t = 0; t <= s; ++t) deeper[t] += lanes;
    if (lanes > 1) {
      for (std::int64_t& depth : deeper) depth = std::min(depth, plan.num_micro_batches);
    }
    if (deeper.front() <= plan.num_micro_batches) result.push_back(std::move(deeper));
    if (depths[s] > 1) {
      Depths shallower = depths;
      for (std::size_t t = s; t < depths.size(); ++t) {
        shallower[t] = std::max<std::int64_t>(1, shallower[t] - 1);
      }
      result.push_back(std::move(shallower));
    }
  }
  return result;
}

}  // namespace dapple::planner
