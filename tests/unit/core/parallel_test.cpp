#include "dapple/core/parallel.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <stdexcept>
#include <string>

using namespace dapple;

TEST_CASE("idle threads are taken as often as there are any") {
  IdleThreads idle(1);
  CHECK(idle.take());
  CHECK_FALSE(idle.take());
  idle.give();
  idle.give();
  CHECK(idle.take());
  CHECK(idle.take());
  CHECK_FALSE(idle.take());
}

TEST_CASE("threads for which there is no call are idle") {
  IdleThreads idle;
  int calls = 0;
  parallel_for(
      1, 3,
      [&](std::size_t) {
        ++calls;
        CHECK(idle.take());
        CHECK(idle.take());
        CHECK_FALSE(idle.take());
      },
      &idle);
  CHECK(calls == 1);
}

TEST_CASE("a thread is idle while the last call of another one runs") {
  IdleThreads idle;
  std::atomic<bool> was_idle{false};
  parallel_for(
      2, 2,
      [&](std::size_t i) {
        if (i == 0) return;
        while (!idle.take()) std::this_thread::yield();
        was_idle = true;
      },
      &idle);
  CHECK(was_idle);
}

TEST_CASE("of several exceptions that of the lowest call is thrown on") {
  try {
    parallel_for(4, 2, [](std::size_t i) {
      if (i > 0) throw std::runtime_error(std::to_string(i));
    });
    FAIL("nothing was thrown");
  } catch (const std::runtime_error& error) { CHECK(std::string(error.what()) == "1"); }
}
