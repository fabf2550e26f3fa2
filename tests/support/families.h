// The schedule families that make their own orders.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>

#include "dapple/plan/schedule_family.h"
#include "dice.h"

namespace dapple::small {

inline constexpr auto kOwnFamilies = [] {
  std::array<ScheduleFamily, std::size(kScheduleFamilies) - 1> own{};
  std::copy_if(std::begin(kScheduleFamilies), std::end(kScheduleFamilies), own.begin(),
               [](ScheduleFamily family) { return family != ScheduleFamily::Given; });
  return own;
}();

inline ScheduleFamily random_own_family(Dice& dice) {
  return kOwnFamilies[dice.below(kOwnFamilies.size())];
}

}  // namespace dapple::small
