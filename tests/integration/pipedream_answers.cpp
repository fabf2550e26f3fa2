// What PipeDream's planner printed, and what its publication states, from its own input files.

#include "dapple/search/pipedream_search/pipedream_search.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "../support/files.h"
#include "dapple/interop/profiles/pipedream.h"
#include "dapple/io/documents/documents.h"

using namespace dapple;

namespace {

constexpr Bandwidth kInside{12'000'000'000};
constexpr Bandwidth kBetween{1'250'000'000};

search::PipedreamStates states_of(const ModelProfile& profile) {
  search::PipedreamOptions options;
  options.samples = search::profiled_batch(profile);
  options.max_states = 500;
  return search::pipedream_states(profile, options);
}

ModelProfile published_model(const std::string& graph) {
  interop::ForeignProfileOptions options;
  options.profile_batch = 128;
  options.optimizer = "sgd";
  options.global_batch = 128;
  return interop::import_pipedream_graph(graph, "graph.txt", options).profile;
}

/// What the published planner printed.
struct PublishedAnswer {
  std::string seconds;
  std::size_t states = 0;
};

PublishedAnswer read_answer(const std::string& text) {
  PublishedAnswer answer;
  std::istringstream lines(text);
  const std::string objective = "Time per stage in pipeline: ";
  const std::string count = "Total number of states: ";
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(objective, 0) == 0) answer.seconds = line.substr(objective.size());
    if (line.rfind(count, 0) == 0) answer.states = std::stoul(line.substr(count.size()));
  }
  return answer;
}

std::string with_digits(double value, int digits) {
  std::ostringstream text;
  text.precision(digits);
  text << value;
  return text.str();
}

std::string fixed(double value, int decimals) {
  std::ostringstream text;
  text.setf(std::ios::fixed);
  text.precision(decimals);
  text << value;
  return text.str();
}

}  // namespace

TEST_CASE("PipeDream's printed objectives come out to every digit") {
  struct Case {
    std::string model;
    std::string answer;
    std::vector<search::PipedreamLevel> levels;
  };
  const std::vector<Case> cases{
      {"vgg16", "n4", {{4, {1'000'000'000}}}},
      {"vgg16", "n4_4", {{4, kInside}, {4, kBetween}}},
      {"gnmt", "n4_4", {{4, kInside}, {4, kBetween}}},
  };
  for (const Case& each : cases) {
    const std::optional<std::string> graph =
        test::shared_file("pipedream/" + each.model + "/graph.txt");
    const std::optional<std::string> text =
        test::shared_file("pipedream/" + each.model + "/" + each.answer + "/stdout.txt");
    if (!graph || !text) continue;
    INFO(each.model << " " << each.answer);
    const PublishedAnswer published = read_answer(*text);
    const search::PipedreamStates states = states_of(published_model(*graph));
    CHECK(states.kind == search::PipedreamStateKind::Antichains);
    CHECK(states.states.size() == published.states);
    const search::PipedreamPartition found =
        search::partition_pipedream(states.states, each.levels);
    const auto digits =
        static_cast<int>(published.seconds.size() - published.seconds.find_first_not_of("0."));
    CHECK(with_digits(found.seconds, digits) == published.seconds);
  }
}

TEST_CASE("the published objectives of vgg16 are those of the description") {
  const std::optional<std::string> graph = test::shared_file("pipedream/vgg16/graph.txt");
  if (!graph) return;
  const std::vector<search::PipedreamState> states = states_of(published_model(*graph)).states;
  // The cut before state 17 hands over 102,760,448 bytes, there and back, at 1e9 bytes a second.
  const search::PipedreamPartition one =
      search::partition_pipedream(states, {{4, {1'000'000'000}}});
  CHECK(one.seconds == 0.205520896);
  CHECK(one.stages == std::vector<search::PipedreamStage>{{0, 17, {0, 1, 2}}, {17, 40, {3}}});
  const search::PipedreamPartition two =
      search::partition_pipedream(states, {{4, kInside}, {4, kBetween}});
  CHECK(fixed(two.seconds, 10) == "0.0668887521");
  // Twelve replicas on three servers, up to the last layer that computes before the large linear
  // layers; the size and view behind it take no time, so the published cut behind them is as good.
  std::vector<std::int32_t> three_servers(12);
  std::iota(three_servers.begin(), three_servers.end(), 0);
  CHECK(two.stages.front() == search::PipedreamStage{0, 31, three_servers});
}

TEST_CASE("the published table of three models on three clusters comes out to its digits") {
  struct Row {
    std::string model;
    std::size_t states;
    std::string on_4;
    std::string on_4x4;
    std::string on_8x2;
  };
  const std::vector<Row> rows{{"vgg16", 40, "0.17008", "0.06689", "0.08221"},
                              {"gnmt", 99, "0.02587", "0.01108", "0.01108"},
                              {"resnet50", 240, "0.11150", "0.04321", "0.03818"}};
  for (const Row& row : rows) {
    const std::optional<std::string> graph =
        test::shared_file("pipedream/" + row.model + "/graph.txt");
    if (!graph) continue;
    INFO(row.model);
    const search::PipedreamStates states = states_of(published_model(*graph));
    REQUIRE(states.kind == search::PipedreamStateKind::Antichains);
    CHECK(states.states.size() == row.states);
    const auto seconds = [&](const std::vector<search::PipedreamLevel>& levels) {
      return fixed(search::partition_pipedream(states.states, levels).seconds, 5);
    };
    CHECK(seconds({{4, kInside}}) == row.on_4);
    CHECK(seconds({{4, kInside}, {4, kBetween}}) == row.on_4x4);
    CHECK(seconds({{8, kInside}, {2, kBetween}}) == row.on_8x2);
  }
}

TEST_CASE("levels of a cluster are its devices and its servers") {
  const auto levels_of = [](const std::string& name) {
    return search::pipedream_levels(
        Topology(io::read_topology(test::source_file("topologies/" + name + ".json"), name), name));
  };
  const std::vector<search::PipedreamLevel> two = levels_of("2x8xV100");
  REQUIRE(two.size() == 2);
  CHECK(two[0].units == 8);
  CHECK(two[0].bandwidth == Bandwidth{130'000'000'000});
  CHECK(two[1].units == 2);
  CHECK(two[1].bandwidth == Bandwidth{3'125'000'000});  // 25 Gbit/s
  const std::vector<search::PipedreamLevel> flat = levels_of("16x1xV100-10g");
  REQUIRE(flat.size() == 1);
  CHECK(flat[0].units == 16);
  CHECK(flat[0].bandwidth == Bandwidth{1'250'000'000});  // 10 Gbit/s
  const std::vector<search::PipedreamLevel> mesh = levels_of("8xV100");
  REQUIRE(mesh.size() == 1);
  CHECK(mesh[0].units == 8);
  CHECK(mesh[0].bandwidth == Bandwidth{40'000'000'000});  // a path of double links
}
