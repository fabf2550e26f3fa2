#include "topology/ring_packing.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace dapple {
namespace {

constexpr std::int64_t kPairSteps = 200'000;
constexpr std::int64_t kCycleSteps = 2'000'000;
constexpr std::size_t kAllCutsUpTo = 10;

std::int64_t lane_bandwidth(const Lanes& lanes) {
  return lanes.count * lanes.each.bytes_per_second;
}

/// Returns the nodes in the order of the search: the one with the least outgoing bandwidth first,
/// as its arcs restrict the rings most, then the others by number.
std::vector<std::size_t> search_order(const LaneMesh& mesh) {
  std::vector<std::int64_t> around(mesh.size);
  for (std::size_t from = 0; from < mesh.size; ++from) {
    for (std::size_t to = 0; to < mesh.size; ++to) {
      around[from] += lane_bandwidth(mesh.at(from, to));
    }
  }
  const auto narrowest = std::min_element(around.begin(), around.end()) - around.begin();
  std::vector<std::size_t> order(mesh.size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::rotate(order.begin(), order.begin() + narrowest, order.begin() + narrowest + 1);
  return order;
}

LaneMesh reorder(const LaneMesh& mesh, const std::vector<std::size_t>& order) {
  LaneMesh reordered{mesh.size, std::vector<Lanes>(mesh.lanes.size())};
  for (std::size_t from = 0; from < mesh.size; ++from) {
    for (std::size_t to = 0; to < mesh.size; ++to) {
      if (from == to) continue;
      reordered.lanes[from * mesh.size + to] = mesh.at(order[from], order[to]);
    }
  }
  return reordered;
}

/// The depth-first search. Its state is a sequence of choices, n - 1 per ring: the nodes after
/// node 0, where every ring starts. The rings of a packing are in non-decreasing lexicographic
/// order, so that each set of rings is enumerated once; the first ring to be tried after a complete
/// one is the same ring again.
class RingSearch {
 public:
  RingSearch(const LaneMesh& mesh, bool with_reverse, std::int64_t bound)
      : mesh_(mesh), with_reverse_(with_reverse), bound_(bound), free_(mesh.lanes) {
    used_.assign(mesh_.size, 0);
    out_.assign(mesh_.size, 0);
    in_.assign(mesh_.size, 0);
    for (std::size_t from = 0; from < mesh_.size; ++from) {
      for (std::size_t to = 0; to < mesh_.size; ++to) {
        out_[from] += lane_bandwidth(mesh_.at(from, to));
        in_[to] += lane_bandwidth(mesh_.at(from, to));
      }
    }
  }

  void run(std::int64_t steps) {
    std::size_t candidate = 1;
    while (steps-- > 0 && best_total_ < bound_) {
      const std::size_t node = next_node(candidate);
      if (node < mesh_.size) {
        take(node);
        candidate = first_candidate();
      } else if (!choices_.empty()) {
        candidate = undo() + 1;
      } else {
        return;
      }
    }
  }

  std::int64_t best_total() const { return best_total_; }

  std::vector<Ring> best_rings() const {
    std::vector<Ring> rings;
    for (std::size_t begin = 0; begin < best_.size(); begin += per_ring()) {
      std::vector<std::size_t> nodes{0};
      const auto first = best_.begin() + static_cast<std::ptrdiff_t>(begin);
      nodes.insert(nodes.end(), first, first + static_cast<std::ptrdiff_t>(per_ring()));
      rings.push_back({nodes, narrowest_lane(nodes)});
      if (!with_reverse_) continue;
      std::reverse(nodes.begin(), nodes.end());
      rings.push_back({nodes, narrowest_lane(nodes)});
    }
    return rings;
  }

 private:
  std::size_t per_ring() const { return mesh_.size - 1; }
  std::size_t place() const { return choices_.size() % per_ring(); }
  std::size_t tail() const { return place() == 0 ? 0 : choices_.back(); }
  bool closes_ring() const { return place() + 1 == per_ring(); }

  bool is_free(std::size_t from, std::size_t to) const {
    if (free_[from * mesh_.size + to].count == 0) return false;
    if (!with_reverse_) return true;
    // A ring of two nodes is its own reverse.
    return mesh_.size > 2 && free_[to * mesh_.size + from].count > 0;
  }

  /// Returns an upper bound on what further rings can add: the least bandwidth of the free lanes
  /// that leave, or reach, any one node.
  std::int64_t left_around_a_node() const {
    return std::min(*std::min_element(out_.begin(), out_.end()),
                    *std::min_element(in_.begin(), in_.end()));
  }

  /// Returns an upper bound on what further rings can add if they leave node 0 towards `first` or a
  /// later node, as they do because rings are in lexicographic order.
  std::int64_t left_from(std::size_t first) const {
    std::int64_t left = 0;
    for (std::size_t to = first; to < mesh_.size; ++to) left += lane_bandwidth(free_[to]);
    return left;
  }

  /// Returns the first node, from `candidate` on, that may come next; mesh_.size if there is none.
  std::size_t next_node(std::size_t candidate) const {
    if (place() == 0 && total_ + left_around_a_node() <= best_total_) return mesh_.size;
    for (std::size_t node = candidate; node < mesh_.size; ++node) {
      if (place() == 0 && total_ + left_from(node) <= best_total_) return mesh_.size;
      if (used_[node] || !is_free(tail(), node)) continue;
      if (closes_ring() && !is_free(node, 0)) continue;
      return node;
    }
    return mesh_.size;
  }

  /// Returns the lowest candidate for the next node. As long as a ring equals the ring before it,
  /// this is that ring's node at the same place, which keeps rings in lexicographic order.
  std::size_t first_candidate() const {
    const std::size_t ring_begin = choices_.size() - place();
    if (ring_begin == 0) return 1;
    const std::size_t before = ring_begin - per_ring();
    for (std::size_t i = 0; i < place(); ++i) {
      if (choices_[ring_begin + i] != choices_[before + i]) return 1;
    }
    return choices_[before + place()];
  }

  void use_lane(std::size_t from, std::size_t to, std::int32_t lanes) {
    Lanes& arc = free_[from * mesh_.size + to];
    arc.count -= lanes;
    out_[from] -= lanes * arc.each.bytes_per_second;
    in_[to] -= lanes * arc.each.bytes_per_second;
  }

  void use_arc(std::size_t from, std::size_t to, std::int32_t lanes) {
    use_lane(from, to, lanes);
    if (with_reverse_) use_lane(to, from, lanes);
  }

  void take(std::size_t node) {
    const bool closes = closes_ring();
    use_arc(tail(), node, 1);
    if (closes) use_arc(node, 0, 1);
    choices_.push_back(node);
    used_[node] = 1;
    if (!closes) return;
    std::fill(used_.begin(), used_.end(), char{0});
    total_ += last_ring_bandwidth();
    if (total_ > best_total_) {
      best_total_ = total_;
      best_ = choices_;
    }
  }

  /// Undoes the last choice and returns it.
  std::size_t undo() {
    const std::size_t node = choices_.back();
    if (place() == 0) {
      total_ -= last_ring_bandwidth();
      use_arc(node, 0, -1);
      for (std::size_t i = 0; i < per_ring(); ++i) used_[choices_[choices_.size() - 1 - i]] = 1;
    }
    choices_.pop_back();
    used_[node] = 0;
    use_arc(tail(), node, -1);
    return node;
  }

  std::int64_t last_ring_bandwidth() const {
    const auto begin = choices_.end() - static_cast<std::ptrdiff_t>(per_ring());
    std::vector<std::size_t> nodes{0};
    nodes.insert(nodes.end(), begin, choices_.end());
    std::int64_t bandwidth = narrowest_lane(nodes).bytes_per_second;
    if (with_reverse_) {
      std::reverse(nodes.begin(), nodes.end());
      bandwidth += narrowest_lane(nodes).bytes_per_second;
    }
    return bandwidth;
  }

  Bandwidth narrowest_lane(const std::vector<std::size_t>& nodes) const {
    Bandwidth narrowest{std::numeric_limits<std::int64_t>::max()};
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      narrowest = std::min(narrowest, mesh_.at(nodes[i], nodes[(i + 1) % nodes.size()]).each);
    }
    return narrowest;
  }

  const LaneMesh& mesh_;
  const bool with_reverse_;
  const std::int64_t bound_;
  std::vector<Lanes> free_;
  // By node: whether the ring under construction contains it.
  std::vector<char> used_;
  // By node: the bandwidth of the free lanes that leave it and of those that reach it.
  std::vector<std::int64_t> out_;
  std::vector<std::int64_t> in_;
  std::vector<std::size_t> choices_;
  // The bandwidth of the complete rings among the choices.
  std::int64_t total_ = 0;
  std::vector<std::size_t> best_;
  std::int64_t best_total_ = 0;
};

std::int64_t bandwidth_across(const LaneMesh& mesh, std::uint32_t inside) {
  std::int64_t across = 0;
  for (std::size_t from = 0; from < mesh.size; ++from) {
    for (std::size_t to = 0; to < mesh.size; ++to) {
      const bool leaves = ((inside >> from) & 1U) == 1 && ((inside >> to) & 1U) == 0;
      if (leaves) across += lane_bandwidth(mesh.at(from, to));
    }
  }
  return across;
}

}  // namespace

Bandwidth ring_bound(const LaneMesh& mesh) {
  std::int64_t bound = std::numeric_limits<std::int64_t>::max();
  if (mesh.size <= kAllCutsUpTo) {
    for (std::uint32_t inside = 1; inside + 1 < (1U << mesh.size); ++inside) {
      bound = std::min(bound, bandwidth_across(mesh, inside));
    }
    return {bound};
  }
  for (std::size_t node = 0; node < mesh.size; ++node) {
    std::int64_t out = 0;
    std::int64_t in = 0;
    for (std::size_t other = 0; other < mesh.size; ++other) {
      out += lane_bandwidth(mesh.at(node, other));
      in += lane_bandwidth(mesh.at(other, node));
    }
    bound = std::min({bound, out, in});
  }
  return {bound};
}

std::vector<Ring> pack_lane_rings(const LaneMesh& mesh) {
  const std::vector<std::size_t> order = search_order(mesh);
  const LaneMesh reordered = reorder(mesh, order);
  const std::int64_t bound = ring_bound(reordered).bytes_per_second;
  RingSearch pairs(reordered, true, bound);
  pairs.run(kPairSteps);
  RingSearch cycles(reordered, false, bound);
  if (pairs.best_total() < bound) cycles.run(kCycleSteps);
  std::vector<Ring> rings =
      cycles.best_total() > pairs.best_total() ? cycles.best_rings() : pairs.best_rings();
  for (Ring& ring : rings) {
    for (std::size_t& node : ring.nodes) node = order[node];
  }
  return rings;
}

}  // namespace dapple
