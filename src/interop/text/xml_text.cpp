#include "interop/text/xml_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <pugixml.hpp>

#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

std::int64_t line_at(std::ptrdiff_t offset, const std::string& text) {
  const auto end = std::clamp<std::ptrdiff_t>(offset, 0, static_cast<std::ptrdiff_t>(text.size()));
  return 1 + std::count(text.begin(), text.begin() + end, '\n');
}

}  // namespace

void parse_xml(pugi::xml_document& document, const std::string& text, const std::string& file) {
  const pugi::xml_parse_result parsed = document.load_buffer(text.c_str(), text.size());
  if (parsed) return;
  throw_faults(
      {{line_at(parsed.offset, text), fmt::format("expected XML: {}", parsed.description())}},
      file);
}

std::int64_t line_of(const pugi::xml_node& node, const std::string& text) {
  return line_at(node.offset_debug(), text);
}

}  // namespace dapple::interop
