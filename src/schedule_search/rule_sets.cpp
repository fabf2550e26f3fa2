#include "schedule_search/rule_sets.h"

#include <algorithm>

#include "dapple/plan/least_depth.h"
#include "schedule_search/tasks/heads_and_tails.h"

namespace dapple::schedule_search {
namespace {

/// Returns the number of forwards of each stage before its first backward such that the stage waits
/// for the backward for less than one more forward would take, or not at all if `covers` is set.
/// Stages are processed from the last to the first, since forwards that delay a backward also delay
/// the backwards of earlier stages.
std::vector<std::int32_t> first_forwards(const TaskGraph& graph,
                                         const std::vector<MemoryNeeds>& needs, bool covers) {
  std::vector<std::int32_t> forwards(at(graph.stage_count()));
  std::int64_t behind = 0;  // from the end of a forward to the end of the next stage's backward
  for (std::int32_t s = graph.stage_count(); s-- > 0;) {
    const TaskSymbol& forward = graph.kinds()[at(graph.forward(s))];
    const TaskSymbol& backward = graph.kinds()[at(graph.backward(s))];
    const std::int64_t arrival = forward.duration + behind + backward.lag;
    const std::int64_t most = needs[at(s)].most_in_flight;
    std::int64_t count = most;
    if (forward.duration > 0) {
      const std::int64_t up = covers ? forward.duration - 1 : 0;
      count = std::min(most, (arrival + up) / forward.duration);
    }
    forwards[at(s)] = static_cast<std::int32_t>(count);
    behind = std::max(arrival, count * forward.duration) + backward.duration + forward.lag;
  }
  return forwards;
}

/// Limits each depth to one less than the previous stage's, but at least one: with equal depths,
/// neighbouring stages would wait for each other.
std::vector<std::int32_t> falling(std::vector<std::int32_t> depths) {
  for (std::size_t s = 1; s < depths.size(); ++s) {
    depths[s] = std::max(1, std::min(depths[s], depths[s - 1] - 1));
  }
  return depths;
}

/// Returns sets of depths: such that the round trip is covered, or nearly so, both with and without
/// a decrease from stage to stage; as large as memory allows; one for each stage from the stage to
/// the last; and nearly twice as many.
std::vector<std::vector<std::int32_t>> depth_sets(const TaskGraph& graph) {
  const std::vector<MemoryNeeds> needs = memory_needs(graph);
  std::vector<std::int32_t> most;
  std::vector<std::int32_t> behind;
  std::vector<std::int32_t> twice;
  for (std::int32_t s = 0; s < graph.stage_count(); ++s) {
    most.push_back(needs[at(s)].most_in_flight);
    const std::int64_t least = least_depth({s}, at(graph.stage_count()), most.back());
    behind.push_back(static_cast<std::int32_t>(least));
    twice.push_back(std::min(2 * (graph.stage_count() - s) - 1, most.back()));
  }
  const std::vector<std::int32_t> covering = first_forwards(graph, needs, true);
  const std::vector<std::int32_t> nearly = first_forwards(graph, needs, false);
  return {falling(covering), falling(nearly), most, covering, nearly, falling(most), behind, twice};
}

std::vector<DeviceRule> device_rules(const TaskGraph& graph) {
  const std::int32_t all = graph.micro_batches() * graph.stage_count();
  const std::vector<std::int32_t> stores =
      graph.is_split() ? std::vector<std::int32_t>{all, 0, 1} : std::vector<std::int32_t>{all};
  std::vector<DeviceRule> rules;
  for (const bool backward_first : {true, false}) {
    for (const std::int32_t store : stores) {
      for (const DelayPolicy delay_policy :
           {DelayPolicy::None, DelayPolicy::Fair, DelayPolicy::Thrifty, DelayPolicy::Endless}) {
        rules.push_back({.delay_policy = delay_policy,
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

ListRule changed_rule(const TaskGraph& graph, ListRule rule, RandomSequence& random) {
  const std::int32_t changes = short_distance(random, 8);
  for (std::int32_t i = 0; i < changes; ++i) {
    const std::int32_t stage = roll(random, 0, graph.stage_count() - 1);
    DeviceRule& device = rule.devices[at(graph.kinds()[at(stage)].device)];
    std::int32_t& depth = rule.depths[at(stage)];
    switch (roll(random, 0, graph.is_split() ? 5 : 3)) {
      case 0:
      case 1: {
        const std::int32_t sign = random.chance(50) ? 1 : -1;
        depth = std::clamp(depth + sign * short_distance(random, 4), 1, graph.micro_batches());
        break;
      }
      case 2:
        device.delay_policy = static_cast<DelayPolicy>(roll(random, 0, 3));
        break;
      case 3:
        if (rule.by_waves) {
          std::int32_t& lead = rule.leads[at(stage)];
          lead = short_distance(random, graph.micro_batches());
        } else if (random.chance(50)) {
          device.backward_first = !device.backward_first;
        } else {
          device.later_stage_first = !device.later_stage_first;
        }
        break;
      case 4:
        device.stored_weights = short_distance(random, graph.micro_batches()) - 1;
        break;
      default:
        device.eager_weights = short_distance(random, graph.micro_batches());
        break;
    }
  }
  return rule;
}

}  // namespace dapple::schedule_search
