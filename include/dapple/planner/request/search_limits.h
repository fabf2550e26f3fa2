// The budgets of the exact planner. They fix which plans are searched, and so every plan file byte
// by byte: all are counted in steps, states, actions and bytes, never in time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dapple::planner {

/// The limits of one search, tuned on the shipped profiles. A change of any of them can change
/// plans.
struct SearchLimits {
  /// The actions that simulations may take.
  std::int64_t actions = 24'000'000;
  /// The stages that may be tried; fewer where not all placements are enumerated.
  std::int64_t states = 20'000'000;
  std::int64_t states_of_some_placements = 4'000'000;
  /// The states for the bound of any order, over all micro-batch sizes.
  std::int64_t states_of_any_order = 2'000'000;
  /// The partial plans that all searches together may keep in memory.
  std::int64_t partial_plans = 2'500'000;
  /// The pairs of stages that the bounds of partial plans may examine, over all searches.
  std::int64_t pairs = 2'000'000'000;

  /// About how many partial plans one round of all searches adds.
  std::int64_t round = 400'000;
  /// The candidates simulated in parallel, and the stages tried between two such batches in each
  /// search; fixed, so that the outcome does not depend on the number of threads.
  std::size_t batch = 8;
  std::int64_t states_between_batches = 100'000;
  /// Simulations of a batch that take more actions than there are states between batches are
  /// followed by a state for so many actions, however many candidates wait.
  std::int64_t actions_per_state = 4;

  /// The actions for refining the depths of a new best plan.
  std::int64_t refinement_of_best = 2'000'000;
  /// The actions, beyond the budget, for refining the depths of open candidates: of all together,
  /// and of each.
  std::int64_t refinement = 24'000'000;
  std::int64_t refinement_of_one = 1'000'000;
  /// The actions for threshold accepting from one of the best plans.
  std::int64_t threshold_accepting = 3'000'000;
  /// The number of best plans from which threshold accepting starts in one round.
  std::size_t threshold_accepting_starts = 2;
  /// The actions, beyond the budget, for exhausting the depths of open candidates: in the end,
  /// between refinements, and of one candidate in each round.
  std::int64_t exhaustion = 60'000'000;
  std::int64_t exhaustion_between_refinements = 3'000'000;
  std::int64_t exhaustion_of_one = 200'000;
  /// Exhausting depths ends after so many actions, fewer after diagrams, without a higher bound or
  /// a faster plan.
  std::int64_t stagnation = 20'000'000;

  /// A problem is large if its layers times devices exceed this; full completion bounds, the bound
  /// of what NICs send and threshold accepting from all of the best plans would take minutes there.
  std::int64_t large = 65'536;
  /// The steps of computing completion bounds: for one search, and for all, and the same in a large
  /// problem.
  std::int64_t completion_steps = 600'000'000;
  std::int64_t all_completion_steps = 1'000'000'000;
  std::int64_t completion_steps_of_large = 10'000'000;
  std::int64_t all_completion_steps_of_large = 250'000'000;
  /// The bound of what NICs send is computed once so many stages have been tried. It takes at most
  /// so many steps in one search at first, so many times as many in each further round, and so many
  /// in the last.
  std::int64_t states_before_nics = 1'000'000;
  std::int64_t nic_steps = 5'000'000;
  std::int64_t nic_steps_growth = 6;
  std::int64_t last_nic_steps = 180'000'000;
  /// The most states of decision diagrams at one cut, of which they have tables, as there may be
  /// more on many devices of several kinds; and at all cuts, as more take too long for what they
  /// prove.
  std::int64_t diagram_states = 65'536;
  std::int64_t all_diagram_states = 200'000'000;
  /// Where the exact search does not try all placements, decision diagrams do: the steps of all
  /// diagrams, of each in a first, quick proof, of going through the paths of one; the most layers
  /// times devices for plans with servers in turn; the part that diagrams for plans may take,
  /// and how many times its share of what is left one may; those compiled in parallel, fixed
  /// because they share the steps and the memory; the plans of one width whose stages and depths
  /// are refined; and the actions that the simulations of one width may take, fewer on many
  /// devices.
  std::int64_t diagram_steps = 900'000'000;
  std::int64_t quick_steps = 5'000'000;
  std::int64_t path_steps = 300'000'000;
  std::int64_t servers_in_turn = 8192;
  std::int64_t part_of_plans = 3;
  std::int64_t fair_shares = 3;
  int diagrams_in_parallel = 2;
  std::size_t refined_plans = 4;
  std::int64_t actions_of_a_width = 6'000'000;
  /// The nodes for each state of the first restricted and relaxed diagrams, how many times wider
  /// each further one is, and the most nodes.
  std::size_t restricted_width = 4;
  std::size_t relaxed_width = 8;
  std::size_t widening = 4;
  std::size_t last_width = 128;
  /// Wider diagrams follow as long as they close more than one of so many parts of the gap.
  std::int64_t least_gain = 16;
  /// The first threshold for plans is above the least bound by so many parts of it, the next ones
  /// by half as many again each, and the last one by so many.
  std::int64_t first_rise = 1;
  std::int64_t rise_parts = 16;
  std::int64_t last_rise = 65'536;
  /// The first threshold for bounds is below the best plan by one of so many parts of it, and the
  /// last but one by one of so many; the parts grow fourfold.
  std::int64_t first_gap_parts = 5;
  std::int64_t last_gap_parts = 320;
  /// The first threshold for paths is above the bound by one of so many parts of the gap that is
  /// left, the next ones by one of half as many each, or at once by all of it where a walk took so
  /// many times fewer steps than one may.
  std::int64_t gap_parts_of_paths = 4;
  std::int64_t growth_of_paths = 64;
  /// With more layers than this, plans are sought with stages that begin at some cuts only.
  std::int64_t many_layers = 256;

  /// In problems of no more layers times devices, the exact search follows with one of so many
  /// parts of its budgets.
  std::int64_t small = 6144;
  std::int64_t part_after_diagrams = 4;

  /// In problems of more layers times devices that are for diagrams, the DAPPLE planner makes no
  /// more than opening plans before them: diagrams find what its searches would, or better, sooner.
  std::int64_t left_to_diagrams = 16'384;

  /// The searches whose completion bounds are computed in parallel; fixed, as they share the steps
  /// that are left.
  std::size_t completions_in_parallel = 8;

  /// What may keep which part of the memory limit: completion functions and partial plans one of so
  /// many parts each, and all depth searches together one of so many.
  std::int64_t part_of_completion = 2;
  std::int64_t part_of_search = 2;
  std::int64_t part_of_depths = 8;
};

inline constexpr SearchLimits kSearchLimits;

}  // namespace dapple::planner
