// Files that tests read: the project's own, and other people's real ones, which may be absent.
#pragma once

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

namespace dapple::test {

/// A whole file, or nothing if it cannot be opened.
inline std::optional<std::string> file_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

/// A file of the project, by its path in the source tree. Fails the test if it is not there.
inline std::string source_file(const std::string& path) {
  const std::optional<std::string> text = file_text(std::string(DAPPLE_SOURCE_DIR) + "/" + path);
  INFO(path);
  REQUIRE(text);
  return *text;
}

/// A real file of others, or nothing and a warning that the test is skipped.
inline std::optional<std::string> shared_file(const std::string& path) {
  const std::string whole_path = std::string(DAPPLE_SHARED_DATA) + "/" + path;
  std::optional<std::string> text = file_text(whole_path);
  if (!text) WARN("skipped: there is no " << whole_path);
  return text;
}

}  // namespace dapple::test
