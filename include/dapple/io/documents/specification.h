// A model that can be run: a document of the schema dapple-profile/1 whose layers carry `op`, with
// measurements (a profile) or without (a specification).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dapple/profile/model_profile.h"
#include "dapple/profile/operation.h"

namespace dapple::io {

/// What each layer does, by its `op`. Throws Error(BadInput) with every fault, each under the name
/// of its layer: no `op`, a kind that is not known, keys and dimensions that are missing, out of
/// range or do not fit each other, and a layer that is not fed by the one before alone. What is
/// wrong in several copies of a layer is said once. O(layers).
std::vector<Operation> read_operations(const ModelProfile& profile, const std::string& source_name);

struct Specification {
  ModelProfile profile;  // of a specification, layers have no measurements
  std::vector<Operation> operations;
};

/// Throws Error(BadInput), as read_profile() and read_operations() do.
Specification read_specification(std::string_view text, const std::string& source_name);

}  // namespace dapple::io
