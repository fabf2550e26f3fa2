// What a stage holds of its micro-batches between their forwards and the end of their backwards,
// and how much that is, over any mathematics (model_backend.h).
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
    typename Math::Tensor input;                // where the forward is run again
    std::vector<typename Math::Stash> stashes;  // by layer; none before the forward is run again
    Bytes size;                                 // when it was last accounted
  };

  /// Of a forward that begins.
  Kept& add(std::int32_t micro_batch) { return kept_[micro_batch]; }
  Kept& of(std::int32_t micro_batch) { return kept_.at(micro_batch); }

  /// Brings the books up to date once something of a micro-batch was made or given back.
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
