#include "exec/train/loss_and_norm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dapple::exec {

double mean_loss(std::vector<SampleLoss> losses) {
  std::sort(losses.begin(), losses.end(),
            [](const auto& a, const auto& b) { return a.sample < b.sample; });
  double sum = 0;
  for (const SampleLoss& loss : losses) sum += double{loss.loss};
  return sum / static_cast<double>(losses.size());
}

double norm_of(const std::vector<double>& squares) {
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

float clip_factor(double norm, double clip_norm) {
  constexpr double kAgainstZero = 1e-6;
  return static_cast<float>(std::min(1.0, clip_norm / (norm + kAgainstZero)));
}

}  // namespace dapple::exec
