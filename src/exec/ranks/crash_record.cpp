#include "dapple/exec/ranks/crash_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/exec/ranks/exit_code.h"
#include "dapple/schedule/schedule.h"
#include "exec/message/announced.h"

namespace dapple::exec {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw Error(ErrorKind::Environment, "",
              {{"", fmt::format("expected {}, got \"{}\"", what, std::strerror(errno))}});
}

}  // namespace

struct CrashRecord::Page {
  // Null-terminated; the name only ever grows.
  std::array<char, 101> name{};
  AnnouncedAction action;
};

CrashRecord::CrashRecord() {
  void* memory =
      mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) refuse("a page of shared memory");
  page_ = new (memory) Page;
}

CrashRecord::~CrashRecord() {
  munmap(page_, sizeof(Page));
}

void CrashRecord::set_name(const std::string& name) noexcept {
  const std::size_t length = std::min(name.size(), page_->name.size() - 1);
  std::copy_n(name.begin(), length, page_->name.begin());
}

void CrashRecord::set_action(const Action& action) noexcept {
  page_->action.set(action);
}

std::string CrashRecord::text() const {
  std::string text = page_->name.data();
  const std::optional<Action> action = page_->action.get();
  if (action) text += ": " + to_text(*action);
  return text.empty() ? "a rank whose number is not known yet" : text;
}

namespace {

using Tell = std::function<void(const std::string& sentence)>;

/// A pipe. Its reading end detects that the writing end is closed, which also happens when the
/// writing process dies.
class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) refuse("a pipe");
  }
  ~Pipe() {
    close(ends_[0]);
    close_writing();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int reading() const { return ends_[0]; }
  /// Makes the system send SIGCONT to this process once the last writer has closed the pipe, even
  /// by dying, so that a stopped process resumes and notices it.
  void wake_at_close() {
    if (fcntl(reading(), F_SETOWN, getpid()) != 0 || fcntl(reading(), F_SETSIG, SIGCONT) != 0 ||
        fcntl(reading(), F_SETFL, O_ASYNC) != 0) {
      refuse("a pipe that wakes its reader");
    }
  }
  void close_writing() {
    if (ends_[1] >= 0) close(std::exchange(ends_[1], -1));
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

/// The supervised process; 0 once it has ended.
std::atomic<pid_t> supervised{0};
static_assert(std::atomic<pid_t>::is_always_lock_free, "a signal handler may not wait");

/// Forwards a signal with sigqueue(), which distinguishes it from the same signal sent to the whole
/// process group.
void forward_signal(int number) {
  const int before = errno;
  if (const pid_t child = supervised; child != 0) sigqueue(child, number, {});
  errno = before;
}

/// Forwards signals to the supervised process: a request to end the supervisor is meant for that
/// process, which decides how to react.
void forward_signals(pid_t child) {
  supervised = child;
  for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGUSR1}) {
    struct sigaction action = {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    action.sa_handler = forward_signal;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, nullptr);
  }
}

int wait_for(pid_t child) {
  // WNOWAIT leaves the process a zombie until no more signals are forwarded, so that its number
  // cannot be reused before.
  siginfo_t ended;
  while (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == -1 &&
         errno == EINTR) {
    continue;
  }
  supervised = 0;
  int status = 0;
  while (waitpid(child, &status, 0) == -1 && errno == EINTR) continue;
  return status;
}

/// Waits until the other side of one of the pipes is closed, and returns whether that is the first
/// one.
bool closes_first(int first, int second) {
  std::array<pollfd, 2> ends{pollfd{first, POLLIN, 0}, pollfd{second, POLLIN, 0}};
  while (poll(ends.data(), ends.size(), -1) == -1 && errno == EINTR) continue;
  return ends[0].revents != 0;
}

/// Ends the guard thread of the supervised process, whether its work returns or throws.
struct WorkEnd {
  Pipe& pipe;
  ~WorkEnd() { pipe.close_writing(); }
};

/// Runs in the supervised process. `supervisor_pipe` closes when the supervisor dies.
int work_supervised(CrashRecord& record, Pipe& supervisor_pipe,
                    const std::function<int(CrashRecord&)>& work, const Tell& tell) {
  supervisor_pipe.close_writing();
  Pipe end;
  const std::jthread guard([&] {
    if (!closes_first(supervisor_pipe.reading(), end.reading())) return;
    tell(record.text() + ": the process that supervises it was killed");
    std::_Exit(kEnvironmentCode);
  });
  const WorkEnd at_end{end};
  return work(record);
}

}  // namespace

int run_supervised(const std::function<int(CrashRecord&)>& work, const Tell& tell) {
  CrashRecord record;
  // Held open for writing by the supervisor.
  Pipe supervisor_pipe;
  // Held open for writing by the supervised process as long as it lives.
  Pipe child_pipe;
  child_pipe.wake_at_close();
  const pid_t child = fork();
  if (child == -1) refuse("a child process");
  if (child == 0) return work_supervised(record, supervisor_pipe, work, tell);
  child_pipe.close_writing();
  forward_signals(child);
  const int status = wait_for(child);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int number = WTERMSIG(status);
  if (number != SIGHUP && number != SIGINT && number != SIGTERM) {
    tell(fmt::format("{}: killed by signal {} ({})", record.text(), number, strsignal(number)));
  }
  return kEnvironmentCode;
}

}  // namespace dapple::exec
