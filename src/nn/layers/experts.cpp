#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "nn/matrix.h"
#include "nn/modules.h"
#include "nn/shared_modules.h"

namespace dapple::nn {
namespace {

/// Which experts each position has. An entry is a position and one of its experts; entry e is of
/// position e / (experts of each).
struct Routing {
  /// By entry: the expert's share of the position's output.
  std::vector<float> shares;
  /// The entries, those of one expert after those of another, in the order of positions.
  std::vector<std::size_t> order;
  /// By expert: where its entries begin in `order`; at last the number of all.
  std::vector<std::int64_t> first;
};

/// Returns the positions of the `many` largest scores, of equals the first, in that order.
std::vector<std::int64_t> largest_of(const float* scores, std::int64_t count, std::int64_t many) {
  std::vector<std::int64_t> largest;
  for (std::int64_t n = 0; n < many; ++n) {
    std::int64_t best = -1;
    for (std::int64_t i = 0; i < count; ++i) {
      if (std::find(largest.begin(), largest.end(), i) != largest.end()) continue;
      if (best < 0 || scores[i] > scores[best]) best = i;
    }
    largest.push_back(best);
  }
  return largest;
}

Routing routing_of(const Tensor& scores, std::int64_t experts, std::int64_t per_token) {
  const ConstMatrix rows = rows_of(scores, experts);
  Routing routing;
  std::vector<std::vector<std::size_t>> entries(static_cast<std::size_t>(experts));
  for (Eigen::Index row = 0; row < rows.rows(); ++row) {
    const float* of_row = rows.row(row).data();
    float sum = 0;
    const std::vector<std::int64_t> chosen = largest_of(of_row, experts, per_token);
    for (const std::int64_t expert : chosen) {
      entries[static_cast<std::size_t>(expert)].push_back(routing.shares.size());
      routing.shares.push_back(std::exp(of_row[expert] - of_row[chosen.front()]));
      sum += routing.shares.back();
    }
    for (auto share = routing.shares.end() - per_token; share != routing.shares.end(); ++share) {
      *share /= sum;
    }
  }
  for (const std::vector<std::size_t>& of_expert : entries) {
    routing.first.push_back(static_cast<std::int64_t>(routing.order.size()));
    routing.order.insert(routing.order.end(), of_expert.begin(), of_expert.end());
  }
  routing.first.push_back(static_cast<std::int64_t>(routing.order.size()));
  return routing;
}

/// What all positions have is computed expert by expert, on the rows of its entries.
class Experts : public Module {
 public:
  Experts(const TransformerBlockOperation& operation, const TensorRank& rank)
      : rank_(rank),
        hidden_(operation.hidden),
        count_(operation.experts->count),
        per_token_(operation.experts->per_token),
        width_(operation.feed_forward / rank.ranks),
        expanded_(expanded_width_of(operation) / rank.ranks),
        activation_(operation.activation == FeedForwardKind::SwiGlu ? make_swiglu() : make_gelu()) {
    const std::int64_t whole = operation.feed_forward;
    const auto spread = [](std::int64_t inputs) {
      return Initial{Initial::Kind::Normal,
                     static_cast<float>(1 / std::sqrt(static_cast<double>(inputs)))};
    };
    parameters_ = {
        {"router.weight", {hidden_, count_}, spread(hidden_)},
        {"experts.expand", {count_, hidden_, expanded_width_of(operation)}, spread(hidden_)},
        {"experts.reduce", {count_, whole, hidden_}, spread(whole)}};
    if (rank.ranks == 1) return;
    const ParameterPart::Range own = part_of_rank(whole, rank);
    std::vector<ParameterPart::Range> columns{own};
    if (expanded_ > width_) columns.push_back({whole + own.begin, whole + own.end});
    parameters_[1].part = {.whole = parameters_[1].shape, .dimension = 2, .ranges = columns};
    parameters_[1].shape[2] = expanded_;
    parameters_[2].part = {.whole = parameters_[2].shape, .dimension = 1, .ranges = {own}};
    parameters_[2].shape[1] = width_;
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  Shape output_shape(const Shape& sample) const override {
    check_last_dimension(sample, hidden_);
    return sample;
  }

  /// The stash has the rank's input, the scores, what the activation keeps, and its output.
  Tensor forward(Parameters parameters, Tensor input, const Tensor&, Stash& stash) const override {
    const Tensor gathered = all_positions(input);
    const Tensor& x = divides_sequences() ? gathered : input;
    Tensor scores = scores_of(x, parameters[0]);
    const Routing routing = routing_of(scores, count_, per_token_);
    Tensor expanded = zeros({entries_of(routing), expanded_});
    const Tensor rows = rows_of_entries(x, routing);
    for_each_expert(routing, [&](std::int64_t expert) {
      add_product(plain(of_expert(rows, hidden_, routing, expert)),
                  plain(weights(parameters[1], expert, hidden_, expanded_)),
                  of_expert(expanded, expanded_, routing, expert));
    });
    Tensor activated =
        activation_->forward({}, std::move(expanded), {}, stash.parts.emplace_back());
    Tensor reduced = zeros({entries_of(routing), hidden_});
    for_each_expert(routing, [&](std::int64_t expert) {
      add_product(plain(of_expert(activated, width_, routing, expert)),
                  plain(weights(parameters[2], expert, width_, hidden_)),
                  of_expert(reduced, hidden_, routing, expert));
    });
    scale_entries(routing, reduced);
    Tensor output = zeros(x.shape);
    add_to_positions(reduced, routing, output);
    stash.tensors.push_back(std::move(input));
    stash.tensors.push_back(std::move(scores));
    stash.tensors.push_back(std::move(activated));
    return sum_of_ranks(std::move(output));
  }

  /// A position's output is the sum of share times reduced; the gradient of a share is the product
  /// of the output's gradient with what the expert returns, here taken before the last linear
  /// layer.
  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    const Tensor slope =
        divides_sequences() ? all_positions(output_gradient) : std::move(output_gradient);
    const Tensor& activated = stash.tensors[2];
    const Routing routing = routing_of(stash.tensors[1], count_, per_token_);
    Tensor of_entries = rows_of_entries(slope, routing);
    Tensor of_activated = zeros(activated.shape);
    for_each_expert(routing, [&](std::int64_t expert) {
      add_product(plain(of_expert(of_entries, hidden_, routing, expert)),
                  transposed(weights(parameters[2], expert, width_, hidden_)),
                  of_expert(of_activated, width_, routing, expert));
    });
    Tensor score_gradient = gradient_of_scores(routing, activated, of_activated);
    scale_entries(routing, of_entries);
    scale_entries(routing, of_activated);
    Tensor of_expanded =
        activation_->input_gradient({}, std::move(of_activated), stash.parts.front());
    stash.parts.clear();
    Tensor of_rows = zeros({entries_of(routing), hidden_});
    for_each_expert(routing, [&](std::int64_t expert) {
      add_product(plain(of_expert(of_expanded, expanded_, routing, expert)),
                  transposed(weights(parameters[1], expert, hidden_, expanded_)),
                  of_expert(of_rows, hidden_, routing, expert));
    });
    Tensor gradient = zeros(slope.shape);
    add_to_positions(of_rows, routing, gradient);
    if (rank_.rank == 0) {  // of all ranks, which have the same
      add_product(plain(rows_of(std::as_const(score_gradient), count_)),
                  transposed(rows_of(parameters[0], count_)), rows_of(gradient, hidden_));
    }
    stash.tensors.push_back(std::move(score_gradient));
    stash.tensors.push_back(std::move(of_expanded));
    stash.tensors.push_back(std::move(of_entries));
    return sum_of_ranks(std::move(gradient));
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    const Tensor gathered = all_positions(stash.tensors[0]);
    const Tensor& x = divides_sequences() ? gathered : stash.tensors[0];
    const Tensor& activated = stash.tensors[2];
    const Tensor& score_gradient = stash.tensors[3];
    const Tensor& of_expanded = stash.tensors[4];
    const Tensor& of_entries = stash.tensors[5];
    const Routing routing = routing_of(stash.tensors[1], count_, per_token_);
    const Tensor rows = rows_of_entries(x, routing);
    add_product(transposed(rows_of(x, hidden_)), plain(rows_of(score_gradient, count_)),
                rows_of(sums[0], count_));
    for_each_expert(routing, [&](std::int64_t expert) {
      add_product(transposed(of_expert(rows, hidden_, routing, expert)),
                  plain(of_expert(of_expanded, expanded_, routing, expert)),
                  weights(sums[1], expert, hidden_, expanded_));
      add_product(transposed(of_expert(activated, width_, routing, expert)),
                  plain(of_expert(of_entries, hidden_, routing, expert)),
                  weights(sums[2], expert, width_, hidden_));
    });
    stash.tensors.clear();
  }

 private:
  bool divides_sequences() const { return rank_.ranks > 1 && rank_.is_sequence_parallel; }
  /// Returns whole sequences of a rank's part of them; nothing where it has them.
  Tensor all_positions(const Tensor& own) const {
    return divides_sequences() ? gather_sequences(own, rank_) : Tensor{};
  }
  Tensor sum_of_ranks(Tensor partial) const {
    if (rank_.ranks == 1) return partial;
    if (divides_sequences()) return scatter_sequences(std::move(partial), rank_);
    rank_.group->all_reduce(partial.values);
    return partial;
  }

  static std::int64_t entries_of(const Routing& routing) { return routing.first.back(); }
  std::int64_t position_of(std::size_t entry) const {
    return static_cast<std::int64_t>(entry) / per_token_;
  }

  template <class Work>
  void for_each_expert(const Routing& routing, const Work& work) const {
    for (std::int64_t expert = 0; expert < count_; ++expert) {
      const auto at = static_cast<std::size_t>(expert);
      if (routing.first[at] < routing.first[at + 1]) work(expert);
    }
  }

  /// Returns the rows of an expert's entries.
  static ConstMatrix of_expert(const Tensor& rows, std::int64_t columns, const Routing& routing,
                               std::int64_t expert) {
    const auto at = static_cast<std::size_t>(expert);
    return {rows.values.data() + routing.first[at] * columns,
            routing.first[at + 1] - routing.first[at], columns};
  }
  static Matrix of_expert(Tensor& rows, std::int64_t columns, const Routing& routing,
                          std::int64_t expert) {
    const auto at = static_cast<std::size_t>(expert);
    return {rows.values.data() + routing.first[at] * columns,
            routing.first[at + 1] - routing.first[at], columns};
  }
  /// Returns the matrix of an expert.
  static ConstMatrix weights(std::span<const float> all, std::int64_t expert, std::int64_t rows,
                             std::int64_t columns) {
    return {all.data() + expert * rows * columns, rows, columns};
  }
  static Matrix weights(std::span<float> all, std::int64_t expert, std::int64_t rows,
                        std::int64_t columns) {
    return {all.data() + expert * rows * columns, rows, columns};
  }

  Tensor scores_of(const Tensor& x, std::span<const float> router) const {
    Tensor scores = zeros({static_cast<std::int64_t>(x.values.size()) / hidden_, count_});
    add_product(plain(rows_of(x, hidden_)), plain(rows_of(router, count_)),
                rows_of(scores, count_));
    return scores;
  }

  /// Returns the position's row for each entry, in the order of experts.
  Tensor rows_of_entries(const Tensor& positions, const Routing& routing) const {
    Tensor entries = zeros({entries_of(routing), hidden_});
    const ConstMatrix from = rows_of(positions, hidden_);
    Matrix to = rows_of(entries, hidden_);
    for (std::size_t i = 0; i < routing.order.size(); ++i) {
      to.row(static_cast<Eigen::Index>(i)) = from.row(position_of(routing.order[i]));
    }
    return entries;
  }

  void add_to_positions(const Tensor& entries, const Routing& routing, Tensor& positions) const {
    const ConstMatrix from = rows_of(entries, hidden_);
    Matrix to = rows_of(positions, hidden_);
    for (std::size_t i = 0; i < routing.order.size(); ++i) {
      to.row(position_of(routing.order[i])) += from.row(static_cast<Eigen::Index>(i));
    }
  }

  /// Multiplies each entry's row by its share.
  static void scale_entries(const Routing& routing, Tensor& entries) {
    Matrix rows = rows_of(entries, entries.shape.back());
    for (std::size_t i = 0; i < routing.order.size(); ++i) {
      rows.row(static_cast<Eigen::Index>(i)) *= routing.shares[routing.order[i]];
    }
  }

  /// Through the softmax over a position's experts. Only these have gradients.
  Tensor gradient_of_scores(const Routing& routing, const Tensor& activated,
                            const Tensor& of_activated) const {
    std::vector<float> of_shares(routing.shares.size());
    std::vector<std::int64_t> experts(routing.shares.size());
    const ConstMatrix values = rows_of(activated, width_);
    const ConstMatrix slopes = rows_of(of_activated, width_);
    for_each_expert(routing, [&](std::int64_t expert) {
      const auto at = static_cast<std::size_t>(expert);
      for (std::int64_t row = routing.first[at]; row < routing.first[at + 1]; ++row) {
        const std::size_t entry = routing.order[static_cast<std::size_t>(row)];
        of_shares[entry] = values.row(row).dot(slopes.row(row));
        experts[entry] = expert;
      }
    });
    if (rank_.ranks > 1) rank_.group->all_reduce(of_shares);
    const auto positions = static_cast<std::int64_t>(of_shares.size()) / per_token_;
    Tensor gradient = zeros({positions, count_});
    Matrix rows = rows_of(gradient, count_);
    for (std::int64_t position = 0; position < positions; ++position) {
      const auto begin = static_cast<std::size_t>(position * per_token_);
      const auto end = begin + static_cast<std::size_t>(per_token_);
      float mean = 0;
      for (std::size_t e = begin; e < end; ++e) mean += routing.shares[e] * of_shares[e];
      for (std::size_t e = begin; e < end; ++e) {
        rows(position, experts[e]) = routing.shares[e] * (of_shares[e] - mean);
      }
    }
    return gradient;
  }

  TensorRank rank_;
  std::int64_t hidden_;
  std::int64_t count_;
  std::int64_t per_token_;
  // The numbers of an expert between its linear layers, behind the activation and before it, as far
  // as the rank computes them.
  std::int64_t width_;
  std::int64_t expanded_;
  std::unique_ptr<Module> activation_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

std::unique_ptr<Module> make_experts(const TransformerBlockOperation& operation,
                                     const TensorRank& rank) {
  return std::make_unique<Experts>(operation, rank);
}

}  // namespace dapple::nn
