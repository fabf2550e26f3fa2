// Small pipelines of the families that an executor runs, replicas and all.
#pragma once

#include <stdexcept>
#include <variant>
#include <vector>

#include "dapple/planner/families/reschedule.h"
#include "random_pipeline.h"

namespace dapple::small {

/// As many alike stages as devices, two layers each, under the schedule of a family.
inline Pipeline family_pipeline(ScheduleFamily family, std::int32_t devices,
                                std::int64_t micro_batches) {
  const LayerFigures layer{.forward = 3, .backward = 6, .output = 16, .parameters = 8, .stash = 10};
  PlanShape shape{.num_micro_batches = micro_batches};
  for (std::int32_t s = 0; s < devices; ++s) {
    shape.stages.push_back({.layers = 2, .devices = {s}});
    shape.depths.push_back(std::min<std::int64_t>(devices - s, micro_batches));
  }
  const ModelProfile profile =
      model_of(std::vector<LayerFigures>(2 * static_cast<std::size_t>(devices), layer));
  const TopologyDescription description = cluster({.devices = devices});
  const Pipeline plain(profile, description, shape);
  const bool loops = family == ScheduleFamily::ZeroBubbleV || family == ScheduleFamily::Interleaved;
  const auto made = planner::reschedule(
      plain.plan, plain.profile, plain.topology,
      {.family = family, .chunks_per_device = loops ? 2 : 1, .evaluations = 50});
  if (std::holds_alternative<planner::NoSchedule>(made)) {
    throw std::runtime_error("the pipeline cannot run under the family");
  }
  return {profile, description, std::get<planner::Rescheduled>(made).plan};
}

/// 1F1B or GPipe with replicas on up to a few devices, or interleaved or zero bubble.
inline Pipeline random_family_pipeline(Dice& dice) {
  constexpr ScheduleFamily kFamilies[] = {ScheduleFamily::Interleaved, ScheduleFamily::ZeroBubbleH1,
                                          ScheduleFamily::ZeroBubbleV};
  if (dice.chance(50)) return random_pipeline(dice, {.deal = true});
  const auto devices = static_cast<std::int32_t>(dice.roll(2, 4));
  return family_pipeline(kFamilies[dice.roll(0, 2)], devices, devices * dice.roll(1, 2));
}

}  // namespace dapple::small
