#include <cmath>
#include <utility>

#include "nn/experts.h"
#include "nn/matrix.h"
#include "nn/modules.h"
#include "nn/shared_modules.h"

namespace dapple::nn {
namespace {

/// Returns rows [first[expert], first[expert + 1]).
template <class Result, class Rows>
Result rows_of_expert(Rows& rows, std::span<const std::int64_t> first, std::size_t expert) {
  const std::int64_t columns = rows.shape.back();
  return {rows.values.data() + first[expert] * columns, first[expert + 1] - first[expert], columns};
}
ConstMatrix of_expert(const Tensor& rows, std::span<const std::int64_t> first, std::size_t expert) {
  return rows_of_expert<ConstMatrix>(rows, first, expert);
}
Matrix of_expert(Tensor& rows, std::span<const std::int64_t> first, std::size_t expert) {
  return rows_of_expert<Matrix>(rows, first, expert);
}

/// Returns an expert's matrix.
ConstMatrix matrix_of(std::span<const float> all, std::size_t expert, std::int64_t rows,
                      std::int64_t columns) {
  return {all.data() + static_cast<std::int64_t>(expert) * rows * columns, rows, columns};
}
Matrix matrix_of(std::span<float> all, std::size_t expert, std::int64_t rows,
                 std::int64_t columns) {
  return {all.data() + static_cast<std::int64_t>(expert) * rows * columns, rows, columns};
}

/// Calls `work` with each expert that has rows.
template <class Work>
void for_each_expert(std::span<const std::int64_t> first, const Work& work) {
  for (std::size_t expert = 0; expert + 1 < first.size(); ++expert) {
    if (first[expert] < first[expert + 1]) work(expert);
  }
}

}  // namespace

ExpertFeedForwards::ExpertFeedForwards(std::int64_t hidden, std::int64_t width,
                                       FeedForwardKind activation)
    : hidden_(hidden),
      width_(width),
      expanded_(activation == FeedForwardKind::SwiGlu ? 2 * width : width),
      activation_(activation == FeedForwardKind::SwiGlu ? make_swiglu() : make_gelu()) {}

Tensor ExpertFeedForwards::forward(const Weights& weights, const Tensor& rows,
                                   std::span<const std::int64_t> first, Tensor& activated,
                                   Stash& of_activation) const {
  Tensor expanded = zeros({first.back(), expanded_});
  for_each_expert(first, [&](std::size_t expert) {
    add_product(plain(of_expert(rows, first, expert)),
                plain(matrix_of(weights.expand, expert, hidden_, expanded_)),
                of_expert(expanded, first, expert));
  });
  activated = activation_->forward({}, std::move(expanded), {}, of_activation);
  Tensor output = zeros({first.back(), hidden_});
  for_each_expert(first, [&](std::size_t expert) {
    add_product(plain(of_expert(std::as_const(activated), first, expert)),
                plain(matrix_of(weights.reduce, expert, width_, hidden_)),
                of_expert(output, first, expert));
  });
  return output;
}

/// A share's gradient is the product of the gradient with the output, here taken before the last
/// matrix, where its factors are known.
ExpertFeedForwards::Gradients ExpertFeedForwards::backward(const Weights& weights, Tensor of_output,
                                                           std::span<const float> shares,
                                                           std::span<const std::int64_t> first,
                                                           const Tensor& activated,
                                                           Stash& of_activation) const {
  Gradients gradients;
  Tensor of_activated = zeros(activated.shape);
  for_each_expert(first, [&](std::size_t expert) {
    add_product(plain(of_expert(std::as_const(of_output), first, expert)),
                transposed(matrix_of(weights.reduce, expert, width_, hidden_)),
                of_expert(of_activated, first, expert));
  });
  const ConstMatrix values = rows_of(activated, width_);
  const Matrix slopes = rows_of(of_activated, width_);
  for (Eigen::Index row = 0; row < values.rows(); ++row) {
    gradients.of_shares.push_back(values.row(row).dot(slopes.row(row)));
  }
  scale_rows(shares, of_activated);
  scale_rows(shares, of_output);
  gradients.of_output = std::move(of_output);
  gradients.of_expanded = activation_->input_gradient({}, std::move(of_activated), of_activation);
  activation_->weight_gradient(of_activation, {});
  gradients.of_rows = zeros({first.back(), hidden_});
  for_each_expert(first, [&](std::size_t expert) {
    add_product(plain(of_expert(std::as_const(gradients.of_expanded), first, expert)),
                transposed(matrix_of(weights.expand, expert, hidden_, expanded_)),
                of_expert(gradients.of_rows, first, expert));
  });
  return gradients;
}

void ExpertFeedForwards::add_weight_gradients(const Tensor& rows, const Tensor& activated,
                                              const Tensor& of_expanded, const Tensor& of_output,
                                              std::span<const std::int64_t> first,
                                              std::span<float> expand,
                                              std::span<float> reduce) const {
  for_each_expert(first, [&](std::size_t expert) {
    add_product(transposed(of_expert(rows, first, expert)),
                plain(of_expert(of_expanded, first, expert)),
                matrix_of(expand, expert, hidden_, expanded_));
    add_product(transposed(of_expert(activated, first, expert)),
                plain(of_expert(of_output, first, expert)),
                matrix_of(reduce, expert, width_, hidden_));
  });
}

std::vector<ParameterSpec> expert_parameters(const TransformerBlockOperation& operation) {
  const std::int64_t count = operation.experts->count;
  const std::int64_t hidden = operation.hidden;
  const std::int64_t width = operation.feed_forward;
  const auto spread = [](std::int64_t inputs) {
    return Initial{Initial::Kind::Normal,
                   static_cast<float>(1 / std::sqrt(static_cast<double>(inputs)))};
  };
  return {{"router.weight", {hidden, count}, spread(hidden)},
          {"experts.expand", {count, hidden, expanded_width_of(operation)}, spread(hidden)},
          {"experts.reduce", {count, width, hidden}, spread(width)}};
}

void divide_experts(const TransformerBlockOperation& operation, const TensorRank& rank,
                    std::vector<ParameterSpec>& parameters) {
  const std::int64_t whole = operation.feed_forward;
  const ParameterPart::Range own = part_of_rank(whole, rank);
  std::vector<ParameterPart::Range> columns{own};
  if (operation.activation == FeedForwardKind::SwiGlu) {
    columns.push_back({whole + own.begin, whole + own.end});
  }
  const std::int64_t width = own.end - own.begin;
  ParameterSpec& expand = parameters[1];
  ParameterSpec& reduce = parameters[2];
  expand.part = {.whole = expand.shape, .dimension = 2, .ranges = columns};
  expand.shape[2] = width * static_cast<std::int64_t>(columns.size());
  reduce.part = {.whole = reduce.shape, .dimension = 1, .ranges = {own}};
  reduce.shape[1] = width;
}

}  // namespace dapple::nn
