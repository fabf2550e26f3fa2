// Forms of parallelism of small problems, and groups of devices that are formed by other means than
// in the product: each form by itself, and sets of forms that stages of one plan may have. Shared
// by the tests of plans of any form.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "dapple/planner/parallelism/plan_parallelisms.h"
#include "dapple/planner/verify/verify.h"
#include "dapple/profile/variants.h"
#include "dapple/topology/servers_of_kind.h"
#include "exact_planner_checks.h"

namespace dapple::small {

using Counts = std::map<std::string, int>;

/// The sizes of a variant are multiples of the measured batch, so that those of a sample are whole.
inline Measurement variant_measurement(Dice& dice, const Measurement& whole, std::int64_t degree) {
  const std::int64_t batch = whole.batch_size;
  const auto part = [&](std::int64_t count) { return count * dice.roll(80, 140) / (100 * degree); };
  const auto size_part = [&](Bytes size) { return Bytes{part(size.count / batch) * batch}; };
  return {.batch_size = batch,
          .forward = {part(whole.forward.ns)},
          .backward = {part(whole.backward.ns)},
          .input_gradient = {},
          .weight_gradient = {},
          .core = {},
          .output = size_part(whole.output),
          .stash = size_part(whole.stash),
          .workspace = size_part(whole.workspace)};
}

/// Copies that a dispatcher merges, for some all-to-alls between experts, without a roll of the
/// dice, which would change the problems.
inline std::optional<MergedCopies> merged_copies(const Collective& one, const Parallelism& form) {
  const std::int64_t size = one.size_per_sample.count;
  if (one.kind != CollectiveKind::AllToAll || one.over != CollectiveMembers::Experts ||
      size % 3 == 0) {
    return std::nullopt;
  }
  return MergedCopies{.copies = 1 + size / 3 % 4, .experts = form.experts * (2 + size / 12 % 4)};
}

/// Collectives over any of the form's ranks.
inline std::vector<Collective> collectives(Dice& dice, const Parallelism& form) {
  std::vector<CollectiveMembers> over;
  if (form.tensor > 1) over.push_back(CollectiveMembers::Tensor);
  if (form.context > 1) over.push_back(CollectiveMembers::Context);
  if (form.experts > 1) over.push_back(CollectiveMembers::Experts);
  if (form.expert_tensor > 1) over.push_back(CollectiveMembers::ExpertTensor);
  std::vector<Collective> made;
  if (over.empty()) return made;
  for (std::int64_t i = dice.roll(0, 2); i > 0; --i) {
    made.push_back({.kind = kCollectiveKinds[dice.roll(0, 4)],
                    .over = over[static_cast<std::size_t>(dice.roll(0, std::ssize(over) - 1))],
                    .size_per_sample = {dice.chance(20) ? 0 : dice.roll(1, 4'000'000)},
                    .count = dice.roll(1, 2)});
    if (made.back().kind == CollectiveKind::SendReceive && dice.chance(75)) {
      made.back().beside = dice.chance(50) ? Beside::ForwardCore : Beside::BackwardCore;
    }
    made.back().merged = merged_copies(made.back(), form);
  }
  return made;
}

/// Forms of parallelism for variants, without sharded state.
inline std::set<Parallelism> random_forms(Dice& dice) {
  std::set<Parallelism> forms;
  for (const std::int64_t degree : {2, 3, 4}) {
    if (dice.chance(degree == 2 ? 90 : 35)) forms.insert({degree, dice.chance(40)});
  }
  if (dice.chance(25)) forms.insert({2, true});
  if (dice.chance(45)) forms.insert({.context = dice.roll(2, 4)});
  if (dice.chance(15)) forms.insert({.tensor = 2, .context = 2});
  if (dice.chance(70)) forms.insert({.experts = dice.roll(2, 4)});
  if (dice.chance(15)) forms.insert({.tensor = 2, .experts = 4});
  if (dice.chance(30)) forms.insert({.tensor = 2, .experts = 2});
  if (dice.chance(10)) forms.insert({.context = 2, .experts = 2});
  if (dice.chance(10)) forms.insert({.tensor = 2, .experts = 2, .expert_tensor = 2});
  const RecomputedParts some{RecomputedPart::CoreAttention, RecomputedPart::Norm};
  if (dice.chance(35)) forms.insert({.recomputes = kWholeLayer});
  if (dice.chance(20)) forms.insert({.tensor = 2, .recomputes = some});
  if (dice.chance(10)) forms.insert({.experts = 2, .recomputes = some});
  return forms;
}

/// Gives a variant that recomputes the parameters and output of the layer that does not, which it
/// is a variant of, so that both may be in one stage.
inline void keep_sizes(const Layer& layer, LayerVariant& variant) {
  const Parallelism form = without_recomputation(variant.parallelism);
  const auto kept =
      std::find_if(layer.variants.begin(), layer.variants.end(),
                   [&](const LayerVariant& some) { return some.parallelism == form; });
  if (kept == layer.variants.end() && !form.is_none()) return;
  const bool is_layer = kept == layer.variants.end();
  variant.parameters = is_layer ? layer.parameters : kept->parameters;
  variant.expert_parameters = is_layer ? Bytes{} : kept->expert_parameters;
  variant.measurements.front().output =
      (is_layer ? layer.measurements : kept->measurements).back().output;
}

/// A number below 16 by the layer's figures, without a roll of the dice, which would change the
/// problems.
inline std::uint64_t part_of_sixteen(const Layer& layer) {
  const Measurement& point = layer.measurements.back();
  std::uint64_t mixed = 17;
  for (const std::int64_t figure : {point.forward.ns, point.backward.ns, point.output.count}) {
    mixed = (mixed + static_cast<std::uint64_t>(figure)) * 0x9E3779B97F4A7C15;
  }
  return mixed >> 60;
}

/// Whether some collective of a variant is over these ranks.
inline bool is_stated(const LayerVariant& variant, CollectiveMembers over) {
  for (const auto* some : {&variant.forward_collectives, &variant.backward_collectives}) {
    for (const Collective& one : *some) {
      if (one.over == over) return true;
    }
  }
  return false;
}

/// Says of ranks without collectives, in most problems, that they have none, so that they may be on
/// several servers.
inline void state_collectives(const Layer& layer, LayerVariant& variant) {
  if (part_of_sixteen(layer) < 2) return;
  const Parallelism& form = variant.parallelism;
  const std::pair<CollectiveMembers, std::int64_t> ranks[] = {
      {CollectiveMembers::Tensor, form.tensor},
      {CollectiveMembers::Context, form.context},
      {CollectiveMembers::Experts, form.experts},
      {CollectiveMembers::ExpertTensor, form.expert_tensor}};
  for (const auto& [over, count] : ranks) {
    if (count == 1 || is_stated(variant, over)) continue;
    variant.backward_collectives.push_back(
        {.kind = CollectiveKind::AllGather, .over = over, .size_per_sample = {}});
  }
}

/// Gives every layer variants; one is missing now and then, and some layers have no experts.
inline void add_variants(Dice& dice, ModelProfile& profile) {
  const std::set<Parallelism> forms = random_forms(dice);
  const bool keeps_sizes = forms.size() % 3 != 0;
  for (Layer& layer : profile.layers) {
    const bool has_experts = dice.chance(85);
    const bool recomputes = dice.chance(80);
    for (const Parallelism& form : forms) {
      if (dice.chance(3) || (form.experts > 1 && !has_experts)) continue;
      if (!form.recomputes.none() && !recomputes) continue;
      const std::int64_t degree = std::max(form.tensor, form.context);
      LayerVariant variant{.parallelism = form,
                           .parameters = {},
                           .fixed_overhead = {},
                           .measurements = {},
                           .forward_collectives = collectives(dice, form),
                           .backward_collectives = collectives(dice, form)};
      if (layer.parameters.count > 0) {
        variant.parameters = {std::max<std::int64_t>(
            1, layer.parameters.count * dice.roll(90, 130) / (100 * form.tensor))};
        variant.expert_parameters = {variant.parameters.count * dice.roll(0, 4) / 5};
      }
      variant.measurements.push_back(variant_measurement(dice, layer.measurements.back(), degree));
      Measurement& own = variant.measurements.back();
      const auto part = static_cast<std::int64_t>(part_of_sixteen(layer));
      own.core = {{own.forward.ns * part / 16}, {own.backward.ns * part / 16}};
      // Tensor ranks mostly have the output whole.
      if (form.tensor > 1 && !form.sequence && part_of_sixteen(layer) > 1) {
        const Measurement& whole = layer.measurements.back();
        const std::int64_t of_sample = whole.output.count / whole.batch_size / form.context;
        variant.measurements.front().output = {of_sample * whole.batch_size};
      }
      const Measurement& only = variant.measurements.front();
      // The core grows with the samples, unlike an overhead.
      const Duration beside_core =
          std::min(only.forward - only.core.forward, only.backward - only.core.backward);
      if (dice.chance(30)) variant.fixed_overhead = {beside_core.ns / 2};
      if (keeps_sizes && !form.recomputes.none()) keep_sizes(layer, variant);
      state_collectives(layer, variant);
      layer.variants.push_back(std::move(variant));
    }
  }
}

inline Link random_link(Dice& dice) {
  return {{dice.roll(1, 12) * 1'000'000'000}, {dice.chance(50) ? 0 : dice.roll(1, 900'000)}};
}

/// Makes the last servers of another kind of device, quicker or slower by a factor, and with other
/// links as often as not.
inline void make_last_another_kind(Dice& dice, Problem& problem) {
  TopologyDescription& topology = problem.topology;
  DeviceKind kind = topology.devices.front();
  kind.name = "other";
  kind.time_scale = {{problem.profile.device, {kOne.billionths * dice.roll(30, 300) / 100}}};
  topology.devices.push_back(kind);
  ServerGroup& last = topology.servers.back();
  last.device = kind.name;
  if (dice.chance(50)) last.links.port = random_link(dice);
  if (dice.chance(30)) last.bus_bandwidth.clear();
}

/// Makes all servers switched with the same links inside and of one kind of device, but for the
/// last ones now and then.
inline void make_alike(Dice& dice, Problem& problem, bool is_measured) {
  TopologyDescription& topology = problem.topology;
  const Link inside = random_link(dice);
  problem.profile.name = "random";
  problem.profile.optimizer.name = "adam";
  for (Layer& layer : problem.profile.layers) {
    // As files may state it.
    const Measurement& first = layer.measurements.front();
    if (first.backward.ns == 0) continue;
    layer.fixed_overhead = std::min(layer.fixed_overhead, first.backward);
  }
  topology.devices.resize(1);
  for (ServerGroup& group : topology.servers) {
    group.device = topology.devices.front().name;
    group.links = {};
    group.links.port = inside;
    group.bus_bandwidth.clear();
    if (!is_measured || group.devices < 2) continue;
    group.bus_bandwidth.push_back({.source = "", .servers = 1, .devices = 2, .points = {}});
    for (std::int64_t size = 1'000'000; size <= 8'000'000; size *= 4) {
      // Half of what the links would do, so that times rise with sizes.
      group.bus_bandwidth.back().points.push_back(
          {{size}, {std::max<std::int64_t>(1, inside.bandwidth.bytes_per_second / 2)}});
    }
  }
  if (dice.chance(50)) problem.topology.overlap_slowdown = kOne;
  if (topology.servers.size() > 1 && dice.chance(60)) make_last_another_kind(dice, problem);
}

// What follows is the costs of groups, written a second time.

inline Wide ceiling(Wide numerator, Wide denominator) {
  return numerator / denominator + (numerator % denominator != 0 ? 1 : 0);
}

/// The time of a ring's rounds, each of which moves a part of the tensor.
inline std::int64_t ring_ns(std::int64_t rounds, std::int64_t bytes, std::int64_t members,
                            const Link& link) {
  const Wide ticks = ceiling(Wide{rounds} * bytes * 1'000'000'000 * 1024,
                             Wide{members} * link.bandwidth.bytes_per_second);
  return static_cast<std::int64_t>(ceiling(ticks, 1024)) + rounds * link.latency.ns;
}

inline std::int64_t by_table_ns(std::int64_t bytes, std::int64_t on_links,
                                const BusBandwidthTable& table) {
  std::vector<std::pair<std::int64_t, std::int64_t>> points;
  for (const BusBandwidthTable::Point& point : table.points) {
    points.emplace_back(point.size.count, reduction_time(table, point).ns);
  }
  if (bytes < points.front().first) return std::min(on_links, points.front().second);
  for (std::size_t i = 1; i < points.size(); ++i) {
    const auto& [size, time] = points[i];
    const auto& [size_before, time_before] = points[i - 1];
    if (bytes >= size) continue;
    return time_before + static_cast<std::int64_t>(ceiling(
                             Wide{time - time_before} * (bytes - size_before), size - size_before));
  }
  return static_cast<std::int64_t>(
      ceiling(Wide{points.back().second} * bytes, points.back().first));
}

/// The devices of a collective: how many, and how far from each other.
struct Members {
  std::int64_t count = 1;
  std::int64_t stride = 1;
};

/// A ring over devices of such servers.
class Ring {
 public:
  Ring(Members members, const Problem& problem, const ServerGroup& servers)
      : members_(members), servers_(servers) {
    if (problem.topology.network) network_ = *problem.topology.network;
  }

  std::int64_t ns(CollectiveKind kind, std::int64_t bytes,
                  const std::optional<MergedCopies>& merged = {}) const {
    if (members_.count == 1 || bytes == 0) return 0;
    const std::int64_t others = members_.count - 1;
    if (kind == CollectiveKind::AllToAll) return all_to_all_ns(bytes, merged);
    if (kind == CollectiveKind::SendReceive) return send_receive_ns(bytes);
    const bool is_whole = kind == CollectiveKind::AllReduce;
    for (const BusBandwidthTable& table : servers_.bus_bandwidth) {
      if (passes_servers() || table.servers != 1 || table.devices != members_.count) continue;
      const std::int64_t whole =
          by_table_ns(bytes, ring_ns(2 * others, bytes, members_.count, link()), table);
      return is_whole ? whole : static_cast<std::int64_t>(ceiling(whole, 2));
    }
    return ring_ns((is_whole ? 2 : 1) * others, bytes, members_.count, link());
  }

  /// The same for the product, where a group is put together by hand.
  GroupRing for_product() const {
    if (members_.count == 1) return {};
    GroupRing ring{.members = members_.count,
                   .bandwidth = link().bandwidth,
                   .latency = link().latency,
                   .measured = {},
                   .members_in_server = in_server(),
                   .within_server = servers_.links.port.bandwidth,
                   .between_servers = {}};
    if (passes_servers()) ring.between_servers = {std::max<std::int64_t>(1, nics() / devices())};
    for (const BusBandwidthTable& table : servers_.bus_bandwidth) {
      if (passes_servers() || table.servers != 1 || table.devices != members_.count) continue;
      for (const BusBandwidthTable::Point& point : table.points) {
        ring.measured.push_back({point.size, reduction_time(table, point)});
      }
    }
    return ring;
  }

 private:
  std::int64_t devices() const { return servers_.devices; }
  bool passes_servers() const { return members_.count * members_.stride > devices(); }
  std::int64_t rings() const { return std::min<std::int64_t>(members_.stride, devices()); }
  std::int64_t in_server() const { return passes_servers() ? devices() / rings() : members_.count; }
  std::int64_t nics() const {
    std::int64_t sum = 0;
    for (const Nic& nic : servers_.nics) {
      sum += std::min(nic.link.bandwidth, network_.bandwidth).bytes_per_second;
    }
    return sum;
  }
  Link link() const {
    if (!passes_servers()) return servers_.links.port;
    std::int64_t bandwidth = std::max<std::int64_t>(1, nics() / rings());
    if (devices() > 1)
      bandwidth = std::min(bandwidth, servers_.links.port.bandwidth.bytes_per_second);
    Duration slowest;
    for (const Nic& nic : servers_.nics) slowest = std::max(slowest, nic.link.latency);
    return {{bandwidth}, 2 * slowest + network_.latency};
  }
  /// A round of an all-reduce in which each member has as many bytes.
  std::int64_t send_receive_ns(std::int64_t bytes) const {
    for (const BusBandwidthTable& table : servers_.bus_bandwidth) {
      if (passes_servers() || table.servers != 1 || table.devices != members_.count) continue;
      return static_cast<std::int64_t>(
          ceiling(ns(CollectiveKind::AllReduce, members_.count * bytes), 2 * (members_.count - 1)));
    }
    return ring_ns(1, bytes, 1, link());
  }
  std::int64_t all_to_all_ns(std::int64_t bytes, const std::optional<MergedCopies>& merged) const {
    const auto sent = [&](std::int64_t part, std::int64_t whole, std::int64_t bandwidth) {
      const Wide ticks =
          ceiling(Wide{part} * bytes * 1'000'000'000 * 1024, Wide{whole} * bandwidth);
      return static_cast<std::int64_t>(ceiling(ticks, 1024));
    };
    const std::int64_t port = servers_.links.port.bandwidth.bytes_per_second;
    const std::int64_t nic = std::max<std::int64_t>(1, nics() / devices());
    const std::int64_t near = in_server();
    std::int64_t time = sent(near - 1, members_.count, port);
    if (passes_servers()) {
      std::int64_t away = sent(members_.count - near, members_.count, nic);
      if (merged && merged->copies > 1) {
        // All copies of all members for each other one of a server pass within it.
        time = sent(near - 1, near, port);
        away = std::min(away, sent(merged_part(*merged), 1'000'000'000, nic));
      }
      time = std::max(time, away);
    }
    return time + link().latency.ns;
  }
  /// The billionths of a tensor that pass to other servers, each token once to each that has an
  /// expert of it.
  std::int64_t merged_part(const MergedCopies& merged) const {
    const std::int64_t servers = members_.count / in_server();
    const Wide all = subsets(merged.experts, merged.copies);
    const Wide elsewhere = subsets(merged.experts - merged.experts / servers, merged.copies);
    return static_cast<std::int64_t>(
        ceiling((servers - 1) * (all - elsewhere) * 1'000'000'000, merged.copies * all));
  }
  /// The number of sets of so many of `count` things.
  static Wide subsets(std::int64_t count, std::int64_t chosen) {
    Wide sets = 1;
    for (std::int64_t i = 0; i < chosen; ++i) sets = sets * (count - i) / (i + 1);
    return sets;
  }

  Members members_;
  const ServerGroup& servers_;
  Link network_{{INT64_MAX}, {}};
};

/// The groups of a form, counted by hand.
struct Group {
  explicit Group(const Parallelism& form)
      : size(form.full_shards > 1 ? form.tensor * form.full_shards
             : form.optimizer_shards > 0
                 ? form.tensor * form.optimizer_shards
                 : std::max(form.tensor * form.context * form.group_replicas,
                            form.experts * form.expert_tensor)),
        ranks(size / form.tensor / form.context),
        copies{size / form.tensor, form.tensor},
        expert_copies(form.experts > 1 ? Members{size / form.experts / form.expert_tensor,
                                                 form.experts * form.expert_tensor}
                                       : copies) {}

  std::int64_t size;
  std::int64_t ranks;
  Members copies;
  Members expert_copies;
};

inline Members members_of(CollectiveMembers over, const Parallelism& form) {
  switch (over) {
    case CollectiveMembers::Tensor:
      return {form.tensor, 1};
    case CollectiveMembers::Context:
      return {form.context, form.tensor};
    case CollectiveMembers::Experts:
      return {form.experts, form.expert_tensor};
    case CollectiveMembers::ExpertTensor:
      return {form.expert_tensor, 1};
  }
  return {};
}

/// The variant of a layer under a form, or the layer itself; nothing if it has none.
inline std::optional<LayerVariant> variant_by_hand(const Layer& layer, const Parallelism& form) {
  bool has_experts = false;
  for (const LayerVariant& variant : layer.variants) {
    has_experts = has_experts || variant.parallelism.experts > 1;
  }
  bool recomputes = false;
  for (const LayerVariant& variant : layer.variants) {
    recomputes = recomputes || !variant.parallelism.recomputes.none();
  }
  const std::int64_t experts = has_experts ? form.experts : 1;
  const RecomputedParts parts = recomputes ? form.recomputes : RecomputedParts();
  if (form.tensor == 1 && form.context == 1 && experts == 1 && parts.none()) {
    return LayerVariant{.parallelism = {},
                        .parameters = layer.parameters,
                        .fixed_overhead = layer.fixed_overhead,
                        .measurements = layer.measurements,
                        .forward_collectives = {},
                        .backward_collectives = {}};
  }
  for (const LayerVariant& variant : layer.variants) {
    const Parallelism& own = variant.parallelism;
    if (own.tensor == form.tensor && own.sequence == form.sequence && own.context == form.context &&
        own.experts == experts && own.recomputes == parts &&
        (experts == 1 || own.expert_tensor == form.expert_tensor)) {
      return variant;
    }
  }
  return std::nullopt;
}

/// Returns what each layer takes whose parameters are sharded over devices of such servers.
inline std::vector<ShardedLayer> sharded_by_hand(const Problem& problem, const Group& group,
                                                 const ServerGroup& servers,
                                                 const ModelProfile& profile) {
  const Ring copies(group.copies, problem, servers);
  const Ring expert_copies(group.expert_copies, problem, servers);
  std::vector<Wide> outside;
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    outside.push_back(profile.layers[l].parameters.count -
                      profile.layers[l].expert_parameters.count);
    for (const Tie& tie : profile.ties) {
      for (const LayerIndex user : tie.users) {
        if (user.position() == l) {
          outside.back() += profile.layers[tie.owner.position()].parameters.count;
        }
      }
    }
  }
  const Wide factor = profile.optimizer.gradient_bytes_per_parameter_byte.billionths;
  const auto gradient = [&](Wide bytes) {
    return static_cast<std::int64_t>(ceiling(bytes * factor, 1'000'000'000));
  };
  const auto whole = [&](std::size_t l) {
    return outside[l] + profile.layers[l].expert_parameters.count;
  };
  std::vector<ShardedLayer> sharded;
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const Layer& layer = profile.layers[l];
    const auto own = static_cast<std::int64_t>(outside[l]);
    const std::int64_t experts = layer.expert_parameters.count;
    const std::int64_t gather = copies.ns(CollectiveKind::AllGather, own) +
                                expert_copies.ns(CollectiveKind::AllGather, experts);
    const std::int64_t scatter = copies.ns(CollectiveKind::ReduceScatter, gradient(own)) +
                                 expert_copies.ns(CollectiveKind::ReduceScatter, gradient(experts));
    const Wide before = l == 0 ? 0 : whole(l - 1);
    const Wide behind = l + 1 == profile.layers.size() ? 0 : whole(l + 1);
    sharded.push_back(
        {.gather = {gather},
         .scatter = {scatter},
         .working_set = {static_cast<std::int64_t>(whole(l) + std::max(before, behind)) +
                         gradient(whole(l))}});
  }
  return sharded;
}

/// Returns times at every batch size on devices of such servers, collectives included. Sizes are
/// those of the variant.
inline std::vector<Measurement> times_by_hand(const Problem& problem, const Parallelism& form,
                                              const LayerVariant& variant,
                                              const ServerGroup& servers, bool has_parameters) {
  Layer alone;
  alone.fixed_overhead = variant.fixed_overhead;
  alone.measurements = variant.measurements;
  Factor scale = kOne;
  for (const DeviceKind& kind : problem.topology.devices) {
    const bool is_scaled = kind.name == servers.device && kind.name != problem.profile.device;
    if (is_scaled) scale = kind.time_scale.at(problem.profile.device);
  }
  const std::optional<BatchScaling> scaling = problem.profile.batch_scaling;
  const auto ns = [&](const std::vector<Collective>& some, std::int64_t samples) {
    Duration sum;
    for (const Collective& one : some) {
      const Members members = members_of(one.over, form);
      const Ring ring(members, problem, servers);
      // Whole nanoseconds of the step that is computed meanwhile.
      std::int64_t step = 0;
      if (one.beside != Beside::Nothing) {
        const CoreTimes core = core_times(alone, samples, scaling, scale);
        step =
            (one.beside == Beside::ForwardCore ? core.forward : core.backward).ns / members.count;
      }
      const std::int64_t time = ring.ns(one.kind, samples * one.size_per_sample.count, one.merged);
      sum.ns += one.count * (time > step ? time - step : 0);
    }
    return sum;
  };
  const Measurement& measured = variant.measurements.back();
  std::vector<Measurement> points;
  // One more than any share, as times need two measurements.
  for (std::int64_t samples = 1; samples <= problem.global_batch + 1; ++samples) {
    Measurement& point = points.emplace_back(measured);
    point.batch_size = samples;
    point.forward =
        forward_time(alone, samples, scaling, scale) + ns(variant.forward_collectives, samples);
    const Duration computed = backward_time(alone, samples, scaling, scale);
    const Duration exchanged = ns(variant.backward_collectives, samples);
    point.backward = computed + exchanged;
    point.input_gradient =
        (has_parameters ? Duration{(computed.ns + 1) / 2} : computed) + exchanged;
    point.weight_gradient = point.backward - *point.input_gradient;
    for (const auto size : {&Measurement::output, &Measurement::stash, &Measurement::workspace}) {
      point.*size = {(measured.*size).count / measured.batch_size * samples};
    }
  }
  return points;
}

/// Whether ranks send shares of what all of them have, and gather it on one server.
inline bool cuts_tensors(const Problem& problem, const Parallelism& form) {
  const std::vector<ServerGroup>& servers = problem.topology.servers;
  return problem.profile.boundaries == Boundaries::ScatterGather && form.tensor > 1 &&
         !form.sequence &&
         std::all_of(servers.begin(), servers.end(),
                     [&](const ServerGroup& some) { return form.tensor <= some.devices; });
}

/// The group of devices of such servers for the product, without collectives within layers.
inline GroupShape shape_by_hand(const Problem& problem, const Parallelism& form,
                                const ServerGroup& servers) {
  const Group group(form);
  GroupShape shape;
  if (cuts_tensors(problem, form)) {
    shape.rings[static_cast<std::size_t>(CollectiveMembers::Tensor)] =
        Ring({form.tensor, 1}, problem, servers).for_product();
  }
  shape.replicas = group.ranks;
  shape.copies = Ring(group.copies, problem, servers).for_product();
  shape.expert_copies = Ring(group.expert_copies, problem, servers).for_product();
  shape.shards_all_state = form.full_shards > 1;
  shape.shards_optimizer = form.optimizer_shards > 0;
  return shape;
}

/// Whether a layer of the profile uses parameters of another one.
inline bool uses_a_tie(const ModelProfile& profile, const Layer& layer) {
  return std::any_of(profile.ties.begin(), profile.ties.end(), [&](const Tie& tie) {
    return std::any_of(tie.users.begin(), tie.users.end(),
                       [&](LayerIndex user) { return &profile.layers[user.position()] == &layer; });
  });
}

/// A profile in which the variant was measured at every batch size, collectives included.
inline std::optional<ModelProfile> profile_by_hand(const Problem& problem,
                                                   const Parallelism& form) {
  ModelProfile profile = problem.profile;
  const Group group(form);
  const std::vector<ServerGroup>& servers = problem.topology.servers;
  const bool has_kinds = group.size > 1 && servers.back().device != servers.front().device;
  if (has_kinds) profile.other_devices = {servers.back().device};
  // Without devices of its own kind, the profile is as if it was measured on the others.
  const bool is_other_kind = servers.front().device != profile.device;
  profile.device = servers.front().device;
  for (Layer& layer : profile.layers) {
    const std::optional<LayerVariant> found = variant_by_hand(layer, form);
    if (!found) return std::nullopt;
    const LayerVariant& variant = *found;
    const bool has_parameters = variant.parameters.count > 0 || uses_a_tie(profile, layer);
    const Wide of_rank = Wide{4} * variant.measurements.back().output.count * form.context;
    layer.divides_output =
        cuts_tensors(problem, form) && of_rank < Wide{3} * layer.measurements.back().output.count;
    layer.parameters = variant.parameters;
    layer.expert_parameters = variant.expert_parameters;
    layer.variants.clear();
    layer.fixed_overhead = variant.fixed_overhead;
    layer.measurements = variant.measurements;
    const bool has_collectives =
        !variant.forward_collectives.empty() || !variant.backward_collectives.empty();
    if (has_collectives || is_other_kind) {
      layer.fixed_overhead = {};
      layer.measurements = times_by_hand(problem, form, variant, servers.front(), has_parameters);
    }
    if (!has_kinds) continue;
    layer.other_times = {
        {.fixed_overhead = {},
         .measurements = times_by_hand(problem, form, variant, servers.back(), has_parameters)}};
  }
  profile.boundaries = Boundaries::Whole;
  if (cuts_tensors(problem, form)) {
    profile.boundaries = Boundaries::ScatterGather;
    profile.parallelism = form;
  }
  profile.group = shape_by_hand(problem, form, servers.front());
  if (has_kinds) profile.other_groups = {shape_by_hand(problem, form, servers.back())};
  if (form.full_shards == 1) return profile;
  const auto own = sharded_by_hand(problem, group, servers.front(), profile);
  const auto of_others = sharded_by_hand(problem, group, servers.back(), profile);
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    profile.layers[l].sharded = own[l];
    if (has_kinds) profile.layers[l].other_sharded = {of_others[l]};
  }
  return profile;
}

/// The NICs of one server's groups; nothing where groups cannot be formed.
inline std::optional<std::vector<Nic>> nics_by_hand(const ServerGroup& servers, std::int64_t size,
                                                    const std::optional<Link>& network) {
  const auto count = static_cast<std::int64_t>(servers.nics.size());
  if (count == 0) return std::vector<Nic>();
  std::vector<std::int64_t> nic_of(static_cast<std::size_t>(servers.devices), -1);
  bool is_said = false;
  for (std::int64_t nic = 0; nic < count; ++nic) {
    for (const std::int32_t device : servers.nics[static_cast<std::size_t>(nic)].devices) {
      nic_of[static_cast<std::size_t>(device)] = nic;
      is_said = true;
    }
  }
  for (std::int64_t device = 0; !is_said && device < servers.devices; ++device) {
    nic_of[static_cast<std::size_t>(device)] = device * count / servers.devices;
  }
  std::map<std::set<std::int64_t>, std::vector<std::int32_t>> groups_of;
  std::map<std::int64_t, int> sets_with;
  std::vector<std::set<std::int64_t>> in_order;
  for (std::int64_t group = 0; group < servers.devices / size; ++group) {
    std::set<std::int64_t> used;
    for (std::int64_t i = 0; i < size; ++i) {
      used.insert(nic_of[static_cast<std::size_t>(group * size + i)]);
    }
    if (groups_of[used].empty()) in_order.push_back(used);
    groups_of[used].push_back(static_cast<std::int32_t>(group));
    for (const std::int64_t nic : used) ++sets_with[nic];
  }
  std::vector<Nic> made;
  for (const std::set<std::int64_t>& used : in_order) {
    const std::vector<std::int32_t>& groups = groups_of[used];
    Nic merged;
    merged.devices = groups;
    merged.link.bandwidth = {INT64_MAX};
    for (const std::int64_t nic : used) {
      const bool is_shared = sets_with[nic] != static_cast<int>(groups.size());
      if (used.size() > 1 && (groups.size() > 1 || is_shared)) return std::nullopt;
      if (is_shared) return std::nullopt;
      const std::int64_t first = groups.front() * size;
      const auto begin = nic_of.begin() + first;
      const std::int64_t users = used.size() == 1 ? size : std::count(begin, begin + size, nic);
      const Link& link = servers.nics[static_cast<std::size_t>(nic)].link;
      std::int64_t bandwidth = link.bandwidth.bytes_per_second;
      if (network) bandwidth = std::min(bandwidth, network->bandwidth.bytes_per_second);
      merged.link.bandwidth.bytes_per_second =
          std::min(merged.link.bandwidth.bytes_per_second, bandwidth / users);
      merged.link.latency = std::max(merged.link.latency, link.latency);
    }
    made.push_back(merged);
  }
  return made;
}

/// Whether so many devices are a part of every server, or whole servers of each kind and rack.
inline bool are_alike(const TopologyDescription& topology, std::int64_t size) {
  std::set<std::int64_t> counts;
  for (const ServerGroup& servers : topology.servers) {
    if (servers.devices % size == 0) {
      counts.insert(1);
      continue;
    }
    if (size % servers.devices != 0) return false;
    const std::int64_t count = size / servers.devices;
    if (servers.count % count != 0 || servers.nics.empty() || !servers.pcie_roots.empty()) {
      return false;
    }
    for (const UplinkGroup& racks : topology.racks) {
      if (racks.members % count != 0) return false;
    }
    counts.insert(count);
    counts.insert(-servers.devices);  // Rings differ where servers of different sizes are joined.
  }
  return counts.size() == 1 || (counts.size() == 2 && *counts.begin() < 0);
}

/// Whether all servers of a kind have the same NICs.
inline bool have_equal_nics(const TopologyDescription& topology) {
  return std::all_of(topology.servers.begin(), topology.servers.end(), [&](const ServerGroup& one) {
    const ServerGroup& first =
        *std::find_if(topology.servers.begin(), topology.servers.end(),
                      [&](const ServerGroup& some) { return some.device == one.device; });
    return one.nics.size() == first.nics.size() &&
           std::equal(one.nics.begin(), one.nics.end(), first.nics.begin(),
                      [](const Nic& a, const Nic& b) {
                        return a.link.bandwidth == b.link.bandwidth &&
                               a.link.latency == b.link.latency;
                      });
  });
}

/// Whether ranks that share layers and are on several servers have figures for their collectives:
/// some layer states any, and so does each that holds less of its parameters than without tensor
/// parallelism, or a part of its experts.
inline bool have_figures(const Problem& problem, const Parallelism& form) {
  for (const CollectiveMembers over : kCollectiveMembers) {
    const Members ranks = members_of(over, form);
    bool pass_servers = false;
    for (const ServerGroup& servers : problem.topology.servers) {
      if (ranks.count > 1 && ranks.count * ranks.stride > servers.devices) pass_servers = true;
    }
    if (!pass_servers) continue;
    const bool is_of_experts =
        over == CollectiveMembers::Experts || over == CollectiveMembers::ExpertTensor;
    int stated = 0;
    for (const Layer& layer : problem.profile.layers) {
      const LayerVariant variant = *variant_by_hand(layer, form);
      const bool has_experts = variant.parallelism.experts > 1;
      const bool has_part =
          over == CollectiveMembers::Tensor
              ? !has_experts && variant.parameters < layer.parameters
              : is_of_experts && has_experts && variant.expert_parameters.count > 0;
      // Tensor ranks may share an expert.
      const bool may_be_tensor =
          over == CollectiveMembers::ExpertTensor && form.expert_tensor == form.tensor;
      const bool is_said = is_stated(variant, over) ||
                           (may_be_tensor && is_stated(variant, CollectiveMembers::Tensor));
      if ((!is_of_experts || has_experts) && is_said) {
        ++stated;
      } else if (has_part) {
        return false;
      }
    }
    if (stated == 0) return false;
  }
  return true;
}

inline std::optional<Problem> grouped_by_hand(const Problem& problem, const Parallelism& form);

/// The same of a form in which only some layers of a stage recompute.
inline std::optional<Problem> with_some_layers_by_hand(const Problem& problem,
                                                       const Parallelism& form) {
  Parallelism in_all = form;
  in_all.recomputed_layers = {};
  const Parallelism in_none = without_recomputation(form);
  auto kept = grouped_by_hand(problem, in_none);
  auto recomputing = grouped_by_hand(problem, in_all);
  if (!kept || !recomputing) return std::nullopt;
  for (std::size_t l = 0; l < problem.profile.layers.size(); ++l) {
    const LayerVariant one = *variant_by_hand(problem.profile.layers[l], in_none);
    const LayerVariant other = *variant_by_hand(problem.profile.layers[l], in_all);
    if (one.parameters != other.parameters || one.expert_parameters != other.expert_parameters ||
        one.measurements.back().output != other.measurements.back().output) {
      return std::nullopt;
    }
    recomputing->profile.layers[l].recomputes = !other.parallelism.recomputes.none();
  }
  kept->profile.parallelism.recomputed_layers = form.recomputed_layers;
  kept->profile.recomputing = {std::move(recomputing->profile)};
  return kept;
}

inline std::optional<Problem> grouped_by_hand(const Problem& problem, const Parallelism& form) {
  if (!form.recomputed_layers.is_all()) return with_some_layers_by_hand(problem, form);
  const Group group(form);
  if (group.size == 1) {
    auto profile = profile_by_hand(problem, form);
    if (!profile) return std::nullopt;
    Problem alone = problem;
    alone.profile = *std::move(profile);
    alone.topology.shards_optimizer = form.shards_optimizer && form.optimizer_shards == 0;
    return alone;
  }
  const TopologyDescription& topology = problem.topology;
  for (const std::int64_t size : {form.tensor, form.expert_tensor, form.tensor * form.context,
                                  form.experts * form.expert_tensor, group.size}) {
    for (const ServerGroup& servers : topology.servers) {
      if (servers.devices % size != 0 && size % servers.devices != 0) return std::nullopt;
    }
  }
  if (!are_alike(topology, group.size)) return std::nullopt;
  auto profile = profile_by_hand(problem, form);
  if (!profile || !have_figures(problem, form)) return std::nullopt;
  Problem grouped = problem;
  grouped.profile = *std::move(profile);
  grouped.topology.shards_optimizer = form.shards_optimizer && form.optimizer_shards == 0;
  for (ServerGroup& servers : grouped.topology.servers) {
    const std::int64_t in_server = std::min<std::int64_t>(group.size, servers.devices);
    if (in_server < group.size && !have_equal_nics(topology)) return std::nullopt;
    auto nics = nics_by_hand(servers, in_server, topology.network);
    if (!nics) return std::nullopt;
    servers.nics = *std::move(nics);
    servers.count = static_cast<std::int32_t>(servers.count / (group.size / in_server));
    servers.devices /= static_cast<std::int32_t>(in_server);
    servers.bus_bandwidth.clear();
  }
  for (UplinkGroup& racks : grouped.topology.racks) {
    racks.members = static_cast<std::int32_t>(
        racks.members /
        (group.size / std::min<std::int64_t>(group.size, topology.servers.front().devices)));
  }
  return grouped;
}

/// The number of layers that recompute in a form.
inline std::int64_t count_recomputing(const ModelProfile& profile, const Parallelism& form) {
  std::int64_t count = 0;
  for (const Layer& layer : profile.layers) {
    const auto variant = variant_by_hand(layer, form);
    if (variant && !variant->parallelism.recomputes.none()) ++count;
  }
  return count;
}

/// The forms of parallelism that any layer has a variant for, with state sharded in any way, and
/// with some layers of a stage alone recomputing if that is asked for.
inline std::set<Parallelism> all_forms(const ModelProfile& profile,
                                       RecomputedLayers recomputed = RecomputedLayers::All) {
  std::set<Parallelism> forms{{}};
  for (const Layer& layer : profile.layers) {
    for (const LayerVariant& variant : layer.variants) forms.insert(variant.parallelism);
  }
  for (const Parallelism& form : std::set<Parallelism>(forms)) {
    if (recomputed == RecomputedLayers::All) continue;
    const std::int64_t count = count_recomputing(profile, form);
    Parallelism some = form;
    for (std::int64_t number = 1; number <= count; ++number) {
      some.recomputed_layers = LayerSelection::first(number);
      if (number < count) forms.insert(some);
      some.recomputed_layers = LayerSelection::every(number);
      if (number > 1) forms.insert(some);
    }
  }
  std::set<Parallelism> sharded;
  for (const Parallelism& form : forms) {
    Parallelism other = form;
    other.shards_optimizer = true;
    sharded.insert(other);
    for (std::int64_t shards = 2; shards <= 8; ++shards) {
      const std::int64_t size = shards * form.tensor;
      if (shards % form.context != 0) continue;
      if (form.experts > 1 && size % (form.experts * form.expert_tensor) != 0) continue;
      other.optimizer_shards = shards;
      sharded.insert(other);
      Parallelism full = form;
      full.full_shards = shards;
      sharded.insert(full);
    }
  }
  forms.merge(sharded);
  return forms;
}

struct ParallelProblem {
  Question question;
  /// As small as every plan of every form can be enumerated.
  ParallelProblem(ProblemMaker& maker, Dice& dice) : question(make(maker, dice)) {
    if (dice.chance(15)) question.options.pins.tensor = dice.roll(1, 3);
    if (dice.chance(15)) question.options.max_tensor = dice.roll(1, 3);
    if (dice.chance(65)) {
      constexpr Sharding kShardings[] = {Sharding::Any, Sharding::Optimizer, Sharding::Full,
                                         Sharding::Full};
      question.options.sharding = kShardings[dice.roll(0, 3)];
    }
    // Without a roll of the dice, which would change the problems.
    if (question.made.problem.global_batch % 3 != 1) question.options.shares = Shares::Any;
    if (question.made.problem.global_batch % 4 != 1) {
      question.options.recomputed_layers = RecomputedLayers::Any;
    }
    ModelProfile& profile = question.made.problem.profile;
    if (part_of_sixteen(profile.layers.front()) != 5) {
      profile.boundaries = Boundaries::ScatterGather;
    }
  }

  static Question make(ProblemMaker& maker, Dice& dice) {
    small::PlanningProblem made = maker.next();
    make_alike(dice, made.problem, dice.chance(40));
    add_variants(dice, made.problem.profile);
    return Question(std::move(made));
  }

  /// Asks, in one of `every` rounds, for the optimizer's state sharded over a pinned number of
  /// ranks, for which servers mostly have groups.
  void pin_some_shards(int round, int every) {
    if (round % every > 0) return;
    const std::int64_t devices = question.topology.description().servers.front().devices;
    const std::int64_t shards = devices % 2 == 0 || devices == 1 ? 2 : devices;
    question.options.sharding = Sharding::Optimizer;
    question.options.pins.shards = round / every % 10 == 9 ? 2 * shards : shards;
  }

  bool is_asked(const Parallelism& form) const {
    const planner::PlannerOptions& options = question.options;
    const Sharding own = form.full_shards > 1    ? Sharding::Full
                         : form.shards_optimizer ? Sharding::Optimizer
                                                 : Sharding::None;
    // Some shards of the optimizer's state are only those that are asked for.
    const std::int64_t shards = options.pins.shards.value_or(0);
    if (own != Sharding::Full && form.optimizer_shards != shards) return false;
    if (own == Sharding::Full && shards > 0 && form.full_shards != shards) return false;
    return options.global_batch_size >= Group(form).ranks &&
           (options.sharding == own || options.sharding == Sharding::Any) &&
           options.pins.tensor.value_or(form.tensor) == form.tensor &&
           form.tensor <= options.max_tensor.value_or(form.tensor);
  }
};

inline std::string text_of(const ParallelProblem& problem) {
  const planner::PlannerOptions& options = problem.question.options;
  return "pinned " + std::to_string(options.pins.tensor.value_or(0)) + ", shards " +
         std::to_string(options.pins.shards.value_or(0)) + ", at most " +
         std::to_string(options.max_tensor.value_or(0)) + "\n" + small::text_of(problem.question);
}

/// Returns the question about plans of one form or with some forms, as groups of these.
inline Question question_of(const ParallelProblem& problem, Problem grouped) {
  Question question(
      {.problem = std::move(grouped), .contention = problem.question.made.contention});
  question.options.replicas = problem.question.options.replicas;
  question.options.transfers = problem.question.options.transfers;
  question.options.family = problem.question.options.family;
  question.options.shares = problem.question.options.shares;
  question.options.pins.stages = problem.question.options.pins.stages;
  return question;
}

/// Returns the least iteration of all plans of all forms, with the form that has it.
inline std::map<Parallelism, Duration> fastest_of_each(const ParallelProblem& problem) {
  std::map<Parallelism, Duration> found;
  for (const Parallelism& form : all_forms(problem.question.made.problem.profile,
                                           problem.question.options.recomputed_layers)) {
    if (!problem.is_asked(form)) continue;
    auto grouped = grouped_by_hand(problem.question.made.problem, form);
    if (!grouped) continue;
    const small::OracleAnswer fastest = question_of(problem, *std::move(grouped)).fastest();
    found[form] = fastest.plan ? fastest.iteration : Duration::infinite();
  }
  return found;
}

/// Whether some form that is asked for has ranks on several servers without figures.
inline bool lacks_figures(const ParallelProblem& problem) {
  const Problem& whole = problem.question.made.problem;
  const std::set<Parallelism> forms = all_forms(whole.profile);
  return std::any_of(forms.begin(), forms.end(), [&](const Parallelism& form) {
    return problem.is_asked(form) && profile_by_hand(whole, form) && !have_figures(whole, form);
  });
}

/// Forms that stages of one plan may have, as a problem whose profile has all of them.
struct MixedForms {
  std::set<Parallelism> forms;
  Problem problem;
};

/// What stages of one plan have in common: the devices of a group, whether the optimizer's state is
/// sharded and, of every tied layer, the parameters that a device holds and reduces.
using CommonParts = std::tuple<std::int64_t, bool, std::vector<std::int64_t>>;

inline CommonParts common_parts(const ModelProfile& profile, const Parallelism& form) {
  const Group group(form);
  CommonParts parts{group.size, form.shards_optimizer, {}};
  for (const Tie& tie : profile.ties) {
    const Layer& layer = profile.layers[tie.owner.position()];
    const std::int64_t experts = layer.expert_parameters.count;
    const auto reduced = ceiling(layer.parameters.count - experts, group.copies.count) +
                         ceiling(experts, group.expert_copies.count);
    std::get<2>(parts).push_back(layer.parameters.count);
    std::get<2>(parts).push_back(static_cast<std::int64_t>(reduced));
  }
  return parts;
}

/// Returns the sets of forms, of those that are asked for and of the same with more data-parallel
/// ranks in a group, that stages of one plan may have, but those of a form as it is asked for.
inline std::vector<MixedForms> mixed_by_hand(const ParallelProblem& problem) {
  const Problem& whole = problem.question.made.problem;
  std::vector<Parallelism> uniform;
  std::set<std::int64_t> sizes;
  for (const Parallelism& form :
       all_forms(whole.profile, problem.question.options.recomputed_layers)) {
    if (!problem.is_asked(form)) continue;
    uniform.push_back(form);
    if (grouped_by_hand(whole, form)) sizes.insert(Group(form).size);
  }
  std::map<CommonParts, MixedForms> sets;
  for (const std::int64_t size : sizes) {
    for (Parallelism form : uniform) {
      if (Group(form).size != size) {
        const std::int64_t ranks = form.tensor * form.context;
        if (form.full_shards > 1 || form.optimizer_shards > 0 || size % ranks != 0) continue;
        if (form.experts * form.expert_tensor >= size) continue;
        if (size % (form.experts * form.expert_tensor) != 0) continue;
        form.group_replicas = size / ranks;
      }
      if (!problem.is_asked(form)) continue;
      auto grouped = grouped_by_hand(whole, form);
      if (!grouped) continue;
      grouped->profile.parallelism = form;
      const CommonParts parts = common_parts(grouped->profile, form);
      auto [set, is_new] = sets.try_emplace(parts, MixedForms{{form}, *grouped});
      if (is_new) continue;
      set->second.forms.insert(form);
      set->second.problem.profile.stage_forms.push_back(std::move(grouped->profile));
    }
  }
  std::vector<MixedForms> found;
  for (auto& [parts, set] : sets) {
    // A form by itself is none of these, unless others lend it the size of their groups.
    const bool is_filled = set.forms.begin()->group_replicas > 1;
    if (set.forms.size() > 1 || is_filled) found.push_back(std::move(set));
  }
  return found;
}

/// Whether all devices that a device is interchangeable with are whole groups of so many.
inline bool are_pools_of(const Topology& topology, std::int64_t devices) {
  std::map<std::int32_t, std::int64_t> pools;
  for (std::int32_t d = 0; d < topology.device_count(); ++d) {
    ++pools[topology.first_interchangeable({d}).value];
  }
  return std::all_of(pools.begin(), pools.end(),
                     [&](const auto& pool) { return pool.second % devices == 0; });
}

/// Whether stages may have the groups of a form beside those of all forms of a set: of any two
/// sizes one is a multiple of the other, the first is the smallest and within a server, and groups
/// of different sizes are within servers and hold no parameters that layers share.
inline bool may_join_by_hand(const ParallelProblem& problem, const MixedForms& set,
                             const Parallelism& form, const ModelProfile& own) {
  const Problem& whole = problem.question.made.problem;
  const Parallelism& first = set.problem.profile.parallelism;
  const std::int64_t size = Group(form).size;
  std::vector<Parallelism> others = stage_forms_of(set.problem.profile);
  others.push_back(first);
  for (const Parallelism& other : others) {
    if (other.shards_optimizer != form.shards_optimizer) return false;
    const std::int64_t theirs = Group(other).size;
    if (size % theirs != 0) return false;
    if (size != theirs && !whole.profile.ties.empty()) return false;
  }
  std::vector<ModelProfile> profiles{set.problem.profile};
  for (const ModelProfile& other : set.problem.profile.stage_forms) profiles.push_back(other);
  for (const ModelProfile& other : profiles) {
    if (common_parts(other, other.parallelism) != common_parts(own, form) &&
        Group(other.parallelism).size == size) {
      return false;
    }
  }
  if (size == Group(first).size) return true;
  for (const ServerGroup& servers : whole.topology.servers) {
    if (servers.devices % size != 0) return false;
  }
  const Topology smallest(set.problem.topology);
  if (!are_pools_of(smallest, size / Group(first).size)) return false;
  return true;
}

/// Returns the sets of forms with groups of any sizes that stages of one plan may have: each form,
/// by rising size, in the first set that it may join.
inline std::vector<MixedForms> any_sizes_by_hand(const ParallelProblem& problem) {
  const Problem& whole = problem.question.made.problem;
  if (kinds_in_use(problem.question.topology).size() > 1) return {};
  std::vector<Parallelism> forms;
  for (const Parallelism& form : all_forms(whole.profile)) {
    if (problem.is_asked(form)) forms.push_back(form);
  }
  std::stable_sort(forms.begin(), forms.end(), [](const Parallelism& a, const Parallelism& b) {
    return Group(a).size < Group(b).size;
  });
  std::vector<MixedForms> sets;
  for (const Parallelism& form : forms) {
    auto grouped = grouped_by_hand(whole, form);
    if (!grouped) continue;
    grouped->profile.parallelism = form;
    const auto set = std::find_if(sets.begin(), sets.end(), [&](const MixedForms& some) {
      return may_join_by_hand(problem, some, form, grouped->profile);
    });
    if (set == sets.end()) {
      sets.push_back({{form}, *std::move(grouped)});
    } else {
      set->forms.insert(form);
      set->problem.profile.stage_forms.push_back(std::move(grouped->profile));
    }
  }
  std::erase_if(sets, [](const MixedForms& set) {
    const std::int64_t first = Group(set.problem.profile.parallelism).size;
    return std::all_of(set.forms.begin(), set.forms.end(),
                       [&](const Parallelism& form) { return Group(form).size == first; });
  });
  return sets;
}

/// Whether so few plans have stages of several forms that all can be gone through.
inline bool are_few(const std::vector<MixedForms>& sets) {
  return std::all_of(sets.begin(), sets.end(), [](const MixedForms& set) {
    const Topology topology(set.problem.topology);
    const auto most = static_cast<std::size_t>(topology.device_count() < 3 ? 10 : 3);
    return set.forms.size() <= most;
  });
}

/// The plan is read again as it was written, and its bound is derived anew.
inline void require_verified(const PlanDocument& document) {
  const PlanDocument read = io::read_plan(io::write_plan(document), "plan");
  REQUIRE(io::write_plan(read) == io::write_plan(document));
  planner::VerifyOptions options;
  options.budget = 2'000'000;
  const planner::PlanVerification found = planner::verify(read, Topology(read.topology), options);
  const std::string fault = found.violations.empty() ? ""
                                                     : found.violations.front().place + ": " +
                                                           found.violations.front().message;
  REQUIRE(fault == "");
  REQUIRE(found.bound == BoundCheck::Proven);
}

/// Leaves devices little more or less memory than the fastest plan of any memory needs.
inline void tighten_memory(Dice& dice, Question& question) {
  planner::PlannerOptions options = question.options;
  options.ignore_memory = true;
  const auto made = planner::make_plan_of_any_parallelism(
      {question.made.problem.profile, question.topology, options}, {});
  const auto* plan = std::get_if<planner::MadePlan>(&made);
  if (plan == nullptr) return;
  Bytes peak{1};
  for (const DeviceFigures& figures : plan->document.prediction.devices) {
    peak = std::max(peak, figures.peak_memory);
  }
  TopologyDescription& topology = question.made.problem.topology;
  topology.devices.front().memory = {peak.count * dice.roll(50, 105) / 100 + 1};
  topology.devices.front().reserved = {};
  question.topology = Topology(topology);
}

}  // namespace dapple::small
