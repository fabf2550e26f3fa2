// The holding limits of a problem, in a form that is fast to evaluate for many orders.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule_search/tasks/task_graph.h"

namespace dapple::schedule_search {

/// The maximum memory and numbers in flight of an order.
struct Holdings {
  // By stage, the maximum number of micro-batches in flight.
  std::vector<std::int32_t> in_flight;
  // By device, the peak memory, in the unit of its memory limit.
  std::vector<std::int64_t> memory;
  // By limit, the peak of the tasks alone, without boundary buffers.
  std::vector<std::int64_t> peaks;
};

class HoldingRules {
 public:
  /// Leaves out limits that no order within the memory limits can exceed, and duplicates.
  /// O(stages + limits * (limits + M)).
  HoldingRules(const TaskProblem& problem, const TaskGraph& graph);

  bool may_bind() const { return !limits_.empty() || has_caps_; }

  /// holdings_of() returns the holdings of an order; count() updates those of one device, whose
  /// tasks are given as symbols in their order. O(tasks * limits per device).
  Holdings holdings_of(const Words& words) const;
  void count(std::int32_t device, const std::vector<Symbol>& word, Holdings& holdings) const;

  /// Returns by how much the holdings exceed all limits in total, or the limits of one device at
  /// most. In the total, a micro-batch in flight above the limit of its stage counts more than any
  /// memory. O(stages + limits * stages per device).
  std::int64_t excess(const Holdings& holdings) const;
  std::int64_t excess(const Holdings& holdings, std::int32_t device) const;

  /// Whether these numbers in flight of each stage fit, with the boundary buffers that result.
  /// Assumes that each device has one stage and that at most one backward at a time holds
  /// `by_backward`.
  bool have_room(const std::vector<std::int32_t>& in_flight) const;

 private:
  struct Part {
    std::int32_t stage = 0;
    std::int64_t by_forward = 0;
    std::int64_t by_backward = 0;
    std::int64_t before = 0;
    std::int64_t behind = 0;

    friend bool operator==(const Part&, const Part&) = default;
  };
  struct Limit {
    std::int32_t device = 0;
    std::int64_t room = 0;
    std::vector<Part> parts;

    friend bool operator==(const Limit&, const Limit&) = default;
  };
  bool may_bind(const Limit& limit) const;
  std::int64_t peak(const Limit& limit, const std::vector<Symbol>& word) const;
  std::int64_t missing(std::size_t limit, const Holdings& holdings) const;

  const TaskGraph& graph_;
  // Whether some limit on the number in flight is not implied by memory.
  bool has_caps_ = false;
  std::vector<Limit> limits_;
};

/// Returns numbers in flight by stage as limits for searches: maximal numbers that fit together,
/// all of them for few stages and micro-batches, otherwise some. Empty unless each device has one
/// stage and limits may bind. O(2^12 * stages) for few, else O(stages * M * limits).
std::vector<std::vector<std::int32_t>> cap_sets(const TaskGraph& graph, const HoldingRules& rules);

}  // namespace dapple::schedule_search
