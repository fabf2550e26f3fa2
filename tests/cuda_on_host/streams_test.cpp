// Streams on the host keep the order that CUDA promises, and no other.
#include <atomic>
#include <catch2/catch.hpp>
#include <vector>

#include "cuda_runtime.h"

namespace {

using cuda_on_host::enqueue;

class TestStream {
 public:
  TestStream() { cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking, 0); }
  ~TestStream() { cudaStreamDestroy(handle_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  cudaStream_t handle() const { return handle_; }
  void finish() const { CHECK(cudaStreamSynchronize(handle_) == cudaSuccess); }

 private:
  cudaStream_t handle_ = nullptr;
};

class TestEvent {
 public:
  TestEvent() { cudaEventCreate(&handle_); }
  ~TestEvent() { cudaEventDestroy(handle_); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;

  cudaEvent_t handle() const { return handle_; }

 private:
  cudaEvent_t handle_ = nullptr;
};

void wait_until(const std::atomic<bool>& flag) {
  while (!flag) flag.wait(false);
}

void set(std::atomic<bool>& flag) {
  flag = true;
  flag.notify_all();
}

}  // namespace

TEST_CASE("a stream does what it is given in order, after the call that gives it") {
  const TestStream stream;
  std::atomic<bool> may_begin = false;
  std::vector<int> done;
  enqueue(stream.handle(), [&] { wait_until(may_begin); });
  for (int i = 0; i < 100; ++i) enqueue(stream.handle(), [&done, i] { done.push_back(i); });
  set(may_begin);
  stream.finish();
  REQUIRE(done.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(done[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("streams wait for events alone") {
  const TestStream first;
  const TestStream second;
  const TestStream third;
  const TestEvent event;
  std::atomic<bool> may_begin = false;
  int number = 0;
  int seen = 0;
  CHECK(cudaEventQuery(event.handle()) == cudaSuccess);
  enqueue(first.handle(), [&] { wait_until(may_begin); });
  enqueue(first.handle(), [&] { number = 5; });
  CHECK(cudaEventRecord(event.handle(), first.handle()) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(second.handle(), event.handle(), 0) == cudaSuccess);
  enqueue(second.handle(), [&] { seen = number; });
  CHECK(cudaEventQuery(event.handle()) == cudaErrorNotReady);
  third.finish();  // while the first stands still
  set(may_begin);
  second.finish();
  CHECK(seen == 5);
  CHECK(cudaEventQuery(event.handle()) == cudaSuccess);
}

TEST_CASE("who waits for an event waits for where it was when he was told to") {
  const TestStream first;
  const TestStream second;
  const TestEvent event;
  std::atomic<bool> may_begin = false;
  CHECK(cudaEventRecord(event.handle(), first.handle()) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(second.handle(), event.handle(), 0) == cudaSuccess);
  enqueue(first.handle(), [&] { wait_until(may_begin); });
  CHECK(cudaEventRecord(event.handle(), first.handle()) == cudaSuccess);
  second.finish();
  set(may_begin);
  CHECK(cudaEventSynchronize(event.handle()) == cudaSuccess);
}

TEST_CASE("a stream that is destroyed does what it has been given, and memory is freed after it") {
  std::atomic<bool> may_begin = false;
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 4) == cudaSuccess);
  {
    const TestStream stream;
    enqueue(stream.handle(), [&] { wait_until(may_begin); });
    CHECK(cudaMemsetAsync(memory, 1, 4, stream.handle()) == cudaSuccess);
  }
  const TestStream other;
  enqueue(other.handle(), [&] { set(may_begin); });
  CHECK(cudaFree(memory) == cudaSuccess);
}
