// Reductions in their order, driven by hand: the test says what is ready and what is over, and is
// told what starts.

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dapple/simulate/reduction_scheduler.h"
#include "lane.h"

namespace dapple::simulate {
namespace {

constexpr GroupIndex kFirstGroup{0};
constexpr GroupIndex kSecondGroup{1};
constexpr GroupIndex kThirdGroup{2};

/// Stages with these numbers of buckets, and ties of these stages.
PlanCost costs_of(const std::vector<std::size_t>& buckets,
                  const std::vector<std::vector<StageIndex>>& ties = {}) {
  PlanCost costs;
  for (const std::size_t count : buckets) costs.stages.emplace_back().buckets.resize(count);
  for (const std::vector<StageIndex>& stages : ties) costs.ties.emplace_back().stages = stages;
  return costs;
}

Action step(std::int32_t stage, std::int32_t part = 0) {
  return {ActionKind::OptimizerStep, part, {stage}};
}

Reduction bucket(std::int32_t stage, std::int32_t number) {
  return {.reducer = stage, .bucket = number};
}

TEST_CASE("buckets are reduced one after another, in the order of the schedule") {
  const Schedule schedule{1, {lane({{0}}, "0F0 0B0 0REDUCE_GRAD0 0REDUCE_GRAD1 0STEP")}};
  const PlanCost costs = costs_of({2});
  ReductionScheduler reductions(schedule, costs);
  // Bucket 1 waits for bucket 0, though it is ready first.
  CHECK_FALSE(reductions.bucket_ready({0}, 1));
  CHECK_FALSE(reductions.is_reducing(kFirstGroup));
  CHECK(reductions.bucket_ready({0}, 0) == bucket(0, 0));
  CHECK(reductions.is_reducing(kFirstGroup));
  CHECK_FALSE(reductions.start_next(kFirstGroup));
  reductions.finish(bucket(0, 0));
  CHECK_FALSE(reductions.is_reduced_for(step(0)));
  CHECK(reductions.start_next(kFirstGroup) == bucket(0, 1));
  CHECK(to_text(reductions.last_started(kFirstGroup)) == "0REDUCE_GRAD1");
  reductions.finish(bucket(0, 1));
  CHECK_FALSE(reductions.start_next(kFirstGroup));
  CHECK_FALSE(reductions.is_reducing(kFirstGroup));
  CHECK(reductions.is_reduced_for(step(0)));
}

TEST_CASE("a bucket that is ready while another is reduced waits until that is over") {
  const Schedule schedule{1, {lane({{0}}, "0F0 0B0 0REDUCE_GRAD0 0REDUCE_GRAD1 0STEP")}};
  const PlanCost costs = costs_of({2});
  ReductionScheduler reductions(schedule, costs);
  CHECK(reductions.bucket_ready({0}, 0) == bucket(0, 0));
  CHECK_FALSE(reductions.bucket_ready({0}, 1));
  reductions.finish(bucket(0, 0));
  CHECK(reductions.start_next(kFirstGroup) == bucket(0, 1));
}

TEST_CASE("a bucket waits for every lane of its group, and for no other") {
  // Stage 0 has three replicas, to which micro-batches are dealt; stage 1 has two.
  const std::string first = "0REDUCE_GRAD0 0STEP";
  const std::string second = "1REDUCE_GRAD0 1STEP";
  const Schedule schedule{3,
                          {lane({{0}}, first), lane({{0}}, first), lane({{0}}, first),
                           lane({{1}}, second), lane({{1}}, second)}};
  const PlanCost costs = costs_of({1, 1});
  ReductionScheduler reductions(schedule, costs);
  CHECK(reductions.lanes_of(kFirstGroup).count == 3);
  CHECK(reductions.lanes_of(kSecondGroup).first == LaneIndex{3});
  CHECK(reductions.lanes_of(kSecondGroup).count == 2);
  CHECK_FALSE(reductions.bucket_ready({0}, 0));
  CHECK_FALSE(reductions.bucket_ready({1}, 0));
  CHECK_FALSE(reductions.bucket_ready({0}, 0));
  CHECK(reductions.bucket_ready({1}, 0) == bucket(1, 0));
  // The groups reduce side by side.
  CHECK(reductions.bucket_ready({0}, 0) == bucket(0, 0));
  REQUIRE(reductions.groups_of(bucket(1, 0)).size() == 1);
  CHECK(reductions.groups_of(bucket(1, 0)).front() == kSecondGroup);
  reductions.finish(bucket(1, 0));
  CHECK(reductions.is_reducing(kFirstGroup));
  CHECK_FALSE(reductions.is_reducing(kSecondGroup));
}

TEST_CASE("the stages of one group share one order") {
  // Both stages are on one device, and its schedule reduces those of stage 1 first.
  const Schedule schedule{1, {lane({{0}, {1}}, "1REDUCE_GRAD0 0REDUCE_GRAD0 0STEP 1STEP")}};
  const PlanCost costs = costs_of({1, 1});
  ReductionScheduler reductions(schedule, costs);
  CHECK_FALSE(reductions.bucket_ready({0}, 0));
  CHECK(reductions.bucket_ready({1}, 0) == bucket(1, 0));
  reductions.finish(bucket(1, 0));
  CHECK(reductions.is_reduced_for(step(1)));
  CHECK_FALSE(reductions.is_reduced_for(step(0)));
  CHECK(reductions.start_next(kFirstGroup) == bucket(0, 0));
}

TEST_CASE("tied gradients are reduced by all groups at once, behind the buckets of each") {
  const Schedule schedule{1,
                          {lane({{0}}, "0REDUCE_GRAD0 0REDUCE_TIED0 0STEP"), lane({{1}}, "1STEP"),
                           lane({{2}}, "2REDUCE_TIED0 2STEP")}};
  const PlanCost costs = costs_of({1, 0, 0}, {{{0}, {2}}});
  ReductionScheduler reductions(schedule, costs);
  const Reduction tie{.reducer = 3, .bucket = 0};
  CHECK_FALSE(reductions.gradients_made({2}));
  // Stage 1 has no part in it, and its step waits for nothing.
  CHECK_FALSE(reductions.gradients_made({1}));
  CHECK(reductions.is_reduced_for(step(1)));
  CHECK(reductions.bucket_ready({0}, 0) == bucket(0, 0));
  CHECK_FALSE(reductions.gradients_made({0}));
  reductions.finish(bucket(0, 0));
  CHECK_FALSE(reductions.is_reduced_for(step(0)));

  CHECK(reductions.start_next(kFirstGroup) == tie);
  const std::span<const GroupIndex> groups = reductions.groups_of(tie);
  CHECK(std::vector<GroupIndex>(groups.begin(), groups.end()) ==
        std::vector<GroupIndex>{kFirstGroup, kThirdGroup});
  CHECK(reductions.is_reducing(kFirstGroup));
  CHECK_FALSE(reductions.is_reducing(kSecondGroup));
  CHECK(reductions.is_reducing(kThirdGroup));
  CHECK(to_text(reductions.last_started(kThirdGroup)) == "2REDUCE_TIED0");
  CHECK_FALSE(reductions.start_next(kThirdGroup));
  reductions.finish(tie);
  CHECK_FALSE(reductions.is_reducing(kThirdGroup));
  CHECK(reductions.is_reduced_for(step(0)));
  CHECK(reductions.is_reduced_for(step(2)));
}

TEST_CASE("tied gradients wait for every replica of every stage that contributes") {
  const std::string first = "0REDUCE_TIED0 0STEP";
  const Schedule schedule{
      2, {lane({{0}}, first), lane({{0}}, first), lane({{1}}, "1REDUCE_TIED0 1STEP")}};
  const PlanCost costs = costs_of({0, 0}, {{{0}, {1}}});
  ReductionScheduler reductions(schedule, costs);
  CHECK_FALSE(reductions.gradients_made({0}));
  CHECK_FALSE(reductions.gradients_made({1}));
  CHECK(reductions.gradients_made({0}) == Reduction{.reducer = 2, .bucket = 0});
}

TEST_CASE("two stages of one group contribute to tied gradients once each") {
  // Stages 0 and 2 are on one device; the tie has one reduction there.
  const Schedule schedule{
      1, {lane({{0}, {2}}, "0REDUCE_TIED0 0STEP 2STEP"), lane({{1}}, "1REDUCE_TIED0 1STEP")}};
  const PlanCost costs = costs_of({0, 0, 0}, {{{0}, {1}, {2}}});
  ReductionScheduler reductions(schedule, costs);
  CHECK_FALSE(reductions.gradients_made({2}));
  CHECK_FALSE(reductions.gradients_made({1}));
  const Reduction tie{.reducer = 3, .bucket = 0};
  CHECK(reductions.gradients_made({0}) == tie);
  CHECK(reductions.groups_of(tie).size() == 2);
  CHECK_FALSE(reductions.is_reduced_for(step(2)));
  reductions.finish(tie);
  CHECK(reductions.is_reduced_for(step(2)));
}

TEST_CASE("a tie waits where a group has another one in front of it") {
  // Stage 2 contributes to both: tie 0 with stage 0, then tie 1 with stage 1.
  const Schedule schedule{1,
                          {lane({{0}}, "0REDUCE_TIED0 0STEP"), lane({{1}}, "1REDUCE_TIED1 1STEP"),
                           lane({{2}}, "2REDUCE_TIED0 2REDUCE_TIED1 2STEP")}};
  const PlanCost costs = costs_of({0, 0, 0}, {{{0}, {2}}, {{1}, {2}}});
  ReductionScheduler reductions(schedule, costs);
  const Reduction first{.reducer = 3, .bucket = 0};
  const Reduction second{.reducer = 4, .bucket = 0};
  CHECK_FALSE(reductions.gradients_made({2}));
  CHECK_FALSE(reductions.gradients_made({1}));
  CHECK(reductions.gradients_made({0}) == first);
  CHECK_FALSE(reductions.start_next(kSecondGroup));
  reductions.finish(first);
  CHECK(reductions.is_reduced_for(step(0)));
  CHECK_FALSE(reductions.start_next(kFirstGroup));
  CHECK(reductions.start_next(kThirdGroup) == second);
  CHECK(reductions.is_reducing(kSecondGroup));
  reductions.finish(second);
  CHECK(reductions.is_reduced_for(step(1)));
  CHECK(reductions.is_reduced_for(step(2)));
}

TEST_CASE("each part of a step by bucket waits for its bucket, the last one for tied gradients") {
  const Schedule schedule{
      1,
      {lane({{0}}, "0REDUCE_GRAD0 0REDUCE_GRAD1 0REDUCE_TIED0 0STEP 0STEP1 0STEP2"),
       lane({{1}}, "1REDUCE_TIED0 1STEP 1STEP1")}};
  PlanCost costs = costs_of({2, 0}, {{{0}, {1}}});
  costs.stages[0].bucket_steps.resize(3);
  // Without a bucket there are two parts: the first waits for nothing.
  costs.stages[1].bucket_steps.resize(2);
  ReductionScheduler reductions(schedule, costs);
  CHECK(reductions.is_reduced_for(step(1, 0)));
  CHECK_FALSE(reductions.is_reduced_for(step(1, 1)));

  reductions.bucket_ready({0}, 0);
  CHECK_FALSE(reductions.is_reduced_for(step(0, 0)));
  reductions.finish(bucket(0, 0));
  CHECK(reductions.is_reduced_for(step(0, 0)));
  CHECK_FALSE(reductions.is_reduced_for(step(0, 1)));
  reductions.bucket_ready({0}, 1);
  reductions.finish(bucket(0, 1));
  CHECK(reductions.is_reduced_for(step(0, 1)));
  CHECK_FALSE(reductions.is_reduced_for(step(0, 2)));

  reductions.gradients_made({0});
  const std::optional<Reduction> tie = reductions.gradients_made({1});
  REQUIRE(tie);
  reductions.finish(*tie);
  CHECK(reductions.is_reduced_for(step(0, 2)));
  CHECK(reductions.is_reduced_for(step(1, 1)));
}

TEST_CASE("a reduction costs what its bucket or its tie does") {
  PlanCost costs = costs_of({2}, {{{0}}});
  costs.stages[0].buckets[1].size = {7};
  costs.ties[0].reduction.size = {9};
  CHECK(bucket(0, 1).cost(costs).size == Bytes{7});
  CHECK(Reduction{.reducer = 1, .bucket = 0}.cost(costs).size == Bytes{9});
}

}  // namespace
}  // namespace dapple::simulate
