// The calls by which stages send and receive where transfers are not overlapped with computation
// (docs/model.md, section 10.12).
//
// Between two computations a lane sends the output of the one and receives the input of the other.
// Both are one call if they are with the same neighbour, else the lane sends first and then
// receives. A transfer begins when both of its lanes are in the calls that it belongs to; a call
// ends with the last of its transfers, and only then the lane goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "dapple/plan/action.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple::simulate {

/// A transfer over the boundary behind stage `boundary`.
struct BoundaryTransfer {
  std::size_t boundary = 0;
  bool is_gradient = false;
  std::int32_t micro_batch = 0;

  /// The stage that sends and the one that receives.
  std::size_t sender() const { return boundary + (is_gradient ? 1 : 0); }
  std::size_t receiver() const { return boundary + (is_gradient ? 0 : 1); }
};

class BlockingCalls {
 public:
  /// Requires: every stage is one lane. `transfers` is Blocking or Serial.
  BlockingCalls(std::size_t stages, Transfers transfers);

  /// The stage has ended the computation `done`, null at the beginning, and has `next` to do, null
  /// at the end. Requires: it is in no call.
  void enter(std::size_t stage, const Action* done, const Action* next);

  /// Whether the stage is in a call.
  bool is_blocked(std::size_t stage) const { return !calls_[stage].empty(); }

  /// Ends a transfer that has begun.
  void end(const BoundaryTransfer& transfer);

  /// Returns the transfers that begin now, each of them once. O(1) for each call that was entered
  /// and each transfer that was ended since.
  std::vector<BoundaryTransfer> take_begun();

 private:
  /// A transfer of a call, not yet ended, or none.
  struct Part {
    bool is_open = false;
    std::int32_t micro_batch = 0;
  };
  /// All transfers of a call are over the same boundary.
  struct Call {
    std::size_t boundary = 0;
    Part activation;
    Part gradient;

    Part& part(bool is_gradient) { return is_gradient ? gradient : activation; }
  };
  struct Boundary {
    bool carries_activation = false;
    bool carries_gradient = false;

    bool& carries(bool is_gradient) { return is_gradient ? carries_gradient : carries_activation; }
  };
  void begin_at(std::size_t boundary);
  /// Returns the stage's open part in its current call, or null.
  Part* open_part(std::size_t stage, std::size_t boundary, bool is_gradient);

  bool one_at_a_time_;
  /// By stage, its current call and those that follow before the next computation.
  std::vector<std::deque<Call>> calls_;
  std::vector<Boundary> boundaries_;
  std::vector<BoundaryTransfer> begun_;
};

}  // namespace dapple::simulate
