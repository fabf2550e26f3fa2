// Lower bounds on what the layers between two nested down-sets take as a stage, and on what crosses
// the cut behind a down-set: the figures from which plans over all orders of layers are bounded.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/cost_model.h"
#include "dapple/profile/down_sets.h"

namespace dapple::search {

/// A stage of the layers between two down-sets; computation is of one micro-batch.
///
/// | member    | symbol, docs/bounds.md | unit | equations  |
/// | --------- | ---------------------- | ---- | ---------- |
/// | forward   | f                      | ns   | (G1), (G3) |
/// | backward  | b                      | ns   | (G1), (G3) |
/// | step      | step                   | ns   | (G1), (G3) |
/// | gradients | gradients              | B    | (G1), (F1) |
struct DownSetStage {
  Duration forward;
  Duration backward;
  Duration step;
  Bytes gradients;
};

/// The numbers of replicas that have one largest share of a micro-batch.
struct ReplicaCounts {
  // The least and the largest number.
  std::int32_t least = 1;
  std::int32_t most = 1;
  // The samples of the largest share.
  std::int64_t samples = 1;
};

/// The figures of all down-sets at one micro-batch size.
class DownSetFigures {
 public:
  /// O(shares * (layers + steps between down-sets) + devices^2).
  DownSetFigures(const CostModel& costs, const DownSets& sets, std::int64_t global_batch_size,
                 std::int64_t micro_batch_size);

  std::int64_t micro_batches() const { return micro_batches_; }
  const std::vector<ReplicaCounts>& counts() const { return counts_; }
  std::int32_t devices() const { return costs_.topology().device_count(); }
  /// The devices of the largest server.
  std::int32_t largest_server() const { return largest_server_; }

  /// Computes (G1). `count` is a position in counts(). O(1).
  DownSetStage stage(DownSetIndex begin, DownSetIndex end, std::size_t count) const;
  /// Returns the least time of all devices together that the layers outside a down-set take. O(1).
  Wide device_time_behind(DownSetIndex set) const {
    return device_times_.back() - device_times_[set.position()];
  }
  /// Compute (F1) for a stage on several servers, and (G1) for one on a single server. O(1).
  Duration reduction_across(Bytes gradients, std::int32_t devices) const;
  Duration reduction_within(Bytes gradients, std::int32_t devices) const;

  /// Lower bound on the bytes of `samples` samples, on whatever devices. O(1).
  Bytes crossing(DownSetIndex set, std::int64_t samples) const;
  /// Returns the least samples that some pair of replicas exchanges for every micro-batch, where
  /// it exchanges the most.
  std::int64_t average_flow(std::size_t senders, std::size_t receivers) const;
  /// Returns the least samples of a replica.
  std::int64_t least_share(std::size_t count) const;
  /// Return how long so many bytes take on the widest route, and through all NICs of the widest
  /// server, rounded down, without latency.
  Duration on_widest_route(Wide bytes) const;
  Duration through_nics(Wide bytes) const;
  /// The least latency of a route; zero where routes are not examined one by one.
  Duration latency() const { return best_route_.latency; }

 private:
  void find_counts();
  void find_times(const DownSets& sets);
  void find_sizes(const DownSets& sets);
  void find_links();

  const CostModel& costs_;
  std::int64_t micro_batch_size_;
  std::int64_t micro_batches_;
  std::vector<ReplicaCounts> counts_;
  // By position in counts_, then down-set: the sums over its layers.
  std::vector<std::vector<std::int64_t>> forward_;
  std::vector<std::vector<std::int64_t>> backward_;
  // By down-set.
  std::vector<Wide> device_times_;
  std::vector<Wide> step_parts_;
  std::vector<Wide> gradients_;
  // What surely crosses the cut behind each down-set for a whole micro-batch.
  std::vector<Wide> sizes_;
  std::int32_t largest_server_ = 1;
  // The bandwidth of all NICs of the widest server together.
  Bandwidth widest_server_{1};
  Link best_route_{.bandwidth = {1}, .latency = {}};
  // Whether reductions over several servers, or within one, have no bound.
  bool has_free_reductions_ = false;
  bool has_free_reductions_within_ = false;
  // Whether replicas may have shares by speed, of one sample each at least.
  bool has_other_shares_ = false;
};

}  // namespace dapple::search
