// Signals that would end the process, held back while files have temporary names.
#pragma once

#include <array>
#include <csignal>

namespace dapple::io {

/// SIGHUP, SIGINT and SIGTERM, which it notes in place of what they would do; the last hold to end
/// lets them do it, in the end's thread. Those that the process ignores stay ignored. Not restarted
/// are the system calls that they interrupt: whoever writes asks is_over() behind EINTR. Several
/// may live at a time, in any threads.
class SignalHold {
 public:
  SignalHold();
  ~SignalHold();
  SignalHold(const SignalHold&) = delete;
  SignalHold& operator=(const SignalHold&) = delete;

  /// Whether a signal came that ends the process with the hold: what is being written is for
  /// nobody. False where the process has a handler of its own.
  static bool is_over();
};

}  // namespace dapple::io
