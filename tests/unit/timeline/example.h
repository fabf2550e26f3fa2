// A timeline worked out by hand.
#pragma once

#include "dapple/timeline/timeline.h"

namespace dapple::small {

inline constexpr LaneIndex kLane0{0};
inline constexpr LaneIndex kLane1{1};

/// On lane s is stage s.
inline TimedAction timed(LaneIndex lane, Action action, std::int64_t start, std::int64_t end) {
  action.stage = StageIndex{lane.value};
  return {.lane = lane, .action = action, .start = {start}, .end = {end}, .size = {}};
}

/// Two stages, the first on two devices, two micro-batches, 1F1B with depths 2 and 1; a forward
/// takes 10 on both, a backward 20, a transfer 5, the all-reduce 7 and the first stage's step 3.
///
///   lane 0   F0 0-10  F1 10-20              B0 50-70  B1 80-100  reduce 100-107  step 107-110
///   lane 1            F0 15-25  B0 25-45    F1 45-55  B1 55-75
///
/// B0's gradient arrives at 45 + 5 = 50, B1's at 75 + 5 = 80.
inline Timeline two_stages() {
  using K = ActionKind;
  Timeline timeline;
  timeline.lanes = {{{StageIndex{0}}, {DeviceIndex{0}, DeviceIndex{1}}},
                    {{StageIndex{1}}, {DeviceIndex{2}}}};
  timeline.actions = {timed(kLane0, {K::Forward, 0}, 0, 10),
                      timed(kLane0, {K::Forward, 1}, 10, 20),
                      timed(kLane0, {K::SendActivation, 0}, 10, 15),
                      timed(kLane1, {K::Forward, 0}, 15, 25),
                      timed(kLane0, {K::SendActivation, 1}, 20, 25),
                      timed(kLane1, {K::Backward, 0}, 25, 45),
                      timed(kLane1, {K::Forward, 1}, 45, 55),
                      timed(kLane1, {K::SendGradient, 0}, 45, 50),
                      timed(kLane0, {K::Backward, 0}, 50, 70),
                      timed(kLane1, {K::Backward, 1}, 55, 75),
                      timed(kLane1, {K::SendGradient, 1}, 75, 80),
                      timed(kLane0, {K::Backward, 1}, 80, 100),
                      timed(kLane0, {K::AllReduce, 0}, 100, 107),
                      timed(kLane0, {K::OptimizerStep, 0}, 107, 110)};
  return timeline;
}

}  // namespace dapple::small
