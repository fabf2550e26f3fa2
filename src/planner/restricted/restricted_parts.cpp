#include "planner/restricted/restricted_parts.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
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
    for (const bool recompute : {false, true}) {
      if (options.pins.recompute.value_or(recompute) != recompute) continue;
      if (recompute && !restriction.recomputes) continue;
      Pins& part = parts.emplace_back(common);
      part.replicas = replicas;
      part.recompute = recompute;
    }
  }
  return parts;
}

}  // namespace dapple::planner
