// A lower bound on all plans from what the stages on each server send and receive through its NICs
// ((N1) to (N6) in docs/bounds.md). The other bounds see both boundaries of one stage; where a
// server has several stages, its NICs carry all that passes from any of them to other servers, and
// the all-reduces of those that have devices on other servers too.
#pragma once

#include "dapple/core/quantity.h"
#include "dapple/profile/model_profile.h"
#include "dapple/search/allowance.h"
#include "dapple/search/search_problem.h"
#include "dapple/topology/topology.h"

namespace dapple::search {

/// Lower bound on all plans of the problem, whatever their placement, at most the threshold. It is
/// zero, as nothing is known, unless links are shared, replicas start together and split every
/// micro-batch, transfers overlap, and there are several servers of several devices, all
/// interchangeable and in no racks; if there are more than 500 ways to spread the devices of a
/// stage over servers; and if the allowance ends first. A step is counted for each stage that is
/// put in front of a partial plan.
Duration nic_load_bound(const ModelProfile& profile, const Topology& topology,
                        const SearchProblem& problem, Duration threshold,
                        const Allowance::Limits& limits);

}  // namespace dapple::search
