#include <algorithm>
#include <variant>

#include "cuda/kernels/layers/layer_norm.h"
#include "cuda/kernels/layers/patches.h"
#include "dapple/cuda/modules/module.h"

namespace dapple::cuda {
namespace {

/// The workspace of products, with an allowance for partial sums and scalars.
constexpr std::int64_t kOfProducts = kProductWorkspace.count + (std::int64_t{8} << 20);
constexpr std::int64_t kWidestGap = 8;  // behind a row, in numbers
constexpr std::int64_t kSinglePrecision = size_of(Type::Float32);

struct WorkspaceOf {
  const nn::Shape& input;
  std::int64_t number;  // bytes of one number

  std::int64_t rows(std::int64_t columns) const { return nn::count_of(input) / columns; }

  /// The library sums the gradients of queries in single precision and keeps one or two numbers for
  /// each row of scores.
  std::int64_t of_heads(const AttentionOperation& operation) const {
    return rows(operation.hidden) * (operation.hidden + 4 * operation.heads) * kSinglePrecision;
  }

  template <class Kind>
  std::int64_t operator()(const Kind&) const {
    return 0;
  }
  /// Outputs, or their gradients, with gaps behind the rows.
  std::int64_t operator()(const LinearOperation& operation) const {
    return rows(operation.inputs) * (operation.outputs + kWidestGap) * number;
  }
  /// Partial sums of the gradients of scale and shift over parts of the rows.
  std::int64_t operator()(const LayerNormOperation& operation) const {
    const std::int64_t parts = (rows(operation.hidden) + kRowsOfPart - 1) / kRowsOfPart;
    return parts * 2 * operation.hidden * kSinglePrecision;
  }
  std::int64_t operator()(const AttentionOperation& operation) const {
    return of_heads(operation) + 4 * nn::count_of(input) * number;
  }
  /// Gradients of the backward that are not returned, and old ones next to their replacements.
  std::int64_t operator()(const TransformerBlockOperation& operation) const {
    const std::int64_t widest = std::max(3 * operation.hidden, operation.feed_forward);
    return of_heads({operation.hidden, operation.heads, operation.causal}) +
           rows(operation.hidden) * (2 * operation.hidden + widest) * number;
  }
  std::int64_t operator()(const ConvolutionOperation& operation) const {
    return operation.in_channels * operation.kernel * operation.kernel *
           places_along(operation, operation.height) * places_along(operation, operation.width) *
           number;
  }
  std::int64_t operator()(const SoftmaxCrossEntropyOperation& operation) const {
    return rows(operation.classes) * kSinglePrecision;
  }
};

}  // namespace

Bytes workspace_of(const Operation& operation, const nn::Shape& input, Precision precision) {
  const WorkspaceOf of{input, size_of(type_of(precision))};
  return {kOfProducts + std::visit(of, operation)};
}

}  // namespace dapple::cuda
