// Who takes part in the transfers over a boundary: the lanes that send parts of a micro-batch, each
// when it has its own, and the lanes that wait for what they need of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dapple/cost/plan_cost.h"
#include "dapple/cost/transfer.h"
#include "dapple/schedule/schedule.h"

namespace dapple::simulate {

/// Where what a lane receives for one of its stages arrives: numbered stage by stage, lane by lane.
struct Inbox {
  std::int32_t lane = 0;
  std::int32_t chunk = 0;  // which of the lane's stages it is
};

/// Lanes of a stage, one after another. They share out its micro-batches, or the samples of each.
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
  std::vector<Bytes> sizes;             // by part
  std::vector<std::int32_t> receivers;  // inboxes
  std::vector<Flow> flows;              // of the cost's flows, one by one
  std::vector<Flow> in_place;  // what gets from a part to a receiver without a flow; by part

  /// O(log in_place).
  std::span<const Flow> in_place_of(std::int32_t part) const;

  /// One lane sends all of it, and one waits for all of it.
  bool is_whole() const { return sizes.size() == 1 && receivers.size() == 1; }
};

/// Transfers over a boundary in one direction: of micro-batch m, entry m modulo their number.
using DirectionParts = std::vector<TransferParts>;

/// Which of so many entries it is. Most have one, and a division takes its time.
inline std::size_t entry_of(std::int32_t micro_batch, std::size_t entries) {
  return entries == 1 ? 0 : static_cast<std::size_t>(micro_batch) % entries;
}

struct BoundaryParts {
  DirectionParts forward;
  DirectionParts backward;
};

/// By boundary. Keeps pointers into `costs`. O(flows and receivers of all transfers).
/// Requires: where a stage has several lanes that share samples, each has one device, and so have
/// those of the stages beside it.
std::vector<BoundaryParts> transfer_parts(const Schedule& schedule,
                                          const std::vector<StageLanes>& stages,
                                          const PlanCost& costs);

}  // namespace dapple::simulate
