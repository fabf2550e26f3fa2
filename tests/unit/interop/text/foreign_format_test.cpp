// The tables of other tools' formats: names, samples, and how their files are told apart.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "../../../support/files.h"
#include "dapple/interop/plans/foreign_plan.h"
#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/interop/topologies/foreign_topology.h"

namespace dapple::interop {
namespace {

template <class Format>
void check_formats(const std::vector<ForeignFormat<Format>>& formats,
                   std::optional<Format> (*detect)(std::string_view)) {
  std::set<Format> sampled;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_path("tests/golden/"
                                                                                 "interop"))) {
    if (const auto format = detect(*test::file_text(entry.path().string())))
      sampled.insert(*format);
  }
  std::set<std::string_view> names;
  for (const ForeignFormat<Format>& format : formats) {
    INFO(format.name);
    CHECK(name_of(format.format) == format.name);
    CHECK(names.insert(format.name).second);
    CHECK_FALSE(format.tools.empty());
    CHECK_FALSE(format.file.empty());
    CHECK(sampled.contains(format.format));
  }
  CHECK(sampled.size() == formats.size());
  CHECK_FALSE(detect("{}"));
  CHECK_FALSE(detect(""));
}

TEST_CASE("every format has a name of its own, and a sample that is told from all others") {
  check_formats(topology_formats(), detect_topology_format);
  check_formats(model_formats(), detect_model_format);
  check_formats(plan_formats(), detect_plan_format);
}

}  // namespace
}  // namespace dapple::interop
