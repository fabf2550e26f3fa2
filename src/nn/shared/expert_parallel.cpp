// Experts that are on different ranks: each position's rows go to the ranks of its experts and
// back.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "nn/experts.h"
#include "nn/matrix.h"
#include "nn/modules.h"
#include "nn/shared_modules.h"

namespace dapple::nn {
namespace {

/// Numbers to or from each rank.
using ByRank = std::vector<std::vector<float>>;

/// How many rows each rank has sent for each expert of this one.
class Arrivals {
 public:
  Arrivals(std::int64_t ranks, std::int64_t experts)
      : ranks_(ranks), experts_(experts), counts_(zeros({ranks, experts})) {}
  /// Takes counts as they were kept.
  Arrivals(std::int64_t ranks, std::int64_t experts, const Tensor& counts)
      : ranks_(ranks), experts_(experts), counts_(counts) {}

  const Tensor& counts() const { return counts_; }
  std::int64_t count(std::int64_t rank, std::int64_t expert) const {
    return static_cast<std::int64_t>(
        counts_.values[static_cast<std::size_t>(rank * experts_ + expert)]);
  }
  std::int64_t of_rank(std::int64_t rank) const {
    std::int64_t sum = 0;
    for (std::int64_t expert = 0; expert < experts_; ++expert) sum += count(rank, expert);
    return sum;
  }
  /// Where each expert's rows begin, of all ranks together, and how many there are.
  std::vector<std::int64_t> first() const {
    std::vector<std::int64_t> first{0};
    for (std::int64_t expert = 0; expert < experts_; ++expert) {
      std::int64_t rows = first.back();
      for (std::int64_t rank = 0; rank < ranks_; ++rank) rows += count(rank, expert);
      first.push_back(rows);
    }
    return first;
  }

  /// Takes the counts that each rank has sent first, out of what it has sent.
  void take(ByRank& from) {
    const auto experts = static_cast<std::size_t>(experts_);
    for (std::size_t rank = 0; rank < from.size(); ++rank) {
      check(from[rank].size() >= experts, "a rank has not told how many rows it sends");
      const auto end = from[rank].begin() + static_cast<std::ptrdiff_t>(experts);
      std::copy(from[rank].begin(), end,
                counts_.values.begin() + static_cast<std::ptrdiff_t>(rank * experts));
      from[rank].erase(from[rank].begin(), end);
    }
  }

  /// Returns rows that have arrived rank by rank in the order of experts, or back.
  Tensor by_expert(const ByRank& from, std::int64_t columns) const {
    Tensor rows = zeros({first().back(), columns});
    for_each_run([&](std::size_t rank, std::int64_t place, std::int64_t to, std::int64_t count) {
      std::copy_n(from[rank].begin() + place * columns, count * columns,
                  rows.values.begin() + to * columns);
    });
    return rows;
  }
  ByRank by_rank(const Tensor& rows) const {
    const std::int64_t columns = rows.shape.back();
    ByRank to(static_cast<std::size_t>(ranks_));
    for (std::int64_t rank = 0; rank < ranks_; ++rank) {
      to[static_cast<std::size_t>(rank)].resize(static_cast<std::size_t>(of_rank(rank) * columns));
    }
    for_each_run([&](std::size_t rank, std::int64_t place, std::int64_t from, std::int64_t count) {
      std::copy_n(rows.values.begin() + from * columns, count * columns,
                  to[rank].begin() + place * columns);
    });
    return to;
  }

 private:
  /// Calls `copy` for the rows of each rank and expert with their place among those of the rank and
  /// among all in the order of experts.
  template <class Copy>
  void for_each_run(const Copy& copy) const {
    std::vector<std::int64_t> place(static_cast<std::size_t>(ranks_));
    std::int64_t all = 0;
    for (std::int64_t expert = 0; expert < experts_; ++expert) {
      for (std::int64_t rank = 0; rank < ranks_; ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        copy(at, place[at], all, count(rank, expert));
        place[at] += count(rank, expert);
        all += count(rank, expert);
      }
    }
  }

  std::int64_t ranks_;
  std::int64_t experts_;
  Tensor counts_;
};

/// Returns the rows with a number behind each.
Tensor with_column(const Tensor& rows, std::span<const float> column) {
  const std::int64_t columns = rows.shape.back();
  Tensor wider = zeros({static_cast<std::int64_t>(column.size()), columns + 1});
  Matrix to = rows_of(wider, columns + 1);
  to.leftCols(columns) = rows_of(rows, columns);
  for (std::size_t row = 0; row < column.size(); ++row) {
    to(static_cast<Eigen::Index>(row), columns) = column[row];
  }
  return wider;
}

/// Takes the last number off each row.
std::vector<float> take_column(Tensor& rows) {
  const std::int64_t columns = rows.shape.back() - 1;
  const ConstMatrix from = rows_of(std::as_const(rows), columns + 1);
  std::vector<float> column;
  Tensor narrower = zeros({from.rows(), columns});
  for (Eigen::Index row = 0; row < from.rows(); ++row) column.push_back(from(row, columns));
  rows_of(narrower, columns) = from.leftCols(columns);
  rows = std::move(narrower);
  return column;
}

/// Every rank has other positions, and routes them by the whole router.
class ExpertParallel : public Module {
 public:
  ExpertParallel(const TransformerBlockOperation& operation, const LayerRank& rank)
      : rank_(rank.experts),
        hidden_(operation.hidden),
        experts_(*operation.experts),
        own_(experts_.count / rank_.ranks),
        feed_forwards_(hidden_, operation.feed_forward, operation.activation),
        parameters_(expert_parameters(operation)) {
    parameters_[0].is_summed_over_ranks = rank.tensor.is_sequence_parallel;
    for (ParameterSpec& parameter : std::span(parameters_).subspan(1)) {
      parameter.is_of_experts = true;
      parameter.part = {.whole = parameter.shape,
                        .dimension = 0,
                        .ranges = {{rank_.rank * own_, (rank_.rank + 1) * own_}}};
      parameter.shape[0] = own_;
    }
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  Shape output_shape(const Shape& sample) const override {
    check_last_dimension(sample, hidden_);
    return sample;
  }

  /// The stash has the input, the scores, the rows that have arrived with their counts, the
  /// activation's output and what it keeps.
  Tensor forward(Parameters parameters, Tensor input, const Tensor&, Stash& stash) const override {
    Tensor scores = expert_scores(input, hidden_, parameters[0], experts_.count);
    const Routing routing = routing_of(scores, experts_.count, experts_.per_token);
    Arrivals arrivals(rank_.ranks, own_);
    ByRank from(static_cast<std::size_t>(rank_.ranks));
    rank_.group->all_to_all(with_counts(routing, rows_of_entries(input, hidden_, routing)), from);
    arrivals.take(from);
    Tensor rows = arrivals.by_expert(from, hidden_);
    Tensor activated;
    const Tensor output_rows =
        feed_forwards_.forward(ExpertFeedForwards::Weights::of(parameters), rows, arrivals.first(),
                               activated, stash.parts.emplace_back());
    Tensor entries = returned(arrivals.by_rank(output_rows), routing, hidden_);
    scale_rows(ordered_shares(routing), entries);
    Tensor output = zeros(input.shape);
    add_to_positions(entries, routing, output);
    stash.tensors.push_back(std::move(input));
    stash.tensors.push_back(std::move(scores));
    stash.tensors.push_back(std::move(rows));
    stash.tensors.push_back(arrivals.counts());
    stash.tensors.push_back(std::move(activated));
    return output;
  }

  /// Each row's share goes with its gradient, and the share's gradient comes back with the row's.
  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    const Routing routing = routing_of(stash.tensors[1], experts_.count, experts_.per_token);
    const Arrivals arrivals(rank_.ranks, own_, stash.tensors[3]);
    const Tensor sent =
        with_column(rows_of_entries(output_gradient, hidden_, routing), ordered_shares(routing));
    ByRank from;
    for (std::int64_t rank = 0; rank < rank_.ranks; ++rank) {
      from.emplace_back(static_cast<std::size_t>(arrivals.of_rank(rank) * (hidden_ + 1)));
    }
    rank_.group->all_to_all(for_ranks(routing, sent), from);
    Tensor slopes = arrivals.by_expert(from, hidden_ + 1);
    const std::vector<float> shares = take_column(slopes);
    ExpertFeedForwards::Gradients gradients =
        feed_forwards_.backward(ExpertFeedForwards::Weights::of(parameters), std::move(slopes),
                                shares, arrivals.first(), stash.tensors[4], stash.parts.front());
    stash.parts.clear();
    Tensor entries = returned(arrivals.by_rank(with_column(gradients.of_rows, gradients.of_shares)),
                              routing, hidden_ + 1);
    const std::vector<float> of_shares = take_column(entries);
    Tensor of_scores = gradient_of_scores(routing, experts_.count, of_shares);
    Tensor gradient = zeros(output_gradient.shape);
    add_to_positions(entries, routing, gradient);
    add_gradient_of_rows(of_scores, parameters[0], gradient);
    stash.tensors.push_back(std::move(of_scores));
    stash.tensors.push_back(std::move(gradients.of_expanded));
    stash.tensors.push_back(std::move(gradients.of_output));
    return gradient;
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    const Arrivals arrivals(rank_.ranks, own_, stash.tensors[3]);
    add_gradient_of_router(stash.tensors[0], stash.tensors[5], sums[0]);
    feed_forwards_.add_weight_gradients(stash.tensors[2], stash.tensors[4], stash.tensors[6],
                                        stash.tensors[7], arrivals.first(), sums[1], sums[2]);
    stash.tensors.clear();
  }

 private:
  /// Returns where the entries of a rank's experts begin.
  std::int64_t first_entry(const Routing& routing, std::int64_t rank) const {
    return routing.first[static_cast<std::size_t>(rank * own_)];
  }

  /// Returns the entries' rows for each rank.
  ByRank for_ranks(const Routing& routing, const Tensor& entries) const {
    const std::int64_t columns = entries.shape.back();
    ByRank to;
    for (std::int64_t rank = 0; rank < rank_.ranks; ++rank) {
      to.emplace_back(entries.values.begin() + first_entry(routing, rank) * columns,
                      entries.values.begin() + first_entry(routing, rank + 1) * columns);
    }
    return to;
  }
  /// The same behind their number for each of the rank's experts.
  ByRank with_counts(const Routing& routing, const Tensor& entries) const {
    ByRank to = for_ranks(routing, entries);
    for (std::int64_t rank = 0; rank < rank_.ranks; ++rank) {
      std::vector<float> counts;
      for (std::int64_t expert = rank * own_; expert < (rank + 1) * own_; ++expert) {
        const auto at = static_cast<std::size_t>(expert);
        counts.push_back(static_cast<float>(routing.first[at + 1] - routing.first[at]));
      }
      std::vector<float>& of_rank = to[static_cast<std::size_t>(rank)];
      of_rank.insert(of_rank.begin(), counts.begin(), counts.end());
    }
    return to;
  }

  /// Sends rows back to the ranks of their positions, and returns those of this rank's entries.
  Tensor returned(const ByRank& to, const Routing& routing, std::int64_t columns) const {
    ByRank from;
    for (std::int64_t rank = 0; rank < rank_.ranks; ++rank) {
      const std::int64_t rows = first_entry(routing, rank + 1) - first_entry(routing, rank);
      from.emplace_back(static_cast<std::size_t>(rows * columns));
    }
    rank_.group->all_to_all(to, from);
    Tensor entries{{routing.entries(), columns}, {}};
    for (const std::vector<float>& rows : from) {
      entries.values.insert(entries.values.end(), rows.begin(), rows.end());
    }
    check(static_cast<std::int64_t>(entries.values.size()) == routing.entries() * columns,
          "experts return another number of rows");
    return entries;
  }

  GroupRank rank_;
  std::int64_t hidden_;
  ExpertsForm experts_;
  std::int64_t own_;  // experts
  ExpertFeedForwards feed_forwards_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

std::unique_ptr<Module> make_expert_parallel(const TransformerBlockOperation& operation,
                                             const LayerRank& rank) {
  return std::make_unique<ExpertParallel>(operation, rank);
}

}  // namespace dapple::nn
