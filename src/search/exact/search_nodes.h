// The nodes of the exact search, and the order in which open ones are expanded.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/core/quantity.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/indices.h"
#include "dapple/search/stage_form.h"
#include "search/bounds/order_bound.h"

namespace dapple::search {

/// A node is a partial plan: one stage in front of another partial plan, which is its parent.
///
/// | member            | symbol, docs/bounds.md | unit    | equations                   |
/// | ----------------- | ---------------------- | ------- | --------------------------- |
/// | stage             | F, B, A, K, W          | ns, 1   | (B1) to (B9), (O1) to (O4)  |
/// | boundary          | c, d, pace, pace_back  | ns      | (O1) to (O4)                |
/// | label             | RT, LT, V, E, T        | ns      | (B7) to (B9), (C1), (C8)    |
/// | bound             | bound of a node        | ns      | (C8), (C9)                  |
/// | allocation, used  | device allocation      | index   | section 9, third proof      |
struct SearchNode {
  NodeIndex behind = kNoNode;
  // The device allocation of the first stage, and all devices in use.
  AllocationIndex allocation;
  UseIndex used;
  // The cuts in front of and behind the first stage.
  CutIndex begin;
  CutIndex end;
  std::int32_t stages = 1;
  // The number of stages that recompute although memory holds the stash of all micro-batches.
  std::int32_t needless = 0;
  // How the first stage runs, and its figures.
  StageForm form = {};
  StageBound stage;
  BoundaryTimes boundary;

  BoundLabel label;
  // Lower bound on every completion.
  Duration bound;

  bool is_complete() const { return begin == CutIndex{}; }
};

/// The open nodes, in two orders from which nodes are taken in turn. The first is by least bound,
/// which raises the bound of the search; ties by lowest first layer. The second is by fewest
/// needless recomputations, then by lowest first layer, which completes plans; ties by least bound.
/// Remaining ties go to the node that was pushed first.
class OpenNodes {
 public:
  bool empty() const { return left_ == 0; }
  bool contains(NodeIndex node) const { return is_open_.contains(node) && is_open_[node]; }

  /// Requires: `index` is higher than that of every node pushed before.
  void push(const SearchNode& node, NodeIndex index) {
    by_bound_.push({node.bound.ns, node.begin, 0, index});
    by_progress_.push({node.needless, node.begin, node.bound.ns, index});
    is_open_.resize(index.next().position());
    is_open_[index] = true;
    ++left_;
  }

  /// Requires: not empty.
  NodeIndex take() {
    takes_best_ = !takes_best_;
    Heap& heap = takes_best_ ? by_bound_ : by_progress_;
    const NodeIndex node = heap.top().node;
    is_open_[node] = false;
    --left_;
    drop_taken(by_bound_);
    drop_taken(by_progress_);
    return node;
  }

  /// The least bound of all open nodes; infinite if there is none.
  Duration least_bound() const {
    return by_bound_.empty() ? Duration::infinite() : Duration{by_bound_.top().key};
  }

 private:
  struct Entry {
    std::int64_t key = 0;
    // These decide among equal keys.
    CutIndex begin;
    std::int64_t tie_key = 0;
    NodeIndex node;

    friend auto operator<=>(const Entry&, const Entry&) = default;
  };
  using Heap = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;

  void drop_taken(Heap& heap) const {
    while (!heap.empty() && !is_open_[heap.top().node]) heap.pop();
  }

  Heap by_bound_;
  Heap by_progress_;
  IndexedVector<NodeIndex, bool> is_open_;
  std::int64_t left_ = 0;
  bool takes_best_ = false;
};

}  // namespace dapple::search
