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

std::vector<Violation> faults_of(const AttentionOperation& operation) {
  const HeadForm& form = operation.form;
  if (!form.width && operation.hidden % operation.heads != 0) {
    return {{"/heads", fmt::format("expected a divisor of hidden, {}, got {}", operation.hidden,
                                   operation.heads)}};
  }
  std::vector<Violation> faults;
  const std::int64_t width = head_width_of(operation);
  if (form.width && width * operation.heads > kMaxDimension) {
    faults.push_back({"/head_width", fmt::format("expected at most {} numbers in all {} heads, got "
                                                 "{} in each",
                                                 kMaxDimension, operation.heads, width)});
  }
  if (form.kv_heads && operation.heads % *form.kv_heads != 0) {
    faults.push_back({"/kv_heads", fmt::format("expected a divisor of heads, {}, got {}",
                                               operation.heads, *form.kv_heads)});
  }
  if (form.rotary_base && width % 2 != 0) {
    faults.push_back(
        {form.width ? "/head_width" : "/heads",
         fmt::format("expected heads of an even width, as rotary positions turn pairs "
                     "of numbers, got {}",
                     form.width ? fmt::format("{}", width)
                                : fmt::format("{} of width {}", operation.heads, width))});
  }
  return faults;
}

std::vector<Violation> faults_of(const TransformerBlockOperation& operation) {
  std::vector<Violation> faults = faults_of(attention_of(operation));
  if (!operation.experts) return faults;
  const ExpertsForm& experts = *operation.experts;
  if (experts.per_token > experts.count) {
    faults.push_back({"/experts_per_token", fmt::format("expected at most experts, {}, got {}",
                                                        experts.count, experts.per_token)});
  }
  const Wide numbers = Wide{experts.count} * operation.hidden * expanded_width_of(operation);
  if (numbers > kMaxCount) {
    faults.push_back({"/experts", fmt::format("expected experts of at most {} weights together, "
                                              "got {} experts",
                                              kMaxCount, experts.count)});
  }
  return faults;
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

std::int64_t kv_heads_of(const AttentionOperation& operation) {
  return operation.form.kv_heads.value_or(operation.heads);
}

std::int64_t head_width_of(const AttentionOperation& operation) {
  return operation.form.width.value_or(operation.hidden / operation.heads);
}

AttentionOperation attention_of(const TransformerBlockOperation& block) {
  return {.hidden = block.hidden,
          .heads = block.heads,
          .causal = block.causal,
          .form = block.form,
          .bias = block.bias};
}

bool is_gpt2_block(const TransformerBlockOperation& block) {
  const AttentionOperation attention = attention_of(block);
  return !block.experts && block.bias && block.norm == NormKind::LayerNorm &&
         block.activation == FeedForwardKind::Gelu && !block.form.rotary_base &&
         kv_heads_of(attention) == block.heads &&
         head_width_of(attention) * block.heads == block.hidden;
}

std::int64_t expanded_width_of(const TransformerBlockOperation& block) {
  return block.activation == FeedForwardKind::SwiGlu ? 2 * block.feed_forward : block.feed_forward;
}

std::vector<Violation> violations_of(const Operation& operation) {
  return std::visit([](const auto& kind) { return faults_of(kind); }, operation);
}

}  // namespace dapple
