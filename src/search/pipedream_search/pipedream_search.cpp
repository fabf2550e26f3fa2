#include "dapple/search/pipedream_search/pipedream_search.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "dapple/core/error.h"

namespace dapple::search {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNanosecondsInSecond = 1e9;

std::size_t position(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

/// The containment of states, and the published formulas over ranges of states. A range is given by
/// its first and its last state.
class StateFigures {
 public:
  explicit StateFigures(const std::vector<PipedreamState>& states);

  std::int32_t count() const { return count_; }

  /// Whether every layer in front of the range belongs to its last state.
  bool is_range(std::int32_t first, std::int32_t last) const {
    return first <= last && (first == 0 || contains(last, first - 1));
  }
  double compute_seconds(std::int32_t first, std::int32_t last) const {
    const Duration before = first == 0 ? Duration{} : states_[position(first - 1)].compute;
    return static_cast<double>((states_[position(last)].compute - before).ns) /
           kNanosecondsInSecond;
  }
  double parameters(std::int32_t first, std::int32_t last) const {
    const double before = first == 0 ? 0 : parameters_[position(first - 1)];
    return parameters_[position(last)] - before;
  }
  /// The output of a state, in bytes; zero for the last state, which nothing leaves.
  double sent_bytes(std::int32_t state) const {
    return state + 1 == count_ ? 0 : output_[position(state)];
  }

 private:
  bool contains(std::int32_t larger, std::int32_t smaller) const {
    return contains_[position(larger) * position(count_) + position(smaller)];
  }

  const std::vector<PipedreamState>& states_;
  std::int32_t count_;
  // One row per state: the states that it contains.
  std::vector<bool> contains_;
  std::vector<double> parameters_;
  std::vector<double> output_;
};

StateFigures::StateFigures(const std::vector<PipedreamState>& states)
    : states_(states),
      count_(static_cast<std::int32_t>(states.size())),
      contains_(states.size() * states.size()) {
  for (std::size_t larger = 0; larger < states.size(); ++larger) {
    const std::vector<std::int32_t>& all = states[larger].layers;
    for (std::size_t smaller = 0; smaller < larger; ++smaller) {
      const std::vector<std::int32_t>& some = states[smaller].layers;
      contains_[larger * states.size() + smaller] =
          std::includes(all.begin(), all.end(), some.begin(), some.end());
    }
    parameters_.push_back(static_cast<double>(states[larger].parameters.count));
    output_.push_back(static_cast<double>(states[larger].output.count));
  }
}

/// How a range of states uses a number of units: either as one stage on all of them (`replicas` is
/// then that number), or cut behind state `cut`, with `replicas` units for the states behind the
/// cut.
struct Choice {
  double seconds = kInfinite;
  // -1: one stage.
  std::int32_t cut = -1;
  std::int32_t replicas = 0;
};

/// Seconds per minibatch of ranges, by first and last state; kInfinite if the range does not exist.
using RangeTimes = std::vector<double>;

/// The search over one level: from the times of ranges on one of its units to those on all of them.
class LevelSearch {
 public:
  LevelSearch(const StateFigures& figures, const PipedreamLevel& level, double devices_in_unit)
      : figures_(figures),
        level_(level),
        bandwidth_(static_cast<double>(level.bandwidth.bytes_per_second)),
        devices_in_unit_(devices_in_unit),
        states_(position(figures.count())) {}

  /// Computes the times from those on one unit, `inside`. With `whole_model_only`, only ranges from
  /// the first state on are searched. Returns false if `should_stop` returned true; no other
  /// function may then be called.
  bool run(RangeTimes inside, bool whole_model_only, const std::function<bool()>& should_stop);

  /// Returns the times on all units of the level.
  const RangeTimes& times() const { return best_.back(); }

  /// Returns the choice that attains the time of a range; the header says how ties are broken.
  /// Requires: the range was searched.
  Choice choice(std::int32_t first, std::int32_t last, std::int32_t units) const;

 private:
  std::size_t at(std::int32_t first, std::int32_t last) const {
    return position(first) * states_ + position(last);
  }
  double uncut(std::int32_t first, std::int32_t last, std::int32_t units) const;
  double synchronisation(std::int32_t first, std::int32_t last, std::int32_t units) const;
  Choice best_cut(std::int32_t first, std::int32_t last, std::int32_t units,
                  const Choice& so_far) const;

  const StateFigures& figures_;
  const PipedreamLevel& level_;
  double bandwidth_;
  double devices_in_unit_;
  std::size_t states_;
  RangeTimes inside_;
  // The same times by last and first state.
  RangeTimes inside_by_last_;
  // Indexed by number of units, less one.
  std::vector<RangeTimes> best_;
};

/// The seconds of synchronisation that are added to the computation of a stage: each replica sends
/// and receives its share of the gradients and of the weights.
double LevelSearch::synchronisation(std::int32_t first, std::int32_t last,
                                    std::int32_t units) const {
  return 4.0 * (units - 1) * figures_.parameters(first, last) / (bandwidth_ * units);
}

double LevelSearch::uncut(std::int32_t first, std::int32_t last, std::int32_t units) const {
  return (inside_[at(first, last)] + synchronisation(first, last, units) / devices_in_unit_) /
         units;
}

Choice LevelSearch::best_cut(std::int32_t first, std::int32_t last, std::int32_t units,
                             const Choice& so_far) const {
  Choice best = so_far;
  const double* behind = &inside_by_last_[position(last) * states_];
  const double sent_on = 2.0 * figures_.sent_bytes(last);
  for (std::int32_t cut = first; cut < last; ++cut) {
    if (behind[cut + 1] == kInfinite) continue;
    const double handed_over = std::max(2.0 * figures_.sent_bytes(cut), sent_on);
    for (std::int32_t replicas = 1; replicas < units; ++replicas) {
      const double before = best_[position(units - replicas - 1)][at(first, cut)];
      // Most cuts are far too slow. A product rules them out faster than the quotients below; the
      // margin is larger than the rounding errors.
      const double limit = best.seconds * (1 + 1e-12) * replicas;
      if (before >= best.seconds || behind[cut + 1] > limit || handed_over > limit * bandwidth_) {
        continue;
      }
      const double stage = (behind[cut + 1] + synchronisation(cut + 1, last, replicas)) / replicas;
      const double transfer = handed_over / (bandwidth_ * replicas);
      const double seconds = std::max({before, transfer, stage});
      if (seconds < best.seconds) best = {seconds, cut, replicas};
    }
  }
  return best;
}

Choice LevelSearch::choice(std::int32_t first, std::int32_t last, std::int32_t units) const {
  return best_cut(first, last, units, {uncut(first, last, units), -1, units});
}

bool LevelSearch::run(RangeTimes inside, bool whole_model_only,
                      const std::function<bool()>& should_stop) {
  inside_ = std::move(inside);
  inside_by_last_.assign(inside_.size(), kInfinite);
  const std::int32_t count = figures_.count();
  for (std::int32_t first = 0; first < count; ++first) {
    for (std::int32_t last = first; last < count; ++last) {
      inside_by_last_[position(last) * states_ + position(first)] = inside_[at(first, last)];
    }
  }
  const std::int32_t firsts = whole_model_only ? 1 : count;
  for (std::int32_t units = 1; units <= level_.units; ++units) {
    best_.emplace_back(position(firsts) * states_, kInfinite);
    for (std::int32_t first = 0; first < firsts; ++first) {
      if (should_stop && should_stop()) return false;
      for (std::int32_t last = first; last < count; ++last) {
        if (inside_[at(first, last)] == kInfinite) continue;
        best_.back()[at(first, last)] = choice(first, last, units).seconds;
      }
    }
  }
  return true;
}

/// Returns the numbers of `units` units of a level, from the `first` one on, in each of `groups`,
/// which are units of the level outside with `group_size` units each. Numbers are as in
/// PipedreamStage.
std::vector<std::int32_t> units_of(const std::vector<std::int32_t>& groups, std::int32_t group_size,
                                   std::int32_t first, std::int32_t units) {
  std::vector<std::int32_t> result;
  for (const std::int32_t group : groups) {
    for (std::int32_t unit = first; unit < first + units; ++unit) {
      result.push_back(group * group_size + unit);
    }
  }
  return result;
}

/// Returns the stages into which a level cuts one stage of the level outside. `stage.devices` are
/// the numbers of that stage's units of the level outside.
std::vector<PipedreamStage> cut_stage(const LevelSearch& search, std::int32_t level_units,
                                      const PipedreamStage& stage) {
  std::vector<PipedreamStage> parts;
  std::int32_t end = stage.end;
  std::int32_t units = level_units;
  while (true) {
    const Choice choice = search.choice(stage.begin, end - 1, units);
    const std::int32_t begin = choice.cut < 0 ? stage.begin : choice.cut + 1;
    units -= choice.replicas;
    parts.push_back({begin, end, units_of(stage.devices, level_units, units, choice.replicas)});
    if (choice.cut < 0) break;
    end = begin;
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

/// The cost of a cut of the profile's order in place of a cut of the partition: the compute time
/// and the layers on the wrong side.
struct Displacement {
  Duration compute;
  std::int64_t layers = 0;

  friend auto operator<=>(const Displacement&, const Displacement&) = default;
  friend Displacement operator+(const Displacement& a, const Displacement& b) {
    return {a.compute + b.compute, a.layers + b.layers};
  }
};

/// Returns the displacement of each cut position from 0 to the number of layers, if the layers of
/// `state` should be in front of the cut and all others behind it.
std::vector<Displacement> displacements(const PipedreamState& state,
                                        const std::vector<Duration>& layer_compute) {
  std::vector<bool> before(layer_compute.size());
  Displacement wrong;
  for (const std::int32_t layer : state.layers) {
    before[position(layer)] = true;
    wrong = wrong + Displacement{layer_compute[position(layer)], 1};
  }
  std::vector<Displacement> result{wrong};
  for (std::size_t layer = 0; layer < layer_compute.size(); ++layer) {
    const Duration compute = layer_compute[layer];
    wrong = before[layer] ? Displacement{wrong.compute - compute, wrong.layers - 1}
                          : Displacement{wrong.compute + compute, wrong.layers + 1};
    result.push_back(wrong);
  }
  return result;
}

/// Returns the strictly rising cut positions, one per row of `costs`, with the least sum of costs.
/// No cut is 0, and at least one layer is left behind the last one. Ties keep the earlier cut, and
/// are broken for the last cut first.
std::vector<std::int32_t> cheapest_cuts(const std::vector<std::vector<Displacement>>& costs) {
  struct Entry {
    Displacement cost;
    std::int32_t cut = 0;
  };
  // best[row][end]: the best cuts of the rows up to `row`, the last of them at `end` or earlier.
  std::vector<std::vector<Entry>> best(costs.size());
  for (std::size_t row = 0; row < costs.size(); ++row) {
    best[row].resize(costs[row].size());
    for (std::size_t cut = row + 1; cut + 1 < costs[row].size(); ++cut) {
      const Displacement cost =
          row == 0 ? costs[row][cut] : costs[row][cut] + best[row - 1][cut - 1].cost;
      const bool better = cut == row + 1 || cost < best[row][cut - 1].cost;
      best[row][cut] = better ? Entry{cost, static_cast<std::int32_t>(cut)} : best[row][cut - 1];
    }
  }
  std::vector<std::int32_t> cuts(costs.size());
  for (std::size_t row = costs.size(), end = costs.empty() ? 0 : costs[0].size() - 2; row > 0;
       --row) {
    const std::int32_t cut = best[row - 1][end].cut;
    cuts[row - 1] = cut;
    end = position(cut) - 1;
  }
  return cuts;
}

/// The bandwidth of the narrower of the routes between two devices in both directions.
Bandwidth narrowest(const Topology& topology, DeviceIndex a, DeviceIndex b) {
  return std::min(topology.route(a, b).bandwidth, topology.route(b, a).bandwidth);
}

}  // namespace

std::vector<PipedreamLevel> pipedream_levels(const Topology& topology) {
  std::vector<PipedreamLevel> levels;
  constexpr Bandwidth kWidest{std::numeric_limits<std::int64_t>::max()};
  PipedreamLevel devices{.units = topology.server(ServerIndex{0}).device_count,
                         .bandwidth = kWidest};
  PipedreamLevel servers{.units = topology.server_count(), .bandwidth = kWidest};
  bool alike = true;
  for (ServerIndex server{0}; server.value < topology.server_count(); server = server.next()) {
    alike = alike && topology.server(server).device_count == devices.units;
    const std::vector<DeviceIndex>& order = topology.fill_order(server);
    for (std::size_t next = 1; next < order.size(); ++next) {
      devices.bandwidth =
          std::min(devices.bandwidth, narrowest(topology, order[next - 1], order[next]));
    }
    if (server.value == 0) continue;
    servers.bandwidth = std::min(
        servers.bandwidth, narrowest(topology, topology.server(server.previous()).first_device,
                                     topology.server(server).first_device));
  }
  if (!alike) {
    return {{topology.device_count(), std::min(devices.bandwidth, servers.bandwidth)}};
  }
  if (devices.units > 1) levels.push_back(devices);
  if (servers.units > 1) levels.push_back(servers);
  return levels;
}

PipedreamPartition partition_pipedream(const std::vector<PipedreamState>& states,
                                       const std::vector<PipedreamLevel>& levels,
                                       const std::function<bool()>& should_stop) {
  check(!states.empty(), "a partition of no states");
  const StateFigures figures(states);
  const std::int32_t count = figures.count();
  RangeTimes times(states.size() * states.size(), kInfinite);
  for (std::int32_t first = 0; first < count; ++first) {
    for (std::int32_t last = first; last < count; ++last) {
      if (!figures.is_range(first, last)) continue;
      times[position(first) * states.size() + position(last)] =
          figures.compute_seconds(first, last);
    }
  }
  std::vector<LevelSearch> searches;
  double devices = 1;
  for (const PipedreamLevel& level : levels) {
    check(level.units >= 1 && level.bandwidth.bytes_per_second > 0, "a level without units");
    searches.emplace_back(figures, level, devices);
    const bool outermost = &level == &levels.back();
    if (!searches.back().run(std::move(times), outermost, should_stop)) return {};
    times = searches.back().times();
    devices *= level.units;
  }
  PipedreamPartition result{.seconds = times[states.size() - 1], .stages = {{0, count, {0}}}};
  for (std::size_t level = levels.size(); level > 0; --level) {
    std::vector<PipedreamStage> finer;
    for (const PipedreamStage& stage : result.stages) {
      std::vector<PipedreamStage> parts =
          cut_stage(searches[level - 1], levels[level - 1].units, stage);
      std::move(parts.begin(), parts.end(), std::back_inserter(finer));
    }
    result.stages = std::move(finer);
  }
  return result;
}

std::vector<std::int32_t> layers_of(const PipedreamStage& stage,
                                    const std::vector<PipedreamState>& states) {
  const std::vector<std::int32_t>& all = states[position(stage.end - 1)].layers;
  if (stage.begin == 0) return all;
  const std::vector<std::int32_t>& before = states[position(stage.begin - 1)].layers;
  std::vector<std::int32_t> result;
  std::set_difference(all.begin(), all.end(), before.begin(), before.end(),
                      std::back_inserter(result));
  return result;
}

PipedreamRanges nearest_ranges(const PipedreamPartition& partition,
                               const std::vector<PipedreamState>& states,
                               const std::vector<Duration>& layer_compute) {
  std::vector<std::vector<Displacement>> costs;
  for (std::size_t stage = 0; stage + 1 < partition.stages.size(); ++stage) {
    const PipedreamState& state = states[position(partition.stages[stage].end - 1)];
    costs.push_back(displacements(state, layer_compute));
  }
  std::vector<std::int32_t> cuts = cheapest_cuts(costs);
  cuts.push_back(static_cast<std::int32_t>(layer_compute.size()));
  PipedreamRanges result;
  std::int32_t begin = 0;
  for (std::size_t stage = 0; stage < cuts.size(); ++stage) {
    result.ranges.push_back({begin, cuts[stage]});
    std::vector<std::int32_t> here(position(cuts[stage] - begin));
    std::iota(here.begin(), here.end(), begin);
    const std::vector<std::int32_t> wanted = layers_of(partition.stages[stage], states);
    std::set_difference(here.begin(), here.end(), wanted.begin(), wanted.end(),
                        std::back_inserter(result.displaced));
    begin = cuts[stage];
  }
  return result;
}

}  // namespace dapple::search
