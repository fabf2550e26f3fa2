#include "dapple/interop/plans/nanotron_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "interop/graphs/transformer_blocks.h"

namespace dapple::interop {
namespace {

Bytes parameters_of(const ModelProfile& profile, std::int32_t layer) {
  return profile.layers[static_cast<std::size_t>(layer)].parameters;
}

/// Returns the parameters of the largest layer behind the blocks, or those that it shares.
Bytes parameters_of_head(const ModelProfile& profile, LayerRange blocks) {
  Bytes most;
  const auto layers = static_cast<std::int32_t>(profile.layers.size());
  for (std::int32_t layer = blocks.end; layer < layers; ++layer) {
    most = std::max(most, parameters_of(profile, layer));
  }
  for (const Tie& tie : profile.ties) {
    if (tie.users.back().value >= blocks.end) {
      most = std::max(most, parameters_of(profile, tie.owner.value));
    }
  }
  return most;
}

}  // namespace

NanotronCut nanotron_cut(const ModelProfile& profile, std::int64_t stages) {
  const TransformerBlocks found = find_blocks(profile);
  if (!found.fault.empty()) return {.blocks = {}, .fault = found.fault};
  const LayerRange blocks = found.layers;
  Wide all = parameters_of_head(profile, blocks).count;
  for (std::int32_t block = blocks.begin; block < blocks.end; ++block) {
    all += parameters_of(profile, block).count;
  }
  std::vector<std::int32_t> counts(1);
  Wide sum = 0;
  for (std::int32_t block = blocks.begin; block < blocks.end; ++block) {
    ++counts.back();
    sum += parameters_of(profile, block).count;
    const bool is_full = sum * stages > all * static_cast<Wide>(counts.size());
    if (is_full && static_cast<std::int64_t>(counts.size()) < stages) counts.push_back(0);
  }
  // The head alone, or the loss, may be on stages of their own.
  if (counts.back() == 0) counts.pop_back();
  if (static_cast<std::int64_t>(counts.size()) == stages) return {.blocks = std::move(counts)};
  return {.blocks = {},
          .fault = fmt::format("expected at most {} stages, on which nanotron has some of these "
                               "{} blocks, got {}",
                               counts.size(), blocks.size(), stages)};
}

std::optional<std::vector<std::int32_t>> nanotron_boundaries(const ModelProfile& profile,
                                                             std::int64_t stages) {
  const NanotronCut cut = nanotron_cut(profile, stages);
  if (!cut.fault.empty()) return std::nullopt;
  std::vector<std::int32_t> boundaries;
  std::int32_t layer = find_blocks(profile).layers.begin;
  for (std::size_t stage = 0; stage + 1 < cut.blocks.size(); ++stage) {
    layer += cut.blocks[stage];
    boundaries.push_back(layer);
  }
  return boundaries;
}

}  // namespace dapple::interop
