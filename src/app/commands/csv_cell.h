// Cells of tables for spreadsheets.
#pragma once

#include <string>
#include <string_view>

namespace dapple::app {

/// Returns a text as a quoted CSV cell (RFC 4180).
inline std::string csv_cell(std::string_view text) {
  std::string cell = "\"";
  for (const char c : text) {
    if (c == '"') cell += '"';
    cell += c;
  }
  return cell + '"';
}

}  // namespace dapple::app
