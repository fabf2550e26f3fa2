// Warnings about figures of a profile that are implausible or of limited validity. They are
// reported when the profile is made and repeated by every plan made from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dapple/profile/model_profile.h"

namespace dapple {

/// What the warning about send-receives beside a core without times begins with. Plans of older
/// versions lack it.
inline constexpr std::string_view kMissingCore =
    "send-receives beside a core of attention that takes no time";

/// Returns warnings as sentences for people: first the profile's own `warnings`, then one for
/// each of the following that is found.
/// - Layers that take more than a second per sample at the largest measured batch.
/// - Times that fall by more than a twentieth from one measured batch size to the next larger one.
/// - Outputs, stashes and workspaces that differ by more than a twentieth from a proportional share
///   of the largest measured batch's, which is all that the planner uses.
/// - Send-receives beside a core of attention of which no measurement states a time.
/// Each sentence names one layer and counts the others. O(measurements).
std::vector<std::string> doubts_about(const ModelProfile& profile);

}  // namespace dapple
