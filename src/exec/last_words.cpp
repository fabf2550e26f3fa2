#include "dapple/exec/last_words.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>

#include "announced.h"
#include "dapple/core/error.h"
#include "dapple/schedule/schedule.h"

namespace dapple {

struct LastWords::Page {
  std::array<char, 101> name{};  // ends with a zero; written once, before the action
  AnnouncedAction action;
};

LastWords::LastWords() {
  void* memory =
      mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(
        ErrorKind::Environment, "",
        {{"", fmt::format("expected a page of shared memory, got \"{}\"", std::strerror(errno))}});
  }
  page_ = new (memory) Page;
}

LastWords::~LastWords() {
  munmap(page_, sizeof(Page));
}

void LastWords::set_name(const std::string& name) noexcept {
  const std::size_t length = std::min(name.size(), page_->name.size() - 1);
  std::copy_n(name.begin(), length, page_->name.begin());
}

void LastWords::set_action(const Action& action) noexcept {
  page_->action.set(action);
}

std::string LastWords::text() const {
  std::string text = page_->name.data();
  const std::optional<Action> action = page_->action.get();
  if (action) text += ": " + to_text(*action);
  return text.empty() ? "a process that had not yet found its place" : text;
}

namespace {

constexpr int kEnvironmentCode = 5;

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) == -1 && errno == EINTR) continue;
  return status;
}

}  // namespace

int run_watched(const std::function<int(LastWords&)>& work,
                const std::function<void(const std::string& sentence)>& tell) {
  LastWords words;
  const pid_t watcher = getpid();
  const pid_t child = fork();
  if (child == -1) {
    throw Error(ErrorKind::Environment, "",
                {{"", fmt::format("expected another process, got \"{}\"", std::strerror(errno))}});
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The watcher may have died before that call.
    return getppid() == watcher ? work(words) : kEnvironmentCode;
  }
  // The signals reach the whole group: the worker decides what becomes of them.
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  const int status = wait_for(child);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int number = WTERMSIG(status);
  if (number != SIGINT && number != SIGTERM) {
    tell(fmt::format("{}: expected to go on, got killed by signal {} ({})", words.text(), number,
                     strsignal(number)));
  }
  return kEnvironmentCode;
}

}  // namespace dapple
