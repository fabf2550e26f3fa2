#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#include "../../support/clusters.h"
#include "../../support/dice.h"
#include "../../support/models.h"
#include "../../support/scaled.h"
#include "dapple/cost/cost_model.h"
#include "dapple/plan/plan.h"

using namespace dapple;

namespace {

/// Single devices, of which each is of one of three kinds.
TopologyDescription mixed_cluster(small::Dice& dice, std::int64_t devices) {
  TopologyDescription description = small::cluster({.servers = 1, .devices = 1});
  const DeviceKind first = description.devices.front();
  for (const char* name : {"second", "third"}) {
    DeviceKind& kind = description.devices.emplace_back(first);
    kind.name = name;
    kind.time_scale[first.name] = {dice.roll(1, 40) * kOne.billionths / 10};
  }
  ServerGroup server = description.servers.front();
  server.nics = {{.source = "", .link = {small::bytes_per_ns(1), {}}, .devices = {}}};
  description.servers.clear();
  for (std::int64_t i = 0; i < devices; ++i) {
    server.name = "node" + std::to_string(i);
    server.device = description.devices[static_cast<std::size_t>(dice.roll(0, 2))].name;
    description.servers.push_back(server);
  }
  return description;
}

/// The least time of the slowest replica over all ways to share the samples that are left, each
/// replica having one.
std::int64_t least_longest(const std::vector<std::int64_t>& times, std::size_t replica,
                           std::int64_t left) {
  if (replica + 1 == times.size()) return left * times[replica];
  const auto others = static_cast<std::int64_t>(times.size() - replica - 1);
  std::int64_t least = INT64_MAX;
  for (std::int64_t share = 1; share <= left - others; ++share) {
    const std::int64_t rest = least_longest(times, replica + 1, left - share);
    least = std::min(least, std::max(share * times[replica], rest));
  }
  return least;
}

}  // namespace

TEST_CASE("shares by speed make the slowest replica as fast as any shares do") {
  small::Dice dice(4101);
  int unequal = 0;
  for (int round = 0; round < small::scaled(600); ++round) {
    const std::int64_t replicas = dice.roll(2, 4);
    const std::int64_t samples = dice.roll(replicas, 12);
    const Topology topology(mixed_cluster(dice, replicas));
    ModelProfile profile = small::model_of({{.forward = dice.roll(1, 50), .backward = 7}});
    profile.device = topology.description().devices.front().name;
    const CostModel costs(profile, topology);
    std::vector<DeviceIndex> devices;
    std::vector<std::int64_t> times;
    for (std::int32_t d = 0; d < replicas; ++d) {
      devices.push_back({d});
      const LayerTable& table =
          costs.table(divide_up(samples, replicas), topology.device({d}).kind);
      times.push_back((table.forward({0, 1}) + table.backward({0, 1})).ns);
    }
    std::vector<std::int64_t> shares = costs.shares_by_speed(samples, devices);
    if (shares.empty()) {
      for (std::int64_t i = 0; i < replicas; ++i) {
        shares.push_back(replica_share(samples, replicas, i).size());
      }
    } else {
      ++unequal;
    }
    CAPTURE(round, times, shares);
    REQUIRE(shares.size() == devices.size());
    REQUIRE(*std::min_element(shares.begin(), shares.end()) >= 1);
    REQUIRE(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}) == samples);
    std::int64_t longest = 0;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      longest = std::max(longest, shares[i] * times[i]);
      for (std::size_t k = i + 1; k < shares.size(); ++k) {
        if (topology.device(devices[i]).kind != topology.device(devices[k]).kind) continue;
        // The first replicas of a kind have the larger shares.
        REQUIRE(shares[i] - shares[k] >= 0);
        REQUIRE(shares[i] - shares[k] <= 1);
      }
    }
    REQUIRE(longest == least_longest(times, 0, samples));
  }
  CHECK(unequal >= small::scaled(200));
}

TEST_CASE("devices of one kind have no shares by speed") {
  const Topology topology(small::cluster({.servers = 1, .devices = 3}));
  const ModelProfile profile = small::model_of({{.forward = 3, .backward = 5}});
  const CostModel costs(profile, topology);
  CHECK(costs.shares_by_speed(7, {{0}, {1}, {2}}).empty());
}
