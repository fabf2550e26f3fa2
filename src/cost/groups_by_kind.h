// Groups on a cluster whose kinds of devices have different links: each kind has collectives of its
// own beside the times of its computation.
#pragma once

#include <map>
#include <string>

#include "dapple/profile/collective.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/description.h"

namespace dapple {

/// The group of which a device is part, by the name of its kind.
using GroupsByKind = std::map<std::string, GroupShape>;

/// Gives the profile the groups of all kinds. Kinds whose times are those of one measured kind but
/// whose groups differ are told apart as if they had been measured separately: the profile gets the
/// times of the measured kind once more under another name, to which the kind's time_scale in
/// `topology` then leads. Kinds without times are left as they are. O(kinds^2 + kinds * size of the
/// profile). Requires: the groups differ in their rings alone.
void set_groups_by_kind(const GroupsByKind& groups, ModelProfile& profile,
                        TopologyDescription& topology);

}  // namespace dapple
