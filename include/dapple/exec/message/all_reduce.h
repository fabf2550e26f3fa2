// All-reduce built from point-to-point messages: every member ends up with the sum over all
// members. It has two halves, which can also be used alone: a reduce-scatter, after which every
// member holds the sum of its shard, and an all-gather, which gives every member all shards.
//
// Source: Patarasu and Yuan 2009, ring reduce-scatter and all-gather. If all servers hold the same
// number of members, the reduction is hierarchical: a reduce-scatter within each server, an
// all-reduce across servers, all shards of a server at once, and an all-gather within each server
// (as in NCCL's trees of rings). Its halves are a reduce-scatter within each server, then across
// servers, and the way back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/message/transport.h"
#include "dapple/plan/plan.h"
#include "dapple/schedule/device_schedule.h"

namespace dapple::exec {

/// The members by server, the same number on each. A single server stands for a flat ring over all
/// members.
struct ReductionGroup {
  std::vector<std::vector<DeviceIndex>> servers;
  /// Whether a member needs the sum of its shard only, because it updates no other parameters.
  bool is_scattered = false;
};

/// The groups of all reductions of a plan. Those of buckets are scattered if the plan shards the
/// optimizer's state, those of ties never.
struct ReductionGroups {
  /// Indexed by stage and bucket: those of the first devices of all replicas.
  std::vector<std::vector<ReductionGroup>> buckets;
  /// Indexed by the plan's tied gradients.
  std::vector<ReductionGroup> ties;
  /// The devices of a replica, by stage (StagePlan::devices_per_replica).
  std::vector<std::int32_t> devices_per_replica;

  /// Returns the group in which a device takes part in a reduction: where replicas are several
  /// devices each, that of the devices at its position in them. O(members). Requires: the action is
  /// an all-reduce, of a bucket or of tied gradients, of a stage of the device.
  ReductionGroup of(const Action& reduction, DeviceIndex device) const;
};

/// Returns all members in ascending order.
std::vector<DeviceIndex> members_of(const ReductionGroup& group);

/// The sizes of a device's reductions, keyed by the members of the group in ascending order, the
/// device itself included.
using ReductionSizes = std::map<std::vector<DeviceIndex>, std::set<Bytes>>;

/// Returns the sizes of all reductions of the device that have other members and, if the plan
/// shards the optimizer's state, of the tied parameters that the replicas of its stages gather.
/// O(actions * peers * log peers).
ReductionSizes reduction_sizes(const Plan& plan, const DeviceSchedule& device);

/// A half-open range of elements of an array.
struct ElementRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

/// Single-precision numbers of one device that are summed in place with those of other devices, or
/// replaced by them, wherever they lie. Messages hold them contiguously.
class ReductionBuffer {
 public:
  virtual ~ReductionBuffer() = default;
  /// The number of elements.
  virtual std::size_t size() const = 0;
  virtual Memory memory() const { return Memory::Host; }

  /// Must be called first, by the thread that reduces.
  virtual void begin() {}

  /// Returns the current values of a range, to be sent. On a device a receiver may read them in
  /// place: what is sent is overwritten only with a result that depends on that read, and an
  /// iteration ends on all devices before the next one begins.
  virtual Payload give_out(ElementRange range) = 0;
  /// Adds the elements received from another member to the range, or replaces the range by them.
  /// Throw Bug if the sizes differ.
  virtual void add(ElementRange range, Payload payload) = 0;
  virtual void replace(ElementRange range, Payload payload) = 0;
};

/// A buffer in host memory, which must outlive it.
class HostReductionBuffer : public ReductionBuffer {
 public:
  explicit HostReductionBuffer(std::span<float> values) : values_(values) {}
  std::size_t size() const override { return values_.size(); }
  Payload give_out(ElementRange range) override;
  void add(ElementRange range, Payload payload) override;
  void replace(ElementRange range, Payload payload) override;

 private:
  std::span<float> at(ElementRange range) const {
    return values_.subspan(range.begin, range.size());
  }

  std::span<float> values_;
  /// The elements of one received message.
  std::vector<float> theirs_;
};

/// Returns the shard of the elements whose sum the member holds after reduce_scatter(). The shards
/// of all members are the elements; in a single server their sizes differ by one at most. Requires:
/// the device is a member.
ElementRange shard_of(const ReductionGroup& group, DeviceIndex member, ElementRange elements);

/// Sums the buffer over the group, in place. Each shard is summed in the order in which it passes
/// around the ring, so all members obtain bitwise identical results. In a ring of r members each
/// sends 2 (r-1)/r of the elements, rounded to whole elements. If the transport can reduce the
/// buffer itself, the reduction is left to it. Requires: all members call it with the same
/// iteration and action and the same number of elements.
void all_reduce(const ReductionGroup& group, MessageKey key, ReductionBuffer& buffer,
                Transport& transport);

/// The first half of all_reduce(): sums this member's shard over the group, in place, to the same
/// bits as all_reduce() does. All other elements are undefined afterwards. Each member of a ring
/// sends (r-1)/r of the elements.
void reduce_scatter(const ReductionGroup& group, MessageKey key, ReductionBuffer& buffer,
                    Transport& transport);

/// The second half of all_reduce(): replaces all other elements by those of the member whose shard
/// they are.
void all_gather(const ReductionGroup& group, MessageKey key, ReductionBuffer& buffer,
                Transport& transport);

}  // namespace dapple::exec
