#include "dapple/simulate/simulate.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/simulate/device_memory.h"
#include "simulate/event_queue.h"
#include "simulate/transport.h"

namespace dapple::simulate {
namespace {

std::size_t at(std::int32_t position) {
  return static_cast<std::size_t>(position);
}

/// Returns the costs without transfers and reductions that are free according to the options.
PlanCost without_free(const PlanCost& costs, const SimulationOptions& options) {
  PlanCost result = costs;
  if (options.free_transfers) {
    for (BoundaryCost& boundary : result.boundaries) {
      boundary.forward.assign(1, TransferCost{});
      boundary.backward.assign(1, TransferCost{});
    }
  }
  if (options.free_all_reduce) {
    for (StageCost& stage : result.stages) {
      for (AllReduceCost& bucket : stage.buckets) bucket = AllReduceCost{};
    }
    for (TiedCost& tie : result.ties) tie.reduction = AllReduceCost{};
  }
  return result;
}

class Engine {
 public:
  Engine(const Schedule& schedule, const PlanCost& costs, const Topology& topology,
         const SimulationOptions& options);
  SimulationResult run();

 private:
  /// Work is in nanoseconds times billionths, so that it is an integer for any slowdown.
  static constexpr std::int64_t kSlowSpeed = kOne.billionths;
  /// The time of arrival of something that has not arrived.
  static constexpr Duration kUnknown{INT64_MAX};

  /// One of a lane's stages.
  struct Chunk {
    Duration forward;
    Duration backward;
    Duration input_gradient;
    Duration weight_gradient;

    // The times of arrival, which may lie in the future, by the lane's own micro-batches.
    std::vector<Duration> activation_here;
    std::vector<Duration> gradient_here;

    // When buckets become ready, from the start of the backward or of the weight gradient.
    const std::vector<Duration>* bucket_ready = nullptr;
    const std::vector<Duration>* bucket_ready_in_weights = nullptr;
    // The number of micro-batches whose weight gradients have not been started.
    std::int32_t gradients_left = 0;
  };
  struct LaneState {
    std::int32_t group = 0;
    // The number of lanes to which the stages' micro-batches are dealt in turn.
    std::int32_t dealt_to = 1;
    std::vector<Chunk> chunks;

    // The schedule's list, of which the engine executes the computations; the actions of other
    // streams follow from them.
    const std::vector<Action>* actions = nullptr;
    // The position of the next or current computation, or the number of actions if none is left.
    std::size_t next = 0;

    bool is_done() const { return next == actions->size(); }
    const Action& computation() const { return (*actions)[next]; }
    void skip_communication() {
      while (!is_done() && stream_of(computation().kind) != Stream::Compute) ++next;
    }
    bool busy = false;
    Duration started;
    // The position in actions_ of the current computation.
    std::size_t record = 0;

    // A paced computation proceeds from one milestone to the next, and from the last to its end.
    // Its milestones are the moments at which buckets become ready. Computations are paced where
    // reductions may slow them down, and if they compute a stage's last gradients.
    bool paced = false;
    // The buckets that become ready in the computation, and how many of them are ready.
    std::size_t buckets = 0;
    std::size_t milestone = 0;
    // The work to the next milestone, as of `work_since`.
    Wide work_left = 0;
    Duration work_since;
    // The version of the announced end.
    std::int32_t version = 0;
  };
  struct StageState {
    // The position of the stage among those of its lanes.
    std::int32_t chunk = 0;
    std::int32_t group = 0;
    // By bucket, the number of lanes on which it is ready.
    std::vector<std::int32_t> lanes_ready;
    std::int32_t buckets_done = 0;
    // The ties that include some of the stage's gradients.
    std::vector<std::int32_t> ties;
  };
  /// Lanes with the same stages, which reduce gradients together, one bucket after another.
  struct GroupState {
    std::int32_t first_lane = 0;
    std::int32_t lane_count = 0;
    std::vector<Reduction> reductions;
    // The position of the next reduction, and the number of ties still to be reduced.
    std::size_t next = 0;
    std::int32_t ties_left = 0;
    bool reducing = false;
    // Whether computation is slowed down, as it is while the group reduces.
    bool slowed = false;
    Duration reduction_started;
  };
  /// The groups that reduce a tie, all of them at once.
  struct TieState {
    std::vector<std::int32_t> groups;  // ascending
    // The number of pairs of a stage of the tie and a lane of it that have not yet computed all of
    // their gradients.
    std::int32_t gradients_left = 0;
  };

  void set_up(const Schedule& schedule);
  void set_up_ties();
  void set_up_transport(const Schedule& schedule, const Topology& topology);
  void set_up_lane(const Lane& source, std::int32_t index, std::int64_t micro_batches);
  Chunk make_chunk(const Lane& source, StageIndex stage, std::int64_t micro_batches) const;
  void serve(const Event& event);
  void try_start(std::int32_t lane, Duration now);
  /// Returns when everything that an action needs has arrived, or kUnknown.
  Duration ready_at(const LaneState& lane, const Action& action) const;
  bool is_reduced_for(const Action& step) const;
  bool is_by_bucket(StageIndex stage) const {
    return !costs_.stages[stage.position()].bucket_steps.empty();
  }
  const Chunk& chunk_of(const LaneState& lane, StageIndex stage) const {
    return lane.chunks[at(stages_[stage.position()].chunk)];
  }
  /// Returns the ordinal of a micro-batch among those of a lane: all, or every n-th if dealt.
  static std::size_t own_number(const LaneState& lane, std::int32_t micro_batch) {
    return at(lane.dealt_to == 1 ? micro_batch : micro_batch / lane.dealt_to);
  }
  struct Arrival {
    std::int32_t micro_batch = 0;
    bool is_gradient = false;
    Duration moment;
  };
  void arrived(std::int32_t inbox, std::int32_t micro_batch, bool is_gradient, Duration now);
  void expect(std::int32_t inbox, const Arrival& arrival, Duration now);
  Duration length_of(const LaneState& lane, const Action& action) const;
  void computation_done(std::int32_t lane, std::int32_t version, Duration now);
  void finish_action(std::int32_t lane, Duration now);
  void send(std::int32_t lane, const Action& action, Duration now);
  void gradients_made(StageIndex stage, Duration now);

  std::size_t buckets_of(const LaneState& lane, const Action& action) const;
  void begin_paced(std::int32_t lane, Duration now);
  void announce_milestone(std::int32_t lane, Duration now);
  void change_speed(GroupState& group, bool slow, Duration now);
  std::int64_t speed_of(const LaneState& lane) const;
  Wide work_to_milestone(const LaneState& lane) const;
  void bucket_ready(StageIndex stage, std::size_t bucket, Duration now);
  bool is_tie(const Reduction& reduction) const { return at(reduction.reducer) >= stages_.size(); }
  const TieState& tie_of(const Reduction& reduction) const {
    return ties_[at(reduction.reducer) - stages_.size()];
  }
  bool can_reduce(const GroupState& group) const;
  void start_next_reduction(std::int32_t group, Duration now);
  void reduction_done(const Reduction& reduction, Duration now);
  void record_reduction(const GroupState& group, const Reduction& reduction, Duration now);

  void announce(Duration time, Event::Kind kind, std::int32_t subject, std::int32_t detail) {
    queue_.announce(to_ticks(time), kind, subject, detail);
  }
  void record(const TimedAction& timed) {
    if (options_.record) actions_.push_back(timed);
  }

  const PlanCost& costs_;
  const SimulationOptions& options_;
  const bool may_slow_down_;
  EventQueue queue_;
  std::vector<LaneState> lanes_;
  std::vector<StageState> stages_;
  std::vector<GroupState> groups_;
  std::vector<TieState> ties_;
  std::vector<Inbox> inboxes_;
  // Whether lanes may start computations ahead of time, on inputs that are still to arrive. This
  // requires that no two lanes send over the same boundary, so that the order in which they send at
  // equal times does not matter.
  bool looks_ahead_ = false;
  std::vector<BoundaryParts> boundaries_;
  std::vector<TimedAction> actions_;
  std::unique_ptr<TransportLayer> transport_;
  Duration end_;
  std::int64_t events_ = 0;
};

Engine::Engine(const Schedule& schedule, const PlanCost& costs, const Topology& topology,
               const SimulationOptions& options)
    : costs_(costs), options_(options), may_slow_down_(costs.overlap_slowdown != kOne) {
  set_up(schedule);
  set_up_transport(schedule, topology);
}

void Engine::set_up(const Schedule& schedule) {
  if (options_.record) {
    std::size_t most = 0;
    for (const Lane& lane : schedule.lanes) most += lane.actions.size();
    actions_.reserve(most);
  }
  stages_.resize(costs_.stages.size());
  for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
    const std::vector<StageIndex>& stages = schedule.lanes[i].stages;
    const bool is_new = i == 0 || stages != schedule.lanes[i - 1].stages;
    if (is_new) groups_.emplace_back().first_lane = static_cast<std::int32_t>(i);
    ++groups_.back().lane_count;
    for (std::size_t chunk = 0; chunk < stages.size(); ++chunk) {
      StageState& stage = stages_[stages[chunk].position()];
      stage.chunk = static_cast<std::int32_t>(chunk);
      stage.group = static_cast<std::int32_t>(groups_.size()) - 1;
      stage.lanes_ready.assign(costs_.stages[stages[chunk].position()].buckets.size(), 0);
    }
  }
  set_up_ties();
  lanes_.resize(schedule.lanes.size());
  for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
    set_up_lane(schedule.lanes[i], static_cast<std::int32_t>(i), schedule.num_micro_batches);
  }
}

void Engine::set_up_ties() {
  for (std::size_t t = 0; t < costs_.ties.size(); ++t) {
    TieState& tie = ties_.emplace_back();
    for (const StageIndex index : costs_.ties[t].stages) {
      StageState& stage = stages_[index.position()];
      stage.ties.push_back(static_cast<std::int32_t>(t));
      tie.gradients_left += groups_[at(stage.group)].lane_count;
      tie.groups.push_back(stage.group);
    }
    std::sort(tie.groups.begin(), tie.groups.end());
    tie.groups.erase(std::unique(tie.groups.begin(), tie.groups.end()), tie.groups.end());
  }
}

void Engine::set_up_transport(const Schedule& schedule, const Topology& topology) {
  std::vector<StageLanes> lanes;
  for (const StageState& stage : stages_) {
    const GroupState& group = groups_[at(stage.group)];
    lanes.push_back({.first = group.first_lane,
                     .count = group.lane_count,
                     .dealt_to = lanes_[at(group.first_lane)].dealt_to,
                     .first_inbox = static_cast<std::int32_t>(inboxes_.size())});
    for (std::int32_t i = 0; i < group.lane_count; ++i) {
      inboxes_.push_back({.lane = group.first_lane + i, .chunk = stage.chunk});
    }
  }
  boundaries_ = transfer_parts(schedule, lanes, costs_);
  transport_ = make_transport({costs_, boundaries_}, topology, options_.contention,
                              {.queue = queue_, .actions = options_.record ? &actions_ : nullptr});
  looks_ahead_ = std::all_of(groups_.begin(), groups_.end(),
                             [](const GroupState& group) { return group.lane_count == 1; });
}

void Engine::set_up_lane(const Lane& source, std::int32_t index, std::int64_t micro_batches) {
  LaneState& lane = lanes_[at(index)];
  lane.group = stages_[source.stages.front().position()].group;
  lane.dealt_to = source.dealt_to;
  for (const StageIndex stage : source.stages) {
    lane.chunks.push_back(make_chunk(source, stage, micro_batches));
  }
  lane.actions = &source.actions;
  lane.skip_communication();
  GroupState& group = groups_[at(lane.group)];
  for (const Action& action : source.actions) {
    const Stream stream = stream_of(action.kind);
    if (stream == Stream::Compute) {
      if (!makes_weight_gradient(action.kind)) continue;
      ++lane.chunks[at(stages_[action.stage.position()].chunk)].gradients_left;
    } else if (stream == Stream::Collective && index == group.first_lane) {
      const bool is_tied = action.kind == ActionKind::ReduceTied;
      if (is_tied) ++group.ties_left;
      group.reductions.push_back(
          is_tied ? Reduction{.reducer = static_cast<std::int32_t>(stages_.size()) + action.index,
                              .bucket = 0}
                  : Reduction{.reducer = action.stage.value, .bucket = action.index});
    }
  }
}

Engine::Chunk Engine::make_chunk(const Lane& source, StageIndex stage,
                                 std::int64_t micro_batches) const {
  const StageCost& cost = costs_.stages[stage.position()];
  const ReplicaCost& replica = cost.replicas[at(source.replica)];
  const bool whole_stage = source.devices.size() == cost.replicas.size();
  const auto own =
      static_cast<std::size_t>((micro_batches + source.dealt_to - 1) / source.dealt_to);
  Chunk chunk;
  chunk.forward = whole_stage ? cost.forward : replica.forward;
  chunk.backward = whole_stage ? cost.backward : replica.backward;
  chunk.input_gradient = whole_stage ? cost.input_gradient : replica.input_gradient;
  chunk.weight_gradient =
      whole_stage ? cost.weight_gradient : replica.backward - replica.input_gradient;
  const bool is_apart = !whole_stage && source.dealt_to == 1;
  const BucketMoments* moments = is_apart ? &cost.moments[replica.moments] : nullptr;
  chunk.bucket_ready = is_apart ? &moments->in_backward : &cost.bucket_ready;
  chunk.bucket_ready_in_weights = is_apart ? &moments->in_weights : &cost.bucket_ready_in_weights;
  chunk.activation_here.assign(own, stage.value == 0 ? Duration{} : kUnknown);
  chunk.gradient_here.assign(own, stage.position() + 1 == stages_.size() ? Duration{} : kUnknown);
  return chunk;
}

SimulationResult Engine::run() {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    try_start(static_cast<std::int32_t>(i), Duration{});
  }
  transport_->settle(Ticks{});
  while (!queue_.empty()) {
    const Event event = queue_.next();
    queue_.pop();
    serve(event);
    if (events_ % SimulationOptions::kEventsBetweenQuestions == 0 && options_.should_stop &&
        options_.should_stop()) {
      return {.iteration = {INT64_MAX}, .events = events_, .timeline = {}};
    }
    if (queue_.empty() || queue_.next().time != event.time) transport_->settle(event.time);
  }
  for (const LaneState& lane : lanes_) { check(lane.is_done(), "a simulated schedule deadlocked"); }
  SimulationResult result;
  result.iteration = end_;
  result.events = events_;
  result.timeline.actions = std::move(actions_);
  return result;
}

void Engine::serve(const Event& event) {
  ++events_;
  // The times of all events but those of flows are already whole nanoseconds.
  const Duration now = round_up(event.time);
  switch (event.kind) {
    case Event::Kind::ComputationDone:
      computation_done(event.subject, event.detail, now);
      break;
    case Event::Kind::ActivationArrived:
      arrived(event.subject, event.detail, false, now);
      break;
    case Event::Kind::GradientArrived:
      arrived(event.subject, event.detail, true, now);
      break;
    case Event::Kind::FlowEnded:
      transport_->flow_ended(event);
      break;
    case Event::Kind::AllReduceDone:
      reduction_done({.reducer = event.subject, .bucket = event.detail}, now);
      break;
    case Event::Kind::InputReady:
      try_start(event.subject, now);
      break;
  }
}

void Engine::arrived(std::int32_t inbox, std::int32_t micro_batch, bool is_gradient, Duration now) {
  expect(inbox, {.micro_batch = micro_batch, .is_gradient = is_gradient, .moment = now}, now);
}

/// Notes that an input arrives at a moment, which is now or later.
void Engine::expect(std::int32_t inbox, const Arrival& arrival, Duration now) {
  const auto& [index, number] = inboxes_[at(inbox)];
  LaneState& lane = lanes_[at(index)];
  Chunk& chunk = lane.chunks[at(number)];
  std::vector<Duration>& here = arrival.is_gradient ? chunk.gradient_here : chunk.activation_here;
  here[own_number(lane, arrival.micro_batch)] = arrival.moment;
  try_start(index, now);
}

Duration Engine::ready_at(const LaneState& lane, const Action& action) const {
  const StageState& stage = stages_[action.stage.position()];
  switch (action.kind) {
    case ActionKind::Forward:
      return lane.chunks[at(stage.chunk)].activation_here[own_number(lane, action.index)];
    case ActionKind::Backward:
    case ActionKind::InputGradient:
      return lane.chunks[at(stage.chunk)].gradient_here[own_number(lane, action.index)];
    case ActionKind::WeightGradient:
      return {};  // its input gradient precedes it on the lane
    default:      // the optimizer step, or a part of it
      return is_reduced_for(action) ? Duration{} : kUnknown;
  }
}

/// Whether everything that a step needs is reduced: its bucket and those before it, since buckets
/// are reduced in order; for the step at the end or the step of tied parameters, also all ties of
/// the stage's group.
bool Engine::is_reduced_for(const Action& step) const {
  const StageState& stage = stages_[step.stage.position()];
  const StageCost& cost = costs_.stages[step.stage.position()];
  const bool is_by_bucket = !cost.bucket_steps.empty();
  const bool is_last = !is_by_bucket || at(step.index) + 1 == cost.bucket_steps.size();
  const std::size_t all = cost.buckets.size();
  const std::size_t awaited = is_by_bucket ? std::min(at(step.index) + 1, all) : all;
  if (at(stage.buckets_done) < awaited) return false;
  const bool needs_ties = is_by_bucket ? cost.has_tied_step() && is_last : true;
  return !needs_ties || groups_[at(stage.group)].ties_left == 0;
}

Duration Engine::length_of(const LaneState& lane, const Action& action) const {
  switch (action.kind) {
    case ActionKind::Forward:
      return chunk_of(lane, action.stage).forward;
    case ActionKind::Backward:
      return chunk_of(lane, action.stage).backward;
    case ActionKind::InputGradient:
      return chunk_of(lane, action.stage).input_gradient;
    case ActionKind::WeightGradient:
      return chunk_of(lane, action.stage).weight_gradient;
    default:
      return is_by_bucket(action.stage)
                 ? costs_.stages[action.stage.position()].bucket_steps[at(action.index)]
                 : costs_.stages[action.stage.position()].optimizer_step;
  }
}

/// Returns the number of buckets that become ready in an action: those of the stage whose last
/// gradients it computes, else zero.
std::size_t Engine::buckets_of(const LaneState& lane, const Action& action) const {
  if (!makes_weight_gradient(action.kind)) return 0;
  const StageState& stage = stages_[action.stage.position()];
  return lane.chunks[at(stage.chunk)].gradients_left == 1 ? stage.lanes_ready.size() : 0;
}

void Engine::try_start(std::int32_t index, Duration now) {
  LaneState& lane = lanes_[at(index)];
  if (lane.busy || lane.is_done()) return;
  const Action& action = lane.computation();
  const Duration ready = ready_at(lane, action);
  if (ready == kUnknown) return;
  const std::size_t buckets = buckets_of(lane, action);
  const bool is_paced = may_slow_down_ || buckets > 0;
  if (is_paced && ready > now) {
    // Events until then may change its speed.
    announce(ready, Event::Kind::InputReady, index, 0);
    return;
  }
  lane.busy = true;
  lane.started = std::max(now, ready);
  // It is recorded at its start so that actions are recorded nearly in the order of the timeline.
  lane.record = actions_.size();
  record({.lane = LaneIndex{index},
          .action = action,
          .start = lane.started,
          .end = lane.started,
          .size = {}});
  lane.buckets = buckets;
  if (makes_weight_gradient(action.kind)) {
    --lane.chunks[at(stages_[action.stage.position()].chunk)].gradients_left;
  }
  if (is_paced) {
    begin_paced(index, now);
  } else {
    announce(lane.started + length_of(lane, action), Event::Kind::ComputationDone, index,
             lane.version);
  }
}

void Engine::computation_done(std::int32_t index, std::int32_t version, Duration now) {
  LaneState& lane = lanes_[at(index)];
  if (version != lane.version) return;  // superseded by a change of speed
  if (lane.paced && lane.milestone < lane.buckets) {
    const StageIndex stage = lane.computation().stage;
    const std::size_t bucket = lane.milestone++;
    lane.work_left = work_to_milestone(lane);
    lane.work_since = now;
    announce_milestone(index, now);
    bucket_ready(stage, bucket, now);
    return;
  }
  finish_action(index, now);
}

void Engine::finish_action(std::int32_t index, Duration now) {
  LaneState& lane = lanes_[at(index)];
  const Action action = lane.computation();
  ++lane.next;
  lane.skip_communication();
  lane.busy = false;
  lane.paced = false;
  end_ = std::max(end_, now);
  if (options_.record) actions_[lane.record].end = now;
  // send() may start the lane's next computation, so this is determined before.
  const bool has_all_gradients =
      makes_weight_gradient(action.kind) && chunk_of(lane, action.stage).gradients_left == 0;
  send(index, action, now);
  if (has_all_gradients) gradients_made(action.stage, now);
  try_start(index, now);
}

/// Notes that one lane has computed all gradients of a stage; its tied gradients may be reduced.
void Engine::gradients_made(StageIndex stage, Duration now) {
  const StageState& state = stages_[stage.position()];
  if (state.ties.empty()) return;
  for (const std::int32_t tie : state.ties) --ties_[at(tie)].gradients_left;
  if (can_reduce(groups_[at(state.group)])) start_next_reduction(state.group, now);
}

void Engine::send(std::int32_t index, const Action& action, Duration now) {
  const bool is_activation = action.kind == ActionKind::Forward;
  const bool is_gradient = makes_input_gradient(action.kind);
  if (!is_activation && !is_gradient) return;
  const std::int32_t to_stage = action.stage.value + (is_gradient ? -1 : 1);
  if (to_stage < 0 || at(to_stage) == stages_.size()) return;
  const std::int32_t boundary = is_gradient ? to_stage : action.stage.value;
  const BoundaryParts& parts = boundaries_[at(boundary)];
  const DirectionParts& transfers = is_gradient ? parts.backward : parts.forward;
  const TransferParts& transfer = transfers[entry_of(action.index, transfers.size())];
  // A lane to which a micro-batch is dealt sends all of it.
  const LaneState& lane = lanes_[at(index)];
  const std::int32_t part = lane.dealt_to > 1 ? 0 : index - groups_[at(lane.group)].first_lane;
  const ActionKind kind = is_gradient ? ActionKind::SendGradient : ActionKind::SendActivation;
  record({.lane = LaneIndex{index},
          .action = {kind, action.index, action.stage},
          .start = now,
          .end = now,
          .size = transfer.sizes[at(part)]});
  const std::optional<Duration> arrival =
      transport_->send({.part = part,
                        .micro_batch = action.index,
                        .boundary = boundary,
                        .is_gradient = is_gradient,
                        .ready = now,
                        .record = static_cast<std::int32_t>(actions_.size()) - 1});
  if (!arrival) return;
  const std::int32_t inbox = transfer.receivers.front();
  if (looks_ahead_) {
    expect(inbox, {.micro_batch = action.index, .is_gradient = is_gradient, .moment = *arrival},
           now);
    return;
  }
  announce(*arrival, is_gradient ? Event::Kind::GradientArrived : Event::Kind::ActivationArrived,
           inbox, action.index);
}

Wide Engine::work_to_milestone(const LaneState& lane) const {
  const Action& action = lane.computation();
  const Chunk& chunk = chunk_of(lane, action.stage);
  const std::vector<Duration>& ready = action.kind == ActionKind::WeightGradient
                                           ? *chunk.bucket_ready_in_weights
                                           : *chunk.bucket_ready;
  const Duration length = length_of(lane, action);
  // A dealt replica may be faster than the slowest one, to which the stage's moments refer.
  const auto moment = [&](std::size_t milestone) {
    return milestone < lane.buckets ? std::min(ready[milestone], length) : length;
  };
  const Duration from = lane.milestone == 0 ? Duration{} : moment(lane.milestone - 1);
  return Wide{(moment(lane.milestone) - from).ns} * costs_.overlap_slowdown.billionths;
}

std::int64_t Engine::speed_of(const LaneState& lane) const {
  return groups_[at(lane.group)].slowed ? kSlowSpeed : costs_.overlap_slowdown.billionths;
}

void Engine::begin_paced(std::int32_t index, Duration now) {
  LaneState& lane = lanes_[at(index)];
  lane.paced = true;
  lane.milestone = 0;
  lane.work_left = work_to_milestone(lane);
  lane.work_since = now;
  announce_milestone(index, now);
}

void Engine::announce_milestone(std::int32_t index, Duration now) {
  LaneState& lane = lanes_[at(index)];
  const Duration needed{divide_up(lane.work_left, speed_of(lane))};
  announce(now + needed, Event::Kind::ComputationDone, index, ++lane.version);
}

void Engine::change_speed(GroupState& group, bool slow, Duration now) {
  if (group.slowed == slow) return;
  const auto visit_paced = [&](auto visit) {
    for (std::int32_t i = group.first_lane; i < group.first_lane + group.lane_count; ++i) {
      if (may_slow_down_ && lanes_[at(i)].paced) visit(i, lanes_[at(i)]);
    }
  };
  visit_paced([&](std::int32_t, LaneState& lane) {
    lane.work_left =
        std::max<Wide>(0, lane.work_left - Wide{(now - lane.work_since).ns} * speed_of(lane));
    lane.work_since = now;
  });
  group.slowed = slow;
  visit_paced([&](std::int32_t i, LaneState&) { announce_milestone(i, now); });
}

void Engine::bucket_ready(StageIndex index, std::size_t bucket, Duration now) {
  StageState& stage = stages_[index.position()];
  ++stage.lanes_ready[bucket];
  if (can_reduce(groups_[at(stage.group)])) start_next_reduction(stage.group, now);
}

bool Engine::can_reduce(const GroupState& group) const {
  if (group.reducing || group.next == group.reductions.size()) return false;
  const Reduction& reduction = group.reductions[group.next];
  if (!is_tie(reduction)) {
    return stages_[at(reduction.reducer)].lanes_ready[at(reduction.bucket)] == group.lane_count;
  }
  const TieState& tie = tie_of(reduction);
  return tie.gradients_left == 0 &&
         std::all_of(tie.groups.begin(), tie.groups.end(), [&](std::int32_t index) {
           const GroupState& other = groups_[at(index)];
           return !other.reducing && other.reductions[other.next].reducer == reduction.reducer;
         });
}

/// Starts the next reduction of a group, for a tie on all groups that take part.
void Engine::start_next_reduction(std::int32_t index, Duration now) {
  const Reduction reduction = groups_[at(index)].reductions[groups_[at(index)].next];
  const auto start = [&](GroupState& group) {
    ++group.next;
    group.reducing = true;
    group.reduction_started = now;
    change_speed(group, true, now);
  };
  if (is_tie(reduction)) {
    for (const std::int32_t member : tie_of(reduction).groups) start(groups_[at(member)]);
  } else {
    start(groups_[at(index)]);
  }
  transport_->reduce(reduction, now);
}

void Engine::reduction_done(const Reduction& reduction, Duration now) {
  const std::vector<std::int32_t> groups =
      is_tie(reduction) ? tie_of(reduction).groups
                        : std::vector<std::int32_t>{stages_[at(reduction.reducer)].group};
  for (const std::int32_t index : groups) {
    GroupState& group = groups_[at(index)];
    group.reducing = false;
    if (is_tie(reduction)) --group.ties_left;
    record_reduction(group, reduction, now);
  }
  if (!is_tie(reduction)) ++stages_[at(reduction.reducer)].buckets_done;
  end_ = std::max(end_, now);
  for (const std::int32_t index : groups) {
    GroupState& group = groups_[at(index)];
    if (can_reduce(group)) start_next_reduction(index, now);
    change_speed(group, group.reducing, now);
  }
  for (const std::int32_t index : groups) {
    const GroupState& group = groups_[at(index)];
    for (std::int32_t i = 0; i < group.lane_count; ++i) try_start(group.first_lane + i, now);
  }
}

void Engine::record_reduction(const GroupState& group, const Reduction& reduction, Duration now) {
  Action action{ActionKind::AllReduce, reduction.bucket, StageIndex{reduction.reducer}};
  if (is_tie(reduction)) {
    const std::size_t tie = at(reduction.reducer) - stages_.size();
    const std::vector<StageIndex>& stages = costs_.ties[tie].stages;
    // The lanes' own action names the first of their stages that takes part.
    const auto own = std::find_if(stages.begin(), stages.end(), [&](StageIndex stage) {
      return groups_[at(stages_[stage.position()].group)].first_lane == group.first_lane;
    });
    action = {ActionKind::ReduceTied, static_cast<std::int32_t>(tie), *own};
  }
  const Bytes size = reduction.cost(costs_).size;
  for (std::int32_t i = group.first_lane; i < group.first_lane + group.lane_count; ++i) {
    record({.lane = LaneIndex{i},
            .action = action,
            .start = group.reduction_started,
            .end = now,
            .size = size});
  }
}

}  // namespace

SimulationResult simulate(const Schedule& schedule, const PlanCost& costs, const Topology& topology,
                          const SimulationOptions& options) {
  const bool some_free = options.free_transfers || options.free_all_reduce;
  const PlanCost reduced = some_free ? without_free(costs, options) : PlanCost{};
  SimulationResult result = Engine(schedule, some_free ? reduced : costs, topology, options).run();
  if (!options.record) return result;
  Timeline& timeline = result.timeline;
  sort_actions(timeline);
  for (const Lane& lane : schedule.lanes) {
    timeline.lanes.push_back({lane.stages, lane.devices, lane.samples});
  }
  timeline.memory = device_memory(schedule, costs);
  return result;
}

}  // namespace dapple::simulate
