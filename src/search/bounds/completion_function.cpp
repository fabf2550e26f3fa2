#include "search/bounds/completion_function.h"

#include <algorithm>

namespace dapple::search {
namespace {

/// Adds the trade-off of the stage's depth K (C4). The first backward waits for K forwards, which
/// arrive no faster than `function.slowest`, and the last forward waits for M - K backwards. One
/// bound rises with K and the other one falls, so no depth makes the end earlier than where they
/// cross. `function.end` is the earliest start of the stage's first forward, and `span` adds the
/// time from its last backward to the end of the iteration.
void add_depth_tradeoff(CompletionFunction& result, const CompletionFunction& function,
                        const StageBound& stage, Duration span, const StageWork& work) {
  const std::int64_t micro_batches = work.num_micro_batches;
  result.crossing = function.crossed(stage.forward);
  result.tail_parts = function.tail_parts;
  // Up to this tail the bound without the trade-off does not grow; beyond it, it grows faster than
  // this term.
  const Duration tail = std::max(Duration{}, result.own - result.last);
  const Duration both = stage.forward + stage.backward;
  // A lane has every n-th of the micro-batches that arrive.
  const Duration pace = work.lanes * function.slowest;
  const Duration rise = std::max(pace, stage.forward) - stage.forward;
  const Duration fall = stage.backward - rise;
  if (rise > Duration{} && fall > Duration{}) {
    const Duration rising = span + micro_batches * both - rise;
    // The tail behind is still to be added to this one.
    const Duration falling = function.end + micro_batches * both - rise;
    CompletionFunction other;
    other.crossing = {
        divide_down(Wide{rising.ns} * fall.ns + Wide{falling.ns} * rise.ns, stage.backward.ns)};
    other.tail_parts = static_cast<std::int32_t>(
        divide_down(Wide{rise.ns} * CompletionFunction::kTailParts, stage.backward.ns));
    if (other.crossed(tail) > result.crossed(tail)) {
      result.crossing = other.crossing;
      result.tail_parts = other.tail_parts;
    }
  }
  if (result.crossed(tail) > result.own) return;
  result.crossing = Duration{};
  result.tail_parts = 0;
}

}  // namespace

Duration completed(const CompletionFunction& function, const BoundLabel& label) {
  return std::max({function.end + label.end, function.last + label.tail, function.span + label.span,
                   function.trip + label.round_trip,
                   function.waves * label.round_trip + function.steep, function.crossed(label.tail),
                   function.own});
}

CompletionFunction with_stage(const CompletionFunction& function, const StageBound& stage,
                              const StageWork& work) {
  const std::int64_t micro_batches = work.num_micro_batches;
  const Duration both = stage.forward + stage.backward;
  const std::int64_t depth = std::min(stage.depth_limit, micro_batches);
  const std::int64_t rest = micro_batches - 1;
  // These are span_s and last_s of (C2). Both follow from (B9): E >= V + A, and the last forward
  // waits for all others and for a slot.
  const Duration span = std::max(function.span, function.end + stage.after_backward);
  const Duration last = std::max(function.last, function.end + rest * stage.forward +
                                                    (micro_batches - depth) * stage.backward);
  CompletionFunction result;
  result.end = function.end + stage.forward;
  result.last = last + stage.forward;
  result.span = span + both;  // (B2)
  // The terms with one round trip are (B3b) and (B3c).
  const Duration drained = rest * stage.backward + (micro_batches - depth) * stage.forward;
  const Duration filled = rest * stage.forward + (micro_batches - depth) * stage.backward;
  result.trip = std::max(function.trip, span + std::max(drained, filled)) + both;
  // The term with several round trips is (B3a).
  result.waves = function.waves;
  result.steep = function.steep + function.waves * both;
  // Mostly all micro-batches fit, and a division would take longer than all else.
  const std::int64_t waves = rest < depth ? 1 : rest / depth + 1;
  const Duration steep =
      span + (rest - (waves - 1) * depth) * std::max(stage.forward, stage.backward) + waves * both;
  if (waves == 1) {
    result.trip = std::max(result.trip, steep);
  } else if (waves > result.waves || (waves == result.waves && steep > result.steep)) {
    result.waves = waves;
    result.steep = steep;
  }
  result.last_deals = work.lanes > 1;
  // Lanes send their micro-batches side by side.
  result.slowest = work.lanes > 1 ? function.slowest : std::max(function.slowest, stage.forward);
  result.sent = function.sent + stage.forward;
  result.received = function.received + stage.backward;
  // These terms are (B1) and (B8).
  result.own = std::max(
      {function.own, span + stage.work(micro_batches), last + both + stage.after_backward});
  if (!work.is_for_merging) add_depth_tradeoff(result, function, stage, span, work);
  return result;
}

CompletionFunction with_boundary(const CompletionFunction& function,
                                 const BoundaryBound& boundary) {
  const Duration there_and_back = boundary.forward + boundary.backward;
  CompletionFunction result = function;
  result.slowest = std::max(function.slowest, boundary.forward_pace);
  // The last transfer waits for the last forward, and for all others at their port (B4), (B9).
  result.last = std::max(function.last + boundary.forward, function.end + boundary.forward_queue);
  result.end += boundary.forward;
  result.crossing = function.crossed(boundary.forward);
  result.span += there_and_back;
  result.trip = std::max({function.trip + there_and_back,
                          function.span + boundary.forward_queue + boundary.backward,
                          function.span + boundary.forward + boundary.backward_queue});
  result.steep += function.waves * there_and_back;
  // `sent` leaves out the transfer back and `received` the transfer forth, because (C5) counts the
  // transfers of the next stage itself.
  result.sent = function.span + boundary.forward;
  result.received = function.span + boundary.backward;
  return result;
}

bool dominates(const CompletionFunction& a, const CompletionFunction& b) {
  return a.end <= b.end && a.last <= b.last && a.span <= b.span && a.trip <= b.trip &&
         a.own <= b.own && a.waves <= b.waves && a.steep <= b.steep && a.slowest <= b.slowest &&
         a.crossing <= b.crossing && a.tail_parts <= b.tail_parts &&
         (a.begin == CompletionFunction::kNoCut ||
          (a.begin == b.begin && a.sent <= b.sent && a.received <= b.received));
}

CompletionFunction componentwise_minimum(const CompletionFunction& a, const CompletionFunction& b) {
  CompletionFunction best;
  best.end = std::min(a.end, b.end);
  best.last = std::min(a.last, b.last);
  best.span = std::min(a.span, b.span);
  best.trip = std::min(a.trip, b.trip);
  best.steep = std::min(a.steep, b.steep);
  best.waves = std::min(a.waves, b.waves);
  best.own = std::min(a.own, b.own);
  best.crossing = std::min(a.crossing, b.crossing);
  best.tail_parts = std::min(a.tail_parts, b.tail_parts);
  best.slowest = std::min(a.slowest, b.slowest);
  best.sent = std::min(a.sent, b.sent);
  best.received = std::min(a.received, b.received);
  best.last_stage = a.last_stage;
  best.last_deals = a.last_deals;
  best.begin = a.begin == b.begin ? a.begin : CompletionFunction::kNoCut;
  return best;
}

}  // namespace dapple::search
