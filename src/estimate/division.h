// How a form of parallelism divides a sample and the dimensions of layers.
#pragma once

#include <cstdint>
#include <string>

#include "dapple/core/quantity.h"
#include "dapple/estimate/architecture.h"
#include "dapple/estimate/estimate.h"
#include "dapple/profile/collective.h"
#include "dapple/profile/parallelism.h"

namespace dapple::estimate {

/// The symbols of docs/estimate.md, section 1, for layers of one sequence length.
struct Division {
  Parallelism form;
  /// The bytes of a number (x).
  std::int64_t bytes = 2;
  std::int64_t hidden = 0;
  bool has_dropout = false;
  bool has_fused_attention = true;
  ContextExchange context_exchange = ContextExchange::AllGather;
  bool merges_copies = false;
  bool keeps_gathered_inputs = false;
  bool keeps_activated_gates = false;
  bool keeps_core_output_twice = false;
  /// The part of a vocabulary on a device is a multiple of it.
  std::int64_t vocabulary_multiple = 1;
  Factor imbalance = kOne;
  /// The tokens of a sample (s), and those of the encoder that a decoder attends to.
  std::int64_t sequence = 0;
  std::int64_t encoder_sequence = 0;

  /// Whether context ranks pass keys and values around their ring.
  bool passes_around_ring() const {
    return form.context > 1 && context_exchange == ContextExchange::Ring;
  }
  /// The tokens of a sample on a device (n), and those of them where tensor parallelism leaves
  /// tensors whole (n').
  std::int64_t tokens() const { return sequence / form.context; }
  std::int64_t whole_tokens() const { return form.sequence ? tokens() / form.tensor : tokens(); }
  std::int64_t encoder_tokens() const { return encoder_sequence / form.context; }
  /// Returns the part of a vocabulary on a device, padded (V').
  std::int64_t part_of_vocabulary(std::int64_t vocabulary) const {
    return divide_up(vocabulary, form.tensor * vocabulary_multiple) * vocabulary_multiple;
  }
  /// A hidden vector of every token of a device, in bytes (y).
  Wide activation() const { return Wide{bytes} * tokens() * hidden; }
  /// Returns what the framework keeps of `gathered` bytes that sequence parallelism gathers, beside
  /// the device's own part.
  Wide kept_of_gathered(Wide gathered) const {
    if (!keeps_gathered_inputs || !form.sequence) return 0;
    return gathered - gathered / form.tensor;
  }
};

/// Returns what keeps the form from dividing the block as it has to be divided, such as "64
/// attention heads cannot be divided among 48 tensor-parallel ranks"; empty if nothing does.
std::string division_fault(const BlockShape& block, const Division& division);

}  // namespace dapple::estimate
