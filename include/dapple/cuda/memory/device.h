// One device of a plan on a GPU: its streams, its memory, and copies between it and the host.
//
// The device's memory is allocated from the driver once. Buffers are pieces of it that are
// allocated and released in the order of the host's calls, which is also the order of the compute
// stream: work that is enqueued on that stream may use a buffer until it is destroyed, without
// synchronization. Another stream may use a buffer once it has waited for an event recorded on the
// compute stream after the buffer was allocated; such a buffer is released by
// Buffer::release_after().
//
// Several devices may share a GPU. A device is used by one thread at a time, and by each only after
// make_current(); buffers may be released by any thread. Every function may throw
// Error(Environment) with the message of CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"

struct CUevent_st;  // as declared by CUDA
struct CUstream_st;

namespace dapple::cuda {

class Arena;
class Libraries;

/// Returns the number of GPUs that this process may use; 0 if there is no driver.
int gpu_count();

struct GpuProperties {
  /// The name, such as "NVIDIA H100 80GB HBM3".
  std::string name;
  /// The compute capability: ten times the major plus the minor version, such as 90.
  int capability = 0;
  /// The total memory.
  Bytes memory;
  /// The free memory at the time of the call.
  Bytes free_memory;
};

/// Returns the properties of a GPU and makes it that of the calling thread.
/// Requires: 0 <= ordinal < gpu_count().
GpuProperties properties_of(int ordinal);

/// Makes a GPU that of the calling thread. Requires: 0 <= ordinal < gpu_count().
void make_current(int ordinal);

class Stream;

/// A point in the work of a stream.
class Event {
 public:
  /// Creates an event on the calling thread's GPU.
  Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  /// Records the event after all work enqueued on the stream. An event may be recorded again.
  void record(const Stream& stream);
  /// Whether the event has been reached; true for an event that was never recorded.
  bool is_reached() const;
  /// Blocks the calling thread until the event is reached.
  void wait() const;
  /// Returns the time between two events, to about half a microsecond. Requires: both have been
  /// reached, on the same GPU.
  Duration since(const Event& earlier) const;

  CUevent_st* handle() const { return handle_; }

 private:
  CUevent_st* handle_ = nullptr;
};

/// A queue of work that a GPU executes in order.
class Stream {
 public:
  enum class Priority { Normal, High };
  /// Creates a stream on the calling thread's GPU. It does not wait for the default stream.
  explicit Stream(Priority priority = Priority::Normal);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream();

  /// Makes all work enqueued from now on start after the event.
  void wait_for(const Event& event) const;
  /// Blocks the calling thread until all work is done. Throws if some of it failed.
  void finish() const;

  CUstream_st* handle() const { return handle_; }

 private:
  CUstream_st* handle_ = nullptr;
};

/// A piece of a device's memory, aligned to 512 bytes; empty if default-constructed. It may outlive
/// its device.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* address() const { return address_; }
  Bytes size() const { return size_; }
  explicit operator bool() const { return address_ != nullptr; }

  /// Releases the memory, to be reused after the event, which another stream has recorded after its
  /// last use.
  void release_after(Event event);

 private:
  friend class Arena;
  Buffer(std::shared_ptr<Arena> arena, std::byte* address, Bytes size);
  void release() noexcept;

  std::shared_ptr<Arena> arena_;
  std::byte* address_ = nullptr;
  Bytes size_;
};

/// Page-locked host memory, with which a GPU copies asynchronously.
class PinnedMemory {
 public:
  explicit PinnedMemory(Bytes size);
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

/// Pinned memory through which one thread at a time copies, in pieces that are used in turn. It is
/// allocated on first use, for the GPU that is then the calling thread's.
class Staging {
 public:
  Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  /// Enqueues a copy to the device; `from` may change when the call returns. Waits only if earlier
  /// copies have not yet left the pinned memory.
  void upload(std::span<const std::byte> from, std::byte* to, const Stream& stream);
  /// Copies from the device; the calling thread waits until `to` is filled.
  void download(const std::byte* from, std::span<std::byte> to, const Stream& stream);
  /// Passes `from` to `enqueue` piece by piece in pinned memory, which the GPU reads in place;
  /// `begin` is the position of the piece in `from`, a multiple of 4 MiB. Waits like upload().
  using Enqueue = std::function<void(std::span<std::byte> pinned, std::size_t begin)>;
  void pass(std::span<const std::byte> from, const Stream& stream, const Enqueue& enqueue);

 private:
  struct Piece;
  Piece& next_piece();

  std::vector<Piece> pieces_;
  std::size_t current_ = 0;
};

class Device {
 public:
  /// Allocates `memory` bytes of the GPU for an arena, and a compute stream of the given priority.
  /// Throws Error(Environment) with the free memory if that is less. Makes the GPU that of the
  /// calling thread.
  Device(int ordinal, Bytes memory, Stream::Priority priority = Stream::Priority::Normal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int ordinal() const { return ordinal_; }
  /// Makes the device's GPU that of the calling thread.
  void make_current() const { cuda::make_current(ordinal_); }
  const Stream& compute() const;

  /// Allocates a buffer with undefined contents. Throws Error(Environment) with the size and the
  /// memory in use if the arena has no such piece left. O(pieces).
  Buffer allocate(Bytes size);
  Bytes memory() const;
  Bytes memory_in_use() const;
  /// Returns the peak of memory_in_use() since construction or forget_most_memory_in_use().
  Bytes most_memory_in_use() const;
  void forget_most_memory_in_use();
  /// Returns the largest workspace that a matrix product has allocated for its duration.
  Bytes most_product_workspace() const;

  /// Copies like Staging, through the device's own staging memory.
  void upload(std::span<const std::byte> from, std::byte* to, const Stream& stream);
  void download(const std::byte* from, std::span<std::byte> to, const Stream& stream);

  Libraries& libraries() { return *libraries_; }

 private:
  int ordinal_;
  std::shared_ptr<Arena> arena_;
  Staging staging_;
  std::unique_ptr<Libraries> libraries_;
};

}  // namespace dapple::cuda
