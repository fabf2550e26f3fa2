#include <functional>
#include <queue>

#include "dapple/profile/model_profile.h"

namespace dapple {

std::vector<std::int32_t> topological_order(const std::vector<std::vector<std::int32_t>>& inputs) {
  std::vector<std::vector<std::int32_t>> consumers(inputs.size());
  std::vector<std::size_t> missing(inputs.size());
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> ready;
  for (std::size_t node = 0; node < inputs.size(); ++node) {
    missing[node] = inputs[node].size();
    for (const std::int32_t input : inputs[node]) {
      consumers[static_cast<std::size_t>(input)].push_back(static_cast<std::int32_t>(node));
    }
    if (missing[node] == 0) ready.push(static_cast<std::int32_t>(node));
  }
  std::vector<std::int32_t> order;
  while (!ready.empty()) {
    const std::int32_t node = ready.top();
    ready.pop();
    order.push_back(node);
    for (const std::int32_t consumer : consumers[static_cast<std::size_t>(node)]) {
      if (--missing[static_cast<std::size_t>(consumer)] == 0) ready.push(consumer);
    }
  }
  return order;
}

}  // namespace dapple
