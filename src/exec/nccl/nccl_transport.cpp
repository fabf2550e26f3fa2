#include "dapple/exec/nccl/nccl_transport.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/cuda/memory/device.h"
#include "dapple/exec/gpu/cuda_bytes.h"
#include "dapple/exec/gpu/cuda_exchange.h"
#include "dapple/exec/gpu/cuda_reduction_buffer.h"
#include "dapple/exec/message/all_reduce.h"
#include "dapple/exec/message/all_to_all.h"
#include "exec/message/clock.h"
#include "exec/message/mailbox.h"
#include "exec/message/value_payload.h"
#include "exec/message/waiting.h"
#include "exec/nccl/nccl_communicators.h"

namespace dapple::exec {
namespace {

/// The interval between two checks of all communicators.
constexpr std::chrono::milliseconds kWatch(20);

/// The number that is added to the step of a reduction to report readiness, so that none of its
/// messages has that step, nor other reductions of the same action.
constexpr std::int32_t kReady = std::numeric_limits<std::int32_t>::min();

/// What a sender announces, through the transport below, about the next message to a receiver.
struct Announcement {
  MessageKey key;
  std::uint64_t size = 0;
  // True if no message belongs to this announcement, and none follows.
  bool is_last = false;
};

/// Returns the key of announcement `number` from one device to another; no message of an iteration
/// has such a key.
MessageKey announcement_key(DeviceIndex from, DeviceIndex to, std::int64_t number) {
  return {.iteration = -1 - number, .action = {}, .step = 0, .from = from, .to = to};
}

/// The direction to one other device. Messages leave one after another.
struct Outgoing {
  std::mutex mutex;
  std::int64_t announced = 0;
  cuda::Stream stream{cuda::Stream::Priority::High};
};

/// Returns the shard of each member of a group, in ascending order of the members.
std::vector<cuda::View> shards_of(const ReductionGroup& group, const cuda::View& numbers) {
  const ElementRange all{0, static_cast<std::size_t>(numbers.count)};
  std::vector<cuda::View> shards;
  for (const DeviceIndex member : members_of(group)) {
    const ElementRange shard = shard_of(group, member, all);
    shards.push_back(
        numbers.part(static_cast<std::int64_t>(shard.begin), static_cast<std::int64_t>(shard.end)));
  }
  return shards;
}

/// One device's endpoint.
class NcclTransport : public Transport {
 public:
  NcclTransport(Transport& below, const Topology& topology, const NcclTransportOptions& options);
  ~NcclTransport() override;

  /// Must be called first. If it throws, the endpoint can only be destroyed.
  void connect();

  std::int64_t send(const MessageKey& key, Payload payload) override;
  Payload receive(const MessageKey& key, const ExpectedMessage& expected) override;
  bool performs(CollectiveKind kind, const ReductionGroup& group, const MessageKey& key,
                ReductionBuffer& buffer) override;
  bool exchanges(const std::vector<DeviceIndex>& members, const MessageKey& key,
                 ExchangeBuffer& buffer) override;
  void barrier() override { below_.barrier(); }
  void announce(const Action& action) noexcept override { below_.announce(action); }
  Bytes sent() const override { return below_.sent() + Bytes{sent_.load()} - control_.size(); }
  std::int64_t clock_offset() const override { return below_.clock_offset(); }
  void abort() noexcept override {
    below_.abort();
    end();
  }

 private:
  void announce_message(const Announcement& announcement, Outgoing& outgoing, DeviceIndex to);
  template <class Work>
  std::thread started(Work work);
  void take_in(DeviceIndex from);
  std::optional<Payload> hear(const MessageKey& key);
  void await_end();
  void watch();
  void take_leave();
  void stop_awaiting_end() noexcept;
  void await(const cuda::Event& event, const MessageKey& key) const {
    wait_.await(event, to_text(key.action));
  }
  void keep_on() const;
  void fail() noexcept;
  void end() noexcept;
  Outgoing& outgoing_to(DeviceIndex to);
  void agree(const std::vector<DeviceIndex>& members, MessageKey key);
  std::string name_of(DeviceIndex device) const { return topology_.device(device).name; }

  Transport& below_;
  const Topology& topology_;
  const NcclTransportOptions options_;
  const CommunicatorWait wait_;
  ControlChannel control_;
  std::mutex inbox_mutex_;
  // Its stream receives messages.
  cuda::Device inbox_;
  std::shared_ptr<CudaDownloads> downloads_;
  Mailbox mailbox_;
  // Bytes sent in addition to those that the transport below has sent.
  std::atomic<std::int64_t> sent_ = 0;
  std::atomic<bool> is_over_ = false;
  std::atomic<bool> is_closing_ = false;
  const int exceptions_ = std::uncaught_exceptions();
  // Indexed by peer.
  std::map<DeviceIndex, Outgoing> outgoing_;
  NcclCommunicators communicators_;

  // Guards `failure_`; also used to wait for `closes_`.
  mutable std::mutex mutex_;
  std::condition_variable closes_;
  // The first failure.
  std::exception_ptr failure_;

  // Declared last, because they use all other members.
  std::vector<std::thread> receivers_;
  std::vector<std::thread> watchers_;
};

NcclTransport::NcclTransport(Transport& below, const Topology& topology,
                             const NcclTransportOptions& options)
    : below_(below),
      topology_(topology),
      options_(options),
      wait_{.here = name_of(options.here),
            .timeout = options.timeout,
            .keep_on = [this] { keep_on(); }},
      control_(below),
      inbox_(options.gpu, options.connections.inbox, cuda::Stream::Priority::High),
      downloads_(std::make_shared<CudaDownloads>(inbox_)),
      communicators_(below, control_, options_, wait_) {
  for (const DeviceIndex peer : options_.connections.peers) outgoing_.try_emplace(peer);
}

void NcclTransport::connect() {
  watchers_.push_back(started([this] { await_end(); }));
  watchers_.push_back(started([this] { watch(); }));
  communicators_.make();
  for (const DeviceIndex peer : options_.connections.peers) {
    receivers_.push_back(started([this, peer] { take_in(peer); }));
  }
}

NcclTransport::~NcclTransport() {
  // A failure that only this device knows of must end the job; otherwise others would wait for it.
  if (std::uncaught_exceptions() > exceptions_) abort();
  is_closing_ = true;
  closes_.notify_all();
  try {
    take_leave();
  } catch (const std::exception&) {
    end();  // as on the devices that still wait
  }
  stop_awaiting_end();
  for (std::thread& receiver : receivers_) {
    if (receiver.joinable()) receiver.join();
  }
  for (std::thread& watcher : watchers_) watcher.join();
}

/// Returns once all messages from others have arrived and no device waits for this endpoint any
/// more.
void NcclTransport::take_leave() {
  for (auto& [peer, outgoing] : outgoing_) {
    const std::lock_guard lock(outgoing.mutex);
    announce_message({.key = {}, .is_last = true}, outgoing, peer);
  }
  for (std::thread& receiver : receivers_) receiver.join();
  keep_on();
  communicators_.finish();
}

void NcclTransport::stop_awaiting_end() noexcept {
  try {
    control_.send(announcement_key(options_.here, options_.here, 0), {});
  } catch (const std::exception&) {}  // the job below has ended, which await_end() has seen
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
  communicators_.abort();
}

/// Ends the job with the exception that is being handled.
void NcclTransport::fail() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  below_.abort();
  end();
}

/// Starts a thread whose failure ends the job.
template <class Work>
std::thread NcclTransport::started(Work work) {
  return std::thread([this, work] {
    try {
      work();
    } catch (const JobAborted&) { end(); } catch (...) {
      fail();
    }
  });
}

Outgoing& NcclTransport::outgoing_to(DeviceIndex to) {
  const auto found = outgoing_.find(to);
  check(found != outgoing_.end(), "a device sends to one that is not its peer");
  return found->second;
}

/// Requires: the mutex of `outgoing` is held.
void NcclTransport::announce_message(const Announcement& announcement, Outgoing& outgoing,
                                     DeviceIndex to) {
  control_.send(announcement_key(options_.here, to, outgoing.announced++),
                payload_of(std::span<const Announcement>(&announcement, 1)));
}

std::int64_t NcclTransport::send(const MessageKey& key, Payload payload) {
  CudaBytes* const bytes = cuda_bytes_of(payload);
  if (bytes == nullptr) return below_.send(key, std::move(payload));
  keep_on();
  const std::size_t size = bytes->size();
  await(bytes->ready(), key);
  if (key.to == key.from) {
    const bool is_new = mailbox_.put(key, {.payload = std::move(payload)});
    check(is_new, "a message was sent twice");
    sent_ += static_cast<std::int64_t>(size);
    return monotonic_now();
  }
  cuda::make_current(options_.gpu);
  Outgoing& outgoing = outgoing_to(key.to);
  const std::lock_guard lock(outgoing.mutex);
  announce_message({.key = key, .size = size}, outgoing, key.to);
  if (size > 0) {
    communicators_.to(key.to).send(bytes->address(), size, 1, outgoing.stream);
    await(recorded_on(outgoing.stream), key);
  }
  bytes->release_after(outgoing.stream);
  sent_ += static_cast<std::int64_t>(size);
  return monotonic_now();
}

/// Waits without a time limit; returns nothing if the message has not arrived when this endpoint
/// closes.
std::optional<Payload> NcclTransport::hear(const MessageKey& key) {
  while (true) {
    try {
      return control_.receive(key);
    } catch (const Error&) {
      if (is_closing_) return std::nullopt;
    }
  }
}

/// Receives all messages from one device.
void NcclTransport::take_in(DeviceIndex from) {
  cuda::make_current(options_.gpu);
  NcclCommunicator& pair = communicators_.from(from);
  for (std::int64_t number = 0;; ++number) {
    std::optional<Payload> said = hear(announcement_key(from, options_.here, number));
    if (!said) return;
    const Announcement announcement = values_of<Announcement>(std::move(*said)).at(0);
    if (announcement.is_last) return;
    std::optional<CudaBytes> bytes;
    {
      const std::lock_guard lock(inbox_mutex_);
      cuda::Buffer memory;
      if (announcement.size > 0) {
        memory = inbox_.allocate({static_cast<std::int64_t>(announcement.size)});
        pair.receive(memory.address(), announcement.size, 0, inbox_.compute());
      }
      cuda::Event ready = recorded_on(inbox_.compute());
      bytes.emplace(downloads_, std::move(memory), std::move(ready));
    }
    await(bytes->ready(), announcement.key);
    const bool is_new = mailbox_.put(
        announcement.key, {.payload = Payload(std::make_unique<CudaBytes>(std::move(*bytes)))});
    check(is_new, "a message was announced twice");
  }
}

Payload NcclTransport::receive(const MessageKey& key, const ExpectedMessage& expected) {
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

/// Returns once all members have reported that they are ready.
void NcclTransport::agree(const std::vector<DeviceIndex>& members, MessageKey key) {
  key.step += kReady;
  for (const DeviceIndex member : members) {
    if (member == options_.here) continue;
    key.from = options_.here;
    key.to = member;
    control_.send(key, {});
  }
  for (const DeviceIndex member : members) {
    if (member == options_.here) continue;
    key.from = member;
    key.to = options_.here;
    control_.receive(key);
  }
}

bool NcclTransport::performs(CollectiveKind kind, const ReductionGroup& group,
                             const MessageKey& key, ReductionBuffer& buffer) {
  auto* const numbers = dynamic_cast<CudaNumbers*>(&buffer);
  if (numbers == nullptr) return false;
  const std::vector<DeviceIndex> members = members_of(group);
  if (members.size() == 1) return true;
  cuda::make_current(options_.gpu);
  NcclCommunicator& all = communicators_.among(members);
  await(recorded_on(numbers->stream()), key);
  agree(members, key);
  const cuda::View& every = numbers->numbers();
  if (kind == CollectiveKind::AllReduce) {
    all.all_reduce(every, numbers->stream());
  } else {
    const std::vector<cuda::View> shards = shards_of(group, every);
    if (kind == CollectiveKind::ReduceScatter) all.reduce_scatter(shards, numbers->stream());
    if (kind == CollectiveKind::AllGather) all.all_gather(shards, numbers->stream());
  }
  await(recorded_on(numbers->stream()), key);
  const auto count = static_cast<std::int64_t>(members.size());
  const std::int64_t passes = kind == CollectiveKind::AllReduce ? 2 : 1;
  sent_ += passes * (count - 1) * every.size().count / count;
  return true;
}

bool NcclTransport::exchanges(const std::vector<DeviceIndex>& members, const MessageKey& key,
                              ExchangeBuffer& buffer) {
  auto* const arrays = dynamic_cast<CudaExchange*>(&buffer);
  if (arrays == nullptr) return false;
  cuda::make_current(options_.gpu);
  NcclCommunicator& all = communicators_.among(members);
  await(recorded_on(arrays->stream()), key);
  agree(members, key);
  all.all_to_all(arrays->to(), arrays->from(), arrays->stream());
  await(recorded_on(arrays->stream()), key);
  for (std::size_t member = 0; member < members.size(); ++member) {
    if (members[member] == options_.here) continue;
    sent_ += static_cast<std::int64_t>(arrays->sent(member));
  }
  return true;
}

/// Waits for a message from itself, in order to learn when the job below has ended.
void NcclTransport::await_end() {
  hear(announcement_key(options_.here, options_.here, 0));
}

void NcclTransport::watch() {
  std::unique_lock lock(mutex_);
  while (!is_closing_ && !is_over_) {
    closes_.wait_for(lock, kWatch);
    lock.unlock();
    communicators_.look();
    lock.lock();
  }
}

}  // namespace

bool is_built_with_nccl() {
  return true;
}

std::unique_ptr<Transport> make_nccl_transport(Transport& below, const Topology& topology,
                                               const NcclTransportOptions& options) {
  auto end = std::make_unique<NcclTransport>(below, topology, options);
  end->connect();
  return end;
}

}  // namespace dapple::exec
