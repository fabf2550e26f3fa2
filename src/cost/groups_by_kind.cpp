#include "cost/groups_by_kind.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "dapple/cost/compatible.h"
#include "dapple/profile/variants.h"

namespace dapple {
namespace {

/// A kind of device in use, with the source of its times.
struct KindInUse {
  DeviceKind* kind = nullptr;
  const GroupShape* group = nullptr;
  TimeSource source;
};

/// Returns a name that no kind has, made of that of one.
std::string unused_name(std::string name, const ModelProfile& profile,
                        const TopologyDescription& topology) {
  const auto is_used = [&] {
    const auto has_name = [&](const DeviceKind& kind) { return kind.name == name; };
    const std::vector<std::string>& others = profile.other_devices;
    return name == profile.device ||
           std::find(others.begin(), others.end(), name) != others.end() ||
           std::any_of(topology.devices.begin(), topology.devices.end(), has_name);
  };
  do { name += " by its links"; } while (is_used());
  return name;
}

/// Adds the times of a measured kind under another name, and returns their number.
std::size_t repeat_times(ModelProfile& profile, std::size_t measured, const std::string& name) {
  for (Layer& layer : profile.layers) {
    layer.other_times.push_back({.fixed_overhead = fixed_overhead_on(layer, measured),
                                 .measurements = measurements_on(layer, measured)});
  }
  profile.other_devices.push_back(name);
  return profile.other_devices.size();
}

/// Tells the kinds of one measured kind apart whose groups differ.
class Division {
 public:
  Division(ModelProfile& profile, const TopologyDescription& topology)
      : profile_(profile), topology_(topology), groups_(profile.other_devices.size() + 1) {}

  void add(const KindInUse& some) {
    const std::size_t measured = some.source.measured;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      if (origin_of(i) != measured) continue;
      if (!groups_[i]) groups_[i] = *some.group;
      if (*groups_[i] != *some.group) continue;
      if (i != measured) lead(*some.kind, i, some.source.scale);
      return;
    }
    origins_.push_back(measured);
    groups_.emplace_back(*some.group);
    const std::string name = unused_name(some.kind->name, profile_, topology_);
    lead(*some.kind, repeat_times(profile_, measured, name), some.source.scale);
  }

  void finish(const GroupShape& any) {
    profile_.group = groups_.front().value_or(any);
    for (std::size_t i = 1; i < groups_.size(); ++i) {
      profile_.other_groups.push_back(groups_[i].value_or(any));
    }
    if (!any.shards_all_state) return;
    shard([](Layer& layer, const ShardedLayer& some) { layer.sharded = some; }, profile_.group);
    for (const GroupShape& group : profile_.other_groups) {
      shard([](Layer& layer, const ShardedLayer& some) { layer.other_sharded.push_back(some); },
            group);
    }
  }

 private:
  /// Calls set(layer, sharded) with what each layer takes in the group.
  template <class Set>
  void shard(Set set, const GroupShape& group) {
    const std::vector<ShardedLayer> sharded = sharded_layers(profile_, group);
    for (std::size_t l = 0; l < sharded.size(); ++l) set(profile_.layers[l], sharded[l]);
  }
  std::size_t origin_of(std::size_t i) const {
    const std::size_t first_repeated = groups_.size() - origins_.size();
    return i < first_repeated ? i : origins_[i - first_repeated];
  }
  void lead(DeviceKind& kind, std::size_t measured, Factor scale) const {
    kind.time_scale = {{profile_.other_devices[measured - 1], scale}};
  }

  ModelProfile& profile_;
  const TopologyDescription& topology_;
  // By number of the measured kind; nothing while no kind in use has its times.
  std::vector<std::optional<GroupShape>> groups_;
  // The measured kinds whose times were repeated, which are the last ones.
  std::vector<std::size_t> origins_;
};

}  // namespace

void set_groups_by_kind(const GroupsByKind& groups, ModelProfile& profile,
                        TopologyDescription& topology) {
  std::vector<KindInUse> kinds;
  for (DeviceKind& kind : topology.devices) {
    const auto group = groups.find(kind.name);
    const std::optional<TimeSource> source = time_source(profile, kind);
    if (group != groups.end() && source) kinds.push_back({&kind, &group->second, *source});
  }
  // Measured kinds come first, as their names lead to their times, whatever their time_scale says.
  std::stable_partition(kinds.begin(), kinds.end(), [&](const KindInUse& some) {
    const std::size_t measured = some.source.measured;
    return some.kind->name ==
           (measured == 0 ? profile.device : profile.other_devices[measured - 1]);
  });
  Division division(profile, topology);
  for (const KindInUse& some : kinds) division.add(some);
  division.finish(groups.begin()->second);
}

}  // namespace dapple
