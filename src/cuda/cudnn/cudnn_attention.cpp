#include <map>
#include <memory>
#include <optional>

#include "cuda/cudnn/cudnn_attention_graph.h"
#include "cuda/memory/fused_attention.h"
#include "dapple/core/error.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {
namespace {

using Place = CudnnGraph::Place;

/// The first version in which the library itself sets kQuerySum to zero. Source: NVIDIA cuDNN
/// frontend, node of the backward of scaled dot product attention.
constexpr std::size_t kClearsQuerySum = 90'600;

/// Returns the view of queries, keys or values, starting at those of the first position.
View part_of(const View& together, const AttentionShape& shape, std::int64_t part) {
  const std::int64_t hidden = shape.heads * shape.width;
  return together.part(part * hidden, together.count);
}

/// The lowest compute capability for which there are fused kernels.
constexpr int kLeastCapability = 80;

}  // namespace

class FusedAttention::Plans {
 public:
  explicit Plans(const Device& device)
      : can_attend_(properties_of(device.ordinal()).capability >= kLeastCapability) {
    require_cudnn(cudnnCreate(&handle_), "cudnnCreate");
  }
  ~Plans() { static_cast<void>(cudnnDestroy(handle_)); }
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;

  struct Pair {
    CudnnGraph forward;
    CudnnGraph backward;
  };

  /// Returns the plans of a shape; empty if the library has no kernels for it.
  std::optional<Pair>& plans_of(const AttentionShape& shape) {
    const auto [found, is_new] = by_shape_.try_emplace(shape);
    if (is_new && can_attend_ && is_sound(shape, cudnnGetVersion())) found->second = made(shape);
    return found->second;
  }

  void run(Device& device, CudnnGraph& graph, std::span<const Place> places) {
    require_cudnn(cudnnSetStream(handle_, device.compute().handle()), "cudnnSetStream");
    const Buffer workspace = device.allocate(graph.workspace());
    graph.run(handle_, places, workspace.address());
  }

 private:
  std::optional<Pair> made(const AttentionShape& shape) const try {
    std::optional<Pair> pair(Pair{forward_graph(shape), backward_graph(shape)});
    const CudnnTarget here{.handle = handle_};
    if (!pair->forward.plan(here) || !pair->backward.plan(here)) pair.reset();
    return pair;
  } catch (const Error&) {
    return std::nullopt;  // the graph itself is not supported
  }

  const bool can_attend_;
  cudnnHandle_t handle_ = nullptr;
  std::map<AttentionShape, std::optional<Pair>> by_shape_;
};

FusedAttention::FusedAttention() = default;

FusedAttention::~FusedAttention() = default;

/// Does not load the library for single precision, for which it has no backward.
bool FusedAttention::supports(Device& device, const AttentionShape& shape) {
  if (shape.type == Type::Float32) return false;
  if (!plans_) plans_ = std::make_unique<Plans>(device);
  return plans_->plans_of(shape).has_value();
}

void FusedAttention::run(Device& device, const AttentionShape& shape,
                         const AttentionForward& arrays) {
  const View& together = arrays.queries_keys_values;
  const Place places[] = {{kQueries, part_of(together, shape, 0).address},
                          {kKeys, part_of(together, shape, 1).address},
                          {kValues, part_of(together, shape, 2).address},
                          {kOutput, arrays.output.address},
                          {kLogSums, arrays.log_sums.address}};
  plans_->run(device, plans_->plans_of(shape)->forward, places);
}

void FusedAttention::run(Device& device, const AttentionShape& shape,
                         const AttentionBackward& arrays) {
  const View& together = arrays.forward.queries_keys_values;
  const View& gradients = arrays.input_gradient;
  const DeviceTensor query_sum =
      make_tensor(device, {shape.samples, shape.heads, shape.sequence, shape.width}, Type::Float32);
  if (cudnnGetVersion() < kClearsQuerySum) fill_with_zeros(device.compute(), query_sum.view());
  const Place places[] = {{kQueries, part_of(together, shape, 0).address},
                          {kKeys, part_of(together, shape, 1).address},
                          {kValues, part_of(together, shape, 2).address},
                          {kOutput, arrays.forward.output.address},
                          {kLogSums, arrays.forward.log_sums.address},
                          {kOutputGradient, arrays.output_gradient.address},
                          {kQueryGradient, part_of(gradients, shape, 0).address},
                          {kKeyGradient, part_of(gradients, shape, 1).address},
                          {kValueGradient, part_of(gradients, shape, 2).address},
                          {kQuerySum, query_sum.memory.address()}};
  plans_->run(device, plans_->plans_of(shape)->backward, places);
}

}  // namespace dapple::cuda
