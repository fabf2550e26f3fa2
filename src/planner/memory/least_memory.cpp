#include "planner/memory/least_memory.h"

#include <algorithm>
#include <map>
#include <utility>

#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/search/placement/other_shares.h"
#include "planner/candidates/candidate_evaluator.h"
#include "planner/request/gradient_synchronizations.h"
#include "planner/request/micro_batches.h"

namespace dapple::planner {
namespace {

/// The limits on stages examined: to find out whether any plan fits, and to find a remedy if none
/// does.
constexpr std::int64_t kWorkOfAnyPlan = 10'000'000;
constexpr std::int64_t kWorkOfExplanation = 10'000'000;

/// The search keeps so many bytes for the shares of a stage, besides the shares themselves.
constexpr Bytes kBytesOfShares{96};

struct Choice {
  Bytes missing = Bytes::infinite();
  std::int32_t begin = 0;
  std::int32_t replicas = 0;
  // Stages, or independent replicas, including those before it.
  std::int32_t lanes = 0;
  bool recompute = false;
  // Whether replicas have shares by speed, not equal ones.
  bool has_other_shares = false;
};

/// The last stages of the best ways to split the first layers over the first devices: [end][used].
using Table = std::vector<std::vector<Choice>>;

std::size_t at(std::int32_t position) {
  return static_cast<std::size_t>(position);
}

/// The objective that a plan is chosen by.
enum class Goal {
  // The least memory missing on the tightest device.
  LeastMissing,
  // The fewest stages, or independent replicas, of a plan that fits.
  FewestLanes,
};

std::int32_t fewest_as_pinned(const Pins& pins) {
  return pins.stages.value_or(static_cast<std::int32_t>(pins.cuts.size()) + 1);
}

class LeastMemorySearch {
 public:
  LeastMemorySearch(const CostModel& costs, const search::SearchProblem& problem,
                    std::int32_t devices, search::Allowance& allowance)
      : costs_(costs),
        problem_(problem),
        devices_(devices),
        micro_batches_(problem.global_batch_size / problem.micro_batch_size),
        depth_(problem.gpipe ? micro_batches_ : 1),
        allowance_(allowance) {
    find_alike();
  }
  ~LeastMemorySearch() { allowance_.keep({-kept_shares_.count}); }
  LeastMemorySearch(const LeastMemorySearch&) = delete;
  LeastMemorySearch& operator=(const LeastMemorySearch&) = delete;

  LeastMemory run();

 private:
  // The largest gradient buckets of the stages that end at one layer, extended to longer stages on
  // demand.
  struct Buckets {
    std::int32_t end = 0;
    // The size of the bucket that is not closed yet.
    Bytes open;
    // Indexed by the number of layers of the stage, less one.
    std::vector<Bytes> largest;
  };
  void find_alike();
  Bytes largest_bucket(Buckets& buckets, std::int32_t begin) const;
  std::int32_t next_different(std::int32_t position, std::int32_t replica,
                              std::int32_t replicas) const;
  std::vector<DeviceIndex> devices_of(std::int32_t first_device, std::int32_t replicas) const;
  const std::vector<std::int64_t>& other_shares(std::int32_t first_device, std::int32_t replicas);
  Bytes memory_lower_bound(LayerRange layers, std::int32_t first_device, std::int32_t replicas);
  Choice stage(Buckets& buckets, std::int32_t begin, std::int32_t first_device,
               std::int32_t replicas);
  Bytes missing(const StageContext& stage, std::int32_t first_device,
                const std::vector<std::int64_t>& samples) const;
  bool is_better(const Choice& choice, const Choice& best) const;
  bool is_independent() const { return problem_.replicas == Replicas::Independent; }
  // Whether a stage that lacks so much memory is of no use, whatever is before it.
  bool is_hopeless(Bytes missing, const Choice& best) const;
  Choice behind(const Choice& stage, const Choice& before) const;
  void put_behind(const Table& before, Buckets& buckets, std::int32_t used, Choice& best);
  struct Pinned {
    std::int32_t before = 0;
    std::int32_t behind = 0;
  };
  void add_stage(const Table& before, Table& behind, const Pinned& stages);
  void fill_tables();
  std::size_t best_use() const;
  void read_tables(std::size_t used, search::Candidate& plan);
  DeviceIndex device(std::int32_t position) const {
    return DeviceIndex{std::min(position, costs_.topology().device_count() - 1)};
  }

  const CostModel& costs_;
  const search::SearchProblem& problem_;
  std::int32_t devices_;
  std::int64_t micro_batches_;
  std::int64_t depth_;
  search::Allowance& allowance_;
  Goal goal_ = Goal::LeastMissing;
  // For each device the first later one that differs from it.
  std::vector<std::int32_t> alike_until_;
  // By the first device and the replicas.
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int64_t>> other_shares_;
  Bytes kept_shares_;
  const std::vector<std::int64_t> no_others_;
  std::vector<Table> tables_;
};

void LeastMemorySearch::find_alike() {
  const Topology& topology = costs_.topology();
  const auto are_alike = [&](DeviceIndex a, DeviceIndex b) {
    return topology.device(a).kind == topology.device(b).kind &&
           topology.memory_limit(a) == topology.memory_limit(b);
  };
  alike_until_.assign(static_cast<std::size_t>(devices_), devices_);
  for (std::int32_t i = devices_ - 1; i-- > 0;) {
    const auto position = static_cast<std::size_t>(i);
    alike_until_[position] =
        are_alike(device(i), device(i + 1)) ? alike_until_[position + 1] : i + 1;
  }
}

Bytes LeastMemorySearch::largest_bucket(Buckets& buckets, std::int32_t begin) const {
  const auto layers = static_cast<std::size_t>(buckets.end - begin);
  while (buckets.largest.size() < layers) {
    const std::int32_t layer = buckets.end - 1 - static_cast<std::int32_t>(buckets.largest.size());
    // All layers that add to a layer's gradient are behind it, so the sum does not depend on
    // `begin`.
    buckets.open += bucketed_gradient(costs_.profile(), layer, {layer, buckets.end});
    const Bytes before = buckets.largest.empty() ? Bytes{} : buckets.largest.back();
    buckets.largest.push_back(std::max(before, buckets.open));
    if (buckets.open >= problem_.gradients.bucket_size) buckets.open = {};
  }
  return buckets.largest[layers - 1];
}

/// Returns the next replica that may need another amount of memory or has another limit.
std::int32_t LeastMemorySearch::next_different(std::int32_t position, std::int32_t replica,
                                               std::int32_t replicas) const {
  const auto larger =
      static_cast<std::int32_t>(problem_.micro_batch_size % static_cast<std::int64_t>(replicas));
  const std::int32_t alike = alike_until_[static_cast<std::size_t>(position)] - position + replica;
  const std::int32_t next = replica < larger ? std::min(larger, alike) : alike;
  return std::min(next, replicas);
}

std::vector<DeviceIndex> LeastMemorySearch::devices_of(std::int32_t first_device,
                                                       std::int32_t replicas) const {
  std::vector<DeviceIndex> devices;
  for (std::int32_t i = 0; i < replicas; ++i) devices.push_back(device(first_device + i));
  return devices;
}

/// Returns the shares of a stage besides equal ones; none if it has no others, as on devices that
/// are alike.
const std::vector<std::int64_t>& LeastMemorySearch::other_shares(std::int32_t first_device,
                                                                 std::int32_t replicas) {
  const bool are_alike = alike_until_[at(first_device)] >= first_device + replicas;
  if (are_alike || !problem_.shares_by_speed) return no_others_;
  const auto [entry, is_new] = other_shares_.try_emplace({first_device, replicas});
  if (is_new) {
    entry->second = search::other_shares(costs_, problem_)(devices_of(first_device, replicas));
    const Bytes kept = kBytesOfShares + std::ssize(entry->second) * Bytes{sizeof(std::int64_t)};
    kept_shares_ += kept;
    allowance_.keep(kept);
    allowance_.spend(replicas);
  }
  return entry->second;
}

/// A lower bound on the memory that the stage's first replica lacks. It does not fall with more
/// layers in front, unless other layers recompute then.
Bytes LeastMemorySearch::memory_lower_bound(LayerRange layers, std::int32_t first_device,
                                            std::int32_t replicas) {
  const DeviceIndex here = device(first_device);
  std::int64_t samples = replica_share(problem_.micro_batch_size, replicas, 0).size();
  const std::vector<std::int64_t>& others = other_shares(first_device, replicas);
  if (!others.empty()) samples = std::min(samples, others.front());
  const MemoryCost memory = costs_.memory_cost({.layers = layers, .depth = 1, .replicas = replicas},
                                               samples, costs_.topology().device(here).kind);
  return memory.peak() - memory.communication_buffers - costs_.topology().memory_limit(here);
}

/// Returns the memory that is missing on the tightest device of a stage; negative where there is
/// room. `samples` are the shares of the replicas; none for equal ones.
Bytes LeastMemorySearch::missing(const StageContext& stage, std::int32_t first_device,
                                 const std::vector<std::int64_t>& samples) const {
  const auto replicas = static_cast<std::int32_t>(stage.replicas);
  const ReplicaShares shares(problem_.micro_batch_size, replicas, samples);
  Bytes missing{INT64_MIN};
  for (std::int32_t i = 0; i < replicas;) {
    const DeviceIndex here = device(first_device + i);
    const MemoryCost memory =
        costs_.memory_cost(stage, shares.of(i).size(), costs_.topology().device(here).kind);
    missing = std::max(missing, memory.peak() - costs_.topology().memory_limit(here));
    i = samples.empty() ? next_different(first_device + i, i, replicas) : i + 1;
  }
  return missing;
}

Choice LeastMemorySearch::stage(Buckets& buckets, std::int32_t begin, std::int32_t first_device,
                                std::int32_t replicas) {
  Choice choice{.missing = Bytes::infinite(), .begin = begin, .replicas = replicas};
  const LayerRange layers{begin, buckets.end};
  const Bytes bucket = replicas > 1 ? largest_bucket(buckets, begin) : Bytes{};
  const std::vector<std::int64_t>& others = other_shares(first_device, replicas);
  for (const bool recompute : {false, true}) {
    if (!problem_.pins.allow(layers, replicas, recompute)) continue;
    const StageContext context{.layers = layers,
                               .recompute = recompute,
                               .depth = depth_,
                               .depth_before = begin == 0 ? 0 : depth_,
                               .depth_behind = buckets.end == costs_.layer_count() ? 0 : depth_,
                               .largest_bucket = bucket,
                               .replicas = replicas};
    const auto consider = [&](const std::vector<std::int64_t>& samples) {
      const Bytes lacks = missing(context, first_device, samples);
      if (lacks >= choice.missing) return;
      choice.missing = lacks;
      choice.recompute = recompute;
      choice.has_other_shares = !samples.empty();
    };
    consider({});
    if (!others.empty()) consider(others);
  }
  return choice;
}

bool LeastMemorySearch::is_better(const Choice& choice, const Choice& best) const {
  if (goal_ == Goal::LeastMissing) return choice.missing < best.missing;
  if (choice.missing.is_infinite()) return false;
  if (choice.missing.count > 0 && !problem_.ignore_memory) return false;
  return best.missing.is_infinite() || choice.lanes < best.lanes;
}

bool LeastMemorySearch::is_hopeless(Bytes missing, const Choice& best) const {
  if (goal_ == Goal::LeastMissing) return missing >= best.missing;
  return missing.count > 0 && !problem_.ignore_memory;
}

Choice LeastMemorySearch::behind(const Choice& stage, const Choice& before) const {
  Choice both = stage;
  both.missing = std::max(stage.missing, before.missing);
  both.lanes = before.lanes + (is_independent() ? stage.replicas : 1);
  return both;
}

/// Puts every stage that ends at `buckets.end`, on the last of the first `used` devices, behind the
/// best choices before it.
void LeastMemorySearch::put_behind(const Table& before, Buckets& buckets, std::int32_t used,
                                   Choice& best) {
  const auto most = std::min<std::int64_t>(used, problem_.micro_batch_size);
  const std::int32_t pinned = problem_.pins.replicas.value_or(0);
  for (std::int32_t replicas = std::max(1, pinned); replicas <= most; ++replicas) {
    if (pinned > 0 && replicas > pinned) return;
    const std::int32_t first = used - replicas;
    // A stage on the first devices begins at layer 0, and no other stage does.
    for (std::int32_t begin = first == 0 ? 1 : buckets.end; begin-- > 0;) {
      if (!allowance_.spend(1)) return;
      const Choice& so_far = before[at(begin)][at(first)];
      if (!is_better(behind({.missing = {INT64_MIN}}, so_far), best)) continue;
      if (is_hopeless(memory_lower_bound({begin, buckets.end}, first, replicas), best)) {
        if (costs_.profile().parallelism.recomputed_layers.is_all()) break;
        continue;
      }
      const Choice choice = behind(stage(buckets, begin, first, replicas), so_far);
      if (is_better(choice, best)) best = choice;
    }
  }
}

/// Fills a table with one more stage than `before` has. `stages` counts the pinned stages before
/// and behind it, each of which needs a layer and a device.
void LeastMemorySearch::add_stage(const Table& before, Table& behind, const Pinned& stages) {
  for (std::int32_t end = stages.before + 1; end <= costs_.layer_count() - stages.behind; ++end) {
    Buckets buckets{.end = end, .open = {}, .largest = {}};
    for (std::int32_t used = stages.before + 1; used <= devices_ - stages.behind; ++used) {
      put_behind(before, buckets, used, behind[at(end)][at(used)]);
      if (allowance_.is_over()) return;
    }
  }
}

/// Fills tables_[s][end][used], the best choice for the first `end` layers on exactly the first
/// `used` devices in s stages. Where the number of stages is not pinned, there is one table for all
/// numbers.
void LeastMemorySearch::fill_tables() {
  const auto layers = static_cast<std::size_t>(costs_.layer_count());
  const auto devices = static_cast<std::size_t>(devices_);
  const std::int32_t stages = problem_.pins.stages.value_or(0);
  const auto choices = static_cast<std::int64_t>((layers + 1) * (devices + 1));
  const Bytes size = (stages + 1) * choices * Bytes{sizeof(Choice)};
  tables_.clear();
  if (!allowance_.keep(size)) return;
  const Table nothing(layers + 1, std::vector<Choice>(devices + 1));
  tables_.push_back(nothing);
  tables_.front()[0][0].missing = {INT64_MIN};
  for (std::int32_t s = 0; s < stages && !allowance_.is_over(); ++s) {
    tables_.push_back(nothing);
    add_stage(tables_[tables_.size() - 2], tables_.back(), {.before = s, .behind = stages - 1 - s});
  }
  // An entry depends only on entries for fewer layers, so the table may be read while it is filled.
  if (stages == 0) add_stage(tables_.back(), tables_.back(), {});
  allowance_.keep({-size.count});
}

std::size_t LeastMemorySearch::best_use() const {
  const std::vector<Choice>& choices =
      tables_.back()[static_cast<std::size_t>(costs_.layer_count())];
  std::size_t used = 1;
  for (std::size_t n = 2; n < choices.size(); ++n) {
    if (is_better(choices[n], choices[used])) used = n;
  }
  return used;
}

void LeastMemorySearch::read_tables(std::size_t used, search::Candidate& plan) {
  for (auto end = static_cast<std::size_t>(costs_.layer_count()); end > 0;) {
    const Choice& choice = tables_.back()[end][used];
    used -= static_cast<std::size_t>(choice.replicas);
    StagePlan stage;
    stage.layers = {choice.begin, static_cast<std::int32_t>(end)};
    stage.recompute = choice.recompute;
    const auto first = static_cast<std::int32_t>(used);
    stage.devices = devices_of(first, choice.replicas);
    if (choice.has_other_shares) stage.samples = other_shares(first, choice.replicas);
    plan.stages.push_back(std::move(stage));
    end = static_cast<std::size_t>(choice.begin);
    if (problem_.pins.stages) tables_.pop_back();
  }
  std::reverse(plan.stages.begin(), plan.stages.end());
}

LeastMemory LeastMemorySearch::run() {
  const std::int64_t most_lanes = problem_.most_passes / micro_batches_;
  LeastMemory result;
  result.plan.micro_batch_size = problem_.micro_batch_size;
  result.plan.gradients = problem_.gradients;
  const std::int64_t fewest = fewest_as_pinned(problem_.pins);
  const std::int64_t least_lanes =
      fewest * (is_independent() ? problem_.pins.replicas.value_or(1) : 1);
  if (least_lanes > most_lanes && fewest <= std::min(devices_, costs_.layer_count())) {
    // No plan can be simulated, so whether one fits does not matter.
    result.missing = {};
    result.too_many_lanes = least_lanes;
    return result;
  }
  for (const Goal goal : {Goal::LeastMissing, Goal::FewestLanes}) {
    goal_ = goal;
    fill_tables();
    result.is_known = !allowance_.is_over();
    if (!result.is_known) return result;
    const std::size_t used = best_use();
    const Choice best = tables_.back()[static_cast<std::size_t>(costs_.layer_count())][used];
    result.missing = best.missing;
    result.plan.stages.clear();
    if (best.missing.is_infinite()) return result;
    read_tables(used, result.plan);
    const std::int64_t lanes = lane_passes(result.plan.stages, 1, problem_.replicas);
    result.too_many_lanes = lanes > most_lanes ? lanes : 0;
    // Another plan that fits may have fewer lanes.
    const bool fits = best.missing.count <= 0 || problem_.ignore_memory;
    if (result.too_many_lanes == 0 || !fits || problem_.pins.stages) return result;
  }
  return result;
}

/// Tests whether changed requests have a plan that fits, within the allowance of the explanation. A
/// request for which this is not known counts as having none.
class Remedies {
 public:
  explicit Remedies(const CostModel& costs, search::Allowance& allowance)
      : costs_(costs), allowance_(allowance) {}

  bool works(const search::SearchProblem& problem) {
    return works(problem, costs_.topology().device_count());
  }
  bool works(const search::SearchProblem& problem, std::int32_t devices) {
    const LeastMemory least = least_memory(costs_, problem, devices, allowance_);
    return least.is_known && least.can_run(problem.ignore_memory);
  }
  const CostModel& costs() const { return costs_; }
  bool are_spent() const { return allowance_.is_over(); }

 private:
  const CostModel& costs_;
  search::Allowance& allowance_;
};

std::int64_t smallest_micro_batch(const PlannerOptions& options) {
  PlannerOptions free = options;
  free.micro_batch_size.reset();
  return micro_batch_sizes(free).sizes.front();
}

/// Returns how many devices, with the added ones like the last, make the model fit; nothing if more
/// devices do not help.
std::optional<std::int32_t> enough_devices(Remedies& remedies,
                                           const search::SearchProblem& problem) {
  const std::int32_t there = remedies.costs().topology().device_count();
  const std::int32_t most =
      std::min<std::int32_t>(remedies.costs().layer_count(), std::max(2 * there, there + 64));
  if (most <= there || !remedies.works(problem, most)) return std::nullopt;
  std::int32_t too_few = there;
  std::int32_t enough = most;
  while (enough - too_few > 1) {
    const std::int32_t middle = too_few + (enough - too_few) / 2;
    (remedies.works(problem, middle) ? enough : too_few) = middle;
  }
  return enough;
}

Remedy remedy_for(Remedies& remedies, const PlannerOptions& options,
                  const search::SearchProblem& closest, Bytes missing) {
  search::SearchProblem freed = closest;
  if (options.micro_batch_size) {
    freed.micro_batch_size = smallest_micro_batch(options);
    if (freed.micro_batch_size < closest.micro_batch_size && remedies.works(freed)) {
      return {.kind = RemedyKind::SmallerMicroBatch, .value = freed.micro_batch_size};
    }
  } else if (closest.micro_batch_size > 1) {
    freed.micro_batch_size = 1;
    if (remedies.works(freed)) {
      return {.kind = RemedyKind::MoreDivisors, .value = closest.micro_batch_size};
    }
  }
  freed = closest;
  freed.gpipe = false;
  if (closest.gpipe && remedies.works(freed)) return {.kind = RemedyKind::OneFOneB};
  if (const auto enough = enough_devices(remedies, closest)) {
    return {.kind = RemedyKind::MoreDevices, .value = *enough, .memory = missing};
  }
  return {.kind = remedies.are_spent() ? RemedyKind::MoreMemory : RemedyKind::OnlyMoreMemory,
          .memory = missing};
}

/// Returns the request with other pins, at the smallest micro-batch size and bucket size that they
/// allow, which need the least memory.
search::SearchProblem least_problem(const CostModel& costs, const PlannerOptions& options,
                                    const Pins& pins,
                                    const std::vector<std::int64_t>& micro_batch_sizes) {
  const auto enough = std::lower_bound(micro_batch_sizes.begin(), micro_batch_sizes.end(),
                                       pins.replicas.value_or(1));
  return {
      .global_batch_size = options.global_batch_size,
      .micro_batch_size = enough == micro_batch_sizes.end() ? micro_batch_sizes.back() : *enough,
      .gradients = gradient_synchronizations(options, costs.profile()).front(),
      .ignore_memory = options.ignore_memory,
      .gpipe = options.family == ScheduleFamily::GPipe,
      .replicas = options.replicas,
      .pins = pins,
      .shares_by_speed = has_shares_by_speed(options, costs.topology()),
      .most_passes = most_passes(options.memory_limit)};
}

/// Returns each pin by itself, in the order of to_texts().
std::vector<Pins> single_pins(const Pins& pins) {
  std::vector<Pins> all;
  const auto add = [&](auto pin) { pin(all.emplace_back()); };
  if (pins.stages) add([&](Pins& one) { one.stages = pins.stages; });
  if (pins.replicas) add([&](Pins& one) { one.replicas = pins.replicas; });
  if (pins.recompute) add([&](Pins& one) { one.recompute = pins.recompute; });
  if (pins.least_depths) add([&](Pins& one) { one.least_depths = true; });
  for (const std::int32_t cut : pins.cuts) add([&](Pins& one) { one.cuts = {cut}; });
  for (const std::int32_t joint : pins.joints) add([&](Pins& one) { one.joints = {joint}; });
  return all;
}

/// Returns `pins` without `one` of them.
Pins without(const Pins& pins, const Pins& one) {
  Pins rest = pins;
  if (one.stages) rest.stages.reset();
  if (one.replicas) rest.replicas.reset();
  if (one.recompute) rest.recompute.reset();
  if (one.least_depths) rest.least_depths = false;
  for (const std::int32_t cut : one.cuts) std::erase(rest.cuts, cut);
  for (const std::int32_t joint : one.joints) std::erase(rest.joints, joint);
  return rest;
}

/// Suggests leaving out one pin, or all of them, if some plan fits then.
std::optional<Remedy> remedy_among_pins(Remedies& remedies, const PlannerOptions& options,
                                        const std::vector<std::int64_t>& micro_batch_sizes) {
  const auto works = [&](const Pins& pins) {
    return remedies.works(least_problem(remedies.costs(), options, pins, micro_batch_sizes));
  };
  const std::vector<Pins> pins = single_pins(options.pins);
  for (const Pins& one : pins) {
    if (!works(without(options.pins, one))) continue;
    return Remedy{.kind = RemedyKind::FewerPins, .pins = one};
  }
  if (pins.size() > 1 && works({})) {
    return Remedy{.kind = RemedyKind::FewerPins, .pins = options.pins};
  }
  return std::nullopt;
}

/// Returns why no plan satisfies the pins.
Conflict conflict_of(const CostModel& costs, const Pins& pins, std::int64_t micro_batch_size) {
  const std::int64_t replicas = pins.replicas.value_or(1);
  if (replicas > micro_batch_size) {
    return TooFewSamples{.replicas = replicas, .largest_micro_batch = micro_batch_size};
  }
  const std::int64_t stages = fewest_as_pinned(pins);
  const std::int64_t devices = costs.topology().device_count();
  if (stages * replicas > devices) {
    return TooFewDevices{.stages = stages, .replicas = replicas, .devices = devices};
  }
  return NoSuchSplit{.layers = costs.layer_count()};
}

/// Suggests a larger micro-batch than the requested one, with which some plan fits and can be
/// simulated.
std::optional<Remedy> larger_micro_batch(Remedies& remedies, const PlannerOptions& options,
                                         const search::SearchProblem& closest) {
  if (!options.micro_batch_size) return std::nullopt;
  PlannerOptions free = options;
  free.micro_batch_size.reset();
  for (const std::int64_t size : micro_batch_sizes(free).sizes) {
    if (size <= closest.micro_batch_size) continue;
    search::SearchProblem larger = closest;
    larger.micro_batch_size = size;
    if (remedies.works(larger)) return Remedy{.kind = RemedyKind::LargerMicroBatch, .value = size};
  }
  return std::nullopt;
}

/// Returns why every plan that fits has more stage passes than can be simulated.
TooManyPasses passes_conflict(const LeastMemory& least, const search::SearchProblem& problem,
                              Bytes memory_limit) {
  using Fewest = TooManyPasses::Fewest;
  const bool follows_from_memory = problem.most_passes < kMaxStagePasses;
  return {.lanes = least.too_many_lanes,
          .replicas = problem.replicas,
          .fewest = least.plan.stages.empty() ? Fewest::Pinned
                    : problem.pins.empty()    ? Fewest::Fitting
                                              : Fewest::FittingAsPinned,
          .micro_batches = problem.global_batch_size / problem.micro_batch_size,
          .most_passes = problem.most_passes,
          .memory_limit = follows_from_memory ? std::optional(memory_limit) : std::nullopt};
}

/// Explains what the tightest device of the closest plan lacks.
void explain_memory(const LeastMemory& closest, const search::SearchProblem& problem,
                    const CostModel& costs, Infeasible& infeasible) {
  Plan plan{.global_batch_size = problem.global_batch_size,
            .micro_batch_size = problem.micro_batch_size,
            .num_micro_batches = problem.global_batch_size / problem.micro_batch_size,
            .gradients = problem.gradients,
            .family = problem.gpipe ? ScheduleFamily::GPipe : ScheduleFamily::OneFOneB,
            .warmup_depths = {},
            .stages = closest.plan.stages};
  plan.warmup_depths.assign(plan.stages.size(), problem.gpipe ? plan.num_micro_batches : 1);
  fill_gradient_buckets(plan, costs.profile());
  const std::vector<MemoryShortage> shortages = memory_shortages(costs.plan_cost(plan));
  check(!shortages.empty(), "nothing was found to fit, but the least of plans does");
  infeasible.shortage = shortages.front();
  infeasible.closest = std::move(plan);
}

/// Explains why no plan fits the request, with the cheapest remedy that works: where there are
/// pins, the first pin without which some plan fits.
Infeasible explain_infeasible(const CostModel& costs, const PlannerOptions& options,
                              const std::vector<std::int64_t>& micro_batch_sizes,
                              const LeastMemory& closest) {
  search::SearchProblem problem = least_problem(costs, options, options.pins, micro_batch_sizes);
  problem.micro_batch_size = closest.plan.micro_batch_size;
  Infeasible infeasible;
  infeasible.pins = options.pins;
  if (!closest.is_known) {
    infeasible.is_certain = false;
    infeasible.conflict = FitUnknown{};
    infeasible.remedy.kind = RemedyKind::SmallerSearch;
    return infeasible;
  }
  search::Allowance allowance({.work = kWorkOfExplanation, .kept = options.memory_limit});
  Remedies remedies(costs, allowance);
  const auto fewer_pins = remedy_among_pins(remedies, options, micro_batch_sizes);
  if (closest.plan.stages.empty() && closest.too_many_lanes == 0) {
    infeasible.conflict = conflict_of(costs, options.pins, problem.micro_batch_size);
    infeasible.remedy = fewer_pins.value_or(Remedy{});
    return infeasible;
  }
  if (closest.fits(options.ignore_memory)) {
    infeasible.conflict = passes_conflict(closest, problem, options.memory_limit);
    const auto larger = larger_micro_batch(remedies, options, problem);
    const std::int64_t micro_batches = problem.most_passes / closest.too_many_lanes;
    const Remedy smaller{.kind = RemedyKind::SmallerGlobalBatch,
                         .value = micro_batches * problem.micro_batch_size};
    infeasible.remedy = larger ? *larger : fewer_pins.value_or(smaller);
    return infeasible;
  }
  explain_memory(closest, problem, costs, infeasible);
  infeasible.remedy =
      fewer_pins ? *fewer_pins : remedy_for(remedies, options, problem, infeasible.missing());
  return infeasible;
}

}  // namespace

LeastMemory least_memory(const CostModel& costs, const search::SearchProblem& problem,
                         std::int32_t devices, search::Allowance& allowance) {
  return LeastMemorySearch(costs, problem, devices, allowance).run();
}

std::variant<search::Candidate, Infeasible> find_any_plan(
    const CostModel& costs, const PlannerOptions& options,
    const std::function<bool()>& should_stop) {
  const std::vector<std::int64_t> sizes = micro_batch_sizes(options).sizes;
  search::Allowance allowance(
      {.work = kWorkOfAnyPlan, .kept = options.memory_limit, .should_stop = should_stop});
  search::SearchProblem problem = least_problem(costs, options, options.pins, sizes);
  // More samples allow more replicas, which then hold less state each, or under GPipe fewer samples
  // of the whole batch.
  const bool may_need_less = costs.topology().description().shards_optimizer || problem.gpipe;
  std::optional<LeastMemory> closest;
  bool is_known = true;
  for (const std::int64_t size : sizes) {
    if (size < problem.micro_batch_size) continue;
    problem.micro_batch_size = size;
    LeastMemory least = least_memory(costs, problem, costs.topology().device_count(), allowance);
    if (least.is_known && least.can_run(options.ignore_memory)) return std::move(least.plan);
    is_known = is_known && least.is_known;
    // Otherwise a larger micro-batch needs more memory but makes fewer stage passes.
    const bool may_do = least.is_known && (may_need_less || least.fits(options.ignore_memory));
    const bool is_closer = !closest || (least.is_known && !closest->fits(options.ignore_memory) &&
                                        least.missing < closest->missing);
    if (is_closer) closest = std::move(least);
    if (!may_do) break;
  }
  if (allowance.is_stopped()) return stopped_before_a_plan();
  Infeasible infeasible = explain_infeasible(costs, options, sizes, *closest);
  infeasible.is_certain = infeasible.is_certain && is_known;
  return infeasible;
}

}  // namespace dapple::planner
