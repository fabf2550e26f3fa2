#include "interop/graphs/counted_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dapple/profile/recomputation.h"
#include "interop/graphs/transformer_blocks.h"

namespace dapple::interop {
namespace {

/// Returns the first layer that recomputes although it is no block, or does not although it is one;
/// null without one or where the blocks cannot be identified.
const Layer* uncounted_layer(const std::vector<Layer>& layers, const TransformerBlocks& blocks) {
  if (!blocks.fault.empty()) return nullptr;
  for (std::int32_t l = 0; l < std::ssize(layers); ++l) {
    const Layer& layer = layers[static_cast<std::size_t>(l)];
    const bool is_block = blocks.layers.begin <= l && l < blocks.layers.end;
    if (layer.recomputes != is_block) return &layer;
  }
  return nullptr;
}

}  // namespace

std::optional<Violation> count_fault(std::string_view runtime, const ModelProfile& profile,
                                     const Plan& plan) {
  const LayerSelection selection = plan.parallelism.recomputed_layers;
  if (selection.kind() != LayerSelection::Kind::EveryNth) return std::nullopt;
  const std::int64_t n = selection.number();
  const std::vector<Layer>& layers = profile.recomputing.front().layers;
  if (const Layer* const layer = uncounted_layer(layers, find_blocks(profile))) {
    return Violation{
        "/parallelism/recompute_every",
        fmt::format("expected no number, as {} counts transformer blocks and {} {}, "
                    "got {}",
                    runtime, layer->name,
                    layer->recomputes ? "recomputes but is none" : "is one but has no such variant",
                    n)};
  }
  for (const std::vector<StageIndex>& stages : stages_by_device_group(plan)) {
    std::int64_t preceding = 0;
    for (const StageIndex s : stages) {
      const LayerRange own = plan.stages[s.position()].layers;
      const std::int64_t count = std::count_if(layers.begin() + own.begin, layers.begin() + own.end,
                                               [](const Layer& layer) { return layer.recomputes; });
      if (count > 0 && preceding % n != 0) {
        return Violation{fmt::format("/stages/{}/layers", s.value),
                         fmt::format("expected a multiple of {} blocks in the stages before it on "
                                     "its devices, as {} counts every {} of them all, got {}",
                                     n, runtime, n, preceding)};
      }
      preceding += count;
    }
  }
  return std::nullopt;
}

}  // namespace dapple::interop
