#include "shared_network.h"

#include <algorithm>
#include <utility>

#include "dapple/core/error.h"

namespace dapple {

SharedNetwork::SharedNetwork(std::vector<Rate> capacities)
    : capacities_(std::move(capacities)),
      on_port_(capacities_.size()),
      port_mark_(capacities_.size(), 0) {}

std::int32_t SharedNetwork::start(Ticks now, const FlowDemand& demand, Wide work) {
  check(work > 0 && demand.cap > 0 && !demand.ports.empty(), "a flow needs work, rate and ports");
  if (free_.empty()) {
    free_.push_back(static_cast<std::int32_t>(flows_.size()));
    flows_.emplace_back();
  }
  const std::int32_t index = free_.back();
  free_.pop_back();
  Flow& flow = flows_[static_cast<std::size_t>(index)];
  flow.demand = &demand;
  flow.work = work;
  flow.rate = 0;
  flow.since = now;
  flow.active = true;
  for (const auto& [port, weight] : demand.ports) {
    on_port_[port.position()].push_back(index);
    dirty_.push_back(port);
  }
  return index;
}

bool SharedNetwork::end(Ticks now, std::int32_t index, std::int32_t version) {
  Flow& flow = flows_[static_cast<std::size_t>(index)];
  if (!flow.active || flow.version != version) return false;
  progress(flow, now);
  check(flow.work <= 0, "a flow ended before its work was done");
  flow.active = false;
  ++flow.version;
  for (const auto& [port, weight] : flow.demand->ports) {
    std::vector<std::int32_t>& here = on_port_[port.position()];
    here.erase(std::find(here.begin(), here.end(), index));
    if (!here.empty()) dirty_.push_back(port);
  }
  free_.push_back(index);
  return true;
}

void SharedNetwork::progress(Flow& flow, Ticks now) {
  flow.work -= Wide{flow.rate} * (now - flow.since).count;
  flow.since = now;
}

void SharedNetwork::collect_connected() {
  ++round_;
  connected_.clear();
  frontier_.swap(dirty_);
  dirty_.clear();
  while (!frontier_.empty()) {
    const PortIndex port = frontier_.back();
    frontier_.pop_back();
    if (std::exchange(port_mark_[port.position()], round_) == round_) continue;
    for (const std::int32_t index : on_port_[port.position()]) {
      Flow& flow = flows_[static_cast<std::size_t>(index)];
      if (std::exchange(flow.mark, round_) == round_) continue;
      connected_.push_back(index);
      for (const auto& [next, weight] : flow.demand->ports) {
        if (port_mark_[next.position()] != round_) frontier_.push_back(next);
      }
    }
  }
  std::sort(connected_.begin(), connected_.end());
}

Rate SharedNetwork::rate_alone(const FlowDemand& demand) const {
  Rate rate = demand.cap;
  for (const auto& [port, weight] : demand.ports) {
    const Wide level = Wide{capacities_[port.position()]} * kFullWeight / weight;
    if (level < rate) rate = static_cast<Rate>(level);
  }
  return rate;
}

void SharedNetwork::set_rate(std::int32_t index, Rate rate, Ticks now) {
  Flow& flow = flows_[static_cast<std::size_t>(index)];
  rate = std::max<Rate>(rate, 1);  // there may be more flows than units on a slow port
  if (flow.rate == rate) return;
  progress(flow, now);
  flow.rate = rate;
  ++flow.version;
  const Wide left = std::max<Wide>(flow.work, 0);
  forecasts_.push_back(
      {.flow = index, .version = flow.version, .end = now + Ticks{divide_up(left, flow.rate)}});
}

const std::vector<SharedNetwork::Forecast>& SharedNetwork::settle(Ticks now) {
  forecasts_.clear();
  collect_connected();
  demands_.clear();
  for (const std::int32_t index : connected_) {
    demands_.push_back(flows_[static_cast<std::size_t>(index)].demand);
  }
  if (connected_.size() == 1) {
    set_rate(connected_.front(), rate_alone(*demands_.front()), now);
    return forecasts_;
  }
  const std::vector<Rate>& rates = solver_.solve(demands_, capacities_);
  for (std::size_t i = 0; i < connected_.size(); ++i) set_rate(connected_[i], rates[i], now);
  return forecasts_;
}

Rate SharedNetwork::carried(PortIndex port) const {
  Wide sum = 0;
  for (const std::int32_t index : on_port_[port.position()]) {
    const Flow& flow = flows_[static_cast<std::size_t>(index)];
    for (const auto& [used, weight] : flow.demand->ports) {
      if (used == port) sum += Wide{flow.rate} * weight;
    }
  }
  return static_cast<Rate>(sum / kFullWeight);
}

}  // namespace dapple
