#include <algorithm>

#include "exporting.h"
#include "transformer_blocks.h"

namespace dapple {
namespace {

/// Whether a layer from `cut` on takes what another than the last one before it makes.
bool is_skipped_over(const ModelProfile& profile, std::int32_t cut) {
  const auto first = profile.layers.begin() + cut;
  return std::any_of(first, profile.layers.end(), [cut](const Layer& layer) {
    return std::any_of(layer.inputs.begin(), layer.inputs.end(),
                       [cut](LayerIndex input) { return input.value < cut - 1; });
  });
}

/// Whether a layer from `cut` on uses weights of one before it.
bool is_tied_over(const ModelProfile& profile, std::int32_t cut) {
  return std::any_of(profile.ties.begin(), profile.ties.end(), [cut](const Tie& tie) {
    return tie.holder.value < cut && tie.users.back().value >= cut;
  });
}

bool is_beside_blocks(const RuntimeLimits& runtime, LayerRange blocks, std::int32_t cut) {
  const std::int32_t margin = runtime.block_in_every_stage ? 1 : 0;
  return cut >= blocks.begin + margin && cut <= blocks.end - margin;
}

}  // namespace

std::vector<std::int32_t> inexpressible_cuts(const RuntimeLimits& runtime,
                                             const ModelProfile& profile) {
  const LayerRange blocks = find_blocks(profile);
  if (runtime.counts_blocks && blocks.size() == 0) {
    throw Error{ErrorKind::BadInput,
                "--model",
                {{"/layers",
                  "expected transformer blocks, layers numbered under one name as encoder.0, "
                  "encoder.1, as " +
                      std::string{runtime.name} + " has them, got none"}}};
  }
  std::vector<std::int32_t> cuts;
  const auto layers = static_cast<std::int32_t>(profile.layers.size());
  for (std::int32_t cut = 1; cut < layers; ++cut) {
    const bool is_possible = (runtime.any_graph || !is_skipped_over(profile, cut)) &&
                             (runtime.ties || !is_tied_over(profile, cut)) &&
                             (!runtime.counts_blocks || is_beside_blocks(runtime, blocks, cut));
    if (!is_possible) cuts.push_back(cut);
  }
  return cuts;
}

}  // namespace dapple
