// Reads a model's architecture from its configuration, the config.json of its Hugging Face
// repository.
//
// Source: huggingface/transformers, the configuration and the definition of each family; keys that
// a configuration leaves out have the defaults of these.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dapple/estimate/architecture.h"
#include "dapple/io/json/json_value.h"

namespace dapple::interop {

/// Whether the object looks like a configuration: it names a model's family.
bool is_configuration(const io::JsonValue& object);
/// The same for a text. O(length).
bool is_configuration(std::string_view text);

/// Returns the families that are read, as "model_type" names them.
std::vector<std::string_view> configuration_families();

/// Reads a configuration. The model is called after the file or its folder. Throws Error(BadInput)
/// with every fault: a family that is not read, a key that is missing or absurd. O(length +
/// layers).
estimate::Architecture read_configuration(std::string_view text, const std::string& source_name);

}  // namespace dapple::interop
