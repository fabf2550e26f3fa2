#include "dapple/cuda/memory/device.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/cuda/kernels/arrays.h"
#include "on_device.h"

using namespace dapple;

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

}  // namespace

TEST_CASE("an arena is used again and again without a gap", "[cuda]") {
  cuda::Device device(0, Bytes{4 * kMiB});
  CHECK(device.memory().count == 4 * kMiB);
  for (int round = 0; round < 3; ++round) {
    std::vector<cuda::Buffer> buffers;
    for (int i = 0; i < 4; ++i) buffers.push_back(device.allocate({kMiB}));
    CHECK(device.memory_in_use().count == 4 * kMiB);
    CHECK_THROWS_AS(device.allocate({1}), Error);
    // Given back in another order, the pieces become one again.
    for (const std::size_t i : {2U, 0U, 3U, 1U}) buffers[i] = {};
    CHECK(device.memory_in_use().count == 0);
    CHECK(device.allocate({4 * kMiB}).size().count == 4 * kMiB);
  }
  CHECK(device.most_memory_in_use().count == 4 * kMiB);
}

TEST_CASE("memory that there is not is refused with both numbers", "[cuda]") {
  cuda::Device device(0, Bytes{kMiB});
  const cuda::Buffer half = device.allocate({kMiB / 2});
  try {
    static_cast<void>(device.allocate({kMiB}));
    FAIL("it was handed out");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::Environment);
    CHECK(std::string(error.what()) ==
          "GPU memory: expected 1048576 free bytes in a piece, got 524288 of 1048576 in use");
  }
  const Bytes all = cuda::properties_of(0).memory;
  CHECK_THROWS_AS(cuda::Device(0, Bytes{all.count + 1}), Error);
}

TEST_CASE("pieces begin at multiples of 512 bytes", "[cuda]") {
  cuda::Device device(0, Bytes{kMiB});
  std::vector<cuda::Buffer> buffers;
  for (const std::int64_t size : {1, 511, 512, 513}) buffers.push_back(device.allocate({size}));
  for (const cuda::Buffer& buffer : buffers) {
    CHECK((buffer.address() - buffers[0].address()) % 512 == 0);
  }
}

TEST_CASE("a buffer that another stream reads is not written to before that is done", "[cuda]") {
  constexpr std::size_t kRounds = 16;
  constexpr std::size_t kSize = std::size_t{1} << 16;
  cuda::Device device(0, Bytes{(kRounds + 1) * kSize});
  const cuda::Buffer kept = device.allocate({kRounds * kSize});
  const cuda::Stream other;
  for (std::size_t round = 0; round < kRounds; ++round) {
    cuda::Buffer buffer = device.allocate({kSize});  // the same again
    const std::vector<std::byte> numbers(kSize, static_cast<std::byte>(round));
    device.upload(numbers, buffer.address(), device.compute());
    cuda::Event filled;
    filled.record(device.compute());
    other.wait_for(filled);
    cuda::copy(other, std::span<const std::byte>(buffer.address(), kSize),
               std::span(kept.address() + round * kSize, kSize));
    cuda::Event used;
    used.record(other);
    buffer.release_after(std::move(used));
    CHECK_FALSE(buffer);
  }
  CHECK(device.memory_in_use().count == kRounds * kSize);
  for (std::size_t round = 0; round < kRounds; ++round) {
    std::vector<std::byte> found(kSize);
    device.download(kept.address() + round * kSize, found, other);
    CHECK(found == std::vector<std::byte>(kSize, static_cast<std::byte>(round)));
  }
}

TEST_CASE("buffers may outlive their device", "[cuda]") {
  cuda::Buffer left;
  {
    cuda::Device device(0, Bytes{kMiB});
    left = device.allocate({kMiB / 2});
  }
  CHECK(left.size().count == kMiB / 2);
}

TEST_CASE("uploads and downloads of many pieces arrive as they were sent", "[cuda]") {
  cuda::Device device(0, Bytes{64 * kMiB});
  std::vector<std::byte> sent(static_cast<std::size_t>(23 * kMiB + 17));
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 31 >> 7U);
  const cuda::Buffer buffer = device.allocate({static_cast<std::int64_t>(sent.size())});
  device.upload(sent, buffer.address(), device.compute());
  std::vector<std::byte> received(sent.size());
  device.download(buffer.address(), received, device.compute());
  CHECK((received == sent));
}

TEST_CASE("events are reached in the order of their streams", "[cuda]") {
  cuda::Device& device = small::device_of_tests();
  const cuda::Stream other(cuda::Stream::Priority::High);
  cuda::Event first;
  CHECK(first.is_reached());
  first.record(device.compute());
  other.wait_for(first);
  cuda::Event second;
  second.record(other);
  second.wait();
  CHECK(first.is_reached());
  CHECK(second.since(first).ns >= 0);
  other.finish();
}
