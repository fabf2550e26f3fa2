// The time of an all-reduce on idle links, and what each of its phases moves through each port.
//
// Source: Patarasu and Yuan 2009 (ring all-reduce). Departure: servers with a link matrix reduce on
// lane-disjoint rings.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/port_sizes.h"
#include "dapple/profile/collective.h"
#include "dapple/topology/topology.h"

namespace dapple {

enum class AllReduceAlgorithm { None, FlatRing, Hierarchical, MatrixRings };

/// A size in units of 1 / kPartsPerByte byte, as a device's part of an all-reduce is seldom a whole
/// number of bytes.
struct ByteParts {
  Wide count = 0;

  friend bool operator==(const ByteParts&, const ByteParts&) = default;
  friend auto operator<=>(const ByteParts&, const ByteParts&) = default;
};

inline constexpr std::int64_t kPartsPerByte = 1024;

inline Bytes round_down(ByteParts size) {
  return {static_cast<std::int64_t>(size.count / kPartsPerByte)};
}

/// A sequence of ring rounds. In each round all hops carry their parts at the same time, and then
/// the latency of the slowest hop passes.
struct AllReducePhase {
  std::int64_t rounds = 0;
  /// The time of all rounds without latencies; round k is over after ceil(busy * k / rounds).
  Ticks busy;
  /// The latency of each round.
  Duration latency;
  /// What passes each port in all rounds, rounded down. The busiest port determines the time.
  PortSizes<ByteParts> ports;
};

/// The cost of an all-reduce of one bucket by the fastest of the available algorithms. Where each
/// member needs only its shard of the sum, it is that of a reduce-scatter: the first half of the
/// rounds of every ring, and half of a measured time, rounded up. An all-gather takes as long.
/// - A flat ring in device order takes 2(r-1)/r * n / bandwidth + 2(r-1) * latency, with the
///   bandwidth of the narrowest hop and the largest latency.
/// - If h >= 2 servers hold the same number g >= 2 of the devices, a hierarchical all-reduce is a
///   reduce-scatter inside the servers, a ring across them over all their NICs, and an all-gather
///   inside.
/// - On one server with a link matrix, lane-disjoint rings are used if there are any.
/// Hops of a ring that pass the same port, such as that of a PCIe root or of an uplink, divide its
/// bandwidth equally.
///
/// If the topology has a measured bus bandwidth for this number of servers and of devices of each,
/// the time is interpolated linearly between its points; above the largest point the bandwidth is
/// that point's, and below the smallest the time is that of the links, but no more than that of the
/// smallest point. A measured all-reduce is one phase over the ports of the algorithm chosen above,
/// which carry no more than under that algorithm.
struct AllReduceCost {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::None;
  Bytes size;
  /// The time of all phases without latencies.
  Ticks busy;
  /// The sum of the latencies of all rounds.
  Duration latency;
  /// round_up(busy) + latency; zero for one device or no bytes.
  Duration time;
  /// The phases in sequence; their `busy` times and latencies add up to those above.
  std::vector<AllReducePhase> phases;

  /// Returns the bytes through each port in all phases, by port, rounded down.
  /// O(ports of all phases * log).
  std::vector<std::pair<PortIndex, Bytes>> ports() const;
};

/// By port of a topology of groups: the ports through which the devices of a group pass that one,
/// each with the number of devices that pass it at a time, ascending.
using PortParts = std::map<PortIndex, std::vector<std::pair<PortIndex, std::int64_t>>>;

/// The costs of all-reduces of any size over one set of devices.
class AllReduceModel {
 public:
  /// Takes O(devices log devices), apart from ring packing on servers with a link matrix.
  /// A ring passes the devices in the given order. Requires: they are distinct and ascending,
  /// except that interchangeable ones may be in any order (Topology::first_interchangeable()).
  AllReduceModel(const std::vector<DeviceIndex>& devices, const Topology& topology)
      : AllReduceModel(devices, topology, topology.description().shards_optimizer) {}
  /// The same; `is_sharded` says whether each device needs only its shard of the sum.
  AllReduceModel(const std::vector<DeviceIndex>& devices, const Topology& topology,
                 bool is_sharded);

  /// Makes an all-reduce over groups one over their devices, each of which carries in every port
  /// what the group as one device does. Times stay.
  void move_to(const PortParts& parts);

  /// Releases what only cost() needs, which may not be called afterwards.
  void forget_ports();

  /// Returns the time of one all-reduce on idle links; zero for one device or no bytes.
  /// O(log points).
  Duration time(Bytes size) const;

  /// Returns the cost of one all-reduce; the flat ring wins ties. O(different shares of ports), but
  /// O(ports log ports) where it is measured.
  AllReduceCost cost(Bytes size) const;

  /// Whether both models have the same measurements and rings of the same sizes, bandwidths and
  /// latencies, and so take the same time for every size. O(1), apart from comparing measurements.
  bool is_as_fast_as(const AllReduceModel& other) const;
  /// Whether this model takes no longer than the other one for any size; false if it is not known,
  /// as where there are measurements. O(1).
  bool is_never_slower_than(const AllReduceModel& other) const;

 private:
  /// The share of what a ring's hops carry that passes a port: taken / all.
  struct Share {
    Bandwidth taken;
    Bandwidth all;

    friend bool operator==(const Share&, const Share&) = default;
  };
  static constexpr Share kWhole{{1}, {1}};
  using PortShare = std::pair<PortIndex, Share>;
  /// Rings over `members` members that together reduce at `bandwidth`.
  struct Rings {
    std::int64_t members = 0;
    Bandwidth bandwidth{kMaxCount};
    Duration hop_latency;
    /// The distinct shares, and the ports, each with the position of its share; null if forgotten.
    std::vector<Share> shares;
    std::shared_ptr<const PortPositions> ports;
    /// The passes around the ring: two for an all-reduce, one for a reduce-scatter.
    std::int64_t passes = 2;
    std::int64_t rounds() const { return passes * (members - 1); }
  };
  struct Alternative {
    AllReduceAlgorithm algorithm = AllReduceAlgorithm::None;
    /// One element, or two for Hierarchical: inside the servers and across them.
    std::vector<Rings> rings;
  };
  static Ticks busy(const Rings& rings, Bytes size);
  static Ticks busy(const Alternative& alternative, Bytes size);
  static Duration latency(const Alternative& alternative);
  static bool is_never_slower(const Rings& a, const Rings& b);
  static bool is_never_slower(const Alternative& a, const Alternative& b);
  static AllReducePhase phase(const Rings& rings, Bytes size);
  std::vector<AllReducePhase> phases(const Alternative& alternative, Bytes size) const;
  void halve();
  /// An alternative, null if there is none or nothing to reduce, and its time on idle links.
  struct Fastest {
    const Alternative* alternative = nullptr;
    Duration time;
  };
  Fastest fastest(Bytes size) const;

  static void sort_by_port(std::vector<PortShare>& ports);
  static void set_ports(Rings& rings, const std::vector<PortShare>& ports);
  static void merge_ports(Rings& rings, std::vector<PortShare> ports, const Topology& topology);
  static Rings flat_ring(const std::vector<DeviceIndex>& devices, const Topology& topology);
  static std::optional<Rings> matrix_rings(const std::vector<DeviceIndex>& devices,
                                           const Topology& topology);
  static Rings inside_servers(const std::vector<std::vector<DeviceIndex>>& servers,
                              const Topology& topology);
  static void add_server(Rings& rings, std::vector<PortShare>& ports,
                         const std::vector<DeviceIndex>& devices, const Topology& topology);
  static Rings across_servers(const std::vector<std::vector<DeviceIndex>>& servers,
                              const Topology& topology);

  static std::vector<MeasuredReduction> measured_over(
      const std::vector<std::vector<DeviceIndex>>& servers, const Topology& topology);

  bool is_sharded_ = false;
  std::vector<Alternative> alternatives_;
  // By size; empty if there are no measurements.
  std::vector<MeasuredReduction> measured_;
};

}  // namespace dapple
