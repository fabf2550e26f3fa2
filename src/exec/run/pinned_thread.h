// Binds the calling thread to a core, while it lives.
#pragma once

#include <cstddef>
#include <memory>

namespace dapple::exec {

/// Cores that this process may use; at least one.
std::size_t usable_cores();

class PinnedThread {
 public:
  /// To the `number`th of the usable cores. Requires: number < usable_cores().
  explicit PinnedThread(std::size_t number);
  ~PinnedThread();
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;

  /// False where the system does not allow it.
  bool is_pinned() const { return before_ != nullptr; }

 private:
  struct Cores;
  std::unique_ptr<Cores> before_;
};

}  // namespace dapple::exec
