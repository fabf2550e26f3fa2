// Times of paced messages are checked against what they must last at least; how much longer they
// take is this machine's business.

#include "dapple/exec/message/thread_transport.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>

#include "../../../support/job.h"
#include "../message_key.h"

namespace dapple::exec {
namespace {

using namespace small;
using namespace std::chrono_literals;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Two servers of two devices; what leaves a server shares a NIC of 1 MB/ms.
Topology two_servers() {
  return Topology(cluster({.servers = 2,
                           .devices = 2,
                           .inside = {bytes_per_ns(10), {}},
                           .nics = {{bytes_per_ns(1), {1'000'000}}}}));
}

TEST_CASE("messages are taken in by name, in any order") {
  const Topology topology = two_servers();
  ThreadNetwork network(topology, all_devices(topology), {});
  const auto sender = network.end_of({0});
  const auto receiver = network.end_of({1});
  sender->send(key(0, 1, 1), payload_of({1}));
  sender->send(key(0, 1, 2), payload_of({2}));
  CHECK(floats_of(receiver->receive(key(0, 1, 2), {})) == std::vector<float>{2});
  CHECK(floats_of(receiver->receive(key(0, 1, 1), {})) == std::vector<float>{1});
  CHECK(network.sent().count == 8);
}

TEST_CASE("bytes in a device's memory stay there until someone wants them on the host") {
  struct Numbered : DeviceBytes {
    std::size_t size() const override { return 3; }
    void await() const override {}
    HostBytes on_host() const override { return {std::byte{1}, std::byte{2}, std::byte{3}}; }
  };
  const Topology topology = two_servers();
  ThreadNetwork network(topology, all_devices(topology), {});
  auto bytes = std::make_unique<Numbered>();
  const DeviceBytes* const sent = bytes.get();
  network.end_of({0})->send(key(0, 1), Payload(std::move(bytes)));
  Payload payload =
      network.end_of({1})->receive(key(0, 1), {.size = Bytes{3}, .memory = Memory::Device});
  CHECK(payload.device() == sent);
  CHECK(payload.memory() == Memory::Device);
  CHECK(payload.size() == 3);
  CHECK(network.sent().count == 3);
  payload.bring_to_host();
  CHECK(payload.memory() == Memory::Host);
  REQUIRE(payload.size() == 3);
  CHECK(payload.host()[2] == std::byte{3});
}

TEST_CASE("a paced message takes its size over the bandwidth, and the latency") {
  // 2,000,000 bytes at 1 byte per ns: 2 ms; then 1 ms of latency; both three times as long.
  const Topology topology = two_servers();
  ThreadNetwork network(topology, all_devices(topology),
                        {.pacing = Pacing{.pace = Factor{3'000'000'000}}});
  const auto sender = network.end_of({0});
  const auto receiver = network.end_of({2});
  const std::int64_t start = now_ns();
  const std::int64_t arrival = sender->send(key(0, 2), HostBytes(2'000'000));
  CHECK(now_ns() - start >= 6'000'000);
  CHECK(arrival - start >= 9'000'000);
  receiver->receive(key(0, 2), {});
  CHECK(now_ns() >= arrival);
}

TEST_CASE("messages through one NIC share it, and those through two do not") {
  const Topology topology = two_servers();
  struct Both {
    std::int64_t start[2] = {};
    std::int64_t arrival[2] = {};
  };
  const auto send_both = [&](std::int32_t from, std::int32_t to) {
    ThreadNetwork network(topology, all_devices(topology), {.pacing = Pacing{}});
    Both both;
    side_by_side(2, [&](std::size_t i) {
      const MessageKey message = i == 0 ? key(0, 2) : key(from, to);
      Payload payload(HostBytes(4'000'000));
      both.start[i] = now_ns();
      both.arrival[i] = network.end_of(message.from)->send(message, std::move(payload));
    });
    return both;
  };
  // 8 MB out of the first server's NIC: 8 ms and the latency.
  const Both shared = send_both(1, 3);
  CHECK(std::max(shared.arrival[0], shared.arrival[1]) -
            std::min(shared.start[0], shared.start[1]) >=
        9'000'000);
  // There and back are different directions. Of several tries one is not disturbed.
  std::int64_t quickest = INT64_MAX;
  for (int i = 0; i < 20; ++i) {
    const Both apart = send_both(3, 1);
    quickest = std::min(
        quickest, std::max(apart.arrival[0] - apart.start[0], apart.arrival[1] - apart.start[1]));
  }
  CHECK(quickest >= 5'000'000);
  CHECK(quickest < 9'000'000);
}

TEST_CASE("who waits for a message that never comes is told which one") {
  const Topology topology = two_servers();
  ThreadNetwork network(topology, all_devices(topology), {.pacing = {}, .timeout = 20ms});
  const auto receiver = network.end_of({2});
  REQUIRE_THROWS_WITH(receiver->receive(key(1, 2, 7), {}),
                      "node1:0: 5SEND_F7: expected a message from node0:1 within 0.02 s, got none");
  REQUIRE_THROWS_WITH(receiver->barrier(),
                      "node1:0: barrier: expected all 4 devices within 0.02 s, got 1");
}

TEST_CASE("one end that gives up wakes all that wait") {
  const Topology topology = two_servers();
  ThreadNetwork network(topology, all_devices(topology), {});
  int aborted = 0;
  std::vector<int> seen(3, 0);
  side_by_side(4, [&](std::size_t i) {
    const auto end = network.end_of(index_at<DeviceIndex>(i));
    if (i == 3) {
      std::this_thread::sleep_for(5ms);
      end->abort();
      return;
    }
    try {
      if (i == 0) end->barrier();
      end->receive(key(3, static_cast<std::int32_t>(i)), {});
    } catch (const JobAborted&) { seen[i] = 1; }
  });
  for (const int one : seen) aborted += one;
  CHECK(aborted == 3);
  CHECK_THROWS_AS(network.end_of({0})->send(key(0, 1), {}), JobAborted);
}

}  // namespace
}  // namespace dapple::exec
