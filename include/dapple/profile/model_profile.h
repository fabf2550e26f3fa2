// The costs of a model, layer by layer: times in whole nanoseconds and sizes in bytes, each
// measured at one or more batch sizes. Layers are numbered after `repeat` is expanded, in
// topological order: every layer comes after its inputs.
//
// Source: PipeDream (SOSP'19) section 3.1 measures the same figures except the stash; the stash
// size per layer follows Korthikanti et al. 2022 where the profile says so.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/profile/collective.h"
#include "dapple/profile/parallelism.h"

namespace dapple {

/// The figures of one layer at one batch size.
struct Measurement {
  std::int64_t batch_size = 1;
  Duration forward;
  /// The whole backward, never including recomputation.
  Duration backward;
  /// The two parts of `backward`, if they were measured.
  std::optional<Duration> input_gradient;
  std::optional<Duration> weight_gradient;
  /// The parts of `forward` and of `backward` that are the core of attention, beside which
  /// send-receives may pass.
  CoreTimes core = {};
  /// The tensor that is passed to the layers that consume it.
  Bytes output;
  /// The memory kept from the end of the forward to the end of the backward, including the layer's
  /// input but not its output.
  Bytes stash;
  /// The additional memory in use during the forward or the backward.
  Bytes workspace;

  friend bool operator==(const Measurement&, const Measurement&) = default;
};

/// The times of a layer, or of a variant, on a kind of device other than the profile's. Its sizes
/// are the same on all kinds.
struct DeviceTimes {
  /// As in Layer.
  Duration fixed_overhead;
  /// By rising batch size, at least one. Their sizes are zero and mean nothing.
  std::vector<Measurement> measurements;

  friend bool operator==(const DeviceTimes&, const DeviceTimes&) = default;
};

/// Which of the measured times hold for a kind of device, and by what factor they are longer there.
struct TimeSource {
  /// Times of the profile's device, by a factor.
  TimeSource(Factor factor = kOne) : scale(factor) {}
  TimeSource(std::size_t measured_kind, Factor factor) : measured(measured_kind), scale(factor) {}

  /// Zero for ModelProfile::device, i + 1 for ModelProfile::other_devices[i].
  std::size_t measured = 0;
  Factor scale;

  friend bool operator==(const TimeSource&, const TimeSource&) = default;
};

/// The figures of a layer on one device of a group that shares it.
struct LayerVariant {
  /// Not is_none(), and without sharded state.
  Parallelism parallelism;
  /// The parameters that the device holds.
  Bytes parameters;
  /// The part of them that belongs to experts, which other devices do not hold.
  Bytes expert_parameters = {};
  /// As in Layer.
  Duration fixed_overhead;
  /// Without the collectives, by rising batch size, at least one. A batch is that of one
  /// data-parallel rank. The output is what the device sends to a device of the next stage.
  std::vector<Measurement> measurements;
  /// The times on ModelProfile::other_devices, in their order.
  std::vector<DeviceTimes> other_times = {};
  /// The collectives of the group in the forward and in the backward. Nothing is computed beside
  /// them but where they say so; those of the backward are needed for the gradient of the input.
  std::vector<Collective> forward_collectives;
  std::vector<Collective> backward_collectives;

  friend bool operator==(const LayerVariant&, const LayerVariant&) = default;
};

/// What a layer takes whose parameters and gradients are shards, beside its own figures.
struct ShardedLayer {
  /// The time in which its parameters are gathered, in the forward and again in the backward, and
  /// that in which its gradients are scattered. They pass while the layer computes, as far as that
  /// lasts.
  Duration gather;
  Duration scatter;
  /// What both take of the device's NIC, where the devices that have the shards are on several
  /// servers.
  NicUse gather_by_nic = {};
  NicUse scatter_by_nic = {};
  /// The whole parameters of the layer and of a neighbour, and the layer's whole gradients, which
  /// are held while the layer runs.
  Bytes working_set;

  friend bool operator==(const ShardedLayer&, const ShardedLayer&) = default;
};

struct Layer {
  /// Unique in the profile.
  std::string name;
  /// The layer's own parameters, without those that it uses of another layer.
  Bytes parameters;
  /// The part of a single measurement that does not scale with the batch size.
  Duration fixed_overhead;
  /// Ascending, each before this layer.
  std::vector<LayerIndex> inputs;
  /// By rising batch size, at least one.
  std::vector<Measurement> measurements;
  /// The times on ModelProfile::other_devices, in their order.
  std::vector<DeviceTimes> other_times = {};
  /// `op` as canonical JSON text, empty if not given.
  std::string operation;
  /// By rising parallelism, each a different one.
  std::vector<LayerVariant> variants = {};
  /// The collectives in the forward and in the backward of a layer that a group of devices shares,
  /// which times do not include; empty in a profile as it is read.
  std::vector<Collective> forward_collectives = {};
  std::vector<Collective> backward_collectives = {};
  /// The part of the parameters that belongs to experts, on one device of a group; zero in a
  /// profile as it is read.
  Bytes expert_parameters = {};
  /// What a group needs that shards all state; zero in a profile as it is read.
  ShardedLayer sharded = {};
  /// The same of ModelProfile::other_groups, in their order.
  std::vector<ShardedLayer> other_sharded = {};
  /// Whether the layer has parts that its form recomputes; false in a profile as it is read.
  bool recomputes = false;
  /// Whether tensor ranks divide the layer's output among them (divides_output()); false in a
  /// profile as it is read.
  bool divides_output = false;
};

/// A tie: later layers also use the parameters of an earlier one, as the output layer of a language
/// model uses those of its embedding (Press and Wolf, EACL'17).
struct Tie {
  /// The layer that owns the parameters; it is in no other tie.
  LayerIndex owner;
  /// The other layers that use them: ascending, after the owner, each in this tie only.
  std::vector<LayerIndex> users;

  friend bool operator==(const Tie&, const Tie&) = default;
};

struct Optimizer {
  std::string name;
  Factor state_bytes_per_parameter_byte;
  Factor gradient_bytes_per_parameter_byte = kOne;
  /// What a framework keeps besides on every device that has the parameter.
  Factor framework_bytes_per_parameter_byte = {};
  std::optional<Factor> step_ns_per_parameter_byte;
};

/// The time at batch size b of a layer with a single measurement (b0, t0).
enum class BatchScaling {
  /// t0 * b / b0
  Proportional,
  /// t0 * max(1, b / b0)
  Floor,
};

/// How a tensor reaches a stage that consumes it several stages after the one that makes it.
enum class SkipTensors {
  /// Every stage in between receives it and sends it on, as in GPipe.
  Forwarded,
  /// The stage that makes it sends it straight to every stage that consumes it, and gets a gradient
  /// back from each (torchgpipe, Kim et al. 2020).
  Direct,
};

/// How the tensor ranks of a group send a tensor that each of them has whole.
enum class Boundaries {
  /// Every rank sends all of it to the rank at its place in the other group.
  Whole,
  /// Every rank sends its share, and those that receive the shares gather the tensor
  /// (boundary_shares()).
  ScatterGather,
};

/// What a sample is, for throughput as it is stated for language models.
struct SampleWork {
  std::int64_t tokens = 1;
  /// The operations of matrix products in a forward and a backward, without recomputation, in
  /// units of 10^9.
  std::int64_t gflop = 1;
  /// The peak rate of such operations of the profiled device.
  std::int64_t peak_gflop_per_second = 1;

  friend bool operator==(const SampleWork&, const SampleWork&) = default;
};

/// What ranks divide among themselves in blocks of one shape.
struct DividedBlocks {
  std::int64_t attention_heads = 1;
  std::int64_t key_value_heads = 1;
  /// 0 in blocks without experts.
  std::int64_t experts = 0;

  friend bool operator==(const DividedBlocks&, const DividedBlocks&) = default;
};

/// The number formats that a profile may state.
inline constexpr std::string_view kNumberFormats[] = {"fp32", "tf32", "bf16", "fp16"};

struct ModelProfile {
  std::string name;
  std::string source;
  /// Derivations and assumptions, for people.
  std::vector<std::string> notes;
  /// Warnings by the profile's author, which plans repeat.
  std::vector<std::string> warnings;
  std::optional<std::int64_t> global_batch_size;
  std::optional<SampleWork> sample = {};
  /// The blocks of each shape; empty if they are not known.
  std::vector<DividedBlocks> blocks = {};
  /// The number format of activations and parameters, one of kNumberFormats; empty if not known.
  std::string precision = {};
  /// The mean of |estimated / measured - 1| by which the calibration that made the times is off on
  /// runs that it was not fitted to; nothing where the times were measured or that is not known.
  std::optional<Factor> calibration_error = {};
  /// The kind of device that was measured.
  std::string device;
  /// Further kinds that were measured, by rising name; every layer and every variant has their
  /// times. Behind them may be kinds of which only the links differ from those of one before.
  std::vector<std::string> other_devices = {};
  /// The number of GPUs that form one such device by tensor parallelism.
  std::int64_t tensor_parallel = 1;
  /// The form of parallelism in which the layers are given, and the group of which a device is
  /// part: none, and that of a single device, in a profile as it is read.
  Parallelism parallelism = {};
  GroupShape group = {};
  /// The groups of ModelProfile::other_devices, in their order, where links and so the rings differ
  /// from kind to kind. Empty where all kinds have `group`.
  std::vector<GroupShape> other_groups = {};
  std::optional<BatchScaling> batch_scaling;
  /// How plans send tensors that skip stages; forwarded in a profile as it is read.
  SkipTensors skip_tensors = SkipTensors::Forwarded;
  /// How the tensor ranks of groups send what all of them have; whole in a profile as it is read.
  Boundaries boundaries = Boundaries::Whole;
  Optimizer optimizer;
  std::vector<Layer> layers;
  /// By ascending owner.
  std::vector<Tie> ties = {};
  /// The same model in the other forms of parallelism in which single stages may run, with groups
  /// of as many devices; none has any itself. Empty in a profile as it is read.
  std::vector<ModelProfile> stage_forms = {};
  /// Where only some layers of every stage recompute parts (Parallelism::recomputed_layers): the
  /// same model with all layers recomputing them, and nothing else; `layers` keep all then.
  std::vector<ModelProfile> recomputing = {};
};

/// The layers [begin, end) of a profile.
struct LayerRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;

  friend constexpr auto operator<=>(LayerRange, LayerRange) = default;
  constexpr std::int32_t size() const { return end - begin; }
};

/// Returns the owner of the tie of which `layer` is a user, if there is one. O(ties log users).
std::optional<LayerIndex> tied_to(const ModelProfile& profile, LayerIndex layer);

/// Which sides of a range of layers use the parameters of a tie.
struct TieSides {
  /// A layer in the range owns or uses the parameters.
  bool inside = false;
  /// A layer outside the range owns or uses the parameters.
  bool outside = false;
};
/// Returns whether layers inside and outside the range own or use the tie's parameters. O(users).
TieSides sides_of(const Tie& tie, LayerRange layers);

/// Returns the measurements of a layer on a kind of device that was measured, by its number in
/// TimeSource. O(1).
const std::vector<Measurement>& measurements_on(const Layer& layer, std::size_t measured);
/// Returns the part of a single measurement there that does not scale with the batch size. O(1).
Duration fixed_overhead_on(const Layer& layer, std::size_t measured);

/// Returns the group of which a device of a measured kind is part, by its number in TimeSource.
/// O(1).
const GroupShape& group_on(const ModelProfile& profile, std::size_t measured);
/// Returns what a layer takes in that group if it shards all state. O(1).
const ShardedLayer& sharded_on(const Layer& layer, std::size_t measured);

/// Returns the time of `layer` for `samples` samples without its collectives on a device with the
/// times of `source`, scaled and rounded up to a whole nanosecond. With two or more measurements
/// the time is interpolated linearly between them; above the largest batch it is extrapolated by
/// the last slope, or constant if that slope is negative; below the smallest batch it is that
/// batch's time. With one measurement it follows `scaling`, with the layer's fixed overhead h
/// unscaled: h + (t0 - h) * b / b0. O(measurements). Requires: samples >= 1; `scaling` if there is
/// a single measurement, as imported profiles and those read from files have it.
Duration forward_time(const Layer& layer, std::int64_t samples, std::optional<BatchScaling> scaling,
                      TimeSource source);
Duration backward_time(const Layer& layer, std::int64_t samples,
                       std::optional<BatchScaling> scaling, TimeSource source);

/// Returns the part of backward_time() that computes the gradient of the layer's input; the rest,
/// which computes the gradient of its weights, may run later. For a layer that uses no parameters,
/// neither its own nor another layer's, this is the whole backward. If the profile does not state
/// the parts, it is half of the backward, rounded up.
Duration input_gradient_time(const ModelProfile& profile, LayerIndex layer, std::int64_t samples,
                             TimeSource source);

/// Returns the times of the layer's core for so many samples, as forward_time() and backward_time()
/// are but without an overhead. O(measurements). Requires: as these.
CoreTimes core_times(const Layer& layer, std::int64_t samples, std::optional<BatchScaling> scaling,
                     TimeSource source);

/// Whether no layer takes less time for more samples on any kind of device that was measured, as
/// far as measurements say: neither in a measured time nor in a measured collective of a group, and
/// no collective is hidden behind computation, which could hide more of it. The forms of stages
/// have times of their own. O(measurements).
bool do_times_rise(const ModelProfile& profile);

/// Return the layer's sizes for `samples` samples: those of the largest measured batch in
/// proportion to the samples, rounded up to a whole byte. O(1). Requires: samples >= 0.
Bytes output_size(const Layer& layer, std::int64_t samples);
Bytes stash_size(const Layer& layer, std::int64_t samples);
Bytes workspace_size(const Layer& layer, std::int64_t samples);

/// Returns the nodes of a graph in topological order, in which every node comes after its inputs.
/// The lowest of the ready nodes comes first, so a list that is already in order keeps its order.
/// Nodes on a cycle, or reachable from one, are missing from the result.
/// O((nodes + edges) log nodes).
std::vector<std::int32_t> topological_order(const std::vector<std::vector<std::int32_t>>& inputs);

}  // namespace dapple
