// How much the exact search has to do for problems that it is known by, exactly. A change that
// makes it look at more shows here, on any machine. A row that fails is printed as it should be.

#include <catch2/catch.hpp>
#include <string>

#include "../support/files.h"
#include "dapple/io/documents/documents.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/made_plan.h"

using namespace dapple;

namespace {

struct Work {
  const char* model;
  const char* cluster;
  std::int64_t target_percent = 0;
  std::int64_t states = 0;
  std::int64_t candidates = 0;
  std::int64_t simulated = 0;
};

constexpr Work kWork[] = {
    // clang-format off
    {"bert-48", "2x8xV100", 0, 0, 0, 0},
    {"xlnet-36", "2x8xV100", 0, 0, 0, 0},
    {"amoebanet-36", "2x8xV100", 0, 1093, 2, 0},
    {"bert-large", "8xV100", 0, 0, 0, 3},
    {"vgg-19", "2x8xV100", 0, 0, 0, 1},
    {"vgg-19", "mixed-A100-V100", 5, 1582935, 0, 0},
    {"vgg-19", "16x1xV100-10g", 1, 0, 0, 0},
    {"xlnet-36", "16x1xV100-10g", 1, 512, 8, 46},
    {"amoebanet-36", "16x1xV100-25g", 1, 1014, 0, 3},
    {"amoebanet-36", "16x1xV100-10g", 5, 1542, 0, 3},
    {"amoebanet-36", "16x1xV100-10g", 1, 20646, 82, 698},
    // clang-format on
};

std::string row_of(const Work& work) {
  return std::string("{\"") + work.model + "\", \"" + work.cluster + "\", " +
         std::to_string(work.target_percent) + ", " + std::to_string(work.states) + ", " +
         std::to_string(work.candidates) + ", " + std::to_string(work.simulated) + "},";
}

Work measured(const Work& known) {
  const std::string model = std::string("profiles/") + known.model + ".json";
  const std::string cluster = std::string("topologies/") + known.cluster + ".json";
  const ModelProfile profile = io::read_profile(test::source_file(model), model);
  const Topology topology(io::read_topology(test::source_file(cluster), cluster), cluster);
  planner::PlannerOptions options;
  options.global_batch_size = *profile.global_batch_size;
  options.target_gap = {known.target_percent * kOne.billionths / 100};
  options.baselines = false;
  const auto made = planner::make_plan({profile, topology, options});
  REQUIRE(std::holds_alternative<planner::MadePlan>(made));
  const SearchRecord& search = std::get<planner::MadePlan>(made).document.search;
  Work work = known;
  work.states = search.states;
  work.candidates = search.candidates;
  work.simulated = search.simulated;
  return work;
}

}  // namespace

TEST_CASE("the exact search does exactly this much work") {
  for (const Work& known : kWork) { CHECK(row_of(measured(known)) == row_of(known)); }
}
