#include "dapple/profile/operation.h"

#include <fmt/format.h>

#include <algorithm>

#include "dapple/core/quantity.h"

namespace dapple {
namespace {

template <class Kind>
std::vector<Violation> faults_of(const Kind&) {
  return {};
}

std::vector<Violation> faults_of_heads(std::int64_t hidden, std::int64_t heads) {
  if (hidden % heads == 0) return {};
  return {{"/heads", fmt::format("expected a divisor of hidden, {}, got {}", hidden, heads)}};
}

std::vector<Violation> faults_of(const AttentionOperation& operation) {
  return faults_of_heads(operation.hidden, operation.heads);
}

std::vector<Violation> faults_of(const TransformerBlockOperation& operation) {
  return faults_of_heads(operation.hidden, operation.heads);
}

std::vector<Violation> faults_of(const ConvolutionOperation& operation) {
  const std::int64_t least_side = std::min(operation.height, operation.width);
  const std::int64_t padded = least_side + 2 * operation.padding;
  if (operation.kernel > padded) {
    return {
        {"/kernel", fmt::format("expected at most {}, the shorter side with its padding, got {}",
                                padded, operation.kernel)}};
  }
  if (operation.padding >= operation.kernel) {
    return {{"/padding", fmt::format("expected less than kernel, {}, got {}", operation.kernel,
                                     operation.padding)}};
  }
  const Wide patch = Wide{operation.in_channels} * operation.kernel * operation.kernel;
  const Wide places =
      Wide{operation.height + 2 * operation.padding} * (operation.width + 2 * operation.padding);
  if (patch * operation.out_channels > kMaxCount || patch * places > kMaxCount) {
    return {{"", fmt::format("expected a convolution of at most {} weights and inputs of them",
                             kMaxCount)}};
  }
  return {};
}

}  // namespace

std::vector<Violation> violations_of(const Operation& operation) {
  return std::visit([](const auto& kind) { return faults_of(kind); }, operation);
}

}  // namespace dapple
