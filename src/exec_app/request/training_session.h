// What a training begins with: the plan's model, its job, and what it goes on from.
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

/// A plan's model as it is run.
struct RunnableModel {
  /// Throws Error(BadInput) of `plan_name` where its layers do not say what they do.
  RunnableModel(const RunnablePlan& plan, std::string plan_name);

  std::string source;
  std::vector<Operation> operations;
  std::shared_ptr<const std::vector<nn::ModelLayer>> layers;
};

struct TrainingSession {
  RunnableModel model;
  std::string marks;  // of the files that were read: any change of theirs changes them
  exec::TrainingJob job;
  std::optional<exec::Checkpoint> start;

  std::int64_t steps_before() const { return start ? start->steps : 0; }
};

/// Reads what the request names. Throws Error.
TrainingSession make_session(const TrainRequest& request, const RunnablePlan& plan);

/// What must be the same for all ranks.
std::string agreement_of(const TrainRequest& request, const RunnablePlan& plan,
                         const TrainingSession& session);

}  // namespace dapple::exec_app
