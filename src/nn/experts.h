// What mixtures of experts consist of, whole or shared by ranks: which experts each position has,
// and the feed-forwards of some experts, each on rows of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dapple/nn/module.h"
#include "dapple/nn/shared_layers.h"

namespace dapple::nn {

/// Which experts each position has. An entry is a position and one of its experts; entry e is of
/// position e / (experts of each).
struct Routing {
  std::int64_t per_token = 1;
  /// By entry: the expert's share of the position's output.
  std::vector<float> shares;
  /// The entries, those of one expert after those of another, in the order of positions.
  std::vector<std::size_t> order;
  /// By expert: where its entries begin in `order`; at last the number of all.
  std::vector<std::int64_t> first;

  std::int64_t entries() const { return first.back(); }
  std::int64_t position_of(std::size_t entry) const {
    return static_cast<std::int64_t>(entry) / per_token;
  }
};

/// Returns the scores of all experts for each row of `x`.
Tensor expert_scores(const Tensor& x, std::int64_t hidden, std::span<const float> router,
                     std::int64_t experts);

/// Adds to the gradient of each row what it gets from that of its scores.
void add_gradient_of_rows(const Tensor& of_scores, std::span<const float> router, Tensor& gradient);
/// Adds to the gradient of the router what it gets from that of the scores for each row of `x`.
void add_gradient_of_router(const Tensor& x, const Tensor& of_scores, std::span<float> gradient);

/// Returns the routing by scores, [positions, experts].
Routing routing_of(const Tensor& scores, std::int64_t experts, std::int64_t per_token);

/// Returns the position's row for each entry, in the order of experts.
Tensor rows_of_entries(const Tensor& positions, std::int64_t hidden, const Routing& routing);
/// Adds each entry's row, in that order, to that of its position.
void add_to_positions(const Tensor& entries, const Routing& routing, Tensor& positions);
/// Returns the shares in the order of experts.
std::vector<float> ordered_shares(const Routing& routing);
/// Multiplies each row by its factor.
void scale_rows(std::span<const float> factors, Tensor& rows);

/// Returns the gradient of the scores, given that of the shares in the order of experts. Only those
/// of a position's experts have one, through the softmax over them.
Tensor gradient_of_scores(const Routing& routing, std::int64_t experts,
                          std::span<const float> of_shares);

/// The feed-forwards of some experts, as far as a rank computes each of them. `first` says where
/// each expert's rows begin, and at last how many there are.
class ExpertFeedForwards {
 public:
  /// `width` numbers of each expert are behind its activation.
  ExpertFeedForwards(std::int64_t hidden, std::int64_t width, FeedForwardKind activation);

  std::int64_t width() const { return width_; }
  /// The numbers before the activation.
  std::int64_t expanded() const { return expanded_; }

  struct Weights {
    std::span<const float> expand;  // [experts, hidden, expanded]
    std::span<const float> reduce;  // [experts, width, hidden]

    /// `parameters` are those of expert_parameters(), in their order.
    static Weights of(Parameters parameters) { return {parameters[1], parameters[2]}; }
  };
  struct Gradients {
    Tensor of_rows;
    /// The gradients of the factors that the rows' outputs are multiplied by.
    std::vector<float> of_shares;
    /// What add_weight_gradients() needs.
    Tensor of_expanded;
    Tensor of_output;
  };

  /// Returns the output for each row, and the activation's output, which the backward needs.
  Tensor forward(const Weights& weights, const Tensor& rows, std::span<const std::int64_t> first,
                 Tensor& activated, Stash& of_activation) const;
  /// Returns the gradients, given that of each row's output times its share.
  Gradients backward(const Weights& weights, Tensor of_output, std::span<const float> shares,
                     std::span<const std::int64_t> first, const Tensor& activated,
                     Stash& of_activation) const;
  void add_weight_gradients(const Tensor& rows, const Tensor& activated, const Tensor& of_expanded,
                            const Tensor& of_output, std::span<const std::int64_t> first,
                            std::span<float> expand, std::span<float> reduce) const;

 private:
  std::int64_t hidden_;
  std::int64_t width_;
  std::int64_t expanded_;
  std::shared_ptr<const Module> activation_;
};

/// Returns the parameters of a mixture of experts: the router's, and the weights of all experts.
std::vector<ParameterSpec> expert_parameters(const TransformerBlockOperation& operation);

/// Leaves of the weights of all experts what a rank has of each of them: an equal part of the
/// activation's output, and what this is computed from. Requires: there are several ranks, which
/// divide the width of the feed-forward.
void divide_experts(const TransformerBlockOperation& operation, const TensorRank& rank,
                    std::vector<ParameterSpec>& parameters);

}  // namespace dapple::nn
