#include "dapple/plan/comparison.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace dapple {
namespace {

struct StageShape {
  std::int32_t end;  // of its layers, which begin where those of the stage before end
  std::vector<std::int32_t> devices;
};

Plan plan_of(const std::vector<StageShape>& shapes) {
  Plan plan;
  std::int32_t begin = 0;
  for (const StageShape& shape : shapes) {
    StagePlan& stage = plan.stages.emplace_back();
    stage.layers = {begin, shape.end};
    for (const std::int32_t device : shape.devices) stage.devices.push_back({device});
    begin = shape.end;
  }
  plan.warmup_depths.assign(shapes.size(), 1);
  return plan;
}

/// Numbers of the stages in each pair, -1 for one that is missing.
std::vector<std::pair<int, int>> numbers(const std::vector<StagePair>& pairs) {
  std::vector<std::pair<int, int>> result;
  for (const StagePair& pair : pairs) {
    result.emplace_back(pair.first ? pair.first->value : -1, pair.second ? pair.second->value : -1);
  }
  return result;
}

TEST_CASE("a plan corresponds to itself, and nothing moved") {
  const Plan plan = plan_of({{3, {0, 1}}, {5, {2}}, {9, {3}}});
  const PlanDifference same = difference(plan, plan);
  CHECK(numbers(same.stages) == std::vector<std::pair<int, int>>{{0, 0}, {1, 1}, {2, 2}});
  CHECK(same.layers.empty());
  CHECK(same.devices.empty());
  CHECK(same_plan(plan, plan));
}

TEST_CASE("cutting a stage in two leaves those behind it where they were") {
  const Plan whole = plan_of({{6, {0, 1}}, {8, {2}}});
  const Plan cut = plan_of({{4, {0}}, {6, {1}}, {8, {2}}});
  const PlanDifference change = difference(whole, cut);
  // The first half shares four layers with the whole stage, the second only two.
  CHECK(numbers(change.stages) == std::vector<std::pair<int, int>>{{0, 0}, {-1, 1}, {1, 2}});
  REQUIRE(change.layers.size() == 1);
  CHECK(change.layers[0].layers == LayerRange{4, 6});
  CHECK(change.layers[0].from == StageIndex{0});
  CHECK(change.layers[0].to == StageIndex{1});
  REQUIRE(change.devices.size() == 1);
  CHECK(change.devices[0].devices == std::vector{DeviceIndex{1}});
  CHECK(change.devices[0].from == std::vector{StageIndex{0}});
  CHECK(change.devices[0].to == std::vector{StageIndex{1}});
  const PlanDifference back = difference(cut, whole);
  CHECK(numbers(back.stages) == std::vector<std::pair<int, int>>{{0, 0}, {1, -1}, {2, 1}});
}

TEST_CASE("a boundary that shifts moves the layers between, and idle devices are in no stage") {
  const Plan before = plan_of({{3, {0, 1}}, {6, {2, 3}}});
  const Plan after = plan_of({{4, {0, 1}}, {6, {2}}});
  const PlanDifference change = difference(before, after);
  CHECK(numbers(change.stages) == std::vector<std::pair<int, int>>{{0, 0}, {1, 1}});
  REQUIRE(change.layers.size() == 1);
  CHECK(change.layers[0].layers == LayerRange{3, 4});
  CHECK(change.layers[0].from == StageIndex{1});
  CHECK(change.layers[0].to == StageIndex{0});
  REQUIRE(change.devices.size() == 1);
  CHECK(change.devices[0].devices == std::vector{DeviceIndex{3}});
  CHECK(change.devices[0].to.empty());
  CHECK_FALSE(same_plan(before, after));
}

TEST_CASE("plans whose stages hold the same layers on other devices correspond all the same") {
  const Plan here = plan_of({{2, {0}}, {4, {1}}});
  const Plan there = plan_of({{2, {1}}, {4, {0}}});
  const PlanDifference change = difference(here, there);
  CHECK(change.layers.empty());
  REQUIRE(change.devices.size() == 2);
  CHECK(change.devices[0].devices == std::vector{DeviceIndex{0}});
  CHECK(change.devices[0].from == std::vector{StageIndex{0}});
  CHECK(change.devices[0].to == std::vector{StageIndex{1}});
}

TEST_CASE("memory is set beside that of the same device, whichever plan uses it") {
  Prediction a;
  a.devices = {{.device = {0}, .peak_memory = {5}, .memory_limit = {10}}};
  Prediction b;
  b.devices = {{.device = {0}, .peak_memory = {7}, .memory_limit = {10}},
               {.device = {2}, .peak_memory = {1}, .memory_limit = {20}}};
  const std::vector<MemoryPair> pairs = memory_pairs(a, b);
  REQUIRE(pairs.size() == 2);
  CHECK(pairs[0].first == Bytes{5});
  CHECK(pairs[0].second == Bytes{7});
  CHECK(pairs[1].device == DeviceIndex{2});
  CHECK_FALSE(pairs[1].first);
  CHECK(pairs[1].second == Bytes{1});
  CHECK(pairs[1].limit == Bytes{20});
}

}  // namespace
}  // namespace dapple
