#include "dapple/cuda/memory/device.h"

#include <utility>

#include "cuda/memory/arena.h"
#include "cuda/memory/libraries.h"
#include "cuda/memory/status.h"

namespace dapple::cuda {
namespace {

/// Makes the GPU current, so that members initialized afterwards are created on it.
int made_current(int ordinal) {
  require(cudaSetDevice(ordinal), "cudaSetDevice");
  return ordinal;
}

}  // namespace

int gpu_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) return 0;
  require(status, "cudaGetDeviceCount");
  return count;
}

GpuProperties properties_of(int ordinal) {
  cudaDeviceProp found{};
  require(cudaGetDeviceProperties(&found, ordinal), "cudaGetDeviceProperties");
  require(cudaSetDevice(ordinal), "cudaSetDevice");
  std::size_t unused = 0;
  std::size_t total = 0;
  require(cudaMemGetInfo(&unused, &total), "cudaMemGetInfo");
  return {.name = found.name,
          .capability = 10 * found.major + found.minor,
          .memory = {static_cast<std::int64_t>(total)},
          .free_memory = {static_cast<std::int64_t>(unused)}};
}

void make_current(int ordinal) {
  made_current(ordinal);
}

Buffer::Buffer(std::shared_ptr<Arena> arena, std::byte* address, Bytes size)
    : arena_(std::move(arena)), address_(address), size_(size) {}

Buffer::Buffer(Buffer&& other) noexcept
    : arena_(std::move(other.arena_)),
      address_(std::exchange(other.address_, nullptr)),
      size_(std::exchange(other.size_, Bytes{})) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  arena_ = std::move(other.arena_);
  address_ = std::exchange(other.address_, nullptr);
  size_ = std::exchange(other.size_, Bytes{});
  return *this;
}

Buffer::~Buffer() {
  release();
}

void Buffer::release() noexcept {
  if (address_ != nullptr) arena_->give_back(address_, size_);
  address_ = nullptr;
}

void Buffer::release_after(Event event) {
  if (address_ != nullptr) arena_->give_back_after(address_, size_, std::move(event));
  address_ = nullptr;
  size_ = {};
}

PinnedMemory::PinnedMemory(Bytes size) {
  void* memory = nullptr;
  const auto count = static_cast<std::size_t>(size.count);
  require(cudaHostAlloc(&memory, count, cudaHostAllocPortable), "cudaHostAlloc");
  bytes_ = {static_cast<std::byte*>(memory), count};
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

PinnedMemory::~PinnedMemory() {
  if (!bytes_.empty()) static_cast<void>(cudaFreeHost(bytes_.data()));
}

Device::Device(int ordinal, Bytes memory, Stream::Priority priority)
    : ordinal_(made_current(ordinal)),
      arena_(std::make_shared<Arena>(ordinal, memory, priority)),
      libraries_(std::make_unique<Libraries>()) {}

Device::~Device() = default;

const Stream& Device::compute() const {
  return arena_->compute();
}

Buffer Device::allocate(Bytes size) {
  return arena_->allocate(size);
}

Bytes Device::memory() const {
  return arena_->size();
}

Bytes Device::memory_in_use() const {
  return arena_->in_use();
}

Bytes Device::most_memory_in_use() const {
  return arena_->most_in_use();
}

void Device::forget_most_memory_in_use() {
  arena_->forget_most_in_use();
}

Bytes Device::most_product_workspace() const {
  return libraries_->products.most_workspace();
}

void Device::upload(std::span<const std::byte> from, std::byte* to, const Stream& stream) {
  staging_.upload(from, to, stream);
}

void Device::download(const std::byte* from, std::span<std::byte> to, const Stream& stream) {
  staging_.download(from, to, stream);
}

}  // namespace dapple::cuda
