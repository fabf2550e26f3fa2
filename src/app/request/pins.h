// What --pin says.
#pragma once

#include <string>
#include <vector>

#include "dapple/plan/pins.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::app {

/// Each text is one of "stages=N", "replicas=N", "recompute=on", "recompute=off", "cut=LAYER" and
/// "join=LAYER"; a layer is named, or numbered from 0. Layers come out ascending, each once. Throws
/// Error(Usage) where a text is none of these, something is pinned twice in different ways, or no
/// split of that model on that many devices can be as pinned.
Pins parse_pins(const std::vector<std::string>& texts, const ModelProfile& profile,
                const Topology& topology);

}  // namespace dapple::app
