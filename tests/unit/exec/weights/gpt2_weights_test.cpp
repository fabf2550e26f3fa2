// GPT-2's weights as others write and read them.

#include "dapple/exec/weights/gpt2_weights.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "../../../support/safetensors_file.h"
#include "../../../support/trainable.h"
#include "dapple/core/error.h"

namespace dapple::exec {
namespace {

using namespace small;

/// Two blocks of hidden size 2, 3 tokens, a sequence of 2.
struct Model {
  std::vector<Operation> operations{
      EmbeddingOperation{.vocabulary = 3, .sequence = 2, .hidden = 2, .positions = false},
      PositionEmbeddingOperation{.sequence = 2, .hidden = 2},
      block(),
      block(),
      LayerNormOperation{.hidden = 2},
      LinearOperation{.inputs = 2, .outputs = 3, .bias = false, .transposed = true},
      SoftmaxCrossEntropyOperation{.classes = 3}};
  bool is_tied = true;

  static TransformerBlockOperation block() {
    return {.hidden = 2, .heads = 1, .feed_forward = 4, .sequence = 2, .causal = true};
  }
  Trainable built() const {
    Dice dice(11);
    return trainable({.operations = operations,
                      .input = {2},
                      .tokens = 3,
                      .classes = 3,
                      .positions = {2},
                      .is_tied = is_tied},
                     dice);
  }
};

using Entries = std::vector<TensorEntry>;

std::string bytes_of(std::int64_t count, float first) {
  std::string bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = first + 0.25F * static_cast<float>(i);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

TensorEntry entry(std::string name, nn::Shape shape) {
  const std::int64_t count = nn::count_of(shape);
  const auto first = static_cast<float>(name.size());
  return {std::move(name), "F32", std::move(shape), bytes_of(count, first)};
}

/// What others would have written of the model.
Entries published() {
  Entries entries{entry("wte.weight", {3, 2}), entry("wpe.weight", {2, 2}),
                  entry("ln_f.weight", {2}), entry("ln_f.bias", {2})};
  for (const char* block : {"h.0.", "h.1."}) {
    const std::pair<const char*, nn::Shape> of_block[] = {
        {"ln_1.weight", {2}},           {"ln_1.bias", {2}},
        {"attn.c_attn.weight", {2, 6}}, {"attn.c_attn.bias", {6}},
        {"attn.c_proj.weight", {2, 2}}, {"attn.c_proj.bias", {2}},
        {"ln_2.weight", {2}},           {"ln_2.bias", {2}},
        {"mlp.c_fc.weight", {2, 4}},    {"mlp.c_fc.bias", {4}},
        {"mlp.c_proj.weight", {4, 2}},  {"mlp.c_proj.bias", {2}}};
    for (const auto& [name, shape] : of_block)
      entries.push_back(entry(block + std::string(name), shape));
  }
  return entries;
}

TensorEntry& named(Entries& entries, const std::string& name) {
  for (TensorEntry& found : entries) {
    if (found.name == name) return found;
  }
  throw Bug("no such entry");
}

NamedTensors read(const Model& model, const Entries& entries) {
  const Trainable built = model.built();
  return read_gpt2_weights(safetensors_file(entries), "w", *built.layers, model.operations, "m");
}

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::BadInput);
    return error.what();
  }
  return "none";
}

TEST_CASE("published weights become the model's, and the same file again") {
  const Model model;
  const Trainable built = model.built();
  const Entries entries = published();
  const NamedTensors tensors = read(model, entries);
  CHECK(tensors.size() == entries.size());
  const std::string& block = (*built.layers)[3].name;
  const nn::Tensor& expand = tensors.at(block + ".expand.weight");
  CHECK(expand.shape == nn::Shape{2, 4});
  CHECK(expand.values[5] == 19 + 0.25F * 5);  // begun by how long its name is; by inputs, as theirs
  const std::string written = write_gpt2_weights(tensors, *built.layers, model.operations, "m");
  CHECK(read_gpt2_weights(written, "w", *built.layers, model.operations, "m")
            .at(block + ".expand.weight")
            .values == expand.values);
  for (const TensorEntry& each : entries) {
    CHECK(written.find("\"" + each.name + "\"") != std::string::npos);
    CHECK(written.find(each.bytes) != std::string::npos);
  }
}

TEST_CASE("weights may have a prefix, masks and a head that repeats the embedding") {
  Entries entries = published();
  const NamedTensors plain = read(Model(), entries);
  for (TensorEntry& each : entries) each.name = "transformer." + each.name;
  entries.push_back({"transformer.h.0.attn.bias", "U8", {1, 1, 2, 2}, "1011"});
  entries.push_back({"transformer.h.1.attn.masked_bias", "F32", {}, bytes_of(1, -1e4F)});
  entries.push_back(
      {"lm_head.weight", "F32", {3, 2}, named(entries, "transformer.wte.weight").bytes});
  const NamedTensors all = read(Model(), entries);
  REQUIRE(all.size() == plain.size());
  for (const auto& [name, tensor] : plain) CHECK(all.at(name).values == tensor.values);

  entries.back().bytes.back() = 'x';
  CHECK(refusal([&] { read(Model(), entries); }) ==
        "w: /lm_head.weight: expected the embedding's numbers, as the model has tied its head, got "
        "others");
}

TEST_CASE("a head that is not tied has its own matrix") {
  Model model;
  model.is_tied = false;
  Entries entries = published();
  CHECK(refusal([&] { read(model, entries); }) ==
        "w: /lm_head.weight: expected a tensor of shape [3, 2], got none");
  entries.push_back(entry("lm_head.weight", {3, 2}));
  CHECK(read(model, entries).size() == entries.size());
}

TEST_CASE("half precision of both kinds is read") {
  const auto numbers = [](std::vector<std::uint16_t> bits) {
    return std::string(reinterpret_cast<const char*>(bits.data()), 2 * bits.size());
  };
  Entries entries = published();
  named(entries, "ln_f.weight") = {"ln_f.weight", "BF16", {2}, numbers({0x3F80, 0xC049})};
  // One half, and the smallest number above zero; the largest, and the least of all.
  named(entries, "ln_f.bias") = {"ln_f.bias", "F16", {2}, numbers({0x3800, 0x0001})};
  named(entries, "h.0.ln_1.bias") = {"h.0.ln_1.bias", "F16", {2}, numbers({0x7BFF, 0xFBFF})};
  const Model model;
  const NamedTensors tensors = read(model, entries);
  const Trainable built = model.built();
  const std::string& norm = (*built.layers)[4].name;
  CHECK(tensors.at(norm + ".scale").values == std::vector<float>{1, -3.140625F});
  CHECK(tensors.at(norm + ".shift").values == std::vector<float>{0.5F, 0x1p-24F});
  const std::vector<float>& shift = tensors.at((*built.layers)[2].name + ".norm1.shift").values;
  CHECK(shift == std::vector<float>{65504, -65504});
}

TEST_CASE("what is no finite number is named, in every kind of number") {
  const auto refusal_of = [](const char* kind, const std::string& bytes) {
    Entries entries = published();
    named(entries, "ln_f.bias") = {"ln_f.bias", kind, {2}, bytes};
    return refusal([&] { read(Model(), entries); });
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const std::string where = "w: /ln_f.bias: expected finite numbers, got ";
  CHECK(refusal_of("F32", bytes_of(1, 1) + bytes_of(1, std::nanf(""))) ==
        where + "nan as number 2 of 2");
  CHECK(refusal_of("F32", bytes_of(1, infinity) + bytes_of(1, 1)) ==
        where + "inf as number 1 of 2");
  CHECK(refusal_of("F16", std::string("\0\xFC\0\0", 4)) == where + "-inf as number 1 of 2");
  CHECK(refusal_of("BF16", std::string("\0\0\xC0\x7F", 4)) == where + "nan as number 2 of 2");
}

TEST_CASE("weights that are not the model's are refused, and the first fault is named") {
  const auto change = [](const std::function<void(Entries&)>& make) {
    Entries entries = published();
    make(entries);
    return refusal([&] { read(Model(), entries); });
  };
  CHECK(change([](auto& entries) { named(entries, "h.1.ln_2.bias").name = "h.2.ln_2.bias"; }) ==
        "w: /h.1.ln_2.bias: expected a tensor of shape [2], got none; 1 more differs: weights of "
        "another model?");
  CHECK(change([](auto& entries) {
          named(entries, "wpe.weight") = entry("wpe.weight", {4, 2});
        }) == "w: /wpe.weight: expected shape [2, 2], got [4, 2]");
  CHECK(change([](auto& entries) {
          entries.push_back(entry("score.weight", {1, 2}));
        }) == "w: /score.weight: expected no such tensor, as the model has none");
  CHECK(change([](auto& entries) {
          named(entries, "ln_f.bias") = {"ln_f.bias", "I32", {2}, bytes_of(2, 1)};
        }) == "w: /ln_f.bias/dtype: expected \"F32\", \"F16\" or \"BF16\", got \"I32\"");
  CHECK(change([](auto& entries) { entries.clear(); }).find("27 more differ") != std::string::npos);
  CHECK(change([](auto& entries) { entries.push_back(entry("transformer.ln_f.bias", {2})); }) ==
        "w: /transformer.ln_f.bias: expected this tensor once, with a prefix or without, got both");
  const std::string whole = safetensors_file(published());
  const Model model;
  const Trainable built = model.built();
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    REQUIRE_THROWS_AS(
        read_gpt2_weights(whole.substr(0, size), "w", *built.layers, model.operations, "m"), Error);
  }
}

TEST_CASE("a model of another form has no such weights") {
  const auto refused = [](const std::function<void(Model&)>& make) {
    Model model;
    make(model);
    return refusal([&] { read(model, published()); });
  };
  const std::string where = "m: /model/profile/layers: expected ";
  CHECK(refused([](Model& model) {
          model.operations.insert(model.operations.begin() + 4, GeluOperation{});
        }).starts_with(where + "a transformer block or a layer norm here"));
  CHECK(refused([](Model& model) {
          model.operations[5] = LinearOperation{.inputs = 2, .outputs = 3, .bias = false};
          model.is_tied = false;
        }).starts_with(where + "a head with \"bias\": false and \"transposed\": true here"));
  CHECK(refused([](Model& model) {
          model.operations.erase(model.operations.begin() + 1);
        }).starts_with(where + "a position embedding here"));
  for (const auto make :
       {+[](TransformerBlockOperation& block) { block.norm = NormKind::RmsNorm; },
        +[](TransformerBlockOperation& block) { block.activation = FeedForwardKind::SwiGlu; },
        +[](TransformerBlockOperation& block) { block.bias = false; },
        +[](TransformerBlockOperation& block) { block.form.width = 4; },
        +[](TransformerBlockOperation& block) { block.form.rotary_base = 10; }}) {
    CHECK(refused(
              [&](Model& model) { make(std::get<TransformerBlockOperation>(model.operations[3])); })
              .starts_with(where +
                           "a transformer block with biases, layer norms, GELU and heads of "
                           "hidden / heads here"));
  }
}

}  // namespace
}  // namespace dapple::exec
