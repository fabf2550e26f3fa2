// What the kernels of every instruction set that this processor has must agree on.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../support/dice.h"
#include "../support/module_pass.h"
#include "../support/random_problem.h"
#include "dapple/nn/kernel_choice.h"
#include "dapple/nn/module.h"
#include "dapple/nn/optimizer.h"

using namespace dapple;
using namespace dapple::nn;
using small::Dice;
using small::ParameterValues;
using small::Pass;

namespace {

/// Has others compute while it lives.
class KernelsFor {
 public:
  explicit KernelsFor(std::string_view name) : before_(kernels_in_use()) {
    REQUIRE(use_kernels(name));
  }
  KernelsFor(const KernelsFor&) = delete;
  KernelsFor& operator=(const KernelsFor&) = delete;
  ~KernelsFor() { use_kernels(before_); }

 private:
  std::string_view before_;
};

/// From -1 to 1, by whole numbers, so that they are the same on every machine.
float number_at(std::uint64_t seed, std::uint64_t place) {
  const std::uint64_t bits = (place + 1) * 0x9E3779B97F4A7C15U + seed * 0xBF58476D1CE4E5B9U;
  const auto whole = static_cast<std::int64_t>((bits ^ (bits >> 29U)) % 2001);
  return static_cast<float>(whole - 1000) / 1000.0F;
}

void fill(std::span<float> values, std::uint64_t seed) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = number_at(seed, i);
}

Tensor filled(Shape shape, std::uint64_t seed) {
  Tensor tensor = zeros(std::move(shape));
  fill(tensor.values, seed);
  return tensor;
}

/// All that a module computes: output, gradient of the input, gradients of the weights, whose sums
/// begin with something.
std::vector<float> computed(const Operation& operation, const Shape& input, std::size_t shift = 0) {
  const auto module = make_module(operation);
  ParameterValues parameters(*module, shift);
  ParameterValues sums(*module, shift);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    fill(parameters[i], i + 1);
    fill(sums[i], i + 101);
  }
  Tensor targets = zeros(Shape(input.begin(), input.end() - 1));  // class 0
  Pass pass = small::forward(*module, parameters, filled(input, 11), targets);
  Tensor slope = filled(pass.output.shape, 12);
  small::input_gradient(*module, parameters, std::move(slope), pass);
  std::vector<float> all = pass.output.values;
  all.insert(all.end(), pass.input_gradient.values.begin(), pass.input_gradient.values.end());
  small::weight_gradient(*module, pass, sums);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    all.insert(all.end(), sums[i].begin(), sums[i].end());
  }
  return all;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

/// FNV-1a of the bits, lowest byte first.
std::uint64_t digest_of(const std::vector<float>& values) {
  std::uint64_t digest = 0xCBF29CE484222325U;
  for (const std::uint32_t bits : bits_of(values)) {
    for (unsigned shift = 0; shift < 32; shift += 8) {
      digest = (digest ^ ((bits >> shift) & 0xFFU)) * 0x100000001B3U;
    }
  }
  return digest;
}

constexpr TransformerBlockOperation kBlock{
    .hidden = 24, .heads = 3, .feed_forward = 56, .sequence = 19, .causal = true};

constexpr TransformerBlockOperation kLlamaBlock{
    .hidden = 24,
    .heads = 4,
    .feed_forward = 37,
    .sequence = 19,
    .causal = true,
    .form = {.kv_heads = 2, .width = 10, .rotary_base = 10'000},
    .bias = false,
    .norm = NormKind::RmsNorm,
    .activation = FeedForwardKind::SwiGlu};

/// What a linear layer computes, number by number in double precision.
std::vector<double> expected_of(const LinearOperation& linear, std::int64_t rows) {
  const std::int64_t inputs = linear.inputs;
  const std::int64_t outputs = linear.outputs;
  const Tensor x = filled({rows, inputs}, 11);
  const Tensor slope = filled({rows, outputs}, 12);
  const auto place = [&](std::int64_t in, std::int64_t out) {
    return static_cast<std::uint64_t>(linear.transposed ? out * inputs + in : in * outputs + out);
  };
  std::vector<double> output(static_cast<std::size_t>(rows * outputs));
  std::vector<double> input_gradient(x.values.size());
  std::vector<double> weights(static_cast<std::size_t>(inputs * outputs));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = double{number_at(101, i)};
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t out = 0; out < outputs; ++out) {
      const auto to = static_cast<std::size_t>(row * outputs + out);
      for (std::int64_t in = 0; in < inputs; ++in) {
        const auto from = static_cast<std::size_t>(row * inputs + in);
        const double weight = double{number_at(1, place(in, out))};
        output[to] += double{x.values[from]} * weight;
        input_gradient[from] += double{slope.values[to]} * weight;
        weights[place(in, out)] += double{x.values[from]} * double{slope.values[to]};
      }
    }
  }
  output.insert(output.end(), input_gradient.begin(), input_gradient.end());
  output.insert(output.end(), weights.begin(), weights.end());
  return output;
}

}  // namespace

TEST_CASE("the quickest kernels are in use unless others are chosen, and portable ones are there") {
  const std::vector<std::string_view> names = kernel_names();
  REQUIRE(names.size() >= 2);
  CHECK(kernels_in_use() == names.front());
  CHECK(names.back() == "portable");
  {
    const KernelsFor portable("portable");
    CHECK(kernels_in_use() == "portable");
    CHECK_FALSE(use_kernels("abacus"));
    CHECK(kernels_in_use() == "portable");
  }
  CHECK(kernels_in_use() == names.front());
}

TEST_CASE("products of all shapes are right in every set, the same bits at every address") {
  for (const std::string_view name : kernel_names()) {
    const KernelsFor use(name);
    Dice dice(4401);
    for (int round = 0; round < small::scaled(60); ++round) {
      const LinearOperation linear{.inputs = dice.roll(1, round % 3 == 0 ? 600 : 40),
                                   .outputs = dice.roll(1, 70),
                                   .bias = false,
                                   .transposed = dice.roll(0, 1) == 1};
      const std::int64_t rows = dice.roll(1, 40);
      INFO(name << ": " << rows << " x " << linear.inputs << " x " << linear.outputs
                << (linear.transposed ? ", transposed" : ""));
      const std::vector<float> found = computed(linear, {rows, linear.inputs});
      // Of at most 600 products of at most 1 each, added up: 600 * 6e-8 * 600 at the very worst.
      REQUIRE(small::relative_difference(found, expected_of(linear, rows)) < 1e-6);
      const auto shift = static_cast<std::size_t>(dice.roll(1, 16));
      REQUIRE(bits_of(computed(linear, {rows, linear.inputs}, shift)) == bits_of(found));
    }
  }
}

TEST_CASE("a block has the same bits at every address, in every set") {
  for (const std::string_view name : kernel_names()) {
    const KernelsFor use(name);
    INFO(name);
    for (const TransformerBlockOperation& block : {kBlock, kLlamaBlock}) {
      const std::vector<std::uint32_t> bits = bits_of(computed(block, {2, 19, 24}));
      for (std::size_t shift = 1; shift <= 16; ++shift) {
        REQUIRE(bits_of(computed(block, {2, 19, 24}, shift)) == bits);
      }
    }
  }
}

TEST_CASE("what is no product has the same bits in every set") {
  const auto all = [] {
    std::vector<float> values;
    for (const std::int64_t size : {1, 15, 16, 37, 1030}) {
      for (const Operation& operation :
           {Operation{GeluOperation{}}, Operation{LayerNormOperation{size}},
            Operation{RmsNormOperation{size}}, Operation{SoftmaxCrossEntropyOperation{size}}}) {
        const std::vector<float> more = computed(operation, {3, size});
        values.insert(values.end(), more.begin(), more.end());
      }
      const std::vector<float> gated = computed(SwiGluOperation{}, {3, 2 * size});
      values.insert(values.end(), gated.begin(), gated.end());
    }
    for (const OptimizerKind kind : {OptimizerKind::Adam, OptimizerKind::AdamW}) {
      std::vector<float> parameters(1037);
      std::vector<float> gradients(parameters.size());
      std::vector<float> state(2 * parameters.size());
      fill(parameters, 1);
      for (int number = 1; number <= 3; ++number) {
        fill(gradients, static_cast<std::uint64_t>(number));
        update({.kind = kind, .weight_decay = 0.1F}, number, parameters, gradients, state);
      }
      values.insert(values.end(), parameters.begin(), parameters.end());
      values.insert(values.end(), state.begin(), state.end());
    }
    return bits_of(values);
  };
  const std::vector<std::uint32_t> bits = all();
  for (const std::string_view name : kernel_names()) {
    const KernelsFor use(name);
    INFO(name);
    CHECK(all() == bits);
  }
}

TEST_CASE("e^x of scores far apart is zero and never less, and what is no number stays none") {
  for (const std::string_view name : kernel_names()) {
    const KernelsFor use(name);
    const auto loss = make_module(SoftmaxCrossEntropyOperation{.classes = 3});
    const ParameterValues none(*loss);
    Pass pass = small::forward(*loss, none, {{1, 3}, {1e30F, -1e30F, -INFINITY}}, zeros({1}));
    CHECK(pass.output.values[0] == 0);
    small::input_gradient(*loss, none, {{1}, {1}}, pass);
    CHECK(pass.input_gradient.values == std::vector<float>{0, 0, 0});
    pass = small::forward(*loss, none, {{1, 3}, {1, NAN, 2}}, zeros({1}));
    CHECK(std::isnan(pass.output.values[0]));
    const auto gelu = make_module(GeluOperation{});
    const ParameterValues nothing(*gelu);
    pass = small::forward(*gelu, nothing, {{4}, {-1e20F, -10, 10, 1e20F}}, {});
    for (const auto& [i, far] : {std::pair(0U, 0.0F), {1U, 0.0F}, {2U, 10.0F}, {3U, 1e20F}}) {
      CHECK(std::abs(pass.output.values[i] - far) < 1e-20F);
    }
    small::input_gradient(*gelu, nothing, {{4}, {1, 1, 1, 1}}, pass);
    for (const auto& [i, slope] : {std::pair(0U, 0.0F), {1U, 0.0F}, {2U, 1.0F}, {3U, 1.0F}}) {
      CHECK(std::abs(pass.input_gradient.values[i] - slope) < 1e-20F);
    }
    // Gates far below zero are shut, and those far above it are open.
    const auto swiglu = make_module(SwiGluOperation{});
    pass = small::forward(*swiglu, nothing, {{1, 6}, {-1e20F, -100, 1e20F, 3, 3, 3}}, {});
    CHECK(pass.output.values == std::vector<float>{0, 0, 3e20F});
    small::input_gradient(*swiglu, nothing, {{1, 3}, {1, 1, 1}}, pass);
    CHECK(pass.input_gradient.values == std::vector<float>{0, 0, 3, 0, 0, 1e20F});
  }
}

TEST_CASE("portable kernels give these bits on every machine") {
  const KernelsFor use("portable");
  CHECK(digest_of(computed(kBlock, {2, 19, 24})) == 0x29A7FA007063A36DU);
  CHECK(digest_of(computed(kLlamaBlock, {2, 19, 24})) == 0xCB3F196221B188F8U);
  CHECK(digest_of(computed(LinearOperation{700, 33, true, false}, {9, 700})) ==
        0x9F05B49A41A0A90FU);
}
