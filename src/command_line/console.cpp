#include "dapple/command_line/console.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

namespace dapple::command_line {
namespace {

constexpr int kUsualWidth = 100;
constexpr int kLeastWidth = 60;
constexpr int kMostWidth = 200;

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

/// Whether the locale's character set is UTF-8, by the first variable that is set, in the order of
/// setlocale(3).
bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (value.empty()) continue;
    for (std::string_view charset : {"UTF-8", "utf-8", "UTF8", "utf8"}) {
      if (value.find(charset) != std::string_view::npos) return true;
    }
    return false;
  }
  return false;
}

int width_of(int descriptor, bool is_terminal) {
  int width = 0;
  if (is_terminal) {
    winsize size{};
    if (ioctl(descriptor, TIOCGWINSZ, &size) == 0) width = size.ws_col;
  }
  if (width == 0) {
    const std::string_view columns = environment("COLUMNS");
    std::from_chars(columns.data(), columns.data() + columns.size(), width);
  }
  if (width <= 0) width = kUsualWidth;
  return std::clamp(width, kLeastWidth, kMostWidth);
}

report::TextStyle style_of(int descriptor) {
  const bool is_terminal = descriptor >= 0 && isatty(descriptor) == 1;
  return {.width = width_of(descriptor, is_terminal),
          .color = is_terminal && environment("NO_COLOR").empty() && environment("TERM") != "dumb",
          .unicode = locale_is_utf8(),
          .wraps = is_terminal};
}

}  // namespace

Surfaces look_at_surfaces(const std::ostream& out, const std::ostream& err) {
  const bool own_err = &err == &std::cerr;
  return {.out = style_of(&out == &std::cout ? STDOUT_FILENO : -1),
          .err = style_of(own_err ? STDERR_FILENO : -1),
          .shows_progress = own_err && isatty(STDERR_FILENO) == 1 && environment("TERM") != "dumb"};
}

void guard_standard_streams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1) continue;
    // open() returns the lowest free descriptor, which is this one. Its mode is the opposite of the
    // usual one, so that using it fails.
    const int flags = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (open("/dev/null", flags) < 0) return;
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

namespace {

/// SIGHUP is sent when a terminal is closed; SIGUSR1 is forwarded by launchers, and sent by
/// queueing systems before they end a job.
constexpr std::array<int, 4> kStopSignals{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

std::atomic<bool> signal_received{false};
std::atomic<bool> signal_passed_on{false};
/// The text of the current guard, taken by the handler that prints it.
std::atomic<const std::string*> untold{nullptr};
static_assert(std::atomic<const std::string*>::is_always_lock_free,
              "a signal handler may not wait");
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait");

/// Records a signal. One sent to a process group may reach this process twice: directly, and
/// forwarded by another process with SI_QUEUE.
void remember_signal(int number, siginfo_t* origin, void* /*context*/) {
  std::atomic<bool>& was_sent = origin->si_code == SI_QUEUE ? signal_passed_on : signal_received;
  if (!was_sent.exchange(true)) {
    const int fault = errno;
    const std::string* text = untold.exchange(nullptr);
    if (text != nullptr && write(STDERR_FILENO, text->data(), text->size()) < 0) {
      // Not an error: the command reports its interruption at the end.
    }
    errno = fault;
    return;
  }
  // A second signal ends the process. It is blocked until this function returns.
  signal(number, SIG_DFL);
  raise(number);
}

void install(int number, struct sigaction& before) {
  sigaction(number, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_sigaction = remember_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  for (const int other : kStopSignals) sigaddset(&action.sa_mask, other);
  sigaction(number, &action, nullptr);
}

}  // namespace

std::string text_of_interruption(const Console& console, const std::string& what) {
  if (console.is_quiet) return {};
  // On a terminal the current line has "^C" or the progress.
  return (console.shows_progress ? "\n" : "") + std::string("interrupted: it ends after ") + what +
         " that it is at; a second time ends it at once\n";
}

struct SignalGuard::Before {
  std::string told;
  std::array<struct sigaction, kStopSignals.size()> actions = {};
};

SignalGuard::SignalGuard(std::string told) : before_(std::make_unique<Before>()) {
  before_->told = std::move(told);
  untold = before_->told.empty() ? nullptr : &before_->told;
  signal_received = false;
  signal_passed_on = false;
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    install(kStopSignals[i], before_->actions[i]);
  }
}

SignalGuard::~SignalGuard() {
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    sigaction(kStopSignals[i], &before_->actions[i], nullptr);
  }
  untold = nullptr;
}

bool SignalGuard::has_received() const {
  return signal_received || signal_passed_on;
}

}  // namespace dapple::command_line
