// The modules of a GPU compute what nn's do, on shapes that fit no tile and no vector.
#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>

#include "../support/random_forms.h"
#include "../support/scaled.h"
#include "on_device.h"

using namespace dapple;
using small::Batch;
using small::Dice;
using small::Results;

namespace {

struct Instance {
  std::string name;
  Operation operation;
  Batch batch;
  bool scores_alike = false;  // all experts of each position
};

/// Multiples of 8 as well as numbers that are not.
std::int64_t random_width(Dice& dice) {
  return dice.chance(50) ? 8 * dice.roll(1, 9) : dice.roll(5, 70);
}

Instance random_sequence_instance(Dice& dice) {
  const std::int64_t samples = dice.roll(1, 3);
  const std::int64_t sequence = dice.roll(1, 40);
  const std::int64_t hidden = random_width(dice);
  const nn::Shape shape{samples, sequence, hidden};
  switch (dice.roll(0, 7)) {
    case 0: {
      const std::int64_t vocabulary = dice.roll(1, 30);
      return {"embedding",
              EmbeddingOperation{vocabulary, sequence, hidden, dice.chance(50)},
              {small::random_whole({samples, sequence}, vocabulary, dice), {}, true}};
    }
    case 1:
      return {"position_embedding",
              PositionEmbeddingOperation{sequence, hidden},
              {small::random_normal(shape, 1, dice)}};
    case 2:
      return {"linear",
              LinearOperation{hidden, random_width(dice), dice.chance(70), dice.chance(40)},
              {small::random_normal(shape, 1, dice)}};
    case 3:
      return {"layer_norm", LayerNormOperation{hidden}, {small::random_normal(shape, 2, dice)}};
    case 4:
      return {"gelu", GeluOperation{}, {small::random_normal(shape, 1.5F, dice)}};
    case 5:
      return {"rms_norm", RmsNormOperation{hidden}, {small::random_normal(shape, 2, dice)}};
    case 6:
      return {"swiglu",
              SwiGluOperation{},
              {small::random_normal({samples, sequence, 2 * hidden}, 1.5F, dice)}};
    default: {
      const std::int64_t classes = dice.chance(30) ? dice.roll(300, 3'000) : dice.roll(1, 300);
      return {"softmax_cross_entropy",
              SoftmaxCrossEntropyOperation{classes},
              {small::random_normal({samples, sequence, classes}, 2, dice),
               small::random_whole({samples, sequence}, classes, dice)}};
    }
  }
}

Instance random_image_instance(Dice& dice) {
  const std::int64_t samples = dice.roll(1, 3);
  const std::int64_t channels = dice.roll(1, 4);
  const std::int64_t height = dice.roll(4, 11);
  const std::int64_t width = dice.roll(4, 11);
  const std::int64_t kernel = dice.roll(1, 4);
  const std::int64_t stride = dice.roll(1, 3);
  const nn::Shape shape{samples, channels, height, width};
  nn::Tensor image = small::random_normal(shape, 1, dice);
  switch (dice.roll(0, 3)) {
    case 0:
      return {"relu", ReluOperation{}, {image}};
    case 1:
      return {"flatten", FlattenOperation{}, {image}};
    case 2:
      return {"max_pool", MaxPoolOperation{kernel, stride}, {image}};
    default:
      return {"convolution",
              ConvolutionOperation{channels, dice.roll(1, 5), height, width, kernel, stride,
                                   dice.roll(0, kernel - 1)},
              {image}};
  }
}

Instance random_attention(Dice& dice) {
  const std::int64_t heads = dice.roll(1, 3);
  const std::int64_t width = dice.chance(50) ? 8 * dice.roll(1, 4) : dice.roll(4, 33);
  const std::int64_t sequence = dice.roll(1, 70);
  return {"attention",
          AttentionOperation{heads * width, heads, dice.chance(50)},
          {small::random_normal({dice.roll(1, 2), sequence, heads * width}, 1, dice)}};
}

Instance random_block(Dice& dice) {
  const std::int64_t heads = dice.roll(1, 3);
  const std::int64_t hidden = heads * (dice.chance(50) ? 8 * dice.roll(1, 3) : dice.roll(5, 20));
  const std::int64_t sequence = dice.roll(1, 40);
  return {"transformer_block",
          TransformerBlockOperation{hidden, heads, random_width(dice), sequence, dice.chance(50)},
          {small::random_normal({dice.roll(1, 2), sequence, hidden}, 1, dice)}};
}

/// An attention or a block of any form, with up to four heads.
Instance random_form(Dice& dice) {
  const std::int64_t hidden = 4 * (dice.chance(50) ? 8 * dice.roll(1, 2) : dice.roll(2, 15));
  const std::int64_t heads = dice.chance(60) ? 4 : dice.roll(1, 2);
  const std::int64_t sequence = dice.roll(1, 40);
  const bool causal = dice.chance(50);
  const Batch batch{small::random_normal({dice.roll(1, 2), sequence, hidden}, 1, dice)};
  if (dice.chance(50)) {
    return {"attention", small::in_random_form(AttentionOperation{hidden, heads, causal}, dice),
            batch};
  }
  return {"transformer_block",
          small::in_random_form(
              TransformerBlockOperation{hidden, heads, random_width(dice), sequence, causal}, dice),
          batch};
}

/// A block of any form with up to five experts, of which some may have no position.
Instance random_experts(Dice& dice) {
  Instance instance = random_form(dice);
  while (instance.name != "transformer_block") instance = random_form(dice);
  auto& block = std::get<TransformerBlockOperation>(instance.operation);
  const std::int64_t count = dice.roll(1, 5);
  block.experts = {.count = count, .per_token = dice.roll(1, count)};
  return instance;
}

/// The same with all experts for each position: in half precision others may be chosen.
Instance random_whole_experts(Dice& dice) {
  Instance instance = random_experts(dice);
  auto& experts = *std::get<TransformerBlockOperation>(instance.operation).experts;
  experts.per_token = experts.count;
  return instance;
}

/// Far from zero, and of different sizes, so that each counts.
std::vector<nn::Tensor> random_parameters(const nn::Module& module, Dice& dice) {
  std::vector<nn::Tensor> parameters;
  for (const nn::ParameterSpec& parameter : module.parameters()) {
    const auto inputs = static_cast<float>(parameter.shape.front());
    const float deviation = parameter.shape.size() > 1 ? 1 / std::sqrt(inputs) : 0.3F;
    nn::Tensor values = small::random_normal(parameter.shape, deviation, dice);
    if (parameter.initial.value == 1) {
      for (float& value : values.values) value += 1;
    }
    parameters.push_back(std::move(values));
  }
  return parameters;
}

/// Both sides begin with numbers that the device's type can hold.
void compare(const Instance& instance, cuda::Precision precision, double tolerance, Dice& dice) {
  const auto module = nn::make_module(instance.operation);
  const cuda::Type type = cuda::type_of(precision);
  std::vector<nn::Tensor> parameters = random_parameters(*module, dice);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool is_router = module->parameters()[i].name.find("router") != std::string::npos;
    if (is_router && instance.scores_alike) parameters[i] = nn::zeros(parameters[i].shape);
    parameters[i] = small::rounded(parameters[i], type);
  }
  Batch batch = instance.batch;
  if (!batch.has_tokens) batch.input = small::rounded(batch.input, type);
  nn::Shape sample(batch.input.shape.begin() + 1, batch.input.shape.end());
  nn::Shape output = module->output_shape(sample);
  output.insert(output.begin(), batch.input.samples());
  nn::Tensor slope = small::random_normal(output, 1, dice);
  const bool is_loss = std::holds_alternative<SoftmaxCrossEntropyOperation>(instance.operation);
  if (!is_loss) slope = small::rounded(slope, type);
  std::vector<nn::Tensor> sums;
  for (const nn::Tensor& parameter : parameters) {
    sums.push_back(small::random_normal(parameter.shape, 0.1F, dice));
  }
  const Results expected = small::run_on_host(*module, parameters, batch, slope, sums);
  const Results found =
      small::run_on_device(instance.operation, precision, parameters, batch, slope, sums);
  CHECK(found.output.shape == expected.output.shape);
  CHECK(small::difference(found.output.values, expected.output.values) < tolerance);
  CHECK(found.input_gradient.shape == expected.input_gradient.shape);
  CHECK(small::difference(found.input_gradient.values, expected.input_gradient.values) < tolerance);
  REQUIRE(found.weight_gradients.size() == expected.weight_gradients.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    INFO(module->parameters()[i].name);
    CHECK(small::difference(found.weight_gradients[i].values, expected.weight_gradients[i].values) <
          tolerance);
  }
  CHECK(small::device_of_tests().memory_in_use().count == 0);
}

struct Compared {
  cuda::Precision precision;
  double tolerance;
};
/// The GPU's single precision adds up in another order; tensor cores that round to ten bits do not
/// get through.
constexpr Compared kPrecisions[] = {{cuda::Precision::Float32, 1e-5},
                                    {cuda::Precision::BFloat16, 2e-2},
                                    {cuda::Precision::Float16, 4e-3}};

/// `factor`: how much more than a single module may differ.
template <class Make>
void compare_many(int rounds, std::uint64_t seed, const Make& make, double factor = 1) {
  for (const auto& [precision, tolerance] : kPrecisions) {
    Dice dice(seed);
    for (int round = 0; round < small::scaled(rounds); ++round) {
      const Instance instance = make(dice);
      INFO("round " << round << ", " << instance.name << ", "
                    << nn::count_of(instance.batch.input.shape) << " numbers, precision "
                    << static_cast<int>(precision));
      compare(instance, precision, factor * tolerance, dice);
    }
  }
}

}  // namespace

TEST_CASE("modules over sequences compute what nn's do", "[cuda]") {
  compare_many(40, 61, random_sequence_instance);
}

TEST_CASE("modules over images compute what nn's do", "[cuda]") {
  compare_many(25, 62, random_image_instance);
}

TEST_CASE("attention computes what nn's does", "[cuda]") {
  compare_many(5, 63, random_attention);
}

TEST_CASE("a fused transformer block computes what nn's single modules do", "[cuda]") {
  // It rounds after each of its modules.
  compare_many(6, 64, random_block, 2);
}

TEST_CASE("attention and blocks of any form compute what nn's do", "[cuda]") {
  // Single modules of a block round after each of them, too, and a residual connection twice.
  compare_many(14, 68, random_form, 3);
}

TEST_CASE("blocks with experts compute what nn's do", "[cuda]") {
  Dice dice(69);
  for (int round = 0; round < small::scaled(12); ++round) {
    const Instance instance = random_experts(dice);
    const auto& experts = *std::get<TransformerBlockOperation>(instance.operation).experts;
    INFO("round " << round << ", " << experts.per_token << " of " << experts.count << " experts");
    compare(instance, cuda::Precision::Float32, 3e-5, dice);
  }
  compare_many(6, 70, random_whole_experts, 3);
  // The first ones of experts with equal scores are chosen.
  for (const auto& [precision, tolerance] : kPrecisions) {
    Instance instance = random_experts(dice);
    instance.scores_alike = true;
    compare(instance, precision, 3 * tolerance, dice);
  }
}

TEST_CASE("heads wider than a block's columns, and sequences of many tiles", "[cuda]") {
  Dice dice(65);
  for (const auto& [precision, tolerance] : kPrecisions) {
    compare(
        {"wide", AttentionOperation{135, 1, true}, {small::random_normal({1, 35, 135}, 1, dice)}},
        precision, tolerance, dice);
  }
}

TEST_CASE("rows of more numbers than a block's threads take at a time", "[cuda]") {
  Dice dice(66);
  for (const auto& [precision, tolerance] : kPrecisions) {
    compare(
        {"large rows", LayerNormOperation{2'051}, {small::random_normal({1, 3, 2'051}, 1, dice)}},
        precision, tolerance, dice);
    compare(
        {"packed rows", LayerNormOperation{1'600}, {small::random_normal({2, 2, 1'600}, 1, dice)}},
        precision, tolerance, dice);
    compare({"many rows", LinearOperation{3, 5}, {small::random_normal({1'100, 3}, 1, dice)}},
            precision, tolerance, dice);
    compare(
        {"many normed rows", LayerNormOperation{5}, {small::random_normal({1'100, 5}, 1, dice)}},
        precision, tolerance, dice);
  }
}

TEST_CASE("heads over vocabularies that fit no vector", "[cuda]") {
  Dice dice(67);
  for (const auto& [precision, tolerance] : kPrecisions) {
    for (const std::int64_t vocabulary : {51, 49, 56, 7}) {
      compare({"head",
               LinearOperation{24, vocabulary, false, true},
               {small::random_normal({2, 3, 24}, 1, dice)}},
              precision, tolerance, dice);
      compare({"loss",
               SoftmaxCrossEntropyOperation{vocabulary},
               {small::random_normal({2, 3, vocabulary}, 2, dice),
                small::random_whole({2, 3}, vocabulary, dice)}},
              precision, tolerance, dice);
    }
  }
}

TEST_CASE("a module takes no more for a moment than it says", "[cuda]") {
  using cuda::Type;
  constexpr std::int64_t kSequence = 48;
  constexpr std::int64_t kHidden = 64;
  const std::pair<Operation, nn::Shape> kinds[] = {
      {TransformerBlockOperation{kHidden, 2, 256, kSequence, true}, {2, kSequence, kHidden}},
      {TransformerBlockOperation{kHidden, 4, 32, kSequence, false}, {1, kSequence, kHidden}},
      {AttentionOperation{kHidden, 2, true}, {2, kSequence, kHidden}},
      {AttentionOperation{kHidden, 4, true, {.kv_heads = 1, .width = 48, .rotary_base = 100}},
       {2, kSequence, kHidden}},
      {TransformerBlockOperation{.hidden = kHidden,
                                 .heads = 4,
                                 .feed_forward = 256,
                                 .sequence = kSequence,
                                 .form = {.kv_heads = 2, .rotary_base = 100},
                                 .norm = NormKind::RmsNorm,
                                 .activation = FeedForwardKind::SwiGlu},
       {2, kSequence, kHidden}},
      {TransformerBlockOperation{.hidden = kHidden,
                                 .heads = 4,
                                 .feed_forward = 24,
                                 .sequence = kSequence,
                                 .form = {.width = 40},
                                 .bias = false},
       {1, kSequence, kHidden}},
      {TransformerBlockOperation{.hidden = kHidden,
                                 .heads = 4,
                                 .feed_forward = 128,
                                 .sequence = kSequence,
                                 .activation = FeedForwardKind::SwiGlu,
                                 .experts = ExpertsForm{.count = 4, .per_token = 3}},
       {2, kSequence, kHidden}},
      {ConvolutionOperation{3, 4, 20, 20, 3, 1, 1}, {2, 3, 20, 20}},
      {SoftmaxCrossEntropyOperation{kHidden}, {2, kSequence, kHidden}}};
  constexpr cuda::Precision kPrecision = cuda::Precision::Float32;
  for (const auto& [operation, shape] : kinds) {
    INFO("kind " << operation.index());
    // The rest of workspace_of() is an allowance for partial sums and for cuBLASLt, whose workspace
    // is counted below.
    const Bytes limit = workspace_of(operation, shape, kPrecision) -
                        workspace_of(ReluOperation{}, shape, kPrecision);
    cuda::Device device(0, Bytes{std::int64_t{32} << 20});
    std::vector<cuda::DeviceTensor> parameters;
    std::vector<cuda::View> views;
    const auto described = nn::make_module(operation);
    for (const nn::ParameterSpec& parameter : described->parameters()) {
      parameters.push_back(to_device(device, nn::zeros(parameter.shape), Type::Float32));
      views.push_back(parameters.back().view());
    }
    const cuda::DeviceTensor targets =
        to_device(device, nn::zeros({shape[0], shape[1]}), Type::Int32);
    const auto module = cuda::make_module(operation, kPrecision);
    cuda::DeviceStash stash;
    cuda::DeviceTensor input = to_device(device, nn::zeros(shape), Type::Float32);
    Bytes most = device.most_memory_in_use();
    const auto note = [&] { most = std::max(most, device.memory_in_use()); };
    cuda::DeviceTensor slope = module->forward(device, views, std::move(input), targets, stash);
    note();
    const cuda::DeviceTensor gradient =
        module->input_gradient(device, views, std::move(slope), stash);
    note();
    constexpr Bytes kSlack{16'384};  // small arrays, and pieces rounded up
    const Bytes of_products = device.most_product_workspace();
    CHECK(device.most_memory_in_use() <= most + limit + of_products + kSlack);
  }
}
