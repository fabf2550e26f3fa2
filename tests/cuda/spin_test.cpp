#include "dapple/cuda/kernels/spin.h"

#include <catch2/catch.hpp>

using namespace dapple;

namespace {

constexpr Bytes kMemory{1 << 20};

}  // namespace

TEST_CASE("what spins takes at least as long as it is to, less what is measured of a launch",
          "[cuda]") {
  cuda::Device device(0, kMemory);
  cuda::Spin spin(device);
  constexpr std::int64_t kLaunch = 50'000;  // far more than a launch takes
  for (const std::int64_t length : {0, 100'000, 3'000'000}) {
    cuda::Event begin;
    cuda::Event end;
    begin.record(device.compute());
    spin.restart();
    spin.pass_until({length});
    end.record(device.compute());
    end.wait();
    CHECK(end.since(begin).ns >= length - kLaunch);
  }
}

TEST_CASE("moments count from the first kernel since the restart", "[cuda]") {
  cuda::Device device(0, kMemory);
  cuda::Spin spin(device);
  constexpr Duration kWhole{4'000'000};
  cuda::Event begin;
  cuda::Event middle;
  cuda::Event end;
  begin.record(device.compute());
  spin.restart();
  spin.pass_until({kWhole.ns / 2});
  middle.record(device.compute());
  spin.pass_until(kWhole);
  spin.pass_until({kWhole.ns / 4});  // which is over
  end.record(device.compute());
  end.wait();
  // Where another program takes the time, the first half may be longer than it is to be: then the
  // second is shorter.
  CHECK(end.since(begin).ns >= kWhole.ns * 9 / 10);
  CHECK(middle.since(begin).ns >= kWhole.ns * 4 / 10);
  CHECK(end.since(begin) > middle.since(begin));
}

TEST_CASE("a spin holds no more than a number of its device's memory", "[cuda]") {
  cuda::Device device(0, kMemory);
  {
    const cuda::Spin spin(device);
    CHECK(device.memory_in_use().count <= 512);
  }
  CHECK(device.memory_in_use().count == 0);
}
