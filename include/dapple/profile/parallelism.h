// How a group of devices shares the work of every layer, the replicas of a stage its state, and
// what of a layer is recomputed: one form in which all layers run.
//
// Source: Megatron-LM (Shoeybi et al. 2019) section 3, tensor parallelism; Korthikanti et al. 2022
// section 4.2.2, sequence parallelism; Liu et al. 2023 (ring attention), context parallelism;
// GShard (Lepikhin et al. 2020) section 3, expert parallelism; ZeRO (Rajbhandari et al. 2020)
// sections 5.1 and 5.3, sharded optimizer state and sharded parameters.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>

#include "dapple/profile/recomputation.h"

namespace dapple {

/// The degrees by which the devices of a group divide a layer among themselves.
///
/// Within a group, the devices of one tensor-parallel group have consecutive numbers, the context
/// ranks come next, and the data-parallel ranks last. Expert-parallel groups use the same devices:
/// `expert_tensor` consecutive devices share an expert, and `experts` of these hold different ones.
struct Parallelism {
  /// The tensor-parallel degree: so many devices hold a part each of every layer's parameters.
  std::int64_t tensor = 1;
  /// Whether what tensor parallelism leaves whole on every device is divided along the sequence.
  bool sequence = false;
  /// The context-parallel degree: so many parts of every sequence are on different devices.
  std::int64_t context = 1;
  /// The data-parallel degree within a group: so many tensor- and context-parallel groups of it
  /// process different samples. Above 1 only where expert parallelism does not make so many
  /// already, and not beside full_shards or optimizer_shards.
  std::int64_t group_replicas = 1;
  /// The expert-parallel degree: so many devices hold different experts.
  std::int64_t experts = 1;
  /// The tensor-parallel degree of an expert; 1 without expert parallelism.
  std::int64_t expert_tensor = 1;
  /// Whether each of the devices that hold the same parameters of a stage, as its replicas do,
  /// holds only its shard of the optimizer's state, and updates only its shard of the parameters
  /// (ZeRO stage 1).
  bool shards_optimizer = false;
  /// The number of devices of a group that hold a shard each of the optimizer's state, where the
  /// groups of a stage have the same shards; 0 if all devices with the same parameters have
  /// different ones. Above 0 only with shards_optimizer and then 2 or more, a multiple of
  /// `context`; with `tensor` times as many devices the group is a multiple of an expert group.
  std::int64_t optimizer_shards = 0;
  /// The number of devices of a group that hold a shard each of all state, and gather parameters
  /// for every micro-batch (ZeRO stage 3, FSDP); 1 if parameters are whole. It is a multiple of
  /// `context`, and with `tensor` times as many devices the group is a multiple of an expert group.
  std::int64_t full_shards = 1;
  /// The parts of every layer that has them which its backward computes again. Whether a stage
  /// recomputes all of its layers from its input is a choice of each stage besides.
  RecomputedParts recomputes = {};
  /// The layers of every stage that do so, of those that have these parts; all, as without such
  /// parts, if nothing else is said.
  LayerSelection recomputed_layers = {};

  friend constexpr auto operator<=>(const Parallelism&, const Parallelism&) = default;

  /// What of every stage is recomputed.
  constexpr Recomputation recomputation() const { return {recomputes, recomputed_layers}; }
  /// The number of devices of a group.
  constexpr std::int64_t group_size() const {
    if (full_shards > 1) return tensor * full_shards;
    if (optimizer_shards > 0) return tensor * optimizer_shards;
    return std::max(tensor * context * group_replicas, experts * expert_tensor);
  }
  /// The number of data-parallel replicas in a group: so many devices, or tensor- and
  /// context-parallel groups of them, process different samples.
  constexpr std::int64_t replicas_in_group() const { return group_size() / (tensor * context); }
  /// The number of devices of a group that hold, or share, the same parameters: those outside
  /// experts, and those of one expert.
  constexpr std::int64_t copies() const { return group_size() / tensor; }
  constexpr std::int64_t expert_copies() const {
    return experts > 1 ? group_size() / (experts * expert_tensor) : copies();
  }
  /// Whether the optimizer's state is sharded over the replicas of a stage too.
  constexpr bool shards_over_replicas() const { return shards_optimizer && optimizer_shards == 0; }
  /// Whether the degrees divide the group as they have to.
  constexpr bool is_sound() const {
    const bool has_experts = experts > 1;
    return group_size() % (tensor * context) == 0 && (has_experts || expert_tensor == 1) &&
           (!has_experts || group_size() % (experts * expert_tensor) == 0) &&
           (group_replicas == 1 || (full_shards == 1 && optimizer_shards == 0 &&
                                    tensor * context * group_replicas > experts * expert_tensor)) &&
           (!sequence || tensor > 1) && !(shards_optimizer && full_shards > 1) &&
           (optimizer_shards == 0 || (shards_optimizer && optimizer_shards > 1)) &&
           recomputes.is_sound() && (recomputed_layers.is_all() || !recomputes.none());
  }
  /// Whether every device is a group of its own, no state is sharded and nothing is recomputed.
  constexpr bool is_none() const {
    return group_size() == 1 && !shards_optimizer && recomputes.none();
  }
};

/// What is_sound() demands of degrees, for messages.
inline constexpr const char* kSoundDegrees =
    "degrees of tensor and context parallelism, of experts and of shards whose groups are parts of "
    "each other";

/// Returns the form without sharded state and data-parallel ranks in a group, and whichever layers
/// recompute: what variants of layers are for.
constexpr Parallelism form_of_layers(Parallelism parallelism) {
  parallelism.shards_optimizer = false;
  parallelism.optimizer_shards = 0;
  parallelism.full_shards = 1;
  parallelism.group_replicas = 1;
  parallelism.recomputed_layers = {};
  return parallelism;
}

/// Returns the form in which nothing is recomputed.
constexpr Parallelism without_recomputation(Parallelism parallelism) {
  parallelism.recomputes = {};
  parallelism.recomputed_layers = {};
  return parallelism;
}

/// Returns one form for all that differ only in which layers of every stage recompute, where not
/// all of them do; any other form itself. Each layer takes the same least times in all of these.
constexpr Parallelism representative_of_some_layers(Parallelism parallelism) {
  if (!parallelism.recomputed_layers.is_all()) {
    parallelism.recomputed_layers = LayerSelection::first(1);
  }
  return parallelism;
}

/// Returns "core_attn+norm", "full in the first 4 layers of a stage" or "full in every 2nd layer of
/// a stage"; empty where nothing is recomputed.
std::string recomputation_text(const Parallelism& parallelism);

/// Returns "tensor 8", or all that it has: "tensor 8 with sequence parallelism, context 2, experts
/// 8 of tensor 2, sharded optimizer state", or ", optimizer state sharded over 8" or ", all state
/// sharded over 8", and ", recomputed " with recomputation_text() at the end.
std::string to_text(const Parallelism& parallelism);

/// Returns "tensor 8", or all that it has, in fewer words, for tables: "tensor 8, sequence, context
/// 2, experts 8 x 2, sharded", or ", optimizer sharded over 8" or ", sharded over 8", and ",
/// recompute core_attn", ", recompute full:4" or ", recompute full:1/2" at the end.
std::string short_text(const Parallelism& parallelism);

}  // namespace dapple
