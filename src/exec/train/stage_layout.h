// The memory layout of a stage's parameters, as offsets in numbers. Gradients have the same layout,
// and so does the optimizer's state, with all arrays of a tensor together.
//
// Layers are in the order in which a backward finishes them, from the last to the first, so the
// gradients of a bucket are contiguous. If the stage has no buckets, each tensor begins a cache
// line: the rounding of vectorised sums depends on the alignment of their operands, and must not
// depend on which other layers the stage has. At the end, tie by tie, are the tensors whose
// gradients are tied with other stages, whichever stage's layer owns them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/exec/message/all_reduce.h"
#include "dapple/exec/train/training_job.h"

namespace dapple::exec {

/// A tensor of a stage and its place in memory.
struct TensorPlace {
  /// "LAYER.PARAMETER".
  std::string name;
  /// The layer that owns the tensor.
  std::int32_t layer = 0;
  /// The index in the plan's tied gradients, if the tensor's gradient is one of them.
  std::optional<std::int32_t> tie;
  /// Whether the layer that owns the tensor is on another stage.
  bool is_copy = false;
  nn::Shape shape;
  /// The tensor's range of numbers.
  ElementRange numbers;
};

struct StageLayout {
  /// O(tensors).
  StageLayout(const TrainingJob& job, StageIndex stage);

  /// The tensors in memory order.
  std::vector<TensorPlace> places;
  /// The ranges that single optimizer steps update: each bucket or all layers, and each tie.
  std::vector<ElementRange> stepped;

  /// Returns the size of the whole layout, in numbers.
  std::size_t size() const { return places.empty() ? 0 : places.back().numbers.end; }
  /// Returns the range of the untied tensors of layers, or of the tensors of a tie.
  ElementRange of(LayerRange layers) const;
  ElementRange of_tie(std::int32_t tie) const;
  /// Returns the range of the tensors that a layer owns, tied or not; empty if they are copies.
  ElementRange own(std::int32_t layer) const;
};

/// Returns the layers of a bucket, from the one that fills it up to the one that filled the bucket
/// before; all layers of the stage if it has no buckets.
LayerRange layers_of_bucket(const TrainingJob& job, StageIndex stage, std::int32_t bucket);

}  // namespace dapple::exec
