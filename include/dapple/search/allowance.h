// The budget of a part of the planner: counted steps of work, and bytes that are kept, counted by
// the sizes of the elements. Unlike running time and the memory of a process, neither depends on
// the machine, the compiler or the number of threads. A search that ends because its budget is
// spent therefore returns the same plan everywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "dapple/core/quantity.h"

namespace dapple::search {

/// A budget of work and kept bytes, and what has been spent of it. It must not be shared between
/// threads; each thread has an allowance of its own.
class Allowance {
 public:
  struct Limits {
    /// The most steps; each caller defines what it counts as a step.
    std::int64_t work = INT64_MAX;
    /// The most bytes that may be kept at one time.
    Bytes kept = Bytes::infinite();
    /// Ends the allowance by returning true. It is called every kStepsBetweenPolls steps and
    /// may be empty.
    std::function<bool()> should_stop = {};
  };

  explicit Allowance(Limits limits) : limits_(std::move(limits)) {}

  /// Counts steps. Returns whether the caller may go on.
  bool spend(std::int64_t steps) {
    work_ += steps;
    if (work_ > limits_.work) is_over_ = true;
    if (work_ >= next_poll_ && !is_over_) poll();
    return !is_over_;
  }

  /// Counts bytes that are kept from now on or, if negative, have been released. Returns whether
  /// the caller may go on.
  bool keep(Bytes more) {
    kept_ += more;
    if (kept_ > limits_.kept) is_over_ = true;
    return !is_over_;
  }

  /// Ends the allowance as if all of its steps were spent, and one more.
  void use_up() {
    work_ = limits_.work + 1;
    is_over_ = true;
  }

  /// Whether the allowance has ended. Once it has, it stays so.
  bool is_over() const { return is_over_; }
  /// Whether the allowance has ended because `should_stop` returned true.
  bool is_stopped() const { return is_stopped_; }
  std::int64_t work() const { return work_; }
  Bytes kept() const { return kept_; }

 private:
  static constexpr std::int64_t kStepsBetweenPolls = 20'000;

  void poll() {
    next_poll_ = work_ + kStepsBetweenPolls;
    is_stopped_ = limits_.should_stop && limits_.should_stop();
    is_over_ = is_over_ || is_stopped_;
  }

  Limits limits_;
  std::int64_t work_ = 0;
  std::int64_t next_poll_ = 0;
  Bytes kept_;
  bool is_over_ = false;
  bool is_stopped_ = false;
};

}  // namespace dapple::search
