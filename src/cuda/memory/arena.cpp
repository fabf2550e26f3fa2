#include "cuda/memory/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "cuda/memory/memory_marks.h"
#include "cuda/memory/status.h"
#include "dapple/core/error.h"

namespace dapple::cuda {
namespace {

constexpr std::int64_t kAlignment = 512;

std::int64_t rounded_up(std::int64_t size) {
  return (std::max<std::int64_t>(size, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Arena::Arena(int ordinal, Bytes size, Stream::Priority priority)
    : size_{size.count / kAlignment * kAlignment}, compute_(priority) {
  const GpuProperties gpu = properties_of(ordinal);
  if (gpu.free_memory < size) {
    throw Error{ErrorKind::Environment,
                fmt::format("GPU {}", ordinal),
                {{"", fmt::format("expected {} bytes of free memory, got {} of {} on {}",
                                  size.count, gpu.free_memory.count, gpu.memory.count, gpu.name)}}};
  }
  if (size_.count == 0) return;
  void* memory = nullptr;
  require(cudaMalloc(&memory, static_cast<std::size_t>(size_.count)), "cudaMalloc");
  memory_ = static_cast<std::byte*>(memory);
  free_.emplace(0, size_.count);
  mark_free(compute_, memory_, size_);
}

/// Waits for all work that uses the memory, since cudaFree() does. Errors were reported earlier.
Arena::~Arena() {
  static_cast<void>(cudaFree(memory_));
}

Buffer Arena::allocate(Bytes size) {
  const std::int64_t rounded = rounded_up(size.count);
  const std::lock_guard lock(mutex_);
  insert_reached();
  std::int64_t offset = take(rounded);
  while (offset < 0 && insert_next_waiting()) offset = take(rounded);
  if (offset < 0) {
    throw Error{ErrorKind::Environment,
                "GPU memory",
                {{"", fmt::format("expected {} free bytes in a piece, got {} of {} in use", rounded,
                                  in_use_.count, size_.count)}}};
  }
  in_use_.count += rounded;
  most_in_use_ = std::max(most_in_use_, in_use_);
  mark_used(compute_, memory_ + offset, size);
  return {shared_from_this(), memory_ + offset, size};
}

/// Takes memory from the front of a free piece and returns its offset; -1 if there is none.
std::int64_t Arena::take(std::int64_t size) {
  auto best = free_.end();
  for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
    if (piece->second < size || (best != free_.end() && best->second <= piece->second)) continue;
    best = piece;
  }
  if (best == free_.end()) return -1;
  const auto [offset, available] = *best;
  free_.erase(best);
  if (available > size) free_.emplace(offset + size, available - size);
  return offset;
}

void Arena::insert(std::int64_t offset, std::int64_t size) {
  mark_free(compute_, memory_ + offset, {size});
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  free_.emplace(offset, size);
}

void Arena::give_back(const std::byte* address, Bytes size) {
  const std::int64_t rounded = rounded_up(size.count);
  const std::lock_guard lock(mutex_);
  insert(address - memory_, rounded);
  in_use_.count -= rounded;
}

void Arena::give_back_after(const std::byte* address, Bytes size, Event event) {
  const std::int64_t rounded = rounded_up(size.count);
  const std::lock_guard lock(mutex_);
  waiting_.push_back({address - memory_, rounded, std::move(event)});
  in_use_.count -= rounded;
}

void Arena::insert_reached() {
  for (auto piece = waiting_.begin(); piece != waiting_.end();) {
    if (!piece->event.is_reached()) {
      ++piece;
      continue;
    }
    insert(piece->offset, piece->size);
    piece = waiting_.erase(piece);
  }
}

/// Makes the compute stream wait for the event of the next waiting piece and frees the piece.
/// Returns false if no piece is waiting.
bool Arena::insert_next_waiting() {
  if (waiting_.empty()) return false;
  const Waiting& first = waiting_.front();
  compute_.wait_for(first.event);
  insert(first.offset, first.size);
  waiting_.pop_front();
  return true;
}

Bytes Arena::in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

Bytes Arena::most_in_use() const {
  const std::lock_guard lock(mutex_);
  return most_in_use_;
}

void Arena::forget_most_in_use() {
  const std::lock_guard lock(mutex_);
  most_in_use_ = in_use_;
}

}  // namespace dapple::cuda
