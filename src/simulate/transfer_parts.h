// The participants of the transfers between two stages: the lanes that send parts of a micro-batch,
// each when it has its own part, and the lanes that wait for the parts that they need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/cost/transfer.h"
#include "dapple/schedule/schedule.h"

namespace dapple::simulate {

/// The place at which a lane receives inputs of one of its stages. Inboxes are numbered stage by
/// stage, lane by lane.
struct Inbox {
  LaneIndex lane;
  StageIndex stage;
};

/// The consecutive lanes of a stage, which share its micro-batches or the samples of each.
struct StageLanes {
  std::int32_t first = 0;
  std::int32_t count = 0;
  std::int32_t dealt_to = 1;
  std::int32_t first_inbox = 0;
};

/// One transfer. A part is what one lane sends; a receiver is one lane that waits.
struct TransferParts {
  struct Flow {
    std::int32_t part = 0;
    std::int32_t receiver = 0;
  };
  const TransferCost* cost = nullptr;
  // By part.
  std::vector<Bytes> sizes;
  // The inboxes of the receivers.
  std::vector<std::int32_t> receivers;
  // For each flow of `cost`, its part and receiver.
  std::vector<Flow> flows;
  // What a receiver gets of a part without a flow, ordered by part.
  std::vector<Flow> in_place;

  /// Returns the entries of `in_place` of one part. O(log in_place).
  std::span<const Flow> in_place_of(std::int32_t part) const;

  /// Whether one lane sends all of it, and one waits for all of it.
  bool is_whole() const { return sizes.size() == 1 && receivers.size() == 1; }
};

/// The transfers between two stages in one direction: micro-batch m uses entry m modulo their
/// number.
using DirectionParts = std::vector<TransferParts>;

/// Returns the position in a vector of the part, receiver, lane or the like of that number.
constexpr std::size_t at(std::int32_t number) {
  return static_cast<std::size_t>(number);
}

/// Returns the position of a micro-batch's entry. Usually there is one, for which the slow division
/// is skipped.
inline std::size_t entry_of(std::int32_t micro_batch, std::size_t entries) {
  return entries == 1 ? 0 : at(micro_batch) % entries;
}

/// The transfers between two stages, of which one consumes what the other one makes.
struct PairParts {
  StageIndex from;
  StageIndex to;
  DirectionParts forward;
  DirectionParts backward;
};

/// Returns the transfers of all pairs of stages: of each stage and the next one, and then those of
/// PlanCost::skips, in their order. Keeps pointers into `costs`. O(flows and receivers of all
/// transfers). Requires: if a stage has several lanes that share samples, each of its lanes has one
/// device, and so have those of the stages that it exchanges tensors with.
std::vector<PairParts> transfer_parts(const Schedule& schedule,
                                      const std::vector<StageLanes>& stages, const PlanCost& costs);

}  // namespace dapple::simulate
