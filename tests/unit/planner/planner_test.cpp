
#include <catch2/catch.hpp>
#include <numeric>

#include "../../support/impatient.h"
#include "../../support/pipeline.h"
#include "even_model.h"

#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"

using namespace dapple;

namespace {

using small::batch;
using small::bytes_per_ns;
using small::even_model;

PlanDocument plan_for(const ModelProfile& profile, const Topology& topology,
                      const planner::PlannerOptions& options) {
  auto made = planner::make_plan({profile, topology, options});
  REQUIRE(std::holds_alternative<planner::MadePlan>(made));
  return std::get<planner::MadePlan>(std::move(made)).document;
}

planner::Infeasible refusal(const ModelProfile& profile, const Topology& topology,
                            const planner::PlannerOptions& options) {
  auto made = planner::make_plan({profile, topology, options});
  REQUIRE(std::holds_alternative<planner::Infeasible>(made));
  return std::get<planner::Infeasible>(std::move(made));
}

TopologyDescription with_memory(TopologyDescription description, std::int64_t bytes) {
  description.devices.front().memory = {bytes};
  return description;
}

}  // namespace

TEST_CASE("one device gets one stage and its own time") {
  const Topology topology(small::cluster({.servers = 1, .devices = 1}));
  const PlanDocument document = plan_for(even_model(0, 1, 1), topology, batch(8));
  CHECK(document.plan.stages.size() == 1);
  CHECK(document.prediction.iteration == Duration{8 * 4 * 30});
  CHECK(*document.prediction.speedup_over_one_device == Approx(1.0));
}

TEST_CASE("without parameters to reduce, plain data parallelism is as fast as can be") {
  const Topology topology(small::cluster({.servers = 1, .devices = 4}));
  const PlanDocument document = plan_for(even_model(0, 1000, 1), topology, batch(8));
  CHECK(document.plan.stages.size() == 1);
  CHECK(document.prediction.iteration == Duration{8 * 4 * 30 / 4});
}

TEST_CASE("heavy parameters on a slow network make a pipeline") {
  const Topology topology(small::cluster({.servers = 2, .devices = 1}));
  // Reducing 4 * 10^6 bytes at 1 byte/ns takes 4 * 10^6 ns, the whole computation 64 * 120.
  const PlanDocument document = plan_for(even_model(1'000'000, 1, 1), topology, batch(64));
  REQUIRE(document.plan.stages.size() == 2);
  CHECK(document.plan.stages[0].layers == LayerRange{0, 2});
  // M = 64 micro-batches of one sample, (M + 1) * 60 at least; transfers of 1 ns add a little.
  CHECK(document.prediction.iteration >= Duration{65 * 60});
  CHECK(document.prediction.iteration <= Duration{65 * 60 + 4});
}

TEST_CASE("a device that would slow the pipeline down stays idle, and a warning says so") {
  // One layer and one sample: nothing to split, nothing to share.
  const ModelProfile profile =
      small::model_of({{.forward = 10, .backward = 10, .parameters = 100}});
  const Topology topology(small::cluster({.servers = 2, .devices = 1}));
  const PlanDocument document = plan_for(profile, topology, batch(1));
  CHECK(document.plan.stages.front().devices.size() == 1);
  const bool warned = std::any_of(
      document.warnings.begin(), document.warnings.end(), [](const std::string& warning) {
        return warning.find("1 of 2 devices stay idle") != std::string::npos;
      });
  CHECK(warned);
}

TEST_CASE("too little memory for any stash makes a stage recompute") {
  // A stage of all layers stashes 4 * 100 per sample; with recomputation 100 (its first layer's)
  // and once 400. Depth 1 either way, so 450 bytes fit neither, 520 fit only the recomputing
  // plan... of depth 1: 100 + 400 = 500.
  const Topology tight(with_memory(small::cluster({.servers = 1, .devices = 1}), 399));
  const planner::Infeasible nothing = refusal(even_model(0, 1, 100), tight, batch(4));
  CHECK(nothing.missing() == Bytes{1});
  CHECK(nothing.shortage->needed == Bytes{400});
  CHECK(nothing.shortage->device == DeviceIndex{0});
  const Topology enough(with_memory(small::cluster({.servers = 1, .devices = 1}), 400));
  CHECK(plan_for(even_model(0, 1, 100), enough, batch(4)).plan.micro_batch_size == 1);
}

TEST_CASE("recomputation buys depth where memory holds back a long pipeline") {
  // Two servers far apart: a transfer of 1 byte takes 1000 ns, a stage's work 60 ns per
  // micro-batch.
  small::ClusterFigures figures{.servers = 2, .devices = 1};
  figures.nics = {Link{bytes_per_ns(1), {500}}};
  TopologyDescription description = small::cluster(figures);
  // Parameters of 10^5 per layer rule out data parallelism by time, but weigh 2 * 10^5 (weights and
  // gradients) per layer: 4 * 10^5 per stage. 2,000 bytes are left for stashes of 2 * 500.
  description.devices.front().memory = {400'000 + 2'100};
  const ModelProfile profile = even_model(100'000, 1, 500);
  const PlanDocument document = plan_for(profile, Topology(description), batch(32));
  REQUIRE(document.plan.stages.size() == 2);
  CHECK(std::all_of(
      document.prediction.devices.begin(), document.prediction.devices.end(),
      [](const DeviceFigures& device) { return device.peak_memory <= device.memory_limit; }));
  // Without recomputation at most two of stage 0's micro-batches fit (1000 each).
  CHECK((document.plan.stages[0].recompute || document.plan.warmup_depths[0] <= 2));
}

TEST_CASE("an impossible request names a remedy that works") {
  const ModelProfile profile = even_model(1000, 1, 1);
  // Each layer weighs 2,000 bytes; four layers on one device 8,000 and the stash.
  const planner::Infeasible one_device = refusal(
      profile, Topology(with_memory(small::cluster({.servers = 1, .devices = 1}), 2500)), batch(4));
  CHECK(one_device.remedy.kind == planner::RemedyKind::MoreDevices);
  CHECK(one_device.remedy.value == 4);
  const planner::Infeasible hopeless = refusal(
      profile, Topology(with_memory(small::cluster({.servers = 4, .devices = 1}), 1500)), batch(4));
  CHECK(hopeless.remedy.kind == planner::RemedyKind::OnlyMoreMemory);
  CHECK(hopeless.remedy.memory == hopeless.missing());
  planner::PlannerOptions large = batch(64);
  large.micro_batch_size = 64;
  const planner::Infeasible pinned =
      refusal(even_model(0, 1, 100),
              Topology(with_memory(small::cluster({.servers = 1, .devices = 1}), 450)), large);
  CHECK(pinned.remedy.kind == planner::RemedyKind::SmallerMicroBatch);
  CHECK(pinned.remedy.value == 1);
  planner::PlannerOptions gpipe = batch(64);
  gpipe.family = ScheduleFamily::GPipe;
  gpipe.micro_batch_size = 1;
  const planner::Infeasible held =
      refusal(even_model(0, 1, 100),
              Topology(with_memory(small::cluster({.servers = 1, .devices = 1}), 450)), gpipe);
  CHECK(held.remedy.kind == planner::RemedyKind::OneFOneB);
}

TEST_CASE("where pins leave no room, the closest plan is one that is as pinned") {
  const ModelProfile profile = even_model(1000, 1, 1);
  // A layer's weights and gradients are 2,000 bytes: one layer fits beside its buffers, not two.
  const Topology topology(with_memory(small::cluster({.servers = 4, .devices = 1}), 3000));
  planner::PlannerOptions options = batch(4);
  options.planner = PlannerKind::Dapple;
  CHECK(plan_for(profile, topology, options).plan.stages.size() == 4);
  options.pins.stages = 3;
  options.pins.recompute = false;
  const planner::Infeasible pinned = refusal(profile, topology, options);
  CHECK(pinned.pins == options.pins);
  CHECK_FALSE(pinned.conflict);
  CHECK(pinned.closest.stages.size() == 3);
  CHECK(pinned.closest.micro_batch_size == 1);
  // 4,000 of weights and gradients, one micro-batch of two layers, one boundary of four tensors if
  // the two layers are the first or the last ones.
  CHECK(pinned.missing() == Bytes{4000 + 2 + 4 - 3000});
  CHECK(pinned.remedy.kind == planner::RemedyKind::FewerPins);
  CHECK(to_texts(pinned.remedy.pins, profile) == std::vector<std::string>{"stages=3"});
}

TEST_CASE("a layer that is joined makes a stage too large, and leaving that out is the remedy") {
  const ModelProfile profile = even_model(1000, 1, 1);
  const Topology topology(with_memory(small::cluster({.servers = 4, .devices = 1}), 3000));
  planner::PlannerOptions options = batch(4);
  options.planner = PlannerKind::Dapple;
  options.pins.cuts = {1};
  options.pins.joints = {2};
  const planner::Infeasible joined = refusal(profile, topology, options);
  CHECK(joined.pins == options.pins);
  CHECK(joined.remedy.kind == planner::RemedyKind::FewerPins);
  CHECK(to_texts(joined.remedy.pins, profile) == std::vector<std::string>{"join=layer2"});
}

TEST_CASE("pins that contradict the devices say how many they need") {
  const Topology topology(small::cluster({.servers = 1, .devices = 4}));
  planner::PlannerOptions options = batch(4);
  options.planner = PlannerKind::Dapple;
  options.pins.cuts = {1, 2};
  options.pins.replicas = 2;
  const planner::Infeasible torn = refusal(even_model(0, 1, 1), topology, options);
  const auto& too_few = std::get<planner::TooFewDevices>(*torn.conflict);
  CHECK(too_few.stages == 3);
  CHECK(too_few.replicas == 2);
  CHECK(too_few.devices == 4);
  CHECK(torn.remedy.pins.replicas == 2);
  CHECK(torn.remedy.pins.cuts.empty());
  options.pins = {};
  options.pins.replicas = 3;
  options.micro_batch_size = 2;
  const planner::Infeasible few_samples = refusal(even_model(0, 1, 1), topology, options);
  const auto& samples = std::get<planner::TooFewSamples>(*few_samples.conflict);
  CHECK(samples.replicas == 3);
  CHECK(samples.largest_micro_batch == 2);
}

TEST_CASE("with unlimited memory, pins that nothing fits are planned all the same") {
  const Topology topology(with_memory(small::cluster({.servers = 4, .devices = 1}), 100));
  planner::PlannerOptions options = batch(4);
  options.planner = PlannerKind::Dapple;
  options.ignore_memory = true;
  options.pins.stages = 2;
  CHECK(plan_for(even_model(1000, 1, 1), topology, options).plan.stages.size() == 2);
}

TEST_CASE("a search that is told to stop ends with the best plan so far, an even split at least") {
  const ModelProfile profile = even_model(1000, 10, 1);
  const Topology topology(small::cluster({.servers = 2, .devices = 2}));
  planner::PlannerOptions options = batch(16);
  options.planner = PlannerKind::Dapple;
  for (int patience = 0; patience < 40; ++patience) {
    small::Impatient progress(patience);
    const auto made = planner::make_plan({profile, topology, options, &progress});
    REQUIRE(std::holds_alternative<planner::MadePlan>(made));
    CHECK(std::get<planner::MadePlan>(made).document.prediction.iteration <= progress.best());
  }
}

TEST_CASE("a micro-batch size that does not divide the global batch is refused") {
  planner::PlannerOptions options = batch(10);
  options.micro_batch_size = 3;
  const Topology topology(small::cluster({.servers = 1, .devices = 1}));
  CHECK_THROWS_WITH(
      planner::make_plan({even_model(0, 1, 1), topology, options}),
      "/request/micro_batch_size: expected a divisor of the global batch of 10, got 3");
}

TEST_CASE("the GPipe family holds every micro-batch on every stage") {
  const Topology topology(small::cluster({.servers = 2, .devices = 1}));
  planner::PlannerOptions options = batch(16);
  options.family = ScheduleFamily::GPipe;
  const PlanDocument document = plan_for(even_model(100'000, 1, 1), topology, options);
  REQUIRE(document.plan.stages.size() == 2);
  for (const std::int64_t depth : document.plan.warmup_depths) {
    CHECK(depth == document.plan.num_micro_batches);
  }
}

TEST_CASE("check_plan names each fault of a plan") {
  const ModelProfile profile = even_model(1000, 1, 1);
  const Topology topology(with_memory(small::cluster({.servers = 2, .devices = 1}), 5000));
  Plan plan = small::plan_of(
      profile, {.micro_batch_size = 1,
                .num_micro_batches = 4,
                .depths = {2, 1},
                .stages = {{.layers = 2, .devices = {0}}, {.layers = 2, .devices = {1}}}});
  CHECK(planner::check_plan(plan, profile, topology).empty());
  plan.stages[0].layers.end = 3;
  plan.stages[1].layers.begin = 3;
  const std::vector<Violation> faults = planner::check_plan(plan, profile, topology);
  REQUIRE(faults.size() == 1);
  // 3 * 2000 of weights and gradients, two micro-batches of 3 bytes, buffers of 4 + 1 tensors.
  CHECK(faults.front().place == "/stages/0");
  CHECK(faults.front().message ==
        "memory exceeded: device node0:0 needs 6011 bytes, has 5000: 1011 are missing");
  plan.warmup_depths = {1, 2};
  CHECK(planner::check_plan(plan, profile, topology).front().place == "/schedule/warmup_depths/1");
}

TEST_CASE("exposed time is what the iteration would lose without that work") {
  const ModelProfile profile = even_model(0, 100, 1);
  small::Pipeline pipeline(
      profile, small::cluster({.servers = 2, .devices = 1}),
      {.micro_batch_size = 1,
       .num_micro_batches = 1,
       .depths = {1, 1},
       .stages = {{.layers = 2, .devices = {0}}, {.layers = 2, .devices = {1}}}});
  Plan plan = pipeline.plan;
  const planner::Evaluation evaluation =
      planner::evaluate(plan, profile, pipeline.topology, {Contention::Shared});
  // 20 + 100 + 20 + 40 + 100 + 40: both transfers are exposed, nothing is reduced.
  CHECK(evaluation.prediction.iteration == Duration{320});
  CHECK(evaluation.prediction.exposed_transfer == Duration{200});
  CHECK(evaluation.prediction.exposed_all_reduce == Duration{0});
  CHECK(evaluation.prediction.bubble_fraction == Approx(1.0 - 120.0 / 640.0));
}
