// Flows that share ports max-min fair, as they start and end. Time is in ticks, a flow's work in
// rate * ticks, so that a flow that has its ports for itself ends exactly when its bytes divided by
// the bandwidth say.
//
// A port that has room for all that its flows could want at once is not crowded; it holds up
// nobody, and what happens to one of its flows does not matter to the others.
//
// A flow may come in rounds: when the work of one is done it pauses, and takes nothing of its
// ports, before the next. As long as none of its ports is crowded nothing can happen between its
// rounds, so they are passed over at once; where it was when one became crowded is then worked out,
// to the tick as if every round had been waited for.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/simulate/max_min.h"

namespace dapple::simulate {

/// rate * ticks that move one byte: 1024 for the rate's unit, 1024 * 10^9 for the ticks of a
/// second.
inline constexpr Wide kWorkPerByte =
    Wide{kRatePerBytePerSecond} * kTicksPerNanosecond * kNanosecondsPerSecond;

/// At its full rate a flow is done with k of its rounds after ceil(busy * k / count), pauses apart,
/// so that what a round's end was rounded by is made good by the next.
struct Rounds {
  std::int64_t count = 1;
  Ticks busy;
  Ticks pause;  // after each, the last too

  /// Of the first k rounds.
  Ticks busy_until(std::int64_t k) const { return {divide_up(Wide{busy.count} * k, count)}; }
  /// From the end of one round to that of a later one, at the full rate.
  Ticks between_ends(std::int64_t earlier, std::int64_t later) const {
    return {busy_until(later + 1).count - busy_until(earlier + 1).count +
            (later - earlier) * pause.count};
  }
};

class SharedNetwork {
 public:
  /// When something will happen to a flow, as things stand: its end, or that of a round or a pause.
  /// `version` tells it from earlier forecasts.
  struct Forecast {
    std::int32_t flow = 0;
    std::int32_t version = 0;
    Ticks at;
  };

  explicit SharedNetwork(std::vector<Rate> capacities);

  /// A flow that starts at `now`; `demand` must outlive it. Its rate is known after settle().
  /// Requires: work > 0, demand.cap > 0.
  std::int32_t start(Ticks now, const FlowDemand& demand, Wide work);

  /// The same in rounds. Requires: demand.cap > 0, and every port lets that much through.
  std::int32_t start_rounds(Ticks now, const FlowDemand& demand, const Rounds& rounds);

  /// Whether this forecast still holds and was that of the flow's end; if so, the flow is over.
  bool end(Ticks now, std::int32_t flow, std::int32_t version);

  bool needs_settling() const { return !dirty_.empty() || !changed_.empty(); }

  /// Shares the ports anew after what happened at `now`, and returns the forecasts that changed.
  /// O(flows connected with a changed one through crowded ports, squared).
  const std::vector<Forecast>& settle(Ticks now);

  Rate capacity(PortIndex port) const { return capacities_[port.position()]; }

  /// What a port carries since it was last settled, in rate, rounded down.
  Rate carried(PortIndex port) const;

 private:
  struct Flow {
    const FlowDemand* demand = nullptr;
    Wide work = 0;  // left at `since`, of the round if there are several
    Rate rate = 0;
    Ticks since;
    std::int32_t version = 0;
    std::int32_t mark = 0;  // of the round of settle() that saw it last
    bool active = false;
    bool in_rounds = false;
    Rounds rounds;
    std::int64_t round = 0;  // that it is in, or pauses after
    bool pauses = false;
    Ticks pause_end;
    Ticks forecast{-1};
    bool is_over() const { return in_rounds && round == rounds.count; }
  };

  std::int32_t add_flow(Ticks now, const FlowDemand& demand);
  bool is_crowded(PortIndex port) const { return room_[port.position()] < 0; }
  void collect(std::int32_t index);
  void collect_from(PortIndex port);
  void collect_connected();
  Rate rate_alone(const FlowDemand& demand) const;
  bool is_held_up(const Flow& flow) const;
  void set_rate(std::int32_t index, Rate rate, Ticks now);
  void set_rounds_rate(std::int32_t index, Rate rate, Ticks now);
  void foresee(std::int32_t index, Ticks at);
  static void progress(Flow& flow, Ticks now);
  static void progress_in_rounds(Flow& flow, Ticks now);
  static void pass_rounds(Flow& flow, Ticks now);
  static Ticks end_at_full_rate(const Flow& flow);

  std::vector<Rate> capacities_;
  std::vector<Flow> flows_;
  std::vector<std::int32_t> free_;                  // positions in flows_ that may be used again
  std::vector<std::vector<std::int32_t>> on_port_;  // active flows per port
  // Per port, what it has beyond all that they want, in rate * weight.
  std::vector<Wide> room_;
  std::vector<std::int32_t> port_mark_;
  std::vector<PortIndex> dirty_;            // ports crowded before or after a change
  std::vector<std::int32_t> changed_;       // flows that started, paused or went on
  std::vector<std::int32_t> connected_;     // flows to be shared anew
  std::vector<const FlowDemand*> demands_;  // of those that do not pause
  MaxMinSolver solver_;
  std::vector<Forecast> forecasts_;
  std::int32_t round_ = 0;
};

}  // namespace dapple::simulate
