// Two plans of one model on one topology: which stages correspond, and what is elsewhere in the
// second. Stages are aligned by their layers, as texts are by their lines: in order, so that as
// many layers as possible are in both stages of a pair. Cutting a stage in two leaves those behind
// it where they were.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/prediction.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// A plan as it was costed for the comparison, and what to call it.
struct ComparedPlan {
  std::string name;
  Plan plan;
  Prediction prediction;
};

/// Two plans, and what both were costed with.
struct ComparedPair {
  ComparedPlan first;
  ComparedPlan second;
  const ModelProfile& profile;
  const Topology& topology;
  std::vector<std::string> notes = {};  // on what a plan was made from, where it is something else
};

/// Stages that correspond; one of them is missing where the other plan has none.
struct StagePair {
  std::optional<StageIndex> first;
  std::optional<StageIndex> second;
};

/// Layers side by side that are in stages that do not correspond.
struct MovedLayers {
  LayerRange layers;
  StageIndex from;  // of the first plan
  StageIndex to;    // of the second
};

/// Devices that hold stages that do not correspond; a list is empty where they idle.
struct MovedDevices {
  std::vector<DeviceIndex> devices;  // ascending
  std::vector<StageIndex> from;      // of the first plan, ascending
  std::vector<StageIndex> to;        // of the second
};

struct PlanDifference {
  std::vector<StagePair> stages;      // in the order of the layers
  std::vector<MovedLayers> layers;    // in their order
  std::vector<MovedDevices> devices;  // by their first device
};

/// Ties: the earliest stages are paired. O(product of the numbers of stages + layers + devices).
/// Requires: both plans valid for one model on one topology.
PlanDifference difference(const Plan& first, const Plan& second);

/// Whether nothing that is chosen differs: batches, stages, schedule, handling of gradients. Orders
/// that plans carry are compared themselves, not the names of their families.
bool same_plan(const Plan& a, const Plan& b);
bool same_stage(const StagePlan& a, const StagePlan& b);

/// Peak memory of a device under both plans, nothing where it idles.
struct MemoryPair {
  DeviceIndex device;
  std::optional<Bytes> first;
  std::optional<Bytes> second;
  Bytes limit;
};

/// Of the devices that either plan uses, by index. O(devices).
std::vector<MemoryPair> memory_pairs(const Prediction& first, const Prediction& second);

}  // namespace dapple
