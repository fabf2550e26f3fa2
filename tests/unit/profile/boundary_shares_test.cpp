// Which boundaries tensors cross in shares, and bounds on gathering them.

#include "dapple/profile/boundary_shares.h"

#include <catch2/catch.hpp>

#include "dapple/profile/collective.h"

namespace dapple {
namespace {

constexpr std::size_t kTensor = static_cast<std::size_t>(CollectiveMembers::Tensor);

ModelProfile form_of(Parallelism parallelism) {
  ModelProfile form;
  form.boundaries = Boundaries::ScatterGather;
  form.parallelism = parallelism;
  form.group.rings[kTensor] = {.members = parallelism.tensor,
                               .bandwidth = {kNanosecondsPerSecond},
                               .latency = {},
                               .members_in_server = parallelism.tensor};
  return form;
}

TEST_CASE("tensors are cut among tensor ranks of a server that all have them") {
  CHECK(boundary_shares(form_of({.tensor = 4})) == 4);
  CHECK(boundary_shares(form_of({.tensor = 1})) == 1);
  CHECK(boundary_shares(form_of({.tensor = 4, .context = 2})) == 4);
  CHECK(boundary_shares(form_of({.tensor = 4, .sequence = true})) == 1);
  ModelProfile whole = form_of({.tensor = 4});
  whole.boundaries = Boundaries::Whole;
  CHECK(boundary_shares(whole) == 1);
  ModelProfile apart = form_of({.tensor = 4});
  apart.group.rings[kTensor].members_in_server = 2;
  CHECK(boundary_shares(apart) == 1);
  ModelProfile of_two_kinds = form_of({.tensor = 4});
  of_two_kinds.other_groups = {apart.group};
  CHECK(boundary_shares(of_two_kinds) == 1);
}

TEST_CASE("between two forms tensors are cut only where both hold and divide them alike") {
  const ModelProfile form = form_of({.tensor = 4});
  CHECK(shares_between(form, {.tensor = 4}) == 4);
  CHECK(shares_between(form, {.tensor = 4, .shards_optimizer = true}) == 4);
  CHECK(shares_between(form, {.tensor = 4, .recomputes = kWholeLayer}) == 4);
  CHECK(shares_between(form, {.tensor = 2, .group_replicas = 2}) == 1);
  CHECK(shares_between(form, {.tensor = 4, .group_replicas = 2}) == 1);
  CHECK(shares_between(form, {.tensor = 4, .sequence = true}) == 1);
  CHECK(shares_between(form_of({.tensor = 4, .group_replicas = 2}), {.tensor = 4, .context = 2}) ==
        1);
}

Layer with_output(std::int64_t batch, std::int64_t output) {
  Layer layer;
  Measurement& point = layer.measurements.emplace_back();
  point.batch_size = batch;
  point.output = {output};
  return layer;
}

TEST_CASE("a rank that has less than three quarters of an output has a part of it") {
  const Layer layer = with_output(2, 80);
  const auto variant = [](Parallelism form, std::int64_t batch, std::int64_t output) {
    LayerVariant some{};
    some.parallelism = form;
    some.measurements = with_output(batch, output).measurements;
    return some;
  };
  CHECK_FALSE(divides_output(layer, variant({.tensor = 2}, 2, 80)));
  CHECK_FALSE(divides_output(layer, variant({.tensor = 2}, 1, 30)));
  CHECK(divides_output(layer, variant({.tensor = 2}, 1, 29)));
  CHECK(divides_output(layer, variant({.tensor = 2}, 2, 41)));  // half, rounded up
  CHECK_FALSE(divides_output(layer, variant({.tensor = 2, .context = 2}, 2, 40)));
  CHECK(divides_output(layer, variant({.tensor = 2, .context = 2}, 2, 20)));
  CHECK_FALSE(divides_output(layer, variant({.context = 2}, 2, 20)));
  CHECK_FALSE(divides_output(with_output(2, 0), variant({.tensor = 2}, 2, 0)));
}

TEST_CASE("what crosses a cut beside a divided tensor is sent as it is") {
  ModelProfile form = form_of({.tensor = 2});
  form.layers.resize(5);
  for (std::int32_t l = 1; l < 5; ++l) form.layers[static_cast<std::size_t>(l)].inputs = {{l - 1}};
  form.layers[3].inputs = {{1}, {2}};
  form.layers[1].divides_output = true;
  CHECK(cuts_with_divided_tensors(form) ==
        std::vector<bool>{false, false, true, true, false, false});
}

TEST_CASE("no gather of more bytes takes less than the bound, where measured times fall too") {
  ModelProfile form = form_of({.tensor = 4});
  CHECK(least_gather_time(form, {80}).ns == 60);  // 3/4 of 80 bytes at 1 byte/ns
  GroupShape other = form.group;
  other.rings[kTensor].measured = {{{40}, {200}}, {{100}, {90}}, {{200}, {400}}};
  form.other_groups = {other};
  // By the links of the first kind; an all-gather is half of an all-reduce on the other.
  CHECK(least_gather_time(form, {20}).ns == 15);
  CHECK(least_gather_time(form, {70}).ns == 45);  // half of 90, of 100 bytes
  CHECK(least_gather_time(form, {100}).ns == 45);
  CHECK(least_gather_time(form, {200}).ns == 150);
  form.boundaries = Boundaries::Whole;
  CHECK(least_gather_time(form, {200}) == Duration{});
}

}  // namespace
}  // namespace dapple
