// What layers take at least on any devices: the figures that the bounds of schedule families are
// made of.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/cost_model.h"

namespace dapple::search {

/// One micro-batch on a stage, at least.
struct StageLowerBound {
  Duration forward;
  Duration backward;        // whole
  Duration input_gradient;  // part of it
  Duration optimizer_step;
  Duration reduction;  // of all its gradients
};

/// One micro-batch on a stage of that layer alone or with others, whatever the replicas.
struct LayerLowerBound {
  Duration forward;
  Duration backward;
};

class LayerLowerBounds {
 public:
  /// O(layers * shares + devices^2).
  LayerLowerBounds(const CostModel& costs, std::int64_t global_batch_size,
                   std::int64_t micro_batch_size, bool ignore_memory);

  std::int64_t micro_batches() const { return micro_batches_; }

  /// For each largest share that replicas may have, the least number of them; rising. More of them
  /// with the same share are no faster.
  const std::vector<std::int32_t>& replica_counts() const { return replica_counts_; }

  /// Whether the figures of any stage are known; of very many layers only those of all together
  /// are.
  bool knows_stages() const { return !shares_.empty() && shares_.front().table != nullptr; }
  /// Requires: the replicas are one of those counts; stages are known. O(1).
  StageLowerBound stage(LayerRange layers, std::int32_t replicas) const;
  /// The same of all layers, known or not.
  const StageLowerBound& whole_model(std::int32_t replicas) const {
    return share_of(replicas).whole;
  }
  const LayerLowerBound& layer(std::int32_t layer) const {
    return layers_[static_cast<std::size_t>(layer)];
  }
  /// Whether some device has room for one micro-batch of a stage's share. With more layers at the
  /// end it has no more. O(1).
  bool fits(LayerRange layers, std::int32_t replicas) const;

  /// A micro-batch over the boundary before layer `cut`, between so many replicas and at most
  /// `left` others. O(1). Requires: left >= 1.
  Duration crossing(std::int32_t cut, std::int32_t replicas, std::int32_t left) const;
  Duration least_crossing() const { return least_crossing_; }  // over any boundary

  /// All micro-batches of all layers, or their steps, in nanoseconds of one device.
  Wide device_time_of_work() const { return least_device_time_; }
  Wide device_time_of_steps() const;
  /// All micro-batches of the quickest layer.
  Duration least_layer() const { return least_layer_; }

 private:
  static constexpr std::int64_t kStepParts = 1024;  // of a nanosecond
  struct Share {
    std::int32_t replicas = 0;  // the least number
    std::int32_t most_replicas = 0;
    std::int64_t samples = 0;
    const LayerTable* table = nullptr;  // of the quickest kind of device; null where too large
    StageLowerBound whole;              // of all layers
  };
  const Share& share_of(std::int32_t replicas) const;
  void find_shares();
  void find_sums();
  void find_layers();
  StageLowerBound stage_of(const LayerTable& table, LayerRange layers, std::int32_t replicas) const;
  void find_crossings();
  Duration optimizer_step(LayerRange layers) const;
  Duration reduction(Bytes gradients, std::int32_t replicas) const;

  const CostModel& costs_;
  std::int64_t micro_batch_size_;
  std::int64_t micro_batches_;
  bool ignore_memory_;
  Bytes most_memory_;
  std::int32_t largest_server_ = 1;  // devices
  Bandwidth widest_server_;          // all NICs of a server together
  bool is_measured_ = false;         // all-reduces over several servers, by the topology
  std::vector<std::int32_t> replica_counts_;
  std::vector<Share> shares_;           // by position in replica_counts_
  std::vector<std::size_t> positions_;  // of a number of replicas
  std::vector<LayerLowerBound> layers_;
  std::vector<Bytes> gradients_;                  // prefix sums
  std::vector<std::int64_t> steps_;               // likewise, in parts of kStepParts
  std::vector<std::vector<Duration>> crossings_;  // by flows, then cut; empty: all count as free
  Duration least_crossing_;
  Wide least_device_time_ = 0;
  Duration least_layer_;
};

}  // namespace dapple::search
