// Gradients of random modules of random shapes, checked without another implementation of them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "../support/dice.h"
#include "../support/module_pass.h"
#include "../support/random_problem.h"
#include "dapple/core/random.h"
#include "dapple/nn/module.h"

using namespace dapple;
using namespace dapple::nn;
using small::Dice;
using small::ParameterValues;
using small::Pass;

namespace {

/// A module, its parameters, and a batch for it.
struct Instance {
  std::string name;
  std::unique_ptr<Module> module;
  Tensor input;
  Tensor targets;
  std::int64_t tokens = 0;  // the input is that many different ones; 0: it is numbers
};

Tensor random_tensor(Shape shape, Dice& dice) {
  Tensor tensor = zeros(std::move(shape));
  const RandomStream stream(static_cast<std::uint64_t>(dice.roll(0, 1'000'000'000)));
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    tensor.values[i] = stream.normal_pair(i).first;
  }
  return tensor;
}

Tensor random_numbers(Shape shape, std::int64_t below, Dice& dice) {
  Tensor tensor = zeros(std::move(shape));
  for (float& value : tensor.values) value = static_cast<float>(dice.roll(0, below - 1));
  return tensor;
}

Instance with_input(std::string name, const Operation& operation, Shape shape, Dice& dice) {
  return {std::move(name), make_module(operation), random_tensor(std::move(shape), dice), {}, 0};
}

Instance random_image_module(std::int64_t samples, Dice& dice) {
  const std::int64_t channels = dice.roll(1, 3);
  const std::int64_t height = dice.roll(3, 9);
  const std::int64_t width = dice.roll(3, 9);
  const std::int64_t kernel = dice.roll(1, 3);
  const std::int64_t stride = dice.roll(1, 3);
  const Shape shape{samples, channels, height, width};
  switch (dice.roll(0, 2)) {
    case 0:
      return with_input("max_pool", MaxPoolOperation{kernel, stride}, shape, dice);
    case 1:
      return with_input("flatten", FlattenOperation{}, shape, dice);
    default:
      return with_input("convolution",
                        ConvolutionOperation{channels, dice.roll(1, 4), height, width, kernel,
                                             stride, dice.roll(0, kernel - 1)},
                        shape, dice);
  }
}

Instance random_sequence_module(std::int64_t samples, Dice& dice) {
  const std::int64_t sequence = dice.roll(1, 9);
  const std::int64_t heads = dice.roll(1, 3);
  const std::int64_t hidden = heads * dice.roll(1, 5);
  const bool causal = dice.chance(50);
  const Shape shape{samples, sequence, hidden};
  switch (dice.roll(0, 5)) {
    case 0:
      return with_input("attention", AttentionOperation{hidden, heads, causal}, shape, dice);
    case 1:
      return with_input(
          "transformer_block",
          TransformerBlockOperation{hidden, heads, dice.roll(1, 12), sequence, causal}, shape,
          dice);
    case 2:
      return with_input("layer_norm", LayerNormOperation{hidden + 1},
                        {samples, sequence, hidden + 1}, dice);
    case 3: {
      const std::int64_t vocabulary = dice.roll(1, 20);
      return {"embedding", make_module(EmbeddingOperation{vocabulary, sequence, hidden}),
              random_numbers({samples, sequence}, vocabulary, dice), Tensor{}, vocabulary};
    }
    case 4: {
      Instance loss =
          with_input("softmax_cross_entropy", SoftmaxCrossEntropyOperation{hidden}, shape, dice);
      loss.targets = random_numbers({samples, sequence}, hidden, dice);
      return loss;
    }
    default:
      return with_input("linear", LinearOperation{hidden, dice.roll(1, 40), dice.chance(50)}, shape,
                        dice);
  }
}

Instance random_instance(std::int64_t samples, Dice& dice) {
  switch (dice.roll(0, 4)) {
    case 0:
      return with_input("relu", ReluOperation{}, {samples, dice.roll(1, 30)}, dice);
    case 1:
      return with_input("gelu", GeluOperation{}, {samples, dice.roll(1, 3'000)}, dice);
    case 2:
      return random_image_module(samples, dice);
    default:
      return random_sequence_module(samples, dice);
  }
}

void randomize(ParameterValues& values, std::uint64_t seed) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const RandomStream stream = RandomStream(seed).of(i);
    for (std::size_t k = 0; k < values[i].size(); ++k) {
      values[i][k] = 0.5F * stream.normal_pair(k).first;
    }
  }
}

/// The output times `slope`, summed up.
double projected(const Instance& instance, const ParameterValues& parameters, const Tensor& input,
                 const Tensor& slope) {
  const Pass pass = small::forward(*instance.module, parameters, input, instance.targets);
  double sum = 0;
  for (std::size_t i = 0; i < slope.values.size(); ++i) {
    sum += static_cast<double>(pass.output.values[i]) * static_cast<double>(slope.values[i]);
  }
  return sum;
}

/// Moves numbers along a direction of length one, which it returns.
std::vector<float> direction_for(std::size_t count, Dice& dice) {
  Tensor direction = random_tensor({static_cast<std::int64_t>(count)}, dice);
  double norm = 0;
  for (const float value : direction.values) norm += static_cast<double>(value * value);
  for (float& value : direction.values) value /= static_cast<float>(std::sqrt(norm));
  return direction.values;
}

struct Slopes {
  double measured = 0;  // (f(x + h d) - f(x - h d)) / 2h
  double computed = 0;  // gradient times d
  double length = 0;    // of the gradient
};

/// `values` are what `f` depends on; they are moved and put back.
template <class Function>
Slopes slopes_along(std::span<float> values, std::span<const float> gradient, Dice& dice,
                    const Function& f) {
  constexpr float kStep = 1.0F / 128;
  const std::vector<float> direction = direction_for(values.size(), dice);
  const std::vector<float> before(values.begin(), values.end());
  Slopes slopes;
  for (const float step : {kStep, -kStep}) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = before[i] + step * direction[i];
    slopes.measured += f() / static_cast<double>(2 * step);
  }
  std::copy(before.begin(), before.end(), values.begin());
  double square = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    slopes.computed += static_cast<double>(gradient[i]) * static_cast<double>(direction[i]);
    square += std::pow(static_cast<double>(gradient[i]), 2);
  }
  slopes.length = std::sqrt(square);
  return slopes;
}

void check_slopes(const Slopes& slopes) {
  // Rounding of 1e-6 over a step of 1/128, the third derivative, and now and then a corner of a
  // ReLU or a window between the two points.
  CHECK(slopes.measured == Approx(slopes.computed).margin(0.02 * slopes.length + 2e-3));
}

void whole_backward(const Instance& instance, const ParameterValues& parameters, Tensor slope,
                    Pass& pass, ParameterValues& sums) {
  small::input_gradient(*instance.module, parameters, std::move(slope), pass);
  small::weight_gradient(*instance.module, pass, sums);
}

void check_same(ParameterValues& found, ParameterValues& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(std::equal(found[i].begin(), found[i].end(), expected[i].begin()));
  }
}

}  // namespace

TEST_CASE("gradients are the slopes of what a module computes") {
  Dice dice(51);
  for (int round = 0; round < small::scaled(300); ++round) {
    Instance instance = random_instance(dice.roll(1, 3), dice);
    INFO("round " << round << ", " << instance.name);
    ParameterValues parameters(*instance.module);
    randomize(parameters, static_cast<std::uint64_t>(round));
    Pass pass = small::forward(*instance.module, parameters, instance.input, instance.targets);
    const Tensor slope = random_tensor(pass.output.shape, dice);
    ParameterValues sums(*instance.module);
    whole_backward(instance, parameters, slope, pass, sums);
    const auto f = [&] { return projected(instance, parameters, instance.input, slope); };
    if (instance.tokens == 0) {
      check_slopes(slopes_along(instance.input.values, pass.input_gradient.values, dice, f));
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      INFO(instance.module->parameters()[i].name);
      check_slopes(slopes_along(parameters[i], sums[i], dice, f));
    }
  }
}

TEST_CASE("gradients of a batch are the sums over its parts, however it is split") {
  Dice dice(52);
  for (int round = 0; round < small::scaled(300); ++round) {
    const std::int64_t samples = dice.roll(1, 6);
    const Instance instance = random_instance(samples, dice);
    INFO("round " << round << ", " << instance.name);
    ParameterValues parameters(*instance.module);
    randomize(parameters, static_cast<std::uint64_t>(round));
    Pass whole = small::forward(*instance.module, parameters, instance.input, instance.targets);
    const Tensor slope = random_tensor(whole.output.shape, dice);
    ParameterValues expected(*instance.module);
    whole_backward(instance, parameters, slope, whole, expected);
    ParameterValues sums(*instance.module);
    std::vector<float> outputs;
    std::vector<float> gradients;
    for (std::int64_t begin = 0; begin < samples;) {
      const std::int64_t end = dice.roll(begin + 1, samples);
      const Tensor targets =
          instance.targets.values.empty() ? Tensor{} : samples_of(instance.targets, begin, end);
      Pass part = small::forward(*instance.module, parameters,
                                 samples_of(instance.input, begin, end), targets);
      outputs.insert(outputs.end(), part.output.values.begin(), part.output.values.end());
      whole_backward(instance, parameters, samples_of(slope, begin, end), part, sums);
      gradients.insert(gradients.end(), part.input_gradient.values.begin(),
                       part.input_gradient.values.end());
      begin = end;
    }
    CHECK(small::relative_difference(outputs, whole.output.values) < 1e-5);
    CHECK(small::relative_difference(gradients, whole.input_gradient.values) < 1e-5);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      CHECK(small::relative_difference(sums[i], expected[i]) < 1e-5);
    }
  }
}

TEST_CASE("a backward in two parts, with other work between, is the whole one to the bit") {
  Dice dice(53);
  for (int round = 0; round < small::scaled(200); ++round) {
    const Instance instance = random_instance(2, dice);
    INFO("round " << round << ", " << instance.name);
    ParameterValues parameters(*instance.module);
    randomize(parameters, static_cast<std::uint64_t>(round));
    const auto forward = [&](std::int64_t sample) {
      const Tensor targets = instance.targets.values.empty()
                                 ? Tensor{}
                                 : samples_of(instance.targets, sample, sample + 1);
      return small::forward(*instance.module, parameters,
                            samples_of(instance.input, sample, sample + 1), targets);
    };
    Pass first = forward(0);
    Pass second = forward(1);
    const Tensor slope = random_tensor(first.output.shape, dice);
    ParameterValues whole(*instance.module);
    whole_backward(instance, parameters, slope, first, whole);
    whole_backward(instance, parameters, slope, second, whole);
    Pass other_first = forward(0);
    Pass other_second = forward(1);
    ParameterValues split(*instance.module);
    small::input_gradient(*instance.module, parameters, slope, other_first);
    small::input_gradient(*instance.module, parameters, slope, other_second);
    small::weight_gradient(*instance.module, other_first, split);
    small::weight_gradient(*instance.module, other_second, split);
    CHECK(first.input_gradient.values == other_first.input_gradient.values);
    CHECK(second.input_gradient.values == other_second.input_gradient.values);
    check_same(split, whole);
  }
}

TEST_CASE("where parameters and their gradients lie in memory does not change a bit") {
  Dice dice(54);
  for (int round = 0; round < small::scaled(200); ++round) {
    const Instance instance = random_instance(dice.roll(1, 3), dice);
    INFO("round " << round << ", " << instance.name);
    ParameterValues aligned(*instance.module);
    randomize(aligned, static_cast<std::uint64_t>(round));
    Pass pass = small::forward(*instance.module, aligned, instance.input, instance.targets);
    const Tensor slope = random_tensor(pass.output.shape, dice);
    ParameterValues expected(*instance.module);
    whole_backward(instance, aligned, slope, pass, expected);
    for (std::size_t shift = 1; shift < 4; ++shift) {
      ParameterValues shifted(*instance.module, shift);
      randomize(shifted, static_cast<std::uint64_t>(round));
      Pass again = small::forward(*instance.module, shifted, instance.input, instance.targets);
      CHECK(again.output.values == pass.output.values);
      ParameterValues sums(*instance.module, 4 - shift);
      whole_backward(instance, shifted, slope, again, sums);
      CHECK(again.input_gradient.values == pass.input_gradient.values);
      check_same(sums, expected);
    }
  }
}
