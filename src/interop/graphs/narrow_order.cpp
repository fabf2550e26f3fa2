#include "dapple/interop/graphs/narrow_order.h"

#include <set>
#include <utility>

namespace dapple::interop {
namespace {

class NarrowOrder {
 public:
  explicit NarrowOrder(const TensorGraph& graph);
  std::vector<std::int32_t> run();

 private:
  struct Candidate {
    // By how many bytes placing the node increases the size of all tensors that are alive.
    Wide growth = 0;
    std::int32_t node = 0;
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return a.growth != b.growth ? a.growth < b.growth : a.node < b.node;
    }
  };

  static std::size_t at(std::int32_t node) { return static_cast<std::size_t>(node); }
  /// Whether the node has consumers but no inputs, so that it is placed with its first consumer.
  bool is_source(std::int32_t node) const {
    return graph_.inputs[at(node)].empty() && !consumers_[at(node)].empty();
  }
  void grow(std::int32_t node, Wide growth);
  void place(std::int32_t node);
  void place_sources_of(std::int32_t node);
  void consume_inputs_of(std::int32_t node);

  const TensorGraph& graph_;
  std::vector<std::vector<std::int32_t>> consumers_;
  std::vector<std::size_t> unplaced_consumers_;
  std::vector<std::size_t> missing_inputs_;  // sources excluded
  std::vector<Wide> growth_;
  std::vector<bool> placed_;
  std::set<Candidate> ready_;
  std::vector<std::int32_t> order_;
};

NarrowOrder::NarrowOrder(const TensorGraph& graph)
    : graph_(graph),
      consumers_(graph.outputs.size()),
      unplaced_consumers_(graph.outputs.size()),
      missing_inputs_(graph.outputs.size()),
      growth_(graph.outputs.size()),
      placed_(graph.outputs.size()) {
  const auto count = static_cast<std::int32_t>(graph.outputs.size());
  for (std::int32_t node = 0; node < count; ++node) {
    for (const std::int32_t input : graph.inputs[at(node)]) consumers_[at(input)].push_back(node);
  }
  for (std::int32_t node = 0; node < count; ++node) {
    const std::size_t consumers = consumers_[at(node)].size();
    unplaced_consumers_[at(node)] = consumers;
    if (consumers > 0) growth_[at(node)] += graph.outputs[at(node)].count;
    const Wide size = graph.outputs[at(node)].count;
    for (const std::int32_t consumer : consumers_[at(node)]) {
      if (!is_source(node)) {
        ++missing_inputs_[at(consumer)];
        // A tensor is dead once its only consumer is placed.
        if (consumers == 1) growth_[at(consumer)] -= size;
      } else if (consumers > 1) {
        // A source becomes alive with its first consumer, and is dead at once if that is the only
        // one.
        growth_[at(consumer)] += size;
      }
    }
  }
  for (std::int32_t node = 0; node < count; ++node) {
    if (missing_inputs_[at(node)] == 0 && !is_source(node)) {
      ready_.insert({growth_[at(node)], node});
    }
  }
}

/// Adds to the growth that placing the node would cause, unless it is already placed.
void NarrowOrder::grow(std::int32_t node, Wide growth) {
  if (placed_[at(node)]) return;
  const bool is_ready = ready_.erase({growth_[at(node)], node}) > 0;
  growth_[at(node)] += growth;
  if (is_ready) ready_.insert({growth_[at(node)], node});
}

void NarrowOrder::place_sources_of(std::int32_t node) {
  for (const std::int32_t input : graph_.inputs[at(node)]) {
    if (!is_source(input) || placed_[at(input)]) continue;
    placed_[at(input)] = true;
    order_.push_back(input);
    if (consumers_[at(input)].size() < 2) continue;
    for (const std::int32_t consumer : consumers_[at(input)]) {
      grow(consumer, -Wide{graph_.outputs[at(input)].count});
    }
  }
}

void NarrowOrder::consume_inputs_of(std::int32_t node) {
  for (const std::int32_t input : graph_.inputs[at(node)]) {
    if (--unplaced_consumers_[at(input)] != 1) continue;
    for (const std::int32_t consumer : consumers_[at(input)]) {
      grow(consumer, -Wide{graph_.outputs[at(input)].count});
    }
  }
}

void NarrowOrder::place(std::int32_t node) {
  placed_[at(node)] = true;
  place_sources_of(node);
  order_.push_back(node);
  consume_inputs_of(node);
  for (const std::int32_t consumer : consumers_[at(node)]) {
    if (--missing_inputs_[at(consumer)] == 0) ready_.insert({growth_[at(consumer)], consumer});
  }
}

std::vector<std::int32_t> NarrowOrder::run() {
  while (!ready_.empty()) {
    const std::int32_t node = ready_.begin()->node;
    ready_.erase(ready_.begin());
    place(node);
  }
  return std::move(order_);
}

}  // namespace

std::vector<std::int32_t> narrow_order(const TensorGraph& graph) {
  return NarrowOrder(graph).run();
}

}  // namespace dapple::interop
