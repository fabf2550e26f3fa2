#include "dapple/planner/candidates/plan_pool.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

namespace dapple {
namespace {

using planner::PlanPool;
using planner::SimulatedPlan;

/// Two stages cut at a layer, on two devices.
SimulatedPlan cut_at(std::int32_t layer, std::int64_t iteration, std::int32_t first_device = 0) {
  SimulatedPlan simulated;
  simulated.iteration = {iteration};
  Plan& plan = simulated.plan;
  plan.warmup_depths = {2, 1};
  plan.stages.resize(2);
  plan.stages[0].layers = {0, layer};
  plan.stages[0].devices = {DeviceIndex{first_device}};
  plan.stages[1].layers = {layer, 1000};
  plan.stages[1].devices = {DeviceIndex{first_device + 1}};
  return simulated;
}

std::vector<std::int64_t> iterations(const PlanPool& pool, ScheduleFamily family) {
  std::vector<std::int64_t> times;
  for (const SimulatedPlan& some : pool.plans_of(family)) times.push_back(some.iteration.ns);
  return times;
}

TEST_CASE("a pool keeps the fastest plan of each shape, on whatever devices it was found") {
  PlanPool pool;
  pool.take(cut_at(1, 300));
  pool.take(cut_at(2, 200));
  pool.take(cut_at(1, 250, 2));
  pool.take(cut_at(1, 270, 4));
  pool.take({});
  CHECK(iterations(pool, ScheduleFamily::OneFOneB) == std::vector<std::int64_t>{200, 250});
  CHECK(pool.plans_of(ScheduleFamily::OneFOneB)[1].plan.stages[0].devices ==
        std::vector{DeviceIndex{2}});
  SimulatedPlan recomputing = cut_at(2, 220);
  recomputing.plan.stages[0].recompute = true;
  pool.take(recomputing);
  SimulatedPlan finer = cut_at(2, 230);
  finer.plan.micro_batch_size = 2;
  pool.take(finer);
  CHECK(iterations(pool, ScheduleFamily::OneFOneB) ==
        std::vector<std::int64_t>{200, 220, 230, 250});
}

TEST_CASE("a pool keeps so many plans of each family, in whatever order they come") {
  PlanPool rising;
  PlanPool falling;
  constexpr auto kPlans = static_cast<std::int32_t>(2 * PlanPool::kMost);
  for (std::int32_t i = 1; i <= kPlans; ++i) {
    rising.take(cut_at(i, 1000 + i));
    falling.take(cut_at(kPlans + 1 - i, 1000 + kPlans + 1 - i));
  }
  SimulatedPlan of_other_family = cut_at(1, 5000);
  of_other_family.plan.family = ScheduleFamily::ZeroBubbleH1;
  rising.take(of_other_family);
  std::vector<std::int64_t> expected;
  for (std::size_t i = 1; i <= PlanPool::kMost; ++i) {
    expected.push_back(1000 + static_cast<std::int64_t>(i));
  }
  CHECK(iterations(rising, ScheduleFamily::OneFOneB) == expected);
  CHECK(iterations(falling, ScheduleFamily::OneFOneB) == expected);
  CHECK(iterations(rising, ScheduleFamily::ZeroBubbleH1) == std::vector<std::int64_t>{5000});
  CHECK(iterations(falling, ScheduleFamily::ZeroBubbleH1).empty());
}

TEST_CASE("without a pool nothing is kept, and with one both plans of a score are") {
  planner::Score score;
  score.best = cut_at(1, 100);
  score.nearest = cut_at(2, 120);
  planner::keep_in(nullptr, score);
  PlanPool pool;
  planner::keep_in(&pool, score);
  CHECK(iterations(pool, ScheduleFamily::OneFOneB) == std::vector<std::int64_t>{100, 120});
}

}  // namespace
}  // namespace dapple
