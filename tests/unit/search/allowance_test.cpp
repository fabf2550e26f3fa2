#include "dapple/search/allowance.h"

#include <catch2/catch.hpp>

using namespace dapple;

TEST_CASE("an allowance ends with the step, or the byte, that is one too many, and stays over") {
  search::Allowance work({.work = 10});
  CHECK(work.spend(10));
  CHECK(!work.spend(1));
  CHECK(work.is_over());
  CHECK(!work.is_stopped());
  CHECK(work.work() == 11);

  search::Allowance kept({.kept = {100}});
  CHECK(kept.keep({100}));
  CHECK(kept.keep({-40}));
  CHECK(kept.kept() == Bytes{60});
  CHECK(kept.keep({40}));
  CHECK(!kept.keep({1}));
  kept.keep({-100});
  CHECK(kept.is_over());
}

TEST_CASE("an allowance asks whether to stop before long, and then ends") {
  int questions = 0;
  search::Allowance allowance({.should_stop = [&] { return ++questions == 2; }});
  CHECK(allowance.spend(1));
  CHECK(questions == 1);
  CHECK(allowance.spend(1));
  CHECK(questions == 1);
  CHECK(!allowance.spend(1'000'000));
  CHECK(allowance.is_stopped());
}
