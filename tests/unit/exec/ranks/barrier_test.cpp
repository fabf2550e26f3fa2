#include "dapple/exec/ranks/barrier.h"

#include <catch2/catch.hpp>

namespace dapple::exec {
namespace {

TEST_CASE("barriers are numbered, and a release counts for its barrier and those before") {
  Barrier barrier;
  CHECK(barrier.arrive() == 1);
  CHECK_FALSE(barrier.is_released(1));
  barrier.release(1);
  CHECK(barrier.is_released(1));
  CHECK(barrier.arrive() == 2);
  CHECK_FALSE(barrier.is_released(2));
  barrier.release(2);
  CHECK(barrier.is_released(1));
  CHECK(barrier.is_released(2));
}

TEST_CASE("the root counts each rank once, and names the lowest that is missing") {
  Barrier barrier;
  CHECK(barrier.missing() == 0);
  barrier.note_arrival(2);
  barrier.note_arrival(2);
  CHECK(barrier.arrivals() == 1);
  CHECK(barrier.missing() == 0);
  barrier.note_arrival(0);
  CHECK(barrier.arrivals() == 2);
  CHECK(barrier.missing() == 1);
  barrier.note_arrival(1);
  CHECK(barrier.arrivals() == 3);
  CHECK(barrier.missing() == 3);
}

TEST_CASE("the next barrier starts with nobody") {
  Barrier barrier;
  barrier.note_arrival(0);
  barrier.note_arrival(1);
  barrier.complete();
  CHECK(barrier.arrivals() == 0);
  CHECK(barrier.missing() == 0);
}

}  // namespace
}  // namespace dapple::exec
