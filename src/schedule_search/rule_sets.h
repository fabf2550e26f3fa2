// The rules that list schedules are built with: a table of them, and changes at random.
#pragma once

#include <vector>

#include "schedule_search/list_schedule.h"
#include "schedule_search/randomness.h"

namespace dapple::schedule_search {

/// Rules that are each best on some problems, the most promising first. O(stages^2) and a number of
/// rules that does not depend on the problem.
std::vector<ListRule> rule_table(const TaskGraph& graph);

/// The rule with one to a few of its numbers changed.
ListRule changed_rule(const TaskGraph& graph, ListRule rule, Randomness& randomness);

}  // namespace dapple::schedule_search
