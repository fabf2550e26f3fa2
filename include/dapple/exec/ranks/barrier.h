// The barrier of a job's ranks. Every rank reports its arrival to rank 0, which releases the others
// once all have arrived.
#pragma once

#include <cstdint>
#include <set>

namespace dapple::exec {

/// One rank's view of the barriers of its job, which are numbered from 1. Requires: calls do not
/// run concurrently.
class Barrier {
 public:
  /// Counts a barrier that this rank has reached, and returns its number.
  std::uint64_t arrive() { return ++reached_; }

  /// Takes in the word of rank 0 that this barrier is over.
  void release(std::uint64_t number) { released_ = number; }
  bool is_released(std::uint64_t number) const { return released_ >= number; }

  /// Takes in, on rank 0, that a rank has arrived, which may be rank 0 itself. No rank arrives at
  /// the next barrier before it is released from this one.
  void note_arrival(int rank) { arrived_.insert(rank); }
  int arrivals() const { return static_cast<int>(arrived_.size()); }
  /// Returns the lowest rank that has not arrived, or the number of ranks if all have.
  int missing() const {
    int rank = 0;
    while (arrived_.count(rank) > 0) ++rank;
    return rank;
  }
  /// Ends the barrier on rank 0, so that arrivals are counted for the next one.
  void complete() { arrived_.clear(); }

 private:
  std::uint64_t reached_ = 0;
  std::uint64_t released_ = 0;
  std::set<int> arrived_;
};

}  // namespace dapple::exec
