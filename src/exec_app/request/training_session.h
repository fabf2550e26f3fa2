// What a training begins with: the plan's model, its job, and the checkpoint or weights that it
// starts from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dapple/exec/train/training_job.h"
#include "dapple/exec/weights/checkpoint.h"
#include "dapple/nn/model.h"
#include "dapple/profile/operation.h"
#include "exec_app/request/runnable_plan.h"
#include "exec_app/request/train_request.h"

namespace dapple::exec_app {

/// The layers of a plan's model, as operations and as modules that can be run.
struct RunnableModel {
  /// Throws Error(BadInput) naming `plan_name` if layers do not specify their operation.
  RunnableModel(const RunnablePlan& plan, std::string plan_name);

  std::string source;
  std::vector<Operation> operations;
  /// The whole layers, and the layers as each tensor-parallel rank runs them.
  std::shared_ptr<const std::vector<nn::ModelLayer>> layers;
  std::vector<std::shared_ptr<const std::vector<nn::ModelLayer>>> of_ranks;
};

struct TrainingSession {
  RunnableModel model;
  /// The fingerprints of the files that were read.
  std::string marks;
  exec::TrainingJob job;
  std::optional<exec::Checkpoint> start;

  std::int64_t steps_before() const { return start ? start->steps : 0; }
};

/// Reads what the request names. Throws Error.
TrainingSession make_session(const TrainRequest& request, const RunnablePlan& plan);

/// Returns a text of everything that must be the same on all ranks.
std::string agreement_of(const TrainRequest& request, const RunnablePlan& plan,
                         const TrainingSession& session);

}  // namespace dapple::exec_app
