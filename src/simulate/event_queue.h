// The event queue of the simulator. Events at equal times are processed in the order in which they
// were announced.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple::simulate {

struct Event {
  enum class Kind : std::int8_t {
    ForecastDue,        // subject: lane, whose computation ends or has a milestone; detail: version
    ActivationArrived,  // subject: inbox; detail: micro-batch
    GradientArrived,    // subject: inbox; detail: micro-batch
    FlowEnded,          // subject: flow; detail: version
    AllReduceDone,      // subject: reducer; detail: bucket
    CollectivesDone,    // subject: lane, of whose current piece some collectives end
    InputReady,         // subject: lane, which may continue
  };
  Ticks time;
  std::int64_t order = 0;
  Kind kind = Kind::ForecastDue;
  std::int32_t subject = 0;
  std::int32_t detail = 0;
};

/// A heap with four children per node. The place of a popped event at the front is reused for the
/// next announced event, which usually follows from it.
class EventQueue {
 public:
  void announce(Ticks time, Event::Kind kind, std::int32_t subject, std::int32_t detail) {
    const Event event{time, next_order_++, kind, subject, detail};
    if (front_is_free_) {
      front_is_free_ = false;
      sink(event);
      return;
    }
    events_.push_back(event);
    rise(events_.size() - 1, event);
  }
  bool empty() const { return events_.size() == (front_is_free_ ? 1U : 0U); }
  /// Requires: not empty().
  const Event& next() {
    if (front_is_free_) close_front();
    return events_.front();
  }
  /// Requires: next() has been called since the last pop().
  void pop() { front_is_free_ = true; }

 private:
  static constexpr std::size_t kChildren = 4;

  static bool is_earlier(const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.order < b.order;
  }

  void close_front() {
    front_is_free_ = false;
    const Event last = events_.back();
    events_.pop_back();
    if (!events_.empty()) sink(last);
  }

  /// Moves an event from `place` towards the front.
  void rise(std::size_t place, const Event& event) {
    while (place > 0) {
      const std::size_t parent = (place - 1) / kChildren;
      if (!is_earlier(event, events_[parent])) break;
      events_[place] = events_[parent];
      place = parent;
    }
    events_[place] = event;
  }

  /// Moves an event from the front towards the leaves.
  void sink(const Event& event) {
    std::size_t place = 0;
    while (true) {
      const std::size_t first = place * kChildren + 1;
      if (first >= events_.size()) break;
      const std::size_t end = std::min(first + kChildren, events_.size());
      std::size_t earliest = first;
      for (std::size_t child = first + 1; child < end; ++child) {
        if (is_earlier(events_[child], events_[earliest])) earliest = child;
      }
      if (!is_earlier(events_[earliest], event)) break;
      events_[place] = events_[earliest];
      place = earliest;
    }
    events_[place] = event;
  }

  std::vector<Event> events_;
  std::int64_t next_order_ = 0;
  bool front_is_free_ = false;
};

}  // namespace dapple::simulate
