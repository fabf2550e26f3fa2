// Orders that depend on costs and memory: zero-bubble schedules, and 1F1B list-scheduled from the
// costs with at most K in flight; with a lower bound.
//
// Sources: Zero Bubble Pipeline Parallelism (ICLR'24): greedy construction under a memory limit, W
// in the bubbles. Giffler and Thompson (1960): list scheduling in the order of starts. Van
// Laarhoven et al. (1992), Nowicki and Smutnicki (1996): moves on the critical path of a job shop.
// Jackson (1955), Carlier (1982): one machine with heads and tails.
//
// Departures: 1. a device's list rule is a handful of numbers, which are themselves searched;
// 2. tasks move any distance along a device's order, not only past a neighbour, because a weight
// gradient may go far; 3. nothing is solved as an integer program.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "dapple/core/quantity.h"
#include "dapple/schedule_search/tasks/task_order.h"

namespace dapple::schedule_search {

/// No order of the problem, run as its rules say, has a lower objective. The largest, over all
/// devices, of what one machine needs for the device's tasks if each has a head (it starts no
/// earlier than so long after the first start) and a tail (the end of all is no earlier than so
/// long after its end) and may be preempted, by Jackson's rule. That a chain of tasks must run in
/// every order is the proof of each head and tail. K(s) is the most micro-batches that memory lets
/// be in flight on stage s; a micro-batch in flight there is so on all earlier stages of its
/// device.
///
///   forward n     after that of the stage before; after n forwards; by memory, after some number
///                 j > n - K(s) of backwards and the weight gradients that are then needed, with
///                 all their work: the j is taken that lets it start first
///   backward n    after that of the stage behind; after n + 1 forwards and n backwards
///   W n           after backward n
///   tails         the same read from the end: behind forward n there are its round trip, and the
///                 forwards and backwards left on any stage that it goes through; behind backward
///                 n, forward n + K(s) that waits for its memory; behind W n, the first forward
///                 that has no memory without it
///   B0            where a device has one stage, whole forwards run before it, and the device waits
///                 for no longer than the objective less its work. Where one more wait would be too
///                 long, it must run one more forward, which delays all stages in front. So goals
///                 are refuted; the bound is the least that is not.
///
/// For the span, heads count from the device's own first start and tails to its own last end,
/// whatever stages in front of it do; so the bound also holds if first starts are put off. For the
/// makespan they count from the first start of all to the last end of all.
///
/// O(stages^2 * M + tasks * log tasks), some thirty times where goals are refuted.
/// Requires: validate(problem) is empty.
Duration lower_bound(const TaskProblem& problem);

/// What an order really takes, where that is more than the problem says: links that are shared,
/// reductions that run beside computation. Never below the problem's own objective.
using OrderSimulation = std::function<Duration(const TaskOrder&)>;

struct OrderSearchOptions {
  /// Orders built or run, whole or in part, at most; a simulation counts as several of them. Where
  /// a simpler problem is searched first, each of its searches may take as many again.
  std::int64_t evaluations = 20'000;
  std::uint64_t seed = 1;                       // the same seed, the same answer
  std::function<bool()> should_stop = nullptr;  // asked between evaluations; nothing: never
  /// Orders to begin with, of the problem's own tasks. One that deadlocks or does not fit is passed
  /// over; none that is taken is better than the order found.
  std::vector<TaskOrder> known = {};
  OrderSimulation simulate = nullptr;  // what is to be the least; nothing: the problem's objective
};

struct OrderSearchWork {
  std::int64_t list_schedules = 0;  // orders built from rules
  std::int64_t moves = 0;           // changed orders run, whole or in part
  std::int64_t improvements = 0;    // times that the best order was replaced
  std::int64_t simulations = 0;

  std::int64_t orders() const { return list_schedules + moves; }
  OrderSearchWork& operator+=(const OrderSearchWork& more);
  friend bool operator==(const OrderSearchWork&, const OrderSearchWork&) = default;
};

struct FoundOrder {
  TaskOrder order;
  OrderTimes times;
  Duration objective;                 // of the problem's own kind
  std::optional<Duration> simulated;  // where that is asked for
  Duration lower_bound;  // equal to the objective, or to what is simulated: proven to be the least
  OrderSearchWork work;  // searches of simpler problems included
};

/// The best order found: those known, list schedules by many rules, then rules and orders changed
/// at random and kept where they are better, until the bound is met, the work is used up or the
/// caller says so. Where what waits may make memory short, several numbers in flight are searched
/// within, and an order that needs less comes before a faster one that does not fit. Where orders
/// are to be simulated, the best by the problem's objective is, and orders changed from there, as
/// long as the two differ. More evaluations with the same seed are never worse where nothing is
/// simulated and nothing waits; more memory mostly is not. Nothing if there is no order:
/// has_order(). Requires: validate(problem) is empty, options.evaluations >= 1.
std::optional<FoundOrder> search_order(const TaskProblem& problem,
                                       const OrderSearchOptions& options);

}  // namespace dapple::schedule_search
