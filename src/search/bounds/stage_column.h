// Columns of stages: all stages on one set of devices that end at the same layer, by first layer.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/cost/all_reduce.h"
#include "dapple/cost/cost_model.h"
#include "dapple/plan/pins.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/indices.h"
#include "dapple/search/search_problem.h"
#include "dapple/search/stage_form.h"

namespace dapple::search {

/// A column: the stages on one set of devices that end at one cut. Their figures are those of
/// StageBound.
///
/// | member        | symbol, docs/bounds.md | unit  | equations                    |
/// | ------------- | ---------------------- | ----- | ---------------------------- |
/// | first         | first layer            | index | (P1)                         |
/// | stages        | F, B, A, K, W          | ns, 1 | (B11), (R1), (R2)            |
/// | memory_limits | K < M                  |       | where recomputation is tried |
struct StageColumn {
  // The lowest beginning of a stage in the column.
  CutIndex first;
  // By beginning, from `first` on, as far as asked for. A depth_limit of 0 says that the stage does
  // not fit, that its work is too much, or that one in another form stands for it
  // (CostModel::repeats_another_form()).
  std::vector<StageBound> stages;
  // Whether some stage with less work than the limit cannot hold all micro-batches.
  bool memory_limits = false;

  const StageBound& at(CutIndex begin) const { return stages[position_of(begin)]; }
  StageBound& at(CutIndex begin) { return stages[position_of(begin)]; }
  /// The cut behind the highest beginning of a stage in the column.
  CutIndex begins_end() const { return {first.value + static_cast<std::int32_t>(stages.size())}; }
  /// The steps of making the column, which ends at `end`: layers are added one by one from there,
  /// however few of the stages are asked for.
  std::int64_t steps_from(CutIndex end) const { return end.value - first.value; }
  std::size_t position_of(CutIndex begin) const {
    return static_cast<std::size_t>(begin.value - first.value);
  }
};

/// Whether stages that recompute may have lower bounds than those of `plain`, which do not: where
/// memory limits the stages without it, or where recomputation is pinned.
bool is_worth_recomputing(const StageColumn& plain, const Pins& pins);

/// All that a stage's costs depend on in one of its replicas.
struct ReplicaKind {
  std::int64_t samples = 0;
  std::int32_t device_kind = 0;
  Bytes memory_limit;

  friend bool operator==(const ReplicaKind&, const ReplicaKind&) = default;
};

/// Returns the distinct kinds of replicas of a stage on these devices, which are in the order of
/// its replicas, equally many of each, with these shares. O(devices * kinds).
std::vector<ReplicaKind> replica_kinds(const Topology& topology,
                                       const std::vector<DeviceIndex>& devices,
                                       const ReplicaShares& shares);

/// The samples of replicas with the shares of replica_share().
inline const std::vector<std::int64_t> kEqualShares;

/// The all-reduces over the devices of a stage, of which each bucket takes the fastest. It can
/// remember times, because most buckets belong to many stages; an object that does is for one
/// thread.
class FastestReduction {
 public:
  /// The models must outlive the object. It remembers the times of at most `most_remembered` sizes,
  /// which is zero or a power of two.
  explicit FastestReduction(std::vector<const AllReduceModel*> models,
                            std::size_t most_remembered = 0);

  const std::vector<const AllReduceModel*>& models() const { return models_; }
  /// Returns the least time of an all-reduce of `size` bytes. O(1) where it is remembered.
  Duration time(Bytes size) const;

 private:
  struct KnownTime {
    Bytes size;
    Duration time;
  };
  Duration compute(Bytes size) const;

  std::vector<const AllReduceModel*> models_;
  // By a hash of the size; the last one that was asked for of those with the same hash.
  mutable std::vector<KnownTime> known_;
};

/// The devices of a stage, in the order of its replicas, the samples of each, none for those of
/// replica_share(), the distinct kinds of its replicas, and their all-reduces.
struct StageDevices {
  const std::vector<DeviceIndex>& devices;
  const std::vector<std::int64_t>& samples;
  std::vector<ReplicaKind> kinds;
  FastestReduction reduction;
};

/// Returns the devices of stages in a form, and in all that have as many devices in a replica and
/// divide micro-batches in the same way. O(devices * kinds).
StageDevices stage_devices(const Topology& topology, const std::vector<DeviceIndex>& devices,
                           const std::vector<std::int64_t>& samples, FastestReduction reduction,
                           std::int64_t micro_batch_size, StageForm form = {});

struct ColumnRequest {
  // Stages [begin, end) for all begin from `first` to `last`.
  CutIndex first;
  CutIndex last;
  CutIndex end;
  std::int64_t micro_batch_size = 1;
  // Those of the stage's busiest replica.
  std::int64_t num_micro_batches = 1;
  StageForm form = {};
  bool ignore_memory = false;
  GradientSynchronization gradients = {};
  // Whether a stage fits only if it holds all micro-batches.
  bool hold_all = false;
  Replicas replicas = Replicas::Together;
  // Stages whose work (B1) takes so long or longer are left out.
  Duration limit = Duration::infinite();
};

/// Returns the request for stages of a problem in a form, without where they begin and end.
ColumnRequest request_of(const SearchProblem& problem, const StageDevices& stage, StageForm form);

/// Returns the column. Its figures are exact with two exceptions, in which they are bounds: buffers
/// at the boundaries, which are left out, limit the depth further; and if shares or kinds of device
/// differ under recomputation, the exposed all-reduce may be longer.
/// O(layers up to `end` * different replicas), because buckets are carried along.
StageColumn make_stage_column(const CostModel& costs, const StageDevices& stage,
                              const ColumnRequest& request);

}  // namespace dapple::search
