#include "planner/verify/exhaustive.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "dapple/cost/buckets.h"
#include "dapple/cost/cost_model.h"
#include "dapple/cost/memory.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/cost/stage.h"
#include "dapple/planner/candidates/depths.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/profile/variants.h"
#include "dapple/schedule/schedule.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/stage_form.h"
#include "dapple/simulate/simulate.h"
#include "dapple/topology/servers_of_kind.h"
#include "planner/candidates/as_pinned.h"

namespace dapple::planner {
namespace {

/// The number of stage passes whose simulation takes about as long as costing a partial plan.
constexpr std::int64_t kPassesPerPartialPlan = 8;
/// The number of device sets that are enumerated in about that time.
constexpr std::int64_t kDeviceSetsPerPartialPlan = 256;

/// Interchangeable devices with consecutive numbers. Any assignment of some of them to stages is
/// equivalent to the one that assigns them in order: replicas keep their order, as all devices of a
/// group come before or after those of another group.
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

/// Returns the most micro-batches that a replica has room for at any depths of the neighbouring
/// stages; at equal depths the fewest tensors wait. Returns 0 if not even one fits. Requires: the
/// memory of the replica is that at depths of one.
std::int64_t most_in_flight(const ReplicaCost& replica, std::int64_t num_micro_batches) {
  const Bytes free = replica.memory_limit - replica.memory.peak();  // with one in flight
  if (free.count < 0) return 0;
  const Bytes each = replica.memory.per_micro_batch;
  if (each.count == 0) return num_micro_batches;
  return std::min(num_micro_batches, 1 + free.count / each.count);
}

/// A table of round trips that needs more steps than this would take longer than it saves.
constexpr std::int64_t kMostTableSteps = 20'000'000;

/// Lower bounds on the times of any stages of the first layers, on any devices, in plans that take
/// less than a given time: the figures of (V2) and (V3).
class PrefixLowerBound {
 public:
  /// If `replicas` is given, all stages have that number.
  PrefixLowerBound(const CostModel& costs, const ExhaustiveProblem& problem,
                   std::int64_t micro_batch_size, std::optional<std::int64_t> replicas);

  /// The least round trip of one micro-batch through the first `layers` layers and back, on at most
  /// `devices` devices, in stages each of which has time for all of its work after the round trip
  /// to it; infinite if there are no such stages.
  Duration round_trip(std::int32_t layers, std::int64_t devices) const {
    return round_trips_[static_cast<std::size_t>(layers)][static_cast<std::size_t>(devices)];
  }
  /// The least time of the forwards of one micro-batch through the first `layers` layers, on any
  /// number of devices.
  Duration forward(std::int32_t layers) const {
    return forwards_[static_cast<std::size_t>(layers)];
  }

 private:
  // A number of replicas with a smaller largest share than any smaller number, or to which
  // micro-batches are dealt, and the layer tables of that share, one for each kind of device. With
  // shares by speed some replica has as many samples or more, and times do not fall with samples.
  struct Share {
    // The devices of all replicas.
    std::int64_t devices = 1;
    // Those of the busiest replica.
    std::int64_t micro_batches = 1;
    std::vector<const LayerTable*> tables;
  };
  static std::vector<const LayerTable*> tables_of(const CostModel& costs, std::int64_t samples,
                                                  std::int32_t devices_per_replica);
  void add_shares(const CostModel& costs, std::int64_t micro_batch_size,
                  std::optional<std::int64_t> replicas, std::int32_t devices_per_replica,
                  std::vector<Share>& shares) const;
  static Duration least(const std::vector<const LayerTable*>& tables, LayerRange layers);
  void fill_forwards(const std::vector<Share>& shares, std::int32_t layers);
  void fill_round_trips(const std::vector<Share>& shares, std::int32_t layers);

  std::int64_t num_micro_batches_;
  std::int64_t devices_;
  Duration below_;
  // Independent replicas let a micro-batch pass a stage without waiting for its slowest replica.
  // The time of the fastest one for its share is not known then and counts as zero.
  bool are_together_;
  std::vector<Duration> forwards_;
  // Indexed by layers, then devices.
  std::vector<std::vector<Duration>> round_trips_;
};

PrefixLowerBound::PrefixLowerBound(const CostModel& costs, const ExhaustiveProblem& problem,
                                   std::int64_t micro_batch_size,
                                   std::optional<std::int64_t> replicas)
    : num_micro_batches_(problem.global_batch_size / micro_batch_size),
      devices_(costs.topology().device_count()),
      below_(problem.below),
      are_together_(problem.mode.replicas == Replicas::Together) {
  std::vector<Share> shares;
  add_shares(costs, micro_batch_size, replicas, 1, shares);
  for (const std::int32_t devices : costs.larger_groups()) {
    add_shares(costs, micro_batch_size, replicas, devices, shares);
  }
  for (std::int64_t count = 2; count <= std::min(devices_, num_micro_batches_); ++count) {
    if (!problem.may_deal || (replicas && count != *replicas)) continue;
    shares.push_back({.devices = count,
                      .micro_batches = divide_up(num_micro_batches_, count),
                      .tables = tables_of(costs, micro_batch_size, 1)});
  }
  fill_forwards(shares, costs.layer_count());
  fill_round_trips(shares, costs.layer_count());
}

/// Adds the shares of stages that split, in the forms with so many devices in a replica.
void PrefixLowerBound::add_shares(const CostModel& costs, std::int64_t micro_batch_size,
                                  std::optional<std::int64_t> replicas,
                                  std::int32_t devices_per_replica,
                                  std::vector<Share>& shares) const {
  std::optional<std::int64_t> last;
  const std::int64_t most = std::min(devices_ / devices_per_replica, micro_batch_size);
  for (std::int64_t count = 1; count <= most; ++count) {
    const std::int64_t largest = replica_share(micro_batch_size, count, 0).size();
    if (replicas ? count != *replicas : largest == last) continue;
    last = largest;
    shares.push_back({.devices = count * devices_per_replica,
                      .micro_batches = num_micro_batches_,
                      .tables = tables_of(costs, largest, devices_per_replica)});
  }
}

/// Returns the layer tables of so many samples, in every form with so many devices in a replica and
/// on every kind of device.
std::vector<const LayerTable*> PrefixLowerBound::tables_of(const CostModel& costs,
                                                           std::int64_t samples,
                                                           std::int32_t devices_per_replica) {
  std::vector<const LayerTable*> tables;
  for (FormIndex form; form.value < costs.form_count(); form = form.next()) {
    if (costs.in(form).devices_per_replica() != devices_per_replica) continue;
    for (const std::int32_t kind : kinds_in_use(costs.topology())) {
      tables.push_back(&costs.in(form).table(samples, kind));
    }
  }
  return tables;
}

/// Returns the least forward and backward time of the layers over the tables.
Duration PrefixLowerBound::least(const std::vector<const LayerTable*>& tables, LayerRange layers) {
  Duration least = Duration::infinite();
  for (const LayerTable* table : tables) {
    least = std::min(least, table->forward(layers) + table->backward(layers));
  }
  return least;
}

void PrefixLowerBound::fill_forwards(const std::vector<Share>& shares, std::int32_t layers) {
  forwards_.assign(static_cast<std::size_t>(layers) + 1, {});
  for (std::int32_t layer = 0; layer < layers && are_together_; ++layer) {
    Duration least = Duration::infinite();
    for (const Share& share : shares) {
      for (const LayerTable* table : share.tables) {
        least = std::min(least, table->least_forward({layer, layer + 1}));
      }
    }
    const auto l = static_cast<std::size_t>(layer);
    forwards_[l + 1] = forwards_[l] + least;
  }
}

/// Fills the table by a dynamic programme from the first layer on, over the beginning and the
/// replicas of the last stage of each prefix.
void PrefixLowerBound::fill_round_trips(const std::vector<Share>& shares, std::int32_t layers) {
  const auto columns = static_cast<std::size_t>(devices_) + 1;
  const std::int64_t steps =
      std::int64_t{layers} * layers * devices_ * static_cast<std::int64_t>(shares.size());
  const bool is_large = steps > kMostTableSteps;
  round_trips_.assign(static_cast<std::size_t>(layers) + 1,
                      std::vector<Duration>(columns, is_large ? Duration{} : Duration::infinite()));
  if (is_large) return;
  round_trips_.front().assign(columns, {});
  for (std::int32_t end = 1; end <= layers; ++end) {
    std::vector<Duration>& row = round_trips_[static_cast<std::size_t>(end)];
    for (std::int32_t begin = 0; begin < end; ++begin) {
      const std::vector<Duration>& before = round_trips_[static_cast<std::size_t>(begin)];
      for (const Share& share : shares) {
        const Duration one = least(share.tables, {begin, end});
        const Duration work = share.micro_batches * one;
        const Duration trip = are_together_ ? one : Duration{};
        for (auto n = static_cast<std::size_t>(share.devices); n < columns; ++n) {
          const Duration to_here = before[n - static_cast<std::size_t>(share.devices)];
          if (to_here.is_infinite() || to_here + work >= below_) continue;
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
  bool are_whole_replicas(search::StageForm form) const;
  void place_anew();
  bool is_own_cut(std::int32_t begin) const;
  bool is_allowed(LayerRange layers, search::StageForm form) const;
  void try_stage(LayerRange layers, search::StageForm form,
                 const std::vector<std::int64_t>& samples);
  bool can_be_completed(std::int32_t begin, Duration bound, const PlanCost& cost) const;
  std::vector<std::int64_t> depth_limits(const PlanCost& cost) const;
  void take_least_depths(const PlanCost& cost);
  std::int64_t most_behind_others(std::size_t stage) const;
  void choose_depths(std::size_t stage, const PlanCost& cost);
  void simulate_plan();
  // Bounds without contention hold with it, too.
  search::BoundedPlan bounded(const PlanCost& cost) const {
    return {
        plan_, cost, topology_, {Contention::Off, problem_.mode.replicas, problem_.mode.transfers}};
  }
  bool is_over();

  const ModelProfile& profile_;
  const Topology& topology_;
  const ExhaustiveProblem& problem_;
  Progress* progress_;
  CostModel costs_;
  std::vector<AlikeDevices> groups_;
  // The replicas of every stage, where their number is fixed, and the most devices that a stage may
  // have.
  std::optional<std::int64_t> replicas_;
  std::int64_t most_devices_ = 1;
  // At the plan's micro-batch size.
  std::optional<PrefixLowerBound> prefix_bound_;
  // The partial plan: its last stages so far.
  Plan plan_;
  // The devices of the stage that is being chosen.
  std::vector<DeviceIndex> devices_;
  // The depth limits of the stages of a whole plan.
  std::vector<std::int64_t> limits_;
  // The work spent, in partial plans costed.
  std::int64_t work_ = 0;
  // The device sets enumerated, whether or not a stage on them is allowed.
  std::int64_t device_sets_ = 0;
  // The work from which on the progress is polled again.
  std::int64_t next_poll_ = 0;
  bool is_stopped_ = false;
  // Whether some order of a whole plan may be faster.
  bool is_open_ = false;
  ExhaustiveOutcome outcome_;
};

bool Exhaustive::is_over() {
  constexpr std::int64_t kWorkBetweenPolls = 256;
  if (progress_ != nullptr && work_ >= next_poll_) {
    next_poll_ = work_ + kWorkBetweenPolls;
    SearchProgress told;
    told.states = outcome_.partial_plans;
    told.simulated = outcome_.simulated;
    progress_->update(told);
    is_stopped_ = progress_->should_stop();
  }
  return outcome_.faster || is_open_ || is_stopped_ || work_ >= problem_.budget;
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

/// Enumerates all plans of one micro-batch size, with the given number of replicas of every stage,
/// if any.
void Exhaustive::go_through(std::int64_t micro_batch_size, std::optional<std::int64_t> replicas) {
  // Every replica must have a sample of each micro-batch, or a whole one.
  std::int64_t most_replicas = micro_batch_size;
  if (problem_.may_deal) {
    most_replicas = std::max(most_replicas, problem_.global_batch_size / micro_batch_size);
  }
  if (is_over() || replicas.value_or(1) > most_replicas) return;
  most_devices_ = replicas.value_or(most_replicas) * costs_.largest_group();
  replicas_ = replicas;
  prefix_bound_.emplace(costs_, problem_, micro_batch_size, replicas);
  for (const GradientSynchronization& gradients : problem_.gradients) {
    plan_ = {.global_batch_size = problem_.global_batch_size,
             .micro_batch_size = micro_batch_size,
             .num_micro_batches = problem_.global_batch_size / micro_batch_size,
             .stage_forms = stage_forms_of(profile_),
             .gradients = gradients,
             .family = problem_.family,
             .warmup_depths = {},
             .stages = {}};
    add_stage(costs_.layer_count());
  }
}

/// Tries every stage that ends at layer `end` in front of the partial plan.
void Exhaustive::add_stage(std::int32_t end) {
  const std::vector<DeviceIndex> devices = std::exchange(devices_, {});
  choose_devices(0, most_devices_, end);
  devices_ = devices;
}

void Exhaustive::choose_devices(std::size_t group, std::int64_t left, std::int32_t end) {
  if (is_over()) return;
  if (group == groups_.size() || left == 0) {
    if (++device_sets_ % kDeviceSetsPerPartialPlan == 0) ++work_;
    if (devices_.empty()) return;
    if (problem_.pins.in_order && !are_devices_in_order()) return;
    std::vector<std::int64_t> others;
    if (problem_.shares_by_speed) {
      if (std::ssize(devices_) <= plan_.micro_batch_size) {
        others = costs_.shares_by_speed(plan_.micro_batch_size, devices_);
      }
    }
    for (std::int32_t begin = end - 1; begin >= 0; --begin) {
      for (const search::StageForm form : search::stage_forms(costs_, problem_.may_deal)) {
        if (is_over()) return;
        if (!is_allowed({begin, end}, form)) continue;
        try_stage({begin, end}, form, {});
        if (!others.empty() && !form.deals && !is_over()) try_stage({begin, end}, form, others);
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
  devices_.erase(devices_.end() - taken, devices_.end());
}

/// Whether the chosen devices can come before those of the partial plan in the order of devices;
/// interchangeable devices may be reordered.
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

/// Whether the chosen devices are whole replicas of a form. Devices of a replica are
/// interchangeable, and groups of those can always be placed beside each other, the largest first.
bool Exhaustive::are_whole_replicas(search::StageForm form) const {
  if (form.devices_per_replica == 1) return true;
  return std::all_of(groups_.begin(), groups_.end(), [&](const AlikeDevices& alike) {
    const auto taken = std::count_if(devices_.begin(), devices_.end(), [&](DeviceIndex device) {
      return alike.first <= device.value && device.value < alike.first + alike.count;
    });
    return taken % form.devices_per_replica == 0 &&
           (taken == 0 || alike.count % form.devices_per_replica == 0);
  });
}

/// Gives the stages of the partial plan other ones of the same interchangeable devices, so that
/// those of a replica are consecutive ones of a group: stages with the largest replicas come first.
void Exhaustive::place_anew() {
  std::vector<StagePlan*> order;
  for (StagePlan& stage : plan_.stages) order.push_back(&stage);
  std::stable_sort(order.begin(), order.end(), [](const StagePlan* a, const StagePlan* b) {
    return a->devices_per_replica > b->devices_per_replica;
  });
  for (const AlikeDevices& alike : groups_) {
    std::int32_t next = alike.first;
    for (StagePlan* const stage : order) {
      for (DeviceIndex& device : stage->devices) {
        const bool is_of_these =
            alike.first <= device.value && device.value < alike.first + alike.count;
        if (is_of_these) device = {next++};
      }
    }
  }
}

/// Whether a runtime that cuts the model itself may have the partial plan behind a stage that
/// begins at this layer.
bool Exhaustive::is_own_cut(std::int32_t begin) const {
  if (problem_.own_boundaries.empty()) return true;
  const std::size_t behind = plan_.stages.size();
  return std::any_of(problem_.own_boundaries.begin(), problem_.own_boundaries.end(),
                     [&](const std::vector<std::int32_t>& boundaries) {
                       if (begin == 0 ? boundaries.size() != behind : boundaries.size() <= behind)
                         return false;
                       const std::size_t first = boundaries.size() - behind;
                       for (std::size_t s = 0; s < behind; ++s) {
                         if (boundaries[first + s] != plan_.stages[s].layers.begin) return false;
                       }
                       return begin == 0 || boundaries[first - 1] == begin;
                     });
}

/// Whether a stage with these layers on the chosen devices is allowed in front of the partial plan.
bool Exhaustive::is_allowed(LayerRange layers, search::StageForm form) const {
  if (!are_whole_replicas(form)) return false;
  const std::int64_t replicas = std::ssize(devices_) / form.devices_per_replica;
  const Pins& pins = problem_.pins;
  if (replicas_ && replicas != *replicas_) return false;
  const bool has_work = form.deals ? replicas > 1 && replicas <= plan_.num_micro_batches
                                   : replicas <= plan_.micro_batch_size;
  if (!has_work) return false;
  if (form.recompute && !problem_.may_recompute) return false;
  if (!pins.allow(layers, replicas, form.recompute) || !is_own_cut(layers.begin)) return false;
  const auto stages = static_cast<std::int32_t>(plan_.stages.size()) + 1;
  if (problem_.needs_filled_pipeline && stages > plan_.num_micro_batches + 1) return false;
  if (pins.stages && (stages > *pins.stages || (layers.begin == 0) != (stages == *pins.stages))) {
    return false;
  }
  return !problem_.are_stages_alike || plan_.stages.empty() ||
         plan_.stages.back().recompute == form.recompute;
}

/// Lower bound on the time from the first forward of the partial plan to its last backward: the
/// largest, over the stages, of the round trip to the stage plus its own work; (V3).
Duration span_of(const Plan& plan, const PlanCost& cost, Replicas replicas) {
  Duration span;
  Duration to_here;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const bool deals = dealt_to(plan.stages[s]) > 1;
    const StageCost& stage = cost.stages[s];
    Duration quickest = stage.forward + stage.backward;
    Duration busiest = deals ? Duration{} : plan.num_micro_batches * quickest;
    for (std::size_t i = 0; i < stage.replicas.size(); ++i) {
      const Duration both = stage.replicas[i].forward + stage.replicas[i].backward;
      busiest = std::max(busiest, micro_batches_of(plan, plan.stages[s], i) * both);
      if (deals || replicas == Replicas::Independent) quickest = std::min(quickest, both);
    }
    span = std::max(span, to_here + busiest);
    to_here += quickest;
  }
  return span;
}

/// Whether some stages of the layers in front of `begin`, on the devices left, may complete the
/// partial plan to a plan faster than `below`; (V2) and (V3). `bound` is the lower bound on the
/// time of the partial plan from its first forward on.
bool Exhaustive::can_be_completed(std::int32_t begin, Duration bound, const PlanCost& cost) const {
  std::int64_t left = 0;
  for (const AlikeDevices& alike : groups_) left += alike.count - alike.used;
  if (bound + prefix_bound_->forward(begin) >= problem_.below) return false;
  const Duration round_trip = prefix_bound_->round_trip(begin, left);
  if (round_trip.is_infinite()) return false;
  const Duration span = span_of(plan_, cost, problem_.mode.replicas);
  return round_trip + span < problem_.below;
}

void Exhaustive::try_stage(LayerRange layers, search::StageForm form,
                           const std::vector<std::int64_t>& samples) {
  ++outcome_.partial_plans;
  ++work_;
  const std::int32_t begin = layers.begin;
  StagePlan stage;
  stage.layers = layers;
  stage.devices = devices_;
  stage.samples = samples;
  set_form(stage, form);
  if (replicas_of(stage) > 1)
    stage.gradient_buckets =
        gradient_buckets(in_form(profile_, stage.form), stage.layers, plan_.gradients.bucket_size)
            .sizes;
  plan_.stages.insert(plan_.stages.begin(), std::move(stage));
  if (costs_.largest_group() > 1) place_anew();
  // Tied gradients of a partial plan are left out, as it is not known which stages in front add to
  // them.
  if (begin == 0) plan_.tied_gradients = tied_gradients(profile_, plan_.stages);
  plan_.warmup_depths.assign(plan_.stages.size(), 1);
  const PlanCost cost = costs_.plan_cost(plan_);
  plan_.warmup_depths = depth_limits(cost);
  const bool fits = plan_.warmup_depths.front() > 0;
  // (V1): a plan takes no less than its last stages take at their largest depths.
  const Duration bound = fits ? lower_bound(bounded(cost)) : problem_.below;
  if (bound < problem_.below) {
    if (begin == 0 && problem_.any_order) {
      is_open_ = true;
    } else if (begin == 0) {
      limits_ = plan_.warmup_depths;
      choose_depths(0, cost);
    } else if (can_be_completed(begin, bound, cost)) {
      add_stage(begin);
    }
  }
  plan_.tied_gradients.clear();
  plan_.stages.erase(plan_.stages.begin());
}

/// Returns the largest depth of each stage; 0 for all stages if one of them does not fit.
std::vector<std::int64_t> Exhaustive::depth_limits(const PlanCost& cost) const {
  const bool is_gpipe = problem_.family == ScheduleFamily::GPipe;
  const std::int64_t all = plan_.num_micro_batches;
  std::vector<std::int64_t> limits;
  for (const StagePlan& stage : plan_.stages) {
    limits.push_back(is_gpipe ? all : divide_up(all, dealt_to(stage)));
  }
  if (problem_.ignore_memory) return limits;
  for (std::size_t s = 0; s < cost.stages.size(); ++s) {
    for (std::size_t i = 0; i < cost.stages[s].replicas.size(); ++i) {
      // A replica that has room for all of its micro-batches has no limit.
      const std::int64_t own = micro_batches_of(plan_, plan_.stages[s], i);
      const std::int64_t most = most_in_flight(cost.stages[s].replicas[i], own);
      if (most < own) limits[s] = std::min(limits[s], most);
    }
    const std::int64_t least = is_gpipe ? all : 1;
    if (limits[s] < least) return std::vector<std::int64_t>(limits.size(), 0);
  }
  return limits;
}

/// Tries the least depths that keep all stages busy, where pins allow only these.
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

/// Returns the largest depth of a stage with which no earlier stage waits for ever, at the depths
/// chosen for those (L3): before its first backward a stage needs K - 1 further micro-batches for
/// each replica to which they are dealt, and each earlier stage must be able to send as many.
std::int64_t Exhaustive::most_behind_others(std::size_t stage) const {
  std::int64_t most = limits_[stage];
  const std::int64_t own = dealt_to(plan_.stages[stage]);
  for (std::size_t s = 0; s < stage && problem_.family != ScheduleFamily::GPipe; ++s) {
    const std::int64_t in_flight = plan_.warmup_depths[s] * dealt_to(plan_.stages[s]);
    most = std::min(most, (in_flight - 1) / own + 1);
  }
  return most;
}

/// Tries all legal depths of a whole plan from this stage on; those of earlier stages are chosen.
void Exhaustive::choose_depths(std::size_t stage, const PlanCost& cost) {
  if (is_over()) return;
  if (problem_.pins.least_depths) return take_least_depths(cost);
  if (stage == limits_.size()) return simulate_plan();
  const std::vector<std::int64_t> before = plan_.warmup_depths;
  const std::int64_t most = most_behind_others(stage);
  const bool is_gpipe = problem_.family == ScheduleFamily::GPipe;
  // Where transfers block, a depth is at most one above that of the next stage.
  const std::int64_t above = problem_.mode.blocks() && stage > 0 ? before[stage - 1] - 1 : 1;
  const std::int64_t least = is_gpipe ? most : std::max<std::int64_t>(1, above);
  for (std::int64_t depth = most; depth >= least; --depth) {
    plan_.warmup_depths[stage] = depth;
    for (std::size_t s = stage + 1; s < limits_.size(); ++s) {
      plan_.warmup_depths[s] = most_behind_others(s);
    }
    // The bound does not fall with smaller depths, here or on later stages.
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
                         {.contention = problem_.mode.contention,
                          .transfers = problem_.mode.transfers,
                          .record = false})
          .iteration;
  if (iteration >= problem_.below) return;
  outcome_.faster = plan_;
  // Interchangeable devices were chosen in any order.
  if (problem_.pins.in_order) put_in_order(outcome_.faster->stages);
  outcome_.iteration = iteration;
}

}  // namespace

ExhaustiveOutcome search_exhaustively(const ModelProfile& profile, const Topology& topology,
                                      const ExhaustiveProblem& problem, Progress* progress) {
  return Exhaustive(profile, topology, problem, progress).run();
}

}  // namespace dapple::planner
