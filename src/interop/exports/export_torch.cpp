// Exports schedules for PyTorch's pipelining runtime, as CSV with a row of computations per
// pipeline rank, and options for torchtitan, which runs them.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "dapple/core/characters.h"
#include "dapple/profile/variants.h"
#include "dapple/schedule/schedule.h"
#include "interop/exports/exporting.h"
#include "interop/graphs/torchtitan_modules.h"
#include "interop/plans/plan_formats.h"

namespace dapple::interop {
namespace {

std::vector<Action> computations_of(const Lane& lane) {
  std::vector<Action> result;
  for (const Action& action : lane.actions) {
    if (stream_of(action.kind) != Stream::Compute) continue;
    if (action.kind != ActionKind::OptimizerStep) result.push_back(action);
  }
  return result;
}

/// Arranges the computations in columns: each takes one column, the first in which its rank is free
/// and its inputs were made in earlier columns.
class Grid {
 public:
  explicit Grid(const Schedule& schedule, std::size_t stages)
      : last_stage_(stages - 1),
        micro_batches_(static_cast<std::size_t>(schedule.num_micro_batches)),
        forwards_(stages * micro_batches_),
        gradients_(stages * micro_batches_) {
    for (const Lane& lane : schedule.lanes) lists_.push_back(computations_of(lane));
    next_.assign(lists_.size(), 0);
  }

  std::string text() {
    std::vector<std::string> rows(lists_.size());
    while (is_left()) {
      std::vector<Action> made;
      for (std::size_t row = 0; row < lists_.size(); ++row) {
        if (column_ > 0) rows[row] += ',';
        if (next_[row] == lists_[row].size() || !is_ready(lists_[row][next_[row]])) continue;
        made.push_back(lists_[row][next_[row]++]);
        rows[row] += to_text(made.back());
      }
      check(!made.empty(), "a sound schedule has come to a standstill");
      for (const Action& action : made) note(action);
      ++column_;
    }
    std::string text;
    for (const std::string& row : rows) text += row + '\n';
    return text;
  }

 private:
  bool is_left() const {
    for (std::size_t row = 0; row < lists_.size(); ++row) {
      if (next_[row] < lists_[row].size()) return true;
    }
    return false;
  }

  /// Whether the input from the neighbouring stage has been made; inputs from the same stage
  /// precede the action in its row anyway.
  bool is_ready(const Action& action) const {
    const std::size_t stage = action.stage.position();
    if (action.kind == ActionKind::Forward) {
      return stage == 0 || forwards_[place(stage - 1, action)];
    }
    if (!makes_input_gradient(action.kind) || stage == last_stage_) return true;
    return gradients_[place(stage + 1, action)];
  }

  void note(const Action& action) {
    const std::size_t made = place(action.stage.position(), action);
    if (action.kind == ActionKind::Forward) forwards_[made] = true;
    if (makes_input_gradient(action.kind)) gradients_[made] = true;
  }

  /// Returns the position of the action's micro-batch on a stage in forwards_ and gradients_.
  std::size_t place(std::size_t stage, const Action& action) const {
    return stage * micro_batches_ + static_cast<std::size_t>(action.index);
  }

  std::size_t last_stage_;
  std::size_t micro_batches_;
  std::vector<std::vector<Action>> lists_;
  std::vector<std::size_t> next_;
  std::vector<bool> forwards_;
  std::vector<bool> gradients_;
  std::size_t column_ = 0;
};

/// Returns the warnings of warn_of_torch(), and one about averaging gradients over replicas, for
/// files that do not set up the replicas themselves.
std::vector<std::string> warn_of_torch_and_replicas(const Plan& plan) {
  std::vector<std::string> warnings = warn_of_torch(plan);
  if (splits_backward(plan) && plan.stages.front().devices.size() > 1) {
    warnings.emplace_back(
        "DistributedDataParallel averages no gradients of a backward in two parts over replicas "
        "(the file of torch-python has it do so)");
  }
  return warnings;
}

std::string recomputation_of(const Plan& plan) {
  const auto option = [](std::string_view name, const auto& value) {
    return fmt::format("  --activation_checkpoint.{} {}\n", name, value);
  };
  const LayerSelection layers = plan.parallelism.recomputed_layers;
  if (layers.kind() == LayerSelection::Kind::EveryNth) {
    return option("mode", "selective") +
           fmt::format("  {} {}\n", kTorchtitanSelection, layers.number());
  }
  return option("mode", plan.stages.front().recompute || recomputes_blocks(plan) ? "full" : "none");
}

/// Returns torchtitan's options for the data-parallel ranks, what they shard, and the degrees
/// within a device, of which `tensor` is one.
std::string degrees_as_options(const Plan& plan, const ModelProfile& profile, std::int64_t tensor) {
  const Parallelism& form = plan.parallelism;
  const std::int64_t ranks = replicas_of_stages(plan);
  const std::int64_t shards = form.full_shards > 1        ? form.full_shards / form.context
                              : form.optimizer_shards > 0 ? form.optimizer_shards / form.context
                              : form.shards_optimizer     ? ranks
                                                          : 1;
  std::string options;
  const auto add = [&](std::string_view option, const auto& value) {
    options += fmt::format("  --parallelism.{} {}\n", option, value);
  };
  add("data_parallel_replicate_degree", ranks / shards);
  if (sharding_of(form) != Sharding::None) {
    add("data_parallel_shard_degree", shards);
    // The default depends on whether there is a pipeline.
    add("fsdp_reshard_after_forward", form.shards_optimizer ? "never" : "always");
  }
  if (tensor > 1) add("tensor_parallel_degree", tensor);
  if (form.context > 1) {
    add("context_parallel_degree", form.context);
    // What it calls alltoall passes keys and values on to the next rank.
    if (const auto exchange = context_exchange_of(profile, form)) {
      add("context_parallel_rotate_method",
          *exchange == ContextExchange::Ring ? "alltoall" : "allgather");
    }
  }
  return options;
}

}  // namespace

std::vector<std::string> warn_of_torch(const Plan& plan) {
  if (!splits_backward(plan) || !plan.stages.front().recompute) return {};
  return {
      "PyTorch's runtime runs a forward again for each part of its backward, the second once for "
      "each group of weights: it takes longer than predicted"};
}

std::string torch_order(const Plan& plan) {
  return Grid(generate(plan), plan.stages.size()).text();
}

Export export_torch_csv(const ExportSubject& subject) {
  require_runs(subject, kTorch);
  const Plan& plan = subject.document.plan;
  return {.text = torch_order(plan), .warnings = warn_of_torch_and_replicas(plan)};
}

Export export_torchtitan(const ExportSubject& subject) {
  require_runs(subject, kTorchtitan);
  const Plan& plan = subject.document.plan;
  const ModelProfile& profile = subject.document.profile;
  const TorchtitanModules modules(profile);
  std::string parts;
  for (const StagePlan& stage : plan.stages) {
    std::string names;
    for (std::int32_t l = stage.layers.begin; l < stage.layers.end; ++l) {
      for (const nlohmann::json name : modules.names(LayerIndex{l})) {
        names += (names.empty() ? "" : ", ") + with_hidden_escaped(name.dump());
      }
    }
    parts += (parts.empty() ? "[" : ", [") + names + "]";
  }
  const std::string names = modules.are_those_of_decoders()
                                ? "The names of modules are those of torchtitan's decoders, such "
                                  "as Llama 3: tok_embeddings, layers.N, norm and output"
                                : "The names of modules are those of the profile's layers, and "
                                  "torchtitan looks for modules of these names";
  const std::size_t groups = stages_by_device_group(plan).size();
  // Without a pipeline torchtitan takes a local batch at a time, and accumulates gradients over as
  // many as make the global batch.
  const bool has_pipeline = groups > 1 || plan.stages.size() > 1;
  const std::int64_t degree = profile.tensor_parallel;
  Export result{.text = {}, .warnings = warn_of_torch_and_replicas(plan)};
  result.text = fmt::format(
      "{}"
      "{}"
      "{}"
      "# {}.\n"
      "PIPELINE_ARGS=(\n"
      "  --parallelism.pipeline_parallel_degree {}\n"
      "{}"
      "{}"
      "  --parallelism.module_fqns_per_model_part {}\n"
      "  --training.local_batch_size {}\n"
      "  --training.global_batch_size {}\n"
      "{}"
      ")\n",
      heading_of(subject, "torchtitan"),
      has_pipeline ? "# The order is that of `export --to torch-csv`, saved as schedule.csv.\n"
                   : "",
      ranks_as_comment(subject), names, groups, degrees_as_options(plan, profile, degree),
      has_pipeline ? fmt::format("  --parallelism.pipeline_parallel_schedule_csv schedule.csv\n"
                                 "  --parallelism.pipeline_parallel_microbatch_size {}\n",
                                 samples_per_rank(plan))
                   : "",
      single_quoted('[' + parts + ']'),
      samples_per_rank(plan) * (has_pipeline ? plan.num_micro_batches : 1), plan.global_batch_size,
      recomputation_of(plan));
  if (plan.stages.front().recompute) result.warnings.push_back(warn_of_block_inputs("torchtitan"));
  for (std::string& warning : warn_of_accumulated_shards(plan))
    result.warnings.push_back(std::move(warning));
  result.warnings.push_back(names);
  return result;
}

}  // namespace dapple::interop
