#include "dapple/interop/profiles/configuration.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "dapple/core/error.h"
#include "interop/profiles/configuration_families.h"
#include "interop/profiles/configuration_keys.h"
#include "interop/profiles/profile_options.h"
#include "interop/text/foreign_json.h"

namespace dapple::interop {
namespace {

struct ConfigurationFamily {
  std::string_view name;
  void (*read)(ConfigurationKeys& keys, estimate::Architecture& architecture);
};

constexpr ConfigurationFamily kConfigurationFamilies[] = {{"bert", read_bert},
                                                          {"deepseek_v3", read_deepseek},
                                                          {"gemma", read_gemma},
                                                          {"gemma2", read_gemma2},
                                                          {"gemma3_text", read_gemma3},
                                                          {"gpt2", read_gpt2},
                                                          {"gpt_neox", read_gpt_neox},
                                                          {"llama", read_llama},
                                                          {"llama4_text", read_llama4},
                                                          {"mistral", read_mistral},
                                                          {"mixtral", read_mixtral},
                                                          {"qwen2", read_qwen2},
                                                          {"qwen2_moe", read_qwen2_moe},
                                                          {"qwen3", read_qwen3},
                                                          {"qwen3_moe", read_qwen3_moe},
                                                          {"t5", read_t5},
                                                          {"vit", read_vit}};

/// The families of models for images and text, and the families of their language models.
struct Composite {
  std::string_view name;
  std::string_view text_family;
};
constexpr Composite kComposites[] = {{"llama4", "llama4_text"}, {"gemma3", "gemma3_text"}};

const ConfigurationFamily* family_named(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kConfigurationFamilies), std::end(kConfigurationFamilies),
                   [&](const ConfigurationFamily& some) { return some.name == name; });
  return found == std::end(kConfigurationFamilies) ? nullptr : found;
}

/// Records that the family is not read, and what else can be done.
void refuse_family(const io::Field& field) {
  field.refuse(fmt::format(
      "one of the families {} (for others, write or measure a profile: profiles/README.md)",
      fmt::join(configuration_families(), ", ")));
}

estimate::Architecture read_family(const io::Field& root) {
  estimate::Architecture architecture;
  io::ObjectReader object(root);
  const io::Field type = object.field("model_type");
  if (!type.present()) {
    refuse_family(type);
    return architecture;
  }
  const std::optional<std::string> given = io::read_text(type);
  // Other keys are for others, but none may occur twice.
  object.members();
  object.finish();
  if (!given) return architecture;
  std::string name = *given;
  const auto* const composite =
      std::find_if(std::begin(kComposites), std::end(kComposites),
                   [&](const Composite& some) { return some.name == name; });
  const io::Field language = object.field("text_config");
  const bool is_composite = composite != std::end(kComposites) && language.present();
  if (is_composite) name = composite->text_family;
  const ConfigurationFamily* const family = family_named(name);
  if (family == nullptr) {
    refuse_family(type);
    return architecture;
  }
  ConfigurationKeys keys(is_composite ? language : root);
  architecture.family = name;
  family->read(keys, architecture);
  if (is_composite) keys.finish();
  return architecture;
}

/// Returns the name of the model: that of the file, or, as these files are all called alike, of its
/// folder.
std::string name_of_model(const std::string& source_name) {
  constexpr std::string_view kUsual = "config.json";
  std::string path = source_name;
  if (path.ends_with(kUsual)) path.resize(path.size() - kUsual.size());
  while (path.ends_with('/')) path.pop_back();
  const std::string name = model_name(path);
  return name.empty() || name == "." ? "model" : name;
}

}  // namespace

bool is_configuration(const io::JsonValue& object) {
  return has_key(object, "model_type") && !has_key(object, "schema");
}

bool is_configuration(std::string_view text) {
  const std::optional<io::JsonValue> object = object_in(text);
  return object && is_configuration(*object);
}

std::vector<std::string_view> configuration_families() {
  std::vector<std::string_view> names;
  for (const ConfigurationFamily& family : kConfigurationFamilies) names.push_back(family.name);
  return names;
}

estimate::Architecture read_configuration(std::string_view text, const std::string& source_name) {
  estimate::Architecture architecture = io::read_document<estimate::Architecture>(
      text, source_name, [](const io::Field& root) { return read_family(root); });
  architecture.name = name_of_model(source_name);
  return architecture;
}

}  // namespace dapple::interop
