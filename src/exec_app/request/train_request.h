// The options of dapple-exec train.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/command_line/description.h"
#include "dapple/command_line/files.h"
#include "dapple/command_line/options.h"
#include "dapple/exec/train/training_job.h"
#include "dapple/exec/weights/checkpoint.h"
#include "exec_app/request/compute_device.h"

namespace dapple::exec_app {

/// Settings from options; empty where the option was not given.
struct GivenSettings {
  std::optional<nn::OptimizerKind> optimizer;
  std::optional<float> learning_rate;
  std::optional<float> weight_decay;
  std::optional<double> clip_norm;
  std::optional<std::uint64_t> seed;
};

struct TrainRequest {
  std::string plan;
  ComputeDevice device;
  GivenSettings settings;
  std::int64_t steps = 10;
  std::int64_t log_every = 1;  // in steps
  std::optional<std::string> tokens;
  std::optional<std::string> checkpoint;
  std::int64_t checkpoint_every = 0;
  std::optional<std::string> resume;
  std::optional<std::string> weights;
  std::optional<std::string> save_weights;
  bool verifies = false;
  std::optional<std::string> timeline;
  std::optional<std::string> trace;
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
};

/// Returns the table of the command's options.
std::vector<command_line::OptionSection> train_options();

/// Reads the options. Throws Error(Usage).
TrainRequest train_request(const command_line::Options& options);

std::vector<command_line::NamedPath> inputs_of(const TrainRequest& request);
std::vector<command_line::NamedPath> outputs_of(const TrainRequest& request);

/// Checks outputs as check_outputs() of files.h does, but a checkpoint may overwrite the one that
/// the training resumes from.
void check_outputs(const TrainRequest& request);

/// Returns the settings: options take precedence over the checkpoint, that over the optimizer of
/// the plan's profile, and that over the defaults, which are AdamW's.
exec::TrainingSettings settings_of(const TrainRequest& request, const Optimizer& planned,
                                   const std::optional<exec::Checkpoint>& start);

}  // namespace dapple::exec_app
