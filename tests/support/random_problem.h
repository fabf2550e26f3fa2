// Seeded random models and clusters, small enough to enumerate every plan.
#pragma once

#include <cstdint>

#include "dapple/profile/model_profile.h"
#include "dapple/topology/description.h"
#include "dice.h"
#include "scaled.h"

namespace dapple::small {

/// Ties some layers of so many models in a hundred, as far as the dice find any that can be.
void tie_some(Dice& dice, ModelProfile& profile, std::int64_t percent = 25);

struct Problem {
  ModelProfile profile;
  TopologyDescription topology;
  std::int64_t global_batch = 1;
};

/// Up to `layers` layers and `devices` devices; memory tight in a third of them.
Problem random_problem(Dice& dice, std::int64_t layers, std::int64_t devices);

}  // namespace dapple::small
