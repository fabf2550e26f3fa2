// What a stage keeps of its micro-batches from their forward to the end of their backward, and its
// size. Math is as for ModelBackend.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "dapple/exec/train/training_backend.h"

namespace dapple::exec {

template <class Math>
class KeptStashes {
 public:
  struct Kept {
    /// The stage's input, if the stage recomputes and has not done so yet.
    typename Math::Tensor input;
    /// The layers' stashes; with recomputation empty until the forward is run again.
    std::vector<typename Math::Stash> stashes;
    /// The size at the last call of account().
    Bytes size;
  };

  /// Adds the entry of a micro-batch whose forward begins.
  Kept& add(std::int32_t micro_batch) { return kept_[micro_batch]; }
  Kept& of(std::int32_t micro_batch) { return kept_.at(micro_batch); }

  /// Updates the sizes after a tensor of the micro-batch was made or freed.
  void account(Kept& of_micro_batch) {
    Bytes now = Math::size_of(of_micro_batch.input);
    for (const typename Math::Stash& stash : of_micro_batch.stashes) now += Math::size_of(stash);
    held_ = held_ - of_micro_batch.size + now;
    of_micro_batch.size = now;
    most_.micro_batches = std::max(most_.micro_batches, static_cast<std::int64_t>(kept_.size()));
    most_.size = std::max(most_.size, held_);
  }

  void release(std::int32_t micro_batch) {
    held_ = held_ - kept_.at(micro_batch).size;
    kept_.erase(micro_batch);
  }

  Held most() const { return most_; }

 private:
  std::map<std::int32_t, Kept> kept_;  // by micro-batch
  Bytes held_;
  Held most_;
};

}  // namespace dapple::exec
