// The down-sets of a graph, against all of its sets of nodes.
#include "dapple/profile/down_sets.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "dapple/core/random.h"

namespace dapple {
namespace {

using Graph = std::vector<std::vector<std::int32_t>>;

Graph random_graph(RandomSequence& random, std::size_t nodes) {
  Graph inputs(nodes);
  for (std::size_t node = 1; node < nodes; ++node) {
    for (std::size_t input = 0; input < node; ++input) {
      if (random() % 3 == 0) inputs[node].push_back(static_cast<std::int32_t>(input));
    }
  }
  return inputs;
}

/// The nodes of a down-set as a mask.
std::uint64_t mask_of(const DownSets& sets, DownSetIndex set) {
  std::uint64_t mask = 0;
  for (std::int32_t node = 0; node < sets.node_count(); ++node) {
    if (sets.contains(set, node)) mask |= std::uint64_t{1} << node;
  }
  return mask;
}

bool has_inputs_of_all(const Graph& inputs, std::uint64_t mask) {
  for (std::size_t node = 0; node < inputs.size(); ++node) {
    if ((mask >> node & 1) == 0) continue;
    for (const std::int32_t input : inputs[node]) {
      if ((mask >> input & 1) == 0) return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("two branches have six down-sets: none, the fork, each branch, both and all") {
  // 0 feeds 1 and 2, which 3 joins.
  const std::optional<DownSets> sets = DownSets::of({{}, {0}, {0}, {1, 2}});
  REQUIRE(sets);
  REQUIRE(sets->size() == 6);
  CHECK(mask_of(*sets, {0}) == 0);
  CHECK(mask_of(*sets, {1}) == 0b0001);
  CHECK(mask_of(*sets, {2}) == 0b0011);
  CHECK(mask_of(*sets, {3}) == 0b0101);
  CHECK(mask_of(*sets, {4}) == 0b0111);
  CHECK(mask_of(*sets, sets->last()) == 0b1111);
  REQUIRE(sets->steps({1}).size() == 2);
  CHECK(sets->steps({1})[0].node == 1);
  CHECK(sets->steps({1})[0].next == DownSetIndex{2});
  CHECK(sets->steps(sets->last()).empty());
  // Outputs of 1, 2, 4 and 8. Behind 0 its own; behind 0 and 1 both; behind 0, 1 and 2 the
  // branches'.
  CHECK(sets->crossing({1, 2, 4, 8}) == std::vector<Wide>{0, 1, 3, 5, 6, 0});
  CHECK(sets->sums({1, 2, 4, 8}) == std::vector<Wide>{0, 1, 3, 5, 7, 15});
}

TEST_CASE("a graph without nodes has one down-set, and a chain one more than nodes") {
  REQUIRE(DownSets::of({}));
  CHECK(DownSets::of({})->size() == 1);
  Graph chain(100);
  for (std::int32_t node = 1; node < 100; ++node)
    chain[static_cast<std::size_t>(node)] = {node - 1};
  CHECK(DownSets::of(chain)->size() == 101);
}

TEST_CASE("down-sets are not listed where there are more than asked for, or they are too large") {
  const Graph apart(10);  // each of the 1,024 sets is a down-set
  CHECK(DownSets::of(apart, 1024)->size() == 1024);
  CHECK_FALSE(DownSets::of(apart, 1023));
  CHECK_FALSE(DownSets::of(Graph(18)));  // 2^18 is more than 200,000
  Graph chain(20'000);                   // 20,001 down-sets of 313 words each
  for (std::int32_t node = 1; node < 20'000; ++node) {
    chain[static_cast<std::size_t>(node)] = {node - 1};
  }
  CHECK_FALSE(DownSets::of(chain));
}

TEST_CASE("random graphs: the down-sets are the sets that have the inputs of all their nodes") {
  RandomSequence random(5);
  for (int round = 0; round < 300; ++round) {
    const std::size_t nodes = 1 + random() % 9;
    const Graph inputs = random_graph(random, nodes);
    std::vector<Wide> figures(nodes);
    for (Wide& figure : figures) figure = static_cast<Wide>(random() % 50);
    const std::optional<DownSets> sets = DownSets::of(inputs);
    REQUIRE(sets);
    const std::vector<Wide> sums = sets->sums(figures);
    const std::vector<Wide> crossing = sets->crossing(figures);
    std::vector<std::uint64_t> found;
    std::size_t steps = 0;
    for (DownSetIndex set; set <= sets->last(); set = set.next()) {
      const std::uint64_t mask = mask_of(*sets, set);
      found.push_back(mask);
      Wide sum = 0;
      Wide crosses = 0;
      for (std::size_t node = 0; node < nodes; ++node) {
        if ((mask >> node & 1) == 0) continue;
        sum += figures[node];
        bool is_needed = false;
        for (std::size_t user = 0; user < nodes; ++user) {
          const bool takes = std::count(inputs[user].begin(), inputs[user].end(),
                                        static_cast<std::int32_t>(node)) > 0;
          is_needed = is_needed || (takes && (mask >> user & 1) == 0);
        }
        if (is_needed) crosses += figures[node];
      }
      CHECK(sums[set.position()] == sum);
      CHECK(crossing[set.position()] == crosses);
      for (const DownSets::Step& step : sets->steps(set)) {
        CHECK(mask_of(*sets, step.next) == (mask | std::uint64_t{1} << step.node));
        CHECK((mask >> step.node & 1) == 0);
        ++steps;
      }
    }
    std::vector<std::uint64_t> expected;
    std::size_t expected_steps = 0;
    for (std::uint64_t mask = 0; mask < std::uint64_t{1} << nodes; ++mask) {
      if (!has_inputs_of_all(inputs, mask)) continue;
      expected.push_back(mask);
      for (std::size_t node = 0; node < nodes; ++node) {
        const std::uint64_t more = mask | std::uint64_t{1} << node;
        if (more != mask && has_inputs_of_all(inputs, more)) ++expected_steps;
      }
    }
    std::sort(found.begin(), found.end());
    REQUIRE(found == expected);
    REQUIRE(steps == expected_steps);
  }
}

}  // namespace dapple
