#include "dapple/plan/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "dapple/core/error.h"

namespace dapple {
namespace {

std::int32_t shared_layers(LayerRange a, LayerRange b) {
  return std::max(0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
}

/// The largest number of layers that pairs of the stages from i on (first plan) and from j on
/// (second plan) can share, by dynamic programming.
class SharedLayers {
 public:
  SharedLayers(const Plan& first, const Plan& second)
      : columns_(second.stages.size() + 1), most_((first.stages.size() + 1) * columns_) {
    for (std::size_t i = first.stages.size(); i-- > 0;) {
      for (std::size_t j = second.stages.size(); j-- > 0;) {
        const std::int32_t shared = shared_layers(first.stages[i].layers, second.stages[j].layers);
        at(i, j) = std::max({at(i + 1, j), at(i, j + 1), at(i + 1, j + 1) + shared});
      }
    }
  }

  std::int32_t from(std::size_t i, std::size_t j) const { return most_[i * columns_ + j]; }

 private:
  std::int32_t& at(std::size_t i, std::size_t j) { return most_[i * columns_ + j]; }

  std::size_t columns_;
  std::vector<std::int32_t> most_;
};

std::vector<StagePair> align(const Plan& first, const Plan& second) {
  const SharedLayers most(first, second);
  std::vector<StagePair> pairs;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < first.stages.size() || j < second.stages.size()) {
    const bool both = i < first.stages.size() && j < second.stages.size();
    const std::int32_t shared =
        both ? shared_layers(first.stages[i].layers, second.stages[j].layers) : 0;
    if (shared > 0 && most.from(i, j) == most.from(i + 1, j + 1) + shared) {
      pairs.push_back({index_at<StageIndex>(i++), index_at<StageIndex>(j++)});
    } else if (i < first.stages.size() && most.from(i, j) == most.from(i + 1, j)) {
      pairs.push_back({index_at<StageIndex>(i++), std::nullopt});
    } else {
      pairs.push_back({std::nullopt, index_at<StageIndex>(j++)});
    }
  }
  return pairs;
}

/// The position of the pair that contains each stage.
struct PairNumbers {
  std::vector<std::size_t> of_first;
  std::vector<std::size_t> of_second;
};

PairNumbers number(const std::vector<StagePair>& pairs) {
  PairNumbers numbers;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    if (pairs[p].first) numbers.of_first.push_back(p);
    if (pairs[p].second) numbers.of_second.push_back(p);
  }
  return numbers;
}

std::vector<MovedLayers> moved_layers(const Plan& first, const Plan& second,
                                      const PairNumbers& numbers) {
  std::vector<MovedLayers> moved;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < first.stages.size() && j < second.stages.size()) {
    const LayerRange a = first.stages[i].layers;
    const LayerRange b = second.stages[j].layers;
    if (numbers.of_first[i] != numbers.of_second[j]) {
      moved.push_back({{std::max(a.begin, b.begin), std::min(a.end, b.end)},
                       index_at<StageIndex>(i),
                       index_at<StageIndex>(j)});
    }
    if (a.end <= b.end) ++i;
    if (b.end <= a.end) ++j;
  }
  return moved;
}

/// Returns the stages of each device that the plan uses.
std::map<DeviceIndex, std::vector<StageIndex>> stages_by_device(const Plan& plan) {
  std::map<DeviceIndex, std::vector<StageIndex>> stages;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    for (const DeviceIndex device : plan.stages[s].devices) {
      stages[device].push_back(index_at<StageIndex>(s));
    }
  }
  return stages;
}

bool correspond(const std::vector<StageIndex>& first, const std::vector<StageIndex>& second,
                const PairNumbers& numbers) {
  return std::equal(first.begin(), first.end(), second.begin(), second.end(),
                    [&](StageIndex a, StageIndex b) {
                      return numbers.of_first[a.position()] == numbers.of_second[b.position()];
                    });
}

std::vector<MovedDevices> moved_devices(const Plan& first, const Plan& second,
                                        const PairNumbers& numbers) {
  struct Stages {
    std::vector<StageIndex> from;
    std::vector<StageIndex> to;
  };
  std::map<DeviceIndex, Stages> by_device;
  for (auto& [device, stages] : stages_by_device(first)) by_device[device].from = stages;
  for (auto& [device, stages] : stages_by_device(second)) by_device[device].to = stages;
  std::vector<MovedDevices> moved;
  std::map<std::pair<std::vector<StageIndex>, std::vector<StageIndex>>, std::size_t> groups;
  for (auto& [device, stages] : by_device) {
    if (correspond(stages.from, stages.to, numbers)) continue;
    const auto [group, is_new] = groups.try_emplace({stages.from, stages.to}, moved.size());
    if (is_new) moved.push_back({.devices = {}, .from = stages.from, .to = stages.to});
    moved[group->second].devices.push_back(device);
  }
  return moved;
}

/// Whether two plans execute in the same order. An order that plans carry is what runs, whatever
/// the name of the family.
bool runs_alike(const Plan& a, const Plan& b) {
  return a.order == b.order && (a.family == b.family || !a.order.empty());
}

}  // namespace

ComparedPlan on_single_devices(ComparedPlan compared, const Topology& groups,
                               const Topology& devices) {
  const std::int64_t size = groups.description().group_size;
  const auto members_of = [&](DeviceIndex group) {
    std::vector<DeviceIndex> members;
    for (std::int64_t i = 0; i < size; ++i) {
      const GroupMember member = groups.group_member(group, i);
      const auto device = devices.find_device(fmt::format("{}:{}", member.server, member.number));
      check(device.has_value(), "a group has a device that is not in the topology");
      members.push_back(*device);
    }
    return members;
  };
  for (StagePlan& stage : compared.plan.stages) {
    std::vector<DeviceIndex> all;
    for (const DeviceIndex group : stage.devices) {
      const std::vector<DeviceIndex> members = members_of(group);
      all.insert(all.end(), members.begin(), members.end());
    }
    stage.devices = std::move(all);
    stage.devices_per_replica *= static_cast<std::int32_t>(size);
  }
  std::vector<DeviceFigures> all;
  for (const DeviceFigures& group : compared.prediction.devices) {
    for (const DeviceIndex device : members_of(group.device)) {
      all.push_back(group);
      all.back().device = device;
    }
  }
  compared.prediction.devices = std::move(all);
  return compared;
}

PlanDifference difference(const Plan& first, const Plan& second) {
  PlanDifference result;
  result.stages = align(first, second);
  const PairNumbers numbers = number(result.stages);
  result.layers = moved_layers(first, second, numbers);
  result.devices = moved_devices(first, second, numbers);
  return result;
}

bool same_stage(const StagePlan& a, const StagePlan& b) {
  return a.layers == b.layers && a.devices == b.devices && a.replication == b.replication &&
         a.samples == b.samples && a.recompute == b.recompute &&
         a.gradient_buckets == b.gradient_buckets;
}

bool same_plan(const Plan& a, const Plan& b) {
  return a.global_batch_size == b.global_batch_size && a.micro_batch_size == b.micro_batch_size &&
         a.num_micro_batches == b.num_micro_batches && a.gradients == b.gradients &&
         runs_alike(a, b) && a.warmup_depths == b.warmup_depths &&
         std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(),
                    [&](const StagePlan& one, const StagePlan& other) {
                      return same_stage(one, other) && form_of(a, one) == form_of(b, other);
                    });
}

std::vector<MemoryPair> memory_pairs(const Prediction& first, const Prediction& second) {
  std::map<DeviceIndex, MemoryPair> pairs;
  const auto of = [&pairs](const DeviceFigures& figures) -> MemoryPair& {
    MemoryPair& pair = pairs[figures.device];
    pair.device = figures.device;
    pair.limit = figures.memory_limit;
    return pair;
  };
  for (const DeviceFigures& figures : first.devices) of(figures).first = figures.peak_memory;
  for (const DeviceFigures& figures : second.devices) of(figures).second = figures.peak_memory;
  std::vector<MemoryPair> result;
  for (const auto& [device, pair] : pairs) result.push_back(pair);
  return result;
}

}  // namespace dapple
