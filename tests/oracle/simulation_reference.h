// A second simulator, for stages that split: no queue of events, only the equations that start and
// end times must meet, iterated from zero until nothing changes. Under contention the links are
// walked through from change to change, all flows shared anew each time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "../support/random_pipeline.h"
#include "dapple/simulate/max_min.h"

namespace dapple::small {

struct Interval {
  std::int64_t start = 0;
  std::int64_t end = 0;

  friend bool operator==(const Interval&, const Interval&) = default;
};

/// The collectives of a piece of a pass: those beside its computation, and those behind it.
struct Collectives {
  Interval beside;
  Interval behind;

  friend bool operator==(const Collectives&, const Collectives&) = default;
};

/// Times in ns, by stage (or boundary) and micro-batch (or bucket).
struct ReferenceTimes {
  std::vector<std::vector<Interval>> forward;
  std::vector<std::vector<Interval>> backward;
  // By the stage that sends them, to all others, but by boundary while they are worked out.
  std::vector<std::vector<Interval>> activation;
  std::vector<std::vector<Interval>> gradient;
  std::vector<std::vector<Interval>> reduction;
  std::vector<Interval> tied;
  std::vector<std::vector<Interval>> step;
  /// By stage, those of all its pieces in their order, while they are worked out; a timeline has
  /// only the passes that they are part of.
  std::vector<std::vector<Collectives>> collectives = {};

  friend bool operator==(const ReferenceTimes&, const ReferenceTimes&) = default;
};

/// Links on which each sender of a boundary and direction sends one transfer after another, each to
/// all its receivers at once, and on which a reduction is one flow after another, round by round.
class SharedLinks {
 public:
  explicit SharedLinks(const Pipeline& pipeline) : topology_(pipeline.topology) {
    for (const Port& port : topology_.ports()) {
      capacities_.push_back(port.bandwidth.bytes_per_second * simulate::kRatePerBytePerSecond);
    }
  }

  /// `sent` is filled in by run(). Micro-batch m may leave when made[m] ends.
  void add_transfers(const TransferCost& cost, const std::vector<Interval>& made,
                     std::vector<Interval>& sent) {
    std::map<DeviceIndex, std::vector<Flow>> by_sender;
    for (const PairFlow& pair : cost.flows) {
      Flow flow{
          .demand = {pair.route.bandwidth.bytes_per_second * simulate::kRatePerBytePerSecond, {}},
          .work = Wide{pair.size.count} * 1024 * 1'024'000'000'000};
      for (const PairFlow& other : cost.flows) {
        for (const PortIndex port : other.route.ports) {
          const auto& own = pair.route.ports;
          if (std::find(own.begin(), own.end(), port) == own.end()) continue;
          flow.latency = std::max(flow.latency, other.route.latency.ns);
        }
      }
      for (const PortIndex port : pair.route.ports)
        flow.demand.ports.emplace_back(port, simulate::kFullWeight);
      by_sender[pair.from].push_back(std::move(flow));
    }
    for (std::size_t m = 0; m < made.size(); ++m) {
      const std::int64_t never = cost.flows.empty() ? made[m].end : INT64_MAX;
      sent[m] = {never, made[m].end};
    }
    for (const auto& [sender, flows] : by_sender) {
      Stream stream;
      for (std::size_t m = 0; m < made.size(); ++m) {
        stream.jobs.push_back({made[m].end * 1024, flows, &sent[m]});
      }
      streams_.push_back(std::move(stream));
    }
  }

  /// Its end is filled in by run().
  void add_reduction(const AllReduceCost& cost, Interval& reduction) {
    Stream stream;
    for (const AllReducePhase& phase : cost.phases) {
      const Flow whole = flow_of(phase);
      // Rounds with nothing between them are one.
      const std::int64_t rounds = phase.latency.ns > 0 ? phase.rounds : 1;
      const auto done = [&](std::int64_t k) {
        return static_cast<std::int64_t>((Wide{phase.busy.count} * k + rounds - 1) / rounds);
      };
      for (std::int64_t k = 0; k < rounds; ++k) {
        Flow round = whole;
        round.work = Wide{round.demand.cap} * (done(k + 1) - done(k));
        stream.jobs.push_back(
            {reduction.start * 1024, {round}, &reduction, phase.latency.ns * 1024});
      }
    }
    reduction = {reduction.start, 0};
    streams_.push_back(std::move(stream));
  }

  /// Adds a flow for every device that takes part. run() fills in the end of the interval.
  void add_collectives(const std::vector<ReplicaCost>& replicas, NicUse use, Interval& interval) {
    if (use.time.ns == 0) return;
    for (const ReplicaCost& replica : replicas) {
      const ServerIndex server = topology_.device(replica.device).server;
      const std::int32_t nic = topology_.nic_of(replica.device);
      const std::int64_t bandwidth = topology_.nic_link(server, nic).bandwidth.bytes_per_second;
      const auto rate =
          static_cast<std::int64_t>(Wide{bandwidth} * 1024 * use.busy.ns / use.time.ns);
      Flow flow;
      flow.demand.cap = std::max<std::int64_t>(1, rate);
      for (const PortIndex port : {topology_.nic_out(server, nic), topology_.nic_in(server, nic)}) {
        flow.demand.ports.emplace_back(port, simulate::kFullWeight);
      }
      flow.work = Wide{flow.demand.cap} * use.time.ns * 1024;
      Stream stream;
      stream.jobs.push_back({interval.start * 1024, {std::move(flow)}, &interval});
      streams_.push_back(std::move(stream));
    }
    interval.end = 0;
  }

  void run() {
    std::int64_t now = 0;
    while (true) {
      std::int64_t next = start_jobs(now);
      std::vector<const simulate::FlowDemand*> demands;
      for (const Stream& stream : streams_) {
        for (const Flow& flow : stream.active) demands.push_back(&flow.demand);
      }
      const std::vector<simulate::Rate> rates = simulate::max_min_rates(demands, capacities_);
      std::size_t position = 0;
      for (Stream& stream : streams_) {
        for (Flow& flow : stream.active) {
          flow.rate = std::max<simulate::Rate>(1, rates[position++]);
          const Wide left = (flow.work + flow.rate - 1) / flow.rate;
          next = std::min(next, now + static_cast<std::int64_t>(left));
        }
      }
      if (next == INT64_MAX) return;
      for (Stream& stream : streams_) end_flows(stream, now, next);
      now = next;
    }
  }

 private:
  struct Flow {
    simulate::FlowDemand demand;
    Wide work = 0;
    std::int64_t latency = 0;
    simulate::Rate rate = 0;
  };
  struct Job {
    std::int64_t ready = 0;  // ticks
    std::vector<Flow> flows;
    Interval* interval = nullptr;
    std::int64_t pause = 0;  // ticks, before the next one
  };
  struct Stream {
    std::vector<Job> jobs;
    std::size_t next = 0;
    std::vector<Flow> active;  // of job next - 1
    std::int64_t free_from = 0;
  };

  /// A phase of a reduction, without its work.
  Flow flow_of(const AllReducePhase& phase) const {
    Flow flow{.demand = {}, .work = 0, .latency = phase.latency.ns};
    Wide busiest = 0;
    for (const auto& [port, size] : phase.ports) busiest = std::max(busiest, size.count);
    flow.demand.cap = 1;
    if (busiest > 0 && phase.busy.count > 0) {
      flow.demand.cap = static_cast<simulate::Rate>(busiest * 1'024'000'000'000 / phase.busy.count);
    }
    for (const auto& [port, size] : phase.ports) {
      const auto weight =
          busiest == 0
              ? 1
              : std::max<std::int64_t>(
                    1, static_cast<std::int64_t>(size.count * simulate::kFullWeight / busiest));
      flow.demand.ports.emplace_back(port, weight);
      const Wide most = Wide{capacities_[port.position()]} * simulate::kFullWeight / weight;
      flow.demand.cap = static_cast<simulate::Rate>(std::min<Wide>(flow.demand.cap, most));
    }
    flow.demand.cap = std::max<simulate::Rate>(1, flow.demand.cap);
    return flow;
  }

  /// Returns when the next job can start, of streams that wait for one.
  std::int64_t start_jobs(std::int64_t now) {
    std::int64_t next = INT64_MAX;
    for (Stream& stream : streams_) {
      if (!stream.active.empty() || stream.next == stream.jobs.size()) continue;
      const Job& job = stream.jobs[stream.next];
      const std::int64_t ready = std::max(job.ready, stream.free_from);
      if (ready > now) {
        next = std::min(next, ready);
        continue;
      }
      job.interval->start = std::min(job.interval->start, (now + 1023) / 1024);
      stream.active = job.flows;
      ++stream.next;
    }
    return next;
  }

  static void end_flows(Stream& stream, std::int64_t now, std::int64_t next) {
    std::vector<Flow> left;
    for (Flow& flow : stream.active) {
      flow.work -= Wide{flow.rate} * (next - now);
      if (flow.work > 0) {
        left.push_back(flow);
        continue;
      }
      const Job& job = stream.jobs[stream.next - 1];
      job.interval->end = std::max(job.interval->end, (next + 1023) / 1024 + flow.latency);
      stream.free_from = next + job.pause;
    }
    stream.active = std::move(left);
  }

  const Topology& topology_;
  std::vector<simulate::Rate> capacities_;
  std::vector<Stream> streams_;
};

class Reference {
 public:
  Reference(const Pipeline& pipeline, Contention contention)
      : pipeline_(pipeline), contention_(contention) {
    const auto count = static_cast<std::size_t>(pipeline.plan.num_micro_batches);
    const std::size_t stages = pipeline.plan.stages.size();
    const std::vector<Interval> none(count);
    for (std::size_t b = 0; b + 1 < stages; ++b) {
      pairs_.push_back({b, b + 1, &pipeline.costs.boundaries[b]});
    }
    for (const SkipCost& skip : pipeline.costs.skips) {
      pairs_.push_back({skip.from.position(), skip.to.position(), &skip.transfers});
    }
    times_ = {.forward = {stages, none},
              .backward = {stages, none},
              .activation = {pairs_.size(), none},
              .gradient = {pairs_.size(), none},
              .reduction = std::vector<std::vector<Interval>>(stages),
              .tied = std::vector<Interval>(pipeline.costs.ties.size()),
              .step = std::vector<std::vector<Interval>>(stages),
              .collectives = std::vector<std::vector<Collectives>>(stages)};
    for (const StageCost& stage : pipeline.costs.stages) {
      traffic_.push_back(traffic_of_all(stage));
      pieces_.emplace_back();
    }
  }

  ReferenceTimes run() && {
    ReferenceTimes before;
    do {
      before = times_;
      for (std::size_t s = 0; s < times_.forward.size(); ++s) compute(s);
      for (std::size_t t = 0; t < times_.tied.size(); ++t) begin_tied(t);
      if (contention_ == Contention::Off) {
        pass_freely();
      } else {
        share_links();
      }
    } while (times_ != before);
    times_.activation = joined(times_.activation, &Pair::from, 0);
    times_.gradient = joined(times_.gradient, &Pair::to, 1);
    times_.collectives.clear();
    return std::move(times_);
  }

 private:
  /// Two stages that exchange tensors: neighbours, or those of a tensor that skips stages.
  struct Pair {
    std::size_t from = 0;
    std::size_t to = 0;
    const BoundaryCost* cost = nullptr;
  };

  /// From the first start to the last end of what a stage sends to several others, by stage; the
  /// first `without` stages send nothing.
  std::vector<std::vector<Interval>> joined(const std::vector<std::vector<Interval>>& sent,
                                            std::size_t Pair::*sender, std::size_t without) const {
    std::vector<std::vector<Interval>> all(times_.forward.size() - 1);
    for (std::size_t p = 0; p < pairs_.size(); ++p) {
      std::vector<Interval>& own = all[pairs_[p].*sender - without];
      own.resize(sent[p].size(), {INT64_MAX, 0});
      for (std::size_t m = 0; m < own.size(); ++m) {
        own[m] = {std::min(own[m].start, sent[p][m].start), std::max(own[m].end, sent[p][m].end)};
      }
    }
    return all;
  }

  /// When the last of what a stage waits for is there.
  std::int64_t arrival(const std::vector<std::vector<Interval>>& sent, std::size_t Pair::*receiver,
                       std::size_t stage, std::size_t micro_batch) const {
    std::int64_t last = 0;
    for (std::size_t p = 0; p < pairs_.size(); ++p) {
      if (pairs_[p].*receiver == stage) last = std::max(last, sent[p][micro_batch].end);
    }
    return last;
  }

  /// What all replicas of a stage have in common, and before each bucket.
  struct Traffic {
    PassTraffic forward;
    PassTraffic backward;
    std::vector<PassTraffic> before_bucket;
  };

  static Traffic traffic_of_all(const StageCost& stage) {
    const auto lower = [](PassTraffic& some, const PassTraffic& other) {
      for (NicUse PassTraffic::*const part : {&PassTraffic::in_turn, &PassTraffic::beside}) {
        (some.*part).time = std::min((some.*part).time, (other.*part).time);
        (some.*part).busy = std::min((some.*part).busy, (other.*part).busy);
      }
    };
    const ReplicaCost& first = stage.replicas.front();
    Traffic traffic{.forward = first.traffic.forward,
                    .backward = first.traffic.backward,
                    .before_bucket = stage.moments[first.moments].traffic_in_backward};
    for (const ReplicaCost& replica : stage.replicas) {
      lower(traffic.forward, replica.traffic.forward);
      lower(traffic.backward, replica.traffic.backward);
      for (std::size_t k = 0; k < traffic.before_bucket.size(); ++k) {
        lower(traffic.before_bucket[k], stage.moments[replica.moments].traffic_in_backward[k]);
      }
    }
    return traffic;
  }

  /// A piece of a pass that begins at `now` with so much traffic, and is slowed down for the first
  /// `slowed` of its computation. Returns its end, with collectives that take as long as the links
  /// said last.
  std::int64_t end_of_piece(std::size_t s, std::int64_t now, std::int64_t length,
                            std::int64_t slowed, PassTraffic use) {
    if (contention_ != Contention::SharedWithCollectives) return now + time_for(length, slowed);
    const auto within = [](NicUse part, std::int64_t most) {
      const std::int64_t time = std::min(std::max<std::int64_t>(part.time.ns, 0), most);
      return NicUse{{time}, {std::min(std::max<std::int64_t>(part.busy.ns, 0), time)}};
    };
    use.in_turn = within(use.in_turn, length);
    use.beside = within(use.beside, length - use.in_turn.time.ns);
    const std::size_t number = pieces_[s].size();
    pieces_[s].push_back(use);
    std::vector<Collectives>& all = times_.collectives[s];
    if (all.size() <= number) all.resize(number + 1);
    const auto begin = [](Interval& interval, std::int64_t start) {
      const std::int64_t lasting = interval.end - interval.start;
      interval = {start, start + lasting};
      return interval.end;
    };
    const std::int64_t computed = now + time_for(length - use.in_turn.time.ns, slowed);
    return std::max(begin(all[number].beside, now), begin(all[number].behind, computed));
  }

  void pass_freely() {
    for (std::size_t p = 0; p < pairs_.size(); ++p) {
      const auto& [from, to, cost] = pairs_[p];
      transfer(cost->forward.front(), times_.forward[from], times_.activation[p]);
      transfer(cost->backward.front(), times_.backward[to], times_.gradient[p]);
    }
    for (std::size_t s = 0; s < times_.reduction.size(); ++s) {
      for (std::size_t k = 0; k < times_.reduction[s].size(); ++k) {
        Interval& reduction = times_.reduction[s][k];
        reduction.end = reduction.start + pipeline_.costs.stages[s].buckets[k].time.ns;
      }
    }
    for (std::size_t t = 0; t < times_.tied.size(); ++t) {
      times_.tied[t].end = times_.tied[t].start + pipeline_.costs.ties[t].reduction.time.ns;
    }
  }

  void share_links() {
    SharedLinks links(pipeline_);
    for (std::size_t p = 0; p < pairs_.size(); ++p) {
      const auto& [from, to, cost] = pairs_[p];
      links.add_transfers(cost->forward.front(), times_.forward[from], times_.activation[p]);
      links.add_transfers(cost->backward.front(), times_.backward[to], times_.gradient[p]);
    }
    for (std::size_t s = 0; s < times_.reduction.size(); ++s) {
      for (std::size_t k = 0; k < times_.reduction[s].size(); ++k) {
        links.add_reduction(pipeline_.costs.stages[s].buckets[k], times_.reduction[s][k]);
      }
    }
    for (std::size_t t = 0; t < times_.tied.size(); ++t) {
      links.add_reduction(pipeline_.costs.ties[t].reduction, times_.tied[t]);
    }
    for (std::size_t s = 0; s < pieces_.size(); ++s) {
      const std::vector<ReplicaCost>& replicas = pipeline_.costs.stages[s].replicas;
      for (std::size_t i = 0; i < pieces_[s].size(); ++i) {
        links.add_collectives(replicas, pieces_[s][i].beside, times_.collectives[s][i].beside);
        links.add_collectives(replicas, pieces_[s][i].in_turn, times_.collectives[s][i].behind);
      }
    }
    links.run();
  }

  /// Forwards as long as the depth allows, else backwards.
  void compute(std::size_t s) {
    const std::size_t count = times_.forward[s].size();
    const auto depth = static_cast<std::size_t>(pipeline_.plan.warmup_depths[s]);
    const StageCost& cost = pipeline_.costs.stages[s];
    pieces_[s].clear();
    std::size_t forwards = 0;
    std::size_t backwards = 0;
    std::int64_t now = 0;
    while (backwards < count) {
      if (forwards < count && forwards - backwards < depth) {
        const std::int64_t input = arrival(times_.activation, &Pair::to, s, forwards);
        const std::int64_t start = std::max(now, input);
        now = end_of_piece(s, start, cost.forward.ns, 0, traffic_[s].forward);
        times_.forward[s][forwards++] = {start, now};
        continue;
      }
      const std::int64_t input = arrival(times_.gradient, &Pair::from, s, backwards);
      const std::int64_t start = std::max(now, input);
      now = backwards + 1 < count
                ? end_of_piece(s, start, cost.backward.ns, 0, traffic_[s].backward)
                : last_backward(s, start);
      times_.backward[s][backwards++] = {start, now};
    }
    steps(s, now);
  }

  /// Behind all gradients and buckets of its stages, and what is tied before it.
  void begin_tied(std::size_t t) {
    Interval& tied = times_.tied[t];
    const std::int64_t lasting = tied.end - tied.start;
    tied.start = 0;
    for (const StageIndex stage : pipeline_.costs.ties[t].stages) {
      for (const Interval& before : reductions_of(stage.position(), t)) {
        tied.start = std::max(tied.start, before.end);
      }
      tied.start = std::max(tied.start, times_.backward[stage.position()].back().end);
    }
    tied.end = tied.start + lasting;
  }

  /// The stage's buckets, and of what is tied the first `ties` that it takes part in.
  std::vector<Interval> reductions_of(std::size_t s, std::size_t ties) const {
    std::vector<Interval> reductions = times_.reduction[s];
    for (std::size_t t = 0; t < ties; ++t) {
      const std::vector<StageIndex>& stages = pipeline_.costs.ties[t].stages;
      const bool takes_part =
          std::find(stages.begin(), stages.end(), index_at<StageIndex>(s)) != stages.end();
      if (takes_part) reductions.push_back(times_.tied[t]);
    }
    return reductions;
  }

  /// The optimizer once all is reduced, or bucket by bucket and then what is tied, slowed down by
  /// reductions beside it.
  void steps(std::size_t s, std::int64_t now) {
    const StageCost& cost = pipeline_.costs.stages[s];
    const std::vector<Interval>& buckets = times_.reduction[s];
    const std::vector<Interval> all = reductions_of(s, times_.tied.size());
    const auto ended = [](const std::vector<Interval>& reductions) {
      std::int64_t end = 0;
      for (const Interval& reduction : reductions) end = std::max(end, reduction.end);
      return end;
    };
    times_.step[s].clear();
    const auto step = [&](std::int64_t start, std::int64_t length) {
      now = end_beside(all, start, length);
      times_.step[s].push_back({start, now});
    };
    if (cost.bucket_steps.empty()) return step(std::max(now, ended(all)), cost.optimizer_step.ns);
    for (std::size_t k = 0; k < cost.bucket_steps.size(); ++k) {
      const bool is_tied = k + 1 == cost.bucket_steps.size() && all.size() > buckets.size();
      const std::int64_t reduced = is_tied ? ended(all) : (k < buckets.size() ? buckets[k].end : 0);
      step(std::max(now, reduced), cost.bucket_steps[k].ns);
    }
  }

  /// When work of `length` ends that is slowed down while something is reduced.
  std::int64_t end_beside(const std::vector<Interval>& reductions, std::int64_t now,
                          std::int64_t length) const {
    const std::int64_t fast = pipeline_.costs.overlap_slowdown.billionths;
    Wide work = Wide{length} * fast;
    while (true) {
      std::int64_t speed = fast;
      std::int64_t next = INT64_MAX;
      for (const auto& [start, end] : reductions) {
        if (start <= now && now < end) speed = 1'000'000'000;
        if (start > now) next = std::min(next, start);
        if (end > now) next = std::min(next, end);
      }
      const auto needed = static_cast<std::int64_t>((work + speed - 1) / speed);
      if (next == INT64_MAX || needed <= next - now) return now + needed;
      work -= Wide{next - now} * speed;
      now = next;
    }
  }

  /// How long work of `length` takes if it is slowed down for the first `slowed` of it.
  std::int64_t time_for(std::int64_t length, std::int64_t slowed) const {
    const std::int64_t fast = pipeline_.costs.overlap_slowdown.billionths;
    const std::int64_t slow = 1'000'000'000;
    slowed = std::max<std::int64_t>(0, slowed);
    const std::int64_t work = length * fast;
    if (work <= slowed * slow) return (work + slow - 1) / slow;
    return slowed + (work - slowed * slow + fast - 1) / fast;
  }

  /// From bucket to bucket: slowed down until the reductions of what is ready are over.
  std::int64_t last_backward(std::size_t s, std::int64_t start) {
    const StageCost& cost = pipeline_.costs.stages[s];
    times_.reduction[s].resize(cost.buckets.size());
    std::int64_t now = start;
    std::int64_t done = 0;
    std::int64_t reducing_until = 0;
    PassTraffic before;
    for (std::size_t k = 0; k <= cost.buckets.size(); ++k) {
      const bool is_end = k == cost.buckets.size();
      const std::int64_t moment = is_end ? cost.backward.ns : cost.bucket_ready[k].ns;
      const std::vector<PassTraffic>& before_bucket = traffic_[s].before_bucket;
      const PassTraffic until =
          is_end || before_bucket.empty() ? traffic_[s].backward : before_bucket[k];
      now = end_of_piece(s, now, moment - done, reducing_until - now, until - before);
      before = until;
      done = moment;
      if (is_end) break;
      // When it ends is for the links to say; here it lasts as long as they said last.
      Interval& reduction = times_.reduction[s][k];
      const std::int64_t lasting = reduction.end - reduction.start;
      reduction.start = std::max(now, reducing_until);
      reduction.end = reduction.start + lasting;
      reducing_until = reduction.end;
    }
    return now;
  }

  /// The nanoseconds in which the ranks of the receiver gather all that it gets from shares.
  std::int64_t gather_of(const PairFlow& flow) const {
    const ModelProfile& profile = pipeline_.profile;
    if (profile.boundaries == Boundaries::Whole) return 0;
    const GroupRing& ring = profile.group.ring(CollectiveMembers::Tensor);
    const Wide ranks = profile.parallelism.tensor;
    const Wide all = ranks * ring.bandwidth.bytes_per_second;
    const Wide ticks = ((ranks - 1) * flow.received.count * 1'024'000'000'000 + all - 1) / all;
    return static_cast<std::int64_t>((ticks + 1023) / 1024 + (ranks - 1) * ring.latency.ns);
  }

  /// What a port is busy for one transfer, in ticks, and the longest latency through it.
  std::map<PortIndex, std::pair<std::int64_t, std::int64_t>> loads_of(
      const TransferCost& cost) const {
    std::map<PortIndex, std::int64_t> bytes;
    std::map<PortIndex, std::pair<std::int64_t, std::int64_t>> loads;
    for (const PairFlow& flow : cost.flows) {
      const Route route = pipeline_.topology.route(flow.from, flow.to);
      for (const PortIndex port : route.ports) {
        bytes[port] += flow.size.count;
        loads[port].second = std::max(loads[port].second, route.latency.ns + gather_of(flow));
      }
    }
    for (const auto& [port, size] : bytes) {
      const std::int64_t bandwidth =
          pipeline_.topology.ports()[port.position()].bandwidth.bytes_per_second;
      loads[port].first = (size * 1'024'000'000'000 + bandwidth - 1) / bandwidth;
    }
    return loads;
  }

  void transfer(const TransferCost& cost, const std::vector<Interval>& made,
                std::vector<Interval>& sent) const {
    const auto loads = loads_of(cost);
    std::map<PortIndex, std::int64_t> free_from;
    for (std::size_t m = 0; m < made.size(); ++m) {
      const std::int64_t ready = made[m].end;
      std::int64_t first = ready * 1024;
      std::int64_t arrival = ready;
      for (const auto& [port, load] : loads) {
        const std::int64_t start = std::max(ready * 1024, free_from[port]);
        first = port == loads.begin()->first ? start : std::min(first, start);
        free_from[port] = start + load.first;
        arrival = std::max(arrival, (free_from[port] + 1023) / 1024 + load.second);
      }
      sent[m] = {(first + 1023) / 1024, arrival};
    }
  }

  const Pipeline& pipeline_;
  Contention contention_;
  std::vector<Pair> pairs_;
  ReferenceTimes times_;
  // By stage; and what the pieces of its passes have, in their order.
  std::vector<Traffic> traffic_;
  std::vector<std::vector<PassTraffic>> pieces_;
};

/// A simulated timeline in the same form. Requires: no stage deals.
inline ReferenceTimes times_of(const Pipeline& pipeline, const simulate::SimulationResult& result) {
  const auto count = static_cast<std::size_t>(pipeline.plan.num_micro_batches);
  const std::size_t stages = pipeline.plan.stages.size();
  const std::vector<Interval> none(count, {-1, -1});
  ReferenceTimes times{.forward = {stages, none},
                       .backward = {stages, none},
                       .activation = {stages - 1, none},
                       .gradient = {stages - 1, none},
                       .reduction = {},
                       .tied = {pipeline.costs.ties.size(), Interval{-1, -1}},
                       .step = std::vector<std::vector<Interval>>(stages)};
  for (const StageCost& stage : pipeline.costs.stages) {
    times.reduction.emplace_back(stage.buckets.size(), Interval{-1, -1});
  }
  for (const TimedAction& timed : result.timeline.actions) {
    const auto stage = timed.lane.position();
    const auto index = static_cast<std::size_t>(timed.action.index);
    const Interval interval{timed.start.ns, timed.end.ns};
    switch (timed.action.kind) {
      case ActionKind::Forward:
        times.forward[stage][index] = interval;
        break;
      case ActionKind::Backward:
        times.backward[stage][index] = interval;
        break;
      case ActionKind::SendActivation:
        times.activation[stage][index] = interval;
        break;
      case ActionKind::SendGradient:
        times.gradient[stage - 1][index] = interval;
        break;
      case ActionKind::AllReduce:
        times.reduction[stage][index] = interval;
        break;
      case ActionKind::ReduceTied:
        times.tied[index] = interval;
        break;
      default:
        times.step[stage].push_back(interval);
        break;
    }
  }
  return times;
}

}  // namespace dapple::small
