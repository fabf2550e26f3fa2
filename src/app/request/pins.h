// Parsing of --pin.
#pragma once

#include <string>
#include <vector>

#include "dapple/plan/pins.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::app {

/// Parses pins. Each text is one of "stages=N", "replicas=N", "recompute=on", "recompute=off",
/// "depths=least", "cut=LAYER" and "join=LAYER"; a layer is given by name, or by number from 0.
/// Layers are returned in ascending order without duplicates. Throws Error(Usage) if a text is none
/// of these, pins contradict each other, or no split of the model on that many devices satisfies
/// them.
Pins parse_pins(const std::vector<std::string>& texts, const ModelProfile& profile,
                const Topology& topology);

}  // namespace dapple::app
