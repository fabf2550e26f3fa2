// What a model costs, layer by layer: times in whole nanoseconds, sizes in bytes, each measured at
// one or more batch sizes. Layers are numbered after `repeat` is expanded, in an order in which no
// layer stands before one of its inputs.
//
// Source: PipeDream (SOSP'19) section 3.1 measures the same figures except the stash; the stash
// size per layer follows Korthikanti et al. 2022 where the profile says so.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"

namespace dapple {

/// Figures of one layer at one batch size. `backward` never includes recomputation.
struct Measurement {
  std::int64_t batch_size = 1;
  Duration forward;
  Duration backward;
  std::optional<Duration> input_gradient;  // with weight_gradient, a split of `backward`
  std::optional<Duration> weight_gradient;
  Bytes output;     // what goes to the layers that consume it
  Bytes stash;      // kept from the end of the forward to the end of the backward: the layer's
                    // input included, its output not
  Bytes workspace;  // extra during its forward or backward

  friend bool operator==(const Measurement&, const Measurement&) = default;
};

struct Layer {
  std::string name;                       // unique in the profile
  Bytes parameters;                       // its own; not those that it uses of another layer
  Duration fixed_overhead;                // part of a single measurement that does not scale
  std::vector<LayerIndex> inputs;         // ascending, each before this layer
  std::vector<Measurement> measurements;  // by rising batch size, at least one
  std::string operation;                  // `op` as canonical JSON text, empty if not given
};

/// Layers that use the parameters of a layer before them too, as the output layer of a language
/// model uses its embedding's (Press and Wolf, EACL'17).
struct Tie {
  LayerIndex owner;               // whose parameters they are; in no other tie
  std::vector<LayerIndex> users;  // ascending, behind the holder, each in this tie only

  friend bool operator==(const Tie&, const Tie&) = default;
};

struct Optimizer {
  std::string name;
  Factor state_bytes_per_parameter_byte;
  Factor gradient_bytes_per_parameter_byte = kOne;
  std::optional<Factor> step_ns_per_parameter_byte;
};

/// How a layer with a single measurement (b0, t0) behaves at batch size b.
enum class BatchScaling {
  Proportional,  // t0 * b / b0
  Floor,         // t0 * max(1, b / b0)
};

struct ModelProfile {
  std::string name;
  std::string source;
  std::vector<std::string> notes;     // derivations and assumptions, for people
  std::vector<std::string> warnings;  // of whoever made it, which plans repeat
  std::optional<std::int64_t> global_batch_size;
  std::string device;                // the kind of device that was measured
  std::int64_t tensor_parallel = 1;  // GPUs that are one such device, and share its tensors
  std::optional<BatchScaling> batch_scaling;
  Optimizer optimizer;
  std::vector<Layer> layers;
  std::vector<Tie> ties = {};  // by holder
};

/// Layers [begin, end) of a profile.
struct LayerRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;

  friend constexpr auto operator<=>(LayerRange, LayerRange) = default;
  constexpr std::int32_t size() const { return end - begin; }
};

/// The layer whose parameters a layer uses beside its own, if it does. O(ties log users).
std::optional<LayerIndex> tied_to(const ModelProfile& profile, LayerIndex layer);

/// Whether whoever runs those layers uses the tie's parameters, and whether someone else does.
struct TieSides {
  bool inside = false;
  bool outside = false;
};
/// O(users).
TieSides sides_of(const Tie& tie, LayerRange layers);

/// Time of `layer` for `samples` samples, scaled to a device by `time_scale`, rounded up to a whole
/// nanosecond. Two or more measurements: linear between them; above the largest the last slope, or
/// flat where that slope falls; below the smallest its time. One measurement: `scaling`, with the
/// layer's fixed overhead kept: h + (t0 - h) * b / b0.
/// O(measurements). Requires: samples >= 1; scaling if there is a single measurement, which an
/// imported or read profile then has.
Duration forward_time(const Layer& layer, std::int64_t samples, std::optional<BatchScaling> scaling,
                      Factor time_scale);
Duration backward_time(const Layer& layer, std::int64_t samples,
                       std::optional<BatchScaling> scaling, Factor time_scale);

/// The part of backward_time() that makes the gradient of the layer's input, and so may be run
/// before the rest, which makes that of its weights. Where the profile does not measure the parts,
/// it is half, rounded up, of the backward of a layer that uses parameters, its own or another's,
/// and all of it of one that uses none.
Duration input_gradient_time(const ModelProfile& profile, LayerIndex layer, std::int64_t samples,
                             Factor time_scale);

/// Sizes are proportional to samples, from the largest measured batch, rounded up to a whole byte.
/// O(1). Requires: samples >= 0.
Bytes output_size(const Layer& layer, std::int64_t samples);
Bytes stash_size(const Layer& layer, std::int64_t samples);
Bytes workspace_size(const Layer& layer, std::int64_t samples);

/// Positions of a graph in an order in which every node stands after its inputs; among the nodes
/// that are ready, the lowest position first, so an ordered list keeps its order. Nodes on or
/// behind a cycle are missing from the result. O(nodes + edges), times log nodes.
std::vector<std::int32_t> topological_order(const std::vector<std::vector<std::int32_t>>& inputs);

/// Figures of all layers for one number of samples on one kind of device, as prefix sums: the
/// figure of layers [begin, end) is prefix[end] - prefix[begin]. Building it is O(layers log layers
/// + inputs); every question is O(1). Ranges and cuts asked for lie within the model.
class LayerTable {
 public:
  /// Times as forward_time() and backward_time() give them. Requires: samples >= 1, layers in an
  /// order in which inputs come first.
  LayerTable(const ModelProfile& profile, std::int64_t samples, Factor time_scale);

  /// Sums over the layers: each layer's time or size is rounded up on its own.
  Duration forward(LayerRange layers) const { return difference(forward_, layers); }
  Duration backward(LayerRange layers) const { return difference(backward_, layers); }
  Duration input_gradient(LayerRange layers) const { return difference(input_gradient_, layers); }
  Bytes stash(LayerRange layers) const { return difference(stash_, layers); }

  /// Everything that layers before `cut` make and layers from `cut` on consume, each tensor once,
  /// however many stages further on its consumer is: it is handed on at every boundary.
  /// Zero at both ends of the model.
  Bytes boundary(std::int32_t cut) const { return boundary_[static_cast<std::size_t>(cut)]; }

  /// The largest workspace of one layer; zero for no layers.
  Bytes largest_workspace(LayerRange layers) const;

  /// What the table keeps, by the sizes of its elements. O(log layers).
  Bytes kept() const;

 private:
  template <class Quantity>
  static Quantity difference(const std::vector<Quantity>& prefix, LayerRange layers) {
    return prefix[static_cast<std::size_t>(layers.end)] -
           prefix[static_cast<std::size_t>(layers.begin)];
  }

  std::vector<Duration> forward_;
  std::vector<Duration> backward_;
  std::vector<Duration> input_gradient_;
  std::vector<Bytes> stash_;
  std::vector<Bytes> boundary_;
  std::vector<std::vector<Bytes>> workspace_;  // [k][layer]: the largest of 2^k layers from it on
};

}  // namespace dapple
