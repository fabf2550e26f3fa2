// All stages that end at one layer on one set of devices, by their first layer.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/cost/all_reduce.h"
#include "dapple/cost/cost_model.h"
#include "dapple/search/bounds/bound.h"

namespace dapple::search {

struct StageColumn {
  std::int32_t first = 0;          // the lowest first layer that is in it
  std::vector<StageBound> stages;  // from `first` on; depth_limit 0: does not fit
  bool memory_limits = false;      // some stage cannot hold all micro-batches

  const StageBound& at(std::int32_t begin) const {
    return stages[static_cast<std::size_t>(begin - first)];
  }
};

/// The devices of a stage, in the order of its replicas.
struct StageDevices {
  const std::vector<DeviceIndex>& devices;
  const AllReduceModel& reduction;
};

struct ColumnRequest {
  std::int32_t first = 0;
  std::int32_t end = 0;
  std::int64_t micro_batch_size = 1;
  std::int64_t num_micro_batches = 1;
  bool recompute = false;
  bool ignore_memory = false;
  GradientSynchronization gradients = {};
  bool hold_all = false;  // a stage fits only if it holds all micro-batches
  Replicas replicas = Replicas::Together;
};

/// Exact, but for what waits at the boundaries, which limits the depth further, and, where shares
/// or kinds of device differ under recomputation, for the exposed all-reduce, which may be longer.
/// O(layers in the column * different replicas): buckets are carried along.
StageColumn make_stage_column(const CostModel& costs, const StageDevices& stage,
                              const ColumnRequest& request);

}  // namespace dapple::search
