// Devices that are groups, drawn at random: with data-parallel ranks, collectives of all kinds,
// parameters that several devices of a group hold, and sharded ones.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dapple/profile/model_profile.h"
#include "dice.h"

namespace dapple::small {

inline GroupRing random_ring(Dice& dice, std::int64_t members) {
  if (members == 1) return {};
  const std::int64_t in_server = members % 2 == 0 && dice.chance(50) ? members / 2 : members;
  return {.members = members,
          .bandwidth = {dice.roll(1, 12) * 1'000'000'000},
          .latency = {dice.chance(50) ? 0 : dice.roll(1, 900'000)},
          .measured = {},
          .members_in_server = in_server,
          .within_server = {dice.roll(1, 12) * 1'000'000'000},
          .between_servers = {dice.roll(1, 4) * 1'000'000'000}};
}

/// Makes every device a group. Parameters must then be updated at the end.
inline void make_devices_groups(Dice& dice, ModelProfile& profile) {
  GroupShape& group = profile.group;
  group.replicas = dice.roll(1, 3);
  group.copies = random_ring(dice, group.replicas * dice.roll(1, 2));
  group.expert_copies = random_ring(dice, dice.roll(1, group.copies.members));
  for (GroupRing& ring : group.rings) ring = random_ring(dice, dice.roll(1, 4));
  group.shards_all_state = dice.chance(40);
  for (Layer& layer : profile.layers) {
    layer.expert_parameters = {layer.parameters.count * dice.roll(0, 3) / 4};
    for (auto* list : {&layer.forward_collectives, &layer.backward_collectives}) {
      if (!dice.chance(30)) continue;
      list->push_back({.kind = kCollectiveKinds[dice.roll(0, 4)],
                       .over = kCollectiveMembers[dice.roll(0, 2)],
                       .size_per_sample = {dice.roll(0, 2'000'000)}});
      if (list->back().kind == CollectiveKind::AllToAll &&
          list->back().over == CollectiveMembers::Experts) {
        // Without a roll of the dice, which would change the problems.
        list->back().merged =
            MergedCopies{.copies = 1 + list->back().size_per_sample.count % 4, .experts = 12};
      }
      if (list->back().kind != CollectiveKind::SendReceive) continue;
      list->back().beside = dice.chance(50) ? Beside::ForwardCore : Beside::BackwardCore;
      for (Measurement& point : layer.measurements) {
        point.core = {{point.forward.ns * dice.roll(0, 100) / 100},
                      {point.backward.ns * dice.roll(0, 100) / 100}};
      }
    }
    if (!group.shards_all_state) continue;
    const Measurement& largest = layer.measurements.back();
    layer.sharded = {.gather = {largest.forward.ns * dice.roll(0, 200) / 100},
                     .scatter = {largest.backward.ns * dice.roll(0, 100) / 100},
                     .working_set = {layer.parameters.count * dice.roll(1, 3)}};
  }
}

}  // namespace dapple::small
