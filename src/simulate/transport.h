// The interface of the layer that times transfers and all-reduces: `IsolatedTransport` without
// contention, `SharedTransport` over ports that all flows share. Times that are not known at once
// are announced to the event queue.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dapple/cost/plan_cost.h"
#include "dapple/simulate/reduction_scheduler.h"
#include "dapple/simulate/shared_network.h"
#include "dapple/simulate/simulate.h"
#include "simulate/event_queue.h"
#include "simulate/transfer_parts.h"

namespace dapple::simulate {

/// A request to send a part of a transfer: what one lane sends between two stages at `ready`.
struct TransferRequest {
  std::int32_t part = 0;
  std::int32_t micro_batch = 0;
  // The position of the two stages in TransportWork::parts.
  std::int32_t pair = 0;
  bool is_gradient = false;
  Duration ready;
  // The position of its action in the timeline, or -1.
  std::int32_t record = -1;
};

/// Collectives of a computation that all devices of a lane begin at `start`, each with its own
/// group.
struct CollectivesRequest {
  LaneIndex lane;
  /// What they take of the NIC of each device.
  NicUse use;
  /// Whether they are beside the computation; a lane has one of both kinds at a time.
  bool is_beside = false;
  Duration start;
};

class TransportLayer {
 public:
  virtual ~TransportLayer() = default;
  /// Sends a part. Returns the time of arrival if it is known at once and one lane waits for all of
  /// the transfer; otherwise arrivals are announced.
  virtual std::optional<Duration> send(const TransferRequest& request) = 0;
  virtual void reduce(const Reduction& reduction, Duration start) = 0;
  /// Runs collectives; their end is announced. Requires: they share links (Contention).
  virtual void communicate(const CollectivesRequest& request) = 0;
  /// Handles the event of a flow that was forecast to end now.
  virtual void flow_ended(const Event& event) = 0;
  /// Must be called after all events at `now`.
  virtual void settle(Ticks now) = 0;
};

/// The output of a transport: the event queue and the `actions` of the timeline, whose starts and
/// ends are filled in as they become known; null if actions are not recorded.
struct TransportOutput {
  EventQueue& queue;
  std::vector<TimedAction>* actions = nullptr;

  /// Announces that an inbox has all that it waits for of the transfer of `request`.
  void announce_arrival(const TransferRequest& request, std::int32_t inbox, Duration time) const {
    queue.announce(
        to_ticks(time),
        request.is_gradient ? Event::Kind::GradientArrived : Event::Kind::ActivationArrived, inbox,
        request.micro_batch);
  }
  /// Fills in when the send at that position of `actions` starts and ends: of what goes to several
  /// stages, the first start and the last end.
  void record(std::int32_t action, Ticks start, Duration end) const {
    if (actions == nullptr) return;
    TimedAction& timed = (*actions)[at(action)];
    timed.start = std::min(timed.start, round_up(start));
    timed.end = std::max(timed.end, end);
  }
};

/// The work of a transport: `parts` by pair of stages that exchange tensors, and the all-reduces
/// and collectives of the costs. It must outlive the transport.
struct TransportWork {
  const PlanCost& costs;
  const std::vector<PairParts>& parts;
  const std::vector<Lane>& lanes;
};

std::unique_ptr<TransportLayer> make_transport(const TransportWork& work, const Topology& topology,
                                               Contention contention, TransportOutput output);

}  // namespace dapple::simulate
