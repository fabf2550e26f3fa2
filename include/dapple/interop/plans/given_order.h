// Reads the order of actions of an externally made schedule for the device groups of a plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dapple/plan/plan.h"
#include "dapple/topology/topology.h"

namespace dapple::interop {

/// Returns the forwards and backwards of each device group, read from one of two forms:
///
///   text  "node0:3: 0RECV_F0 0F0 ...", a line per device, as `dapple-plan schedule` prints it; the
///         devices of a group must list the same computations
///   CSV   a row per group, a cell per action, empty cells for waiting, as PyTorch's pipelining
///         schedules are stored; a row belongs to the group that holds the stage of its first
///         action
///
/// Communication, all-reduces and optimizer steps are skipped, as they follow from the rest. Throws
/// Error(BadInput) with the line for a word that is not an action, an action of a stage that the
/// line's devices do not hold, a device that is not in the plan or occurs twice in the file, and a
/// group without a line. O(length), times log devices. Requires: every stage has devices.
std::vector<std::vector<Action>> read_order(std::string_view text, const std::string& source_name,
                                            const Plan& plan, const Topology& topology);

}  // namespace dapple::interop
