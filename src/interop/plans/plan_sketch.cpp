#include "interop/plans/plan_sketch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/cost/buckets.h"
#include "dapple/interop/plans/given_order.h"
#include "dapple/plan/limits.h"
#include "dapple/plan/validate.h"
#include "dapple/schedule/schedule.h"
#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

class PlanMaker {
 public:
  PlanMaker(const PlanSketch& sketch, const PlanGround& ground, const ForeignPlanOptions& options)
      : sketch_(sketch), ground_(ground), options_(options) {}
  Plan run();

 private:
  [[noreturn]] void refuse(ErrorKind kind, std::string place, std::string message) const {
    throw Error{kind, sketch_.source, {{std::move(place), std::move(message)}}};
  }
  void set_batches();
  void set_stages();
  std::vector<std::int64_t> least_depths() const;
  void set_order();
  bool runs_as(ScheduleFamily family);
  void name_order();
  DeviceIndex device_of(std::int32_t rank) const;
  std::vector<DeviceIndex> devices_of_group(std::size_t group) const;
  void check_structure() const;

  const PlanSketch& sketch_;
  const PlanGround& ground_;
  const ForeignPlanOptions& options_;
  Plan plan_;
};

void PlanMaker::set_batches() {
  const auto first_of = [](const std::optional<std::int64_t>& a,
                           const std::optional<std::int64_t>& b) { return a ? a : b; };
  const std::optional<std::int64_t> global = first_of(
      options_.global_batch, first_of(sketch_.global_batch, ground_.profile.global_batch_size));
  if (!global) {
    refuse(ErrorKind::Usage, "--global-batch",
           "the samples of one iteration are required, as neither the plan nor the profile states "
           "them");
  }
  std::optional<std::int64_t> micro = first_of(options_.micro_batch, sketch_.micro_batch);
  const std::optional<std::int64_t>& count = sketch_.num_micro_batches;
  if (!micro && count && *count >= 1 && *global % *count == 0) micro = *global / *count;
  if (!micro) {
    refuse(ErrorKind::Usage, "--micro-batch",
           count ? fmt::format("the samples of a micro-batch are required, as {} samples cannot be "
                               "split into {} equal micro-batches",
                               *global, *count)
                 : "the samples of a micro-batch over all replicas of a stage are required, as the "
                   "plan does not state them");
  }
  plan_.global_batch_size = *global;
  plan_.micro_batch_size = *micro;
  plan_.num_micro_batches =
      count && !options_.micro_batch ? *count : std::max<std::int64_t>(1, *global / *micro);
  if (plan_.num_micro_batches > kMostMicroBatches) {
    refuse(ErrorKind::BadInput, "",
           fmt::format("expected at most {} micro-batches, got {}", kMostMicroBatches,
                       plan_.num_micro_batches));
  }
}

DeviceIndex PlanMaker::device_of(std::int32_t rank) const {
  const std::vector<std::string>& names =
      options_.devices.empty() ? sketch_.rank_devices : options_.devices;
  const auto position = static_cast<std::size_t>(rank);
  const std::int32_t count = ground_.topology.device_count();
  if (names.empty()) {
    if (rank < count) return DeviceIndex{rank};
    refuse(
        ErrorKind::BadInput, "",
        fmt::format("expected a topology with a device for rank {}, got {} devices", rank, count));
  }
  const bool is_option = !options_.devices.empty();
  const ErrorKind kind = is_option ? ErrorKind::Usage : ErrorKind::BadInput;
  const std::string place = is_option ? "--devices" : "";
  if (position >= names.size()) {
    refuse(kind, place,
           fmt::format("expected a device for rank {}, got {} devices", rank, names.size()));
  }
  const std::optional<DeviceIndex> device = ground_.topology.find_device(names[position]);
  if (device) return *device;
  refuse(kind, place,
         fmt::format("expected a device of the topology for rank {}, got \"{}\"", rank,
                     shown(names[position])));
}

std::vector<DeviceIndex> PlanMaker::devices_of_group(std::size_t group) const {
  if (!sketch_.devices.empty()) return sketch_.devices[group];
  std::vector<DeviceIndex> devices;
  for (const std::int32_t rank : sketch_.ranks[group]) devices.push_back(device_of(rank));
  return devices;
}

void PlanMaker::set_stages() {
  const std::size_t groups =
      sketch_.devices.empty() ? sketch_.ranks.size() : sketch_.devices.size();
  check(groups > 0 && sketch_.stages.size() % groups == 0, "a sketch with a stage on no device");
  plan_.chunks_per_device = static_cast<std::int64_t>(sketch_.stages.size() / groups);
  for (std::size_t s = 0; s < sketch_.stages.size(); ++s) {
    StagePlan& stage = plan_.stages.emplace_back();
    stage.layers = sketch_.stages[s];
    stage.devices = devices_of_group(sketch_.group_of.empty() ? s % groups : sketch_.group_of[s]);
    stage.replication = options_.replication.value_or(sketch_.replication);
    stage.recompute = sketch_.recompute;
  }
}

void PlanMaker::check_structure() const {
  const auto layers = static_cast<std::int32_t>(ground_.profile.layers.size());
  std::vector<Violation> faults = validate(plan_, layers, ground_.topology);
  if (faults.empty()) return;
  throw Error{ErrorKind::BadInput, sketch_.source, in_words(std::move(faults))};
}

/// Returns the smallest warm-up depths that keep all stages busy. A stage has one micro-batch in
/// flight for each stage from it on. A dealt stage counts as its number of replicas instead of one,
/// and divides the total among them, rounding up: PipeDream (SOSP'19), section 3.2.
std::vector<std::int64_t> PlanMaker::least_depths() const {
  std::vector<std::int64_t> depths(plan_.stages.size());
  std::int64_t behind = 0;
  for (std::size_t s = plan_.stages.size(); s-- > 0;) {
    const bool is_dealt = plan_.stages[s].replication == Replication::Deal;
    const auto replicas =
        is_dealt ? static_cast<std::int64_t>(plan_.stages[s].devices.size()) : std::int64_t{1};
    behind += replicas;
    depths[s] = divide_up(behind, std::max<std::int64_t>(1, replicas));
  }
  return depths;
}

/// Replaces the given order by the family if the family has the same order. Returns whether it has.
bool PlanMaker::runs_as(ScheduleFamily family) {
  Plan other = plan_;
  other.family = family;
  other.order.clear();
  const auto layers = static_cast<std::int32_t>(ground_.profile.layers.size());
  if (!validate(other, layers, ground_.topology).empty()) return false;
  if (family != ScheduleFamily::OneFOneB) fill_depths(other);
  const Schedule schedule = generate(other);
  const auto has_order_of = [](const Lane& lane, const std::vector<Action>& given) {
    std::size_t next = 0;
    for (const Action& action : lane.actions) {
      if (stream_of(action.kind) != Stream::Compute) continue;
      if (action.kind == ActionKind::OptimizerStep) continue;
      if (next == given.size() || given[next++] != action) return false;
    }
    return next == given.size();
  };
  if (!std::equal(schedule.lanes.begin(), schedule.lanes.end(), plan_.order.begin(),
                  plan_.order.end(), has_order_of)) {
    return false;
  }
  plan_ = std::move(other);
  return true;
}

/// Replaces the given order by the first schedule family that has the same order and whose plans
/// carry none, if there is one.
void PlanMaker::name_order() {
  for (const ScheduleFamily family : kScheduleFamilies) {
    // With one micro-batch GPipe and 1F1B have the same order, and 1F1B has fewer restrictions.
    if (family == ScheduleFamily::GPipe && plan_.num_micro_batches == 1) continue;
    if (!carries_order(family) && runs_as(family)) return;
  }
}

void PlanMaker::set_order() {
  plan_.family = sketch_.family;
  set_largest_depths(plan_);
  if (plan_.family == ScheduleFamily::OneFOneB) {
    plan_.warmup_depths = sketch_.depths.empty() ? least_depths() : sketch_.depths;
    const std::size_t count = std::min(plan_.warmup_depths.size(), plan_.stages.size());
    for (std::size_t s = 0; s < count; ++s) {
      std::int64_t& depth = plan_.warmup_depths[s];
      depth = std::min(depth, most_micro_batches_of(plan_, plan_.stages[s]));
    }
  } else if (plan_.family == ScheduleFamily::Given) {
    plan_.order = read_order(sketch_.order->text, sketch_.order->name, plan_, ground_.topology);
  }
  check_structure();
  if (plan_.family != ScheduleFamily::OneFOneB) fill_depths(plan_);
}

Plan PlanMaker::run() {
  set_batches();
  set_stages();
  set_order();
  fill_gradient_buckets(plan_, ground_.profile);
  const std::string& source = sketch_.order == nullptr ? sketch_.source : sketch_.order->name;
  std::vector<Violation> faults = validate(generate(plan_), plan_);
  if (!faults.empty()) throw Error{ErrorKind::BadInput, source, in_words(std::move(faults))};
  if (plan_.family == ScheduleFamily::Given) name_order();
  return std::move(plan_);
}

}  // namespace

std::vector<std::vector<std::int32_t>> even_ranks(std::size_t groups, std::int64_t replicas) {
  std::vector<std::vector<std::int32_t>> ranks(groups);
  std::int32_t next = 0;
  for (std::vector<std::int32_t>& group : ranks) {
    for (std::int64_t r = 0; r < replicas; ++r) group.push_back(next++);
  }
  return ranks;
}

std::int64_t replicas_of_all(std::optional<std::int64_t> told, std::size_t groups,
                             const PlanGround& ground, const ForeignPlanOptions& options,
                             const std::string& source) {
  const auto refuse = [&](std::string message) {
    throw Error{ErrorKind::Usage, source, {{"--replicas", std::move(message)}}};
  };
  const std::vector<std::int64_t>& given = options.replicas;
  if (!given.empty() && std::count(given.begin(), given.end(), given.front()) !=
                            static_cast<std::ptrdiff_t>(given.size())) {
    refuse(
        "expected one number of replicas for all stages, which is all that the file's runtime "
        "has, got several");
  }
  if (!given.empty()) told = given.front();
  if (told) {
    const std::int32_t devices = ground.topology.device_count();
    if (*told <= devices && *told * static_cast<std::int64_t>(groups) <= devices) return *told;
    throw Error{ErrorKind::BadInput,
                source,
                {{"", fmt::format("expected a topology with {} devices for each of {} groups of "
                                  "stages, got {} devices",
                                  *told, groups, devices)}}};
  }
  if (!options.devices.empty() && options.devices.size() % groups == 0) {
    return static_cast<std::int64_t>(options.devices.size() / groups);
  }
  refuse(
      fmt::format("the replicas of each stage are required, as the file does not state them, or {} "
                  "--devices for each replica",
                  groups));
  throw Bug("not reached");
}

namespace {

/// What comments say of ranks: their devices, and how many each of these has.
struct RanksInComments {
  std::vector<std::string> devices;
  std::int64_t of_device = 1;
};

RanksInComments read_comments(std::string_view text) {
  RanksInComments ranks;
  for (const std::string_view line : split(text, "\n")) {
    const std::vector<std::string_view> words = words_of(line);
    // "# ranks 0 to 1: node0:0 node0:1"
    const bool is_ranks =
        words.size() > 5 && words[0] == "#" && words[1] == "ranks" && words[3] == "to";
    if (!is_ranks) continue;
    // "# ranks 0 to 3, 2 a device: node0:0 node0:1"
    const bool is_shared = words.size() > 8 && words[4].back() == ',' && words[7] == "device:";
    const std::int32_t degree = is_shared ? parse_count(words[5]).value_or(0) : 1;
    const auto expected = static_cast<std::int64_t>(ranks.devices.size()) * degree;
    if ((!is_shared && words[4].back() != ':') || parse_count(words[2]) != expected) continue;
    ranks.of_device = degree;
    for (std::size_t i = is_shared ? 8 : 5; i < words.size(); ++i) {
      ranks.devices.emplace_back(words[i]);
    }
  }
  return ranks;
}

}  // namespace

std::vector<std::string> devices_in_comments(std::string_view text) {
  return read_comments(text).devices;
}

std::optional<std::int64_t> ranks_in_comments(std::string_view text) {
  const RanksInComments ranks = read_comments(text);
  if (ranks.devices.empty()) return std::nullopt;
  return std::ssize(ranks.devices) * ranks.of_device;
}

Plan plan_of(const PlanSketch& sketch, const PlanGround& ground,
             const ForeignPlanOptions& options) {
  return PlanMaker(sketch, ground, options).run();
}

std::string recomputed_as_a_whole(std::string_view runtime, std::string_view kept) {
  return fmt::format(
      "stages are recomputed as a whole, from their input; {} keeps {}, and needs more memory",
      runtime, kept);
}

std::string group_degree_fault(std::int64_t degree, CollectiveMembers members,
                               const ModelProfile& profile) {
  const std::int64_t of_group = profile.group.ring(members).members;
  if (degree == of_group) return "";
  return fmt::format("expected {}, that of a group of devices, got {}", of_group, degree);
}

void check_degree(std::int64_t degree, const ModelProfile& profile,
                  const ForeignPlanOptions& options, const std::string& source) {
  const std::int64_t measured = profile.tensor_parallel;
  if (measured != 1 && measured != degree) {
    throw Error{ErrorKind::BadInput,
                source,
                {{"", fmt::format("expected tensor-parallel degree {}, that of the profile, got {}",
                                  measured, degree)}}};
  }
  const std::int64_t given = options.tensor_parallel.value_or(measured);
  if (given == degree) return;
  throw Error{
      ErrorKind::Usage,
      source,
      {{"--tensor-parallel",
        fmt::format("expected {}, the plan's degree: a device of the topology then stands "
                    "for so many GPUs, and the profile must be of that degree; got {}",
                    degree, options.tensor_parallel ? fmt::format("{}", given) : "nothing")}}};
}

}  // namespace dapple::interop
