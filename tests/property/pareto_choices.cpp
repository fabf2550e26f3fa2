// What "dapple-plan pareto" finds of small clusters against every plan on each of them: the
// clusters that it tries, the fastest plan and the price of each, the front, and the choices within
// a budget, a throughput and a number of devices. Shares the oracle of plans with other tests; the
// clusters, the prices, the front and the choices are made here anew.

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "../support/temporary_folder.h"
#include "dapple/app/run.h"
#include "exact_planner_checks.h"
#include "parallel_problems.h"

using namespace dapple;

namespace {

using small::Dice;
using small::OracleAnswer;
using small::ProblemMaker;
using small::Question;

constexpr std::int64_t kBillion = 1'000'000'000;

/// A cluster that may be paid for, and the fastest of all plans on it.
struct Cluster {
  std::int64_t devices = 0;
  // Billionths of a price for a device and hour, of all devices together.
  Wide hourly = 0;
  std::optional<Duration> fastest = {};

  /// 1,000 iterations cost this, an hour being 3.6e12 nanoseconds, over 3.6e9 billionths.
  Wide cost() const { return hourly * fastest->ns; }
};

/// By their servers, as the table writes them: "2 of a", or "1 x a, 3 x b".
using Clusters = std::map<std::string, Cluster>;

/// Returns the fastest of all plans on a cluster, nothing where none fits.
using FastestOn = std::function<std::optional<Duration>(const TopologyDescription&)>;

Cluster cluster_of(const TopologyDescription& description, const FastestOn& fastest_on) {
  Cluster cluster;
  for (const ServerGroup& group : description.servers) {
    const std::int64_t devices = std::int64_t{group.count} * group.devices;
    cluster.devices += devices;
    for (const DeviceKind& kind : description.devices) {
      if (kind.name != group.device) continue;
      cluster.hourly += Wide{kind.price_per_hour.value_or(kOne).billionths} * devices;
    }
  }
  cluster.fastest = fastest_on(description);
  return cluster;
}

/// Every cluster of servers of one kind: all numbers of servers, and parts of one server whose
/// devices are interchangeable.
void add_of_one_kind(TopologyDescription cluster, const FastestOn& fastest_on, Clusters& clusters) {
  const ServerGroup whole = cluster.servers.front();
  ServerGroup& group = cluster.servers.front();
  for (group.count = 1; group.count <= whole.count; ++group.count) {
    clusters[std::to_string(group.count) + " x " + group.name] = cluster_of(cluster, fastest_on);
  }
  if (whole.links.kind == ServerLinks::Kind::Matrix) return;
  group.count = 1;
  group.nics.clear();
  // Half as many each time.
  for (std::int32_t devices = whole.devices / 2; devices > 0; devices /= 2) {
    group.devices = devices;
    std::erase_if(group.bus_bandwidth, [&](const BusBandwidthTable& table) {
      return table.devices > devices || table.servers > 1;
    });
    clusters[std::to_string(devices) + " of " + group.name] = cluster_of(cluster, fastest_on);
  }
}

/// Every cluster of servers of two kinds.
void add_of_two_kinds(const TopologyDescription& whole, const FastestOn& fastest_on,
                      Clusters& clusters) {
  REQUIRE(whole.servers.size() == 2);
  // So few that all are taken.
  REQUIRE((whole.servers[0].count + 1) * (whole.servers[1].count + 1) <= 64);
  for (std::int32_t first = 0; first <= whole.servers[0].count; ++first) {
    for (std::int32_t second = 0; second <= whole.servers[1].count; ++second) {
      TopologyDescription cluster = whole;
      cluster.servers[0].count = first;
      cluster.servers[1].count = second;
      std::erase_if(cluster.servers, [](const ServerGroup& group) { return group.count == 0; });
      if (cluster.servers.empty()) continue;
      std::string name;
      for (const ServerGroup& group : cluster.servers) {
        name += (name.empty() ? "" : ", ") + std::to_string(group.count) + " x " + group.name;
      }
      clusters[name] = cluster_of(cluster, fastest_on);
    }
  }
}

Clusters all_clusters(const TopologyDescription& whole, const FastestOn& fastest_on) {
  Clusters clusters;
  if (whole.servers.size() == 1) {
    add_of_one_kind(whole, fastest_on, clusters);
  } else {
    add_of_two_kinds(whole, fastest_on, clusters);
  }
  return clusters;
}

/// Gives every kind of device a price, or in some problems none.
void price(Dice& dice, TopologyDescription& topology) {
  if (dice.chance(15)) return;
  for (DeviceKind& kind : topology.devices) {
    // Round prices make ties between clusters.
    const std::int64_t price =
        dice.chance(50) ? dice.roll(0, 4) * kBillion / 2 : dice.roll(1, 5 * kBillion);
    kind.price_per_hour = Factor{price};
  }
}

/// Makes the profile one that a file may hold: with names, and overheads that are part of a time.
void fill_in(ModelProfile& profile) {
  profile.source = "made up";
  profile.optimizer.name = "some";
  for (Layer& layer : profile.layers) {
    for (const Measurement& measured : layer.measurements) {
      layer.fixed_overhead = std::min({layer.fixed_overhead, measured.forward, measured.backward});
    }
  }
}

/// A row of the table: what is in the columns, by their names.
using Row = std::map<std::string, std::string>;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool is_quoted = false;
  for (const char character : line) {
    if (character == '"') {
      is_quoted = !is_quoted;
    } else if (character == ',' && !is_quoted) {
      cells.emplace_back();
    } else {
      cells.back() += character;
    }
  }
  return cells;
}

std::vector<Row> rows_of(const std::string& text) {
  std::vector<Row> rows;
  std::istringstream lines(text);
  std::string line;
  std::vector<std::string> names;
  while (std::getline(lines, line)) {
    const std::vector<std::string> cells = cells_of(line);
    if (names.empty()) {
      names = cells;
      continue;
    }
    REQUIRE(cells.size() == names.size());
    rows.emplace_back();
    for (std::size_t i = 0; i < cells.size(); ++i) rows.back()[names[i]] = cells[i];
  }
  return rows;
}

/// The limits that a command line gives, beside its files.
struct Limits {
  bool by_time = false;
  // Billionths of a price, and of samples per second.
  std::optional<std::int64_t> budget = {};
  std::optional<std::int64_t> rate = {};
  std::optional<std::int64_t> devices = {};
  // Percent of the fastest plan.
  std::optional<std::int64_t> slack = {};
};

std::string decimal(std::int64_t billionths) {
  const std::string part = std::to_string(kBillion + billionths % kBillion);
  return std::to_string(billionths / kBillion) + "." + part.substr(1);
}

std::vector<std::string> words_of(const Limits& limits) {
  std::vector<std::string> words{"--objective", limits.by_time ? "time" : "cost"};
  const auto add = [&](const char* name, const std::string& value) {
    words.emplace_back(name);
    words.push_back(value);
  };
  if (limits.budget) add("--budget", decimal(*limits.budget));
  if (limits.rate) add("--min-throughput", decimal(*limits.rate));
  if (limits.devices) add("--max-devices", std::to_string(*limits.devices));
  if (limits.slack) add("--slack", std::to_string(*limits.slack) + "%");
  return words;
}

/// The fastest plan on any of the clusters; infinite if none fits on any.
Duration fastest_of(const Clusters& clusters) {
  Duration fastest = Duration::infinite();
  for (const auto& [name, cluster] : clusters) {
    fastest = std::min(fastest, cluster.fastest.value_or(fastest));
  }
  return fastest;
}

/// Whether a cluster's plan is within the limits.
bool is_allowed(const Cluster& cluster, const Limits& limits, std::int64_t samples,
                Duration fastest) {
  if (!cluster.fastest || (limits.devices && cluster.devices > *limits.devices)) return false;
  const bool is_fast = !limits.rate || Wide{samples} * kBillion * kBillion >=
                                           Wide{*limits.rate} * cluster.fastest->ns;
  const bool is_near =
      !limits.slack || Wide{100} * cluster.fastest->ns <= Wide{100 + *limits.slack} * fastest.ns;
  const bool is_cheap = !limits.budget || cluster.cost() <= Wide{*limits.budget} * 3'600'000'000;
  return is_fast && is_near && is_cheap;
}

/// Draws limits, most of them at what some cluster takes or just beside it.
Limits some_limits(Dice& dice, const Clusters& clusters, std::int64_t samples) {
  std::vector<Cluster> feasible;
  for (const auto& [name, cluster] : clusters) {
    if (cluster.fastest && cluster.fastest->ns > 0) feasible.push_back(cluster);
  }
  Limits limits{.by_time = dice.chance(50)};
  if (dice.chance(30)) limits.devices = dice.roll(1, 4);
  if (feasible.empty()) return limits;
  const auto some = [&] {
    return feasible[static_cast<std::size_t>(dice.roll(0, std::ssize(feasible) - 1))];
  };
  if (dice.chance(50)) {
    const Wide price = some().cost() / 3'600'000'000 + dice.roll(0, 1);
    limits.budget = std::max<std::int64_t>(1, static_cast<std::int64_t>(price));
  }
  if (dice.chance(50)) {
    const Wide rate = Wide{samples} * kBillion * kBillion / some().fastest->ns + dice.roll(0, 1);
    if (rate < Wide{kBillion} * kBillion) limits.rate = static_cast<std::int64_t>(rate);
  }
  return limits;
}

/// Whether plan `a` beats plan `b` in time or price, and is no worse in the other.
bool beats(const Cluster& a, const Cluster& b) {
  const bool is_no_worse = *a.fastest <= *b.fastest && a.cost() <= b.cost();
  return is_no_worse && (*a.fastest < *b.fastest || a.cost() < b.cost());
}

bool is_equal(const Cluster& a, const Cluster& b) {
  return a.fastest == b.fastest && a.cost() == b.cost();
}

/// The table must have these clusters with their fastest plans, and the front of them: of equal
/// plans one.
void require_rows(const std::vector<Row>& rows, const Clusters& tried) {
  REQUIRE(rows.size() == tried.size());
  for (const Row& row : rows) {
    CAPTURE(row.at("servers"));
    const auto found = tried.find(row.at("servers"));
    REQUIRE(found != tried.end());
    const Cluster& cluster = found->second;
    REQUIRE(row.at("devices") == std::to_string(cluster.devices));
    const std::string time = cluster.fastest ? std::to_string(cluster.fastest->ns) : "";
    REQUIRE(row.at("iteration_ns") == time);
    REQUIRE(row.at("lower_bound_ns") == time);
    if (!cluster.fastest) {
      REQUIRE(row.at("front") == "no");
      continue;
    }
    const double cost = static_cast<double>(cluster.cost()) / 3.6e18;
    const auto price = row.find("price");
    const std::string& told = price != row.end() ? price->second : row.at("device_hours");
    REQUIRE(std::stod(told) == Approx(cost).epsilon(1e-9));
    bool is_beaten = false;
    int others_on_front = 0;
    for (const Row& other : rows) {
      const Cluster& that = tried.at(other.at("servers"));
      if (&that == &cluster || !that.fastest) continue;
      is_beaten = is_beaten || beats(that, cluster);
      if (is_equal(that, cluster) && other.at("front") == "yes") ++others_on_front;
    }
    const bool is_on_front = row.at("front") == "yes";
    REQUIRE(((is_on_front ? 1 : 0) + others_on_front) == (is_beaten ? 0 : 1));
  }
}

/// One plan must be chosen than which none within the limits has a lower objective, or an equal
/// one and is better otherwise; none where no plan is within them. Returns whether one is.
bool require_choice(const std::vector<Row>& rows, const Clusters& tried, const Limits& limits,
                    std::int64_t samples) {
  std::vector<Cluster> chosen;
  for (const Row& row : rows) {
    if (row.at("chosen") == "yes") chosen.push_back(tried.at(row.at("servers")));
  }
  const auto order = [&](const Cluster& cluster) {
    const Wide time = cluster.fastest->ns;
    return limits.by_time ? std::pair(time, cluster.cost()) : std::pair(cluster.cost(), time);
  };
  std::optional<std::pair<Wide, Wide>> best;
  const Duration fastest = fastest_of(tried);
  for (const auto& [name, cluster] : tried) {
    if (!is_allowed(cluster, limits, samples, fastest)) continue;
    best = std::min(best.value_or(order(cluster)), order(cluster));
  }
  REQUIRE(chosen.size() == (best ? 1U : 0U));
  if (!best) return false;
  REQUIRE(is_allowed(chosen.front(), limits, samples, fastest));
  REQUIRE((order(chosen.front()) == *best));
  return true;
}

/// Asks for the plans on all clusters within limits, and checks the table and the choice.
void require_table(Dice& dice, const test::TemporaryFolder& folder, const Question& question,
                   const FastestOn& fastest_on, bool has_slack, std::vector<std::string> more,
                   std::map<std::string, int>& seen) {
  const TopologyDescription& topology = question.made.problem.topology;
  const Clusters clusters = all_clusters(topology, fastest_on);
  const std::int64_t samples = question.made.problem.global_batch;
  Limits limits = some_limits(dice, clusters, samples);
  const bool may_be_slack = has_slack && (!limits.by_time || limits.budget);
  if (may_be_slack && dice.chance(50)) limits.slack = dice.roll(0, 60);
  Clusters tried = clusters;
  std::erase_if(tried, [&](const auto& entry) {
    return limits.devices && entry.second.devices > *limits.devices;
  });
  std::vector<std::string> words{
      "pareto",       "--csv",
      "--model",      folder.write("model.json", io::write_profile(question.made.problem.profile)),
      "--topo",       folder.write("topo.json", io::write_topology(topology)),
      "--contention", question.made.contention == Contention::Off ? "off" : "on",
      "--threads",    "1"};
  for (const std::string& word : words_of(limits)) words.push_back(word);
  for (std::string& word : more) words.push_back(std::move(word));
  std::ostringstream out;
  std::ostringstream err;
  const int code = app::run(words, out, err);
  std::string command;
  for (const std::string& word : words) command += word + " ";
  INFO(command << "\n" << out.str() << err.str() << small::text_of(question));
  if (code == 3) {
    // No cluster allows what the pins demand.
    REQUIRE(fastest_of(tried).is_infinite());
    return;
  }
  REQUIRE((code == 0 || code == 4));
  const std::vector<Row> rows = rows_of(out.str());
  require_rows(rows, tried);
  const bool is_chosen = require_choice(rows, tried, limits, samples);
  REQUIRE(code == (is_chosen ? 0 : 4));
  ++seen[is_chosen ? "chosen" : "none within the limits"];
  if (rows.size() > 1) ++seen["several clusters"];
  const auto on_front = std::count_if(rows.begin(), rows.end(),
                                      [](const Row& row) { return row.at("front") == "yes"; });
  if (on_front > 1) ++seen["several on the front"];
  if (limits.budget && is_chosen) ++seen["within a budget"];
  if (limits.rate && is_chosen) ++seen["within a throughput"];
  if (limits.slack && is_chosen) ++seen["within a slack"];
}

/// The question about another cluster.
Question on_cluster(const Question& question, const TopologyDescription& description) {
  small::PlanningProblem made = question.made;
  made.problem.topology = description;
  Question of_cluster(std::move(made));
  of_cluster.options = question.options;
  return of_cluster;
}

}  // namespace

TEST_CASE("the clusters, the front and the choice of pareto are those of every plan on each") {
  ProblemMaker maker(2401, {.layers = 3, .devices = 4, .global_batch = 6});
  Dice dice(2402);
  const test::TemporaryFolder folder;
  std::map<std::string, int> seen;
  for (int round = 0; round < small::scaled(200); ++round) {
    CAPTURE(round);
    small::PlanningProblem made = maker.next();
    price(dice, made.problem.topology);
    fill_in(made.problem.profile);
    Question question(std::move(made));
    question.options.shares = Shares::Any;
    const auto fastest_on = [&](const TopologyDescription& description) {
      const OracleAnswer answer = on_cluster(question, description).fastest();
      return answer.plan ? std::optional(answer.iteration) : std::nullopt;
    };
    require_table(dice, folder, question, fastest_on, false, {}, seen);
  }
  for (const auto& [what, count] : seen) {
    CAPTURE(what, count);
    CHECK(count >= small::scaled(20));
  }
  CHECK(seen.size() == 6);
}

namespace {

/// What a command line asks for of the forms of parallelism.
std::vector<std::string> words_of_forms(const planner::PlannerOptions& options) {
  std::vector<std::string> words{"--shard",
                                 std::string(to_string(options.sharding)),
                                 "--recompute-layers",
                                 std::string(to_string(options.recomputed_layers)),
                                 "--shares",
                                 std::string(to_string(options.shares))};
  const auto add = [&](const char* name, const std::string& value) {
    words.emplace_back(name);
    words.push_back(value);
  };
  if (options.pins.tensor) add("--pin", "tensor=" + std::to_string(*options.pins.tensor));
  if (options.pins.shards) add("--pin", "shards=" + std::to_string(*options.pins.shards));
  if (options.max_tensor) add("--max-tensor", std::to_string(*options.max_tensor));
  if (options.pins.stages) add("--pin", "stages=" + std::to_string(*options.pins.stages));
  return words;
}

}  // namespace

TEST_CASE("where several forms are open, the table of pareto is that of every plan of each") {
  const std::uint64_t seed = small::seeded(2411);
  ProblemMaker maker(seed, {.layers = 3, .devices = 4, .global_batch = 4, .own_times = false});
  Dice dice(seed + 1);
  const test::TemporaryFolder folder;
  std::map<std::string, int> seen;
  for (int round = 0; round < small::scaled(60); ++round) {
    CAPTURE(round);
    small::ParallelProblem problem(maker, dice);
    problem.pin_some_shards(round, 4);
    price(dice, problem.question.made.problem.topology);
    fill_in(problem.question.made.problem.profile);
    problem.question.made.problem.profile.boundaries = Boundaries::Whole;
    // Commands let collectives between servers share links, which the oracle does not.
    if (problem.question.topology.server_count() > 1) {
      problem.question.made.contention = problem.question.options.contention = Contention::Off;
    }
    if (small::fastest_of_each(problem).empty()) continue;
    int forms = 0;
    const auto fastest_on = [&](const TopologyDescription& description) {
      small::ParallelProblem of_cluster = problem;
      of_cluster.question = on_cluster(problem.question, description);
      std::optional<Duration> fastest;
      for (const auto& [form, iteration] : small::fastest_of_each(of_cluster)) {
        if (iteration.is_infinite()) continue;
        ++forms;
        fastest = std::min(fastest.value_or(iteration), iteration);
      }
      return fastest;
    };
    require_table(dice, folder, problem.question, fastest_on, true,
                  words_of_forms(problem.question.options), seen);
    if (forms > 10) ++seen["many forms"];
  }
  for (const char* what : {"chosen", "none within the limits", "several clusters", "within a slack",
                           "within a budget", "within a throughput", "many forms"}) {
    CAPTURE(what, seen[what]);
    CHECK(seen[what] >= small::scaled(60) / 30);
  }
}
