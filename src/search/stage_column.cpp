#include "stage_column.h"

#include <algorithm>

namespace dapple {
namespace {

/// The gradient buckets of a stage as it grows to the front, and how long their all-reduces stick
/// out: the closed buckets' chain is kept, the open one is added when asked.
class BucketChain {
 public:
  BucketChain(const ModelProfile& profile, const AllReduceModel& reduction)
      : profile_(profile), reduction_(reduction) {}

  /// `ready`: when the backward of `layer` is done, counted from the start of the stage's.
  void add_layer(std::int32_t layer, Duration ready) {
    const Bytes gradient = scale_up(profile_.layers[static_cast<std::size_t>(layer)].parameters,
                                    profile_.optimizer.gradient_bytes_per_parameter_byte);
    if (gradient.count == 0) return;
    open_ += gradient;
    open_ready_ = ready;
    largest_ = std::max(largest_, open_);
    if (open_ < kDefaultBucketSize) return;
    done_ = std::max(done_, open_ready_) + reduction_.time(open_);
    open_ = {};
  }

  Duration exposed_after(Duration backward) const {
    const Duration done =
        open_.count == 0 ? done_ : std::max(done_, open_ready_) + reduction_.time(open_);
    return std::max(Duration{}, done - backward);
  }

  Bytes largest() const { return largest_; }

 private:
  const ModelProfile& profile_;
  const AllReduceModel& reduction_;
  Bytes open_;
  Duration open_ready_;
  Bytes largest_;
  Duration done_;  // of the closed buckets
};

/// Most micro-batches whose stash fits beside the rest; what waits at the boundaries is left out.
std::int64_t depth_limit(const CostModel& costs, const Placement& placement,
                         const StageContext& stage, const ColumnRequest& request) {
  if (request.ignore_memory) return request.num_micro_batches;
  const auto replicas = static_cast<std::int64_t>(placement.devices.size());
  const std::int64_t samples = replica_share(request.micro_batch_size, replicas, 0).size();
  const MemoryCost memory = costs.memory_cost(stage, samples, placement.kinds.front());
  const Bytes room = placement.memory_limit - memory.fixed() - memory.recompute_stash;
  std::int64_t depth = request.num_micro_batches;
  if (room < memory.per_micro_batch || room.count < 0) {
    depth = 0;
  } else if (memory.per_micro_batch.count > 0) {
    depth = std::min(depth, room.count / memory.per_micro_batch.count);
  }
  return request.hold_all && depth < request.num_micro_batches ? 0 : depth;
}

}  // namespace

StageColumn make_stage_column(const CostModel& costs, const Placement& placement,
                              const ColumnRequest& request) {
  StageColumn column;
  column.first = request.first;
  column.stages.resize(static_cast<std::size_t>(request.end - request.first));
  const auto replicas = static_cast<std::int64_t>(placement.devices.size());
  const std::int64_t samples = replica_share(request.micro_batch_size, replicas, 0).size();
  BucketChain buckets(costs.profile(), placement.reduction);
  for (std::int32_t begin = request.end - 1; begin >= request.first; --begin) {
    const LayerRange layers{begin, request.end};
    StageBound& stage = column.stages[static_cast<std::size_t>(begin - request.first)];
    Duration backward_alone;
    for (const std::int32_t kind : placement.kinds) {
      const LayerTable& table = costs.table(samples, kind);
      const Duration forward = table.forward(layers);
      const Duration backward = table.backward(layers);
      backward_alone = std::max(backward_alone, backward);
      stage.forward = std::max(stage.forward, forward);
      stage.backward =
          std::max(stage.backward, backward + (request.recompute ? forward : Duration{}));
    }
    if (replicas > 1) buckets.add_layer(begin, backward_alone);
    stage.after_backward = buckets.exposed_after(backward_alone) + costs.optimizer_step(layers);
    stage.depth_limit = depth_limit(costs, placement,
                                    {.layers = layers,
                                     .recompute = request.recompute,
                                     .depth = 1,
                                     .depth_before = 0,
                                     .depth_behind = 0,
                                     .largest_bucket = buckets.largest()},
                                    request);
    column.memory_limits = column.memory_limits || stage.depth_limit < request.num_micro_batches;
  }
  return column;
}

}  // namespace dapple
