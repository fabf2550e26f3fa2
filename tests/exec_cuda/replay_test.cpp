// Plans replayed on a GPU, which all of their devices share, beside the same on the host.

#include "dapple/exec/replay/replay.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <utility>

#include "../support/family_pipelines.h"
#include "../support/job.h"
#include "../support/scaled.h"
#include "../support/through_host.h"
#include "dapple/cuda/memory/device.h"
#include "dapple/exec/replay/replay_backend.h"

namespace dapple {
namespace {

using namespace small;

/// Far more than a kernel takes to be launched, which is measured and taken off what it spins.
constexpr std::int64_t kLaunch = 100'000;
/// By how much a busy machine may be late to note the time on the host.
constexpr std::int64_t kLate = 3'000'000;

std::unique_ptr<exec::Backend> replayed_on_gpu(const exec::ReplayedDevice& device,
                                               const exec::ReplayPace& pace) {
  return exec::make_cuda_replay_backend(device, pace, 0);
}

std::unique_ptr<exec::Backend> replayed_on_gpus(const exec::ReplayedDevice& device,
                                                const exec::ReplayPace& pace) {
  return exec::make_cuda_replay_backend(device, pace,
                                        device.schedule.device.value % cuda::gpu_count());
}

/// How often which device has done what.
std::multimap<std::pair<std::size_t, std::string>, Bytes> done_in(const exec::Replayed& replayed) {
  std::multimap<std::pair<std::size_t, std::string>, Bytes> done;
  for (const TimedAction& timed : replayed.timeline.actions) {
    done.emplace(std::pair(timed.lane.position(), to_text(timed.action)), timed.size);
  }
  return done;
}

TEST_CASE("a replay on a GPU does and sends what one on the host does, under every schedule") {
  Dice dice(6401);
  for (int round = 0; round < scaled(12); ++round) {
    const Pipeline pipeline = random_family_pipeline(dice);
    INFO("instance " << round << ": " << text_of(pipeline));
    const PlanDocument document = document_of(pipeline);
    const bool is_paced = dice.chance(50);
    const exec::Replayed here =
        exec::replay(document, pipeline.topology, {.iterations = 2, .paces_links = is_paced});
    const exec::Replayed there =
        exec::replay(document, pipeline.topology,
                     {.iterations = 2,
                      .paces_links = is_paced,
                      .make_backend = round % 2 == 0 ? replayed_on_gpus : replayed_on_gpu});
    CHECK(there.iterations.size() == 2);
    CHECK(there.sent == here.sent);
    CHECK(done_in(there) == done_in(here));
  }
}

TEST_CASE("on a GPU computations last as long as the plan says, one after another") {
  const LayerFigures layer{.forward = 1'000'000, .backward = 2'000'000, .output = 100'000};
  const Pipeline pipeline = straight({layer, layer}, {.num_micro_batches = 4, .depths = {2, 1}});
  const exec::Replayed replayed = exec::replay(document_of(pipeline), pipeline.topology,
                                               {.iterations = 2,
                                                .paces_links = false,
                                                .slow_stages = {{{1}, Factor{2 * kOne.billionths}}},
                                                .make_backend = replayed_on_gpu});
  CHECK(replayed.sent.count == 6 * 100'000 + 2 * 100'000);
  Duration free[2];
  for (const TimedAction& timed : replayed.timeline.actions) {
    if (stream_of(timed.action.kind) != Stream::Compute) continue;
    Duration& until = free[timed.lane.position()];
    // Clocks of events tick every half microsecond.
    CHECK(timed.start.ns >= until.ns - 1'000);
    until = timed.end;
    const std::int64_t slowdown = timed.action.stage.value == 1 ? 2 : 1;
    const std::int64_t length = timed.action.kind == ActionKind::Forward    ? 1'000'000
                                : timed.action.kind == ActionKind::Backward ? 2'000'000
                                                                            : 0;
    CHECK((timed.end - timed.start).ns >= slowdown * length - kLaunch);
  }
}

TEST_CASE("on a GPU a message passes a paced link once it has been computed") {
  // 2,000,000 bytes at 1 byte per ns, three times as long.
  const LayerFigures layer{.forward = 1'000'000, .backward = 1'000'000, .output = 2'000'000};
  const Pipeline pipeline = straight({layer, layer}, {.num_micro_batches = 2, .depths = {2, 1}});
  const exec::Replayed replayed =
      exec::replay(document_of(pipeline), pipeline.topology,
                   {.iterations = 1,
                    .pace = Factor{2 * kOne.billionths},
                    .slow_links = {{{0}, {1}, Factor{3 * kOne.billionths}}},
                    .make_backend = replayed_on_gpu});
  std::map<std::int32_t, Duration> computed;
  for (const TimedAction& timed : replayed.timeline.actions) {
    const bool is_first_stage = timed.action.stage.value == 0;
    const bool is_forward = timed.action.kind == ActionKind::Forward;
    if (is_first_stage && is_forward) computed[timed.action.index] = timed.end;
  }
  int messages = 0;
  for (const TimedAction& timed : replayed.timeline.actions) {
    if (timed.action.kind != ActionKind::SendActivation) continue;
    ++messages;
    const Duration from = computed.at(timed.action.index);
    CHECK(timed.start >= from);
    CHECK((timed.end - from).ns >= 6'000'000 - kLate);
  }
  CHECK(messages == 2);
}

TEST_CASE("what is replayed on GPUs may pass through the host") {
  Dice dice(6402);
  const Pipeline pipeline = random_family_pipeline(dice);
  const PlanDocument document = document_of(pipeline);
  const exec::Replayed direct =
      exec::replay(document, pipeline.topology,
                   {.iterations = 1, .paces_links = false, .make_backend = replayed_on_gpu});
  exec::Replay job(document, pipeline.topology,
                   {.iterations = 1, .paces_links = false, .make_backend = replayed_on_gpu});
  exec::ThreadNetwork network(pipeline.topology, job.devices(), {});
  std::optional<exec::Replayed> replayed;
  side_by_side(job.devices().size(), [&](std::size_t place) {
    const auto end = network.end_of(job.devices()[place]);
    ThroughHost host(*end);
    std::optional<exec::Replayed> result = job.run(place, host);
    if (result) replayed = std::move(result);
  });
  REQUIRE(replayed.has_value());
  CHECK(replayed->sent == direct.sent);
  CHECK(done_in(*replayed) == done_in(direct));
}

}  // namespace
}  // namespace dapple
