// Problems in which one dimension of the space of plans decides alone. Each is worked by hand: what
// the best plan takes, and what the best plan without that dimension takes. Links of
// bytes_per_ns(1) move n bytes in n ns; F and B are the times of one micro-batch on a stage; an
// all-reduce of n bytes over two devices takes n bytes' time.

#include <catch2/catch.hpp>

#include "../../../oracle/planner_oracle.h"
#include "../../../support/pipeline.h"

#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"

using namespace dapple;

namespace {

using small::bytes_per_ns;
using small::Problem;

Problem problem_of(const std::vector<small::LayerFigures>& layers, TopologyDescription topology,
                   std::int64_t global_batch) {
  Problem problem{.profile = small::model_of(layers),
                  .topology = std::move(topology),
                  .global_batch = global_batch};
  problem.profile.global_batch_size = global_batch;
  return problem;
}

void set_memory(Problem& problem, std::int64_t bytes) {
  problem.topology.devices.front().memory = {bytes};
}

std::variant<planner::MadePlan, planner::Infeasible> answer_for(const Problem& problem,
                                                                const Pins& pins) {
  planner::PlannerOptions options;
  options.global_batch_size = problem.global_batch;
  options.pins = pins;
  options.threads = 1;
  return planner::make_plan({problem.profile, Topology(problem.topology), options});
}

/// The plan proven to be the fastest.
PlanDocument best_plan(const Problem& problem, const Pins& pins = {}) {
  auto answer = answer_for(problem, pins);
  REQUIRE(std::holds_alternative<planner::MadePlan>(answer));
  PlanDocument document = std::get<planner::MadePlan>(std::move(answer)).document;
  REQUIRE(document.prediction.lower_bound);
  CHECK(document.prediction.lower_bound->ns == document.prediction.iteration.ns);
  CHECK(document.search.complete == pins.empty());  // what is pinned is cut from the space
  return document;
}

std::int64_t best_time(const Problem& problem, const Pins& pins = {}) {
  return best_plan(problem, pins).prediction.iteration.ns;
}

/// Of the fastest of the plans that `allow` lets through.
std::int64_t best_time_among(const Problem& problem,
                             const std::function<bool(const Plan&)>& allow) {
  return small::fastest_plan(problem, Topology(problem.topology), {.allow = allow}).iteration.ns;
}

std::vector<std::size_t> replicas_of(const Plan& plan) {
  std::vector<std::size_t> replicas;
  for (const StagePlan& stage : plan.stages) replicas.push_back(stage.devices.size());
  return replicas;
}

std::vector<std::int32_t> cuts_of(const Plan& plan) {
  std::vector<std::int32_t> cuts;
  for (const StagePlan& stage : plan.stages) cuts.push_back(stage.layers.begin);
  cuts.erase(cuts.begin());
  return cuts;
}

std::vector<bool> recomputation_of(const Plan& plan) {
  std::vector<bool> recomputes;
  for (const StagePlan& stage : plan.stages) recomputes.push_back(stage.recompute);
  return recomputes;
}

/// With two devices in each server.
bool spans_servers(const StagePlan& stage) {
  return stage.devices.front().value / 2 != stage.devices.back().value / 2;
}

/// Two servers of two devices: 100 bytes/ns inside, 1 byte/ns between.
TopologyDescription two_by_two() {
  return small::cluster({.servers = 2,
                         .devices = 2,
                         .inside = {bytes_per_ns(100), {}},
                         .nics = {Link{bytes_per_ns(1), {}}}});
}

/// Layers A, B, C, of which A and B fit one device together (2,000 bytes of weights and gradients)
/// and C another. 150 bytes are left. A and B stash 100 bytes of a sample, 20 of them A's: one
/// micro-batch of one sample may be in flight without recomputation, and two (2 * 20 + 100) with.
struct ThreeLayerTimes {
  std::int64_t a_and_b = 0;  // of each, forward or backward
  std::int64_t c = 0;
};
Problem room_for_one(const ThreeLayerTimes& times, std::int32_t devices) {
  const std::int64_t both = times.a_and_b;
  Problem problem =
      problem_of({{.forward = both, .backward = both, .parameters = 500, .stash = 20},
                  {.forward = both, .backward = both, .parameters = 500, .stash = 80},
                  {.forward = times.c, .backward = times.c, .parameters = 1000, .stash = 50}},
                 small::cluster({.servers = 1, .devices = devices}), 2);
  set_memory(problem, 2150);
  return problem;
}

}  // namespace

TEST_CASE("unequal replicas decide: the layer without parameters gets two devices, the other one") {
  const Problem problem = problem_of(
      {{.forward = 10, .backward = 20}, {.forward = 5, .backward = 10, .parameters = 100}},
      small::cluster({.servers = 1, .devices = 3}), 2);
  // One micro-batch of two samples: 10 on two devices, 2 * 5 + 2 * 10 on one, 20 on two.
  const PlanDocument best = best_plan(problem);
  CHECK(replicas_of(best.plan) == std::vector<std::size_t>{2, 1});
  CHECK(best.prediction.iteration.ns == 60);
  // One device each: the first stage's forwards end at 20, its first gradient is there at 25.
  // 25 + 2 * 20. Both stages on one device take 2 * 45; shared by two devices 45, and the 100 bytes
  // are reduced from 25 on (beside 20 ns of backward), until 125.
  CHECK(best_time_among(problem, [](const Plan& plan) {
          return plan.stages.front().devices.size() == plan.stages.back().devices.size();
        }) == 65);
}

TEST_CASE("an idle device decides: to reduce gradients takes longer than all the work") {
  const Problem problem = problem_of({{.forward = 10, .backward = 10, .parameters = 100}},
                                     small::cluster({.servers = 1, .devices = 2}), 2);
  const PlanDocument best = best_plan(problem);
  CHECK(replicas_of(best.plan) == std::vector<std::size_t>{1});
  CHECK(best.prediction.iteration.ns == 2 * 20);
  CHECK(best_time_among(problem, [](const Plan& plan) {
          return plan.stages.front().devices.size() == 2;
        }) == 20 + 100);
}

TEST_CASE("depth above policy B decides: only it hides long transfers") {
  // A transfer takes 29 ns and the byte's 1 ns, but keeps no link busy for longer than that.
  TopologyDescription far = small::cluster({.servers = 2, .devices = 1});
  far.network = Link{bytes_per_ns(1), {29}};
  const Problem problem =
      problem_of({{.forward = 10, .backward = 10, .output = 1, .parameters = 1000},
                  {.forward = 10, .backward = 10, .parameters = 1000}},
                 far, 6);
  // The second stage works from 40 on without a pause, 6 * 20; the last gradient needs 30 + 10. The
  // first gradient is back at 90, and the sixth forward must begin by 100: five in flight.
  const PlanDocument best = best_plan(problem);
  REQUIRE(best.plan.stages.size() == 2);
  CHECK(best.plan.micro_batch_size == 1);
  CHECK(best.plan.warmup_depths[0] >= 5);
  CHECK(best.prediction.iteration.ns == 10 + 30 + 6 * 20 + 30 + 10);
  // With three in flight, micro-batches of two samples are best: 20 + 31 + 3 * 40 + 31 + 20. (Of
  // one sample: the fourth forward begins at 100, so the second stage waits from 100 to 140.)
  CHECK(best_time_among(problem, [](const Plan& plan) {
          return plan.stages.size() == 1 || plan.warmup_depths[0] <= 3;
        }) == 222);
}

TEST_CASE("depth below policy A decides: memory holds one micro-batch, recomputation costs more") {
  const Problem problem = room_for_one({.a_and_b = 20, .c = 5}, 2);
  // One micro-batch after the other: 2 * (40 + 5 + 5 + 40).
  const PlanDocument best = best_plan(problem);
  CHECK(cuts_of(best.plan) == std::vector<std::int32_t>{2});
  CHECK(best.plan.warmup_depths == std::vector<std::int64_t>{1, 1});
  CHECK(recomputation_of(best.plan) == std::vector<bool>{false, false});
  CHECK(best.prediction.iteration.ns == 180);
  // Two in flight need recomputation, and the first stage 2 * (40 + 80).
  CHECK(best_time_among(problem,
                        [](const Plan& plan) { return plan.warmup_depths.front() >= 2; }) == 240);
  Problem roomy = problem;
  set_memory(roomy, 2200);
  // Two in flight, A and B busy throughout: 2 * (40 + 40).
  CHECK(best_time(roomy) == 160);
}

TEST_CASE("recomputation of one stage decides: it makes room for a second micro-batch") {
  const Problem problem = room_for_one({.a_and_b = 10, .c = 20}, 2);
  // Forwards of the first stage until 40; C's work from 20 on, gradients at 60 and 100; a backward
  // with recomputation takes 40: until 100 and 140.
  const PlanDocument best = best_plan(problem);
  CHECK(cuts_of(best.plan) == std::vector<std::int32_t>{2});
  CHECK(recomputation_of(best.plan) == std::vector<bool>{true, false});
  CHECK(best.plan.warmup_depths.front() == 2);
  CHECK(best.prediction.iteration.ns == 140);
  // Without, one after the other: 2 * (20 + 20 + 20 + 20).
  Pins pins;
  pins.recompute = false;
  CHECK(best_time(problem, pins) == 160);
  // On both stages, C's two backwards take 40 as well: 20 + 2 * (20 + 40) + 40.
  pins.recompute = true;
  CHECK(best_time(problem, pins) == 180);
}

TEST_CASE("scatter beats fresh where activations are large") {
  // A device holds one layer's stash of one sample (1,000 bytes), with buffers of 4 * 100 bytes.
  Problem problem =
      problem_of({{.forward = 10, .backward = 20, .output = 100, .parameters = 10, .stash = 1000},
                  {.forward = 10, .backward = 20, .parameters = 10, .stash = 1000}},
                 two_by_two(), 2);
  set_memory(problem, 1500);
  // Each sample stays in one server: 10 + 1 + 10 + 20 + 1 + 20, and 10 bytes reduced across.
  const PlanDocument best = best_plan(problem);
  REQUIRE(replicas_of(best.plan) == std::vector<std::size_t>{2, 2});
  CHECK(spans_servers(best.plan.stages[0]));
  CHECK(spans_servers(best.plan.stages[1]));
  CHECK(best.prediction.iteration.ns == 62 + 10);
  // A stage to each server: 200 bytes there, and back: 2 * 200 more. One sample after the other
  // inside one server is better, 2 * 62 (for two in flight there is no room).
  CHECK(best_time_among(problem, [](const Plan& plan) {
          return std::none_of(plan.stages.begin(), plan.stages.end(), spans_servers);
        }) == 2 * 62);
}

TEST_CASE("fresh beats scatter where gradients are large") {
  // A layer weighs 200 bytes with its gradients, and 100 in the bucket: no device holds both.
  Problem problem =
      problem_of({{.forward = 10, .backward = 20, .output = 1, .parameters = 100, .stash = 1},
                  {.forward = 10, .backward = 20, .parameters = 100, .stash = 1}},
                 two_by_two(), 2);
  set_memory(problem, 399);
  // A stage to each server: two bytes share the NIC, 10 + 2 + 10 + 20 + 2 + 20; 100 bytes are
  // reduced in 1 ns.
  const PlanDocument best = best_plan(problem);
  REQUIRE(replicas_of(best.plan) == std::vector<std::size_t>{2, 2});
  CHECK_FALSE(spans_servers(best.plan.stages[0]));
  CHECK_FALSE(spans_servers(best.plan.stages[1]));
  CHECK(best.prediction.iteration.ns == 64 + 1);
  // Reduced across servers they take 100. Then rather two stages of one device in one server: the
  // second works from 11 to 11 + 2 * 30, and 1 + 20 follow.
  CHECK(best_time_among(problem, [](const Plan& plan) {
          return std::all_of(plan.stages.begin(), plan.stages.end(), [](const StagePlan& stage) {
            return stage.devices.size() == 1 || spans_servers(stage);
          });
        }) == 92);
}

TEST_CASE("a smaller micro-batch decides: the pipeline fills sooner") {
  const std::vector<small::LayerFigures> layers(
      2, {.forward = 10, .backward = 20, .parameters = 1'000'000});
  const Problem problem = problem_of(layers, small::cluster({.servers = 1, .devices = 2}), 4);
  // (M + 1) * (F + B): 5 * 30 against 3 * 60 and 2 * 120.
  const PlanDocument best = best_plan(problem);
  CHECK(best.plan.stages.size() == 2);
  CHECK(best.plan.micro_batch_size == 1);
  CHECK(best.prediction.iteration.ns == 150);
  CHECK(best_time_among(problem, [](const Plan& plan) { return plan.micro_batch_size > 1; }) ==
        180);
}

TEST_CASE("an uneven cut decides: beside the embedding only one block fits") {
  std::vector<small::LayerFigures> layers(5, {.forward = 10, .backward = 20, .parameters = 10});
  layers.front() = {.forward = 0, .backward = 0, .parameters = 40};
  Problem problem = problem_of(layers, small::cluster({.servers = 1, .devices = 2}), 2);
  // Weights and gradients: the embedding 80 bytes, a block 20.
  set_memory(problem, 119);
  // 10 + 2 * (30 + 60) + 20.
  const PlanDocument best = best_plan(problem);
  CHECK(cuts_of(best.plan) == std::vector<std::int32_t>{2});
  CHECK(best.prediction.iteration.ns == 210);
  // Not there: the embedding alone, and 2 * (40 + 80) behind it.
  Pins pins;
  pins.joints = {2};
  CHECK(cuts_of(best_plan(problem, pins).plan) == std::vector<std::int32_t>{1});
  CHECK(best_time(problem, pins) == 240);
  // A byte more, and the even cut fits: (2 + 1) * (20 + 40).
  set_memory(problem, 120);
  CHECK(cuts_of(best_plan(problem).plan) == std::vector<std::int32_t>{3});
  CHECK(best_time(problem) == 180);
}

TEST_CASE("fewer servers decide: half of the devices, none of the network") {
  const Problem problem =
      problem_of({{.forward = 10, .backward = 20, .parameters = 100}}, two_by_two(), 4);
  // Two samples each: 2 * 30, and 100 bytes reduced in 1 ns.
  const PlanDocument best = best_plan(problem);
  REQUIRE(replicas_of(best.plan) == std::vector<std::size_t>{2});
  CHECK_FALSE(spans_servers(best.plan.stages[0]));
  CHECK(best.prediction.iteration.ns == 61);
  // All four: 30, and 0.5 + 100 + 0.5 for reduce-scatter, the ring across and all-gather.
  CHECK(best_time_among(problem, [](const Plan& plan) { return spans_servers(plan.stages[0]); }) ==
        131);
}

TEST_CASE("the choice of devices in a mesh decides: one pair has a direct link") {
  const Problem problem = problem_of({{.forward = 10, .backward = 20, .parameters = 100}},
                                     small::mesh({{0, 0, 0}, {0, 0, 1}, {0, 1, 0}},
                                                 {bytes_per_ns(100), {}}, {bytes_per_ns(1), {}}),
                                     2);
  // A sample each: 30, and 100 bytes reduced in 1 ns.
  const PlanDocument best = best_plan(problem);
  REQUIRE(best.plan.stages.size() == 1);
  CHECK(best.plan.stages[0].devices == std::vector<DeviceIndex>{{1}, {2}});
  CHECK(best.prediction.iteration.ns == 31);
  // Any other pair takes 30 + 100; one device 2 * 30.
  CHECK(best_time_among(problem, [](const Plan& plan) {
          return plan.stages[0].devices != std::vector<DeviceIndex>{{1}, {2}};
        }) == 60);
}

TEST_CASE("recomputation against more stages: the length of a transfer decides") {
  Problem problem = room_for_one({.a_and_b = 10, .c = 20}, 3);
  problem.profile.layers[0].measurements[0].output = {1};
  // Three stages: A sends within 1 ns, C works from 21 to 101, B until 111, and A from 112 on.
  const PlanDocument near = best_plan(problem);
  CHECK(cuts_of(near.plan) == std::vector<std::int32_t>{1, 2});
  CHECK(recomputation_of(near.plan) == std::vector<bool>{false, false, false});
  CHECK(near.prediction.iteration.ns == 122);
  // 50 ns more for each transfer: 222. Then rather A and B together, with recomputation, as with
  // two devices above.
  problem.topology.servers.front().links.port.latency = {50};
  const PlanDocument far = best_plan(problem);
  CHECK(cuts_of(far.plan) == std::vector<std::int32_t>{2});
  CHECK(recomputation_of(far.plan) == std::vector<bool>{true, false});
  CHECK(far.prediction.iteration.ns == 140);
  Pins pins;
  pins.stages = 3;
  CHECK(best_time(problem, pins) == 222);
  pins.stages = {};
  pins.recompute = false;
  CHECK(best_time(problem, pins) == 160);
}
