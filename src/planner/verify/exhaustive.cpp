#include "planner/verify/exhaustive.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "dapple/cost/buckets.h"
#include "dapple/cost/cost_model.h"
#include "dapple/cost/memory.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/cost/stage.h"
#include "dapple/planner/candidates/depths.h"
#include "dapple/schedule/schedule.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/simulate/simulate.h"
#include "planner/candidates/as_pinned.h"

namespace dapple::planner {
namespace {

/// Micro-batches times stages whose simulation takes about as long as costing a partial plan.
constexpr std::int64_t kPassesPerPartialPlan = 8;
/// Sets of devices that are put together in about that time.
constexpr std::int64_t kDeviceSetsPerPartialPlan = 256;

/// Devices with consecutive numbers that nothing tells apart. Any way to deal some of them out to
/// stages equals the one that deals them out in order: replicas keep their order, as all of a
/// group's devices come before or behind those of another group.
struct AlikeDevices {
  std::int32_t first = 0;
  std::int32_t count = 0;
  std::int32_t used = 0;
};

bool are_alike(DeviceIndex a, DeviceIndex b, const Topology& topology) {
  const Server& server = topology.server(topology.device(a).server);
  const Server& other = topology.server(topology.device(b).server);
  if (server.group != other.group) return false;
  if (topology.device(a).server != topology.device(b).server) {
    return server.device_count == 1 && other.device_count == 1 &&
           topology.have_same_uplinks(topology.device(a).server, topology.device(b).server);
  }
  const ServerGroup& group = topology.group_of(topology.device(a).server);
  if (group.links.kind != ServerLinks::Kind::Switch) return false;
  return group.nics.empty() || (topology.nic_of(a) == topology.nic_of(b) &&
                                topology.way_to_nic(a).ports == topology.way_to_nic(b).ports);
}

std::vector<AlikeDevices> group_alike(const Topology& topology) {
  std::vector<AlikeDevices> groups;
  for (std::int32_t d = 0; d < topology.device_count(); ++d) {
    if (!groups.empty() && are_alike({groups.back().first}, {d}, topology)) {
      ++groups.back().count;
    } else {
      groups.push_back({.first = d, .count = 1});
    }
  }
  return groups;
}

/// The most micro-batches that a replica has room for, whatever the depths beside it are: with
/// equal ones fewest wait. Below 1 if not even one fits.
std::int64_t most_in_flight(const ReplicaCost& replica, std::int64_t num_micro_batches) {
  const Bytes free = replica.memory_limit - replica.memory.peak();  // with one in flight
  if (free.count < 0) return 0;
  const Bytes each = replica.memory.per_micro_batch;
  if (each.count == 0) return num_micro_batches;
  return std::min(num_micro_batches, 1 + free.count / each.count);
}

/// Steps of the table of round trips above which it would take longer than what it saves.
constexpr std::int64_t kMostTableSteps = 20'000'000;

/// What any stages of the first layers take at least, on whatever devices, in a plan that takes
/// less than a given time.
class PrefixLowerBound {
 public:
  /// With `replicas`, all stages have as many.
  PrefixLowerBound(const CostModel& costs, const ExhaustiveProblem& problem,
                   std::int64_t micro_batch_size, std::optional<std::int64_t> replicas);

  /// Of one micro-batch, through the first `layers` layers and back on at most `devices` devices in
  /// stages each of which, behind the round trip to it, has time for all of its own work;
  /// INT64_MAX where no stages have.
  Duration round_trip(std::int32_t layers, std::int64_t devices) const {
    return round_trips_[static_cast<std::size_t>(layers)][static_cast<std::size_t>(devices)];
  }
  /// Of its forwards alone, on any number of devices.
  Duration forward(std::int32_t layers) const {
    return forwards_[static_cast<std::size_t>(layers)];
  }

 private:
  /// Replicas that make the largest share smaller than any fewer do, and the tables of that share,
  /// one for each kind of device.
  struct Share {
    std::int64_t replicas = 1;
    std::vector<const LayerTable*> tables;
  };
  static Duration least(const std::vector<const LayerTable*>& tables, LayerRange layers);
  void fill_forwards(const std::vector<Share>& shares, std::int32_t layers);
  void fill_round_trips(const std::vector<Share>& shares, std::int32_t layers);

  std::int64_t num_micro_batches_;
  std::int64_t devices_;
  Duration below_;
  /// Else a micro-batch may pass a stage without waiting for its slowest replica, and what the
  /// quickest takes for its share is not known: it counts as nothing.
  bool are_together_;
  std::vector<Duration> forwards_;
  std::vector<std::vector<Duration>> round_trips_;  // by layers, then devices
};

PrefixLowerBound::PrefixLowerBound(const CostModel& costs, const ExhaustiveProblem& problem,
                                   std::int64_t micro_batch_size,
                                   std::optional<std::int64_t> replicas)
    : num_micro_batches_(problem.global_batch_size / micro_batch_size),
      devices_(costs.topology().device_count()),
      below_(problem.below),
      are_together_(problem.mode.replicas == Replicas::Together) {
  const Topology& topology = costs.topology();
  std::set<std::int32_t> kinds;
  for (std::int32_t d = 0; d < topology.device_count(); ++d) {
    kinds.insert(topology.device(DeviceIndex{d}).kind);
  }
  std::vector<Share> shares;
  std::int64_t last = INT64_MAX;
  for (std::int64_t count = 1; count <= std::min(devices_, micro_batch_size); ++count) {
    const std::int64_t largest = replica_share(micro_batch_size, count, 0).size();
    if (replicas ? count != *replicas : largest == last) continue;
    last = largest;
    Share& share = shares.emplace_back(Share{.replicas = count, .tables = {}});
    for (const std::int32_t kind : kinds) share.tables.push_back(&costs.table(largest, kind));
  }
  fill_forwards(shares, costs.layer_count());
  fill_round_trips(shares, costs.layer_count());
}

/// Forward and backward on the quickest kind.
Duration PrefixLowerBound::least(const std::vector<const LayerTable*>& tables, LayerRange layers) {
  Duration least{INT64_MAX};
  for (const LayerTable* table : tables) {
    least = std::min(least, table->forward(layers) + table->backward(layers));
  }
  return least;
}

void PrefixLowerBound::fill_forwards(const std::vector<Share>& shares, std::int32_t layers) {
  forwards_.assign(static_cast<std::size_t>(layers) + 1, {});
  for (std::int32_t layer = 0; layer < layers && are_together_; ++layer) {
    Duration least{INT64_MAX};
    for (const Share& share : shares) {
      for (const LayerTable* table : share.tables) {
        least = std::min(least, table->forward({layer, layer + 1}));
      }
    }
    const auto l = static_cast<std::size_t>(layer);
    forwards_[l + 1] = forwards_[l] + least;
  }
}

/// From the first layer on: the last stage of each prefix by where it begins and its replicas.
void PrefixLowerBound::fill_round_trips(const std::vector<Share>& shares, std::int32_t layers) {
  constexpr Duration kNever{INT64_MAX};
  const auto columns = static_cast<std::size_t>(devices_) + 1;
  const std::int64_t steps =
      std::int64_t{layers} * layers * devices_ * static_cast<std::int64_t>(shares.size());
  const bool is_large = steps > kMostTableSteps;
  round_trips_.assign(static_cast<std::size_t>(layers) + 1,
                      std::vector<Duration>(columns, is_large ? Duration{} : kNever));
  if (is_large) return;
  round_trips_.front().assign(columns, {});
  for (std::int32_t end = 1; end <= layers; ++end) {
    std::vector<Duration>& row = round_trips_[static_cast<std::size_t>(end)];
    for (std::int32_t begin = 0; begin < end; ++begin) {
      const std::vector<Duration>& before = round_trips_[static_cast<std::size_t>(begin)];
      for (const Share& share : shares) {
        const Duration one = least(share.tables, {begin, end});
        const Duration work = num_micro_batches_ * one;
        const Duration trip = are_together_ ? one : Duration{};
        for (auto n = static_cast<std::size_t>(share.replicas); n < columns; ++n) {
          const Duration to_here = before[n - static_cast<std::size_t>(share.replicas)];
          if (to_here == kNever || to_here + work >= below_) continue;
          row[n] = std::min(row[n], to_here + trip);
        }
      }
    }
  }
}

class Exhaustive {
 public:
  Exhaustive(const ModelProfile& profile, const Topology& topology,
             const ExhaustiveProblem& problem, Progress* progress)
      : profile_(profile),
        topology_(topology),
        problem_(problem),
        progress_(progress),
        costs_(profile, topology),
        groups_(group_alike(topology)) {}

  ExhaustiveOutcome run();

 private:
  void go_through(std::int64_t micro_batch_size, std::optional<std::int64_t> replicas);
  void add_stage(std::int32_t end);
  void choose_devices(std::size_t group, std::int64_t left, std::int32_t end);
  bool are_devices_in_order() const;
  bool is_allowed(LayerRange layers, bool recompute) const;
  void try_stage(std::int32_t begin, std::int32_t end, bool recompute);
  bool can_be_completed(std::int32_t begin, Duration bound, const PlanCost& cost) const;
  std::vector<std::int64_t> depth_limits(const PlanCost& cost) const;
  void take_least_depths(const PlanCost& cost);
  void choose_depths(std::size_t stage, const PlanCost& cost);
  void simulate_plan();
  /// Whatever the contention.
  search::BoundedPlan bounded(const PlanCost& cost) const {
    return {plan_, cost, topology_, {Contention::Off, problem_.mode.replicas}};
  }
  bool is_over();

  const ModelProfile& profile_;
  const Topology& topology_;
  const ExhaustiveProblem& problem_;
  Progress* progress_;
  CostModel costs_;
  std::vector<AlikeDevices> groups_;
  std::optional<std::int64_t> replicas_;   // of every stage, where they are alike
  std::optional<PrefixLowerBound> floor_;  // at the plan's micro-batch size
  Plan plan_;                              // its last stages, so far
  std::vector<DeviceIndex> devices_;
  std::vector<std::int64_t> limits_;  // per stage of a whole plan
  std::int64_t work_ = 0;             // in partial plans costed
  std::int64_t device_sets_ = 0;      // looked at, whether or not a stage on them is allowed
  std::int64_t next_question_ = 0;    // to the progress, in the same
  bool is_stopped_ = false;
  ExhaustiveOutcome outcome_;
};

bool Exhaustive::is_over() {
  constexpr std::int64_t kWorkBetweenQuestions = 256;
  if (progress_ != nullptr && work_ >= next_question_) {
    next_question_ = work_ + kWorkBetweenQuestions;
    SearchProgress told;
    told.states = outcome_.partial_plans;
    told.simulated = outcome_.simulated;
    progress_->update(told);
    is_stopped_ = progress_->should_stop();
  }
  return outcome_.faster || is_stopped_ || work_ >= problem_.budget;
}

ExhaustiveOutcome Exhaustive::run() {
  for (const std::int64_t size : problem_.micro_batch_sizes) {
    if (!problem_.are_stages_alike) {
      const std::optional<std::int32_t> pinned = problem_.pins.replicas;
      go_through(size, pinned ? std::optional<std::int64_t>(*pinned) : std::nullopt);
      continue;
    }
    for (std::int64_t replicas = 1;
         replicas <= std::min<std::int64_t>(topology_.device_count(), size); ++replicas) {
      if (size % replicas == 0) go_through(size, replicas);
    }
  }
  outcome_.is_through = !is_over();
  outcome_.is_stopped = is_stopped_;
  return std::move(outcome_);
}

/// All plans of one micro-batch size, and of as many replicas of every stage, if given.
void Exhaustive::go_through(std::int64_t micro_batch_size, std::optional<std::int64_t> replicas) {
  // Every replica has a sample of each micro-batch.
  if (is_over() || replicas.value_or(1) > micro_batch_size) return;
  replicas_ = replicas;
  floor_.emplace(costs_, problem_, micro_batch_size, replicas);
  for (const GradientSynchronization& gradients : problem_.gradients) {
    plan_ = {.global_batch_size = problem_.global_batch_size,
             .micro_batch_size = micro_batch_size,
             .num_micro_batches = problem_.global_batch_size / micro_batch_size,
             .gradients = gradients,
             .family = problem_.family,
             .warmup_depths = {},
             .stages = {}};
    add_stage(costs_.layer_count());
  }
}

/// In front of the partial plan, every stage that ends at layer `end`.
void Exhaustive::add_stage(std::int32_t end) {
  const std::vector<DeviceIndex> devices = std::exchange(devices_, {});
  choose_devices(0, replicas_.value_or(plan_.micro_batch_size), end);
  devices_ = devices;
}

void Exhaustive::choose_devices(std::size_t group, std::int64_t left, std::int32_t end) {
  if (is_over()) return;
  if (group == groups_.size() || left == 0) {
    if (++device_sets_ % kDeviceSetsPerPartialPlan == 0) ++work_;
    if (devices_.empty() ||
        (replicas_ && static_cast<std::int64_t>(devices_.size()) != *replicas_)) {
      return;
    }
    if (problem_.pins.in_order && !are_devices_in_order()) return;
    for (std::int32_t begin = end - 1; begin >= 0; --begin) {
      for (const bool recompute : {false, true}) {
        if (is_over()) return;
        if (is_allowed({begin, end}, recompute)) try_stage(begin, end, recompute);
      }
    }
    return;
  }
  choose_devices(group + 1, left, end);
  AlikeDevices& alike = groups_[group];
  const std::int32_t free = alike.count - alike.used;
  std::int32_t taken = 0;
  while (taken < std::min<std::int64_t>(free, left)) {
    devices_.push_back({alike.first + alike.used});
    ++alike.used;
    ++taken;
    choose_devices(group + 1, left - taken, end);
  }
  alike.used -= taken;
  devices_.resize(devices_.size() - static_cast<std::size_t>(taken));
}

/// Whether the chosen devices can stand before those of the partial plan: of alike ones some may be
/// before, whichever they are.
bool Exhaustive::are_devices_in_order() const {
  const auto group_of = [this](DeviceIndex device) {
    const auto behind =
        std::find_if(groups_.begin(), groups_.end(),
                     [device](const AlikeDevices& alike) { return alike.first > device.value; });
    return behind - groups_.begin();
  };
  const auto last = group_of(*std::max_element(devices_.begin(), devices_.end()));
  return std::all_of(plan_.stages.begin(), plan_.stages.end(), [&](const StagePlan& stage) {
    return std::all_of(stage.devices.begin(), stage.devices.end(),
                       [&](DeviceIndex device) { return last <= group_of(device); });
  });
}

/// Whether a stage of the chosen devices may be like this, in front of the partial plan.
bool Exhaustive::is_allowed(LayerRange layers, bool recompute) const {
  const auto replicas = static_cast<std::int64_t>(devices_.size());
  const Pins& pins = problem_.pins;
  if (replicas_ && replicas != *replicas_) return false;
  if (recompute && !problem_.may_recompute) return false;
  if (!pins.allow(layers, replicas, recompute)) return false;
  const auto stages = static_cast<std::int32_t>(plan_.stages.size()) + 1;
  if (pins.stages && (stages > *pins.stages || (layers.begin == 0) != (stages == *pins.stages))) {
    return false;
  }
  return !problem_.are_stages_alike || plan_.stages.empty() ||
         plan_.stages.back().recompute == recompute;
}

/// From the first forward of the partial plan to its last backward, at least: each stage's work
/// behind the round trip to it.
Duration span_of(const PlanCost& cost, std::int64_t num_micro_batches, Replicas replicas) {
  Duration span;
  Duration to_here;
  for (const StageCost& stage : cost.stages) {
    Duration quickest = stage.forward + stage.backward;
    Duration busiest = quickest;
    for (const ReplicaCost& replica : stage.replicas) {
      const Duration both = replica.forward + replica.backward;
      busiest = std::max(busiest, both);
      if (replicas == Replicas::Independent) quickest = std::min(quickest, both);
    }
    span = std::max(span, to_here + num_micro_batches * busiest);
    to_here += quickest;
  }
  return span;
}

/// Whether some stages of the layers in front of `begin`, on the devices left, may make a plan
/// below the time that is looked for out of a partial plan that takes at least `bound` from its
/// first forward on.
bool Exhaustive::can_be_completed(std::int32_t begin, Duration bound, const PlanCost& cost) const {
  std::int64_t left = 0;
  for (const AlikeDevices& alike : groups_) left += alike.count - alike.used;
  if (bound + floor_->forward(begin) >= problem_.below) return false;
  const Duration round_trip = floor_->round_trip(begin, left);
  if (round_trip.ns == INT64_MAX) return false;
  const Duration span = span_of(cost, plan_.num_micro_batches, problem_.mode.replicas);
  return round_trip + span < problem_.below;
}

void Exhaustive::try_stage(std::int32_t begin, std::int32_t end, bool recompute) {
  ++outcome_.partial_plans;
  ++work_;
  StagePlan stage;
  stage.layers = {begin, end};
  stage.devices = devices_;
  stage.recompute = recompute;
  if (devices_.size() > 1)
    stage.gradient_buckets =
        gradient_buckets(profile_, stage.layers, plan_.gradients.bucket_size).sizes;
  plan_.stages.insert(plan_.stages.begin(), std::move(stage));
  // Of a part of a plan it is not known yet who else adds to them.
  if (begin == 0) plan_.tied_gradients = tied_gradients(profile_, plan_.stages);
  plan_.warmup_depths.assign(plan_.stages.size(), 1);
  const PlanCost cost = costs_.plan_cost(plan_);
  plan_.warmup_depths = depth_limits(cost);
  const bool fits = plan_.warmup_depths.front() > 0;
  // Whatever is put in front, a plan takes no less than its last stages do at their deepest.
  const Duration bound = fits ? lower_bound(bounded(cost)) : problem_.below;
  if (bound < problem_.below) {
    if (begin == 0) {
      limits_ = plan_.warmup_depths;
      choose_depths(0, cost);
    } else if (can_be_completed(begin, bound, cost)) {
      add_stage(begin);
    }
  }
  plan_.tied_gradients.clear();
  plan_.stages.erase(plan_.stages.begin());
}

/// Per stage; 0 for all where one has no room for any.
std::vector<std::int64_t> Exhaustive::depth_limits(const PlanCost& cost) const {
  std::vector<std::int64_t> limits(cost.stages.size(), plan_.num_micro_batches);
  if (problem_.ignore_memory) return limits;
  for (std::size_t s = 0; s < cost.stages.size(); ++s) {
    for (const ReplicaCost& replica : cost.stages[s].replicas) {
      limits[s] = std::min(limits[s], most_in_flight(replica, plan_.num_micro_batches));
    }
    const std::int64_t least =
        problem_.family == ScheduleFamily::GPipe ? plan_.num_micro_batches : 1;
    if (limits[s] < least) return std::vector<std::int64_t>(limits.size(), 0);
  }
  return limits;
}

/// The least depths that keep all stages busy, where only these are looked for.
void Exhaustive::take_least_depths(const PlanCost& cost) {
  const std::vector<std::int64_t> least =
      least_depths(plan_.stages.size(), plan_.num_micro_batches);
  for (std::size_t s = 0; s < least.size(); ++s) {
    if (least[s] > limits_[s]) return;
  }
  const std::vector<std::int64_t> before = std::exchange(plan_.warmup_depths, least);
  if (lower_bound(bounded(cost)) < problem_.below) simulate_plan();
  plan_.warmup_depths = before;
}

/// All legal depths of a whole plan from that stage on; those before it are chosen.
void Exhaustive::choose_depths(std::size_t stage, const PlanCost& cost) {
  if (is_over()) return;
  if (problem_.pins.least_depths) return take_least_depths(cost);
  if (stage == limits_.size()) return simulate_plan();
  const std::vector<std::int64_t> before = plan_.warmup_depths;
  const std::int64_t most = stage == 0 ? limits_[0] : std::min(limits_[stage], before[stage - 1]);
  const std::int64_t least = problem_.family == ScheduleFamily::GPipe ? most : 1;
  for (std::int64_t depth = most; depth >= least; --depth) {
    for (std::size_t s = stage; s < limits_.size(); ++s) {
      plan_.warmup_depths[s] = std::min(limits_[s], depth);
    }
    // Less depth, here or behind, makes no plan faster.
    if (lower_bound(bounded(cost)) >= problem_.below) break;
    choose_depths(stage + 1, cost);
  }
  plan_.warmup_depths = before;
}

void Exhaustive::simulate_plan() {
  ++outcome_.simulated;
  work_ += 1 + plan_.num_micro_batches * static_cast<std::int64_t>(plan_.stages.size()) /
                   kPassesPerPartialPlan;
  const PlanCost cost = costs_.plan_cost(plan_);
  if (!problem_.ignore_memory && !memory_shortages(cost).empty()) return;
  const Duration iteration =
      simulate::simulate(generate(plan_, problem_.mode.replicas), cost, topology_,
                         {.contention = problem_.mode.contention, .record = false})
          .iteration;
  if (iteration >= problem_.below) return;
  outcome_.faster = plan_;
  // Of alike devices any were chosen.
  if (problem_.pins.in_order) put_in_order(outcome_.faster->stages);
  outcome_.iteration = iteration;
}

}  // namespace

ExhaustiveOutcome search_exhaustively(const ModelProfile& profile, const Topology& topology,
                                      const ExhaustiveProblem& problem, Progress* progress) {
  return Exhaustive(profile, topology, problem, progress).run();
}

}  // namespace dapple::planner
