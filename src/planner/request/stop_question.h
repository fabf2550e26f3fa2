// Tells the threads of a planner whether it is to stop.
#pragma once

#include <mutex>

#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {

/// Whether the caller's progress said stop. It is asked by one thread at a time. Once it has said
/// stop, the answer stays true; without a progress it is always false.
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
