// The order with the narrowest cuts, against all topological orders of small graphs.
#include "dapple/interop/graphs/exact_order.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>
#include <string>

#include "../profiles/graph_text.h"
#include "dapple/core/random.h"
#include "dapple/interop/profiles/pipedream.h"

namespace dapple::interop {
namespace {

using Order = std::vector<std::int32_t>;

TensorGraph random_tensor_graph(RandomSequence& random, std::size_t nodes) {
  TensorGraph graph;
  for (std::size_t node = 0; node < nodes; ++node) {
    graph.outputs.push_back({static_cast<std::int64_t>(random() % 9)});
    graph.work.push_back({static_cast<std::int64_t>(random() % 5)});
    std::vector<std::int32_t>& inputs = graph.inputs.emplace_back();
    for (std::size_t input = 0; input < node; ++input) {
      if (random() % 4 == 0) inputs.push_back(static_cast<std::int32_t>(input));
    }
  }
  return graph;
}

/// Calls `use` with every topological order.
void for_each_order(const TensorGraph& graph, const std::function<void(const Order&)>& use) {
  Order order(graph.outputs.size());
  std::iota(order.begin(), order.end(), 0);
  do {
    std::vector<bool> placed(order.size());
    const bool is_topological = std::all_of(order.begin(), order.end(), [&](std::int32_t node) {
      const auto& inputs = graph.inputs[static_cast<std::size_t>(node)];
      placed[static_cast<std::size_t>(node)] = true;
      return std::all_of(inputs.begin(), inputs.end(), [&](std::int32_t input) {
        return placed[static_cast<std::size_t>(input)];
      });
    });
    if (is_topological) use(order);
  } while (std::next_permutation(order.begin(), order.end()));
}

/// The width of an order, with what is alive at each cut counted from scratch.
OrderWidth counted_width(const TensorGraph& graph, const Order& order) {
  std::vector<Wide> cuts;  // behind each node
  for (std::size_t cut = 1; cut <= order.size(); ++cut) {
    Wide alive = 0;
    for (std::size_t producer = 0; producer < cut; ++producer) {
      for (std::size_t consumer = cut; consumer < order.size(); ++consumer) {
        const auto& inputs = graph.inputs[static_cast<std::size_t>(order[consumer])];
        if (std::count(inputs.begin(), inputs.end(), order[producer]) == 0) continue;
        alive += graph.outputs[static_cast<std::size_t>(order[producer])].count;
        break;
      }
    }
    cuts.push_back(alive);
  }
  OrderWidth width;
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::vector<Wide> ends;
    if (i > 0) ends.push_back(cuts[i - 1]);
    if (i + 1 < order.size()) ends.push_back(cuts[i]);
    const Wide narrower = ends.empty() ? 0 : *std::min_element(ends.begin(), ends.end());
    width.over_work += graph.work[static_cast<std::size_t>(order[i])].ns * narrower;
    width.over_cuts += cuts[i];
  }
  return width;
}

/// The graph as a file of PipeDream, whose nodes have the numbers from 1 on.
std::string text_of(const TensorGraph& graph) {
  std::string text;
  for (std::size_t node = 0; node < graph.outputs.size(); ++node) {
    text +=
        "node" + std::to_string(node + 1) +
        " -- Op() -- forward_compute_time=" + std::to_string(graph.work[node].ns) +
        ", backward_compute_time=0, activation_size=" + std::to_string(graph.outputs[node].count) +
        ", parameter_size=0\n";
  }
  for (std::size_t node = 0; node < graph.outputs.size(); ++node) {
    for (const std::int32_t input : graph.inputs[node]) {
      text += test::edge(input + 1, static_cast<int>(node) + 1);
    }
  }
  return text;
}

ImportedProfile imported(const TensorGraph& graph) {
  ForeignProfileOptions options;
  options.profile_batch = 1;
  options.optimizer = "sgd";
  options.global_batch = 64;
  return import_pipedream_graph(text_of(graph), "g.txt", options);
}

/// The nodes of the graph in the order of the layers that are made of them.
Order order_of(const ModelProfile& profile) {
  Order order;
  for (const Layer& layer : profile.layers) order.push_back(std::stoi(layer.name.substr(3)) - 1);
  return order;
}

}  // namespace

TEST_CASE("the narrower branch is finished before the wider one is begun, whatever comes first") {
  // 0 feeds a wide branch 1, 2 and a narrow one 3, 4, which 5 joins. Branches first widen, so that
  // the greedy order goes on with the one that widens less.
  // In the order 0 3 4 1 2 5 the cuts are 10, 10+40, 10+1, 1+30, 1+20: with one unit of work each
  // the widths are 10, 10, 11, 11, 21, 21, together 84. In the order 0 1 2 3 4 5 they are 10,
  // 10+30, 10+20, 20+40, 20+1: 10, 10, 30, 30, 21, 21, together 122. The greedy order begins with
  // node 1.
  const ImportedProfile narrow = imported({.outputs = {{10}, {30}, {20}, {40}, {1}, {1}},
                                           .inputs = {{}, {0}, {1}, {0}, {3}, {2, 4}},
                                           .work = {{1}, {1}, {1}, {1}, {1}, {1}}});
  CHECK(order_of(narrow.profile) == Order{0, 3, 4, 1, 2, 5});
  REQUIRE(narrow.arrangement);
  CHECK(narrow.arrangement->down_sets == 11);  // none; the fork and 3 x 3 of the branches; all
  CHECK(narrow.arrangement->mean_cut == Bytes{84 / 6});
  CHECK(narrow.arrangement->greedy_mean_cut == Bytes{122 / 6});
  CHECK(narrow.arrangement->least_mean_cut == Bytes{84 / 6});
}

TEST_CASE("layers that have one order only, or take no time, are not compared with other orders") {
  CHECK_FALSE(
      imported({.outputs = {{10}, {30}}, .inputs = {{}, {0}}, .work = {{1}, {1}}}).arrangement);
  CHECK_FALSE(
      imported({.outputs = {{10}, {30}, {20}}, .inputs = {{}, {0}, {0}}, .work = {{0}, {0}, {0}}})
          .arrangement);
}

TEST_CASE("the greedy order stays where there are too many down-sets, or figures are too large") {
  TensorGraph wide{.outputs = {{10}}, .inputs = {{}}, .work = {{1}}};
  std::vector<std::int32_t> branches;
  for (std::int32_t node = 1; node <= 18; ++node) {
    wide.outputs.push_back({19 - node});
    wide.inputs.push_back({0});
    wide.work.push_back({1});
    branches.push_back(node);
  }
  wide.outputs.push_back({1});
  wide.inputs.push_back(branches);
  wide.work.push_back({1});
  const ImportedProfile greedy = imported(wide);
  CHECK(order_of(greedy.profile) == narrow_order(wide));
  REQUIRE(greedy.arrangement);
  CHECK_FALSE(greedy.arrangement->down_sets);
  CHECK_FALSE(greedy.arrangement->least_mean_cut);
  // Sums of 10^4 of the largest figures each: their product has more than 127 bits.
  TensorGraph large;
  large.outputs.assign(10'000, {kMaxCount});
  large.work.assign(10'000, {kMaxCount});
  CHECK_FALSE(are_widths_small(large));
  large.work.assign(10'000, {1});
  CHECK(are_widths_small(large));
}

TEST_CASE("random graphs: no topological order has narrower cuts than the exact one") {
  RandomSequence random(23);
  int better = 0;
  for (int round = 0; round < 600; ++round) {
    const TensorGraph graph = random_tensor_graph(random, 1 + random() % 7);
    const std::optional<DownSets> sets = DownSets::of(graph.inputs);
    REQUIRE(sets);
    REQUIRE(are_widths_small(graph));
    const Order exact = exact_order(graph, *sets);
    std::optional<OrderWidth> least;
    Order first;
    for_each_order(graph, [&](const Order& order) {
      const OrderWidth width = counted_width(graph, order);
      REQUIRE(width_of(graph, order) == width);
      if (least && width >= *least) return;
      least = width;
      first = order;
    });
    REQUIRE(least);
    REQUIRE(counted_width(graph, exact) == *least);
    // It is the lexicographically first of several such orders.
    REQUIRE(exact == first);
    if (width_of(graph, narrow_order(graph)) > *least) ++better;
  }
  CHECK(better > 100);
}

TEST_CASE("random graphs: layers have the exact order if it gains a hundredth, or the greedy one") {
  RandomSequence random(24);
  int exact_ones = 0;
  int greedy_ones = 0;
  for (int round = 0; round < 300; ++round) {
    const TensorGraph graph = random_tensor_graph(random, 2 + random() % 7);
    const Order greedy = narrow_order(graph);
    const Order exact = exact_order(graph, *DownSets::of(graph.inputs));
    const Wide before = width_of(graph, greedy).over_work;
    const bool gains = 100 * (before - width_of(graph, exact).over_work) >= before + 1;
    REQUIRE(order_of(imported(graph).profile) == (gains ? exact : greedy));
    ++(gains ? exact_ones : greedy_ones);
  }
  CHECK(exact_ones > 50);
  CHECK(greedy_ones > 50);
}

}  // namespace dapple::interop
