// The cost of moving one micro-batch's tensor from the devices of one stage to those of another.
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

/// The part of a transfer that one device sends to another, and its route.
struct PairFlow {
  DeviceIndex from;
  DeviceIndex to;
  /// The samples of the micro-batch that are sent.
  SampleRange samples;
  /// The bytes that are sent: those of all these samples or, where tensors cross in shares, of the
  /// sender's share.
  Bytes size;
  /// All that the receiver has of this tensor once every flow to it has arrived, and its devices
  /// have gathered the shares.
  Bytes received = {};
  /// The route, with the time in which the receiver gathers that as a part of its latency.
  Route route;
};

/// The load of a transfer on one port: how long its bytes keep the port busy, and the largest
/// latency of a flow through it. The transfer is complete when every port has carried its bytes
/// and the port's latency has passed.
struct PortLoad {
  PortIndex port;
  Bytes size;
  Ticks busy;
  Duration latency;
  /// What the receiver of the flow with that latency has received; of several, the most.
  Bytes received = {};
};

/// The cost of moving one micro-batch's tensor from the replicas of a stage to those of a
/// neighbour. Each sender sends each receiver the samples that both have in common; samples that
/// stay on a device are not sent.
struct TransferCost {
  /// By sender, then receiver.
  std::vector<PairFlow> flows;
  /// By port.
  std::vector<PortLoad> ports;
  /// The sum over the flows.
  Bytes size;
  /// The time on idle ports: the maximum over the ports of busy (rounded up) + latency.
  Duration time;
};

/// A device on one side of a transfer, and the samples of the micro-batch that it holds or needs.
struct TransferEnd {
  DeviceIndex device;
  SampleRange samples;
  /// Its position among the devices of its replica, which share these samples, and their number.
  std::int32_t member = 0;
  std::int32_t members = 1;
};

/// How the devices of groups share tensors between them.
struct TransferShares {
  /// How many devices of a sending group have the same tensor and send an equal share of it each,
  /// rounded up, to as many devices that gather it; 1 for whole tensors.
  std::int64_t shares = 1;
  /// Returns the time in which a device gathers so many bytes of whole tensors; not called for 1.
  std::function<Duration(DeviceIndex, Bytes)> gather = {};
};

/// Returns the cost of moving a micro-batch from one set of devices to another, where `size_of(n)`
/// is the size of n samples on a device that receives them.
///
/// Where replicas have several devices, every device of the receiving replica needs that size. The
/// devices of the sending replica share this work in order: with fewer devices each serves equally
/// many receivers, and with more devices equally many serve each receiver, with equal parts of what
/// it needs, rounded up. Tensors that cross in shares have arrived when the receiver has gathered
/// them: that is a part of the latency of each flow to it.
/// O((senders + receivers) * devices of a replica^2 * log ports).
/// Requires: both sides cover the same samples, in ascending order without gaps; the devices of a
/// replica follow each other; of the numbers of devices of a replica one divides the other.
TransferCost transfer_cost(const std::vector<TransferEnd>& from, const std::vector<TransferEnd>& to,
                           const std::function<Bytes(std::int64_t)>& size_of,
                           const Topology& topology, const TransferShares& shares = {});

}  // namespace dapple
