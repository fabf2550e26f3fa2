// A region of a GPU's memory from which pieces are allocated without the driver, and the compute
// stream in whose order pieces are allocated and released.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "dapple/cuda/memory/device.h"

namespace dapple::cuda {

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  Arena(int ordinal, Bytes size, Stream::Priority priority);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Allocates from the smallest free piece that is large enough, of equals from the first.
  Buffer allocate(Bytes size);
  void give_back(const std::byte* address, Bytes size);
  void give_back_after(const std::byte* address, Bytes size, Event event);

  const Stream& compute() const { return compute_; }
  Bytes size() const { return size_; }
  Bytes in_use() const;
  Bytes most_in_use() const;
  void forget_most_in_use();

 private:
  /// A released piece that another stream may still use, until `event` is reached.
  struct Waiting {
    std::int64_t offset = 0;
    std::int64_t size = 0;
    Event event;
  };

  std::int64_t take(std::int64_t size);
  void insert(std::int64_t offset, std::int64_t size);
  void insert_reached();
  bool insert_next_waiting();

  Bytes size_;
  Stream compute_;
  std::byte* memory_ = nullptr;
  mutable std::mutex mutex_;
  // The sizes of free pieces by offset; no two are adjacent.
  std::map<std::int64_t, std::int64_t> free_;
  // The pieces in the order of their release.
  std::deque<Waiting> waiting_;
  Bytes in_use_;
  Bytes most_in_use_;
};

}  // namespace dapple::cuda
