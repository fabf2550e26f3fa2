// Flows that share ports max-min fair, as they start and end. Time is in ticks, a flow's work in
// rate * ticks, so that a flow that has its ports for itself ends exactly when its bytes divided by
// the bandwidth say.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/simulate/max_min.h"

namespace dapple {

/// rate * ticks that move one byte: 1024 for the rate's unit, 1024 * 10^9 for the ticks of a
/// second.
inline constexpr Wide kWorkPerByte =
    Wide{kRatePerBytePerSecond} * kTicksPerNanosecond * kNanosecondsPerSecond;

class SharedNetwork {
 public:
  /// When a flow will end, as things stand. `version` tells it from earlier forecasts.
  struct Forecast {
    std::int32_t flow = 0;
    std::int32_t version = 0;
    Ticks end;
  };

  explicit SharedNetwork(std::vector<Rate> capacities);

  /// A flow that starts at `now`; `demand` must outlive it. Its rate is known after settle().
  /// Requires: work > 0, demand.cap > 0.
  std::int32_t start(Ticks now, const FlowDemand& demand, Wide work);

  /// Whether this forecast of the flow's end still holds; if so, the flow is over.
  bool end(Ticks now, std::int32_t flow, std::int32_t version);

  bool needs_settling() const { return !dirty_.empty(); }

  /// Shares the ports anew after starts and ends at `now`, and returns the forecasts that changed.
  /// O(flows connected with a changed one through ports, squared).
  const std::vector<Forecast>& settle(Ticks now);

  Rate capacity(PortIndex port) const { return capacities_[port.position()]; }

  /// What a port carries at the moment, in rate, rounded down.
  Rate carried(PortIndex port) const;

 private:
  struct Flow {
    const FlowDemand* demand = nullptr;
    Wide work = 0;  // left at `since`
    Rate rate = 0;
    Ticks since;
    std::int32_t version = 0;
    std::int32_t mark = 0;  // of the round of settle() that saw it last
    bool active = false;
  };

  void collect_connected();
  Rate rate_alone(const FlowDemand& demand) const;
  void set_rate(std::int32_t index, Rate rate, Ticks now);
  void progress(Flow& flow, Ticks now);

  std::vector<Rate> capacities_;
  std::vector<Flow> flows_;
  std::vector<std::int32_t> free_;                  // positions in flows_ that may be used again
  std::vector<std::vector<std::int32_t>> on_port_;  // active flows per port
  std::vector<std::int32_t> port_mark_;
  std::vector<PortIndex> dirty_;
  std::vector<PortIndex> frontier_;
  std::vector<std::int32_t> connected_;     // flows to be shared anew
  std::vector<const FlowDemand*> demands_;  // of those
  MaxMinSolver solver_;
  std::vector<Forecast> forecasts_;
  std::int32_t round_ = 0;
};

}  // namespace dapple
