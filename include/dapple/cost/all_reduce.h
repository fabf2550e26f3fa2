// What an all-reduce takes, on idle links, phase by phase and port by port.
//
// Source: Patarasu and Yuan 2009 (ring all-reduce). Departure: servers with a link matrix reduce on
// lane-disjoint rings.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/topology/topology.h"

namespace dapple {

enum class AllReduceAlgorithm { None, FlatRing, Hierarchical, MatrixRings };

/// Parts of a byte, of which kPartsPerByte are one: a device's part of an all-reduce is seldom a
/// whole number of bytes.
struct ByteParts {
  Wide count = 0;

  friend bool operator==(const ByteParts&, const ByteParts&) = default;
  friend auto operator<=>(const ByteParts&, const ByteParts&) = default;
};

inline constexpr std::int64_t kPartsPerByte = 1024;

inline Bytes round_down(ByteParts size) {
  return {static_cast<std::int64_t>(size.count / kPartsPerByte)};
}

/// Rounds of rings, one after another: in each all hops carry their parts at once, and then the
/// latency of the slowest hop passes.
struct AllReducePhase {
  std::int64_t rounds = 0;
  Ticks busy;  // of all rounds, without the latency; round k is over at ceil(busy * k / rounds)
  Duration latency;  // of each round
  /// What goes through each port in all rounds, by port, rounded down; the busiest one sets the
  /// pace.
  std::vector<std::pair<PortIndex, ByteParts>> ports;
};

/// All-reduce of one bucket. The faster of a flat ring in device order,
/// 2(r-1)/r * n / bandwidth + 2(r-1) * latency over its narrowest hop, and, where h >= 2 servers
/// hold the same number g >= 2 of the devices, reduce-scatter inside, ring across all their NICs,
/// all-gather inside; on one link-matrix server, over lane-disjoint rings where there are any. What
/// several hops of a ring have in common, a PCIe root's port or an uplink, is as narrow for each as
/// there are hops.
///
/// Where the topology has a measured bus bandwidth for so many devices of so many servers, that is
/// the time: linear between its points, at the bandwidth of the largest above; below, what links
/// give, and no more than the smallest took. It is one phase over the ports of the formula's
/// algorithm, which carry no more than they would by it.
struct AllReduceCost {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::None;
  Bytes size;
  Ticks busy;  // without the latency
  Duration latency;
  Duration time;                       // round_up(busy) + latency; zero for one device or no bytes
  std::vector<AllReducePhase> phases;  // one after another; together they are busy and wait as long
  std::vector<std::pair<PortIndex, Bytes>>
      ports;  // bytes through each port, by port, of all phases, rounded down
};

/// All-reduces over one set of devices, of any size.
class AllReduceModel {
 public:
  /// Requires: `devices` ascending and distinct. O(devices), ring packing of matrix servers apart.
  AllReduceModel(const std::vector<DeviceIndex>& devices, const Topology& topology);

  /// Time of one all-reduce on idle links; zero for one device or no bytes. O(log points).
  Duration time(Bytes size) const;

  /// The same with its breakdown; the flat ring wins a tie. O(ports).
  AllReduceCost cost(Bytes size) const;

  /// Whether both take the same time for every size, as far as their rings tell. O(1).
  bool is_as_fast_as(const AllReduceModel& other) const;

 private:
  /// Part of what a ring's hops carry that goes through one port: taken / all.
  struct PortShare {
    PortIndex port;
    Bandwidth taken;
    Bandwidth all;
  };
  /// Rings over `members` that together reduce at `bandwidth`.
  struct Rings {
    std::int64_t members = 0;
    Bandwidth bandwidth{kMaxCount};
    Duration hop_latency;
    std::vector<PortShare> ports;  // by port
    std::int64_t rounds() const { return 2 * (members - 1); }
  };
  struct Alternative {
    AllReduceAlgorithm algorithm = AllReduceAlgorithm::None;
    std::vector<Rings> rings;  // Hierarchical: inside the servers, across them
  };
  static Ticks busy(const Rings& rings, Bytes size);
  static Ticks busy(const Alternative& alternative, Bytes size);
  static Duration latency(const Alternative& alternative);
  static AllReducePhase phase(const Rings& rings, Bytes size);
  static std::vector<AllReducePhase> phases(const Alternative& alternative, Bytes size);
  const Alternative* fastest(Bytes size) const;
  Duration measured_time(Bytes size) const;

  static void merge_ports(Rings& rings, const Topology& topology);
  static Rings flat_ring(const std::vector<DeviceIndex>& devices, const Topology& topology);
  static std::optional<Rings> matrix_rings(const std::vector<DeviceIndex>& devices,
                                           const Topology& topology);
  static Rings inside_servers(const std::vector<std::vector<DeviceIndex>>& servers,
                              const Topology& topology);
  static void add_server(Rings& rings, const std::vector<DeviceIndex>& devices,
                         const Topology& topology);
  static Rings across_servers(const std::vector<std::vector<DeviceIndex>>& servers,
                              const Topology& topology);

  /// A message and its time.
  struct Measured {
    Bytes size;
    Duration time;

    friend bool operator==(const Measured&, const Measured&) = default;
  };
  static std::vector<Measured> measured_over(const std::vector<std::vector<DeviceIndex>>& servers,
                                             const Topology& topology);

  std::vector<Alternative> alternatives_;
  std::vector<Measured> measured_;  // by size; empty: not measured
};

}  // namespace dapple
