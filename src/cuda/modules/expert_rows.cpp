// The rows of experts: what is computed of them, and how they pass between ranks.
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "cuda/kernels/layers/expert_routing.h"
#include "cuda/memory/libraries.h"
#include "cuda/modules/experts.h"
#include "cuda/modules/modules.h"
#include "dapple/core/error.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {
namespace {

std::int64_t padded(std::int64_t count) {
  return padded_rows_of(static_cast<std::int32_t>(count));
}

std::int64_t sum_of(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// Rows [begin, end) of a tensor.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  View of(const DeviceTensor& rows) const {
    const std::int64_t columns = rows.shape.back();
    return rows.view().part(begin * columns, end * columns);
  }
};

/// Calls `work` with each expert that has rows, and with these.
template <class Work>
void for_each_expert(std::span<const std::int64_t> counts, const Work& work) {
  RowRange rows;
  for (std::size_t expert = 0; expert < counts.size(); ++expert) {
    rows = {rows.end, rows.end + padded(counts[expert])};
    if (rows.size() > 0) work(expert, rows);
  }
}

/// Returns an expert's matrix of those of all.
View matrix_of(const View& all, std::size_t expert, std::int64_t size) {
  const auto number = static_cast<std::int64_t>(expert);
  return all.part(number * size, (number + 1) * size);
}

DeviceTensor make_rows(Device& device, std::int64_t rows, std::int64_t columns, Type type) {
  return make_tensor(device, {rows, columns}, type);
}

/// Returns what each rank has sent to this one, one after another.
std::vector<std::int64_t> exchanged(DeviceGroup& group,
                                    const std::vector<std::vector<std::int64_t>>& to,
                                    std::int64_t each) {
  std::vector<std::int64_t> all;
  for (const std::vector<std::int64_t>& of_rank : group.exchange_counts(to)) {
    check(of_rank.size() == static_cast<std::size_t>(each),
          "a rank has not told how many rows it sends for each expert");
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  return all;
}

}  // namespace

std::int64_t padded_rows_of(std::span<const std::int64_t> counts) {
  std::int64_t rows = 0;
  for (const std::int64_t count : counts) rows += padded(count);
  return rows;
}

DeviceFeedForwards::DeviceFeedForwards(std::int64_t hidden, std::int64_t width,
                                       FeedForwardKind activation)
    : hidden_(hidden),
      width_(width),
      expanded_(activation == FeedForwardKind::SwiGlu ? 2 * width : width),
      activation_(activation == FeedForwardKind::SwiGlu ? make_swiglu() : make_gelu()) {}

DeviceTensor DeviceFeedForwards::forward(Device& device, const Weights& weights,
                                         const DeviceTensor& rows,
                                         std::span<const std::int64_t> counts,
                                         DeviceTensor& activated,
                                         DeviceStash& of_activation) const {
  MatrixProducts& products = device.libraries().products;
  DeviceTensor expanded = make_rows(device, rows.samples(), expanded_, rows.type);
  for_each_expert(counts, [&](std::size_t expert, const RowRange& own) {
    products.multiply(device, {.rows = own.size(),
                               .depth = hidden_,
                               .columns = expanded_,
                               .left = {own.of(rows)},
                               .right = {matrix_of(weights.expand, expert, hidden_ * expanded_)},
                               .result = own.of(expanded)});
  });
  activated = activation_->forward(device, {}, std::move(expanded), {}, of_activation);
  DeviceTensor output = make_rows(device, rows.samples(), hidden_, rows.type);
  for_each_expert(counts, [&](std::size_t expert, const RowRange& own) {
    products.multiply(device, {.rows = own.size(),
                               .depth = width_,
                               .columns = hidden_,
                               .left = {own.of(activated)},
                               .right = {matrix_of(weights.reduce, expert, width_ * hidden_)},
                               .result = own.of(output)});
  });
  return output;
}

/// The product of an output with its gradient is taken before the last matrix, where its factors
/// are known.
DeviceFeedForwards::Gradients DeviceFeedForwards::backward(Device& device, const Weights& weights,
                                                           const DeviceTensor& of_output,
                                                           std::span<const std::int64_t> counts,
                                                           const DeviceTensor& activated,
                                                           DeviceStash& of_activation) const {
  MatrixProducts& products = device.libraries().products;
  const std::int64_t rows = of_output.samples();
  DeviceTensor of_activated = make_rows(device, rows, width_, of_output.type);
  for_each_expert(counts, [&](std::size_t expert, const RowRange& own) {
    products.multiply(device, {.rows = own.size(),
                               .depth = hidden_,
                               .columns = width_,
                               .left = {own.of(of_output)},
                               .right = {matrix_of(weights.reduce, expert, width_ * hidden_), true},
                               .result = own.of(of_activated)});
  });
  Gradients gradients;
  gradients.products = make_rows(device, rows, 1, Type::Float32);
  take_row_products(device.compute(), width_, activated.view(), of_activated.view(),
                    gradients.products.view());
  gradients.of_expanded =
      activation_->input_gradient(device, {}, std::move(of_activated), of_activation);
  activation_->weight_gradient(device, of_activation, {});
  gradients.of_rows = make_rows(device, rows, hidden_, of_output.type);
  for_each_expert(counts, [&](std::size_t expert, const RowRange& own) {
    products.multiply(device,
                      {.rows = own.size(),
                       .depth = expanded_,
                       .columns = hidden_,
                       .left = {own.of(gradients.of_expanded)},
                       .right = {matrix_of(weights.expand, expert, hidden_ * expanded_), true},
                       .result = own.of(gradients.of_rows)});
  });
  return gradients;
}

void DeviceFeedForwards::add_weight_gradients(Device& device, const Factors& factors,
                                              std::span<const std::int64_t> counts,
                                              const Weights& sums) const {
  MatrixProducts& products = device.libraries().products;
  for_each_expert(counts, [&](std::size_t expert, const RowRange& own) {
    const View expand = matrix_of(sums.expand, expert, hidden_ * expanded_);
    products.multiply(device, {.rows = hidden_,
                               .depth = own.size(),
                               .columns = expanded_,
                               .left = {own.of(factors.rows), true},
                               .right = {own.of(factors.of_expanded)},
                               .result = expand,
                               .addend = expand});
    const View reduce = matrix_of(sums.reduce, expert, width_ * hidden_);
    products.multiply(device, {.rows = width_,
                               .depth = own.size(),
                               .columns = hidden_,
                               .left = {own.of(factors.activated), true},
                               .right = {own.of(factors.of_output)},
                               .result = reduce,
                               .addend = reduce});
  });
}

std::vector<std::int64_t> ExpertExchange::exchange_counts(
    std::span<const std::int64_t> entries) const {
  std::vector<std::vector<std::int64_t>> to;
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    const auto own = entries.subspan(static_cast<std::size_t>(rank * experts_),
                                     static_cast<std::size_t>(experts_));
    to.emplace_back(own.begin(), own.end());
  }
  std::vector<std::int64_t> own = exchanged(*group_, to, experts_);
  if (sharing_.ranks == 1) return own;
  const std::vector<std::vector<std::int64_t>> same(static_cast<std::size_t>(sharing_.ranks), own);
  return exchanged(*sharing_group_, same, ranks_ * experts_);
}

std::vector<std::int64_t> ExpertExchange::rows_of_experts(
    std::span<const std::int64_t> arrivals) const {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(experts_));
  for (std::size_t i = 0; i < arrivals.size(); ++i) rows[i % rows.size()] += arrivals[i];
  return rows;
}

DeviceTensor ExpertExchange::places_of_arrivals(Device& device,
                                                std::span<const std::int64_t> arrivals) const {
  const auto experts = static_cast<std::size_t>(experts_);
  std::vector<std::int32_t> places;
  for (std::size_t expert = 0; expert < experts; ++expert) {
    const std::size_t first = places.size();
    std::int32_t before = 0;  // rows of ranks and experts before
    for (std::size_t i = 0; i < arrivals.size(); ++i) {
      const auto count = static_cast<std::int32_t>(arrivals[i]);
      for (std::int32_t row = 0; i % experts == expert && row < count; ++row) {
        places.push_back(before + row);
      }
      before += count;
    }
    const auto own = static_cast<std::int64_t>(places.size() - first);
    places.resize(first + static_cast<std::size_t>(padded(own)), -1);
  }
  DeviceTensor tensor =
      make_tensor(device, {static_cast<std::int64_t>(places.size())}, Type::Int32);
  device.upload(std::as_bytes(std::span(places)), tensor.memory.address(), device.compute());
  return tensor;
}

std::vector<View> ExpertExchange::parts_by_rank(const DeviceTensor& rows,
                                                std::span<const std::int64_t> counts) const {
  std::vector<View> parts;
  RowRange own;
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    const auto of_rank = counts.subspan(static_cast<std::size_t>(rank * experts_),
                                        static_cast<std::size_t>(experts_));
    own = {own.end, own.end + sum_of(of_rank)};
    parts.push_back(own.of(rows));
  }
  return parts;
}

/// Returns the arrivals at one of the ranks that share experts.
std::span<const std::int64_t> ExpertExchange::arrivals_at(const Counts& counts,
                                                          std::int64_t sharing) const {
  const auto each = static_cast<std::size_t>(ranks_ * experts_);
  return counts.arrivals.subspan(static_cast<std::size_t>(sharing) * each, each);
}

/// Returns the rows that have arrived at each of these ranks.
std::vector<View> ExpertExchange::parts_by_sharing(const DeviceTensor& rows,
                                                   const Counts& counts) const {
  std::vector<View> parts;
  RowRange own;
  for (std::int64_t rank = 0; rank < sharing_.ranks; ++rank) {
    own = {own.end, own.end + sum_of(arrivals_at(counts, rank))};
    parts.push_back(own.of(rows));
  }
  return parts;
}

/// Returns what has arrived at any of these ranks.
DeviceTensor ExpertExchange::gathered(Device& device, DeviceTensor own,
                                      const Counts& counts) const {
  if (sharing_.ranks == 1) return own;
  DeviceTensor all = make_rows(device, sum_of(counts.arrivals), own.shape.back(), own.type);
  const std::vector<View> same(static_cast<std::size_t>(sharing_.ranks), own.view());
  sharing_group_->all_to_all(same, parts_by_sharing(all, counts));
  return all;
}

/// Returns the sums of what these ranks have computed of the rows that have arrived here.
DeviceTensor ExpertExchange::summed(Device& device, DeviceTensor all, const Counts& counts) const {
  if (sharing_.ranks == 1) return all;
  const std::int64_t columns = all.shape.back();
  const std::int64_t rows = sum_of(arrivals_at(counts, sharing_.rank));
  const DeviceTensor sent = make_rows(device, all.samples(), columns, Type::Float32);
  copy(device.compute(), all.view(), sent.view());
  const DeviceTensor parts = make_rows(device, sharing_.ranks * rows, columns, Type::Float32);
  std::vector<View> from;
  for (std::int64_t rank = 0; rank < sharing_.ranks; ++rank) {
    from.push_back(RowRange{rank * rows, (rank + 1) * rows}.of(parts));
  }
  sharing_group_->all_to_all(parts_by_sharing(sent, counts), from);
  for (const View& other : std::span(from).subspan(1)) add(device.compute(), other, from.front());
  DeviceTensor sums = make_rows(device, rows, columns, all.type);
  copy(device.compute(), from.front(), sums.view());
  return sums;
}

DeviceTensor ExpertExchange::to_experts(Device& device, const DeviceTensor& entries,
                                        const Counts& counts, const DeviceTensor& places) const {
  const std::int64_t columns = entries.shape.back();
  const std::span<const std::int64_t> here = arrivals_at(counts, sharing_.rank);
  DeviceTensor own = make_rows(device, sum_of(here), columns, entries.type);
  group_->all_to_all(parts_by_rank(entries, counts.entries), parts_by_rank(own, here));
  const DeviceTensor arrived = gathered(device, std::move(own), counts);
  DeviceTensor rows = make_rows(device, places.count(), columns, entries.type);
  take_rows(
      device.compute(),
      {.columns = columns, .index = places.view(), .from = arrived.view(), .to = rows.view()});
  return rows;
}

DeviceTensor ExpertExchange::to_positions(Device& device, const DeviceTensor& rows,
                                          const Counts& counts, const DeviceTensor& places) const {
  const std::int64_t columns = rows.shape.back();
  DeviceTensor by_rank = make_rows(device, sum_of(counts.arrivals), columns, rows.type);
  put_rows(device.compute(), columns, places.view(), rows.view(), by_rank.view());
  by_rank = summed(device, std::move(by_rank), counts);
  DeviceTensor entries = make_rows(device, sum_of(counts.entries), columns, rows.type);
  group_->all_to_all(parts_by_rank(by_rank, arrivals_at(counts, sharing_.rank)),
                     parts_by_rank(entries, counts.entries));
  return entries;
}

}  // namespace dapple::cuda
