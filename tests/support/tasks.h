// Problems of task orders with even stages, for tests that work their numbers by hand.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

#include "dapple/schedule_search/tasks/task_order.h"

namespace dapple::small {

struct EvenTasks {
  std::int32_t stages = 2;
  std::int32_t micro_batches = 2;
  std::int64_t forward = 1;
  std::int64_t backward = 1;
  std::int64_t weight_gradient = 1;
  std::int64_t send = 0;
  std::int64_t taken = 2;              // by a forward
  std::int64_t given_by_backward = 1;  // and the rest by the weight gradient
  std::int64_t limit = 1'000'000;
};

/// A profile of 8 stages and 32 micro-batches that the zero-bubble paper's code comes with.
inline constexpr EvenTasks kPublishedProfile{.stages = 8,
                                             .micro_batches = 32,
                                             .forward = 29'850,
                                             .backward = 29'767,
                                             .weight_gradient = 18'868,
                                             .send = 466,
                                             .taken = 3'720,
                                             .given_by_backward = 2'048,
                                             .limit = 59'520};

inline schedule_search::TaskProblem even_tasks(const EvenTasks& even) {
  schedule_search::TaskProblem problem;
  problem.num_micro_batches = even.micro_batches;
  for (std::int32_t s = 0; s < even.stages; ++s) {
    problem.stages.push_back({.device = {s},
                              .forward = {even.forward},
                              .backward = {even.backward},
                              .weight_gradient = {even.weight_gradient},
                              .send_forward = {even.send},
                              .send_backward = {even.send},
                              .forward_memory = {even.taken},
                              .backward_memory = {-even.given_by_backward},
                              .weight_gradient_memory = {even.given_by_backward - even.taken}});
    problem.memory_limits.push_back({even.limit});
  }
  return problem;
}

/// The same with the backward in one, of the length of both, after which all is given back.
inline schedule_search::TaskProblem unsplit(schedule_search::TaskProblem problem) {
  problem.split_backward = false;
  for (schedule_search::TaskStage& stage : problem.stages) {
    stage.backward += stage.weight_gradient;
    stage.weight_gradient = {};
    stage.weight_gradient_memory = {};
    stage.backward_memory = Bytes{} - stage.forward_memory;
  }
  return problem;
}

/// "F0 F1 B0 W0 ..." of a device with one stage.
inline std::vector<schedule_search::Task> tasks_of(const std::string& text, StageIndex stage) {
  std::vector<schedule_search::Task> tasks;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const schedule_search::TaskKind kind = word[0] == 'F' ? schedule_search::TaskKind::Forward
                                           : word[0] == 'B'
                                               ? schedule_search::TaskKind::Backward
                                               : schedule_search::TaskKind::WeightGradient;
    tasks.push_back({kind, stage, std::stoi(word.substr(1))});
  }
  return tasks;
}

}  // namespace dapple::small
