// Warm-up depths: limits set by memory, and the depths that are worth trying for a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/cost/cost_model.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/plan/plan.h"
#include "dapple/search/bounds/earliest_start_bound.h"

namespace dapple::planner {

/// The depth of each stage. Where stages deal their micro-batches, these are depths of the
/// pipeline, and those of the plan follow by lane_depths(); elsewhere they are the plan's own.
using Depths = std::vector<std::int64_t>;

/// Returns the warm-up depths of a plan with these depths of the pipeline. A stage that deals its
/// micro-batches to r replicas has the depth divided by r, rounded up; but GPipe's depth is that of
/// all micro-batches. Depths of the pipeline that do not rise from stage to stage give the warm-up
/// depths of (L3), and all of these. O(stages).
Depths lane_depths(const Plan& plan, Depths depths);

/// Returns the least depths of the pipeline that do not rise and give the plan its warm-up depths.
/// O(stages).
Depths pipeline_depths(const Plan& plan);

/// The warm-up depths of a plan that fit into the memory of its devices. Where transfers block,
/// each is also at most one above that of the next stage, as else both stages may wait for each
/// other.
class DepthLimits {
 public:
  /// Requires: the plan has its gradient buckets; it needs no depths yet.
  DepthLimits(const Plan& plan, const CostModel& costs, bool ignore_memory,
              Transfers transfers = Transfers::Overlapped);

  /// Reduces `wanted` to legal depths, none above the wanted one, that fit every device. Stages
  /// that do not fit are reduced one by one from the first on; where a stage of depth 1 does not
  /// fit, the stage before it is reduced instead. Returns nothing if not even a depth of 1 on every
  /// stage fits. O(stages * reductions made).
  std::optional<Depths> fit(Depths wanted) const;

  /// Whether these legal depths fit every device. O(stages).
  bool fit_as_they_are(const Depths& depths) const;

  /// Whether some depths of the box may fit. Each stage is checked on its own, with those depths of
  /// its neighbours that leave it the most memory, so the answer may be true where none fit.
  /// O(stages).
  bool may_fit(const search::DepthBox& box) const;

  /// Narrows a box to the depths that differ from stage to stage by no more than is allowed, and
  /// that do not rise. Returns whether any are left. O(stages).
  bool narrow(search::DepthBox& box) const;

  /// Returns depths that no legal depths that fit exceed on any stage: the minimum over a stage and
  /// those before it of each one's own memory limit, without the tensors that wait at the
  /// boundaries. O(stages).
  Depths caps() const;

 private:
  // The memory of one kind of replica, linear in its own depth and those of its neighbours.
  struct Replica {
    // The micro-batches that it processes.
    std::int64_t micro_batches = 0;
    // The bytes held at depth 1 on every stage, communication buffers included, without the one
    // micro-batch.
    Bytes fixed;
    Bytes per_micro_batch;
    // Boundary tensors of the replica's share, before and behind the stage.
    Bytes before;
    Bytes behind;
    // Those exchanged with stages that are no neighbours.
    std::vector<StageTensors::Skip> skips;
    Bytes limit;
  };
  struct StageLimits {
    // The replicas to which the stage deals micro-batches; 1 if it deals none.
    std::int64_t lanes = 1;
    std::vector<Replica> replicas;
  };
  bool fits(std::size_t stage, const Depths& depths) const;
  bool may_fit(std::size_t stage, const search::DepthBox& box) const;
  std::int64_t lane_depth(std::size_t stage, std::int64_t depth) const;
  void lower_steps(Depths& depths) const;
  std::optional<std::size_t> stage_to_lower(std::size_t stage, const Depths& depths) const;

  std::int64_t num_micro_batches_;
  bool ignore_memory_;
  bool blocks_;
  bool deals_;
  bool is_gpipe_;
  std::vector<StageLimits> stages_;
};

/// Returns distinct depths to try for a plan with `stages` stages, regardless of memory: policy B
/// (2(S-s)-1) and policy A (S-s) of DAPPLE (PPoPP'21) section 3.2, then m(S-s-1)+1 for m = 3, 4, 6
/// and 10, for transfers that are longer than policy B hides, and all micro-batches in flight. Each
/// is limited by the number of micro-batches.
std::vector<Depths> depth_families(std::size_t stages, std::int64_t num_micro_batches);

/// Returns policy A of DAPPLE (PPoPP'21) section 3.2: S-s at stage s of S, at most the number of
/// micro-batches.
Depths least_depths(std::size_t stages, std::int64_t num_micro_batches);

/// Returns depths to try besides where stages deal their micro-batches: with once to three times as
/// many micro-batches in flight at a stage as keep all replicas from there on busy. O(stages).
std::vector<Depths> depths_of_dealt(const Plan& plan);

/// Returns depths for an iteration that ends at `target`. Each stage has in flight as many
/// micro-batches as hide `slack` times its round trip at the pace of the slowest stage, and as many
/// as let its last forward start in time for all that follows it, all-reduces included. The second
/// condition matters where an early stage is the slowest and a late one has much to reduce.
/// Requires: some time is positive. O(stages).
Depths depths_for_target(const Plan& plan, const PlanCost& costs, Duration target,
                         std::int64_t slack);

/// Counts the legal depth vectors, M >= K_0 >= ... >= K_{S-1} >= 1, up to `most`.
std::int64_t count_legal_depths(std::size_t stages, std::int64_t num_micro_batches,
                                std::int64_t most);

/// Returns all legal depth vectors in ascending order. O(their number * stages).
std::vector<Depths> legal_depths(std::size_t stages, std::int64_t num_micro_batches);

/// Returns the neighbours of the plan's own depths: those with one more on all stages up to some
/// stage, and those with one less on all stages from some stage on. Where stages deal their
/// micro-batches, one more is as much as adds one to every replica of that stage.
std::vector<Depths> neighbours(const Plan& plan);

}  // namespace dapple::planner
