// Rates worked by hand.

#include <catch2/catch.hpp>

#include "dapple/simulate/max_min.h"

namespace dapple::simulate {
namespace {

std::vector<Rate> share(const std::vector<FlowDemand>& flows, const std::vector<Rate>& capacities) {
  std::vector<const FlowDemand*> pointers;
  for (const FlowDemand& flow : flows) pointers.push_back(&flow);
  return max_min_rates(pointers, capacities);
}

constexpr PortIndex kFirstPort{0};
constexpr PortIndex kSecondPort{1};

TEST_CASE("flows over one port share it evenly, rounded down") {
  const FlowDemand flow{1000, {{kFirstPort, kFullWeight}}};
  CHECK(share({flow, flow, flow}, {100}) == std::vector<Rate>{33, 33, 33});
}

TEST_CASE("what one flow cannot take goes to the others") {
  // Cap 10 of 100: the other two get 45 each.
  const FlowDemand small{10, {{kFirstPort, kFullWeight}}};
  const FlowDemand large{1000, {{kFirstPort, kFullWeight}}};
  CHECK(share({large, small, large}, {100}) == std::vector<Rate>{45, 10, 45});
}

TEST_CASE("a flow over two ports is held by the narrower share") {
  // Port 0 (10) carries flows 0 and 1: 5 each. Port 1 (20) carries flows 1 and 2: flow 2 gets 15.
  CHECK(share({{1000, {{kFirstPort, kFullWeight}}},
               {1000, {{kFirstPort, kFullWeight}, {kSecondPort, kFullWeight}}},
               {1000, {{kSecondPort, kFullWeight}}}},
              {10, 20}) == std::vector<Rate>{5, 5, 15});
}

TEST_CASE("a flow of half weight takes half of its rate from a port") {
  // Rates are equal at the full port: r + r / 2 = 90, so r = 60.
  CHECK(share({{1000, {{kFirstPort, kFullWeight}}}, {1000, {{kFirstPort, kFullWeight / 2}}}},
              {90}) == std::vector<Rate>{60, 60});
}

TEST_CASE("a flow without ports gets its cap") {
  CHECK(share({{7, {}}, {9, {}}}, {1}) == std::vector<Rate>{7, 9});
}

TEST_CASE("nothing is shared among no flows") {
  CHECK(share({}, {10}).empty());
}

TEST_CASE("a flow of least weight on the widest port is held by its cap") {
  // The port alone would let it have 10^18 * 2^30, beyond 63 bits.
  const Rate widest = kMaxCount * kRatePerBytePerSecond;
  CHECK(share({{widest, {{kFirstPort, 1}}}, {5, {{kFirstPort, kFullWeight}}}}, {widest}) ==
        std::vector<Rate>{widest, 5});
}

}  // namespace
}  // namespace dapple::simulate
