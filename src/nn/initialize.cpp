#include <algorithm>
#include <vector>

#include "dapple/core/random.h"
#include "dapple/nn/module.h"

namespace dapple::nn {

void initialize(const ParameterSpec& parameter, const std::string& name, std::uint64_t seed,
                std::span<float> values) {
  if (parameter.part) {
    std::vector<float> whole(static_cast<std::size_t>(count_of(parameter.part->whole)));
    initialize({parameter.name, parameter.part->whole, parameter.initial}, name, seed, whole);
    return take_part(*parameter.part, whole, values);
  }
  const Initial& initial = parameter.initial;
  if (initial.kind == Initial::Kind::Constant) {
    std::fill(values.begin(), values.end(), initial.value);
    return;
  }
  const RandomStream stream = RandomStream(seed).of(name);
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const auto [first, second] = stream.normal_pair(i / 2);
    values[i] = initial.value * first;
    if (i + 1 < values.size()) values[i + 1] = initial.value * second;
  }
}

}  // namespace dapple::nn
