#include "rule_sets.h"

#include <algorithm>

#include "heads_and_tails.h"

namespace dapple {
namespace {

/// From the start of a micro-batch's forward on a stage to the start of its backward there.
std::vector<std::int64_t> round_trips(const TaskGraph& graph) {
  std::vector<std::int64_t> trips(at(graph.stage_count()));
  std::int64_t behind = 0;
  for (std::int32_t s = graph.stage_count(); s-- > 0;) {
    const TaskSymbol& forward = graph.kinds()[at(graph.forward(s))];
    const TaskSymbol& backward = graph.kinds()[at(graph.backward(s))];
    trips[at(s)] = forward.duration + behind + backward.lag;
    behind = trips[at(s)] + backward.duration + forward.lag;
  }
  return trips;
}

/// Depths as memory allows; enough forwards to cover the round trip, or one fewer or one more; one
/// for each stage from there on, and nearly twice as many.
std::vector<std::vector<std::int32_t>> depth_sets(const TaskGraph& graph) {
  const std::vector<MemoryNeeds> needs = memory_needs(graph);
  const std::vector<std::int64_t> trips = round_trips(graph);
  std::vector<std::vector<std::int32_t>> sets(6);
  for (std::int32_t s = 0; s < graph.stage_count(); ++s) {
    const std::int32_t most = needs[at(s)].most_in_flight;
    const std::int64_t forward = graph.kinds()[at(graph.forward(s))].duration;
    const std::int64_t covering = forward == 0 ? most : (trips[at(s)] + forward - 1) / forward;
    const std::int32_t behind = graph.stage_count() - s;
    const std::int64_t wanted[] = {most,         covering, behind, 2 * behind - 1,
                                   covering - 1, covering + 1};
    for (std::size_t i = 0; i < sets.size(); ++i) {
      sets[i].push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(wanted[i], 1, most)));
    }
  }
  return sets;
}

std::vector<DeviceRule> device_rules(const TaskGraph& graph) {
  const std::int32_t all = graph.micro_batches() * graph.stage_count();
  const std::vector<std::int32_t> stores =
      graph.is_split() ? std::vector<std::int32_t>{all, 0, 1} : std::vector<std::int32_t>{all};
  std::vector<DeviceRule> rules;
  for (const bool backward_first : {true, false}) {
    for (const std::int32_t store : stores) {
      for (const Patience patience :
           {Patience::None, Patience::Fair, Patience::Thrifty, Patience::Endless}) {
        rules.push_back({.patience = patience,
                         .backward_first = backward_first,
                         .stored_weights = store,
                         .eager_weights = all});
      }
    }
  }
  return rules;
}

bool has_chunks(const TaskGraph& graph) {
  return graph.device_count() < graph.stage_count();
}

}  // namespace

std::vector<ListRule> rule_table(const TaskGraph& graph) {
  std::vector<ListRule> table;
  const std::vector<std::int32_t> leads(at(graph.stage_count()), 2);
  const std::vector<std::int32_t> no_leads(at(graph.stage_count()), graph.micro_batches());
  const auto add = [&table](const ListRule& rule) {
    if (std::find(table.begin(), table.end(), rule) == table.end()) table.push_back(rule);
  };
  for (const DeviceRule& device : device_rules(graph)) {
    for (const std::vector<std::int32_t>& depths : depth_sets(graph)) {
      ListRule rule{false, depths, leads, {at(graph.device_count()), device}};
      add(rule);
      if (has_chunks(graph)) {
        for (DeviceRule& changed : rule.devices) changed.later_stage_first = false;
        add(rule);
      }
      if (!device.backward_first) continue;
      rule.devices.assign(at(graph.device_count()), device);
      rule.by_waves = true;
      add(rule);
      rule.leads = no_leads;
      add(rule);
    }
  }
  return table;
}

ListRule changed_rule(const TaskGraph& graph, ListRule rule, Randomness& randomness) {
  const std::int32_t changes = randomness.distance(8);
  for (std::int32_t i = 0; i < changes; ++i) {
    const std::int32_t stage = randomness.roll(0, graph.stage_count() - 1);
    DeviceRule& device = rule.devices[at(graph.kinds()[at(stage)].device)];
    std::int32_t& depth = rule.depths[at(stage)];
    switch (randomness.roll(0, graph.is_split() ? 5 : 3)) {
      case 0:
      case 1:
        depth = std::clamp(depth + (randomness.chance(50) ? 1 : -1) * randomness.distance(4), 1,
                           graph.micro_batches());
        break;
      case 2:
        device.patience = static_cast<Patience>(randomness.roll(0, 3));
        break;
      case 3:
        if (rule.by_waves) {
          std::int32_t& lead = rule.leads[at(stage)];
          lead = randomness.distance(graph.micro_batches());
        } else if (randomness.chance(50)) {
          device.backward_first = !device.backward_first;
        } else {
          device.later_stage_first = !device.later_stage_first;
        }
        break;
      case 4:
        device.stored_weights = randomness.distance(graph.micro_batches()) - 1;
        break;
      default:
        device.eager_weights = randomness.distance(graph.micro_batches());
        break;
    }
  }
  return rule;
}

}  // namespace dapple
