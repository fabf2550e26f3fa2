#include "exec/gpu/cuda_marks.h"

#include <algorithm>

#include "exec/message/clock.h"

namespace dapple::exec {

void CudaMarks::begin(const cuda::Stream& stream) {
  count_ = 0;
  stream.finish();
  zero_.record(stream);
  zero_.wait();
  zero_moment_ = monotonic_now();
}

Mark CudaMarks::mark(const cuda::Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (count_ == events_.size()) events_.emplace_back();
  events_[count_].record(stream);
  return {.moment = 0, .event = static_cast<std::int32_t>(count_++)};
}

std::int64_t CudaMarks::moment_of(const Mark& mark) const {
  if (mark.event < 0) return mark.moment;
  const cuda::Event& event = events_[static_cast<std::size_t>(mark.event)];
  event.wait();
  return std::max(mark.moment, zero_moment_ + event.since(zero_).ns);
}

}  // namespace dapple::exec
