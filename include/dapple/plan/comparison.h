// Compares two plans of one model on one topology: which stages correspond, and which layers and
// devices are assigned differently in the second plan. Stages are aligned by their layers like the
// lines of texts in a diff: in order, so that as many layers as possible are in both stages of a
// pair. Splitting a stage in two thus leaves the alignment of the stages after it unchanged.
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

/// A plan, its prediction as costed for the comparison, and its display name.
struct ComparedPlan {
  std::string name;
  Plan plan;
  Prediction prediction;
};

/// Two plans, with the profile and the topology with which both were costed.
struct ComparedPair {
  ComparedPlan first;
  ComparedPlan second;
  const ModelProfile& profile;
  const Topology& topology;
  /// Notes on plans that were made from a different profile or topology.
  std::vector<std::string> notes = {};
};

/// Returns a plan on `groups` of devices with the devices of each group in its place, all with the
/// figures of the group, so that it can be compared with a plan on other groups. Its degrees and
/// the replicas of its stages stay. O(devices * kinds of servers). Requires: `groups` has groups of
/// `devices`.
ComparedPlan on_single_devices(ComparedPlan compared, const Topology& groups,
                               const Topology& devices);

/// Two corresponding stages, or a stage of one plan without a counterpart in the other.
struct StagePair {
  std::optional<StageIndex> first;
  std::optional<StageIndex> second;
};

/// Consecutive layers whose stages in the two plans do not correspond.
struct MovedLayers {
  LayerRange layers;
  /// The stage in the first plan.
  StageIndex from;
  /// The stage in the second plan.
  StageIndex to;
};

/// Devices whose stages in the two plans do not correspond.
struct MovedDevices {
  /// Ascending.
  std::vector<DeviceIndex> devices;
  /// The stages in the first plan, ascending; empty if the devices are idle there.
  std::vector<StageIndex> from;
  /// The stages in the second plan, ascending; empty if the devices are idle there.
  std::vector<StageIndex> to;
};

struct PlanDifference {
  /// In the order of the layers.
  std::vector<StagePair> stages;
  /// In the order of the layers.
  std::vector<MovedLayers> layers;
  /// By their first device.
  std::vector<MovedDevices> devices;
};

/// Returns the differences between two plans. Among equally good alignments the earliest stages are
/// paired. O(product of the numbers of stages + layers + devices log devices).
/// Requires: both plans are valid for one model on one topology.
PlanDifference difference(const Plan& first, const Plan& second);

/// Whether two plans (or stages) agree in everything that is chosen: batches, stages, schedule,
/// gradient synchronization and, of plans, the form of parallelism of every stage. For plans that
/// carry an order, the orders are compared and not the names of the schedule families.
bool same_plan(const Plan& a, const Plan& b);
bool same_stage(const StagePlan& a, const StagePlan& b);

/// The peak memory of a device under each plan, or nothing where the device is idle.
struct MemoryPair {
  DeviceIndex device;
  std::optional<Bytes> first;
  std::optional<Bytes> second;
  Bytes limit;
};

/// Returns the peak memory of every device that either plan uses, by index. O(devices log devices).
std::vector<MemoryPair> memory_pairs(const Prediction& first, const Prediction& second);

}  // namespace dapple
