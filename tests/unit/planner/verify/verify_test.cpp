#include "dapple/planner/verify/verify.h"

#include <catch2/catch.hpp>

#include <string>
#include <variant>
#include <vector>

#include "../../../support/pipeline.h"

#include "dapple/plan/optimality.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/made_plan.h"

using namespace dapple;

namespace {

/// Two layers of 10 forward and 20 backward per sample, a device for each, and their plan in two
/// stages for four samples one by one: 10 + 10 to the second stage and on, then its 4 * 30, and the
/// first one's last backward 20; transfers take nothing, nothing is reduced: 10 + 120 + 20 = 150.
/// Data parallelism takes 2 * 2 * 30 = 120, and the layers on one device 240.
struct Tiny {
  ModelProfile profile =
      small::model_of(std::vector<small::LayerFigures>(2, {.forward = 10, .backward = 20}));
  Topology topology{small::cluster({.servers = 1, .devices = 2})};
  PlanDocument document;

  explicit Tiny(const small::PlanShape& shape) {
    document.profile = profile;
    document.topology = topology.description();
    document.plan = small::plan_of(profile, shape);
    document.prediction =
        planner::evaluate(document.plan, profile, topology, {Contention::Shared}).prediction;
  }

  void claim(Duration bound) {
    document.prediction.lower_bound = bound;
    document.prediction.optimality_gap =
        optimality_gap(std::max(bound, document.prediction.iteration), bound);
    document.search.complete = true;
  }
};

/// The same with gradients to reduce, independent replicas: by the work alone its bound is below
/// its time. The best plan that there is.
struct Reduced {
  ModelProfile profile = small::model_of(
      std::vector<small::LayerFigures>(2, {.forward = 10, .backward = 20, .parameters = 1000}));
  Topology topology{small::cluster({.servers = 1, .devices = 2})};
  PlanDocument document;

  Reduced() {
    planner::PlannerOptions options;
    options.global_batch_size = 4;
    options.replicas = Replicas::Independent;
    document =
        std::get<planner::MadePlan>(planner::make_plan({profile, topology, options})).document;
  }
};

const small::PlanShape kStraight{
    .micro_batch_size = 1,
    .num_micro_batches = 4,
    .depths = {2, 1},
    .stages = {{.layers = 1, .devices = {0}}, {.layers = 1, .devices = {1}}}};
const small::PlanShape kReplicated{.micro_batch_size = 4,
                                   .num_micro_batches = 1,
                                   .depths = {1},
                                   .stages = {{.layers = 2, .devices = {0, 1}}}};

}  // namespace

TEST_CASE("a plan with the figures of its simulation is verified") {
  const Tiny tiny(kStraight);
  REQUIRE(tiny.document.prediction.iteration == Duration{150});
  const planner::PlanVerification verification = planner::verify(tiny.document, tiny.topology);
  CHECK(verification.violations.empty());
  CHECK(verification.bound == BoundCheck::NotStated);
}

TEST_CASE("the time of the best plan is a bound, and a nanosecond more is none") {
  Tiny best(kReplicated);
  REQUIRE(best.document.prediction.iteration == Duration{120});
  best.claim({120});
  const planner::PlanVerification holds = planner::verify(best.document, best.topology);
  CHECK(holds.violations.empty());
  CHECK(holds.bound == BoundCheck::Proven);
  CHECK(holds.proven == Duration{120});

  Tiny straight(kStraight);
  straight.claim({121});
  const planner::PlanVerification refuted = planner::verify(straight.document, straight.topology);
  CHECK(refuted.bound == BoundCheck::Refuted);
  REQUIRE(refuted.violations.size() == 1);
  CHECK(refuted.violations.front().place == "/predicted/lower_bound_ns");
  // Micro-batches of 1 have no second replica to share them: 2 * 30 twice, of 2 samples each.
  CHECK(refuted.violations.front().message ==
        "expected at most 120, which a plan takes (micro-batches of 2, depths 2; layers [0, 2) on "
        "node0:0 node0:1), got 121");
}

TEST_CASE("each figure that is not the simulation's is named with its place") {
  Tiny tiny(kStraight);
  tiny.document.prediction.iteration.ns += 1;
  tiny.document.prediction.stages[1].backward.ns = 7;
  tiny.document.prediction.devices[0].peak_memory.count += 5;
  const std::vector<Violation> violations =
      planner::verify(tiny.document, tiny.topology).violations;
  REQUIRE(violations.size() == 3);
  CHECK(violations[0].place == "/stages/1/costs/backward_ns");
  CHECK(violations[0].message == "expected 20, got 7");
  CHECK(violations[1].place == "/predicted/iteration_ns");
  CHECK(violations[1].message == "expected 150, got 151");
  CHECK(violations[2].place == "/predicted/devices/0/peak_memory_bytes");
}

TEST_CASE("the plan is simulated as its file says, with contention or without") {
  // Servers of one device: the middle one gets activations and gradients through the same NIC.
  const ModelProfile profile = small::model_of(
      std::vector<small::LayerFigures>(3, {.forward = 10, .backward = 10, .output = 50}));
  const Topology topology(small::cluster({.servers = 3, .devices = 1}));
  PlanDocument document;
  document.profile = profile;
  document.topology = topology.description();
  document.plan = small::plan_of(profile, {.micro_batch_size = 1,
                                           .num_micro_batches = 8,
                                           .depths = {5, 3, 1},
                                           .stages = {{.layers = 1, .devices = {0}},
                                                      {.layers = 1, .devices = {1}},
                                                      {.layers = 1, .devices = {2}}}});
  document.prediction =
      planner::evaluate(document.plan, profile, topology, {Contention::Off}).prediction;
  CHECK(planner::verify(document, topology).violations.empty());
  document.prediction.contention = Contention::Shared;
  CHECK_FALSE(planner::verify(document, topology).violations.empty());
}

TEST_CASE("where plans are too many to be tried, relaxed diagrams prove the bound") {
  const Reduced best;
  const planner::PlanVerification whole = planner::verify(best.document, best.topology);
  const planner::PlanVerification by_diagrams =
      planner::verify(best.document, best.topology, {.budget = whole.partial_plans / 2});
  CHECK(by_diagrams.violations.empty());
  CHECK(by_diagrams.bound == BoundCheck::Proven);
  CHECK(by_diagrams.proof == BoundProof::Diagrams);
  CHECK(by_diagrams.proven == whole.proven);
}

TEST_CASE("a space that takes more than the budget is given up and not called verified") {
  const Reduced best;
  const planner::PlanVerification whole = planner::verify(best.document, best.topology);
  REQUIRE(whole.bound == BoundCheck::Proven);
  CHECK(whole.proof == BoundProof::Exhaustion);
  const planner::PlanVerification given_up =
      planner::verify(best.document, best.topology, {.budget = 0});
  CHECK(given_up.violations.empty());
  CHECK(given_up.bound == BoundCheck::NotProven);
  CHECK_FALSE(given_up.is_whole());
  // No plan does less than half of 4 * 2 * 30 on each device.
  CHECK(given_up.proven >= Duration{120});
  CHECK(given_up.proven < whole.proven);
}

TEST_CASE("no more partial plans are tried than the budget allows") {
  const Reduced best;
  const std::int64_t all = planner::verify(best.document, best.topology).partial_plans;
  REQUIRE(all > 10);
  for (std::int64_t budget = 1; budget <= all + 1; ++budget) {
    const planner::PlanVerification made =
        planner::verify(best.document, best.topology, {.budget = budget});
    CHECK(made.partial_plans <= budget);
    CHECK_FALSE(made.is_stopped);
  }
}

TEST_CASE("who says stop gets the figures verified and no bound") {
  class Stop : public planner::Progress {
   public:
    void update(const planner::SearchProgress& /*progress*/) override {}
    bool should_stop() override { return true; }
  } stop;
  const Reduced best;
  const planner::PlanVerification stopped = verify(best.document, best.topology, {}, &stop);
  CHECK(stopped.violations.empty());
  CHECK(stopped.bound == BoundCheck::NotProven);
  CHECK(stopped.partial_plans == 0);
}

TEST_CASE("a bound over a part of the space that the file does not name is not refuted") {
  Tiny tiny(kStraight);
  tiny.claim({121});
  tiny.document.search.complete = false;
  const planner::PlanVerification verification = planner::verify(tiny.document, tiny.topology);
  CHECK(verification.bound == BoundCheck::NotProven);
  CHECK(verification.partial_plans == 0);
  CHECK(verification.violations.empty());
}

TEST_CASE("of a file that does not say what was asked, figures and bound alone are verified") {
  Tiny best(kReplicated);
  best.claim({120});
  const planner::PlanVerification verification = planner::verify(best.document, best.topology);
  CHECK(verification.bound == BoundCheck::Proven);
  CHECK(verification.unchecked ==
        std::vector<planner::Unchecked>{{planner::UncheckedKind::WhatWasNotAsked}});
  CHECK_FALSE(verification.is_whole());
}

namespace {

PlanDocument made_with(const Tiny& tiny, const planner::PlannerOptions& options) {
  return std::get<planner::MadePlan>(planner::make_plan({tiny.profile, tiny.topology, options}))
      .document;
}

std::vector<std::string> places_of(const PlanDocument& document, const Topology& topology) {
  std::vector<std::string> places;
  for (const Violation& violation : planner::verify(document, topology).violations) {
    places.push_back(violation.place);
  }
  return places;
}

}  // namespace

TEST_CASE("a plan as it was made is verified as a whole, whatever was asked") {
  const Tiny tiny(kStraight);
  planner::PlannerOptions options;
  options.global_batch_size = 4;
  const auto is_whole = [&] {
    const planner::PlanVerification verification =
        planner::verify(made_with(tiny, options), tiny.topology);
    for (const Violation& violation : verification.violations) {
      UNSCOPED_INFO(violation.place << ": " << violation.message);
    }
    return verification.is_whole();
  };
  CHECK(is_whole());
  options.every_family = true;
  CHECK(is_whole());
  options.every_family = false;
  for (const ScheduleFamily family : {ScheduleFamily::GPipe, ScheduleFamily::ZeroBubbleH1}) {
    options.family = family;
    CHECK(is_whole());
  }
  options.family.reset();
  options.bucket_size.reset();
  options.pins.stages = 2;
  CHECK(is_whole());
  options.planner = PlannerKind::Dapple;
  options.micro_batch_size = 2;
  CHECK(is_whole());
}

TEST_CASE("what a file says of its search is made anew from what was asked") {
  const Tiny tiny(kStraight);
  planner::PlannerOptions options;
  options.global_batch_size = 4;
  const PlanDocument made = made_with(tiny, options);
  const auto places_with = [&](const auto& change) {
    PlanDocument document = made;
    change(document);
    return places_of(document, tiny.topology);
  };
  using Places = std::vector<std::string>;
  CHECK(places_with([](PlanDocument&) {}) == Places{});
  CHECK(places_with([](PlanDocument& document) { document.search.searched.clear(); }) ==
        Places{"/search_space/searched"});
  CHECK(places_with([](PlanDocument& document) { document.search.planner = "dapple"; }).front() ==
        "/search_space/planner");
  CHECK(places_with([](PlanDocument& document) { document.search.open = 5; }) ==
        Places{"/search_space/open"});
  CHECK(places_with([](PlanDocument& document) { document.warnings.clear(); }) ==
        Places{"/warnings"});
  CHECK(places_with([](PlanDocument& document) { document.baselines.pop_back(); }) ==
        Places{"/baselines"});
  CHECK(places_with([](PlanDocument& document) {
          document.baselines.front().iteration += document.baselines.front().iteration;
          document.baselines.front().parts.compute += document.baselines.front().parts.total();
        }).front() == "/baselines/0/iteration_ns");
  CHECK(places_with([](PlanDocument& document) { document.request->pins.stages = 2; }) ==
        Places{"/request/pins"});
  CHECK(places_with([](PlanDocument& document) { document.request->bucket_size = Bytes{7}; }) ==
        Places{"/request/bucket_bytes"});
  CHECK(places_with([](PlanDocument& document) {
          document.schedules.push_back({.family = ScheduleFamily::OneFOneB,
                                        .iteration = document.prediction.iteration,
                                        .lower_bound = document.prediction.lower_bound,
                                        .shape = {},
                                        .missing = {},
                                        .reason = {}});
        }).back() == "/schedules");
}

TEST_CASE("buckets that are not closed at the size that the file states are refused") {
  ModelProfile profile = small::model_of(
      std::vector<small::LayerFigures>(2, {.forward = 10, .backward = 20, .parameters = 1000}));
  const Topology topology(small::cluster({.servers = 1, .devices = 2}));
  planner::PlannerOptions options;
  options.global_batch_size = 4;
  options.bucket_size = Bytes{1000};
  options.pins.stages = 1;
  options.pins.replicas = 2;
  PlanDocument document =
      std::get<planner::MadePlan>(planner::make_plan({profile, topology, options})).document;
  CHECK(places_of(document, topology).empty());
  document.plan.gradients.bucket_size = Bytes{2000};
  document.request->bucket_size = Bytes{2000};
  CHECK(places_of(document, topology) ==
        std::vector<std::string>{"/stages/0/costs/gradient_buckets_bytes"});
}

TEST_CASE("bound, gap and completeness must not contradict each other") {
  Tiny tiny(kReplicated);
  tiny.claim({60});
  CHECK(tiny.document.prediction.optimality_gap == 0.5);
  const auto places = [&] {
    std::vector<std::string> found;
    for (const Violation& violation : planner::verify(tiny.document, tiny.topology).violations) {
      found.push_back(violation.place);
    }
    return found;
  };
  using Places = std::vector<std::string>;
  CHECK(places() == Places{});
  tiny.document.search.cut = {"some placements"};
  CHECK(places() == Places{"/search_space/complete"});
  tiny.document.search.cut.clear();
  tiny.document.prediction.optimality_gap = 0.25;
  CHECK(places() == Places{"/predicted/optimality_gap"});
  tiny.document.prediction.optimality_gap.reset();
  CHECK(places() == Places{"/predicted/optimality_gap"});
  tiny.document.prediction.lower_bound.reset();
  CHECK(places() == Places{"/predicted/lower_bound_ns"});
  tiny.document.prediction.optimality_gap = 0.5;
  tiny.document.search.complete = false;
  CHECK(places() == Places{"/predicted/optimality_gap"});
}

TEST_CASE("a plan that does not fit has a bound over plans that need not fit either") {
  // Weights and gradients of both layers are 4,000 bytes; a device has 3,000.
  ModelProfile profile = small::model_of(
      std::vector<small::LayerFigures>(2, {.forward = 10, .backward = 20, .parameters = 1000}));
  TopologyDescription description = small::cluster({.servers = 1, .devices = 1});
  description.devices.front().memory = {3000};
  const Topology topology(description);
  PlanDocument document;
  document.profile = profile;
  document.topology = description;
  document.plan = small::plan_of(profile, {.micro_batch_size = 1,
                                           .num_micro_batches = 1,
                                           .depths = {1},
                                           .stages = {{.layers = 2, .devices = {0}}}});
  document.prediction =
      planner::evaluate(document.plan, profile, topology, {Contention::Shared}).prediction;
  document.search.complete = true;
  document.prediction.lower_bound = Duration{60};
  document.prediction.optimality_gap = 0.0;
  REQUIRE(document.prediction.iteration == Duration{60});
  CHECK(planner::verify(document, topology).bound == BoundCheck::Proven);
  document.prediction.lower_bound = Duration{61};
  CHECK_FALSE(planner::verify(document, topology).violations.empty());
}
