// The bounds of schedule families on problems worked by hand.

#include "dapple/search/families/family_bound.h"

#include <catch2/catch.hpp>

#include "../../../support/plans.h"

namespace dapple::search {
namespace {

using namespace small;

constexpr Duration kMost{1'000'000};

struct Bounds {
  std::int64_t unsplit = 0;  // one stage per device
  std::int64_t split = 0;
  std::int64_t loops = 0;  // several, not split
  std::int64_t split_loops = 0;
};

Bounds bounds_of(const ModelProfile& profile, const TopologyDescription& description,
                 std::int64_t global_batch_size, std::int64_t micro_batch_size) {
  const Topology topology(description);
  const CostModel costs(profile, topology);
  Bounds bounds;
  for (const bool split : {false, true}) {
    FamilyBound bound(costs, {.global_batch_size = global_batch_size,
                              .micro_batch_size = micro_batch_size,
                              .split_backward = split});
    (split ? bounds.split : bounds.unsplit) = bound.of_pipelines(kMost).ns;
    (split ? bounds.split_loops : bounds.loops) = bound.of_loops(kMost).ns;
  }
  return bounds;
}

TEST_CASE("on one device every family takes the work and the step") {
  ModelProfile profile = model_of({{.forward = 2, .backward = 4, .parameters = 3}});
  profile.optimizer.step_ns_per_parameter_byte = kOne;
  const Bounds bounds = bounds_of(profile, cluster({.servers = 1, .devices = 1}), 5, 1);
  CHECK(bounds.unsplit == 5 * 6 + 3);
  CHECK(bounds.split == 5 * 6 + 3);
  CHECK(bounds.loops == 5 * 6 + 3);
  CHECK(bounds.split_loops == 5 * 6 + 3);
}

TEST_CASE("several stages on one device recompute other layers than one stage") {
  // Two layers of 6, of which every second one of a stage recomputes in 3: one stage takes 15 for
  // each of five micro-batches. Two stages of a layer each recompute nothing and take 12.
  const ModelProfile profile = with_every_nth(
      model_of({{.forward = 2, .backward = 4}, {.forward = 2, .backward = 4}}), 2, {3, 3});
  const Bounds bounds = bounds_of(profile, cluster({.servers = 1, .devices = 1}), 5, 1);
  CHECK(bounds.unsplit == 5 * 15);
  CHECK(bounds.split == 5 * 15);
  CHECK(bounds.loops == 5 * 12);
  CHECK(bounds.split_loops == 5 * 12);
}

TEST_CASE("a second stage starts behind the first, and unsplit backwards come back to it") {
  // Two layers, F = 2 and 3, B = 4 and 6 (I = W = half), a byte between them at one byte per ns,
  // five micro-batches of one sample. Two stages: the second has 5 * 9 = 45 to do, behind 2 + 1
  // and, unsplit, before 1 + 4: 53; split 48. One stage would be 5 * 15 = 75.
  const ModelProfile profile =
      model_of({{.forward = 2, .backward = 4, .output = 1, .parameters = 1},
                {.forward = 3, .backward = 6, .parameters = 1}});
  const Bounds bounds = bounds_of(profile, full_mesh(2, {bytes_per_ns(1), {}}), 5, 1);
  CHECK(bounds.unsplit == 53);
  CHECK(bounds.split == 48);
}

TEST_CASE("what tensor ranks send in shares takes the time of a share") {
  // The same, but that each of four ranks sends one of four bytes, which are gathered in no time.
  ModelProfile profile = model_of({{.forward = 2, .backward = 4, .output = 4, .parameters = 1},
                                   {.forward = 3, .backward = 6, .parameters = 1}});
  profile.parallelism.tensor = 4;
  profile.group.rings[static_cast<std::size_t>(CollectiveMembers::Tensor)] = {
      .members = 4, .bandwidth = bytes_per_ns(1000), .latency = {}, .members_in_server = 4};
  for (const Boundaries boundaries : {Boundaries::Whole, Boundaries::ScatterGather}) {
    profile.boundaries = boundaries;
    const std::int64_t crossing = boundaries == Boundaries::Whole ? 4 : 1;
    const Bounds bounds = bounds_of(profile, full_mesh(2, {bytes_per_ns(1), {}}), 5, 1);
    CHECK(bounds.unsplit == 2 + crossing + 5 * 9 + crossing + 4);
    CHECK(bounds.split == 2 + crossing + 5 * 9);
  }
}

TEST_CASE("replicas on several servers reduce through the servers' links") {
  // Four samples at once on two servers of one device: F + B of two samples each is 12. The
  // gradients of 100 bytes pass each server's link once each way, at one byte per ns: 100, behind
  // the start of the last backward at 4. One layer is one stage, so on one device it takes 24.
  const ModelProfile profile = model_of({{.forward = 2, .backward = 4, .parameters = 100}});
  const Bounds far = bounds_of(profile, cluster({.servers = 2, .devices = 1}), 4, 4);
  CHECK(far.unsplit == 24);
  // In one server it may be free, as far as the bound knows.
  const Bounds near = bounds_of(profile, cluster({.servers = 1, .devices = 2}), 4, 4);
  CHECK(near.unsplit == 12);
}

TEST_CASE("with sharded state gradients pass the servers' links once") {
  // As above with gradients of 10 bytes, which take 10 both ways around the ring, behind 4.
  // Sharded, a scatter takes 5, and the gather behind the step may be of smaller parameters: the
  // work of 12 takes longer.
  const ModelProfile profile = model_of({{.forward = 2, .backward = 4, .parameters = 10}});
  TopologyDescription description = cluster({.servers = 2, .devices = 1});
  CHECK(bounds_of(profile, description, 4, 4).unsplit == 14);
  description.shards_optimizer = true;
  CHECK(bounds_of(profile, description, 4, 4).unsplit == 12);
}

TEST_CASE("gradients may be reduced during a backward in one piece, also where it may be split") {
  // Two samples at once on two servers of one device: F = 2 and 2, B = 20 and 4, of which the first
  // layer, without parameters, has no weight gradient, I = 20, and the second I = 2. Gradients of
  // 20 bytes take 20. In one piece the last backward begins at 4, and they are reduced from 8 to
  // 28, when it ends: 28 in all. In two parts they wait for the weight gradient at 26. One device
  // takes 56, the first layer alone on one 44.
  const ModelProfile profile =
      model_of({{.forward = 2, .backward = 20}, {.forward = 2, .backward = 4, .parameters = 20}});
  const Bounds bounds = bounds_of(profile, cluster({.servers = 2, .devices = 1}), 2, 2);
  CHECK(bounds.unsplit == 28);
  CHECK(bounds.split == 28);
}

TEST_CASE("nothing is a family's bound above what it is asked up to") {
  const ModelProfile profile = model_of({{.forward = 2, .backward = 4, .parameters = 1}});
  const Topology topology(cluster({.servers = 1, .devices = 1}));
  const CostModel costs(profile, topology);
  FamilyBound bound(costs, {.global_batch_size = 10});
  CHECK(bound.of_pipelines(Duration{59}) == Duration{59});
  CHECK(bound.of_pipelines(Duration{60}) == Duration{60});
  CHECK(bound.of_pipelines(Duration{61}) == Duration{60});
  CHECK(bound.of_loops(Duration{61}) == Duration{60});
}

TEST_CASE("shapes have the stages that are asked for, first those that could be fastest") {
  // Four layers alike on two devices; five micro-batches of one sample, F = I = W = 2.
  const std::vector<LayerFigures> layers(4, {.forward = 2, .backward = 4, .parameters = 1});
  const ModelProfile profile = model_of(layers);
  const Topology topology(cluster({.servers = 1, .devices = 2}));
  const CostModel costs(profile, topology);
  FamilyBound bound(costs, {.global_batch_size = 5, .split_backward = true});
  // The second of two stages starts behind 2 * 2 and has 5 * 2 * 6 = 60 to do.
  const Duration least = bound.of_pipelines(kMost);
  CHECK(least.ns == 64);
  const std::vector<Candidate> shapes = bound.shapes(least, 8);
  REQUIRE(shapes.size() == 2);
  CHECK(shapes[0].stages.size() == 1);
  REQUIRE(shapes[1].stages.size() == 2);
  CHECK(shapes[1].stages[0].layers == LayerRange{0, 2});
  CHECK(shapes[1].bound == least);
  CHECK(shapes[1].stages[1].devices == std::vector{DeviceIndex{1}});
}

TEST_CASE("each of two layers may fit only in a form of its own") {
  // Weights and gradients of 100 bytes each do not fit in 150 bytes, those of 50 do. On a device
  // each, five micro-batches of the first layer take 30, as does the second behind 2.
  const auto layers = [](std::int64_t first, std::int64_t second) {
    return model_of({{.forward = 2, .backward = 4, .parameters = first},
                     {.forward = 2, .backward = 4, .parameters = second}});
  };
  ModelProfile profile = layers(50, 100);
  profile.stage_forms = {layers(100, 50)};
  TopologyDescription description = cluster({.servers = 1, .devices = 2});
  description.devices.front().memory = {150};
  const Bounds bounds = bounds_of(profile, description, 5, 1);
  CHECK(bounds.split == 32);
  CHECK(bounds.split_loops == 32);
  // A layer that fits in neither form is in no plan.
  description.devices.front().memory = {90};
  CHECK(bounds_of(profile, description, 5, 1).split_loops == kMost.ns);
}

TEST_CASE(
    "a layer that fits nowhere alone may fit behind others where every second one recomputes") {
  // The second of two layers stashes 100 bytes, and recomputing 10, of which a device has 50. On
  // one device both are a stage, in which the second recomputes: 5 * (6 + 6 + 3).
  ModelProfile profile = with_every_nth(model_of({{.forward = 2, .backward = 4, .stash = 10},
                                                  {.forward = 2, .backward = 4, .stash = 100}}),
                                        2, {3, 3});
  for (Layer& layer : profile.recomputing.front().layers) {
    layer.measurements.front().stash = {10};
  }
  TopologyDescription description = cluster({.servers = 1, .devices = 1});
  description.devices.front().memory = {50};
  const Bounds bounds = bounds_of(profile, description, 5, 1);
  CHECK(bounds.unsplit == 5 * 15);
  CHECK(bounds.loops <= 5 * 15);
}

}  // namespace
}  // namespace dapple::search
