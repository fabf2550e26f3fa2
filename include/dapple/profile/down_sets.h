// The down-sets of a graph: the sets of nodes that have the inputs of all their nodes. In any
// topological order the first nodes are a down-set, and every down-set is that of some order, so
// that the stages of all pipelines over all orders are the differences of nested down-sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"

namespace dapple {

/// A down-set, by rising number of nodes. The first one is empty, the last one has all nodes.
using DownSetIndex = Index<struct DownSetTag>;

class DownSets {
 public:
  /// What leads from a down-set to one with one more node.
  struct Step {
    std::int32_t node = 0;
    DownSetIndex next;
  };

  /// The most down-sets of a graph that are listed, and the most words of 64 nodes in all of them.
  static constexpr std::int64_t kMost = 200'000;
  static constexpr std::int64_t kMostWords = 4'000'000;

  /// Returns all down-sets of the graph, or nothing if there are more than `most`, or if they have
  /// more than kMostWords words. Takes O(down-sets * (words + width * inputs of a node)).
  /// Requires: `inputs` has the nodes whose outputs each node takes, without repetitions, and no
  /// cycle.
  static std::optional<DownSets> of(const std::vector<std::vector<std::int32_t>>& inputs,
                                    std::int64_t most = kMost);

  std::int32_t size() const { return static_cast<std::int32_t>(first_steps_.size()) - 1; }
  std::int32_t node_count() const { return static_cast<std::int32_t>(inputs_.size()); }
  DownSetIndex last() const { return {size() - 1}; }

  /// Returns the steps from a down-set, by rising node.
  std::span<const Step> steps(DownSetIndex set) const {
    const std::size_t first = first_steps_[set.position()];
    return {steps_.data() + first, first_steps_[set.position() + 1] - first};
  }
  bool contains(DownSetIndex set, std::int32_t node) const {
    const auto bit = static_cast<std::size_t>(node);
    return (members_[set.position() * words_ + bit / kWordBits] >> (bit % kWordBits) & 1U) != 0;
  }

  /// Returns for each down-set the sum of the figures of its nodes. Requires: one figure per node.
  std::vector<Wide> sums(const std::vector<Wide>& figures) const;
  /// Returns for each down-set the sum of the figures of those of its nodes that some node outside
  /// takes: with sizes of outputs, what crosses the cut behind it. Requires: one figure per node.
  std::vector<Wide> crossing(const std::vector<Wide>& figures) const;

 private:
  using Word = std::uint64_t;
  static constexpr std::size_t kWordBits = 64;
  class Finder;

  explicit DownSets(const std::vector<std::vector<std::int32_t>>& inputs);
  /// Whether some node outside the down-set takes the node's output.
  bool is_needed(DownSetIndex set, std::int32_t node) const;

  std::vector<std::vector<std::int32_t>> inputs_;
  std::vector<std::vector<std::int32_t>> consumers_;
  // The words of each down-set.
  std::size_t words_ = 0;
  std::vector<Word> members_;
  std::vector<Step> steps_;
  // Where the steps of each down-set begin, and where those of the last one end.
  std::vector<std::size_t> first_steps_;
};

}  // namespace dapple
