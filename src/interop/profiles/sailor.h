// Sailor's layer profiles: sizes of every layer for one sequence, and times by kind of GPU,
// micro-batch and tensor-parallel degree, in one document. Source: eth-easl/sailor
// Planner/simulations/ (profiles_tmp.json beside llm_info.json); times without sizes are refused.
#pragma once

#include <string>
#include <string_view>

#include "dapple/interop/profiles/foreign_profile.h"

namespace dapple::interop {

/// One kind of GPU and one degree, with a measurement for each micro-batch. What a layer's forward
/// leaves allocated holds its output and not its input; a stash is the other way round. Throws as
/// import_model(). O(length).
ImportedProfile import_sailor(std::string_view text, const std::string& source_name,
                              const ForeignProfileOptions& options);

}  // namespace dapple::interop
