#include "dapple/nn/model.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "dapple/core/error.h"

namespace dapple::nn {
namespace {

struct GivenLayer {
  Operation operation;
  std::int64_t parameter_bytes = 0;
};

/// What is said of a model of these layers, named "0", "1", ...
std::string refusal_of(const std::vector<GivenLayer>& layers) {
  ModelProfile profile;
  std::vector<Operation> operations;
  for (const GivenLayer& given : layers) {
    Layer& layer = profile.layers.emplace_back();
    layer.name = std::to_string(operations.size());
    layer.parameters = Bytes{given.parameter_bytes};
    operations.push_back(given.operation);
  }
  try {
    make_model(profile, operations, "m.json");
  } catch (const Error& error) { return error.what(); }
  return "";
}

constexpr std::int64_t kFloat = 4;
const GivenLayer kLinear{LinearOperation{3, 2, true}, kFloat*(3 * 2 + 2)};
const GivenLayer kLoss{SoftmaxCrossEntropyOperation{2}, 0};

}  // namespace

TEST_CASE("layers that do not fit each other are named") {
  CHECK(refusal_of({kLinear, kLoss}).empty());
  CHECK(refusal_of({kLinear, {ReluOperation{}, 0}, kLinear, kLoss}) ==
        "m.json: layer 2/op: expected an input whose last dimension is 3, got [2]");
  CHECK(refusal_of({{LinearOperation{3, 2, false}, 32}, kLoss}) ==
        "m.json: layer 0/parameter_bytes: expected 24, 4 for each parameter of its op, got 32");
  CHECK(refusal_of({{ReluOperation{}, 0}, kLoss}) ==
        "m.json: layer 0/op: expected a first layer that says what it takes, such as an embedding");
  CHECK(refusal_of({kLinear}) ==
        "m.json: layer 0/op: expected a loss as the last layer and nowhere else");
  CHECK(refusal_of({kLoss, kLoss}) ==
        "m.json: layer 0/op: expected a loss as the last layer and nowhere else\n"
        "m.json: layer 1/op: expected an input whose last dimension is 2, got []");
  CHECK(refusal_of({{EmbeddingOperation{5, 4, 3}, kFloat * (5 + 4) * 3},
                    {ConvolutionOperation{3, 1, 4, 4, 1, 1, 0}, kFloat * 4},
                    kLoss}) == "m.json: layer 1/op: expected an input of [3, 4, 4], got [4, 3]");
  CHECK(refusal_of({{LinearOperation{3, 2, true}, 32}, {MaxPoolOperation{2, 2}, 0}, kLoss}) ==
        "m.json: layer 1/op: expected an input of [channels, height, width] with sides of at least "
        "2, got [2]");
  const TransformerBlockOperation block{4, 2, 8, 6, false};
  // 12 h^2 + 13 h with the feed-forward 4 h; here it is 2 h: 4 h^2 + 4 h^2 + 11 h.
  CHECK(refusal_of({{EmbeddingOperation{5, 7, 4}, kFloat * 12 * 4},
                    {block, kFloat * (8 * 16 + 11 * 4)},
                    kLoss}) == "m.json: layer 1/op: expected an input of [6, 4], got [7, 4]");
  CHECK(refusal_of({{LinearOperation{3, 5, false}, kFloat * 15}, {SwiGluOperation{}, 0}, kLoss}) ==
        "m.json: layer 1/op: expected an input whose last dimension is even, got [5]");
}

TEST_CASE("a layer is tied to one whose parameters can be its first") {
  const auto model_tied = [](const Operation& first, const Operation& last, Bytes own) {
    ModelProfile profile;
    profile.layers.resize(3);
    const std::vector<Operation> operations{first, last, SoftmaxCrossEntropyOperation{5}};
    for (std::size_t i = 0; i < 3; ++i) {
      profile.layers[i].name = std::to_string(i);
      profile.layers[i].parameters = {4 *
                                      parameter_count(make_module(operations[i])->parameters())};
    }
    profile.layers[1].parameters = own;
    profile.ties = {{{0}, {{1}}}};
    try {
      const std::vector<ModelLayer> model = make_model(profile, operations, "m.json");
      return std::to_string(model[1].tied_to.value()) + ", " +
             std::to_string(model[1].tied_parameters) + " of " +
             std::to_string(model[1].module->parameters().size());
    } catch (const Error& error) { return std::string(error.what()); }
  };
  const EmbeddingOperation tokens{5, 7, 4, false};
  CHECK(model_tied(tokens, LinearOperation{4, 5, true, true}, {20}) == "0, 1 of 2");
  CHECK(model_tied(tokens, LinearOperation{4, 5, true, true}, {100}) ==
        "m.json: layer 1/parameter_bytes: expected 20, 4 for each parameter of its op that is its "
        "own, got 100");
  CHECK(model_tied(tokens, LinearOperation{4, 5, false, false}, {80}) ==
        "m.json: layer 1/tied_to: expected a layer whose parameters are shaped as this one's "
        "first, [4, 5], got \"0\" with [5, 4]");
  CHECK(model_tied(EmbeddingOperation{5, 7, 4, true}, LinearOperation{4, 5, false, true}, {80}) ==
        "m.json: layer 1/tied_to: expected a layer whose parameters are shaped as this one's "
        "first, [5, 4], got \"0\" with [5, 4], [7, 4]");
}

}  // namespace dapple::nn
