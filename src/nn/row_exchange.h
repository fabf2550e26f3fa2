// How rows pass between the ranks of positions and those of their experts, and between ranks that
// compute a part each of the same experts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dapple/nn/shared_layers.h"
#include "dapple/nn/tensor.h"
#include "nn/experts.h"

namespace dapple::nn {

/// How many rows a rank computes for each of its experts, from each of the ranks whose positions
/// they are: those that have other experts, and once more for each rank that shares the experts.
class Arrivals {
 public:
  Arrivals(std::int64_t sources, std::int64_t experts)
      : sources_(sources), experts_(experts), counts_(zeros({sources, experts})) {}
  /// Takes counts as they were kept.
  Arrivals(std::int64_t sources, std::int64_t experts, const Tensor& counts)
      : sources_(sources), experts_(experts), counts_(counts) {}

  const Tensor& counts() const { return counts_; }
  /// Sets the counts of a source, one for each expert.
  void set(std::int64_t source, std::span<const float> counts);
  std::int64_t count(std::int64_t source, std::int64_t expert) const {
    return static_cast<std::int64_t>(
        counts_.values[static_cast<std::size_t>(source * experts_ + expert)]);
  }
  std::int64_t of_source(std::int64_t source) const;
  /// Where each expert's rows begin, of all sources together, and how many there are.
  std::vector<std::int64_t> first() const;

  /// Returns rows of all sources, those of one after those of another, each in the order of
  /// experts, in the order of experts alone, or back.
  Tensor by_expert(std::span<const float> by_source, std::int64_t columns) const;
  std::vector<float> by_source(const Tensor& rows) const;

 private:
  template <class Copy>
  void for_each_run(const Copy& copy) const;

  std::int64_t sources_;
  std::int64_t experts_;
  Tensor counts_;
};

/// The exchange of one rank. Each of `experts.ranks` ranks has as many other experts, and each of
/// `sharing.ranks` ranks computes a part of the same experts for all of these ranks' positions: it
/// gathers the rows that have arrived at them, and they sum what they compute of these.
class RowExchange {
 public:
  /// `experts_of_rank` are the experts that it computes, or a part of them.
  RowExchange(const GroupRank& experts, const GroupRank& sharing, std::int64_t experts_of_rank)
      : experts_(experts), sharing_(sharing), own_(experts_of_rank) {}

  std::int64_t sources() const { return experts_.ranks * sharing_.ranks; }

  /// Returns the rows of the rank's experts, given those of its positions' entries in the order of
  /// all experts, and tells how many arrive.
  Tensor to_experts(const Routing& routing, const Tensor& entries, Arrivals& arrivals) const;
  /// Does the same again, with rows of any width, where the arrivals are known.
  Tensor to_experts_again(const Routing& routing, const Tensor& entries,
                          const Arrivals& arrivals) const;
  /// Returns the rows of its positions' entries, given those of the rank's experts, as far as it
  /// computes them.
  Tensor to_positions(const Routing& routing, const Tensor& rows, const Arrivals& arrivals) const;

 private:
  /// Numbers to or from each rank.
  using ByRank = std::vector<std::vector<float>>;

  std::int64_t first_entry(const Routing& routing, std::int64_t rank) const {
    return routing.first[static_cast<std::size_t>(rank * own_)];
  }
  ByRank for_ranks(const Routing& routing, const Tensor& entries) const;
  std::vector<float> counts_for(const Routing& routing, std::int64_t rank) const;
  std::int64_t rows_at(const Arrivals& arrivals, std::int64_t sharing) const;
  std::vector<float> summed(std::vector<float> all, const Arrivals& arrivals,
                            std::int64_t columns) const;

  GroupRank experts_;
  GroupRank sharing_;
  std::int64_t own_;
};

}  // namespace dapple::nn
