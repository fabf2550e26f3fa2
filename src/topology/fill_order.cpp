#include "topology/fill_order.h"

#include <algorithm>
#include <limits>

namespace dapple {
namespace {

constexpr std::size_t kExactUpTo = 10;
constexpr std::size_t kGreedyStarts = 16;
constexpr std::int64_t kNoPath = -1;

/// The best values of paths that visit exactly the nodes of a set, by set and first node (Held-Karp
/// dynamic programming).
class PathTable {
 public:
  explicit PathTable(std::size_t size)
      : size_(size), values_((std::size_t{1} << size) * size, kNoPath) {}

  std::int64_t& at(std::size_t set, std::size_t first) { return values_[set * size_ + first]; }

 private:
  std::size_t size_;
  std::vector<std::int64_t> values_;
};

/// Computes a table in which a path of one node has the value `single`, and a path that begins with
/// a hop of width `hop` and goes on as a path of value `rest` has the value join(hop, rest), which
/// is kNoPath if the hop is not allowed.
template <class Join>
PathTable best_paths(const HopWidths& hops, std::int64_t single, Join join) {
  PathTable table(hops.size);
  for (std::size_t set = 1; set < (std::size_t{1} << hops.size); ++set) {
    for (std::size_t first = 0; first < hops.size; ++first) {
      if (((set >> first) & 1U) == 0) continue;
      const std::size_t rest = set & ~(std::size_t{1} << first);
      if (rest == 0) table.at(set, first) = single;
      for (std::size_t next = 0; next < hops.size; ++next) {
        if (((rest >> next) & 1U) == 0 || table.at(rest, next) == kNoPath) continue;
        table.at(set, first) =
            std::max(table.at(set, first), join(hops.at(first, next), table.at(rest, next)));
      }
    }
  }
  return table;
}

std::int64_t widest_bottleneck(const HopWidths& hops) {
  PathTable table =
      best_paths(hops, std::numeric_limits<std::int64_t>::max(),
                 [](std::int64_t hop, std::int64_t rest) { return std::min(hop, rest); });
  std::int64_t widest = kNoPath;
  const std::size_t all = (std::size_t{1} << hops.size) - 1;
  for (std::size_t first = 0; first < hops.size; ++first) {
    widest = std::max(widest, table.at(all, first));
  }
  return widest;
}

std::vector<std::size_t> exact_path(const HopWidths& hops) {
  const std::int64_t bottleneck = widest_bottleneck(hops);
  PathTable sums = best_paths(hops, 0, [&](std::int64_t hop, std::int64_t rest) {
    return hop >= bottleneck ? hop + rest : kNoPath;
  });
  std::vector<std::size_t> path;
  std::size_t left = (std::size_t{1} << hops.size) - 1;
  while (left != 0) {
    std::size_t chosen = hops.size;
    std::int64_t largest = kNoPath;
    for (std::size_t node = 0; node < hops.size; ++node) {
      if (((left >> node) & 1U) == 0 || sums.at(left, node) == kNoPath) continue;
      const std::int64_t hop = path.empty() ? 0 : hops.at(path.back(), node);
      if (!path.empty() && hop < bottleneck) continue;
      if (hop + sums.at(left, node) <= largest) continue;
      largest = hop + sums.at(left, node);
      chosen = node;
    }
    path.push_back(chosen);
    left &= ~(std::size_t{1} << chosen);
  }
  return path;
}

struct GreedyPath {
  std::int64_t narrowest = std::numeric_limits<std::int64_t>::max();
  std::int64_t sum = 0;
  std::vector<std::size_t> nodes;
};

GreedyPath greedy_path(const HopWidths& hops, std::size_t start) {
  GreedyPath path;
  path.nodes.push_back(start);
  std::vector<char> used(hops.size, 0);
  used[start] = 1;
  while (path.nodes.size() < hops.size) {
    const std::size_t tail = path.nodes.back();
    std::size_t next = hops.size;
    for (std::size_t node = 0; node < hops.size; ++node) {
      if (used[node]) continue;
      if (next == hops.size || hops.at(tail, node) > hops.at(tail, next)) next = node;
    }
    path.narrowest = std::min(path.narrowest, hops.at(tail, next));
    path.sum += hops.at(tail, next);
    path.nodes.push_back(next);
    used[next] = 1;
  }
  return path;
}

}  // namespace

std::vector<std::size_t> widest_path(const HopWidths& hops) {
  if (hops.size <= kExactUpTo) return exact_path(hops);
  GreedyPath best = greedy_path(hops, 0);
  for (std::size_t start = 1; start < std::min(hops.size, kGreedyStarts); ++start) {
    GreedyPath path = greedy_path(hops, start);
    const bool wider =
        path.narrowest != best.narrowest ? path.narrowest > best.narrowest : path.sum > best.sum;
    if (wider) best = std::move(path);
  }
  return best.nodes;
}

}  // namespace dapple
