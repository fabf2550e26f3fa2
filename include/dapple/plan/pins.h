// Pins: parts of a plan that the user has fixed. Everything else is chosen by the search.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/profile/model_profile.h"

namespace dapple {

struct Pins {
  std::optional<std::int32_t> stages;
  /// The number of replicas of every stage.
  std::optional<std::int32_t> replicas;
  /// The tensor-parallel degree.
  std::optional<std::int64_t> tensor = {};
  /// The context-parallel degree, the expert-parallel degree, the tensor-parallel degree of an
  /// expert, and the number of shards of all state or, where the optimizer's state alone is
  /// sharded, of that in each group.
  std::optional<std::int64_t> context = {};
  std::optional<std::int64_t> experts = {};
  std::optional<std::int64_t> expert_tensor = {};
  std::optional<std::int64_t> shards = {};
  /// Whether every stage recomputes, or none does.
  std::optional<bool> recompute;
  /// The parts of layers that are recomputed, of all or of some of every stage; no parts for none.
  std::optional<Recomputation> recomputation = {};
  /// Under 1F1B, stage s of S keeps S - s micro-batches in flight, as in Megatron-LM and DeepSpeed.
  /// Shapes and bounds are the same as without this pin.
  bool least_depths = false;
  /// Only micro-batch sizes that the pinned number of replicas divides are allowed.
  bool equal_shares = false;
  /// The replicas in every device, which is a group, that have equal shares then.
  std::int64_t replicas_in_group = 1;
  /// Only micro-batch sizes are allowed that make at least so many micro-batches.
  std::int64_t least_micro_batches = 1;
  /// Devices are assigned in the order of their numbers from the first stage on, as launchers
  /// number ranks.
  bool in_order = false;
  /// The layers that begin a stage, ascending.
  std::vector<std::int32_t> cuts;
  /// The layers that must be in the same stage as the layer before them, ascending.
  std::vector<std::int32_t> joints;

  bool empty() const {
    return !stages && !replicas && !has_degrees() && !recompute && !recomputation &&
           !least_depths && !equal_shares && least_micro_batches <= 1 && !in_order &&
           cuts.empty() && joints.empty();
  }

  /// Whether a degree of parallelism is pinned.
  bool has_degrees() const { return tensor || context || experts || expert_tensor || shards; }

  friend bool operator==(const Pins&, const Pins&) = default;

  /// Whether the pins allow a stage with these properties. O(log(cuts + joints)).
  bool allow(LayerRange layers, std::int64_t stage_replicas, bool stage_recompute) const;

  /// Whether the pins allow the cuts and joints of a plan whose stages, but for the first one,
  /// begin at these layers, ascending. O((cuts + joints) log(boundaries)).
  bool allow_boundaries(const std::vector<std::int32_t>& boundaries) const;
};

/// Returns the pins in the form of the command line, such as "stages=4" or "cut=encoder.3", in the
/// order stages, replicas, degrees, recomputed parts, recomputation, depths, cuts, joints;
/// `equal_shares`, `replicas_in_group`, `least_micro_batches` and `in_order` have no text form.
/// Requires: the pinned layers exist in the profile.
std::vector<std::string> to_texts(const Pins& pins, const ModelProfile& profile);

}  // namespace dapple
