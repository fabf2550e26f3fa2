#include "report/ticks.h"

#include <fmt/format.h>

#include <cstdint>

#include "dapple/report/show.h"

namespace dapple::report {

Duration tick_length(double columns_per_ns, double columns) {
  std::int64_t power = 1;
  for (; power < kMaxCount; power *= 10) {
    for (std::int64_t factor : {1, 2, 5}) {
      if (static_cast<double>(factor * power) * columns_per_ns >= columns) {
        return {factor * power};
      }
    }
  }
  return {power};
}

std::string tick_text(Duration moment, Duration whole) {
  // The unit is that of show(). No digits are rounded off: ticks are round numbers and may be close
  // together.
  const std::string shown = show(whole, whole);
  const std::string unit = shown.substr(shown.find(' ') + 1);
  const int decimals = unit == "s" ? 9 : unit == "ms" ? 6 : unit == "us" ? 3 : 0;
  std::int64_t size = 1;
  for (int i = 0; i < decimals; ++i) size *= 10;
  std::string number = fmt::format("{}", moment.ns / size);
  if (moment.ns % size != 0) {
    number += fmt::format(".{:0{}}", moment.ns % size, decimals);
    number.erase(number.find_last_not_of('0') + 1);
  }
  return number + ' ' + unit;
}

}  // namespace dapple::report
