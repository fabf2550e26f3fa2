#include "dapple/exec/weights/gpt2_weights.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>

#include "dapple/core/error.h"
#include "exec/weights/safetensors.h"

namespace dapple::exec {
namespace {

constexpr std::string_view kPrefix = "transformer.";
constexpr const char* kTokens = "wte.weight";
constexpr const char* kHead = "lm_head.weight";

/// A block's parameters, by our name and by GPT-2's name after "h.N.".
constexpr std::pair<const char*, const char*> kOfBlock[] = {
    {"norm1.scale", "ln_1.weight"},
    {"norm1.shift", "ln_1.bias"},
    {"attention.qkv.weight", "attn.c_attn.weight"},
    {"attention.qkv.bias", "attn.c_attn.bias"},
    {"attention.projection.weight", "attn.c_proj.weight"},
    {"attention.projection.bias", "attn.c_proj.bias"},
    {"norm2.scale", "ln_2.weight"},
    {"norm2.shift", "ln_2.bias"},
    {"expand.weight", "mlp.c_fc.weight"},
    {"expand.bias", "mlp.c_fc.bias"},
    {"reduce.weight", "mlp.c_proj.weight"},
    {"reduce.bias", "mlp.c_proj.bias"}};

/// The GPT-2 name of each of our parameters, determined layer by layer.
class Names {
 public:
  Names(const std::vector<nn::ModelLayer>& layers, const std::vector<Operation>& operations,
        const std::string& model_name)
      : layers_(layers), operations_(operations), model_name_(model_name) {
    const auto& tokens = next<EmbeddingOperation>("an embedding");
    add("token", kTokens);
    if (!tokens.positions) next<PositionEmbeddingOperation>("a position embedding");
    add("position", "wpe.weight");
    for (int block = 0; at_end() || is_next<TransformerBlockOperation>(); ++block) {
      if (!is_gpt2_block(next<TransformerBlockOperation>("a transformer block"))) {
        refuse("a transformer block with biases, layer norms, GELU and heads of hidden / heads");
      }
      for (const auto& [own, theirs] : kOfBlock) add(own, fmt::format("h.{}.{}", block, theirs));
    }
    next<LayerNormOperation>("a transformer block or a layer norm");
    add("scale", "ln_f.weight");
    add("shift", "ln_f.bias");
    const auto& head = next<LinearOperation>("a linear head");
    if (head.bias || !head.transposed) {
      refuse(R"(a head with "bias": false and "transposed": true)");
    }
    is_tied_ = layers_[next_ - 1].tied_to.has_value();
    if (!is_tied_) add("weight", kHead);
    next<SoftmaxCrossEntropyOperation>("the loss");
    if (!at_end()) refuse_layer(next_, "no layer behind the loss");
  }

  const std::map<std::string, std::string>& theirs() const { return theirs_; }
  /// Whether the head's matrix is the embedding's.
  bool is_tied() const { return is_tied_; }

 private:
  bool at_end() const { return next_ == layers_.size(); }
  template <class Kind>
  bool is_next() const {
    return std::holds_alternative<Kind>(operations_[next_]);
  }
  template <class Kind>
  const Kind& next(const char* what) {
    if (at_end() || !is_next<Kind>()) refuse_layer(next_, what);
    return std::get<Kind>(operations_[next_++]);
  }
  /// Adds the names of a parameter of the last layer taken.
  void add(const char* own, std::string theirs) {
    theirs_[layers_[next_ - 1].name + "." + own] = std::move(theirs);
  }
  [[noreturn]] void refuse(const char* what) const { refuse_layer(next_ - 1, what); }
  [[noreturn]] void refuse_layer(std::size_t layer, const char* what) const {
    const std::string got = layer == layers_.size()
                                ? std::string("the end")
                                : fmt::format("layer \"{}\"", layers_[layer].name);
    refuse_file(model_name_, "/model/profile/layers",
                fmt::format("expected {} here, as GPT-2 has, got {}", what, got));
  }

  const std::vector<nn::ModelLayer>& layers_;
  const std::vector<Operation>& operations_;
  const std::string& model_name_;
  std::size_t next_ = 0;
  std::map<std::string, std::string> theirs_;
  bool is_tied_ = false;
};

/// Whether the tensor is an attention mask, "h.N.attn.bias" or "h.N.attn.masked_bias", and not a
/// parameter.
bool is_mask(std::string_view name) {
  return name.starts_with("h.") &&
         (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

std::map<std::string, StoredTensor> without_prefix(
    const std::map<std::string, StoredTensor>& tensors, const std::string& source_name) {
  std::map<std::string, StoredTensor> shorter;
  for (const auto& [name, tensor] : tensors) {
    const bool has_prefix = name.starts_with(kPrefix);
    const bool is_new =
        shorter.emplace(has_prefix ? name.substr(kPrefix.size()) : name, tensor).second;
    if (!is_new) {
      refuse_file(source_name, place_of_tensor(name),
                  "expected this tensor once, with a prefix or without, got both");
    }
  }
  return shorter;
}

std::map<std::string, nn::Shape> shapes_of(const std::vector<nn::ModelLayer>& layers) {
  std::map<std::string, nn::Shape> shapes;
  for (const nn::ModelLayer& layer : layers) {
    for (const nn::ParameterSpec& parameter : layer.own_parameters()) {
      shapes[layer.name + "." + parameter.name] = parameter.shape;
    }
  }
  return shapes;
}

}  // namespace

void check_gpt2_form(const std::vector<nn::ModelLayer>& layers,
                     const std::vector<Operation>& operations, const std::string& model_name) {
  const Names names(layers, operations, model_name);
}

NamedTensors read_gpt2_weights(std::string_view bytes, const std::string& source_name,
                               const std::vector<nn::ModelLayer>& layers,
                               const std::vector<Operation>& operations,
                               const std::string& model_name) {
  const Names names(layers, operations, model_name);
  const std::map<std::string, nn::Shape> shapes = shapes_of(layers);
  std::map<std::string, StoredTensor> stored =
      without_prefix(read_safetensors(bytes, source_name).tensors, source_name);
  if (const auto head = stored.find(kHead); names.is_tied() && head != stored.end()) {
    const auto tokens = stored.find(kTokens);
    if (tokens != stored.end() && tokens->second.bytes != head->second.bytes) {
      refuse_file(source_name, place_of_tensor(kHead),
                  "expected the embedding's numbers, as the model has tied its head, got others");
    }
    stored.erase(head);
  }
  NamedTensors tensors;
  std::vector<Violation> faults;
  for (const auto& [own, theirs] : names.theirs()) {
    const auto found = stored.find(theirs);
    if (found == stored.end()) {
      faults.push_back(tensor_fault(theirs, shapes.at(own), std::nullopt));
      continue;
    }
    if (found->second.shape != shapes.at(own)) {
      faults.push_back(tensor_fault(theirs, shapes.at(own), found->second.shape));
    } else {
      tensors[own] = values_of(theirs, found->second, source_name);
    }
    stored.erase(found);
  }
  for (const auto& [name, tensor] : stored) {
    if (is_mask(name)) continue;
    faults.push_back({place_of_tensor(name), "expected no such tensor, as the model has none"});
  }
  if (auto fault = first_of(std::move(faults), "weights of another model?")) {
    throw Error(ErrorKind::BadInput, source_name, {std::move(*fault)});
  }
  return tensors;
}

std::string write_gpt2_weights(const NamedTensors& tensors,
                               const std::vector<nn::ModelLayer>& layers,
                               const std::vector<Operation>& operations,
                               const std::string& model_name) {
  const Names names(layers, operations, model_name);
  NamedTensors renamed;
  for (const auto& [own, theirs] : names.theirs()) { renamed[theirs] = tensors.at(own); }
  // PyTorch's files have this entry, and their readers require it.
  return write_safetensors({{"format", "pt"}}, renamed);
}

}  // namespace dapple::exec
