// dapple-trade-off/1 as data: plans that trade time against price or memory, each with its own
// proven bound, and what follows from all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/bound_proof.h"
#include "dapple/plan/document.h"
#include "dapple/topology/description.h"

namespace dapple {

/// What counts beside time: what all devices of a cluster cost, or the memory of the device that
/// uses most.
enum class Against : std::uint8_t { Price, Memory };

/// Returns "price" or "memory".
std::string_view to_string(Against against);

/// The quantity to minimize. The other one decides ties, and after it the order of the searches.
enum class Objective : std::uint8_t { Time, Cost };

/// Returns "time" or "cost".
std::string_view to_string(Objective objective);

/// The quantity to minimize, and the limits that the chosen plan must keep.
struct TradeOffRequest {
  Against against = Against::Price;
  Objective objective = Objective::Cost;
  /// The least samples per second.
  std::optional<Factor> min_throughput = {};
  /// The most that 1,000 iterations may cost: a price or, without prices, hours of devices.
  std::optional<Factor> budget = {};
  /// How much longer than the fastest plan the chosen one may take, as a fraction.
  std::optional<Factor> slack = {};

  friend bool operator==(const TradeOffRequest&, const TradeOffRequest&) = default;
};

/// One of the searches that a trade-off compares.
struct TradeOffSearch {
  /// Its plan, or nothing if it found none.
  std::optional<PlanDocument> document = {};
  /// What proves the plan's bound, or nothing if it is to be derived anew.
  std::optional<ProofDocument> proof = {};
  /// Where there is no plan, the topology, and a lower bound on every plan for it: infinite if
  /// there is none.
  TopologyDescription topology = {};
  Duration lower_bound = {};

  const TopologyDescription& searched_topology() const {
    return document ? document->original_topology() : topology;
  }
};

/// The proven bound on every plan that the searches cover and the limits allow.
struct TradeOffClaim {
  /// No plan within the limits is faster.
  std::optional<Duration> iteration = {};
  /// No plan within the limits has a lower price for 1,000 iterations.
  std::optional<double> price = {};
  /// No plan within the limits fits within so much memory on every device.
  std::optional<Bytes> memory = {};

  friend bool operator==(const TradeOffClaim&, const TradeOffClaim&) = default;
};

struct TradeOffDocument {
  /// The program and its version.
  std::string tool;
  TradeOffRequest request;
  /// At least one, some with a plan; all of one model and one request.
  std::vector<TradeOffSearch> searches;
  /// Those whose plans no other plan beats in both quantities, by rising position.
  std::vector<std::size_t> front;
  /// The one whose plan is chosen.
  std::size_t chosen = 0;
  /// Nothing in it if nothing is proven of other plans.
  TradeOffClaim claim;
};

}  // namespace dapple
