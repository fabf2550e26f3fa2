#include "search/bounds/order_bound.h"

#include <algorithm>
#include <array>

namespace dapple::search {
namespace {

/// A lower bound on the plan's time as a linear function of a depth K: at + K * slope.
struct DepthLine {
  Duration at;
  Duration slope;

  Duration operator()(std::int64_t depth) const { return at + depth * slope; }
};

/// The minimum over all depths from 1 to `most` of the maximum of a falling and a rising line (O5).
/// It is taken over real depths and rounded down.
Duration lowest_crossing(const DepthLine& falling, const DepthLine& rising, std::int64_t most) {
  if (falling(most) >= rising(most)) return falling(most);
  if (rising(1) >= falling(1)) return rising(1);
  const Wide fall = -falling.slope.ns;
  const Wide rise = rising.slope.ns;
  return {divide_down(falling.at.ns * rise + rising.at.ns * fall, fall + rise)};
}

}  // namespace

BoundaryTimes times_of(const BoundaryBound& boundary) {
  return {.forward = boundary.forward,
          .backward = boundary.backward,
          .forward_pace = boundary.forward_pace,
          .backward_pace = boundary.backward_pace};
}

void OrderedStages::clear() {
  stages_.clear();
  start_ = finish_ = back_ = slowest_before_ = {};
}

void OrderedStages::append(const StageBound& stage, const BoundaryTimes& boundary,
                           const BoundLabel& label, std::int64_t lanes) {
  finish_ = std::max(finish_, stage.after_backward);
  stages_.push_back({.forward = stage.forward,
                     .backward = stage.backward,
                     .backward_pace = std::max(stage.backward, boundary.backward_pace),
                     .start = start_,
                     .round_trip = label.round_trip,
                     .tail = label.tail,
                     .finish = finish_,
                     .back = back_,
                     .most_in_flight = stage.depth_limit,
                     .slowest_before = slowest_before_,
                     .lanes = lanes});
  // What ends on the next stage is followed by the transfer back and this stage's backward.
  start_ += stage.forward + boundary.forward;
  back_ += boundary.backward + stage.backward;
  finish_ += boundary.backward + stage.backward;
  slowest_before_ = std::max(slowest_before_, boundary.forward_pace);
  // Lanes send their micro-batches side by side.
  if (lanes == 1) slowest_before_ = std::max(slowest_before_, stage.forward);
}

namespace {

/// Returns a line that is no higher, as a function of the depth D of the pipeline, than one of the
/// depth of each of `lanes` lanes, which is D / lanes, rounded up (L3). Rounded down.
DepthLine of_pipeline(const DepthLine& line, std::int64_t lanes) {
  if (lanes == 1) return line;
  if (line.slope >= Duration{}) {
    return {.at = line.at, .slope = {divide_down(line.slope.ns, lanes)}};
  }
  const std::int64_t fall = -line.slope.ns;
  return {.at = line.at - Duration{divide_up((lanes - 1) * fall, lanes)},
          .slope = Duration{} - Duration{divide_up(fall, lanes)}};
}

/// A stage of whose first lane the lines are, and what stands in front of it.
struct StageTimes {
  const OrderedStage& stage;
  // The micro-batches of its first lane.
  std::int64_t micro_batches;
  // The start of its first forward.
  Duration begin;
  // The same, and the time from its last backward to the end of the iteration.
  Duration after;
  // The interval between the micro-batches that arrive at the lane.
  Duration pace;

  Duration both() const { return stage.forward + stage.backward; }
};

StageTimes stage_times(const OrderedStage& stage, const BeforePart& before,
                       std::int64_t num_micro_batches) {
  return {.stage = stage,
          .micro_batches = divide_up(num_micro_batches, stage.lanes),
          .begin = before.end + stage.start,
          .after = stage.start + std::max(before.end + stage.finish, before.span + stage.back),
          .pace = std::max(stage.lanes * std::max(before.slowest, stage.slowest_before),
                           stage.forward)};
}

/// Computes (O1): K forwards at the pace at which they arrive, then all backwards and the other
/// forwards.
DepthLine wait_for_first_backward(const StageTimes& times) {
  return {.at = times.after + times.micro_batches * times.both() + times.stage.forward - times.pace,
          .slope = times.pace - times.stage.forward};
}

/// Computes (O2): the last K backwards follow each other, and `slow`, an earlier stage, is slower
/// at them.
DepthLine wait_for_slow_backwards(const StageTimes& times, const OrderedStage& slow,
                                  const BeforePart& before) {
  const OrderedStage& stage = times.stage;
  const Duration then = stage.start + stage.back - slow.back +
                        std::max(before.end + slow.finish, before.span + slow.back);
  return {.at = then + times.micro_batches * times.both() + stage.forward - times.pace +
                stage.backward - slow.backward_pace,
          .slope = times.pace - times.both() + slow.backward_pace};
}

/// Computes what falls with the depth: (O3), until the last forward, which M - K backwards and all
/// other forwards precede, and (O4), where the stage waits for a round trip at the beginning or at
/// the end, as in (B3).
std::array<DepthLine, 3> small_depth_waits(const StageTimes& times) {
  const OrderedStage& stage = times.stage;
  const std::int64_t all = times.micro_batches;
  return {{{.at = times.begin + all * times.both() - times.pace + stage.tail,
            .slope = times.pace - times.both()},
           {.at = times.after + stage.round_trip + (all - 1) * stage.backward + all * stage.forward,
            .slope = Duration{} - stage.forward},
           {.at = times.after + stage.round_trip + (all - 1) * stage.forward + all * stage.backward,
            .slope = Duration{} - stage.backward}}};
}

}  // namespace

Duration bound_of_order(const std::vector<OrderedStage>& stages, const BeforePart& before,
                        std::int64_t num_micro_batches) {
  // Rising lines of this stage and those in front, whose depths are no smaller: depths of the
  // pipeline where stages deal their micro-batches.
  std::vector<DepthLine> large_depth_waits;
  const OrderedStage* slowest_backward = nullptr;
  Duration bound;
  for (const OrderedStage& stage : stages) {
    const StageTimes times = stage_times(stage, before, num_micro_batches);
    const DepthLine first_backward = wait_for_first_backward(times);
    if (first_backward.slope > Duration{}) {
      large_depth_waits.push_back(of_pipeline(first_backward, stage.lanes));
    }
    const bool deals = stage.lanes > 1;
    if (!deals && slowest_backward != nullptr && slowest_backward->backward_pace > stage.backward) {
      large_depth_waits.push_back(wait_for_slow_backwards(times, *slowest_backward, before));
    }
    const std::int64_t most = std::min(
        std::min(stage.most_in_flight, times.micro_batches) * stage.lanes, num_micro_batches);
    for (const DepthLine& of_lane : small_depth_waits(times)) {
      const DepthLine small = of_pipeline(of_lane, stage.lanes);
      // A line that does not fall is least at a depth of one.
      if (small.slope >= Duration{}) {
        bound = std::max(bound, small(1));
        continue;
      }
      bound = std::max(bound, small(most));
      for (const DepthLine& large : large_depth_waits) {
        bound = std::max(bound, lowest_crossing(small, large, most));
      }
    }
    if (!deals &&
        (slowest_backward == nullptr || stage.backward_pace > slowest_backward->backward_pace)) {
      slowest_backward = &stage;
    }
  }
  return bound;
}

}  // namespace dapple::search
