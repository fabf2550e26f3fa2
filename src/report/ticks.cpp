#include "ticks.h"

#include "dapple/report/show.h"

namespace dapple {

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

std::string tick_text(Duration moment) {
  // Ticks are round: "20.00 ms" says no more than "20 ms".
  std::string text = show(moment);
  const std::size_t unit = text.find(' ');
  std::string number = text.substr(0, unit);
  if (number.find('.') != std::string::npos) {
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
  }
  return number + text.substr(unit);
}

}  // namespace dapple
