#include "dapple/exec/nccl_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "clock.h"
#include "dapple/core/error.h"
#include "dapple/cuda/device.h"
#include "dapple/exec/all_reduce.h"
#include "dapple/exec/cuda_bytes.h"
#include "dapple/exec/cuda_summands.h"
#include "dapple/exec/nccl_communicator.h"
#include "mailbox.h"
#include "value_payload.h"
#include "waiting.h"

namespace dapple {
namespace {

using std::chrono::nanoseconds;

/// Between two looks at what a GPU does, and at all communicators.
constexpr std::chrono::microseconds kLook(20);
constexpr std::chrono::milliseconds kWatch(20);

/// Steps of a reduction that no message of its own has.
constexpr std::int32_t kReady = -1;
constexpr std::int32_t kId = -2;

/// What a sender says below of the next message that it sends to a receiver.
struct Announcement {
  MessageKey key;
  std::uint64_t size = 0;
  bool is_last = false;  // there is no message, and none follows
  NcclId id{};           // of their communicator; of the first
};

/// Of announcement `number` from one device to another: no message of an iteration has such a key.
MessageKey announcement_key(DeviceIndex from, DeviceIndex to, std::int64_t number) {
  return {.iteration = -1 - number, .action = {}, .step = 0, .from = from, .to = to};
}

/// To another device. Messages leave one after another.
struct Outgoing {
  std::mutex mutex;
  std::int64_t announced = 0;
  NcclCommunicator* communicator = nullptr;
  cuda::Stream stream{cuda::Stream::Priority::High};
};

class NcclTransport : public Transport {
 public:
  NcclTransport(Transport& below, const Topology& topology, const NcclTransportOptions& options);
  ~NcclTransport() override;

  std::int64_t send(const MessageKey& key, Payload payload) override;
  Payload receive(const MessageKey& key, const Expected& expected) override;
  bool reduces(const ReductionGroup& group, const MessageKey& key, Summands& summands) override;
  void barrier() override { below_.barrier(); }
  void announce(const Action& action) noexcept override { below_.announce(action); }
  Bytes sent() const override { return {below_.sent().count + sent_.load()}; }
  std::int64_t clock_offset() const override { return below_.clock_offset(); }
  void abort() noexcept override {
    below_.abort();
    end();
  }

 private:
  void say(const MessageKey& key, Payload payload);
  void announce_message(const Announcement& announcement, Outgoing& outgoing, DeviceIndex to);
  void take_in(DeviceIndex from);
  std::optional<Payload> hear(const MessageKey& key);
  void await_end();
  void watch();
  void await(const cuda::Event& event, const MessageKey& key);
  void keep_on() const;
  void fail() noexcept;
  void end() noexcept;
  Outgoing& outgoing_to(DeviceIndex to);
  NcclCommunicator& communicator(const NcclId& id, int size, int member);
  NcclCommunicator& communicator_of(const std::vector<DeviceIndex>& members, const MessageKey& key);
  void agree(const std::vector<DeviceIndex>& members, MessageKey key);
  std::string name_of(DeviceIndex device) const { return topology_.device(device).name; }

  Transport& below_;
  const Topology& topology_;
  const NcclTransportOptions options_;
  std::mutex inbox_mutex_;
  cuda::Device inbox_;  // its stream takes in
  std::shared_ptr<CudaDownloads> downloads_;
  Mailbox mailbox_;
  std::atomic<std::int64_t> sent_ = 0;  // beside what passes below, and without what is said there
  std::atomic<bool> is_over_ = false;
  std::atomic<bool> is_closing_ = false;
  const int exceptions_ = std::uncaught_exceptions();

  mutable std::mutex mutex_;  // of all that follows
  std::condition_variable closes_;
  std::exception_ptr failure_;  // the first
  std::map<DeviceIndex, Outgoing> outgoing_;
  std::list<NcclCommunicator> communicators_;
  std::map<std::vector<DeviceIndex>, NcclCommunicator*> groups_;
  std::vector<std::thread> threads_;  // last: they use all the others
};

NcclTransport::NcclTransport(Transport& below, const Topology& topology,
                             const NcclTransportOptions& options)
    : below_(below),
      topology_(topology),
      options_(options),
      inbox_(options.gpu, options.inbox),
      downloads_(std::make_shared<CudaDownloads>(inbox_)) {
  for (const DeviceIndex peer : options_.peers) {
    check(peer != options_.here, "a device is its own peer");
    threads_.emplace_back([this, peer] { take_in(peer); });
  }
  threads_.emplace_back([this] { await_end(); });
  threads_.emplace_back([this] { watch(); });
}

NcclTransport::~NcclTransport() {
  // Who is left by a failure that nobody else knows of ends the job: others would wait for it.
  if (std::uncaught_exceptions() > exceptions_) abort();
  is_closing_ = true;
  try {
    for (const DeviceIndex peer : options_.peers) {
      Outgoing& outgoing = outgoing_to(peer);
      const std::lock_guard lock(outgoing.mutex);
      announce_message({.key = {}, .is_last = true}, outgoing, peer);
    }
    say(announcement_key(options_.here, options_.here, 0), {});
  } catch (const std::exception&) {
    end();  // so have those that wait
  }
  closes_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void NcclTransport::keep_on() const {
  if (!is_over_) return;
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  throw JobAborted("the job was aborted");
}

void NcclTransport::end() noexcept {
  is_over_ = true;
  mailbox_.close();
  const std::lock_guard lock(mutex_);
  for (NcclCommunicator& one : communicators_) one.abort();
}

/// With what is being handled.
void NcclTransport::fail() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  below_.abort();
  end();
}

/// Waits for what has been given to the GPU and has nothing long to wait for.
void NcclTransport::await(const cuda::Event& event, const MessageKey& key) {
  const std::int64_t end = monotonic_now() + options_.timeout.count();
  while (!event.is_reached()) {
    keep_on();
    if (monotonic_now() >= end) {
      throw Error(ErrorKind::Environment, name_of(options_.here),
                  {{to_text(key.action), fmt::format("expected its GPU to be done within {} s, but "
                                                     "it was not",
                                                     seconds_of(options_.timeout))}});
    }
    std::this_thread::sleep_for(kLook);
  }
  keep_on();  // what an aborted communicator was at ends, too
}

NcclCommunicator& NcclTransport::communicator(const NcclId& id, int size, int member) {
  // In the list only once it is there: nothing else uses it before.
  std::list<NcclCommunicator> made;
  made.emplace_back(id, size, member, [this] { keep_on(); });
  const std::lock_guard lock(mutex_);
  communicators_.splice(communicators_.end(), made);
  return communicators_.back();
}

/// A message below that is none of a device's own.
void NcclTransport::say(const MessageKey& key, Payload payload) {
  const std::int64_t size = static_cast<std::int64_t>(payload.size());
  below_.send(key, std::move(payload));
  sent_ -= size;
}

Outgoing& NcclTransport::outgoing_to(DeviceIndex to) {
  cuda::make_current(options_.gpu);
  const std::lock_guard lock(mutex_);
  return outgoing_[to];
}

/// Requires: the outgoing's mutex is held.
void NcclTransport::announce_message(const Announcement& announcement, Outgoing& outgoing,
                                     DeviceIndex to) {
  say(announcement_key(options_.here, to, outgoing.announced++),
      payload_of(std::span<const Announcement>(&announcement, 1)));
}

std::int64_t NcclTransport::send(const MessageKey& key, Payload payload) {
  CudaBytes* const bytes = cuda_bytes_of(payload);
  if (bytes == nullptr) return below_.send(key, std::move(payload));
  keep_on();
  const std::size_t size = bytes->size();
  Outgoing& outgoing = outgoing_to(key.to);
  await(bytes->ready(), key);
  if (key.to == key.from) {
    mailbox_.put(key, {.payload = std::move(payload)});
    sent_ += static_cast<std::int64_t>(size);
    return monotonic_now();
  }
  const std::lock_guard lock(outgoing.mutex);
  const bool is_first = outgoing.announced == 0;
  Announcement announcement{.key = key, .size = size};
  if (is_first) announcement.id = draw_nccl_id();
  announce_message(announcement, outgoing, key.to);
  if (is_first) outgoing.communicator = &communicator(announcement.id, 2, 0);
  if (size > 0) {
    outgoing.communicator->send(bytes->address(), size, 1, outgoing.stream);
    await(recorded_on(outgoing.stream), key);
  }
  bytes->release_after(outgoing.stream);
  sent_ += static_cast<std::int64_t>(size);
  return monotonic_now();
}

/// Waits as long as it takes; nothing once this end closes, and in vain.
std::optional<Payload> NcclTransport::hear(const MessageKey& key) {
  while (true) {
    try {
      return below_.receive(key, {});
    } catch (const Error&) {
      if (is_closing_) return std::nullopt;
    }
  }
}

/// All that one device sends to this one.
void NcclTransport::take_in(DeviceIndex from) {
  try {
    cuda::make_current(options_.gpu);
    NcclCommunicator* pair = nullptr;
    for (std::int64_t number = 0;; ++number) {
      std::optional<Payload> said = hear(announcement_key(from, options_.here, number));
      if (!said) return;
      const Announcement announcement = values_of<Announcement>(std::move(*said)).at(0);
      if (announcement.is_last) return;
      if (number == 0) pair = &communicator(announcement.id, 2, 1);
      std::optional<CudaBytes> bytes;
      {
        const std::lock_guard lock(inbox_mutex_);
        cuda::Buffer memory;
        if (announcement.size > 0) {
          memory = inbox_.allocate({static_cast<std::int64_t>(announcement.size)});
          pair->receive(memory.address(), announcement.size, 0, inbox_.compute());
        }
        cuda::Event ready = recorded_on(inbox_.compute());
        bytes.emplace(downloads_, std::move(memory), std::move(ready));
      }
      await(bytes->ready(), announcement.key);
      mailbox_.put(announcement.key,
                   {.payload = Payload(std::make_unique<CudaBytes>(std::move(*bytes)))});
    }
  } catch (const JobAborted&) { end(); } catch (...) {
    fail();
  }
}

Payload NcclTransport::receive(const MessageKey& key, const Expected& expected) {
  if (expected.memory == Memory::Host) return below_.receive(key, expected);
  std::optional<Mail> mail;
  try {
    mail = mailbox_.take(key, options_.timeout);
  } catch (const JobAborted&) {
    keep_on();
    throw;
  }
  if (mail) return std::move(mail->payload);
  throw missing_message({.here = name_of(options_.here), .peer = name_of(key.from), .peer_at = {}},
                        key, options_.timeout);
}

NcclCommunicator& NcclTransport::communicator_of(const std::vector<DeviceIndex>& members,
                                                 const MessageKey& key) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = groups_.find(members);
    if (found != groups_.end()) return *found->second;
  }
  const auto place = std::find(members.begin(), members.end(), options_.here) - members.begin();
  MessageKey word = key;
  word.step = kId;
  word.from = members.front();
  NcclId id{};
  if (place == 0) {
    id = draw_nccl_id();
    for (std::size_t i = 1; i < members.size(); ++i) {
      word.to = members[i];
      say(word, payload_of(std::span<const std::byte>(id)));
    }
  } else {
    word.to = options_.here;
    copy_values(below_.receive(word, {}), std::span<std::byte>(id));
  }
  NcclCommunicator& made =
      communicator(id, static_cast<int>(members.size()), static_cast<int>(place));
  const std::lock_guard lock(mutex_);
  return *(groups_[members] = &made);
}

/// Returns once all members have said that they are ready.
void NcclTransport::agree(const std::vector<DeviceIndex>& members, MessageKey key) {
  key.step = kReady;
  for (const DeviceIndex member : members) {
    if (member == options_.here) continue;
    key.from = options_.here;
    key.to = member;
    say(key, {});
  }
  for (const DeviceIndex member : members) {
    if (member == options_.here) continue;
    key.from = member;
    key.to = options_.here;
    below_.receive(key, {});
  }
}

bool NcclTransport::reduces(const ReductionGroup& group, const MessageKey& key,
                            Summands& summands) {
  auto* const numbers = dynamic_cast<CudaSummands*>(&summands);
  if (numbers == nullptr) return false;
  std::vector<DeviceIndex> members;
  for (const auto& server : group.servers) {
    members.insert(members.end(), server.begin(), server.end());
  }
  std::sort(members.begin(), members.end());
  if (members.size() == 1) return true;
  cuda::make_current(options_.gpu);
  NcclCommunicator& all = communicator_of(members, key);
  await(recorded_on(numbers->stream()), key);
  agree(members, key);
  all.all_reduce(numbers->gradients(), numbers->stream());
  await(recorded_on(numbers->stream()), key);
  const auto count = static_cast<std::int64_t>(members.size());
  sent_ += 2 * (count - 1) * numbers->gradients().size().count / count;
  return true;
}

/// Waits for a message of its own, so as to be told when the job below is over.
void NcclTransport::await_end() {
  try {
    hear(announcement_key(options_.here, options_.here, 0));
  } catch (const JobAborted&) { end(); } catch (...) {
    fail();
  }
}

void NcclTransport::watch() {
  std::unique_lock lock(mutex_);
  while (!is_closing_ && !is_over_) {
    closes_.wait_for(lock, kWatch);
    try {
      for (NcclCommunicator& one : communicators_) one.look();
    } catch (...) {
      lock.unlock();
      fail();
      lock.lock();
    }
  }
}

}  // namespace

bool is_built_with_nccl() {
  return true;
}

std::unique_ptr<Transport> make_nccl_transport(Transport& below, const Topology& topology,
                                               const NcclTransportOptions& options) {
  return std::make_unique<NcclTransport>(below, topology, options);
}

}  // namespace dapple
