// Max-min fair rates against a solver of another kind: no filling in steps, but bisection for the
// highest level that all flows can have together.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <utility>
#include <vector>

#include "../support/dice.h"
#include "../support/random_problem.h"
#include "dapple/simulate/max_min.h"

namespace dapple {
namespace {

using small::Dice;
using small::scaled;

struct Instance {
  std::vector<simulate::FlowDemand> flows;
  std::vector<simulate::Rate> capacities;
};

Instance random_instance(Dice& dice) {
  Instance instance;
  const simulate::Rate most = dice.chance(50) ? 100'000 : 100'000'000'000;
  const std::int64_t ports = dice.roll(1, 12);
  for (std::int64_t p = 0; p < ports; ++p) instance.capacities.push_back(dice.roll(1, most));
  for (std::int64_t f = dice.roll(1, 20); f > 0; --f) {
    simulate::FlowDemand& flow = instance.flows.emplace_back();
    flow.cap = dice.chance(30) ? dice.roll(1, most) : 2 * most;
    for (std::int32_t p = 0; p < ports; ++p) {
      if (!dice.chance(25)) continue;
      flow.ports.emplace_back(PortIndex{p}, dice.chance(60) ? simulate::kFullWeight
                                                            : dice.roll(simulate::kFullWeight / 8,
                                                                        simulate::kFullWeight));
    }
  }
  return instance;
}

class Bisection {
 public:
  explicit Bisection(const Instance& instance)
      : instance_(instance),
        rates_(instance.flows.size(), 0),
        is_settled_(instance.flows.size(), false) {}

  std::vector<simulate::Rate> solve() {
    while (std::find(is_settled_.begin(), is_settled_.end(), false) != is_settled_.end()) settle();
    return rates_;
  }

 private:
  simulate::Rate rate_at(std::size_t flow, simulate::Rate level) const {
    return is_settled_[flow] ? rates_[flow] : std::min(level, instance_.flows[flow].cap);
  }

  /// Whether the port has room if every flow that is not settled had that, or its cap.
  bool has_room(std::size_t port, simulate::Rate level) const {
    Wide taken = 0;
    for (std::size_t f = 0; f < instance_.flows.size(); ++f) {
      for (const auto& [used, weight] : instance_.flows[f].ports) {
        if (used.position() == port) taken += Wide{rate_at(f, level)} * weight;
      }
    }
    return taken <= Wide{instance_.capacities[port]} * simulate::kFullWeight;
  }

  bool all_have_room(simulate::Rate level) const {
    for (std::size_t p = 0; p < instance_.capacities.size(); ++p) {
      if (!has_room(p, level)) return false;
    }
    return true;
  }

  /// The highest level; who has its cap by then, or passes a port that is full, gets no more.
  void settle() {
    simulate::Rate level = 0;
    simulate::Rate too_much = std::int64_t{1} << 60;
    while (too_much - level > 1) {
      const simulate::Rate middle = level + (too_much - level) / 2;
      (all_have_room(middle) ? level : too_much) = middle;
    }
    std::vector<bool> is_full;
    for (std::size_t p = 0; p < instance_.capacities.size(); ++p) {
      is_full.push_back(!has_room(p, level + 1));
    }
    std::vector<std::size_t> stopped;
    for (std::size_t f = 0; f < instance_.flows.size(); ++f) {
      const simulate::FlowDemand& flow = instance_.flows[f];
      const bool is_held = std::any_of(flow.ports.begin(), flow.ports.end(), [&](const auto& use) {
        return is_full[use.first.position()];
      });
      if (!is_settled_[f] && (is_held || flow.cap <= level)) stopped.push_back(f);
    }
    for (const std::size_t f : stopped) {
      rates_[f] = rate_at(f, level);
      is_settled_[f] = true;
    }
  }

  const Instance& instance_;
  std::vector<simulate::Rate> rates_;
  std::vector<bool> is_settled_;
};

TEST_CASE(
    "rates are those that bisection finds, but for rounding, for random flows, weights and caps") {
  Dice dice(4101);
  int crowded = 0;  // flows held by different ports
  for (int i = 0; i < scaled(5000); ++i) {
    const Instance instance = random_instance(dice);
    std::vector<const simulate::FlowDemand*> flows;
    for (const simulate::FlowDemand& flow : instance.flows) flows.push_back(&flow);
    const std::vector<simulate::Rate> rates = simulate::max_min_rates(flows, instance.capacities);
    // The solver rounds down whenever flows stop growing, by less than a unit each time, and what
    // it leaves goes to others.
    const auto slack = static_cast<simulate::Rate>(flows.size());
    const std::vector<simulate::Rate> exact = Bisection(instance).solve();
    for (std::size_t f = 0; f < flows.size(); ++f) {
      CAPTURE(i, f, rates[f], exact[f]);
      REQUIRE(std::abs(rates[f] - exact[f]) <= slack);
      if (flows.size() == 1) REQUIRE(rates[f] == exact[f]);
    }
    std::vector<simulate::Rate> levels = rates;
    std::sort(levels.begin(), levels.end());
    if (std::unique(levels.begin(), levels.end()) - levels.begin() > 3) ++crowded;
  }
  CHECK(crowded > scaled(2000));
}

}  // namespace
}  // namespace dapple
