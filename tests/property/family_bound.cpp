// The bounds of whole families of schedules: no plan of any family, however it came about, is
// faster.

#include <catch2/catch.hpp>

#include <variant>

#include "../support/families.h"
#include "../support/random_pipeline.h"
#include "dapple/planner/families/reschedule.h"
#include "dapple/search/exact/exact_search.h"
#include "dapple/search/families/family_bound.h"

namespace dapple {
namespace {

using namespace small;

/// The pipeline's topology, its devices with as much memory as the plan takes on one of them.
Topology with_tight_memory(const Pipeline& pipeline, const Prediction& prediction) {
  Bytes most{1};
  for (const DeviceFigures& device : prediction.devices) most = std::max(most, device.peak_memory);
  TopologyDescription description = pipeline.topology.description();
  for (DeviceKind& kind : description.devices) {
    kind.memory = most;
    kind.reserved = {};
  }
  return Topology(std::move(description));
}

Duration bound_of(const Pipeline& pipeline, const Topology& topology, ScheduleFamily family) {
  const CostModel costs(pipeline.profile, topology);
  search::FamilyBound bound(costs, {.global_batch_size = pipeline.plan.global_batch_size,
                                    .micro_batch_size = pipeline.plan.micro_batch_size,
                                    .split_backward = may_split_backward(family),
                                    .optimizer = pipeline.plan.gradients.optimizer});
  const Duration most{std::int64_t{1} << 40};
  return has_loops(family) ? bound.of_loops(most) : bound.of_pipelines(most);
}

TEST_CASE("no plan of a family, on any devices, is faster than the family's bound") {
  Dice dice(71);
  int made = 0;
  int met = 0;
  int met_in_one_piece = 0;
  int memory_decides = 0;
  for (int i = 0; i < scaled(4000); ++i) {
    const Pipeline pipeline =
        random_pipeline(dice, {.slowdown = true, .mixed = true, .sharded = true, .cut = true});
    const ScheduleFamily family = random_own_family(dice);
    const Contention contention = dice.chance(50) ? Contention::Shared : Contention::Off;
    INFO("instance " << i << ": " << text_of(pipeline));
    INFO(to_string(family) << ", contention " << to_string(contention));
    const auto result = planner::reschedule(pipeline.plan, pipeline.profile, pipeline.topology,
                                            {.family = family,
                                             .chunks_per_device = has_loops(family) ? 2 : 1,
                                             .contention = contention,
                                             .evaluations = 20});
    const auto* plan = std::get_if<planner::Rescheduled>(&result);
    if (plan == nullptr) continue;
    ++made;
    const Prediction& prediction = plan->evaluation.prediction;
    const Duration bound = bound_of(pipeline, pipeline.topology, family);
    const Duration at_tight_memory =
        bound_of(pipeline, with_tight_memory(pipeline, prediction), family);
    REQUIRE(bound <= prediction.iteration);
    REQUIRE(at_tight_memory <= prediction.iteration);
    if (bound == prediction.iteration) ++met;
    if (bound < at_tight_memory) ++memory_decides;
    if (has_loops(family)) continue;
    // A family that may split backwards has the orders of those that do not, as they are.
    const Duration if_split = bound_of(pipeline, pipeline.topology, ScheduleFamily::ZeroBubbleH2);
    REQUIRE(if_split <= prediction.iteration);
    if (!may_split_backward(family) && if_split == prediction.iteration) ++met_in_one_piece;
  }
  CHECK(made > scaled(2500));
  CHECK(met > scaled(50));
  CHECK(met_in_one_piece > scaled(20));
  CHECK(memory_decides > scaled(20));
}

/// One or two stages on servers of one device each, the last one on several, so that its reductions
/// pass their links and often take longer than a backward.
Pipeline far_replicas(Dice& dice) {
  const auto servers = static_cast<std::int32_t>(dice.roll(2, 4));
  std::vector<LayerFigures> layers(static_cast<std::size_t>(dice.roll(2, 5)));
  for (LayerFigures& layer : layers) {
    layer = {.forward = dice.roll(1, 10),
             .backward = dice.roll(1, 30),
             .output = dice.roll(0, 3),
             .parameters = dice.chance(50) ? 0 : dice.roll(1, 80)};
  }
  PlanShape shape{.micro_batch_size = servers,
                  .num_micro_batches = dice.roll(1, 3),
                  .bucket_size = {dice.roll(1, 100)}};
  if (dice.chance(30)) shape.optimizer = OptimizerTiming::PerBucket;
  const auto count = static_cast<std::int32_t>(layers.size());
  StageShape last{.layers = count};
  if (servers > 2 && dice.chance(50)) {
    const auto in_front = static_cast<std::int32_t>(dice.roll(1, count - 1));
    shape.stages.push_back({.layers = in_front, .devices = {0}});
    last.layers -= in_front;
  }
  for (auto device = static_cast<std::int32_t>(shape.stages.size()); device < servers; ++device) {
    last.devices.push_back(device);
  }
  shape.stages.push_back(std::move(last));
  shape.depths.assign(shape.stages.size(), 1);
  return {model_of(layers), cluster({.servers = servers, .devices = 1}), shape};
}

TEST_CASE("where reductions take long, no order of whole backwards is faster than any bound") {
  Dice dice(77);
  int met = 0;
  for (int i = 0; i < scaled(1500); ++i) {
    const Pipeline pipeline = far_replicas(dice);
    INFO("instance " << i << ": " << text_of(pipeline));
    const Duration iteration = pipeline.run(Contention::Shared).iteration;
    for (const ScheduleFamily family : {ScheduleFamily::ListScheduled, ScheduleFamily::ZeroBubbleH1,
                                        ScheduleFamily::ZeroBubbleV}) {
      INFO(to_string(family));
      const Duration bound = bound_of(pipeline, pipeline.topology, family);
      REQUIRE(bound <= iteration);
      if (bound == iteration) ++met;
    }
  }
  CHECK(met > scaled(30));
}

/// What the exact search knows of all plans with one stage per device and unsplit backwards.
struct Known {
  Duration bound;
  bool covers_all_placements = true;
};
Known search_all(const Pipeline& pipeline, Contention contention, Duration most, bool any_order) {
  search::ExactSearch search(pipeline.profile, pipeline.topology,
                             {.global_batch_size = pipeline.plan.global_batch_size,
                              .micro_batch_size = pipeline.plan.micro_batch_size,
                              .gradients = pipeline.plan.gradients,
                              .ignore_memory = true,
                              .any_order = any_order,
                              .links_are_shared = contention == Contention::Shared});
  search.prepare(most, {.should_stop = [] { return false; }});
  while (!search.is_exhausted() && search.states() < 20'000) {
    search.advance(most, {.candidates = 1'000'000, .states = 5'000});
  }
  return {search.bound_anywhere(), search.covers_all_placements()};
}

TEST_CASE("no order of one stage per device is faster than the exact search's bound of any order") {
  Dice dice(74);
  int beyond = 0;  // orders of their own that are faster than any depths of 1F1B
  for (int i = 0; i < scaled(300); ++i) {
    const Pipeline pipeline =
        random_pipeline(dice, {.slowdown = true, .mixed = true, .sharded = true, .cut = true});
    const Contention contention = dice.chance(50) ? Contention::Shared : Contention::Off;
    INFO("instance " << i << ": " << text_of(pipeline));
    INFO("contention " << to_string(contention));
    const auto time_of = [&](ScheduleFamily family) {
      const auto result =
          planner::reschedule(pipeline.plan, pipeline.profile, pipeline.topology,
                              {.family = family, .contention = contention, .evaluations = 100});
      return std::get<planner::Rescheduled>(result).evaluation.prediction.iteration;
    };
    const Duration listed = time_of(ScheduleFamily::ListScheduled);
    REQUIRE(search_all(pipeline, contention, listed + Duration{1}, true).bound <= listed);
    if (listed < time_of(ScheduleFamily::OneFOneB)) ++beyond;
  }
  // One in some hundred is.
  if (scaled(300) >= 300) CHECK(beyond > 0);
}

TEST_CASE("no plan is faster than the exact search's bound, wherever its stages are placed") {
  Dice dice(79);
  int many = 0;  // clusters of which not all placements are tried
  for (int i = 0; i < scaled(1000); ++i) {
    const Pipeline pipeline = random_pipeline(
        dice, {.slowdown = true, .crowded = true, .mixed = true, .sharded = true, .cut = true});
    const Contention contention = dice.chance(50) ? Contention::Shared : Contention::Off;
    INFO("instance " << i << ": " << text_of(pipeline));
    INFO("contention " << to_string(contention));
    const Duration iteration = pipeline.run(contention).iteration;
    const Known known = search_all(pipeline, contention, iteration + Duration{1}, false);
    REQUIRE(known.bound <= iteration);
    if (!known.covers_all_placements) ++many;
  }
  CHECK(many > scaled(10));
}

/// Layers alike, one device each for so many of them, transfers free, one sample at a time.
struct Uniform {
  std::int64_t forward;
  std::int64_t backward;
  int devices;
  int layers_of_each;
  std::int64_t micro_batches;
};

Pipeline uniform(const Uniform& figures) {
  const LayerFigures layer{
      .forward = figures.forward, .backward = figures.backward, .parameters = 1};
  const auto layers =
      static_cast<std::size_t>(figures.devices) * static_cast<std::size_t>(figures.layers_of_each);
  PlanShape shape{.micro_batch_size = 1, .num_micro_batches = figures.micro_batches};
  shape.depths.assign(static_cast<std::size_t>(figures.devices), 1);
  for (int d = 0; d < figures.devices; ++d) {
    shape.stages.push_back({.layers = figures.layers_of_each, .devices = {d}});
  }
  return {model_of(std::vector<LayerFigures>(layers, layer)),
          cluster({.servers = 1, .devices = figures.devices}), shape};
}

Duration time_under(const Pipeline& pipeline, ScheduleFamily family, std::int64_t chunks) {
  const auto result = planner::reschedule(
      pipeline.plan, pipeline.profile, pipeline.topology,
      {.family = family, .chunks_per_device = chunks, .contention = Contention::Off});
  REQUIRE(std::holds_alternative<planner::Rescheduled>(result));
  return std::get<planner::Rescheduled>(result).evaluation.prediction.iteration;
}

TEST_CASE("on uniform stages without transfers the bounds are the families' closed forms") {
  Dice dice(72);
  for (int i = 0; i < scaled(60); ++i) {
    const int devices = static_cast<int>(dice.roll(2, 5));
    const std::int64_t turns = dice.roll(2, 5);
    const std::int64_t forward = dice.roll(1, 50);
    // Halves: I = W = F; M is a multiple of S, as interleaving has it.
    const Uniform one{.forward = forward,
                      .backward = 2 * forward,
                      .devices = devices,
                      .layers_of_each = 1,
                      .micro_batches = turns * devices};
    INFO("S = " << devices << ", M = " << one.micro_batches << ", F = " << forward);
    const Pipeline pipeline = uniform(one);
    // 1F1B: (M + S - 1)(F + B).
    const Duration full{(one.micro_batches + devices - 1) * 3 * forward};
    CHECK(bound_of(pipeline, pipeline.topology, ScheduleFamily::ListScheduled) == full);
    CHECK(time_under(pipeline, ScheduleFamily::ListScheduled, 1) == full);
    // H1: M(F + I + W) + (S - 1)(F + I - W), where I = W.
    const Duration h1{(one.micro_batches * 3 + devices - 1) * forward};
    CHECK(bound_of(pipeline, pipeline.topology, ScheduleFamily::ZeroBubbleH1) == h1);
    CHECK(time_under(pipeline, ScheduleFamily::ZeroBubbleH1, 1) == h1);
    // Interleaved: a device has v layers, so M v(f + b) + (S - 1)(f + b).
    Uniform some = one;
    some.layers_of_each = static_cast<int>(dice.roll(2, 4));
    const Duration looped{(one.micro_batches * some.layers_of_each + devices - 1) * 3 * forward};
    const Pipeline loops = uniform(some);
    CHECK(bound_of(loops, loops.topology, ScheduleFamily::Interleaved) == looped);
    CHECK(time_under(loops, ScheduleFamily::Interleaved, some.layers_of_each) == looped);
  }
}

TEST_CASE("where I > W, the bound of H1 stays (S-1)(I-W) below its closed form") {
  const Pipeline pipeline = uniform(
      {.forward = 4, .backward = 7, .devices = 4, .layers_of_each = 1, .micro_batches = 12});
  // A backward of 7 is halved: I = 4, W = 3. H1 takes M(F+I+W) + (S-1)(F+I-W) = 12 * 11 + 3 * 5 =
  // 147; the bound has M(F+I+W) + (S-1)F = 12 * 11 + 3 * 4 = 144.
  CHECK(time_under(pipeline, ScheduleFamily::ZeroBubbleH1, 1).ns == 147);
  CHECK(bound_of(pipeline, pipeline.topology, ScheduleFamily::ZeroBubbleH1).ns == 144);
}

TEST_CASE("the bound of H1 is of plans that keep a backward in one piece, too") {
  // Two samples at once on two servers. The reduction of 20 begins with the end of the second
  // layer's backward at 8 and ends with that of the first at 28. Were the backward split, the only
  // weight gradient would begin at 26.
  const Pipeline pipeline{
      model_of({{.forward = 2, .backward = 20}, {.forward = 2, .backward = 4, .parameters = 20}}),
      cluster({.servers = 2, .devices = 1}),
      PlanShape{
          .micro_batch_size = 2, .depths = {1}, .stages = {{.layers = 2, .devices = {0, 1}}}}};
  CHECK(time_under(pipeline, ScheduleFamily::ZeroBubbleH1, 1).ns == 28);
  CHECK(bound_of(pipeline, pipeline.topology, ScheduleFamily::ZeroBubbleH1).ns == 28);
}

}  // namespace
}  // namespace dapple
