// Random collectives within the passes of a pipeline that share links with all else, as those of
// groups of devices on several servers do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "random_pipeline.h"

namespace dapple::small {

inline NicUse random_use(Dice& dice, Duration most) {
  const std::int64_t time = dice.chance(25) ? 0 : dice.roll(0, most.ns);
  return {{time}, {dice.chance(50) ? time : dice.roll(0, time)}};
}

inline NicUse part_of(const NicUse& use, std::int64_t thousandths) {
  return {{use.time.ns * thousandths / 1000}, {use.busy.ns * thousandths / 1000}};
}

/// Collectives of replicas with these times: a backward has those of both of its parts.
inline StageTraffic random_traffic(Dice& dice, const ReplicaCost& replica) {
  const NicUse gather = random_use(dice, replica.forward);
  const NicUse scatter = random_use(dice, replica.backward - replica.input_gradient);
  const NicUse in_turn = random_use(dice, replica.input_gradient);
  return {.forward = {random_use(dice, replica.forward), gather},
          .backward = {in_turn, gather + scatter},
          .input_gradient = {in_turn, gather},
          .weight_gradient = {{}, scatter}};
}

/// Returns what of the traffic comes before each of so many buckets.
inline std::vector<PassTraffic> random_parts(Dice& dice, const PassTraffic& whole,
                                             std::size_t buckets) {
  std::vector<std::int64_t> thousandths;
  for (std::size_t k = 0; k < buckets; ++k) thousandths.push_back(dice.roll(0, 1000));
  std::sort(thousandths.begin(), thousandths.end());
  std::vector<PassTraffic> parts;
  for (const std::int64_t part : thousandths) {
    parts.push_back({part_of(whole.in_turn, part), part_of(whole.beside, part)});
  }
  return parts;
}

/// Gives the stages that may have them random collectives, alike on replicas with equal times.
inline void add_collectives(Dice& dice, PlanCost& costs,
                            const std::function<bool(const StageCost&)>& may_have_them) {
  for (StageCost& stage : costs.stages) {
    if (!may_have_them(stage)) continue;
    std::vector<bool> is_drawn(stage.moments.size());
    std::vector<StageTraffic> drawn(stage.moments.size());
    for (ReplicaCost& replica : stage.replicas) {
      BucketMoments& moments = stage.moments[replica.moments];
      if (!is_drawn[replica.moments]) {
        is_drawn[replica.moments] = true;
        const StageTraffic traffic = random_traffic(dice, replica);
        drawn[replica.moments] = traffic;
        const std::size_t buckets = moments.in_backward.size();
        moments.traffic_in_backward = random_parts(dice, traffic.backward, buckets);
        moments.traffic_in_weights = random_parts(dice, traffic.weight_gradient, buckets);
      }
      replica.traffic = drawn[replica.moments];
    }
  }
}

/// A random pipeline with collectives on most stages, whose devices all have NICs.
inline Pipeline random_pipeline_with_collectives(Dice& dice, const RandomChoices& choices) {
  Pipeline pipeline = random_pipeline(dice, choices);
  add_collectives(dice, pipeline.costs, [&](const StageCost&) { return dice.chance(75); });
  return pipeline;
}

}  // namespace dapple::small
