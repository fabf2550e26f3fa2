// What the fixed order of 1F1B adds to the bound: a depth K lets the last forward start early, but
// holds the first backward back until K forwards have arrived.
//
// A stage with depth K first runs K forwards, and they arrive no faster than the slowest stage
// before it makes them, or the slowest boundary lets them through; then all backwards and the other
// forwards follow. The last forward waits for all others and for M - K backwards. Depths do not
// rise from stage to stage, so what a stage needs for its last forward to be in time all stages
// before it pay for. Source: model of 1F1B in DAPPLE (PPoPP'21) section 3.2; the trade-off is ours.
// It holds for GPipe, where K is M.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple::search {

/// A stage of a part of a plan, first to last.
struct OrderedStage {
  Duration forward;
  Duration backward;
  Duration backward_pace;  // no faster do backwards follow each other, the boundary behind included
  Duration start;          // of its first forward, from that of the part
  Duration round_trip;     // of one micro-batch, from here to the end and back
  Duration tail;           // from the start of its last forward to the end of all
  Duration finish;         // from its last backward's end to the part's last optimizer step
  Duration back;           // from its last backward's end to that of the part's first stage
  std::int64_t most_in_flight = 1;  // its depth is at most that
  Duration slowest_before;          // forward in the part, or micro-batch over a boundary there
};

/// What stands before the part.
struct BeforePart {
  Duration end;      // to the start of the part's first forward
  Duration span;     // the same, and from the part's last backward to the end of all
  Duration slowest;  // forward
};

/// At least, whatever the depths. O(stages^2).
Duration bound_of_order(const std::vector<OrderedStage>& stages, const BeforePart& before,
                        std::int64_t num_micro_batches);

}  // namespace dapple::search
