#include "dapple/planner/baselines/baselines.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>

#include "../../../support/impatient.h"
#include "../../../support/pipeline.h"
#include "../../../support/random_problem.h"
#include "../even_model.h"
#include "dapple/plan/validate.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/request/planner_options.h"

using namespace dapple;

namespace {

using small::batch;
using small::even_model;

Topology pair_of_devices(std::int64_t memory = kMaxCount) {
  TopologyDescription description = small::cluster({.servers = 2, .devices = 1});
  description.devices.front().memory = {memory};
  return Topology(description);
}

std::optional<planner::BaselinePlan> find(const std::vector<planner::BaselinePlan>& baselines,
                                          const std::string& name) {
  const auto found = std::find_if(
      baselines.begin(), baselines.end(),
      [&](const planner::BaselinePlan& baseline) { return baseline.figures.name == name; });
  return found == baselines.end() ? std::nullopt : std::optional(*found);
}

planner::BaselinePlan baseline(const std::string& name, const ModelProfile& profile,
                               const Topology& topology, const planner::PlannerOptions& options) {
  auto found = find(planner::make_baselines({profile, topology, options}), name);
  INFO(name);
  REQUIRE(found);
  return std::move(*found);
}

std::vector<std::string> names(const std::vector<planner::BaselinePlan>& baselines) {
  std::vector<std::string> result;
  for (const planner::BaselinePlan& baseline : baselines) result.push_back(baseline.figures.name);
  return result;
}

}  // namespace

TEST_CASE("without communication each baseline takes what its shape says") {
  const Topology topology = pair_of_devices();
  const ModelProfile profile = even_model(0, 0, 1);
  const auto figures = [&](const std::string& name) {
    return baseline(name, profile, topology, batch(4)).figures;
  };
  // Four samples of 120 over two devices; of equal times, the one with the fewest micro-batches.
  CHECK(figures("data-parallel").iteration == Duration{240});
  CHECK(figures("data-parallel").shape == "2, 1 of 4");
  CHECK(figures("data-parallel").parts == TimeParts{.compute = {240},
                                                    .recomputation = {},
                                                    .imbalance = {},
                                                    .bubble = {},
                                                    .transfers = {},
                                                    .all_reduce = {},
                                                    .optimizer_step = {}});
  // Two stages of 20 and 40 per sample: (M + 1) * 60 * B, the least at B = 1 and M = 4.
  for (const char* name : {"gpipe-even", "1f1b-even", "straight"}) {
    CHECK(figures(name).iteration == Duration{300});
    CHECK(figures(name).shape == "2 straight, 4 of 1");
    CHECK(figures(name).parts.bubble == Duration{60});
    CHECK(figures(name).parts.total() == Duration{300});
  }
  CHECK(baseline("gpipe-even", profile, topology, batch(4)).plan.family == ScheduleFamily::GPipe);
  CHECK(figures("pipedream").shape == "2, 1 of 4");
}

TEST_CASE("data parallelism pays for its gradients, and is shown where it has no room") {
  // Weights and gradients of four layers take 8 * 1000 bytes, the one bucket 4 * 1000, and the
  // stash of a micro-batch of 2 on 2 replicas 4: 12,004 of 5,000 bytes. Recomputation would need
  // one more, for the first layer's stash beside that of the whole stage.
  const planner::BaselinePlan infeasible =
      baseline("data-parallel", even_model(1000, 0, 1), pair_of_devices(5000), batch(4));
  CHECK_FALSE(infeasible.figures.feasible);
  CHECK(infeasible.figures.missing == Bytes{7004});
  CHECK(infeasible.figures.shape == "2, 2 of 2");
  // Two micro-batches of 120, then 4000 bytes around a ring of two at 1 byte/ns.
  CHECK(infeasible.figures.iteration == Duration{2 * 120 + 4000});
  CHECK(infeasible.figures.parts.all_reduce == Duration{4000});
  planner::PlannerOptions unlimited = batch(4);
  unlimited.ignore_memory = true;
  const planner::BaselinePlan ignored =
      baseline("data-parallel", even_model(1000, 0, 1), pair_of_devices(5000), unlimited);
  CHECK(ignored.figures.feasible);
  CHECK(ignored.figures.shape == "2, 1 of 4");
}

TEST_CASE("GPipe recomputes where it would not fit without") {
  // A stage's weights and gradients take 4000 bytes, the stashes of four samples in flight 4 * 2;
  // with recomputation the first stage keeps 4 * 1 and once 2.
  const ModelProfile profile = even_model(1000, 0, 1);
  const planner::BaselinePlan roomy =
      baseline("gpipe-even", profile, pair_of_devices(4008), batch(4));
  CHECK(roomy.figures.shape == "2 straight, 4 of 1");
  CHECK(roomy.figures.iteration == Duration{5 * 60});
  const planner::BaselinePlan tight =
      baseline("gpipe-even", profile, pair_of_devices(4006), batch(4));
  CHECK(tight.figures.shape == "2 straight, 4 of 1, recomputing");
  CHECK(tight.figures.iteration == Duration{5 * 80});
  CHECK(tight.figures.parts.recomputation == Duration{80});
  const planner::BaselinePlan none =
      baseline("gpipe-even", profile, pair_of_devices(4005), batch(4));
  CHECK(none.figures.missing == Bytes{1});
  // 1F1B needs no more than two micro-batches of one sample in flight: 4000 + 2 * 2.
  const planner::BaselinePlan shallow =
      baseline("1f1b-even", profile, pair_of_devices(4004), batch(4));
  CHECK(shallow.figures.feasible);
  CHECK_FALSE(shallow.figures.depth_limited);
  CHECK(shallow.plan.warmup_depths == std::vector<std::int64_t>{2, 1});
}

TEST_CASE("a depth that memory holds down is named") {
  // One sample in flight: 4000 + 2. A second one would need 2 more, recomputation 1 more.
  const planner::BaselinePlan held =
      baseline("1f1b-even", even_model(1000, 0, 1), pair_of_devices(4002), batch(4));
  CHECK(held.plan.warmup_depths == std::vector<std::int64_t>{1, 1});
  CHECK(held.figures.depth_limited);
  // One micro-batch after the other passes both stages.
  CHECK(held.figures.iteration == Duration{4 * 120});
}

TEST_CASE("the straight pipeline makes its slowest stage as fast as it can be") {
  // Layers of 10, 80, 90 and 90 on three devices: 90 each is the least, with the first two
  // together.
  const ModelProfile profile = small::model_of({{.forward = 5, .backward = 5},
                                                {.forward = 30, .backward = 50},
                                                {.forward = 30, .backward = 60},
                                                {.forward = 20, .backward = 70}});
  const Topology topology(small::cluster({.servers = 1, .devices = 3}));
  const planner::BaselinePlan straight = baseline("straight", profile, topology, batch(8));
  REQUIRE(straight.plan.stages.size() == 3);
  CHECK(straight.plan.stages[0].layers == LayerRange{0, 2});
  CHECK(straight.plan.stages[1].layers == LayerRange{2, 3});
  CHECK(straight.plan.stages[2].layers == LayerRange{3, 4});
}

TEST_CASE("PipeDream's partition runs synchronously") {
  // 10^6 bytes per layer take longer to reduce than anything else; two stages of one device.
  const planner::BaselinePlan split =
      baseline("pipedream", even_model(1'000'000, 1, 1), pair_of_devices(), batch(4));
  CHECK(split.figures.shape == "2 straight, 4 of 1");
  // 20 + 1 to the second stage, its four micro-batches of 60, 1 + 40 back.
  CHECK(split.figures.iteration == Duration{20 + 1 + 240 + 1 + 40});
  CHECK(split.figures.parts.transfers == Duration{2});
}

TEST_CASE("a baseline that does not exist is left out, and the others keep their order") {
  const ModelProfile profile = even_model(0, 0, 1);
  CHECK(names(planner::make_baselines({profile, pair_of_devices(), batch(4)})) ==
        std::vector<std::string>{"data-parallel", "gpipe-even", "1f1b-even", "straight",
                                 "pipedream"});
  const Topology one(small::cluster({.servers = 1, .devices = 1}));
  CHECK(names(planner::make_baselines({profile, one, batch(4)})) ==
        std::vector<std::string>{"data-parallel", "pipedream"});
  // Three devices, two layers, batches of two: no number of stages divides the devices, and
  // PipeDream shares the layers among all three, more than there are samples.
  const ModelProfile two = small::model_of({{.forward = 10}, {.forward = 10}});
  const Topology three(small::cluster({.servers = 1, .devices = 3}));
  const std::vector<planner::BaselinePlan> few = planner::make_baselines({two, three, batch(2)});
  CHECK(names(few) == std::vector<std::string>{"data-parallel", "straight"});
  CHECK(few.front().figures.shape == "2, 1 of 2");
}

TEST_CASE("who says stop gets the baselines that have a plan by then") {
  const ModelProfile profile = even_model(10, 3, 1);
  planner::PlannerOptions options = batch(8);
  options.threads = 1;
  const std::vector<planner::BaselinePlan> all =
      planner::make_baselines({profile, pair_of_devices(), options});
  std::size_t most = 0;
  for (int patience = 0; patience < 400; ++patience) {
    small::Impatient progress(patience);
    const std::vector<planner::BaselinePlan> some =
        planner::make_baselines({profile, pair_of_devices(), options, &progress});
    INFO("patience " << patience);
    CHECK((patience > 0 || some.empty()));
    auto next = all.begin();
    for (const planner::BaselinePlan& baseline : some) {
      next = std::find_if(next, all.end(), [&](const planner::BaselinePlan& other) {
        return other.figures.name == baseline.figures.name;
      });
      REQUIRE(next != all.end());
      CHECK(baseline.figures.iteration >= next->figures.iteration);
      ++next;
    }
    most = std::max(most, some.size());
  }
  CHECK(most == all.size());
}

TEST_CASE("the micro-batch size that was asked for holds for all baselines") {
  planner::PlannerOptions options = batch(8);
  options.micro_batch_size = 2;
  for (const planner::BaselinePlan& each :
       planner::make_baselines({even_model(10, 3, 1), pair_of_devices(), options})) {
    CHECK(each.plan.micro_batch_size == 2);
  }
}

TEST_CASE("a baseline's figures are those of its plan, whatever the threads and the contention") {
  small::Dice dice(20261121);
  for (int i = 0; i < small::scaled(60); ++i) {
    const small::Problem problem = small::random_problem(dice, 6, 4);
    const Topology topology(problem.topology);
    planner::PlannerOptions options = batch(problem.global_batch);
    options.contention = dice.chance(50) ? Contention::Shared : Contention::Off;
    options.threads = 1;
    const std::vector<planner::BaselinePlan> baselines =
        planner::make_baselines({problem.profile, topology, options});
    options.threads = 4;
    const std::vector<planner::BaselinePlan> again =
        planner::make_baselines({problem.profile, topology, options});
    REQUIRE(names(again) == names(baselines));
    for (std::size_t b = 0; b < baselines.size(); ++b) {
      const Baseline& figures = baselines[b].figures;
      INFO("instance " << i << " " << figures.name << " " << figures.shape);
      CHECK(again[b].figures.iteration == figures.iteration);
      CHECK(again[b].figures.shape == figures.shape);
      CHECK(again[b].plan.warmup_depths == baselines[b].plan.warmup_depths);
      Plan plan = baselines[b].plan;
      const auto layers = static_cast<std::int32_t>(problem.profile.layers.size());
      REQUIRE(validate(plan, layers, topology).empty());
      const planner::Evaluation evaluation =
          planner::evaluate(plan, problem.profile, topology, options.mode());
      CHECK(evaluation.prediction.iteration == figures.iteration);
      CHECK(evaluation.prediction.parts == figures.parts);
      CHECK(evaluation.shortages.empty() == figures.feasible);
      if (!figures.feasible) CHECK(evaluation.shortages.front().missing() == figures.missing);
    }
  }
}
