#include "dapple/simulate/shared_network.h"

#include <algorithm>
#include <utility>

#include "dapple/core/error.h"

namespace dapple::simulate {

SharedNetwork::SharedNetwork(std::vector<Rate> capacities)
    : capacities_(std::move(capacities)),
      on_port_(capacities_.size()),
      last_visit_of_port_(capacities_.size(), 0) {
  for (const Rate capacity : capacities_) room_.push_back(Wide{capacity} * kFullWeight);
}

std::int32_t SharedNetwork::add_flow(Ticks now, const FlowDemand& demand) {
  check(demand.cap > 0 && !demand.ports.empty(), "a flow needs rate and ports");
  if (free_.empty()) {
    free_.push_back(static_cast<std::int32_t>(flows_.size()));
    flows_.emplace_back();
  }
  const std::int32_t index = free_.back();
  free_.pop_back();
  Flow& flow = flows_[static_cast<std::size_t>(index)];
  const std::int32_t version = flow.version;
  flow = Flow{};
  flow.demand = &demand;
  flow.since = now;
  flow.version = version;
  flow.active = true;
  for (const auto& [port, weight] : demand.ports) {
    on_port_[port.position()].push_back(index);
    room_[port.position()] -= Wide{demand.cap} * weight;
    if (is_crowded(port)) dirty_.push_back(port);
  }
  changed_.push_back(index);
  return index;
}

std::int32_t SharedNetwork::start(Ticks now, const FlowDemand& demand, Wide work) {
  check(work > 0, "a flow needs work");
  const std::int32_t index = add_flow(now, demand);
  flows_[static_cast<std::size_t>(index)].work = work;
  return index;
}

std::int32_t SharedNetwork::start_rounds(Ticks now, const FlowDemand& demand,
                                         const Rounds& rounds) {
  check(rounds.count > 0, "a flow needs rounds");
  const std::int32_t index = add_flow(now, demand);
  Flow& flow = flows_[static_cast<std::size_t>(index)];
  flow.in_rounds = true;
  flow.rounds = rounds;
  flow.work = Wide{demand.cap} * rounds.busy_until(1).count;
  return index;
}

bool SharedNetwork::end(Ticks now, std::int32_t index, std::int32_t version) {
  Flow& flow = flows_[static_cast<std::size_t>(index)];
  if (!flow.active || flow.version != version) return false;
  progress(flow, now);
  if (flow.in_rounds && !flow.is_over()) {
    flow.forecast = Ticks{-1};
    changed_.push_back(index);
    return false;
  }
  check(flow.work <= 0, "a flow ended before its work was done");
  flow.active = false;
  ++flow.version;
  for (const auto& [port, weight] : flow.demand->ports) {
    std::vector<std::int32_t>& here = on_port_[port.position()];
    here.erase(std::find(here.begin(), here.end(), index));
    if (is_crowded(port)) dirty_.push_back(port);
    room_[port.position()] += Wide{flow.demand->cap} * weight;
  }
  free_.push_back(index);
  return true;
}

void SharedNetwork::progress(Flow& flow, Ticks now) {
  if (flow.in_rounds) {
    progress_in_rounds(flow, now);
    return;
  }
  flow.work -= Wide{flow.rate} * (now - flow.since).count;
  flow.since = now;
}

void SharedNetwork::progress_in_rounds(Flow& flow, Ticks now) {
  if (flow.is_over()) return;
  if (!flow.pauses) {
    if (flow.work > 0 && flow.since == now) return;
    const Ticks left{flow.work > 0 ? divide_up(flow.work, flow.rate) : 0};
    if (now < flow.since + left) {
      flow.work -= Wide{flow.rate} * (now - flow.since).count;
      flow.since = now;
      return;
    }
    flow.work = 0;
    flow.pauses = true;
    flow.pause_end = flow.since + left + flow.rounds.pause;
  }
  if (now >= flow.pause_end) pass_rounds(flow, now);
  flow.since = now;
}

/// Advances a flow from a pause that has ended by `now`; the rounds since then ran at full rate.
void SharedNetwork::pass_rounds(Flow& flow, Ticks now) {
  const Rounds& rounds = flow.rounds;
  const Ticks first_end = flow.pause_end - rounds.pause;
  std::int64_t passed = flow.round;  // the last round whose end has come
  std::int64_t ahead = rounds.count;
  while (ahead - passed > 1) {
    const std::int64_t middle = passed + (ahead - passed) / 2;
    (first_end + rounds.between_ends(flow.round, middle) <= now ? passed : ahead) = middle;
  }
  flow.pause_end = first_end + rounds.between_ends(flow.round, passed) + rounds.pause;
  flow.round = passed;
  if (now < flow.pause_end) return;
  ++flow.round;
  flow.pauses = false;
  if (flow.is_over()) return;
  const Ticks full = rounds.busy_until(flow.round + 1) - rounds.busy_until(flow.round);
  flow.work = Wide{flow.demand->cap} * (full - (now - flow.pause_end)).count;
}

/// Returns the end of all rounds if nothing limits the flow from `since` on.
Ticks SharedNetwork::end_at_full_rate(const Flow& flow) {
  const Ticks round_end = flow.pauses ? flow.pause_end - flow.rounds.pause
                                      : flow.since + Ticks{divide_up(flow.work, flow.demand->cap)};
  return round_end + flow.rounds.between_ends(flow.round, flow.rounds.count - 1) +
         flow.rounds.pause;
}

void SharedNetwork::collect(std::int32_t index) {
  if (std::exchange(flows_[static_cast<std::size_t>(index)].last_visit, visit_) == visit_) return;
  connected_.push_back(index);
}

void SharedNetwork::collect_from(PortIndex port) {
  if (std::exchange(last_visit_of_port_[port.position()], visit_) == visit_) return;
  for (const std::int32_t index : on_port_[port.position()]) collect(index);
}

void SharedNetwork::collect_connected() {
  ++visit_;
  connected_.clear();
  for (const std::int32_t index : changed_) collect(index);
  for (const PortIndex port : dirty_) collect_from(port);
  changed_.clear();
  dirty_.clear();
  for (std::size_t next = 0; next < connected_.size(); ++next) {
    const Flow& flow = flows_[static_cast<std::size_t>(connected_[next])];
    for (const auto& [port, weight] : flow.demand->ports) {
      if (is_crowded(port)) collect_from(port);
    }
  }
  std::sort(connected_.begin(), connected_.end());
}

Rate SharedNetwork::rate_alone(const FlowDemand& demand) const {
  Rate rate = demand.cap;
  for (const auto& [port, weight] : demand.ports) {
    const Rate capacity = capacities_[port.position()];
    // Most flows have full weight, for which the slow division is skipped.
    const Wide level =
        weight == kFullWeight ? Wide{capacity} : Wide{capacity} * kFullWeight / weight;
    if (level < rate) rate = static_cast<Rate>(level);
  }
  return rate;
}

bool SharedNetwork::is_held_up(const Flow& flow) const {
  return std::any_of(flow.demand->ports.begin(), flow.demand->ports.end(),
                     [&](const auto& use) { return is_crowded(use.first); });
}

void SharedNetwork::foresee(std::int32_t index, Ticks at) {
  Flow& flow = flows_[static_cast<std::size_t>(index)];
  flow.forecast = at;
  forecasts_.push_back({.flow = index, .version = ++flow.version, .at = at});
}

void SharedNetwork::set_rate(std::int32_t index, Rate rate, Ticks now) {
  Flow& flow = flows_[static_cast<std::size_t>(index)];
  // There may be more flows than units of rate on a slow port.
  rate = std::max<Rate>(rate, 1);
  if (flow.rate == rate) return;
  progress(flow, now);
  flow.rate = rate;
  foresee(index, now + Ticks{divide_up(std::max<Wide>(flow.work, 0), flow.rate)});
}

/// Requires: progress() has been called for the flow with `now`.
void SharedNetwork::set_rounds_rate(std::int32_t index, Rate rate, Ticks now) {
  Flow& flow = flows_[static_cast<std::size_t>(index)];
  Ticks at;
  if (!is_held_up(flow)) {
    flow.rate = flow.demand->cap;
    at = end_at_full_rate(flow);
  } else {
    flow.rate = flow.pauses ? 0 : std::max<Rate>(rate, 1);
    at = flow.pauses ? flow.pause_end : now + Ticks{divide_up(flow.work, flow.rate)};
  }
  if (at != flow.forecast) foresee(index, at);
}

const std::vector<SharedNetwork::Forecast>& SharedNetwork::settle(Ticks now) {
  forecasts_.clear();
  collect_connected();
  demands_.clear();
  for (const std::int32_t index : connected_) {
    Flow& flow = flows_[static_cast<std::size_t>(index)];
    if (flow.in_rounds) progress(flow, now);
    if (!flow.pauses) demands_.push_back(flow.demand);
  }
  const bool is_single = connected_.size() == 1 && demands_.size() == 1;
  const Rate single = is_single ? rate_alone(*demands_.front()) : 0;
  const std::vector<Rate>* rates = is_single ? nullptr : &solver_.solve(demands_, capacities_);
  std::size_t solved = 0;
  for (const std::int32_t index : connected_) {
    const Flow& flow = flows_[static_cast<std::size_t>(index)];
    Rate rate = 0;
    if (!flow.pauses) rate = is_single ? single : (*rates)[solved++];
    if (flow.in_rounds) {
      set_rounds_rate(index, rate, now);
    } else {
      set_rate(index, rate, now);
    }
  }
  return forecasts_;
}

Rate SharedNetwork::carried(PortIndex port) const {
  Wide sum = 0;
  for (const std::int32_t index : on_port_[port.position()]) {
    const Flow& flow = flows_[static_cast<std::size_t>(index)];
    if (flow.pauses) continue;
    for (const auto& [used, weight] : flow.demand->ports) {
      if (used == port) sum += Wide{flow.rate} * weight;
    }
  }
  return static_cast<Rate>(sum / kFullWeight);
}

}  // namespace dapple::simulate
