// Interchangeable devices: a search tries one of the plans that differ only by them, so all of
// these plans must take the same time.

#include <catch2/catch.hpp>

#include <algorithm>

#include "../support/random_pipeline.h"
#include "dapple/plan/runtime.h"
#include "dapple/search/placement/placement_space.h"

namespace dapple {
namespace {

using namespace small;

/// Gives the devices of every pool to the stages anew, as many to each as before. The devices that
/// a stage has of one pool keep their order.
std::vector<DeviceIndex> redealt(Dice& dice, const Pipeline& pipeline) {
  const Topology& topology = pipeline.topology;
  // By device: the first stage that runs on it, or none.
  std::vector<std::size_t> stage_of(static_cast<std::size_t>(topology.device_count()), SIZE_MAX);
  for (std::size_t s = pipeline.plan.stages.size(); s-- > 0;) {
    for (const DeviceIndex device : pipeline.plan.stages[s].devices) {
      stage_of[device.position()] = s;
    }
  }
  std::vector<DeviceIndex> images;
  for (std::int32_t d = 0; d < topology.device_count(); ++d) images.push_back({d});
  for (const search::DevicePool& pool : search::device_pools(topology)) {
    const std::size_t first = pool.first.position();
    const std::size_t end = first + static_cast<std::size_t>(pool.size);
    std::vector<std::size_t> dealt(stage_of.begin() + pool.first.value,
                                   stage_of.begin() + pool.first.value + pool.size);
    shuffle(dice, dealt);
    std::vector<std::size_t> next(pipeline.plan.stages.size() + 1, 0);
    for (std::size_t d = first; d < end; ++d) {
      const std::size_t stage = std::min(stage_of[d], pipeline.plan.stages.size());
      std::size_t& place = next[stage];
      while (std::min(dealt[place], pipeline.plan.stages.size()) != stage) ++place;
      images[d] = {static_cast<std::int32_t>(first + place++)};
    }
  }
  return images;
}

/// The same plan on the images of its devices.
Pipeline on_images(const Pipeline& pipeline, const std::vector<DeviceIndex>& images) {
  Plan plan = pipeline.plan;
  for (StagePlan& stage : plan.stages) {
    for (DeviceIndex& device : stage.devices) device = images[device.position()];
  }
  return Pipeline(pipeline.profile, pipeline.topology.description(), std::move(plan));
}

void check_same_times(const Pipeline& pipeline, const Pipeline& other) {
  for (const Contention contention : {Contention::Shared, Contention::Off}) {
    for (const Transfers transfers :
         {Transfers::Overlapped, Transfers::Blocking, Transfers::Serial}) {
      const SimulationMode mode{
          .contention = contention, .replicas = Replicas::Together, .transfers = transfers};
      if (transfers != Transfers::Overlapped && !mode_faults(pipeline.plan, mode).empty()) continue;
      const simulate::SimulationOptions options{
          .contention = contention, .transfers = transfers, .record = false};
      CAPTURE(contention == Contention::Shared, to_string(transfers));
      REQUIRE(pipeline.run(options).iteration == other.run(options).iteration);
    }
    const simulate::SimulationOptions apart{.contention = contention, .record = false};
    REQUIRE(pipeline.run_apart(apart).iteration == other.run_apart(apart).iteration);
  }
}

/// Servers of a few devices that share a NIC or have one each, or several servers of one device.
ServerGroup random_alike(Dice& dice, const Ranges& ranges, const ServerGroup& like) {
  ServerGroup group = like;
  const auto devices = static_cast<std::int32_t>(dice.roll(1, 5));
  const bool is_one_server = dice.chance(70);
  group.count = is_one_server ? 1 : devices;
  group.devices = is_one_server ? devices : 1;
  group.links.port = random_link(dice, ranges);
  const auto nics = static_cast<std::size_t>(dice.chance(50) ? 1 : group.devices);
  group.nics.assign(nics, {.source = "", .link = random_link(dice, ranges), .devices = {}});
  return group;
}

/// Such servers, and stages of which some are in a tie.
Pipeline tied_pipeline(Dice& dice) {
  const Ranges ranges = random_ranges(dice);
  ModelProfile model = random_model(dice, ranges);
  while (model.ties.empty()) model = random_model(dice, ranges);
  TopologyDescription description = cluster({});
  const ServerGroup like = description.servers.front();
  description.servers.clear();
  std::int32_t devices = 0;
  for (const char* name : {"a", "b"}) {
    ServerGroup& group = description.servers.emplace_back(random_alike(dice, ranges, like));
    group.name = name;
    devices += group.count * group.devices;
  }
  description.overlap_slowdown = Factor{dice.roll(10, 20) * 100'000'000};
  PlanShape shape{.micro_batch_size = dice.roll(1, 4), .num_micro_batches = dice.roll(1, 4)};
  shape.stages = random_stages(dice, static_cast<std::int32_t>(model.layers.size()), devices, shape,
                               /*deal=*/false);
  shape.depths = random_depths(dice, shape.stages.size(), shape.num_micro_batches);
  return Pipeline(model, description, shape);
}

/// Checks pipelines that `make` draws against the same plans on interchangeable devices.
template <class Make>
void check_redealt(std::uint64_t seed, const Make& make) {
  Dice dice(seed);
  int moved = 0;
  for (int i = 0; i < scaled(1000); ++i) {
    const Pipeline pipeline = make(dice);
    const Pipeline other = on_images(pipeline, redealt(dice, pipeline));
    if (stages_of(other.plan) == stages_of(pipeline.plan)) continue;
    ++moved;
    INFO("instance " << i << ": " << text_of(pipeline) << "\nand " << text_of(other));
    check_same_times(pipeline, other);
  }
  CHECK(moved > scaled(1000) / 4);
}

TEST_CASE("plans with ties that differ only by interchangeable devices take the same time") {
  check_redealt(72, tied_pipeline);
}

TEST_CASE("plans that differ only by interchangeable devices take the same time") {
  check_redealt(71, [](Dice& dice) {
    return random_pipeline(dice, {.slowdown = true,
                                  .deal = dice.chance(30),
                                  .crowded = dice.chance(30),
                                  .measured = dice.chance(30),
                                  .mixed = dice.chance(30),
                                  .sharded = dice.chance(30)});
  });
}

}  // namespace
}  // namespace dapple
