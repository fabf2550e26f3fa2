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
                           const BoundLabel& label, bool deals) {
  finish_ = std::max(finish_, stage.after_backward);
  if (!deals) {
    stages_.push_back({.forward = stage.forward,
                       .backward = stage.backward,
                       .backward_pace = std::max(stage.backward, boundary.backward_pace),
                       .start = start_,
                       .round_trip = label.round_trip,
                       .tail = label.tail,
                       .finish = finish_,
                       .back = back_,
                       .most_in_flight = stage.depth_limit,
                       .slowest_before = slowest_before_});
    slowest_before_ = std::max({slowest_before_, stage.forward, boundary.forward_pace});
  }
  // What ends on the next stage is followed by the transfer back and this stage's backward.
  start_ += stage.forward + boundary.forward;
  back_ += boundary.backward + stage.backward;
  finish_ += boundary.backward + stage.backward;
}

Duration bound_of_order(const std::vector<OrderedStage>& stages, const BeforePart& before,
                        std::int64_t num_micro_batches) {
  const std::int64_t all = num_micro_batches;
  // Rising lines of this stage and those in front, whose depths are no smaller.
  std::vector<DepthLine> large_depth_waits;
  const OrderedStage* slowest_backward = nullptr;
  Duration bound;
  for (const OrderedStage& stage : stages) {
    const Duration begin = before.end + stage.start;
    const Duration after =
        stage.start + std::max(before.end + stage.finish, before.span + stage.back);
    const Duration both = stage.forward + stage.backward;
    const Duration pace = std::max({before.slowest, stage.slowest_before, stage.forward});
    // (O1): K forwards at the pace at which they arrive, then all backwards and the other forwards.
    const DepthLine first_backward{.at = after + all * both + stage.forward - pace,
                                   .slope = pace - stage.forward};
    if (first_backward.slope > Duration{}) large_depth_waits.push_back(first_backward);
    // (O2): the last K backwards follow each other, and an earlier stage may be slower at them.
    if (slowest_backward != nullptr && slowest_backward->backward_pace > stage.backward) {
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
    const std::int64_t most = std::min(stage.most_in_flight, all);
    for (const DepthLine& small : small_depth_waits) {
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
    if (slowest_backward == nullptr || stage.backward_pace > slowest_backward->backward_pace) {
      slowest_backward = &stage;
    }
  }
  return bound;
}

}  // namespace dapple::search
