// A plan run for real, with passing time for computing, in sleep or on GPUs: its messages have
// their real sizes and share links that let them pass no faster than the topology's. Over any
// transport: one device per thread, or one per process.
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
  Factor pace = kOne;  // how many times longer everything takes than the plan says
  bool paces_links = true;
  std::vector<SlowStage> slow_stages = {};
  std::vector<SlowLink> slow_links = {};
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // of every wait for another device
  MakeReplayBackend make_backend = make_replay_backend;
  MakeEndOver make_end_over = nullptr;  // of threads
  /// Told, in the thread of the first device, how many iterations are over.
  std::function<void(std::int64_t iterations)> progress = {};
  /// Asked after each iteration, in the threads of all devices: the replay ends on all of them,
  /// with what it has, if it is to on any.
  std::function<bool()> should_stop = {};
};

/// Times are those of the plan: what was measured, divided by the pace.
using Replayed = MeasuredRun;

/// The job, of which each device does its part.
class Replay {
 public:
  /// Requires: check_plan() finds no fault but memory, slowed links are between neighbours. The
  /// topology must outlive it.
  Replay(const PlanDocument& document, const Topology& topology, ReplayOptions options);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  /// Those that take part, by the schedule's lanes, in which each has its place among the others.
  const std::vector<DeviceIndex>& devices() const;
  /// What each of them does.
  const std::vector<DeviceSchedule>& schedules() const;

  /// How the transport has to pace its messages; nothing: not at all.
  std::optional<Pacing> pacing() const;

  /// The part of the device with that place, over its end. Returns, on the first device alone, what
  /// all have measured. Every device must be run, at the same time. Throws Error(Environment)
  /// naming device and action where a message does not come in time, and JobAborted.
  std::optional<Replayed> run(std::size_t place, Transport& transport);

 private:
  class Job;
  std::unique_ptr<Job> job_;
};

/// On threads of this process, one per device. Throws what the first device to fail has thrown.
Replayed replay(const PlanDocument& document, const Topology& topology,
                const ReplayOptions& options);

}  // namespace dapple::exec
