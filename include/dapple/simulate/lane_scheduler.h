// The computations of lanes: which is next on each lane, when its inputs are there, and how long it
// takes. The caller keeps the clock: it says when an input arrives and when a computation starts,
// and comes back when the forecast of the computation is due.
//
// The buckets of a stage become ready one after another in the lane's last backward of the stage,
// or in its last weight gradient if backwards are split. Such a computation has milestones: its
// forecast is of the next bucket, and of its end once all buckets are ready. A lane on which
// gradients are reduced meanwhile computes more slowly, by the costs' overlap slowdown.
//
// Where the collectives of passes share links with all else, what precedes a milestone or the end
// is a piece of three parts: computation, collectives beside it, and those that follow it. Only the
// first is timed here; its forecast is that of the end of the computation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/schedule/schedule.h"

namespace dapple::simulate {

/// What a computation of a stage waits for.
struct LaneInput {
  StageIndex stage;
  std::int32_t micro_batch = 0;
  /// Whether it is a gradient of the stage's output; otherwise it is an activation of a stage
  /// before.
  bool is_gradient = false;
};

class LaneScheduler {
 public:
  /// When a computation will reach its next milestone, or its end, if the lane's speed stays as it
  /// is. `version` distinguishes it from earlier forecasts of the lane.
  struct Forecast {
    Duration time;
    std::int32_t version = 0;
  };
  /// What became ready at a milestone, and what follows.
  struct Milestone {
    /// The bucket that is ready on the lane.
    std::size_t bucket = 0;
    Forecast next;
  };
  /// A computation that has ended.
  struct Finished {
    Action computation;
    /// Whether the lane has now computed all gradients of the computation's stage.
    bool made_all_gradients = false;
  };

  /// Keeps references into both arguments. Requires: every lane computes each of its stages for
  /// each of its micro-batches, and `costs` are those of the schedule's plan. O(lanes *
  /// micro-batches). `shares_collectives` says whether collectives that pass NICs are left to the
  /// caller.
  LaneScheduler(const Schedule& schedule, const PlanCost& costs, bool shares_collectives = false);

  /// Prepares rest(). Requires: nothing has started. O(actions).
  void sum_up_rest();
  /// Lower bound on the time from the start of the lane's next computation to the end of the
  /// iteration: that of the computations that the lane has left or, up to its last gradient, of
  /// these and the passes of that gradient through the stages in front. Requires: is_waiting(lane),
  /// and sum_up_rest() was called.
  Duration rest(LaneIndex lane) const {
    const LaneState& state = lanes_[lane.position()];
    return state.rest[state.next];
  }

  /// Whether the lane has computed everything.
  bool is_done(LaneIndex lane) const { return lanes_[lane.position()].is_done(); }

  /// Whether the lane computes nothing and has a computation left.
  bool is_waiting(LaneIndex lane) const {
    const LaneState& state = lanes_[lane.position()];
    return !state.busy && !state.is_done();
  }

  /// Returns the computation that is under way or, if the lane waits, the next one. Requires: the
  /// lane is not done.
  const Action& computation(LaneIndex lane) const { return lanes_[lane.position()].computation(); }

  /// Notes that an input of a lane arrives at `moment`, which may lie in the future. A forward
  /// waits for one from the stage before and from each of PlanCost::skips to its stage, a backward
  /// for one from the stage behind and from each of them from its stage.
  void expect(LaneIndex lane, const LaneInput& input, Duration moment);

  /// Returns when the input of the next computation is there; infinite if that is not known yet.
  /// The moment is zero for a computation without input, such as an optimizer step, for which the
  /// caller knows whether the gradients are reduced. Requires: is_waiting(lane).
  Duration input_time(LaneIndex lane) const;

  /// Whether the next computation may be started before its input has arrived, at the moment at
  /// which it will: its only forecast is that of its end, and nothing changes its speed. Requires:
  /// is_waiting(lane).
  bool may_start_ahead(LaneIndex lane) const {
    const LaneState& state = lanes_[lane.position()];
    return !may_slow_down_ && !shares_collectives_ &&
           milestones_of(state, state.computation()) == 0;
  }

  /// Starts the next computation. Requires: is_waiting(lane), and start >= input_time(lane).
  Forecast start(LaneIndex lane, Duration start);

  /// Whether a forecast of the lane has not been superseded by a later one.
  bool is_current(LaneIndex lane, std::int32_t version) const {
    return lanes_[lane.position()].version == version;
  }

  /// Whether the current forecast is of a milestone, not of the end. Requires: a computation is
  /// under way.
  bool has_milestone(LaneIndex lane) const {
    const LaneState& state = lanes_[lane.position()];
    return state.milestone < state.milestones;
  }

  /// Returns the collectives of the current piece that are left to the caller. Alone on idle links
  /// they and the piece's computation take as long as the piece's costs. Requires: a computation is
  /// under way.
  const PassTraffic& traffic(LaneIndex lane) const { return lanes_[lane.position()].traffic; }

  /// Notes that the computation of the current piece has ended, whose forecast is due.
  void end_computing(LaneIndex lane) { lanes_[lane.position()].has_computed = true; }
  /// Whether the computation of the current piece has ended, and only its collectives are left.
  bool has_computed(LaneIndex lane) const { return lanes_[lane.position()].has_computed; }

  /// Passes the milestone that is due. Requires: has_milestone(lane).
  Milestone pass_milestone(LaneIndex lane, Duration now);

  /// Ends the computation under way, whose end is due. Requires: there is one, and
  /// !has_milestone(lane).
  Finished finish(LaneIndex lane);

  /// Notes whether gradients are reduced on the lane from `now` on, which slows its computations
  /// down, but not its collectives. Returns the new forecast of the computation under way if its
  /// speed changes. What is left of it is rounded up to a whole nanosecond.
  std::optional<Forecast> set_reducing(LaneIndex lane, bool reducing, Duration now);

 private:
  /// The inputs of one kind of a stage, by the lane's own micro-batches.
  struct Inputs {
    /// Those of a micro-batch that several stages send.
    struct Several {
      std::int32_t left = 0;
      Duration latest;
    };
    // When all of them are there, which may lie in the future; infinite if that is not known yet.
    std::vector<Duration> here;
    // Empty if one stage sends them, or none.
    std::vector<Several> several;

    void expect(std::size_t micro_batch, Duration moment) {
      if (several.empty()) {
        here[micro_batch] = moment;
        return;
      }
      Several& some = several[micro_batch];
      some.latest = std::max(some.latest, moment);
      if (--some.left == 0) here[micro_batch] = some.latest;
    }
  };
  /// One of a lane's stages.
  struct Chunk {
    const StageCost* cost = nullptr;
    Duration forward;
    Duration backward;
    Duration input_gradient;
    Duration weight_gradient;

    Inputs activations;
    Inputs gradients;

    // When buckets become ready, from the start of the backward or of the weight gradient.
    const std::vector<Duration>* bucket_ready = nullptr;
    const std::vector<Duration>* bucket_ready_in_weights = nullptr;
    // What its passes take of NICs, and what of the last ones comes before each bucket; nothing
    // unless that is left to the caller.
    StageTraffic traffic;
    std::vector<PassTraffic> traffic_before_bucket;
    std::vector<PassTraffic> traffic_before_bucket_in_weights;
    // The number of micro-batches whose weight gradients have not been started.
    std::int32_t weight_gradients_left = 0;
  };
  struct LaneState {
    // The number of lanes to which the stages' micro-batches are dealt in turn.
    std::int32_t dealt_to = 1;
    std::vector<Chunk> chunks;

    // The schedule's list, of which the computations are executed; the actions of other streams
    // follow from them.
    const std::vector<Action>* actions = nullptr;
    // The position of the next or current computation, or the number of actions if none is left.
    std::size_t next = 0;

    // By position in the list, what sum_up_rest() finds.
    std::vector<Duration> rest;

    bool is_done() const { return next == actions->size(); }
    const Action& computation() const { return (*actions)[next]; }
    void skip_communication() {
      while (!is_done() && stream_of(computation().kind) != Stream::Compute) ++next;
    }
    bool busy = false;
    bool reducing = false;

    // The milestones of the current computation, and how many it has passed.
    std::size_t milestones = 0;
    std::size_t milestone = 0;
    // The collectives of the current piece, and whether only these are left of it.
    PassTraffic traffic;
    bool has_computed = false;
    // The work to the next milestone or the end, as of `work_since`. It is in nanoseconds times
    // billionths, so that it is an integer for any slowdown.
    Wide work_left = 0;
    Duration work_since;
    // The version of the current forecast.
    std::int32_t version = 0;
  };

  static Inputs make_inputs(std::int64_t senders, std::int64_t micro_batches);
  static Chunk make_chunk(const Lane& source, StageIndex stage, std::int64_t micro_batches,
                          const PlanCost& costs);
  static void add_traffic(const Lane& source, Chunk& chunk);
  const Chunk& chunk_of(const LaneState& lane, StageIndex stage) const {
    return lane.chunks[chunk_of_stage_[stage.position()]];
  }
  Chunk& chunk_of(LaneState& lane, StageIndex stage) const {
    return lane.chunks[chunk_of_stage_[stage.position()]];
  }
  /// Returns the ordinal of a micro-batch among those of a lane: all, or every n-th if dealt.
  static std::size_t own_number(const LaneState& lane, std::int32_t micro_batch) {
    return static_cast<std::size_t>(lane.dealt_to == 1 ? micro_batch : micro_batch / lane.dealt_to);
  }
  Duration length_of(const LaneState& lane, const Action& action) const;
  /// Returns the number of buckets that become ready in an action: those of the stage if it
  /// computes the lane's last gradients of the stage, else zero.
  std::size_t milestones_of(const LaneState& lane, const Action& action) const {
    if (!makes_weight_gradient(action.kind)) return 0;
    const Chunk& chunk = chunk_of(lane, action.stage);
    return chunk.weight_gradients_left == 1 ? chunk.cost->buckets.size() : 0;
  }
  Duration length_to_milestone(const LaneState& lane) const;
  PassTraffic traffic_to_milestone(const LaneState& lane, Duration length) const;
  /// Returns how much work a lane does per nanosecond.
  std::int64_t speed_of(const LaneState& lane) const {
    return lane.reducing ? kOne.billionths : slowdown_.billionths;
  }
  Forecast forecast_from(LaneState& lane, Duration now) const;
  Forecast forecast(LaneState& lane) const;

  const Factor slowdown_;
  const bool may_slow_down_;
  const bool shares_collectives_;
  std::vector<LaneState> lanes_;
  // By stage, its position among those of its lanes.
  std::vector<std::size_t> chunk_of_stage_;
};

// These are called for every computation of a simulation, and are therefore inline.

inline void LaneScheduler::expect(LaneIndex index, const LaneInput& input, Duration moment) {
  LaneState& lane = lanes_[index.position()];
  Chunk& chunk = chunk_of(lane, input.stage);
  Inputs& inputs = input.is_gradient ? chunk.gradients : chunk.activations;
  inputs.expect(own_number(lane, input.micro_batch), moment);
}

inline Duration LaneScheduler::input_time(LaneIndex index) const {
  const LaneState& lane = lanes_[index.position()];
  const Action& action = lane.computation();
  switch (action.kind) {
    case ActionKind::Forward:
      return chunk_of(lane, action.stage).activations.here[own_number(lane, action.index)];
    case ActionKind::Backward:
    case ActionKind::InputGradient:
      return chunk_of(lane, action.stage).gradients.here[own_number(lane, action.index)];
    default:  // a weight gradient, which its input gradient precedes on the lane, or a step
      return {};
  }
}

inline LaneScheduler::Forecast LaneScheduler::start(LaneIndex index, Duration start) {
  LaneState& lane = lanes_[index.position()];
  const Action& action = lane.computation();
  lane.milestones = milestones_of(lane, action);
  lane.milestone = 0;
  lane.busy = true;
  if (makes_weight_gradient(action.kind)) --chunk_of(lane, action.stage).weight_gradients_left;
  if (!may_slow_down_ && !shares_collectives_ && lane.milestones == 0) {
    return {start + length_of(lane, action), lane.version};
  }
  return forecast_from(lane, start);
}

inline LaneScheduler::Finished LaneScheduler::finish(LaneIndex index) {
  LaneState& lane = lanes_[index.position()];
  const Action action = lane.computation();
  ++lane.next;
  lane.skip_communication();
  lane.busy = false;
  return {action, makes_weight_gradient(action.kind) &&
                      chunk_of(lane, action.stage).weight_gradients_left == 0};
}

inline Duration LaneScheduler::length_of(const LaneState& lane, const Action& action) const {
  const Chunk& chunk = chunk_of(lane, action.stage);
  switch (action.kind) {
    case ActionKind::Forward:
      return chunk.forward;
    case ActionKind::Backward:
      return chunk.backward;
    case ActionKind::InputGradient:
      return chunk.input_gradient;
    case ActionKind::WeightGradient:
      return chunk.weight_gradient;
    default:
      return chunk.cost->bucket_steps.empty()
                 ? chunk.cost->optimizer_step
                 : chunk.cost->bucket_steps[static_cast<std::size_t>(action.index)];
  }
}

}  // namespace dapple::simulate
