// The lower bound on plans over all orders of a graph's layers: no plan over any topological order
// is faster, neither a random one nor the best that the planner finds for each order.

#include <catch2/catch.hpp>

#include "../support/random_group.h"
#include "../support/random_pipeline.h"
#include "../support/random_planning_problem.h"
#include "dapple/planner/make_plan.h"
#include "dapple/search/families/family_bound.h"
#include "dapple/search/families/layer_orders_bound.h"

using namespace dapple;

namespace {

/// The layers that each place of an order has.
using Order = std::vector<std::int32_t>;

/// Gives the layers inputs of which several orders follow, in most graphs.
void make_graph(small::Dice& dice, ModelProfile& profile) {
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    std::vector<LayerIndex>& inputs = profile.layers[l].inputs;
    inputs.clear();
    for (std::size_t input = 0; input < l; ++input) {
      if (dice.chance(40)) inputs.push_back(index_at<LayerIndex>(input));
    }
  }
}

bool is_ready(const ModelProfile& profile, const std::vector<bool>& placed, std::size_t layer) {
  if (placed[layer]) return false;
  const std::vector<LayerIndex>& inputs = profile.layers[layer].inputs;
  return std::all_of(inputs.begin(), inputs.end(),
                     [&](LayerIndex input) { return placed[input.position()]; });
}

Order random_order(small::Dice& dice, const ModelProfile& profile) {
  Order order;
  std::vector<bool> placed(profile.layers.size());
  while (order.size() < profile.layers.size()) {
    const auto layer = static_cast<std::size_t>(
        dice.roll(0, static_cast<std::int64_t>(profile.layers.size()) - 1));
    if (!is_ready(profile, placed, layer)) continue;
    placed[layer] = true;
    order.push_back(static_cast<std::int32_t>(layer));
  }
  return order;
}

void add_orders(const ModelProfile& profile, std::vector<bool>& placed, Order& order,
                std::vector<Order>& orders) {
  if (order.size() == profile.layers.size()) orders.push_back(order);
  for (std::size_t layer = 0; layer < profile.layers.size(); ++layer) {
    if (!is_ready(profile, placed, layer)) continue;
    placed[layer] = true;
    order.push_back(static_cast<std::int32_t>(layer));
    add_orders(profile, placed, order, orders);
    order.pop_back();
    placed[layer] = false;
  }
}

std::vector<Order> orders_of(const ModelProfile& profile) {
  std::vector<bool> placed(profile.layers.size());
  Order order;
  std::vector<Order> orders;
  add_orders(profile, placed, order, orders);
  return orders;
}

/// The same model with its layers in another order; nothing if a tie's owner came behind a user.
std::optional<ModelProfile> reordered(const ModelProfile& profile, const Order& order) {
  ModelProfile result = profile;
  std::vector<LayerIndex> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[static_cast<std::size_t>(order[i])] = index_at<LayerIndex>(i);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    result.layers[i] = profile.layers[static_cast<std::size_t>(order[i])];
    for (LayerIndex& input : result.layers[i].inputs) input = place[input.position()];
    std::sort(result.layers[i].inputs.begin(), result.layers[i].inputs.end());
  }
  for (Tie& tie : result.ties) {
    tie.owner = place[tie.owner.position()];
    for (LayerIndex& user : tie.users) user = place[user.position()];
    std::sort(tie.users.begin(), tie.users.end());
    if (tie.users.front() < tie.owner) return std::nullopt;
  }
  std::sort(result.ties.begin(), result.ties.end(),
            [](const Tie& a, const Tie& b) { return a.owner < b.owner; });
  return result;
}

search::LayerOrdersBound bound_of(const ModelProfile& profile, const Topology& topology,
                                  const search::LayerOrdersProblem& problem, Duration most) {
  const std::optional<DownSets> sets = search::down_sets_of(profile);
  REQUIRE(sets);
  const CostModel costs(profile, topology);
  return search::bound_of_layer_orders(costs, *sets, problem, most);
}

std::vector<std::int64_t> divisors(std::int64_t batch) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= batch; ++size) {
    if (batch % size == 0) sizes.push_back(size);
  }
  return sizes;
}

/// Layers without parameters, with some, or with so many that replicas do not pay; outputs take
/// about as long between servers as layers compute.
ModelProfile crossing_model(small::Dice& dice) {
  constexpr std::int64_t kUnit = 1'000'000;
  std::vector<small::LayerFigures> layers(static_cast<std::size_t>(dice.roll(2, 4)));
  const bool reductions_decide = dice.chance(30);
  for (small::LayerFigures& layer : layers) {
    if (dice.chance(70)) layer.forward = dice.roll(1, 6) * kUnit;
    layer.backward = layer.forward;
    layer.output = dice.roll(0, reductions_decide ? 1 : 9) * kUnit;
    if (dice.chance(reductions_decide ? 90 : 30)) layer.parameters = dice.roll(1, 30) * kUnit;
    if (!reductions_decide && dice.chance(30)) layer.parameters = 1000 * kUnit;
  }
  ModelProfile profile = small::model_of(layers);
  for (std::size_t l = 2; l < layers.size(); ++l) {
    std::vector<LayerIndex>& inputs = profile.layers[l].inputs;
    if (dice.chance(40)) inputs.front() = index_at<LayerIndex>(l - 2);
  }
  return profile;
}

/// Up to four servers with switches of no latency, 1 GB/s between them and much more inside.
TopologyDescription crossing_cluster(small::Dice& dice) {
  constexpr std::pair<std::int32_t, std::int32_t> kShapes[] = {{1, 2}, {2, 2}, {2, 2},
                                                               {3, 1}, {4, 1}, {4, 1}};
  const auto [servers, devices] = kShapes[dice.roll(0, 5)];
  const Link nic{small::bytes_per_ns(1), {}};
  small::ClusterFigures figures{.servers = servers,
                                .devices = devices,
                                .inside = {small::bytes_per_ns(1000), {}},
                                .nics = {nic}};
  TopologyDescription description = small::cluster(figures);
  if (servers > 1 && devices == 1 && dice.chance(40)) {
    // A second device in the first server.
    ServerGroup first = description.servers.front();
    first.name = "first";
    first.count = 1;
    first.devices = 2;
    description.servers.front().count -= 1;
    description.servers.insert(description.servers.begin(), std::move(first));
  }
  return description;
}

}  // namespace

TEST_CASE("no plan over any order of the layers is faster than the bound of all orders") {
  small::ProblemMaker maker(
      5101, {.layers = 6, .devices = 6, .global_batch = 12, .crowded = true, .measured = true});
  small::Dice dice(5102);
  int met = 0;
  int above_work = 0;
  for (int round = 0; round < small::scaled(4000); ++round) {
    small::PlanningProblem made = maker.next();
    ModelProfile& profile = made.problem.profile;
    make_graph(dice, profile);
    made.problem.topology.shards_optimizer = dice.chance(30);
    if (dice.chance(20)) small::make_devices_groups(dice, profile);
    const Topology topology(made.problem.topology);
    std::optional<ModelProfile> in_order = reordered(profile, random_order(dice, profile));
    if (!in_order) in_order = profile;
    small::PlanShape shape{.micro_batch_size = dice.roll(1, 6),
                           .num_micro_batches = dice.roll(1, 20)};
    if (!made.problem.topology.shards_optimizer && dice.chance(30)) {
      shape.optimizer = OptimizerTiming::PerBucket;
    }
    shape.stages = small::random_stages(dice, static_cast<std::int32_t>(profile.layers.size()),
                                        topology.device_count(), shape, false);
    shape.depths = small::random_depths(dice, shape.stages.size(), shape.num_micro_batches);
    const small::Pipeline pipeline(*in_order, made.problem.topology, shape);
    const Duration iteration =
        pipeline.run({.contention = made.contention, .record = false}).iteration;
    const search::LayerOrdersProblem problem{
        .global_batch_size = shape.micro_batch_size * shape.num_micro_batches,
        .micro_batch_sizes = {shape.micro_batch_size},
        .optimizer = shape.optimizer,
        .links_are_shared = made.contention == Contention::Shared};
    const Duration most = iteration + Duration{iteration.ns / 2 + 2};
    const search::LayerOrdersBound bound = bound_of(profile, topology, problem, most);
    if (bound.bound > iteration) {
      FAIL("round " << round << ": bound " << bound.bound.ns << ", simulated " << iteration.ns
                    << "\n"
                    << small::text_of(pipeline));
    }
    REQUIRE_FALSE(bound.is_of_work);
    // The order in which the profile lists the layers does not matter.
    if (round % 10 == 0) {
      REQUIRE(bound_of(*in_order, topology, problem, most).bound == bound.bound);
    }
    const CostModel costs(profile, topology);
    const Duration work =
        search::bound_of_work_alone(costs, {.global_batch_size = problem.global_batch_size,
                                            .micro_batch_size = shape.micro_batch_size});
    if (bound.bound > work) ++above_work;
    if (Wide{bound.bound.ns} * 1000 > Wide{iteration.ns} * 999) ++met;
  }
  CHECK(met > small::scaled(100));
  CHECK(above_work > small::scaled(2000));
}

TEST_CASE(
    "the bound of all orders is not above the best plan of any order that the planner finds") {
  small::ProblemMaker maker(5201, {.layers = 4, .devices = 4, .global_batch = 4});
  small::Dice dice(5202);
  int graphs = 0;
  int orders_differ = 0;
  int met = 0;
  while (graphs < small::scaled(500)) {
    small::PlanningProblem made = maker.next();
    ModelProfile& profile = made.problem.profile;
    make_graph(dice, profile);
    const std::vector<Order> orders = orders_of(profile);
    if (orders.size() < 2) continue;
    const Topology topology(made.problem.topology);
    planner::PlannerOptions options{.global_batch_size = made.problem.global_batch,
                                    .contention = made.contention,
                                    .threads = 1,
                                    .baselines = false};
    std::vector<Duration> iterations;
    for (const Order& order : orders) {
      const std::optional<ModelProfile> in_order = reordered(profile, order);
      if (!in_order) continue;
      const auto result = planner::make_plan({*in_order, topology, options});
      const auto* plan = std::get_if<planner::MadePlan>(&result);
      if (plan != nullptr) iterations.push_back(plan->document.prediction.iteration);
    }
    if (iterations.empty()) continue;
    ++graphs;
    const auto [best, worst] = std::minmax_element(iterations.begin(), iterations.end());
    if (*best < *worst) ++orders_differ;
    const search::LayerOrdersProblem problem{
        .global_batch_size = made.problem.global_batch,
        .micro_batch_sizes = divisors(made.problem.global_batch),
        .links_are_shared = made.contention == Contention::Shared};
    const search::LayerOrdersBound bound =
        bound_of(profile, topology, problem, *worst + Duration{1});
    INFO("graph " << graphs);
    REQUIRE(bound.bound <= *best);
    if (Wide{bound.bound.ns} * 1000 > Wide{best->ns} * 999) ++met;
  }
  CHECK(orders_differ > small::scaled(100));
  CHECK(met > small::scaled(30));
}

TEST_CASE("the bound of all orders holds where what passes between servers decides") {
  small::Dice dice(5401);
  int met = 0;
  for (int round = 0; round < small::scaled(1500); ++round) {
    const ModelProfile profile = crossing_model(dice);
    const Topology topology(crossing_cluster(dice));
    planner::PlannerOptions options{
        .global_batch_size = dice.roll(2, 6),
        .contention = dice.chance(75) ? Contention::Shared : Contention::Off,
        .ignore_memory = true,
        .threads = 1,
        .baselines = false};
    std::optional<Duration> best;
    for (const Order& order : orders_of(profile)) {
      const auto in_order = reordered(profile, order);
      const auto result = planner::make_plan({*in_order, topology, options});
      const Duration iteration = std::get<planner::MadePlan>(result).document.prediction.iteration;
      best = best ? std::min(*best, iteration) : iteration;
    }
    const search::LayerOrdersProblem problem{
        .global_batch_size = options.global_batch_size,
        .micro_batch_sizes = divisors(options.global_batch_size),
        .links_are_shared = options.contention == Contention::Shared};
    const Duration bound = bound_of(profile, topology, problem, *best + Duration{1}).bound;
    INFO("round " << round);
    REQUIRE(bound <= *best);
    if (Wide{bound.ns} * 1000 > Wide{best->ns} * 999) ++met;
  }
  CHECK(met > small::scaled(400));
}

TEST_CASE("an allowance that ends leaves a bound that is no higher") {
  small::ProblemMaker maker(5301, {.layers = 6, .devices = 4, .global_batch = 12});
  small::Dice dice(5302);
  int ended = 0;
  for (int round = 0; round < small::scaled(300); ++round) {
    small::PlanningProblem made = maker.next();
    make_graph(dice, made.problem.profile);
    const Topology topology(made.problem.topology);
    search::LayerOrdersProblem problem{.global_batch_size = made.problem.global_batch,
                                       .micro_batch_sizes = divisors(made.problem.global_batch),
                                       .links_are_shared = made.contention == Contention::Shared};
    const ModelProfile& profile = made.problem.profile;
    Duration most{1'000'000'000'000};
    most = {2 * bound_of(profile, topology, problem, most).bound.ns + 1};
    const Duration whole = bound_of(profile, topology, problem, most).bound;
    problem.limits.work = dice.roll(1, 3000);
    const search::LayerOrdersBound cut = bound_of(profile, topology, problem, most);
    // Bisection ends within this of the largest time that is proven.
    REQUIRE(cut.bound.ns <= whole.ns + most.ns / 65'536);
    if (cut.is_of_work) ++ended;
  }
  CHECK(ended > small::scaled(50));
}
