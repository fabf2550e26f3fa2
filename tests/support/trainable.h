// Small models that can be trained, on small clusters, for tests of the executor.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dapple/exec/train/training_job.h"
#include "dapple/nn/module.h"
#include "dapple/profile/operation.h"
#include "dice.h"
#include "pipeline.h"

namespace dapple::small {

struct Trainable {
  ModelProfile profile;
  std::shared_ptr<const std::vector<nn::ModelLayer>> layers;
  std::shared_ptr<const exec::Batches> batches;
};

/// Numbers that depend on nothing but those of iteration and sample: whole ones below `most`, or
/// some around zero.
inline nn::Tensor numbers_of(std::int64_t iteration, SampleRange samples, nn::Shape sample,
                             std::int64_t most) {
  const std::int64_t each = nn::count_of(sample);
  sample.insert(sample.begin(), samples.size());
  nn::Tensor tensor = nn::zeros(sample);
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    Dice dice(static_cast<std::uint64_t>(1'000 * iteration + samples.begin + i + most));
    for (std::int64_t k = 0; k < each; ++k) {
      const std::int64_t number = most > 0 ? dice.roll(0, most - 1) : dice.roll(-1'000, 1'000);
      tensor.values[static_cast<std::size_t>(i * each + k)] =
          static_cast<float>(number) / (most > 0 ? 1.0F : 1'000.0F);
    }
  }
  return tensor;
}

/// What a module keeps of one sample between forward and backward.
inline Bytes stash_of(const nn::ModelLayer& layer, nn::Tensor input, const nn::Tensor& targets) {
  std::vector<std::vector<float>> values;
  for (const nn::ParameterSpec& parameter : layer.module->parameters()) {
    values.emplace_back(static_cast<std::size_t>(nn::count_of(parameter.shape)), 0.0F);
  }
  const std::vector<std::span<const float>> views(values.begin(), values.end());
  nn::Stash stash;
  layer.module->forward(views, std::move(input), targets, stash);
  return nn::size_of(stash);
}

/// The operations one after another, the last a loss over `classes` at each of `positions`. The
/// first takes samples of `input`; whole numbers below `tokens` if there are any. Times are random.
struct TrainableShape {
  std::vector<Operation> operations;
  nn::Shape input;
  std::int64_t tokens = 0;
  std::int64_t classes = 2;
  nn::Shape positions = {};
  bool is_tied = false;  // the last layer but the loss to the first
};

/// The shape's samples: any numbers, with any right answers.
class AnyBatches : public exec::Batches {
 public:
  explicit AnyBatches(TrainableShape shape) : shape_(std::move(shape)) {}
  nn::Tensor inputs(std::int64_t iteration, std::int64_t begin, std::int64_t end) const override {
    return numbers_of(iteration, {begin, end}, shape_.input, shape_.tokens);
  }
  nn::Tensor targets(std::int64_t iteration, std::int64_t begin, std::int64_t end) const override {
    return numbers_of(iteration, {begin, end}, shape_.positions, shape_.classes);
  }

 private:
  TrainableShape shape_;
};

inline Trainable trainable(const TrainableShape& shape, Dice& dice) {
  std::vector<nn::ModelLayer> layers;
  std::vector<LayerFigures> figures;
  nn::Shape input = shape.input;
  const AnyBatches batches(shape);
  for (const Operation& operation : shape.operations) {
    nn::ModelLayer& layer = layers.emplace_back();
    layer.name = "layer" + std::to_string(figures.size());
    layer.operation = operation;
    layer.module = nn::make_module(operation);
    layer.input = input;
    layer.output = layer.module->output_shape(input);
    if (shape.is_tied && layers.size() + 1 == shape.operations.size()) {
      layer.tied_to = 0;
      layer.tied_parameters = layers.front().module->parameters().size();
    }
    input = layer.output;
    nn::Shape one = layer.input;
    one.insert(one.begin(), 1);
    figures.push_back(
        {.forward = dice.roll(1, 20),
         .backward = dice.roll(2, 40),
         .output = 4 * nn::count_of(layer.output),
         .parameters = 4 * nn::parameter_count(layer.own_parameters()),
         .stash = stash_of(layer, nn::zeros(one), batches.samples(0, 0, 1).targets).count});
  }
  ModelProfile profile = model_of(figures);
  if (shape.is_tied) {
    profile.ties.push_back({{0}, {index_at<LayerIndex>(shape.operations.size() - 2)}});
  }
  return {.profile = std::move(profile),
          .layers = std::make_shared<const std::vector<nn::ModelLayer>>(std::move(layers)),
          .batches = std::make_shared<const AnyBatches>(shape)};
}

/// Linear layers with activations and norms between them.
inline Trainable random_perceptron(Dice& dice) {
  TrainableShape shape{.operations = {}, .input = {dice.roll(2, 6)}, .classes = dice.roll(2, 5)};
  std::int64_t width = shape.input.front();
  for (std::int64_t left = dice.roll(1, 4); left > 0; --left) {
    const std::int64_t next = dice.roll(2, 9);
    shape.operations.emplace_back(
        LinearOperation{.inputs = width, .outputs = next, .bias = dice.chance(70)});
    width = next;
    if (width > 3 && dice.chance(40))
      shape.operations.emplace_back(LayerNormOperation{.hidden = width});
    if (dice.chance(50)) {
      shape.operations.emplace_back(ReluOperation{});
    } else {
      shape.operations.emplace_back(GeluOperation{});
    }
  }
  shape.operations.emplace_back(LinearOperation{.inputs = width, .outputs = shape.classes});
  shape.operations.emplace_back(SoftmaxCrossEntropyOperation{.classes = shape.classes});
  return trainable(shape, dice);
}

inline void to_llama(TransformerBlockOperation& block) {
  block.form = {.kv_heads = 1, .width = 4, .rotary_base = 100};
  block.bias = false;
  block.norm = NormKind::RmsNorm;
  block.activation = FeedForwardKind::SwiGlu;
}

/// GPT-2 with little of everything, or Llama.
inline Trainable random_transformer(Dice& dice) {
  const std::int64_t heads = dice.roll(1, 2);
  const std::int64_t hidden = heads * dice.roll(4, 6);  // a norm of two numbers knows but one
  const std::int64_t sequence = dice.roll(2, 5);
  const std::int64_t vocabulary = dice.roll(3, 9);
  const bool is_tied = dice.chance(50);
  TrainableShape shape{.operations = {EmbeddingOperation{vocabulary, sequence, hidden, !is_tied}},
                       .input = {sequence},
                       .tokens = vocabulary,
                       .classes = vocabulary,
                       .positions = {sequence},
                       .is_tied = is_tied};
  if (is_tied) shape.operations.emplace_back(PositionEmbeddingOperation{sequence, hidden});
  const bool is_llama = (sequence + vocabulary) % 2 == 0;
  for (std::int64_t left = dice.roll(1, 4); left > 0; --left) {
    TransformerBlockOperation block{.hidden = hidden,
                                    .heads = heads,
                                    .feed_forward = 2 * hidden,
                                    .sequence = sequence,
                                    .causal = dice.chance(70)};
    if (is_llama) to_llama(block);
    shape.operations.emplace_back(block);
  }
  if (is_llama) {
    shape.operations.emplace_back(RmsNormOperation{.hidden = hidden});
  } else {
    shape.operations.emplace_back(LayerNormOperation{.hidden = hidden});
  }
  shape.operations.emplace_back(LinearOperation{hidden, vocabulary, false, is_tied});
  shape.operations.emplace_back(SoftmaxCrossEntropyOperation{.classes = vocabulary});
  return trainable(shape, dice);
}

/// Convolutions with pooling, then a linear layer.
inline Trainable random_convolutions(Dice& dice) {
  const std::int64_t size = 4;
  const std::int64_t channels = dice.roll(1, 2);
  const std::int64_t wide = dice.roll(1, 3);
  const std::int64_t classes = dice.roll(2, 4);
  const TrainableShape shape{
      .operations = {ConvolutionOperation{.in_channels = channels,
                                          .out_channels = wide,
                                          .height = size,
                                          .width = size,
                                          .kernel = 3,
                                          .padding = 1},
                     ReluOperation{}, MaxPoolOperation{.kernel = 2, .stride = 2},
                     FlattenOperation{}, LinearOperation{wide * size * size / 4, classes},
                     SoftmaxCrossEntropyOperation{.classes = classes}},
      .input = {channels, size, size},
      .classes = classes};
  return trainable(shape, dice);
}

inline Trainable random_trainable(Dice& dice) {
  switch (dice.roll(0, 2)) {
    case 0:
      return random_perceptron(dice);
    case 1:
      return random_transformer(dice);
    default:
      return random_convolutions(dice);
  }
}

}  // namespace dapple::small
