#include "dapple/plan/prediction.h"

namespace dapple {

Duration TimeParts::total() const {
  Duration sum;
  for (const TimePart& part : kTimeParts) sum += this->*part.part;
  return sum;
}

}  // namespace dapple
