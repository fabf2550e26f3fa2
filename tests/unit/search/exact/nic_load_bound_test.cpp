#include "dapple/search/exact/nic_load_bound.h"

#include <catch2/catch.hpp>
#include <cstdint>

#include "../../../support/clusters.h"
#include "../../../support/models.h"
#include "dapple/core/quantity.h"
#include "dapple/search/search_problem.h"
#include "dapple/topology/topology.h"

namespace dapple::search {
namespace {

using namespace small;

/// Six layers on three servers of two devices whose NICs send a byte in a nanosecond; ten
/// micro-batches of one sample, so that no stage has two replicas.
Duration bound_with(Bandwidth nic, const SearchProblem& problem, Duration threshold,
                    const Allowance::Limits& limits = {}, Duration step = {}) {
  ModelProfile profile =
      model_of(std::vector<LayerFigures>(6, {.forward = 100, .backward = 100, .output = 156}));
  profile.optimizer.step_ns_per_parameter_byte = kOne;
  for (const std::size_t l : {2U, 3U}) profile.layers[l].parameters = {step.ns};
  const Topology topology(cluster(
      {.servers = 3, .devices = 2, .inside = {bytes_per_ns(1000), {}}, .nics = {Link{nic, {}}}}));
  return nic_load_bound(profile, topology, problem, threshold, limits);
}

constexpr SearchProblem kProblem{
    .global_batch_size = 10, .micro_batch_size = 1, .links_are_shared = true};
// Times are not rounded below 8,192 ns.
constexpr Duration kAny{4'001};

}  // namespace

TEST_CASE("a server in the middle of a pipeline sends over both of its boundaries") {
  // Four devices or fewer have two layers on some device, whose work is 10 * 2 * 20 = 400. With a
  // layer for each device the server in the middle sends 10 * 15 bytes of activations and as many
  // of gradients, which take 300. The first leave it when four layers have run and one boundary has
  // been passed, at 4 * 10 + 15 = 55; behind the last two layers run their backwards, in 20.
  CHECK(bound_with(bytes_per_ns(1), kProblem, kAny).ns == 3750);
}

TEST_CASE("a server in the middle receives as much, and then ends its backwards and its steps") {
  // The middle server has the third and the fourth layer, each with a step of 50. It begins to
  // receive when two layers have run, at 20, for 300. Then both layers run their last backwards, in
  // 20, and the third one makes its step.
  CHECK(bound_with(bytes_per_ns(1), kProblem, kAny, {}, Duration{500}).ns == 3900);
}

TEST_CASE("gradients pass the NICs of each of a stage's servers once each way") {
  // Four samples at once of one layer, 10 forward and 10 backward each, of which a device holds
  // one. So there are four replicas on both of two servers, which reduce gradients of 250 bytes
  // behind their work: in 250 between the servers, half of them each way around the ring twice, and
  // in 1 within them. The NICs alone take 250, which would be more if it were twice as much.
  const ModelProfile profile =
      model_of({{.forward = 10, .backward = 10, .parameters = 250, .stash = 10'000}});
  TopologyDescription description = cluster({.servers = 2,
                                             .devices = 2,
                                             .inside = {bytes_per_ns(1000), {}},
                                             .nics = {Link{bytes_per_ns(1), {}}}});
  description.devices.front().memory = {15'000};
  const SearchProblem problem{
      .global_batch_size = 4, .micro_batch_size = 4, .links_are_shared = true};
  const Topology topology(description);
  CHECK(nic_load_bound(profile, topology, problem, kAny, {}).ns == 10 + 10 + 250 + 1);
}

TEST_CASE("where NICs are quick the work decides") {
  // The last layer runs ten forwards and backwards, of 200 together, after the forwards of the five
  // others and before their backwards.
  CHECK(bound_with(bytes_per_ns(1000), kProblem, kAny).ns == 3000);
}

TEST_CASE("a bound is at most the threshold, and none is known without steps or contention") {
  CHECK(bound_with(bytes_per_ns(1), kProblem, Duration{3600}).ns == 3600);
  CHECK(bound_with(bytes_per_ns(1), kProblem, kAny, {.work = 10}).ns == 0);
  SearchProblem alone = kProblem;
  alone.links_are_shared = false;
  CHECK(bound_with(bytes_per_ns(1), alone, kAny).ns == 0);
}

}  // namespace dapple::search
