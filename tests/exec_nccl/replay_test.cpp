// Plans replayed on GPUs over NCCL.

#include "dapple/exec/replay/replay.h"

#include <catch2/catch.hpp>
#include <optional>
#include <utility>

#include "../support/family_pipelines.h"
#include "../support/job.h"
#include "../support/scaled.h"
#include "over_threads.h"

namespace dapple {
namespace {

using namespace small;

TEST_CASE("over NCCL a replay takes every action of the schedule, with its bytes") {
  Dice dice(6501);
  [[maybe_unused]] int replicated = 0;  // counted where every number of GPUs is there
  for (int round = 0; round < scaled(10); ++round) {
    const Pipeline pipeline = random_family_pipeline(dice);
    INFO("instance " << round << ": " << text_of(pipeline));
    const exec::ReplayOptions options{
        .iterations = 2,
        .paces_links = false,
        .make_backend = [](const exec::ReplayedDevice& device, const exec::ReplayPace& pace) {
          return exec::make_cuda_replay_backend(device, pace, gpu_of(device.schedule.device));
        }};
    exec::Replay job(document_of(pipeline), pipeline.topology, options);
    if (!has_gpus_for(job.devices().size())) continue;
    for (const StagePlan& stage : pipeline.plan.stages) replicated += stage.devices.size() > 1;
    exec::ThreadNetwork network(pipeline.topology, job.devices(), {});
    std::optional<exec::Replayed> replayed;
    side_by_side(job.devices().size(), [&](std::size_t place) {
      const auto end = std::make_unique<OverThreads>(
          network.end_of(job.devices()[place]), pipeline.topology, job.devices()[place],
          exec::connections_of(pipeline.plan, job.schedules()[place]));
      std::optional<exec::Replayed> result = job.run(place, *end);
      if (result) replayed = std::move(result);
    });
    REQUIRE(replayed.has_value());
    std::size_t actions = 0;
    for (const DeviceSchedule& device : job.schedules()) {
      for (const DeviceAction& entry : device.actions) {
        const bool is_receive = entry.action.kind == ActionKind::ReceiveActivation ||
                                entry.action.kind == ActionKind::ReceiveGradient;
        if (!is_receive) ++actions;
      }
    }
    CHECK(replayed->timeline.actions.size() == actions);
  }
#ifdef DAPPLE_NCCL_ON_HOST
  if (scaled(10) >= 10) CHECK(replicated >= 2);
#endif
}

}  // namespace
}  // namespace dapple
