// The cost model: computes the costs of plans from the times and sizes of layers in a profile and
// from the bandwidths and latencies of a topology.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/buckets.h"
#include "dapple/cost/larger_groups.h"
#include "dapple/cost/memory.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/layer_table.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// Returns what the passes of a stage of these layers take of the NIC of a device with these
/// figures. A stage that recomputes runs its forward again. O(1).
StageTraffic traffic_of(const LayerTable& table, LayerRange layers, bool recomputes);

/// Caches layer tables by number of samples and device kind, and costs plans with them. Where
/// stages may run in several forms of parallelism, every figure is that of form 0, and in() has
/// those of the others. Keeps references to profile and topology, which must outlive it. Not
/// thread-safe, as tables are made on first use; a CostModel per thread is cheap.
class CostModel {
 public:
  CostModel(const ModelProfile& profile, const Topology& topology);
  ~CostModel();
  CostModel(const CostModel&) = delete;
  CostModel& operator=(const CostModel&) = delete;

  /// Returns the cost model of stages in a form, of which the profile has the figures. O(1).
  const CostModel& in(FormIndex form) const {
    return form == FormIndex{} ? *this : *others_[form.previous().position()];
  }
  /// The number of forms in which stages may run, at least one.
  std::int32_t form_count() const { return static_cast<std::int32_t>(others_.size()) + 1; }

  /// The devices that make up one replica in this form: above 1 where its groups are larger than
  /// those of form 0. O(1).
  std::int32_t devices_per_replica() const { return devices_per_replica_; }
  /// Returns the numbers above 1 that forms have of them, ascending; each divides the next one.
  std::vector<std::int32_t> larger_groups() const;
  /// The largest of these numbers, 1 if there is none. O(forms).
  std::int32_t largest_group() const;

  /// Whether only some layers recompute in this form, and stages of these layers are the same in
  /// another form that stands for this one: all of the layers recompute there, or none does, or all
  /// do although it has fewer of the first ones. O(1).
  bool repeats_another_form(LayerRange layers) const;

  const ModelProfile& profile() const { return profile_; }
  const Topology& topology() const { return topology_; }
  std::int32_t layer_count() const { return static_cast<std::int32_t>(profile_.layers.size()); }

  /// Returns the figures of all layers for `samples` samples on a kind of device, given by its
  /// position in the topology's device kinds. O(layers) on first use, then O(log tables).
  /// Requires: samples >= 1.
  const LayerTable& table(std::int64_t samples, std::int32_t device_kind) const;
  /// The same with the least of each layer's times over all devices of the topology.
  const LayerTable& least_table(std::int64_t samples) const;

  /// Returns the memory that the elements of all current tables of all forms occupy. O(forms).
  Bytes kept_by_tables() const;
  /// Discards all tables of all forms; they are made again on use. Requires: there are no
  /// references to any.
  void forget_tables() const;

  /// Returns the shares by speed of a micro-batch: how many samples each replica on these devices
  /// has, at least one, with which the slowest replica takes the least time for all layers. A
  /// device takes 1 / q of its time for q samples for each, q being the micro-batch size divided by
  /// the replicas, rounded up. Of equal times the kind with the lower number has the larger share,
  /// and of the replicas of a kind the first ones. Returns an empty list where these shares are
  /// those of replica_share(), as on devices of one kind, and where some layer takes less time for
  /// more samples in some form (do_times_rise()), as lower bounds rely on that.
  /// O(devices * kinds + kinds * log(time of a micro-batch)). Requires: there is a device, and no
  /// more devices than samples.
  std::vector<std::int64_t> shares_by_speed(std::int64_t micro_batch_size,
                                            const std::vector<DeviceIndex>& devices) const;

  /// Returns the bytes that `samples` samples send over the boundary before layer `cut` to a stage
  /// in this form: those that each of its devices then has. Where tensors that skip stages are sent
  /// directly, these are the ones that pass the boundary whatever the stages. Requires: samples >=
  /// 1.
  Bytes boundary_size(std::int32_t cut, std::int64_t samples) const;

  /// Returns the number of shares in which tensors cross the boundary before layer `cut` between a
  /// stage in this form and one in another: 1, unless they are sent by scatter-gather and none is
  /// divided among tensor ranks already. O(kinds of device).
  std::int64_t shares_with(FormIndex other, std::int32_t cut) const;
  /// The same with a stage in this form.
  std::int64_t shares(std::int32_t cut) const;

  /// Returns the sizes of the tensors that a device of a stage in this form exchanges with other
  /// stages, where it processes `samples` samples. What waits is left out. O(inputs of the stage's
  /// layers and of those behind it) where tensors that skip stages are sent directly. Requires:
  /// samples >= 1.
  StageTensors tensors_of(const Plan& plan, StageIndex stage, std::int64_t samples) const;

  /// Returns the size of the parameters that the layers use, each tensor counted once: their own,
  /// and those of layers before the range to which some of them are tied. O(ties * users).
  Bytes parameters(LayerRange layers) const;

  /// Returns the size of the parameters that a replica updates: of those that the layers use, the
  /// device's shard in its group, where state is sharded in any way. O(ties * users).
  Bytes updated_parameters(LayerRange layers) const;

  /// Returns the time of the optimizer's step on updated_parameters(), rounded up to a whole
  /// nanosecond; zero if the profile gives none. O(ties * users).
  Duration optimizer_step(LayerRange layers) const;

  /// Returns the time in which the devices of a group that hold the same parameters reduce and
  /// scatter their gradients, and gather what follows from them: the sums or, where the optimizer's
  /// state is sharded, the parameters. Zero for a group without such devices, and where it shards
  /// all state, whose gradients are scattered micro-batch by micro-batch. The group is of a kind of
  /// device, given by its position. O(ties * users).
  Duration group_reduction(LayerRange layers, std::int32_t device_kind) const;

  /// Returns the all-reduces of a stage in this form on these devices.
  /// Requires: they are ascending and, where a replica has several, whole groups.
  AllReduceModel reduction(const std::vector<DeviceIndex>& devices) const;

  /// Returns the time from the reduced gradients of a stage to its updated parameters on all of its
  /// `replicas`, which reduce over `reduction`: the longest group_reduction() of the kinds of
  /// device that they have, at least one, and the step or, where the optimizer's state is sharded
  /// over replicas, the step on a replica's shard, rounded up, and an all-gather of the parameters.
  /// O(ties * users).
  Duration update(LayerRange layers, std::int64_t replicas, const std::vector<std::int32_t>& kinds,
                  const AllReduceModel& reduction) const;

  /// Returns the memory of one device that processes `samples` samples of each micro-batch and
  /// exchanges these tensors. O(layers in the stage). Requires: samples >= 1.
  MemoryCost memory_cost(const StageContext& stage, const StageTensors& tensors,
                         std::int64_t samples, std::int32_t device_kind) const;
  /// The same with what boundary_size() says of both boundaries, beside stages in this form. Where
  /// other stages have other forms, it is a lower bound, as their tensors may not cross in shares.
  /// Where tensors that skip stages are
  /// sent directly, it is a lower bound for a stage of these layers beside any others.
  MemoryCost memory_cost(const StageContext& stage, std::int64_t samples,
                         std::int32_t device_kind) const;
  /// The same, given the table() of these samples.
  MemoryCost memory_cost(const StageContext& stage, const LayerTable& layers) const;

  /// Returns the costs of all stages, boundaries and tied gradients. Throws Bug if the plan's
  /// gradient buckets do not match its layers. Requires: validate(plan, ...) is empty.
  PlanCost plan_cost(const Plan& plan) const;

 private:
  CostModel(const ModelProfile& profile, const Topology& topology, std::int32_t devices_per_replica,
            const CostModel* root);
  MemoryCost memory_cost(const StageContext& stage, const StageTensors& tensors,
                         const LayerTable& layers) const;
  // As shares_with(), of the outputs of these layers.
  std::int64_t shares_of(FormIndex other, const std::vector<LayerIndex>& layers) const;
  bool is_divided(std::int32_t cut) const {
    return !divided_.empty() && divided_[static_cast<std::size_t>(cut)];
  }
  // The time in which a device of a group in this form gathers a tensor from its tensor ranks.
  Duration gather_time(DeviceIndex device, Bytes size) const;
  const AllReduceModel& known_reduction(const std::vector<DeviceIndex>& devices) const;
  StageCost stage_cost(const Plan& plan, std::size_t stage) const;
  std::vector<Duration> bucket_steps(LayerRange layers, const GradientBuckets& buckets) const;
  void add_ties(const Plan& plan, PlanCost& cost) const;
  // Whether the optimizer's state alone is sharded, over all replicas or in each group.
  bool shards_optimizer() const;
  Duration optimizer_step(Bytes parameters) const;
  Bytes with_ties(const std::vector<Bytes>& sums, LayerRange layers,
                  Bytes (*of_owner)(const ModelProfile&, LayerIndex)) const;
  Bytes reduced_parameters(LayerRange layers) const;
  Bytes outputs(const std::vector<LayerIndex>& layers, std::int64_t samples) const;
  // What `from` sends to `to` of each micro-batch, and the gradients that it gets back.
  BoundaryCost transfers_between(const Plan& plan, std::size_t from, std::size_t to) const;
  void add_skips(const Plan& plan, PlanCost& cost) const;

  void find_alike_forms();
  void compare_with(const std::vector<CostModel*>& forms);
  const LayerTable& make_table(std::int64_t samples, std::int32_t device_kind,
                               const std::vector<TimeSource>& sources) const;

  struct Tables;
  const ModelProfile& profile_;
  const Topology& topology_;
  // The model of form 0, which has those of all forms.
  const CostModel* root_;
  std::unique_ptr<Tables> tables_;
  // By cut, whether tensors cross it that are divided among tensor ranks; empty if it is no matter.
  std::vector<bool> divided_;
  // Whether times rise with samples in all forms.
  bool do_times_rise_ = true;
  // By kind of device, the measured kind whose times it has (TimeSource).
  std::vector<std::size_t> measured_;
  std::int32_t devices_per_replica_;
  // Present where a replica has several devices.
  std::unique_ptr<LargerGroups> groups_;
  // Form 1, form 2 and so on.
  std::vector<std::unique_ptr<CostModel>> others_;
  // Those of all forms that differ from this one only in the layers that recompute.
  std::vector<const CostModel*> alike_;
  // Where only some layers recompute: by cut, the number of layers before it that can; whether
  // there is also the form in which none does; and where the first ones do, up to how many layers
  // of a stage all recompute in another form that stands for this one, 0 if there is none.
  std::vector<std::int32_t> may_recompute_before_;
  bool is_beside_none_ = false;
  std::int64_t most_all_ = 0;
};

}  // namespace dapple
