// Forms of parallelism against every plan of small problems: groups are formed here by other means
// than in the product, and each form is enumerated by itself.

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "dapple/planner/parallelism/plan_parallelisms.h"
#include "dapple/planner/verify/verify.h"
#include "dapple/profile/variants.h"
#include "dapple/search/decision_diagram/decision_diagram.h"
#include "dapple/search/families/family_bound.h"
#include "dapple/topology/servers_of_kind.h"
#include "exact_planner_checks.h"

using namespace dapple;

namespace {

using small::Dice;
using small::Problem;
using small::ProblemMaker;
using small::Question;

using Counts = std::map<std::string, int>;

/// The sizes of a variant are multiples of the measured batch, so that those of a sample are whole.
Measurement variant_measurement(Dice& dice, const Measurement& whole, std::int64_t degree) {
  const std::int64_t batch = whole.batch_size;
  const auto part = [&](std::int64_t count) { return count * dice.roll(80, 140) / (100 * degree); };
  const auto size_part = [&](Bytes size) { return Bytes{part(size.count / batch) * batch}; };
  return {.batch_size = batch,
          .forward = {part(whole.forward.ns)},
          .backward = {part(whole.backward.ns)},
          .input_gradient = {},
          .weight_gradient = {},
          .output = size_part(whole.output),
          .stash = size_part(whole.stash),
          .workspace = size_part(whole.workspace)};
}

/// Collectives over any of the form's ranks.
std::vector<Collective> collectives(Dice& dice, const Parallelism& form) {
  std::vector<CollectiveMembers> over;
  if (form.tensor > 1) over.push_back(CollectiveMembers::Tensor);
  if (form.context > 1) over.push_back(CollectiveMembers::Context);
  if (form.experts > 1) over.push_back(CollectiveMembers::Experts);
  std::vector<Collective> made;
  if (over.empty()) return made;
  for (std::int64_t i = dice.roll(0, 2); i > 0; --i) {
    made.push_back({.kind = kCollectiveKinds[dice.roll(0, 3)],
                    .over = over[static_cast<std::size_t>(dice.roll(0, std::ssize(over) - 1))],
                    .size_per_sample = {dice.chance(20) ? 0 : dice.roll(1, 4'000'000)},
                    .count = dice.roll(1, 2)});
  }
  return made;
}

/// Forms of parallelism for variants, without sharded state.
std::set<Parallelism> random_forms(Dice& dice) {
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
void keep_sizes(const Layer& layer, LayerVariant& variant) {
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
std::uint64_t part_of_sixteen(const Layer& layer) {
  const Measurement& point = layer.measurements.back();
  std::uint64_t mixed = 17;
  for (const std::int64_t figure : {point.forward.ns, point.backward.ns, point.output.count}) {
    mixed = (mixed + static_cast<std::uint64_t>(figure)) * 0x9E3779B97F4A7C15;
  }
  return mixed >> 60;
}

/// Gives every layer variants; one is missing now and then, and some layers have no experts.
void add_variants(Dice& dice, ModelProfile& profile) {
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
      // Tensor ranks mostly have the output whole.
      if (form.tensor > 1 && !form.sequence && part_of_sixteen(layer) > 1) {
        const Measurement& whole = layer.measurements.back();
        const std::int64_t of_sample = whole.output.count / whole.batch_size / form.context;
        variant.measurements.front().output = {of_sample * whole.batch_size};
      }
      const Measurement& only = variant.measurements.front();
      if (dice.chance(30)) variant.fixed_overhead = {std::min(only.forward, only.backward).ns / 2};
      if (keeps_sizes && !form.recomputes.none()) keep_sizes(layer, variant);
      layer.variants.push_back(std::move(variant));
    }
  }
}

Link random_link(Dice& dice) {
  return {{dice.roll(1, 12) * 1'000'000'000}, {dice.chance(50) ? 0 : dice.roll(1, 900'000)}};
}

/// Makes the last servers of another kind of device, quicker or slower by a factor, and with other
/// links as often as not.
void make_last_another_kind(Dice& dice, Problem& problem) {
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
void make_alike(Dice& dice, Problem& problem, bool is_measured) {
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

Wide ceiling(Wide numerator, Wide denominator) {
  return numerator / denominator + (numerator % denominator != 0 ? 1 : 0);
}

/// The time of a ring's rounds, each of which moves a part of the tensor.
std::int64_t ring_ns(std::int64_t rounds, std::int64_t bytes, std::int64_t members,
                     const Link& link) {
  const Wide ticks = ceiling(Wide{rounds} * bytes * 1'000'000'000 * 1024,
                             Wide{members} * link.bandwidth.bytes_per_second);
  return static_cast<std::int64_t>(ceiling(ticks, 1024)) + rounds * link.latency.ns;
}

std::int64_t by_table_ns(std::int64_t bytes, std::int64_t on_links,
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

  std::int64_t ns(CollectiveKind kind, std::int64_t bytes) const {
    if (members_.count == 1 || bytes == 0) return 0;
    const std::int64_t others = members_.count - 1;
    if (kind == CollectiveKind::AllToAll) return all_to_all_ns(bytes);
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
  std::int64_t all_to_all_ns(std::int64_t bytes) const {
    const auto sent = [&](std::int64_t receivers, std::int64_t bandwidth) {
      const Wide ticks =
          ceiling(Wide{receivers} * bytes * 1'000'000'000 * 1024, Wide{members_.count} * bandwidth);
      return static_cast<std::int64_t>(ceiling(ticks, 1024));
    };
    std::int64_t time = sent(in_server() - 1, servers_.links.port.bandwidth.bytes_per_second);
    if (passes_servers()) {
      time = std::max(
          time, sent(members_.count - in_server(), std::max<std::int64_t>(1, nics() / devices())));
    }
    return time + link().latency.ns;
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

Members members_of(CollectiveMembers over, const Parallelism& form) {
  switch (over) {
    case CollectiveMembers::Tensor:
      return {form.tensor, 1};
    case CollectiveMembers::Context:
      return {form.context, form.tensor};
    case CollectiveMembers::Experts:
      return {form.experts, form.expert_tensor};
  }
  return {};
}

/// The variant of a layer under a form, or the layer itself; nothing if it has none.
std::optional<LayerVariant> variant_by_hand(const Layer& layer, const Parallelism& form) {
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
std::vector<ShardedLayer> sharded_by_hand(const Problem& problem, const Group& group,
                                          const ServerGroup& servers, const ModelProfile& profile) {
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
std::vector<Measurement> times_by_hand(const Problem& problem, const Parallelism& form,
                                       const LayerVariant& variant, const ServerGroup& servers,
                                       bool has_parameters) {
  Layer alone;
  alone.fixed_overhead = variant.fixed_overhead;
  alone.measurements = variant.measurements;
  Factor scale = kOne;
  for (const DeviceKind& kind : problem.topology.devices) {
    const bool is_scaled = kind.name == servers.device && kind.name != problem.profile.device;
    if (is_scaled) scale = kind.time_scale.at(problem.profile.device);
  }
  const auto ns = [&](const std::vector<Collective>& some, std::int64_t samples) {
    Duration sum;
    for (const Collective& one : some) {
      const Ring ring(members_of(one.over, form), problem, servers);
      sum.ns += one.count * ring.ns(one.kind, samples * one.size_per_sample.count);
    }
    return sum;
  };
  const std::optional<BatchScaling> scaling = problem.profile.batch_scaling;
  const Measurement& measured = variant.measurements.front();
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
bool cuts_tensors(const Problem& problem, const Parallelism& form) {
  const std::vector<ServerGroup>& servers = problem.topology.servers;
  return problem.profile.boundaries == Boundaries::ScatterGather && form.tensor > 1 &&
         !form.sequence &&
         std::all_of(servers.begin(), servers.end(),
                     [&](const ServerGroup& some) { return form.tensor <= some.devices; });
}

/// The group of devices of such servers for the product, without collectives within layers.
GroupShape shape_by_hand(const Problem& problem, const Parallelism& form,
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
bool uses_a_tie(const ModelProfile& profile, const Layer& layer) {
  return std::any_of(profile.ties.begin(), profile.ties.end(), [&](const Tie& tie) {
    return std::any_of(tie.users.begin(), tie.users.end(),
                       [&](LayerIndex user) { return &profile.layers[user.position()] == &layer; });
  });
}

/// A profile in which the variant was measured at every batch size, collectives included.
std::optional<ModelProfile> profile_by_hand(const Problem& problem, const Parallelism& form) {
  ModelProfile profile = problem.profile;
  const Group group(form);
  const std::vector<ServerGroup>& servers = problem.topology.servers;
  const bool has_kinds = group.size > 1 && servers.back().device != servers.front().device;
  if (has_kinds) profile.other_devices = {servers.back().device};
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
    if (has_collectives) {
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
std::optional<std::vector<Nic>> nics_by_hand(const ServerGroup& servers, std::int64_t size,
                                             const std::optional<Link>& network) {
  const auto count = static_cast<std::int64_t>(servers.nics.size());
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
bool are_alike(const TopologyDescription& topology, std::int64_t size) {
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
bool have_equal_nics(const TopologyDescription& topology) {
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

std::optional<Problem> grouped_by_hand(const Problem& problem, const Parallelism& form);

/// The same of a form in which only some layers of a stage recompute.
std::optional<Problem> with_some_layers_by_hand(const Problem& problem, const Parallelism& form) {
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

std::optional<Problem> grouped_by_hand(const Problem& problem, const Parallelism& form) {
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
  if (!profile) return std::nullopt;
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
std::int64_t count_recomputing(const ModelProfile& profile, const Parallelism& form) {
  std::int64_t count = 0;
  for (const Layer& layer : profile.layers) {
    const auto variant = variant_by_hand(layer, form);
    if (variant && !variant->parallelism.recomputes.none()) ++count;
  }
  return count;
}

/// The forms of parallelism that any layer has a variant for, with state sharded in any way, and
/// with some layers of a stage alone recomputing if that is asked for.
std::set<Parallelism> all_forms(const ModelProfile& profile,
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

std::string text_of(const ParallelProblem& problem) {
  const planner::PlannerOptions& options = problem.question.options;
  return "pinned " + std::to_string(options.pins.tensor.value_or(0)) + ", shards " +
         std::to_string(options.pins.shards.value_or(0)) + ", at most " +
         std::to_string(options.max_tensor.value_or(0)) + "\n" + small::text_of(problem.question);
}

/// Returns the question about plans of one form or with some forms, as groups of these.
Question question_of(const ParallelProblem& problem, Problem grouped) {
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
std::map<Parallelism, Duration> fastest_of_each(const ParallelProblem& problem) {
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

/// Forms that stages of one plan may have, as a problem whose profile has all of them.
struct MixedForms {
  std::set<Parallelism> forms;
  Problem problem;
};

/// What stages of one plan have in common: the devices of a group, whether the optimizer's state is
/// sharded and, of every tied layer, the parameters that a device holds and reduces.
using CommonParts = std::tuple<std::int64_t, bool, std::vector<std::int64_t>>;

CommonParts common_parts(const ModelProfile& profile, const Parallelism& form) {
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
std::vector<MixedForms> mixed_by_hand(const ParallelProblem& problem) {
  const Problem& whole = problem.question.made.problem;
  std::vector<Parallelism> uniform;
  std::set<std::int64_t> sizes;
  for (const Parallelism& form : all_forms(whole.profile)) {
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
bool are_pools_of(const Topology& topology, std::int64_t devices) {
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
bool may_join_by_hand(const ParallelProblem& problem, const MixedForms& set,
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
std::vector<MixedForms> any_sizes_by_hand(const ParallelProblem& problem) {
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
bool are_few(const std::vector<MixedForms>& sets) {
  return std::all_of(sets.begin(), sets.end(), [](const MixedForms& set) {
    const Topology topology(set.problem.topology);
    const auto most = static_cast<std::size_t>(topology.device_count() < 3 ? 10 : 3);
    return set.forms.size() <= most;
  });
}

/// The plan is read again as it was written, and its bound is derived anew.
void require_verified(const PlanDocument& document) {
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

/// What a form chooses, of a cluster of so many devices.
std::set<std::string> dimensions_of(const Parallelism& form, std::int32_t devices) {
  const LayerSelection::Kind selected = form.recomputed_layers.kind();
  const std::pair<const char*, bool> all[] = {
      {"tensor", form.tensor > 1},
      {"sequence", form.sequence},
      {"context", form.context > 1},
      {"experts", form.experts > 1},
      {"experts of another tensor degree", form.experts > 1 && form.expert_tensor != form.tensor},
      {"sharded optimizer", form.shards_optimizer},
      {"optimizer sharded over some", form.optimizer_shards > 0},
      {"optimizer of replicas sharded over some",
       form.optimizer_shards > 0 && devices >= 2 * form.group_size()},
      {"sharded state", form.full_shards > 1},
      {"sharded state of replicas", form.full_shards > 1 && devices >= 2 * form.group_size()},
      {"recomputed parts", !form.recomputes.none()},
      {"first layers recomputing", selected == LayerSelection::Kind::First},
      {"every n-th layer recomputing", selected == LayerSelection::Kind::EveryNth}};
  std::set<std::string> dimensions;
  for (const auto& [name, is_chosen] : all) {
    if (is_chosen) dimensions.insert(name);
  }
  return dimensions;
}

/// What may be chosen: a form in which some plan fits has it.
std::set<std::string> open_dimensions(const std::map<Parallelism, Duration>& fastest,
                                      const Question& question) {
  std::set<std::string> open;
  for (const auto& [form, iteration] : fastest) {
    if (iteration.is_infinite()) continue;
    const std::int32_t devices = question.topology.device_count();
    open.merge(dimensions_of(form, devices));
    const bool may_send =
        devices > form.group_size() && question.made.problem.profile.layers.size() > 1;
    if (may_send && cuts_tensors(question.made.problem, form)) {
      open.insert("scatter-gather boundaries");
    }
  }
  return open;
}

/// Every dimension is open in enough of the instances.
void check_open(const Counts& open) {
  CHECK(open.at("instances") >= small::scaled(200));
  CHECK(open.size() == 15);
  for (const auto& [dimension, instances] : open) {
    CAPTURE(dimension);
    CHECK(instances >= small::scaled(30));
  }
}

}  // namespace

TEST_CASE("the plan is the fastest of all forms of parallelism, and it knows") {
  ProblemMaker maker(4101, {.layers = 3, .devices = 4, .global_batch = 4, .own_times = false});
  Dice dice(4102);
  Counts seen;
  Counts open;  // instances in which a dimension is
  for (int round = 0; round < small::scaled(850); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    problem.pin_some_shards(round, 3);
    const Question& question = problem.question;
    const std::map<Parallelism, Duration> fastest = fastest_of_each(problem);
    if (fastest.empty()) {
      ++seen["no form"];
      CHECK_THROWS_AS(planner::make_plan_of_any_parallelism(
                          {question.made.problem.profile, question.topology, question.options}, {}),
                      Error);
      continue;
    }
    Duration least = Duration::infinite();
    for (const auto& [form, iteration] : fastest) least = std::min(least, iteration);
    const auto made = planner::make_plan_of_any_parallelism(
        {question.made.problem.profile, question.topology, question.options}, {});
    const auto* plan = std::get_if<planner::MadePlan>(&made);
    if (plan == nullptr) {
      INFO(text_of(problem));
      REQUIRE(least.is_infinite());
      ++seen["none fits"];
      continue;
    }
    const PlanDocument& document = plan->document;
    INFO(text_of(problem) << "\n" << small::text_of(document.plan));
    REQUIRE(document.prediction.iteration == least);
    REQUIRE(document.prediction.lower_bound == least);
    const bool is_cut = question.options.pins.has_degrees();
    REQUIRE(document.search.complete != is_cut);
    for (const ParallelismRecord& record : document.parallelisms) {
      const auto form = fastest.find(record.parallelism);
      if (record.iteration) REQUIRE(*record.iteration >= form->second);
      if (record.lower_bound) REQUIRE(*record.lower_bound <= form->second);
      if (record.missing.count > 0) REQUIRE(form->second.is_infinite());
    }
    ++open["instances"];
    for (const std::string& dimension : open_dimensions(fastest, question)) { ++open[dimension]; }
    const Parallelism& form = document.plan.parallelism;
    ++seen[form.group_size() > 1 ? "groups" : "no groups"];
    if (form.sequence) ++seen["sequence parallelism"];
    if (form.context > 1) ++seen["context parallelism"];
    if (form.experts > 1) ++seen["expert parallelism"];
    if (!form.recomputes.none()) ++seen["recomputed parts"];
    const LayerSelection::Kind selected = form.recomputed_layers.kind();
    if (selected == LayerSelection::Kind::First) ++seen["first layers recomputing"];
    if (selected == LayerSelection::Kind::EveryNth) ++seen["every n-th layer recomputing"];
    if (form.shards_optimizer) ++seen["sharded"];
    if (form.full_shards > 1) ++seen["all state sharded"];
    if (form.optimizer_shards > 0) {
      ++seen["optimizer sharded over some"];
      const bool has_others =
          std::any_of(document.plan.stages.begin(), document.plan.stages.end(),
                      [](const StagePlan& stage) { return stage.devices.size() > 1; });
      if (has_others) ++seen["groups with the same shards"];
    }
    if (question.topology.server_count() > 1 && document.topology.servers_of_group > 1) {
      ++seen["groups of servers"];
    }
    for (const auto& [some, iteration] : fastest) {
      if (iteration.is_infinite() || kinds_in_use(question.topology).size() == 1) continue;
      const auto inputs = group_inputs(question.made.problem.profile, question.topology, some);
      const bool has_other_links = !std::get<PlanInputs>(inputs).profile.other_groups.empty();
      if (has_other_links) ++seen["groups with other links"];
      if (!has_other_links && some.group_size() > 1) ++seen["groups of two kinds"];
    }
    const bool is_cut_anywhere = cuts_tensors(question.made.problem, form);
    if (is_cut_anywhere && document.plan.stages.size() > 1) ++seen["shares over boundaries"];
    if (fastest.size() > 1) ++seen["several forms"];
    if (fastest.size() > 1 && fastest.begin()->second.is_infinite()) ++seen["alone none fits"];
  }
  if (small::scaled(800) < 800) return;  // Too few for every subject.
  const std::pair<const char*, int> subjects[] = {{"groups", 10},
                                                  {"no groups", 10},
                                                  {"sequence parallelism", 10},
                                                  {"context parallelism", 10},
                                                  {"expert parallelism", 4},
                                                  {"groups of servers", 4},
                                                  {"groups of two kinds", 4},
                                                  {"groups with other links", 4},
                                                  {"recomputed parts", 10},
                                                  {"first layers recomputing", 4},
                                                  {"every n-th layer recomputing", 1},
                                                  {"sharded", 10},
                                                  {"all state sharded", 10},
                                                  {"optimizer sharded over some", 10},
                                                  {"groups with the same shards", 4},
                                                  {"several forms", 10},
                                                  {"shares over boundaries", 1},
                                                  {"none fits", 10},
                                                  {"alone none fits", 10}};
  for (const auto& [what, least] : subjects) {
    CAPTURE(what);
    CHECK(seen[what] >= small::scaled(least));
  }
  check_open(open);
}

TEST_CASE("plans of groups are verified, also after they were written and read") {
  ProblemMaker maker(4103, {.layers = 3, .devices = 4, .global_batch = 4, .own_times = false});
  Dice dice(4104);
  int verified = 0;
  for (int round = 0; round < small::scaled(250); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    problem.pin_some_shards(round, 5);
    Question& question = problem.question;
    question.options.baselines = dice.chance(30);
    question.options.every_family =
        round % 3 == 0 && question.options.replicas == Replicas::Together;
    if (round % 4 == 1) question.options.jitter = JitterRequest{.deviation = {50'000'000}};
    if (question.options.pins.tensor || fastest_of_each(problem).size() < 2) continue;
    auto made = planner::make_plan_of_any_parallelism(
        {question.made.problem.profile, question.topology, question.options}, {});
    auto* plan = std::get_if<planner::MadePlan>(&made);
    if (plan == nullptr) continue;
    plan->document.tool = "test";
    const std::string text = io::write_plan(plan->document);
    const PlanDocument document = io::read_plan(text, "plan");
    INFO(text);
    REQUIRE(io::write_plan(document) == text);
    const Topology topology(document.topology);
    planner::VerifyOptions options;
    options.budget = 2'000'000;
    const planner::PlanVerification found = planner::verify(document, topology, options);
    const std::string fault = found.violations.empty() ? ""
                                                       : found.violations.front().place + ": " +
                                                             found.violations.front().message;
    REQUIRE(fault == "");
    REQUIRE(found.bound == BoundCheck::Proven);
    REQUIRE(found.unchecked.empty());
    ++verified;
    // A bound above the plan of another form is refuted.
    if (document.parallelisms.empty()) continue;
    PlanDocument tampered = document;
    for (ParallelismRecord& record : tampered.parallelisms) {
      if (record.parallelism == document.plan.parallelism || !record.lower_bound) continue;
      record.iteration = document.prediction.iteration - Duration{1};
      CHECK_FALSE(planner::verify(tampered, topology, options).violations.empty());
      break;
    }
  }
  CHECK(verified >= small::scaled(40));
}

namespace {

/// Leaves devices little more or less memory than the fastest plan of any memory needs.
void tighten_memory(Dice& dice, Question& question) {
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

/// Asks for any mode of the simulation, and for 1F1B or GPipe.
void ask_for_any_mode(Dice& dice, planner::PlannerOptions& options) {
  if (dice.chance(20)) options.replicas = Replicas::Independent;
  if (options.replicas == Replicas::Together && dice.chance(25)) {
    options.transfers = dice.chance(50) ? Transfers::Blocking : Transfers::Serial;
  }
  if (dice.chance(15)) options.family = ScheduleFamily::GPipe;
}

/// Checks that no bound on plans with these forms is above the fastest of them.
void check_bounds(Dice& dice, const Question& mixed, Duration fastest) {
  const planner::PlannerOptions& options = mixed.options;
  const CostModel costs(mixed.made.problem.profile, mixed.topology);
  const auto width = static_cast<std::size_t>(dice.roll(1, 4));
  Duration merged = Duration::infinite();
  Duration of_paths = Duration::infinite();
  Duration of_work = Duration::infinite();
  for (std::int64_t size = 1; size <= options.global_batch_size; ++size) {
    if (options.global_batch_size % size != 0) continue;
    const search::SearchProblem problem{
        .global_batch_size = options.global_batch_size,
        .micro_batch_size = size,
        .gradients = mixed.gradients().front(),
        .gpipe = options.family == ScheduleFamily::GPipe,
        .links_are_shared = options.contention == Contention::Shared,
        .replicas = options.replicas,
        .transfers = options.transfers,
        .shares_by_speed = planner::has_shares_by_speed(options, mixed.topology)};
    search::DecisionDiagram diagram(mixed.made.problem.profile, mixed.topology, problem,
                                    2 * fastest, {});
    merged = std::min(merged, diagram.relaxed_bound(width));
    of_paths = std::min(of_paths, diagram.bound_of_paths());
    search::FamilyBound bound(costs, {.global_batch_size = options.global_batch_size,
                                      .micro_batch_size = size,
                                      .split_backward = dice.chance(50),
                                      .optimizer = options.optimizer,
                                      .ignore_memory = dice.chance(50)});
    Duration of_size = bound.of_work(2 * fastest);
    if (options.replicas == Replicas::Together) {
      of_size = std::max({of_size, bound.of_pipelines(2 * fastest), bound.of_loops(2 * fastest)});
    }
    of_work = std::min(of_work, of_size);
  }
  REQUIRE(merged <= of_paths);
  REQUIRE(of_paths <= fastest);
  REQUIRE(of_work <= fastest);
}

}  // namespace

TEST_CASE("a stage costs what it costs where all stages have its form") {
  ProblemMaker maker(4107, {.layers = 5, .devices = 6, .global_batch = 6, .own_times = false});
  Dice dice(4108);
  Counts seen;
  for (int round = 0; round < small::scaled(1500); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    problem.pin_some_shards(round, 5);
    problem.question.options.pins.tensor.reset();
    // Whether tensors cross in shares depends on both forms.
    problem.question.made.problem.profile.boundaries = Boundaries::Whole;
    for (const MixedForms& set : mixed_by_hand(problem)) {
      const Question question = question_of(problem, set.problem);
      const ModelProfile& profile = set.problem.profile;
      const auto layers = static_cast<std::int32_t>(profile.layers.size());
      const std::int32_t devices = question.topology.device_count();
      if (devices < 2 || layers < 2 || problem.question.options.global_batch_size < 2) continue;
      // Two stages on any devices, each in any form.
      const std::int32_t cut = static_cast<std::int32_t>(dice.roll(1, layers - 1));
      const auto first = static_cast<std::int32_t>(dice.roll(1, devices - 1));
      Plan plan{.global_batch_size = problem.question.options.global_batch_size,
                .micro_batch_size = problem.question.options.global_batch_size,
                .stage_forms = stage_forms_of(profile),
                .warmup_depths = {1, 1},
                .stages = std::vector<StagePlan>(2)};
      plan.stages[0].layers = {0, cut};
      plan.stages[1].layers = {cut, layers};
      for (std::int32_t d = 0; d < devices; ++d) {
        StagePlan& stage = plan.stages[d < first ? 0 : 1];
        if (std::ssize(stage.devices) < plan.micro_batch_size) stage.devices.push_back({d});
      }
      for (StagePlan& stage : plan.stages) {
        stage.form.value = static_cast<std::int32_t>(dice.roll(0, std::ssize(profile.stage_forms)));
        stage.recompute = dice.chance(30);
      }
      Plan mixed = plan;
      fill_gradient_buckets(mixed, profile);
      REQUIRE(costing_faults(mixed, profile, question.topology).empty());
      const PlanCost costs = CostModel(profile, question.topology).plan_cost(mixed);
      for (std::size_t s = 0; s < 2; ++s) {
        // A profile of that form alone.
        ModelProfile alone = in_form(profile, plan.stages[s].form);
        alone.stage_forms.clear();
        Plan uniform = plan;
        uniform.stage_forms.clear();
        for (StagePlan& stage : uniform.stages) stage.form = {};
        fill_gradient_buckets(uniform, alone);
        const PlanCost expected = CostModel(alone, question.topology).plan_cost(uniform);
        const StageCost& one = costs.stages[s];
        const StageCost& other = expected.stages[s];
        REQUIRE(mixed.stages[s].gradient_buckets == uniform.stages[s].gradient_buckets);
        REQUIRE(one.forward == other.forward);
        REQUIRE(one.backward == other.backward);
        REQUIRE(one.optimizer_step == other.optimizer_step);
        REQUIRE(one.tied_reduction == other.tied_reduction);
        REQUIRE(one.buckets.size() == other.buckets.size());
        for (std::size_t r = 0; r < one.replicas.size(); ++r) {
          REQUIRE(one.replicas[r].memory.peak() == other.replicas[r].memory.peak());
        }
        // It receives what it receives from a stage of its own form.
        const BoundaryCost& ours = costs.boundaries.front();
        const BoundaryCost& theirs = expected.boundaries.front();
        const TransferCost& received = s == 1 ? ours.forward.front() : ours.backward.front();
        const TransferCost& same = s == 1 ? theirs.forward.front() : theirs.backward.front();
        REQUIRE(received.time == same.time);
        REQUIRE(received.size == same.size);
      }
      ++seen[plan.stages[0].form == plan.stages[1].form ? "one form" : "two forms"];
      if (!mixed.tied_gradients.empty()) ++seen["ties"];
      if (costs.boundaries.front().forward.front().size !=
          costs.boundaries.front().backward.front().size) {
        ++seen["other layouts"];
      }
    }
  }
  for (const char* what : {"one form", "two forms", "ties", "other layouts"}) {
    CAPTURE(what);
    CHECK(seen[what] >= small::scaled(20));
  }
}

TEST_CASE("where stages may differ in their form the plan is the fastest of all, and it knows") {
  ProblemMaker maker(4105, {.layers = 3, .devices = 4, .global_batch = 4, .own_times = false});
  Dice dice(4106);
  Counts seen;
  for (int round = 0; round < small::scaled(1000); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    problem.pin_some_shards(round, 10);
    Question& question = problem.question;
    question.options.mixes_forms = true;
    question.options.recomputed_layers = RecomputedLayers::All;
    question.options.pins.tensor.reset();
    ask_for_any_mode(dice, question.options);
    if (mixed_by_hand(problem).empty()) continue;
    if (dice.chance(60)) tighten_memory(dice, question);
    const std::vector<MixedForms> sets = mixed_by_hand(problem);
    if (!are_few(sets)) continue;
    Duration of_one = Duration::infinite();
    for (const auto& [form, iteration] : fastest_of_each(problem)) {
      of_one = std::min(of_one, iteration);
    }
    std::map<std::set<Parallelism>, Duration> fastest;
    Duration least = of_one;
    for (const MixedForms& set : sets) {
      const Question mixed = question_of(problem, set.problem);
      const small::OracleAnswer found = mixed.fastest();
      if (found.plan) check_bounds(dice, mixed, found.iteration);
      fastest[set.forms] = found.plan ? found.iteration : Duration::infinite();
      least = std::min(least, fastest[set.forms]);
    }
    auto made = planner::make_plan_of_any_parallelism(
        {question.made.problem.profile, question.topology, question.options}, {});
    auto* plan = std::get_if<planner::MadePlan>(&made);
    INFO(text_of(problem));
    if (plan == nullptr) {
      REQUIRE(least.is_infinite());
      ++seen["none fits"];
      continue;
    }
    plan->document.tool = "test";
    const PlanDocument& document = plan->document;
    INFO(io::write_plan(document));
    CAPTURE(of_one.ns, least.ns);
    REQUIRE(document.prediction.iteration == least);
    REQUIRE(document.prediction.lower_bound == least);
    std::size_t records = 0;
    for (const ParallelismRecord& record : document.parallelisms) {
      if (record.stage_forms.empty() && record.parallelism.group_replicas == 1) continue;
      std::set<Parallelism> forms(record.stage_forms.begin(), record.stage_forms.end());
      forms.insert(record.parallelism);
      const auto set = fastest.find(forms);
      REQUIRE(set != fastest.end());
      if (record.lower_bound) REQUIRE(*record.lower_bound <= set->second);
      ++records;
    }
    REQUIRE(records == fastest.size());
    ++seen["plans"];
    if (least >= of_one) continue;
    ++seen[of_one.is_infinite() ? "only different stages fit" : "different stages are faster"];
    std::set<Parallelism> forms;
    for (const StagePlan& stage : document.plan.stages) {
      forms.insert(form_of(document.plan, stage));
    }
    if (forms.size() < 2) {
      ++seen["data-parallel ranks in groups"];
      continue;
    }
    std::set<std::int64_t> tensor;
    std::set<std::int64_t> context;
    std::set<std::int64_t> experts;
    std::set<RecomputedParts> parts;
    std::set<bool> sharded;
    for (const Parallelism& form : forms) {
      tensor.insert(form.tensor);
      context.insert(form.context);
      experts.insert(form.experts);
      parts.insert(form.recomputes);
      sharded.insert(form.full_shards > 1);
    }
    if (tensor.size() > 1) ++seen["tensor degrees differ"];
    if (context.size() > 1) ++seen["context degrees differ"];
    if (experts.size() > 1) ++seen["expert degrees differ"];
    if (parts.size() > 1) ++seen["recomputed parts differ"];
    if (sharded.size() > 1) ++seen["sharded in some stages"];
    require_verified(document);
  }
  if (small::scaled(1000) < 1000) return;  // Too few for every subject.
  // One of so many rounds, at least.
  const std::pair<const char*, int> subjects[] = {{"plans", 10},
                                                  {"none fits", 20},
                                                  {"different stages are faster", 100},
                                                  {"data-parallel ranks in groups", 200},
                                                  {"recomputed parts differ", 200},
                                                  {"tensor degrees differ", 500},
                                                  {"context degrees differ", 1000},
                                                  {"expert degrees differ", 2000},
                                                  {"only different stages fit", 2000},
                                                  {"sharded in some stages", 10000}};
  for (const auto& [what, rounds] : subjects) {
    CAPTURE(what);
    CHECK(seen[what] >= small::scaled(1000) / rounds);
  }
}

namespace {

/// What each device of a stage on groups of different sizes receives from each device of the
/// other one, by the parts of the tensor that both would have if it were divided among the
/// devices of a replica in order.
std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> flows_by_hand(
    const Plan& plan, const StagePlan& from, const StagePlan& to,
    const std::function<std::int64_t(std::int64_t)>& size_of) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> flows;
  for (std::int64_t i = 0; i < std::ssize(from.devices); ++i) {
    for (std::int64_t j = 0; j < std::ssize(to.devices); ++j) {
      const std::int64_t senders = from.devices_per_replica;
      const std::int64_t receivers = to.devices_per_replica;
      std::int64_t samples = 0;
      for (std::int64_t s = 0; s < plan.micro_batch_size; ++s) {
        const auto has = [&](const StagePlan& stage, std::int64_t replica) {
          const SampleRange own = replica_share(plan.micro_batch_size, replicas_of(stage), replica);
          return own.begin <= s && s < own.end;
        };
        if (has(from, i / senders) && has(to, j / receivers)) ++samples;
      }
      // What parts a of `senders` and b of `receivers` of one whole have in common, of which the
      // receiver's part has as many units as there are senders.
      const std::int64_t a = i % senders;
      const std::int64_t b = j % receivers;
      const std::int64_t common =
          std::min((a + 1) * receivers, (b + 1) * senders) - std::max(a * receivers, b * senders);
      if (samples == 0 || common <= 0) continue;
      const auto bytes =
          static_cast<std::int64_t>(ceiling(Wide{size_of(samples)} * common, senders));
      if (bytes > 0) {
        flows[{from.devices[static_cast<std::size_t>(i)].value,
               to.devices[static_cast<std::size_t>(j)].value}] = bytes;
      }
    }
  }
  return flows;
}

std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> flows_of(const TransferCost& cost) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> flows;
  for (const PairFlow& flow : cost.flows) {
    flows[{flow.from.value, flow.to.value}] += flow.size.count;
  }
  return flows;
}

/// A plan of two stages, each in any form of a set on its groups; nothing if they do not fit.
std::optional<Plan> two_stages(Dice& dice, const MixedForms& set, std::int64_t batch) {
  const ModelProfile& profile = set.problem.profile;
  const Topology topology(set.problem.topology);
  const auto layers = static_cast<std::int32_t>(profile.layers.size());
  const auto cut = static_cast<std::int32_t>(dice.roll(1, layers - 1));
  Plan plan{.global_batch_size = batch,
            .micro_batch_size = batch,
            .parallelism = profile.parallelism,
            .stage_forms = stage_forms_of(profile),
            .warmup_depths = {1, 1},
            .stages = std::vector<StagePlan>(2)};
  plan.stages[0].layers = {0, cut};
  plan.stages[1].layers = {cut, layers};
  std::set<std::int32_t> used;
  for (StagePlan& stage : plan.stages) {
    stage.form.value = static_cast<std::int32_t>(dice.roll(0, std::ssize(profile.stage_forms)));
    stage.recompute = dice.chance(30);
    const auto each = static_cast<std::int32_t>(Group(form_of(plan, stage)).size /
                                                Group(profile.parallelism).size);
    const std::int64_t most = dice.roll(1, batch);
    for (std::int32_t first = 0; first + each <= topology.device_count(); first += each) {
      const bool is_last = &stage == &plan.stages[1];
      // The first stage leaves some groups free.
      if ((!is_last && dice.chance(40)) || std::ssize(stage.devices) / each >= most) continue;
      bool is_free = true;
      for (std::int32_t d = first; d < first + each; ++d) is_free = is_free && used.count(d) == 0;
      if (!is_free) continue;
      for (std::int32_t d = first; d < first + each; ++d) {
        stage.devices.push_back({d});
        used.insert(d);
      }
    }
    if (stage.devices.empty()) return std::nullopt;
  }
  set_devices_per_replica(plan);
  return plan;
}

/// The same stage on its groups as single devices, with the other stage on the rest.
StageCost as_groups(const ParallelProblem& problem, const Plan& plan, std::size_t s) {
  const Parallelism form = form_of(plan, plan.stages[s]);
  auto grouped = grouped_by_hand(problem.question.made.problem, form);
  REQUIRE(grouped.has_value());
  const Topology topology(grouped->topology);
  Plan alone = plan;
  alone.stage_forms.clear();
  for (StagePlan& stage : alone.stages) {
    stage.form = {};
    stage.devices_per_replica = 1;
    stage.devices.clear();
    stage.gradient_buckets.clear();
  }
  const StagePlan& own = plan.stages[s];
  for (std::size_t i = 0; i < own.devices.size();
       i += static_cast<std::size_t>(own.devices_per_replica)) {
    alone.stages[s].devices.push_back({own.devices[i].value / own.devices_per_replica});
  }
  // The other stage is on some other device, if any is left, as what it costs does not matter.
  for (std::int32_t d = 0; d < topology.device_count(); ++d) {
    const std::vector<DeviceIndex>& taken = alone.stages[s].devices;
    if (std::find(taken.begin(), taken.end(), DeviceIndex{d}) != taken.end()) continue;
    alone.stages[1 - s].devices = {{d}};
    break;
  }
  REQUIRE_FALSE(alone.stages[1 - s].devices.empty());
  fill_gradient_buckets(alone, grouped->profile);
  return CostModel(grouped->profile, topology).plan_cost(alone).stages[s];
}

}  // namespace

TEST_CASE("stages on groups of different sizes cost what they cost on their own groups") {
  ProblemMaker maker(4111, {.layers = 5, .devices = 6, .global_batch = 6, .own_times = false});
  Dice dice(4112);
  Counts seen;
  for (int round = 0; round < small::scaled(30000); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    problem.pin_some_shards(round, 7);
    problem.question.options.pins.tensor.reset();
    problem.question.made.problem.profile.boundaries = Boundaries::Whole;
    const std::int64_t batch = problem.question.options.global_batch_size;
    // Twice as many devices in each server, so that there are three sizes.
    for (ServerGroup& servers : problem.question.made.problem.topology.servers) {
      if (servers.nics.front().devices.empty()) servers.devices *= 2;
      servers.bus_bandwidth.clear();
    }
    for (const MixedForms& set : any_sizes_by_hand(problem)) {
      if (set.problem.profile.layers.size() < 2) continue;
      const auto plan = two_stages(dice, set, batch);
      if (!plan) continue;
      Plan mixed = *plan;
      const ModelProfile& profile = set.problem.profile;
      const Topology topology(set.problem.topology);
      fill_gradient_buckets(mixed, profile);
      INFO(text_of(problem) << "\n" << small::text_of(mixed));
      REQUIRE(costing_faults(mixed, profile, topology).empty());
      const CostModel model(profile, topology);
      const PlanCost costs = model.plan_cost(mixed);
      for (std::size_t s = 0; s < 2; ++s) {
        const StageCost& one = costs.stages[s];
        const StageCost other = as_groups(problem, mixed, s);
        REQUIRE(one.forward == other.forward);
        REQUIRE(one.backward == other.backward);
        REQUIRE(one.optimizer_step == other.optimizer_step);
        REQUIRE(one.buckets.size() == other.buckets.size());
        for (std::size_t b = 0; b < one.buckets.size(); ++b) {
          REQUIRE(one.buckets[b].time == other.buckets[b].time);
        }
        for (std::size_t d = 0; d < one.replicas.size(); ++d) {
          const std::size_t r = d / static_cast<std::size_t>(mixed.stages[s].devices_per_replica);
          REQUIRE(one.replicas[d].memory.peak() == other.replicas[r].memory.peak());
          REQUIRE(one.replicas[d].samples == other.replicas[r].samples);
        }
      }
      const std::int32_t cut = mixed.stages[1].layers.begin;
      const auto received_by = [&](std::size_t s) {
        return [&, s](std::int64_t samples) {
          return model.in(mixed.stages[s].form).boundary_size(cut, samples).count;
        };
      };
      const BoundaryCost& boundary = costs.boundaries.front();
      REQUIRE(flows_of(boundary.forward.front()) ==
              flows_by_hand(mixed, mixed.stages[0], mixed.stages[1], received_by(1)));
      REQUIRE(flows_of(boundary.backward.front()) ==
              flows_by_hand(mixed, mixed.stages[1], mixed.stages[0], received_by(0)));
      const std::int32_t front = mixed.stages[0].devices_per_replica;
      const std::int32_t back = mixed.stages[1].devices_per_replica;
      ++seen[front == back ? (front == 1 ? "smallest groups" : "larger groups")
                           : "different groups"];
      if (front > 1 && back > 1 && front != back) ++seen["three sizes"];
      if (!costs.stages[0].buckets.empty() && front > 1) ++seen["reductions of larger groups"];
      if (topology.server_count() > 1 && front != back) ++seen["several servers"];
    }
  }
  const std::pair<const char*, int> subjects[] = {{"different groups", 500},
                                                  {"larger groups", 100},
                                                  {"three sizes", 5},
                                                  {"reductions of larger groups", 100},
                                                  {"several servers", 100}};
  for (const auto& [what, least] : subjects) {
    CAPTURE(what);
    CHECK(seen[what] >= small::scaled(least));
  }
}

namespace {

/// Makes all outputs larger, so that transfers decide.
void enlarge_outputs(std::int64_t factor, ModelProfile& profile) {
  for (Layer& layer : profile.layers) {
    for (Measurement& point : layer.measurements) point.output = factor * point.output;
    for (LayerVariant& variant : layer.variants) {
      for (Measurement& point : variant.measurements) point.output = factor * point.output;
    }
  }
}

}  // namespace

TEST_CASE("where groups may have different sizes the plan is the fastest of all, and it knows") {
  ProblemMaker maker(4113, {.layers = 3, .devices = 4, .global_batch = 4, .own_times = false});
  Dice dice(4114);
  Counts seen;
  for (int round = 0; round < small::scaled(12000); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    problem.pin_some_shards(round, 10);
    Question& question = problem.question;
    question.options.mixes_forms = true;
    question.options.mixes_group_sizes = true;
    question.options.recomputed_layers = RecomputedLayers::All;
    question.options.pins.tensor.reset();
    ask_for_any_mode(dice, question.options);
    question.options.replicas = Replicas::Together;
    if (dice.chance(50)) {
      constexpr std::int64_t kFactors[] = {10, 100, 1000, 10000};
      enlarge_outputs(kFactors[dice.roll(0, 3)], question.made.problem.profile);
      question.options.pins.stages = dice.roll(2, 3);
    }
    if (any_sizes_by_hand(problem).empty()) continue;
    if (dice.chance(60)) tighten_memory(dice, question);
    const std::vector<MixedForms> of_one_size = mixed_by_hand(problem);
    const std::vector<MixedForms> sets = any_sizes_by_hand(problem);
    if (!are_few(of_one_size) || !are_few(sets)) continue;
    Duration of_others = Duration::infinite();
    for (const auto& [form, iteration] : fastest_of_each(problem)) {
      of_others = std::min(of_others, iteration);
    }
    for (const MixedForms& set : of_one_size) {
      const small::OracleAnswer found = question_of(problem, set.problem).fastest();
      if (found.plan) of_others = std::min(of_others, found.iteration);
    }
    std::map<std::set<Parallelism>, Duration> fastest;
    Duration least = of_others;
    for (const MixedForms& set : sets) {
      const small::OracleAnswer found = question_of(problem, set.problem).fastest();
      fastest[set.forms] = found.plan ? found.iteration : Duration::infinite();
      least = std::min(least, fastest[set.forms]);
    }
    auto made = planner::make_plan_of_any_parallelism(
        {question.made.problem.profile, question.topology, question.options}, {});
    auto* plan = std::get_if<planner::MadePlan>(&made);
    INFO(text_of(problem));
    CAPTURE(of_others.ns, least.ns);
    ++seen["instances"];
    if (plan == nullptr) {
      REQUIRE(least.is_infinite());
      ++seen["none fits"];
      continue;
    }
    plan->document.tool = "test";
    const PlanDocument& document = plan->document;
    INFO(io::write_plan(document));
    REQUIRE(document.prediction.iteration == least);
    REQUIRE(document.prediction.lower_bound == least);
    for (const ParallelismRecord& record : document.parallelisms) {
      std::set<Parallelism> forms(record.stage_forms.begin(), record.stage_forms.end());
      forms.insert(record.parallelism);
      const auto set = fastest.find(forms);
      if (set == fastest.end()) continue;
      if (record.lower_bound) REQUIRE(*record.lower_bound <= set->second);
      ++seen["records"];
    }
    if (least >= of_others) continue;
    ++seen[of_others.is_infinite() ? "only different sizes fit" : "different sizes are faster"];
    REQUIRE(has_larger_groups(document.plan));
    if (question.options.transfers != Transfers::Overlapped) ++seen["transfers block"];
    if (question.made.contention == Contention::Off) ++seen["links are not shared"];
    require_verified(document);
  }
  if (small::scaled(12000) < 12000) return;  // Too few for every subject.
  const std::pair<const char*, int> subjects[] = {
      {"instances", 900},     {"records", 500},
      {"none fits", 5},       {"different sizes are faster", 10},
      {"transfers block", 1}, {"links are not shared", 2}};
  for (const auto& [what, least] : subjects) {
    CAPTURE(what);
    CHECK(seen[what] >= least);
  }
}
