// Time and memory of a plan's parts: pure functions that return their breakdown. All bandwidths and
// latencies come from the topology, all times and sizes of layers from the profile.
//
// Sources: DAPPLE (PPoPP'21) section 4 (stages, transfers as stages of their own, split and
// concatenate); PyTorch DDP (VLDB'20) section 4 (gradient buckets overlapped with the backward);
// Patarasu and Yuan 2009 (ring all-reduce). Departures: 1. a stage's costs are those of its slowest
// replica, beside each one's own; 2. memory counts communication buffers; 3. link-matrix servers
// reduce on lane-disjoint rings.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// One replica's part of a transfer: the bytes one device sends to another, and the ports between.
struct PairFlow {
  DeviceIndex from;
  DeviceIndex to;
  SampleRange samples;  // of the micro-batch
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
  std::vector<PairFlow> flows;  // by sender, then receiver
  std::vector<PortLoad> ports;  // by port
  Bytes size;                   // sum over flows
  Duration time;                // on idle ports: max over ports of busy (rounded up) + latency
};

/// One side of a transfer: who holds (or wants) which samples of the micro-batch.
struct TransferEnd {
  DeviceIndex device;
  SampleRange samples;
};

/// Moves a micro-batch from one set of devices to another. `size_of(n)` is the size of n samples of
/// it. O(senders + receivers), times log ports.
/// Requires: both ends cover the same samples, in rising order without gaps.
TransferCost transfer_cost(const std::vector<TransferEnd>& from, const std::vector<TransferEnd>& to,
                           const std::function<Bytes(std::int64_t)>& size_of,
                           const Topology& topology);

enum class AllReduceAlgorithm { None, FlatRing, Hierarchical, MatrixRings };

/// Parts of a byte, of which kPartsPerByte are one: a device's part of an all-reduce is seldom a
/// whole number of bytes.
struct ByteParts {
  Wide count = 0;

  friend bool operator==(const ByteParts&, const ByteParts&) = default;
  friend auto operator<=>(const ByteParts&, const ByteParts&) = default;
};
inline constexpr std::int64_t kPartsPerByte = 1024;
inline Bytes round_down(ByteParts size) {
  return {static_cast<std::int64_t>(size.count / kPartsPerByte)};
}

/// Rounds of rings, one after another: in each all hops carry their parts at once, and then the
/// latency of the slowest hop passes.
struct AllReducePhase {
  std::int64_t rounds = 0;
  Ticks busy;  // of all rounds, without the latency; round k is over at ceil(busy * k / rounds)
  Duration latency;  // of each round
  /// What goes through each port in all rounds, by port, rounded down; the busiest one sets the
  /// pace.
  std::vector<std::pair<PortIndex, ByteParts>> ports;
};

/// All-reduce of one bucket. The faster of a flat ring in device order,
/// 2(r-1)/r * n / bandwidth + 2(r-1) * latency over its narrowest hop, and, where h >= 2 servers
/// hold the same number g >= 2 of the devices, reduce-scatter inside, ring across all their NICs,
/// all-gather inside; on one link-matrix server, over lane-disjoint rings where there are any. What
/// several hops of a ring have in common, a PCIe root's port or an uplink, is as narrow for each as
/// there are hops.
///
/// Where the topology has a measured bus bandwidth for so many devices of so many servers, that is
/// the time: linear between its points, at the bandwidth of the largest above; below, what links
/// give, and no more than the smallest took. It is one phase over the ports of the formula's
/// algorithm, which carry no more than they would by it.
struct AllReduceCost {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::None;
  Bytes size;
  Ticks busy;  // without the latency
  Duration latency;
  Duration time;                       // round_up(busy) + latency; zero for one device or no bytes
  std::vector<AllReducePhase> phases;  // one after another; together they are busy and wait as long
  std::vector<std::pair<PortIndex, Bytes>>
      ports;  // bytes through each port, by port, of all phases, rounded down
};

/// All-reduces over one set of devices, of any size.
class AllReduceModel {
 public:
  /// Requires: `devices` ascending and distinct. O(devices), ring packing of matrix servers apart.
  AllReduceModel(const std::vector<DeviceIndex>& devices, const Topology& topology);

  /// Time of one all-reduce on idle links; zero for one device or no bytes. O(log points).
  Duration time(Bytes size) const;

  /// The same with its breakdown; the flat ring wins a tie. O(ports).
  AllReduceCost cost(Bytes size) const;

  /// Whether both take the same time for every size, as far as their rings tell. O(1).
  bool is_as_fast_as(const AllReduceModel& other) const;

 private:
  /// Part of what a ring's hops carry that goes through one port: taken / all.
  struct PortShare {
    PortIndex port;
    Bandwidth taken;
    Bandwidth all;
  };
  /// Rings over `members` that together reduce at `bandwidth`.
  struct Rings {
    std::int64_t members = 0;
    Bandwidth bandwidth{kMaxCount};
    Duration hop_latency;
    std::vector<PortShare> ports;  // by port
    std::int64_t rounds() const { return 2 * (members - 1); }
  };
  struct Alternative {
    AllReduceAlgorithm algorithm = AllReduceAlgorithm::None;
    std::vector<Rings> rings;  // Hierarchical: inside the servers, across them
  };
  static Ticks busy(const Rings& rings, Bytes size);
  static Ticks busy(const Alternative& alternative, Bytes size);
  static Duration latency(const Alternative& alternative);
  static AllReducePhase phase(const Rings& rings, Bytes size);
  static std::vector<AllReducePhase> phases(const Alternative& alternative, Bytes size);
  const Alternative* fastest(Bytes size) const;
  Duration measured_time(Bytes size) const;

  static void merge_ports(Rings& rings, const Topology& topology);
  static Rings flat_ring(const std::vector<DeviceIndex>& devices, const Topology& topology);
  static std::optional<Rings> matrix_rings(const std::vector<DeviceIndex>& devices,
                                           const Topology& topology);
  static Rings inside_servers(const std::vector<std::vector<DeviceIndex>>& servers,
                              const Topology& topology);
  static void add_server(Rings& rings, const std::vector<DeviceIndex>& devices,
                         const Topology& topology);
  static Rings across_servers(const std::vector<std::vector<DeviceIndex>>& servers,
                              const Topology& topology);

  /// A message and its time.
  struct Measured {
    Bytes size;
    Duration time;

    friend bool operator==(const Measured&, const Measured&) = default;
  };
  static std::vector<Measured> measured_over(const std::vector<std::vector<DeviceIndex>>& servers,
                                             const Topology& topology);

  std::vector<Alternative> alternatives_;
  std::vector<Measured> measured_;  // by size; empty: not measured
};

/// What a stage of those layers puts of one of them into buckets: its gradient, or nothing where
/// layers of other stages add to that. O(ties * users).
Bytes bucketed_gradient(const ModelProfile& profile, std::int32_t layer, LayerRange layers);

/// Buckets of a stage's own gradients, those that no other stage adds to, in the order in which a
/// backward fills them: layers from the last to the first, a bucket closed as soon as it holds
/// `bucket_size` or more (PyTorch DDP). A layer's gradient is never cut. `first_layer[k]`: bucket k
/// is ready when this layer's backward is.
struct GradientBuckets {
  std::vector<Bytes> sizes;
  std::vector<std::int32_t> first_layer;
};
/// O(layers in the range). Layers without gradients are passed over. Requires: bucket_size > 0.
GradientBuckets gradient_buckets(const ModelProfile& profile, LayerRange layers,
                                 Bytes bucket_size = kDefaultBucketSize);

/// The buckets that a plan names for a stage, with the layers that they come from. Nothing if their
/// sizes are not those of whole layers' gradients, last to first, all of them; no buckets are right
/// only where there is nothing to reduce. O(layers in the range).
std::optional<GradientBuckets> match_buckets(const ModelProfile& profile, const StagePlan& stage);

/// Sets the plan's tied gradients to those of tied_gradients(), and gives every stage of several
/// replicas that names no buckets those of gradient_buckets() with the plan's bucket size.
void fill_gradient_buckets(Plan& plan, const ModelProfile& profile);

/// Memory of one device, by what it is for.
struct MemoryCost {
  Bytes weights;
  Bytes gradients;
  Bytes optimizer_state;
  Bytes communication_buffers;
  Bytes workspace;        // of the neediest layer
  Bytes per_micro_batch;  // stash of one micro-batch in flight (stage input, if recomputed)
  Bytes recompute_stash;  // of the one micro-batch whose forward is run again
  std::int64_t in_flight = 0;

  Bytes fixed() const {
    return weights + gradients + optimizer_state + communication_buffers + workspace;
  }
  Bytes peak() const { return fixed() + recompute_stash + in_flight * per_micro_batch; }
};

/// When the buckets of a stage are ready on replicas with the same share on the same kind of
/// device.
struct BucketMoments {
  std::vector<Duration> in_backward;  // from the start of the last backward
  std::vector<Duration> in_weights;   // from the start of the last weight gradient
};

/// One device's share of a stage.
struct ReplicaCost {
  DeviceIndex device;
  std::int64_t samples = 0;
  Duration forward;
  Duration backward;        // recomputation included
  Duration input_gradient;  // the part of it that goes first, if it is run in two; W is the rest
  std::size_t moments = 0;  // position in StageCost::moments
  MemoryCost memory;
  Bytes memory_limit;
};

struct StageCost {
  std::vector<ReplicaCost> replicas;  // in the order of StagePlan::devices
  Duration forward;                   // slowest replica
  Duration backward;
  Duration recomputation;              // part of `backward`, of the slowest replica
  Duration input_gradient;             // slowest replica
  Duration weight_gradient;            // slowest replica
  std::vector<Duration> bucket_ready;  // from the start of the last backward, slowest replica
  std::vector<Duration> bucket_ready_in_weights;  // from the start of the last weight gradient
  std::vector<BucketMoments> moments;             // of the replicas that differ
  std::vector<AllReduceCost> buckets;
  /// Of all tied gradients that the stage adds to, one after another, on idle links; and of those
  /// that no stage before it adds to, which begin no earlier than behind its own.
  Duration tied_reduction;
  Duration tied_reduction_from_here;
  Duration optimizer_step;
  /// Where parameters are updated bucket by bucket, parts of the step that add up to it: one per
  /// bucket and, where some parameters are tied, one for these, with one before it for all others
  /// even where there is no bucket. Empty where there would be none, and where parameters are
  /// updated all at once.
  std::vector<Duration> bucket_steps;

  /// Whether the last of the bucket steps is that of tied parameters.
  bool has_tied_step() const {
    return bucket_steps.size() > std::max<std::size_t>(1, buckets.size());
  }
};

/// Reducing gradients to which several stages add, over all of their devices.
struct TiedCost {
  std::vector<StageIndex> stages;
  std::vector<DeviceIndex> devices;  // of all these stages, each once, ascending
  AllReduceCost reduction;
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
  std::vector<TiedCost> ties;            // by the plan's tied gradients
  Factor overlap_slowdown = kOne;
};

/// Time and memory of one stage beside its neighbours' depths.
struct StageContext {
  LayerRange layers;
  bool recompute = false;
  std::int64_t depth = 1;         // of this stage
  std::int64_t depth_before = 0;  // of the stage before it; 0 for the first
  std::int64_t depth_behind = 0;  // of the stage behind it; 0 for the last
  bool sends_before = true;       // over the boundary before it: false where both sides are on the
  bool sends_behind = true;       // same devices, which need no buffers
  Bytes largest_bucket = {};      // of its gradients; 0 for one replica
};

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

/// Factor on the profile's times for a kind of device: one for the profiled kind, else what the
/// kind states for it; nothing if it states none. O(log factors).
std::optional<Factor> time_scale(const ModelProfile& profile, const DeviceKind& kind);

/// What keeps the profile from being used on the topology: a kind of device that is neither the
/// profiled one nor has a time_scale for it, a missing global batch, sums that would overflow.
/// Empty if they fit. O(layers + devices).
std::vector<Violation> check_compatible(const ModelProfile& profile, const Topology& topology,
                                        std::int64_t global_batch_size);

/// Faults that keep a plan from being costed at all, with JSON pointers into it: those of
/// validate() and check_compatible(), and gradient buckets that are not its layers'. Memory is not
/// looked at. Empty if there are none.
std::vector<Violation> costing_faults(const Plan& plan, const ModelProfile& profile,
                                      const Topology& topology);

/// A device on which a plan needs more memory than there is.
struct MemoryShortage {
  DeviceIndex device;
  StageIndex stage;
  Bytes needed;
  Bytes limit;
  Bytes missing() const { return needed - limit; }
};
/// Worst first; ties in the order of stages and replicas. Empty if the plan fits. O(devices).
/// Requires: one stage per device; simulate/device_memory.h has the question for any schedule.
std::vector<MemoryShortage> memory_shortages(const PlanCost& costs);

}  // namespace dapple
