#include "dapple/io/documents/specification.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "io/documents/embedded.h"

namespace dapple::io {
namespace {

constexpr IntegerRange kDimension{1, kMaxDimension};
constexpr IntegerRange kTokens{1, kMaxTokens};

std::int64_t dimension(ObjectReader& object, std::string_view key) {
  return required_integer(object.field(key), kDimension);
}

std::int64_t dimension_or(ObjectReader& object, std::string_view key, std::int64_t otherwise) {
  return optional_integer(object.field(key), {otherwise == 0 ? 0 : 1, kMaxDimension}, otherwise);
}

bool boolean_or(ObjectReader& object, std::string_view key, bool otherwise) {
  const Field field = object.field(key);
  return field.present() ? read_boolean(field).value_or(otherwise) : otherwise;
}

Operation read_embedding(ObjectReader& object) {
  EmbeddingOperation operation;
  operation.vocabulary = required_integer(object.field("vocabulary"), kTokens);
  operation.sequence = dimension(object, "sequence");
  operation.hidden = dimension(object, "hidden");
  operation.positions = boolean_or(object, "positions", true);
  return operation;
}

Operation read_position_embedding(ObjectReader& object) {
  PositionEmbeddingOperation operation;
  operation.sequence = dimension(object, "sequence");
  operation.hidden = dimension(object, "hidden");
  return operation;
}

Operation read_linear(ObjectReader& object) {
  LinearOperation operation;
  operation.inputs = dimension(object, "inputs");
  operation.outputs = dimension(object, "outputs");
  operation.bias = boolean_or(object, "bias", true);
  operation.transposed = boolean_or(object, "transposed", false);
  return operation;
}

Operation read_layer_norm(ObjectReader& object) {
  return LayerNormOperation{.hidden = dimension(object, "hidden")};
}

Operation read_rms_norm(ObjectReader& object) {
  return RmsNormOperation{.hidden = dimension(object, "hidden")};
}

std::optional<std::int64_t> dimension_if_present(ObjectReader& object, std::string_view key) {
  const Field field = object.field(key);
  return field.present() ? read_integer(field, kDimension) : std::nullopt;
}

HeadForm read_head_form(ObjectReader& object) {
  // Bases of published models are from 10,000 to 100 million.
  constexpr NumberRange kRotaryBase{1, 1e12};
  HeadForm form;
  form.kv_heads = dimension_if_present(object, "kv_heads");
  form.width = dimension_if_present(object, "head_width");
  const Field base = object.field("rotary_base");
  if (base.present()) form.rotary_base = read_number(base, kRotaryBase);
  return form;
}

/// Reads the name of one of two kinds, of which the first is the default.
template <class Kind>
Kind kind_or_first(ObjectReader& object, std::string_view key,
                   const std::vector<std::string_view>& names) {
  const Field field = object.field(key);
  return field.present() ? static_cast<Kind>(read_choice(field, names).value_or(0)) : Kind{};
}

Operation read_attention(ObjectReader& object) {
  AttentionOperation operation;
  operation.hidden = dimension(object, "hidden");
  operation.heads = dimension(object, "heads");
  operation.causal = boolean_or(object, "causal", false);
  operation.form = read_head_form(object);
  operation.bias = boolean_or(object, "bias", true);
  return operation;
}

/// Both keys or none.
std::optional<ExpertsForm> read_experts(ObjectReader& object) {
  const Field count = object.field("experts");
  const Field per_token = object.field("experts_per_token");
  if (!count.present() && !per_token.present()) return std::nullopt;
  return ExpertsForm{.count = required_integer(count, kDimension),
                     .per_token = required_integer(per_token, kDimension)};
}

Operation read_transformer_block(ObjectReader& object) {
  TransformerBlockOperation operation;
  operation.hidden = dimension(object, "hidden");
  operation.heads = dimension(object, "heads");
  operation.feed_forward = dimension(object, "feed_forward");
  operation.sequence = dimension(object, "sequence");
  operation.causal = boolean_or(object, "causal", false);
  operation.form = read_head_form(object);
  operation.bias = boolean_or(object, "bias", true);
  operation.norm = kind_or_first<NormKind>(object, "norm", {"layer_norm", "rms_norm"});
  operation.activation = kind_or_first<FeedForwardKind>(object, "activation", {"gelu", "swiglu"});
  operation.experts = read_experts(object);
  return operation;
}

Operation read_convolution(ObjectReader& object) {
  ConvolutionOperation operation;
  operation.in_channels = dimension(object, "in_channels");
  operation.out_channels = dimension(object, "out_channels");
  operation.height = dimension(object, "height");
  operation.width = dimension(object, "width");
  operation.kernel = dimension(object, "kernel");
  operation.stride = dimension_or(object, "stride", 1);
  operation.padding = dimension_or(object, "padding", 0);
  return operation;
}

Operation read_max_pool(ObjectReader& object) {
  MaxPoolOperation operation;
  operation.kernel = dimension(object, "kernel");
  operation.stride = dimension(object, "stride");
  return operation;
}

Operation read_softmax_cross_entropy(ObjectReader& object) {
  return SoftmaxCrossEntropyOperation{.classes =
                                          required_integer(object.field("classes"), kTokens)};
}

template <class Kind>
Operation read_without_dimensions(ObjectReader&) {
  return Kind{};
}

struct KindReader {
  std::string_view kind;
  Operation (*read)(ObjectReader& object);
};

constexpr KindReader kKinds[] = {
    {"embedding", read_embedding},
    {"position_embedding", read_position_embedding},
    {"linear", read_linear},
    {"layer_norm", read_layer_norm},
    {"rms_norm", read_rms_norm},
    {"relu", read_without_dimensions<ReluOperation>},
    {"gelu", read_without_dimensions<GeluOperation>},
    {"swiglu", read_without_dimensions<SwiGluOperation>},
    {"attention", read_attention},
    {"transformer_block", read_transformer_block},
    {"convolution", read_convolution},
    {"max_pool", read_max_pool},
    {"flatten", read_without_dimensions<FlattenOperation>},
    {"softmax_cross_entropy", read_softmax_cross_entropy},
};

Operation read_operation(const Field& field) {
  ObjectReader object(field);
  std::vector<std::string_view> kinds;
  for (const KindReader& reader : kKinds) kinds.push_back(reader.kind);
  const std::optional<std::size_t> kind = read_choice(object.field("kind"), kinds);
  if (!kind) return {};
  const std::size_t faults_before = field.violations()->count();
  const Operation operation = kKinds[*kind].read(object);
  object.finish();
  if (field.violations()->count() != faults_before) return {};
  for (const Violation& fault : violations_of(operation)) {
    field.violations()->add(field.ordinal(), field.place() + fault.place, fault.message);
  }
  return operation;
}

/// Reads the operations of layers. Each distinct text is parsed only once, so that its violations
/// are reported once.
class OperationsReader {
 public:
  explicit OperationsReader(const std::string& source_name)
      : source_name_(source_name), violations_(source_name) {}

  std::vector<Operation> read(const std::vector<Layer>& layers) {
    std::vector<Operation> operations;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      check_inputs(layers[i], i);
      operations.push_back(read_one(layers[i], static_cast<std::int32_t>(i)));
    }
    violations_.throw_if_any();
    return operations;
  }

 private:
  static std::string place_of(const Layer& layer) { return fmt::format("layer {}", layer.name); }

  void check_inputs(const Layer& layer, std::size_t position) {
    const bool is_fed_alone = position == 0
                                  ? layer.inputs.empty()
                                  : layer.inputs == std::vector{index_at<LayerIndex>(position - 1)};
    if (is_fed_alone) return;
    violations_.add(static_cast<std::int32_t>(position), place_of(layer) + "/inputs",
                    fmt::format("expected the layer before it and no other, got {} input{}",
                                layer.inputs.size(), layer.inputs.size() == 1 ? "" : "s"));
  }

  Operation read_one(const Layer& layer, std::int32_t ordinal) {
    if (layer.operation.empty()) {
      violations_.add(ordinal, place_of(layer) + "/op",
                      "expected what the layer does, but the key is missing");
      return {};
    }
    const auto [at, is_new] = read_.try_emplace(layer.operation);
    if (is_new) {
      const JsonValue json = parse_json(layer.operation, source_name_);
      const std::string parent = place_of(layer);
      at->second =
          read_operation(Field(&json, Place{.parent = parent, .key = "op"}, ordinal, &violations_));
    }
    return at->second;
  }

  const std::string& source_name_;
  Violations violations_;
  // The operations read so far, by the text of `op`.
  std::map<std::string, Operation> read_;
};

}  // namespace

std::vector<Operation> read_operations(const ModelProfile& profile,
                                       const std::string& source_name) {
  const bool has_any = std::any_of(profile.layers.begin(), profile.layers.end(),
                                   [](const Layer& layer) { return !layer.operation.empty(); });
  if (!has_any) {
    throw Error(ErrorKind::BadInput, source_name,
                {{"layers",
                  "expected an \"op\" in each, which says what the layer does, got none: the model "
                  "can be planned and replayed, not run"}});
  }
  return OperationsReader(source_name).read(profile.layers);
}

Specification read_specification(std::string_view text, const std::string& source_name) {
  auto profile = read_document<ModelProfile>(text, source_name, [](const Field& field) {
    return read_profile(field, Measurements::NoneOrAll);
  });
  std::vector<Operation> operations = read_operations(profile, source_name);
  return {std::move(profile), std::move(operations)};
}

}  // namespace dapple::io
