// Imports Sailor's layer profiles: the sizes of every layer for one sequence, and times by kind of
// GPU, micro-batch size and tensor-parallel degree, in one document or in the two files of Sailor's
// planner. Source: eth-easl/sailor Planner/simulations/profiles_tmp.json and Planner/llm_info.json.
// Times without sizes are refused.
#pragma once

#include <vector>

#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/io/json/json_value.h"

namespace dapple::interop {

/// Imports the figures of all kinds of GPU at one tensor-parallel degree, with a measurement for
/// each micro-batch size. The kind of the option, or else the first by name, is the profile's;
/// those of the others are ModelProfile::other_devices. The memory that a layer's forward leaves
/// allocated includes its output but not its input; the stash, conversely, includes the input but
/// not the output. Throws as import_model() does. O(length). Requires: at least one file.
ImportedProfile import_sailor(const std::vector<ForeignModelFile>& files,
                              const ForeignProfileOptions& options);

/// Whether an object looks like such a file. O(members).
bool is_sailor_profile(const io::JsonValue& object);
/// Whether an object looks like one of the two files, that of times and that of sizes. O(members).
bool is_sailor_times(const io::JsonValue& object);
bool is_sailor_sizes(const io::JsonValue& object);

}  // namespace dapple::interop
