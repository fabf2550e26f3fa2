#include "dapple/exec/ranks/rank_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/exec/message/fingerprint.h"
#include "exec/message/announced.h"
#include "exec/message/clock.h"
#include "exec/message/mailbox.h"
#include "exec/message/waiting.h"
#include "exec/ranks/rank_wire.h"

namespace dapple::exec {
namespace {

using std::chrono::nanoseconds;

/// The grace period in which a failing rank waits for notices of earlier failures.
constexpr std::chrono::milliseconds kGracePeriod(300);
/// The delay after which a change of the current action is reported.
constexpr nanoseconds kNews = std::chrono::milliseconds(50);
/// The delay before other ranks report a peer loss, in which the next rank in the ring does so
/// first.
constexpr std::chrono::milliseconds kPeerLossDelay(500);
/// The time in which a rank that was stopped and has resumed notices which peers are gone.
constexpr std::chrono::seconds kReturn(1);

/// The time and the rank of a failure; they determine who was first.
using Failure = std::pair<std::int64_t, int>;

/// A message whose bytes are being sent.
struct PendingSend {
  Payload payload;
  bool has_left = false;
};

/// A message on a paced link that has not been delivered yet, or the notice of its arrival time if
/// that has come first.
struct Held {
  std::optional<std::pair<MessageKey, Mail>> mail;
  std::optional<std::int64_t> arrival;
};

/// A lost rank, and when the loss was detected.
struct Loss {
  int rank = 0;
  std::int64_t moment = 0;
};

/// The state of the previous rank in the ring, as its heartbeats report it.
struct Neighbour {
  // The time of the last heartbeat; 0 if there was none yet.
  std::int64_t heard = 0;
  std::optional<Action> action;
  // The fingerprint of its agreement.
  std::optional<std::uint64_t> agreement;
};

constexpr const char* kSaysWhatOthersSay =
    "expected what a rank says, but it said what another one does";

}  // namespace

std::string rank_name(int rank, const std::string& device) {
  return fmt::format("rank {} ({})", rank, device);
}

class RankJob::State {
 public:
  explicit State(const MakeWire& make_wire);

  RankWire& wire() { return *wire_; }
  void join(const Topology& topology, const std::vector<DeviceIndex>& devices,
            const RankTransportOptions& options);
  std::int64_t send(const MessageKey& key, Payload payload);
  Payload receive(const MessageKey& key, const ExpectedMessage& expected);
  void barrier();
  void announce(const Action& action) noexcept;
  void abort() noexcept;
  void finish();
  bool is_first_to_fail() noexcept;
  DeviceIndex device() const { return devices_[static_cast<std::size_t>(wire_->rank())]; }
  Bytes sent() const { return {sent_.load()}; }

 private:
  void take_in(const Frame& frame, HostBytes bytes);
  void take_in(const Notice& notice);
  bool may_say(NoticeKind kind, int from) const;
  void check_early_notices();
  void blame(int rank, const std::string& message);
  void compare_agreement();
  void take_turn();
  void send_heartbeat(std::int64_t now, nanoseconds interval);
  void lose(int rank);
  void report_peer_loss(std::int64_t now);
  void watch(std::int64_t now, nanoseconds interval);
  void give_up(std::exception_ptr fault);
  bool deliver(std::map<std::pair<int, std::uint64_t>, Held>::iterator held);
  void throw_if_over();
  void close();
  void note_failure();
  void note_failure_of(const Failure& others);
  nanoseconds loss_timeout() const { return options_.timeout / 10 * 9; }
  std::uint64_t agreement() const {
    return fingerprint(std::as_bytes(std::span(options_.agreement)));
  }
  int previous() const { return (wire_->rank() + wire_->size() - 1) % wire_->size(); }
  int rank_of(DeviceIndex device) const;
  std::string name_of(int rank) const;
  Error error(const std::string& place, const std::string& message) const;
  template <class Condition>
  bool wait(Condition condition);

  mutable std::mutex names_mutex_;
  // The names of all ranks with their devices; empty before join().
  std::vector<std::string> names_;
  std::vector<DeviceIndex> devices_;
  RankTransportOptions options_;
  std::optional<LinkPacer> pacer_;
  Mailbox mailbox_;
  AnnouncedAction at_;
  std::atomic<std::int64_t> sent_ = 0;
  std::atomic<std::uint64_t> messages_ = 0;

  // Guards all members below.
  std::mutex mutex_;
  std::condition_variable changed_;
  // Indexed by rank and message number.
  std::map<std::pair<int, std::uint64_t>, Held> held_;
  // The ranks at the barrier; used by rank 0 only.
  std::set<int> at_barrier_;
  // The number of barriers that this rank has reached.
  std::uint64_t barriers_ = 0;
  // The number of barriers that are over.
  std::uint64_t let_go_ = 0;
  Neighbour neighbour_;
  // The kinds and senders of notices that arrived before the wire was complete.
  std::set<std::pair<NoticeKind, int>> said_early_;
  // The first loss.
  std::optional<Loss> loss_;
  bool has_joined_ = false;
  std::int64_t last_turn_ = 0;
  // The time at which this rank resumed after it had been stopped for longer than a missing
  // heartbeat is tolerated.
  std::int64_t came_back_ = 0;
  // The time of the last heartbeat sent.
  std::int64_t last_heartbeat_ = 0;
  // The action in that heartbeat, packed.
  std::uint64_t last_told_ = 0;
  bool is_over_ = false;
  // A fault detected here outside the functions of the transport.
  std::exception_ptr fault_;
  std::optional<Failure> own_failure_;
  // The earliest failure of another rank.
  std::optional<Failure> others_failure_;
  // Declared last, because its callbacks use all other members.
  std::unique_ptr<RankWire> wire_;
};

RankJob::State::State(const MakeWire& make_wire) {
  auto wire = make_wire(
      {.message = [this](const Frame& frame, HostBytes bytes) { take_in(frame, std::move(bytes)); },
       .notice = [this](const Notice& notice) { take_in(notice); },
       .turn = [this] { take_turn(); },
       .lost = [this](int rank) { lose(rank); },
       .fault = [this](std::exception_ptr fault) { give_up(std::move(fault)); }});
  {
    const std::lock_guard lock(mutex_);
    wire_ = std::move(wire);
    // A fault detected before there was a wire by which to tell the others.
    if (fault_) note_failure();
  }
  check_early_notices();
}

void RankJob::State::join(const Topology& topology, const std::vector<DeviceIndex>& devices,
                          const RankTransportOptions& options) {
  check(devices.size() == static_cast<std::size_t>(wire_->size()), "not one device for each rank");
  {
    const std::lock_guard lock(names_mutex_);
    for (const DeviceIndex device : devices) {
      names_.push_back(rank_name(static_cast<int>(names_.size()), topology.device(device).name));
    }
  }
  {
    const std::lock_guard lock(mutex_);
    devices_ = devices;
    options_ = options;
    has_joined_ = true;
  }
  if (options_.crash_record) options_.crash_record->set_name(name_of(wire_->rank()));
  if (wire_->size() > 1) {
    wire_->send((wire_->rank() + 1) % wire_->size(),
                {.kind = NoticeKind::Joined, .number = agreement()});
    compare_agreement();
  }
  if (options_.pacing) {
    if (!wire_->is_on_one_host()) {
      throw Error(ErrorKind::Usage, "",
                  {{"",
                    "expected unpaced links, or all ranks on one host: hosts cannot share the "
                    "links of a topology"}});
    }
    pacer_.emplace(topology, *options_.pacing, wire_->shared_words(LinkPacer::words(topology)));
  }
}

void RankJob::State::compare_agreement() {
  {
    const std::lock_guard lock(mutex_);
    if (!has_joined_ || !neighbour_.agreement) return;
    if (*neighbour_.agreement == agreement()) return;
  }
  give_up(std::make_exception_ptr(
      Error(ErrorKind::Usage, name_of(wire_->rank()),
            {{"", fmt::format("expected the plan and the options that {} was given, got others",
                              name_of(previous()))}})));
}

int RankJob::State::rank_of(DeviceIndex device) const {
  const auto found = std::find(devices_.begin(), devices_.end(), device);
  check(found != devices_.end(), "a message for a device without a rank");
  return static_cast<int>(found - devices_.begin());
}

std::string RankJob::State::name_of(int rank) const {
  const std::lock_guard lock(names_mutex_);
  return names_.empty() ? fmt::format("rank {}", rank) : names_[static_cast<std::size_t>(rank)];
}

Error RankJob::State::error(const std::string& place, const std::string& message) const {
  return {ErrorKind::Environment, name_of(wire_->rank()), {{place, message}}};
}

void RankJob::State::throw_if_over() {
  const std::lock_guard lock(mutex_);
  if (fault_) std::rethrow_exception(fault_);
  if (is_over_) throw JobAborted("the job was aborted");
}

/// Waits until the condition holds. Returns false if it does not within the timeout. Throws once
/// the job is over.
template <class Condition>
bool RankJob::State::wait(Condition condition) {
  bool came = false;
  {
    std::unique_lock lock(mutex_);
    came = changed_.wait_for(lock, options_.timeout, [&] { return is_over_ || condition(); });
  }
  throw_if_over();
  return came;
}

std::int64_t RankJob::State::send(const MessageKey& key, Payload payload) {
  throw_if_over();
  payload.bring_to_host();
  const auto pending = std::make_shared<PendingSend>(PendingSend{.payload = std::move(payload)});
  const Bytes size{static_cast<std::int64_t>(pending->payload.size())};
  const int to = rank_of(key.to);
  const bool is_paced = pacer_ && key.from != key.to && size.count > 0;
  const Frame frame{.key = key,
                    .size = pending->payload.size(),
                    .fingerprint = fingerprint(pending->payload.host()),
                    .number = ++messages_,
                    .waits_for_word = is_paced};
  // The bytes are transferred while the emulated link is busy.
  wire_->send(to, frame, pending->payload.host(), [this, pending] {
    const std::lock_guard lock(mutex_);
    pending->has_left = true;
    changed_.notify_all();
  });
  std::optional<std::int64_t> arrival;
  if (is_paced) {
    arrival = pacer_->pass(key, size, [this] { throw_if_over(); });
    wire_->send(to, {.kind = NoticeKind::Arrived, .moment = *arrival, .number = frame.number});
  }
  if (!wait([&] { return pending->has_left; })) {
    throw error(to_text(key.action),
                fmt::format("expected {} to take in a message of {} bytes within {} s, but it did "
                            "not",
                            name_of(to), size.count, seconds_of(options_.timeout)));
  }
  sent_ += size.count;
  return arrival.value_or(monotonic_now());
}

Payload RankJob::State::receive(const MessageKey& key, const ExpectedMessage& expected) {
  std::optional<Mail> mail;
  try {
    mail = mailbox_.take(key, options_.timeout);
  } catch (const JobAborted&) {
    throw_if_over();
    throw;
  }
  const std::string from = name_of(rank_of(key.from));
  if (!mail) {
    throw missing_message({.here = name_of(wire_->rank()), .peer = from, .peer_at = {}}, key,
                          options_.timeout);
  }
  if (options_.on_arrival) options_.on_arrival(key, mail->payload.host());
  if (mail->sender != rank_of(key.from)) {
    throw error(to_text(key.action), fmt::format("expected a message of {}, got one in its name "
                                                 "of {}",
                                                 from, name_of(mail->sender)));
  }
  if (fingerprint(mail->payload.host()) != mail->fingerprint) {
    throw error(to_text(key.action),
                fmt::format("expected the message of {} as it was sent, got other bytes", from));
  }
  const auto size = static_cast<std::int64_t>(mail->payload.size());
  if (size != expected.size.value_or(Bytes{size}).count) {
    throw error(to_text(key.action),
                fmt::format("expected {} bytes from {}, got {}", expected.size->count, from, size));
  }
  sleep_until(mail->arrival);
  return std::move(mail->payload);
}

void RankJob::State::barrier() {
  const std::uint64_t number = [&] {
    const std::lock_guard lock(mutex_);
    return ++barriers_;
  }();
  const auto ranks = static_cast<std::size_t>(wire_->size());
  if (wire_->rank() != 0) {
    wire_->send(0, {.kind = NoticeKind::AtBarrier, .number = number});
    if (wait([&] { return let_go_ >= number; })) return;
    throw error("barrier", fmt::format("expected word of all {} devices within {} s, got none",
                                       ranks, seconds_of(options_.timeout)));
  }
  {
    const std::lock_guard lock(mutex_);
    at_barrier_.insert(0);
  }
  if (wait([&] { return at_barrier_.size() == ranks; })) {
    const std::lock_guard lock(mutex_);
    at_barrier_.clear();
    for (int rank = 1; rank < wire_->size(); ++rank) {
      wire_->send(rank, {.kind = NoticeKind::LetGo, .number = number});
    }
    return;
  }
  const std::lock_guard lock(mutex_);
  int missing = 0;
  while (at_barrier_.count(missing) > 0) ++missing;
  throw error("barrier", fmt::format("expected all {} devices within {} s, got {}, without {}",
                                     ranks, seconds_of(options_.timeout), at_barrier_.size(),
                                     name_of(std::min(missing, wire_->size() - 1))));
}

void RankJob::State::announce(const Action& action) noexcept {
  at_.set(action);
  if (options_.crash_record) options_.crash_record->set_action(action);
}

void RankJob::State::close() {
  is_over_ = true;
  mailbox_.close();
  changed_.notify_all();
}

/// Requires: the mutex is held, and the job is not over yet.
void RankJob::State::note_failure() {
  if (!wire_) return close();  // the wire is being made: the others are told once it is complete
  own_failure_ = Failure{monotonic_now() + wire_->clock_offset(), wire_->rank()};
  for (int rank = 0; rank < wire_->size(); ++rank) {
    if (rank == wire_->rank()) continue;
    wire_->send(rank, {.kind = NoticeKind::Failed, .moment = own_failure_->first});
  }
  close();
}

/// Requires: the mutex is held.
void RankJob::State::note_failure_of(const Failure& others) {
  others_failure_ = std::min(others_failure_.value_or(others), others);
  close();
}

void RankJob::State::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (!is_over_) note_failure();
}

void RankJob::State::give_up(std::exception_ptr fault) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  fault_ = std::move(fault);
  note_failure();
}

/// Reports a violation of the protocol as the fault of the rank that committed it.
void RankJob::State::blame(int rank, const std::string& message) {
  give_up(std::make_exception_ptr(Error(ErrorKind::Environment, name_of(rank), {{"", message}})));
}

void RankJob::State::take_in(const Frame& frame, HostBytes bytes) {
  Mail mail{.payload = std::move(bytes),
            .arrival = 0,
            .fingerprint = frame.fingerprint,
            .sender = frame.from};
  bool is_new = true;
  if (frame.waits_for_word) {
    const std::lock_guard lock(mutex_);
    const auto held = held_.try_emplace({frame.from, frame.number}).first;
    is_new = !held->second.mail.has_value();
    if (is_new) {
      held->second.mail.emplace(frame.key, std::move(mail));
      is_new = deliver(held);
    }
  } else {
    is_new = mailbox_.put(frame.key, std::move(mail));
  }
  if (is_new) return;
  blame(frame.from,
        fmt::format("expected it to send {} once, but it did so twice", to_text(frame.key.action)));
}

/// Whether rank `from` may send a notice of this kind to this rank. Requires: the wire is complete.
bool RankJob::State::may_say(NoticeKind kind, int from) const {
  switch (kind) {
    case NoticeKind::AtBarrier:
      return wire_->rank() == 0 && from != 0;
    case NoticeKind::LetGo:
      return from == 0;
    case NoticeKind::Joined:
    case NoticeKind::Alive:
      return from == previous();
    case NoticeKind::Arrived:
    case NoticeKind::Failed:
      return true;
  }
  return false;
}

/// Checks the notices that arrived before this rank knew its own number.
void RankJob::State::check_early_notices() {
  std::set<std::pair<NoticeKind, int>> said;
  {
    const std::lock_guard lock(mutex_);
    said.swap(said_early_);
  }
  for (const auto& [kind, from] : said) {
    if (!may_say(kind, from)) return blame(from, kSaysWhatOthersSay);
  }
}

void RankJob::State::take_in(const Notice& notice) {
  std::unique_lock lock(mutex_);
  if (!wire_) {
    said_early_.insert({notice.kind, notice.from});
  } else if (!may_say(notice.kind, notice.from)) {
    lock.unlock();
    return blame(notice.from, kSaysWhatOthersSay);
  }
  switch (notice.kind) {
    case NoticeKind::Arrived: {
      const auto held = held_.try_emplace({notice.from, notice.number}).first;
      held->second.arrival = notice.moment;
      if (deliver(held)) return;
      lock.unlock();
      return blame(notice.from, "expected it to send each message once, but it sent one twice");
    }
    case NoticeKind::Joined:
      neighbour_.agreement = notice.number;
      lock.unlock();
      return compare_agreement();
    case NoticeKind::AtBarrier:
      at_barrier_.insert(notice.from);
      break;
    case NoticeKind::LetGo:
      let_go_ = notice.number;
      break;
    case NoticeKind::Alive:
      neighbour_.heard = monotonic_now();
      neighbour_.action = AnnouncedAction::unpacked(notice.action);
      return;
    case NoticeKind::Failed: {
      note_failure_of({notice.moment, notice.from});
      break;
    }
  }
  changed_.notify_all();
}

/// Delivers a message once both the message and its arrival notice are here. Returns false if there
/// already is a message with its key.
bool RankJob::State::deliver(std::map<std::pair<int, std::uint64_t>, Held>::iterator held) {
  if (!held->second.mail || !held->second.arrival) return true;
  auto& [key, mail] = *held->second.mail;
  mail.arrival = *held->second.arrival;
  const bool is_new = mailbox_.put(key, std::move(mail));
  held_.erase(held);
  return is_new;
}

/// Sends a heartbeat if one is due, and checks the heartbeats of the neighbour.
void RankJob::State::take_turn() {
  const std::int64_t now = monotonic_now();
  nanoseconds interval{0};
  {
    const std::lock_guard lock(mutex_);
    if (!wire_ || is_over_) return;
    if (has_joined_ && wire_->size() > 1) {
      interval = std::clamp<nanoseconds>(options_.timeout / 20, std::chrono::milliseconds(1),
                                         std::chrono::seconds(1));
      send_heartbeat(now, interval);
    }
  }
  if (interval.count() > 0) watch(now, interval);
  report_peer_loss(now);
}

/// A heartbeat is due earlier if the current action has changed. Requires: the mutex is held.
void RankJob::State::send_heartbeat(std::int64_t now, nanoseconds interval) {
  const std::optional<Action> action = at_.get();
  const std::uint64_t packed = action ? AnnouncedAction::packed(*action) : 0;
  const nanoseconds due = packed == last_told_ ? interval : std::min(interval, kNews);
  if (now - last_heartbeat_ < due.count()) return;
  last_heartbeat_ = now;
  last_told_ = packed;
  wire_->send((wire_->rank() + 1) % wire_->size(), {.kind = NoticeKind::Alive, .action = packed});
}

void RankJob::State::lose(int rank) {
  const std::lock_guard lock(mutex_);
  if (!loss_) loss_ = Loss{.rank = rank, .moment = monotonic_now()};
}

/// The next rank in the ring reports the loss first, because it knows the lost rank's last action.
void RankJob::State::report_peer_loss(std::int64_t now) {
  Loss loss;
  std::string name;
  std::optional<Action> action;
  {
    const std::lock_guard lock(mutex_);
    if (!loss_) return;
    loss = *loss_;
    // Ranks that ended while this one was stopped have reported the cause: this rank's silence.
    if (came_back_ > 0 && loss.moment < came_back_ + nanoseconds(kReturn).count()) {
      return note_failure_of({loss.moment + wire_->clock_offset(), loss.rank});
    }
    const bool is_next = loss.rank == previous();
    if (!is_next && now - loss.moment < nanoseconds(kPeerLossDelay).count()) return;
    if (is_next) action = neighbour_.action;
    name = name_of(loss.rank);
  }
  give_up(std::make_exception_ptr(
      Error(ErrorKind::Environment, name,
            {{action ? to_text(*action) : "", "terminated or became unreachable"}})));
}

void RankJob::State::watch(std::int64_t now, nanoseconds interval) {
  std::optional<Action> action;
  {
    const std::lock_guard lock(mutex_);
    // A process that was stopped itself, for example with all others by the launcher, has received
    // no heartbeats.
    const std::int64_t before = std::exchange(last_turn_, now);
    const std::int64_t away = before == 0 ? 0 : now - before;
    if (neighbour_.heard == 0) return;
    if (away > loss_timeout().count()) came_back_ = now;
    if (away > 3 * interval.count()) neighbour_.heard = now;
    if (now - neighbour_.heard < loss_timeout().count()) return;
    action = neighbour_.action;
  }
  const std::string place = action ? to_text(*action) : "start";
  give_up(std::make_exception_ptr(
      Error(ErrorKind::Environment, name_of(previous()),
            {{place, fmt::format("no heartbeat within {} s", seconds_of(options_.timeout))}})));
}

void RankJob::State::finish() {
  constexpr std::chrono::milliseconds kLook(2);
  const std::int64_t end = monotonic_now() + options_.timeout.count();
  const std::future<void> left = wire_->leave();
  while (left.wait_for(kLook) != std::future_status::ready) {
    throw_if_over();
    if (monotonic_now() < end) continue;
    throw Error(ErrorKind::Environment, fmt::format("rank {}", wire_->rank()),
                {{"end", fmt::format("expected all {} ranks within {} s, but some did not come",
                                     wire_->size(), seconds_of(options_.timeout))}});
  }
}

bool RankJob::State::is_first_to_fail() noexcept {
  abort();
  std::this_thread::sleep_for(kGracePeriod);
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = own_failure_ && (!others_failure_ || *own_failure_ < *others_failure_);
  }
  if (!is_first) std::this_thread::sleep_for(wire_->launcher_grace_period());
  return is_first;
}

class RankJob::End : public Transport {
 public:
  explicit End(State& state) : state_(state) {}
  std::int64_t send(const MessageKey& key, Payload payload) override {
    check(key.from == state_.device(), "a device sends in another one's name");
    return state_.send(key, std::move(payload));
  }
  Payload receive(const MessageKey& key, const ExpectedMessage& expected) override {
    check(key.to == state_.device(), "a device takes in what is for another one");
    return state_.receive(key, expected);
  }
  void barrier() override { state_.barrier(); }
  void announce(const Action& action) noexcept override { state_.announce(action); }
  Bytes sent() const override { return state_.sent(); }
  std::int64_t clock_offset() const override { return state_.wire().clock_offset(); }
  void abort() noexcept override { state_.abort(); }

 private:
  State& state_;
};

RankJob::RankJob(const MakeWire& make_wire) : state_(std::make_unique<State>(make_wire)) {}

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
  return std::make_unique<End>(*state_);
}

void RankJob::finish() {
  state_->finish();
}

bool RankJob::is_first_to_fail() noexcept {
  return state_->is_first_to_fail();
}

}  // namespace dapple::exec
