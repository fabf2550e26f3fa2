#include "dapple/plan/optimality.h"

#include <catch2/catch.hpp>
#include <optional>

namespace dapple {
namespace {

TEST_CASE("the threshold is the iteration less the allowed gap, rounded down") {
  // 1 % of 1050 is 10.5, of which 10 are allowed.
  CHECK(gap_threshold({1050}, {kOne.billionths / 100}) == Duration{1040});
  CHECK(gap_threshold({1050}, {}) == Duration{1050});
  CHECK(gap_threshold(Duration::infinite(), {kOne.billionths / 100}).is_infinite());
  CHECK(is_within_gap({1050}, {1040}, {kOne.billionths / 100}));
  CHECK_FALSE(is_within_gap({1050}, {1039}, {kOne.billionths / 100}));
}

TEST_CASE("a proven bound is at most the iteration, and goes with its gap") {
  Prediction prediction;
  prediction.iteration = {200};
  set_proven_bound(prediction, Duration{150});
  CHECK(prediction.lower_bound == Duration{150});
  CHECK(*prediction.optimality_gap == 0.25);
  CHECK_FALSE(is_gap_closed(prediction));
  set_proven_bound(prediction, Duration{250});
  CHECK(prediction.lower_bound == Duration{200});
  CHECK(*prediction.optimality_gap == 0);
  CHECK(is_gap_closed(prediction));
  set_proven_bound(prediction, std::nullopt);
  CHECK_FALSE(prediction.lower_bound);
  CHECK_FALSE(prediction.optimality_gap);
  CHECK_FALSE(is_gap_closed(prediction));
}

TEST_CASE("a requested gap is reached by the exact planner's bound alone") {
  PlanDocument document;
  document.prediction.iteration = {1000};
  document.request = PlanRequest{};
  document.request->target_gap = {kOne.billionths / 10};
  set_proven_bound(document.prediction, Duration{900});
  CHECK(has_reached_gap(document));
  CHECK(is_search_done(document));
  // With every family, or for a target, the search goes on until the gap is closed.
  document.request->target = "megatron";
  CHECK_FALSE(is_search_done(document));
  set_proven_bound(document.prediction, Duration{1000});
  CHECK(is_search_done(document));
  set_proven_bound(document.prediction, Duration{899});
  CHECK_FALSE(has_reached_gap(document));
  set_proven_bound(document.prediction, Duration{1000});
  document.request->planner = PlannerKind::Dapple;
  CHECK_FALSE(has_reached_gap(document));
}

TEST_CASE("what the search proved is about the fastest plan that it found") {
  PlanDocument document;
  document.prediction.iteration = {1040};
  document.request = PlanRequest{};
  set_proven_bound(document.prediction, Duration{1000});
  CHECK(fastest_found(document) == Duration{1040});
  CHECK_FALSE(has_reached_gap(document));
  document.search.fastest = Duration{1000};
  CHECK(fastest_found(document) == Duration{1000});
  CHECK(is_gap_closed(document));
  CHECK_FALSE(is_gap_closed(document.prediction));
  CHECK(has_reached_gap(document));
  CHECK(is_search_done(document));
  // A stop may have kept plans from being compared.
  document.request->jitter = JitterRequest{.deviation = {kOne.billionths / 25}};
  CHECK_FALSE(is_search_done(document));
  // 4 % of 1012 is 40.48.
  CHECK(slowest_choice({1012}, *document.request->jitter) == Duration{1052});
}

}  // namespace
}  // namespace dapple
