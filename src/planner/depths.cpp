#include "depths.h"

#include <algorithm>
#include <set>

namespace dapple {

DepthLimits::DepthLimits(const Plan& plan, const CostModel& costs, bool ignore_memory)
    : num_micro_batches_(plan.num_micro_batches), ignore_memory_(ignore_memory) {
  for (const StagePlan& stage : plan.stages) {
    std::vector<Replica>& replicas = stages_.emplace_back();
    const std::vector<Bytes>& buckets = stage.gradient_buckets;
    const StageContext context{
        .layers = stage.layers,
        .recompute = stage.recompute,
        .depth = 1,
        .depth_before = stages_.size() == 1 ? 0 : 1,
        .depth_behind = stages_.size() == plan.stages.size() ? 0 : 1,
        .largest_bucket =
            buckets.empty() ? Bytes{} : *std::max_element(buckets.begin(), buckets.end())};
    std::set<std::pair<std::int64_t, std::int32_t>> seen;
    for (std::size_t i = 0; i < stage.devices.size(); ++i) {
      const std::int64_t samples = samples_of(plan, stage, i).size();
      const std::int32_t kind = costs.topology().device(stage.devices[i]).kind;
      if (!seen.insert({samples, kind}).second) continue;
      const MemoryCost memory = costs.memory_cost(context, samples, kind);
      replicas.push_back({.fixed = memory.fixed() + memory.recompute_stash,
                          .per_micro_batch = memory.per_micro_batch,
                          .before = costs.boundary_size(stage.layers.begin, samples),
                          .behind = costs.boundary_size(stage.layers.end, samples),
                          .limit = costs.topology().memory_limit(stage.devices[i])});
    }
  }
}

bool DepthLimits::fits(std::size_t stage, const Depths& depths) const {
  const std::int64_t depth = depths[stage];
  const std::int64_t waiting_before = stage == 0 ? 0 : depths[stage - 1] - depth;
  const std::int64_t waiting_behind = stage + 1 == depths.size() ? 0 : depth - depths[stage + 1];
  return std::all_of(stages_[stage].begin(), stages_[stage].end(), [&](const Replica& replica) {
    const Bytes needed = replica.fixed + depth * replica.per_micro_batch +
                         waiting_before * replica.before + waiting_behind * replica.behind;
    return needed <= replica.limit;
  });
}

std::optional<Depths> DepthLimits::fit(Depths wanted) const {
  Depths depths = std::move(wanted);
  for (std::int64_t& depth : depths) depth = std::clamp<std::int64_t>(depth, 1, num_micro_batches_);
  for (std::size_t s = 1; s < depths.size(); ++s) depths[s] = std::min(depths[s], depths[s - 1]);
  if (ignore_memory_) return depths;
  // Cutting one stage down leaves more waiting at its neighbours, so start over until all fit.
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t s = 0; s < depths.size(); ++s) {
      while (!fits(s, depths)) {
        // At a depth of 1, only less waiting from the stage before can make room.
        const bool by_itself = depths[s] > 1;
        if (!by_itself && (s == 0 || depths[s - 1] == 1)) return std::nullopt;
        const std::size_t cut = by_itself ? s : s - 1;
        --depths[cut];
        for (std::size_t t = cut + 1; t < depths.size(); ++t) {
          depths[t] = std::min(depths[t], depths[cut]);
        }
        changed = true;
      }
    }
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

std::vector<Depths> neighbours(const Depths& depths, std::int64_t num_micro_batches) {
  std::vector<Depths> result;
  for (std::size_t s = 0; s < depths.size(); ++s) {
    Depths deeper = depths;
    for (std::size_t t = 0; t <= s; ++t) ++deeper[t];
    if (deeper.front() <= num_micro_batches) result.push_back(std::move(deeper));
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

}  // namespace dapple
