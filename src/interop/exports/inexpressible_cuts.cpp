#include <fmt/format.h>

#include <numeric>

#include "interop/exports/exporting.h"
#include "interop/graphs/transformer_blocks.h"

namespace dapple::interop {
namespace {

/// Counts, for each cut, how many of the added ranges of cuts contain it. Adding a range takes
/// O(1), the counts O(cuts).
class CutCounts {
 public:
  explicit CutCounts(std::size_t layers) : changes_(layers + 1) {}

  /// Adds the cuts from `first` to `last`, both included; nothing if `last` is before `first`.
  void add(std::int32_t first, std::int32_t last) {
    if (last < first) return;
    ++changes_[static_cast<std::size_t>(first)];
    --changes_[static_cast<std::size_t>(last) + 1];
  }

  /// Returns the number of ranges that contain each cut.
  std::vector<std::int64_t> counts() const {
    std::vector<std::int64_t> counts(changes_.size());
    std::partial_sum(changes_.begin(), changes_.end(), counts.begin());
    return counts;
  }

 private:
  std::vector<std::int64_t> changes_;
};

/// Counts at each cut the tensors that cross it without being made by the layer immediately before
/// it, and the weights that both sides use, as far as the runtime supports neither.
CutCounts crossed_cuts(const RuntimeLimits& runtime, const ModelProfile& profile) {
  CutCounts crossed(profile.layers.size());
  for (std::size_t l = 0; l < profile.layers.size() && !runtime.any_graph; ++l) {
    for (const LayerIndex input : profile.layers[l].inputs) {
      crossed.add(input.value + 2, static_cast<std::int32_t>(l));
    }
  }
  for (const Tie& tie : profile.ties) {
    if (!runtime.ties) crossed.add(tie.owner.value + 1, tie.users.back().value);
  }
  return crossed;
}

bool is_beside_blocks(const RuntimeLimits& runtime, LayerRange blocks, std::int32_t cut) {
  const std::int32_t margin = runtime.block_in_every_stage ? 1 : 0;
  return cut >= blocks.begin + margin && cut <= blocks.end - margin;
}

}  // namespace

std::vector<std::int32_t> inexpressible_cuts(const RuntimeLimits& runtime,
                                             const ModelProfile& profile) {
  const TransformerBlocks found = find_blocks(profile);
  if (runtime.counts_blocks && !found.fault.empty()) {
    throw Error{
        ErrorKind::BadInput,
        "",
        {{"/layers", fmt::format("{}; {} counts nothing else", found.fault, runtime.name)}}};
  }
  if (!runtime.tensor_parallel && profile.tensor_parallel != 1) {
    throw Error{ErrorKind::BadInput, "", {degree_fault(runtime, profile, "")}};
  }
  const LayerRange blocks = found.layers;
  const std::vector<std::int64_t> crossed = crossed_cuts(runtime, profile).counts();
  std::vector<std::int32_t> cuts;
  const auto layers = static_cast<std::int32_t>(profile.layers.size());
  for (std::int32_t cut = 1; cut < layers; ++cut) {
    const bool is_possible = crossed[static_cast<std::size_t>(cut)] == 0 &&
                             (!runtime.counts_blocks || is_beside_blocks(runtime, blocks, cut));
    if (!is_possible) cuts.push_back(cut);
  }
  return cuts;
}

}  // namespace dapple::interop
