// What a problem's limits on holdings ask of an order, quick to ask for many orders.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule_search/tasks/task_graph.h"

namespace dapple::schedule_search {

/// What an order holds at most at a time.
struct Holdings {
  std::vector<std::int32_t> in_flight;  // micro-batches, by stage
  std::vector<std::int64_t> memory;     // by device, in the unit of its memory limit
  std::vector<std::int64_t> peaks;      // of the tasks alone, by limit
};

class HoldingRules {
 public:
  /// Limits that no order within the memory limits can exceed are left out, and of equal ones all
  /// but one. O(stages + limits * (limits + M)).
  HoldingRules(const TaskProblem& problem, const TaskGraph& graph);

  bool may_bind() const { return !limits_.empty() || has_caps_; }

  /// What the order holds; or what one device does, its tasks as symbols in their order.
  /// O(tasks * limits per device).
  Holdings holdings_of(const Words& words) const;
  void count(std::int32_t device, const std::vector<Symbol>& word, Holdings& holdings) const;

  /// By how much the holdings exceed all limits together, or the worst of one device; a micro-batch
  /// more in flight than a stage may have is worth more than any memory.
  /// O(stages + limits * stages per device).
  std::int64_t excess(const Holdings& holdings) const;
  std::int64_t excess(const Holdings& holdings, std::int32_t device) const;

  /// Whether so many micro-batches in flight on each stage have room, with what waits then: each
  /// device has one stage, and at most one backward holds more than its micro-batch's forward.
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
  bool has_caps_ = false;  // that memory does not keep to by itself
  std::vector<Limit> limits_;
};

/// Numbers in flight, by stage, to search within, where each device has one stage and holdings may
/// be short of room: numbers that have room together, as large as can be; all such for few stages
/// and micro-batches, some for many. O(2^12 * stages) for few, else O(stages * M * limits).
std::vector<std::vector<std::int32_t>> cap_sets(const TaskGraph& graph, const HoldingRules& rules);

}  // namespace dapple::schedule_search
