#include "dapple/plan/prediction.h"

#include <algorithm>

namespace dapple {

Duration TimeParts::total() const {
  Duration sum;
  for (const TimePart& part : kTimeParts) sum += this->*part.part;
  return sum;
}

Bytes Prediction::most_memory() const {
  Bytes most;
  for (const DeviceFigures& device : devices) most = std::max(most, device.peak_memory);
  return most;
}

}  // namespace dapple
