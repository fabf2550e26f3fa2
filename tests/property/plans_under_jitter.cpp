// Plans that are chosen by their median: against the plan that the same search finds without
// jitter, in the same draws.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "../support/clusters.h"
#include "../support/dice.h"
#include "../support/impatient.h"
#include "../support/models.h"
#include "../support/scaled.h"
#include "dapple/io/documents/documents.h"
#include "dapple/plan/optimality.h"
#include "dapple/planner/candidates/jitter.h"
#include "dapple/planner/parallelism/plan_parallelisms.h"
#include "dapple/planner/verify/verify.h"

using namespace dapple;

namespace {

std::optional<planner::MadePlan> plan_for(const ModelProfile& profile, const Topology& topology,
                                          const planner::PlannerOptions& options,
                                          planner::Progress* progress = nullptr) {
  auto made =
      planner::make_plan_of_any_parallelism({profile, topology, options, progress}, std::nullopt);
  auto* plan = std::get_if<planner::MadePlan>(&made);
  return plan == nullptr ? std::nullopt : std::optional(std::move(*plan));
}

/// A chain of layers whose activations are not much smaller than their parameters.
ModelProfile random_model(small::Dice& dice) {
  std::vector<small::LayerFigures> figures;
  for (std::int64_t l = dice.roll(4, 6); l > 0; --l) {
    figures.push_back({.forward = dice.roll(200, 600),
                       .backward = dice.roll(400, 1200),
                       .output = dice.roll(0, 900),
                       .parameters = dice.roll(0, 4000),
                       .stash = dice.roll(1, 100),
                       .workspace = 0});
  }
  return small::model_of(figures);
}

/// Up to four devices, with memory for some of the model in half of the clusters.
Topology random_cluster(small::Dice& dice) {
  const auto servers = static_cast<std::int32_t>(dice.roll(1, 4));
  const std::int32_t devices = servers < 3 ? 2 : 1;
  TopologyDescription description =
      small::cluster({.servers = servers,
                      .devices = devices,
                      .inside = {small::bytes_per_ns(dice.roll(1, 9)), {dice.roll(0, 5)}},
                      .nics = {Link{small::bytes_per_ns(dice.roll(1, 3)), {dice.roll(0, 50)}}}});
  if (dice.chance(50)) description.devices.front().memory = {dice.roll(12'000, 40'000)};
  return Topology(description);
}

/// The rounds ask for these in turn, families and forms of parallelism included.
planner::PlannerOptions options_of(int round) {
  planner::PlannerOptions options;
  options.global_batch_size = round == 1 ? 4 : 8 << round % 2;
  options.baselines = round % 4 < 2;
  switch (round % 6) {
    case 1:
      // That takes the longest, so only one small round has it.
      options.every_family = round == 1;
      break;
    case 2:
      options.planner = PlannerKind::Dapple;
      break;
    case 3:
      options.sharding = Sharding::Any;
      break;
    case 4:
      options.family = ScheduleFamily::GPipe;
      break;
    case 5:
      options.replicas = Replicas::Independent;
      break;
    default:
      break;
  }
  return options;
}

/// Checks the figures of a plan against those of the fastest one.
void check_choice(const planner::MadePlan& chosen, const planner::MadePlan& fastest,
                  const JitterRequest& jitter) {
  const Prediction& prediction = chosen.document.prediction;
  const Duration least = fastest.document.prediction.iteration;
  CHECK(chosen.document.search.fastest == least);
  CHECK(prediction.iteration >= least);
  CHECK(prediction.iteration <= slowest_choice(least, jitter));
  CHECK(prediction.lower_bound == fastest.document.prediction.lower_bound);
  CHECK(chosen.document.search.open == fastest.document.search.open);
  CHECK(chosen.document.schedules == fastest.document.schedules);
  CHECK(chosen.document.parallelisms == fastest.document.parallelisms);
  CHECK(chosen.evaluation.shortages.empty());
  const auto figures_of = [&](const planner::MadePlan& made) {
    const Topology topology{made.document.topology};
    return planner::jitter_of(made.evaluation, topology, prediction.mode(), jitter, 2);
  };
  const JitterFigures of_fastest = figures_of(fastest);
  CHECK(prediction.jitter == figures_of(chosen));
  CHECK(chosen.under_jitter->median_of_fastest == of_fastest.median);
  CHECK(prediction.jitter->median <= of_fastest.median);
}

}  // namespace

TEST_CASE(
    "no plan that is chosen by its median varies more than the fastest, and all is verified") {
  small::Dice dice(4401);
  int others = 0;
  int better = 0;
  for (int round = 0; round < small::scaled(18); ++round) {
    const ModelProfile profile = random_model(dice);
    const Topology topology = random_cluster(dice);
    planner::PlannerOptions options = options_of(round);
    INFO("round " << round);
    const auto fastest = plan_for(profile, topology, options);
    options.jitter = JitterRequest{.deviation = {kOne.billionths / (round % 3 == 0 ? 3 : 10)},
                                   .seed = 1 + static_cast<std::uint64_t>(round)};
    options.threads = 3;
    auto chosen = plan_for(profile, topology, options);
    REQUIRE(chosen.has_value() == fastest.has_value());
    if (!chosen) continue;
    check_choice(*chosen, *fastest, *options.jitter);
    const PlanDocument& document = chosen->document;
    if (document.prediction.iteration != fastest->document.prediction.iteration) ++others;
    if (document.prediction.jitter->median < chosen->under_jitter->median_of_fastest) ++better;
    options.threads = 1;
    CHECK(io::write_plan(document) ==
          io::write_plan(plan_for(profile, topology, options)->document));
    const planner::PlanVerification verified =
        planner::verify(document, Topology{document.topology});
    for (const Violation& fault : verified.violations) CHECK(fault.place + fault.message == "");
    CHECK(verified.unchecked.empty());
  }
  CHECK(others >= 1);
  CHECK(better >= small::scaled(4));
}

TEST_CASE("a search that is stopped leaves a plan with all its figures") {
  small::Dice dice(4402);
  for (int round = 0; round < 12; ++round) {
    const ModelProfile profile = random_model(dice);
    const Topology topology = random_cluster(dice);
    planner::PlannerOptions options = options_of(round);
    options.jitter = JitterRequest{.deviation = {kOne.billionths / 10}};
    small::Impatient progress(1 << round);
    const auto chosen = plan_for(profile, topology, options, &progress);
    if (!chosen) continue;
    const Prediction& prediction = chosen->document.prediction;
    CHECK(prediction.jitter ==
          planner::jitter_of(chosen->evaluation, topology, prediction.mode(), *options.jitter, 1));
    CHECK(prediction.jitter->median <= chosen->under_jitter->median_of_fastest);
    CHECK(*chosen->document.search.fastest <= prediction.iteration);
  }
}
