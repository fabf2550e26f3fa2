#include "dapple/search/pipedream_search.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "dapple/interop/pipedream.h"

using namespace dapple;

namespace {

constexpr Bandwidth kInside{12'000'000'000};
constexpr Bandwidth kBetween{1'250'000'000};

// --- Models by hand -----------------------------------------------------------------------------

struct LayerSpec {
  std::int64_t compute_ns = 0;  // a third forward, the rest backward
  std::int64_t parameters = 0;
  std::int64_t output = 0;
  std::vector<std::int32_t> inputs;
};

ModelProfile model_of(const std::vector<LayerSpec>& specs) {
  ModelProfile profile;
  profile.batch_scaling = BatchScaling::Proportional;
  for (const LayerSpec& spec : specs) {
    Measurement measured;
    measured.batch_size = 8;
    measured.forward = {spec.compute_ns / 3};
    measured.backward = {spec.compute_ns - spec.compute_ns / 3};
    measured.output = {spec.output};
    Layer layer;
    layer.name = "layer" + std::to_string(profile.layers.size());
    layer.parameters = {spec.parameters};
    layer.measurements = {measured};
    for (const std::int32_t input : spec.inputs) layer.inputs.push_back(LayerIndex{input});
    profile.layers.push_back(std::move(layer));
  }
  return profile;
}

PipedreamStates states_of(const ModelProfile& profile, std::int32_t max_states = 500) {
  PipedreamOptions options;
  options.samples = profiled_batch(profile);
  options.max_states = max_states;
  return pipedream_states(profile, options);
}

/// Seconds, bytes and bytes of single states, as sums over all states so far.
std::vector<PipedreamState> chain(const std::vector<std::int64_t>& seconds,
                                  const std::vector<std::int64_t>& parameters,
                                  const std::vector<std::int64_t>& outputs) {
  std::vector<PipedreamState> states;
  PipedreamState state;
  for (std::size_t number = 0; number < seconds.size(); ++number) {
    state.layers.push_back(static_cast<std::int32_t>(number));
    state.compute += Duration{seconds[number] * 1'000'000'000};
    state.parameters += Bytes{parameters[number]};
    state.output = {outputs[number]};
    states.push_back(state);
  }
  return states;
}

std::vector<std::vector<std::int32_t>> layer_sets(const PipedreamStates& states) {
  std::vector<std::vector<std::int32_t>> sets;
  for (const PipedreamState& state : states.states) sets.push_back(state.layers);
  return sets;
}

// --- Other people's files -----------------------------------------------------------------------

std::optional<std::string> shared_file(const std::string& name) {
  const std::string path = std::string(DAPPLE_SHARED_DATA) + "/pipedream/" + name;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    WARN("skipped: there is no " << path);
    return std::nullopt;
  }
  return std::string(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
}

ModelProfile published_model(const std::string& graph) {
  ForeignProfileOptions options;
  options.profile_batch = 128;
  options.optimizer = "sgd";
  options.global_batch = 128;
  return import_pipedream_graph(graph, "graph.txt", options).profile;
}

/// What the published planner printed: the objective, and the stages of the innermost level.
struct PublishedAnswer {
  std::string seconds;
  std::size_t states = 0;
  std::vector<std::pair<std::int32_t, std::int32_t>> innermost;
};

PublishedAnswer read_answer(const std::string& text) {
  PublishedAnswer answer;
  std::istringstream lines(text);
  const std::string objective = "Time per stage in pipeline: ";
  const std::string count = "Total number of states: ";
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(objective, 0) == 0) answer.seconds = line.substr(objective.size());
    if (line.rfind(count, 0) == 0) answer.states = std::stoul(line.substr(count.size()));
    if (line.rfind("Level ", 0) == 0) answer.innermost.clear();
    int begin = 0;
    int end = 0;
    if (std::sscanf(line.c_str(), "(%d, %d)", &begin, &end) == 2) {
      answer.innermost.emplace_back(begin, end);
    }
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

// --- An independent evaluation and search -------------------------------------------------------

/// All ways to cut a chain into stages and to give them all units, level by level; the formulas are
/// written out anew, on plain arrays.
struct ChainOracle {
  std::vector<double> seconds;
  std::vector<double> parameters;
  std::vector<double> outputs;
  std::vector<PipedreamLevel> levels;

  double sum(const std::vector<double>& of, std::size_t begin, std::size_t end) const {
    double total = 0;
    for (std::size_t state = begin; state < end; ++state) total += of[state];
    return total;
  }

  /// The range on one unit of the level `level`: the whole of the level inside.
  double one_unit(std::size_t level, std::size_t begin, std::size_t end) const {
    if (level == 0) return sum(seconds, begin, end);
    return fastest(level - 1, begin, end);
  }

  double fastest(std::size_t level, std::size_t begin, std::size_t end) const {
    return place_rest(level, begin, begin, end, levels[level].units);
  }

  /// Best of all ways to place the states from `next` on, `units` being left, given that the range
  /// of this level begins at `begin`.
  double place_rest(std::size_t level, std::size_t begin, std::size_t next, std::size_t end,
                    int units) const {
    if (next == end) return units == 0 ? 0.0 : INFINITY;
    double best = INFINITY;
    for (std::size_t cut = next + 1; cut <= end; ++cut) {
      for (int replicas = 1; replicas <= units; ++replicas) {
        const double rest = place_rest(level, begin, cut, end, units - replicas);
        best = std::min(best, std::max(rest, stage(level, begin, next, cut, replicas)));
      }
    }
    return best;
  }

  double stage(std::size_t level, std::size_t begin, std::size_t first, std::size_t end,
               int replicas) const {
    const double bandwidth = static_cast<double>(levels[level].bandwidth.bytes_per_second);
    double inside_units = 1;
    for (std::size_t inner = 0; inner < level; ++inner) inside_units *= levels[inner].units;
    double synchronise =
        4 * (replicas - 1) * sum(parameters, first, end) / (replicas * bandwidth);
    if (first == begin) synchronise /= inside_units;
    const double work = (one_unit(level, first, end) + synchronise) / replicas;
    if (first == begin) return work;
    const double in = 2 * outputs[first - 1] / (bandwidth * replicas);
    const double out = end == outputs.size() ? 0 : 2 * outputs[end - 1] / (bandwidth * replicas);
    return std::max({work, in, out});
  }
};

bool is_rising(const std::vector<std::int32_t>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end();
}

}  // namespace

// --- Published figures --------------------------------------------------------------------------

TEST_CASE("PipeDream's printed objectives come out to every digit") {
  struct Case {
    std::string model;
    std::string answer;
    std::vector<PipedreamLevel> levels;
  };
  const std::vector<Case> cases{
      {"vgg16", "n4", {{4, {1'000'000'000}}}},
      {"vgg16", "n4_4", {{4, kInside}, {4, kBetween}}},
      {"gnmt", "n4_4", {{4, kInside}, {4, kBetween}}},
  };
  for (const Case& each : cases) {
    const std::optional<std::string> graph = shared_file(each.model + "/graph.txt");
    const std::optional<std::string> text =
        shared_file(each.model + "/" + each.answer + "/stdout.txt");
    if (!graph || !text) continue;
    INFO(each.model << " " << each.answer);
    const PublishedAnswer published = read_answer(*text);
    const PipedreamStates states = states_of(published_model(*graph));
    CHECK(states.kind == PipedreamStateKind::Antichains);
    CHECK(states.states.size() == published.states);
    const PipedreamPartition found = partition_pipedream(states.states, each.levels);
    const auto digits = static_cast<int>(published.seconds.size() -
                                         published.seconds.find_first_not_of("0."));
    CHECK(with_digits(found.seconds, digits) == published.seconds);
  }
}

TEST_CASE("the published objectives of vgg16 are those of the description") {
  const std::optional<std::string> graph = shared_file("vgg16/graph.txt");
  if (!graph) return;
  const std::vector<PipedreamState> states = states_of(published_model(*graph)).states;
  // The cut before state 17 hands over 102,760,448 bytes, there and back, at 1e9 bytes a second.
  const PipedreamPartition one = partition_pipedream(states, {{4, {1'000'000'000}}});
  CHECK(one.seconds == 0.205520896);
  CHECK(one.stages ==
        std::vector<PipedreamStage>{{0, 17, {0, 1, 2}}, {17, 40, {3}}});
  const PipedreamPartition two = partition_pipedream(states, {{4, kInside}, {4, kBetween}});
  CHECK(fixed(two.seconds, 10) == "0.0668887521");
  // Twelve replicas of states 0 to 32 on three servers; the fourth server holds the rest.
  std::vector<std::int32_t> three_servers(12);
  std::iota(three_servers.begin(), three_servers.end(), 0);
  CHECK(two.stages.front() == PipedreamStage{0, 33, three_servers});
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
    const std::optional<std::string> graph = shared_file(row.model + "/graph.txt");
    if (!graph) continue;
    INFO(row.model);
    const PipedreamStates states = states_of(published_model(*graph));
    REQUIRE(states.kind == PipedreamStateKind::Antichains);
    CHECK(states.states.size() == row.states);
    const auto seconds = [&](const std::vector<PipedreamLevel>& levels) {
      return fixed(partition_pipedream(states.states, levels).seconds, 5);
    };
    CHECK(seconds({{4, kInside}}) == row.on_4);
    CHECK(seconds({{4, kInside}, {4, kBetween}}) == row.on_4x4);
    CHECK(seconds({{8, kInside}, {2, kBetween}}) == row.on_8x2);
  }
}
