// Binds the calling thread to the core that it is on, while it lives.
#pragma once

#include <memory>

namespace dapple {

class PinnedThread {
 public:
  PinnedThread();
  ~PinnedThread();
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;

  /// False where the system does not allow it.
  bool is_pinned() const { return before_ != nullptr; }

 private:
  struct Cores;
  std::unique_ptr<Cores> before_;
};

}  // namespace dapple
