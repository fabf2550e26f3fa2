#include "exec/replay/replay_backend.h"

#include <cstdint>

#include "exec/message/clock.h"

namespace dapple::exec {
namespace {

/// As many numbers as a bucket has, which nobody wants to know: nothing holds or adds them.
class NoGradients : public ReductionBuffer {
 public:
  explicit NoGradients(Bytes size)
      : size_((static_cast<std::size_t>(size.count) + sizeof(float) - 1) / sizeof(float)) {}
  std::size_t size() const override { return size_; }
  Payload give_out(ElementRange range) override { return HostBytes(range.size() * sizeof(float)); }
  void add(ElementRange /*range*/, Payload /*payload*/) override {}
  void replace(ElementRange /*range*/, Payload /*payload*/) override {}

 private:
  std::size_t size_;
};

/// Sleeps in the calling thread: time has passed when a function returns.
class HostStandIn {
 public:
  static constexpr Memory kMemory = Memory::Host;

  /// Of an iteration.
  void begin() {}
  Mark mark(Stream /*stream*/) { return {monotonic_now()}; }
  std::int64_t moment_of(const Mark& mark) { return mark.moment; }

  /// A computation starts.
  void start() { start_ = monotonic_now(); }
  /// Until so long after its start.
  void pass_until(Duration moment) { sleep_until(start_ + moment.ns); }

  /// Messages from and to other devices.
  void take_in(Payload /*payload*/) {}
  Payload give_out(Bytes size) { return HostBytes(static_cast<std::size_t>(size.count)); }

  std::unique_ptr<ReductionBuffer> buffer(Bytes size) {
    return std::make_unique<NoGradients>(size);
  }
  /// Has what comes next wait for all reductions that are over in their threads.
  void await_reductions() {}

 private:
  std::int64_t start_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_replay_backend(const ReplayedDevice& device, const ReplayPace& pace) {
  return std::make_unique<ReplayBackend<HostStandIn>>(device, pace,
                                                      std::make_unique<HostStandIn>());
}

}  // namespace dapple::exec
