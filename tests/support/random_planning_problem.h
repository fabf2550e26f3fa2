// Seeded random problems that open every dimension of the space of plans on purpose: unequal
// servers, several NICs, link matrices, mixed kinds of devices, tight memory, several gradient
// buckets, skip connections. Times are of milliseconds and sizes of megabytes, so that buckets of
// the default size close; half of the problems have round figures, which make ties.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "clusters.h"
#include "crowded_ways.h"
#include "dapple/cost/compatible.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/simulation_mode.h"
#include "dice.h"
#include "measured_reductions.h"
#include "models.h"
#include "own_times.h"
#include "random_problem.h"
#include "scaled.h"

namespace dapple::small {

/// At most so much of each.
struct ProblemLimits {
  std::int64_t layers = 4;
  std::int64_t devices = 4;
  std::int64_t global_batch = 6;
  bool crowded = false;   // there may be PCIe roots, racks and pods
  bool measured = false;  // there are measured all-reduces
  // Another kind of device may have times of its own.
  bool own_times = true;
};

struct PlanningProblem {
  Problem problem;
  Contention contention = Contention::Shared;
};

/// Makes one problem after another.
class ProblemMaker {
 public:
  explicit ProblemMaker(std::uint64_t seed, ProblemLimits limits = {})
      : dice_(seed), limits_(limits) {}

  PlanningProblem next() {
    round_figures_ = dice_.chance(50);
    most_stash_ = dice_.chance(50) ? 200 : 20;
    most_output_ = dice_.chance(50) ? 12 : 3;
    PlanningProblem made;
    made.problem.profile = model();
    made.problem.topology = cluster();
    if (limits_.own_times) measure_other_kind(made.problem);
    made.problem.global_batch = batch();
    made.problem.profile.global_batch_size = made.problem.global_batch;
    if (dice_.chance(50)) tighten_memory(made.problem);
    made.contention = dice_.chance(50) ? Contention::Shared : Contention::Off;
    return made;
  }

 private:
  /// Up to `most` units of `unit`, whole ones if figures are round.
  std::int64_t up_to(std::int64_t most, std::int64_t unit) {
    return round_figures_ ? dice_.roll(0, most) * unit : dice_.roll(0, most * unit);
  }

  std::int64_t batch() {
    constexpr std::int64_t kBatches[] = {1, 2, 3, 4, 4, 5, 6, 6, 6, 6, 8, 9, 12, 12, 24, 24};
    while (true) {
      const std::int64_t size = kBatches[pick(std::size(kBatches))];
      if (size <= limits_.global_batch) return size;
    }
  }

  ModelProfile model() {
    ModelProfile profile = model_of({});
    profile.optimizer.gradient_bytes_per_parameter_byte =
        dice_.chance(80) ? kOne : Factor{500'000'000};
    profile.optimizer.state_bytes_per_parameter_byte = {dice_.roll(0, 2) * kOne.billionths};
    // Without a roll of its own, which would change the instances behind it.
    if (profile.optimizer.gradient_bytes_per_parameter_byte != kOne) {
      profile.optimizer.framework_bytes_per_parameter_byte = Factor{333'333'333};
    }
    if (dice_.chance(30)) {
      profile.optimizer.step_ns_per_parameter_byte = Factor{dice_.roll(1, 50'000'000)};
    }
    if (dice_.chance(35)) profile.batch_scaling = BatchScaling::Floor;
    constexpr std::int64_t kMostParameters[] = {0, 5, 40, 40, 150, 150, 400};  // megabytes
    const std::int64_t most_parameters = kMostParameters[pick(7)];
    const std::int64_t layers = std::min(limits_.layers, dice_.roll(1, 2 * limits_.layers));
    for (std::int64_t i = 0; i < layers; ++i) profile.layers.push_back(layer(i, most_parameters));
    tie_some(dice_, profile, 60);
    return profile;
  }

  Layer layer(std::int64_t number, std::int64_t most_parameters) {
    Layer layer;
    layer.name = "layer" + std::to_string(number);
    if (dice_.chance(75)) layer.parameters = {up_to(most_parameters, 1'000'000)};
    if (number > 1 && dice_.chance(25)) {
      layer.inputs.push_back({static_cast<std::int32_t>(dice_.roll(0, number - 2))});
    }
    if (number > 0) layer.inputs.push_back({static_cast<std::int32_t>(number - 1)});
    const std::int64_t batch_size = dice_.chance(60) ? 1 : dice_.roll(2, 4);
    layer.measurements.push_back(measurement(batch_size));
    // The first layer's stash is what a first stage keeps that recomputes.
    if (number == 0) layer.measurements.front().stash.count /= 10;
    if (dice_.chance(20)) {
      layer.measurements.push_back(measurement(batch_size + dice_.roll(1, 3)));
    } else if (dice_.chance(20)) {
      layer.fixed_overhead = {layer.measurements.front().forward.ns / 2};
    }
    return layer;
  }

  Measurement measurement(std::int64_t batch_size) {
    Measurement measured;
    measured.batch_size = batch_size;
    measured.forward = {batch_size * up_to(8, 1'000'000)};
    measured.backward = {batch_size * up_to(16, 1'000'000)};
    if (dice_.chance(85)) measured.output = {batch_size * up_to(most_output_, 1'000'000)};
    measured.stash = {batch_size * up_to(most_stash_, 1'000'000)};
    if (dice_.chance(20)) measured.workspace = {batch_size * up_to(20, 1'000'000)};
    return measured;
  }

  Link link(std::int64_t most_gigabytes_per_second) {
    Link made;
    made.bandwidth = {
        std::max<std::int64_t>(1'000'000'000, up_to(most_gigabytes_per_second, 1'000'000'000))};
    if (dice_.chance(50)) made.latency = {up_to(6, 1'000'000)};
    return made;
  }

  TopologyDescription cluster() {
    std::vector<ServerGroup> groups;
    for (const auto& [servers, devices] : shape()) {
      groups.push_back(group(groups.size(), servers, devices));
    }
    TopologyDescription description = description_of(std::move(groups));
    if (dice_.chance(40)) description.network = link(4);
    if (dice_.chance(65)) description.overlap_slowdown = {dice_.roll(1'050'000'000, 2'000'000'000)};
    if (dice_.chance(55)) mix_kinds(description);
    if (limits_.crowded)
      crowd_ways(
          dice_, [&] { return link(6); }, description);
    if (limits_.measured) measure_reductions(dice_, 400'000'000, description);
    return description;
  }

  /// Servers and devices in each, group by group; unequal ones half of the time.
  std::vector<std::pair<int, int>> shape() {
    static const std::vector<std::vector<std::pair<int, int>>> kShapes{
        {{1, 1}},         {{1, 2}},         {{2, 1}},         {{1, 3}},         {{1, 3}},
        {{3, 1}},         {{1, 4}},         {{1, 4}},         {{2, 2}},         {{2, 2}},
        {{4, 1}},         {{1, 2}, {1, 1}}, {{1, 2}, {1, 1}}, {{1, 1}, {1, 2}}, {{1, 1}, {1, 2}},
        {{1, 3}, {1, 1}}, {{1, 2}, {2, 1}}, {{1, 2}, {2, 1}}, {{1, 1}, {1, 3}}, {{1, 2}, {1, 2}},
        {{1, 6}},         {{2, 3}},         {{3, 2}},         {{6, 1}},         {{1, 4}, {1, 2}},
        {{1, 2}, {2, 2}}, {{1, 3}, {3, 1}}, {{1, 3}, {1, 2}}, {{1, 4}, {1, 1}}, {{1, 2}, {3, 1}}};
    while (true) {
      const auto& shape = kShapes[pick(kShapes.size())];
      int devices = 0;
      for (const auto& [servers, each] : shape) devices += servers * each;
      if (devices <= limits_.devices) return shape;
    }
  }

  ServerGroup group(std::size_t number, int servers, int devices) {
    ServerGroup made;
    made.name = std::string(1, static_cast<char>('a' + number));
    made.device = "gpu";
    made.count = servers;
    made.devices = devices;
    made.links.port = link(12);
    if (devices > 1 && dice_.chance(60)) made.links = matrix(devices);
    const std::int64_t nics = devices > 1 && dice_.chance(65) ? dice_.roll(2, devices) : 1;
    for (std::int64_t i = 0; i < nics; ++i) {
      made.nics.push_back({.source = "", .link = link(5), .devices = {}});
    }
    if (nics > 1 && dice_.chance(40)) {  // dealt in turn, not in blocks
      for (int device = 0; device < devices; ++device) {
        made.nics[static_cast<std::size_t>(device % nics)].devices.push_back(device);
      }
    }
    return made;
  }

  ServerLinks matrix(int devices) {
    ServerLinks links;
    links.kind = ServerLinks::Kind::Matrix;
    links.host_path = link(4);
    for (const int lanes : {1, 2}) {
      LinkKind kind;
      kind.name = "lanes" + std::to_string(lanes);
      kind.link = link(12);
      kind.lanes = lanes;
      links.kinds.push_back(kind);
    }
    links.matrix = Eigen::MatrixXi::Constant(devices, devices, kNoLink);
    for (Eigen::Index from = 0; from < devices; ++from) {
      for (Eigen::Index to = 0; to < from; ++to) {
        links.matrix(from, to) = static_cast<int>(dice_.roll(-1, 1));
        links.matrix(to, from) =
            dice_.chance(85) ? links.matrix(from, to) : static_cast<int>(dice_.roll(-1, 1));
      }
    }
    return links;
  }

  /// The last group is of another kind, slower or faster; the only one, if there is no other.
  void mix_kinds(TopologyDescription& description) {
    DeviceKind other;
    other.name = "other";
    other.memory = {kMaxCount};
    const Factor factors[] = {{500'000'000}, {1'333'333'333}, {2'000'000'000}, {3'000'000'000}};
    other.time_scale["gpu"] = factors[pick(4)];
    description.devices.push_back(other);
    description.servers.back().device = "other";
  }

  /// In three of five problems with another kind, layers have times of their own on it. They are
  /// drawn apart, so that the problems behind it stay the same.
  static void measure_other_kind(Problem& problem) {
    std::vector<DeviceKind>& kinds = problem.topology.devices;
    const std::int64_t seed = problem.profile.layers.front().measurements.front().forward.ns;
    if (kinds.size() == 1 || seed % 5 > 2) return;
    Dice dice(static_cast<std::uint64_t>(seed));
    measure_on(dice, kinds.back().name, problem.profile);
    kinds.back().time_scale.clear();
  }

  /// Memory from a little of what one device would need for everything to a little more than that.
  void tighten_memory(Problem& problem) {
    const ModelProfile& profile = problem.profile;
    std::int64_t weights = 0;
    std::int64_t stash = 0;
    for (const Layer& layer : profile.layers) {
      weights += layer.parameters.count;
      stash += stash_size(layer, problem.global_batch).count;
    }
    weights += scale_up(Bytes{weights}, profile.optimizer.gradient_bytes_per_parameter_byte).count +
               scale_up(Bytes{weights}, profile.optimizer.state_bytes_per_parameter_byte).count;
    for (DeviceKind& kind : problem.topology.devices) {
      kind.memory = {1 + weights * dice_.roll(20, 110) / 100 + stash * dice_.roll(8, 70) / 100};
      if (dice_.chance(20)) kind.reserved = {kind.memory.count / 10};
    }
  }

  std::size_t pick(std::size_t choices) {
    return static_cast<std::size_t>(dice_.roll(0, static_cast<std::int64_t>(choices) - 1));
  }

  Dice dice_;
  ProblemLimits limits_;
  bool round_figures_ = false;
  std::int64_t most_stash_ = 0;   // of one sample and layer, megabytes
  std::int64_t most_output_ = 0;  // likewise
};

/// What about the problem leaves a choice that can matter, or bends its costs: in words.
std::set<std::string> open_dimensions(const PlanningProblem& made);

/// What of the space a plan makes use of, in words.
std::set<std::string> used_dimensions(const Plan& plan, const Topology& topology);

}  // namespace dapple::small
