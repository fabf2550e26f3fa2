#include "dapple/exec/message/pacing.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "dapple/core/error.h"
#include "exec/message/clock.h"

namespace dapple::exec {
namespace {

/// The longest time for which one piece occupies the slowest port of its route; the granularity at
/// which senders share a port.
constexpr Duration kPiece{500'000};

/// A spin lock in a word of memory shared by processes, held for a few instructions only.
class WordLock {
 public:
  explicit WordLock(std::int64_t& word) : word_(word) {
    while (word_.exchange(1, std::memory_order_acquire) != 0) std::this_thread::yield();
  }
  ~WordLock() { word_.store(0, std::memory_order_release); }
  WordLock(const WordLock&) = delete;
  WordLock& operator=(const WordLock&) = delete;

 private:
  std::atomic_ref<std::int64_t> word_;
};

}  // namespace

LinkPacer::LinkPacer(const Topology& topology, Pacing pacing, std::span<std::int64_t> memory)
    : topology_(topology), pacing_(std::move(pacing)), memory_(memory) {
  check(memory.size() == words(topology), "memory for the ports of another topology");
}

/// The action's stage is the sender, and its kind gives the direction.
LinkPacer::Way LinkPacer::way_of(const MessageKey& key) const {
  Way way{.route = topology_.route(key.from, key.to), .slowed = pacing_.pace};
  for (const SlowLink& slow : pacing_.slow_links) {
    const ActionKind kind =
        slow.from < slow.to ? ActionKind::SendActivation : ActionKind::SendGradient;
    if (key.action.kind != kind || key.action.stage != slow.from) continue;
    const Wide product = Wide{way.slowed.billionths} * slow.slowdown.billionths;
    way.slowed = {divide_up(product, kOne.billionths)};
  }
  return way;
}

/// Returns the time at which a piece that is ready at `ready` has passed all ports.
std::int64_t LinkPacer::pass_piece(const Way& way, Bytes size, std::int64_t ready) {
  const WordLock lock(memory_[0]);
  const std::span<std::int64_t> free_from = memory_.subspan(1);
  std::int64_t start = ready;
  for (const PortIndex port : way.route.ports) start = std::max(start, free_from[port.position()]);
  std::int64_t end = start;
  for (const PortIndex port : way.route.ports) {
    const Bandwidth bandwidth = topology_.ports()[port.position()].bandwidth;
    const Wide busy = Wide{size.count} * way.slowed.billionths;
    const std::int64_t free = start + divide_up(busy, bandwidth.bytes_per_second);
    free_from[port.position()] = free;
    end = std::max(end, free);
  }
  return end;
}

std::int64_t LinkPacer::pass(const MessageKey& key, Bytes size,
                             const std::function<void()>& before_piece) {
  const Way way = way_of(key);
  const Wide at_once =
      Wide{way.route.bandwidth.bytes_per_second} * kPiece.ns / way.slowed.billionths;
  const std::int64_t piece = std::max<std::int64_t>(1, static_cast<std::int64_t>(at_once));
  std::int64_t moment = monotonic_now();
  for (std::int64_t begin = 0; begin < size.count; begin += piece) {
    before_piece();
    moment = pass_piece(way, Bytes{std::min(piece, size.count - begin)}, moment);
    sleep_until(moment);
  }
  return moment + scale_up(way.route.latency, pacing_.pace).ns;
}

}  // namespace dapple::exec
