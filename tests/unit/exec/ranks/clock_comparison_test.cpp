#include "dapple/exec/ranks/clock_comparison.h"

#include <catch2/catch.hpp>

namespace dapple::exec {
namespace {

TEST_CASE("the fastest round trip gives the offset, from its middle") {
  ClockComparison comparison;
  CHECK(comparison.offset() == 0);
  comparison.add(1'000, 5'090, 1'100);  // the middle is 1,050
  CHECK(comparison.offset() == 4'040);
  comparison.add(2'000, 6'005, 2'010);  // the middle is 2,005
  CHECK(comparison.offset() == 4'000);
  comparison.add(3'000, 9'999, 3'010);  // no faster
  CHECK(comparison.offset() == 4'000);
}

TEST_CASE("the clock of rank 0 may be behind") {
  ClockComparison comparison;
  comparison.add(9'000, 20, 9'040);  // the middle is 9,020
  CHECK(comparison.offset() == -9'000);
}

}  // namespace
}  // namespace dapple::exec
