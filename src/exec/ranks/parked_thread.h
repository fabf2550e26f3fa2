// Threads that are blocked in calls that cannot be interrupted, and whose results are no longer
// needed.
#pragma once

#include <thread>

namespace dapple::exec {

/// Keeps the thread until the process ends, either by exit(), which waits for the thread, or by
/// std::_Exit(), which does not. So the thread never runs while the static objects of the process
/// are being destroyed. Requires: the thread owns everything that it uses.
void park(std::thread thread);

}  // namespace dapple::exec
