// Pieces of PipeDream's graph text, and what is asked about the profiles made of it.
#pragma once

#include <string>
#include <vector>

#include "dapple/profile/model_profile.h"

namespace dapple::test {

inline std::string edge(int from, int to) {
  return "\tnode" + std::to_string(from) + " -- node" + std::to_string(to) + "\n";
}

inline std::vector<std::string> names_of(const ModelProfile& profile) {
  std::vector<std::string> names;
  for (const Layer& layer : profile.layers) names.push_back(layer.name);
  return names;
}

}  // namespace dapple::test
