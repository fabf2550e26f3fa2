// The order of a schedule that someone else made, for the groups of devices of a plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dapple/plan/plan.h"
#include "dapple/topology/topology.h"

namespace dapple::interop {

/// Forwards and backwards by group of devices, from one of two forms:
///   text  "node0:3: 0RECV_F0 0F0 ...", a line per device, as `dapple-plan schedule` prints it; the
///         devices of a group must say the same
///   CSV   a row per group, a cell per action, empty cells for waiting, as PyTorch's pipelining
///         schedules are stored; row r is the group of the plan's r-th stage
/// Communication, reductions and steps are passed over, as they follow from the rest. Throws
/// Error(BadInput) with the line: a word that is no action, an action of a stage that is not on
/// the line's devices, a device that is not in the plan or twice in the file, a group without a
/// line. O(length), times log devices. Requires: every stage has devices.
std::vector<std::vector<Action>> read_order(std::string_view text, const std::string& source_name,
                                            const Plan& plan, const Topology& topology);

}  // namespace dapple::interop
