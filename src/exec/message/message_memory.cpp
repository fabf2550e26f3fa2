#include "dapple/exec/message/message_memory.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace dapple::exec {
namespace {

constexpr std::int64_t kAlignment = 512;

bool is_message(ActionKind kind) {
  return kind == ActionKind::SendActivation || kind == ActionKind::ReceiveActivation ||
         kind == ActionKind::SendGradient || kind == ActionKind::ReceiveGradient;
}

/// Returns the most micro-batches whose messages of a kind may be in transit to one device of a
/// stage: those that the earlier of the two stages may have in flight, all its replicas together
/// where it deals micro-batches to them.
std::int64_t most_in_transit(const Plan& plan, StageIndex stage, ActionKind received) {
  std::int64_t in_flight = 0;
  if (received == ActionKind::ReceiveActivation) {
    const std::size_t earlier = stage.previous().position();
    in_flight = plan.warmup_depths[earlier] * dealt_to(plan.stages[earlier]);
  } else {
    in_flight = plan.warmup_depths[stage.position()];
  }
  return std::min(in_flight, plan.num_micro_batches);
}

}  // namespace

std::vector<DeviceIndex> message_peers(const DeviceSchedule& device) {
  std::set<DeviceIndex> peers;
  for (const DeviceAction& entry : device.actions) {
    if (!is_message(entry.action.kind)) continue;
    for (const SchedulePeer& peer : entry.peers) peers.insert(peer.device);
  }
  peers.erase(device.device);
  return {peers.begin(), peers.end()};
}

Bytes message_memory(const Plan& plan, const DeviceSchedule& device) {
  // The largest size of one micro-batch's messages.
  std::map<std::pair<StageIndex, ActionKind>, std::int64_t> largest;
  for (const DeviceAction& entry : device.actions) {
    const ActionKind kind = entry.action.kind;
    if (kind != ActionKind::ReceiveActivation && kind != ActionKind::ReceiveGradient) continue;
    std::int64_t size = 0;
    for (const SchedulePeer& peer : entry.peers) {
      size += (peer.size.count + kAlignment - 1) / kAlignment * kAlignment;
    }
    std::int64_t& most = largest[{entry.action.stage, kind}];
    most = std::max(most, size);
  }
  // The allocation that keeps the memory alive.
  Bytes memory{kAlignment};
  for (const auto& [received, size] : largest) {
    const auto& [stage, kind] = received;
    memory.count += (most_in_transit(plan, stage, kind) + 1) * size;
  }
  return memory;
}

DeviceConnections connections_of(const Plan& plan, const DeviceSchedule& device) {
  return {.peers = message_peers(device),
          .reductions = reduction_sizes(plan, device),
          .scatters = plan.parallelism.shards_over_replicas(),
          .inbox = message_memory(plan, device)};
}

}  // namespace dapple::exec
