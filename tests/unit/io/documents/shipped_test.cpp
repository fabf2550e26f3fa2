#include <catch2/catch.hpp>
#include <filesystem>

#include "../../../support/files.h"
#include "dapple/io/documents/specification.h"
#include "dapple/io/files/read_file.h"
#include "documents_under_test.h"

namespace dapple::test {
namespace {

std::vector<std::string> json_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(source_path(folder)))
    if (entry.path().extension() == ".json") files.push_back(entry.path().string());
  return files;
}

TEST_CASE("every shipped profile and specification is in canonical form") {
  const std::vector<std::string> files = json_files("profiles");
  REQUIRE(files.size() >= 12);
  std::size_t specifications = 0;
  for (const std::string& file : files) {
    INFO(file);
    const std::string text = io::read_file(file);
    if (text.find("\"measurements\"") != std::string::npos) {
      CHECK(io::write_profile(io::read_profile(text, file)) == text);
    } else {
      CHECK(io::write_profile(io::read_specification(text, file).profile) == text);
      CHECK_THROWS_AS(io::read_profile(text, file), Error);
      ++specifications;
    }
  }
  CHECK(specifications == 8);
}

TEST_CASE("every shipped topology says the same when written and read again") {
  std::vector<std::string> files = json_files("topologies");
  // It is a table of GPUs.
  std::erase_if(files, [](const std::string& file) { return file.ends_with("gpus.json"); });
  REQUIRE(files.size() >= 16);
  for (const std::string& file : files) {
    INFO(file);
    const TopologyDescription topology = io::read_topology(io::read_file(file), file);
    CHECK_NOTHROW(Topology(topology, file));
    CHECK(same(io::read_topology(io::write_topology(topology), file), topology));
  }
}

}  // namespace
}  // namespace dapple::test
