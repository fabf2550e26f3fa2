// Costs plans: looks up what a profile says of layers, on the devices and links of a topology. All
// bandwidths and latencies come from the topology, all times and sizes of layers from the profile.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/buckets.h"
#include "dapple/cost/memory.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// Looks up layer tables by samples and device kind, and costs plans with them. Keeps references to
/// profile and topology, which must outlive it. Tables are made when first asked for, so a
/// CostModel is not to be shared between threads; one per thread is cheap.
class CostModel {
 public:
  CostModel(const ModelProfile& profile, const Topology& topology);
  ~CostModel();
  CostModel(const CostModel&) = delete;
  CostModel& operator=(const CostModel&) = delete;

  const ModelProfile& profile() const { return profile_; }
  const Topology& topology() const { return topology_; }
  std::int32_t layer_count() const { return static_cast<std::int32_t>(profile_.layers.size()); }

  /// Figures of all layers for so many samples on that kind of device (a position in the topology's
  /// device kinds). O(layers) when first asked for, then O(log tables). Requires: samples >= 1.
  const LayerTable& table(std::int64_t samples, std::int32_t device_kind) const;

  /// What all tables so far keep, by the sizes of their elements. O(1).
  Bytes kept_by_tables() const;
  /// Forgets them; they are made again when asked for. Requires: nobody refers to one.
  void forget_tables() const;

  /// What `samples` samples send over the boundary before layer `cut`, in bytes; zero for none.
  Bytes boundary_size(std::int32_t cut, std::int64_t samples) const;

  /// That the layers use, each tensor once: their own, and those of layers before the range that
  /// some of them are tied to. O(ties * users).
  Bytes parameters(LayerRange layers) const;

  /// Time of the optimizer's step on those layers, rounded up to a whole nanosecond; zero if the
  /// profile gives none. O(1).
  Duration optimizer_step(LayerRange layers) const;

  /// Memory of one device that works on `samples` samples of each micro-batch. O(layers in the
  /// stage). Requires: samples >= 1.
  MemoryCost memory_cost(const StageContext& stage, std::int64_t samples,
                         std::int32_t device_kind) const;

  /// All stages and boundaries. Throws Bug where the plan's gradient buckets are not its layers'.
  /// Requires: validate(plan, ...) is empty.
  PlanCost plan_cost(const Plan& plan) const;

 private:
  StageCost stage_cost(const Plan& plan, std::size_t stage) const;
  std::vector<Duration> bucket_steps(LayerRange layers, const GradientBuckets& buckets) const;
  void add_ties(const Plan& plan, PlanCost& cost) const;
  Duration optimizer_step(Bytes parameters) const;
  BoundaryCost boundary_cost(const Plan& plan, std::size_t stage) const;  // behind that stage

  struct Tables;
  const ModelProfile& profile_;
  const Topology& topology_;
  std::unique_ptr<Tables> tables_;
};

}  // namespace dapple
