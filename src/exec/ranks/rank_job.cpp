#include "dapple/exec/ranks/rank_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <set>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/exec/message/fingerprint.h"
#include "dapple/exec/ranks/barrier.h"
#include "dapple/exec/ranks/failure_agreement.h"
#include "dapple/exec/ranks/heartbeat.h"
#include "dapple/exec/ranks/rank_wire.h"
#include "exec/message/announced.h"
#include "exec/message/clock.h"
#include "exec/message/waiting.h"
#include "exec/ranks/rank_messages.h"
#include "exec/ranks/rank_names.h"

namespace dapple::exec {
namespace {

using std::chrono::nanoseconds;

/// Returns the rank before this one in the ring.
int previous_rank(const RankWire& wire) {
  return (wire.rank() + wire.size() - 1) % wire.size();
}

/// Whether rank `from` may send a notice of this kind to the rank of this wire.
bool may_send(NoticeKind kind, int from, const RankWire& wire) {
  switch (kind) {
    case NoticeKind::BarrierArrival:
      return wire.rank() == 0 && from != 0;
    case NoticeKind::BarrierRelease:
      return from == 0;
    case NoticeKind::Join:
    case NoticeKind::Heartbeat:
      return from == previous_rank(wire);
    case NoticeKind::ArrivalTime:
    case NoticeKind::Failure:
      return true;
  }
  return false;
}

const char* name_of(NoticeKind kind) {
  switch (kind) {
    case NoticeKind::BarrierArrival:
      return "barrier arrival";
    case NoticeKind::BarrierRelease:
      return "barrier release";
    case NoticeKind::Join:
      return "notice that it has joined";
    case NoticeKind::Heartbeat:
      return "heartbeat";
    case NoticeKind::ArrivalTime:
      return "arrival time";
    case NoticeKind::Failure:
      return "failure notice";
  }
  return "notice of an unknown kind";
}

/// Returns the message about a notice of this kind that its sender may not send to rank `to`.
std::string forbidden_notice(NoticeKind kind, int to) {
  return fmt::format("expected it to send rank {} no {}, but it did", to, name_of(kind));
}

std::exception_ptr environment_error(const std::string& name, const std::string& place,
                                     const std::string& message) {
  return std::make_exception_ptr(Error(ErrorKind::Environment, name, {{place, message}}));
}

}  // namespace

std::string rank_name(int rank, const std::string& device) {
  return fmt::format("rank {} ({})", rank, device);
}

RankClock host_clock() {
  return {.now = monotonic_now, .sleep_until = sleep_until};
}

/// Connects what decides to what waits and sends: takes in what the wire brings, lets heartbeats,
/// barrier and agreement on failures decide under one lock, and wakes those who wait. The wire, the
/// messages and the names are called with the lock held, so none of them calls back into this
/// object meanwhile.
class RankJob::State {
 public:
  State(const MakeWire& make_wire, RankClock clock);

  RankWire& wire() { return *wire_; }
  RankMessages& messages() { return messages_; }
  void join(const Topology& topology, const std::vector<DeviceIndex>& devices,
            const RankTransportOptions& options);
  template <class Call>
  auto call_or_throw_fault(Call call);
  void barrier();
  void announce(const Action& action) noexcept;
  void abort() noexcept;
  void finish();
  bool is_first_to_fail() noexcept;

 private:
  void take_in(const Frame& frame, HostBytes bytes);
  void take_in(const Notice& notice);
  void take_turn();
  void note_peer_loss(int rank);
  void take_in_fault(std::exception_ptr fault);
  void throw_if_over();
  template <class Condition>
  bool wait(Condition condition);
  int next() const { return (wire_->rank() + 1) % wire_->size(); }
  int previous() const { return previous_rank(*wire_); }

  // Each of these requires that the lock is held.
  void compare_agreement();
  void report_peer_loss(std::int64_t now);
  void report_violation(int rank, const std::string& message);
  void give_up(std::exception_ptr fault);
  void note_failure();
  void note_failure_of(const RankFailure& other);
  void close();

  const RankClock clock_;
  RankNames names_;
  RankMessages messages_;
  AnnouncedAction current_action_;

  // Guards all members below. Those that join() and the constructor set may be read without it by
  // the threads that call afterwards.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::chrono::nanoseconds timeout_ = RankTransportOptions().timeout;
  CrashRecord* crash_record_ = nullptr;
  Heartbeat heartbeat_;
  FailureAgreement failures_;
  Barrier barrier_;
  // The fingerprint of this rank's agreement; empty before join().
  std::optional<std::uint64_t> agreement_;
  // The fingerprint of the previous rank's agreement, once it has joined.
  std::optional<std::uint64_t> previous_agreement_;
  // The kinds and senders of notices that arrived before the wire was complete.
  std::set<std::pair<NoticeKind, int>> early_notices_;
  bool is_over_ = false;
  // A fault detected here outside the functions of the transport.
  std::exception_ptr fault_;
  // Declared last, because its callbacks use all other members.
  std::unique_ptr<RankWire> wire_;
};

RankJob::State::State(const MakeWire& make_wire, RankClock clock)
    : clock_(std::move(clock)), messages_(names_, clock_) {
  auto wire = make_wire(
      {.message = [this](const Frame& frame, HostBytes bytes) { take_in(frame, std::move(bytes)); },
       .notice = [this](const Notice& notice) { take_in(notice); },
       .turn = [this] { take_turn(); },
       .lost = [this](int rank) { note_peer_loss(rank); },
       .fault = [this](std::exception_ptr fault) { take_in_fault(std::move(fault)); }});
  const std::lock_guard lock(mutex_);
  wire_ = std::move(wire);
  // A fault detected before there was a wire by which to tell the others.
  if (fault_) note_failure();
  // Notices that arrived before this rank knew its own number.
  for (const auto& [kind, from] : std::exchange(early_notices_, {})) {
    if (may_send(kind, from, *wire_)) continue;
    report_violation(from, forbidden_notice(kind, wire_->rank()));
  }
}

void RankJob::State::join(const Topology& topology, const std::vector<DeviceIndex>& devices,
                          const RankTransportOptions& options) {
  check(devices.size() == static_cast<std::size_t>(wire_->size()), "not one device for each rank");
  std::vector<std::string> names;
  for (const DeviceIndex device : devices) {
    names.push_back(rank_name(static_cast<int>(names.size()), topology.device(device).name));
  }
  names_.set(std::move(names));
  if (options.crash_record) options.crash_record->set_name(names_.of(wire_->rank()));
  {
    const std::lock_guard lock(mutex_);
    timeout_ = options.timeout;
    crash_record_ = options.crash_record;
    if (wire_->size() > 1) {
      agreement_ = fingerprint(std::as_bytes(std::span(options.agreement)));
      heartbeat_.start(timeout_);
      wire_->send(next(), {.kind = NoticeKind::Join, .number = *agreement_});
      compare_agreement();
    }
  }
  messages_.join(*wire_, topology, devices, options);
}

void RankJob::State::compare_agreement() {
  if (!agreement_ || !previous_agreement_ || *agreement_ == *previous_agreement_) return;
  give_up(std::make_exception_ptr(
      Error(ErrorKind::Usage, names_.of(wire_->rank()),
            {{"", fmt::format("expected the plan and the options that {} was given, got others",
                              names_.of(previous()))}})));
}

void RankJob::State::throw_if_over() {
  const std::lock_guard lock(mutex_);
  if (fault_) std::rethrow_exception(fault_);
  if (is_over_) throw JobAborted("the job was aborted");
}

/// Calls what throws JobAborted once the job is over, and then throws the fault instead if it was
/// detected here.
template <class Call>
auto RankJob::State::call_or_throw_fault(Call call) {
  try {
    return call();
  } catch (const JobAborted&) {
    throw_if_over();
    throw;
  }
}

/// Waits until the condition holds. Returns false if it does not within the timeout. Throws once
/// the job is over.
template <class Condition>
bool RankJob::State::wait(Condition condition) {
  bool is_met = false;
  {
    std::unique_lock lock(mutex_);
    is_met = changed_.wait_for(lock, timeout_, [&] { return is_over_ || condition(); });
  }
  throw_if_over();
  return is_met;
}

void RankJob::State::barrier() {
  const int ranks = wire_->size();
  const bool is_root = wire_->rank() == 0;
  const std::uint64_t number = [&] {
    const std::lock_guard lock(mutex_);
    if (is_root) barrier_.note_arrival(0);
    return barrier_.arrive();
  }();
  const auto error = [&](const std::string& message) {
    return Error(ErrorKind::Environment, names_.of(wire_->rank()), {{"barrier", message}});
  };
  if (!is_root) {
    wire_->send(0, {.kind = NoticeKind::BarrierArrival, .number = number});
    if (wait([&] { return barrier_.is_released(number); })) return;
    throw error(
        fmt::format("expected all {} devices within {} s, but rank 0 did not release the barrier",
                    ranks, seconds_of(timeout_)));
  }
  const bool have_all_arrived = wait([&] { return barrier_.arrivals() == ranks; });
  const std::lock_guard lock(mutex_);
  if (!have_all_arrived) {
    throw error(fmt::format("expected all {} devices within {} s, got {}; {} is missing", ranks,
                            seconds_of(timeout_), barrier_.arrivals(),
                            names_.of(std::min(barrier_.missing(), ranks - 1))));
  }
  barrier_.complete();
  for (int rank = 1; rank < ranks; ++rank) {
    wire_->send(rank, {.kind = NoticeKind::BarrierRelease, .number = number});
  }
}

void RankJob::State::announce(const Action& action) noexcept {
  current_action_.set(action);
  if (crash_record_) crash_record_->set_action(action);
}

void RankJob::State::close() {
  is_over_ = true;
  messages_.close();
  changed_.notify_all();
}

/// Requires: the job is not over yet.
void RankJob::State::note_failure() {
  if (!wire_) return close();  // the wire is being made: the others are told once it is complete
  const RankFailure own{.moment = clock_.now() + wire_->clock_offset(), .rank = wire_->rank()};
  failures_.fail(own);
  for (int rank = 0; rank < wire_->size(); ++rank) {
    if (rank == own.rank) continue;
    wire_->send(rank, {.kind = NoticeKind::Failure, .moment = own.moment});
  }
  close();
}

void RankJob::State::note_failure_of(const RankFailure& other) {
  failures_.take_in(other);
  close();
}

void RankJob::State::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (!is_over_) note_failure();
}

void RankJob::State::give_up(std::exception_ptr fault) {
  if (is_over_) return;
  fault_ = std::move(fault);
  note_failure();
}

/// Reports a violation of the protocol as the fault of the rank that committed it.
void RankJob::State::report_violation(int rank, const std::string& message) {
  give_up(environment_error(names_.of(rank), "", message));
}

void RankJob::State::take_in_fault(std::exception_ptr fault) {
  const std::lock_guard lock(mutex_);
  give_up(std::move(fault));
}

void RankJob::State::take_in(const Frame& frame, HostBytes bytes) {
  if (messages_.take_in(frame, std::move(bytes))) return;
  const std::lock_guard lock(mutex_);
  report_violation(frame.from, fmt::format("expected it to send {} once, but it sent it twice",
                                           to_text(frame.key.action)));
}

void RankJob::State::take_in(const Notice& notice) {
  const std::lock_guard lock(mutex_);
  if (!wire_) {
    early_notices_.insert({notice.kind, notice.from});
  } else if (!may_send(notice.kind, notice.from, *wire_)) {
    return report_violation(notice.from, forbidden_notice(notice.kind, wire_->rank()));
  }
  switch (notice.kind) {
    case NoticeKind::ArrivalTime:
      if (messages_.take_in_arrival_time(notice)) return;
      return report_violation(notice.from,
                              "expected it to send each message once, but it sent one twice");
    case NoticeKind::Join:
      previous_agreement_ = notice.number;
      return compare_agreement();
    case NoticeKind::BarrierArrival:
      barrier_.note_arrival(notice.from);
      break;
    case NoticeKind::BarrierRelease:
      barrier_.release(notice.number);
      break;
    case NoticeKind::Heartbeat:
      return heartbeat_.take_in(clock_.now(), notice.action);
    case NoticeKind::Failure:
      return note_failure_of({.moment = notice.moment, .rank = notice.from});
  }
  changed_.notify_all();
}

/// Sends a heartbeat if one is due, checks those of the previous rank, and reports a peer loss.
void RankJob::State::take_turn() {
  const std::int64_t now = clock_.now();
  const std::optional<Action> at = current_action_.get();
  const std::lock_guard lock(mutex_);
  if (!wire_ || is_over_) return;
  if (const auto heartbeat = heartbeat_.due(now, at ? AnnouncedAction::packed(*at) : 0)) {
    wire_->send(next(), *heartbeat);
  }
  if (heartbeat_.is_previous_missing(now)) {
    const std::optional<Action>& action = heartbeat_.previous_action();
    give_up(environment_error(
        names_.of(previous()), action ? to_text(*action) : "start",
        fmt::format("no heartbeat for {} s", seconds_of(heartbeat_.loss_timeout()))));
  }
  report_peer_loss(now);
}

void RankJob::State::note_peer_loss(int rank) {
  const std::lock_guard lock(mutex_);
  failures_.note_peer_loss({.rank = rank, .moment = clock_.now()});
}

void RankJob::State::report_peer_loss(std::int64_t now) {
  const LossResponse response = failures_.response(now, previous(), heartbeat_);
  if (response == LossResponse::Wait) return;
  const PeerLoss& loss = *failures_.loss();
  if (response == LossResponse::Concede) {
    return note_failure_of({.moment = loss.moment + wire_->clock_offset(), .rank = loss.rank});
  }
  // Only the next rank in the ring knows the lost rank's last action.
  const bool is_next = loss.rank == previous();
  const std::optional<Action> action = is_next ? heartbeat_.previous_action() : std::nullopt;
  give_up(environment_error(names_.of(loss.rank), action ? to_text(*action) : "",
                            "terminated or became unreachable"));
}

void RankJob::State::finish() {
  constexpr std::chrono::milliseconds kPollInterval(2);
  const std::int64_t end = clock_.now() + timeout_.count();
  const std::future<void> left = wire_->leave();
  while (left.wait_for(kPollInterval) != std::future_status::ready) {
    throw_if_over();
    if (clock_.now() < end) continue;
    throw Error(
        ErrorKind::Environment, fmt::format("rank {}", wire_->rank()),
        {{"end", fmt::format("expected all {} ranks to finish within {} s, but some did not",
                             wire_->size(), seconds_of(timeout_))}});
  }
}

bool RankJob::State::is_first_to_fail() noexcept {
  const auto sleep = [this](nanoseconds time) { clock_.sleep_until(clock_.now() + time.count()); };
  abort();
  sleep(kGracePeriod);
  const bool is_first = [&] {
    const std::lock_guard lock(mutex_);
    return failures_.is_first();
  }();
  if (!is_first) sleep(wire_->launcher_grace_period());
  return is_first;
}

class RankJob::Endpoint : public Transport {
 public:
  Endpoint(State& state, DeviceIndex device) : state_(state), device_(device) {}
  std::int64_t send(const MessageKey& key, Payload payload) override {
    check(key.from == device_, "a device sends in another one's name");
    return state_.call_or_throw_fault(
        [&] { return state_.messages().send(key, std::move(payload)); });
  }
  Payload receive(const MessageKey& key, const ExpectedMessage& expected) override {
    check(key.to == device_, "a device takes in what is for another one");
    return state_.call_or_throw_fault([&] { return state_.messages().receive(key, expected); });
  }
  void barrier() override { state_.barrier(); }
  void announce(const Action& action) noexcept override { state_.announce(action); }
  Bytes sent() const override { return state_.messages().sent(); }
  std::int64_t clock_offset() const override { return state_.wire().clock_offset(); }
  void abort() noexcept override { state_.abort(); }

 private:
  State& state_;
  const DeviceIndex device_;
};

RankJob::RankJob(const MakeWire& make_wire, RankClock clock)
    : state_(std::make_unique<State>(make_wire, std::move(clock))) {}

RankJob::~RankJob() = default;

int RankJob::rank() const {
  return state_->wire().rank();
}

int RankJob::size() const {
  return state_->wire().size();
}

bool RankJob::is_on_one_host() const {
  return state_->wire().is_on_one_host();
}

std::unique_ptr<Transport> RankJob::join(const Topology& topology,
                                         const std::vector<DeviceIndex>& devices,
                                         const RankTransportOptions& options) {
  state_->join(topology, devices, options);
  return std::make_unique<Endpoint>(*state_, devices[static_cast<std::size_t>(rank())]);
}

void RankJob::finish() {
  state_->finish();
}

bool RankJob::is_first_to_fail() noexcept {
  return state_->is_first_to_fail();
}

}  // namespace dapple::exec
