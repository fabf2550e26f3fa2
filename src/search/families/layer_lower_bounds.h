// Lower bounds on what layers take on any devices: the figures from which the bounds of schedule
// families are computed (family_bound.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/cost_model.h"
#include "dapple/search/indices.h"

namespace dapple::search {

/// Lower bounds for a stage; computation is of one micro-batch.
///
/// | member         | symbol, docs/bounds.md | unit | equations        |
/// | -------------- | ---------------------- | ---- | ---------------- |
/// | forward        | f                      | ns   | (F3), (F4), (F7) |
/// | backward       | b                      | ns   | (F3), (F4), (F7) |
/// | input_gradient | i                      | ns   | (F3), (F4)       |
/// | optimizer_step | step                   | ns   | (F4), (F7)       |
/// | reduction      | reduction              | ns   | (F1), (F4), (F7) |
struct StageLowerBound {
  Duration forward;
  // The whole backward.
  Duration backward;
  // The part of the backward that computes the input's gradient.
  Duration input_gradient;
  Duration optimizer_step;
  // The all-reduce of all gradients of the stage.
  Duration reduction;
};

/// Lower bounds for one micro-batch on one layer, whatever the stage and its replicas.
struct LayerLowerBound {
  Duration forward;
  Duration backward;
};

/// Lower bounds for all layers and stages of a model at one micro-batch size. Where stages may run
/// in several forms of parallelism, they hold for all of them: each figure is the least of any.
class LayerLowerBounds {
 public:
  /// O(layers * shares + devices^2).
  LayerLowerBounds(const CostModel& costs, std::int64_t global_batch_size,
                   std::int64_t micro_batch_size, bool ignore_memory);

  std::int64_t micro_batches() const { return micro_batches_; }

  /// For each possible size of the largest share, the least number of replicas that has it, by
  /// rising number. More replicas with the same largest share are no faster.
  const std::vector<std::int32_t>& replica_counts() const { return replica_counts_; }

  /// Whether the figures of every stage are known. With very many layers, only those of the whole
  /// model are.
  bool knows_stages() const { return !shares_.empty() && shares_.front().table != nullptr; }
  /// Returns the bounds for a stage of these layers. O(1).
  /// Requires: `replicas` is one of replica_counts(); knows_stages().
  StageLowerBound stage(LayerRange layers, std::int32_t replicas) const;
  /// Returns the bounds for a stage of all layers; does not require knows_stages().
  const StageLowerBound& whole_model(std::int32_t replicas) const {
    return share_of(replicas).whole;
  }
  const LayerLowerBound& layer(LayerIndex layer) const { return layers_[layer]; }
  /// Whether some device has memory for one micro-batch of the stage's largest share. If it does
  /// not, it does not with more layers at the end either. O(1).
  bool fits(LayerRange layers, std::int32_t replicas) const;
  /// Whether all devices together have memory for what the layers keep all the time, and some
  /// device for each layer, in whichever stage (F10). If not, no plan fits, whatever its stages and
  /// its order.
  /// O(layers * shares).
  bool may_fit() const;

  /// Lower bound on the transfer of one micro-batch over the boundary in front of layer `cut`,
  /// between `replicas` replicas and at most `left` others (F2). O(1).
  /// Requires: left >= 1.
  Duration crossing(CutIndex cut, std::int32_t replicas, std::int32_t left) const;
  /// The least crossing of any boundary.
  Duration least_crossing() const { return least_crossing_; }

  /// Lower bounds on the device time, in nanoseconds of one device, of all micro-batches of all
  /// layers, and of the optimizer steps of all layers.
  Wide device_time_of_work() const;
  Wide device_time_of_steps() const;
  /// Lower bound on the time of all micro-batches of the quickest layer.
  Duration least_layer() const { return least_layer_; }

 private:
  // Parts of a nanosecond in which sums of optimizer steps are counted.
  static constexpr std::int64_t kStepParts = 1024;
  struct Share {
    // The least and the largest number of replicas with this largest share.
    std::int32_t replicas = 0;
    std::int32_t most_replicas = 0;
    std::int64_t samples = 0;
    // The table for the quickest kind of device; null if tables would be too large.
    const LayerTable* table = nullptr;
    // A stage of all layers.
    StageLowerBound whole;
  };
  void join_forms(std::int64_t global_batch_size);
  StageLowerBound stage_in_form(LayerRange layers, std::int32_t replicas) const;
  bool fits_in_form(LayerRange layers, std::int32_t replicas) const;
  bool layer_fits(std::int32_t layer, std::int32_t replicas) const;
  bool layer_fits_in_form(std::int32_t layer, std::int32_t replicas) const;
  MemoryCost memory_of(LayerRange layers, std::int32_t replicas) const;
  Bytes kept_by_all_layers() const;
  Duration crossing_in_form(CutIndex cut, std::int32_t replicas, std::int32_t left) const;
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
  // The most memory of any device, and the memory of all devices together.
  Bytes most_memory_;
  Wide all_memory_ = 0;
  // Devices of the largest server.
  std::int32_t largest_server_ = 1;
  // The largest bandwidth of all NICs of a server together.
  Bandwidth widest_server_;
  // Whether the topology has measurements of all-reduces over several servers.
  bool is_measured_ = false;
  std::vector<std::int32_t> replica_counts_;
  // Indexed by position in replica_counts_.
  std::vector<Share> shares_;
  // Position in shares_, by number of replicas.
  std::vector<std::size_t> positions_;
  IndexedVector<LayerIndex, LayerLowerBound> layers_;
  // Prefix sums over the layers; steps are in parts of 1 / kStepParts ns.
  IndexedVector<CutIndex, Bytes> gradients_;
  IndexedVector<CutIndex, std::int64_t> steps_;
  // Indexed by number of flows, then cut. Empty if all boundaries count as free.
  std::vector<IndexedVector<CutIndex, Duration>> crossings_;
  Duration least_crossing_;
  // The least device time of all micro-batches, in nanoseconds of one device.
  IndexedVector<LayerIndex, Wide> device_times_;
  Duration least_layer_;
  // Those of form 1, form 2 and so on.
  std::vector<std::unique_ptr<LayerLowerBounds>> others_;
};

}  // namespace dapple::search
