#include "interop/text/yaml_text.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "interop/text/foreign_text.h"

namespace dapple::interop {

YAML::Node parse_yaml(const std::string& text, const std::string& source_name) {
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw_faults({{error.mark.line + 1, fmt::format("expected YAML: {}", shown(error.msg))}},
                 source_name);
  }
  return {};
}

}  // namespace dapple::interop
