// What will happen when. Equal times are served in the order in which they were announced.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple {

struct Event {
  enum class Kind : std::int8_t {
    ComputationDone,    // subject: lane; detail: version
    ActivationArrived,  // subject: inbox; detail: micro-batch
    GradientArrived,    // subject: inbox; detail: micro-batch
    FlowEnded,          // subject: flow; detail: version
    AllReduceDone,      // subject: stage; detail: bucket
  };
  Ticks time;
  std::int64_t order = 0;
  Kind kind = Kind::ComputationDone;
  std::int32_t subject = 0;
  std::int32_t detail = 0;
};

class EventQueue {
 public:
  void announce(Ticks time, Event::Kind kind, std::int32_t subject, std::int32_t detail) {
    events_.push({time, next_order_++, kind, subject, detail});
  }
  bool empty() const { return events_.empty(); }
  const Event& next() const { return events_.top(); }
  void pop() { events_.pop(); }

 private:
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.time != b.time ? a.time > b.time : a.order > b.order;
    }
  };
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::int64_t next_order_ = 0;
};

}  // namespace dapple
