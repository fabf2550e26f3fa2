#include "planner_oracle.h"

namespace dapple::small {
namespace {

class Enumerator {
 public:
  Enumerator(const Problem& problem, const Topology& topology, bool ignore_memory,
             const std::function<void(const Plan&, const PlanCost&)>& visit)
      : problem_(problem),
        topology_(topology),
        costs_(problem.profile, topology),
        ignore_memory_(ignore_memory),
        visit_(visit) {}

  void run() {
    for (std::int64_t size = 1; size <= problem_.global_batch; ++size) {
      if (problem_.global_batch % size != 0) continue;
      plan_ = {.global_batch_size = problem_.global_batch,
               .micro_batch_size = size,
               .num_micro_batches = problem_.global_batch / size,
               .family = ScheduleFamily::OneFOneB,
               .warmup_depths = {},
               .stages = {}};
      add_stage(0, 0);
    }
  }

 private:
  void add_stage(std::int32_t begin, std::uint32_t used) {
    const std::int32_t layers = costs_.layer_count();
    if (begin == layers) {
      plan_.warmup_depths.clear();
      add_depth(plan_.num_micro_batches);
      return;
    }
    const std::uint32_t sets = std::uint32_t{1} << topology_.device_count();
    for (std::uint32_t devices = 1; devices < sets; ++devices) {
      if ((devices & used) != 0) continue;
      StagePlan stage;
      for (std::int32_t d = 0; d < topology_.device_count(); ++d) {
        if ((devices >> d & 1U) != 0) stage.devices.push_back({d});
      }
      if (static_cast<std::int64_t>(stage.devices.size()) > plan_.micro_batch_size) continue;
      for (std::int32_t end = begin + 1; end <= layers; ++end) {
        for (const bool recompute : {false, true}) {
          stage.layers = {begin, end};
          stage.recompute = recompute;
          stage.gradient_buckets.clear();
          if (stage.devices.size() > 1) {
            stage.gradient_buckets = gradient_buckets(problem_.profile, stage.layers).sizes;
          }
          plan_.stages.push_back(stage);
          add_stage(end, used | devices);
          plan_.stages.pop_back();
        }
      }
    }
  }

  void add_depth(std::int64_t most) {
    if (plan_.warmup_depths.size() == plan_.stages.size()) {
      const PlanCost cost = costs_.plan_cost(plan_);
      if (ignore_memory_ || memory_shortages(cost).empty()) visit_(plan_, cost);
      return;
    }
    for (std::int64_t depth = 1; depth <= most; ++depth) {
      plan_.warmup_depths.push_back(depth);
      add_depth(depth);
      plan_.warmup_depths.pop_back();
    }
  }

  const Problem& problem_;
  const Topology& topology_;
  CostModel costs_;
  bool ignore_memory_;
  const std::function<void(const Plan&, const PlanCost&)>& visit_;
  Plan plan_;
};

}  // namespace

void for_each_plan(const Problem& problem, const Topology& topology, bool ignore_memory,
                   const std::function<void(const Plan&, const PlanCost&)>& visit) {
  Enumerator(problem, topology, ignore_memory, visit).run();
}

}  // namespace dapple::small
