#include "dapple/search/exact/exact_search.h"

#include <catch2/catch.hpp>
#include <set>

#include "../../../support/plans.h"

using namespace dapple;

namespace {

const auto kNeverStop = [] { return false; };

/// Two layers of 10 forward and 20 backward per sample, nothing to send or to reduce.
ModelProfile two_layers() {
  return small::model_of({{.forward = 10, .backward = 20}, {.forward = 10, .backward = 20}});
}

}  // namespace

TEST_CASE("candidates come by rising bound, each of them once, below the threshold only") {
  // Two devices, batch 2 in micro-batches of 1. Both layers on one device: 2 * 60 = 120. One layer
  // each: the second stage's 2 * 30 between the first's 10 and 20, 90. Recomputation adds 10 to a
  // backward: of the first stage 10 + 60 + 30 = 100, of the second 10 + 80 + 20 = 110, of both 10 +
  // 80 + 30 = 120; of one stage of both layers 2 * 80 = 160, not below the threshold.
  const ModelProfile profile = two_layers();
  const Topology topology(small::cluster({.servers = 1, .devices = 2}));
  search::ExactSearch search(profile, topology, {.global_batch_size = 2, .micro_batch_size = 1});
  search.prepare({150}, {.should_stop = kNeverStop});
  CHECK(search.bound() == Duration{90});
  search.advance({150}, {.candidates = 100, .states = 1000});
  CHECK(search.is_exhausted());
  CHECK(search.open({150}) == 5);
  CHECK(search.open({120}) == 3);
  std::vector<std::int64_t> bounds;
  std::vector<std::size_t> stages;
  while (search.waiting() > 0) {
    const search::Candidate candidate = search.take();
    bounds.push_back(candidate.bound.ns);
    stages.push_back(candidate.stages.size());
  }
  CHECK(bounds == std::vector<std::int64_t>{90, 100, 110, 120, 120});
  CHECK(stages.front() == 2);
  CHECK(search.bound() == Duration{150});
  CHECK(search.open({150}) == 0);
}

TEST_CASE("a stage may have less work than the part of it without its first layer") {
  // One device, two samples, three layers of 30, of which every second one recomputes: the second
  // in 1, the last in 100. All three take 2 * 91. The last two would take 2 * 160, which is not
  // below the threshold.
  const ModelProfile profile = small::with_every_nth(
      small::model_of(std::vector<small::LayerFigures>(3, {.forward = 10, .backward = 20})), 2,
      {1, 1, 100});
  const Topology topology(small::cluster({.servers = 1, .devices = 1}));
  search::ExactSearch search(profile, topology, {.global_batch_size = 2, .micro_batch_size = 1});
  search.prepare({200}, {.should_stop = kNeverStop});
  CHECK(search.bound() == Duration{182});
  search.advance({200}, {.candidates = 100, .states = 1000});
  REQUIRE(search.waiting() == 1);
  const search::Candidate candidate = search.take();
  CHECK(candidate.bound == Duration{182});
  CHECK(candidate.stages.size() == 1);
}

TEST_CASE(
    "a search whose preparation is stopped, too long or too large claims what work alone takes") {
  // 2 samples * 60 on two devices.
  const ModelProfile profile = two_layers();
  const Topology topology(small::cluster({.servers = 1, .devices = 2}));
  search::Allowance::Limits limits;
  SECTION("stopped") {
    limits.should_stop = [] { return true; };
  }
  SECTION("too long") {
    limits.work = 0;
  }
  SECTION("too large") {
    limits.kept = {};
  }
  search::ExactSearch search(profile, topology, {.global_batch_size = 2, .micro_batch_size = 1});
  search.prepare({150}, limits);
  CHECK(!search.is_prepared());
  CHECK(search.bound() <= Duration{60});
  CHECK(search.bound() >= Duration{55});
  search.advance({150}, {.candidates = 100, .states = 1000});
  CHECK(search.waiting() == 0);
}

TEST_CASE("once the end of the allowance is noticed no more stages are bounded") {
  // One step is allowed, which is counted at first. On each of 1 to 15 devices three more are
  // counted before their stages are given up: one stage, and one function with recomputation and
  // one without. Before stages on 16 devices are bounded, a step is counted, and each of the 5 x 3
  // numbers in the layer tables of 1 to 6, 8 and 16 samples, and the end is noticed.
  const ModelProfile profile = two_layers();
  const Topology topology(small::cluster({.servers = 1, .devices = 16}));
  search::ExactSearch search(profile, topology, {.global_batch_size = 16, .micro_batch_size = 16});
  search.prepare({10'000}, {.work = 1, .should_stop = kNeverStop});
  CHECK(!search.is_prepared());
  CHECK(search.work() == 1 + 15 * 3 + 1 + 8 * (5 * 3));
}

TEST_CASE("no number of replicas stands for others where they shard state") {
  // The placements of 32 devices in four servers are not all tried. A micro-batch of 16 samples
  // gives 12 to 15 replicas 2 at most each, as it does 8; yet weights, gradients and a bucket of
  // 100 bytes each leave 100 of 400, which is a part of the 1,200 of the state on 12 or more.
  ModelProfile profile = small::model_of({{.forward = 10, .backward = 20, .parameters = 100}});
  profile.optimizer.state_bytes_per_parameter_byte = {12 * kOne.billionths};
  TopologyDescription description = small::cluster({.servers = 4, .devices = 8});
  description.devices.front().memory = {400};
  description.devices.front().reserved = {};
  description.shards_optimizer = true;
  const Topology topology(description);
  search::ExactSearch search(profile, topology, {.global_batch_size = 16, .micro_batch_size = 16});
  search.prepare({10'000}, {.should_stop = kNeverStop});
  CHECK(!search.covers_all_placements());
  search.advance({10'000}, {.candidates = 1000, .states = 10'000});
  CHECK(search.is_exhausted());
  std::set<std::size_t> replicas;
  while (search.waiting() > 0) replicas.insert(search.take().stages.front().devices.size());
  CHECK(replicas == std::set<std::size_t>{12, 13, 14, 15, 16});
}
