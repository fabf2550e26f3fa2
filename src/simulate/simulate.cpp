#include "dapple/simulate/simulate.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "dapple/core/error.h"
#include "event_queue.h"
#include "transport.h"

namespace dapple {
namespace {

std::size_t at(std::int32_t position) {
  return static_cast<std::size_t>(position);
}

/// Costs without what the options say is free.
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
  }
  return result;
}

class Engine {
 public:
  Engine(const Schedule& schedule, const PlanCost& costs, const Topology& topology,
         const SimulationOptions& options);
  SimulationResult run();

 private:
  /// Work counts nanoseconds times billionths, so that any slowdown leaves it whole.
  static constexpr std::int64_t kSlowSpeed = kOne.billionths;

  struct LaneState {
    std::int32_t stage = 0;
    std::int32_t replica = 0;
    std::vector<Action> computation;  // in order; the other streams follow from it
    std::size_t next = 0;
    bool busy = false;
    Duration started;
    Duration forward;
    Duration backward;
    std::vector<char> activation_here;  // by micro-batch, of those that the lane works on
    std::vector<char> gradient_here;
    std::int32_t backwards_left = 0;
    // The last backward goes from one ready bucket to the next, perhaps slowed down by the
    // reduction of earlier ones.
    bool in_last_backward = false;
    std::size_t milestone = 0;  // buckets ready so far
    Wide work_left = 0;         // to the next milestone
    Duration work_since;
    std::int32_t version = 0;  // of the announced end
  };
  struct StageState {
    std::int32_t first_lane = 0;
    std::int32_t lane_count = 0;
    std::vector<std::int32_t> lanes_ready;  // per bucket
    std::int32_t buckets_started = 0;
    std::int32_t buckets_done = 0;
    bool reducing = false;
    Duration reduction_started;
  };

  void set_up(const Schedule& schedule);
  void serve(const Event& event);
  void try_start(std::int32_t lane, Duration now);
  bool can_start(const LaneState& lane, const Action& action) const;
  /// How many micro-batches of a lane come before that one: all of them, or every n-th if dealt.
  std::size_t own_number(std::int32_t lane, std::int32_t micro_batch) const {
    return at(micro_batch / stages_[at(lanes_[at(lane)].stage)].lane_count);
  }
  void computation_done(std::int32_t lane, std::int32_t version, Duration now);
  void finish_action(std::int32_t lane, Duration now);
  void send(std::int32_t lane, const Action& action, Duration now);

  void begin_last_backward(std::int32_t lane, Duration now);
  void announce_milestone(std::int32_t lane, Duration now);
  void change_speed(StageState& stage, bool slow, Duration now);
  std::int64_t speed_of(const LaneState& lane) const;
  Wide work_to_milestone(const LaneState& lane) const;
  void bucket_ready(std::int32_t stage, std::size_t bucket, Duration now);
  void start_reduction(std::int32_t stage, Duration now);
  void reduction_done(std::int32_t stage, Duration now);

  void announce(Duration time, Event::Kind kind, std::int32_t subject, std::int32_t detail) {
    queue_.announce(to_ticks(time), kind, subject, detail);
  }
  void record(const TimedAction& timed) {
    if (options_.record) actions_.push_back(timed);
  }

  const PlanCost& costs_;
  const SimulationOptions& options_;
  EventQueue queue_;
  std::vector<LaneState> lanes_;
  std::vector<StageState> stages_;
  std::vector<TimedAction> actions_;
  std::unique_ptr<TransportLayer> transport_;
  Duration end_;
  std::int64_t events_ = 0;
};

Engine::Engine(const Schedule& schedule, const PlanCost& costs, const Topology& topology,
               const SimulationOptions& options)
    : costs_(costs), options_(options) {
  set_up(schedule);
  transport_ = make_transport(costs, topology, options.contention,
                              {.queue = queue_, .actions = options.record ? &actions_ : nullptr});
}

void Engine::set_up(const Schedule& schedule) {
  if (options_.record) {
    std::size_t most = 0;
    for (const Lane& lane : schedule.lanes) most += lane.actions.size();
    actions_.reserve(most);
  }
  const auto micro_batches = static_cast<std::size_t>(schedule.num_micro_batches);
  stages_.resize(costs_.stages.size());
  lanes_.resize(schedule.lanes.size());
  for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
    const Lane& source = schedule.lanes[i];
    LaneState& lane = lanes_[i];
    lane.stage = source.stage.value;
    lane.replica = source.replica;
    for (const Action& action : source.actions) {
      if (stream_of(action.kind) != Stream::Compute) continue;
      lane.computation.push_back(action);
      if (action.kind == ActionKind::Backward) ++lane.backwards_left;
    }
    const StageCost& cost = costs_.stages[source.stage.position()];
    const bool whole_stage = source.devices.size() == cost.replicas.size();
    const ReplicaCost& replica = cost.replicas[at(source.replica)];
    lane.forward = whole_stage ? cost.forward : replica.forward;
    lane.backward = whole_stage ? cost.backward : replica.backward;
    const std::size_t dealt = whole_stage ? 1 : cost.replicas.size();
    const std::size_t own = (micro_batches + dealt - 1) / dealt;
    lane.activation_here.assign(own, source.stage.value == 0 ? 1 : 0);
    lane.gradient_here.assign(own, source.stage.position() + 1 == stages_.size() ? 1 : 0);
    StageState& stage = stages_[source.stage.position()];
    if (stage.lane_count++ == 0) stage.first_lane = static_cast<std::int32_t>(i);
    stage.lanes_ready.assign(cost.buckets.size(), 0);
  }
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
    if (queue_.empty() || queue_.next().time != event.time) transport_->settle(event.time);
  }
  for (const LaneState& lane : lanes_) {
    check(lane.next == lane.computation.size(), "a simulated schedule deadlocked");
  }
  SimulationResult result;
  result.iteration = end_;
  result.events = events_;
  result.timeline.actions = std::move(actions_);
  return result;
}

void Engine::serve(const Event& event) {
  ++events_;
  const Duration now = round_up(event.time);  // whole already, except for flows
  switch (event.kind) {
    case Event::Kind::ComputationDone:
      computation_done(event.subject, event.detail, now);
      break;
    case Event::Kind::ActivationArrived:
      lanes_[at(event.subject)].activation_here[own_number(event.subject, event.detail)] = 1;
      try_start(event.subject, now);
      break;
    case Event::Kind::GradientArrived:
      lanes_[at(event.subject)].gradient_here[own_number(event.subject, event.detail)] = 1;
      try_start(event.subject, now);
      break;
    case Event::Kind::FlowEnded:
      transport_->flow_ended(event);
      break;
    case Event::Kind::AllReduceDone:
      reduction_done(event.subject, now);
      break;
  }
}

bool Engine::can_start(const LaneState& lane, const Action& action) const {
  switch (action.kind) {
    case ActionKind::Forward:
      return lane.activation_here[at(action.index / stages_[at(lane.stage)].lane_count)] != 0;
    case ActionKind::Backward:
      return lane.gradient_here[at(action.index / stages_[at(lane.stage)].lane_count)] != 0;
    default: {  // the optimizer step
      const StageState& stage = stages_[at(lane.stage)];
      return at(stage.buckets_done) == stage.lanes_ready.size();
    }
  }
}

void Engine::try_start(std::int32_t index, Duration now) {
  LaneState& lane = lanes_[at(index)];
  if (lane.busy || lane.next == lane.computation.size()) return;
  const Action& action = lane.computation[lane.next];
  if (!can_start(lane, action)) return;
  lane.busy = true;
  lane.started = now;
  switch (action.kind) {
    case ActionKind::Forward:
      announce(now + lane.forward, Event::Kind::ComputationDone, index, lane.version);
      break;
    case ActionKind::Backward:
      if (--lane.backwards_left == 0) {
        begin_last_backward(index, now);
      } else {
        announce(now + lane.backward, Event::Kind::ComputationDone, index, lane.version);
      }
      break;
    default:
      announce(now + costs_.stages[at(lane.stage)].optimizer_step, Event::Kind::ComputationDone,
               index, lane.version);
      break;
  }
}

void Engine::computation_done(std::int32_t index, std::int32_t version, Duration now) {
  LaneState& lane = lanes_[at(index)];
  if (version != lane.version) return;  // overtaken by a change of speed
  if (lane.in_last_backward && lane.milestone < stages_[at(lane.stage)].lanes_ready.size()) {
    const std::size_t bucket = lane.milestone++;
    lane.work_left = work_to_milestone(lane);
    lane.work_since = now;
    announce_milestone(index, now);
    bucket_ready(lane.stage, bucket, now);
    return;
  }
  finish_action(index, now);
}

void Engine::finish_action(std::int32_t index, Duration now) {
  LaneState& lane = lanes_[at(index)];
  const Action action = lane.computation[lane.next++];
  lane.busy = false;
  lane.in_last_backward = false;
  end_ = std::max(end_, now);
  record(
      {.lane = LaneIndex{index}, .action = action, .start = lane.started, .end = now, .size = {}});
  if (action.kind != ActionKind::OptimizerStep) send(index, action, now);
  try_start(index, now);
}

void Engine::send(std::int32_t index, const Action& action, Duration now) {
  const LaneState& lane = lanes_[at(index)];
  const bool is_gradient = action.kind == ActionKind::Backward;
  const std::int32_t to_stage = lane.stage + (is_gradient ? -1 : 1);
  if (to_stage < 0 || at(to_stage) == stages_.size()) return;
  const std::int32_t boundary = is_gradient ? to_stage : lane.stage;
  const BoundaryCost& cost = costs_.boundaries[at(boundary)];
  const std::vector<TransferCost>& patterns = is_gradient ? cost.backward : cost.forward;
  const StageState& to = stages_[at(to_stage)];
  const TransferCost& pattern = patterns[at(action.index) % patterns.size()];
  const ActionKind kind = is_gradient ? ActionKind::SendGradient : ActionKind::SendActivation;
  record({.lane = LaneIndex{index},
          .action = {kind, action.index},
          .start = now,
          .end = now,
          .size = pattern.size});
  transport_->send({.receiver = to.first_lane + action.index % to.lane_count,
                    .micro_batch = action.index,
                    .boundary = boundary,
                    .is_gradient = is_gradient,
                    .ready = now,
                    .record = static_cast<std::int32_t>(actions_.size()) - 1});
}

Wide Engine::work_to_milestone(const LaneState& lane) const {
  const StageCost& cost = costs_.stages[at(lane.stage)];
  // A dealt replica may be quicker than the slowest one, whose moments the stage's costs hold.
  const auto moment = [&](std::size_t milestone) {
    return milestone < cost.bucket_ready.size()
               ? std::min(cost.bucket_ready[milestone], lane.backward)
               : lane.backward;
  };
  const Duration from = lane.milestone == 0 ? Duration{} : moment(lane.milestone - 1);
  return Wide{(moment(lane.milestone) - from).ns} * costs_.overlap_slowdown.billionths;
}

std::int64_t Engine::speed_of(const LaneState& lane) const {
  return stages_[at(lane.stage)].reducing ? kSlowSpeed : costs_.overlap_slowdown.billionths;
}

void Engine::begin_last_backward(std::int32_t index, Duration now) {
  LaneState& lane = lanes_[at(index)];
  lane.in_last_backward = true;
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

void Engine::change_speed(StageState& stage, bool slow, Duration now) {
  if (stage.reducing == slow) return;
  for (std::int32_t i = stage.first_lane; i < stage.first_lane + stage.lane_count; ++i) {
    LaneState& lane = lanes_[at(i)];
    if (!lane.in_last_backward) continue;
    lane.work_left =
        std::max<Wide>(0, lane.work_left - Wide{(now - lane.work_since).ns} * speed_of(lane));
    lane.work_since = now;
  }
  stage.reducing = slow;
  if (costs_.overlap_slowdown == kOne) return;
  for (std::int32_t i = stage.first_lane; i < stage.first_lane + stage.lane_count; ++i) {
    if (lanes_[at(i)].in_last_backward) announce_milestone(i, now);
  }
}

void Engine::bucket_ready(std::int32_t index, std::size_t bucket, Duration now) {
  StageState& stage = stages_[at(index)];
  if (++stage.lanes_ready[bucket] < stage.lane_count) return;
  if (at(stage.buckets_started) == bucket && !stage.reducing) start_reduction(index, now);
}

void Engine::start_reduction(std::int32_t index, Duration now) {
  StageState& stage = stages_[at(index)];
  stage.reduction_started = now;
  change_speed(stage, true, now);
  transport_->reduce(index, stage.buckets_started++, now);
}

void Engine::reduction_done(std::int32_t index, Duration now) {
  StageState& stage = stages_[at(index)];
  const std::int32_t bucket = stage.buckets_done++;
  const Bytes size = costs_.stages[at(index)].buckets[at(bucket)].size;
  for (std::int32_t i = stage.first_lane; i < stage.first_lane + stage.lane_count; ++i) {
    record({.lane = LaneIndex{i},
            .action = {ActionKind::AllReduce, bucket},
            .start = stage.reduction_started,
            .end = now,
            .size = size});
  }
  end_ = std::max(end_, now);
  const bool more = at(stage.buckets_started) < stage.lanes_ready.size() &&
                    stage.lanes_ready[at(stage.buckets_started)] == stage.lane_count;
  if (more) {
    start_reduction(index, now);
    return;
  }
  change_speed(stage, false, now);
  for (std::int32_t i = stage.first_lane; i < stage.first_lane + stage.lane_count; ++i) {
    try_start(i, now);
  }
}

std::vector<DeviceMemory> device_memory(const Schedule& schedule, const PlanCost& costs) {
  std::vector<DeviceMemory> memory;
  for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
    const Lane& lane = schedule.lanes[i];
    const StageCost& stage = costs.stages[lane.stage.position()];
    for (std::size_t d = 0; d < lane.devices.size(); ++d) {
      const ReplicaCost& replica = stage.replicas[at(lane.replica) + d];
      memory.push_back({.device = replica.device,
                        .lane = index_at<LaneIndex>(i),
                        .fixed = replica.memory.fixed(),
                        .per_micro_batch = replica.memory.per_micro_batch,
                        .recompute_stash = replica.memory.recompute_stash,
                        .limit = replica.memory_limit});
    }
  }
  return memory;
}

}  // namespace

SimulationResult simulate(const Schedule& schedule, const PlanCost& costs, const Topology& topology,
                          const SimulationOptions& options) {
  const bool some_free = options.free_transfers || options.free_all_reduce;
  const PlanCost reduced = some_free ? without_free(costs, options) : PlanCost{};
  SimulationResult result = Engine(schedule, some_free ? reduced : costs, topology, options).run();
  if (!options.record) return result;
  Timeline& timeline = result.timeline;
  std::stable_sort(timeline.actions.begin(), timeline.actions.end(),
                   [](const TimedAction& a, const TimedAction& b) {
                     return std::tuple(a.start, a.lane, stream_of(a.action.kind), a.end) <
                            std::tuple(b.start, b.lane, stream_of(b.action.kind), b.end);
                   });
  for (const Lane& lane : schedule.lanes) timeline.lanes.push_back({lane.stage, lane.devices});
  timeline.memory = device_memory(schedule, costs);
  return result;
}

}  // namespace dapple
