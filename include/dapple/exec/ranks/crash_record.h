// Supervision of a process that may die at any time by another process, which then reports what the
// first one was doing.
#pragma once

#include <functional>
#include <string>

#include "dapple/plan/action.h"

namespace dapple::exec {

/// A page of shared memory that outlives the process that writes it.
class CrashRecord {
 public:
  /// Throws Error(Environment) if the memory cannot be allocated.
  CrashRecord();
  ~CrashRecord();
  CrashRecord(const CrashRecord&) = delete;
  CrashRecord& operator=(const CrashRecord&) = delete;

  /// Sets the name of the writing process, first "rank 2", later "rank 2 (node1:0)". It is
  /// truncated to 100 characters. Requires: the name begins with the one that was set before, as
  /// another process may read it meanwhile.
  void set_name(const std::string& name) noexcept;
  void set_action(const Action& action) noexcept;

  /// Returns the name and the action as far as they are known, such as "rank 2 (node1:0): 1F3".
  std::string text() const;

 private:
  struct Page;
  Page* page_ = nullptr;
};

/// Runs `work` in a child process and returns its result, in the child as well as in this process.
/// If the child is killed by a signal, this process calls `tell` with a sentence that names the
/// child and its last action, and returns kEnvironmentCode. This works even if this process has
/// been stopped, because the child's death resumes it. Deaths by SIGHUP, SIGINT and SIGTERM, by
/// which a launcher ends a job, are not reported. These signals and SIGUSR1 are forwarded to the
/// child by sigqueue(). If this process dies, the child calls `tell` on a separate thread and exits
/// with kEnvironmentCode. Throws Error(Environment) if no child process can be created. Requires:
/// this process has one thread.
int run_supervised(const std::function<int(CrashRecord&)>& work,
                   const std::function<void(const std::string& sentence)>& tell);

}  // namespace dapple::exec
