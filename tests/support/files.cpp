#include "files.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

namespace dapple::test {

std::string source_path(const std::string& path) {
  return std::string(DAPPLE_SOURCE_DIR) + "/" + path;
}

std::string shared_path(const std::string& path) {
  return std::string(DAPPLE_SHARED_DATA) + "/" + path;
}

std::optional<std::string> file_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::string source_file(const std::string& path) {
  const std::optional<std::string> text = file_text(source_path(path));
  INFO(path);
  REQUIRE(text);
  return *text;
}

std::optional<std::string> shared_file(const std::string& path) {
  std::optional<std::string> text = file_text(shared_path(path));
  if (!text) WARN("skipped: there is no " << shared_path(path));
  return text;
}

}  // namespace dapple::test
