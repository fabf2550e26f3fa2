// Time and memory of a plan's parts: pure functions that return their breakdown. All bandwidths and
// latencies come from the topology, all times and sizes of layers from the profile.
//
// Sources: DAPPLE (PPoPP'21) section 4 (stages, transfers as stages of their own, split and
// concatenate); PyTorch DDP (VLDB'20) section 4 (gradient buckets overlapped with the backward);
// Patarasu and Yuan 2009 (ring all-reduce). Departures: 1. replicas of a stage start a micro-batch
// together; 2. memory counts communication buffers; 3. link-matrix servers reduce on lane-disjoint
// rings.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// Gradients are reduced in buckets of this size, PyTorch DDP's default.
inline constexpr Bytes kDefaultBucketSize{25 * 1024 * 1024};

/// One replica's part of a transfer: the bytes one device sends to another, and the ports between.
struct PairFlow {
  DeviceIndex from;
  DeviceIndex to;
  Bytes size;
  Route route;
};

/// What a transfer takes of one port: how long its bytes keep it busy, and the largest latency of a
/// path through it. The transfer is over when every port has carried its bytes and latency passed.
struct PortLoad {
  PortIndex port;
  Bytes size;
  Ticks busy;
  Duration latency;
};

/// One micro-batch's tensor moved from the replicas of a stage to those of a neighbour. Samples of
/// sender and receiver are intersected; what stays on a device is not sent.
struct TransferCost {
  std::vector<PairFlow> flows;   // by sender, then receiver
  std::vector<PortLoad> ports;   // by port
  Bytes size;                    // sum over flows
  Duration time;                 // on idle ports: max over ports of busy (rounded up) + latency
};

/// `boundary_of_micro_batch` bytes per sample count are looked up in the table of the profile.
TransferCost transfer_cost(const Plan& plan, const ModelProfile& profile, const Topology& topology,
                           std::size_t from_stage, std::size_t to_stage,
                           std::int64_t micro_batch);

enum class AllReduceAlgorithm { None, FlatRing, Hierarchical, MatrixRings };

/// All-reduce of one bucket. The faster of a flat ring in device order,
/// 2(r-1)/r * n / bandwidth + 2(r-1) * latency over its narrowest hop, and, where h >= 2 servers
/// hold the same number g >= 2 of the devices, reduce-scatter inside, ring across all their NICs,
/// all-gather inside; on one link-matrix server, over lane-disjoint rings where there are any.
struct AllReduceCost {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::None;
  Bytes size;
  Ticks busy;        // without the latency
  Duration latency;
  Duration time;     // round_up(busy) + latency; zero for one device or no bytes
  /// Bytes through each port, by port; the busiest one's share of `busy` sets the flow's rate.
  std::vector<std::pair<PortIndex, Bytes>> ports;
};
/// Requires: `devices` ascending and distinct. O(devices), ring packing of matrix servers apart.
AllReduceCost all_reduce_cost(const std::vector<DeviceIndex>& devices, Bytes size,
                              const Topology& topology);

/// Buckets of a stage's gradients, in the order in which a backward fills them: layers from the
/// last to the first, a bucket closed as soon as it holds `bucket_size` or more (PyTorch DDP). A
/// layer's gradient is never cut. `first_layer[k]`: bucket k is ready when this layer's backward is.
struct GradientBuckets {
  std::vector<Bytes> sizes;
  std::vector<std::int32_t> first_layer;
};
GradientBuckets gradient_buckets(const ModelProfile& profile, LayerRange layers,
                                 Bytes bucket_size = kDefaultBucketSize);

/// Memory of one device, by what it is for.
struct MemoryCost {
  Bytes weights;
  Bytes gradients;
  Bytes optimizer_state;
  Bytes communication_buffers;
  Bytes workspace;           // of the neediest layer
  Bytes per_micro_batch;     // stash of one micro-batch in flight (stage input, if recomputed)
  Bytes recompute_stash;     // of the one micro-batch whose forward is run again
  std::int64_t in_flight = 0;

  Bytes fixed() const {
    return weights + gradients + optimizer_state + communication_buffers + workspace;
  }
  Bytes peak() const { return fixed() + recompute_stash + in_flight * per_micro_batch; }
};

/// One device's share of a stage.
struct ReplicaCost {
  DeviceIndex device;
  std::int64_t samples = 0;
  Duration forward;
  Duration backward;  // recomputation included
  MemoryCost memory;
  Bytes memory_limit;
};

struct StageCost {
  std::vector<ReplicaCost> replicas;  // in the order of StagePlan::devices
  Duration forward;                   // slowest replica
  Duration backward;
  Duration recomputation;             // part of `backward`, of the slowest replica
  std::vector<Duration> bucket_ready; // from the start of the last backward, slowest replica
  std::vector<AllReduceCost> buckets;
  Duration optimizer_step;
};

/// Transfers over the boundary behind a stage: of micro-batch m, entry m modulo the size (one entry
/// unless replicas are dealt micro-batches).
struct BoundaryCost {
  std::vector<TransferCost> forward;   // activations, to the next stage
  std::vector<TransferCost> backward;  // gradients, back
};

struct PlanCost {
  std::vector<StageCost> stages;
  std::vector<BoundaryCost> boundaries;  // one less than stages
  Factor overlap_slowdown = kOne;
};

/// Looks up layer tables by samples and device kind, and costs plans with them. Keeps references to
/// profile and topology, which must outlive it. Not to be shared between threads: tables are made
/// when first asked for.
class CostModel {
 public:
  CostModel(const ModelProfile& profile, const Topology& topology);
  ~CostModel();
  CostModel(const CostModel&) = delete;
  CostModel& operator=(const CostModel&) = delete;

  const ModelProfile& profile() const { return profile_; }
  const Topology& topology() const { return topology_; }

  /// Figures of all layers for so many samples on that kind of device.
  const LayerTable& table(std::int64_t samples, std::int32_t device_kind) const;

  Bytes parameters(LayerRange layers) const;
  Duration optimizer_step(LayerRange layers) const;

  /// Requires: validate(plan, ...) is empty.
  PlanCost plan_cost(const Plan& plan) const;
  StageCost stage_cost(const Plan& plan, std::size_t stage) const;
  BoundaryCost boundary_cost(const Plan& plan, std::size_t stage) const;  // behind that stage

 private:
  struct Tables;
  const ModelProfile& profile_;
  const Topology& topology_;
  std::unique_ptr<Tables> tables_;
};

/// What keeps the profile from being used on the topology: a kind of device that is neither the
/// profiled one nor has a time_scale for it, a missing global batch, sums that would overflow.
std::vector<Violation> check_compatible(const ModelProfile& profile, const Topology& topology,
                                        std::int64_t global_batch_size);

/// Devices on which a plan needs more memory than there is: the missing bytes, worst first.
struct MemoryShortage {
  DeviceIndex device;
  StageIndex stage;
  Bytes needed;
  Bytes limit;
  Bytes missing() const { return needed - limit; }
};
std::vector<MemoryShortage> memory_shortages(const PlanCost& costs);

}  // namespace dapple
