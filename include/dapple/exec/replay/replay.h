// Runs a plan with real messages and simulated computations, which sleep on the host or spin on a
// GPU: messages have their real sizes and share links that are no faster than the topology's. Works
// over any transport, with one device per thread or per process.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/exec/message/pacing.h"
#include "dapple/exec/message/transport.h"
#include "dapple/exec/replay/replay_backend.h"
#include "dapple/exec/run/measured_run.h"
#include "dapple/plan/document.h"
#include "dapple/schedule/device_schedule.h"
#include "dapple/topology/topology.h"

namespace dapple::exec {

struct ReplayOptions {
  std::int64_t iterations = 10;
  /// The factor by which everything takes longer than the plan says.
  Factor pace = kOne;
  bool paces_links = true;
  std::vector<SlowStage> slow_stages = {};
  std::vector<SlowLink> slow_links = {};
  /// The timeout of every wait for another device.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
  MakeReplayBackend make_backend = make_replay_backend;
  /// Used by replay(), where devices are threads.
  MakeEndOver make_end_over = nullptr;
  /// Called in the thread of the first device with the number of iterations completed.
  std::function<void(std::int64_t iterations)> progress = {};
  /// Called after each iteration but the last in the threads of all devices; if it returns true on
  /// any, the replay ends on all of them with the iterations completed so far.
  std::function<bool()> should_stop = {};
};

/// The measurements of a replay, with times in the plan's scale: measured times divided by the
/// pace.
using Replayed = MeasuredRun;

/// A replay shared by all devices, each of which runs its part.
class Replay {
 public:
  /// Requires: check_plan() finds no fault but memory, and slowed links are between neighbours. The
  /// topology must outlive it.
  Replay(const PlanDocument& document, const Topology& topology, ReplayOptions options);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  /// The devices that take part, in the order of the schedule's lanes; an index into them is a
  /// device's place.
  const std::vector<DeviceIndex>& devices() const;
  /// The schedule of each of devices().
  const std::vector<DeviceSchedule>& schedules() const;

  /// How the transport has to pace messages; nothing if it does not.
  std::optional<Pacing> pacing() const;

  /// Runs the part of the device at a place over its transport. Returns the measurements of all
  /// devices on the first device, nothing on the others. All devices must run at the same time.
  /// Throws Error(Environment) naming device and action if a message does not arrive in time, and
  /// JobAborted.
  std::optional<Replayed> run(std::size_t place, Transport& transport);

 private:
  class Job;
  std::unique_ptr<Job> job_;
};

/// Runs a replay on threads of this process, one per device. Throws the exception of the first
/// device that fails.
Replayed replay(const PlanDocument& document, const Topology& topology,
                const ReplayOptions& options);

}  // namespace dapple::exec
