// Plans whose devices are groups: the model and the topology that they are costed with.
#pragma once

#include <string>

#include "dapple/plan/document.h"
#include "dapple/profile/parallelism.h"
#include "dapple/topology/topology.h"

namespace dapple::app {

/// Gives the document the profile and the topology as each device of a group sees them, and its
/// plan the form of parallelism; without parallelism, the profile and topology themselves. Throws
/// Error(BadInput) naming `source` if layers or servers do not allow such groups.
void set_inputs(PlanDocument& document, const ModelProfile& profile, const Topology& topology,
                const Parallelism& parallelism, const std::string& source);

}  // namespace dapple::app
