#include "random_planning_problem.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dapple/cost/buckets.h"

namespace dapple::small {

std::set<std::string> open_dimensions(const PlanningProblem& made) {
  const ModelProfile& profile = made.problem.profile;
  const TopologyDescription& cluster = made.problem.topology;
  const Topology topology(cluster);
  const std::int64_t batch = made.problem.global_batch;
  std::set<std::string> open;
  const bool can_cut = profile.layers.size() > 1 && topology.device_count() > 1;
  if (topology.device_count() > 1) open.insert("idle devices");
  if (made.contention == Contention::Off) open.insert("no contention");
  if (batch >= 4 && batch != 5) open.insert("micro-batch sizes");
  if (!can_cut) return open;
  open.insert("cuts");
  if (made.contention == Contention::Shared) open.insert("contention");
  if (topology.device_count() > 2 && batch > 1) open.insert("unequal replicas");
  if (batch >= 4) open.insert("depths");
  std::set<int> sizes;
  std::set<std::string> kinds;
  for (const ServerGroup& group : cluster.servers) {
    sizes.insert(group.devices);
    kinds.insert(group.device);
    if (group.links.kind == ServerLinks::Kind::Matrix) open.insert("link matrix");
    if (group.nics.size() > 1 && topology.server_count() > 1) open.insert("several NICs");
    const bool slow_start = std::any_of(group.nics.begin(), group.nics.end(),
                                        [](const Nic& nic) { return nic.link.latency.ns > 0; });
    if (topology.server_count() > 1 && slow_start) open.insert("latency");
  }
  if (sizes.size() > 1) open.insert("unequal servers");
  if (kinds.size() > 1) open.insert("mixed kinds");
  if (kinds.size() > 1 && !profile.other_devices.empty()) open.insert("kinds with own times");
  const auto buckets =
      gradient_buckets(profile, {0, static_cast<std::int32_t>(profile.layers.size())});
  if (buckets.sizes.size() > 1 && batch > 1) open.insert("several buckets");
  if (buckets.sizes.size() > 1 && batch > 1 && cluster.overlap_slowdown > kOne) {
    open.insert("overlap slowdown");
  }
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    const Layer& layer = profile.layers[i];
    if (layer.inputs.size() > 1) open.insert("skip connections");
    if (tied_to(profile, index_at<LayerIndex>(i))) open.insert("tied layers");
    if (layer.measurements.size() > 1 || layer.fixed_overhead.ns > 0 ||
        (profile.batch_scaling == BatchScaling::Floor &&
         layer.measurements.front().batch_size > 1)) {
      open.insert("uneven batch scaling");
    }
  }
  return open;
}

std::set<std::string> used_dimensions(const Plan& plan, const Topology& topology) {
  std::set<std::string> used;
  const std::size_t stages = plan.stages.size();
  std::size_t devices = 0;
  bool recomputes = false;
  bool stashes = false;
  for (std::size_t s = 0; s < stages; ++s) {
    const StagePlan& stage = plan.stages[s];
    devices += stage.devices.size();
    (stage.recompute ? recomputes : stashes) = true;
    if (stage.devices.size() != plan.stages.front().devices.size()) {
      used.insert("unequal replicas");
    }
    if (stage.gradient_buckets.size() > 1) used.insert("several buckets");
    if (plan.micro_batch_size % static_cast<std::int64_t>(stage.devices.size()) != 0) {
      used.insert("unequal shares");
    }
    const auto left = static_cast<std::int64_t>(stages - s);
    if (plan.warmup_depths[s] < std::min(left, plan.num_micro_batches)) {
      used.insert("depth below A");
    }
    if (plan.warmup_depths[s] > 2 * left - 1) used.insert("depth above B");
  }
  if (stages > 1) used.insert("cuts");
  if (!plan.tied_gradients.empty()) used.insert("tied gradients");
  if (devices < static_cast<std::size_t>(topology.device_count())) used.insert("idle devices");
  if (recomputes) used.insert(stashes ? "recomputation of some stages" : "recomputation of all");
  if (plan.num_micro_batches > 1 && plan.micro_batch_size > 1) used.insert("micro-batch sizes");
  return used;
}

}  // namespace dapple::small
