// Where there are more ways to place stages than are enumerated, the search's bound is a relaxation
// over the placements that are not: no plan that is drawn at random, as pinned, is faster than it.

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "../oracle/planner_oracle.h"
#include "../support/clusters.h"
#include "../support/dice.h"
#include "../support/models.h"
#include "../support/own_times.h"
#include "../support/scaled.h"
#include "dapple/cost/cost_model.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/made_plan.h"
#include "dapple/search/decision_diagram/decision_diagram.h"
#include "dapple/simulate/simulate.h"

using namespace dapple;

namespace {

using small::Dice;

struct Request {
  ModelProfile profile;
  TopologyDescription description;
  planner::PlannerOptions options;
};

ModelProfile random_model(Dice& dice, std::int64_t most_layers = 4) {
  std::vector<small::LayerFigures> figures;
  for (std::int64_t l = dice.roll(1, most_layers); l > 0; --l) {
    figures.push_back({.forward = dice.roll(1, 40),
                       .backward = dice.roll(1, 80),
                       .output = dice.chance(60) ? dice.roll(0, 60) : 0,
                       .parameters = dice.chance(70) ? dice.roll(0, 400) : 0,
                       .stash = 0,
                       .workspace = 0});
  }
  return small::model_of(figures);
}

/// Servers of four or eight, as many as make more than 1,024 ways to take devices of them; in half
/// of the clusters a quick server stands between slow ones, of which some are of a third kind.
TopologyDescription random_cluster(Dice& dice, ModelProfile& profile) {
  const bool is_large = dice.chance(50);
  TopologyDescription description =
      small::cluster({.servers = is_large ? 4 : 5,
                      .devices = is_large ? 8 : 4,
                      .inside = {small::bytes_per_ns(dice.roll(1, 20)), {dice.roll(0, 5)}},
                      .nics = {Link{small::bytes_per_ns(dice.roll(1, 4)), {dice.roll(0, 10)}}}});
  if (!dice.chance(50)) return description;
  DeviceKind quick = description.devices.front();
  quick.name = "quick";
  const std::string profiled = description.devices.front().name;
  quick.time_scale[profiled] = {kOne.billionths * dice.roll(40, 90) / 100};
  description.devices.push_back(quick);
  // The quick server may be slower for some of the layers, and those behind it be of a third kind.
  const bool has_own_times = dice.chance(50);
  if (has_own_times) small::measure_on(dice, quick.name, profile);
  const ServerGroup slow = description.servers.front();
  ServerGroup between = slow;
  between.name = "between";
  between.device = quick.name;
  between.count = 1;
  between.devices = static_cast<std::int32_t>(dice.roll(1, 2));
  ServerGroup behind = slow;
  behind.name = "behind";
  if (has_own_times && dice.chance(50)) {
    DeviceKind third = description.devices.front();
    third.name = behind.device = "third";
    description.devices.push_back(third);
    small::measure_on(dice, third.name, profile);
  }
  description.servers = {slow, between, behind};
  for (ServerGroup* group : {&description.servers[0], &description.servers[2]}) group->count = 2;
  return description;
}

Request random_request(Dice& dice) {
  Request request{.profile = random_model(dice), .description = {}, .options = {}};
  request.description = random_cluster(dice, request.profile);
  planner::PlannerOptions& options = request.options;
  const std::int64_t size = dice.roll(1, 9);
  options.global_batch_size = size * dice.roll(1, 3);
  request.profile.global_batch_size = options.global_batch_size;
  request.profile.device = request.description.devices.front().name;
  if (dice.chance(70)) options.micro_batch_size = size;
  if (dice.chance(50)) options.pins.replicas = static_cast<std::int32_t>(dice.roll(1, size));
  if (dice.chance(25)) options.replicas = Replicas::Independent;
  if (dice.chance(60)) options.shares = Shares::Any;
  options.bucket_size = Bytes{dice.roll(1, 400)};
  options.baselines = false;
  options.threads = 1;
  return request;
}

/// As pinned: devices in order, or one from each server in turn, or any.
std::vector<StagePlan> random_stages(Dice& dice, const Request& request, const Topology& topology,
                                     std::int64_t micro_batch_size) {
  std::vector<DeviceIndex> devices;
  for (std::int32_t d = 0; d < topology.device_count(); ++d) devices.push_back({d});
  const std::int64_t way = dice.roll(0, 2);
  if (way == 1) {
    std::stable_sort(devices.begin(), devices.end(), [&](DeviceIndex a, DeviceIndex b) {
      const auto place = [&](DeviceIndex device) {
        return device.value - topology.server(topology.device(device).server).first_device.value;
      };
      return place(a) < place(b);
    });
  } else if (way == 2) {
    for (std::size_t i = devices.size(); i-- > 1;) {
      std::swap(devices[i],
                devices[static_cast<std::size_t>(dice.roll(0, static_cast<std::int64_t>(i)))]);
    }
  }
  const auto layers = static_cast<std::int32_t>(request.profile.layers.size());
  std::vector<StagePlan> stages;
  std::size_t used = 0;
  for (std::int32_t begin = 0; begin < layers;) {
    StagePlan& stage = stages.emplace_back();
    const std::int32_t end =
        dice.chance(40) ? layers : static_cast<std::int32_t>(dice.roll(begin + 1, layers));
    stage.layers = {begin, end};
    const std::int64_t replicas = request.options.pins.replicas.value_or(
        dice.roll(1, std::min<std::int64_t>(micro_batch_size, 9)));
    if (used + static_cast<std::size_t>(replicas) > devices.size()) return {};
    const auto first = devices.begin() + static_cast<std::ptrdiff_t>(used);
    stage.devices.assign(first, first + replicas);
    std::sort(stage.devices.begin(), stage.devices.end());
    used += static_cast<std::size_t>(replicas);
    begin = end;
  }
  return stages;
}

/// The iteration of a random plan; nothing if the plan drawn is not one that was asked for.
std::optional<Duration> time_of_random_plan(Dice& dice, const Request& request,
                                            const Topology& topology, const CostModel& costs) {
  const planner::PlannerOptions& options = request.options;
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= options.global_batch_size; ++size) {
    if (options.global_batch_size % size == 0) sizes.push_back(size);
  }
  const std::int64_t size = options.micro_batch_size.value_or(
      sizes[static_cast<std::size_t>(dice.roll(0, static_cast<std::int64_t>(sizes.size()) - 1))]);
  if (options.pins.replicas && *options.pins.replicas > size) return std::nullopt;
  Plan plan{
      .global_batch_size = options.global_batch_size,
      .micro_batch_size = size,
      .num_micro_batches = options.global_batch_size / size,
      .gradients = {.bucket_size = options.bucket_size.value(), .optimizer = options.optimizer},
      .family = ScheduleFamily::OneFOneB,
      .warmup_depths = {},
      .stages = random_stages(dice, request, topology, size)};
  if (plan.stages.empty()) return std::nullopt;
  for (StagePlan& stage : plan.stages) {
    if (!planner::has_shares_by_speed(options, topology) || dice.chance(30)) continue;
    stage.samples = small::samples_by_speed(costs, size, stage.devices);
  }
  plan.warmup_depths.assign(plan.stages.size(), plan.num_micro_batches);
  fill_gradient_buckets(plan, request.profile);
  return simulate::simulate(generate(plan, options.replicas), costs.plan_cost(plan), topology,
                            {.record = false})
      .iteration;
}

}  // namespace

TEST_CASE("no random plan gets below the bound where not all placements are enumerated") {
  Dice dice(2511);
  int met = 0;
  int plans = 0;
  for (int round = 0; round < small::scaled(150); ++round) {
    const Request request = random_request(dice);
    const Topology topology(request.description);
    const auto answer = planner::make_plan({request.profile, topology, request.options});
    if (!std::holds_alternative<planner::MadePlan>(answer)) continue;
    const PlanDocument& made = std::get<planner::MadePlan>(answer).document;
    const Duration bound = made.prediction.lower_bound.value();
    const CostModel costs(request.profile, topology);
    for (int i = 0; i < 100; ++i) {
      const std::optional<Duration> time = time_of_random_plan(dice, request, topology, costs);
      if (!time) continue;
      ++plans;
      if (*time < bound) {
        FAIL("round " << round << ": " << time->ns << " below the bound of " << bound.ns);
      }
      if (*time == made.prediction.iteration) ++met;
    }
  }
  CHECK(plans > small::scaled(5000));
  CHECK(met > small::scaled(50));
}

namespace {

/// A request for stages on whole servers that are alike, devices in the order of their numbers.
Request random_request_in_order(Dice& dice) {
  constexpr std::int32_t kDevices = 4;
  Request request{.profile = random_model(dice),
                  .description = small::cluster(
                      {.servers = 5,
                       .devices = kDevices,
                       .inside = {small::bytes_per_ns(dice.roll(1, 20)), {dice.roll(0, 5)}},
                       .nics = {Link{small::bytes_per_ns(dice.roll(1, 4)), {dice.roll(0, 10)}}}}),
                  .options = {}};
  planner::PlannerOptions& options = request.options;
  options.pins.replicas = static_cast<std::int32_t>(dice.roll(1, 2)) * kDevices;
  options.pins.in_order = true;
  options.pins.equal_shares = true;
  const std::int64_t size = *options.pins.replicas * dice.roll(1, 2);
  options.micro_batch_size = size;
  options.global_batch_size = size * dice.roll(1, 4);
  request.profile.global_batch_size = options.global_batch_size;
  request.profile.device = request.description.devices.front().name;
  options.baselines = false;
  options.threads = 1;
  return request;
}

/// Calls `visit` with the stages of every split of the layers, devices in order; bit i of the
/// number of a split says whether layer i + 1 begins a stage.
template <class Visit>
void for_each_split_in_order(const Request& request, const Topology& topology, Visit visit) {
  const auto layers = static_cast<std::int32_t>(request.profile.layers.size());
  const std::int32_t replicas = request.options.pins.replicas.value();
  for (std::int32_t split = 0; split < 1 << (layers - 1); ++split) {
    std::vector<StagePlan> stages(1);
    for (std::int32_t layer = 1; layer < layers; ++layer) {
      if ((split >> (layer - 1) & 1) == 0) continue;
      stages.back().layers.end = layer;
      stages.emplace_back().layers.begin = layer;
    }
    stages.back().layers.end = layers;
    if (static_cast<std::int32_t>(stages.size()) * replicas > topology.device_count()) continue;
    std::int32_t device = 0;
    for (StagePlan& stage : stages) {
      for (std::int32_t i = 0; i < replicas; ++i) stage.devices.push_back({device++});
    }
    visit(std::move(stages));
  }
}

}  // namespace

TEST_CASE("with devices in order on whole servers no plan is below the bound, which is often met") {
  Dice dice(2512);
  int closed = 0;
  int plans = 0;
  for (int round = 0; round < small::scaled(150); ++round) {
    CAPTURE(round);
    const Request request = random_request_in_order(dice);
    const Topology topology(request.description);
    const auto answer = planner::make_plan({request.profile, topology, request.options});
    REQUIRE(std::holds_alternative<planner::MadePlan>(answer));
    const PlanDocument& made = std::get<planner::MadePlan>(answer).document;
    const Duration bound = made.prediction.lower_bound.value();
    if (bound == made.prediction.iteration) ++closed;
    const CostModel costs(request.profile, topology);
    const planner::PlannerOptions& options = request.options;
    for_each_split_in_order(request, topology, [&](std::vector<StagePlan> stages) {
      Plan plan{.global_batch_size = options.global_batch_size,
                .micro_batch_size = options.micro_batch_size.value(),
                .num_micro_batches = options.global_batch_size / options.micro_batch_size.value(),
                .family = ScheduleFamily::OneFOneB,
                .warmup_depths = {},
                .stages = std::move(stages)};
      fill_gradient_buckets(plan, request.profile);
      for (int draw = 0; draw < 4; ++draw) {
        plan.warmup_depths.assign(plan.stages.size(), plan.num_micro_batches);
        std::int64_t depth = plan.num_micro_batches;
        for (std::int64_t& each : plan.warmup_depths) {
          if (draw > 0) depth = dice.roll(1, depth);
          each = depth;
        }
        const Duration time =
            simulate::simulate(generate(plan), costs.plan_cost(plan), topology, {.record = false})
                .iteration;
        ++plans;
        REQUIRE(time >= bound);
      }
    });
  }
  CHECK(plans > small::scaled(1500));
  CHECK(closed > small::scaled(130));
}

namespace {

/// All devices in an order in which stages on consecutive ones often share servers: those of some
/// servers in turn, so many of each at a time, or some pairs of them swapped besides.
std::vector<DeviceIndex> shared_order(Dice& dice, const Topology& topology) {
  const std::int32_t servers = topology.server_count();
  const std::int32_t each = topology.server({0}).device_count;
  const auto together = static_cast<std::int32_t>(dice.roll(1, servers));
  const auto turn = static_cast<std::int32_t>(dice.roll(1, each));
  std::vector<DeviceIndex> order;
  for (std::int32_t first = 0; first < servers; first += together) {
    for (std::int32_t begin = 0; begin < each; begin += turn) {
      for (std::int32_t s = first; s < std::min(servers, first + together); ++s) {
        for (std::int32_t i = begin; i < std::min(each, begin + turn); ++i) {
          order.push_back({topology.server({s}).first_device.value + i});
        }
      }
    }
  }
  const auto last = static_cast<std::int64_t>(order.size()) - 1;
  for (std::int64_t swaps = dice.chance(50) ? dice.roll(1, 4) : 0; swaps > 0; --swaps) {
    std::swap(order[static_cast<std::size_t>(dice.roll(0, last))],
              order[static_cast<std::size_t>(dice.roll(0, last))]);
  }
  return order;
}

/// A random plan with stages on consecutive devices of an order; nothing if they do not suffice.
std::optional<Plan> plan_along(Dice& dice, const std::vector<DeviceIndex>& order,
                               const search::SearchProblem& problem, std::int32_t layers) {
  Plan plan{.global_batch_size = problem.global_batch_size,
            .micro_batch_size = problem.micro_batch_size,
            .num_micro_batches = problem.num_micro_batches(),
            .gradients = problem.gradients,
            .family = ScheduleFamily::OneFOneB,
            .warmup_depths = {},
            .stages = {}};
  std::size_t used = 0;
  // Equal numbers of replicas fill servers together.
  const std::int64_t usual = problem.pins.replicas.value_or(dice.roll(1, problem.micro_batch_size));
  const std::int64_t unusual = problem.pins.replicas ? 0 : 30;
  for (std::int32_t begin = 0; begin < layers;) {
    StagePlan& stage = plan.stages.emplace_back();
    stage.layers = {begin, static_cast<std::int32_t>(dice.roll(begin + 1, layers))};
    const std::int64_t replicas =
        dice.chance(unusual) ? dice.roll(1, problem.micro_batch_size) : usual;
    for (std::int64_t i = 0; i < replicas; ++i, ++used) {
      if (used == order.size()) return std::nullopt;
      stage.devices.push_back(order[used]);
    }
    std::sort(stage.devices.begin(), stage.devices.end());
    begin = stage.layers.end;
  }
  const auto stages = static_cast<std::int32_t>(plan.stages.size());
  if (stages != problem.pins.stages.value_or(stages)) return std::nullopt;
  std::int64_t depth = problem.num_micro_batches();
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    depth = dice.roll(std::max<std::int64_t>(1, depth - 1), depth);
    plan.warmup_depths.push_back(depth);
  }
  return plan;
}

/// Checks that neither the bound of paths nor its work depends on idle threads that help, within
/// all of the steps and within some of them.
void check_helped(Dice& dice, const ModelProfile& profile, const Topology& topology,
                  const search::SearchProblem& problem, Duration threshold) {
  std::int64_t steps = INT64_MAX;
  for (const bool is_limited : {false, true}) {
    CAPTURE(is_limited, steps);
    search::DecisionDiagram alone(profile, topology, problem, threshold, {.work = steps});
    search::DecisionDiagram helped(profile, topology, problem, threshold, {.work = steps});
    IdleThreads idle(static_cast<int>(dice.roll(1, 3)));
    REQUIRE(helped.bound_of_paths(&idle) == alone.bound_of_paths());
    REQUIRE(helped.is_over() == alone.is_over());
    REQUIRE(helped.work() == alone.work());
    steps = dice.roll(1, alone.work());
  }
}

}  // namespace

TEST_CASE("on servers that are alike no plan is below the bounds of diagrams and of their paths") {
  Dice dice(2513);
  double near = 0;
  double nearer = 0;
  int rounds = 0;
  for (int round = 0; round < small::scaled(300); ++round) {
    CAPTURE(round);
    ModelProfile profile = random_model(dice, round % 3 == 0 ? 4 : 3);
    // The random plans are nearly all plans of a small problem. Stages that are as large as a
    // server either share two or send from one to the other.
    const bool is_small = round % 3 != 0;
    const bool fills_servers = round % 3 == 1;
    const std::int64_t size = fills_servers ? 4 * dice.roll(1, 2) : dice.roll(2, is_small ? 4 : 8);
    search::SearchProblem problem{.global_batch_size = size * dice.roll(1, is_small ? 2 : 4),
                                  .micro_batch_size = size,
                                  .gradients = {.bucket_size = Bytes{dice.roll(50, 900)}},
                                  .ignore_memory = true};
    if (fills_servers) {
      problem.pins.replicas = 4;
      problem.pins.stages = static_cast<std::int32_t>(dice.roll(1, 3));
    }
    const Link nic{small::bytes_per_ns(dice.roll(1, 3)), {dice.roll(0, 10)}};
    const TopologyDescription description = small::cluster(
        {.servers = 5,
         .devices = 4,
         .inside = {small::bytes_per_ns(dice.roll(4, 30)), {dice.roll(0, 3)}},
         .nics = std::vector<Link>(static_cast<std::size_t>(dice.chance(50) ? 1 : 4), nic)});
    profile.device = description.devices.front().name;
    const Topology topology(description);
    REQUIRE_FALSE(search::PlacementSpace(topology).is_complete());
    const CostModel costs(profile, topology);
    const auto layers = static_cast<std::int32_t>(profile.layers.size());
    Duration fastest = Duration::infinite();
    for (int draw = 0; draw < 400; ++draw) {
      std::optional<Plan> plan = plan_along(dice, shared_order(dice, topology), problem, layers);
      if (!plan) continue;
      fill_gradient_buckets(*plan, profile);
      const Duration time = simulate::simulate(generate(*plan), costs.plan_cost(*plan), topology,
                                               {.contention = Contention::Off, .record = false})
                                .iteration;
      fastest = std::min(fastest, time);
    }
    if (fastest.is_infinite()) continue;  // fewer layers than pinned stages
    const Duration threshold = fastest + Duration{1};
    search::DecisionDiagram diagram(profile, topology, problem, threshold, {});
    const Duration relaxed = diagram.relaxed_bound(64);
    const Duration of_paths = diagram.bound_of_paths();
    REQUIRE(relaxed <= fastest);
    REQUIRE(of_paths <= fastest);
    check_helped(dice, profile, topology, problem, threshold);
    near += static_cast<double>(relaxed.ns) / static_cast<double>(fastest.ns);
    nearer += static_cast<double>(of_paths.ns) / static_cast<double>(fastest.ns);
    ++rounds;
  }
  WARN("relaxed diagrams reach " << near / rounds << ", their paths " << nearer / rounds
                                 << " of the fastest plan drawn");
  CHECK(nearer >= near);
  CHECK(nearer >= 0.9 * rounds);
}
