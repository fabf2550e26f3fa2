#include "exhaustive.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "dapple/cost/costs.h"
#include "dapple/schedule/schedule.h"
#include "dapple/search/bound.h"
#include "dapple/simulate/simulate.h"

namespace dapple {
namespace {

/// Micro-batches times stages whose simulation takes about as long as costing a partial plan.
constexpr std::int64_t kPassesPerPartialPlan = 8;

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
  void add_stage(std::int32_t end);
  void choose_devices(std::size_t group, std::int64_t left, std::int32_t end);
  void try_stage(std::int32_t begin, std::int32_t end, bool recompute);
  std::vector<std::int64_t> depth_limits(const PlanCost& cost) const;
  void choose_depths(std::size_t stage, const PlanCost& cost);
  void simulate_plan();
  /// Whatever the contention.
  BoundedPlan bounded(const PlanCost& cost) const {
    return {plan_, cost, topology_, {Contention::Off, problem_.mode.replicas}};
  }
  bool is_over();

  const ModelProfile& profile_;
  const Topology& topology_;
  const ExhaustiveProblem& problem_;
  Progress* progress_;
  CostModel costs_;
  std::vector<AlikeDevices> groups_;
  Plan plan_;  // its last stages, so far
  std::vector<DeviceIndex> devices_;
  std::vector<std::int64_t> limits_;  // per stage of a whole plan
  std::int64_t work_ = 0;             // in partial plans costed
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
  for (std::int64_t size = 1; size <= problem_.global_batch_size && !is_over(); ++size) {
    if (problem_.global_batch_size % size != 0) continue;
    plan_ = {.global_batch_size = problem_.global_batch_size,
             .micro_batch_size = size,
             .num_micro_batches = problem_.global_batch_size / size,
             .gradients = problem_.gradients,
             .family = problem_.family,
             .warmup_depths = {},
             .stages = {}};
    add_stage(costs_.layer_count());
  }
  outcome_.is_through = !is_over();
  return std::move(outcome_);
}

/// In front of the partial plan, every stage that ends at layer `end`.
void Exhaustive::add_stage(std::int32_t end) {
  const std::vector<DeviceIndex> devices = std::exchange(devices_, {});
  choose_devices(0, plan_.micro_batch_size, end);
  devices_ = devices;
}

void Exhaustive::choose_devices(std::size_t group, std::int64_t left, std::int32_t end) {
  if (group == groups_.size()) {
    if (devices_.empty()) return;
    for (std::int32_t begin = end - 1; begin >= 0; --begin) {
      for (const bool recompute : {false, true}) {
        if (is_over()) return;
        try_stage(begin, end, recompute);
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

void Exhaustive::try_stage(std::int32_t begin, std::int32_t end, bool recompute) {
  ++outcome_.partial_plans;
  ++work_;
  StagePlan stage;
  stage.layers = {begin, end};
  stage.devices = devices_;
  stage.recompute = recompute;
  if (devices_.size() > 1)
    stage.gradient_buckets =
        gradient_buckets(profile_, stage.layers, problem_.gradients.bucket_size).sizes;
  plan_.stages.insert(plan_.stages.begin(), std::move(stage));
  // Of a part of a plan it is not known yet who else adds to them.
  if (begin == 0) plan_.tied_gradients = tied_gradients(profile_, plan_.stages);
  plan_.warmup_depths.assign(plan_.stages.size(), 1);
  const PlanCost cost = costs_.plan_cost(plan_);
  plan_.warmup_depths = depth_limits(cost);
  const bool fits = plan_.warmup_depths.front() > 0;
  // Whatever is put in front, a plan takes no less than its last stages do at their deepest.
  if (fits && lower_bound(bounded(cost)) < problem_.below) {
    if (begin == 0) {
      limits_ = plan_.warmup_depths;
      choose_depths(0, cost);
    } else {
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

/// All legal depths of a whole plan from that stage on; those before it are chosen.
void Exhaustive::choose_depths(std::size_t stage, const PlanCost& cost) {
  if (is_over()) return;
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
  const Duration iteration = simulate(generate(plan_, problem_.mode.replicas), cost, topology_,
                                      {.contention = problem_.mode.contention, .record = false})
                                 .iteration;
  if (iteration >= problem_.below) return;
  outcome_.faster = plan_;
  outcome_.iteration = iteration;
}

}  // namespace

ExhaustiveOutcome search_exhaustively(const ModelProfile& profile, const Topology& topology,
                                      const ExhaustiveProblem& problem, Progress* progress) {
  return Exhaustive(profile, topology, problem, progress).run();
}

}  // namespace dapple
