#include "dapple/estimate/operation.h"

#include "estimate/work.h"

namespace dapple::estimate {

Duration operation_time(const Operation& operation, const Gpu& gpu, const Calibration& calibration,
                        Precision precision) {
  const std::int64_t bytes = bytes_of(precision);
  const Work work =
      work_of({.rows = operation.rows, .columns = operation.columns, .inner = operation.inner},
              bytes) +
      pass(Wide{bytes} * operation.numbers);
  return Rates(gpu, calibration, precision).time_of_work(work, 1);
}

}  // namespace dapple::estimate
