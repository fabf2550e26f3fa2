#include "dapple/simulate/simulate.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/simulate/device_memory.h"
#include "dapple/simulate/lane_scheduler.h"
#include "dapple/simulate/reduction_scheduler.h"
#include "simulate/blocking_calls.h"
#include "simulate/event_queue.h"
#include "simulate/transport.h"

namespace dapple::simulate {
namespace {

/// Returns the costs without transfers and reductions that are free according to the options.
PlanCost without_free(const PlanCost& costs, const SimulationOptions& options) {
  PlanCost result = costs;
  if (options.free_transfers) {
    const auto make_free = [](BoundaryCost& transfers) {
      transfers.forward.assign(1, TransferCost{});
      transfers.backward.assign(1, TransferCost{});
    };
    for (BoundaryCost& boundary : result.boundaries) make_free(boundary);
    for (SkipCost& skip : result.skips) make_free(skip.transfers);
  }
  if (options.free_all_reduce) {
    for (StageCost& stage : result.stages) {
      for (AllReduceCost& bucket : stage.buckets) bucket = AllReduceCost{};
    }
    for (TiedCost& tie : result.ties) tie.reduction = AllReduceCost{};
  }
  return result;
}

/// The engine serves events by time. It passes on what happened to the two schedulers, which decide
/// what starts and how long computations take, and to the transport, which times transfers and
/// reductions; and it keeps the records of the timeline.
class Engine {
 public:
  Engine(const Schedule& schedule, const PlanCost& costs, const Topology& topology,
         const SimulationOptions& options);
  SimulationResult run();

 private:
  void serve(const Event& event);

  void try_start(LaneIndex lane, Duration now);
  void forecast_due(LaneIndex lane, std::int32_t version, Duration now);
  void begin_piece(LaneIndex lane, const LaneScheduler::Forecast& forecast, Duration now);
  void communicate(LaneIndex lane, bool is_beside, Duration now);
  void end_collectives(LaneIndex lane, Duration now);
  void end_piece(LaneIndex lane, Duration now);
  void pass_milestone(LaneIndex lane, Duration now);
  void finish_computation(LaneIndex lane, Duration now);

  void send(LaneIndex lane, const Action& computation, Duration now);
  void go_on_from(LaneIndex lane, const Action* done, Duration now);
  void begin_transfers(Duration now);
  void end_transfer(const BoundaryTransfer& transfer, Duration now);
  void expect(std::int32_t inbox, std::int32_t micro_batch, bool is_gradient, Duration moment);

  void begin_reduction(const Reduction& reduction, Duration now);
  void finish_reduction(const Reduction& reduction, Duration now);
  void set_reducing(GroupIndex group, bool reducing, Duration now);

  void record(const TimedAction& timed) {
    if (options_.record) actions_.push_back(timed);
  }
  void record_reduction(GroupIndex group, const Reduction& reduction, Duration end);

  void announce(Duration time, Event::Kind kind, std::int32_t subject, std::int32_t detail) {
    queue_.announce(to_ticks(time), kind, subject, detail);
  }
  void announce(LaneIndex lane, const LaneScheduler::Forecast& forecast) {
    announce(forecast.time, Event::Kind::ForecastDue, lane.value, forecast.version);
  }

  const PlanCost& costs_;
  const SimulationOptions& options_;
  const std::int32_t lane_count_;
  // Whether collectives within computations share links with all else.
  const bool shares_collectives_;
  EventQueue queue_;
  LaneScheduler lanes_;
  ReductionScheduler reductions_;
  // By stage.
  std::vector<StageLanes> stage_lanes_;
  std::vector<Inbox> inboxes_;
  // The pairs of stages that exchange tensors, and by stage their positions: of those to which it
  // sends activations, and of those to which it sends gradients.
  std::vector<PairParts> pairs_;
  std::vector<std::vector<std::int32_t>> activations_to_;
  std::vector<std::vector<std::int32_t>> gradients_to_;
  // Whether lanes may start computations ahead of time, on inputs that are still to arrive. This
  // requires that no two lanes send from one stage to another, so that the order in which they send
  // at equal times does not matter.
  bool looks_ahead_ = false;
  // The calls that lanes are in, if transfers block.
  std::optional<BlockingCalls> calls_;
  std::unique_ptr<TransportLayer> transport_;

  std::vector<TimedAction> actions_;
  // By lane, the position in actions_ of its current computation.
  std::vector<std::size_t> records_;
  // By lane, the collectives of its current piece that are under way: none, those beside its
  // computation, those behind it, or both.
  std::vector<std::int32_t> collectives_;
  // By reducer, when its current reduction started.
  std::vector<Duration> reduction_starts_;
  // Whether the simulation ends early, and a lower bound on the end.
  bool may_end_early_ = false;
  Duration least_end_;
  Duration end_;
  std::int64_t events_ = 0;
};

/// Returns the lanes of each stage.
std::vector<StageLanes> lanes_by_stage(const Schedule& schedule, std::size_t stages) {
  std::vector<StageLanes> result(stages);
  for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
    for (const StageIndex stage : schedule.lanes[i].stages) {
      StageLanes& lanes = result[stage.position()];
      if (lanes.count++ == 0) lanes.first = static_cast<std::int32_t>(i);
      lanes.dealt_to = schedule.lanes[i].dealt_to;
    }
  }
  std::int32_t first_inbox = 0;
  for (StageLanes& lanes : result) {
    lanes.first_inbox = first_inbox;
    first_inbox += lanes.count;
  }
  return result;
}

std::size_t count_actions(const Schedule& schedule) {
  std::size_t count = 0;
  for (const Lane& lane : schedule.lanes) count += lane.actions.size();
  return count;
}

Engine::Engine(const Schedule& schedule, const PlanCost& costs, const Topology& topology,
               const SimulationOptions& options)
    : costs_(costs),
      options_(options),
      lane_count_(static_cast<std::int32_t>(schedule.lanes.size())),
      shares_collectives_(options.contention == Contention::SharedWithCollectives &&
                          has_traffic(costs)),
      lanes_(schedule, costs, shares_collectives_),
      reductions_(schedule, costs),
      stage_lanes_(lanes_by_stage(schedule, costs.stages.size())),
      records_(schedule.lanes.size()),
      collectives_(schedule.lanes.size()),
      reduction_starts_(costs.stages.size() + costs.ties.size()) {
  if (options.record) actions_.reserve(count_actions(schedule));
  for (std::size_t s = 0; s < stage_lanes_.size(); ++s) {
    for (std::int32_t i = 0; i < stage_lanes_[s].count; ++i) {
      inboxes_.push_back(
          {.lane = LaneIndex{stage_lanes_[s].first + i}, .stage = index_at<StageIndex>(s)});
    }
  }
  pairs_ = transfer_parts(schedule, stage_lanes_, costs);
  activations_to_.resize(costs.stages.size());
  gradients_to_.resize(costs.stages.size());
  for (std::size_t p = 0; p < pairs_.size(); ++p) {
    activations_to_[pairs_[p].from.position()].push_back(static_cast<std::int32_t>(p));
    gradients_to_[pairs_[p].to.position()].push_back(static_cast<std::int32_t>(p));
  }
  looks_ahead_ = std::all_of(stage_lanes_.begin(), stage_lanes_.end(),
                             [](const StageLanes& lanes) { return lanes.count == 1; });
  if (options.transfers != Transfers::Overlapped && !options.free_transfers) {
    check(looks_ahead_ && schedule.lanes.size() == costs.stages.size(),
          "blocking transfers of stages that are not one lane each");
    check(costs.skips.empty(), "blocking transfers of tensors that skip stages");
    looks_ahead_ = false;
    calls_.emplace(costs.stages.size(), options.transfers);
  }
  may_end_early_ = !options.enough.is_infinite() && !options.record && !shares_collectives_;
  if (may_end_early_) lanes_.sum_up_rest();
  transport_ = make_transport({costs, pairs_, schedule.lanes}, topology, options.contention,
                              {.queue = queue_, .actions = options.record ? &actions_ : nullptr});
}

SimulationResult Engine::run() {
  for (std::int32_t i = 0; i < lane_count_; ++i) go_on_from(LaneIndex{i}, nullptr, Duration{});
  transport_->settle(Ticks{});
  while (!queue_.empty()) {
    const Event event = queue_.next();
    queue_.pop();
    serve(event);
    if (may_end_early_ && least_end_ >= options_.enough) {
      return {.iteration = least_end_, .events = events_, .timeline = {}};
    }
    if (events_ % SimulationOptions::kEventsBetweenPolls == 0 && options_.should_stop &&
        options_.should_stop()) {
      return {.iteration = Duration::infinite(), .events = events_, .timeline = {}};
    }
    if (queue_.empty() || queue_.next().time != event.time) transport_->settle(event.time);
  }
  for (std::int32_t i = 0; i < lane_count_; ++i) {
    check(lanes_.is_done(LaneIndex{i}), "a simulated schedule deadlocked");
  }
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
    case Event::Kind::ForecastDue:
      forecast_due(LaneIndex{event.subject}, event.detail, now);
      break;
    case Event::Kind::ActivationArrived:
    case Event::Kind::GradientArrived: {
      const bool is_gradient = event.kind == Event::Kind::GradientArrived;
      const auto& [lane, stage] = inboxes_[at(event.subject)];
      expect(event.subject, event.detail, is_gradient, now);
      if (calls_) {
        const std::size_t boundary = stage.position() - (is_gradient ? 0 : 1);
        end_transfer({boundary, is_gradient, event.detail}, now);
      } else {
        try_start(lane, now);
      }
      break;
    }
    case Event::Kind::FlowEnded:
      transport_->flow_ended(event);
      break;
    case Event::Kind::AllReduceDone:
      finish_reduction({.reducer = event.subject, .bucket = event.detail}, now);
      break;
    case Event::Kind::CollectivesDone:
      end_collectives(LaneIndex{event.subject}, now);
      break;
    case Event::Kind::InputReady:
      try_start(LaneIndex{event.subject}, now);
      break;
  }
}

/// Starts a lane's next computation, unless the lane computes, is in a call, or what it needs is
/// not there. A lane that may not start ahead of time is asked again when its input arrives.
void Engine::try_start(LaneIndex lane, Duration now) {
  if (!lanes_.is_waiting(lane) || (calls_ && calls_->is_blocked(lane.position()))) return;
  const Action& computation = lanes_.computation(lane);
  const bool is_step = computation.kind == ActionKind::OptimizerStep;
  if (is_step && !reductions_.is_reduced_for(computation)) return;
  const Duration ready = lanes_.input_time(lane);
  if (ready.is_infinite()) return;
  if (ready > now && !lanes_.may_start_ahead(lane)) {
    announce(ready, Event::Kind::InputReady, lane.value, 0);
    return;
  }
  const Duration start = std::max(now, ready);
  if (may_end_early_) least_end_ = std::max(least_end_, start + lanes_.rest(lane));
  // It is recorded at its start so that actions are recorded nearly in the order of the timeline.
  records_[lane.position()] = actions_.size();
  record({.lane = lane, .action = computation, .start = start, .end = start, .size = {}});
  begin_piece(lane, lanes_.start(lane, start), start);
}

void Engine::forecast_due(LaneIndex lane, std::int32_t version, Duration now) {
  if (!lanes_.is_current(lane, version)) return;
  if (shares_collectives_) {
    lanes_.end_computing(lane);
    communicate(lane, /*is_beside=*/false, now);
    if (collectives_[lane.position()] > 0) return;
  }
  end_piece(lane, now);
}

/// Announces when the computation up to the next milestone, or the end, is over, and begins the
/// collectives beside it.
void Engine::begin_piece(LaneIndex lane, const LaneScheduler::Forecast& forecast, Duration now) {
  announce(lane, forecast);
  if (shares_collectives_) communicate(lane, /*is_beside=*/true, now);
}

/// Begins collectives of the current piece, if it has any.
void Engine::communicate(LaneIndex lane, bool is_beside, Duration now) {
  const PassTraffic& traffic = lanes_.traffic(lane);
  const NicUse& use = is_beside ? traffic.beside : traffic.in_turn;
  if (use.time == Duration{}) return;
  ++collectives_[lane.position()];
  transport_->communicate({.lane = lane, .use = use, .is_beside = is_beside, .start = now});
}

void Engine::end_collectives(LaneIndex lane, Duration now) {
  const bool are_all = --collectives_[lane.position()] == 0;
  if (are_all && lanes_.has_computed(lane)) end_piece(lane, now);
}

void Engine::end_piece(LaneIndex lane, Duration now) {
  if (lanes_.has_milestone(lane)) {
    pass_milestone(lane, now);
  } else {
    finish_computation(lane, now);
  }
}

void Engine::pass_milestone(LaneIndex lane, Duration now) {
  const StageIndex stage = lanes_.computation(lane).stage;
  const LaneScheduler::Milestone passed = lanes_.pass_milestone(lane, now);
  begin_piece(lane, passed.next, now);
  const std::optional<Reduction> next = reductions_.bucket_ready(stage, passed.bucket);
  if (next) begin_reduction(*next, now);
}

void Engine::finish_computation(LaneIndex lane, Duration now) {
  const LaneScheduler::Finished finished = lanes_.finish(lane);
  end_ = std::max(end_, now);
  if (options_.record) actions_[records_[lane.position()]].end = now;
  if (!calls_) send(lane, finished.computation, now);
  if (finished.made_all_gradients) {
    const std::optional<Reduction> next = reductions_.gradients_made(finished.computation.stage);
    if (next) begin_reduction(*next, now);
  }
  go_on_from(lane, &finished.computation, now);
}

/// Continues with what follows the computation `done` on a lane, or with its first one: the calls
/// in between, if transfers block, and then the next computation.
void Engine::go_on_from(LaneIndex lane, const Action* done, Duration now) {
  if (calls_) {
    const bool is_last = lanes_.is_done(lane);
    calls_->enter(lane.position(), done, is_last ? nullptr : &lanes_.computation(lane));
    begin_transfers(now);
  }
  try_start(lane, now);
}

/// Sends what two stages are ready to transfer.
void Engine::begin_transfers(Duration now) {
  for (const BoundaryTransfer& transfer : calls_->take_begun()) {
    const ActionKind made_by = transfer.is_gradient ? ActionKind::Backward : ActionKind::Forward;
    const StageLanes& sender = stage_lanes_[transfer.sender()];
    send({sender.first}, {made_by, transfer.micro_batch, index_at<StageIndex>(transfer.sender())},
         now);
  }
}

void Engine::end_transfer(const BoundaryTransfer& transfer, Duration now) {
  calls_->end(transfer);
  begin_transfers(now);
  for (const std::size_t stage : {transfer.sender(), transfer.receiver()}) {
    try_start({stage_lanes_[stage].first}, now);
  }
}

/// Sends the output of a computation to the stages that need it, if there are any.
void Engine::send(LaneIndex lane, const Action& computation, Duration now) {
  const bool is_activation = computation.kind == ActionKind::Forward;
  const bool is_gradient = makes_input_gradient(computation.kind);
  if (!is_activation && !is_gradient) return;
  const std::size_t stage = computation.stage.position();
  const std::vector<std::int32_t>& pairs =
      is_gradient ? gradients_to_[stage] : activations_to_[stage];
  if (pairs.empty()) return;
  const std::int32_t micro_batch = computation.index;
  // A lane to which a micro-batch is dealt sends all of it.
  const StageLanes& from = stage_lanes_[stage];
  const std::int32_t part = from.dealt_to > 1 ? 0 : lane.value - from.first;
  const auto transfer_of = [&](std::int32_t pair) -> const TransferParts& {
    const PairParts& parts = pairs_[at(pair)];
    const DirectionParts& transfers = is_gradient ? parts.backward : parts.forward;
    return transfers[entry_of(micro_batch, transfers.size())];
  };
  Bytes size;
  for (const std::int32_t pair : pairs) size += transfer_of(pair).sizes[at(part)];
  const ActionKind kind = is_gradient ? ActionKind::SendGradient : ActionKind::SendActivation;
  record({.lane = lane,
          .action = {kind, micro_batch, computation.stage},
          .start = Duration::infinite(),
          .end = now,
          .size = size});
  const auto position = static_cast<std::int32_t>(actions_.size()) - 1;
  for (const std::int32_t pair : pairs) {
    const std::optional<Duration> arrival = transport_->send({.part = part,
                                                              .micro_batch = micro_batch,
                                                              .pair = pair,
                                                              .is_gradient = is_gradient,
                                                              .ready = now,
                                                              .record = position});
    if (!arrival) continue;
    const std::int32_t inbox = transfer_of(pair).receivers.front();
    if (looks_ahead_) {
      expect(inbox, micro_batch, is_gradient, *arrival);
      try_start(inboxes_[at(inbox)].lane, now);
      continue;
    }
    announce(*arrival, is_gradient ? Event::Kind::GradientArrived : Event::Kind::ActivationArrived,
             inbox, micro_batch);
  }
}

void Engine::expect(std::int32_t inbox, std::int32_t micro_batch, bool is_gradient,
                    Duration moment) {
  const auto& [lane, stage] = inboxes_[at(inbox)];
  lanes_.expect(lane, {.stage = stage, .micro_batch = micro_batch, .is_gradient = is_gradient},
                moment);
}

void Engine::begin_reduction(const Reduction& reduction, Duration now) {
  reduction_starts_[at(reduction.reducer)] = now;
  for (const GroupIndex group : reductions_.groups_of(reduction)) set_reducing(group, true, now);
  transport_->reduce(reduction, now);
}

void Engine::finish_reduction(const Reduction& reduction, Duration now) {
  const std::span<const GroupIndex> groups = reductions_.groups_of(reduction);
  for (const GroupIndex group : groups) record_reduction(group, reduction, now);
  reductions_.finish(reduction);
  end_ = std::max(end_, now);
  for (const GroupIndex group : groups) {
    const std::optional<Reduction> next = reductions_.start_next(group);
    if (next) begin_reduction(*next, now);
    set_reducing(group, reductions_.is_reducing(group), now);
  }
  for (const GroupIndex group : groups) {
    const auto& [first, count] = reductions_.lanes_of(group);
    for (LaneIndex lane = first; lane.value < first.value + count; lane = lane.next()) {
      try_start(lane, now);
    }
  }
}

void Engine::set_reducing(GroupIndex group, bool reducing, Duration now) {
  const auto& [first, count] = reductions_.lanes_of(group);
  for (LaneIndex lane = first; lane.value < first.value + count; lane = lane.next()) {
    const auto forecast = lanes_.set_reducing(lane, reducing, now);
    if (forecast) announce(lane, *forecast);
  }
}

void Engine::record_reduction(GroupIndex group, const Reduction& reduction, Duration end) {
  const auto& [first, count] = reductions_.lanes_of(group);
  for (LaneIndex lane = first; lane.value < first.value + count; lane = lane.next()) {
    record({.lane = lane,
            .action = reductions_.last_started(group),
            .start = reduction_starts_[at(reduction.reducer)],
            .end = end,
            .size = reduction.cost(costs_).size});
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
  timeline.transfers = options.transfers;
  for (const SkipCost& skip : costs.skips) timeline.skips.emplace_back(skip.from, skip.to);
  sort_actions(timeline);
  for (const Lane& lane : schedule.lanes) {
    timeline.lanes.push_back({lane.stages, lane.devices, lane.samples});
  }
  timeline.memory = device_memory(schedule, costs);
  return result;
}

}  // namespace dapple::simulate
