#include "pinned_thread.h"

#include <sched.h>

namespace dapple {

struct PinnedThread::Cores {
  cpu_set_t set;
};

PinnedThread::PinnedThread() {
  auto before = std::make_unique<Cores>();
  const int core = sched_getcpu();
  if (core < 0 || sched_getaffinity(0, sizeof(before->set), &before->set) != 0) return;
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(static_cast<unsigned>(core), &here);
  if (sched_setaffinity(0, sizeof(here), &here) == 0) before_ = std::move(before);
}

PinnedThread::~PinnedThread() {
  if (before_) sched_setaffinity(0, sizeof(before_->set), &before_->set);
}

}  // namespace dapple
