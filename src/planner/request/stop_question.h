// Whether a planner shall end early, asked from any of its threads.
#pragma once

#include <mutex>

#include "dapple/planner/request/planner.h"

namespace dapple::planner {

/// The caller's progress is asked by one thread at a time. Never says so without one; once it has,
/// it does so always.
class StopQuestion {
 public:
  explicit StopQuestion(Progress* progress) : progress_(progress) {}

  bool operator()() const {
    const std::lock_guard lock(asking_);
    is_stopped_ = is_stopped_ || (progress_ != nullptr && progress_->should_stop());
    return is_stopped_;
  }

 private:
  Progress* progress_;
  mutable bool is_stopped_ = false;
  mutable std::mutex asking_;
};

}  // namespace dapple::planner
