// Orders that depend on costs and memory: zero-bubble schedules, and 1F1B list-scheduled from the
// costs with at most K in flight; with a lower bound.
//
// Sources: Zero Bubble Pipeline Parallelism (ICLR'24): greedy construction under a memory limit, W
// in the bubbles. Giffler and Thompson (1960): list scheduling in the order of starts. Van Laarhoven
// et al. (1992), Nowicki and Smutnicki (1996): moves on the critical path of a job shop. Jackson
// (1955), Carlier (1982): one machine with heads and tails.
//
// Departures: 1. a device's list rule is a handful of numbers, which are themselves searched;
// 2. whole tasks move along a device's order, not only neighbours, because a weight gradient may go
// far; 3. nothing is solved as an integer program.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "dapple/core/quantity.h"
#include "dapple/schedule_search/task_order.h"

namespace dapple {

/// No order of the problem, run as its rules say, has a lower objective. The largest, over all
/// devices, of what one machine needs for the device's tasks if each has a head (it starts no
/// earlier than so long after the first start) and a tail (the end of all is no earlier than so
/// long after its end), preempted or not. With c(s) and c'(s) the transfers, K(s) the most
/// micro-batches that memory lets be in flight on stage s, and first starts counted as zero:
///
///   forward n     after n forwards; after backward n - K(s), and after as many weight gradients as
///                 memory then asks for, for each of which its backward has ended
///   backward n    the round trip after forward n; after n + 1 forwards and n backwards of any
///                 stage behind, and the ways there and back
///   W n           after backward n
///   tails         the same read from the end: forward n has behind it its round trip, and all that
///                 is left on any stage behind; backward n the forward n + K(s) that waits for its
///                 memory
///
/// Proof of each: a chain of tasks that follow each other in every order. Heads and tails hold
/// for the span, from the device's own first start to its own last end, and for the makespan with
/// the way from the first stage and the way back to it added. One machine with heads and tails that
/// may preempt never takes longer than one that may not, and Jackson's rule is optimal for it.
/// Beside it, for the span and the makespan: memory times time. A micro-batch holds its forward's
/// memory during its round trip and what its weight gradient gives back during that; the sum fits
/// under the limit times the span, less what cannot be filled while the first forwards run.
///
/// O(stages^2 * M + tasks * log tasks). Requires: validate(problem) is empty.
Duration lower_bound(const TaskProblem& problem);

struct OrderSearchOptions {
  std::int64_t evaluations = 20'000;   // orders built or run, whole or in part, at most
  std::uint64_t seed = 1;              // the same seed, the same answer
  std::function<bool()> should_stop;   // asked between evaluations; nothing: never
};

struct OrderSearchWork {
  std::int64_t list_schedules = 0;  // orders built from rules
  std::int64_t moves = 0;           // changed orders run, whole or in part
  std::int64_t improvements = 0;    // times that the best order was replaced

  friend bool operator==(const OrderSearchWork&, const OrderSearchWork&) = default;
};

struct FoundOrder {
  TaskOrder order;
  OrderTimes times;
  Duration objective;    // of the problem's own kind
  Duration lower_bound;  // equal to the objective: proven to be the least
  OrderSearchWork work;
};

/// The best order found: list schedules by many rules, then rules and orders changed at random and
/// kept where they are better, until the bound is met or the work is used up. More evaluations with
/// the same seed are never worse. Nothing if some device has less than the least memory.
/// Requires: validate(problem) is empty, options.evaluations >= 1.
std::optional<FoundOrder> search_order(const TaskProblem& problem,
                                       const OrderSearchOptions& options);

}  // namespace dapple
