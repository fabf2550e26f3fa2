// Searches for orders that depend on costs and memory: zero-bubble schedules, and 1F1B
// list-scheduled from the costs with at most K micro-batches in flight; with a lower bound.
//
// Sources: Zero Bubble Pipeline Parallelism (ICLR'24): greedy construction under a memory limit,
// with weight gradients (W) in the bubbles. Giffler and Thompson (1960): list scheduling in the
// order of starts. Van Laarhoven et al. (1992), Nowicki and Smutnicki (1996): moves on the critical
// path of a job shop. Jackson (1955), Carlier (1982): one machine with heads and tails.
//
// Departures: 1. a device's list rule consists of a few parameters, which are themselves searched;
// 2. tasks move any distance along a device's order, not only past a neighbour, because a weight
// gradient may have to move far; 3. nothing is solved as an integer program.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "dapple/core/quantity.h"
#include "dapple/schedule_search/tasks/task_order.h"

namespace dapple::schedule_search {

/// Returns a lower bound on the objective of every order of the problem that obeys its rules. The
/// bound is the largest, over all devices, of the time that one machine needs for the device's
/// tasks if each has a head (it starts no earlier than this after the first start) and a tail (the
/// last end is no earlier than this after the task's end), with preemption by Jackson's rule. Each
/// head and tail is the length of a chain of tasks that must run in every order. K(s) is the
/// maximum number of micro-batches that memory allows to be in flight on stage s; a micro-batch in
/// flight there is also in flight on all earlier stages of its device.
///
///   forward n     comes after forward n of the preceding stage; after n forwards; because of
///                 memory, after some number j > n - K(s) of backwards and the weight gradients
///                 that are then needed, with all their work, for the j that allows the earliest
///                 start
///   backward n    comes after backward n of the following stage; after n + 1 forwards and n
///                 backwards
///   W n           comes after backward n
///   tails         are the same, read from the end: forward n is followed by its round trip, and by
///                 the remaining forwards and backwards of each stage that it passes; backward n by
///                 forward n + K(s), which waits for its memory; W n by the first forward that has
///                 no memory without it
///   B0            on a device with one stage, comes after whole forwards only, and the device is
///                 idle for no longer than the objective less its work. If waiting for B0 would
///                 take longer, the device must run one more forward, which delays all earlier
///                 stages. Goals, which are possible objectives, are refuted in this way; the
///                 bound is the least goal that is not refuted.
///
/// For the span, heads count from the device's own first start and tails to its own last end,
/// independently of earlier stages, so the bound also holds if first starts are delayed. For the
/// makespan they count from the first start to the last end of all devices.
///
/// O(stages^2 * M + tasks * log tasks), about thirty times if goals are refuted.
/// Requires: validate(problem) is empty.
Duration lower_bound(const TaskProblem& problem);

/// Returns the actual length of an order if it may exceed the problem's objective because of shared
/// links or reductions that run beside computation. Never below the problem's own objective.
using OrderSimulation = std::function<Duration(const TaskOrder&)>;

struct OrderSearchOptions {
  /// The maximum number of orders that are built or run, whole or in part; a simulation counts as
  /// several. If a simpler problem is searched first, each of its searches may take as many again.
  std::int64_t evaluations = 20'000;
  /// The seed of the search; the same seed gives the same result.
  std::uint64_t seed = 1;
  /// Called between evaluations; the search stops if it returns true. Empty: never.
  std::function<bool()> should_stop = nullptr;
  /// Orders of the problem's tasks to start from. An order that deadlocks or does not fit is
  /// ignored; none of the others is better than the order found.
  std::vector<TaskOrder> known = {};
  /// The simulation whose result is to be minimized; empty: the problem's objective is minimized.
  OrderSimulation simulate = nullptr;
};

struct OrderSearchWork {
  /// The number of orders built from rules.
  std::int64_t list_schedules = 0;
  /// The number of changed orders that were run, whole or in part.
  std::int64_t moves = 0;
  /// The number of times that the best order was replaced.
  std::int64_t improvements = 0;
  std::int64_t simulations = 0;

  std::int64_t orders() const { return list_schedules + moves; }
  OrderSearchWork& operator+=(const OrderSearchWork& more);
  friend bool operator==(const OrderSearchWork&, const OrderSearchWork&) = default;
};

struct FoundOrder {
  TaskOrder order;
  OrderTimes times;
  /// The problem's objective.
  Duration objective;
  /// The simulated length, if OrderSearchOptions::simulate was given.
  std::optional<Duration> simulated;
  /// A lower bound on the objective. If it equals the objective, or the simulated length if there
  /// is one, the order is proven optimal.
  Duration lower_bound;
  /// The work of the search, searches of simpler problems included.
  OrderSearchWork work;
};
/// Returns the best order found, or nothing if no order exists (has_order()). The search evaluates
/// the known orders and list schedules by many rules, then changes rules and orders at random and
/// keeps improvements, until the bound is reached, the evaluations are used up or should_stop
/// returns true. If boundary buffers may exceed the memory, the search is repeated within several
/// limits on the numbers in flight, and an order that lacks less memory is preferred to a faster
/// one that lacks more. If orders are to be simulated, the best order by the problem's objective
/// is simulated, and orders are varied from there as long as the two values differ. With the same
/// seed, more evaluations never give a worse result if nothing is simulated and no boundary buffers
/// are limited; more memory usually does not.
/// Requires: validate(problem) is empty, options.evaluations >= 1.
std::optional<FoundOrder> search_order(const TaskProblem& problem,
                                       const OrderSearchOptions& options);

}  // namespace dapple::schedule_search
