#include "dapple/plan/record_text.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "dapple/plan/warning_text.h"

namespace dapple {
namespace {

TEST_CASE("the figures of a line are read where its pattern has them") {
  CHECK(figures_in(kTooLongPattern, cut_too_long(3, 12)) == std::vector<double>{3, 12});
  CHECK(figures_in(kPlacementsPattern, cut_placements(1.234)) == std::vector<double>{1.23});
  CHECK(figures_in(kNarrowedPattern, cut_narrowed(0)) == std::vector<double>{0});
  CHECK(figures_in(shapes_pattern(ScheduleFamily::ZeroBubbleV),
                   cut_shapes(ScheduleFamily::ZeroBubbleV, 7)) == std::vector<double>{7});
  CHECK(figures_in(kMissingPattern, warning_of_missing({5})) == std::vector<double>{5});
  CHECK(figures_in(kCutOrders, kCutOrders) == std::vector<double>{});
}

TEST_CASE("a line of another pattern, or without its figures, has no figures") {
  CHECK_FALSE(figures_in(kNarrowedPattern, cut_not_simulated(4)));
  CHECK_FALSE(figures_in(kNarrowedPattern, std::string(kNarrowedPattern)));
  CHECK_FALSE(figures_in(kNarrowedPattern, cut_narrowed(4) + "!"));
  CHECK_FALSE(figures_in(kMissingPattern, "does not fit: some bytes missing"));
  CHECK_FALSE(figures_in(shapes_pattern(ScheduleFamily::ZeroBubbleV),
                         cut_shapes(ScheduleFamily::ZeroBubbleH1, 7)));
}

TEST_CASE("the reason of a family says what was found and how much faster it may be") {
  using Kind = FamilyOutcomeKind;
  CHECK(text_of({.kind = Kind::IsPlan, .plan = {200}, .lower_bound = Duration{200}}) ==
        "this plan; none is faster");
  // (200 - 199) / 200 is 0.5 %.
  CHECK(text_of({.kind = Kind::Stopped, .plan = {200}, .lower_bound = Duration{199}}) ==
        "stopped before it was searched; none is over 0.5 % faster");
  CHECK(text_of({.kind = Kind::Found, .plan = {200}, .found = {200}}) == "found as fast");
  // (206 - 200) / 200 is 3 %, and a bound of 199.9 would be 0.05 %: rounded up.
  CHECK(text_of({.kind = Kind::Found,
                 .plan = {2000},
                 .found = {2060},
                 .lower_bound = Duration{1999},
                 .messages = 2}) == "found 3 % slower, 2 x messages; none is over 0.1 % faster");
  CHECK(text_of({.kind = Kind::NotSearched,
                 .plan = {200},
                 .lower_bound = Duration{200},
                 .bubble = 0.0125}) == "none is faster; the bubble is 1.2 %");
  CHECK(text_of({.kind = Kind::NoneFits}) == "no plan of it fits memory");
}

TEST_CASE("the warning about a gap names its causes, and is recognized in older files") {
  const std::string spent = warning_of(GapCauses{.is_budget_spent = true});
  CHECK(spent == kSpentBudget);
  CHECK(is_gap_warning(spent));
  CHECK(warning_of(GapCauses{
            .were_searches_too_long = true,
            .untried_placements = true,
            .untried_families = {ScheduleFamily::ZeroBubbleV, ScheduleFamily::Interleaved}}) ==
        "some of the searches would have taken too long, and the bound holds also for placements "
        "and plans of zb-v, interleaved that were not tried: more time would not close the gap");
  CHECK_FALSE(is_gap_warning(kUnlimitedMemoryWarning));
}

TEST_CASE("by how much the best plan of a form is slower is rounded up, never to nothing") {
  ParallelismReason reason{
      .kind = ParallelismOutcomeKind::Found, .plan = Duration{1'000'000}, .found = Duration{}};
  const std::string begin = "only faster plans were looked for; the best one seen is ";
  for (const auto& [found, tenths, whole] : {std::tuple{1'000'001, "0.1", "1"},
                                             {1'001'000, "0.1", "1"},
                                             {1'001'001, "0.2", "1"},
                                             {1'010'000, "1.0", "2"},
                                             {1'098'765, "9.9", "10"},
                                             {2'500'000, "150.0", "150"}}) {
    reason.found = Duration{found};
    CHECK(text_of(reason) == begin + tenths + " % slower");
    // Older versions rounded in floating point.
    CHECK(older_text_of(reason) == begin + whole + " % slower");
  }
  reason.found = reason.plan;
  CHECK(text_of(reason) == "one as fast was found");
  CHECK(older_text_of(reason) == text_of(reason));
}

}  // namespace
}  // namespace dapple
