// What the host does in place of a GPU is what a GPU does, and its errors are found.
#include <catch2/catch.hpp>
#include <stdexcept>
#include <vector>

#include "cuda_runtime.h"

namespace {

cudaError_t launch(dim3 grid, dim3 block, void (*kernel)(int*), int* numbers) {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0) == cudaSuccess);
  const cudaLaunchConfig_t config{grid, block, 0, stream};
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, numbers);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  return status;
}

void number_threads(int* numbers) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned number = block * blockDim.x * blockDim.y * blockDim.z + thread;
  numbers[number] = static_cast<int>(number);
}

/// Each thread reads what another one has written before the barrier, in shared memory.
void reverse_block(int* numbers) {
  __shared__ int shared[96];
  for (int round = 0; round < 3; ++round) {
    shared[threadIdx.x] = numbers[threadIdx.x];
    __syncthreads();
    numbers[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
    __syncthreads();
  }
}

void sum_warps(int* numbers) {
  int sum = numbers[threadIdx.x];
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffffU, sum, distance);
  }
  numbers[threadIdx.x] = sum;
}

void leave_early(int* numbers) {
  if (threadIdx.x % 2 == 0) return;
  __syncthreads();
  numbers[threadIdx.x] = 1;
}

void wait_for_half_a_warp(int*) {
  if (threadIdx.x < 16) __shfl_xor_sync(0xffffffffU, 1, 1);
}

void meet_in_two_places(int*) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __shfl_xor_sync(0xffffffffU, 1, 1);
    if (threadIdx.x == 40) return;
    __shfl_xor_sync(0xffffffffU, 1, 1);
  }
}

}  // namespace

TEST_CASE("each thread of a grid runs once") {
  std::vector<int> numbers(2 * 3 * 2 * 4 * 5 * 3, -1);
  CHECK(launch({2, 3, 2}, {4, 5, 3}, number_threads, numbers.data()) == cudaSuccess);
  for (std::size_t i = 0; i < numbers.size(); ++i) CHECK(numbers[i] == static_cast<int>(i));
}

TEST_CASE("nobody passes a barrier before all are there") {
  std::vector<int> numbers(96);
  for (int i = 0; i < 96; ++i) numbers[static_cast<std::size_t>(i)] = i;
  CHECK(launch({1}, {96}, reverse_block, numbers.data()) == cudaSuccess);
  for (int i = 0; i < 96; ++i) CHECK(numbers[static_cast<std::size_t>(i)] == 95 - i);
}

TEST_CASE("lanes of a warp exchange numbers among themselves alone") {
  std::vector<int> numbers(64, 1);
  numbers[40] = 100;
  CHECK(launch({1}, {64}, sum_warps, numbers.data()) == cudaSuccess);
  for (std::size_t i = 0; i < 64; ++i) CHECK(numbers[i] == (i < 32 ? 32 : 131));
}

TEST_CASE("threads that have ended are not waited for at a block's barrier") {
  std::vector<int> numbers(64);
  CHECK(launch({1}, {64}, leave_early, numbers.data()) == cudaSuccess);
  for (std::size_t i = 0; i < 64; ++i) CHECK(numbers[i] == static_cast<int>(i % 2));
}

TEST_CASE("threads that wait for some that never come are an error, and not a hang") {
  const auto run = [](unsigned threads, void (*kernel)(int*)) {
    cuda_on_host::run_grid({1}, {threads}, [kernel] { kernel(nullptr); });
  };
  CHECK_THROWS_AS(run(32, wait_for_half_a_warp), std::logic_error);
  CHECK_THROWS_AS(run(64, meet_in_two_places), std::logic_error);
}

TEST_CASE("grids that a GPU would refuse are refused") {
  CHECK(launch({0}, {32}, number_threads, nullptr) == cudaErrorInvalidConfiguration);
  CHECK(launch({1}, {1'025}, number_threads, nullptr) == cudaErrorInvalidConfiguration);
  CHECK(launch({1, 65'536}, {1}, number_threads, nullptr) == cudaErrorInvalidConfiguration);
}
