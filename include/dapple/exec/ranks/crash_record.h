// A process that may die at any moment, watched by another that then says what it was at.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dapple/plan/action.h"

namespace dapple::exec {

/// A page of memory that outlives the process which writes it.
class CrashRecord {
 public:
  /// Throws Error(Environment) where there is no memory.
  CrashRecord();
  ~CrashRecord();
  CrashRecord(const CrashRecord&) = delete;
  CrashRecord& operator=(const CrashRecord&) = delete;

  /// Who writes: "rank 2", then "rank 2 (node1:0)", cut off after 100 characters.
  void set_name(const std::string& name) noexcept;
  void set_action(const Action& action) noexcept;

  /// "rank 2 (node1:0): 1F3", as far as known.
  std::string text() const;

 private:
  struct Page;
  Page* page_ = nullptr;
};

/// Runs `work` in a process of its own and returns what that returns, there and here. If it dies of
/// a signal, `tell` is called here with a sentence that names it and what it was at, and the code
/// is 5, even if somebody has stopped this process, which its end then wakes; but not for SIGHUP,
/// SIGINT and SIGTERM, by which a launcher ends it. Those and SIGUSR1 are passed on to it by
/// sigqueue(). If this process dies, the other one calls `tell`, from a thread of its
/// own, and ends with code 5. Throws Error(Environment) if there can be no other process. Requires:
/// this process has one thread.
int run_supervised(const std::function<int(CrashRecord&)>& work,
                   const std::function<void(const std::string& sentence)>& tell);

}  // namespace dapple::exec
