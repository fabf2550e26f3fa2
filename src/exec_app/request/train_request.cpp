#include "exec_app/request/train_request.h"

#include <string>
#include <vector>

namespace dapple::exec_app {
namespace {

constexpr std::int64_t kMostSteps = 1'000'000'000;

double number_of(Factor factor) {
  return static_cast<double>(factor.billionths) * 1e-9;
}

GivenSettings given_settings(const command_line::Options& options) {
  GivenSettings given;
  if (options.has("optimizer")) { given.optimizer = nn::optimizer_of(options.choice("optimizer")); }
  if (const auto rate = options.positive_factor("learning-rate")) {
    given.learning_rate = static_cast<float>(number_of(*rate));
  }
  if (const auto decay = options.fraction("weight-decay")) {
    given.weight_decay = static_cast<float>(number_of(*decay));
  }
  if (const auto norm = options.positive_factor("clip-norm")) given.clip_norm = number_of(*norm);
  if (const auto seed = options.positive_integer("seed", INT64_MAX)) {
    given.seed = static_cast<std::uint64_t>(*seed);
  }
  return given;
}

command_line::OptionSpec number_option(const std::string& name, const std::string& value,
                                       const std::string& text, const std::string& default_value) {
  return {.name = name, .value = value, .text = text, .default_value = default_value};
}

std::vector<command_line::OptionSpec> training_rows() {
  return {number_option("steps", "N", "Train for N optimizer steps.", "10"),
          number_option("log-every", "N", "Report every Nth step, and the last.", "1"),
          {.name = "tokens",
           .value = "FILE",
           .kind = command_line::ValueKind::File,
           .text = "Train on these little-endian tokens of two bytes.",
           .details = "Without it, samples are made up."},
          number_option("seed", "N", "Seed the first parameters and the samples.", "1"),
          {.name = "optimizer",
           .value = "KIND",
           .choices = {"adamw", "adam", "momentum", "sgd"},
           .text = "Use the optimizer {}.",
           .default_value = "the profile's"},
          number_option("learning-rate", "X", "Use this learning rate, such as 1e-3.", "0.001"),
          number_option("weight-decay", "X", "Decay weights by X, from 0 to below 1.", "0"),
          number_option("clip-norm", "X", "Clip the norm of all gradients together.", "")};
}

command_line::OptionSpec file_option(const std::string& name, const std::string& text,
                                     const std::string& details) {
  return {.name = name,
          .value = "FILE",
          .kind = command_line::ValueKind::File,
          .text = text,
          .details = details};
}

std::vector<command_line::OptionSpec> file_rows() {
  return {file_option("checkpoint", "Save the final model, in safetensors.",
                      "Ctrl-C, or SIGUSR1 to mpirun, ends the training after the current step. A "
                      "file of that name is replaced; \"-\" is stdout."),
          number_option("checkpoint-every", "N", "Also save it after every N steps.", ""),
          file_option("resume", "Continue from a checkpoint, of any plan of the model.",
                      "Seed and optimizer are the checkpoint's unless they are given."),
          file_option("weights", "Start from GPT-2's weights, as published.",
                      "The file is in safetensors."),
          file_option("save-weights", "Save the final weights in that form.",
                      "A file of that name is replaced; \"-\" is stdout.")};
}

void check_checkpoints(const TrainRequest& request) {
  if (request.checkpoint_every > 0 && !request.checkpoint) {
    throw command_line::usage_error("--checkpoint-every", "needs --checkpoint FILE");
  }
  if (request.checkpoint_every > 0 && request.checkpoint == "-") {
    throw command_line::usage_error(
        "--checkpoint-every",
        "needs a file as --checkpoint, got \"-\", which takes only one checkpoint");
  }
  if (request.weights && request.resume) {
    throw command_line::usage_error("--weights",
                                    "cannot be used with --resume, as a training has one start");
  }
}

/// Throws Error(Usage) if options are given that --verify does not heed.
void check_verification(const command_line::Options& options) {
  for (const char* name : {"checkpoint", "save-weights", "timeline", "trace"}) {
    if (!options.has(name)) continue;
    throw command_line::usage_error(std::string("--") + name,
                                    "cannot be used with --verify, which writes no file");
  }
  if (options.has("log-every")) {
    throw command_line::usage_error("--log-every",
                                    "cannot be used with --verify, which reports no steps");
  }
}

}  // namespace

std::vector<command_line::OptionSection> train_options() {
  return {
      {"",
       {{.name = "plan",
         .value = "FILE",
         .kind = command_line::ValueKind::File,
         .text = "Read the plan from FILE, in place of PLAN.",
         .details = "The plan is of a profile that \"dapple-exec profile\" wrote; \"-\" is stdin."},
        device_option("Compute on {}, a GPU per device."),
        oversubscribe_option(),
        precision_option(),
        kernels_option(),
        timeout_option()}},
      {"Training", training_rows()},
      {"Start and end", file_rows()},
      {"Measurements",
       {{.name = "verify",
         .text = "Compare losses and gradients with those of one core.",
         .details = "No file is written. The exit code is 6 if they differ by more than "
                    "rounding."},
        command_line::timeline_option("Write the timeline of the median step."),
        command_line::trace_option()}}};
}

TrainRequest train_request(const command_line::Options& options) {
  TrainRequest request{.plan = options.only_file("plan", "a plan file"),
                       .device = compute_device(options),
                       .settings = given_settings(options),
                       .tokens = options.text("tokens"),
                       .checkpoint = options.text("checkpoint"),
                       .resume = options.text("resume"),
                       .weights = options.text("weights"),
                       .save_weights = options.text("save-weights"),
                       .verifies = options.has("verify"),
                       .timeline = options.text("timeline"),
                       .trace = options.text("trace")};
  if (const auto steps = options.positive_integer("steps", kMostSteps)) request.steps = *steps;
  if (const auto every = options.positive_integer("log-every", kMostSteps)) {
    request.log_every = *every;
  }
  if (const auto every = options.positive_integer("checkpoint-every", kMostSteps)) {
    request.checkpoint_every = *every;
  }
  if (const auto timeout = options.positive_seconds("timeout")) {
    request.timeout = std::chrono::nanoseconds(timeout->ns);
  }
  check_checkpoints(request);
  if (request.verifies) check_verification(options);
  return request;
}

std::vector<command_line::NamedPath> inputs_of(const TrainRequest& request) {
  std::vector<command_line::NamedPath> inputs{{"--plan", request.plan}};
  if (request.tokens) inputs.push_back({"--tokens", *request.tokens});
  if (request.resume) inputs.push_back({"--resume", *request.resume});
  if (request.weights) inputs.push_back({"--weights", *request.weights});
  return inputs;
}

std::vector<command_line::NamedPath> outputs_of(const TrainRequest& request) {
  std::vector<command_line::NamedPath> outputs;
  if (request.checkpoint) outputs.push_back({"--checkpoint", *request.checkpoint});
  if (request.save_weights) outputs.push_back({"--save-weights", *request.save_weights});
  if (request.timeline) outputs.push_back({"--timeline", *request.timeline});
  if (request.trace) outputs.push_back({"--trace", *request.trace});
  return outputs;
}

void check_outputs(const TrainRequest& request) {
  std::vector<command_line::NamedPath> outputs = outputs_of(request);
  std::vector<command_line::NamedPath> inputs = inputs_of(request);
  command_line::check_inputs(inputs);
  // A checkpoint may be overwritten by the one that continues it, but by no other output.
  std::erase_if(inputs,
                [](const command_line::NamedPath& input) { return input.option == "--resume"; });
  check_outputs(outputs, inputs);
  if (!request.resume) return;
  std::erase_if(outputs, [](const command_line::NamedPath& output) {
    return output.option == "--checkpoint";
  });
  check_outputs(outputs, {{"--resume", *request.resume}});
}

exec::TrainingSettings settings_of(const TrainRequest& request, const Optimizer& planned,
                                   const std::optional<exec::Checkpoint>& start) {
  const GivenSettings& given = request.settings;
  exec::TrainingSettings settings{.clip_norm = given.clip_norm,
                                  .precision = request.device.precision};
  settings.optimizer.kind = nn::optimizer_of(planned.name).value_or(settings.optimizer.kind);
  if (start) {
    settings.optimizer = start->optimizer;
    settings.seed = start->seed;
  }
  nn::OptimizerSettings& optimizer = settings.optimizer;
  optimizer.kind = given.optimizer.value_or(optimizer.kind);
  optimizer.learning_rate = given.learning_rate.value_or(optimizer.learning_rate);
  optimizer.weight_decay = given.weight_decay.value_or(optimizer.weight_decay);
  settings.seed = given.seed.value_or(settings.seed);
  return settings;
}

}  // namespace dapple::exec_app
