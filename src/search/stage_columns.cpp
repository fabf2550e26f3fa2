#include "stage_columns.h"

#include <algorithm>

namespace dapple {

StageColumns::StageColumns(const CostModel& costs, const SearchProblem& problem, Duration threshold)
    : costs_(costs),
      problem_(problem),
      threshold_(threshold),
      work_(costs, problem.micro_batch_size, problem.global_batch_size) {}

const StageColumn& StageColumns::column(std::int32_t end, const Taking& taking, std::int32_t number,
                                        bool recompute) {
  const std::tuple key{end, number, recompute};
  const auto found = columns_.find(key);
  if (found != columns_.end()) return found->second;
  const StageColumn& made = columns_.emplace(key, make(end, taking, recompute)).first->second;
  kept_ += Bytes{static_cast<std::int64_t>(made.stages.size() * sizeof(StageBound))};
  return made;
}

StageColumn StageColumns::make(std::int32_t end, const Taking& taking, bool recompute) {
  const double capacity = taking.replicas;  // as if all were of the quickest kind
  return make_stage_column(
      costs_, {.devices = taking.devices, .reduction = taking.reduction},
      {.first = work_.first_layer_within(end, capacity, threshold_),
       .end = end,
       .micro_batch_size = problem_.micro_batch_size,
       .num_micro_batches = problem_.global_batch_size / problem_.micro_batch_size,
       .recompute = recompute,
       .ignore_memory = problem_.ignore_memory,
       .gradients = problem_.gradients,
       .hold_all = problem_.gpipe,
       .replicas = problem_.replicas});
}

StageColumn StageColumns::least(std::int32_t end, const std::vector<const Taking*>& takings,
                                bool recompute) {
  StageColumn least;
  for (const Taking* taking : takings) {
    StageColumn column = make(end, *taking, recompute);
    if (taking == takings.front()) {
      least = std::move(column);
      continue;
    }
    least.memory_limits = least.memory_limits && column.memory_limits;
    for (std::size_t i = 0; i < least.stages.size(); ++i) {
      StageBound& stage = least.stages[i];
      const StageBound& other = column.stages[i];
      stage.forward = std::min(stage.forward, other.forward);
      stage.backward = std::min(stage.backward, other.backward);
      stage.after_backward = std::min(stage.after_backward, other.after_backward);
      stage.depth_limit = std::max(stage.depth_limit, other.depth_limit);
      stage.slowest = std::min(stage.slowest, other.slowest);
    }
  }
  return least;
}

}  // namespace dapple
