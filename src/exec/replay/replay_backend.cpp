#include "exec/replay/replay_backend.h"

#include <cstdint>

#include "exec/message/clock.h"

namespace dapple::exec {
namespace {

/// A reduction buffer with as many numbers as a bucket, which are neither stored nor added.
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

/// Sleeps in the calling thread: the time has passed when a function returns. Also the interface
/// that ReplayBackend expects of its parameter StandIn.
class HostStandIn {
 public:
  static constexpr Memory kMemory = Memory::Host;

  /// Begins an iteration.
  void begin() {}
  Mark mark(Stream /*stream*/) { return {monotonic_now()}; }
  std::int64_t moment_of(const Mark& mark) { return mark.moment; }

  /// Starts a computation.
  void start() { start_ = monotonic_now(); }
  /// Lets time pass until `moment` after the start of the computation.
  void pass_until(Duration moment) { sleep_until(start_ + moment.ns); }

  /// Take and make messages from and to other devices.
  void take_in(Payload /*payload*/) {}
  Payload give_out(Bytes size) { return HostBytes(static_cast<std::size_t>(size.count)); }

  std::unique_ptr<ReductionBuffer> buffer(Bytes size) {
    return std::make_unique<NoGradients>(size);
  }
  /// Makes later work wait for all reductions whose threads have finished them.
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
