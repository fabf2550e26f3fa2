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
  std::array<char, 101> name{};  // ends with a zero; only ever gets longer
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
  return text.empty() ? "a process that had not yet found its place" : text;
}

namespace {

constexpr int kEnvironmentCode = 5;

using Tell = std::function<void(const std::string& sentence)>;

/// Two ends, of which one hears the other close, also by its process's death.
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
  /// Has the system send this process SIGCONT once the last writer has closed, also by its death:
  /// whoever has been stopped meanwhile then sees it.
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

/// The process that this one watches; 0 once it has ended.
std::atomic<pid_t> watched{0};
static_assert(std::atomic<pid_t>::is_always_lock_free, "a signal handler may not wait");

/// With a mark by which it is known from the same signal to the whole group.
void pass_on(int number) {
  const int before = errno;
  if (const pid_t child = watched; child != 0) sigqueue(child, number, {});
  errno = before;
}

/// Who asks the process that watches to end means the one that works, which decides what becomes of
/// it.
void pass_signals_on(pid_t child) {
  watched = child;
  for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGUSR1}) {
    struct sigaction action = {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    action.sa_handler = pass_on;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, nullptr);
  }
}

int wait_for(pid_t child) {
  // It is not forgotten, and its number not another one's, before nothing is passed on to it.
  siginfo_t ended;
  while (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == -1 &&
         errno == EINTR) {
    continue;
  }
  watched = 0;
  int status = 0;
  while (waitpid(child, &status, 0) == -1 && errno == EINTR) continue;
  return status;
}

/// Until one of them is closed on the other side: whether it is the first.
bool closes_first(int first, int second) {
  std::array<pollfd, 2> ends{pollfd{first, POLLIN, 0}, pollfd{second, POLLIN, 0}};
  while (poll(ends.data(), ends.size(), -1) == -1 && errno == EINTR) continue;
  return ends[0].revents != 0;
}

/// Tells the guard of a process that works, however its work ends.
struct WorkEnd {
  Pipe& pipe;
  ~WorkEnd() { pipe.close_writing(); }
};

/// In the process that works. `life` closes when the watcher dies.
int work_supervised(CrashRecord& words, Pipe& life, const std::function<int(CrashRecord&)>& work,
                    const Tell& tell) {
  life.close_writing();
  Pipe end;
  const std::jthread guard([&] {
    if (!closes_first(life.reading(), end.reading())) return;
    tell(words.text() + ": expected the process that watches it to go on, but it was killed");
    std::_Exit(kEnvironmentCode);
  });
  const WorkEnd at_end{end};
  return work(words);
}

}  // namespace

int run_supervised(const std::function<int(CrashRecord&)>& work, const Tell& tell) {
  CrashRecord words;
  Pipe life;   // of the watcher
  Pipe death;  // of the process that works, which holds its end of it as long as it lives
  death.wake_at_close();
  const pid_t child = fork();
  if (child == -1) refuse("another process");
  if (child == 0) return work_supervised(words, life, work, tell);
  death.close_writing();
  pass_signals_on(child);
  const int status = wait_for(child);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int number = WTERMSIG(status);
  if (number != SIGHUP && number != SIGINT && number != SIGTERM) {
    tell(fmt::format("{}: expected to go on, got killed by signal {} ({})", words.text(), number,
                     strsignal(number)));
  }
  return kEnvironmentCode;
}

}  // namespace dapple::exec
