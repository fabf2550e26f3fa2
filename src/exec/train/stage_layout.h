// The memory layout of a stage's parameters on one replica, as offsets in numbers. Gradients have
// the same layout. The optimizer's state has the layout of what the replica updates: everything, or
// with sharded state (ZeRO stage 1) its shard of each bucket and of each tie, which may begin and
// end within a tensor. All state arrays of a tensor, or of the part of it that is updated here, are
// together. Where ranks of a group hold shards of all state (ZeRO stage 3), parameters and
// gradients are held in the same way: a shard of each layer and of each tie.
//
// Layers are in the order in which a backward finishes them, from the last to the first, so the
// gradients of a bucket are contiguous. Where ranks have different experts, these are behind all
// others of a bucket, as other ranks have copies of them. If the stage has no buckets, each tensor
// begins a cache line: the rounding of vectorised sums depends on the alignment of their operands,
// and must not depend on which other layers the stage has. At the end, tie by tie, are the tensors
// whose gradients are tied with other stages, whichever stage's layer owns them.
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
  /// What the tensor is a part of, where each tensor-parallel rank holds its own.
  std::optional<nn::ParameterPart> part;
  /// The tensor's range of numbers.
  ElementRange numbers;
  /// Whether each tensor-parallel rank computes a part of the gradient.
  bool is_summed_over_ranks = false;
  bool is_of_experts = false;

  /// The shape of the whole tensor.
  const nn::Shape& whole_shape() const { return part ? part->whole : shape; }
};

/// Numbers that the replica updates, and where their state begins, in numbers of one state array.
struct UpdatedRange {
  ElementRange numbers;
  std::size_t state = 0;
};

/// A part of a tensor that the replica updates, or all of it.
struct UpdatedPart {
  /// Indices in `places` and `updated` of the tensor and of the range that the part is of.
  std::size_t place = 0;
  std::size_t range = 0;
  ElementRange numbers;
  /// Where the part's state begins, in numbers of one state array.
  std::size_t state = 0;
};

/// Numbers that a group of replicas updates together, each its shard.
struct SharedRange {
  ElementRange numbers;
  ReductionGroup group;
};

/// Numbers that ranks of a group have copies of: all of the same parameters outside experts, or of
/// the same experts, in a bucket or a tie.
struct CopiedRange {
  ElementRange numbers;
  bool is_of_experts = false;
};

struct StageLayout {
  /// O(tensors * ranges). Requires: the device of the plan is a replica of the stage.
  StageLayout(const TrainingJob& job, StageIndex stage, const TrainingDevice& device);

  /// The number of the rank whose layout this is in its group of the stage. Ranges of numbers are
  /// the same on all ranks.
  std::int64_t rank;
  /// Whether parameters and gradients are shards.
  bool holds_shards;
  /// The tensors in memory order.
  std::vector<TensorPlace> places;
  /// Each bucket and each tie, if the stage's replicas shard the optimizer's state; otherwise none.
  /// If other ranks of the group hold the same, these are the parts that are the rank's own.
  std::vector<SharedRange> shared;
  /// Each bucket and each tie, if ranks of a group with equal parameters shard the optimizer's
  /// state, as far as there are any of these; otherwise none.
  std::vector<CopiedRange> copied;
  /// What single optimizer steps update, in memory order: the replica's shards of `shared`, or else
  /// each bucket or all layers, and each tie.
  std::vector<UpdatedRange> updated;
  /// The same by tensor, in memory order.
  std::vector<UpdatedPart> parts;

  /// Returns where the numbers of a range are held, as far as they are.
  ElementRange held(ElementRange numbers) const;
  /// Returns the first number of a range that is held; its begin if none is.
  std::size_t first_held(ElementRange numbers) const;
  /// Returns how many numbers are held.
  std::size_t held_size() const { return holds_shards ? state_size() : size(); }
  /// Returns the size of the whole layout, in numbers.
  std::size_t size() const { return places.empty() ? 0 : places.back().numbers.end; }
  /// Returns the size of one array of the state of all that the replica updates, in numbers.
  std::size_t state_size() const {
    return updated.empty() ? 0 : updated.back().state + updated.back().numbers.size();
  }
  /// Returns the range of the untied tensors of layers, or of the tensors of a tie.
  ElementRange of(LayerRange layers) const;
  ElementRange of_tie(std::int32_t tie) const;
  /// Returns the range of layers outside experts, and that of their experts, as far as there are
  /// any; a single one where shards are held, of which no rank has a copy. Requires: the layers are
  /// those of a bucket, or all of a stage without buckets.
  std::vector<CopiedRange> by_copies(LayerRange layers) const;
  /// The same of the tensors of which a layer is the owner. Requires: shards are held.
  std::vector<CopiedRange> by_copies_of_owner(std::int32_t layer) const;
  /// Returns the range of the tensors of which a layer is the owner, copies included.
  ElementRange of_owner(std::int32_t layer) const;
  /// Whether what is held, or updated, of a tensor is the same on an earlier rank of the group.
  bool is_repeated(const TensorPlace& place) const;

 private:
  void place_tensors(const TrainingJob& job, StageIndex stage);
  std::vector<LayerRange> placed_together(const TrainingJob& job, StageIndex stage) const;
  void choose_updated(const TrainingJob& job, StageIndex stage);
  void choose_sharded(const TrainingJob& job, StageIndex stage, const TrainingDevice& device);
  void choose_shards(const FormRank& own);
  void cut_parts();

  std::int64_t tensor_ranks_;
  std::int64_t expert_ranks_;
};

/// Whether the replicas of a stage, or ranks of a group that hold the same, each hold a shard of
/// the optimizer's state.
bool is_sharded(const TrainingJob& job, StageIndex stage);

/// Returns the part of a range that is in another one; empty if there is none.
ElementRange intersection(ElementRange a, ElementRange b);

/// Returns the layers of a bucket, from the one that fills it up to the one that filled the bucket
/// before; all layers of the stage if it has no buckets.
LayerRange layers_of_bucket(const TrainingJob& job, StageIndex stage, std::int32_t bucket);

}  // namespace dapple::exec
