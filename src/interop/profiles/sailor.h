// Imports Sailor's layer profiles, which state in one document the sizes of every layer for one
// sequence, and times by kind of GPU, micro-batch size and tensor-parallel degree. Source:
// eth-easl/sailor Planner/simulations/ (profiles_tmp.json together with llm_info.json). Documents
// with times but without sizes are refused.
#pragma once

#include <string>
#include <string_view>

#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/io/json/json_value.h"

namespace dapple::interop {

/// Imports the figures of one kind of GPU and one tensor-parallel degree, with a measurement for
/// each micro-batch size. The memory that a layer's forward leaves allocated includes its output
/// but not its input; the stash, conversely, includes the input but not the output. Throws as
/// import_model() does. O(length).
ImportedProfile import_sailor(std::string_view text, const std::string& source_name,
                              const ForeignProfileOptions& options);

/// Whether an object looks like such a file. O(members).
bool is_sailor_profile(const io::JsonValue& object);

}  // namespace dapple::interop
