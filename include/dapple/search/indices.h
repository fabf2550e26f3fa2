// The indices of the search: what is numbered while plans are built from the last stage to the
// first.
#pragma once

#include "dapple/core/index.h"
#include "dapple/profile/model_profile.h"

namespace dapple::search {

/// A cut in front of the layer with the same number; the last cut is the end of the model.
using CutIndex = Index<struct CutTag>;
/// A node of a search: a partial plan.
using NodeIndex = Index<struct NodeTag>;
/// A device allocation of a PlacementSpace.
using AllocationIndex = Index<struct AllocationTag>;
/// A use of a PlacementSpace: how many devices of each pool are taken.
using UseIndex = Index<struct UseTag>;
/// A device class of a PlacementSpace.
using DeviceClassIndex = Index<struct DeviceClassTag>;
/// A class of device allocations: those with the same number of devices of each device class.
using AllocationClassIndex = Index<struct AllocationClassTag>;
/// A placement of a PlacementTable.
using PlacementIndex = Index<struct PlacementTag>;

/// Stands for the node behind the last stage of a plan, where there is none.
inline constexpr NodeIndex kNoNode{-1};

/// The layers from one cut to another.
constexpr LayerRange layers_between(CutIndex begin, CutIndex end) {
  return {begin.value, end.value};
}

}  // namespace dapple::search
