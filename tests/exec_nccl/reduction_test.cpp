// Sums by NCCL where the numbers lie, and what becomes of them when it breaks down.

#include <nccl.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "../support/job.h"
#include "dapple/core/error.h"
#include "dapple/exec/gpu/cuda_reduction_buffer.h"
#include "dapple/exec/message/all_reduce.h"
#include "gpu_ends.h"

namespace dapple {
namespace {

using namespace small;

constexpr std::size_t kValues = 1'000;
constexpr Bytes kSize{kValues * sizeof(float)};

exec::MessageKey reduction(DeviceIndex here, std::int32_t bucket) {
  return {.iteration = 0,
          .action = {ActionKind::AllReduce, bucket, {0}},
          .step = 0,
          .from = here,
          .to = here};
}

/// Numbers of one device in a GPU's memory.
class Numbers {
 public:
  Numbers(DeviceIndex here, const std::vector<float>& values)
      : device_(gpu_of(here), {1 << 20}),
        reductions_{.gpu = gpu_of(here),
                    .downloads = std::make_shared<exec::CudaDownloads>(device_)},
        memory_(device_.allocate({static_cast<std::int64_t>(values.size() * sizeof(float))})) {
    device_.upload(std::as_bytes(std::span(values)), memory_.address(), device_.compute());
  }

  exec::CudaReductionBuffer buffer() {
    return {reductions_, view(), {}, exec::recorded_on(device_.compute())};
  }
  std::vector<float> values() {
    std::vector<float> values(static_cast<std::size_t>(view().count));
    device_.download(memory_.address(), std::as_writable_bytes(std::span(values)),
                     reductions_.stream);
    return values;
  }

 private:
  cuda::View view() const {
    return {memory_.address(), cuda::Type::Float32,
            memory_.size().count / static_cast<std::int64_t>(sizeof(float))};
  }

  cuda::Device device_;
  exec::CudaReductions reductions_;
  cuda::Buffer memory_;
};

/// Device i has (i + 1) k as its k-th number.
std::vector<float> numbers_of(std::size_t i) {
  std::vector<float> values(kValues);
  for (std::size_t k = 0; k < kValues; ++k) values[k] = static_cast<float>((i + 1) * k);
  return values;
}

/// Devices that all reach each other.
struct Mesh {
  explicit Mesh(std::size_t count)
      : topology(full_mesh(count, {bytes_per_ns(1), {}})),
        devices(all_devices(topology)),
        network(topology, devices, {}) {}

  const Topology topology;
  const std::vector<DeviceIndex> devices;
  exec::ThreadNetwork network;
};

TEST_CASE("a group's numbers are summed where they lie, for 2 (r-1)/r of their bytes") {
  const std::size_t count = 3;
  if (!has_gpus_for(count)) return;
  Mesh mesh(count);
  const exec::ReductionGroup everyone{.servers = {{{0}}, {{1}}, {{2}}}};
  const exec::ReductionGroup two{.servers = {{{0}, {2}}}};
  const auto reductions_of = [&](std::size_t i) {
    exec::ReductionSizes reductions{{mesh.devices, {kSize}}};
    if (i != 1) reductions[exec::members_of(two)] = {kSize};
    return reductions;
  };
  std::vector<std::vector<float>> sums(count);
  std::vector<std::int64_t> sent(count);
  side_by_side(count, [&](std::size_t i) {
    const auto below = mesh.network.end_of(mesh.devices[i]);
    const auto end =
        nccl_end(*below, mesh.topology, mesh.devices[i], mesh.devices, reductions_of(i));
    Numbers numbers(mesh.devices[i], numbers_of(i));
    for (std::int32_t bucket = 0; bucket < 2; ++bucket) {
      exec::CudaReductionBuffer buffer = numbers.buffer();
      exec::all_reduce(everyone, reduction(mesh.devices[i], bucket), buffer, *end);
    }
    sent[i] = end->sent().count;
    if (i != 1) {
      exec::CudaReductionBuffer buffer = numbers.buffer();
      exec::all_reduce(two, reduction(mesh.devices[i], 2), buffer, *end);
    }
    sums[i] = numbers.values();
  });
  // The first sum is 6 k on all; of three times that the second; device 1 stops there, and the
  // others have twice as much in the end.
  for (std::size_t k = 0; k < kValues; ++k) {
    REQUIRE(sums[1][k] == static_cast<float>(18 * k));
    REQUIRE(sums[0][k] == static_cast<float>(36 * k));
  }
  CHECK(sums[2] == sums[0]);
  // Two sums of 4,000 bytes, 2 x 2/3 of each, rounded down.
  for (const std::int64_t bytes : sent) CHECK(bytes == 2 * 5'333);
}

TEST_CASE(
    "a group's shards are summed and gathered where they lie, for (r-1)/r of the bytes each") {
  const std::size_t count = 3;
  if (!has_gpus_for(count)) return;
  Mesh mesh(count);
  const exec::ReductionGroup everyone{.servers = {mesh.devices}};
  std::vector<std::vector<float>> sums(count);
  std::vector<std::vector<float>> all(count);
  std::vector<std::int64_t> sent(count);
  side_by_side(count, [&](std::size_t i) {
    const auto below = mesh.network.end_of(mesh.devices[i]);
    const auto end =
        exec::make_nccl_transport(*below, mesh.topology,
                                  {.here = mesh.devices[i],
                                   .connections = {.peers = {},
                                                   .reductions = {{mesh.devices, {kSize}}},
                                                   .scatters = true,
                                                   .inbox = {1 << 20}},
                                   .gpu = gpu_of(mesh.devices[i])});
    Numbers numbers(mesh.devices[i], numbers_of(i));
    exec::CudaReductionBuffer buffer = numbers.buffer();
    exec::reduce_scatter(everyone, reduction(mesh.devices[i], 0), buffer, *end);
    sums[i] = numbers.values();
    end->barrier();
    exec::all_gather(everyone, reduction(mesh.devices[i], 1), buffer, *end);
    all[i] = numbers.values();
    sent[i] = end->sent().count;
  });
  for (std::size_t i = 0; i < count; ++i) {
    const exec::ElementRange own = exec::shard_of(everyone, mesh.devices[i], {0, kValues});
    REQUIRE(own.size() >= kValues / count);
    for (std::size_t k = own.begin; k < own.end; ++k) {
      REQUIRE(sums[i][k] == static_cast<float>(6 * k));
    }
    for (std::size_t k = 0; k < kValues; ++k) REQUIRE(all[i][k] == static_cast<float>(6 * k));
    // 2/3 of 4,000 bytes for each half, rounded down.
    CHECK(sent[i] == 2 * 2'666);
  }
}

TEST_CASE("a device talks to nobody whom it was not told of") {
  const std::size_t count = 2;
  if (!has_gpus_for(count)) return;
  Mesh mesh(count);
  std::vector<std::string> ends(count);
  side_by_side(count, [&](std::size_t i) {
    const auto below = mesh.network.end_of(mesh.devices[i]);
    const auto end = nccl_end(*below, mesh.topology, mesh.devices[i], {mesh.devices[i]});
    ByWayOfGpu on_gpu(*end, gpu_of(mesh.devices[i]));
    exec::MessageKey key = reduction(mesh.devices[i], 0);
    key.to = mesh.devices[1 - i];
    try {
      on_gpu.send(key, payload_of({1, 2}));
    } catch (const Bug& bug) { ends[i] = bug.what(); }
    Numbers numbers(mesh.devices[i], {1, 2});
    exec::CudaReductionBuffer buffer = numbers.buffer();
    try {
      end->performs(CollectiveKind::AllReduce, {.servers = {mesh.devices}},
                    reduction(mesh.devices[i], 0), buffer);
    } catch (const Bug& bug) { ends[i] += std::string("; ") + bug.what(); }
  });
  for (const std::string& end : ends) {
    CHECK(end ==
          "a device sends to one that is not its peer; a device has no communicator with "
          "those that it was to use");
  }
}

#ifdef DAPPLE_NCCL_ON_HOST
TEST_CASE("when NCCL breaks down, one says so and all end") {
  const std::size_t count = 3;
  Mesh mesh(count);
  std::vector<std::string> ends(count);
  side_by_side(count, [&](std::size_t i) {
    const auto below = mesh.network.end_of(mesh.devices[i]);
    const auto end =
        nccl_end(*below, mesh.topology, mesh.devices[i], mesh.devices, {{mesh.devices, {kSize}}});
    const exec::ReductionGroup everyone{.servers = {mesh.devices}};
    Numbers numbers(mesh.devices[i], numbers_of(i));
    exec::CudaReductionBuffer buffer = numbers.buffer();
    exec::all_reduce(everyone, reduction(mesh.devices[i], 0), buffer, *end);
    end->barrier();
    if (i == 0) nccl_on_host::break_down(true);
    try {
      const exec::MessageKey key{.iteration = 0,
                                 .action = {ActionKind::SendGradient, 3, {1}},
                                 .step = 0,
                                 .from = mesh.devices[(i + 1) % count],
                                 .to = mesh.devices[i]};
      end->receive(key, {.size = Bytes{8}, .memory = exec::Memory::Device});
    } catch (const Error& error) { ends[i] = error.what(); } catch (const exec::JobAborted&) {
      ends[i] = "aborted";
    }
  });
  nccl_on_host::break_down(false);
  const std::string told =
      "NCCL: asynchronous error: remote process exited or there was a network error";
  CHECK(std::ranges::count(ends, told) >= 1);
  CHECK(std::ranges::count(ends, told) + std::ranges::count(ends, "aborted") == 3);
  CHECK(nccl_on_host::communicators() == 0);
}
#endif

}  // namespace
}  // namespace dapple
