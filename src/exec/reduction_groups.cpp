#include "reduction_groups.h"

#include <algorithm>

namespace dapple {
namespace {

ReductionGroup group_of(const StagePlan& stage, const AllReduceCost& cost,
                        const Topology& topology) {
  std::vector<DeviceIndex> members = stage.devices;
  std::sort(members.begin(), members.end());
  if (cost.algorithm != AllReduceAlgorithm::Hierarchical) return {.servers = {members}};
  ReductionGroup group;
  for (const DeviceIndex member : members) {
    const bool is_next_server =
        group.servers.empty() ||
        topology.device(group.servers.back().back()).server != topology.device(member).server;
    if (is_next_server) group.servers.emplace_back();
    group.servers.back().push_back(member);
  }
  return group;
}

}  // namespace

std::vector<std::vector<ReductionGroup>> reduction_groups(const Plan& plan, const PlanCost& costs,
                                                          const Topology& topology) {
  std::vector<std::vector<ReductionGroup>> groups(plan.stages.size());
  for (std::size_t s = 0; s < groups.size(); ++s) {
    for (const AllReduceCost& bucket : costs.stages[s].buckets) {
      groups[s].push_back(group_of(plan.stages[s], bucket, topology));
    }
  }
  return groups;
}

}  // namespace dapple
