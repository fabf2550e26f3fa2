#include "nn/row_exchange.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include "dapple/core/error.h"

namespace dapple::nn {
namespace {

void append(std::vector<float>& all, std::span<const float> more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

void Arrivals::set(std::int64_t source, std::span<const float> counts) {
  std::ranges::copy(counts,
                    counts_.values.begin() + static_cast<std::ptrdiff_t>(source * experts_));
}

std::int64_t Arrivals::of_source(std::int64_t source) const {
  std::int64_t sum = 0;
  for (std::int64_t expert = 0; expert < experts_; ++expert) sum += count(source, expert);
  return sum;
}

std::vector<std::int64_t> Arrivals::first() const {
  std::vector<std::int64_t> first{0};
  for (std::int64_t expert = 0; expert < experts_; ++expert) {
    std::int64_t rows = first.back();
    for (std::int64_t source = 0; source < sources_; ++source) rows += count(source, expert);
    first.push_back(rows);
  }
  return first;
}

/// Calls `copy` for the rows of each source and expert with their place among those of all sources
/// and among all in the order of experts.
template <class Copy>
void Arrivals::for_each_run(const Copy& copy) const {
  std::vector<std::int64_t> place;
  std::int64_t before = 0;
  for (std::int64_t source = 0; source < sources_; ++source) {
    place.push_back(before);
    before += of_source(source);
  }
  std::int64_t all = 0;
  for (std::int64_t expert = 0; expert < experts_; ++expert) {
    for (std::int64_t source = 0; source < sources_; ++source) {
      const std::int64_t rows = count(source, expert);
      copy(place[static_cast<std::size_t>(source)], all, rows);
      place[static_cast<std::size_t>(source)] += rows;
      all += rows;
    }
  }
}

Tensor Arrivals::by_expert(std::span<const float> by_source, std::int64_t columns) const {
  Tensor rows = zeros({first().back(), columns});
  check(rows.values.size() == by_source.size(), "other rows arrive than ranks have told");
  for_each_run([&](std::int64_t from, std::int64_t to, std::int64_t count) {
    std::copy_n(by_source.begin() + from * columns, count * columns,
                rows.values.begin() + to * columns);
  });
  return rows;
}

std::vector<float> Arrivals::by_source(const Tensor& rows) const {
  const std::int64_t columns = rows.shape.back();
  std::vector<float> sent(rows.values.size());
  for_each_run([&](std::int64_t to, std::int64_t from, std::int64_t count) {
    std::copy_n(rows.values.begin() + from * columns, count * columns, sent.begin() + to * columns);
  });
  return sent;
}

/// Returns the entries' rows for each rank with other experts.
RowExchange::ByRank RowExchange::for_ranks(const Routing& routing, const Tensor& entries) const {
  const std::int64_t columns = entries.shape.back();
  ByRank to;
  for (std::int64_t rank = 0; rank < experts_.ranks; ++rank) {
    to.emplace_back(entries.values.begin() + first_entry(routing, rank) * columns,
                    entries.values.begin() + first_entry(routing, rank + 1) * columns);
  }
  return to;
}

/// Returns the number of entries for each of a rank's experts.
std::vector<float> RowExchange::counts_for(const Routing& routing, std::int64_t rank) const {
  std::vector<float> counts;
  for (std::int64_t expert = rank * own_; expert < (rank + 1) * own_; ++expert) {
    const auto at = static_cast<std::size_t>(expert);
    counts.push_back(static_cast<float>(routing.first[at + 1] - routing.first[at]));
  }
  return counts;
}

/// Returns how many rows arrive at a rank that shares the experts.
std::int64_t RowExchange::rows_at(const Arrivals& arrivals, std::int64_t sharing) const {
  std::int64_t rows = 0;
  for (std::int64_t rank = 0; rank < experts_.ranks; ++rank) {
    rows += arrivals.of_source(sharing * experts_.ranks + rank);
  }
  return rows;
}

/// The rows of each rank are behind their numbers for each expert, as no rank knows them.
Tensor RowExchange::to_experts(const Routing& routing, const Tensor& entries,
                               Arrivals& arrivals) const {
  ByRank to = for_ranks(routing, entries);
  for (std::int64_t rank = 0; rank < experts_.ranks; ++rank) {
    const std::vector<float> counts = counts_for(routing, rank);
    std::vector<float>& of_rank = to[static_cast<std::size_t>(rank)];
    of_rank.insert(of_rank.begin(), counts.begin(), counts.end());
  }
  ByRank from(static_cast<std::size_t>(experts_.ranks));
  experts_.group->all_to_all(to, from);
  const auto each = static_cast<std::size_t>(own_);
  std::vector<float> told;
  std::vector<float> rows;
  for (const std::vector<float>& of_rank : from) {
    check(of_rank.size() >= each, "a rank has not told how many rows it sends");
    append(told, std::span(of_rank).first(each));
    append(rows, std::span(of_rank).subspan(each));
  }
  append(told, rows);
  ByRank shared{std::move(told)};
  if (sharing_.ranks > 1) {
    const ByRank same(static_cast<std::size_t>(sharing_.ranks), shared.front());
    shared.assign(same.size(), {});
    sharing_.group->all_to_all(same, shared);
  }
  const std::size_t all_counts = each * static_cast<std::size_t>(experts_.ranks);
  std::vector<float> by_source;
  std::int64_t source = 0;
  for (const std::vector<float>& block : shared) {
    check(block.size() >= all_counts, "a rank has not told how many rows have arrived");
    for (std::size_t begin = 0; begin < all_counts; begin += each) {
      arrivals.set(source++, std::span(block).subspan(begin, each));
    }
    append(by_source, std::span(block).subspan(all_counts));
  }
  return arrivals.by_expert(by_source, entries.shape.back());
}

Tensor RowExchange::to_experts_again(const Routing& routing, const Tensor& entries,
                                     const Arrivals& arrivals) const {
  const std::int64_t columns = entries.shape.back();
  const auto numbers = [&](std::int64_t rows) { return static_cast<std::size_t>(rows * columns); };
  ByRank from;
  for (std::int64_t rank = 0; rank < experts_.ranks; ++rank) {
    const std::int64_t source = sharing_.rank * experts_.ranks + rank;
    from.emplace_back(numbers(arrivals.of_source(source)));
  }
  experts_.group->all_to_all(for_ranks(routing, entries), from);
  std::vector<float> by_source;
  for (const std::vector<float>& of_rank : from) append(by_source, of_rank);
  if (sharing_.ranks > 1) {
    const ByRank same(static_cast<std::size_t>(sharing_.ranks), by_source);
    ByRank shared;
    for (std::int64_t rank = 0; rank < sharing_.ranks; ++rank) {
      shared.emplace_back(numbers(rows_at(arrivals, rank)));
    }
    sharing_.group->all_to_all(same, shared);
    by_source.clear();
    for (const std::vector<float>& block : shared) append(by_source, block);
  }
  return arrivals.by_expert(by_source, columns);
}

/// Returns the sum of what all that share the experts have computed of the rows that have arrived
/// here, each of which sends what it has of those of every other one.
std::vector<float> RowExchange::summed(std::vector<float> all, const Arrivals& arrivals,
                                       std::int64_t columns) const {
  if (sharing_.ranks == 1) return all;
  ByRank to;
  auto begin = all.begin();
  for (std::int64_t rank = 0; rank < sharing_.ranks; ++rank) {
    const auto end = begin + rows_at(arrivals, rank) * columns;
    to.emplace_back(begin, end);
    begin = end;
  }
  ByRank from(to.size(), std::vector<float>(to[static_cast<std::size_t>(sharing_.rank)].size()));
  sharing_.group->all_to_all(to, from);
  std::vector<float> sum = std::move(from.front());
  for (const std::vector<float>& other : std::span(from).subspan(1)) {
    std::transform(sum.begin(), sum.end(), other.begin(), sum.begin(), std::plus<>());
  }
  return sum;
}

Tensor RowExchange::to_positions(const Routing& routing, const Tensor& rows,
                                 const Arrivals& arrivals) const {
  const std::int64_t columns = rows.shape.back();
  const std::vector<float> own = summed(arrivals.by_source(rows), arrivals, columns);
  ByRank to;
  ByRank from;
  auto begin = own.begin();
  for (std::int64_t rank = 0; rank < experts_.ranks; ++rank) {
    const auto end = begin + arrivals.of_source(sharing_.rank * experts_.ranks + rank) * columns;
    to.emplace_back(begin, end);
    begin = end;
    const std::int64_t back = first_entry(routing, rank + 1) - first_entry(routing, rank);
    from.emplace_back(static_cast<std::size_t>(back * columns));
  }
  experts_.group->all_to_all(to, from);
  Tensor entries{{routing.entries(), columns}, {}};
  for (const std::vector<float>& of_rank : from) append(entries.values, of_rank);
  check(static_cast<std::int64_t>(entries.values.size()) == routing.entries() * columns,
        "experts return another number of rows");
  return entries;
}

}  // namespace dapple::nn
