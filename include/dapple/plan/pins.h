// Parts of a plan that are given beforehand; everything else stays free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/profile/model_profile.h"

namespace dapple {

struct Pins {
  std::optional<std::int32_t> stages;
  std::optional<std::int32_t> replicas;  // of every stage
  std::optional<bool> recompute;         // of every stage
  /// Under 1F1B stage s of S keeps S - s micro-batches in flight, as Megatron-LM and DeepSpeed do.
  /// Shapes and bounds are as without it.
  bool least_depths = false;
  /// Only micro-batches whose samples the pinned replicas share evenly.
  bool equal_shares = false;
  /// Devices in the order of their numbers from the first stage on, as launchers number ranks.
  bool in_order = false;
  // Ascending:
  std::vector<std::int32_t> cuts;    // layers that begin a stage
  std::vector<std::int32_t> joints;  // layers that begin none: in the stage of the one before

  bool empty() const {
    return !stages && !replicas && !recompute && !least_depths && !equal_shares && !in_order &&
           cuts.empty() && joints.empty();
  }

  friend bool operator==(const Pins&, const Pins&) = default;

  /// Whether a stage may be like this. O(log(cuts + joints)).
  bool allow(LayerRange layers, std::int64_t stage_replicas, bool stage_recompute) const;
};

/// Each pin as the command line takes it, "stages=4" or "cut=encoder.3"; stages, replicas,
/// recomputation, depths, cuts, joints; equal shares and order are no text. Requires: the layers
/// are there.
std::vector<std::string> to_texts(const Pins& pins, const ModelProfile& profile);

}  // namespace dapple
