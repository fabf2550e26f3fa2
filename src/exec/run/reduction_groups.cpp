#include "exec/run/reduction_groups.h"

#include <algorithm>

namespace dapple::exec {
namespace {

std::vector<DeviceIndex> first_devices(const StagePlan& stage) {
  std::vector<DeviceIndex> first;
  const auto step = static_cast<std::size_t>(stage.devices_per_replica);
  for (std::size_t i = 0; i < stage.devices.size(); i += step) first.push_back(stage.devices[i]);
  return first;
}

ReductionGroup group_of(std::vector<DeviceIndex> members, const AllReduceCost& cost,
                        const Topology& topology) {
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

ReductionGroups reduction_groups(const Plan& plan, const PlanCost& costs,
                                 const Topology& topology) {
  ReductionGroups groups;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    std::vector<ReductionGroup>& of_stage = groups.buckets.emplace_back();
    groups.devices_per_replica.push_back(plan.stages[s].devices_per_replica);
    for (const AllReduceCost& bucket : costs.stages[s].buckets) {
      of_stage.push_back(group_of(first_devices(plan.stages[s]), bucket, topology));
      of_stage.back().is_scattered = plan.parallelism.shards_over_replicas();
    }
  }
  for (const TiedCost& tie : costs.ties) {
    groups.ties.push_back(group_of(tie.devices, tie.reduction, topology));
  }
  return groups;
}

}  // namespace dapple::exec
