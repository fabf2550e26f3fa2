// What it takes to move one micro-batch's tensor from the devices of one stage to those of another.
//
// Source: DAPPLE (PPoPP'21) section 4 (transfers as stages of their own, split and concatenate).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/plan.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// One replica's part of a transfer: the bytes one device sends to another, and the ports between.
struct PairFlow {
  DeviceIndex from;
  DeviceIndex to;
  SampleRange samples;  // of the micro-batch
  Bytes size;
  Route route;
};

/// What a transfer takes of one port: how long its bytes keep it busy, and the largest latency of a
/// path through it. The transfer is over when every port has carried its bytes and latency passed.
struct PortLoad {
  PortIndex port;
  Bytes size;
  Ticks busy;
  Duration latency;
};

/// One micro-batch's tensor moved from the replicas of a stage to those of a neighbour. Samples of
/// sender and receiver are intersected; what stays on a device is not sent.
struct TransferCost {
  std::vector<PairFlow> flows;  // by sender, then receiver
  std::vector<PortLoad> ports;  // by port
  Bytes size;                   // sum over flows
  Duration time;                // on idle ports: max over ports of busy (rounded up) + latency
};

/// One side of a transfer: who holds (or wants) which samples of the micro-batch.
struct TransferEnd {
  DeviceIndex device;
  SampleRange samples;
};

/// Moves a micro-batch from one set of devices to another. `size_of(n)` is the size of n samples of
/// it. O(senders + receivers), times log ports.
/// Requires: both ends cover the same samples, in rising order without gaps.
TransferCost transfer_cost(const std::vector<TransferEnd>& from, const std::vector<TransferEnd>& to,
                           const std::function<Bytes(std::int64_t)>& size_of,
                           const Topology& topology);

}  // namespace dapple
