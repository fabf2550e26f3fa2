#include "cuda/modules/experts.h"

#include <optional>
#include <utility>
#include <vector>

#include "cuda/kernels/layers/expert_routing.h"
#include "cuda/memory/libraries.h"
#include "cuda/modules/shared_modules.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {
namespace {

/// The parameters in nn's order.
enum ExpertParameter : std::size_t { kRouter, kExpandAll, kReduceAll, kExpertParameters };

/// The tensors in the stash after a forward, and what the input gradient adds for the weight
/// gradient. Rows and their places are kept where they come from other ranks only.
struct KeptByExperts {
  enum : std::size_t {
    kInput,
    kChosen,
    kShares,
    kPlaces,
    kOrder,
    kActivated,
    kRows,
    kPlacesOfArrivals,
    kOfScores,
    kOfExpanded,
    kOfOutput,
    kCount
  };
};

std::vector<std::int64_t> on_host(Device& device, const DeviceTensor& whole_numbers) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(whole_numbers.count()));
  device.download(whole_numbers.memory.address(), std::as_writable_bytes(std::span(numbers)),
                  device.compute());
  return {numbers.begin(), numbers.end()};
}

/// Experts whole on one device, of each of which a tensor-parallel rank computes a part, or divided
/// among expert-parallel ranks, of which each routes its own positions by the whole router, and
/// several may compute a part each of the same experts. In the
/// stash the counts are the entries of each expert, and then those of arrivals if there are ranks
/// with other experts.
class Experts : public DeviceModule {
 public:
  Experts(const TransformerBlockOperation& operation, const DeviceRank& rank)
      : hidden_(operation.hidden),
        experts_(*operation.experts),
        tensor_(rank.layers.experts.ranks == 1 ? tensor_group(rank) : TensorGroup{}),
        feed_forwards_(hidden_,
                       operation.feed_forward / (tensor_.ranks * rank.layers.expert_tensor.ranks),
                       operation.activation) {
    if (rank.layers.experts.ranks > 1) exchange_.emplace(rank, experts_.count);
  }

  std::size_t parameter_count() const override { return kExpertParameters; }

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor&, DeviceStash& stash) const override {
    auto& kept = stash.tensors;
    kept.resize(KeptByExperts::kCount);
    const DeviceTensor gathered = all_positions(device, input);
    const DeviceTensor& x = divides_sequences() ? gathered : input;
    route(device, parameters[kRouter], x, stash);
    DeviceTensor rows = rows_of_entries(device, x, stash, {});
    if (exchange_) {
      const std::vector<std::int64_t> arrivals = exchange_->exchange_counts(stash.counts);
      stash.counts.insert(stash.counts.end(), arrivals.begin(), arrivals.end());
      kept[KeptByExperts::kPlacesOfArrivals] = exchange_->places_of_arrivals(device, arrivals);
      rows = to_experts(device, rows, stash);
    }
    DeviceTensor entries =
        feed_forwards_.forward(device, weights_of(parameters), rows, rows_of_experts(stash),
                               kept[KeptByExperts::kActivated], stash.parts.emplace_back());
    if (exchange_) {
      kept[KeptByExperts::kRows] = std::move(rows);
      entries = to_positions(device, entries, stash);
    }
    DeviceTensor output =
        combined(device, entries, x.shape, stash, kept[KeptByExperts::kShares].view());
    kept[KeptByExperts::kInput] = std::move(input);
    return summed(device, std::move(output));
  }

  /// The gradient of each row's output is multiplied by the row's share where its position is, and
  /// the product with the output, which the gradient of the share consists of, comes back.
  DeviceTensor input_gradient(Device& device, Parameters parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    auto& kept = stash.tensors;
    const DeviceTensor gathered = all_positions(device, output_gradient);
    const DeviceTensor& slope = divides_sequences() ? gathered : output_gradient;
    DeviceTensor of_output =
        rows_of_entries(device, slope, stash, kept[KeptByExperts::kShares].view());
    if (exchange_) of_output = to_experts(device, of_output, stash);
    DeviceFeedForwards::Gradients gradients =
        feed_forwards_.backward(device, weights_of(parameters), of_output, rows_of_experts(stash),
                                kept[KeptByExperts::kActivated], stash.parts.front());
    stash.parts.clear();
    if (tensor_.ranks > 1) tensor_.group->all_reduce(gradients.products.view());
    if (exchange_) {
      gradients.of_rows = to_positions(device, gradients.of_rows, stash);
      gradients.products = to_positions(device, gradients.products, stash);
    }
    DeviceTensor gradient = combined(device, gradients.of_rows, slope.shape, stash, {});
    kept[KeptByExperts::kOfScores] = gradient_of_scores(device, gradients.products, slope, stash);
    if (tensor_.rank == 0) {  // of all ranks, which have the same
      add_gradient_of_rows(device, parameters[kRouter], kept[KeptByExperts::kOfScores], gradient);
    }
    kept[KeptByExperts::kOfExpanded] = std::move(gradients.of_expanded);
    kept[KeptByExperts::kOfOutput] = std::move(of_output);
    for (const std::size_t spent : {KeptByExperts::kChosen, KeptByExperts::kShares,
                                    KeptByExperts::kPlaces, KeptByExperts::kPlacesOfArrivals}) {
      kept[spent] = {};
    }
    return summed(device, std::move(gradient));
  }

  void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const override {
    auto& kept = stash.tensors;
    const DeviceTensor gathered = all_positions(device, kept[KeptByExperts::kInput]);
    const DeviceTensor& x = divides_sequences() ? gathered : kept[KeptByExperts::kInput];
    const std::int64_t positions = x.count() / hidden_;
    device.libraries().products.multiply(device, {.rows = hidden_,
                                                  .depth = positions,
                                                  .columns = experts_.count,
                                                  .left = {x.view(), true},
                                                  .right = {kept[KeptByExperts::kOfScores].view()},
                                                  .result = sums[kRouter],
                                                  .addend = sums[kRouter]});
    const DeviceTensor rows =
        exchange_ ? std::move(kept[KeptByExperts::kRows]) : rows_of_entries(device, x, stash, {});
    feed_forwards_.add_weight_gradients(device,
                                        {.rows = rows,
                                         .activated = kept[KeptByExperts::kActivated],
                                         .of_expanded = kept[KeptByExperts::kOfExpanded],
                                         .of_output = kept[KeptByExperts::kOfOutput]},
                                        rows_of_experts(stash),
                                        {.expand = sums[kExpandAll], .reduce = sums[kReduceAll]});
    stash.tensors.clear();
    stash.counts.clear();
  }

 private:
  static DeviceFeedForwards::Weights weights_of(Parameters parameters) {
    return {.expand = parameters[kExpandAll], .reduce = parameters[kReduceAll]};
  }

  bool divides_sequences() const { return tensor_.is_sequence_parallel; }
  /// Returns whole sequences of a rank's part of them; nothing where it has them.
  DeviceTensor all_positions(Device& device, const DeviceTensor& own) const {
    return divides_sequences() ? gather_sequences(device, own, tensor_) : DeviceTensor{};
  }
  DeviceTensor summed(Device& device, DeviceTensor partial) const {
    return tensor_.ranks == 1 ? std::move(partial)
                              : sum_of_ranks(device, std::move(partial), tensor_);
  }

  /// Chooses the experts of each position. The host waits for their numbers of entries.
  void route(Device& device, const View& router, const DeviceTensor& x, DeviceStash& stash) const {
    const std::int64_t positions = x.count() / hidden_;
    const DeviceTensor scores = make_tensor(device, {positions, experts_.count}, Type::Float32);
    device.libraries().products.multiply(device, {.rows = positions,
                                                  .depth = hidden_,
                                                  .columns = experts_.count,
                                                  .left = {x.view()},
                                                  .right = {router},
                                                  .result = scores.view()});
    auto& kept = stash.tensors;
    const nn::Shape of_entries{positions, experts_.per_token};
    kept[KeptByExperts::kChosen] = make_tensor(device, of_entries, Type::Int32);
    kept[KeptByExperts::kShares] = make_tensor(device, of_entries, Type::Float32);
    kept[KeptByExperts::kPlaces] = make_tensor(device, of_entries, Type::Int32);
    const View chosen = kept[KeptByExperts::kChosen].view();
    choose_experts(device.compute(), {.experts = experts_.count,
                                      .per_token = experts_.per_token,
                                      .scores = scores.view(),
                                      .chosen = chosen,
                                      .shares = kept[KeptByExperts::kShares].view()});
    const DeviceTensor counts = make_tensor(device, {experts_.count}, Type::Int32);
    count_entries(device.compute(), chosen, counts.view());
    stash.counts = on_host(device, counts);
    const std::int64_t rows = exchange_ ? chosen.count : padded_rows_of(stash.counts);
    kept[KeptByExperts::kOrder] = make_tensor(device, {rows}, Type::Int32);
    place_entries(device.compute(), {.rows = exchange_ ? ExpertRows::Dense : ExpertRows::Padded,
                                     .chosen = chosen,
                                     .counts = counts.view(),
                                     .places = kept[KeptByExperts::kPlaces].view(),
                                     .order = kept[KeptByExperts::kOrder].view()});
  }

  /// Returns the position's row for each entry, in the order of experts, times its factor if there
  /// are any.
  DeviceTensor rows_of_entries(Device& device, const DeviceTensor& positions,
                               const DeviceStash& stash, const View& factors) const {
    const DeviceTensor& order = stash.tensors[KeptByExperts::kOrder];
    DeviceTensor rows = make_tensor(device, {order.count(), hidden_}, positions.type);
    take_rows(device.compute(), {.columns = hidden_,
                                 .divisor = experts_.per_token,
                                 .index = order.view(),
                                 .factors = factors,
                                 .from = positions.view(),
                                 .to = rows.view()});
    return rows;
  }

  DeviceTensor combined(Device& device, const DeviceTensor& rows, const nn::Shape& shape,
                        const DeviceStash& stash, const View& shares) const {
    DeviceTensor positions = make_tensor(device, shape, rows.type);
    combine_rows(device.compute(), {.columns = hidden_,
                                    .per_token = experts_.per_token,
                                    .places = stash.tensors[KeptByExperts::kPlaces].view(),
                                    .shares = shares,
                                    .rows = rows.view(),
                                    .positions = positions.view()});
    return positions;
  }

  DeviceTensor gradient_of_scores(Device& device, const DeviceTensor& products,
                                  const DeviceTensor& positions, const DeviceStash& stash) const {
    DeviceTensor gradient =
        make_tensor(device, {positions.count() / hidden_, experts_.count}, positions.type);
    score_gradients(device.compute(), {.experts = experts_.count,
                                       .per_token = experts_.per_token,
                                       .chosen = stash.tensors[KeptByExperts::kChosen].view(),
                                       .shares = stash.tensors[KeptByExperts::kShares].view(),
                                       .places = stash.tensors[KeptByExperts::kPlaces].view(),
                                       .products = products.view(),
                                       .gradient = gradient.view()});
    return gradient;
  }

  void add_gradient_of_rows(Device& device, const View& router, const DeviceTensor& of_scores,
                            const DeviceTensor& gradient) const {
    device.libraries().products.multiply(device, {.rows = of_scores.samples(),
                                                  .depth = experts_.count,
                                                  .columns = hidden_,
                                                  .left = {of_scores.view()},
                                                  .right = {router, true},
                                                  .result = gradient.view(),
                                                  .addend = gradient.view()});
  }

  ExpertExchange::Counts counts_of(const DeviceStash& stash) const {
    const auto experts = static_cast<std::size_t>(experts_.count);
    const std::span<const std::int64_t> counts(stash.counts);
    return {.entries = counts.first(experts), .arrivals = counts.subspan(experts)};
  }
  std::vector<std::int64_t> rows_of_experts(const DeviceStash& stash) const {
    return exchange_ ? exchange_->rows_of_experts(counts_of(stash).arrivals) : stash.counts;
  }
  DeviceTensor to_experts(Device& device, const DeviceTensor& entries,
                          const DeviceStash& stash) const {
    return exchange_->to_experts(device, entries, counts_of(stash),
                                 stash.tensors[KeptByExperts::kPlacesOfArrivals]);
  }
  DeviceTensor to_positions(Device& device, const DeviceTensor& rows,
                            const DeviceStash& stash) const {
    return exchange_->to_positions(device, rows, counts_of(stash),
                                   stash.tensors[KeptByExperts::kPlacesOfArrivals]);
  }

  std::int64_t hidden_;
  ExpertsForm experts_;
  // Alone where ranks have different experts.
  TensorGroup tensor_;
  DeviceFeedForwards feed_forwards_;
  // Where ranks have different experts.
  std::optional<ExpertExchange> exchange_;
};

}  // namespace

std::unique_ptr<DeviceModule> make_experts(const TransformerBlockOperation& operation,
                                           const DeviceRank& rank) {
  return std::make_unique<Experts>(operation, rank);
}

}  // namespace dapple::cuda
