// NCCL itself on a single GPU, whose only member sends to itself. On a GPU only: a send and its
// receive have to be one group there, which nothing else here needs.
#ifndef DAPPLE_NCCL_ON_HOST
#include <nccl.h>

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "dapple/cuda/memory/device.h"
#include "dapple/exec/nccl/nccl_communicator.h"

namespace dapple {
namespace {

TEST_CASE("a communicator of one device is made, reduces, and is ended") {
  cuda::Device device(0, {1 << 20});
  exec::NcclCommunicator alone(exec::draw_nccl_id(), 1, 0, [] {});
  const std::vector<float> values{1, 2, 3};
  cuda::Buffer memory = device.allocate({12});
  device.upload(std::as_bytes(std::span(values)), memory.address(), device.compute());
  alone.all_reduce({memory.address(), cuda::Type::Float32, 3}, device.compute());
  std::vector<float> sums(3);
  device.download(memory.address(), std::as_writable_bytes(std::span(sums)), device.compute());
  CHECK(sums == values);
  CHECK_NOTHROW(alone.look());
  alone.finalize();
  while (!alone.is_finalized()) std::this_thread::yield();
}

TEST_CASE("a device sends to itself") {
  cuda::Device device(0, {1 << 20});
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t alone = nullptr;
  REQUIRE(ncclCommInitRank(&alone, 1, id, 0) == ncclSuccess);
  const std::vector<float> values{4, 5, 6};
  cuda::Buffer from = device.allocate({12});
  cuda::Buffer to = device.allocate({12});
  device.upload(std::as_bytes(std::span(values)), from.address(), device.compute());
  REQUIRE(ncclGroupStart() == ncclSuccess);
  REQUIRE(ncclSend(from.address(), 12, ncclInt8, 0, alone, device.compute().handle()) ==
          ncclSuccess);
  REQUIRE(ncclRecv(to.address(), 12, ncclInt8, 0, alone, device.compute().handle()) == ncclSuccess);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  std::vector<float> received(3);
  device.download(to.address(), std::as_writable_bytes(std::span(received)), device.compute());
  CHECK(received == values);
  CHECK(ncclCommDestroy(alone) == ncclSuccess);
}

}  // namespace
}  // namespace dapple
#endif
