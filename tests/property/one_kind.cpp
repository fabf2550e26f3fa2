// On a cluster of several kinds of devices the plan is never slower than those for one kind alone,
// however many ways there are to place stages, whatever else is open.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "../support/clusters.h"
#include "../support/dice.h"
#include "../support/models.h"
#include "../support/own_times.h"
#include "../support/scaled.h"
#include "dapple/planner/parallelism/plan_parallelisms.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/made_plan.h"
#include "dapple/topology/servers_of_kind.h"

using namespace dapple;
using small::Dice;

namespace {

constexpr const char* kQuick = "quick";

/// A chain of layers, half of which have variants for tensor parallelism.
ModelProfile random_model(Dice& dice) {
  std::vector<small::LayerFigures> figures;
  for (std::int64_t l = dice.roll(2, 3); l > 0; --l) {
    figures.push_back({.forward = dice.roll(1, 40),
                       .backward = dice.roll(1, 80),
                       .output = dice.roll(0, 60),
                       .parameters = dice.roll(0, 400),
                       .stash = dice.roll(0, 9),
                       .workspace = 0});
  }
  ModelProfile profile = small::model_of(figures);
  if (dice.chance(50)) return profile;
  for (Layer& layer : profile.layers) {
    LayerVariant& variant = layer.variants.emplace_back();
    variant.parallelism.tensor = 2;
    variant.parameters = {layer.parameters.count / 2};
    variant.measurements = layer.measurements;
    for (Measurement& measurement : variant.measurements) {
      measurement.forward = {measurement.forward.ns / 2 + 1};
      measurement.backward = {measurement.backward.ns / 2 + 1};
    }
    variant.forward_collectives = {{.size_per_sample = {dice.roll(0, 30)}}};
  }
  return profile;
}

/// Groups of servers, quick and slow ones in random order, so many that not all placements are
/// tried.
TopologyDescription random_cluster(Dice& dice) {
  TopologyDescription description =
      small::cluster({.servers = 1,
                      .devices = 1,
                      .inside = {small::bytes_per_ns(dice.roll(1, 20)), {dice.roll(0, 5)}},
                      .nics = {Link{small::bytes_per_ns(dice.roll(1, 4)), {dice.roll(0, 10)}}}});
  const ServerGroup pattern = description.servers.front();
  description.servers.clear();
  const bool has_other_links = dice.chance(50);
  const Link other{small::bytes_per_ns(dice.roll(1, 20)), {dice.roll(0, 5)}};
  const std::int64_t groups = dice.roll(2, 3);
  for (std::int64_t g = 0; g < groups; ++g) {
    ServerGroup& group = description.servers.emplace_back(pattern);
    group.name = "group" + std::to_string(g) + "x";
    group.count = static_cast<std::int32_t>(dice.roll(2, 3));
    group.devices = static_cast<std::int32_t>(2 * dice.roll(2, 3));
    if ((g + dice.roll(0, 1)) % 2 != 0) continue;
    group.device = kQuick;
    if (has_other_links) group.links.port = other;
  }
  return description;
}

struct Request {
  ModelProfile profile;
  TopologyDescription description;
  planner::PlannerOptions options;
};

Request random_request(Dice& dice) {
  Request request{
      .profile = random_model(dice), .description = random_cluster(dice), .options = {}};
  TopologyDescription& description = request.description;
  DeviceKind quick = description.devices.front();
  quick.name = kQuick;
  quick.time_scale[description.devices.front().name] = {kOne.billionths * dice.roll(20, 90) / 100};
  description.devices.push_back(quick);
  request.profile.device = description.devices.front().name;
  if (dice.chance(40)) small::measure_on(dice, quick.name, request.profile);
  if (dice.chance(30)) {
    const auto servers = static_cast<std::int32_t>(server_count(description));
    UplinkGroup rack;
    rack.members = servers - 1;
    rack.oversubscription = {2 * kOne.billionths};
    UplinkGroup last;
    last.bandwidth = small::bytes_per_ns(1);
    description.racks = {rack, last};
  }
  planner::PlannerOptions& options = request.options;
  const std::int64_t size = dice.roll(1, 8);
  options.global_batch_size = size * dice.roll(1, 4);
  request.profile.global_batch_size = options.global_batch_size;
  if (dice.chance(50)) options.micro_batch_size = size;
  if (dice.chance(20)) options.pins.replicas = static_cast<std::int32_t>(dice.roll(1, size));
  if (dice.chance(20)) options.pins.stages = static_cast<std::int32_t>(dice.roll(1, 3));
  if (dice.chance(25)) options.sharding = Sharding::Optimizer;
  if (dice.chance(10)) options.mixes_forms = true;
  options.every_family = !options.mixes_forms && dice.chance(30);
  if (!options.mixes_forms && !options.every_family && dice.chance(30)) {
    options.family = dice.chance(50) ? ScheduleFamily::Interleaved : ScheduleFamily::ListScheduled;
  }
  options.bucket_size = Bytes{dice.roll(1, 400)};
  options.baselines = false;
  options.threads = 1;
  return request;
}

/// Returns the plan for the topology; nothing where none fits as pinned.
std::optional<PlanDocument> plan_for(const Request& request, const Topology& topology) {
  if (request.options.pins.replicas.value_or(1) > topology.device_count()) return std::nullopt;
  const auto made = planner::make_plan_of_any_parallelism(
      {request.profile, topology, request.options}, std::nullopt);
  const auto* plan = std::get_if<planner::MadePlan>(&made);
  return plan == nullptr ? std::nullopt : std::optional(plan->document);
}

}  // namespace

TEST_CASE("no plan for one kind of devices alone is faster than that for all") {
  Dice dice(3111);
  int compared = 0;
  int on_one_kind = 0;
  for (int round = 0; round < small::scaled(12); ++round) {
    const Request request = random_request(dice);
    const Topology whole(request.description);
    if (kinds_in_use(whole).size() < 2) continue;
    CAPTURE(round);
    const std::optional<PlanDocument> plan = plan_for(request, whole);
    for (const std::int32_t kind : {0, 1}) {
      TopologyDescription servers = servers_of_kind(whole, kind);
      const std::optional<PlanDocument> part = plan_for(request, Topology{std::move(servers)});
      if (!part) continue;
      REQUIRE(plan.has_value());
      CHECK(plan->prediction.iteration <= part->prediction.iteration);
      CHECK(plan->prediction.lower_bound.value() <= part->prediction.iteration);
      if (plan->prediction.iteration == part->prediction.iteration) ++on_one_kind;
      ++compared;
    }
  }
  CHECK(compared >= small::scaled(10));
  CHECK(on_one_kind >= small::scaled(2));
}

TEST_CASE("the servers of one kind have the links that they have in the whole") {
  Dice dice(3112);
  int routes = 0;
  for (int round = 0; round < small::scaled(50); ++round) {
    const Request request = random_request(dice);
    const Topology whole(request.description);
    for (const std::int32_t kind : {0, 1}) {
      std::vector<DeviceIndex> of_kind;
      for (std::int32_t d = 0; d < whole.device_count(); ++d) {
        if (whole.device({d}).kind == kind) of_kind.push_back({d});
      }
      TopologyDescription servers = servers_of_kind(whole, kind);
      CHECK(servers.servers.empty() == of_kind.empty());
      if (of_kind.empty()) continue;
      const Topology part(std::move(servers));
      REQUIRE(part.device_count() == std::ssize(of_kind));
      for (int i = 0; i < 20; ++i) {
        const auto from = static_cast<std::int32_t>(dice.roll(0, part.device_count() - 1));
        const auto to = static_cast<std::int32_t>(dice.roll(0, part.device_count() - 1));
        if (from == to) continue;
        const DeviceIndex from_in_whole = of_kind[static_cast<std::size_t>(from)];
        const DeviceIndex to_in_whole = of_kind[static_cast<std::size_t>(to)];
        CHECK(part.device({from}).name == whole.device(from_in_whole).name);
        const Route here = part.route({from}, {to});
        const Route there = whole.route(from_in_whole, to_in_whole);
        CHECK(here.ports.size() == there.ports.size());
        CHECK(here.bandwidth == there.bandwidth);
        CHECK(here.latency == there.latency);
        ++routes;
      }
    }
  }
  CHECK(routes >= small::scaled(1000));
}
