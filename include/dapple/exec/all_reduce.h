// An all-reduce made of messages: the sum of what every member has, on every member.
//
// Source: Patarasu and Yuan 2009, ring reduce-scatter and all-gather; where servers hold the same
// number of members, inside each server first, then across, then inside again (as NCCL's trees of
// rings do), the shards of a server all at once.
#pragma once

#include <span>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/exec/transport.h"

namespace dapple {

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

/// Sums `values` over the group, in place. Every member adds a shard up in the same
/// order, the one in which the shard passes the ring, so all end up with the same bits. A member
/// sends 2 (r-1)/r of the values, rounded to whole ones. Requires: called by every member with the
/// same iteration and action, and as many values.
void all_reduce(const ReductionGroup& group, MessageKey key, std::span<float> values,
                Transport& transport);

}  // namespace dapple
