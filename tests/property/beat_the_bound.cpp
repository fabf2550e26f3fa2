// Problems too large for an oracle: plans changed at random, step by step and downhill, from the
// planner's own and from its baselines, never get below the bound that the planner has proven.

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "../support/dice.h"
#include "../support/files.h"
#include "../support/measured_reductions.h"
#include "../support/random_problem.h"
#include "dapple/cost/cost_model.h"
#include "dapple/io/documents/documents.h"
#include "dapple/plan/validate.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/made_plan.h"
#include "dapple/simulate/simulate.h"

using namespace dapple;

namespace {

using small::Dice;

/// Changes one thing about a plan; what comes out may be unsound.
class Mutation {
 public:
  Mutation(Dice& dice, Plan plan, const Topology& topology)
      : dice_(dice), plan_(std::move(plan)), topology_(topology) {}

  Plan run() {
    switch (dice_.roll(0, 6)) {
      case 0:
        move_cut();
        break;
      case 1:
        split_or_merge();
        break;
      case 2:
        move_device();
        break;
      case 3:
        pick_stage().recompute ^= true;
        break;
      case 4:
        resize_micro_batches();
        break;
      default:
        change_depths();
        break;
    }
    for (StagePlan& stage : plan_.stages) {
      std::sort(stage.devices.begin(), stage.devices.end());
      stage.gradient_buckets.clear();
    }
    plan_.warmup_depths.resize(plan_.stages.size(), 1);
    return plan_;
  }

 private:
  std::size_t pick(std::size_t count) {
    return static_cast<std::size_t>(dice_.roll(0, static_cast<std::int64_t>(count) - 1));
  }
  StagePlan& pick_stage() { return plan_.stages[pick(plan_.stages.size())]; }

  void move_cut() {
    const std::size_t behind = pick(plan_.stages.size());
    if (behind == 0) return;
    const auto step = static_cast<std::int32_t>(dice_.chance(50) ? -1 : 1);
    plan_.stages[behind - 1].layers.end += step;
    plan_.stages[behind].layers.begin += step;
  }

  void split_or_merge() {
    const std::size_t at = pick(plan_.stages.size());
    StagePlan& stage = plan_.stages[at];
    const auto place = plan_.stages.begin() + static_cast<std::ptrdiff_t>(at);
    if (dice_.chance(50) && stage.layers.size() > 1 && stage.devices.size() > 1) {
      StagePlan front = stage;
      const std::size_t kept = 1 + pick(stage.devices.size() - 1);
      front.layers.end = stage.layers.begin + 1 +
                         static_cast<std::int32_t>(dice_.roll(0, stage.layers.size() - 2));
      stage.layers.begin = front.layers.end;
      front.devices.resize(kept);
      stage.devices.erase(stage.devices.begin(),
                          stage.devices.begin() + static_cast<std::ptrdiff_t>(kept));
      plan_.stages.insert(place, front);
      plan_.warmup_depths.insert(plan_.warmup_depths.begin(), plan_.warmup_depths.front());
    } else if (at > 0) {
      StagePlan& before = plan_.stages[at - 1];
      before.layers.end = stage.layers.end;
      before.devices.insert(before.devices.end(), stage.devices.begin(), stage.devices.end());
      plan_.stages.erase(place);
      plan_.warmup_depths.erase(plan_.warmup_depths.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  /// To another stage, in exchange for one of its devices, or to or from none.
  void move_device() {
    const DeviceIndex device{
        static_cast<std::int32_t>(dice_.roll(0, topology_.device_count() - 1))};
    StagePlan& to = pick_stage();
    const bool exchange = dice_.chance(50) && !to.devices.empty();
    for (StagePlan& from : plan_.stages) {
      const auto here = std::find(from.devices.begin(), from.devices.end(), device);
      if (here == from.devices.end()) continue;
      if (&from == &to) return;
      if (exchange) {
        std::swap(*here, to.devices[pick(to.devices.size())]);
        return;
      }
      from.devices.erase(here);
      break;
    }
    to.devices.push_back(device);
  }

  void resize_micro_batches() {
    const bool halve = dice_.chance(50);
    const std::int64_t size = halve ? plan_.micro_batch_size / 2 : plan_.micro_batch_size * 2;
    if (size == 0 || plan_.global_batch_size % size != 0) return;
    plan_.micro_batch_size = size;
    plan_.num_micro_batches = plan_.global_batch_size / size;
    for (std::int64_t& depth : plan_.warmup_depths) {
      depth = std::min(depth, plan_.num_micro_batches);
    }
  }

  /// One more up to some stage, or one less from some stage on.
  void change_depths() {
    const std::size_t at = pick(plan_.stages.size());
    const bool deeper = dice_.chance(50);
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      if (deeper && s <= at) ++plan_.warmup_depths[s];
      if (!deeper && s >= at) --plan_.warmup_depths[s];
    }
  }

  Dice& dice_;
  Plan plan_;
  const Topology& topology_;
};

struct Ground {
  ModelProfile profile;
  Topology topology;
  Replicas replicas = Replicas::Together;
};

/// A model and a cluster of the project's own.
using Named = std::pair<const char*, const char*>;

TopologyDescription cluster_of(const Named& problem) {
  const std::string path = std::string("topologies/") + problem.second + ".json";
  return io::read_topology(test::source_file(path), path);
}

Ground ground_of(const Named& problem, TopologyDescription cluster,
                 Replicas replicas = Replicas::Together) {
  const std::string path = std::string("profiles/") + problem.first + ".json";
  return {io::read_profile(test::source_file(path), path), Topology(std::move(cluster)), replicas};
}

/// Nothing if the plan is unsound or does not fit.
std::optional<Duration> time_of(Plan& plan, const Ground& ground, const CostModel& costs) {
  const auto layers = static_cast<std::int32_t>(ground.profile.layers.size());
  if (!validate(plan, layers, ground.topology).empty()) return std::nullopt;
  fill_gradient_buckets(plan, ground.profile);
  const PlanCost cost = costs.plan_cost(plan);
  if (!memory_shortages(cost).empty()) return std::nullopt;
  return simulate::simulate(generate(plan, ground.replicas), cost, ground.topology,
                            {.record = false})
      .iteration;
}

/// Downhill from `plan`; the fastest time met. Counts the plans simulated.
Duration descend(Dice& dice, Plan plan, const Ground& ground, int& plans) {
  const CostModel costs(ground.profile, ground.topology);
  Duration best{INT64_MAX};
  for (int step = 0; step < small::scaled(150); ++step) {
    Plan changed = plan;
    for (std::int64_t changes = dice.roll(1, 3); changes > 0; --changes) {
      changed = Mutation(dice, changed, ground.topology).run();
    }
    const std::optional<Duration> time = time_of(changed, ground, costs);
    if (!time) continue;
    ++plans;
    if (*time > best) continue;
    best = *time;
    plan = changed;
  }
  return best;
}

/// Of so many problems, which take their time, a few where everything takes ten times as long.
int some_of(std::size_t count) {
  const auto all = static_cast<int>(count);
  return std::min(all, small::scaled(all));
}

void fail_to_beat(Dice& dice, const Ground& ground) {
  INFO(ground.profile.name << " on " << ground.topology.description().name << ", replicas "
                           << to_string(ground.replicas));
  planner::PlannerOptions options;
  options.global_batch_size = *ground.profile.global_batch_size;
  options.replicas = ground.replicas;
  options.target_gap = {kOne.billionths / 50};
  const auto answer = planner::make_plan({ground.profile, ground.topology, options});
  REQUIRE(std::holds_alternative<planner::MadePlan>(answer));
  const planner::MadePlan& made = std::get<planner::MadePlan>(answer);
  const Duration bound = made.document.prediction.lower_bound.value();
  int plans = 0;
  CHECK(descend(dice, made.document.plan, ground, plans) >= bound);
  for (const planner::BaselinePlan& baseline : made.baselines) {
    Plan start = baseline.plan;
    start.family = ScheduleFamily::OneFOneB;
    for (StagePlan& stage : start.stages) stage.replication = Replication::Split;
    CHECK(descend(dice, start, ground, plans) >= bound);
  }
  CHECK(plans > small::scaled(50));
}

}  // namespace

TEST_CASE("no plan of large problems gets below the proven bound") {
  const Named kProblems[] = {
      {"bert-48", "2x8xV100"},       {"vgg-19", "16x1xV100-10g"}, {"vgg-19", "4xRTX-pcie"},
      {"xlnet-36", "16x1xV100-25g"}, {"bert-large", "8xV100"},    {"gnmt-16", "2x8xV100"},
      {"resnet-50", "8xV100"},       {"amoebanet-36", "8xA100"},  {"vgg-19", "mixed-A100-V100"},
      {"amoebanet-36", "2x8xV100"},  {"vgg-19", "2x8xRTX-pcie"},  {"xlnet-36", "8x8xA100-racks"}};
  Dice dice(2301);
  for (int i = 0; i < some_of(std::size(kProblems)); ++i) {
    fail_to_beat(dice, ground_of(kProblems[i], cluster_of(kProblems[i])));
  }
}

TEST_CASE("no plan gets below the proven bound where all-reduces were measured") {
  const Named kProblems[] = {{"vgg-19", "4x8xA100"},         {"bert-48", "2x8xV100"},
                             {"xlnet-36", "8x8xA100-racks"}, {"vgg-19", "mixed-A100-V100"},
                             {"amoebanet-36", "4x8xA100"},   {"resnet-50", "8xV100"}};
  Dice dice(2303);
  for (int i = 0; i < some_of(std::size(kProblems)); ++i) {
    TopologyDescription cluster = cluster_of(kProblems[i]);
    small::measure_reductions(dice, 400'000'000, cluster);
    fail_to_beat(dice, ground_of(kProblems[i], std::move(cluster)));
  }
}

TEST_CASE("no plan of independent replicas gets below the bound proven for them") {
  const Named kProblems[] = {{"bert-48", "2x8xV100"}, {"vgg-19", "16x1xV100-10g"},
                             {"gnmt-16", "2x8xV100"}, {"resnet-50", "8xV100"},
                             {"gnmt-16", "4x8xA100"}, {"bert-large", "mixed-A100-V100"}};
  Dice dice(2302);
  for (int i = 0; i < some_of(std::size(kProblems)); ++i) {
    fail_to_beat(dice, ground_of(kProblems[i], cluster_of(kProblems[i]), Replicas::Independent));
  }
}
