// A lower bound on all plans from what the stages on each server send through its NICs ((N1) to
// (N5) in docs/bounds.md). The other bounds see both boundaries of one stage; where a server has
// several stages, its NICs carry all that passes from any of them to other servers, and the
// all-reduces of those that have devices on other servers too.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/all_reduce.h"
#include "dapple/cost/cost_model.h"
#include "dapple/search/allowance.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/indices.h"
#include "dapple/search/search_problem.h"
#include "search/bounds/prefix_bound.h"
#include "search/bounds/stage_column.h"
#include "search/bounds/transfer_shape.h"
#include "search/exact/stage_column_cache.h"

namespace dapple::search {

/// Bounds all plans of one problem, whatever their placement. Partial plans are built from the last
/// stage to the first, and are told apart by the servers of their first stage and what these have
/// sent; servers without a device of it are forgotten.
class NicLoadBound {
 public:
  /// Whether the bound holds for the problem and tells more than others: links are shared, replicas
  /// start together and split every micro-batch, transfers overlap, and there are several servers
  /// of several devices, all interchangeable and in no racks. O(devices).
  static bool applies(const CostModel& costs, const SearchProblem& problem);

  /// Goes through all partial plans that may belong to one below the threshold, without those that
  /// another one dominates. A step is counted for each stage that is put in front of one.
  /// Requires: applies().
  NicLoadBound(const CostModel& costs, const SearchProblem& problem, Duration threshold,
               const Allowance::Limits& limits);

  /// Lower bound on all plans, at most the threshold. It is zero if the allowance ended first, or
  /// stages may be spread over servers in too many ways.
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
    // What its NICs send over all boundaries so far, and in all-reduces.
    Bytes transfers;
    Bytes reductions;
    // The time from the start of the first forward on the first stage until the first of these
    // transfers begins; zero if there is none.
    Duration head;

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
    // Whether it has devices of the stage in front, and whether it sends activations.
    bool is_in_front = false;
    bool sends_activations = false;
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
  void make_columns(CutIndex end);
  void extend(const PartialPlan& behind);
  void choose_devices(const PartialPlan& behind, Spread& chosen);
  void choose_fresh_servers(const PartialPlan& behind, Spread& chosen, std::int32_t most);
  void share_samples(const PartialPlan& behind, const Spread& chosen, std::int64_t longer,
                     std::vector<std::int64_t>& samples);
  void prepend_devices(const PartialPlan& behind, const Spread& chosen,
                       const std::vector<std::int64_t>& samples);
  void cross(SideServer& side, std::int64_t samples, BoundaryBound& boundary) const;
  void prepend_stages(const PartialPlan& behind, const Extension& extension,
                      const StageColumn& column);
  void prepend_stage(const PartialPlan& behind, const Extension& extension, const StageBound& stage,
                     CutIndex begin);
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
  // Times of partial plans are rounded down to multiples of this.
  Duration grain_;
  IndexedVector<SpreadIndex, Spread> spreads_;
  std::map<Spread, SpreadIndex> spread_indices_;
  // A stage with this spread on the first servers: its devices and their all-reduces.
  IndexedVector<SpreadIndex, std::vector<DeviceIndex>> devices_;
  IndexedVector<SpreadIndex, AllReduceModel> reductions_;
  // The gradients of all layers in front of a cut that their stages reduce, whatever the stages.
  IndexedVector<CutIndex, Bytes> gradients_;
  // The cut behind the stages that are put in front, its volume, and the stages by their spread,
  // without and with recomputation.
  CutIndex cut_;
  BoundaryVolume volume_;
  IndexedVector<SpreadIndex, StageColumn> columns_;
  IndexedVector<SpreadIndex, StageColumn> recomputing_;
  // Partial plans by the cut in front of them, then by the spread of their first stage; none of a
  // list dominates another one.
  IndexedVector<CutIndex, IndexedVector<SpreadIndex, std::vector<PartialPlan>>> plans_;
  Duration least_;
};

}  // namespace dapple::search
