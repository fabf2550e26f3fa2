#include "dapple/nn/routing_margins.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace dapple::nn {
namespace {

/// Returns the probabilities of scores, the largest first.
std::vector<double> descending_probabilities(std::span<const float> scores) {
  std::vector<double> sorted(scores.begin(), scores.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const double largest = sorted.front();
  double sum = 0;
  for (double& score : sorted) sum += score = std::exp(score - largest);
  for (double& score : sorted) score /= sum;
  return sorted;
}

}  // namespace

void RoutingMargins::add(const Tensor& scores, std::int64_t per_token) {
  const auto experts = static_cast<std::size_t>(scores.shape.back());
  const auto chosen = static_cast<std::size_t>(per_token);
  if (chosen == experts) return;
  for (std::size_t begin = 0; begin < scores.values.size(); begin += experts) {
    const std::vector<double> sorted =
        descending_probabilities(std::span(scores.values).subspan(begin, experts));
    const RoutingMargin margin{positions_++, sorted[chosen - 1], sorted[chosen]};
    if (!smallest_ || margin.size() < smallest_->size()) smallest_ = margin;
  }
}

}  // namespace dapple::nn
