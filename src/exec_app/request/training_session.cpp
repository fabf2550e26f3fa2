#include "exec_app/request/training_session.h"

#include <fmt/format.h>

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/exec/message/fingerprint.h"
#include "dapple/exec/train/batches.h"
#include "dapple/exec/weights/gpt2_weights.h"
#include "dapple/exec/weights/tensor_file.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/documents/specification.h"
#include "dapple/io/files/file_view.h"

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

/// Throws Error(BadInput) if ranks of a group would train on different numbers of samples.
void refuse_uneven_samples(const Plan& plan, const std::string& source) {
  const std::int64_t ranks = plan.parallelism.replicas_in_group();
  if (plan.micro_batch_size % ranks == 0) return;
  throw Error(ErrorKind::BadInput, source,
              {{"/micro_batch_size",
                fmt::format("expected a multiple of {}, as so many devices of a group train on as "
                            "many samples each, got {}",
                            ranks, plan.micro_batch_size)}});
}

/// Throws Error(BadInput) if the plan's devices are groups with expert-parallel ranks, or any
/// groups of GPUs, or if parts of layers are recomputed that cannot be. The optimizer's state may
/// be sharded over replicas, unless these have context-parallel ranks.
void refuse_groups(const RunnablePlan& plan, const ComputeDevice& device,
                   const std::string& source) {
  const Parallelism& parallelism = plan.document.plan.parallelism;
  const bool is_on_cpu = device.kind == ComputeDevice::Kind::Cpu;
  Parallelism others = parallelism;
  others.shards_optimizer = false;
  if (is_on_cpu) {
    others.tensor = 1;
    others.sequence = false;
    others.context = 1;
    others.full_shards = 1;
    if (nn::kRecomputable.includes(others.recomputes)) others.recomputes = {};
    // Devices with parts of the same sequences hold the same state.
    if (parallelism.context > 1) others.shards_optimizer = parallelism.shards_optimizer;
  }
  if (others.is_none()) return refuse_uneven_samples(plan.document.plan, source);
  const char* const expected =
      is_on_cpu
          ? "expected at most tensor and sequence parallelism, context parallelism without "
            "sharded optimizer state, sharded state, and recomputed stages, layers, core_attn "
            "and mlp, got "
          : "expected at most sharded optimizer state, as groups train on CPUs only, and at "
            "most whole stages to be recomputed, got ";
  throw Error(ErrorKind::BadInput, source, {{"/parallelism", expected + to_text(parallelism)}});
}

}  // namespace

RunnableModel::RunnableModel(const RunnablePlan& plan, std::string plan_name)
    : source(std::move(plan_name)),
      operations(io::read_operations(plan.document.original_profile(), source)),
      layers(std::make_shared<const std::vector<nn::ModelLayer>>(
          nn::make_model(plan.document.original_profile(), operations, source))),
      of_ranks(exec::layers_of_ranks(layers, plan.document.plan.parallelism, source)) {}

TrainingSession make_session(const TrainRequest& request, const RunnablePlan& plan) {
  refuse_groups(plan, request.device, command_line::source_name(request.plan));
  RunnableModel model(plan, command_line::source_name(request.plan));
  if (request.device.kind == ComputeDevice::Kind::Cuda) {
    nn::check_runs_on_gpu(*model.layers, model.source);
  }
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
