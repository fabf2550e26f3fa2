// Estimates the GPU memory that a device needs for training.

#include <algorithm>
#include <cstdint>
#include <variant>

#include "dapple/cuda/modules/module.h"
#include "dapple/cuda/modules/shared_layers.h"
#include "dapple/exec/gpu/cuda_backend.h"
#include "dapple/profile/model_profile.h"
#include "exec/train/local_stage.h"
#include "exec/train/stage_layout.h"

namespace dapple::exec {
namespace {

/// Adds a sixteenth for the rounding of allocations and for fragmentation.
Bytes with_gaps(Bytes size) {
  constexpr std::int64_t kShare = 16;
  return size + Bytes{size.count / kShare};
}

/// Whether the profile was measured on a GPU; only such profiles contain workspaces.
bool has_workspaces(const std::vector<Layer>& layers) {
  return std::ranges::any_of(layers, [](const Layer& layer) {
    return std::ranges::any_of(layer.measurements, [](const Measurement& measurement) {
      return measurement.workspace.count > 0;
    });
  });
}

/// Returns the largest workspace of the measured batches up to the first one with at least
/// `samples` samples, because parts of a workspace do not grow with the batch, contrary to the
/// memory model. Beyond the measured batches the memory model's value counts too.
Bytes measured_workspace(const Layer& layer, std::int64_t samples) {
  Bytes most;
  for (const Measurement& measurement : layer.measurements) {
    most = std::max(most, measurement.workspace);
    if (measurement.batch_size >= samples) return most;
  }
  return std::max(most, workspace_size(layer, samples));
}

/// The memory needed in addition to what the plan's memory model counts, while any one of a set of
/// layers computes.
class BesidePlan {
 public:
  explicit BesidePlan(const TrainingJob& job)
      : job_(job), is_measured_(has_workspaces(job.measured)) {}

  /// Adds a layer of a stage that a rank computes, `samples` samples at a time. `ends_stage` is
  /// true if the next layer belongs to another stage.
  void add_layer(std::int32_t number, const nn::LayerRank& rank, std::int64_t samples,
                 bool ends_stage) {
    const nn::ModelLayer& layer = job_.layer(number);
    const nn::ModelLayer& whole = (*job_.layers)[static_cast<std::size_t>(number)];
    const cuda::Precision precision = job_.settings.precision;
    const std::int64_t of_sample = samples * cuda::size_of(cuda::type_of(precision));
    const Bytes input{nn::count_of(layer.input) * of_sample};
    const Bytes output{nn::count_of(layer.output) * of_sample};
    gradients_ = std::max(gradients_, input + output);
    largest_ = std::max({largest_, input, output});
    const Layer& measured = job_.measured[static_cast<std::size_t>(number)];
    planned_ = std::max(planned_, workspace_size(measured, samples));
    // A head in another stage than its loss copies the scores, which the measurement did not
    // include.
    const bool is_cut_head = ends_stage && std::holds_alternative<LinearOperation>(layer.operation);
    workspace_ = std::max(
        workspace_, is_measured_ && !is_cut_head && rank.runs_whole_layers()
                        ? measured_workspace(measured, samples)
                        : cuda::workspace_of(layer.operation, with_samples(samples, whole.input),
                                             rank, precision));
  }

  /// If workspaces were measured, returns the part of them that the memory model does not include,
  /// plus the gradients of a layer's input and output, plus tensors that wait between stages of one
  /// device. Otherwise returns an estimate.
  Bytes size(bool has_several_stages) const {
    constexpr std::int64_t kHandedOver = 4;
    if (!is_measured_) return workspace_ + (2 + kHandedOver) * largest_;
    // Targets, losses and partial sums, and the rounding of small tensors.
    constexpr Bytes kSmallPieces{16 << 20};
    // A matrix product may take the maximum workspace of one product for a number of samples that
    // was not measured.
    return std::max(workspace_, planned_) - planned_ + gradients_ + kSmallPieces +
           cuda::kProductWorkspace + (has_several_stages ? kHandedOver : 0) * largest_;
  }

 private:
  const TrainingJob& job_;
  const bool is_measured_;
  // The largest sum of the input and output gradients of one layer.
  Bytes gradients_;
  // The largest single input or output.
  Bytes largest_;
  // The largest workspace according to the memory model.
  Bytes planned_;
  // The largest workspace as measured, or an upper bound.
  Bytes workspace_;
};

/// Returns the memory of the whole parameters and gradients of the largest layers that a rank
/// gathers, with copies of what is sent of them; nothing where it holds whole ones.
Bytes whole_layers(const StageLayout& layout, LayerRange layers, std::int64_t size) {
  if (!layout.holds_shards) return {};
  std::size_t most = 0;
  for (std::int32_t layer = layers.begin; layer < layers.end; ++layer) {
    most = std::max(most, layout.of_owner(layer).size());
  }
  std::size_t tied = 0;
  for (const TensorPlace& place : layout.places) {
    if (place.tie) tied += place.numbers.size();
  }
  constexpr std::int64_t kSinglePrecision = cuda::size_of(cuda::Type::Float32);
  return {static_cast<std::int64_t>(most + tied) * (size + 3 * kSinglePrecision)};
}

}  // namespace

CudaMemory cuda_memory(const TrainingJob& job, const TrainingDevice& device) {
  const std::int64_t size = cuda::size_of(cuda::type_of(job.settings.precision));
  Bytes copies;
  BesidePlan beside(job);
  int stages = 0;
  for (std::size_t s = 0; s < job.plan.stages.size(); ++s) {
    const auto own = local_stage(job, index_at<StageIndex>(s), device);
    if (!own) continue;
    ++stages;
    const LayerRange layers = own->plan.layers;
    const StageLayout layout(job, own->index, device);
    if (job.settings.precision != cuda::Precision::Float32) {
      copies += Bytes{static_cast<std::int64_t>(layout.held_size()) * size};
    }
    copies += whole_layers(layout, layers, size);
    for (std::int32_t number = layers.begin; number < layers.end; ++number) {
      beside.add_layer(number, device.in(own->plan.form).layers, own->samples.size(),
                       number + 1 == layers.end);
    }
  }
  CudaMemory memory{.planned = job.memory_of(device.device),
                    .workspace = copies + beside.size(stages > 1)};
  memory.workspace = with_gaps(memory.total()) - memory.planned;
  return memory;
}

}  // namespace dapple::exec
