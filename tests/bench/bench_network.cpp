// How fast transfers and all-reduces are simulated where they share links, and what the largest
// simulations take: time on one core, transfers and flows per second, events, peak memory.
//
//   shared_nics: 64 stages of one device, eight servers, stages dealt over them in turn, so that
//     each of the eight NICs is shared by 16 boundaries' ends
//   shared_ports: the same stages in order, so that they share devices' ports and few NICs
//   shared_uplinks: the same stages in two racks in turn, whose uplinks all boundaries cross
//   devices_1024: 1,024 devices of 128 servers in 8 racks with uplinks of 4:1, 1,024 micro-batches,
//     in so many stages of so many replicas, which reduce their gradients in 16 buckets each

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "../support/pipeline.h"
#include "peak_memory.h"

namespace dapple {
namespace {

struct Counts {
  std::int64_t transfers = 0;
  std::int64_t flows = 0;
};

Counts count_transfers(const small::Pipeline& pipeline) {
  Counts counts;
  for (const BoundaryCost& boundary : pipeline.costs.boundaries) {
    for (const TransferCost* cost : {&boundary.forward.front(), &boundary.backward.front()}) {
      counts.transfers += pipeline.plan.num_micro_batches;
      counts.flows +=
          pipeline.plan.num_micro_batches * static_cast<std::int64_t>(cost->flows.size());
    }
  }
  return counts;
}

void measure(benchmark::State& state, const small::Pipeline& pipeline) {
  const Counts counts = count_transfers(pipeline);
  std::int64_t events = 0;
  small::forget_peak_memory();
  for (auto _ : state) {
    events = pipeline.run({.contention = Contention::Shared, .record = false}).events;
  }
  const auto rate = [](std::int64_t count) {
    return benchmark::Counter(static_cast<double>(count),
                              benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["transfers"] = static_cast<double>(counts.transfers);
  state.counters["transfers/s"] = rate(counts.transfers);
  state.counters["flows/s"] = rate(counts.flows);
  state.counters["events"] = static_cast<double>(events);
  state.counters["peak_MiB"] = small::peak_memory_mib();
}

/// Policy A of the paper.
std::vector<std::int64_t> depths_of(std::int32_t stages, std::int64_t micro_batches) {
  std::vector<std::int64_t> depths;
  for (std::int32_t s = 0; s < stages; ++s) {
    depths.push_back(std::min<std::int64_t>(stages - s, micro_batches));
  }
  return depths;
}

constexpr std::int32_t kServers = 8;
constexpr std::int32_t kDevices = 8;
constexpr std::int32_t kStages = kServers * kDevices;

TopologyDescription eight_servers() {
  return small::cluster({.servers = kServers,
                         .devices = kDevices,
                         .inside = {small::bytes_per_ns(1), {5'000}},
                         .nics = {Link{small::bytes_per_ns(1), {5'000}}}});
}

/// Stage by stage on these devices. A transfer takes a tenth of a stage's forward on an idle link.
small::Pipeline straight(const TopologyDescription& description,
                         const std::vector<std::int32_t>& devices) {
  constexpr std::int64_t kMicroBatches = 512;
  small::PlanShape shape{.num_micro_batches = kMicroBatches,
                         .depths = depths_of(kStages, kMicroBatches)};
  for (const std::int32_t device : devices) {
    shape.stages.push_back({.layers = 1, .devices = {device}});
  }
  const std::vector<small::LayerFigures> layers(
      kStages, {.forward = 1'000'000, .backward = 2'000'000, .output = 100'000});
  return {small::model_of(layers), description, shape};
}

void shared_nics(benchmark::State& state) {
  std::vector<std::int32_t> devices;
  for (std::int32_t s = 0; s < kStages; ++s) {
    devices.push_back(s % kServers * kDevices + s / kServers);
  }
  measure(state, straight(eight_servers(), devices));
}

void shared_ports(benchmark::State& state) {
  std::vector<std::int32_t> devices;
  for (std::int32_t s = 0; s < kStages; ++s) devices.push_back(s);
  measure(state, straight(eight_servers(), devices));
}

void shared_uplinks(benchmark::State& state) {
  TopologyDescription description = eight_servers();
  UplinkGroup rack;
  rack.count = 2;
  rack.members = kServers / rack.count;
  rack.oversubscription = kOne;
  description.racks = {rack};
  std::vector<std::int32_t> devices;
  for (std::int32_t s = 0; s < kStages; ++s) devices.push_back(s % 2 * kStages / 2 + s / 2);
  measure(state, straight(description, devices));
}

small::Pipeline thousand_devices(std::int32_t stages) {
  constexpr std::int32_t kManyServers = 128;
  constexpr std::int64_t kMicroBatches = 1024;
  const std::int32_t replicas = kManyServers * kDevices / stages;
  TopologyDescription description =
      small::cluster({.servers = kManyServers,
                      .devices = kDevices,
                      .inside = {{300'000'000'000}, {3'400}},
                      .nics = std::vector<Link>(kDevices, {{25'000'000'000}, {5'000}})});
  UplinkGroup rack;
  rack.count = 8;
  rack.members = kManyServers / rack.count;
  rack.oversubscription = {4 * kOne.billionths};
  rack.latency = {1'000};
  description.racks = {rack};
  small::PlanShape shape{.micro_batch_size = replicas,
                         .num_micro_batches = kMicroBatches,
                         .depths = depths_of(stages, kMicroBatches)};
  constexpr std::int32_t kLayersPerStage = 16;
  for (std::int32_t s = 0; s < stages; ++s) {
    small::StageShape stage{.layers = kLayersPerStage, .devices = {}};
    for (std::int32_t r = 0; r < replicas; ++r) stage.devices.push_back(s * replicas + r);
    shape.stages.push_back(std::move(stage));
  }
  const std::vector<small::LayerFigures> layers(
      static_cast<std::size_t>(stages * kLayersPerStage),
      {.forward = 100'000, .backward = 200'000, .output = 4'000'000, .parameters = 30'000'000});
  return {small::model_of(layers), description, shape};
}

void devices_1024(benchmark::State& state) {
  measure(state, thousand_devices(static_cast<std::int32_t>(state.range(0))));
}

BENCHMARK(shared_nics)->Unit(benchmark::kMillisecond);
BENCHMARK(shared_ports)->Unit(benchmark::kMillisecond);
BENCHMARK(shared_uplinks)->Unit(benchmark::kMillisecond);
BENCHMARK(devices_1024)
    ->ArgName("stages")
    ->Arg(2)
    ->Arg(16)
    ->Arg(128)
    ->Arg(1024)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace dapple

BENCHMARK_MAIN();
