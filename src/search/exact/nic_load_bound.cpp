#include "dapple/search/exact/nic_load_bound.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/cost/all_reduce.h"
#include "dapple/cost/buckets.h"
#include "dapple/cost/cost_model.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/indices.h"
#include "dapple/search/placement/placement_space.h"
#include "search/bounds/prefix_bound.h"
#include "search/bounds/stage_column.h"
#include "search/bounds/transfer_shape.h"
#include "search/exact/stage_column_cache.h"

namespace dapple::search {
namespace {

/// The most spreads of stages over servers that are told apart.
constexpr std::size_t kMostSpreads = 500;

/// Times are rounded down to the power of two in one of so many parts of the threshold, so that
/// partial plans that hardly differ dominate each other. With powers of two no lower threshold
/// gives a lower bound.
constexpr std::int64_t kGrains = 4096;

/// So many comparisons with partial plans that are kept take about as long as a step.
constexpr std::int64_t kComparisonsPerStep = 8;

/// Returns whether all-reduces over several servers were measured; they may pass NICs less often.
bool has_measured_reductions(const Topology& topology) {
  const std::vector<BusBandwidthTable>& tables = topology.group_of(ServerIndex{0}).bus_bandwidth;
  return std::any_of(tables.begin(), tables.end(),
                     [](const BusBandwidthTable& table) { return table.servers > 1; });
}

/// Whether the bound holds for the problem and tells more than others: links are shared, replicas
/// start together and split every micro-batch, transfers overlap, and there are several servers of
/// several devices, all interchangeable and in no racks. O(devices).
bool applies(const CostModel& costs, const SearchProblem& problem) {
  if (!problem.links_are_shared || problem.any_order || problem.may_deal ||
      problem.replicas != Replicas::Together || problem.transfers != Transfers::Overlapped ||
      costs.form_count() > 1) {
    return false;
  }
  const Topology& topology = costs.topology();
  const TopologyDescription& description = topology.description();
  if (description.servers.size() > 1 || !description.racks.empty()) return false;
  const ServerGroup& servers = description.servers.front();
  return servers.count > 1 && servers.devices > 1 && !servers.nics.empty() &&
         std::ssize(device_pools(topology)) == servers.count;
}

/// Bounds all plans of one problem. Partial plans are built from the last stage to the first, and
/// are told apart by the servers of their first stage and what these have sent; servers without a
/// device of it are forgotten.
class NicLoadBound {
 public:
  /// Goes through all partial plans that may belong to one below the threshold, without those that
  /// another one dominates. Requires: applies().
  NicLoadBound(const CostModel& costs, const SearchProblem& problem, Duration threshold,
               const Allowance::Limits& limits);

  /// Lower bound on all plans, at most the threshold (N4). It is zero if the allowance ended first,
  /// or stages may be spread over servers in too many ways.
  Duration least() const { return least_; }

 private:
  /// The numbers of devices that a stage has on each of its servers, descending.
  using Spread = std::vector<std::int32_t>;
  using SpreadIndex = Index<struct SpreadTag>;

  /// A server that has devices of the first stage of a partial plan.
  struct Server {
    // Its devices of the first stage, and those of any stage.
    std::int32_t devices = 0;
    std::int32_t used = 0;
    // The samples of each micro-batch that its devices of the first stage process.
    std::int64_t samples = 0;
    // What its NICs send over all boundaries so far, and receive as well, and what they send in
    // all-reduces.
    Bytes transfers;
    Bytes reductions;
    // The times from the start of the first forward on the first stage until the first of these
    // transfers is sent, and received; zero if there is none.
    Duration head;
    Duration received_head;
    // The times from when the server has received the last gradient until the end of the last
    // backward on the first stage, and until the end of the last optimizer step.
    Duration rest;
    Duration rest_to_end;

    friend auto operator<=>(const Server&, const Server&) = default;
  };
  struct PartialPlan {
    std::vector<Server> servers;
    // Devices of all stages.
    std::int32_t used = 0;
    BoundLabel label;
  };
  /// A server beside the boundary between a stage and the partial plan behind it.
  struct SideServer {
    Server server;
    // Whether it has devices of the stage in front, and whether it sends activations, and so
    // receives gradients, or the other way round.
    bool is_in_front = false;
    bool sends_activations = false;
    bool sends_gradients = false;
  };
  /// A stage that ends at the cut at hand.
  struct Stage {
    CutIndex begin;
    StageBound bound;
    // What each of its servers sends to reduce its gradients.
    Bytes reduced;
  };
  /// The devices of a stage in front of a partial plan, and the boundary between both.
  struct Extension {
    SpreadIndex spread;
    std::vector<SideServer> servers;
    std::int32_t used = 0;
    BoundaryBound boundary;
  };

  void list_spreads(Spread& spread, std::int32_t most, std::int32_t left);
  void sum_gradients();
  bool bound_all();
  void make_stages();
  void add_stages(SpreadIndex spread, const StageColumn& column);
  void extend(const PartialPlan& behind);
  void choose_devices(const PartialPlan& behind, Spread& chosen);
  SpreadIndex spread_of(const Spread& chosen) const;
  void choose_fresh_servers(const PartialPlan& behind, Spread& chosen, std::int32_t most);
  void share_samples(const PartialPlan& behind, const Spread& chosen, SpreadIndex spread,
                     std::int64_t longer, std::vector<std::int64_t>& samples);
  void prepend_devices(const PartialPlan& behind, const Spread& chosen, SpreadIndex spread,
                       const std::vector<std::int64_t>& samples);
  void cross(SideServer& side, std::int64_t samples, BoundaryBound& boundary) const;
  static void pass_stage(const StageBound& stage, const BoundaryBound& boundary,
                         const SideServer& side, Server& server);
  void prepend_stage(const PartialPlan& behind, const Extension& extension, const Stage& stage);
  bool is_room_left(CutIndex cut, std::int32_t devices) const;
  Bytes reduced_by_each(CutIndex begin, std::int64_t servers) const;
  Duration time_to_send(Bytes size) const;
  void keep(PartialPlan plan, SpreadIndex spread, CutIndex begin);
  static Bytes size_of(const PartialPlan& plan);
  static bool dominates(const PartialPlan& a, const PartialPlan& b);

  const CostModel& costs_;
  const SearchProblem& problem_;
  Duration threshold_;
  Allowance allowance_;
  PrefixBound work_;
  StageColumnCache cache_;
  std::int32_t device_count_;
  std::int32_t server_count_;
  std::int32_t devices_per_server_;
  // All NICs of a server together.
  Bandwidth nics_;
  // Times of partial plans are rounded down to multiples of this (N5).
  Duration grain_;
  IndexedVector<SpreadIndex, Spread> spreads_;
  std::map<Spread, SpreadIndex> spread_indices_;
  // A stage with this spread on the first servers: its devices and their all-reduces.
  IndexedVector<SpreadIndex, std::vector<DeviceIndex>> devices_;
  IndexedVector<SpreadIndex, AllReduceModel> reductions_;
  // The gradients of all layers in front of a cut that their stages reduce, whatever the stages.
  IndexedVector<CutIndex, Bytes> gradients_;
  // The cut behind the stages that are put in front, its volume, and these stages by their spread.
  CutIndex cut_;
  BoundaryVolume volume_;
  IndexedVector<SpreadIndex, std::vector<Stage>> stages_;
  // Partial plans by the cut in front of them, then by the spread of their first stage; none of a
  // list dominates another one.
  IndexedVector<CutIndex, IndexedVector<SpreadIndex, std::vector<PartialPlan>>> plans_;
  Duration least_;
};

NicLoadBound::NicLoadBound(const CostModel& costs, const SearchProblem& problem, Duration threshold,
                           const Allowance::Limits& limits)
    : costs_(costs),
      problem_(problem),
      threshold_(threshold),
      allowance_(limits),
      work_(costs, problem.micro_batch_size, problem.global_batch_size),
      cache_(costs, problem, threshold),
      device_count_(costs.topology().device_count()),
      server_count_(costs.topology().server_count()),
      devices_per_server_(costs.topology().server(ServerIndex{0}).device_count),
      nics_(costs.topology().nics_together(ServerIndex{0})),
      grain_{static_cast<std::int64_t>(std::bit_floor(
          static_cast<std::uint64_t>(std::max<std::int64_t>(1, threshold.ns / kGrains))))},
      least_(threshold) {
  Spread spread;
  list_spreads(
      spread, devices_per_server_,
      static_cast<std::int32_t>(std::min<std::int64_t>(problem.micro_batch_size, device_count_)));
  if (spreads_.size() > kMostSpreads || !bound_all()) least_ = {};
  plans_ = {};
}

/// Lists the spreads that continue this one: over further servers of `most` devices or fewer, and
/// `left` in all.
void NicLoadBound::list_spreads(Spread& spread, std::int32_t most, std::int32_t left) {
  if (spreads_.size() > kMostSpreads) return;
  if (!spread.empty()) {
    std::vector<DeviceIndex> devices;
    for (std::size_t s = 0; s < spread.size(); ++s) {
      for (std::int32_t i = 0; i < spread[s]; ++i) {
        devices.push_back({static_cast<std::int32_t>(s) * devices_per_server_ + i});
      }
    }
    spread_indices_[spread] = spreads_.push_back(spread);
    reductions_.push_back(AllReduceModel(devices, costs_.topology()));
    devices_.push_back(std::move(devices));
  }
  if (std::ssize(spread) == server_count_) return;
  for (std::int32_t count = std::min(most, left); count > 0; --count) {
    spread.push_back(count);
    list_spreads(spread, count, left - count);
    spread.pop_back();
  }
}

void NicLoadBound::sum_gradients() {
  gradients_.push_back({});
  for (std::int32_t l = 0; l < costs_.layer_count(); ++l) {
    gradients_.push_back(gradients_.back() +
                         bucketed_gradient(costs_.profile(), l, {.begin = l, .end = l + 1}));
  }
}

/// Goes through the cuts from the last to the first. Returns whether the allowance sufficed.
bool NicLoadBound::bound_all() {
  sum_gradients();
  const CutIndex last{costs_.layer_count()};
  for (CutIndex cut; cut <= last; cut = cut.next()) {
    plans_.push_back(IndexedVector<SpreadIndex, std::vector<PartialPlan>>(spreads_.size()));
  }
  for (cut_ = last; cut_ > CutIndex{}; cut_ = cut_.previous()) {
    make_stages();
    if (cut_ == last) {
      extend({});
      continue;
    }
    volume_ = boundary_volume(costs_, cut_, problem_.micro_batch_size);
    for (std::vector<PartialPlan>& plans : plans_[cut_]) {
      for (const PartialPlan& plan : plans) extend(plan);
      if (!plans.empty()) allowance_.keep(-std::ssize(plans) * size_of(plans.front()));
      plans = {};
      if (allowance_.is_over()) return false;
    }
  }
  return !allowance_.is_over();
}

void NicLoadBound::make_stages() {
  stages_ = IndexedVector<SpreadIndex, std::vector<Stage>>(spreads_.size());
  for (const SpreadIndex spread : spreads_.indices()) {
    const std::vector<StageDevices> devices{
        stage_devices(costs_.topology(), devices_[spread], kEqualShares,
                      FastestReduction({&reductions_[spread]}), problem_.micro_batch_size)};
    const StageColumn column = cache_.least(cut_, devices, cut_.previous(), {});
    add_stages(spread, column);
    if (!is_worth_recomputing(column, problem_.pins)) continue;
    add_stages(spread,
               cache_.least(cut_, devices, cut_.previous(), {.form = {}, .recompute = true}));
  }
}

/// Adds the stages of a column that may belong to a plan below the threshold.
void NicLoadBound::add_stages(SpreadIndex spread, const StageColumn& column) {
  const auto left = device_count_ - static_cast<std::int32_t>(devices_[spread].size());
  for (CutIndex begin = cut_.previous(); begin >= column.first; begin = begin.previous()) {
    const Stage stage{.begin = begin,
                      .bound = column.at(begin),
                      .reduced = reduced_by_each(begin, std::ssize(spreads_[spread]))};
    const Duration least =
        stage.bound.work(problem_.num_micro_batches()) + stage.bound.after_backward;
    const bool is_possible = stage.bound.depth_limit > 0 && least < threshold_ &&
                             time_to_send(stage.reduced) < threshold_ && is_room_left(begin, left);
    if (is_possible) stages_[spread].push_back(stage);
  }
}

/// Whether the layers in front of a cut may be below the threshold on so many devices (P1).
bool NicLoadBound::is_room_left(CutIndex cut, std::int32_t devices) const {
  if (cut == CutIndex{}) return true;
  return devices > 0 && work_.busiest(layers_between(CutIndex{}, cut), devices) < threshold_;
}

/// Puts every stage that ends at the cut in front of a partial plan, or of none.
void NicLoadBound::extend(const PartialPlan& behind) {
  Spread chosen;
  choose_devices(behind, chosen);
}

/// Chooses the devices of a stage on the servers of the stage behind it, then on others.
void NicLoadBound::choose_devices(const PartialPlan& behind, Spread& chosen) {
  if (chosen.size() == behind.servers.size()) {
    choose_fresh_servers(behind, chosen, devices_per_server_);
    return;
  }
  const std::int32_t free = devices_per_server_ - behind.servers[chosen.size()].used;
  for (std::int32_t count = 0; count <= free; ++count) {
    chosen.push_back(count);
    choose_devices(behind, chosen);
    chosen.pop_back();
  }
}

/// Chooses devices on servers of which nothing is known, `most` on each or fewer.
void NicLoadBound::choose_fresh_servers(const PartialPlan& behind, Spread& chosen,
                                        std::int32_t most) {
  const std::int32_t replicas = std::accumulate(chosen.begin(), chosen.end(), 0);
  const std::int64_t left =
      std::min<std::int64_t>(problem_.micro_batch_size, device_count_ - behind.used) - replicas;
  if (left < 0) return;
  if (replicas > 0) {
    const SpreadIndex spread = spread_of(chosen);
    std::vector<std::int64_t> samples(chosen.size(), 0);
    if (!stages_[spread].empty()) {
      share_samples(behind, chosen, spread, problem_.micro_batch_size % replicas, samples);
    }
  }
  if (std::ssize(chosen) == server_count_) return;
  for (std::int32_t count = 1; count <= std::min<std::int64_t>(most, left); ++count) {
    chosen.push_back(count);
    choose_fresh_servers(behind, chosen, count);
    chosen.pop_back();
  }
}

/// Returns the spread of so many devices on each server; on some servers there may be none.
NicLoadBound::SpreadIndex NicLoadBound::spread_of(const Spread& chosen) const {
  Spread spread;
  std::copy_if(chosen.begin(), chosen.end(), std::back_inserter(spread),
               [](std::int32_t count) { return count > 0; });
  std::sort(spread.rbegin(), spread.rend());
  return spread_indices_.at(spread);
}

/// Shares each micro-batch among the replicas. The first ones, in the order of their devices, have
/// one sample more than the others; `longer` of these are left. As any server may be the first, all
/// orders are tried.
void NicLoadBound::share_samples(const PartialPlan& behind, const Spread& chosen,
                                 SpreadIndex spread, std::int64_t longer,
                                 std::vector<std::int64_t>& samples) {
  const std::int64_t each =
      problem_.micro_batch_size / std::accumulate(chosen.begin(), chosen.end(), std::int64_t{0});
  if (longer == 0) {
    std::vector<std::int64_t> all = samples;
    for (std::size_t s = 0; s < chosen.size(); ++s) {
      if (all[s] == 0) all[s] = chosen[s] * each;
    }
    prepend_devices(behind, chosen, spread, all);
    return;
  }
  for (std::size_t s = 0; s < chosen.size(); ++s) {
    if (chosen[s] == 0 || samples[s] > 0) continue;
    const std::int64_t here = std::min<std::int64_t>(longer, chosen[s]);
    samples[s] = chosen[s] * each + here;
    share_samples(behind, chosen, spread, longer - here, samples);
    samples[s] = 0;
  }
}

/// Puts the stages with `chosen` devices and `samples` samples on each server in front of a partial
/// plan. The first servers are those of the plan.
void NicLoadBound::prepend_devices(const PartialPlan& behind, const Spread& chosen,
                                   SpreadIndex spread, const std::vector<std::int64_t>& samples) {
  Extension extension{.spread = spread, .servers = {}, .used = behind.used, .boundary = {}};
  for (std::size_t s = 0; s < chosen.size(); ++s) {
    SideServer side;
    if (s < behind.servers.size()) side.server = behind.servers[s];
    if (!behind.servers.empty()) cross(side, samples[s], extension.boundary);
    if (time_to_send(side.server.transfers) >= threshold_) return;
    side.is_in_front = chosen[s] > 0;
    side.server.devices = chosen[s];
    side.server.used += chosen[s];
    side.server.samples = samples[s];
    extension.used += chosen[s];
    extension.servers.push_back(side);
  }
  for (const Stage& stage : stages_[spread]) {
    if (!allowance_.spend(1)) return;
    if (is_room_left(stage.begin, device_count_ - extension.used)) {
      prepend_stage(behind, extension, stage);
    }
  }
}

/// Adds what the server sends over the boundary to a stage of which it has `samples` samples (N1),
/// and raises the boundary to the time that this takes.
void NicLoadBound::cross(SideServer& side, std::int64_t samples, BoundaryBound& boundary) const {
  const std::int64_t micro_batches = problem_.num_micro_batches();
  const Bytes size = sure_size(std::abs(samples - side.server.samples), volume_);
  side.sends_activations = samples > side.server.samples && size > Bytes{};
  side.sends_gradients = samples < side.server.samples && size > Bytes{};
  side.server.transfers += micro_batches * size;
  boundary.forward = std::max(boundary.forward, time_to_send(size));
  boundary.backward = boundary.forward;
  boundary.forward_queue = std::max(boundary.forward_queue, time_to_send(micro_batches * size));
  boundary.backward_queue = boundary.forward_queue;
}

void NicLoadBound::prepend_stage(const PartialPlan& behind, const Extension& extension,
                                 const Stage& stage) {
  const StageBound& bound = stage.bound;
  PartialPlan plan{.servers = {}, .used = extension.used, .label = {}};
  Duration span;
  Duration end;
  for (const SideServer& side : extension.servers) {
    Server server = side.server;
    if (side.is_in_front) server.reductions += stage.reduced;
    if (server.transfers > Bytes{}) pass_stage(bound, extension.boundary, side, server);
    const Duration busy = time_to_send(server.transfers);
    span = std::max({span, server.head + busy + bound.backward,                          // (N2)
                     server.received_head + busy + server.rest});                        // (N6)
    end = std::max({end, server.received_head + busy + server.rest_to_end,               // (N6)
                    server.head + time_to_send(server.transfers + server.reductions)});  // (N3)
    if (end >= threshold_) return;
    if (side.is_in_front) plan.servers.push_back(server);
  }
  const std::int64_t micro_batches = problem_.num_micro_batches();
  plan.label = behind.servers.empty()
                   ? initial_label(bound, micro_batches)
                   : extend_label(bound, extension.boundary, behind.label, micro_batches, span);
  plan.label.end = std::max(plan.label.end, end);
  if (plan.label.end >= threshold_) return;
  if (stage.begin == CutIndex{}) {
    least_ = std::min(least_, plan.label.end);  // (N4)
    return;
  }
  const PrefixBound::Rest front = work_.rest(stage.begin, device_count_ - plan.used);
  const bool is_closed = front.forward + plan.label.end >= threshold_ ||
                         front.round_trip + plan.label.span >= threshold_;
  if (!is_closed) keep(std::move(plan), extension.spread, stage.begin);
}

/// Counts the times of a server that has sent something from the stage that is put in front.
void NicLoadBound::pass_stage(const StageBound& stage, const BoundaryBound& boundary,
                              const SideServer& side, Server& server) {
  const Duration crossed = stage.forward + boundary.forward;
  server.head = side.sends_activations ? stage.forward : crossed + side.server.head;
  server.received_head = side.sends_gradients ? stage.forward : crossed + side.server.received_head;
  if (side.sends_activations) {
    server.rest = stage.backward;
    server.rest_to_end = {};
  } else {
    server.rest += boundary.backward + stage.backward;
  }
  server.rest_to_end = std::max(server.rest_to_end, server.rest + stage.after_backward);
}

/// What each server of a stage that begins there and ends at the cut sends at least to reduce its
/// gradients (N3).
Bytes NicLoadBound::reduced_by_each(CutIndex begin, std::int64_t servers) const {
  if (servers == 1 || has_measured_reductions(costs_.topology())) return {};
  const std::int64_t passes = costs_.topology().description().shards_optimizer ? 1 : 2;
  const Bytes gradients = gradients_[cut_] - gradients_[begin];
  return {divide_down(Wide{passes * (servers - 1)} * gradients.count, servers)};
}

/// Lower bound on the time in which the NICs of a server send so much.
Duration NicLoadBound::time_to_send(Bytes size) const {
  return {divide_down(Wide{size.count} * kNanosecondsPerSecond, nics_.bytes_per_second)};
}

/// Keeps a partial plan unless another one dominates it (N5), with its times rounded down.
void NicLoadBound::keep(PartialPlan plan, SpreadIndex spread, CutIndex begin) {
  const auto round_down = [&](Duration& time) { time.ns -= time.ns % grain_.ns; };
  for (Server& server : plan.servers) {
    round_down(server.head);
    round_down(server.received_head);
    round_down(server.rest);
    round_down(server.rest_to_end);
  }
  // The stage's occupation counts only where transfers block.
  plan.label.occupied = {};
  round_down(plan.label.round_trip);
  round_down(plan.label.last_trip);
  round_down(plan.label.span);
  round_down(plan.label.end);
  round_down(plan.label.tail);
  std::sort(plan.servers.rbegin(), plan.servers.rend());
  std::vector<PartialPlan>& plans = plans_[begin][spread];
  if (!allowance_.spend(std::ssize(plans) / kComparisonsPerStep)) return;
  const auto is_better = [&](const PartialPlan& other) { return dominates(other, plan); };
  if (std::any_of(plans.begin(), plans.end(), is_better)) return;
  const auto dropped = static_cast<std::int64_t>(
      std::erase_if(plans, [&](const PartialPlan& other) { return dominates(plan, other); }));
  allowance_.keep((1 - dropped) * size_of(plan));
  plans.push_back(std::move(plan));
}

Bytes NicLoadBound::size_of(const PartialPlan& plan) {
  return {static_cast<std::int64_t>(sizeof(plan) + plan.servers.size() * sizeof(Server))};
}

/// Whether `a` is of no larger a bound than `b` with any stages in front. Requires: their first
/// stages have the same spread.
bool NicLoadBound::dominates(const PartialPlan& a, const PartialPlan& b) {
  const auto is_no_worse = [](const Server& x, const Server& y) {
    return x.samples == y.samples && x.used <= y.used && x.transfers <= y.transfers &&
           x.reductions <= y.reductions && x.head <= y.head && x.received_head <= y.received_head &&
           x.rest <= y.rest && x.rest_to_end <= y.rest_to_end;
  };
  return a.used <= b.used && is_no_larger(a.label, b.label) &&
         std::equal(a.servers.begin(), a.servers.end(), b.servers.begin(), is_no_worse);
}

}  // namespace

Duration nic_load_bound(const ModelProfile& profile, const Topology& topology,
                        const SearchProblem& problem, Duration threshold,
                        const Allowance::Limits& limits) {
  const CostModel costs(profile, topology);
  if (!applies(costs, problem)) return {};
  return NicLoadBound(costs, problem, threshold, limits).least();
}

}  // namespace dapple::search
