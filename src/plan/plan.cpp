#include "dapple/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "dapple/core/error.h"

namespace dapple {

std::string_view to_string(OptimizerTiming timing) {
  switch (timing) {
    case OptimizerTiming::AtEnd:
      return "at-end";
    case OptimizerTiming::PerBucket:
      return "per-bucket";
  }
  throw Bug("a timing of the optimizer without a name");
}

std::vector<Parallelism> stage_forms_of(const ModelProfile& profile) {
  std::vector<Parallelism> forms;
  for (const ModelProfile& form : profile.stage_forms) forms.push_back(form.parallelism);
  return forms;
}

const Parallelism& form_of(const Plan& plan, const StagePlan& stage) {
  return stage.form == FormIndex{} ? plan.parallelism
                                   : plan.stage_forms[stage.form.previous().position()];
}

std::vector<std::vector<StageIndex>> stages_by_device_group(const Plan& plan) {
  std::vector<std::vector<StageIndex>> groups;
  std::map<DeviceIndex, std::size_t> group_of;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const DeviceIndex device = plan.stages[s].devices.front();
    const auto [entry, is_new] = group_of.try_emplace(device, groups.size());
    if (is_new) groups.emplace_back();
    groups[entry->second].push_back(index_at<StageIndex>(s));
  }
  return groups;
}

std::vector<TiedGradients> tied_gradients(const ModelProfile& profile,
                                          const std::vector<StagePlan>& stages) {
  std::vector<TiedGradients> tied;
  for (const Tie& tie : profile.ties) {
    TiedGradients gradients{.owner = tie.owner, .stages = {}};
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (!sides_of(tie, stages[s].layers).inside) continue;
      gradients.stages.push_back(index_at<StageIndex>(s));
    }
    if (gradients.stages.size() > 1) tied.push_back(std::move(gradients));
  }
  return tied;
}

std::int32_t devices_per_replica(const ModelProfile& profile, const ModelProfile& form) {
  const std::int64_t groups = form.parallelism.group_size() / profile.parallelism.group_size();
  return static_cast<std::int32_t>(std::max<std::int64_t>(1, groups));
}

bool has_larger_groups(const ModelProfile& profile) {
  return std::any_of(
      profile.stage_forms.begin(), profile.stage_forms.end(),
      [&](const ModelProfile& form) { return devices_per_replica(profile, form) > 1; });
}

namespace {

bool holds(StageIndex stage, const TiedGradients& tied) {
  return std::binary_search(tied.stages.begin(), tied.stages.end(), stage);
}

}  // namespace

std::vector<std::int32_t> ties_of(const Plan& plan, const std::vector<StageIndex>& stages) {
  std::vector<std::int32_t> ties;
  for (std::size_t t = 0; t < plan.tied_gradients.size(); ++t) {
    const bool is_held = std::any_of(stages.begin(), stages.end(), [&](StageIndex stage) {
      return holds(stage, plan.tied_gradients[t]);
    });
    if (is_held) ties.push_back(static_cast<std::int32_t>(t));
  }
  return ties;
}

StageIndex representative_stage(const TiedGradients& tied, const std::vector<StageIndex>& stages) {
  const auto representative = std::find_if(stages.begin(), stages.end(),
                                           [&](StageIndex stage) { return holds(stage, tied); });
  check(representative != stages.end(), "a device reduces gradients that it does not hold");
  return *representative;
}

std::string_view to_string(Replication replication) {
  switch (replication) {
    case Replication::Split:
      return "split";
    case Replication::Deal:
      return "deal";
  }
  throw Bug("a replication without a name");
}

std::int64_t dealt_to(const StagePlan& stage) {
  return stage.replication == Replication::Deal ? replicas_of(stage) : 1;
}

bool splits_micro_batches(const Plan& plan) {
  return std::any_of(plan.stages.begin(), plan.stages.end(), [](const StagePlan& stage) {
    return stage.replication == Replication::Split && replicas_of(stage) > 1;
  });
}

bool deals_micro_batches(const Plan& plan) {
  return std::any_of(plan.stages.begin(), plan.stages.end(),
                     [](const StagePlan& stage) { return dealt_to(stage) > 1; });
}

SampleRange replica_share(std::int64_t micro_batch_size, std::int64_t replicas,
                          std::int64_t replica) {
  const std::int64_t share = micro_batch_size / replicas;
  const std::int64_t larger_shares = micro_batch_size % replicas;
  const std::int64_t begin = replica * share + std::min(replica, larger_shares);
  return {.begin = begin, .end = begin + share + (replica < larger_shares ? 1 : 0)};
}

bool are_equal_shares(std::int64_t micro_batch_size, const std::vector<std::int64_t>& samples) {
  std::int64_t replica = 0;
  return std::all_of(samples.begin(), samples.end(), [&](std::int64_t share) {
    return share == replica_share(micro_batch_size, std::ssize(samples), replica++).size();
  });
}

ReplicaShares::ReplicaShares(std::int64_t micro_batch_size, std::int64_t replicas,
                             const std::vector<std::int64_t>& samples)
    : micro_batch_size_(micro_batch_size), replicas_(replicas), ends_(samples) {
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
}

SampleRange ReplicaShares::of(std::int64_t replica) const {
  if (ends_.empty()) return replica_share(micro_batch_size_, replicas_, replica);
  const auto position = static_cast<std::size_t>(replica);
  return {.begin = position == 0 ? 0 : ends_[position - 1], .end = ends_[position]};
}

namespace {

std::int64_t replica_of(const StagePlan& stage, std::size_t device) {
  return static_cast<std::int64_t>(device) / stage.devices_per_replica;
}

}  // namespace

SampleRange samples_of(const Plan& plan, const StagePlan& stage, std::size_t device) {
  if (stage.replication == Replication::Deal) return {.begin = 0, .end = plan.micro_batch_size};
  return ReplicaShares(plan.micro_batch_size, replicas_of(stage), stage.samples)
      .of(replica_of(stage, device));
}

std::int64_t micro_batches_of(const Plan& plan, const StagePlan& stage, std::size_t device) {
  if (stage.replication == Replication::Split) return plan.num_micro_batches;
  // Replica i gets micro-batches i, i + r, i + 2r, ...: as many as the i-th of r even shares.
  return replica_share(plan.num_micro_batches, replicas_of(stage), replica_of(stage, device))
      .size();
}

bool has_larger_groups(const Plan& plan) {
  return std::any_of(plan.stages.begin(), plan.stages.end(),
                     [](const StagePlan& stage) { return stage.devices_per_replica > 1; });
}

void set_devices_per_replica(Plan& plan) {
  for (StagePlan& stage : plan.stages) {
    stage.devices_per_replica = static_cast<std::int32_t>(form_of(plan, stage).group_size() /
                                                          plan.parallelism.group_size());
  }
}

std::int64_t most_micro_batches_of(const Plan& plan, const StagePlan& stage) {
  return divide_up(plan.num_micro_batches, std::max<std::int64_t>(1, dealt_to(stage)));
}

std::int64_t depth_on_replica(const Plan& plan, StageIndex stage) {
  return std::min(plan.warmup_depths[stage.position()],
                  most_micro_batches_of(plan, plan.stages[stage.position()]));
}

void set_largest_depths(Plan& plan) {
  plan.warmup_depths.clear();
  for (const StagePlan& stage : plan.stages) {
    const bool is_gpipe = plan.family == ScheduleFamily::GPipe;
    plan.warmup_depths.push_back(is_gpipe ? plan.num_micro_batches
                                          : most_micro_batches_of(plan, stage));
  }
}

std::string shape_of(const Plan& plan) {
  constexpr std::size_t kMostListed = 4;
  // Of stages that share devices only the first is listed.
  const std::size_t groups = plan.stages.size() / static_cast<std::size_t>(std::max<std::int64_t>(
                                                      1, plan.chunks_per_device));
  const auto replicas_of = [&](std::size_t s) { return plan.stages[s].devices.size(); };
  std::string shape;
  bool straight = groups > 1;
  for (std::size_t s = 0; s < groups;) {
    const std::size_t replicas = replicas_of(s);
    straight = straight && replicas == 1;
    std::size_t end = s;
    while (end < groups && replicas_of(end) == replicas) ++end;
    if (end - s > kMostListed) {
      shape += fmt::format("{}{}x{}", shape.empty() ? "" : ":", end - s, replicas);
    } else {
      for (std::size_t i = s; i < end; ++i) {
        shape += fmt::format("{}{}", shape.empty() ? "" : ":", replicas);
      }
    }
    s = end;
  }
  if (straight) shape = fmt::format("{} straight", groups);
  if (plan.chunks_per_device > 1) {
    shape += fmt::format(" with {} stages each", plan.chunks_per_device);
  }
  const bool recompute = std::any_of(plan.stages.begin(), plan.stages.end(),
                                     [](const StagePlan& stage) { return stage.recompute; });
  return fmt::format("{}, {} of {}{}", shape, plan.num_micro_batches, plan.micro_batch_size,
                     recompute ? ", recomputing" : "");
}

}  // namespace dapple
