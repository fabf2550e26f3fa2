#include "dapple/interop/graphs/exact_order.h"

#include <algorithm>

namespace dapple::interop {
namespace {

/// Where a node is in an order: what is alive before and behind it.
struct Place {
  Wide before = 0;
  Wide behind = 0;
  bool is_first = false;
  bool is_last = false;
};

/// Returns the width that a node adds to an order.
OrderWidth width_of_node(Duration work, const Place& place) {
  Wide narrower = std::min(place.before, place.behind);
  if (place.is_first) narrower = place.behind;
  if (place.is_last) narrower = place.before;
  return {.over_work = Wide{work.ns} * narrower, .over_cuts = place.behind};
}

OrderWidth operator+(const OrderWidth& a, const OrderWidth& b) {
  return {.over_work = a.over_work + b.over_work, .over_cuts = a.over_cuts + b.over_cuts};
}

std::vector<Wide> output_sizes(const TensorGraph& graph) {
  std::vector<Wide> sizes;
  for (const Bytes output : graph.outputs) sizes.push_back(output.count);
  return sizes;
}

}  // namespace

OrderWidth width_of(const TensorGraph& graph, const std::vector<std::int32_t>& order) {
  std::vector<std::size_t> unplaced_consumers(graph.outputs.size());
  for (const std::vector<std::int32_t>& inputs : graph.inputs) {
    for (const std::int32_t input : inputs) ++unplaced_consumers[static_cast<std::size_t>(input)];
  }
  OrderWidth width;
  Wide alive = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto node = static_cast<std::size_t>(order[i]);
    const Wide before = alive;
    if (unplaced_consumers[node] > 0) alive += graph.outputs[node].count;
    for (const std::int32_t input : graph.inputs[node]) {
      const auto position = static_cast<std::size_t>(input);
      if (--unplaced_consumers[position] == 0) alive -= graph.outputs[position].count;
    }
    width = width + width_of_node(graph.work[node], {.before = before,
                                                     .behind = alive,
                                                     .is_first = i == 0,
                                                     .is_last = i + 1 == order.size()});
  }
  return width;
}

bool are_widths_small(const TensorGraph& graph) {
  Wide work = 1;
  for (const Duration of_node : graph.work) work += of_node.ns;
  Wide bytes = 1;
  for (const Bytes output : graph.outputs) bytes += output.count;
  return work <= (Wide{1} << 119) / bytes && bytes <= (Wide{1} << 100);
}

std::vector<std::int32_t> exact_order(const TensorGraph& graph, const DownSets& sets) {
  const std::vector<Wide> alive = sets.crossing(output_sizes(graph));
  // The least width of what follows each down-set.
  std::vector<OrderWidth> least(static_cast<std::size_t>(sets.size()));
  const auto width_by = [&](DownSetIndex set, const DownSets::Step& step) {
    const Place place{.before = alive[set.position()],
                      .behind = alive[step.next.position()],
                      .is_first = set == DownSetIndex{},
                      .is_last = step.next == sets.last()};
    return width_of_node(graph.work[static_cast<std::size_t>(step.node)], place) +
           least[step.next.position()];
  };
  for (DownSetIndex set = sets.last().previous(); set.value >= 0; set = set.previous()) {
    bool is_first = true;
    for (const DownSets::Step& step : sets.steps(set)) {
      const OrderWidth width = width_by(set, step);
      least[set.position()] = is_first ? width : std::min(least[set.position()], width);
      is_first = false;
    }
  }
  std::vector<std::int32_t> order;
  for (DownSetIndex set; set != sets.last();) {
    const auto steps = sets.steps(set);
    const auto chosen = std::find_if(steps.begin(), steps.end(), [&](const DownSets::Step& step) {
      return width_by(set, step) == least[set.position()];
    });
    order.push_back(chosen->node);
    set = chosen->next;
  }
  return order;
}

}  // namespace dapple::interop
