// What the devices of a small plan hold, counted by sections 2.2, 2.4, 7.1 and 8 of docs/model.md
// from the figures of profile and topology. Shares nothing with what it checks but the types that
// carry these figures: no costs, no tables, no depths that were filled in.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/description.h"

namespace dapple::small {

/// Bytes of one replica of a stage.
struct CountedMemory {
  std::int64_t fixed = 0;            // held for the whole iteration
  std::int64_t per_micro_batch = 0;  // from the start of its forward to the end of its B or W
  std::int64_t recomputation = 0;    // from the start of its B or I to the end of its B or W
  std::int64_t room = 0;             // of the device
};

/// `in_flight`: the most micro-batches in flight, by stage. Requires: every device has one stage,
/// replicas split micro-batches, nothing is tied, devices of one kind.
std::vector<CountedMemory> count_memory(const ModelProfile& profile,
                                        const TopologyDescription& topology, const Plan& plan,
                                        const std::vector<std::int64_t>& in_flight,
                                        std::size_t stage);

/// Whether so many micro-batches in flight may fit: no order that reaches them holds less than all
/// of them and what one of them recomputes.
bool may_hold(const ModelProfile& profile, const TopologyDescription& topology, const Plan& plan,
              const std::vector<std::int64_t>& in_flight);

/// Whether the plan's order, step by step, holds at no time more than its devices have.
bool order_fits(const ModelProfile& profile, const TopologyDescription& topology, const Plan& plan);

}  // namespace dapple::small
