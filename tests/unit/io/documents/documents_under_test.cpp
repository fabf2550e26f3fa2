#include "documents_under_test.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "../../../support/crowded_ways.h"
#include "../../../support/measured_reductions.h"
#include "../../../support/own_times.h"

namespace dapple::test {
namespace {

std::string pick_text(Dice& dice) {
  static const std::vector<std::string> kTexts{
      "",      "plain",        "with \"quotes\"",  "back\\slash",
      "a/b~c", "größe µ 模型", "line\nbreak\ttab", "\xf0\x9f\x9a\x80"};
  return kTexts[static_cast<std::size_t>(
      dice.roll(0, static_cast<std::int64_t>(kTexts.size()) - 1))];
}

std::int64_t pick_count(Dice& dice) {
  if (dice.chance(10)) return 0;
  if (dice.chance(10)) return kMaxCount;
  return dice.roll(0, dice.chance(50) ? 1'000 : kMaxCount);
}

Factor pick_factor(Dice& dice, std::int64_t least, std::int64_t most) {
  if (dice.chance(50)) return {dice.roll(least, most)};
  const std::int64_t whole = kOne.billionths / 1'000;
  return {std::max(least, dice.roll(least, most) / whole * whole)};
}

std::vector<Measurement> random_measurements(Dice& dice) {
  std::vector<Measurement> measurements;
  std::int64_t batch = 0;
  for (std::int64_t left = dice.roll(1, 3); left > 0; --left) {
    Measurement measurement;
    batch += dice.roll(1, 100);
    measurement.batch_size = batch;
    measurement.forward.ns = pick_count(dice);
    measurement.backward.ns = pick_count(dice);
    if (dice.chance(30)) {
      measurement.input_gradient = Duration{dice.roll(0, measurement.backward.ns)};
      measurement.weight_gradient = measurement.backward - *measurement.input_gradient;
    }
    measurement.output.count = pick_count(dice);
    measurement.stash.count = pick_count(dice);
    if (dice.chance(30)) measurement.workspace.count = pick_count(dice);
    measurements.push_back(measurement);
  }
  return measurements;
}

Layer random_layer(Dice& dice, std::int32_t position) {
  Layer layer;
  layer.parameters.count = pick_count(dice);
  layer.measurements = random_measurements(dice);
  if (dice.chance(30) && layer.measurements.size() == 1) {
    const Measurement& measurement = layer.measurements.front();
    const std::int64_t most = measurement.backward.ns == 0
                                  ? measurement.forward.ns
                                  : std::min(measurement.forward.ns, measurement.backward.ns);
    layer.fixed_overhead.ns = dice.roll(0, most);
  }
  if (dice.chance(20)) layer.operation = R"({"hidden": 1024, "kind": "x\n", "rates": [0.5, true]})";
  std::set<std::int32_t> inputs;
  if (position > 0 && dice.chance(70)) inputs.insert(position - 1);
  while (position > 0 && dice.chance(20))
    inputs.insert(static_cast<std::int32_t>(dice.roll(0, position - 1)));
  for (const std::int32_t input : inputs) layer.inputs.push_back(LayerIndex{input});
  return layer;
}

Link random_link(Dice& dice) {
  const std::int64_t unit[] = {1, 1'000, 1'000'000, 125'000'000, 1'000'000'000};
  return {{std::clamp(dice.roll(1, 1'000) * unit[dice.roll(0, 4)], std::int64_t{1}, kMaxCount)},
          {dice.roll(0, 1'000) * unit[dice.roll(0, 2)]}};
}

ServerLinks random_matrix(Dice& dice, std::int32_t devices) {
  ServerLinks links;
  links.kind = ServerLinks::Kind::Matrix;
  links.source = pick_text(dice);
  links.kinds = {{"NV1", pick_text(dice), random_link(dice), 1},
                 {"NV2", pick_text(dice), random_link(dice), 2}};
  links.matrix = Eigen::MatrixXi::Constant(devices, devices, kNoLink);
  for (Eigen::Index from = 0; from < devices; ++from)
    for (Eigen::Index to = 0; to < devices; ++to)
      if (from != to) links.matrix(from, to) = static_cast<int>(dice.roll(kNoLink, 1));
  links.host_path = random_link(dice);
  links.host_path_source = pick_text(dice);
  return links;
}

bool same_measurement(const Measurement& a, const Measurement& b) {
  return a.batch_size == b.batch_size && a.forward == b.forward && a.backward == b.backward &&
         a.input_gradient == b.input_gradient && a.weight_gradient == b.weight_gradient &&
         a.output == b.output && a.stash == b.stash && a.workspace == b.workspace;
}

bool same_layer(const Layer& a, const Layer& b) {
  return a.name == b.name && a.parameters == b.parameters && a.fixed_overhead == b.fixed_overhead &&
         a.inputs == b.inputs && a.operation == b.operation && a.other_times == b.other_times &&
         std::equal(a.measurements.begin(), a.measurements.end(), b.measurements.begin(),
                    b.measurements.end(), same_measurement);
}

bool same_links(const ServerLinks& a, const ServerLinks& b) {
  const auto same_kind = [](const LinkKind& x, const LinkKind& y) {
    return x.name == y.name && x.source == y.source && x.link == y.link && x.lanes == y.lanes;
  };
  return a.kind == b.kind && a.source == b.source && a.port == b.port &&
         std::equal(a.kinds.begin(), a.kinds.end(), b.kinds.begin(), b.kinds.end(), same_kind) &&
         a.matrix.rows() == b.matrix.rows() && a.matrix.cols() == b.matrix.cols() &&
         (a.matrix.array() == b.matrix.array()).all() && a.host_path == b.host_path &&
         a.host_path_source == b.host_path_source;
}

bool same_uplinks(const std::vector<UplinkGroup>& a, const std::vector<UplinkGroup>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const UplinkGroup& x, const UplinkGroup& y) {
                      return x.source == y.source && x.count == y.count && x.members == y.members &&
                             x.bandwidth == y.bandwidth &&
                             x.oversubscription == y.oversubscription && x.latency == y.latency;
                    });
}

bool same_server(const ServerGroup& a, const ServerGroup& b) {
  const auto same_nic = [](const Nic& x, const Nic& y) {
    return x.source == y.source && x.link == y.link && x.devices == y.devices;
  };
  const auto same_root = [](const PcieRoot& x, const PcieRoot& y) {
    return x.source == y.source && x.link == y.link && x.devices == y.devices && x.nics == y.nics;
  };
  const auto same_table = [](const BusBandwidthTable& x, const BusBandwidthTable& y) {
    return x.source == y.source && x.servers == y.servers && x.devices == y.devices &&
           x.points == y.points;
  };
  return a.name == b.name && a.count == b.count && a.device == b.device && a.devices == b.devices &&
         same_links(a.links, b.links) &&
         std::equal(a.bus_bandwidth.begin(), a.bus_bandwidth.end(), b.bus_bandwidth.begin(),
                    b.bus_bandwidth.end(), same_table) &&
         std::equal(a.nics.begin(), a.nics.end(), b.nics.begin(), b.nics.end(), same_nic) &&
         std::equal(a.pcie_roots.begin(), a.pcie_roots.end(), b.pcie_roots.begin(),
                    b.pcie_roots.end(), same_root);
}

bool same_plan(const Plan& a, const Plan& b) {
  const auto same_stage = [](const StagePlan& x, const StagePlan& y) {
    return x.layers == y.layers && x.devices == y.devices && x.replication == y.replication &&
           x.recompute == y.recompute && x.gradient_buckets == y.gradient_buckets;
  };
  return a.global_batch_size == b.global_batch_size && a.micro_batch_size == b.micro_batch_size &&
         a.num_micro_batches == b.num_micro_batches && a.gradients == b.gradients &&
         a.family == b.family && a.warmup_depths == b.warmup_depths &&
         std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(), same_stage);
}

bool same_prediction(const Prediction& a, const Prediction& b) {
  const auto same_stage = [](const StageFigures& x, const StageFigures& y) {
    return x.forward == y.forward && x.backward == y.backward && x.send == y.send &&
           x.all_reduce == y.all_reduce && x.optimizer_step == y.optimizer_step;
  };
  const auto same_device = [](const DeviceFigures& x, const DeviceFigures& y) {
    return x.device == y.device && x.peak_memory == y.peak_memory &&
           x.memory_limit == y.memory_limit && x.busy_fraction == y.busy_fraction;
  };
  return a.contention == b.contention && a.replicas == b.replicas && a.iteration == b.iteration &&
         a.samples_per_second == b.samples_per_second &&
         a.speedup_over_one_device == b.speedup_over_one_device && a.lower_bound == b.lower_bound &&
         a.optimality_gap == b.optimality_gap && a.bubble_fraction == b.bubble_fraction &&
         a.exposed_transfer == b.exposed_transfer && a.exposed_all_reduce == b.exposed_all_reduce &&
         a.parts == b.parts &&
         std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(),
                    same_stage) &&
         std::equal(a.devices.begin(), a.devices.end(), b.devices.begin(), b.devices.end(),
                    same_device);
}

}  // namespace

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  INFO("looking for " << from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::vector<std::string> profile_faults(const std::string& text) {
  return faults([&text] { io::read_profile(text, "f.json"); });
}
std::vector<std::string> topology_faults(const std::string& text) {
  return faults([&text] { io::read_topology(text, "f.json"); });
}
std::vector<std::string> plan_faults(const std::string& text) {
  return faults([&text] { io::read_plan(text, "f.json"); });
}

bool same(const ModelProfile& a, const ModelProfile& b) {
  return a.name == b.name && a.source == b.source && a.notes == b.notes &&
         a.global_batch_size == b.global_batch_size && a.device == b.device &&
         a.batch_scaling == b.batch_scaling && a.optimizer.name == b.optimizer.name &&
         a.optimizer.state_bytes_per_parameter_byte == b.optimizer.state_bytes_per_parameter_byte &&
         a.optimizer.gradient_bytes_per_parameter_byte ==
             b.optimizer.gradient_bytes_per_parameter_byte &&
         a.optimizer.framework_bytes_per_parameter_byte ==
             b.optimizer.framework_bytes_per_parameter_byte &&
         a.optimizer.step_ns_per_parameter_byte == b.optimizer.step_ns_per_parameter_byte &&
         a.ties == b.ties && a.other_devices == b.other_devices &&
         std::equal(a.layers.begin(), a.layers.end(), b.layers.begin(), b.layers.end(), same_layer);
}

bool same(const TopologyDescription& a, const TopologyDescription& b) {
  const auto same_kind = [](const DeviceKind& x, const DeviceKind& y) {
    return x.name == y.name && x.source == y.source && x.memory == y.memory &&
           x.reserved == y.reserved && x.time_scale == y.time_scale &&
           x.price_per_hour == y.price_per_hour;
  };
  return a.name == b.name && a.source == b.source && a.notes == b.notes &&
         std::equal(a.devices.begin(), a.devices.end(), b.devices.begin(), b.devices.end(),
                    same_kind) &&
         std::equal(a.servers.begin(), a.servers.end(), b.servers.begin(), b.servers.end(),
                    same_server) &&
         a.network == b.network && a.network_source == b.network_source &&
         same_uplinks(a.racks, b.racks) && same_uplinks(a.pods, b.pods) &&
         a.overlap_slowdown == b.overlap_slowdown;
}

bool same(const PlanDocument& a, const PlanDocument& b) {
  const auto same_baseline = [](const Baseline& x, const Baseline& y) {
    return x.name == y.name && x.shape == y.shape && x.iteration == y.iteration &&
           x.parts == y.parts && x.feasible == y.feasible && x.missing == y.missing &&
           x.depth_limited == y.depth_limited;
  };
  return a.tool == b.tool && same(a.profile, b.profile) && same(a.topology, b.topology) &&
         same_plan(a.plan, b.plan) && same_prediction(a.prediction, b.prediction) &&
         std::equal(a.baselines.begin(), a.baselines.end(), b.baselines.begin(), b.baselines.end(),
                    same_baseline) &&
         a.search.planner == b.search.planner && a.search.complete == b.search.complete &&
         a.search.searched == b.search.searched && a.search.cut == b.search.cut &&
         a.search.outside == b.search.outside && a.search.states == b.search.states &&
         a.search.candidates == b.search.candidates && a.search.simulated == b.search.simulated &&
         a.search.open == b.search.open && a.search.kept == b.search.kept &&
         a.warnings == b.warnings;
}

ModelProfile random_profile(Dice& dice) {
  ModelProfile profile;
  profile.name = "model \"" + std::to_string(dice.roll(0, 9)) + "\"";
  profile.source = pick_text(dice);
  while (dice.chance(40)) profile.notes.push_back(pick_text(dice));
  if (dice.chance(50)) profile.global_batch_size = dice.roll(1, 2'147'483'647);
  profile.device = dice.chance(10) ? "" : "V100";
  profile.batch_scaling = dice.chance(50) ? BatchScaling::Proportional : BatchScaling::Floor;
  profile.optimizer.name = "adam";
  profile.optimizer.state_bytes_per_parameter_byte = pick_factor(dice, 0, 1'000 * kOne.billionths);
  if (dice.chance(50))
    profile.optimizer.gradient_bytes_per_parameter_byte = pick_factor(dice, 0, kOne.billionths);
  if (dice.chance(50))
    profile.optimizer.framework_bytes_per_parameter_byte = pick_factor(dice, 0, kOne.billionths);
  if (dice.chance(50))
    profile.optimizer.step_ns_per_parameter_byte = pick_factor(dice, 0, kOne.billionths);
  std::int32_t stem = 0;
  for (std::int64_t left = dice.roll(1, 8); left > 0; --left) {
    const auto first = static_cast<std::int32_t>(profile.layers.size());
    const std::string name = "layer/" + std::to_string(stem++) + (dice.chance(20) ? ".0" : "");
    const std::int64_t copies = dice.chance(50) ? 1 : dice.roll(1, 5);
    const Layer layer = random_layer(dice, first);
    for (std::int32_t copy = 0; copy < copies; ++copy) {
      Layer& added = profile.layers.emplace_back(layer);
      added.name = copies == 1 ? name : name + "." + std::to_string(copy);
      if (copy > 0) added.inputs = {LayerIndex{first + copy - 1}};
      // Now and then a copy that differs cuts the run.
      if (copy > 0 && dice.chance(10)) added.parameters.count = pick_count(dice);
    }
  }
  // Reading orders layers by their inputs alone, so that a tie goes from any layer to one behind.
  const auto last = static_cast<std::int32_t>(profile.layers.size()) - 1;
  for (std::int32_t owner = 0; owner < last && dice.chance(50);) {
    const auto user = static_cast<std::int32_t>(dice.roll(owner + 1, last));
    if (profile.layers[static_cast<std::size_t>(owner)].parameters.count > 0) {
      profile.ties.push_back({{owner}, {}});
      for (std::int32_t layer = owner + 1; layer <= user; ++layer) {
        profile.ties.back().users.push_back({layer});
      }
    }
    owner = user + 1;
  }
  if (profile.device.empty() || dice.chance(60)) return profile;
  for (const char* kind : {"A/100", "H \"100\""}) {
    if (dice.chance(30)) continue;
    profile.other_devices.push_back(kind);
    for (Layer& layer : profile.layers) {
      layer.other_times.push_back(
          small::random_times(dice, layer.fixed_overhead, layer.measurements));
    }
  }
  return profile;
}

TopologyDescription random_topology(Dice& dice) {
  TopologyDescription topology;
  topology.name = "cluster";
  topology.source = pick_text(dice);
  while (dice.chance(40)) topology.notes.push_back(pick_text(dice));
  for (const char* name : {"A/100", "V100"}) {
    DeviceKind kind;
    kind.name = name;
    kind.source = pick_text(dice);
    kind.memory.count = dice.roll(1, 1'000) << dice.roll(0, 30);
    if (dice.chance(30)) kind.memory.count = dice.roll(1, kMaxCount);
    kind.reserved.count = dice.roll(0, kind.memory.count - 1);
    if (dice.chance(30)) kind.time_scale = {{"P100", pick_factor(dice, 1, kOne.billionths)}};
    if (dice.chance(30)) kind.price_per_hour = pick_factor(dice, 0, kOne.billionths);
    topology.devices.push_back(kind);
  }
  for (std::int64_t left = dice.roll(1, 3); left > 0; --left) {
    ServerGroup group;
    group.name = "server" + std::to_string(left);
    group.count = static_cast<std::int32_t>(dice.roll(1, 9));
    group.device = dice.chance(50) ? "A/100" : "V100";
    group.devices = static_cast<std::int32_t>(dice.roll(1, 5));
    if (group.devices > 1 && dice.chance(50)) {
      group.links = random_matrix(dice, group.devices);
    } else if (group.devices > 1) {
      group.links.port = random_link(dice);
      group.links.source = pick_text(dice);
    }
    while (dice.chance(50)) {
      group.nics.push_back({pick_text(dice), random_link(dice), {}});
      if (dice.chance(50)) group.nics.back().devices = {0};
    }
    if (dice.chance(40)) {
      small::add_roots(
          dice, [&] { return random_link(dice); }, group);
      group.pcie_roots.front().source = pick_text(dice);
    }
    topology.servers.push_back(group);
  }
  if (dice.chance(50)) {
    small::measure_reductions(dice, 1'000'000, topology);
    for (ServerGroup& group : topology.servers) {
      for (BusBandwidthTable& table : group.bus_bandwidth) table.source = pick_text(dice);
    }
  }
  if (dice.chance(70)) {
    topology.network = random_link(dice);
    topology.network_source = pick_text(dice);
  }
  if (dice.chance(50)) topology.overlap_slowdown = Factor{1'126'000'000};
  if (dice.chance(50)) {
    topology.racks = small::random_uplinks(
        dice, [&] { return random_link(dice); }, 9);
    topology.pods = small::random_uplinks(
        dice, [&] { return random_link(dice); }, 3);
    topology.racks.front().source = pick_text(dice);
  }
  return topology;
}

PlanDocument small_plan() {
  PlanDocument document;
  document.tool = "dapple-plan 0.1.0";
  document.profile = io::read_profile(kProfileText, "profile");
  document.topology = io::read_topology(kTopologyText, "topology");
  document.plan = {
      .global_batch_size = 8,
      .micro_batch_size = 2,
      .num_micro_batches = 4,
      .family = ScheduleFamily::OneFOneB,
      .warmup_depths = {2, 1},
      .stages = {
          {{0, 1}, {DeviceIndex{0}}, Replication::Split, false, {}, {}},
          {{1, 3}, {DeviceIndex{2}, DeviceIndex{3}}, Replication::Split, true, {}, {Bytes{400}}}}};
  Prediction& prediction = document.prediction;
  prediction.iteration = Duration{1'000};
  prediction.samples_per_second = 1.0 / 3.0;
  prediction.speedup_over_one_device = 1.7;
  prediction.bubble_fraction = 0.1;
  prediction.exposed_transfer = Duration{11};
  prediction.exposed_all_reduce = Duration{12};
  prediction.stages = {{Duration{20}, Duration{40}, Bytes{16}, Duration{0}, Duration{1}},
                       {Duration{60}, Duration{140}, Bytes{0}, Duration{99}, Duration{2}}};
  prediction.devices = {{DeviceIndex{0}, Bytes{1}, Bytes{2}, 0.5},
                        {DeviceIndex{2}, Bytes{3}, Bytes{4}, 2.0 / 3.0},
                        {DeviceIndex{3}, Bytes{5}, Bytes{6}, 1}};
  prediction.parts = {Duration{500}, Duration{0},  Duration{40},  Duration{30},
                      Duration{200}, Duration{10}, Duration{210}, Duration{10}};
  document.baselines = {{"data-parallel",
                         "4, 1 of 8",
                         Duration{2'000},
                         {{500}, {0}, {0}, {0}, {0}, {0}, {1'500}, {0}},
                         false,
                         Bytes{77},
                         true}};
  document.search = {.planner = "dapple",
                     .complete = false,
                     .searched = {"stages"},
                     .cut = {"placements: three policies"},
                     .states = 10,
                     .candidates = 5,
                     .simulated = 3,
                     .open = 2,
                     .kept = 7};
  document.warnings = {"one \"quoted\" warning"};
  return document;
}

}  // namespace dapple::test
