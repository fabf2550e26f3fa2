// Measures the times of a model's layers on cores or a GPU of this machine, which turns a
// specification into a profile.
//
// A pass runs the layers forward and then in reverse order backward. Layers with the same `op` and
// input shape are measured as one kind; the first four of each kind are run, so that each finds the
// caches as other layers left them. Batch sizes alternate within each pass, so a temporary slowdown
// of the machine affects all of them, and several cores may make passes at the same time, like
// devices of a plan that share memory and caches. Inputs are random. Forward, input gradient and
// weight gradient are timed separately, and the optimizer's step between passes. On a GPU, times
// are those between events, so the host's time to enqueue a layer counts only if the GPU is idle;
// a layer's workspace is the peak of the GPU's memory during the layer beyond its stash, its output
// and the gradients of its input and output.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cuda/memory/tensor.h"
#include "dapple/io/documents/specification.h"
#include "dapple/profile/model_profile.h"

namespace dapple::exec {

struct MeasureOptions {
  /// In ascending order.
  std::vector<std::int64_t> batch_sizes{1, 2, 4, 8};
  /// The passes that count, after two warm-up passes.
  std::int64_t repeats = 15;
  /// The most passes that count. Passes are made in rounds of `repeats` until the medians are
  /// stable (kTrustedDrift), on all cores, or there are as many as this; one round if this is less.
  std::int64_t most_repeats = 0;
  /// The cores that make passes at the same time; medians are over the passes of all cores.
  std::int64_t cores = 1;
  /// The degrees of tensor and of context parallelism for which variants of the layers are measured
  /// besides: each layer as one rank runs it, for each of them and for pairs of
  /// both, without sequence parallelism and with it, and without the collectives, which are
  /// counted.
  std::vector<std::int64_t> tensor_degrees = {};
  std::vector<std::int64_t> context_degrees = {};
  /// The degrees of expert parallelism, for each of these forms and for whole layers, where ranks
  /// then have different positions: of tensor-parallel ones those with sequence parallelism. On
  /// cores only.
  std::vector<std::int64_t> expert_degrees = {};
  /// Whether there are variants, too, in which tensor-parallel ranks have a part each of every
  /// expert.
  bool divides_experts = false;
  /// The sets of parts of blocks that variants compute again, for each of these forms and for whole
  /// layers.
  std::vector<RecomputedParts> recomputes = {};
  /// The device's name in topologies.
  std::string device = "cpu";
  /// Whether to measure on the first GPU of this machine instead of cores.
  bool on_gpu = false;
  /// The precision on a GPU.
  cuda::Precision precision = cuda::Precision::Float32;
  /// Called after each pass, on each core; if it returns true, the core stops with the passes
  /// counted so far, or during warm-up with only the last pass.
  std::function<bool()> should_stop = {};
};

/// The measurements of one kind of layers.
struct MeasuredLayer {
  /// The name of the first layer of the kind, and the form of parallelism of a variant.
  std::string name;
  bool is_variant = false;
  std::int64_t copies = 1;
  /// The medians, for each batch size.
  std::vector<Measurement> measurements;
  /// The interquartile range of the passes' times of forward and backward together, divided by
  /// their median, for each batch size.
  std::vector<double> spreads;
};

/// Medians are stable if those of the first and of the second half of the passes differ by no more
/// than this share of a pass, added up over the layers, for every batch size.
inline constexpr double kTrustedDrift = 0.02;

/// Returns by which share of a pass the medians of the first and of the second half of the passes
/// differ, added up over the layers; 0 for fewer than four passes. `times` are those of whole
/// passes, by layer. O(passes). Requires: as many passes of each layer.
double drift_of(const std::vector<std::vector<Duration>>& times);

struct MeasuredModel {
  /// The measured profile, from which plans can be made and which can still be run.
  ModelProfile profile;
  /// The distinct layers, one entry for each kind, and behind them those of each form of
  /// parallelism, which is in their names.
  std::vector<MeasuredLayer> layers;
  /// Whether the system allowed each thread to be pinned to a core.
  bool is_pinned = false;
  /// The smallest number of counted passes on any core; fewer than requested if stopped.
  std::int64_t passes = 0;
  /// Whether should_stop() ended the passes.
  bool was_stopped = false;
};

/// Measures a model. Sizes of outputs and stashes are those of the tensors. The optimizer's step is
/// timed on as many parameters as the model has, up to four million. Requires: at least one batch
/// size, above zero and strictly ascending; repeats and cores >= 1; degrees above one, and none on
/// a GPU. Throws Error(BadInput) if the layers do not fit each other (make_model()), ranks cannot
/// share them (nn::share_model()) or the optimizer is not implemented here, Error(Usage) if this
/// process may not use so many cores, and Error(Environment) if there is no GPU or its memory is
/// too small.
MeasuredModel measure_model(const io::Specification& specification, const std::string& source_name,
                            const MeasureOptions& options);

/// The largest spread (MeasuredLayer::spreads) of measurements that can be trusted.
inline constexpr double kTrustedSpread = 0.2;

/// Returns one line if some measurements spread by more than kTrustedSpread, as on a busy machine,
/// with their number and the widest one, of equals the first. It becomes a warning of the profile
/// and of the plans that are made from it.
std::vector<std::string> warn_of_spread(const std::vector<MeasuredLayer>& layers);

}  // namespace dapple::exec
