// The two transport layers of the simulator; what a transport layer is stands in transport.h.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "simulate/transport.h"

namespace dapple::simulate {

/// Every port of a boundary and direction serves that boundary's transfers in order, whatever else
/// goes on. It carries what it has of a transfer in one piece, as soon as all lanes that send
/// through it have made their parts; who waits for some of it waits for all of it.
class IsolatedTransport : public TransportLayer {
 public:
  IsolatedTransport(const TransportWork& work, TransportOutput output);

  std::optional<Duration> send(const TransferRequest& request) override;
  void reduce(const Reduction& reduction, Duration start) override;
  void flow_ended(const Event&) override {}
  void settle(Ticks) override {}

 private:
  /// What a transfer takes of a port.
  struct Load {
    std::int32_t port = 0;  // position in Direction::free_from
    Ticks busy;
    Duration latency;
    std::vector<std::int32_t> parts;  // that go through it
    std::vector<std::int32_t> receivers;
  };
  /// A transfer of several parts or to several receivers, while it is on its way.
  struct Transfer {
    struct Part {
      std::int32_t record = -1;
      std::int32_t loads_left = 0;
      Ticks first_start{INT64_MAX};
      Duration end;
    };
    struct Receiver {
      std::int32_t awaited = 0;  // loads, and what gets there without a flow
      Duration arrival;
    };
    std::vector<Part> parts;
    std::vector<Receiver> receivers;
    std::vector<std::int32_t> parts_left;  // by load
    std::int32_t left = 0;                 // parts that are not over
  };
  struct Pattern {
    const TransferParts* transfer = nullptr;
    std::vector<Load> loads;
    // Of transfers that are not whole:
    std::vector<std::vector<std::int32_t>> loads_of_part;
    Transfer start;  // as it is before any part is sent
  };
  struct Direction {
    std::vector<Pattern> patterns;  // of micro-batch m: m modulo their number
    std::vector<Ticks> free_from;
    std::map<std::int32_t, Transfer> on_the_way;  // by micro-batch
  };
  struct Boundary {
    Direction forward;
    Direction backward;
  };
  struct Service {
    Ticks start;
    Duration arrival;
  };
  static Direction make_direction(const DirectionParts& transfers);
  static void name_ends(Pattern& pattern);
  static Service serve(Direction& direction, const Load& load, Duration ready);
  Duration send_whole(Direction& direction, const Pattern& pattern, const TransferRequest& request);
  void send_part(Direction& direction, const Pattern& pattern, const TransferRequest& request);
  void arrive(std::int32_t inbox, Duration moment, const TransferRequest& request);
  void record(std::int32_t action, Ticks start, Duration end);

  const PlanCost& costs_;
  TransportOutput output_;
  std::vector<Boundary> boundaries_;
};

/// Every pair of a transfer and every phase of an all-reduce is a flow in one network, phases in
/// rounds. A device sends the transfers of a stream one after another, each to all its receivers at
/// once.
class SharedTransport : public TransportLayer {
 public:
  SharedTransport(const TransportWork& work, const Topology& topology, TransportOutput output);

  std::optional<Duration> send(const TransferRequest& request) override;
  void reduce(const Reduction& reduction, Duration start) override;
  void flow_ended(const Event& event) override;
  void settle(Ticks now) override;

 private:
  /// One PairFlow, ready to be started again and again.
  struct PreparedFlow {
    FlowDemand demand;
    Wide work = 0;
    Duration latency;  // the largest through any of its ports: the transfer waits for all of it
    std::int32_t sender = 0;  // position in Sending::streams
    TransferParts::Flow ends;
  };
  /// What one lane sends.
  struct Part {
    std::int32_t record = -1;
    std::int32_t flows_left = 0;
    Duration arrival;
    Ticks first_start;
    bool started = false;
  };
  struct Receiver {
    std::int32_t awaited = 0;  // flows, and what gets there without one
    Duration arrival;
  };
  struct Pattern {
    const TransferParts* transfer = nullptr;
    std::vector<std::vector<PreparedFlow>> flows;    // by position of the sender in streams
    std::vector<std::vector<std::int32_t>> senders;  // by part: distinct positions in streams
    std::vector<Part> parts;                         // as they are before they are sent
    std::vector<Receiver> receivers;
  };
  /// A transfer on its way.
  struct Transfer {
    TransferRequest request;  // the first part's
    const Pattern* pattern = nullptr;
    std::vector<Part> parts;
    std::vector<Receiver> receivers;
    std::int32_t parts_left = 0;
  };
  /// The stream of one device over one boundary in one direction.
  struct SendStream {
    std::deque<std::int32_t> waiting;  // transfers
    std::int32_t flows_left = 0;       // of the transfer being sent
  };
  struct Direction {
    std::vector<Pattern> patterns;
    std::vector<SendStream> streams;
    std::map<std::int32_t, std::int32_t> on_the_way;  // transfers of several parts, by micro-batch
  };
  struct Boundary {
    Direction forward;
    Direction backward;
  };
  /// What a flow in the network belongs to: a transfer, or an all-reduce.
  struct Owner {
    std::int32_t transfer = -1;
    std::int32_t reducer = 0;
    const PreparedFlow* flow = nullptr;
  };
  struct RunningReduction {
    Reduction what;
    std::size_t phase = 0;
    FlowDemand demand;  // of the phase
  };

  static Direction make_direction(const DirectionParts& transfers);
  static Pattern make_pattern(const TransferParts& transfer,
                              const std::vector<DeviceIndex>& senders);
  FlowDemand demand_of(const AllReducePhase& phase) const;
  void start_phase(std::int32_t reducer, Ticks now);
  Direction& direction_of(const TransferRequest& request);
  std::int32_t transfer_of(Direction& direction, const Pattern& pattern,
                           const TransferRequest& request);
  std::int32_t begin(const Pattern& pattern, const TransferRequest& request);
  void start_next(Direction& direction, std::int32_t stream, Ticks now);
  void own(std::int32_t flow, const Owner& owner);
  void arrive(Transfer& transfer, std::int32_t receiver, Duration moment);
  void finish(std::int32_t transfer, std::int32_t part);

  const PlanCost& costs_;
  TransportOutput output_;
  SharedNetwork network_;
  std::vector<Boundary> boundaries_;
  std::vector<RunningReduction> reductions_;  // by reducer
  std::vector<Owner> owners_;                 // by flow
  std::vector<Transfer> transfers_;
  std::vector<std::int32_t> free_transfers_;
};

}  // namespace dapple::simulate
