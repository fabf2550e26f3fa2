#include "dapple/search/pipedream_search/pipedream_search.h"
#include "dapple/core/random.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <string>

using namespace dapple;

namespace {

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

search::PipedreamStates states_of(const ModelProfile& profile, std::int32_t max_states = 500) {
  search::PipedreamOptions options;
  options.samples = search::profiled_batch(profile);
  options.max_states = max_states;
  return search::pipedream_states(profile, options);
}

/// Seconds, bytes and bytes of single states, as sums over all states so far.
std::vector<search::PipedreamState> chain(const std::vector<std::int64_t>& seconds,
                                          const std::vector<std::int64_t>& parameters,
                                          const std::vector<std::int64_t>& outputs) {
  std::vector<search::PipedreamState> states;
  search::PipedreamState state;
  for (std::size_t number = 0; number < seconds.size(); ++number) {
    state.layers.push_back(static_cast<std::int32_t>(number));
    state.compute += Duration{seconds[number] * 1'000'000'000};
    state.parameters += Bytes{parameters[number]};
    state.output = {outputs[number]};
    states.push_back(state);
  }
  return states;
}

std::vector<std::vector<std::int32_t>> layer_sets(const search::PipedreamStates& states) {
  std::vector<std::vector<std::int32_t>> sets;
  for (const search::PipedreamState& state : states.states) sets.push_back(state.layers);
  return sets;
}

// --- An independent evaluation and search -------------------------------------------------------

/// All ways to cut a chain into stages and to give them all units, level by level; the formulas are
/// written out anew, on plain arrays.
struct ChainOracle {
  std::vector<double> seconds;
  std::vector<double> parameters;
  std::vector<double> outputs;
  std::vector<search::PipedreamLevel> levels;

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
    double synchronise = 4 * (replicas - 1) * sum(parameters, first, end) / (replicas * bandwidth);
    if (first == begin) synchronise /= inside_units;
    const double work = (one_unit(level, first, end) + synchronise) / replicas;
    if (first == begin) return work;
    const double in = 2 * outputs[first - 1] / (bandwidth * replicas);
    const double out = end == outputs.size() ? 0 : 2 * outputs[end - 1] / (bandwidth * replicas);
    return std::max({work, in, out});
  }
};

/// True if every device of the levels is in exactly one stage.
bool uses_all_devices(const search::PipedreamPartition& partition,
                      const std::vector<search::PipedreamLevel>& levels) {
  std::vector<std::int32_t> used;
  for (const search::PipedreamStage& stage : partition.stages) {
    used.insert(used.end(), stage.devices.begin(), stage.devices.end());
  }
  std::sort(used.begin(), used.end());
  std::int32_t count = 1;
  for (const search::PipedreamLevel& level : levels) count *= level.units;
  std::vector<std::int32_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return used == all;
}

struct RandomChain {
  std::vector<search::PipedreamState> states;
  ChainOracle oracle;
};

RandomChain random_chain(RandomSequence& random, std::size_t level_count) {
  const auto draw = [&](std::int64_t low, std::int64_t high) { return random.roll(low, high); };
  const auto count = static_cast<std::size_t>(draw(1, level_count == 1 ? 6 : 4));
  std::vector<std::int64_t> seconds;
  std::vector<std::int64_t> parameters;
  std::vector<std::int64_t> outputs;
  RandomChain result;
  for (std::size_t state = 0; state < count; ++state) {
    seconds.push_back(draw(0, 20));
    parameters.push_back(draw(0, 1) * draw(0, 30));
    outputs.push_back(draw(0, 30));
    result.oracle.seconds.push_back(static_cast<double>(seconds.back()));
    result.oracle.parameters.push_back(static_cast<double>(parameters.back()));
    result.oracle.outputs.push_back(static_cast<double>(outputs.back()));
  }
  result.states = chain(seconds, parameters, outputs);
  for (std::size_t level = 0; level < level_count; ++level) {
    const auto units = static_cast<std::int32_t>(draw(1, level_count == 1 ? 5 : 3));
    result.oracle.levels.push_back({units, {draw(1, 20)}});
  }
  return result;
}

/// How far a cut of the order 0, 1, 2, ... is from a set: time and number of layers on the wrong
/// side.
std::pair<std::int64_t, std::int64_t> distance_of(const std::vector<std::int32_t>& set,
                                                  std::int32_t cut,
                                                  const std::vector<Duration>& compute) {
  std::pair<std::int64_t, std::int64_t> distance;
  for (std::int32_t layer = 0; layer < static_cast<std::int32_t>(compute.size()); ++layer) {
    const bool in_set = std::find(set.begin(), set.end(), layer) != set.end();
    if (in_set == (layer < cut)) continue;
    distance.first += compute[static_cast<std::size_t>(layer)].ns;
    ++distance.second;
  }
  return distance;
}

}  // namespace

// --- The partition ------------------------------------------------------------------------------

TEST_CASE("one state on one device takes its own time") {
  const search::PipedreamPartition found =
      search::partition_pipedream(chain({7}, {100}, {100}), {});
  CHECK(found.seconds == 7);
  CHECK(found.stages == std::vector<search::PipedreamStage>{{0, 1, {0}}});
  CHECK(search::partition_pipedream(chain({7}, {100}, {100}), {{1, {1}}}).stages == found.stages);
}

TEST_CASE("replicas of one stage share its work and add their synchronisation") {
  // (12 + 4 * 2 * 6 / (3 * 4)) / 3 = (12 + 4) / 3; nothing leaves the only state.
  const search::PipedreamPartition found =
      search::partition_pipedream(chain({12}, {6}, {1000}), {{3, {4}}});
  CHECK(found.seconds == 16.0 / 3);
  CHECK(found.stages == std::vector<search::PipedreamStage>{{0, 1, {0, 1, 2}}});
}

TEST_CASE("three states on three devices are cut as worked out by hand") {
  // 2, 4 and 6 s, the last with 3 bytes of parameters; 1 byte/s.
  // One stage: (12 + 4*2*3/3) / 3 = 6.67. Cut behind the first: the rest on two devices takes
  // (10 + 4*1*3/2) / 2 = 8. Behind the second: on 2 + 1 devices max(6/2, 6) = 6; on 1 + 2 devices
  // max(6, (6 + 6) / 2) = 6. Everywhere: max(2, 4, 6) = 6. The transfer of 1 byte there and back
  // takes 2. Of equals, the earliest last cut with the fewest replicas behind it.
  const search::PipedreamPartition light =
      search::partition_pipedream(chain({2, 4, 6}, {0, 0, 3}, {1, 1, 9}), {{3, {1}}});
  CHECK(light.seconds == 6);
  CHECK(light.stages == std::vector<search::PipedreamStage>{{0, 2, {0, 1}}, {2, 3, {2}}});
  // With 4 bytes behind the second state one receiver takes 8 s and loses to two, with 4 s.
  const search::PipedreamPartition heavy =
      search::partition_pipedream(chain({2, 4, 6}, {0, 0, 3}, {1, 4, 9}), {{3, {1}}});
  CHECK(heavy.seconds == 6);
  CHECK(heavy.stages == std::vector<search::PipedreamStage>{{0, 2, {0}}, {2, 3, {1, 2}}});
}

TEST_CASE("a pipeline inside each server is replicated device by device over the servers") {
  // Inside, at 1 byte/s: one stage on two devices takes (8 + 4*16/2) / 2 = 20, two take
  // max(4, 4, 2*1) = 4. Over two servers at 10^6 bytes/s: (4 + 4*16/(2*10^6) / 2) / 2 = 2.000008;
  // cut there, a state on a server's two devices takes (4 + 4*8/2) / 2 = 10.
  const search::PipedreamPartition found =
      search::partition_pipedream(chain({4, 4}, {8, 8}, {1, 1}), {{2, {1}}, {2, {1'000'000}}});
  CHECK(found.seconds == Approx(2.000008).epsilon(1e-15));
  CHECK(found.stages == std::vector<search::PipedreamStage>{{0, 1, {0, 2}}, {1, 2, {1, 3}}});
}

TEST_CASE("ties keep the uncut range, then the earliest cut") {
  // Uncut (7 + 4*2/(2*4)) / 2 = 4; cut max(3, 4) = 4.
  CHECK(search::partition_pipedream(chain({3, 4}, {2, 0}, {0, 0}), {{2, {4}}}).stages ==
        std::vector<search::PipedreamStage>{{0, 2, {0, 1}}});
  // The middle state takes no time: 5 s wherever it goes. Uncut (6 + 4*100/2) / 2 = 103.
  CHECK(search::partition_pipedream(chain({1, 0, 5}, {0, 0, 100}, {0, 0, 0}), {{2, {1}}}).stages ==
        std::vector<search::PipedreamStage>{{0, 1, {0}}, {1, 3, {1}}});
}

TEST_CASE("a layer that cannot be replicated bounds the partition of a graph") {
  // A diamond of 1, 4, 10 and 1 s, with parameters that make every replica far slower.
  // DeviceAllocation the states {0, 1} and {0, 2} for a range would seem to leave 10 - 4 = 6 s for
  // layer 2.
  constexpr std::int64_t kSecond = 1'000'000'000;
  const ModelProfile profile = model_of({{1 * kSecond, 1000, 0, {}},
                                         {4 * kSecond, 1000, 0, {0}},
                                         {10 * kSecond, 1000, 0, {0}},
                                         {1 * kSecond, 1000, 0, {1, 2}}});
  const std::vector<search::PipedreamLevel> levels{{2, {1}}, {2, {1}}};
  const search::PipedreamPartition found =
      search::partition_pipedream(states_of(profile).states, levels);
  CHECK(found.seconds == 10);
  CHECK(found.stages.size() == 4);
}

TEST_CASE("no partition of a small chain is faster than the one found") {
  RandomSequence random(20191027);
  for (int instance = 0; instance < 600; ++instance) {
    INFO("instance " << instance);
    const RandomChain problem = random_chain(random, 1);
    const search::PipedreamPartition found =
        search::partition_pipedream(problem.states, problem.oracle.levels);
    const std::size_t count = problem.states.size();
    CHECK(found.seconds == Approx(problem.oracle.fastest(0, 0, count)).epsilon(1e-12));
    double slowest = 0;
    for (const search::PipedreamStage& stage : found.stages) {
      slowest = std::max(slowest, problem.oracle.stage(0, 0, static_cast<std::size_t>(stage.begin),
                                                       static_cast<std::size_t>(stage.end),
                                                       static_cast<int>(stage.devices.size())));
    }
    CHECK(found.seconds == Approx(slowest).epsilon(1e-12));
    CHECK(uses_all_devices(found, problem.oracle.levels));
  }
}

TEST_CASE("no hierarchical partition of a small chain is faster than the one found") {
  RandomSequence random(20191030);
  for (int instance = 0; instance < 400; ++instance) {
    INFO("instance " << instance);
    const RandomChain problem = random_chain(random, instance % 4 == 0 ? 3 : 2);
    const search::PipedreamPartition found =
        search::partition_pipedream(problem.states, problem.oracle.levels);
    const std::size_t outermost = problem.oracle.levels.size() - 1;
    CHECK(found.seconds ==
          Approx(problem.oracle.fastest(outermost, 0, problem.states.size())).epsilon(1e-12));
    CHECK(uses_all_devices(found, problem.oracle.levels));
  }
}

// --- States -------------------------------------------------------------------------------------

TEST_CASE("a diamond has five states, and sends on what PipeDream counts") {
  const ModelProfile profile =
      model_of({{3, 1, 10, {}}, {30, 2, 20, {0}}, {300, 4, 40, {0}}, {3000, 8, 80, {1, 2}}});
  const search::PipedreamStates states = states_of(profile);
  CHECK(layer_sets(states) ==
        std::vector<std::vector<std::int32_t>>{{0}, {0, 1}, {0, 2}, {0, 1, 2}, {0, 1, 2, 3}});
  std::vector<std::int64_t> compute;
  std::vector<std::int64_t> parameters;
  std::vector<std::int64_t> outputs;
  for (const search::PipedreamState& state : states.states) {
    compute.push_back(state.compute.ns);
    parameters.push_back(state.parameters.count);
    outputs.push_back(state.output.count);
  }
  CHECK(compute == std::vector<std::int64_t>{3, 33, 303, 333, 3333});
  CHECK(parameters == std::vector<std::int64_t>{1, 3, 5, 7, 15});
  // Layer 0 is counted beside 1 and 2 together, though both of its consumers are in the state:
  // each of them sees the other one outside.
  CHECK(outputs == std::vector<std::int64_t>{10, 30, 50, 70, 80});
}

TEST_CASE("states of random graphs with one source are their sets closed under inputs") {
  RandomSequence random(7);
  for (int instance = 0; instance < 100; ++instance) {
    INFO("instance " << instance);
    const int count = static_cast<int>(random.roll(1, 9));
    std::vector<LayerSpec> specs(static_cast<std::size_t>(count));
    for (int layer = 1; layer < count; ++layer) {
      std::set<std::int32_t> inputs;
      for (int draw = static_cast<int>(random.roll(1, 3)); draw > 0; --draw) {
        inputs.insert(static_cast<int>(random.roll(0, layer - 1)));
      }
      specs[static_cast<std::size_t>(layer)].inputs.assign(inputs.begin(), inputs.end());
    }
    std::set<std::vector<std::int32_t>> closed;
    for (unsigned chosen = 1; chosen < 1u << count; ++chosen) {
      std::vector<std::int32_t> set;
      bool is_closed = true;
      for (std::int32_t layer = 0; layer < count; ++layer) {
        if ((chosen >> layer & 1) == 0) continue;
        set.push_back(layer);
        for (const std::int32_t input : specs[static_cast<std::size_t>(layer)].inputs) {
          is_closed = is_closed && (chosen >> input & 1) != 0;
        }
      }
      if (is_closed) closed.insert(set);
    }
    const search::PipedreamStates states = states_of(model_of(specs));
    const std::vector<std::vector<std::int32_t>> sets = layer_sets(states);
    CHECK(states.kind == search::PipedreamStateKind::Antichains);
    CHECK(std::set<std::vector<std::int32_t>>(sets.begin(), sets.end()) == closed);
    CHECK(sets.size() == closed.size());
  }
}

TEST_CASE("other sources come in with the layers that need them") {
  // 0 feeds only 3; 1 feeds 2 and, through it, 3 and 4: 1 is the main source.
  const ModelProfile profile =
      model_of({{}, {}, {0, 0, 0, {1}}, {0, 0, 0, {0, 2}}, {0, 0, 0, {3}}});
  CHECK(layer_sets(states_of(profile)) ==
        std::vector<std::vector<std::int32_t>>{{1}, {1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}});
}

TEST_CASE("a graph with too many states is cut along its order") {
  // Six branches between a source and a sink: 2^6 sets with the source, and one with the sink.
  std::vector<LayerSpec> specs{{1, 1, 5, {}}};
  for (int branch = 0; branch < 6; ++branch) specs.push_back({1, 1, 7, {0}});
  specs.push_back({1, 1, 9, {1, 2, 3, 4, 5, 6}});
  CHECK(states_of(model_of(specs), 65).states.size() == 65);
  CHECK(states_of(model_of(specs), 65).kind == search::PipedreamStateKind::Antichains);
  const search::PipedreamStates prefixes = states_of(model_of(specs), 64);
  CHECK(prefixes.kind == search::PipedreamStateKind::Prefixes);
  REQUIRE(prefixes.states.size() == 8);
  CHECK(prefixes.states[2].layers == std::vector<std::int32_t>{0, 1, 2});
  CHECK(prefixes.states[2].compute == Duration{3});
  CHECK(prefixes.states[2].parameters == Bytes{3});
  CHECK(prefixes.states[2].output == Bytes{19});  // 5 + 7 + 7
}

TEST_CASE("a model in two parts that share nothing is cut along its order") {
  const search::PipedreamStates states =
      states_of(model_of({{}, {}, {0, 0, 0, {0}}, {0, 0, 0, {1}}}));
  CHECK(states.kind == search::PipedreamStateKind::Prefixes);
  CHECK(states.states.size() == 4);
}

TEST_CASE("a chain of too many layers is cut only at evenly spread places") {
  std::vector<LayerSpec> specs{{1, 1, 1, {}}};
  for (std::int32_t layer = 1; layer < 10; ++layer) specs.push_back({1, 1, 1, {layer - 1}});
  const search::PipedreamStates states = states_of(model_of(specs), 4);
  CHECK(states.kind == search::PipedreamStateKind::MergedPrefixes);
  std::vector<std::size_t> ends;  // 10/4, 20/4, 30/4, 40/4, rounded down
  for (const search::PipedreamState& state : states.states) ends.push_back(state.layers.size());
  CHECK(ends == std::vector<std::size_t>{2, 5, 7, 10});
  CHECK(states.states[1].compute == Duration{5});
}

TEST_CASE("states are costed for the samples and the device that are asked for") {
  const ModelProfile profile = model_of({{800, 1, 80, {}}});
  search::PipedreamOptions options;
  options.samples = 4;                  // of 8 measured
  options.times = Factor{500'000'000};  // half of the time
  const search::PipedreamState state = search::pipedream_states(profile, options).states[0];
  CHECK(state.compute == Duration{201});  // 266 / 4 = 66.5 and 534 / 4 = 133.5, each rounded up
  CHECK(state.output == Bytes{40});
}

// --- Ranges of layers, levels -------------------------------------------------------------------

TEST_CASE("a stage that is no range of layers gets the nearest one") {
  // Layers 0 and 2 first: a cut behind 2 has layer 1 (1 ns) on the wrong side, a cut behind 0 has
  // layer 2 (5 ns).
  std::vector<search::PipedreamState> states(2);
  states[0].layers = {0, 2};
  states[1].layers = {0, 1, 2, 3};
  search::PipedreamPartition partition;
  partition.stages = {{0, 1, {0}}, {1, 2, {1}}};
  CHECK(search::layers_of(partition.stages[1], states) == std::vector<std::int32_t>{1, 3});
  const search::PipedreamRanges found =
      search::nearest_ranges(partition, states, {{5}, {1}, {5}, {5}});
  CHECK(found.ranges == std::vector<LayerRange>{{0, 3}, {3, 4}});
  CHECK(found.displaced == std::vector<std::int32_t>{1});
}

TEST_CASE("no other ranges of layers are nearer than those found") {
  RandomSequence random(13);
  for (int instance = 0; instance < 300; ++instance) {
    INFO("instance " << instance);
    const int count = static_cast<int>(random.roll(3, 7));
    std::vector<Duration> compute;
    std::vector<std::int32_t> order(static_cast<std::size_t>(count));
    for (int layer = 0; layer < count; ++layer) {
      compute.push_back({static_cast<int>(random.roll(0, 3))});
    }
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    // Three stages: the first layers of a random order, more of them, all.
    const int first = static_cast<int>(random.roll(1, count - 2));
    const int second = static_cast<int>(random.roll(first + 1, count - 1));
    std::vector<search::PipedreamState> states(3);
    for (const auto& [state, end] :
         {std::pair(0u, first), std::pair(1u, second), std::pair(2u, count)}) {
      states[state].layers.assign(order.begin(), order.begin() + end);
      std::sort(states[state].layers.begin(), states[state].layers.end());
    }
    search::PipedreamPartition partition;
    partition.stages = {{0, 1, {0}}, {1, 2, {1}}, {2, 3, {2}}};
    const auto distance = [&](std::int32_t a, std::int32_t b) {
      const auto one = distance_of(states[0].layers, a, compute);
      const auto two = distance_of(states[1].layers, b, compute);
      return std::pair(one.first + two.first, one.second + two.second);
    };
    std::optional<std::pair<std::int64_t, std::int64_t>> least;
    for (std::int32_t a = 1; a < count; ++a) {
      for (std::int32_t b = a + 1; b < count; ++b) {
        if (!least || distance(a, b) < *least) least = distance(a, b);
      }
    }
    const search::PipedreamRanges found = search::nearest_ranges(partition, states, compute);
    REQUIRE(found.ranges.size() == 3);
    CHECK(found.ranges[0].begin == 0);
    CHECK(found.ranges[1].begin == found.ranges[0].end);
    CHECK(found.ranges[2].begin == found.ranges[1].end);
    CHECK(found.ranges[2].end == count);
    for (const LayerRange& range : found.ranges) CHECK(range.size() >= 1);
    CHECK(distance(found.ranges[0].end, found.ranges[1].end) == *least);
    CHECK(found.displaced.empty() == (*least == std::pair<std::int64_t, std::int64_t>(0, 0)));
  }
}
