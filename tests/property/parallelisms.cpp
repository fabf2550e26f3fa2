// Forms of parallelism against every plan of small problems: groups are formed here by other means
// than in the product, and each form is enumerated by itself.

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "dapple/planner/parallelism/plan_parallelisms.h"
#include "dapple/planner/verify/verify.h"
#include "dapple/profile/variants.h"
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

std::vector<Collective> collectives(Dice& dice) {
  std::vector<Collective> made;
  for (std::int64_t i = dice.roll(0, 2); i > 0; --i) {
    made.push_back({.kind = kCollectiveKinds[dice.roll(0, 2)],
                    .size_per_sample = {dice.chance(20) ? 0 : dice.roll(1, 4'000'000)},
                    .count = dice.roll(1, 2)});
  }
  return made;
}

/// Gives every layer variants; one is missing now and then.
void add_variants(Dice& dice, ModelProfile& profile) {
  std::set<Parallelism> forms;
  for (const std::int64_t degree : {2, 3, 4}) {
    if (dice.chance(degree == 2 ? 90 : 35)) forms.insert({degree, dice.chance(40)});
  }
  if (dice.chance(25)) forms.insert({2, true});
  for (Layer& layer : profile.layers) {
    for (const Parallelism& form : forms) {
      if (dice.chance(3)) continue;
      LayerVariant variant{.parallelism = form,
                           .parameters = {},
                           .fixed_overhead = {},
                           .measurements = {},
                           .forward_collectives = collectives(dice),
                           .backward_collectives = collectives(dice)};
      if (layer.parameters.count > 0) {
        variant.parameters = {std::max<std::int64_t>(
            1, layer.parameters.count * dice.roll(90, 130) / (100 * form.tensor))};
      }
      variant.measurements.push_back(
          variant_measurement(dice, layer.measurements.back(), form.tensor));
      const Measurement& only = variant.measurements.front();
      if (dice.chance(30)) variant.fixed_overhead = {std::min(only.forward, only.backward).ns / 2};
      layer.variants.push_back(std::move(variant));
    }
  }
}

/// Makes all servers switched with the same links inside and of one kind of device.
void make_alike(Dice& dice, Problem& problem, bool is_measured) {
  TopologyDescription& topology = problem.topology;
  const Link inside{{dice.roll(1, 12) * 1'000'000'000},
                    {dice.chance(50) ? 0 : dice.roll(1, 900'000)}};
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

std::int64_t collective_ns(const Collective& collective, std::int64_t samples, std::int64_t members,
                           const ServerGroup& servers) {
  const std::int64_t bytes = samples * collective.size_per_sample.count;
  if (bytes == 0) return 0;
  const Link& link = servers.links.port;
  const bool is_whole = collective.kind == CollectiveKind::AllReduce;
  for (const BusBandwidthTable& table : servers.bus_bandwidth) {
    if (table.servers != 1 || table.devices != members) continue;
    const std::int64_t whole =
        by_table_ns(bytes, ring_ns(2 * (members - 1), bytes, members, link), table);
    return collective.count * (is_whole ? whole : static_cast<std::int64_t>(ceiling(whole, 2)));
  }
  return collective.count * ring_ns((is_whole ? 2 : 1) * (members - 1), bytes, members, link);
}

/// A profile in which the variant was measured at every batch size, collectives included.
std::optional<ModelProfile> profile_by_hand(const Problem& problem, const Parallelism& form) {
  ModelProfile profile = problem.profile;
  for (Layer& layer : profile.layers) {
    const auto found = std::find_if(layer.variants.begin(), layer.variants.end(),
                                    [&](const LayerVariant& variant) {
                                      return variant.parallelism.tensor == form.tensor &&
                                             variant.parallelism.sequence == form.sequence;
                                    });
    if (found == layer.variants.end()) return std::nullopt;
    const LayerVariant variant = *found;
    Layer alone;
    alone.fixed_overhead = variant.fixed_overhead;
    alone.measurements = variant.measurements;
    layer.parameters = variant.parameters;
    layer.fixed_overhead = {};
    layer.measurements.clear();
    layer.variants.clear();
    const Measurement& measured = variant.measurements.front();
    // One more than any share, as times need two measurements.
    for (std::int64_t samples = 1; samples <= problem.global_batch + 1; ++samples) {
      Measurement point = measured;
      point.batch_size = samples;
      point.forward = forward_time(alone, samples, profile.batch_scaling, kOne);
      point.backward = backward_time(alone, samples, profile.batch_scaling, kOne);
      const ServerGroup& servers = problem.topology.servers.front();
      for (const Collective& some : variant.forward_collectives) {
        point.forward.ns += collective_ns(some, samples, form.tensor, servers);
      }
      for (const Collective& some : variant.backward_collectives) {
        point.backward.ns += collective_ns(some, samples, form.tensor, servers);
      }
      for (const auto size : {&Measurement::output, &Measurement::stash, &Measurement::workspace}) {
        point.*size = {(measured.*size).count / measured.batch_size * samples};
      }
      layer.measurements.push_back(point);
    }
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

std::optional<Problem> grouped_by_hand(const Problem& problem, const Parallelism& form) {
  if (form.tensor == 1) {
    Problem sharded = problem;
    sharded.topology.shards_optimizer = form.shards_optimizer;
    return sharded;
  }
  auto profile = profile_by_hand(problem, form);
  if (!profile) return std::nullopt;
  Problem grouped = problem;
  grouped.profile = *std::move(profile);
  grouped.topology.shards_optimizer = form.shards_optimizer;
  for (ServerGroup& servers : grouped.topology.servers) {
    if (servers.devices % form.tensor != 0) return std::nullopt;
    auto nics = nics_by_hand(servers, form.tensor, problem.topology.network);
    if (!nics) return std::nullopt;
    servers.nics = *std::move(nics);
    servers.devices /= static_cast<std::int32_t>(form.tensor);
    servers.bus_bandwidth.clear();
  }
  return grouped;
}

/// The forms of parallelism that any layer has a variant for.
std::set<Parallelism> all_forms(const ModelProfile& profile) {
  std::set<Parallelism> forms{{}};
  for (const Layer& layer : profile.layers) {
    for (const LayerVariant& variant : layer.variants) forms.insert(variant.parallelism);
  }
  std::set<Parallelism> sharded;
  for (Parallelism form : forms) {
    form.shards_optimizer = true;
    sharded.insert(form);
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
    if (dice.chance(60)) {
      question.options.sharding = dice.chance(50) ? Sharding::Any : Sharding::Optimizer;
    }
  }

  static Question make(ProblemMaker& maker, Dice& dice) {
    small::PlanningProblem made = maker.next();
    make_alike(dice, made.problem, dice.chance(40));
    add_variants(dice, made.problem.profile);
    return Question(std::move(made));
  }

  bool is_asked(const Parallelism& form) const {
    const planner::PlannerOptions& options = question.options;
    const Sharding excluded = form.shards_optimizer ? Sharding::None : Sharding::Optimizer;
    return options.sharding != excluded &&
           options.pins.tensor.value_or(form.tensor) == form.tensor &&
           form.tensor <= options.max_tensor.value_or(form.tensor);
  }
};

std::string text_of(const ParallelProblem& problem) {
  const planner::PlannerOptions& options = problem.question.options;
  return "pinned " + std::to_string(options.pins.tensor.value_or(0)) + ", at most " +
         std::to_string(options.max_tensor.value_or(0)) + "\n" + small::text_of(problem.question);
}

/// Returns the least iteration of all plans of all forms, with the form that has it.
std::map<Parallelism, Duration> fastest_of_each(const ParallelProblem& problem) {
  std::map<Parallelism, Duration> found;
  for (const Parallelism& form : all_forms(problem.question.made.problem.profile)) {
    if (!problem.is_asked(form)) continue;
    auto grouped = grouped_by_hand(problem.question.made.problem, form);
    if (!grouped) continue;
    Question alone(
        {.problem = *std::move(grouped), .contention = problem.question.made.contention});
    const small::OracleAnswer fastest = alone.fastest();
    found[form] = fastest.plan ? fastest.iteration : Duration::infinite();
  }
  return found;
}

}  // namespace

TEST_CASE("the plan is the fastest of all forms of parallelism, and it knows") {
  ProblemMaker maker(4101, {.layers = 3, .devices = 4, .global_batch = 4});
  Dice dice(4102);
  Counts seen;
  for (int round = 0; round < small::scaled(500); ++round) {
    CAPTURE(round);
    const ParallelProblem problem(maker, dice);
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
    const bool is_cut = question.options.pins.tensor.has_value();
    REQUIRE(document.search.complete != is_cut);
    for (const ParallelismRecord& record : document.parallelisms) {
      const auto form = fastest.find(record.parallelism);
      if (record.iteration) REQUIRE(*record.iteration >= form->second);
      if (record.lower_bound) REQUIRE(*record.lower_bound <= form->second);
      if (record.missing.count > 0) REQUIRE(form->second.is_infinite());
    }
    const Parallelism& form = document.plan.parallelism;
    ++seen[form.tensor > 1 ? "groups" : "no groups"];
    if (form.sequence) ++seen["sequence parallelism"];
    if (form.shards_optimizer) ++seen["sharded"];
    if (fastest.size() > 1) ++seen["several forms"];
    if (fastest.size() > 1 && fastest.begin()->second.is_infinite()) ++seen["alone none fits"];
  }
  for (const char* what : {"groups", "no groups", "sequence parallelism", "sharded",
                           "several forms", "none fits", "alone none fits"}) {
    CAPTURE(what);
    CHECK(seen[what] >= small::scaled(10));
  }
}

TEST_CASE("plans of groups are verified, also after they were written and read") {
  ProblemMaker maker(4103, {.layers = 3, .devices = 4, .global_batch = 4});
  Dice dice(4104);
  int verified = 0;
  for (int round = 0; round < small::scaled(250); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    Question& question = problem.question;
    question.options.baselines = dice.chance(30);
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
