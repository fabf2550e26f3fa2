// Attentions and blocks of any form, as in Llama and between it and GPT-2.
#pragma once

#include <vector>

#include "dapple/profile/operation.h"
#include "dice.h"

namespace dapple::small {

/// Gives the attention as many heads of keys and values as divide its heads, another width, rotary
/// positions, or no biases, each with some probability.
inline AttentionOperation in_random_form(AttentionOperation attention, Dice& dice) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t n = 1; n <= attention.heads; ++n) {
    if (attention.heads % n == 0) divisors.push_back(n);
  }
  const auto last = static_cast<std::int64_t>(divisors.size()) - 1;
  if (dice.chance(70)) {
    attention.form.kv_heads = divisors[static_cast<std::size_t>(dice.roll(0, last))];
  }
  if (dice.chance(50)) attention.form.width = dice.roll(1, 9);
  if (head_width_of(attention) % 2 == 0 && dice.chance(70)) {
    attention.form.rotary_base = dice.chance(50) ? 10'000 : static_cast<double>(dice.roll(1, 50));
  }
  attention.bias = dice.chance(50);
  return attention;
}

inline TransformerBlockOperation in_random_form(TransformerBlockOperation block, Dice& dice) {
  const AttentionOperation attention = in_random_form(attention_of(block), dice);
  block.form = attention.form;
  block.bias = attention.bias;
  block.norm = dice.chance(70) ? NormKind::RmsNorm : NormKind::LayerNorm;
  block.activation = dice.chance(70) ? FeedForwardKind::SwiGlu : FeedForwardKind::Gelu;
  return block;
}

}  // namespace dapple::small
