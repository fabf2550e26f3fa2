// Shapes of transfers between two sets of devices: which ports carry how many of a micro-batch's
// samples, independent of the size of the tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "dapple/cost/cost_model.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/indices.h"

namespace dapple::search {

/// A port, and the samples of each micro-batch that pass it, each of them with as many bytes as a
/// flow has of it: with its share where tensors cross in shares. A device of a replica that has
/// several may send a part of a sample: where forms have such replicas, samples are counted in
/// parts, of which each has as many as the largest replica has devices
/// (CostModel::largest_group()).
struct PortShape {
  std::int64_t samples = 0;
  Bandwidth bandwidth;
  Duration latency;
  /// The samples that the receiver of a flow with that latency gathers, at least, where tensors
  /// cross in shares.
  std::int64_t gathered = 0;

  friend auto operator<=>(const PortShape&, const PortShape&) = default;
};

/// The ports of a boundary in both directions, ascending. Ports with the same bandwidth and latency
/// are represented by the busiest one. If replicas are independent, the distinct pairs of replicas
/// are included, with the bandwidths and latencies of their routes.
struct TransferShape {
  std::vector<PortShape> forward;
  std::vector<PortShape> backward;
  std::vector<PortShape> forward_pairs = {};
  std::vector<PortShape> backward_pairs = {};

  friend auto operator<=>(const TransferShape&, const TransferShape&) = default;
};

/// The devices of a stage beside a boundary, in the order of its replicas.
struct BoundarySide {
  std::vector<DeviceIndex> devices;
  // The samples of each replica; empty for those of replica_share().
  std::vector<std::int64_t> samples;
  // Whether the stage deals its micro-batches, so that each replica has whole ones.
  bool deals = false;
  std::int32_t devices_per_replica = 1;
};

/// The stages in front of and behind a boundary.
struct BoundarySides {
  BoundarySide front;
  BoundarySide back;
};

TransferShape transfer_shape(const BoundarySides& sides, std::int64_t micro_batch_size,
                             const CostModel& costs, Replicas replicas);

/// Returns the distinct shapes of the transfers over a boundary where micro-batches are dealt on
/// some side: one for each replica of that side or, where they are on both sides, for each pair
/// that a micro-batch passes. O(pairs * (replicas + ports)).
std::vector<TransferShape> dealt_shapes(const BoundarySides& sides, std::int64_t micro_batch_size,
                                        const CostModel& costs);

/// The fewest samples that any replica of one side sends to a replica of the other side, for
/// `front` and `back` replicas with equal shares.
std::int64_t least_overlap(std::int64_t micro_batch_size, std::int64_t front, std::int64_t back);

/// The bytes that pass a boundary.
struct BoundaryVolume {
  // For each micro-batch, the sum over its tensors, each of which is rounded up on its own.
  Bytes whole;
  // Upper bound on the number of tensors.
  std::int64_t tensors = 0;
  // The samples of which `whole` is the size: those of a micro-batch or, where a group has
  // data-parallel ranks, those that all of them would have if each had as many as the fullest. They
  // are counted as those of PortShape; where tensors cross in shares, each share of a sample counts
  // as one, of which a flow has one.
  std::int64_t samples = 1;
  // The volume of whole tensors in each form, where the receivers of all forms gather them from
  // shares; empty where some tensors may be sent whole.
  struct Gathered {
    const ModelProfile* form = nullptr;
    Bytes whole;
    std::int64_t tensors = 0;
    std::int64_t samples = 1;
  };
  std::vector<Gathered> gathered = {};
};

/// Returns the bounds for a boundary of that shape and volume.
BoundaryBound boundary_bound(const TransferShape& shape, const BoundaryVolume& volume,
                             std::int64_t num_micro_batches, Transfers transfers);

/// Returns figures that bound two boundaries whose links are not shared: none is larger than
/// either.
BoundaryBound least_of(const BoundaryBound& a, const BoundaryBound& b);

/// Returns the bounds for a boundary where micro-batches are dealt on some side: its transfers have
/// one of these shapes each. Queues are those of a single transfer, and no pace is known.
BoundaryBound dealt_boundary_bound(const std::vector<TransferShape>& shapes,
                                   const BoundaryVolume& volume);

/// Raises the queues of a boundary to those at a port of which every micro-batch is known to pass
/// so many samples, in each direction, and its pace where no transfer takes less than at that port.
void raise_queues(BoundaryBound& boundary, const PortShape& forward, const PortShape& backward,
                  const BoundaryVolume& volume, std::int64_t num_micro_batches);

/// Lower bound on the bytes that a flow has of `samples` samples of a micro-batch.
Bytes sure_size(std::int64_t samples, const BoundaryVolume& volume);

/// Returns the volume of the boundary at `cut`.
BoundaryVolume boundary_volume(const CostModel& costs, CutIndex cut, std::int64_t micro_batch_size);

/// Keeps shapes by a key of the devices in front of and behind a boundary: a pair of placements of
/// a PlacementTable, or of allocations of a PlacementSpace.
template <class DevicesPair>
class TransferShapeCache {
 public:
  TransferShapeCache(const CostModel& costs, std::int64_t micro_batch_size, Replicas replicas)
      : costs_(costs), micro_batch_size_(micro_batch_size), replicas_(replicas) {}

  /// Returns the shape between two sets of devices. `sides` is called when they are first
  /// requested. O(log shapes) afterwards.
  const TransferShape& shape(const DevicesPair& devices,
                             const std::function<BoundarySides()>& sides) {
    const auto found = shapes_.find(devices);
    if (found != shapes_.end()) return found->second;
    return shapes_.emplace(devices, transfer_shape(sides(), micro_batch_size_, costs_, replicas_))
        .first->second;
  }

 private:
  const CostModel& costs_;
  std::int64_t micro_batch_size_;
  Replicas replicas_;
  std::map<DevicesPair, TransferShape> shapes_;
};

}  // namespace dapple::search
