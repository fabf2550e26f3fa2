#include "search/bounds/stage_column.h"

#include <algorithm>

namespace dapple::search {
namespace {

/// Replicas that differ in nothing that a stage's costs depend on.
struct ReplicaKind {
  std::int64_t samples = 0;
  std::int32_t device_kind = 0;
  Bytes memory_limit;

  friend bool operator==(const ReplicaKind&, const ReplicaKind&) = default;
};

std::vector<ReplicaKind> replica_kinds(const CostModel& costs, const StageDevices& stage,
                                       std::int64_t micro_batch_size) {
  const Topology& topology = costs.topology();
  const auto replicas = static_cast<std::int64_t>(stage.devices.size());
  std::vector<ReplicaKind> kinds;
  for (std::int64_t i = 0; i < replicas; ++i) {
    const DeviceIndex device = stage.devices[static_cast<std::size_t>(i)];
    const ReplicaKind kind{.samples = replica_share(micro_batch_size, replicas, i).size(),
                           .device_kind = topology.device(device).kind,
                           .memory_limit = topology.memory_limit(device)};
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  return kinds;
}

/// The gradient buckets of a stage as it grows to the front, and how long their all-reduces and the
/// optimizer stick out: the closed buckets' chain is kept, the open one is added when asked.
class BucketChain {
 public:
  BucketChain(const CostModel& costs, const AllReduceModel& reduction,
              const GradientSynchronization& gradients)
      : costs_(costs), reduction_(reduction), gradients_(gradients) {}

  /// `ready`: when the backward of the layers' first is done, counted from the start of the
  /// stage's.
  void grow_to(LayerRange layers, Duration ready) {
    // Who is behind the stage's last layer stays so: what others add to is known here.
    const Bytes gradient = bucketed_gradient(costs_.profile(), layers.begin, layers);
    if (gradient.count == 0) return;
    open_ += gradient;
    open_ready_ = ready;
    open_step_ = costs_.optimizer_step(layers) - closed_.all_steps;
    largest_ = std::max(largest_, open_);
    if (open_ < gradients_.bucket_size) return;
    closed_ = with_open();
    open_ = {};
  }

  /// From the end of the stage's backward to that of its optimizer's last step.
  Duration after(Duration backward, Duration all_steps) const {
    const Chain chain = open_.count == 0 ? closed_ : with_open();
    if (gradients_.optimizer == OptimizerTiming::AtEnd) {
      return std::max(Duration{}, chain.reduced - backward) + all_steps;
    }
    return std::max(chain.stepped - backward, all_steps);
  }

  Bytes largest() const { return largest_; }

 private:
  /// Moments from the start of the stage's backward.
  struct Chain {
    Duration reduced;    // the last of the buckets
    Duration stepped;    // the optimizer, if it does nothing but wait for reductions
    Duration all_steps;  // how long it works
  };

  Chain with_open() const {
    Chain chain = closed_;
    chain.reduced = std::max(chain.reduced, open_ready_) + reduction_.time(open_);
    chain.stepped = std::max(chain.stepped, chain.reduced) + open_step_;
    chain.all_steps += open_step_;
    return chain;
  }

  const CostModel& costs_;
  const AllReduceModel& reduction_;
  GradientSynchronization gradients_;
  Bytes open_;
  Duration open_ready_;
  Duration open_step_;
  Bytes largest_;
  Chain closed_;
};

/// Stages of one column as they grow to the front.
class ColumnBuilder {
 public:
  ColumnBuilder(const CostModel& costs, const StageDevices& stage, const ColumnRequest& request)
      : costs_(costs),
        request_(request),
        kinds_(replica_kinds(costs, stage, request.micro_batch_size)),
        is_replicated_(stage.devices.size() > 1) {
    for (const ReplicaKind& kind : kinds_) {
      tables_.push_back(&costs.table(kind.samples, kind.device_kind));
      chains_.emplace_back(costs, stage.reduction, request.gradients);
    }
  }

  /// Requires: calls by falling `begin`, from the last layer of the column on.
  StageBound grow_to(std::int32_t begin) {
    const LayerRange layers{begin, request_.end};
    StageBound stage;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      const Duration forward = tables_[k]->forward(layers);
      const Duration backward_alone = tables_[k]->backward(layers);
      const Duration backward = backward_alone + (request_.recompute ? forward : Duration{});
      if (is_replicated_) chains_[k].grow_to(layers, backward_alone);
      const Duration after = chains_[k].after(backward_alone, costs_.optimizer_step(layers));
      const StageBound replica{.forward = forward, .backward = backward, .after_backward = after};
      if (k == 0) {
        stage = replica;
      } else if (request_.replicas == Replicas::Together) {
        join_slowest(stage, replica);
      } else {
        join_quickest(stage, replica);
      }
      stage.slowest = std::max(stage.slowest, forward + backward);
    }
    if (request_.replicas == Replicas::Together) stage.slowest = {};
    stage.depth_limit = depth_limit(layers);
    return stage;
  }

 private:
  /// The slowest replica's own chain of buckets, counted from the start of its backward alone:
  /// those of the others can only hold it up.
  static void join_slowest(StageBound& stage, const StageBound& replica) {
    stage.forward = std::max(stage.forward, replica.forward);
    if (replica.backward <= stage.backward) return;
    stage.backward = replica.backward;
    stage.after_backward = replica.after_backward;
  }

  static void join_quickest(StageBound& stage, const StageBound& replica) {
    stage.forward = std::min(stage.forward, replica.forward);
    stage.backward = std::min(stage.backward, replica.backward);
    stage.after_backward = std::min(stage.after_backward, replica.after_backward);
  }

  /// Most micro-batches whose stash fits beside the rest; what waits at the boundaries is left out.
  std::int64_t depth_limit(LayerRange layers) const {
    std::int64_t depth = request_.num_micro_batches;
    if (request_.ignore_memory) return depth;
    for (const ReplicaKind& kind : kinds_) {
      const MemoryCost memory = costs_.memory_cost({.layers = layers,
                                                    .recompute = request_.recompute,
                                                    .depth = 1,
                                                    .depth_before = 0,
                                                    .depth_behind = 0,
                                                    .largest_bucket = chains_.front().largest()},
                                                   kind.samples, kind.device_kind);
      const Bytes room = kind.memory_limit - memory.fixed() - memory.recompute_stash;
      if (room < memory.per_micro_batch || room.count < 0) return 0;
      if (memory.per_micro_batch.count == 0) continue;
      depth = std::min(depth, room.count / memory.per_micro_batch.count);
    }
    return request_.hold_all && depth < request_.num_micro_batches ? 0 : depth;
  }

  const CostModel& costs_;
  const ColumnRequest& request_;
  std::vector<ReplicaKind> kinds_;
  std::vector<const LayerTable*> tables_;
  std::vector<BucketChain> chains_;  // one per kind
  bool is_replicated_;
};

}  // namespace

StageColumn make_stage_column(const CostModel& costs, const StageDevices& stage,
                              const ColumnRequest& request) {
  StageColumn column;
  column.first = request.first;
  column.stages.resize(static_cast<std::size_t>(request.end - request.first));
  ColumnBuilder builder(costs, stage, request);
  for (std::int32_t begin = request.end - 1; begin >= request.first; --begin) {
    const StageBound bound = builder.grow_to(begin);
    column.memory_limits = column.memory_limits || bound.depth_limit < request.num_micro_batches;
    column.stages[static_cast<std::size_t>(begin - request.first)] = bound;
  }
  return column;
}

}  // namespace dapple::search
