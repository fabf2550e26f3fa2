#include "planner/restricted/restricted_parts.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "planner/request/micro_batches.h"

namespace dapple::planner {
namespace {

/// Returns the numbers of replicas that divide some micro-batch size, in ascending order.
std::vector<std::int32_t> replica_counts(const PlanningContext& context) {
  const PlannerOptions& options = context.options;
  if (options.pins.replicas) return {*options.pins.replicas};
  const std::vector<std::int64_t> sizes = micro_batch_sizes(options).sizes;
  const std::int64_t ranks = context.profile.group.replicas;
  std::vector<std::int32_t> counts;
  for (std::int32_t count = 1; count <= context.topology.device_count(); ++count) {
    const bool divides = std::any_of(
        sizes.begin(), sizes.end(), [&](std::int64_t size) { return size % (count * ranks) == 0; });
    if (divides) counts.push_back(count);
  }
  return counts;
}

/// Returns the most micro-batches that the pins allow.
std::int64_t most_micro_batches(const PlannerOptions& options, const Pins& pins) {
  PlannerOptions pinned = options;
  pinned.pins = pins;
  return options.global_batch_size / micro_batch_sizes(pinned).sizes.front();
}

/// Returns these pins alone or, where the runtime cuts the model itself, with the boundaries of
/// each number of stages that it has, ascending. Requires: the number of replicas is pinned.
std::vector<Pins> pins_by_stages(const PlanningContext& context, const PlanRestriction& restriction,
                                 const Pins& pins) {
  if (restriction.own_boundaries == nullptr) return {pins};
  const auto layers = static_cast<std::int32_t>(context.profile.layers.size());
  // One stage and the pinned number are tried, so that a lack of devices is told as such.
  const std::int32_t groups = std::max(1, context.topology.device_count() / *pins.replicas);
  const std::int32_t least = pins.stages.value_or(1);
  const std::int32_t most = pins.stages.value_or(groups);
  const std::int64_t micro_batches = most_micro_batches(context.options, pins);
  std::vector<Pins> parts;
  for (std::int32_t stages = least; stages <= std::min(layers, most); ++stages) {
    if (restriction.needs_filled_pipeline && micro_batches + 1 < stages) break;
    const auto boundaries = restriction.own_boundaries(context.profile, stages);
    if (!boundaries || !pins.allow_boundaries(*boundaries)) continue;
    Pins& part = parts.emplace_back(pins);
    part.stages = stages;
    part.cuts = *boundaries;
    part.joints.clear();
    for (std::int32_t layer = 1; layer < layers; ++layer) {
      const bool is_boundary = std::binary_search(boundaries->begin(), boundaries->end(), layer);
      if (!is_boundary) part.joints.push_back(layer);
    }
    if (restriction.needs_filled_pipeline) part.least_micro_batches = stages - 1;
  }
  return parts;
}

}  // namespace

std::vector<Pins> restricted_parts(const PlanningContext& context,
                                   const PlanRestriction& restriction) {
  const PlannerOptions& options = context.options;
  Pins common = options.pins;
  common.equal_shares = true;
  common.replicas_in_group = context.profile.group.replicas;
  common.in_order = restriction.in_order;
  common.least_depths = common.least_depths || restriction.least_depths;
  std::vector<std::int32_t> joints;
  std::set_union(common.joints.begin(), common.joints.end(), restriction.joints.begin(),
                 restriction.joints.end(), std::back_inserter(joints));
  common.joints = std::move(joints);
  std::vector<Pins> parts;
  for (const std::int32_t replicas : replica_counts(context)) {
    common.replicas = replicas;
    for (const Pins& pins : pins_by_stages(context, restriction, common)) {
      for (const bool recompute : {false, true}) {
        if (options.pins.recompute.value_or(recompute) != recompute) continue;
        if (recompute && !restriction.recomputes) continue;
        parts.emplace_back(pins).recompute = recompute;
      }
    }
  }
  return parts;
}

}  // namespace dapple::planner
