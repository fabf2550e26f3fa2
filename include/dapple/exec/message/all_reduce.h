// An all-reduce made of messages: the sum of what every member has, on every member.
//
// Source: Patarasu and Yuan 2009, ring reduce-scatter and all-gather; where servers hold the same
// number of members, inside each server first, then across, then inside again (as NCCL's trees of
// rings do), the shards of a server all at once.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/message/transport.h"
#include "dapple/schedule/device_schedule.h"

namespace dapple::exec {

/// Members, server by server, as many in each; one server: a flat ring over all of them.
struct ReductionGroup {
  std::vector<std::vector<DeviceIndex>> servers;
};

/// Of all that a plan reduces.
struct ReductionGroups {
  std::vector<std::vector<ReductionGroup>> buckets;  // by stage and bucket
  std::vector<ReductionGroup> ties;                  // by the plan's tied gradients

  /// Requires: an all-reduce, or one of tied gradients.
  const ReductionGroup& of(const Action& reduction) const;
};

/// All members, ascending.
std::vector<DeviceIndex> members_of(const ReductionGroup& group);

/// What a device reduces with others, by the members of the group, ascending, itself among them.
using ReductionSizes = std::map<std::vector<DeviceIndex>, std::set<Bytes>>;

/// O(actions * peers * log peers).
ReductionSizes reduction_sizes(const DeviceSchedule& device);

/// Some of the numbers of an array.
struct ElementRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

/// Single-precision numbers of a device that are added up with other devices', in place, wherever
/// they lie. Messages hold them one after another.
class ReductionBuffer {
 public:
  virtual ~ReductionBuffer() = default;
  virtual std::size_t size() const = 0;  // numbers
  virtual Memory memory() const { return Memory::Host; }

  /// To be called first, by the thread that reduces them.
  virtual void begin() {}

  /// Their values as they are, to be sent. On a device a receiver may read them where they lie:
  /// all_reduce() overwrites a number only with what has come of reading it, and an iteration is
  /// over on all devices before the next one begins.
  virtual Payload give_out(ElementRange range) = 0;
  /// What came from another member is added, or takes the place of what is here. Throw Bug where it
  /// has another size.
  virtual void add(ElementRange range, Payload payload) = 0;
  virtual void replace(ElementRange range, Payload payload) = 0;
};

/// Numbers in host memory, which must outlive it.
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
  std::vector<float> theirs_;  // of one message
};

/// Sums the numbers up over the group, in place. Every member adds a shard up in the same
/// order, the one in which the shard passes the ring, so all end up with the same bits. A member
/// sends 2 (r-1)/r of the numbers, rounded to whole ones. Left to the transport where it reduces
/// them itself. Requires: called by every member with the same iteration and action, and as many
/// numbers.
void all_reduce(const ReductionGroup& group, MessageKey key, ReductionBuffer& buffer,
                Transport& transport);

}  // namespace dapple::exec
