#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "../../support/module_pass.h"
#include "dapple/nn/optimizer.h"

namespace dapple::nn {
namespace {

using small::ParameterValues;
using small::Pass;

/// Floats that a forward of `samples` samples leaves behind.
std::int64_t stashed(const Operation& operation, Shape shape) {
  const auto module = make_module(operation);
  const ParameterValues parameters(*module);
  Tensor input = zeros(shape);
  shape.pop_back();
  const Pass pass = small::forward(*module, parameters, std::move(input), zeros(std::move(shape)));
  return size_of(pass.stash).count / 4;
}

}  // namespace

TEST_CASE("samples of a tensor lie together") {
  const Tensor tensor{{3, 2}, {1, 2, 3, 4, 5, 6}};
  const Tensor part = samples_of(tensor, 1, 3);
  CHECK(part.shape == Shape{2, 2});
  CHECK(part.values == std::vector<float>{3, 4, 5, 6});
  CHECK(samples_of(tensor, 2, 2).values.empty());
  CHECK(zeros({2, 3}).values == std::vector<float>(6));
  CHECK(count_of({}) == 1);
}

TEST_CASE("a linear layer multiplies and adds, and leaves the sums of its gradients") {
  const auto module = make_module(LinearOperation{.inputs = 2, .outputs = 1, .bias = true});
  ParameterValues parameters(*module);
  parameters[0][0] = 3;
  parameters[0][1] = 5;
  parameters[1][0] = 7;
  Pass pass = small::forward(*module, parameters, {{2, 2}, {1, 2, -1, 4}}, {});
  CHECK(pass.output.values == std::vector<float>{3 + 10 + 7, -3 + 20 + 7});
  small::input_gradient(*module, parameters, {{2, 1}, {10, 100}}, pass);
  CHECK(pass.input_gradient.values == std::vector<float>{30, 50, 300, 500});
  ParameterValues sums(*module);
  sums[0][0] = 1;  // of another micro-batch
  small::weight_gradient(*module, pass, sums);
  CHECK(sums[0][0] == 1 + 10 - 100);
  CHECK(sums[0][1] == 20 + 400);
  CHECK(sums[1][0] == 110);
}

TEST_CASE("the loss is that of the right answer's share, however large the scores") {
  const auto module = make_module(SoftmaxCrossEntropyOperation{.classes = 2});
  const ParameterValues none(*module);
  // Equal scores: ln 2. Scores of 1000 and 0: 0 for the first, 1000 for the second.
  const Pass pass =
      small::forward(*module, none, {{3, 2}, {4, 4, 1000, 0, 1000, 0}}, {{3}, {1, 0, 1}});
  CHECK(pass.output.values[0] == Approx(std::log(2.0)));
  CHECK(pass.output.values[1] == 0);
  CHECK(pass.output.values[2] == 1000);
  CHECK_THROWS_AS(small::forward(*module, none, {{1, 2}, {0, 0}}, {{1}, {2}}), Bug);
}

TEST_CASE("of equal numbers in a window the first gets the gradient") {
  const auto module = make_module(MaxPoolOperation{.kernel = 2, .stride = 2});
  const ParameterValues none(*module);
  Pass pass = small::forward(*module, none, {{1, 1, 2, 3}, {0, 8, 9, 8, 8, 9}}, {});
  CHECK(pass.output.values == std::vector<float>{8});  // the third column sticks out
  small::input_gradient(*module, none, {{1, 1, 1, 1}, {5}}, pass);
  CHECK(pass.input_gradient.values == std::vector<float>{0, 5, 0, 0, 0, 0});
}

TEST_CASE("a position of a causal attention does not see those behind it") {
  const auto module = make_module(AttentionOperation{.hidden = 2, .heads = 1, .causal = true});
  ParameterValues parameters(*module);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (std::size_t k = 0; k < parameters[i].size(); ++k) {
      parameters[i][k] = 0.1F * static_cast<float>(k + 1);
    }
  }
  Tensor input{{1, 3, 2}, {1, -2, 3, 4, -5, 6}};
  const Tensor before = small::forward(*module, parameters, input, {}).output;
  input.values[4] = 50;  // of the last position
  const Tensor after = small::forward(*module, parameters, input, {}).output;
  for (std::size_t i = 0; i < 4; ++i) CHECK(before.values[i] == after.values[i]);
  CHECK(before.values[4] != after.values[4]);
}

TEST_CASE("a stash holds the input where the backward needs it, and no output") {
  CHECK(stashed(LinearOperation{.inputs = 3, .outputs = 5}, {2, 4, 3}) == 2 * 4 * 3);
  CHECK(stashed(ReluOperation{}, {2, 7}) == 2 * 7);
  CHECK(stashed(FlattenOperation{}, {2, 3, 5}) == 0);
  CHECK(stashed(LayerNormOperation{.hidden = 3}, {2, 4, 3}) == 2 * 4 * (3 + 1));
  CHECK(stashed(RmsNormOperation{.hidden = 3}, {2, 4, 3}) == 2 * 4 * (3 + 1));
  CHECK(stashed(SwiGluOperation{}, {2, 4, 6}) == 2 * 4 * 6);
  CHECK(stashed(SoftmaxCrossEntropyOperation{.classes = 5}, {2, 5}) == 2 * 5);
  CHECK(stashed(EmbeddingOperation{.vocabulary = 9, .sequence = 4, .hidden = 3}, {2, 4}) == 2 * 4);
  // Per position and of hidden 4: norms 2 (4 + 1), inputs of query-key-value 4 and of the first
  // linear layer 4, queries, keys and values 12, what the heads give 4, feed-forward twice 8; and
  // 2 heads of 3 x 3 shares.
  CHECK(
      stashed(TransformerBlockOperation{.hidden = 4, .heads = 2, .feed_forward = 8, .sequence = 3},
              {1, 3, 4}) == 3 * (10 + 4 + 4 + 12 + 4 + 16) + 2 * 9);
  // With one head of keys and values for both of queries, of width 6: queries, keys and values 24,
  // what the heads give 12; gates and values of the feed-forward 16, and their products 8.
  CHECK(stashed(TransformerBlockOperation{.hidden = 4,
                                          .heads = 2,
                                          .feed_forward = 8,
                                          .sequence = 3,
                                          .form = {.kv_heads = 1, .width = 6, .rotary_base = 10},
                                          .bias = false,
                                          .norm = NormKind::RmsNorm,
                                          .activation = FeedForwardKind::SwiGlu},
                {1, 3, 4}) == 3 * (10 + 4 + 4 + 24 + 12 + 24) + 2 * 9);
}

TEST_CASE("a parameter begins as its seed and name say, wherever and whenever it is made") {
  const ParameterSpec weights{"weight", {1000, 3}, {Initial::Kind::Normal, 0.5F}};
  std::vector<float> values(3000);
  initialize(weights, "block.0.weight", 7, values);
  std::vector<float> again(3000);
  initialize(weights, "block.0.weight", 7, again);
  CHECK(values == again);
  initialize(weights, "block.1.weight", 7, again);
  CHECK(values != again);
  initialize(weights, "block.0.weight", 8, again);
  CHECK(values != again);
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += static_cast<double>(value);
    squares += static_cast<double>(value * value);
  }
  // Of 3000 numbers: the mean within 4 deviations of 0.5 / sqrt(3000), the variance within 4 of
  // 0.25 sqrt(2 / 3000).
  CHECK(std::abs(sum / 3000) < 4 * 0.0092);
  CHECK(std::abs(squares / 3000 - 0.25) < 4 * 0.0065);

  const ParameterSpec ones{"scale", {3}, {Initial::Kind::Constant, 1}};
  std::vector<float> scale(3);
  initialize(ones, "norm.scale", 7, scale);
  CHECK(scale == std::vector<float>{1, 1, 1});
}

TEST_CASE("parameters can be updated in parts, to the bit") {
  for (const OptimizerKind kind :
       {OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adam, OptimizerKind::AdamW}) {
    INFO(to_string(kind));
    const OptimizerSettings settings{.kind = kind, .weight_decay = 0.1F};
    std::vector<float> whole(37);
    std::vector<float> gradient(37);
    for (std::size_t i = 0; i < 37; ++i) {
      whole[i] = 1 / static_cast<float>(i + 1);
      gradient[i] = 0.3F - 0.1F * static_cast<float>(i % 7);
    }
    std::vector<float> parts = whole;
    const auto states = static_cast<std::size_t>(state_count(kind));
    std::vector<float> state(37 * states);
    std::vector<float> first(5 * states);
    std::vector<float> second(32 * states);
    for (std::int64_t number = 1; number <= 3; ++number) {
      update(settings, number, whole, gradient, state);
      update(settings, number, std::span(parts).first(5), std::span(gradient).first(5), first);
      update(settings, number, std::span(parts).subspan(5), std::span(gradient).subspan(5), second);
    }
    CHECK(whole == parts);
  }
}

}  // namespace dapple::nn
