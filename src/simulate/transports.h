// The two transport layers of the simulator; what a transport layer is stands in transport.h.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "transport.h"

namespace dapple {

/// Every port of a boundary and direction serves that boundary's transfers in order, whatever else
/// goes on.
class IsolatedTransport : public TransportLayer {
 public:
  IsolatedTransport(const PlanCost& costs, EventQueue& queue, std::vector<TimedAction>* actions);

  void send(const TransferRequest& request) override;
  void reduce(std::int32_t stage, std::int32_t bucket, Duration start) override;
  void flow_ended(const Event&) override {}
  void settle(Ticks) override {}

 private:
  struct Lane {
    std::int32_t port = 0;  // position in Direction::free_from
    Ticks busy;
    Duration latency;
  };
  struct Direction {
    std::vector<std::vector<Lane>> patterns;  // of micro-batch m: m modulo their number
    std::vector<Ticks> free_from;
  };
  struct Boundary {
    Direction forward;
    Direction backward;
  };
  static Direction make_direction(const std::vector<TransferCost>& patterns);

  const PlanCost& costs_;
  EventQueue& queue_;
  std::vector<TimedAction>* actions_;
  std::vector<Boundary> boundaries_;
};

/// Every pair of a transfer and every phase of an all-reduce is a flow in one network, phases in
/// rounds. A device sends the transfers of a stream one after another, each to all its receivers at
/// once.
class SharedTransport : public TransportLayer {
 public:
  SharedTransport(const PlanCost& costs, const Topology& topology, EventQueue& queue,
                  std::vector<TimedAction>* actions);

  void send(const TransferRequest& request) override;
  void reduce(std::int32_t stage, std::int32_t bucket, Duration start) override;
  void flow_ended(const Event& event) override;
  void settle(Ticks now) override;

 private:
  /// One PairFlow, ready to be started again and again.
  struct PreparedFlow {
    FlowDemand demand;
    Wide work = 0;
    Duration latency;  // the largest through any of its ports: the transfer waits for all of it
    std::int32_t sender = 0;  // position in Sending::streams
  };
  struct Pattern {
    std::vector<PreparedFlow> flows;
    std::vector<std::int32_t> senders;  // distinct positions in Sending::streams
  };
  /// A transfer on its way.
  struct Transfer {
    TransferRequest request;
    const Pattern* pattern = nullptr;
    std::int32_t flows_left = 0;
    Duration arrival;
    Ticks first_start;
    bool started = false;
  };
  /// The stream of one device over one boundary in one direction.
  struct SendStream {
    std::deque<std::int32_t> waiting;  // transfers
    std::int32_t flows_left = 0;       // of the transfer being sent
  };
  struct Direction {
    std::vector<Pattern> patterns;
    std::vector<SendStream> streams;
  };
  struct Boundary {
    Direction forward;
    Direction backward;
  };
  /// What a flow in the network belongs to: a transfer, or the all-reduce of a stage.
  struct Owner {
    std::int32_t transfer = -1;
    std::int32_t stage = 0;
    const PreparedFlow* flow = nullptr;
  };
  /// The all-reduce of a stage that is under way; a stage has one at a time.
  struct RunningReduction {
    std::int32_t bucket = 0;
    std::size_t phase = 0;
    FlowDemand demand;  // of the phase
  };

  Direction make_direction(const std::vector<TransferCost>& patterns) const;
  FlowDemand demand_of(const AllReducePhase& phase) const;
  const AllReduceCost& cost_of(std::int32_t stage, std::int32_t bucket) const;
  void start_phase(std::int32_t stage, Ticks now);
  Direction& direction_of(const TransferRequest& request);
  void start_next(Direction& direction, std::int32_t stream, Ticks now);
  void own(std::int32_t flow, const Owner& owner);
  void finish(Transfer& transfer);

  const PlanCost& costs_;
  EventQueue& queue_;
  std::vector<TimedAction>* actions_;
  SharedNetwork network_;
  std::vector<Boundary> boundaries_;
  std::vector<RunningReduction> reductions_;  // by stage
  std::vector<Owner> owners_;                 // by flow
  std::vector<Transfer> transfers_;
  std::vector<std::int32_t> free_transfers_;
};

}  // namespace dapple
