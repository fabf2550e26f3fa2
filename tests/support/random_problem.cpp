#include "random_problem.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "clusters.h"
#include "models.h"

namespace dapple::small {

void tie_some(Dice& dice, ModelProfile& profile, std::int64_t percent) {
  if (!dice.chance(percent)) return;
  const auto last = static_cast<std::int64_t>(profile.layers.size()) - 1;
  std::vector<bool> is_tied(profile.layers.size(), false);
  const auto draw = [&](std::int64_t from) {
    return LayerIndex{static_cast<std::int32_t>(dice.roll(from, std::max(from, last)))};
  };
  for (std::int64_t ties = dice.roll(1, 2); ties > 0; --ties) {
    Tie tie{.owner = draw(0), .users = {}};
    if (is_tied[tie.owner.position()]) continue;
    if (profile.layers[tie.owner.position()].parameters.count == 0) continue;
    for (std::int64_t users = dice.roll(1, 2); users > 0; --users) {
      const LayerIndex user = draw(tie.owner.value + 1);
      if (user.value > last || is_tied[user.position()]) continue;
      is_tied[user.position()] = true;
      tie.users.push_back(user);
    }
    if (tie.users.empty()) continue;
    is_tied[tie.owner.position()] = true;
    std::sort(tie.users.begin(), tie.users.end());
    profile.ties.push_back(tie);
  }
  std::sort(profile.ties.begin(), profile.ties.end(),
            [](const Tie& a, const Tie& b) { return a.owner < b.owner; });
}

Problem random_problem(Dice& dice, std::int64_t layers, std::int64_t devices) {
  std::vector<LayerFigures> figures;
  for (std::int64_t l = dice.roll(1, layers); l > 0; --l) {
    figures.push_back({.forward = dice.roll(1, 40),
                       .backward = dice.roll(1, 80),
                       .output = dice.chance(80) ? dice.roll(0, 60) : 0,
                       .parameters = dice.chance(80) ? dice.roll(0, 400) : 0,
                       .stash = dice.roll(0, 100),
                       .workspace = dice.chance(20) ? dice.roll(0, 50) : 0});
  }
  Problem problem;
  problem.profile = model_of(figures);
  tie_some(dice, problem.profile);
  problem.profile.optimizer.state_bytes_per_parameter_byte = {dice.roll(0, 2) * kOne.billionths};
  ClusterFigures cluster_figures;
  cluster_figures.servers = static_cast<std::int32_t>(dice.roll(1, devices));
  cluster_figures.devices = static_cast<std::int32_t>(devices / cluster_figures.servers);
  cluster_figures.inside = {bytes_per_ns(dice.roll(1, 20)), {dice.roll(0, 5)}};
  cluster_figures.nics = {Link{bytes_per_ns(dice.roll(1, 4)), {dice.roll(0, 10)}}};
  problem.topology = cluster(cluster_figures);
  if (dice.chance(33)) problem.topology.devices.front().memory = {dice.roll(300, 3000)};
  constexpr std::int64_t kBatches[] = {1, 2, 4, 6};
  problem.global_batch = kBatches[dice.roll(0, 3)];
  problem.profile.global_batch_size = problem.global_batch;
  return problem;
}

}  // namespace dapple::small
