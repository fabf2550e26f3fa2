// Gradients of random modules of random shapes, checked without another implementation of them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <complex>
#include <numeric>
#include <string>
#include <vector>

#include "../support/dice.h"
#include "../support/module_pass.h"
#include "../support/random_forms.h"
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

/// Numbers 0.05 apart from each other and from zero, in any order: where what has corners there is
/// moved by a little, it stays on its side of them.
Tensor spaced_tensor(Shape shape, Dice& dice) {
  Tensor tensor = zeros(std::move(shape));
  const auto count = static_cast<std::int64_t>(tensor.values.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(dice.roll(0, i));
    tensor.values[static_cast<std::size_t>(i)] = tensor.values[at];
    tensor.values[at] = 0.05F * static_cast<float>(i - count / 2) + 0.025F;
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
      return {"max_pool", make_module(MaxPoolOperation{kernel, stride}), spaced_tensor(shape, dice),
              Tensor{}, 0};
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
  // A norm of two or three numbers is all but a jump where they meet.
  const std::int64_t wide = heads * dice.roll(4, 6);
  const TransformerBlockOperation block{wide, heads, dice.roll(1, 12), sequence, causal};
  const Shape wide_shape{samples, sequence, wide};
  switch (dice.roll(0, 9)) {
    case 0:
      return with_input("attention", AttentionOperation{hidden, heads, causal}, shape, dice);
    case 1:
      return with_input("transformer_block", block, wide_shape, dice);
    case 6:
      return with_input(
          "attention of any form",
          small::in_random_form(AttentionOperation{hidden, 2 * heads, causal, {.width = 3}}, dice),
          shape, dice);
    case 7: {
      TransformerBlockOperation of_any_form = small::in_random_form(block, dice);
      // All of them: the slope of a choice is not what changing it does.
      const std::int64_t experts = dice.roll(1, 3);
      if (dice.chance(40)) of_any_form.experts = {.count = experts, .per_token = experts};
      return with_input("transformer_block of any form", of_any_form, wide_shape, dice);
    }
    case 8:
      return with_input("rms_norm", RmsNormOperation{hidden + 3}, {samples, sequence, hidden + 3},
                        dice);
    case 9:
      return with_input("swiglu", SwiGluOperation{}, {samples, sequence, 2 * hidden}, dice);
    case 2:
      return with_input("layer_norm", LayerNormOperation{hidden + 3},
                        {samples, sequence, hidden + 3}, dice);
    case 3: {
      const std::int64_t vocabulary = dice.roll(1, 20);
      return {"embedding",
              make_module(EmbeddingOperation{vocabulary, sequence, hidden, dice.chance(50)}),
              random_numbers({samples, sequence}, vocabulary, dice), Tensor{}, vocabulary};
    }
    case 4: {
      Instance loss =
          with_input("softmax_cross_entropy", SoftmaxCrossEntropyOperation{hidden}, shape, dice);
      loss.targets = random_numbers({samples, sequence}, hidden, dice);
      return loss;
    }
    default:
      return with_input("linear",
                        LinearOperation{hidden, dice.roll(1, 40), dice.chance(50), dice.chance(50)},
                        shape, dice);
  }
}

Instance random_instance(std::int64_t samples, Dice& dice) {
  switch (dice.roll(0, 4)) {
    case 0:
      return {"relu", make_module(ReluOperation{}),
              spaced_tensor({samples, dice.roll(1, 30)}, dice), Tensor{}, 0};
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
  double bend = 0;      // what doubling h changes of it
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
  const auto measured = [&](float step) {
    double slope = 0;
    for (const float way : {step, -step}) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = before[i] + way * direction[i];
      slope += f() / static_cast<double>(2 * way);
    }
    return slope;
  };
  Slopes slopes;
  slopes.measured = measured(kStep);
  slopes.bend = std::abs(measured(2 * kStep) - slopes.measured);
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
  // Rounding of 1e-6 over a step of 1/128; and the third derivative, which makes a doubled step
  // miss by four times as much, and is large where a norm is of numbers that hardly differ.
  CHECK(slopes.measured ==
        Approx(slopes.computed).margin(0.01 * slopes.length + 2e-3 + slopes.bend));
}

void whole_backward(const Instance& instance, const ParameterValues& parameters, Tensor slope,
                    Pass& pass, ParameterValues& sums) {
  small::input_gradient(*instance.module, parameters, std::move(slope), pass);
  small::weight_gradient(*instance.module, pass, sums);
}

/// Within 1e-5 of the norm, or of one: sums of numbers of that size may all but cancel.
void check_near(std::span<const float> found, std::span<const float> expected) {
  REQUIRE(found.size() == expected.size());
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(static_cast<double>(found[i] - expected[i]), 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  CHECK(std::sqrt(difference) < 1e-5 * std::max(1.0, std::sqrt(norm)));
}

void check_same(ParameterValues& found, ParameterValues& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(std::equal(found[i].begin(), found[i].end(), expected[i].begin()));
  }
}

}  // namespace

TEST_CASE("gradients are the slopes of what a module computes") {
  Dice dice(51);
  for (int round = 0; round < small::scaled(1500); ++round) {
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

namespace {

/// What an attention without biases computes for one sample, number by number in double precision.
/// Each head of queries has keys and values of its own, copied from its group's; a pair of numbers
/// is turned as a complex number is multiplied by e^(i angle).
std::vector<double> expected_attention(const AttentionOperation& attention,
                                       const ParameterValues& parameters, const Tensor& input) {
  using Complex = std::complex<double>;
  const std::int64_t sequence = input.shape[1];
  const std::int64_t width = head_width_of(attention);
  const std::int64_t kv_heads = kv_heads_of(attention);
  const std::int64_t columns = (attention.heads + 2 * kv_heads) * width;
  const auto weights = parameters.read();
  const auto at = [](std::span<const float> values, std::int64_t place) {
    return static_cast<double>(values[static_cast<std::size_t>(place)]);
  };
  // Head `place` of queries, keys and values at a position.
  const auto head_at = [&](std::int64_t position, std::int64_t place) {
    std::vector<double> head(static_cast<std::size_t>(width));
    for (std::int64_t i = 0; i < width; ++i) {
      for (std::int64_t k = 0; k < attention.hidden; ++k) {
        head[static_cast<std::size_t>(i)] += at(input.values, position * attention.hidden + k) *
                                             at(weights[0], k * columns + place * width + i);
      }
    }
    const bool is_turned = attention.form.rotary_base && place < attention.heads + kv_heads;
    for (std::size_t i = 0; is_turned && i < head.size() / 2; ++i) {
      const double speed = std::pow(*attention.form.rotary_base,
                                    -2 * static_cast<double>(i) / static_cast<double>(width));
      const Complex turned = Complex(head[i], head[i + head.size() / 2]) *
                             std::polar(1.0, static_cast<double>(position) * speed);
      head[i] = turned.real();
      head[i + head.size() / 2] = turned.imag();
    }
    return head;
  };
  const auto product = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  std::vector<double> output(static_cast<std::size_t>(sequence * attention.hidden));
  for (std::int64_t head = 0; head < attention.heads; ++head) {
    const std::int64_t key = attention.heads + head / (attention.heads / kv_heads);
    for (std::int64_t position = 0; position < sequence; ++position) {
      const std::vector<double> query = head_at(position, head);
      std::vector<double> mixed(static_cast<std::size_t>(width));
      double sum = 0;
      for (std::int64_t other = 0; other < (attention.causal ? position + 1 : sequence); ++other) {
        const double share =
            std::exp(product(query, head_at(other, key)) / std::sqrt(static_cast<double>(width)));
        const std::vector<double> value = head_at(other, key + kv_heads);
        for (std::size_t i = 0; i < mixed.size(); ++i) mixed[i] += share * value[i];
        sum += share;
      }
      for (std::int64_t i = 0; i < width * attention.hidden; ++i) {
        const std::int64_t row = i / attention.hidden;
        const std::int64_t column = i % attention.hidden;
        output[static_cast<std::size_t>(position * attention.hidden + column)] +=
            mixed[static_cast<std::size_t>(row)] / sum *
            at(weights[1], (head * width + row) * attention.hidden + column);
      }
    }
  }
  return output;
}

/// The same attention with keys and values of its own for each head of queries.
AttentionOperation without_groups(AttentionOperation attention) {
  attention.form.width = head_width_of(attention);
  attention.form.kv_heads.reset();
  return attention;
}

/// Calls `visit(from, to)` for each column of the group's queries, keys and values and each of its
/// copies where no head shares.
template <class Visit>
void for_each_copy(const AttentionOperation& attention, const Visit& visit) {
  const std::int64_t width = head_width_of(attention);
  const std::int64_t group = attention.heads / kv_heads_of(attention);
  for (std::int64_t place = 0; place < 3 * attention.heads; ++place) {
    const std::int64_t which = place / attention.heads;
    const std::int64_t head = place % attention.heads;
    const std::int64_t from =
        which == 0 ? head
                   : attention.heads + (which - 1) * (attention.heads / group) + head / group;
    for (std::int64_t i = 0; i < width; ++i) visit(from * width + i, place * width + i);
  }
}

}  // namespace

TEST_CASE("attention of any form is what its definition says") {
  Dice dice(55);
  for (int round = 0; round < small::scaled(200); ++round) {
    const std::int64_t hidden = dice.roll(1, 6);
    AttentionOperation attention = small::in_random_form(
        {hidden, dice.roll(1, 4), dice.chance(50), {.width = 2 * dice.roll(1, 4)}}, dice);
    attention.bias = false;
    INFO("round " << round);
    const auto module = make_module(attention);
    ParameterValues parameters(*module);
    randomize(parameters, static_cast<std::uint64_t>(round));
    const Tensor input = random_tensor({1, dice.roll(1, 30), hidden}, dice);
    const Pass pass = small::forward(*module, parameters, input, {});
    const std::vector<double> expected = expected_attention(attention, parameters, input);
    REQUIRE(small::relative_difference(pass.output.values, expected) < 1e-5);
  }
}

TEST_CASE(
    "heads that share keys and values are heads with copies of them, gradients are the sums") {
  Dice dice(56);
  for (int round = 0; round < small::scaled(100); ++round) {
    const std::int64_t hidden = dice.roll(1, 9);
    AttentionOperation attention = small::in_random_form(
        {hidden, 2 * dice.roll(1, 3), dice.chance(50), {.width = dice.roll(1, 5)}}, dice);
    attention.bias = false;
    INFO("round " << round);
    const auto grouped = make_module(attention);
    const auto copied = make_module(without_groups(attention));
    ParameterValues of_groups(*grouped);
    randomize(of_groups, static_cast<std::uint64_t>(round));
    ParameterValues of_copies(*copied);
    const auto few = static_cast<std::int64_t>(of_groups[0].size()) / hidden;
    const auto many = static_cast<std::int64_t>(of_copies[0].size()) / hidden;
    for_each_copy(attention, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t row = 0; row < hidden; ++row) {
        of_copies[0][static_cast<std::size_t>(row * many + to)] =
            of_groups[0][static_cast<std::size_t>(row * few + from)];
      }
    });
    std::ranges::copy(of_groups[1], of_copies[1].begin());
    const Tensor input = random_tensor({2, dice.roll(1, 9), hidden}, dice);
    Pass pass = small::forward(*grouped, of_groups, input, {});
    Pass other = small::forward(*copied, of_copies, input, {});
    check_near(pass.output.values, other.output.values);
    const Tensor slope = random_tensor(pass.output.shape, dice);
    ParameterValues sums(*grouped);
    ParameterValues sums_of_copies(*copied);
    const Instance instance{"grouped", make_module(attention), {}, {}, 0};
    const Instance instance_of_copies{"copied", make_module(without_groups(attention)), {}, {}, 0};
    whole_backward(instance, of_groups, slope, pass, sums);
    whole_backward(instance_of_copies, of_copies, slope, other, sums_of_copies);
    check_near(pass.input_gradient.values, other.input_gradient.values);
    std::vector<float> added(of_groups[0].size());
    for_each_copy(attention, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t row = 0; row < hidden; ++row) {
        added[static_cast<std::size_t>(row * few + from)] +=
            sums_of_copies[0][static_cast<std::size_t>(row * many + to)];
      }
    });
    check_near(sums[0], added);
    check_near(sums[1], sums_of_copies[1]);
  }
}

TEST_CASE("rotary positions keep their angles over many positions") {
  // Queries and keys are all (1, 0) before they are turned, so that the score of two positions is
  // the cosine of their distance. Only the last position has a value, and the output of another one
  // is the share that it gives to that.
  constexpr std::int64_t kSequence = 3'000;
  const AttentionOperation attention{
      .hidden = 2, .heads = 1, .form = {.width = 2, .rotary_base = 10'000}, .bias = false};
  const auto module = make_module(attention);
  ParameterValues parameters(*module);
  // Query and key are (x0, 0), the value is (0, x1).
  parameters[0][0] = 1;
  parameters[0][2] = 1;
  parameters[0][6 + 5] = 1;
  parameters[1][3] = 1;
  Tensor input = zeros({1, kSequence, 2});
  for (std::int64_t position = 0; position < kSequence; ++position) {
    input.values[static_cast<std::size_t>(2 * position)] = 1;
  }
  input.values.back() = 1;
  const Pass pass = small::forward(*module, parameters, input, {});
  const auto share = [&](std::int64_t p) {
    double sum = 0;
    for (std::int64_t k = 0; k < kSequence; ++k) {
      sum += std::exp(std::cos(static_cast<double>(p - k)) / std::sqrt(2.0));
    }
    return std::exp(std::cos(static_cast<double>(p - kSequence + 1)) / std::sqrt(2.0)) / sum;
  };
  for (const std::int64_t p : {0L, 1L, 777L, 2'500L, 2'999L}) {
    CHECK(static_cast<double>(pass.output.values[static_cast<std::size_t>(2 * p + 1)]) ==
          Approx(share(p)).epsilon(1e-5));
  }
}

TEST_CASE("gradients of a batch are the sums over its parts, however it is split") {
  Dice dice(52);
  for (int round = 0; round < small::scaled(1500); ++round) {
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
    check_near(outputs, whole.output.values);
    check_near(gradients, whole.input_gradient.values);
    for (std::size_t i = 0; i < sums.size(); ++i) check_near(sums[i], expected[i]);
  }
}

TEST_CASE("a backward in two parts, with other work between, is the whole one to the bit") {
  Dice dice(53);
  for (int round = 0; round < small::scaled(1000); ++round) {
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
  for (int round = 0; round < small::scaled(1000); ++round) {
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

namespace {

/// What a block's experts return for one position, number by number in double precision.
std::vector<double> expected_experts(const TransformerBlockOperation& block,
                                     std::span<const float> router, std::span<const float> expand,
                                     std::span<const float> reduce, const std::vector<double>& x) {
  const std::int64_t count = block.experts->count;
  const std::int64_t width = block.feed_forward;
  const std::int64_t expanded = expanded_width_of(block);
  const auto product = [](const std::vector<double>& row, std::span<const float> matrix,
                          std::int64_t first, std::int64_t columns) {
    std::vector<double> result(static_cast<std::size_t>(columns));
    for (std::size_t i = 0; i < row.size(); ++i) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const auto at =
            static_cast<std::size_t>(first + static_cast<std::int64_t>(i) * columns + c);
        result[static_cast<std::size_t>(c)] += row[i] * double{matrix[at]};
      }
    }
    return result;
  };
  const std::vector<double> scores = product(x, router, 0, count);
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  order.resize(static_cast<std::size_t>(block.experts->per_token));
  double sum = 0;
  for (const std::size_t expert : order) sum += std::exp(scores[expert]);
  std::vector<double> output(x.size());
  for (const std::size_t expert : order) {
    const auto number = static_cast<std::int64_t>(expert);
    std::vector<double> between = product(x, expand, number * block.hidden * expanded, expanded);
    for (std::int64_t i = 0; i < width; ++i) {
      double& value = between[static_cast<std::size_t>(i)];
      if (block.activation == FeedForwardKind::SwiGlu) {
        value = value / (1 + std::exp(-value)) * between[static_cast<std::size_t>(width + i)];
      } else {
        const double inner =
            std::sqrt(2 / std::acos(-1.0)) * (value + 0.044715 * std::pow(value, 3));
        value *= 0.5 * (1 + std::tanh(inner));
      }
    }
    between.resize(static_cast<std::size_t>(width));
    const std::vector<double> of_expert =
        product(between, reduce, number * width * block.hidden, block.hidden);
    for (std::size_t i = 0; i < output.size(); ++i) {
      output[i] += std::exp(scores[expert]) / sum * of_expert[i];
    }
  }
  return output;
}

}  // namespace

TEST_CASE("a position has the experts with its largest scores, each by its share") {
  Dice dice(57);
  for (int round = 0; round < small::scaled(60); ++round) {
    const std::int64_t count = dice.roll(1, 6);
    TransformerBlockOperation block{.hidden = dice.roll(3, 8),
                                    .heads = 1,
                                    .feed_forward = dice.roll(1, 7),
                                    .sequence = dice.roll(1, 5),
                                    .bias = false};
    block.activation = dice.chance(50) ? FeedForwardKind::SwiGlu : FeedForwardKind::Gelu;
    block.experts = {.count = count, .per_token = dice.roll(1, count)};
    const auto module = make_module(block);
    ParameterValues parameters(*module);
    randomize(parameters, static_cast<std::uint64_t>(round));
    // Attention adds nothing, and the norm before the experts only normalises.
    const std::vector<ParameterSpec>& specs = module->parameters();
    std::vector<std::span<const float>> of_experts;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const std::string& name = specs[i].name;
      const bool is_kept = name.starts_with("experts") || name.starts_with("router");
      if (is_kept) of_experts.push_back(parameters.read()[i]);
      const float value = name == "norm2.scale" ? 1 : 0;
      if (!is_kept) std::fill(parameters[i].begin(), parameters[i].end(), value);
    }
    REQUIRE(of_experts.size() == 3);
    const Tensor input = random_tensor({2, block.sequence, block.hidden}, dice);
    const Pass pass = small::forward(*module, parameters, input, {});
    for (std::int64_t row = 0; row < 2 * block.sequence; ++row) {
      const auto first = static_cast<std::size_t>(row * block.hidden);
      const auto width = static_cast<std::size_t>(block.hidden);
      std::vector<double> x(input.values.begin() + row * block.hidden,
                            input.values.begin() + (row + 1) * block.hidden);
      const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(width);
      double square = 0;
      for (double& value : x) square += (value - mean) * (value - mean);
      for (double& value : x) {
        value = (value - mean) / std::sqrt(square / static_cast<double>(width) + 1e-5);
      }
      const std::vector<double> expected =
          expected_experts(block, of_experts[0], of_experts[1], of_experts[2], x);
      for (std::size_t i = 0; i < width; ++i) {
        CHECK(double{pass.output.values[first + i]} ==
              Approx(double{input.values[first + i]} + expected[i]).margin(1e-4));
      }
    }
  }
}
