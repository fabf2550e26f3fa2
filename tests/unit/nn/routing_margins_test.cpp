#include "dapple/nn/routing_margins.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace dapple::nn {
namespace {

TEST_CASE("the smallest margin is that between the last expert and the next one") {
  RoutingMargins margins;
  CHECK_FALSE(margins.smallest().has_value());
  const auto log = [](double probability) { return static_cast<float>(std::log(probability)); };
  // The last two of a position may be as close as they like, and the first two.
  margins.add(
      {{2, 4},
       {log(0.1), log(0.5), log(0.3), log(0.1), log(0.45), log(0.05), log(0.45), log(0.05)}},
      2);
  REQUIRE(margins.smallest().has_value());
  CHECK(margins.smallest()->position == 0);
  CHECK(margins.smallest()->chosen == Approx(0.3));
  CHECK(margins.smallest()->next == Approx(0.1));
  CHECK(margins.smallest()->size() == Approx(0.2));
  // Positions go on counting, and a constant added to all scores changes nothing.
  margins.add({{2, 4},
               {log(0.4), log(0.4), log(0.1), log(0.1), 50 + log(0.24), 50 + log(0.26),
                50 + log(0.25), 50 + log(0.25)}},
              3);
  CHECK(margins.smallest()->position == 2);
  CHECK(margins.smallest()->size() == 0);  // of equals the first
  CHECK(margins.smallest()->chosen == Approx(0.1));
  margins.clear();
  CHECK_FALSE(margins.smallest().has_value());
  margins.add({{1, 2}, {3, 1}}, 2);  // all are chosen
  CHECK_FALSE(margins.smallest().has_value());
  margins.add({{1, 2}, {log(0.75), log(0.25)}}, 1);
  CHECK(margins.smallest()->position == 0);
  CHECK(margins.smallest()->size() == Approx(0.5));
}

}  // namespace
}  // namespace dapple::nn
