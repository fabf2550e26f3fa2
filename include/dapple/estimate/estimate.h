// Makes a profile of a model that was never measured: times, sizes and collectives of every layer
// in every form of parallelism, by the closed forms of docs/estimate.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/quantity.h"
#include "dapple/estimate/architecture.h"
#include "dapple/estimate/gpu.h"
#include "dapple/profile/collective.h"
#include "dapple/profile/model_profile.h"
#include "dapple/profile/parallelism.h"
#include "dapple/profile/recomputation.h"

namespace dapple::estimate {

/// The largest number of tokens of a sample.
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;

/// The largest number of which a tensor rank may have to have a multiple of the vocabulary.
inline constexpr std::int64_t kMostVocabularyMultiple = std::int64_t{1} << 20;

/// What the forms of a plan are pinned to; nothing is for what they may choose.
struct PinnedForms {
  std::optional<std::int64_t> tensor = {};
  std::optional<std::int64_t> context = {};
  std::optional<std::int64_t> experts = {};
  std::optional<std::int64_t> expert_tensor = {};
  std::optional<RecomputedParts> recomputes = {};

  /// Whether a form has the pinned degrees, whatever it recomputes.
  bool allow_degrees(const Parallelism& form) const;
};

struct EstimateOptions {
  /// The number of tokens of a sample, and of the decoder's input where there is one; that of an
  /// image follows from its size.
  std::int64_t sequence = 0;
  std::optional<std::int64_t> decoder_sequence = {};
  Precision precision = Precision::Bf16;
  /// Whether attention is computed by one kernel that keeps no scores and skips what is masked.
  bool has_fused_attention = true;
  /// Whether tensor parallelism divides along the sequence what it leaves whole otherwise.
  bool has_sequence_parallelism = true;
  /// How context-parallel ranks exchange keys and values.
  ContextExchange context_exchange = ContextExchange::AllGather;
  /// Whether the copies of a token for experts of one other server are sent there once.
  bool merges_copies = false;
  /// The largest degrees for which there are variants, which are powers of two.
  std::int64_t max_tensor = 8;
  std::int64_t max_context = 1;
  std::int64_t max_experts = 64;
  std::int64_t max_expert_tensor = 1;
  /// The vocabulary is padded so that each tensor-parallel rank has a multiple of this, at most
  /// kMostVocabularyMultiple.
  std::int64_t vocabulary_multiple = 1;
  /// What variants recompute; each of these besides variants that recompute nothing.
  std::vector<RecomputedParts> recomputations = {};
  /// The pins of the plan that is asked for, if pins can be. Where there would be more variants
  /// than a profile may have, there are none of the forms that pins exclude.
  std::optional<PinnedForms> pinned = {};
  /// The bytes of a gradient of a parameter.
  std::int64_t gradient_bytes = 4;
  /// The load of the busiest device with experts over the mean, at least 1.
  Factor imbalance = kOne;
  /// What trains the model; by default something that keeps nothing besides.
  Framework framework = {};
  /// Whether the calibration was asked for by name, and not chosen for the GPU.
  bool has_asked_calibration = false;
};

/// Returns the faults of options for this model, each with the name of the option as its place;
/// none if estimate_profile() may be called.
std::vector<Violation> option_faults(const Architecture& architecture, const Gpu& gpu,
                                     const EstimateOptions& options);

/// Returns the estimated profile, whose device is `gpu`. Its warnings say that times are estimated,
/// and by which calibration. O(blocks of different shapes * forms + layers). Requires:
/// option_faults() is empty.
ModelProfile estimate_profile(const Architecture& architecture, const Gpu& gpu,
                              const Calibration& calibration, const EstimateOptions& options);

/// Returns what of the model the tensor, the context or the expert-parallel degree, or the number
/// of devices that share an expert, each by itself, or the first two together cannot divide, such
/// as "64 attention heads cannot be divided among 48 tensor-parallel ranks"; empty if they divide
/// all. O(blocks of different shapes). Requires: option_faults() is empty.
std::string indivisible(const Architecture& architecture, const EstimateOptions& options,
                        const Parallelism& degrees);

/// Returns the operations of matrix products, with all pairs of attention, of one sample's forward
/// and backward without recomputation and padding, as frameworks count them for their throughput.
Wide model_operations(const Architecture& architecture, const EstimateOptions& options);

}  // namespace dapple::estimate
