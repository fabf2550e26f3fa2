// What collectives within the passes of a stage send through the NICs of its devices, at least,
// where they share links with all else ((B6) in docs/bounds.md; docs/model.md, section 10.13).
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/cost/cost_model.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/topology/topology.h"
#include "search/bounds/stage_column.h"

namespace dapple::search {

/// For how long they keep the NIC of every device of a stage busy, at least, in each of both
/// directions.
///
/// | member   | symbol, docs/bounds.md | unit | equations |
/// | -------- | ---------------------- | ---- | --------- |
/// | forward  | u_F                    | ns   | (B6)      |
/// | backward | u_B                    | ns   | (B6)      |
struct TrafficBound {
  /// The bound for any forward.
  Duration forward;
  /// The bound for any backward but the last, in which buckets become ready.
  Duration backward;

  /// Returns what a stage sends between the end of its first forward and that of its last backward.
  Duration sent(std::int64_t num_micro_batches) const;
  /// Returns what it receives between the start of its first forward and that of its last backward.
  Duration received(std::int64_t num_micro_batches) const;
};

/// Returns the bound for a stage of a plan. O(replicas).
TrafficBound traffic_bound(const StageCost& stage, const Topology& topology);

/// Returns the bound for a stage of these layers, whose replicas have so many samples each, on
/// devices of these kinds, of which the narrowest NIC is `nic`. `costs` are those of its
/// form. O(replicas).
TrafficBound traffic_bound(const CostModel& costs, const std::vector<ReplicaKind>& replicas,
                           LayerRange layers, bool recomputes, Bandwidth nic);

/// Returns the bandwidth of the narrowest NIC that some of the devices use. O(devices). Requires:
/// their servers have NICs, and there is a device.
Bandwidth narrowest_nic(const std::vector<DeviceIndex>& devices, const Topology& topology);

/// Returns how long the NIC of some device of a stage is busy at least with the transfers of all
/// micro-batches over the two boundaries beside it, rounded down: out of it or into it. O(devices
/// log ports).
Duration busiest_nic(const StageCost& stage, const TransferCost& one, const TransferCost& other,
                     std::int64_t num_micro_batches, bool is_out, const Topology& topology);

}  // namespace dapple::search
