#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "dapple/core/random.h"
#include "dapple/profile/model_profile.h"

namespace dapple {
namespace {

using Inputs = std::vector<std::vector<std::int32_t>>;
using Order = std::vector<std::int32_t>;

TEST_CASE("An ordered list keeps its order") {
  CHECK(topological_order({}).empty());
  CHECK(topological_order({{}, {0}, {1}, {0, 2}}) == Order{0, 1, 2, 3});
  CHECK(topological_order({{}, {}, {0}, {1}}) == Order{0, 1, 2, 3});
}

TEST_CASE("Among the nodes that are ready, the lowest goes first") {
  // 3 needs nothing, 0 needs 3, 1 needs nothing, 2 needs 0.
  CHECK(topological_order({{3}, {}, {0}, {}}) == Order{1, 3, 0, 2});
}

TEST_CASE("An input that is named twice counts as one") {
  CHECK(topological_order({{}, {0, 0}, {1, 0, 1}}) == Order{0, 1, 2});
}

TEST_CASE("Nodes on or behind a cycle are missing, the others are not") {
  // 1 and 2 need each other, 3 stands behind them, 0 and 4 do not.
  CHECK(topological_order({{}, {2, 0}, {1}, {2}, {0}}) == Order{0, 4});
  CHECK(topological_order({{0}}).empty());
}

TEST_CASE("Random graphs: the order is the lexicographically first one that is legal") {
  RandomSequence random(11);
  for (int round = 0; round < 300; ++round) {
    const std::size_t size = 1 + random() % 12;
    Order rank(size);
    std::iota(rank.begin(), rank.end(), 0);
    std::shuffle(rank.begin(), rank.end(), random);
    Inputs inputs(size);
    for (std::size_t node = 0; node < size; ++node) {
      for (std::size_t other = 0; other < size; ++other) {
        if (rank[other] < rank[node] && random() % 3 == 0) {
          inputs[node].push_back(static_cast<std::int32_t>(other));
        }
      }
    }
    Order expected;
    while (expected.size() < size) {
      for (std::int32_t node = 0;; ++node) {
        const auto placed = [&](std::int32_t other) {
          return std::find(expected.begin(), expected.end(), other) != expected.end();
        };
        const auto& needs = inputs[static_cast<std::size_t>(node)];
        if (placed(node) || !std::all_of(needs.begin(), needs.end(), placed)) continue;
        expected.push_back(node);
        break;
      }
    }
    REQUIRE(topological_order(inputs) == expected);
  }
}

}  // namespace
}  // namespace dapple
