#include "exec/run/pinned_thread.h"

#include <sched.h>

#include <utility>

namespace dapple::exec {

struct PinnedThread::Cores {
  cpu_set_t set;
};

std::size_t usable_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return static_cast<std::size_t>(CPU_COUNT(&cores));
}

PinnedThread::PinnedThread(std::size_t number) {
  auto before = std::make_unique<Cores>();
  if (sched_getaffinity(0, sizeof(before->set), &before->set) != 0) return;
  std::size_t core = 0;
  while (core < CPU_SETSIZE && (!CPU_ISSET(core, &before->set) || number-- > 0)) ++core;
  cpu_set_t chosen;
  CPU_ZERO(&chosen);
  CPU_SET(core, &chosen);
  if (sched_setaffinity(0, sizeof(chosen), &chosen) == 0) before_ = std::move(before);
}

PinnedThread::~PinnedThread() {
  if (before_) sched_setaffinity(0, sizeof(before_->set), &before_->set);
}

}  // namespace dapple::exec
