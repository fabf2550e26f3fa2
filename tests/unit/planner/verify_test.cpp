#include "dapple/planner/verify.h"

#include <catch2/catch.hpp>

#include "../../support/pipeline.h"
#include "dapple/planner/planner.h"

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
        evaluate(document.plan, profile, topology, {Contention::Shared}).prediction;
  }

  void claim(Duration bound) {
    document.prediction.lower_bound = bound;
    document.prediction.optimality_gap =
        optimality_gap(std::max(bound, document.prediction.iteration), bound);
    document.search.complete = true;
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
  const Verification verification = verify(tiny.document, tiny.topology);
  CHECK(verification.violations.empty());
  CHECK(verification.bound == BoundCheck::NotStated);
}

TEST_CASE("the time of the best plan is a bound, and a nanosecond more is none") {
  Tiny best(kReplicated);
  REQUIRE(best.document.prediction.iteration == Duration{120});
  best.claim({120});
  const Verification holds = verify(best.document, best.topology);
  CHECK(holds.violations.empty());
  CHECK(holds.bound == BoundCheck::Holds);
  CHECK(holds.partial_plans > 0);

  Tiny straight(kStraight);
  straight.claim({121});
  const Verification refuted = verify(straight.document, straight.topology);
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
  const std::vector<Violation> violations = verify(tiny.document, tiny.topology).violations;
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
  document.prediction = evaluate(document.plan, profile, topology, {Contention::Off}).prediction;
  CHECK(verify(document, topology).violations.empty());
  document.prediction.contention = Contention::Shared;
  CHECK_FALSE(verify(document, topology).violations.empty());
}

TEST_CASE("a space that is too large is given up and not called verified") {
  Tiny best(kReplicated);
  best.claim({120});
  const std::int64_t needed = verify(best.document, best.topology).partial_plans;
  const Verification given_up = verify(best.document, best.topology, needed / 2);
  CHECK(given_up.violations.empty());
  CHECK(given_up.bound == BoundCheck::TooLarge);
  CHECK(given_up.partial_plans <= needed / 2);
}

TEST_CASE("who says stop gets the figures verified and no bound") {
  class Stop : public Progress {
   public:
    void update(const SearchProgress& /*progress*/) override {}
    bool should_stop() override { return true; }
  } stop;
  Tiny best(kReplicated);
  best.claim({120});
  const Verification stopped = verify(best.document, best.topology, kVerificationBudget, &stop);
  CHECK(stopped.violations.empty());
  CHECK(stopped.bound == BoundCheck::TooLarge);
  CHECK(stopped.partial_plans == 0);
}

TEST_CASE("a bound over a space that was cut is left alone") {
  Tiny tiny(kStraight);
  tiny.claim({121});
  tiny.document.search.complete = false;
  const Verification verification = verify(tiny.document, tiny.topology);
  CHECK(verification.bound == BoundCheck::NotComplete);
  CHECK(verification.partial_plans == 0);
  CHECK(verification.violations.empty());
}

TEST_CASE("bound, gap and completeness must not contradict each other") {
  Tiny tiny(kReplicated);
  tiny.claim({60});
  CHECK(tiny.document.prediction.optimality_gap == 0.5);
  const auto places = [&] {
    std::vector<std::string> found;
    for (const Violation& violation : verify(tiny.document, tiny.topology).violations) {
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
  document.prediction = evaluate(document.plan, profile, topology, {Contention::Shared}).prediction;
  document.search.complete = true;
  document.prediction.lower_bound = Duration{60};
  document.prediction.optimality_gap = 0.0;
  REQUIRE(document.prediction.iteration == Duration{60});
  CHECK(verify(document, topology).bound == BoundCheck::Holds);
  document.prediction.lower_bound = Duration{61};
  CHECK(verify(document, topology).bound == BoundCheck::Refuted);
}
