#include <fmt/format.h>

#include <utility>

#include "dapple/core/error.h"
#include "nn/matrix.h"
#include "nn/modules.h"

namespace dapple::nn {
namespace {

// The initial distribution of embeddings in GPT-2 and BERT.
constexpr Initial kSmall{Initial::Kind::Normal, 0.02F};

class TokenEmbedding : public Module {
 public:
  explicit TokenEmbedding(const EmbeddingOperation& operation) : operation_(operation) {
    parameters_.push_back({"token", {operation.vocabulary, operation.hidden}, kSmall});
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  Shape output_shape(const Shape& sample) const override {
    if (sample != Shape{operation_.sequence}) {
      refuse_shape(fmt::format("an input of [{}] tokens", operation_.sequence), sample);
    }
    return {operation_.sequence, operation_.hidden};
  }

  Tensor forward(Parameters parameters, Tensor input, const Tensor&, Stash& stash) const override {
    const ConstMatrix tokens = rows_of(parameters[0], operation_.hidden);
    Tensor output = zeros({input.samples(), operation_.sequence, operation_.hidden});
    Matrix rows = rows_of(output, operation_.hidden);
    for (Eigen::Index row = 0; row < rows.rows(); ++row) {
      rows.row(row) = tokens.row(token_at(input, row));
    }
    stash.tensors.push_back(std::move(input));
    return output;
  }

  Tensor input_gradient(Parameters, Tensor output_gradient, Stash& stash) const override {
    stash.tensors.push_back(std::move(output_gradient));
    return {};
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    const ConstMatrix gradient = rows_of(std::as_const(stash.tensors[1]), operation_.hidden);
    Matrix tokens = rows_of(sums[0], operation_.hidden);
    for (Eigen::Index row = 0; row < gradient.rows(); ++row) {
      tokens.row(token_at(stash.tensors[0], row)) += gradient.row(row);
    }
    stash.tensors.clear();
  }

 private:
  std::int64_t token_at(const Tensor& input, Eigen::Index row) const {
    const auto token = static_cast<std::int64_t>(input.values[static_cast<std::size_t>(row)]);
    check(token >= 0 && token < operation_.vocabulary, "a token is not in the vocabulary");
    return token;
  }

  EmbeddingOperation operation_;
  std::vector<ParameterSpec> parameters_;
};

class PositionEmbedding : public Module {
 public:
  explicit PositionEmbedding(const PositionEmbeddingOperation& operation) : operation_(operation) {
    parameters_.push_back({"position", {operation.sequence, operation.hidden}, kSmall});
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  Shape output_shape(const Shape& sample) const override {
    const Shape expected{operation_.sequence, operation_.hidden};
    if (sample != expected)
      refuse_shape(fmt::format("an input of {}", to_string(expected)), sample);
    return sample;
  }

  Tensor forward(Parameters parameters, Tensor input, const Tensor&, Stash&) const override {
    const ConstMatrix positions = rows_of(parameters[0], operation_.hidden);
    Matrix rows = rows_of(input, operation_.hidden);
    for (Eigen::Index row = 0; row < rows.rows(); ++row) {
      rows.row(row) += positions.row(row % operation_.sequence);
    }
    return input;
  }

  Tensor input_gradient(Parameters, Tensor output_gradient, Stash& stash) const override {
    stash.tensors.push_back(output_gradient);
    return output_gradient;
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    const ConstMatrix gradient = rows_of(std::as_const(stash.tensors[0]), operation_.hidden);
    Matrix positions = rows_of(sums[0], operation_.hidden);
    for (Eigen::Index row = 0; row < gradient.rows(); ++row) {
      positions.row(row % operation_.sequence) += gradient.row(row);
    }
    stash.tensors.clear();
  }

 private:
  PositionEmbeddingOperation operation_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

std::unique_ptr<Module> make_embedding(const EmbeddingOperation& operation) {
  auto tokens = std::make_unique<TokenEmbedding>(operation);
  if (!operation.positions) return tokens;
  std::vector<Part> parts;
  parts.push_back({"", std::move(tokens)});
  parts.push_back({"", make_position_embedding({operation.sequence, operation.hidden})});
  return make_chain(std::move(parts));
}

std::unique_ptr<Module> make_position_embedding(const PositionEmbeddingOperation& operation) {
  return std::make_unique<PositionEmbedding>(operation);
}

}  // namespace dapple::nn
