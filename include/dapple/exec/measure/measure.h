// Times of a model's layers on cores or a GPU of this machine: what makes a profile of a
// specification.
//
// A pass runs layers forward and then, in the other order, backward: the first four of those with
// the same `op` and input, which count as one, so that each finds the caches as others left them.
// Batch sizes take turns, pass by pass, so that a machine that is slow for a while is so for all of
// them; and several cores may make passes at once, as the devices of a plan do that share memory
// and caches. Inputs are random; forward, gradient of the input and gradient of the weights are
// timed apart, and between passes the optimizer's step. On a GPU times are those between events:
// what the host takes to enqueue a layer counts only where the GPU has nothing else to do; and a
// layer's workspace is the most of the GPU's memory that was in use in a pass, beyond its stash,
// its output and the gradients of its input and output.
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
  std::vector<std::int64_t> batch_sizes{1, 2, 4, 8};  // ascending
  std::int64_t repeats = 15;   // passes of each size that count, after two that do not
  std::int64_t cores = 1;      // at once, each with passes of its own; medians are over all
  std::string device = "cpu";  // what topologies call it
  bool on_gpu = false;         // the first GPU of this machine, in place of cores
  cuda::Precision precision = cuda::Precision::Float32;  // of a GPU
  /// Asked after each pass, on each core: it ends with what it has. Before two passes have warmed
  /// it up, that is the last one alone.
  std::function<bool()> should_stop = {};
};

struct MeasuredLayer {
  std::string name;  // of the first of its kind
  std::int64_t copies = 1;
  std::vector<Measurement> measurements;  // medians; one for each batch size
  /// Half of the passes lie within a range this wide, as a share of the median: of the times of
  /// forward and backward together. One for each batch size.
  std::vector<double> spreads;
};

struct MeasuredModel {
  ModelProfile profile;               // which can be planned from, and still be run
  std::vector<MeasuredLayer> layers;  // distinct ones
  bool is_pinned = false;             // the system let each thread be bound to a core
  std::int64_t passes = 0;  // that count, on each core at least: fewer than asked for if stopped
};

/// Sizes of outputs and stashes are those of the tensors. The optimizer's step is timed on as many
/// parameters as the model has, up to four million. Throws Error(BadInput) where the layers do not
/// fit each other (make_model()), or the optimizer is none that runs here. Requires: at least one
/// batch size, each above zero and the one before; repeats and cores >= 1.
/// Throws Error(Usage) where this process may not use so many cores, Error(Environment) where it
/// has no GPU, or one without the memory.
MeasuredModel measure_model(const io::Specification& specification, const std::string& source_name,
                            const MeasureOptions& options);

/// Half of the passes should lie within so much of the median.
inline constexpr double kTrustedSpread = 0.2;

/// One line if some measurements spread by more than that, as on a machine that does other things
/// too, with how many they are and which is the widest; the first of equals. It becomes a warning
/// of the profile, and of the plans that are made from it.
std::vector<std::string> warn_of_spread(const std::vector<MeasuredLayer>& layers);

}  // namespace dapple::exec
