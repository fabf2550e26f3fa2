// How transfers and all-reduces get their time: `IsolatedTransport` without contention,
// `SharedTransport` over ports that all flows share. What they do not know at once they announce to
// the event queue.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "dapple/cost/all_reduce.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/simulate/shared_network.h"
#include "dapple/simulate/simulate.h"
#include "simulate/event_queue.h"
#include "simulate/transfer_parts.h"

namespace dapple::simulate {

/// A part of a transfer, to be made: what one lane sends over `boundary` at `ready`.
struct TransferRequest {
  std::int32_t part = 0;
  std::int32_t micro_batch = 0;
  std::int32_t boundary = 0;
  bool is_gradient = false;
  Duration ready;
  std::int32_t record = -1;  // position of its action in the timeline, or -1
};

/// An all-reduce: of a bucket of a stage, or of gradients that are tied.
struct Reduction {
  /// Who has one under way at a time: a stage, or, from the number of stages on, a tie.
  std::int32_t reducer = 0;
  std::int32_t bucket = 0;  // of a stage

  const AllReduceCost& cost(const PlanCost& costs) const {
    const auto position = static_cast<std::size_t>(reducer);
    return position < costs.stages.size()
               ? costs.stages[position].buckets[static_cast<std::size_t>(bucket)]
               : costs.ties[position - costs.stages.size()].reduction;
  }
};

class TransportLayer {
 public:
  virtual ~TransportLayer() = default;
  /// When all of it is there, if that is known at once and one lane waits for it; else arrivals are
  /// announced.
  virtual std::optional<Duration> send(const TransferRequest& request) = 0;
  virtual void reduce(const Reduction& reduction, Duration start) = 0;
  /// A flow that was forecast to end by now.
  virtual void flow_ended(const Event& event) = 0;
  /// Called when everything that happens at `now` has happened.
  virtual void settle(Ticks now) = 0;
};

/// Where a transport says what happens. `actions` of the timeline are filled in as starts and ends
/// become known; null: not recorded.
struct TransportOutput {
  EventQueue& queue;
  std::vector<TimedAction>* actions = nullptr;
};

/// What is transported: `parts` by boundary, and the all-reduces of the costs. Outlives the
/// transport.
struct TransportWork {
  const PlanCost& costs;
  const std::vector<BoundaryParts>& parts;
};

std::unique_ptr<TransportLayer> make_transport(const TransportWork& work, const Topology& topology,
                                               Contention contention, TransportOutput output);

}  // namespace dapple::simulate
