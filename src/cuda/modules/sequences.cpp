// Sequences that are divided among tensor-parallel or context-parallel ranks.
#include <array>
#include <utility>

#include "cuda/kernels/layers/sequence_parts.h"
#include "cuda/modules/modules.h"
#include "cuda/modules/shared_modules.h"
#include "dapple/core/error.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {
namespace {

SequenceParts parts_of(const nn::Shape& whole, std::int64_t ranks, std::int64_t chunks_of_rank) {
  const std::int64_t samples = whole.front();
  return {.samples = samples,
          .ranks = ranks,
          .chunks_of_rank = chunks_of_rank,
          .chunk = nn::count_of(whole) / (samples * ranks * chunks_of_rank)};
}

/// Whether whole sequences are the parts of one rank after those of another.
bool are_in_order(const SequenceParts& parts) {
  return parts.samples == 1 && parts.chunks_of_rank == 1;
}

DeviceTensor gather(Device& device, const DeviceTensor& own, std::int64_t ranks,
                    std::int64_t chunks_of_rank, DeviceGroup& group) {
  nn::Shape shape = own.shape;
  shape[1] *= ranks;
  DeviceTensor whole = make_tensor(device, std::move(shape), own.type);
  const SequenceParts parts = parts_of(whole.shape, ranks, chunks_of_rank);
  if (are_in_order(parts)) {
    group.all_gather(own.view(), whole.view());
    return whole;
  }
  const DeviceTensor by_rank = make_tensor(device, whole.shape, own.type);
  group.all_gather(own.view(), by_rank.view());
  order_by_sample(device.compute(), parts, by_rank.view(), whole.view());
  return whole;
}

DeviceTensor scatter(Device& device, const DeviceTensor& whole, std::int64_t ranks,
                     std::int64_t chunks_of_rank, DeviceGroup& group) {
  nn::Shape shape = whole.shape;
  shape[1] /= ranks;
  DeviceTensor own = make_tensor(device, std::move(shape), whole.type);
  const SequenceParts parts = parts_of(whole.shape, ranks, chunks_of_rank);
  if (are_in_order(parts)) {
    group.reduce_scatter(whole.view(), own.view());
    return own;
  }
  const DeviceTensor by_rank = make_tensor(device, whole.shape, whole.type);
  order_by_rank(device.compute(), parts, whole.view(), by_rank.view());
  group.reduce_scatter(by_rank.view(), own.view());
  return own;
}

class OwnPositions : public DeviceModuleWithoutParameters {
 public:
  explicit OwnPositions(const ContextGroup& context) : context_(context) {}

  DeviceTensor forward(Device& device, Parameters, DeviceTensor input, const DeviceTensor&,
                       DeviceStash&) const override {
    return take_own_positions(device, input, context_);
  }
  /// Tokens have no gradient.
  DeviceTensor input_gradient(Device&, Parameters, DeviceTensor, DeviceStash&) const override {
    return {};
  }

  /// Returns the numbers at the rank's positions of each sample, in [samples, sequence].
  static DeviceTensor take_own_positions(Device& device, const DeviceTensor& whole,
                                         const ContextGroup& context) {
    const std::int64_t sequence = whole.shape[1];
    const std::int64_t rows = sequence / context.ranks;
    DeviceTensor own = make_tensor(device, {whole.samples(), rows}, whole.type);
    take_rows(device.compute(),
              {.positions = positions_of(context, sequence), .rows = rows, .sequence = sequence},
              whole.view(), own.view());
    return own;
  }

 private:
  ContextGroup context_;
};

/// The mean over all positions is the mean of the ranks' means, as all have as many.
class ContextParallelLoss : public DeviceModuleWithoutParameters {
 public:
  ContextParallelLoss(std::unique_ptr<DeviceModule> of_rank, const ContextGroup& context)
      : of_rank_(std::move(of_rank)), context_(context) {}

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor& targets, DeviceStash& stash) const override {
    DeviceTensor losses =
        of_rank_->forward(device, parameters, std::move(input),
                          OwnPositions::take_own_positions(device, targets, context_), stash);
    context_.group->all_reduce(losses.view());
    scale(device.compute(), share(), losses.view());
    return losses;
  }
  DeviceTensor input_gradient(Device& device, Parameters parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    scale(device.compute(), share(), output_gradient.view());
    return of_rank_->input_gradient(device, parameters, std::move(output_gradient), stash);
  }

 private:
  float share() const { return 1 / static_cast<float>(context_.ranks); }

  std::unique_ptr<DeviceModule> of_rank_;
  ContextGroup context_;
};

/// Uses the rows of the table that belong to the rank's part of the sequence.
class PositionsOfPart : public DeviceModule {
 public:
  explicit PositionsOfPart(const OwnRows& own) : own_(own) {}

  std::size_t parameter_count() const override { return 1; }

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor&, DeviceStash& stash) const override {
    const View& table = parameters[0];
    const DeviceTensor rows = make_tensor(device, {own_.rows, own_.width}, table.type);
    take_rows(device.compute(), own_, table, rows.view());
    return of_part_->forward(device, std::array{rows.view()}, std::move(input), {}, stash);
  }
  DeviceTensor input_gradient(Device& device, Parameters parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    return of_part_->input_gradient(device, parameters, std::move(output_gradient), stash);
  }
  void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const override {
    const DeviceTensor rows = make_tensor(device, {own_.rows, own_.width}, Type::Float32);
    fill_with_zeros(device.compute(), rows.view());
    of_part_->weight_gradient(device, stash, std::array{rows.view()});
    add_to_rows(device.compute(), own_, rows.view(), sums[0]);
  }

 private:
  OwnRows own_;
  std::unique_ptr<DeviceModule> of_part_ = make_position_embedding();
};

/// Returns the positions of rows from `begin` on.
RowPositions from_row(const RowPositions& positions, std::int32_t begin) {
  if (begin < positions.split) {
    return {positions.split - begin, positions.first + begin, positions.second};
  }
  return {0, positions.first, positions.second + begin - positions.split};
}

}  // namespace

TensorGroup tensor_group(const DeviceRank& rank) {
  const nn::TensorRank& tensor = rank.layers.tensor;
  return {tensor.rank, tensor.ranks, tensor.is_sequence_parallel, rank.tensor};
}

ContextGroup context_group(const DeviceRank& rank) {
  return {rank.layers.context.rank, rank.layers.context.ranks, rank.context};
}

DeviceTensor gather_sequences(Device& device, const DeviceTensor& own, const TensorGroup& tensor) {
  return gather(device, own, tensor.ranks, 1, *tensor.group);
}

DeviceTensor scatter_sequences(Device& device, const DeviceTensor& whole,
                               const TensorGroup& tensor) {
  return scatter(device, whole, tensor.ranks, 1, *tensor.group);
}

DeviceTensor sum_of_ranks(Device& device, DeviceTensor partial, const TensorGroup& tensor) {
  if (tensor.is_sequence_parallel) return scatter_sequences(device, partial, tensor);
  tensor.group->all_reduce(partial.view());
  return partial;
}

RowPositions positions_of(const ContextGroup& context, std::int64_t sequence) {
  if (context.ranks == 1) return {};
  const std::int64_t chunks = 2 * context.ranks;
  check(sequence % chunks == 0, "context-parallel ranks share what they do not divide");
  const auto size = static_cast<std::int32_t>(sequence / chunks);
  const auto rank = static_cast<std::int32_t>(context.rank);
  const auto last = static_cast<std::int32_t>(chunks - 1);
  return {size, rank * size, (last - rank) * size};
}

DeviceTensor gather_positions(Device& device, const DeviceTensor& own,
                              const ContextGroup& context) {
  return gather(device, own, context.ranks, 2, *context.group);
}

DeviceTensor scatter_positions(Device& device, const DeviceTensor& whole,
                               const ContextGroup& context) {
  return scatter(device, whole, context.ranks, 2, *context.group);
}

std::unique_ptr<DeviceModule> make_own_positions(const ContextGroup& context) {
  return std::make_unique<OwnPositions>(context);
}

std::unique_ptr<DeviceModule> make_context_parallel_loss(std::unique_ptr<DeviceModule> of_rank,
                                                         const ContextGroup& context) {
  return std::make_unique<ContextParallelLoss>(std::move(of_rank), context);
}

std::unique_ptr<DeviceModule> make_shared_position_embedding(
    const PositionEmbeddingOperation& whole, const DeviceRank& rank) {
  const ContextGroup context = context_group(rank);
  const TensorGroup tensor = tensor_group(rank);
  const bool is_whole = !tensor.is_sequence_parallel && context.ranks == 1;
  if (is_whole) return make_position_embedding();
  OwnRows own{.positions = positions_of(context, whole.sequence),
              .rows = whole.sequence / context.ranks,
              .sequence = whole.sequence,
              .width = whole.hidden};
  if (tensor.is_sequence_parallel) {
    own.rows /= tensor.ranks;
    own.positions = from_row(own.positions, static_cast<std::int32_t>(tensor.rank * own.rows));
  }
  return std::make_unique<PositionsOfPart>(own);
}

}  // namespace dapple::cuda
