#include "dapple/nn/shared_layers.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dapple/core/error.h"

namespace dapple::nn {
namespace {

ModelLayer layer_of(std::string name, const Operation& operation, Shape input) {
  ModelLayer layer{.name = std::move(name),
                   .operation = operation,
                   .module = make_module(operation),
                   .input = std::move(input),
                   .output = {}};
  layer.output = layer.module->output_shape(layer.input);
  return layer;
}

/// Tokens, a block and a loss; six heads of two numbers, of which keys and values have three.
std::vector<ModelLayer> small_model() {
  std::vector<ModelLayer> layers;
  layers.push_back(layer_of("tokens", EmbeddingOperation{7, 4, 12, true}, {4}));
  layers.push_back(layer_of(
      "block",
      TransformerBlockOperation{
          .hidden = 12, .heads = 6, .feed_forward = 6, .sequence = 4, .form = {.kv_heads = 3}},
      {4, 12}));
  layers.push_back(layer_of("head", LinearOperation{12, 7, false, true}, {4, 12}));
  layers.push_back(layer_of("loss", SoftmaxCrossEntropyOperation{7}, {4, 7}));
  return layers;
}

std::string refusal_of(const std::vector<ModelLayer>& whole, const LayerRank& rank) {
  try {
    share_model(whole, rank, "model");
  } catch (const Error& error) {
    return error.violations().front().place + ": " + error.violations().front().message;
  }
  return "";
}

}  // namespace

TEST_CASE("a part has some columns of each row, and zeros behind the last one") {
  const ParameterPart part{.whole = {2, 5}, .dimension = 1, .ranges = {{1, 2}, {4, 6}}};
  const std::vector<float> whole{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<float> values(6, -1);
  take_part(part, whole, values);
  CHECK(values == std::vector<float>{1, 4, 0, 6, 9, 0});
  std::vector<float> back(10);
  put_part(part, {{10, 40, 50, 60, 90, 50}}, back);
  CHECK(back == std::vector<float>{0, 10, 0, 0, 40, 0, 60, 0, 0, 90});
  const ParameterPart rows{.whole = {3, 2}, .dimension = 0, .ranges = {{2, 4}}};
  std::vector<float> last(4, -1);
  take_part(rows, {{0, 1, 2, 3, 4, 5}}, last);
  CHECK(last == std::vector<float>{4, 5, 0, 0});
}

TEST_CASE("a part of some of a parameter's matrices has some columns of each") {
  ParameterPart part{.whole = {3, 2, 2}, .dimension = 2, .ranges = {{1, 2}}, .of_first = {{1, 3}}};
  const std::vector<float> whole{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::vector<float> values(4, -1);
  take_part(part, whole, values);
  CHECK(values == std::vector<float>{5, 7, 9, 11});
  std::vector<float> back(12);
  put_part(part, {{50, 70, 90, 110}}, back);
  CHECK(back == std::vector<float>{0, 0, 0, 0, 0, 50, 0, 70, 0, 90, 0, 110});
  part = {.whole = {3, 2, 2}, .dimension = 1, .ranges = {{0, 1}}, .of_first = {{2, 3}}};
  values.assign(2, -1);
  take_part(part, whole, values);
  CHECK(values == std::vector<float>{8, 9});
}

TEST_CASE("a rank holds its heads, its columns and its words, with the names of the whole layer") {
  const std::vector<ModelLayer> whole = small_model();
  const std::vector<ModelLayer> shared =
      share_model(whole, {.tensor = {.rank = 2, .ranks = 3}}, "model");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const std::vector<ParameterSpec>& all = whole[i].module->parameters();
    const std::vector<ParameterSpec>& own = shared[i].module->parameters();
    REQUIRE(own.size() == all.size());
    for (std::size_t p = 0; p < all.size(); ++p) {
      CHECK(own[p].name == all[p].name);
      CHECK(own[p].whole_shape() == all[p].shape);
    }
  }
  // Two heads of queries, and one each of keys and values, of 12 and 6 columns.
  const ParameterSpec& qkv = shared[1].module->parameters()[2];
  CHECK(qkv.shape == Shape{12, 8});
  REQUIRE(qkv.part->ranges.size() == 3);
  CHECK(qkv.part->ranges[0].begin == 8);
  CHECK(qkv.part->ranges[1].begin == 16);
  CHECK(qkv.part->ranges[2].end == 24);
  // Seven words for three ranks: the last one has one, and two rows that no word has.
  CHECK(shared[0].module->parameters()[0].shape == Shape{3, 12});
  CHECK(shared[2].output == Shape{4, 3});
  CHECK_FALSE(shared[0].module->parameters()[1].part);
}

TEST_CASE("with sequence parallelism a rank passes on its part of each sequence") {
  const LayerRank rank{.tensor = {.rank = 1, .ranks = 2, .is_sequence_parallel = true}};
  std::vector<ModelLayer> whole = small_model();
  CHECK(refusal_of(whole, rank) ==
        "layer block/op: expected a multiple of 2 heads of keys and values, got 3, in a model that "
        "2 tensor-parallel ranks share");
  whole[1] = layer_of(
      "block",
      TransformerBlockOperation{.hidden = 12, .heads = 6, .feed_forward = 6, .sequence = 4},
      {4, 12});
  const std::vector<ModelLayer> shared = share_model(whole, rank, "model");
  CHECK(shared[0].output == Shape{2, 12});
  CHECK(shared[1].output == Shape{2, 12});
  CHECK(shared[2].output == Shape{4, 4});
  // Norms, biases behind rows, and positions are whole, and their gradients are sums.
  int summed = 0;
  for (const ModelLayer& layer : shared) {
    for (const ParameterSpec& parameter : layer.module->parameters()) {
      CHECK(parameter.is_summed_over_ranks == !parameter.part.has_value());
      summed += parameter.is_summed_over_ranks;
    }
  }
  CHECK(summed == 1 + 4 + 2);
}

TEST_CASE("what ranks cannot share is refused, and the layer is named") {
  std::vector<ModelLayer> whole = small_model();
  CHECK(refusal_of(whole, {.tensor = {.ranks = 4}})
            .starts_with("layer block/op: expected a multiple of 4 heads"));
  CHECK(refusal_of(whole, {.tensor = {.ranks = 3, .is_sequence_parallel = true}})
            .starts_with("layer tokens/op: expected a multiple of 3 positions, got 4"));
  std::vector<ModelLayer> lonely;
  lonely.push_back(layer_of("loss", SoftmaxCrossEntropyOperation{7}, {7}));
  CHECK(refusal_of(lonely, {.tensor = {.ranks = 3}})
            .starts_with("layer loss/op: expected a loss only behind a linear layer"));
  std::vector<ModelLayer> image;
  image.push_back(layer_of("image", FlattenOperation{}, {2, 2}));
  CHECK(refusal_of(image, {.tensor = {.ranks = 2}})
            .starts_with("layer image/op: expected no layer of images"));
  CHECK(refusal_of(image, {.tensor = {.ranks = 2, .is_sequence_parallel = true}})
            .starts_with("layer image/op: expected an embedding as the first layer"));
  std::vector<ModelLayer> blocks;
  blocks.push_back(layer_of(
      "block", TransformerBlockOperation{.hidden = 4, .heads = 2, .feed_forward = 3, .sequence = 4},
      {4, 4}));
  CHECK(refusal_of(blocks, {.tensor = {.ranks = 2}})
            .starts_with("layer block/op: expected a multiple of 2 columns of the feed-forward"));
}

TEST_CASE("a rank has some positions of an output, some columns, or what others have too") {
  using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;
  const auto positions_of = [](const OutputPart& part) {
    Pairs pairs;
    for (const OutputPart::Range& range : part.positions) {
      pairs.emplace_back(range.begin, range.end);
    }
    return pairs;
  };
  const std::vector<ModelLayer> whole = small_model();
  const ModelLayer& block = whole[1];
  const ModelLayer& head = whole[2];
  const OutputPart same = output_part(block, {.tensor = {.rank = 1, .ranks = 2}});
  CHECK(positions_of(same) == Pairs{{0, 4}});
  CHECK(same.columns.begin == 0);
  CHECK(same.columns.end == 12);
  CHECK(same.width == 12);
  CHECK(same.copy == 1);
  CHECK(same.copies == 2);
  // The first of two context-parallel ranks has the first and the last of four chunks, and the
  // second of two tensor-parallel ranks has the last of these two.
  LayerRank rank{.tensor = {.rank = 1, .ranks = 2, .is_sequence_parallel = true},
                 .context = {.rank = 0, .ranks = 2}};
  CHECK(positions_of(output_part(block, rank)) == Pairs{{3, 4}});
  CHECK(output_part(block, rank).copies == 1);
  rank.tensor.rank = 0;
  CHECK(positions_of(output_part(block, rank)) == Pairs{{0, 1}});
  rank.tensor = {};
  CHECK(positions_of(output_part(block, rank)) == Pairs{{0, 1}, {3, 4}});
  rank.context.rank = 1;
  CHECK(positions_of(output_part(block, rank)) == Pairs{{1, 3}});
  // Seven classes on three ranks are padded to nine, and on five to ten.
  const OutputPart last = output_part(head, {.tensor = {.rank = 2, .ranks = 3}});
  CHECK(last.columns.begin == 6);
  CHECK(last.columns.end == 7);
  CHECK(last.width == 3);
  CHECK(last.copies == 1);
  const OutputPart none = output_part(head, {.tensor = {.rank = 4, .ranks = 5}});
  CHECK(none.columns.begin == none.columns.end);
  CHECK(none.width == 2);
  // As many as the rank's layers really have.
  for (const LayerRank& own : {LayerRank{.tensor = {.rank = 0, .ranks = 3}},
                               LayerRank{.context = {.rank = 1, .ranks = 2}}}) {
    const std::vector<ModelLayer> shared = share_model(whole, own, "model");
    for (std::size_t i = 0; i + 1 < whole.size(); ++i) {
      const OutputPart part = output_part(whole[i], own);
      std::int64_t positions = 0;
      for (const auto& [begin, end] : positions_of(part)) positions += end - begin;
      CHECK(shared[i].output == Shape{positions, part.width});
    }
  }
}

}  // namespace dapple::nn
