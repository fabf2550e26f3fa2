// Plans of small models on small clusters, with their costs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "clusters.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/plan/plan.h"
#include "models.h"

namespace dapple::small {

struct StageShape {
  std::int32_t layers = 1;
  std::vector<std::int32_t> devices = {};
  bool dealt = false;
  bool recompute = false;
  std::vector<std::int64_t> samples = {};
};

struct PlanShape {
  std::int64_t micro_batch_size = 1;
  std::int64_t num_micro_batches = 1;
  std::vector<std::int64_t> depths = {};
  std::vector<StageShape> stages = {};
  bool gpipe = false;
  Bytes bucket_size = kDefaultBucketSize;
  OptimizerTiming optimizer = OptimizerTiming::AtEnd;
};

Plan plan_of(const ModelProfile& profile, const PlanShape& shape);

/// Layers and devices of each stage, "0-2:0,1 2-4:2,3".
std::string stages_of(const Plan& plan);

/// A plan with the model, the cluster and the costs that it was made for.
struct CostedPlan {
  ModelProfile profile;
  Topology topology;
  Plan plan;
  PlanCost costs;

  /// Throws Bug if the plan is unsound.
  CostedPlan(ModelProfile model, TopologyDescription description, Plan made);
  CostedPlan(const ModelProfile& model, TopologyDescription description, const PlanShape& shape);
};

/// One layer per stage and one device per stage, in order, on the full mesh of `link`.
CostedPlan straight_plan(const std::vector<LayerFigures>& stages, PlanShape shape,
                         const Link& link = {bytes_per_ns(1), {}});

}  // namespace dapple::small
