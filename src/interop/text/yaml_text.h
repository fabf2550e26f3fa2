// Parses YAML of other tools.
#pragma once

#include <string>

namespace YAML {
class Node;
}

namespace dapple::interop {

/// Returns the document in the text. Throws Error(BadInput), with the line, if it is not YAML.
/// O(length).
YAML::Node parse_yaml(const std::string& text, const std::string& source_name);

}  // namespace dapple::interop
