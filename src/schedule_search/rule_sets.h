// The rules by which list schedules are built: a table of rules, and random changes of them.
#pragma once

#include <vector>

#include "schedule_search/list_schedule.h"
#include "schedule_search/randomness.h"

namespace dapple::schedule_search {

/// Returns rules each of which is best on some problems, the most promising first. O(stages^2) and
/// a number of rules that does not depend on the problem.
std::vector<ListRule> rule_table(const TaskGraph& graph);

/// Returns the rule with one to a few of its parameters changed.
ListRule changed_rule(const TaskGraph& graph, ListRule rule, RandomSequence& random);

}  // namespace dapple::schedule_search
