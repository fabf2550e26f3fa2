// A lane of a schedule, for the tests that drive lanes and their reductions by hand.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dapple/schedule/schedule.h"

namespace dapple::simulate {

/// A lane of one device.
inline Lane lane(std::vector<StageIndex> stages, const std::string& actions) {
  Lane result;
  result.stages = std::move(stages);
  result.devices.resize(1);
  result.actions = parse_actions(actions);
  return result;
}

}  // namespace dapple::simulate
