// One device of a plan on a GPU: its streams, its memory, and copies between it and the host.
//
// Memory is taken from the driver once. Buffers are pieces of it, handed out and given back in the
// order in which the host asks, which is the order of the compute stream: what is enqueued there
// may use a buffer until it is destroyed, and nobody waits. Another stream may use a buffer once it
// has waited for an event recorded on the compute stream after the buffer was made; such a buffer
// ends with Buffer::release_after().
//
// Several devices may share a GPU. A device is used by one thread at a time, and by each only after
// make_current(); buffers may be given back by any thread. Every function may throw
// Error(Environment) with what CUDA says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"

struct CUevent_st;  // as CUDA declares them
struct CUstream_st;

namespace dapple::cuda {

class Arena;
class Libraries;

/// GPUs that this process may use: none where there is no driver.
int gpu_count();

struct GpuProperties {
  std::string name;    // "NVIDIA H100 80GB HBM3"
  int capability = 0;  // ten times major plus minor: 90
  Bytes memory;        // all of it
  Bytes free_memory;   // when it was asked
};

/// Makes the GPU that of the calling thread. Requires: 0 <= ordinal < gpu_count().
GpuProperties properties_of(int ordinal);

/// Makes a GPU that of the calling thread. Requires: as above.
void make_current(int ordinal);

class Stream;

/// A moment of a stream.
class Event {
 public:
  /// On the GPU that is the calling thread's.
  Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  /// After all that has been enqueued on the stream. An event may be recorded again.
  void record(const Stream& stream);
  /// True of one that was never recorded.
  bool is_reached() const;
  /// The calling thread waits.
  void wait() const;
  /// Time between the two, to about half a microsecond. Requires: both have been reached, on the
  /// same GPU.
  Duration since(const Event& earlier) const;

  CUevent_st* handle() const { return handle_; }

 private:
  CUevent_st* handle_ = nullptr;
};

/// Work that a GPU does in order.
class Stream {
 public:
  enum class Priority { Normal, High };
  /// On the GPU that is the calling thread's. It does not wait for the default stream.
  explicit Stream(Priority priority = Priority::Normal);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream();

  /// What is enqueued from now on begins after the event.
  void wait_for(const Event& event) const;
  /// The calling thread waits until all of it is done. Throws what has gone wrong in it.
  void finish() const;

  CUstream_st* handle() const { return handle_; }

 private:
  CUstream_st* handle_ = nullptr;
};

/// A piece of a device's memory, aligned to 512 bytes; nothing if default-constructed. It may
/// outlive its device.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* address() const { return address_; }
  Bytes size() const { return size_; }
  explicit operator bool() const { return address_ != nullptr; }

  /// Gives it back, to be used again after the event, which another stream has recorded behind its
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

/// Host memory that a GPU copies to and from on its own, while the host does something else.
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
/// taken when it is first used, for the GPU that is then the calling thread's.
class Staging {
 public:
  Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  /// `from` may change when the call returns. Waits only if what was enqueued before has not yet
  /// left the pinned memory.
  void upload(std::span<const std::byte> from, std::byte* to, const Stream& stream);
  /// The calling thread waits until `to` is filled.
  void download(const std::byte* from, std::span<std::byte> to, const Stream& stream);
  /// Piece by piece has `enqueue` do something with pinned memory, which the GPU reads in place:
  /// `begin` is where in `from` the piece begins. Pieces begin at multiples of 4 MiB. As upload().
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
  /// Takes `memory` bytes of the GPU for an arena, whose compute stream has the priority. Throws
  /// Error(Environment) naming what is free where that is less. Makes the GPU that of the calling
  /// thread.
  Device(int ordinal, Bytes memory, Stream::Priority priority = Stream::Priority::Normal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int ordinal() const { return ordinal_; }
  /// Makes its GPU that of the calling thread.
  void make_current() const { cuda::make_current(ordinal_); }
  const Stream& compute() const;

  /// Throws Error(Environment) with both numbers where the arena has no such piece left. Contents
  /// are whatever was there. O(pieces).
  Buffer allocate(Bytes size);
  Bytes memory() const;
  Bytes memory_in_use() const;
  Bytes most_memory_in_use() const;  // since it was made, or was told to forget it
  void forget_most_memory_in_use();

  /// As Staging, through its own.
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
