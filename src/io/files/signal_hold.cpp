#include "io/files/signal_hold.h"

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <mutex>

namespace dapple::io {
namespace {

constexpr std::array<int, 3> kSignals{SIGHUP, SIGINT, SIGTERM};

/// The number of times that a signal arrived during the hold. Signals queued by sigqueue(3) are
/// counted separately, because handlers distinguish them from others.
struct Held {
  std::atomic<int> sent{0};
  std::atomic<int> queued{0};
  std::atomic<bool> ends_process{false};
  struct sigaction before = {};
};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler may not wait");

std::array<Held, kSignals.size()> held;
std::mutex holders;
int holder_count = 0;

void note(int number, siginfo_t* origin, void* /*context*/) {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == number) ++(origin->si_code == SI_QUEUE ? held[i].queued : held[i].sent);
  }
}

void begin() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    Held& signal = held[i];
    signal.sent = 0;
    signal.queued = 0;
    ::sigaction(kSignals[i], nullptr, &signal.before);
    const bool has_handler =
        (signal.before.sa_flags & SA_SIGINFO) != 0 || signal.before.sa_handler != SIG_DFL;
    signal.ends_process = !has_handler;
    if (has_handler && signal.before.sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_sigaction = note;
    action.sa_flags = SA_SIGINFO;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(kSignals[i], &action, nullptr);
  }
}

/// Restores all actions and then raises the recorded signals. All are restored first because a
/// handler may inspect the other signals' actions.
void end() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &held[i].before, nullptr);
  }
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    for (int n = held[i].sent.exchange(0); n > 0; --n) ::raise(kSignals[i]);
    for (int n = held[i].queued.exchange(0); n > 0; --n) {
      ::sigqueue(::getpid(), kSignals[i], sigval{.sival_int = 0});
    }
  }
}

}  // namespace

SignalHold::SignalHold() {
  const std::lock_guard<std::mutex> lock(holders);
  if (holder_count++ == 0) begin();
}

SignalHold::~SignalHold() {
  const std::lock_guard<std::mutex> lock(holders);
  if (--holder_count == 0) end();
}

bool SignalHold::is_over() {
  for (const Held& signal : held) {
    if (signal.ends_process && signal.sent + signal.queued > 0) return true;
  }
  return false;
}

}  // namespace dapple::io
