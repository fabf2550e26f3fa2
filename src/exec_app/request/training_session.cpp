#include "exec_app/request/training_session.h"

#include <fmt/format.h>

#include <memory>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/exec/message/fingerprint.h"
#include "dapple/exec/train/batches.h"
#include "dapple/exec/weights/gpt2_weights.h"
#include "dapple/exec/weights/tensor_file.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/documents/specification.h"
#include "dapple/io/files/file_view.h"
#include "dapple/profile/variants.h"

namespace dapple::exec_app {
namespace {

/// Reads files that must be the same on all ranks, and collects their fingerprints.
class InputFiles {
 public:
  /// Reads a file as read_tensor_file() does.
  std::string read_tensors(const std::string& path) {
    std::string text = exec::read_tensor_file(path, command_line::source_name(path));
    mark(text);
    return text;
  }
  /// Returns a view of a file of any kind; its size must be finite.
  std::shared_ptr<const io::FileView> view(const std::string& path) {
    std::shared_ptr<const io::FileView> file = io::view_file(path, exec::kMostTrainingBytes);
    mark(file->bytes());
    return file;
  }
  std::string take_marks() { return std::move(marks_); }

 private:
  void mark(std::string_view bytes) {
    marks_ += fmt::format(" {:x}", exec::fingerprint(std::as_bytes(std::span(bytes))));
  }

  std::string marks_;
};

/// Reads the checkpoint to resume from, or published weights, which become a checkpoint at step
/// zero.
std::optional<exec::Checkpoint> read_start(const TrainRequest& request, const RunnableModel& model,
                                           const Optimizer& planned, InputFiles& files) {
  if (request.resume) {
    return exec::read_checkpoint(files.read_tensors(*request.resume),
                                 command_line::source_name(*request.resume));
  }
  if (!request.weights) return std::nullopt;
  exec::Checkpoint start{.optimizer = settings_of(request, planned, std::nullopt).optimizer};
  start.tensors = exec::read_gpt2_weights(files.read_tensors(*request.weights),
                                          command_line::source_name(*request.weights),
                                          *model.layers, model.operations, model.source);
  exec::add_first_state(start.optimizer.kind, start.tensors);
  return start;
}

/// Throws if the model cannot continue from the checkpoint, or if the steps would be too many.
void check_resumed(const TrainRequest& request, const exec::Checkpoint& start,
                   const RunnableModel& model, const exec::TrainingSettings& settings) {
  auto fault = exec::restoring_fault(start, *model.layers, settings.optimizer.kind);
  if (fault)
    throw Error(ErrorKind::BadInput, command_line::source_name(*request.resume),
                {std::move(*fault)});
  if (request.steps > exec::kMostTrainingSteps - start.steps) {
    throw command_line::usage_error(
        "--steps", fmt::format("expected at most {} more after the {} of {}, got {}",
                               exec::kMostTrainingSteps - start.steps, start.steps,
                               command_line::source_name(*request.resume), request.steps));
  }
}

/// Throws Error(BadInput) if ranks of a group would train on different numbers of samples, or some
/// group on none.
void refuse_uneven_samples(const Plan& plan, const std::string& source) {
  const std::int64_t ranks = plan.parallelism.replicas_in_group();
  const auto refuse = [&](const std::string& place, std::string message) {
    throw Error(ErrorKind::BadInput, source, {{place, std::move(message)}});
  };
  if (plan.micro_batch_size % ranks != 0) {
    refuse("/micro_batch_size",
           fmt::format("expected a multiple of {}, as so many devices of a group train on as many "
                       "samples each, got {}",
                       ranks, plan.micro_batch_size));
  }
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    for (std::size_t i = 0; i < stage.samples.size(); ++i) {
      if (stage.samples[i] % ranks == 0) continue;
      refuse(fmt::format("/stages/{}/samples/{}", s, i),
             fmt::format("expected a multiple of {}, as so many devices of a group train on as "
                         "many samples each, got {}",
                         ranks, stage.samples[i]));
    }
    const auto groups = static_cast<std::int64_t>(stage.devices.size());
    if (stage.replication == Replication::Deal || groups * ranks <= plan.micro_batch_size) continue;
    refuse(fmt::format("/stages/{}/devices", s),
           fmt::format("expected at most {} groups, as a micro-batch has {} samples and {} devices "
                       "of each group train on different ones, got {}",
                       plan.micro_batch_size / ranks, plan.micro_batch_size, ranks, groups));
  }
}

/// Throws Error(BadInput) if one of several ranks with different experts would have no sample, as
/// all of them exchange rows. Requires: stages have different groups.
void refuse_idle_experts(const Plan& plan, const std::string& source) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    const Parallelism& form = form_of(plan, stage);
    const std::int64_t ranks = form.replicas_in_group();
    for (std::size_t i = 0; i < stage.devices.size() && form.experts > 1; ++i) {
      const std::int64_t samples = samples_of(plan, stage, i).size();
      if (samples >= ranks) continue;
      throw Error(ErrorKind::BadInput, source,
                  {{fmt::format("/stages/{}/devices/{}", s, i),
                    fmt::format("expected at least {} samples of a micro-batch, as so many devices "
                                "of the group have different samples, and experts for those of "
                                "each other, got {}",
                                ranks, samples)}});
    }
  }
}

/// Returns the form without what groups train.
Parallelism without_trained(Parallelism form) {
  // Ranks with different experts have different positions.
  if (form.experts > 1 && form.tensor > 1 && !form.sequence) return form;
  form.shards_optimizer = false;
  form.optimizer_shards = 0;
  if (nn::kRecomputable.includes(form.recomputes)) form = without_recomputation(form);
  form.tensor = 1;
  form.sequence = false;
  form.context = 1;
  form.group_replicas = 1;
  form.experts = 1;
  form.expert_tensor = 1;
  form.full_shards = 1;
  return form;
}

/// Throws Error(BadInput) unless stages that use the same parameters hold the same part of them on
/// ranks of one number, and reduce the same part of their gradients.
void refuse_ties(const Plan& plan, const std::string& source) {
  const auto holding = [](const Parallelism& form) {
    return std::tuple(form.tensor, form.full_shards);
  };
  for (const TiedGradients& tied : plan.tied_gradients) {
    const StageIndex first = tied.stages.front();
    const Parallelism& expected = form_of(plan, plan.stages[first.position()]);
    for (const StageIndex stage : tied.stages) {
      const Parallelism& form = form_of(plan, plan.stages[stage.position()]);
      if (holding(form) == holding(expected)) continue;
      throw Error(ErrorKind::BadInput, source,
                  {{fmt::format("/stages/{}/form", stage.value),
                    fmt::format("expected parameters that are divided as those of stage {}, {}, as "
                                "both stages use those of layer {}, got {}",
                                first.value, to_text(expected), tied.owner.value, to_text(form))}});
    }
  }
}

/// Throws Error(BadInput) if context-parallel ranks would exchange keys and values otherwise than
/// they do in training: the plan's times would be of something else.
void refuse_exchanges(const PlanDocument& document, const std::string& source) {
  const auto check_form = [&](const std::string& place, const Parallelism& form) {
    const ContextExchange exchange =
        context_exchange_of(document.original_profile(), form).value_or(ContextExchange::AllGather);
    if (form.context == 1 || exchange == ContextExchange::AllGather) return;
    throw Error(ErrorKind::BadInput, source,
                {{place + "/context",
                  fmt::format("expected 1, as context-parallel ranks are run with all-gathers of "
                              "keys and values alone, got {} by {}",
                              form.context, to_string(exchange))}});
  };
  check_form("/parallelism", document.plan.parallelism);
  for (std::size_t i = 0; i < document.plan.stage_forms.size(); ++i) {
    check_form(fmt::format("/stage_forms/{}", i), document.plan.stage_forms[i]);
  }
}

/// Throws Error(BadInput) if a plan's groups or recomputation are not those that training has.
void refuse_groups(const RunnablePlan& plan, const std::string& source) {
  const Plan& of_groups = plan.document.plan;
  const auto refuse = [&](const std::string& place, const Parallelism& form) {
    throw Error(
        ErrorKind::BadInput, source,
        {{place,
          "expected tensor, sequence and context parallelism, data-parallel ranks, experts "
          "on ranks with different positions, sharded state, and recomputed stages, layers, "
          "core_attn, mlp and moe, got " +
              to_text(form)}});
  };
  if (!without_trained(of_groups.parallelism).is_none()) {
    refuse("/parallelism", of_groups.parallelism);
  }
  for (std::size_t i = 0; i < of_groups.stage_forms.size(); ++i) {
    const Parallelism& form = of_groups.stage_forms[i];
    if (without_trained(form).is_none()) continue;
    refuse(fmt::format("/stage_forms/{}", i), form);
  }
  refuse_exchanges(plan.document, source);
  refuse_ties(of_groups, source);
  const bool have_stages_own_groups = exec::has_different_groups(of_groups);
  const auto refuse_samples = have_stages_own_groups ? refuse_idle_experts : refuse_uneven_samples;
  refuse_samples(of_groups, source);
}

}  // namespace

RunnableModel::RunnableModel(const RunnablePlan& plan, std::string plan_name)
    : source(std::move(plan_name)),
      operations(io::read_operations(plan.document.original_profile(), source)),
      layers(std::make_shared<const std::vector<nn::ModelLayer>>(
          nn::make_model(plan.document.original_profile(), operations, source))),
      of_ranks(exec::layers_of_ranks(layers, plan.document.plan, source)) {}

TrainingSession make_session(const TrainRequest& request, const RunnablePlan& plan) {
  refuse_groups(plan, command_line::source_name(request.plan));
  RunnableModel model(plan, command_line::source_name(request.plan));
  if (request.save_weights) exec::check_gpt2_form(*model.layers, model.operations, model.source);
  InputFiles files;
  const Optimizer& planned = plan.document.profile.optimizer;
  std::optional<exec::Checkpoint> start = read_start(request, model, planned, files);
  const exec::TrainingSettings settings = settings_of(request, planned, start);
  std::vector<Violation> faults = exec::training_faults(plan.document.plan, plan.document.profile,
                                                        *model.of_ranks.front(), settings);
  if (!faults.empty()) throw Error(ErrorKind::BadInput, model.source, std::move(faults));
  if (request.resume) check_resumed(request, *start, model, settings);
  const exec::BatchShape shape = exec::batch_shape(model.operations, *model.layers);
  std::shared_ptr<const exec::Batches> batches =
      request.tokens ? exec::make_token_batches(files.view(*request.tokens),
                                                command_line::source_name(*request.tokens), shape,
                                                settings.seed)
                     : exec::make_synthetic_batches(shape, settings.seed);
  exec::TrainingJob job =
      exec::make_training_job(plan.document.plan, plan.document.profile, plan.topology,
                              model.layers, std::move(batches), settings);
  return {.model = std::move(model),
          .marks = files.take_marks(),
          .job = std::move(job),
          .start = std::move(start)};
}

std::string agreement_of(const TrainRequest& request, const RunnablePlan& plan,
                         const TrainingSession& session) {
  const exec::TrainingSettings& settings = session.job.settings;
  const nn::OptimizerSettings& optimizer = settings.optimizer;
  return fmt::format("train {}{} from {} by {} every {}{}{}, {}{}; {} {} {}; {} {}",
                     io::hash_of(plan.document), session.marks, session.steps_before(),
                     request.steps, request.checkpoint_every, request.checkpoint.has_value(),
                     request.save_weights.has_value(), request.verifies, to_text(request.device),
                     nn::to_string(optimizer.kind), optimizer.learning_rate, optimizer.weight_decay,
                     settings.clip_norm.value_or(0), settings.seed);
}

}  // namespace dapple::exec_app
