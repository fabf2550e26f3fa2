#include "dapple/schedule/device_schedule.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace dapple {
namespace {

/// Returns the devices at a device's position in the groups that are replicas of its stage, its own
/// included: each device of a group reduces its part of the gradients with these.
std::vector<DeviceIndex> devices_in_place_of(DeviceIndex device, const StageCost& stage) {
  std::vector<DeviceIndex> devices;
  for (const ReplicaCost& replica : stage.replicas) {
    const std::int32_t distance = replica.device.value - device.value;
    if (distance % stage.devices_per_replica == 0) devices.push_back(replica.device);
  }
  return devices;
}

/// Returns one action of a lane as one of the lane's devices executes it.
DeviceAction device_action(DeviceIndex device, Action action, const PlanCost& costs) {
  DeviceAction result{.action = action, .peers = {}, .size = {}};
  // A boundary belongs to the stage before it.
  const std::size_t stage = action.stage.position();
  const auto transfer = [&action](const std::vector<TransferCost>& turns) -> const TransferCost& {
    return turns[static_cast<std::size_t>(action.index) % turns.size()];
  };
  const auto add_flows = [&](const TransferCost& cost, bool sends) {
    for (const PairFlow& flow : cost.flows) {
      if ((sends ? flow.from : flow.to) != device) continue;
      result.peers.push_back({sends ? flow.to : flow.from, flow.samples, flow.size});
      result.size += flow.size;
    }
  };
  const auto add_skips = [&](StageIndex SkipCost::*own,
                             std::vector<TransferCost> BoundaryCost::*direction, bool sends) {
    for (const SkipCost& skip : costs.skips) {
      if (skip.*own == action.stage) add_flows(transfer(skip.transfers.*direction), sends);
    }
  };
  const auto reduce_with = [&](DeviceIndex other) {
    if (other != device) result.peers.push_back({other, {}, result.size});
  };
  switch (action.kind) {
    case ActionKind::SendActivation:
      add_flows(transfer(costs.boundaries[stage].forward), true);
      add_skips(&SkipCost::from, &BoundaryCost::forward, true);
      break;
    case ActionKind::ReceiveActivation:
      add_flows(transfer(costs.boundaries[stage - 1].forward), false);
      add_skips(&SkipCost::to, &BoundaryCost::forward, false);
      break;
    case ActionKind::SendGradient:
      add_flows(transfer(costs.boundaries[stage - 1].backward), true);
      add_skips(&SkipCost::to, &BoundaryCost::backward, true);
      break;
    case ActionKind::ReceiveGradient:
      add_flows(transfer(costs.boundaries[stage].backward), false);
      add_skips(&SkipCost::from, &BoundaryCost::backward, false);
      break;
    case ActionKind::AllReduce:
      result.size = costs.stages[stage].buckets[static_cast<std::size_t>(action.index)].size;
      for (const DeviceIndex other : devices_in_place_of(device, costs.stages[stage])) {
        reduce_with(other);
      }
      break;
    case ActionKind::ReduceTied: {
      const TiedCost& tie = costs.ties[static_cast<std::size_t>(action.index)];
      result.size = tie.reduction.size;
      for (const DeviceIndex other : tie.devices) reduce_with(other);
      break;
    }
    case ActionKind::Forward:
    case ActionKind::Backward:
    case ActionKind::InputGradient:
    case ActionKind::WeightGradient:
    case ActionKind::OptimizerStep:
      break;
  }
  return result;
}

}  // namespace

DeviceSchedule device_schedule(const Lane& lane, DeviceIndex device, const PlanCost& costs) {
  DeviceSchedule list{.device = device, .stages = lane.stages, .actions = {}};
  for (const Action& action : lane.actions) {
    list.actions.push_back(device_action(device, action, costs));
  }
  return list;
}

std::vector<DeviceSchedule> device_schedules(const Schedule& schedule, const PlanCost& costs) {
  std::vector<DeviceSchedule> lists;
  for (const Lane& lane : schedule.lanes) {
    for (const DeviceIndex device : lane.devices) {
      lists.push_back(device_schedule(lane, device, costs));
    }
  }
  return lists;
}

}  // namespace dapple
