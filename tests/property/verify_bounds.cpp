#include <catch2/catch.hpp>
#include <optional>

#include "../oracle/planner_oracle.h"
#include "../support/clusters.h"
#include "../support/crowded_ways.h"
#include "../support/random_planning_problem.h"
#include "dapple/plan/optimality.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/verify/make_proof.h"
#include "dapple/planner/verify/verify.h"
#include "dapple/search/bounds/bound.h"

using namespace dapple;

namespace {

/// More than any of these problems takes.
constexpr std::int64_t kThrough = 2'000'000;

struct Fastest {
  Plan plan;
  Duration iteration{INT64_MAX};
  Plan slower;  // a plan that is not the fastest, if there is one
  Duration slower_iteration;
};

/// What varies beside the problem.
struct Setting {
  SimulationMode mode = {};
  ScheduleFamily family = ScheduleFamily::OneFOneB;
};

bool is_of_family(const Plan& plan, ScheduleFamily family) {
  return family == ScheduleFamily::OneFOneB || plan.warmup_depths.back() == plan.num_micro_batches;
}

/// Of all plans that fit, at whatever devices and depths; nothing is held to be alike. With all
/// micro-batches in flight everywhere, 1F1B has GPipe's order.
Fastest fastest_of_all(const small::Problem& problem, const Topology& topology,
                       const Setting& setting) {
  Fastest best;
  small::for_each_plan(problem, topology, false, [&](const Plan& plan, const PlanCost& cost) {
    if (!is_of_family(plan, setting.family)) return;
    if (!mode_faults(plan, setting.mode).empty()) return;
    const SimulationMode whatever{Contention::Off, setting.mode.replicas, setting.mode.transfers};
    if (search::lower_bound({plan, cost, topology, whatever}) >= best.iteration) return;
    const Duration iteration =
        simulate::simulate(generate(plan, setting.mode.replicas), cost, topology,
                           {.contention = setting.mode.contention,
                            .transfers = setting.mode.transfers,
                            .record = false})
            .iteration;
    if (iteration > best.slower_iteration) {
      best.slower = plan;
      best.slower_iteration = iteration;
    }
    if (iteration < best.iteration) {
      best.plan = plan;
      best.iteration = iteration;
    }
  });
  return best;
}

}  // namespace

TEST_CASE("the fastest time of all plans is verified as their bound, one nanosecond more refuted") {
  small::Dice dice(1101);
  small::Dice ways(1102);
  int verified = 0;
  int refuted = 0;
  for (int round = 0; round < small::scaled(150); ++round) {
    small::Problem problem = small::random_problem(dice, 4, 4);
    if (round % 2 == 1) {
      const auto link = [&] {
        return Link{small::bytes_per_ns(ways.roll(1, 8)), {ways.roll(0, 5)}};
      };
      small::crowd_ways(ways, link, problem.topology);
    }
    const Topology topology(problem.topology);
    const Setting setting{
        .mode = {round % 3 == 0 ? Contention::Off : Contention::Shared,
                 round % 2 == 0 ? Replicas::Independent : Replicas::Together,
                 round % 2 == 0   ? Transfers::Overlapped
                 : round % 4 == 1 ? Transfers::Blocking
                                  : Transfers::Serial},
        .family = round % 5 == 0 ? ScheduleFamily::GPipe : ScheduleFamily::OneFOneB};
    const Fastest best = fastest_of_all(problem, topology, setting);
    if (best.plan.stages.empty()) continue;
    PlanDocument document;
    document.profile = problem.profile;
    document.topology = problem.topology;
    document.search.complete = true;
    const auto verified_with = [&](const Plan& plan, Duration bound) {
      document.plan = plan;
      document.plan.family = setting.family;
      document.prediction =
          planner::evaluate(document.plan, problem.profile, topology, setting.mode).prediction;
      document.prediction.lower_bound = bound;
      document.prediction.optimality_gap = optimality_gap(document.prediction.iteration, bound);
      return planner::verify(document, topology, {.budget = kThrough});
    };
    const planner::PlanVerification holds = verified_with(best.plan, best.iteration);
    INFO("round " << round);
    CHECK(holds.violations.empty());
    REQUIRE(holds.bound == BoundCheck::Proven);
    ++verified;
    const planner::MadeProof made = planner::make_proof(document, topology, std::nullopt);
    CHECK(made.unproven.empty());
    const auto verified_by_proof = [&] {
      return planner::verify(document, topology, {.proof = &made.document});
    };
    const planner::PlanVerification by_proof = verified_by_proof();
    CHECK(by_proof.proof_faults.empty());
    CHECK(by_proof.bound == BoundCheck::Proven);
    CHECK(by_proof.proof == BoundProof::ProofFile);
    const planner::VerifyOptions little{.budget = 1 + round % 40};
    const BoundCheck hardly = planner::verify(document, topology, little).bound;
    CHECK((hardly == BoundCheck::Proven || hardly == BoundCheck::NotProven));
    if (best.slower_iteration <= best.iteration) continue;
    REQUIRE(verified_with(best.slower, best.iteration + Duration{1}).bound == BoundCheck::Refuted);
    ++refuted;
    CHECK_FALSE(planner::make_proof(document, topology, std::nullopt).unproven.empty());
    CHECK(verified_by_proof().bound != BoundCheck::Proven);
    CHECK(planner::verify(document, topology, little).bound != BoundCheck::Proven);
  }
  CHECK(verified > small::scaled(100));
  CHECK(refuted > small::scaled(50));
}

TEST_CASE("what is planned under any order, or under every family, is verified") {
  small::ProblemMaker maker(1103, {.layers = 4, .devices = 4, .global_batch = 6});
  small::Dice dice(1104);
  int above_work = 0;
  for (int round = 0; round < small::scaled(300); ++round) {
    const small::PlanningProblem made = maker.next();
    const ModelProfile& profile = made.problem.profile;
    const Topology topology(made.problem.topology);
    planner::PlannerOptions options{.global_batch_size = made.problem.global_batch,
                                    .contention = made.contention};
    options.every_family = dice.chance(50);
    if (!options.every_family) options.family = ScheduleFamily::ListScheduled;
    // Many depths and bucket sizes take long, and the order is what is tried here.
    if (dice.chance(40)) options.micro_batch_size = options.global_batch_size;
    if (dice.chance(30)) options.pins.stages = 1;
    const auto planned = planner::make_plan({profile, topology, options});
    const auto* const plan = std::get_if<planner::MadePlan>(&planned);
    if (plan == nullptr) continue;
    const PlanDocument& document = plan->document;
    const planner::PlanVerification found =
        planner::verify(document, topology, {.budget = kThrough});
    const std::string fault = found.violations.empty() ? ""
                                                       : found.violations.front().place + ": " +
                                                             found.violations.front().message;
    INFO("round " << round);
    REQUIRE(fault == "");
    REQUIRE(found.bound == BoundCheck::Proven);
    REQUIRE(found.unchecked.empty());
    if (!options.every_family && found.proof != BoundProof::LeastWork) ++above_work;
  }
  CHECK(above_work >= small::scaled(20));
}
