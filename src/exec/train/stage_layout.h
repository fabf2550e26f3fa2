// Where the parameters of a stage's layers lie, in numbers from the first. Their gradients lie in
// the same order, and so does the optimizer's state, all arrays of a tensor together.
//
// Layer by layer from the last to the first, as a backward finishes them: the gradients of a bucket
// are neighbours, without gaps. Where a stage has no buckets, each tensor begins a cache line:
// vectorised sums depend on how their operands are aligned, and so must not depend on which other
// layers the stage has. Behind all of that lie, tie by tie, the tensors to whose gradients other
// stages add too, whichever stage's layer they belong to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/exec/message/all_reduce.h"
#include "dapple/exec/train/training_job.h"

namespace dapple::exec {

/// Where a tensor of a stage lies.
struct TensorPlace {
  std::string name;                 // "LAYER.PARAMETER"
  std::int32_t layer = 0;           // that it belongs to
  std::optional<std::int32_t> tie;  // in the plan's tied gradients, if its gradient is among them
  bool is_copy = false;             // of a layer's on another stage
  nn::Shape shape;
  ElementRange numbers;
};

struct StageLayout {
  /// O(tensors).
  StageLayout(const TrainingJob& job, StageIndex stage);

  std::vector<TensorPlace> places;  // in memory's order
  /// What one step of the optimizer changes at a time: buckets, or all layers, and ties.
  std::vector<ElementRange> stepped;

  /// Of all of them together.
  std::size_t size() const { return places.empty() ? 0 : places.back().numbers.end; }
  /// Those of layers that no other stage adds to, and those of a tie.
  ElementRange of(LayerRange layers) const;
  ElementRange of_tie(std::int32_t tie) const;
  /// A layer's own, tied or not; none of a copy.
  ElementRange own(std::int32_t layer) const;
};

/// From the layer that fills a bucket to the one that has filled the bucket before; all of the
/// stage's where there is no bucket.
LayerRange layers_of_bucket(const TrainingJob& job, StageIndex stage, std::int32_t bucket);

}  // namespace dapple::exec
