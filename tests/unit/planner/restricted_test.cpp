// Plans for a runtime that can do less: what is proven of them where a search is stopped.
#include "dapple/planner/restricted.h"

#include <catch2/catch.hpp>
#include <optional>
#include <variant>
#include <vector>

#include "../../support/impatient.h"
#include "../../support/pipeline.h"

namespace dapple {
namespace {

struct Found {
  Duration iteration;
  Duration lower_bound;
};

/// What a search ends with; it may end with nothing only where it is stopped.
std::optional<Found> search(const PlannerOptions& options, const PlanRestriction& restriction,
                            Progress* progress) {
  static const ModelProfile profile = small::model_of(std::vector<small::LayerFigures>(
      6, {.forward = 10, .backward = 20, .output = 5, .parameters = 100}));
  static const Topology topology(small::cluster({.servers = 2, .devices = 2}));
  const auto made = make_restricted_plan(profile, topology, options, restriction, progress);
  if (const auto* infeasible = std::get_if<Infeasible>(&made)) {
    CHECK(infeasible->stopped);
    return std::nullopt;
  }
  const Prediction& prediction = std::get<MadePlan>(made).document.prediction;
  REQUIRE(prediction.lower_bound.has_value());
  return Found{prediction.iteration, *prediction.lower_bound};
}

TEST_CASE("a restricted search that is stopped has a plan with a bound that is below every plan") {
  PlannerOptions options;
  options.global_batch_size = 8;
  PlanRestriction restriction{.runtime = "some runtime"};
  for (const bool every_family : {false, true}) {
    options.every_family = every_family;
    if (every_family) {
      restriction.families = {ScheduleFamily::OneFOneB, ScheduleFamily::Interleaved,
                              ScheduleFamily::ZeroBubbleH1};
    }
    const std::optional<Found> whole = search(options, restriction, nullptr);
    REQUIRE(whole);
    int found = 0;
    for (int patience = 1; patience < 4'000; patience = patience * 3 / 2 + 1) {
      CAPTURE(every_family, patience);
      small::Impatient progress(patience);
      const std::optional<Found> part = search(options, restriction, &progress);
      if (!part) continue;
      ++found;
      CHECK(part->lower_bound > Duration{});
      CHECK(part->lower_bound <= whole->iteration);
      CHECK(part->iteration >= whole->lower_bound);
    }
    CHECK(found > 3);
  }
}

}  // namespace
}  // namespace dapple
