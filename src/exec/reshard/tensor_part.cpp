#include "dapple/exec/reshard/tensor_part.h"

#include "dapple/core/error.h"
#include "dapple/core/quantity.h"

namespace dapple::exec {
namespace {

using PartRange = nn::OutputPart::Range;

PartRange common_range(const PartRange& a, const PartRange& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

std::int64_t length_of(const PartRange& range) {
  return range.end - range.begin;
}

PartRange samples_of(const TensorPart& part) {
  return {part.samples.begin, part.samples.end};
}

std::int64_t count_positions(const TensorPart& part) {
  std::int64_t positions = 0;
  for (const PartRange& range : part.of_sample.positions) positions += length_of(range);
  return positions;
}

/// Returns the positions that both parts have, ascending.
std::vector<PartRange> common_positions(const TensorPart& a, const TensorPart& b) {
  std::vector<PartRange> common;
  for (const PartRange& one : a.of_sample.positions) {
    for (const PartRange& other : b.of_sample.positions) {
      const PartRange both = common_range(one, other);
      if (length_of(both) > 0) common.push_back(both);
    }
  }
  return common;
}

/// Returns the row, among those that a part holds of a sample, of one of its positions.
std::int64_t row_of(const TensorPart& part, std::int64_t position) {
  std::int64_t row = 0;
  for (const PartRange& range : part.of_sample.positions) {
    if (position < range.end) return row + position - range.begin;
    row += length_of(range);
  }
  throw Bug("a rank is asked for a position of another one");
}

/// Calls `work` with the place in a tensor that holds the first part, and with the number of
/// numbers, of each run that both parts have.
template <class Work>
void for_each_common_run(const TensorPart& own, const TensorPart& other, const Work& work) {
  const std::vector<PartRange> positions = common_positions(own, other);
  const PartRange samples = common_range(samples_of(own), samples_of(other));
  const PartRange columns = common_range(own.of_sample.columns, other.of_sample.columns);
  const std::int64_t rows = count_positions(own);
  const std::int64_t width = own.of_sample.width;
  for (std::int64_t sample = samples.begin; sample < samples.end; ++sample) {
    const std::int64_t first = (sample - own.samples.begin) * rows;
    for (const PartRange& range : positions) {
      const std::int64_t row = first + row_of(own, range.begin);
      const std::int64_t place = row * width + columns.begin - own.of_sample.columns.begin;
      if (length_of(columns) == width) {
        work(place, length_of(range) * width);
        continue;
      }
      for (std::int64_t k = 0; k < length_of(range); ++k) {
        work(place + k * width, length_of(columns));
      }
    }
  }
}

/// Returns which numbers a rank sends, of those that both parts have, in their order.
PartRange sent_range(const TensorPart& from, const TensorPart& to) {
  const std::int64_t copy = from.of_sample.copy;
  const std::int64_t copies = from.of_sample.copies;
  const std::int64_t common = count_of_common(from, to);
  if (copies <= to.ranks) return {0, to.rank % copies == copy ? common : 0};
  if (copy % to.ranks != to.rank) return {};
  const std::int64_t senders = divide_up(copies - to.rank, to.ranks);
  const std::int64_t sender = copy / to.ranks;
  return {common * sender / senders, common * (sender + 1) / senders};
}

/// Calls `work` with the place in a tensor that holds the first part, and with the number of
/// numbers, of each run of those that are sent from one to the other, in either direction.
template <class Work>
void for_each_run(const TensorPart& own, const TensorPart& other, const PartRange& sent,
                  const Work& work) {
  std::int64_t passed = 0;
  for_each_common_run(own, other, [&](std::int64_t place, std::int64_t count) {
    const PartRange run = common_range({passed, passed + count}, sent);
    if (length_of(run) > 0) work(place + run.begin - passed, length_of(run));
    passed += count;
  });
}

}  // namespace

std::int64_t count_of(const TensorPart& part) {
  return count_of_common(part, part);
}

std::int64_t count_of_common(const TensorPart& a, const TensorPart& b) {
  std::int64_t positions = 0;
  for (const PartRange& range : common_positions(a, b)) positions += length_of(range);
  return length_of(common_range(samples_of(a), samples_of(b))) * positions *
         length_of(common_range(a.of_sample.columns, b.of_sample.columns));
}

std::int64_t count_of_sent(const TensorPart& from, const TensorPart& to) {
  return length_of(sent_range(from, to));
}

std::vector<float> take_sent(std::span<const float> held, const TensorPart& from,
                             const TensorPart& to) {
  const PartRange range = sent_range(from, to);
  std::vector<float> sent;
  sent.reserve(static_cast<std::size_t>(length_of(range)));
  for_each_run(from, to, range, [&](std::int64_t place, std::int64_t count) {
    const auto run = held.subspan(static_cast<std::size_t>(place), static_cast<std::size_t>(count));
    sent.insert(sent.end(), run.begin(), run.end());
  });
  return sent;
}

void put_sent(std::span<const float> sent, const TensorPart& from, const TensorPart& to,
              std::span<float> held) {
  const PartRange range = sent_range(from, to);
  check(static_cast<std::int64_t>(sent.size()) == length_of(range),
        "a part of a tensor has another size than was expected");
  auto next = sent.begin();
  for_each_run(to, from, range, [&](std::int64_t place, std::int64_t count) {
    std::copy_n(next, count, held.begin() + place);
    next += count;
  });
}

}  // namespace dapple::exec
