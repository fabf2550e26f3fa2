#include "dapple/io/documents/specification.h"

#include <catch2/catch.hpp>

#include "documents_under_test.h"

namespace dapple::test {
namespace {

std::string document_of(const std::string& layers) {
  return R"({"schema": "dapple-profile/1", "name": "m", "source": "made up", "device": "",
             "optimizer": {"name": "sgd", "state_bytes_per_parameter_byte": 0}, "layers": [)" +
         layers + "]}";
}

std::string layer_of(const std::string& operation) {
  return R"({"name": "a", "parameter_bytes": 4, "op": )" + operation + "}";
}

/// What the reader says of a model of these layers.
std::string refusal_of(const std::string& layers) {
  try {
    io::read_specification(document_of(layers), "m.json");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::BadInput);
    return error.what();
  }
  return "";
}

TEST_CASE("an operation is read with its dimensions and its defaults") {
  const auto read = [](const std::string& operation) {
    return io::read_specification(document_of(layer_of(operation)), "m.json").operations.at(0);
  };
  const auto linear =
      std::get<LinearOperation>(read(R"({"kind": "linear", "inputs": 3, "outputs": 5})"));
  CHECK(linear.inputs == 3);
  CHECK(linear.outputs == 5);
  CHECK(linear.bias);
  const auto block = std::get<TransformerBlockOperation>(
      read(R"({"kind": "transformer_block", "hidden": 12, "heads": 3, "feed_forward": 48,
               "sequence": 7, "causal": true})"));
  CHECK(block.hidden == 12);
  CHECK(block.heads == 3);
  CHECK(block.feed_forward == 48);
  CHECK(block.sequence == 7);
  CHECK(block.causal);
  const auto convolution = std::get<ConvolutionOperation>(
      read(R"({"kind": "convolution", "in_channels": 3, "out_channels": 8, "height": 5, "width": 6,
               "kernel": 3})"));
  CHECK(convolution.in_channels == 3);
  CHECK(convolution.out_channels == 8);
  CHECK(convolution.height == 5);
  CHECK(convolution.width == 6);
  CHECK(convolution.kernel == 3);
  CHECK(convolution.stride == 1);
  CHECK(convolution.padding == 0);
  const auto attention =
      std::get<AttentionOperation>(read(R"({"kind": "attention", "hidden": 4, "heads": 2})"));
  CHECK_FALSE(attention.causal);
  CHECK(attention.bias);
  CHECK(kv_heads_of(attention) == 2);
  CHECK(head_width_of(attention) == 2);
  CHECK_FALSE(attention.form.rotary_base.has_value());
  CHECK(is_gpt2_block(block));
}

TEST_CASE("a block may be as in Llama, and an attention may have heads of any form") {
  const auto read = [](const std::string& operation) {
    return io::read_specification(document_of(layer_of(operation)), "m.json").operations.at(0);
  };
  const auto block = std::get<TransformerBlockOperation>(
      read(R"({"kind": "transformer_block", "hidden": 12, "heads": 4, "feed_forward": 20,
               "sequence": 7, "causal": true, "kv_heads": 2, "head_width": 6, "bias": false,
               "rotary_base": 500000, "norm": "rms_norm", "activation": "swiglu"})"));
  CHECK_FALSE(block.bias);
  CHECK(block.norm == NormKind::RmsNorm);
  CHECK(block.activation == FeedForwardKind::SwiGlu);
  CHECK(expanded_width_of(block) == 40);
  CHECK_FALSE(is_gpt2_block(block));
  const auto attention = std::get<AttentionOperation>(
      read(R"({"kind": "attention", "hidden": 10, "heads": 4, "kv_heads": 2, "head_width": 6,
               "rotary_base": 10000.5, "bias": false})"));
  for (const AttentionOperation& read_as : {attention, attention_of(block)}) {
    CHECK(kv_heads_of(read_as) == 2);
    CHECK(head_width_of(read_as) == 6);
    CHECK_FALSE(read_as.bias);
  }
  CHECK(attention.form.rotary_base == 10000.5);
  CHECK(block.form.rotary_base == 500'000);
  CHECK(std::get<RmsNormOperation>(read(R"({"kind": "rms_norm", "hidden": 9})")).hidden == 9);
  CHECK(std::holds_alternative<SwiGluOperation>(read(R"({"kind": "swiglu"})")));
}

TEST_CASE("heads that cannot be are refused by the key that says so") {
  const auto refusal = [](const std::string& heads) {
    const std::string more = R"({"kind": "attention", "hidden": 12, )" + heads + "}";
    const std::string block = R"({"kind": "transformer_block", "hidden": 12, "feed_forward": 5,
                                  "sequence": 3, )" +
                              heads + "}";
    CHECK(refusal_of(layer_of(block)) == refusal_of(layer_of(more)));
    return refusal_of(layer_of(more));
  };
  CHECK(refusal(R"("heads": 4, "kv_heads": 3)") ==
        "m.json: layer a/op/kv_heads: expected a divisor of heads, 4, got 3");
  CHECK(refusal(R"("heads": 4, "kv_heads": 0)") ==
        "m.json: layer a/op/kv_heads: expected an integer from 1 to 1048576, got 0");
  CHECK(refusal(R"("heads": 4, "rotary_base": 10000)") ==
        "m.json: layer a/op/heads: expected heads of an even width, as rotary positions turn pairs "
        "of numbers, got 4 of width 3");
  CHECK(refusal(R"("heads": 4, "head_width": 5, "kv_heads": 8, "rotary_base": 10000)") ==
        "m.json: layer a/op/kv_heads: expected a divisor of heads, 4, got 8\n"
        "m.json: layer a/op/head_width: expected heads of an even width, as rotary positions turn "
        "pairs of numbers, got 5");
  CHECK(refusal(R"("heads": 4, "rotary_base": 0.5)") ==
        "m.json: layer a/op/rotary_base: expected a number from 1 to 1000000000000, got 0.5");
  CHECK(refusal(R"("heads": 5)") ==
        "m.json: layer a/op/heads: expected a divisor of hidden, 12, got 5");
  CHECK(refusal(R"("heads": 5, "head_width": 4)").empty());
  CHECK(
      refusal(R"("heads": 1025, "head_width": 1024)") ==
      "m.json: layer a/op/head_width: expected at most 1048576 numbers in all 1025 heads, got 1024 "
      "in each");
  CHECK(refusal(R"("kv_heads": 2)") ==
        "m.json: layer a/op/heads: expected an integer from 1 to 1048576, but the key is missing");
  CHECK(refusal_of(layer_of(R"({"kind": "transformer_block", "hidden": 12, "heads": 3,
                                "feed_forward": 5, "sequence": 3, "norm": "rms",
                                "activation": "relu"})")) ==
        "m.json: layer a/op/activation: expected \"gelu\" or \"swiglu\", got \"relu\"\n"
        "m.json: layer a/op/norm: expected \"layer_norm\" or \"rms_norm\", got \"rms\"");
}

TEST_CASE("every fault of an operation is named with its layer and key") {
  CHECK(refusal_of(layer_of(R"({"kind": "liner"})")) ==
        "m.json: layer a/op/kind: expected \"embedding\", \"position_embedding\", \"linear\", "
        "\"layer_norm\", \"rms_norm\", \"relu\", \"gelu\", \"swiglu\", \"attention\", "
        "\"transformer_block\", "
        "\"convolution\", \"max_pool\", \"flatten\" or \"softmax_cross_entropy\", got \"liner\"");
  CHECK(refusal_of(layer_of(R"({"inputs": 3})")) ==
        "m.json: layer a/op/kind: expected \"embedding\", \"position_embedding\", \"linear\", "
        "\"layer_norm\", \"rms_norm\", \"relu\", \"gelu\", \"swiglu\", \"attention\", "
        "\"transformer_block\", "
        "\"convolution\", \"max_pool\", \"flatten\" or \"softmax_cross_entropy\", but the key is "
        "missing");
  CHECK(refusal_of(layer_of(R"({"kind": "linear", "inputs": 0, "outputs": 1048577})")) ==
        "m.json: layer a/op/inputs: expected an integer from 1 to 1048576, got 0\n"
        "m.json: layer a/op/outputs: expected an integer from 1 to 1048576, got 1048577");
  CHECK(refusal_of(layer_of(R"({"kind": "layer_norm"})")) ==
        "m.json: layer a/op/hidden: expected an integer from 1 to 1048576, but the key is missing");
  CHECK(refusal_of(layer_of(R"({"kind": "relu", "hidden": 3})")) ==
        "m.json: layer a/op/hidden: expected one of the keys \"kind\", got an unknown key");
  CHECK(refusal_of(layer_of(R"({"kind": "attention", "hidden": 10, "heads": 4})")) ==
        "m.json: layer a/op/heads: expected a divisor of hidden, 10, got 4");
  CHECK(refusal_of(layer_of(R"({"kind": "convolution", "in_channels": 1, "out_channels": 1,
                                "height": 3, "width": 9, "kernel": 6, "padding": 1})")) ==
        "m.json: layer a/op/kernel: expected at most 5, the shorter side with its padding, got 6");
  CHECK(refusal_of(layer_of(R"({"kind": "convolution", "in_channels": 1, "out_channels": 1,
                                "height": 3, "width": 9, "kernel": 1, "padding": 1})")) ==
        "m.json: layer a/op/padding: expected less than kernel, 1, got 1");
}

TEST_CASE("a model is a chain of layers that all say what they do") {
  const std::string first = R"({"name": "a", "parameter_bytes": 0, "op": {"kind": "relu"}})";
  CHECK(refusal_of(first + R"(, {"name": "b", "parameter_bytes": 0})") ==
        "m.json: layer b/op: expected what the layer does, but the key is missing");
  CHECK(refusal_of(first + R"(, {"name": "b", "parameter_bytes": 0, "op": {"kind": "relu"}},
                               {"name": "c", "parameter_bytes": 0, "op": {"kind": "relu"},
                                "inputs": ["a", "b"]})") ==
        "m.json: layer c/inputs: expected the layer before it and no other, got 2 inputs");
}

TEST_CASE("what is wrong with several copies of a layer is said once") {
  CHECK(refusal_of(R"({"name": "a", "repeat": 9, "parameter_bytes": 0, "op": {"kind": "gelu",
                       "rate": 1}})") ==
        "m.json: layer a.0/op/rate: expected one of the keys \"kind\", got an unknown key");
}

TEST_CASE("a profile whose layers say what they do can be run and be planned from") {
  const std::string text = document_of(R"({"name": "a", "parameter_bytes": 0,
      "op": {"kind": "softmax_cross_entropy", "classes": 3},
      "measurements": [{"batch_size": 1, "forward_ns": 1, "backward_ns": 1, "output_bytes": 4,
                        "stash_bytes": 12},
                       {"batch_size": 2, "forward_ns": 2, "backward_ns": 2, "output_bytes": 8,
                        "stash_bytes": 24}]})");
  const io::Specification specification = io::read_specification(text, "m.json");
  CHECK(specification.operations.size() == 1);
  CHECK(io::write_profile(specification.profile) ==
        io::write_profile(io::read_profile(text, "m.json")));
}

}  // namespace
}  // namespace dapple::test
