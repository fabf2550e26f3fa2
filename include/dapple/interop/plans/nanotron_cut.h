// Where nanotron cuts a model into stages. It does so itself, and no file says otherwise.
//
// Source: nanotron, models/base.py, build_model(), and get_block_compute_costs() of its Llama.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/profile/model_profile.h"

namespace dapple::interop {

struct NanotronCut {
  /// The number of transformer blocks of each stage; empty if there is no such cut.
  std::vector<std::int32_t> blocks;
  /// Why there is none, "expected ..., got ..."; empty if there is one.
  std::string fault = {};
};

/// Returns the blocks of each of so many stages: a stage ends with the first block with which all
/// blocks so far have more parameters than its share, where those of the head count too. Norms and
/// the embedding do not count. There is no cut if some stage would have no block. What counts are
/// the parameters of the profile; nanotron counts those of as many heads of keys and values as
/// there are of queries. O(layers log layers).
NanotronCut nanotron_cut(const ModelProfile& profile, std::int64_t stages);

/// Returns the layers that begin the stages of the nanotron_cut(), the first stage left out;
/// nothing if there is no cut. O(layers log layers).
std::optional<std::vector<std::int32_t>> nanotron_boundaries(const ModelProfile& profile,
                                                             std::int64_t stages);

}  // namespace dapple::interop
