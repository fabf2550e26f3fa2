// What a part of the planner may spend: counted work, and bytes that it keeps, by the sizes of its
// elements. Neither depends on the machine, the compiler or the number of threads, unlike time and
// what a process holds; so where an allowance ends a search, the plan is the same everywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "dapple/core/quantity.h"

namespace dapple::search {

/// Not to be shared between threads: each has its own part.
class Allowance {
 public:
  struct Limits {
    std::int64_t work = INT64_MAX;  // steps; each caller says what its steps are
    Bytes kept{INT64_MAX};
    std::function<bool()> should_stop = {};  // asked every kStepsBetweenQuestions steps
  };

  explicit Allowance(Limits limits) : limits_(std::move(limits)) {}

  /// Counts steps. Whether it may go on.
  bool spend(std::int64_t steps) {
    work_ += steps;
    if (work_ > limits_.work) is_over_ = true;
    if (work_ >= next_question_ && !is_over_) ask();
    return !is_over_;
  }

  /// Counts bytes that are kept from now on, or, below zero, no longer. Whether it may go on.
  bool keep(Bytes more) {
    kept_ += more;
    if (kept_ > limits_.kept) is_over_ = true;
    return !is_over_;
  }

  /// Whether it has ended, once and for all.
  bool is_over() const { return is_over_; }
  /// Whether it has ended because it was told to stop.
  bool is_stopped() const { return is_stopped_; }
  std::int64_t work() const { return work_; }
  Bytes kept() const { return kept_; }

 private:
  static constexpr std::int64_t kStepsBetweenQuestions = 20'000;

  void ask() {
    next_question_ = work_ + kStepsBetweenQuestions;
    is_stopped_ = limits_.should_stop && limits_.should_stop();
    is_over_ = is_over_ || is_stopped_;
  }

  Limits limits_;
  std::int64_t work_ = 0;
  std::int64_t next_question_ = 0;
  Bytes kept_;
  bool is_over_ = false;
  bool is_stopped_ = false;
};

}  // namespace dapple::search
