#include "dapple/plan/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "dapple/core/error.h"

namespace dapple {
namespace {

std::string stage_place(std::size_t stage, const char* key) {
  return fmt::format("/stages/{}/{}", stage, key);
}

/// Returns "layer 12 is" or "layers 12 to 14 are" for the range [begin, end). Requires: it is not
/// empty.
std::string layers_text(std::int32_t begin, std::int32_t end) {
  if (end - begin == 1) return fmt::format("layer {} is", begin);
  return fmt::format("layers {} to {} are", begin, end - 1);
}

/// Whether the optimizer may step bucket by bucket in a form.
bool may_step_by_bucket(const Parallelism& form) {
  return !form.shards_optimizer && form.copies() == 1;
}

class PlanValidator {
 public:
  PlanValidator(const Plan& plan, std::int32_t layer_count, const Topology& topology)
      : plan_(plan), layer_count_(layer_count), topology_(topology) {}

  std::vector<Violation> run() &&;

 private:
  void check_batches();
  void check_forms();
  void check_layers();
  std::vector<std::size_t> stages_with_sound_layers();
  void check_chunks();
  void check_devices();
  std::size_t first_on_devices_of(std::size_t stage);
  void check_replicas(std::size_t stage);
  void check_larger_groups(std::size_t stage);
  void check_samples(std::size_t stage);
  void check_buckets(std::size_t stage);
  void check_order();
  void check_depths();
  void check_depth(std::size_t stage);
  bool is_dealt(std::size_t stage) const;

  void report(std::string place, std::string message) {
    violations_.push_back({.place = std::move(place), .message = std::move(message)});
  }

  const Plan& plan_;
  std::int32_t layer_count_;
  const Topology& topology_;
  // If false, checks against limits that depend on the batch sizes are skipped.
  bool batches_are_positive_ = true;
  // If false, it is unknown which stages share devices, and checks that depend on it are skipped.
  bool chunks_are_sound_ = true;
  // For a given order: the first stage whose list of devices begins with a device.
  std::map<DeviceIndex, std::size_t> first_with_;
  std::vector<Violation> violations_;
};

std::vector<Violation> PlanValidator::run() && {
  check_batches();
  if (plan_.stages.empty()) report("/stages", "expected at least one stage, got none");
  check_forms();
  check_layers();
  check_chunks();
  check_devices();
  for (std::size_t stage = 0; stage < plan_.stages.size(); ++stage) {
    if (batches_are_positive_) {
      check_larger_groups(stage);
      check_replicas(stage);
      check_samples(stage);
    }
    check_buckets(stage);
  }
  check_order();
  check_depths();
  return std::move(violations_);
}

void PlanValidator::check_batches() {
  const Parallelism& form = plan_.parallelism;
  if (plan_.gradients.optimizer == OptimizerTiming::PerBucket && !may_step_by_bucket(form)) {
    report("/gradients/optimizer_step",
           fmt::format("expected at-end, as {}, got per-bucket",
                       form.shards_optimizer ? "the optimizer's state is sharded"
                                             : "devices of a group hold the same parameters"));
  }
  const std::pair<const char*, std::int64_t> counts[] = {
      {"/global_batch_size", plan_.global_batch_size},
      {"/micro_batch_size", plan_.micro_batch_size},
      {"/num_micro_batches", plan_.num_micro_batches},
  };
  for (const auto& [place, count] : counts) {
    if (count >= 1) continue;
    report(place, fmt::format("expected at least 1, got {}", count));
    batches_are_positive_ = false;
  }
  if (!batches_are_positive_) return;
  if (Wide{plan_.micro_batch_size} * plan_.num_micro_batches != plan_.global_batch_size) {
    report("/global_batch_size",
           fmt::format("expected {} micro-batches of {} samples, got {} samples",
                       plan_.num_micro_batches, plan_.micro_batch_size, plan_.global_batch_size));
  }
  const auto stages = static_cast<std::int64_t>(std::max<std::size_t>(1, plan_.stages.size()));
  if (plan_.num_micro_batches > kMaxStagePasses / stages) {
    report("/num_micro_batches",
           fmt::format("expected at most {} micro-batches over {} stages, got {}: "
                       "the schedule would be too long",
                       kMaxStagePasses / stages, stages, plan_.num_micro_batches));
  }
}

void PlanValidator::check_forms() {
  const auto forms = static_cast<std::int32_t>(plan_.stage_forms.size());
  for (std::size_t stage = 0; stage < plan_.stages.size(); ++stage) {
    const std::int32_t form = plan_.stages[stage].form.value;
    if (form >= 0 && form <= forms) continue;
    report(stage_place(stage, "form"),
           fmt::format("expected 0, the plan's own form, to {}, that of the last of its "
                       "stage_forms, got {}",
                       forms, form));
  }
  std::int64_t ranks = plan_.parallelism.replicas_in_group();
  for (const Parallelism& form : plan_.stage_forms) {
    ranks = std::max(ranks, form.replicas_in_group());
  }
  if (plan_.global_batch_size >= 1 && plan_.global_batch_size < ranks) {
    report("/global_batch_size",
           fmt::format("expected a sample for each of {} data-parallel ranks of a group, got {}",
                       ranks, plan_.global_batch_size));
  }
  if (plan_.gradients.optimizer != OptimizerTiming::PerBucket) return;
  for (std::size_t i = 0; i < plan_.stage_forms.size(); ++i) {
    if (may_step_by_bucket(plan_.stage_forms[i])) continue;
    report(fmt::format("/stage_forms/{}", i),
           fmt::format("expected devices of a group with different parameters, as the optimizer "
                       "steps per-bucket, got {}",
                       to_text(plan_.stage_forms[i])));
  }
}

std::vector<std::size_t> PlanValidator::stages_with_sound_layers() {
  std::vector<std::size_t> sound;
  for (std::size_t stage = 0; stage < plan_.stages.size(); ++stage) {
    const LayerRange layers = plan_.stages[stage].layers;
    if (layers.begin < 0 || layers.begin > layer_count_ || layers.end < 0 ||
        layers.end > layer_count_) {
      report(stage_place(stage, "layers"), fmt::format("expected layers of the model, 0 to {}, got "
                                                       "[{}, {}]",
                                                       layer_count_, layers.begin, layers.end));
    } else if (layers.begin >= layers.end) {
      report(stage_place(stage, "layers"), fmt::format("expected at least one layer, got [{}, {}]: "
                                                       "the stage is empty",
                                                       layers.begin, layers.end));
    } else {
      sound.push_back(stage);
    }
  }
  return sound;
}

void PlanValidator::check_layers() {
  std::vector<std::size_t> order = stages_with_sound_layers();
  const auto layers_of = [&](std::size_t stage) { return plan_.stages[stage].layers; };
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (layers_of(order[i]).end > layers_of(order[i - 1]).begin) continue;
    report(stage_place(order[i], "layers"),
           fmt::format("expected layers behind those of stage {}, got [{}, {}]: "
                       "stages stand in the order of their layers",
                       order[i - 1], layers_of(order[i]).begin, layers_of(order[i]).end));
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return layers_of(a).begin < layers_of(b).begin;
  });
  std::int32_t covered = 0;
  std::size_t last_cover = 0;  // the stage that reaches up to `covered`
  for (const std::size_t stage : order) {
    const LayerRange layers = layers_of(stage);
    if (layers.begin > covered) {
      report(stage_place(stage, "layers"),
             fmt::format("{} in no stage", layers_text(covered, layers.begin)));
    } else if (layers.begin < covered) {
      report(stage_place(stage, "layers"),
             fmt::format("{} in stage {} too",
                         layers_text(layers.begin, std::min(covered, layers.end)), last_cover));
    }
    if (layers.end > covered) {
      covered = layers.end;
      last_cover = stage;
    }
  }
  if (covered < layer_count_ && !plan_.stages.empty()) {
    report("/stages", fmt::format("{} in no stage", layers_text(covered, layer_count_)));
  }
}

void PlanValidator::check_chunks() {
  const char* place = "/schedule/chunks_per_device";
  const std::int64_t chunks = plan_.chunks_per_device;
  const auto stages = static_cast<std::int64_t>(plan_.stages.size());
  const auto expect = [&](const std::string& expected) {
    report(place, fmt::format("expected {}, got {}", expected, chunks));
    chunks_are_sound_ = false;
  };
  switch (plan_.family) {
    case ScheduleFamily::GPipe:
    case ScheduleFamily::OneFOneB:
    case ScheduleFamily::ListScheduled:
    case ScheduleFamily::ZeroBubbleH1:
    case ScheduleFamily::ZeroBubbleH2:
      if (chunks != 1) {
        expect(fmt::format("1, as {} has one stage per device", to_string(plan_.family)));
      }
      return;
    case ScheduleFamily::ZeroBubbleV:
      if (chunks != 2) return expect("2, as zb-v goes there and back again");
      break;
    case ScheduleFamily::Interleaved:
      if (chunks < 2) return expect("at least 2, the turns that interleaved takes");
      break;
    case ScheduleFamily::BreadthFirst:
    case ScheduleFamily::Given:
      if (chunks < 1) return expect("at least 1");
      break;
  }
  if (stages % chunks != 0) {
    return expect(fmt::format("a divisor of the number of stages, {}", stages));
  }
  const std::int64_t groups = stages / chunks;
  if (plan_.family != ScheduleFamily::Interleaved || !batches_are_positive_ || groups == 0) return;
  if (plan_.num_micro_batches % groups == 0) return;
  report("/num_micro_batches",
         fmt::format("expected a multiple of {}, the groups of devices that take turns, got {}",
                     groups, plan_.num_micro_batches));
}

/// Returns the first of the stages that must be on the devices of `stage`; this is `stage` itself
/// if it is the first or need not share devices. Requires: called once for each stage in ascending
/// order.
std::size_t PlanValidator::first_on_devices_of(std::size_t stage) {
  const std::size_t stages = plan_.stages.size();
  const std::size_t groups = stages / static_cast<std::size_t>(plan_.chunks_per_device);
  if (plan_.family == ScheduleFamily::ZeroBubbleV) return std::min(stage, stages - 1 - stage);
  if (plan_.family == ScheduleFamily::Given) {
    const std::vector<DeviceIndex>& devices = plan_.stages[stage].devices;
    if (devices.empty()) return stage;
    const std::size_t first = first_with_.try_emplace(devices.front(), stage).first->second;
    return plan_.stages[first].devices == devices ? first : stage;
  }
  return stage % groups;
}

void PlanValidator::check_devices() {
  if (!chunks_are_sound_) return;
  struct Use {
    std::size_t stage = 0;
    std::size_t position = 0;
    bool used = false;
  };
  std::vector<Use> uses(static_cast<std::size_t>(topology_.device_count()));
  for (std::size_t stage = 0; stage < plan_.stages.size(); ++stage) {
    const std::vector<DeviceIndex>& devices = plan_.stages[stage].devices;
    if (devices.empty()) {
      report(stage_place(stage, "devices"), "expected at least one device, got none");
    }
    if (const std::size_t first = first_on_devices_of(stage); first != stage) {
      if (devices != plan_.stages[first].devices) {
        report(stage_place(stage, "devices"),
               fmt::format("expected the devices of stage {}, as {} has {} stages on each device",
                           first, to_string(plan_.family), plan_.chunks_per_device));
      }
      continue;
    }
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const std::string place = fmt::format("/stages/{}/devices/{}", stage, i);
      const DeviceIndex device = devices[i];
      if (device.value < 0 || device.value >= topology_.device_count()) {
        report(place, fmt::format("device {} is not in the topology, which has {}", device.value,
                                  topology_.device_count()));
        continue;
      }
      Use& use = uses[device.position()];
      if (use.used) {
        report(place, fmt::format("device {} is used twice, first at /stages/{}/devices/{}",
                                  topology_.device(device).name, use.stage, use.position));
      } else {
        use = {.stage = stage, .position = i, .used = true};
      }
    }
  }
}

bool PlanValidator::is_dealt(std::size_t stage) const {
  return plan_.stages[stage].replication == Replication::Deal &&
         replicas_of(plan_.stages[stage]) > 1;
}

/// Checks a stage each of whose replicas has several devices: these are the consecutive ones of a
/// group.
void PlanValidator::check_larger_groups(std::size_t stage) {
  const StagePlan& own = plan_.stages[stage];
  const std::int32_t size = own.devices_per_replica;
  if (size == 1) return;
  if (plan_.chunks_per_device != 1) {
    report("/schedule/chunks_per_device",
           fmt::format("expected 1, as groups of stages have different sizes, got {}",
                       plan_.chunks_per_device));
  }
  if (own.replication == Replication::Deal) {
    report(stage_place(stage, "replication"),
           "expected \"split\", as its groups are larger than those of others, got \"deal\"");
  }
  const std::string whole =
      fmt::format("whole groups of {} consecutive devices of the plan's own form", size);
  if (std::ssize(own.devices) % size != 0) {
    report(stage_place(stage, "devices"),
           fmt::format("expected {}, got {} devices", whole, own.devices.size()));
    return;
  }
  for (std::size_t i = 0; i < own.devices.size(); ++i) {
    const DeviceIndex device = own.devices[i];
    if (device.value < 0 || device.value >= topology_.device_count()) return;
    const auto member = static_cast<std::int32_t>(i) % size;
    if (device.value % size == member &&
        (member == 0 || device.value == own.devices[i - 1].value + 1)) {
      continue;
    }
    report(fmt::format("{}/{}", stage_place(stage, "devices"), i),
           fmt::format("expected {}, got {}", whole, topology_.device(device).name));
    return;
  }
}

void PlanValidator::check_replicas(std::size_t stage) {
  const std::int64_t replicas = replicas_of(plan_.stages[stage]);
  const bool may_deal = plan_.chunks_per_device == 1 && !carries_order(plan_.family);
  if (is_dealt(stage) && !may_deal) {
    report(stage_place(stage, "replication"),
           fmt::format("expected \"split\", as {} deals no micro-batches, got \"deal\"",
                       to_string(plan_.family)));
  }
  if (plan_.stages[stage].replication == Replication::Split) {
    if (replicas > plan_.micro_batch_size) {
      report(stage_place(stage, "devices"),
             fmt::format("expected at most {} replicas, a sample of each micro-batch for each, "
                         "got {}",
                         plan_.micro_batch_size, replicas));
    }
  } else if (replicas > plan_.num_micro_batches) {
    report(stage_place(stage, "devices"),
           fmt::format("expected at most {} replicas, a micro-batch for each, got {}",
                       plan_.num_micro_batches, replicas));
  }
}

/// Checks the shares of a stage that gives them replica by replica.
void PlanValidator::check_samples(std::size_t stage) {
  const std::vector<std::int64_t>& samples = plan_.stages[stage].samples;
  if (samples.empty()) return;
  const auto expect = [&](const std::string& expected, const auto& got) {
    report(stage_place(stage, "samples"), fmt::format("expected {}, got {}", expected, got));
  };
  const auto replicas = static_cast<std::size_t>(replicas_of(plan_.stages[stage]));
  if (plan_.stages[stage].replication == Replication::Deal) {
    return expect("no such key with \"deal\", as replicas have whole micro-batches", "shares");
  }
  if (samples.size() != replicas) {
    return expect(fmt::format("a number for each of {} replicas", replicas), samples.size());
  }
  Wide sum = 0;
  for (const std::int64_t share : samples) {
    if (share < 1) return expect("at least one sample for each replica", share);
    sum += share;
  }
  if (sum == plan_.micro_batch_size) return;
  const std::string text =
      sum > INT64_MAX ? "more" : fmt::format("{}", static_cast<std::int64_t>(sum));
  expect(
      fmt::format("numbers that add up to the {} samples of a micro-batch", plan_.micro_batch_size),
      text);
}

void PlanValidator::check_buckets(std::size_t stage) {
  const std::vector<Bytes>& buckets = plan_.stages[stage].gradient_buckets;
  const std::string place = stage_place(stage, "costs/gradient_buckets_bytes");
  if (!buckets.empty() && replicas_of(plan_.stages[stage]) == 1) {
    report(place,
           fmt::format("expected no buckets, as a single replica reduces no gradients, got {}",
                       buckets.size()));
  }
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i].count >= 1) continue;
    report(fmt::format("{}/{}", place, i),
           fmt::format("expected at least 1 byte, got {}", buckets[i].count));
  }
}

void PlanValidator::check_order() {
  if (!carries_order(plan_.family)) {
    if (!plan_.order.empty()) {
      report("/schedule/order", fmt::format("expected null, as the order of {} follows from the "
                                            "depths",
                                            to_string(plan_.family)));
    }
    return;
  }
  if (!chunks_are_sound_) return;
  const std::size_t groups =
      plan_.stages.size() / static_cast<std::size_t>(plan_.chunks_per_device);
  if (plan_.order.size() == groups) return;
  report("/schedule/order", fmt::format("expected a list for each of {} groups of devices, got {}",
                                        groups, plan_.order.size()));
}

void PlanValidator::check_depths() {
  if (plan_.warmup_depths.size() != plan_.stages.size()) {
    report("/schedule/warmup_depths",
           fmt::format("expected one depth for each of {} stages, got {}", plan_.stages.size(),
                       plan_.warmup_depths.size()));
    return;
  }
  if (!batches_are_positive_) return;
  for (std::size_t stage = 0; stage < plan_.stages.size(); ++stage) check_depth(stage);
}

void PlanValidator::check_depth(std::size_t stage) {
  const std::string place = fmt::format("/schedule/warmup_depths/{}", stage);
  const std::int64_t depth = plan_.warmup_depths[stage];
  if (plan_.family == ScheduleFamily::GPipe) {
    if (depth != plan_.num_micro_batches) {
      report(place, fmt::format("expected {}, as GPipe keeps all micro-batches in flight, got {}",
                                plan_.num_micro_batches, depth));
    }
    return;
  }
  if (depth < 1 || depth > plan_.num_micro_batches) {
    report(place, fmt::format("expected a warm-up depth of 1 to {}, the number of micro-batches, "
                              "got {}",
                              plan_.num_micro_batches, depth));
    return;
  }
  // Deadlocks under other families are found by the dry run of the schedule.
  if (plan_.family != ScheduleFamily::OneFOneB) return;
  // So are those at dealt stages, where a depth applies to each replica separately.
  if (stage == 0 || is_dealt(stage) || is_dealt(stage - 1)) return;
  const std::int64_t before = plan_.warmup_depths[stage - 1];
  if (depth > before) {
    report(place, fmt::format("expected a warm-up depth of at most {}, the depth of the stage "
                              "before, got {}: the pipeline would deadlock",
                              before, depth));
  }
}

}  // namespace

std::vector<Violation> validate(const Plan& plan, std::int32_t layer_count,
                                const Topology& topology) {
  return PlanValidator(plan, layer_count, topology).run();
}

}  // namespace dapple
