// The two transport layers of the simulator (interface in transport.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "simulate/transport.h"

namespace dapple::simulate {

/// A receiver of a transfer in progress, which waits for one or several arrivals.
struct PendingReceiver {
  // The number of loads or flows, and of inputs without one, that have not arrived.
  std::int32_t awaited = 0;
  Duration arrival;

  /// Notes that one of them arrives at `time`. Returns whether it was the last one.
  bool arrive(Duration time) {
    arrival = std::max(arrival, time);
    return --awaited == 0;
  }
};

/// What a transport keeps for two stages, by direction.
template <class Direction>
struct BothDirections {
  Direction forward;
  Direction backward;

  Direction& of(const TransferRequest& request) { return request.is_gradient ? backward : forward; }
};

/// A transport without contention: every port serves the transfers between two stages in one
/// direction in order, independently of everything else. It carries its share of a transfer in one
/// piece, as soon as all lanes that send through it have made their parts; a receiver that waits
/// for some of that piece waits for all of it.
class IsolatedTransport : public TransportLayer {
 public:
  IsolatedTransport(const TransportWork& work, TransportOutput output);

  std::optional<Duration> send(const TransferRequest& request) override;
  void reduce(const Reduction& reduction, Duration start) override;
  void communicate(const CollectivesRequest& request) override;
  void flow_ended(const Event&) override {}
  void settle(Ticks) override {}

 private:
  /// The load of a transfer on a port.
  struct Load {
    // The position of the port in Direction::free_from.
    std::int32_t port = 0;
    Ticks busy;
    Duration latency;
    // The parts that pass the port, and their receivers.
    std::vector<std::int32_t> parts;
    std::vector<std::int32_t> receivers;
  };
  /// A transfer of several parts or to several receivers, while it is in progress.
  struct Transfer {
    struct Part {
      std::int32_t record = -1;
      std::int32_t loads_left = 0;
      Ticks first_start = Ticks::infinite();
      Duration end;
    };
    std::vector<Part> parts;
    std::vector<PendingReceiver> receivers;
    // By load, the number of parts that have not been sent.
    std::vector<std::int32_t> parts_left;
    // The number of parts whose end is not known yet.
    std::int32_t left = 0;
  };
  struct Pattern {
    const TransferParts* transfer = nullptr;
    std::vector<Load> loads;

    // For transfers that are not whole, the loads of each part and the state before any part is
    // sent.
    std::vector<std::vector<std::int32_t>> loads_of_part;
    Transfer start;
  };
  struct Direction {
    // Micro-batch m uses pattern m modulo their number.
    std::vector<Pattern> patterns;
    std::vector<Ticks> free_from;
    // By micro-batch, the transfers in progress.
    std::map<std::int32_t, Transfer> on_the_way;
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

  const PlanCost& costs_;
  TransportOutput output_;
  std::vector<BothDirections<Direction>> pairs_;
};

/// A transport with contention: every pair of devices in a transfer, every phase of an all-reduce
/// and the collectives of each device in a pass are a flow in one network, phases in rounds. A
/// device sends the transfers of a stream one after another, each to all of its receivers at once.
class SharedTransport : public TransportLayer {
 public:
  SharedTransport(const TransportWork& work, const Topology& topology, TransportOutput output);

  std::optional<Duration> send(const TransferRequest& request) override;
  void reduce(const Reduction& reduction, Duration start) override;
  void communicate(const CollectivesRequest& request) override;
  void flow_ended(const Event& event) override;
  void settle(Ticks now) override;

 private:
  /// The constant data of the flow of one PairFlow.
  struct PreparedFlow {
    FlowDemand demand;
    Wide work = 0;
    // The largest latency of the transfer through any of the flow's ports.
    Duration latency;
    // The position of the sender in Direction::streams.
    std::int32_t sender = 0;
    TransferParts::Flow ends;
  };
  /// What one lane sends of a transfer.
  struct Part {
    std::int32_t record = -1;
    std::int32_t flows_left = 0;
    Duration arrival;
    Ticks first_start;
    bool started = false;
  };
  struct Pattern {
    const TransferParts* transfer = nullptr;
    // By the sender's position in streams.
    std::vector<std::vector<PreparedFlow>> flows;
    // By part, the distinct positions of its senders in streams.
    std::vector<std::vector<std::int32_t>> senders;
    // The state before any part is sent.
    std::vector<Part> parts;
    std::vector<PendingReceiver> receivers;
  };
  /// A transfer in progress.
  struct Transfer {
    // The request of its first part.
    TransferRequest request;
    const Pattern* pattern = nullptr;
    std::vector<Part> parts;
    std::vector<PendingReceiver> receivers;
    std::int32_t parts_left = 0;
  };
  /// The send queue of one device from one stage to another.
  struct SendStream {
    // The transfers that wait.
    std::deque<std::int32_t> waiting;
    // The unfinished flows of the transfer being sent.
    std::int32_t flows_left = 0;
  };
  struct Direction {
    std::vector<Pattern> patterns;
    std::vector<SendStream> streams;
    // By micro-batch, the transfers of several parts that are in progress.
    std::map<std::int32_t, std::int32_t> on_the_way;
  };
  /// The transfer or, if `transfer` is -1, the all-reduce to which a flow in the network belongs;
  /// if `reducer` is -1 too, the collectives.
  struct Owner {
    std::int32_t transfer = -1;
    std::int32_t reducer = -1;
    const PreparedFlow* flow = nullptr;
    std::int32_t collectives = -1;
  };
  /// The collectives of a lane, those beside computation or the others.
  struct Collectives {
    LaneIndex lane;
    // By device, of those that are under way or were last.
    std::vector<FlowDemand> demands;
    std::int32_t flows_left = 0;
  };
  struct RunningReduction {
    Reduction what;
    std::size_t phase = 0;
    // The demand of the current phase.
    FlowDemand demand;
  };

  static Direction make_direction(const DirectionParts& transfers);
  static Pattern make_pattern(const TransferParts& transfer,
                              const std::vector<DeviceIndex>& senders);
  FlowDemand demand_of(const AllReducePhase& phase) const;
  void add_collectives(const Lane& lane, LaneIndex index, const Topology& topology);
  void end_collectives(std::int32_t index, Ticks now);
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
  std::vector<BothDirections<Direction>> pairs_;
  std::vector<RunningReduction> reductions_;  // by reducer
  std::vector<Collectives> collectives_;      // by lane, those beside computation second
  std::vector<Owner> owners_;                 // by flow
  std::vector<Transfer> transfers_;
  std::vector<std::int32_t> free_transfers_;
};

}  // namespace dapple::simulate
