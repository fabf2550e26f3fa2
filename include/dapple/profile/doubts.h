// Warnings about figures of a profile that are implausible or of limited validity. They are
// reported when the profile is made and repeated by every plan made from it.
#pragma once

#include <string>
#include <vector>

#include "dapple/profile/model_profile.h"

namespace dapple {

/// Returns warnings as sentences for people: first the profile's own `warnings`, then one for
/// each of the following that is found.
/// - Layers that take more than a second per sample at the largest measured batch.
/// - Times that fall by more than a twentieth from one measured batch size to the next larger one.
/// - Outputs, stashes and workspaces that differ by more than a twentieth from a proportional share
///   of the largest measured batch's, which is all that the planner uses.
/// Each sentence names one layer and counts the others. O(measurements).
std::vector<std::string> doubts_about(const ModelProfile& profile);

}  // namespace dapple
