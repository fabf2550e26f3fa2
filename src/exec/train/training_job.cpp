#include "dapple/exec/train/training_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/cost/cost_model.h"
#include "dapple/profile/variants.h"
#include "dapple/schedule/schedule.h"
#include "dapple/simulate/device_memory.h"
#include "exec/run/reduction_groups.h"

namespace dapple::exec {
namespace {

/// The place of layer errors. Messages give the layer's name, not its index, because `repeat` makes
/// several layers of one entry of the array.
constexpr const char* kLayers = "/model/profile/layers";

/// Returns the fault of one layer whose output size differs from the profile's.
std::optional<Violation> output_fault(const Layer& layer, const nn::ModelLayer& runnable,
                                      cuda::Precision precision) {
  const Measurement& largest = layer.measurements.back();
  const std::int64_t output =
      nn::count_of(runnable.output) * largest.batch_size * cuda::size_of(cuda::type_of(precision));
  if (largest.output.count == output) return std::nullopt;
  return Violation{
      kLayers,
      fmt::format("expected output_bytes {} at batch size {} for the output of \"{}\", "
                  "in {} precision, got {}; dapple-exec profile measures such a "
                  "profile",
                  output, largest.batch_size, layer.name,
                  precision == cuda::Precision::Float32 ? "single" : "half", largest.output.count)};
}

/// Returns the fault of one layer of which the ranks of a tensor-parallel group hold more or fewer
/// parameters than the profile says.
std::optional<Violation> parameters_fault(const Layer& layer, const nn::ModelLayer& of_rank) {
  const std::int64_t size =
      nn::parameter_count(of_rank.own_parameters()) * static_cast<std::int64_t>(sizeof(float));
  if (layer.parameters.count == size) return std::nullopt;
  return Violation{kLayers, fmt::format("expected parameter_bytes {} in the variant of \"{}\" for "
                                        "tensor parallelism, 4 for each parameter of a rank, got "
                                        "{}; dapple-exec profile measures such a profile",
                                        size, layer.name, layer.parameters.count)};
}

/// Returns a rank in all forms of a plan, by its number among all devices: groups are consecutive
/// ranks, the first of which has a multiple of their size as its number.
std::vector<FormRank> form_ranks(const Plan& plan, std::int64_t number) {
  const auto rank_in = [&](const Parallelism& form) {
    return form_rank(form, number % form.group_size());
  };
  std::vector<FormRank> forms{rank_in(plan.parallelism)};
  for (const Parallelism& form : plan.stage_forms) forms.push_back(rank_in(form));
  return forms;
}

/// Returns the number of ranks of the largest groups of a plan's forms.
std::int64_t largest_group(const Plan& plan) {
  std::int64_t ranks = plan.parallelism.group_size();
  for (const Parallelism& form : plan.stage_forms) ranks = std::max(ranks, form.group_size());
  return ranks;
}

/// Returns the plan of the samples of one of the ranks of a group that have different ones.
Plan of_one_rank(Plan plan) {
  const std::int64_t ranks = plan.parallelism.replicas_in_group();
  check(plan.micro_batch_size % ranks == 0, "ranks do not divide a micro-batch");
  plan.global_batch_size /= ranks;
  plan.micro_batch_size /= ranks;
  for (StagePlan& stage : plan.stages) {
    for (std::int64_t& share : stage.samples) {
      check(share % ranks == 0, "ranks do not divide the samples of a replica");
      share /= ranks;
    }
  }
  return plan;
}

/// Returns the profile as such a rank runs it.
ModelProfile of_one_rank(ModelProfile profile) {
  profile.group.replicas = 1;
  for (ModelProfile& form : profile.stage_forms) form = of_one_rank(std::move(form));
  for (ModelProfile& other : profile.recomputing) other = of_one_rank(std::move(other));
  return profile;
}

/// Returns whether each layer of a stage is one that a form selects: it counts those that have any
/// of the parts.
std::vector<bool> selected_of(const Recomputation& recomputation, LayerRange stage,
                              const std::vector<nn::ModelLayer>& layers) {
  std::vector<bool> selected;
  std::int64_t preceding = 0;  // layers that have the parts
  for (std::int32_t l = stage.begin; l < stage.end; ++l) {
    selected.push_back(recomputation.layers.contains(preceding));
    const nn::ModelLayer& layer = layers[static_cast<std::size_t>(l)];
    if (nn::has_any_of(recomputation.parts, layer.operation)) ++preceding;
  }
  return selected;
}

/// The layers of a form as a rank runs them: those that recompute what the form does and, where
/// only some of every stage do, the same layers keeping all.
struct LayersOfForm {
  LayersOfForm(const std::vector<nn::ModelLayer>& layers, const Parallelism& form,
               nn::LayerRank rank, const std::string& source_name)
      : recomputation(form.recomputation()) {
    rank.recomputes = form.recomputes;
    recomputing = nn::share_model(layers, rank, source_name);
    if (recomputation.layers.is_all()) return;
    rank.recomputes = {};
    kept = nn::share_model(layers, rank, source_name);
  }

  /// Moves the layers of a stage to the end of others.
  void move_stage(LayerRange stage, std::vector<nn::ModelLayer>& others) {
    const std::vector<bool> recomputes = selected_of(recomputation, stage, recomputing);
    for (std::int32_t l = stage.begin; l < stage.end; ++l) {
      const auto layer = static_cast<std::size_t>(l);
      const bool is_recomputed = recomputes[static_cast<std::size_t>(l - stage.begin)];
      others.push_back(std::move((is_recomputed ? recomputing : kept)[layer]));
    }
  }

  Recomputation recomputation;
  std::vector<nn::ModelLayer> recomputing;
  std::vector<nn::ModelLayer> kept;
};

/// Returns the peak memory of each device, in the order of `devices`.
std::vector<Bytes> memory_of(const std::vector<DeviceSchedule>& devices, const Schedule& schedule,
                             const PlanCost& costs) {
  const std::vector<DeviceMemory> memory = simulate::device_memory(schedule, costs);
  const std::vector<Bytes> peaks = simulate::peak_memories(schedule, memory);
  std::map<DeviceIndex, Bytes> by_device;
  for (std::size_t d = 0; d < memory.size(); ++d) by_device[memory[d].device] = peaks[d];
  std::vector<Bytes> in_order;
  for (const DeviceSchedule& device : devices) in_order.push_back(by_device.at(device.device));
  return in_order;
}

}  // namespace

FormRank form_rank(const Parallelism& form, std::int64_t number) {
  FormRank own{.number = number};
  own.layers = {
      .tensor = {.rank = number % form.tensor,
                 .ranks = form.tensor,
                 .is_sequence_parallel = form.sequence},
      .context = {.rank = number / form.tensor % form.context, .ranks = form.context},
      .experts = {.rank = number / form.expert_tensor % form.experts, .ranks = form.experts},
      .expert_tensor = {.rank = number % form.expert_tensor, .ranks = form.expert_tensor},
      .recomputes = form.recomputes};
  const bool is_sharded = form.full_shards > 1;
  (is_sharded ? own.shard : own.copy) = {.rank = number / form.tensor, .ranks = form.copies()};
  if (form.experts > 1) {
    (is_sharded ? own.expert_shard : own.expert_copy) = {
        .rank = number / (form.experts * form.expert_tensor), .ranks = form.expert_copies()};
  }
  return own;
}

bool has_different_groups(const Plan& plan) {
  const Parallelism first = without_recomputation(plan.parallelism);
  return std::any_of(plan.stage_forms.begin(), plan.stage_forms.end(),
                     [&](const Parallelism& form) { return without_recomputation(form) != first; });
}

bool TrainingJob::gathers_copies() const {
  if (plan.parallelism.shards_optimizer) return false;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (scatters_copies(index_at<StageIndex>(s))) return true;
  }
  return false;
}

DeviceIndex TrainingJob::number_in_replica(StageIndex stage, std::size_t replica,
                                           std::int64_t rank) const {
  const StagePlan& of = plan.stages[stage.position()];
  const std::size_t first = replica * static_cast<std::size_t>(of.devices_per_replica);
  return number_of(of.devices[first], rank);
}

TrainingDevice TrainingJob::device_numbered(DeviceIndex number) const {
  return device_of({static_cast<std::int32_t>(number.value / ranks())}, number.value % ranks());
}

std::vector<FormIndex> TrainingJob::forms_on(DeviceIndex device) const {
  std::set<FormIndex> forms;
  for (const StageIndex stage : schedule_of(device).stages) {
    forms.insert(plan.stages[stage.position()].form);
  }
  return {forms.begin(), forms.end()};
}

TrainingDevice TrainingJob::device_of(DeviceIndex device, std::int64_t rank) const {
  TrainingDevice own(device, rank);
  own.forms = form_ranks(plan, number_of(device, rank).value);
  if (!reshards()) {
    const Parallelism& all = plan.parallelism;
    own.samples = {.rank = rank / (all.tensor * all.context), .ranks = sample_ranks()};
  }
  return own;
}

std::vector<DeviceIndex> TrainingJob::numbers() const {
  std::vector<DeviceIndex> numbers;
  for (const DeviceSchedule& schedule : devices) {
    for (std::int64_t rank = 0; rank < ranks(); ++rank) {
      numbers.push_back(number_of(schedule.device, rank));
    }
  }
  return numbers;
}

const DeviceSchedule& TrainingJob::schedule_of(DeviceIndex device) const {
  const auto found =
      std::find_if(devices.begin(), devices.end(),
                   [&](const DeviceSchedule& schedule) { return schedule.device == device; });
  check(found != devices.end(), "a device trains that the plan does not use");
  return *found;
}

Bytes TrainingJob::memory_of(DeviceIndex device) const {
  return memory[static_cast<std::size_t>(&schedule_of(device) - devices.data())];
}

std::vector<Violation> training_faults(const Plan& plan, const ModelProfile& profile,
                                       const std::vector<nn::ModelLayer>& layers,
                                       const TrainingSettings& settings) {
  std::vector<Violation> faults;
  for (const StagePlan& stage : plan.stages) {
    const ModelProfile& figures = in_form(profile, stage.form);
    for (std::int32_t l = stage.layers.begin; l < stage.layers.end && faults.empty(); ++l) {
      const auto i = static_cast<std::size_t>(l);
      const Layer& layer = figures.layers[i];
      if (auto fault = parameters_fault(layer, layers[i])) faults.push_back(*fault);
      if (i + 1 == layers.size() || !faults.empty()) continue;
      if (auto fault = output_fault(layer, layers[i], settings.precision)) faults.push_back(*fault);
    }
  }
  if (profile.optimizer.gradient_bytes_per_parameter_byte != kOne) {
    faults.push_back({"/model/profile/optimizer/gradient_bytes_per_parameter_byte",
                      "expected gradients in single precision, 1 byte per byte of parameters"});
  }
  const bool is_per_bucket = plan.gradients.optimizer == OptimizerTiming::PerBucket;
  if (settings.clip_norm && is_per_bucket) {
    faults.push_back({"/gradients/optimizer_step",
                      "expected \"at-end\", as gradients are to be clipped by the norm of all of "
                      "them, got \"per-bucket\""});
  } else if (settings.precision == cuda::Precision::Float16 && is_per_bucket) {
    faults.push_back({"/gradients/optimizer_step",
                      "expected \"at-end\", as in float16 no parameter may change before all "
                      "gradients are known to be numbers, got \"per-bucket\""});
  }
  return faults;
}

std::vector<nn::ModelLayer> layers_by_stage(const std::vector<nn::ModelLayer>& layers,
                                            const Plan& plan, const std::vector<FormRank>& forms,
                                            const std::string& source_name) {
  // Stages do not matter where all layers run alike.
  if (plan.stage_forms.empty() && plan.parallelism.recomputed_layers.is_all()) {
    return nn::share_model(layers, forms.front().layers, source_name);
  }
  std::vector<LayersOfForm> in_forms;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    in_forms.emplace_back(layers, i == 0 ? plan.parallelism : plan.stage_forms[i - 1],
                          forms[i].layers, source_name);
  }
  std::vector<nn::ModelLayer> by_stage;
  for (const StagePlan& stage : plan.stages) {
    in_forms[stage.form.position()].move_stage(stage.layers, by_stage);
  }
  return by_stage;
}

std::vector<RecomputedParts> recomputed_by_layer(const TrainingJob& job, StageIndex stage) {
  const Recomputation recomputation = job.form(stage).recomputation();
  std::vector<RecomputedParts> parts;
  for (const bool is_selected :
       selected_of(recomputation, job.plan.stages[stage.position()].layers, *job.layers)) {
    parts.push_back(is_selected ? recomputation.parts : RecomputedParts{});
  }
  return parts;
}

bool runs_whole_layers(const std::vector<FormRank>& forms) {
  return std::all_of(forms.begin(), forms.end(),
                     [](const FormRank& form) { return form.layers.runs_whole_layers(); });
}

std::vector<std::shared_ptr<const std::vector<nn::ModelLayer>>> layers_of_ranks(
    const std::shared_ptr<const std::vector<nn::ModelLayer>>& layers, const Plan& plan,
    const std::string& source_name) {
  std::vector<std::shared_ptr<const std::vector<nn::ModelLayer>>> of_ranks;
  const std::int64_t ranks = largest_group(plan);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::vector<FormRank> forms = form_ranks(plan, rank);
    of_ranks.push_back(runs_whole_layers(forms)
                           ? layers
                           : std::make_shared<const std::vector<nn::ModelLayer>>(
                                 layers_by_stage(*layers, plan, forms, source_name)));
  }
  return of_ranks;
}

TrainingJob make_training_job(const Plan& whole_plan, const ModelProfile& whole_profile,
                              const Topology& topology,
                              std::shared_ptr<const std::vector<nn::ModelLayer>> layers,
                              std::shared_ptr<const Batches> batches,
                              const TrainingSettings& settings) {
  const bool reshards = has_different_groups(whole_plan);
  const Plan plan = reshards ? whole_plan : of_one_rank(whole_plan);
  const ModelProfile profile = reshards ? whole_profile : of_one_rank(whole_profile);
  const CostModel model(profile, topology);
  const PlanCost costs = model.plan_cost(plan);
  const Schedule schedule = generate(plan);
  std::vector<DeviceSchedule> devices = device_schedules(schedule, costs);
  std::vector<Bytes> memory = memory_of(devices, schedule, costs);
  auto of_ranks = layers_of_ranks(layers, plan, "");
  TrainingJob job{.plan = plan,
                  .devices = std::move(devices),
                  .memory = std::move(memory),
                  .buckets = {},
                  .groups = reduction_groups(plan, costs, topology),
                  .layers = std::move(layers),
                  .of_ranks = std::move(of_ranks),
                  .measured = profile.layers,
                  .batches = std::move(batches),
                  .settings = settings,
                  .sends_shares = {}};
  for (const StagePlan& stage : plan.stages) {
    std::optional<GradientBuckets> buckets = match_buckets(in_form(profile, stage.form), stage);
    check(buckets.has_value(), "a plan's buckets are not its layers'");
    job.buckets.push_back(std::move(*buckets));
    if (!reshards) job.sends_shares.push_back(model.shares(stage.layers.end) > 1);
  }
  return job;
}

TrainingJob on_one_device(const TrainingJob& job) {
  Plan plan{.global_batch_size = job.global_batch_size(),
            .micro_batch_size = job.plan.micro_batch_size * job.sample_ranks(),
            .num_micro_batches = job.plan.num_micro_batches,
            .family = ScheduleFamily::OneFOneB,
            .warmup_depths = {1},
            .stages = {}};
  StagePlan stage;
  stage.layers = {0, static_cast<std::int32_t>(job.layers->size())};
  stage.devices = {job.devices.front().device};
  plan.stages.push_back(std::move(stage));
  // Nothing is sent or reduced, so no costs are needed.
  std::vector<DeviceSchedule> devices = device_schedules(generate(plan), PlanCost{});
  return {.plan = std::move(plan),
          .devices = std::move(devices),
          .memory = {std::accumulate(job.memory.begin(), job.memory.end(), Bytes{})},
          .buckets = {GradientBuckets{}},
          .groups = {},
          .layers = job.layers,
          .of_ranks = {job.layers},
          .measured = job.measured,
          .batches = job.batches,
          .settings = job.settings};
}

}  // namespace dapple::exec
