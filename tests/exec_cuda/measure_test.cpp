// Layers measured on a GPU: what a profile says of them but the times.

#include "dapple/exec/measure/measure.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "dapple/cuda/modules/module.h"
#include "dapple/cuda/modules/shared_layers.h"
#include "dapple/io/documents/documents.h"
#include "dapple/nn/model.h"
#include "dapple/nn/shared_layers.h"

namespace dapple {
namespace {

std::string layer(const std::string& name, int parameters, const std::string& operation) {
  return R"({"name": ")" + name + R"(", "parameter_bytes": )" + std::to_string(parameters) +
         R"(, "op": {"kind": )" + operation + "}}";
}

io::Specification specification_of(const std::string& layers) {
  return io::read_specification(
      R"({"schema": "dapple-profile/1", "name": "perceptron", "source": "x",
      "global_batch_size": 4, "device": "any", "optimizer": {"name": "adamw",
      "state_bytes_per_parameter_byte": 2}, "layers": [)" +
          layers + "]}",
      "perceptron.json");
}

/// Linear layers of 8 x 16 and 16 x 4, with a ReLU between them.
io::Specification perceptron() {
  return specification_of(layer("first", 4 * 144, R"("linear", "inputs": 8, "outputs": 16)") + "," +
                          layer("relu", 0, R"("relu")") + "," +
                          layer("last", 4 * 68, R"("linear", "inputs": 16, "outputs": 4)") + "," +
                          layer("loss", 0, R"("softmax_cross_entropy", "classes": 4)"));
}

TEST_CASE("a model measured on a GPU has tensors in its precision, and can be planned from",
          "[measure]") {
  const exec::MeasuredModel measured =
      exec::measure_model(perceptron(), "perceptron.json",
                          {.batch_sizes = {2, 3},
                           .repeats = 2,
                           .device = "card",
                           .on_gpu = true,
                           .precision = cuda::Precision::BFloat16});
  const ModelProfile& profile = measured.profile;
  CHECK(profile.device == "card");
  CHECK(profile.source.find("bfloat16 on ") != std::string::npos);
  REQUIRE(profile.layers.size() == 4);
  // Two and three samples of 16 numbers, two bytes each; the input of 8 is kept.
  CHECK(profile.layers[0].measurements[0].output == Bytes{2 * 16 * 2});
  CHECK(profile.layers[0].measurements[1].output == Bytes{3 * 16 * 2});
  CHECK(profile.layers[0].measurements[1].stash == Bytes{3 * 8 * 2});
  CHECK(profile.layers[3].measurements[0].output == Bytes{2 * 4});  // a loss for each, of 4 bytes
  CHECK(profile.layers[0].parameters == Bytes{4 * 144});
  for (const Layer& layer : profile.layers) {
    for (const Measurement& figures : layer.measurements) {
      CHECK(figures.backward == *figures.input_gradient + *figures.weight_gradient);
    }
  }
  const std::string text = io::write_profile(profile);
  CHECK(io::write_profile(io::read_profile(text, "perceptron.json")) == text);
}

TEST_CASE("what layers took of a GPU's memory for a moment is no more than they may take",
          "[measure]") {
  const io::Specification specification = perceptron();
  const exec::MeasuredModel measured =
      exec::measure_model(specification, "perceptron.json",
                          {.batch_sizes = {2, 20}, .repeats = 1, .device = "card", .on_gpu = true});
  const std::vector<nn::ModelLayer> model =
      nn::make_model(specification.profile, specification.operations, "perceptron.json");
  for (std::size_t i = 0; i < model.size(); ++i) {
    for (const Measurement& figures : measured.profile.layers[i].measurements) {
      nn::Shape input = model[i].input;
      input.insert(input.begin(), figures.batch_size);
      INFO(model[i].name);
      CHECK(figures.workspace.count >= 0);
      CHECK(figures.workspace <=
            cuda::workspace_of(model[i].operation, input, cuda::Precision::Float32));
    }
  }
  // A loss keeps one number for each row while it adds them up.
  CHECK(measured.profile.layers[3].measurements[1].workspace.count >= 20 * 4);
}

TEST_CASE("a head is measured as it runs before its loss, and sends no gaps", "[measure]") {
  const io::Specification specification = specification_of(
      layer("head", 4 * 8 * 11,
            R"("linear", "inputs": 8, "outputs": 11, "transposed": true, "bias": false)") +
      "," + layer("loss", 0, R"("softmax_cross_entropy", "classes": 11)"));
  const exec::MeasuredModel measured =
      exec::measure_model(specification, "perceptron.json",
                          {.batch_sizes = {3},
                           .repeats = 1,
                           .device = "card",
                           .on_gpu = true,
                           .precision = cuda::Precision::BFloat16});
  const std::vector<Layer>& layers = measured.profile.layers;
  CHECK(layers[0].measurements[0].output == Bytes{3 * 11 * 2});
  // Rows of 11 numbers begin 16 numbers apart.
  CHECK(layers[1].measurements[0].stash >= Bytes{3 * 16 * 2});
}

/// Blocks whose tensors are larger than what allocations are rounded by, between an embedding and a
/// head.
io::Specification transformer(const std::string& blocks) {
  return specification_of(
      layer("embedding", 4 * (50 + 32) * 32,
            R"("embedding", "vocabulary": 50, "sequence": 32, "hidden": 32)") +
      "," + blocks + "," +
      layer("head", 4 * (32 * 50 + 50), R"("linear", "inputs": 32, "outputs": 50)") + "," +
      layer("loss", 0, R"("softmax_cross_entropy", "classes": 50)"));
}

const char* const kBlock =
    R"("transformer_block", "hidden": 32, "heads": 4, "feed_forward": 64, "sequence": 32, )"
    R"("causal": true)";
const std::string kLlama = kBlock + std::string(R"(, "kv_heads": 2, "rotary_base": 100, )"
                                                R"("norm": "rms_norm", "activation": "swiglu", )"
                                                R"("bias": false)");
constexpr int kOfLlama = 2 * 32 + 32 * 64 + 32 * 32 + 32 * 128 + 64 * 32;

/// Requires that layers take no more of a GPU's memory than they may, in each form.
void require_within_bounds(const io::Specification& specification,
                           const exec::MeasuredModel& measured, cuda::Precision precision) {
  const std::vector<nn::ModelLayer> model =
      nn::make_model(specification.profile, specification.operations, "transformer.json");
  const std::int64_t number = cuda::size_of(cuda::type_of(precision));
  for (std::size_t i = 0; i < model.size(); ++i) {
    for (const LayerVariant& variant : measured.profile.layers[i].variants) {
      const Parallelism& form = variant.parallelism;
      const nn::LayerRank rank{
          .tensor = {.ranks = form.tensor, .is_sequence_parallel = form.sequence},
          .context = {.ranks = form.context},
          .experts = {.ranks = form.experts},
          .expert_tensor = {.ranks = form.expert_tensor},
          .recomputes = form.recomputes};
      INFO(model[i].name << ", " << to_text(form));
      const Measurement& figures = variant.measurements.front();
      nn::Shape input = model[i].input;
      input.insert(input.begin(), figures.batch_size);
      const Bytes bound = cuda::workspace_of(model[i].operation, input, rank, precision);
      // Without what is left to products and to partial sums, which the stand-in for a GPU does not
      // need.
      const bool is_stand_in = cuda::properties_of(0).name == "the host";
      const Bytes of_products = is_stand_in ? cuda::kProductWorkspace + Bytes{8 << 20} : Bytes{};
      constexpr Bytes kRounding{16 << 10};
      CHECK(figures.workspace <= bound - of_products + kRounding);
      if (i + 1 == model.size()) continue;
      const std::vector<nn::ModelLayer> shared = nn::share_model(model, rank, "");
      CHECK(figures.output == Bytes{figures.batch_size * nn::count_of(shared[i].output) * number});
    }
  }
}

TEST_CASE("layers are measured on a GPU as ranks of groups run them, within the memory of these",
          "[measure]") {
  const int of_block = 4 * 32 + (32 * 96 + 96) + (32 * 32 + 32) + 32 * 64 + 64 + 64 * 32 + 32;
  const io::Specification specification = transformer(layer("block", 4 * of_block, kBlock) + "," +
                                                      layer("llama", 4 * kOfLlama, kLlama));
  for (const cuda::Precision precision : {cuda::Precision::Float32, cuda::Precision::BFloat16}) {
    const exec::MeasuredModel measured = exec::measure_model(
        specification, "transformer.json",
        {.batch_sizes = {3},
         .repeats = 1,
         .tensor_degrees = {2},
         .context_degrees = {2},
         .recomputes = {{RecomputedPart::Layer}, {RecomputedPart::CoreAttention}},
         .device = "card",
         .on_gpu = true,
         .precision = precision});
    require_within_bounds(specification, measured, precision);
    for (const Layer& layer : measured.profile.layers) CHECK(layer.variants.size() >= 5);
  }
}

TEST_CASE("blocks with experts are measured on a GPU with what ranks exchange in its precision",
          "[measure]") {
  const int of_mixtral = kOfLlama + 32 * 4 + 3 * (32 * 128 + 64 * 32);
  const io::Specification specification = transformer(
      layer("mixtral", 4 * of_mixtral, kLlama + R"(, "experts": 4, "experts_per_token": 2)"));
  for (const cuda::Precision precision : {cuda::Precision::Float32, cuda::Precision::BFloat16}) {
    const exec::MeasuredModel measured =
        exec::measure_model(specification, "transformer.json",
                            {.batch_sizes = {2},
                             .repeats = 1,
                             .tensor_degrees = {2},
                             .expert_degrees = {2},
                             .divides_experts = true,
                             .recomputes = {{RecomputedPart::Experts}},
                             .device = "card",
                             .on_gpu = true,
                             .precision = precision});
    require_within_bounds(specification, measured, precision);
    const auto to_each = [](std::int64_t count, std::int64_t size) {
      return Collective{CollectiveKind::AllToAll, CollectiveMembers::Experts, {size}, count};
    };
    // Two experts for each of 32 positions, with 32 numbers, and numbers of rows of four experts.
    const std::int64_t rows = 2 * 32 * 32 * cuda::size_of(cuda::type_of(precision));
    const Collective counts = to_each(1, 4 * 8);
    const Collective products = to_each(1, 2 * 32 * 4);
    int variants = 0;
    int divided = 0;
    for (const LayerVariant& variant : measured.profile.layers[1].variants) {
      if (variant.parallelism.expert_tensor > 1 && variant.parallelism.recomputes.none()) {
        // A rank has 16 of the positions; what comes to it is sent on to two ranks, and these sum
        // as much in single precision.
        std::int64_t there = 0;
        std::int64_t summed = 0;
        for (const Collective& one : variant.forward_collectives) {
          if (one.kind != CollectiveKind::AllToAll || one.over != CollectiveMembers::Tensor)
            continue;
          const bool is_of_counts = one.size_per_sample == Bytes{2 * 4 * 8};
          const bool is_summed = one.size_per_sample == Bytes{2 * 2 * 16 * 32 * 4};
          there += is_of_counts ? 0 : one.count;
          summed += is_summed ? one.count : 0;
          CHECK((is_of_counts || is_summed || one.size_per_sample == Bytes{rows}));
        }
        CHECK(there == 2);
        CHECK(summed == (precision == cuda::Precision::Float32 ? 2 : 1));
        ++divided;
      }
      if (variant.parallelism.experts == 1 || variant.parallelism.tensor > 1) continue;
      CHECK(variant.forward_collectives == std::vector{counts, to_each(2, rows)});
      CHECK(variant.backward_collectives ==
            (variant.parallelism.recomputes.none()
                 ? std::vector{to_each(2, rows), products}
                 : std::vector{counts, to_each(4, rows), products}));
      ++variants;
    }
    CHECK(variants == 2);
    CHECK(divided == 1);
  }
}

}  // namespace
}  // namespace dapple
