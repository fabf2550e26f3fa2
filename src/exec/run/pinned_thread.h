// Pins the calling thread to one core.
#pragma once

#include <cstddef>
#include <memory>

namespace dapple::exec {

/// Returns the number of cores that this process may use; at least one.
std::size_t usable_cores();

/// Pins the thread for its own lifetime, then restores the previous affinity.
class PinnedThread {
 public:
  /// Pins the calling thread to the usable core of index `number`. Requires: number <
  /// usable_cores().
  explicit PinnedThread(std::size_t number);
  ~PinnedThread();
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;

  /// Returns false if the system does not permit it.
  bool is_pinned() const { return before_ != nullptr; }

 private:
  struct Cores;
  std::unique_ptr<Cores> before_;
};

}  // namespace dapple::exec
