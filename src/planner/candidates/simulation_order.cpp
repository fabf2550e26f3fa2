#include "planner/candidates/simulation_order.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>

namespace dapple::planner {
namespace {

/// The least bound divided by the height of one step of bounds.
constexpr std::int64_t kBoundSteps = 200;

}  // namespace

std::vector<std::size_t> simulation_order(const std::vector<search::Candidate>& candidates) {
  Duration least = Duration::infinite();
  for (const search::Candidate& candidate : candidates) least = std::min(least, candidate.bound);
  const auto rank = [&](std::size_t position) {
    const search::Candidate& candidate = candidates[position];
    const Wide above = Wide{(candidate.bound - least).ns} * kBoundSteps;
    return std::tuple(static_cast<std::int64_t>(above / std::max<std::int64_t>(1, least.ns)),
                      -candidate.micro_batch_size, candidate.stages.size(), candidate.bound);
  };
  std::vector<std::size_t> positions(candidates.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::stable_sort(positions.begin(), positions.end(),
                   [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  return positions;
}

}  // namespace dapple::planner
