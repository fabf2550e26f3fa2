#include "dapple/exec/mpi_transport.h"

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

#include "announced.h"
#include "clock.h"
#include "dapple/core/error.h"
#include "fingerprint.h"
#include "mailbox.h"
#include "mpi_loop.h"
#include "waiting.h"

namespace dapple {
namespace {

using std::chrono::nanoseconds;

/// In which a failing rank hears of others that have failed before it.
constexpr std::chrono::milliseconds kGrace(300);
/// In which whoever was not the first to fail is ended by the launcher.
constexpr std::chrono::seconds kPatience(5);

/// A failure's moment and rank: who was first.
using Failure = std::pair<std::int64_t, int>;

struct Parcel {
  Payload payload;
  bool has_left = false;
};

/// Mail that is here but not yet to be taken in, or word of its arrival that came before it.
struct Held {
  std::optional<std::pair<MessageKey, Mail>> mail;
  std::optional<std::int64_t> arrival;
};

/// What is heard of the rank before this one in the ring.
struct Neighbour {
  std::int64_t heard = 0;  // moment; 0: nothing yet
  std::optional<Action> action;
};

}  // namespace

std::string rank_name(int rank, const std::string& device) {
  return fmt::format("rank {} ({})", rank, device);
}

class MpiJob::State {
 public:
  explicit State(nanoseconds timeout)
      : loop_({.message = [this](const Frame& frame,
                                 Payload payload) { take_in(frame, std::move(payload)); },
               .notice = [this](const Notice& notice) { take_in(notice); },
               .turn = [this] { take_turn(); },
               .fault = [this](std::exception_ptr fault) { give_up(std::move(fault)); }},
              timeout) {}

  MpiLoop& loop() { return loop_; }
  void join(const Topology& topology, const std::vector<DeviceIndex>& devices,
            const MpiTransportOptions& options);
  std::int64_t send(const MessageKey& key, Payload payload);
  Payload receive(const MessageKey& key);
  void barrier();
  void announce(const Action& action) noexcept;
  void abort() noexcept;
  void finish();
  bool is_first_to_fail() noexcept;
  DeviceIndex device() const { return devices_[static_cast<std::size_t>(loop_.rank())]; }
  Bytes sent() const { return {sent_.load()}; }

 private:
  void take_in(const Frame& frame, Payload payload);
  void take_in(const Notice& notice);
  void take_turn();
  void watch(std::int64_t now, nanoseconds interval);
  void give_up(std::exception_ptr fault);
  void deliver(std::map<std::pair<int, std::uint64_t>, Held>::iterator held);
  void throw_if_over();
  void close();
  void note_failure();
  int rank_of(DeviceIndex device) const;
  std::string name_of(int rank) const;
  Error error(const std::string& place, const std::string& message) const;
  template <class Condition>
  bool wait(Condition condition);

  const Topology* topology_ = nullptr;
  std::vector<DeviceIndex> devices_;
  MpiTransportOptions options_;
  std::optional<LinkPacer> pacer_;
  Mailbox mailbox_;
  AnnouncedAction at_;
  std::atomic<std::int64_t> sent_ = 0;
  std::atomic<std::uint64_t> messages_ = 0;

  std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  std::map<std::pair<int, std::uint64_t>, Held> held_;  // by rank and number
  std::set<int> at_barrier_;                            // of rank 0
  std::uint64_t barriers_ = 0;                          // that this rank has come to
  std::uint64_t let_go_ = 0;                            // that are over
  bool watches_ = false;
  Neighbour neighbour_;
  std::int64_t last_turn_ = 0;
  std::int64_t last_sign_ = 0;
  bool is_over_ = false;
  std::exception_ptr fault_;  // found here beside what the transport was asked for
  std::optional<Failure> own_failure_;
  std::optional<Failure> others_failure_;  // the first
  MpiLoop loop_;                           // last: it uses all the others
};

void MpiJob::State::join(const Topology& topology, const std::vector<DeviceIndex>& devices,
                         const MpiTransportOptions& options) {
  check(devices.size() == static_cast<std::size_t>(loop_.size()), "not one device for each rank");
  topology_ = &topology;
  devices_ = devices;
  options_ = options;
  if (options_.last_words) options_.last_words->set_name(name_of(loop_.rank()));
  if (options_.pacing) {
    if (!loop_.is_on_one_host()) {
      throw Error(ErrorKind::Usage, "",
                  {{"",
                    "expected unpaced links, or all ranks on one host: hosts cannot share the "
                    "links of a topology"}});
    }
    pacer_.emplace(topology, *options_.pacing, loop_.shared_words(LinkPacer::words(topology)));
  }
  const std::lock_guard lock(mutex_);
  watches_ = loop_.size() > 1;
}

int MpiJob::State::rank_of(DeviceIndex device) const {
  const auto found = std::find(devices_.begin(), devices_.end(), device);
  check(found != devices_.end(), "a message for a device without a rank");
  return static_cast<int>(found - devices_.begin());
}

std::string MpiJob::State::name_of(int rank) const {
  return rank_name(rank, topology_->device(devices_[static_cast<std::size_t>(rank)]).name);
}

Error MpiJob::State::error(const std::string& place, const std::string& message) const {
  return {ErrorKind::Environment, name_of(loop_.rank()), {{place, message}}};
}

void MpiJob::State::throw_if_over() {
  const std::lock_guard lock(mutex_);
  if (fault_) std::rethrow_exception(fault_);
  if (is_over_) throw JobAborted("the job was aborted");
}

/// As long as one may. False if the condition does not come true.
template <class Condition>
bool MpiJob::State::wait(Condition condition) {
  bool came = false;
  {
    std::unique_lock lock(mutex_);
    came = changed_.wait_for(lock, options_.timeout, [&] { return is_over_ || condition(); });
  }
  throw_if_over();
  return came;
}

std::int64_t MpiJob::State::send(const MessageKey& key, Payload payload) {
  throw_if_over();
  const auto parcel = std::make_shared<Parcel>(Parcel{.payload = std::move(payload)});
  const Bytes size{static_cast<std::int64_t>(parcel->payload.size())};
  const int to = rank_of(key.to);
  const bool is_paced = pacer_ && key.from != key.to && size.count > 0;
  const Frame frame{.key = key,
                    .size = parcel->payload.size(),
                    .fingerprint = fingerprint(parcel->payload),
                    .number = ++messages_,
                    .waits_for_word = is_paced};
  // The bytes pass while their time on the link does.
  loop_.send(to, frame, parcel->payload, [this, parcel] {
    const std::lock_guard lock(mutex_);
    parcel->has_left = true;
    changed_.notify_all();
  });
  std::optional<std::int64_t> arrival;
  if (is_paced) {
    arrival = pacer_->pass(key, size, [this] { throw_if_over(); });
    loop_.send(to, {.kind = NoticeKind::Arrived, .moment = *arrival, .number = frame.number});
  }
  if (!wait([&] { return parcel->has_left; })) {
    throw error(to_text(key.action),
                fmt::format("expected {} to take in a message of {} bytes within {} s, but it did "
                            "not",
                            name_of(to), size.count, seconds_of(options_.timeout)));
  }
  sent_ += size.count;
  return arrival.value_or(monotonic_now());
}

Payload MpiJob::State::receive(const MessageKey& key) {
  std::optional<Mail> mail;
  try {
    mail = mailbox_.take(key, options_.timeout);
  } catch (const JobAborted&) {
    throw_if_over();
    throw;
  }
  const std::string from = name_of(rank_of(key.from));
  if (!mail) {
    throw missing_message({.here = name_of(loop_.rank()), .peer = from, .peer_at = {}}, key,
                          options_.timeout);
  }
  if (options_.on_arrival) options_.on_arrival(key, mail->payload);
  if (fingerprint(mail->payload) != mail->fingerprint) {
    throw error(to_text(key.action),
                fmt::format("expected the message of {} as it was sent, got other bytes", from));
  }
  sleep_until(mail->arrival);
  return std::move(mail->payload);
}

void MpiJob::State::barrier() {
  const std::uint64_t number = ++barriers_;
  const auto ranks = static_cast<std::size_t>(loop_.size());
  if (loop_.rank() != 0) {
    loop_.send(0, {.kind = NoticeKind::AtBarrier, .number = number});
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
    for (int rank = 1; rank < loop_.size(); ++rank) {
      loop_.send(rank, {.kind = NoticeKind::LetGo, .number = number});
    }
    return;
  }
  const std::lock_guard lock(mutex_);
  int missing = 0;
  while (at_barrier_.count(missing) > 0) ++missing;
  throw error("barrier", fmt::format("expected all {} devices within {} s, got {}, without {}",
                                     ranks, seconds_of(options_.timeout), at_barrier_.size(),
                                     name_of(std::min(missing, loop_.size() - 1))));
}

void MpiJob::State::announce(const Action& action) noexcept {
  at_.set(action);
  if (options_.last_words) options_.last_words->set_action(action);
}

void MpiJob::State::close() {
  is_over_ = true;
  mailbox_.close();
  changed_.notify_all();
}

/// Requires: the mutex is held, and nothing is over yet.
void MpiJob::State::note_failure() {
  own_failure_ = Failure{monotonic_now() + loop_.clock_offset(), loop_.rank()};
  for (int rank = 0; rank < loop_.size(); ++rank) {
    if (rank == loop_.rank()) continue;
    loop_.send(rank, {.kind = NoticeKind::Failed, .moment = own_failure_->first});
  }
  close();
}

void MpiJob::State::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (!is_over_) note_failure();
}

void MpiJob::State::give_up(std::exception_ptr fault) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  fault_ = std::move(fault);
  note_failure();
}

void MpiJob::State::take_in(const Frame& frame, Payload payload) {
  Mail mail{.payload = std::move(payload), .arrival = 0, .fingerprint = frame.fingerprint};
  if (!frame.waits_for_word) return mailbox_.put(frame.key, std::move(mail));
  const std::lock_guard lock(mutex_);
  const auto held = held_.try_emplace({frame.from, frame.number}).first;
  held->second.mail.emplace(frame.key, std::move(mail));
  deliver(held);
}

void MpiJob::State::take_in(const Notice& notice) {
  const std::lock_guard lock(mutex_);
  switch (notice.kind) {
    case NoticeKind::Arrived: {
      const auto held = held_.try_emplace({notice.from, notice.number}).first;
      held->second.arrival = notice.moment;
      return deliver(held);
    }
    case NoticeKind::AtBarrier:
      at_barrier_.insert(notice.from);
      break;
    case NoticeKind::LetGo:
      let_go_ = notice.number;
      break;
    case NoticeKind::Alive:
      neighbour_ = {.heard = monotonic_now(), .action = AnnouncedAction::unpacked(notice.action)};
      return;
    case NoticeKind::Failed: {
      const Failure failure{notice.moment, notice.from};
      others_failure_ = std::min(others_failure_.value_or(failure), failure);
      close();
      break;
    }
  }
  changed_.notify_all();
}

void MpiJob::State::deliver(std::map<std::pair<int, std::uint64_t>, Held>::iterator held) {
  if (!held->second.mail || !held->second.arrival) return;
  auto& [key, mail] = *held->second.mail;
  mail.arrival = *held->second.arrival;
  mailbox_.put(key, std::move(mail));
  held_.erase(held);
}

/// Gives a sign of life and looks for that of the neighbour.
void MpiJob::State::take_turn() {
  const std::int64_t now = monotonic_now();
  std::unique_lock lock(mutex_);
  if (!watches_ || is_over_) return;
  const nanoseconds interval = std::clamp<nanoseconds>(
      options_.timeout / 20, std::chrono::milliseconds(1), std::chrono::seconds(1));
  if (now - last_sign_ >= interval.count()) {
    last_sign_ = now;
    const std::optional<Action> action = at_.get();
    loop_.send(
        (loop_.rank() + 1) % loop_.size(),
        {.kind = NoticeKind::Alive, .action = action ? AnnouncedAction::packed(*action) : 0});
  }
  lock.unlock();
  watch(now, interval);
}

void MpiJob::State::watch(std::int64_t now, nanoseconds interval) {
  const int before = (loop_.rank() + loop_.size() - 1) % loop_.size();
  std::optional<Action> action;
  {
    const std::lock_guard lock(mutex_);
    // A process that was stopped itself, as by the launcher with all others, has heard nothing.
    const bool was_away = now - last_turn_ > 3 * interval.count();
    last_turn_ = now;
    if (was_away && neighbour_.heard > 0) neighbour_.heard = now;
    if (neighbour_.heard == 0) return;
    if (now - neighbour_.heard < (options_.timeout / 10 * 9).count()) return;
    action = neighbour_.action;
  }
  const std::string place = action ? to_text(*action) : "start";
  give_up(std::make_exception_ptr(
      Error(ErrorKind::Environment, name_of(before),
            {{place, fmt::format("expected a sign of life within {} s, got none",
                                 seconds_of(options_.timeout))}})));
}

void MpiJob::State::finish() {
  constexpr std::chrono::milliseconds kLook(2);
  const std::int64_t end = monotonic_now() + options_.timeout.count();
  const std::future<void> left = loop_.leave();
  while (left.wait_for(kLook) != std::future_status::ready) {
    throw_if_over();
    if (monotonic_now() < end) continue;
    throw Error(ErrorKind::Environment, fmt::format("rank {}", loop_.rank()),
                {{"end", fmt::format("expected all {} ranks within {} s, but some did not come",
                                     loop_.size(), seconds_of(options_.timeout))}});
  }
}

bool MpiJob::State::is_first_to_fail() noexcept {
  abort();
  std::this_thread::sleep_for(kGrace);
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = own_failure_ && (!others_failure_ || *own_failure_ < *others_failure_);
  }
  if (!is_first) std::this_thread::sleep_for(kPatience);
  return is_first;
}

class MpiJob::End : public Transport {
 public:
  explicit End(State& state) : state_(state) {}
  std::int64_t send(const MessageKey& key, Payload payload) override {
    check(key.from == state_.device(), "a device sends in another one's name");
    return state_.send(key, std::move(payload));
  }
  Payload receive(const MessageKey& key) override {
    check(key.to == state_.device(), "a device takes in what is for another one");
    return state_.receive(key);
  }
  void barrier() override { state_.barrier(); }
  void announce(const Action& action) noexcept override { state_.announce(action); }
  Bytes sent() const override { return state_.sent(); }
  std::int64_t clock_offset() const override { return state_.loop().clock_offset(); }
  void abort() noexcept override { state_.abort(); }

 private:
  State& state_;
};

MpiJob::MpiJob(nanoseconds timeout) : state_(std::make_unique<State>(timeout)) {}

MpiJob::~MpiJob() = default;

int MpiJob::rank() const {
  return state_->loop().rank();
}

int MpiJob::size() const {
  return state_->loop().size();
}

bool MpiJob::is_on_one_host() const {
  return state_->loop().is_on_one_host();
}

std::unique_ptr<Transport> MpiJob::join(const Topology& topology,
                                        const std::vector<DeviceIndex>& devices,
                                        const MpiTransportOptions& options) {
  state_->join(topology, devices, options);
  return std::make_unique<End>(*state_);
}

void MpiJob::finish() {
  state_->finish();
}

bool MpiJob::is_first_to_fail() noexcept {
  return state_->is_first_to_fail();
}

}  // namespace dapple
