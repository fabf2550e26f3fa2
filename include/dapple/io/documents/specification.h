// Reads executable models: documents of the schema dapple-profile/1 whose layers have an `op`, with
// measurements (a profile) or without (a specification).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dapple/profile/model_profile.h"
#include "dapple/profile/operation.h"

namespace dapple::io {

/// Returns the operation that each layer performs, read from its `op`. Throws Error(BadInput) with
/// every violation, each under the name of its layer: a missing `op`, an unknown kind, keys and
/// dimensions that are missing, out of range or inconsistent, and a layer whose only input is not
/// the layer before it. A violation in several copies of a layer is reported once. O(layers).
std::vector<Operation> read_operations(const ModelProfile& profile, const std::string& source_name);

struct Specification {
  /// The model, whose layers may have no measurements.
  ModelProfile profile;
  /// The operation of each layer.
  std::vector<Operation> operations;
};

/// Reads a profile or specification with its operations. Throws Error(BadInput), as read_profile()
/// and read_operations() do.
Specification read_specification(std::string_view text, const std::string& source_name);

}  // namespace dapple::io
