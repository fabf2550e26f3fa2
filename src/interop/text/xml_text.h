// Parses XML of other tools with pugixml, and reports errors by line.
#pragma once

#include <cstdint>
#include <string>

namespace pugi {
class xml_document;
class xml_node;
}  // namespace pugi

namespace dapple::interop {

/// Parses the text into the document. Throws Error(BadInput) with the line if it is not XML.
void parse_xml(pugi::xml_document& document, const std::string& text, const std::string& file);

/// Returns the line of a node of a document that was parsed from `text`. O(length).
std::int64_t line_of(const pugi::xml_node& node, const std::string& text);

}  // namespace dapple::interop
