// Plans of single-layer stages for the tests of schedules; devices are numbered through.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dapple/plan/plan.h"
#include "dapple/schedule/schedule.h"

namespace dapple {

/// One device per stage, 1F1B.
inline Plan straight_plan(std::int64_t micro_batches, std::vector<std::int64_t> depths) {
  Plan plan{.global_batch_size = micro_batches,
            .micro_batch_size = 1,
            .num_micro_batches = micro_batches,
            .warmup_depths = std::move(depths),
            .stages = {}};
  const auto stages = static_cast<std::int32_t>(plan.warmup_depths.size());
  for (std::int32_t s = 0; s < stages; ++s) {
    StagePlan stage;
    stage.layers = {s, s + 1};
    stage.devices = {DeviceIndex{s}};
    plan.stages.push_back(std::move(stage));
  }
  return plan;
}

/// Gives stage s `replicas[s]` devices, dealt where `dealt`, with `buckets` gradient buckets each
/// where there is more than one.
inline void replicate(Plan& plan, const std::vector<std::int32_t>& replicas, bool dealt,
                      std::size_t buckets) {
  std::int32_t next = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    StagePlan& stage = plan.stages[s];
    stage.devices.clear();
    for (std::int32_t i = 0; i < replicas[s]; ++i) stage.devices.push_back(DeviceIndex{next++});
    stage.replication = dealt ? Replication::Deal : Replication::Split;
    if (replicas[s] > 1) stage.gradient_buckets.assign(buckets, Bytes{1});
  }
}

inline std::string text_of(const Lane& lane) {
  std::string text;
  for (const Action& action : lane.actions) {
    if (!text.empty()) text += ' ';
    text += to_text(action);
  }
  return text;
}

}  // namespace dapple
