#include <algorithm>

#include "dapple/core/error.h"
#include "dapple/nn/module.h"

namespace dapple::nn {
namespace {

/// Calls `copy` with the places of each run of values that is contiguous in the whole parameter and
/// in the part, and with `pad` those of each run of padding in the part.
template <class Copy, class Pad>
void for_each_run(const ParameterPart& part, Copy copy, Pad pad) {
  const auto dimension = static_cast<std::ptrdiff_t>(part.dimension);
  const std::int64_t outer = count_of({part.whole.begin(), part.whole.begin() + dimension});
  const std::int64_t inner = count_of({part.whole.begin() + dimension + 1, part.whole.end()});
  const std::int64_t extent = part.whole[part.dimension];
  ParameterPart::Range rows{0, outer};
  if (part.of_first) {
    const std::int64_t each = outer / part.whole.front();
    rows = {part.of_first->begin * each, part.of_first->end * each};
  }
  std::int64_t place = 0;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    for (const ParameterPart::Range& range : part.ranges) {
      const std::int64_t begin = std::min(range.begin, extent);
      const std::int64_t end = std::min(range.end, extent);
      copy((row * extent + begin) * inner, place, (end - begin) * inner);
      place += (end - begin) * inner;
      const std::int64_t padding = (range.end - range.begin - (end - begin)) * inner;
      pad(place, padding);
      place += padding;
    }
  }
}

}  // namespace

void take_part(const ParameterPart& part, std::span<const float> whole, std::span<float> values) {
  for_each_run(
      part,
      [&](std::int64_t from, std::int64_t to, std::int64_t count) {
        std::copy_n(whole.begin() + from, count, values.begin() + to);
      },
      [&](std::int64_t at, std::int64_t count) { std::fill_n(values.begin() + at, count, 0.0F); });
}

void put_part(const ParameterPart& part, std::span<const float> values, std::span<float> whole) {
  for_each_run(
      part,
      [&](std::int64_t to, std::int64_t from, std::int64_t count) {
        std::copy_n(values.begin() + from, count, whole.begin() + to);
      },
      [](std::int64_t, std::int64_t) {});
}

}  // namespace dapple::nn
