// Figures of a profile that can hardly be right, or that hold less far than they seem to: said
// where the profile is made, and by every plan that is made from it.
#pragma once

#include <string>
#include <vector>

#include "dapple/profile/model_profile.h"

namespace dapple {

/// Sentences for people, those that the profile carries (`warnings`) first: layers that take more
/// than a second a sample at the largest batch that was measured; times that fall, by more than a
/// twentieth, from one measured batch to a larger one; outputs, stashes and workspaces that differ,
/// by more than a twentieth, from what the largest measured batch makes of them in proportion,
/// which is all that is used. Each names one layer and counts the others. O(measurements).
std::vector<std::string> doubts_about(const ModelProfile& profile);

}  // namespace dapple
