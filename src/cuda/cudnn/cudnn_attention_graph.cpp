#include "cuda/cudnn/cudnn_attention_graph.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "dapple/core/error.h"

namespace dapple::cuda {
namespace {

using Node = CudnnGraph::Node;

cudnnDataType_t cudnn_type(Type type) {
  switch (type) {
    case Type::Float32:
      return CUDNN_DATA_FLOAT;
    case Type::BFloat16:
      return CUDNN_DATA_BFLOAT16;
    case Type::Float16:
      return CUDNN_DATA_HALF;
    case Type::Int32:
      break;
  }
  throw Bug("whole numbers are not attended to");
}

/// Creates the tensors of a shape in a graph.
class Tensors {
 public:
  Tensors(CudnnGraph& graph, const AttentionShape& shape)
      : graph_(graph), shape_(shape), type_(cudnn_type(shape.type)) {}

  cudnnDataType_t type() const { return type_; }

  /// Creates a tensor [samples, heads, sequence, width], one of `parts` that lie one after another
  /// at each position.
  Node rows(std::int64_t number, std::int64_t parts = 1) {
    const std::int64_t stride = parts * shape_.heads * shape_.width;
    return graph_.in_memory(number, {shape_.samples, shape_.heads, shape_.sequence, shape_.width},
                            {shape_.sequence * stride, shape_.width, stride, 1}, type_);
  }
  /// Creates the same tensor with the last two dimensions exchanged.
  Node columns(std::int64_t number, std::int64_t parts) {
    const std::int64_t stride = parts * shape_.heads * shape_.width;
    return graph_.in_memory(number, {shape_.samples, shape_.heads, shape_.width, shape_.sequence},
                            {shape_.sequence * stride, shape_.width, 1, stride}, type_);
  }
  Node single_precision(std::int64_t number, std::int64_t width) {
    const Dimensions dimensions{shape_.samples, shape_.heads, shape_.sequence, width};
    return graph_.in_memory(number, dimensions, packed_strides(dimensions), CUDNN_DATA_FLOAT);
  }

  Node scale() {
    return graph_.constant(static_cast<float>(1 / std::sqrt(static_cast<double>(shape_.width))));
  }

  /// Computes scaled scores; scores of masked positions are the lowest float.
  Node scores(const Node& queries, const Node& keys, const Node& scale) {
    const Node all = graph_.pointwise(CUDNN_POINTWISE_MUL, graph_.multiply(queries, keys), scale);
    if (!shape_.is_causal) return all;
    const Node query_places = graph_.index_along(2, all);
    const Node key_places = graph_.index_along(3, all);
    const Node is_seen =
        graph_.pointwise(CUDNN_POINTWISE_CMP_GE, query_places, key_places, CUDNN_DATA_BOOLEAN);
    return graph_.select(all, graph_.constant(std::numeric_limits<float>::lowest()), is_seen);
  }

 private:
  CudnnGraph& graph_;
  const AttentionShape& shape_;
  cudnnDataType_t type_;
};

}  // namespace

bool is_sound(const AttentionShape& shape, std::size_t version) {
  constexpr std::size_t kFaulty[] = {91'000, 91'001};
  constexpr std::size_t kAnyLength = 91'600;  // before, backward supports whole tiles of keys only
  constexpr std::int64_t kTile = 128;
  if (std::ranges::find(kFaulty, version) != std::end(kFaulty)) return false;
  if (version < kAnyLength && shape.sequence % kTile != 0) return false;
  return shape.sequence > 1;
}

CudnnGraph forward_graph(const AttentionShape& shape) {
  CudnnGraph graph;
  Tensors tensors(graph, shape);
  const Node queries = tensors.rows(kQueries, 3);
  const Node keys = tensors.columns(kKeys, 3);
  const Node scores = tensors.scores(queries, keys, tensors.scale());
  const Node largest = graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores);
  const Node distances = graph.pointwise(CUDNN_POINTWISE_SUB, scores, largest);
  const Node exponentials = graph.pointwise(CUDNN_POINTWISE_EXP, distances);
  const Node sums = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials);
  const Node logarithms = graph.pointwise(CUDNN_POINTWISE_LOG, sums);
  graph.pointwise_to(CUDNN_POINTWISE_ADD, largest, &logarithms,
                     tensors.single_precision(kLogSums, 1));
  const Node shares = graph.pointwise(CUDNN_POINTWISE_DIV, exponentials, sums, tensors.type());
  graph.multiply_to(shares, tensors.rows(kValues, 3), tensors.rows(kOutput));
  return graph;
}

CudnnGraph backward_graph(const AttentionShape& shape) {
  CudnnGraph graph;
  Tensors tensors(graph, shape);
  const cudnnDataType_t type = tensors.type();
  // Without dropout, its factors are one; the fused kernels are matched with these factors.
  const Node one = graph.constant(1);
  const Node scale = tensors.scale();
  const Node queries = tensors.rows(kQueries, 3);
  const Node keys = tensors.columns(kKeys, 3);
  const Node slopes = tensors.rows(kOutputGradient);
  // The mean that softmax's backward subtracts from the gradient of each probability.
  const Node products = graph.pointwise(CUDNN_POINTWISE_MUL, slopes, tensors.rows(kOutput));
  const Node means =
      graph.pointwise(CUDNN_POINTWISE_MUL, graph.reduce(CUDNN_REDUCE_TENSOR_ADD, products), one);
  // The attention probabilities, and from them the gradient of the values.
  const Node scores = tensors.scores(queries, keys, scale);
  const Node logarithms =
      graph.pointwise(CUDNN_POINTWISE_SUB, scores, tensors.single_precision(kLogSums, 1));
  const Node shares = graph.pointwise(CUDNN_POINTWISE_EXP, logarithms, type);
  graph.multiply_to(graph.transpose(shares, type), slopes, tensors.rows(kValueGradient, 3));
  // The gradients of the probabilities and of the scores, and from these those of keys and queries.
  const Node of_shares = graph.pointwise(CUDNN_POINTWISE_MUL,
                                         graph.multiply(slopes, tensors.columns(kValues, 3)), one);
  const Node distances = graph.pointwise(CUDNN_POINTWISE_SUB, of_shares, means);
  const Node unscaled = graph.pointwise(CUDNN_POINTWISE_MUL, distances, shares);
  const Node of_scores = graph.pointwise(CUDNN_POINTWISE_MUL, unscaled, scale, type);
  graph.multiply_to(graph.transpose(of_scores, type), queries, tensors.rows(kKeyGradient, 3));
  const Node key_rows = graph.transpose(keys, type);
  const Node query_sum = tensors.single_precision(kQuerySum, shape.width);
  graph.multiply_to(of_scores, key_rows, query_sum);
  graph.pointwise_to(CUDNN_POINTWISE_IDENTITY, query_sum, nullptr, tensors.rows(kQueryGradient, 3));
  return graph;
}

}  // namespace dapple::cuda
