// A network of flows that start and end at any time and share ports max-min fairly. Time is in
// ticks and a flow's work in rate * ticks, so that a flow that does not share its ports ends
// exactly when its bytes divided by the bandwidth are through.
//
// A port whose capacity suffices for the caps of all its flows is not crowded: it limits none of
// them, and a change of one of its flows does not affect the others.
//
// A flow may run in rounds: when the work of a round is done, the flow pauses and takes nothing of
// its ports before the next round. As long as none of its ports is crowded nothing can happen
// between its rounds, so they are skipped at once. When a port becomes crowded, the state of the
// flow at that moment is computed exactly, to the tick as if every round had been simulated.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/simulate/max_min.h"

namespace dapple::simulate {

/// The rate * ticks that move one byte: 1024 for the unit of rates times 1024 * 10^9 ticks per
/// second.
inline constexpr Wide kWorkPerByte =
    Wide{kRatePerBytePerSecond} * kTicksPerNanosecond * kNanosecondsPerSecond;

/// The rounds of a flow. At its full rate, a flow has completed k rounds after ceil(busy * k /
/// count), pauses not counted, so that rounding errors of rounds do not add up.
struct Rounds {
  std::int64_t count = 1;
  Ticks busy;
  /// The pause after each round, the last included.
  Ticks pause;

  /// Returns the time of the first k rounds at the full rate, without pauses.
  Ticks busy_until(std::int64_t k) const { return {divide_up(Wide{busy.count} * k, count)}; }
  /// Returns the time from the end of one round to that of a later one, at the full rate.
  Ticks between_ends(std::int64_t earlier, std::int64_t later) const {
    return {busy_until(later + 1).count - busy_until(earlier + 1).count +
            (later - earlier) * pause.count};
  }
};

class SharedNetwork {
 public:
  /// When a flow will change next if nothing else happens: its own end, or that of a round or a
  /// pause. `version` distinguishes it from earlier forecasts of the flow.
  struct Forecast {
    std::int32_t flow = 0;
    std::int32_t version = 0;
    Ticks at;
  };

  explicit SharedNetwork(std::vector<Rate> capacities);

  /// Starts a flow at `now` and returns its index; `demand` must outlive it. Its rate is known
  /// after settle(). Requires: work > 0, demand.cap > 0.
  std::int32_t start(Ticks now, const FlowDemand& demand, Wide work);

  /// Starts a flow in rounds. Requires: demand.cap > 0, and every port has capacity for it.
  std::int32_t start_rounds(Ticks now, const FlowDemand& demand, const Rounds& rounds);

  /// Handles a forecast that is due. Returns whether the forecast is current and the flow is over.
  bool end(Ticks now, std::int32_t flow, std::int32_t version);

  bool needs_settling() const { return !dirty_.empty() || !changed_.empty(); }

  /// Computes the rates anew after what happened at `now` and returns the forecasts that changed.
  /// O((flows connected with a changed one through crowded ports)^2).
  const std::vector<Forecast>& settle(Ticks now);

  Rate capacity(PortIndex port) const { return capacities_[port.position()]; }

  /// Returns the total rate through a port as of the last settle(), rounded down.
  Rate carried(PortIndex port) const;

 private:
  struct Flow {
    const FlowDemand* demand = nullptr;
    // The work left at `since`: of the current round if the flow runs in rounds.
    Wide work = 0;
    Rate rate = 0;
    Ticks since;
    std::int32_t version = 0;
    // The number of the call of settle() that last visited the flow.
    std::int32_t last_visit = 0;
    bool active = false;
    bool in_rounds = false;
    Rounds rounds;
    // The current round, or the one after which the flow pauses.
    std::int64_t round = 0;
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
  // The positions in flows_ that may be reused.
  std::vector<std::int32_t> free_;
  // The active flows of each port.
  std::vector<std::vector<std::int32_t>> on_port_;
  // Per port, its capacity less the caps of its flows, in rate * weight.
  std::vector<Wide> room_;
  // Per port, the number of the call of settle() that last visited it.
  std::vector<std::int32_t> last_visit_of_port_;
  // The ports that were crowded before or after a change.
  std::vector<PortIndex> dirty_;
  // The flows that started, paused or continued.
  std::vector<std::int32_t> changed_;
  // The flows whose rates are to be computed anew.
  std::vector<std::int32_t> connected_;
  // The demands of those that do not pause.
  std::vector<const FlowDemand*> demands_;
  MaxMinSolver solver_;
  std::vector<Forecast> forecasts_;
  // The number of calls of settle() so far.
  std::int32_t visit_ = 0;
};

}  // namespace dapple::simulate
