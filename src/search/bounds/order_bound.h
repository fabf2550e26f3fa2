// What the fixed order of 1F1B adds to the bound ((O1)-(O5) in docs/bounds.md): a large depth K
// lets the last forward start early, but delays the first backward until K forwards have arrived.
//
// A stage with depth K first runs K forwards, which arrive no faster than the slowest stage in
// front computes them or the slowest boundary in front transmits them; then all backwards and the
// other forwards follow. The last forward waits for all other forwards and for M - K backwards.
// Depths do not rise from stage to stage, so if a stage needs a large depth for its last forward to
// be in time, all stages in front of it have at least that depth.
// Source: the model of 1F1B in DAPPLE (PPoPP'21) section 3.2; the trade-off has no published
// source. The bound holds for GPipe, where K is M.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/search/bounds/bound.h"

namespace dapple::search {

/// One stage of a partial plan. All durations are lower bounds.
///
/// | member         | symbol, docs/bounds.md | unit | equations        |
/// | -------------- | ---------------------- | ---- | ---------------- |
/// | forward        | F                      | ns   | (O1) to (O4)     |
/// | backward       | B                      | ns   | (O1) to (O4)     |
/// | backward_pace  | P                      | ns   | (O2)             |
/// | start          | begin - before.end     | ns   | (O1) to (O4)     |
/// | round_trip     | RT                     | ns   | (O4)             |
/// | tail           | T                      | ns   | (O3)             |
/// | finish, back   | rest, way to u, rest_u | ns   | (O1), (O2), (O4) |
/// | most_in_flight | limit of s             | 1    | (O5)             |
/// | slowest_before | pace, with F           | ns   | (O1) to (O3)     |
struct OrderedStage {
  Duration forward;
  Duration backward;
  // The interval between consecutive backwards, including transfers over the boundary behind.
  Duration backward_pace;
  // The start of its first forward, counted from that of the partial plan.
  Duration start;
  // One micro-batch from the start of its forward here to the end of its backward here.
  Duration round_trip;
  // From the start of its last forward to the last optimizer step of this stage and those behind.
  Duration tail;
  // From the end of its last backward to the end of the last optimizer step of this stage or one in
  // front within the partial plan.
  Duration finish;
  // From the end of its last backward to that of the partial plan's first stage.
  Duration back;
  // Upper bound on its depth, or that of each of its lanes.
  std::int64_t most_in_flight = 1;
  // The slowest forward, or transfer of one micro-batch, in front of it within the partial plan.
  Duration slowest_before;
  // The lanes to which it deals its micro-batches.
  std::int64_t lanes = 1;
};

/// The boundary behind a stage. All durations are lower bounds.
///
/// | member        | symbol, docs/bounds.md | unit | equations      |
/// | ------------- | ---------------------- | ---- | -------------- |
/// | forward       | c                      | ns   | (O1) to (O4)   |
/// | backward      | d                      | ns   | (O1), (O2)     |
/// | forward_pace  | pace                   | ns   | (O1) to (O3)   |
/// | backward_pace | pace_back              | ns   | (O2)           |
struct BoundaryTimes {
  // One transfer.
  Duration forward;
  Duration backward;
  // The interval between consecutive transfers.
  Duration forward_pace;
  Duration backward_pace;
};

BoundaryTimes times_of(const BoundaryBound& boundary);

/// The stages of one partial plan, first to last.
class OrderedStages {
 public:
  const std::vector<OrderedStage>& list() const { return stages_; }

  /// Removes all stages; the memory is kept.
  void clear();

  /// Appends the stage behind those that are there. `boundary` is the one behind the new stage, all
  /// zero behind the last stage; `label` is that of the partial plan that begins with it, and the
  /// stage deals its micro-batches to so many lanes. O(1).
  void append(const StageBound& stage, const BoundaryTimes& boundary, const BoundLabel& label,
              std::int64_t lanes = 1);

 private:
  std::vector<OrderedStage> stages_;
  // Those of the next stage.
  Duration start_;
  Duration finish_;
  Duration back_;
  Duration slowest_before_;
};

/// What stands in front of the partial plan. All durations are lower bounds.
///
/// | member  | symbol, docs/bounds.md | unit | equations        |
/// | ------- | ---------------------- | ---- | ---------------- |
/// | end     | end of (C1), in begin  | ns   | (O1) to (O4)     |
/// | span    | span of (C1), in rest  | ns   | (O1), (O2), (O4) |
/// | slowest | slowest, in pace       | ns   | (O1) to (O3)     |
struct BeforePart {
  // The start of the partial plan's first forward.
  Duration end;
  // The same plus the time from the partial plan's last backward to the end of the iteration.
  Duration span;
  // The slowest forward, or transfer of one micro-batch.
  Duration slowest;
};

/// Returns a lower bound on the plan's time at all depths (O5). `stages` are first to last.
/// O(stages^2).
Duration bound_of_order(const std::vector<OrderedStage>& stages, const BeforePart& before,
                        std::int64_t num_micro_batches);

}  // namespace dapple::search
