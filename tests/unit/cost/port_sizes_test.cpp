#include "dapple/cost/port_sizes.h"

#include <catch2/catch.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "dapple/core/quantity.h"

using namespace dapple;

namespace {

/// 10 bytes through ports 1 and 4, and 3 through port 2; port 4 has a second entry with 3.
PortSizes<Bytes> some_sizes() {
  const PortPositions ports{{{1}, 0}, {{2}, 1}, {{4}, 0}, {{4}, 1}};
  return {std::make_shared<const PortPositions>(ports), {{10}, {3}}};
}

std::vector<std::pair<PortIndex, Bytes>> listed(const PortSizes<Bytes>& sizes) {
  return {sizes.begin(), sizes.end()};
}

}  // namespace

TEST_CASE("sizes are listed by port") {
  const PortSizes<Bytes> sizes = some_sizes();
  CHECK(sizes.size() == 4);
  CHECK(listed(sizes) ==
        std::vector<std::pair<PortIndex, Bytes>>{{{1}, {10}}, {{2}, {3}}, {{4}, {10}}, {{4}, {3}}});
  CHECK(sizes.sizes() == std::vector<Bytes>{{10}, {3}});
}

TEST_CASE("what passes a port is the sum of its entries") {
  const PortSizes<Bytes> sizes = some_sizes();
  CHECK(sizes.through({1}) == Bytes{10});
  CHECK(sizes.through({2}) == Bytes{3});
  CHECK(sizes.through({4}) == Bytes{13});
  CHECK(sizes.through({0}) == Bytes{});
  CHECK(sizes.through({3}) == Bytes{});
  CHECK(sizes.through({5}) == Bytes{});
}

TEST_CASE("each size is changed for all of its ports, in a copy") {
  const PortSizes<Bytes> sizes = some_sizes();
  const PortSizes<Bytes> doubled = sizes.with_each([](Bytes size) { return 2 * size; });
  CHECK(doubled.through({1}) == Bytes{20});
  CHECK(doubled.through({4}) == Bytes{26});
  CHECK(sizes.through({4}) == Bytes{13});
}

TEST_CASE("without ports nothing passes") {
  const PortSizes<Bytes> none;
  CHECK(none.size() == 0);
  CHECK(listed(none).empty());
  CHECK(none.through({0}) == Bytes{});
}
