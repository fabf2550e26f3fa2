#include <catch2/catch.hpp>
#include <sstream>

#include "../../support/files.h"
#include "meshes.h"

namespace dapple {
namespace {

/// The NV<n> cells between the GPUs of what `nvidia-smi topo -m` printed.
meshes::LaneCounts read_lanes(const std::string& text) {
  std::istringstream stream(text);
  meshes::LaneCounts lanes;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    std::string cell;
    if (word.rfind("GPU", 0) != 0 || !(words >> cell) || cell.rfind("GPU", 0) == 0) continue;
    lanes.emplace_back();
    do {
      lanes.back().push_back(cell.rfind("NV", 0) == 0 ? std::stoi(cell.substr(2)) : 0);
    } while (lanes.back().size() < 8 && words >> cell);
  }
  return lanes;
}

TEST_CASE("The mesh of these tests is that of a real DGX-1") {
  const std::optional<std::string> text = test::shared_file("topologies/nvidia-smi/dgx1-v100.txt");
  if (!text) return;
  CHECK(read_lanes(*text) == meshes::kDgx1);
}

}  // namespace
}  // namespace dapple
