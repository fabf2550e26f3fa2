// Holds back signals that would end the process while files have temporary names.
#pragma once

#include <array>
#include <csignal>

namespace dapple::io {

/// Records SIGHUP, SIGINT and SIGTERM instead of performing their actions. When the last hold ends,
/// the recorded signals are raised in its thread. Signals that the process ignores stay ignored.
/// Interrupted system calls are not restarted: writers must check is_over() after EINTR. Several
/// holds may exist at a time, in any threads.
class SignalHold {
 public:
  SignalHold();
  ~SignalHold();
  SignalHold(const SignalHold&) = delete;
  SignalHold& operator=(const SignalHold&) = delete;

  /// Whether a recorded signal will end the process when the hold ends, so that writing on is
  /// pointless. Signals for which the process has a handler of its own do not count.
  static bool is_over();
};

}  // namespace dapple::io
