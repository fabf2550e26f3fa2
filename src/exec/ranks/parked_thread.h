// Threads that wait for what nothing can interrupt, and for which nobody waits any longer.
#pragma once

#include <thread>

namespace dapple::exec {

/// Keeps the thread until the process ends by exit(), which then waits for it, or by std::_Exit(),
/// which does not. So it never runs beside the end of what the process shares. Requires: what it
/// uses is its own.
void park(std::thread thread);

}  // namespace dapple::exec
