#include "dapple/planner/request/search_limits.h"

#include <catch2/catch.hpp>

namespace dapple::planner {
namespace {

// Plans of large problems depend on every one of these: whoever changes one changes plan files, the
// golden ones among them, and says so in the changelog.
TEST_CASE("the limits of a search are what plan files were made with") {
  constexpr SearchLimits limits;
  CHECK(limits.actions == 24'000'000);
  CHECK(limits.states == 20'000'000);
  CHECK(limits.states_of_some_placements == 4'000'000);
  CHECK(limits.states_of_any_order == 2'000'000);
  CHECK(limits.partial_plans == 2'500'000);
  CHECK(limits.pairs == 2'000'000'000);
  CHECK(limits.round == 400'000);
  CHECK(limits.batch == 8);
  CHECK(limits.states_between_batches == 100'000);
  CHECK(limits.actions_per_state == 4);
  CHECK(limits.refinement_of_best == 2'000'000);
  CHECK(limits.refinement == 24'000'000);
  CHECK(limits.refinement_of_one == 1'000'000);
  CHECK(limits.threshold_accepting == 3'000'000);
  CHECK(limits.threshold_accepting_starts == 2);
  CHECK(limits.exhaustion == 60'000'000);
  CHECK(limits.exhaustion_between_refinements == 3'000'000);
  CHECK(limits.exhaustion_of_one == 200'000);
  CHECK(limits.stagnation == 20'000'000);
  CHECK(limits.large == 65'536);
  CHECK(limits.diagram_states == 65'536);
  CHECK(limits.all_diagram_states == 200'000'000);
  CHECK(limits.completion_steps == 600'000'000);
  CHECK(limits.all_completion_steps == 1'000'000'000);
  CHECK(limits.completion_steps_of_large == 10'000'000);
  CHECK(limits.all_completion_steps_of_large == 250'000'000);
  CHECK(limits.diagram_steps == 900'000'000);
  CHECK(limits.quick_steps == 5'000'000);
  CHECK(limits.part_of_plans == 3);
  CHECK(limits.fair_shares == 3);
  CHECK(limits.diagrams_in_parallel == 2);
  CHECK(limits.refined_plans == 4);
  CHECK(limits.actions_of_a_width == 6'000'000);
  CHECK(limits.restricted_width == 4);
  CHECK(limits.relaxed_width == 8);
  CHECK(limits.widening == 4);
  CHECK(limits.last_width == 128);
  CHECK(limits.least_gain == 16);
  CHECK(limits.first_rise == 1);
  CHECK(limits.rise_parts == 16);
  CHECK(limits.last_rise == 65'536);
  CHECK(limits.first_gap_parts == 5);
  CHECK(limits.last_gap_parts == 320);
  CHECK(limits.path_steps == 300'000'000);
  CHECK(limits.servers_in_turn == 8192);
  CHECK(limits.many_layers == 256);
  CHECK(limits.small == 6144);
  CHECK(limits.part_after_diagrams == 4);
  CHECK(limits.completions_in_parallel == 8);
  CHECK(limits.part_of_completion == 2);
  CHECK(limits.part_of_search == 2);
  CHECK(limits.part_of_depths == 8);
}

}  // namespace
}  // namespace dapple::planner
