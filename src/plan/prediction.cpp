#include "dapple/plan/prediction.h"

#include <algorithm>

namespace dapple {

Duration TimeParts::total() const {
  Duration sum;
  for (const TimePart& part : kTimeParts) sum += this->*part.part;
  return sum;
}

StageIndex JitterFigures::worst_stage() const {
  const auto worst = std::max_element(with_slow_device.begin(), with_slow_device.end());
  return index_at<StageIndex>(static_cast<std::size_t>(worst - with_slow_device.begin()));
}

Bytes Prediction::most_memory() const {
  Bytes most;
  for (const DeviceFigures& device : devices) most = std::max(most, device.peak_memory);
  return most;
}

}  // namespace dapple
