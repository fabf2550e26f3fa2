#include "search/bounds/order_bound.h"

#include <algorithm>

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
  const auto part = [&](std::int64_t ns) { return Duration{-divide_up(-ns, lanes)}; };
  const Duration most_above =
      line.slope < Duration{} ? part((lanes - 1) * line.slope.ns) : Duration{};
  return {.at = line.at + most_above, .slope = part(line.slope.ns)};
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
    // Those of its first lane, which come at intervals of as many micro-batches as there are lanes.
    const std::int64_t all = divide_up(num_micro_batches, stage.lanes);
    const Duration begin = before.end + stage.start;
    const Duration after =
        stage.start + std::max(before.end + stage.finish, before.span + stage.back);
    const Duration both = stage.forward + stage.backward;
    const Duration pace =
        std::max(stage.lanes * std::max(before.slowest, stage.slowest_before), stage.forward);
    // (O1): K forwards at the pace at which they arrive, then all backwards and the other forwards.
    const DepthLine first_backward{.at = after + all * both + stage.forward - pace,
                                   .slope = pace - stage.forward};
    if (first_backward.slope > Duration{}) {
      large_depth_waits.push_back(of_pipeline(first_backward, stage.lanes));
    }
    // (O2): the last K backwards follow each other, and an earlier stage may be slower at them.
    if (slowest_backward != nullptr && slowest_backward->backward_pace > stage.backward &&
        stage.lanes == 1) {
      const OrderedStage& slow = *slowest_backward;
      const Duration then = stage.start + stage.back - slow.back +
                            std::max(before.end + slow.finish, before.span + slow.back);
      large_depth_waits.push_back(
          {.at = then + all * both + stage.forward - pace + stage.backward - slow.backward_pace,
           .slope = pace - both + slow.backward_pace});
    }
    // (O3): the same until the last forward, which M - K backwards and all other forwards precede.
    const DepthLine last_forward{.at = begin + all * both - pace + stage.tail,
                                 .slope = pace - both};
    // (O4): at the beginning or at the end the stage waits for a round trip, as in (B3).
    const DepthLine small_depth_waits[] = {
        last_forward,
        {.at = after + stage.round_trip + (all - 1) * stage.backward + all * stage.forward,
         .slope = Duration{} - stage.forward},
        {.at = after + stage.round_trip + (all - 1) * stage.forward + all * stage.backward,
         .slope = Duration{} - stage.backward}};
    const std::int64_t most =
        std::min(std::min(stage.most_in_flight, all) * stage.lanes, num_micro_batches);
    for (const DepthLine& of_lane : small_depth_waits) {
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
    if (stage.lanes == 1 &&
        (slowest_backward == nullptr || stage.backward_pace > slowest_backward->backward_pace)) {
      slowest_backward = &stage;
    }
  }
  return bound;
}

}  // namespace dapple::search
