#include "schedule_search/tasks/heads_and_tails.h"

#include <algorithm>

namespace dapple::schedule_search {
namespace {

class HeadAndTailMaker {
 public:
  HeadAndTailMaker(const TaskGraph& graph, const std::vector<MemoryNeeds>& needs, std::int32_t of,
                   std::int64_t goal)
      : graph_(graph),
        needs_(needs),
        of_(of),
        first_(of < 0 ? 0 : graph.stages_of(of).front()),
        goal_(goal) {
    result_.heads.assign(graph.task_count(), 0);
    result_.tails.assign(graph.task_count(), -kNever);
  }

  HeadsAndTails make() && {
    for (std::int32_t n = 0; n < micro_batches(); ++n) {
      for (std::int32_t s = first_; s < graph_.stage_count(); ++s) head_of_forward(s, n);
      for (std::int32_t s = graph_.stage_count(); s-- > first_;) head_of_backward(s, n);
    }
    for (std::int32_t n = micro_batches(); n-- > 0;) {
      for (std::int32_t s = first_; s < graph_.stage_count(); ++s) tail_of_backward(s, n);
      for (std::int32_t s = graph_.stage_count(); s-- > first_;) tail_of_forward(s, n);
    }
    return std::move(result_);
  }

 private:
  std::int32_t micro_batches() const { return graph_.micro_batches(); }
  std::int64_t time(Symbol symbol) const { return graph_.kinds()[at(symbol)].duration; }
  std::int64_t weight_time(std::int32_t s) const {
    return graph_.is_split() ? time(graph_.weight(s)) : 0;
  }
  std::int64_t& head(Symbol symbol, std::int32_t n) {
    return result_.heads[at(symbol * micro_batches() + n)];
  }
  std::int64_t& tail(Symbol symbol, std::int32_t n) {
    return result_.tails[at(symbol * micro_batches() + n)];
  }

  /// Returns the minimum time from the end of the device's last task to the end that counts;
  /// -kNever for a device whose end does not count.
  std::int64_t after_last(std::int32_t device) const {
    return of_ < 0 || of_ == device ? graph_.after_last(device) : -kNever;
  }

  void head_of_forward(std::int32_t s, std::int32_t n);
  std::int64_t head_with_memory(std::int32_t s, std::int32_t n);
  std::int64_t first_backward_from(std::int32_t s, std::int64_t from);
  void head_of_backward(std::int32_t s, std::int32_t n);
  void tail_of_weight(std::int32_t s, std::int32_t n);
  void tail_of_backward(std::int32_t s, std::int32_t n);
  void tail_of_forward(std::int32_t s, std::int32_t n);

  const TaskGraph& graph_;
  const std::vector<MemoryNeeds>& needs_;
  std::int32_t of_;
  std::int32_t first_;
  std::int64_t goal_;
  HeadsAndTails result_;
};

/// Returns the earliest time at which memory allows forward `n`, over all numbers of backwards (and
/// the weight gradients that are then needed) that may precede it.
std::int64_t HeadAndTailMaker::head_with_memory(std::int32_t s, std::int32_t n) {
  const Symbol forward = graph_.forward(s);
  const Symbol backward = graph_.backward(s);
  const std::int64_t first = head(forward, 0) + n * time(forward);
  std::int64_t best = kNever;
  const std::int32_t least = std::max(0, n + 1 - needs_[at(s)].most_in_flight);
  for (std::int32_t backwards = least; backwards <= n; ++backwards) {
    std::int64_t from = first + backwards * time(backward);
    if (backwards > 0) from = std::max(from, head(backward, backwards - 1) + time(backward));
    if (from >= best) break;
    const std::int32_t weights = weights_needed(graph_, s, n, backwards);
    if (weights > backwards) continue;
    if (weights > 0) {
      from = std::max({from, head(graph_.weight(s), weights - 1) + weight_time(s),
                       first + backwards * time(backward) + weights * weight_time(s)});
    }
    best = std::min(best, from);
    if (weights == 0) break;
  }
  return best;
}

void HeadAndTailMaker::head_of_forward(std::int32_t s, std::int32_t n) {
  const Symbol forward = graph_.forward(s);
  const TaskSymbol& kind = graph_.kinds()[at(forward)];
  std::int64_t from = s == first_ ? 0 : head(forward - 1, n) + time(forward - 1) + kind.lag;
  if (n > 0) {
    from = std::max({from, head(forward, n - 1) + kind.duration, head_with_memory(s, n)});
  }
  head(forward, n) = from;
}

/// Returns the earliest start of a stage's first backward, whose input arrives at `from`. Before it
/// the device runs whole forwards and otherwise waits, no longer than the goal allows. If it would
/// have to wait longer, it runs one more forward.
std::int64_t HeadAndTailMaker::first_backward_from(std::int32_t s, std::int64_t from) {
  const std::int32_t device = graph_.kinds()[at(graph_.forward(s))].device;
  const std::vector<std::int32_t>& stages = graph_.stages_of(device);
  const std::int64_t length = time(graph_.forward(s));
  if (stages.size() > 1 || length == 0) return from;
  const std::int64_t waits_at_most = goal_ - graph_.offset(device) - graph_.work(device);
  const std::int64_t start = head(graph_.forward(s), 0);
  const std::int64_t forwards =
      std::min<std::int64_t>((from - start) / length, needs_[at(s)].most_in_flight);
  if (from - start - forwards * length <= waits_at_most) return from;
  if (forwards == needs_[at(s)].most_in_flight) return kNever;
  return start + (forwards + 1) * length;
}

void HeadAndTailMaker::head_of_backward(std::int32_t s, std::int32_t n) {
  const Symbol backward = graph_.backward(s);
  const Symbol forward = graph_.forward(s);
  const TaskSymbol& kind = graph_.kinds()[at(backward)];
  std::int64_t from = head(kind.predecessor, n) + time(kind.predecessor) + kind.lag;
  from = std::max({from, head(forward, n) + time(forward),
                   head(forward, 0) + (n + 1) * time(forward) + n * kind.duration});
  from =
      n > 0 ? std::max(from, head(backward, n - 1) + kind.duration) : first_backward_from(s, from);
  head(backward, n) = std::min(from, kNever);
  if (!graph_.is_split()) return;
  const Symbol weight = graph_.weight(s);
  head(weight, n) = from + kind.duration;
  if (n > 0) head(weight, n) = std::max(head(weight, n), head(weight, n - 1) + time(weight));
}

void HeadAndTailMaker::tail_of_weight(std::int32_t s, std::int32_t n) {
  const Symbol weight = graph_.weight(s);
  std::int64_t& after = tail(weight, n);
  const std::int64_t end = after_last(graph_.kinds()[at(weight)].device);
  if (end >= 0) after = (micro_batches() - 1 - n) * time(weight) + end;
  const std::vector<std::int32_t>& before = needs_[at(s)].weights_before;
  const auto waiting = std::upper_bound(before.begin(), before.end(), n);
  if (waiting == before.end()) return;
  const auto forward_waiting = static_cast<std::int32_t>(waiting - before.begin());
  after = std::max(after, time(graph_.forward(s)) + tail(graph_.forward(s), forward_waiting));
}

void HeadAndTailMaker::tail_of_backward(std::int32_t s, std::int32_t n) {
  const Symbol backward = graph_.backward(s);
  const Symbol forward = graph_.forward(s);
  const std::int64_t duration = time(backward);
  const std::int32_t left = micro_batches() - 1 - n;
  std::int64_t after = after_last(graph_.kinds()[at(backward)].device);
  if (graph_.is_split()) {
    tail_of_weight(s, n);
    after = std::max(after, weight_time(s) + tail(graph_.weight(s), n));
  }
  if (s > first_) {
    const std::int64_t lag = graph_.kinds()[at(backward - 1)].lag;
    after = std::max(after, lag + time(backward - 1) + tail(backward - 1, n));
  }
  if (left > 0) {
    const std::int32_t forwards = std::max(0, micro_batches() - n - needs_[at(s)].most_in_flight);
    after = std::max(
        {after, duration + tail(backward, n + 1),
         left * duration + forwards * time(forward) + tail(backward, micro_batches() - 1)});
    if (forwards > 0) {
      after = std::max(after, time(forward) + tail(forward, micro_batches() - forwards));
    }
  }
  tail(backward, n) = after;
}

void HeadAndTailMaker::tail_of_forward(std::int32_t s, std::int32_t n) {
  const Symbol forward = graph_.forward(s);
  const Symbol backward = graph_.backward(s);
  const std::int32_t left = micro_batches() - 1 - n;
  std::int64_t after = time(backward) + tail(backward, n);
  after = std::max(after, left * time(forward) + (left + 1) * time(backward) +
                              tail(backward, micro_batches() - 1));
  if (s + 1 < graph_.stage_count()) {
    const std::int64_t lag = graph_.kinds()[at(forward + 1)].lag;
    after = std::max(after, lag + time(forward + 1) + tail(forward + 1, n));
  }
  if (left > 0) after = std::max(after, time(forward) + tail(forward, n + 1));
  tail(forward, n) = after;
}

}  // namespace

std::int32_t weights_needed(const TaskGraph& graph, std::int32_t stage, std::int32_t n,
                            std::int32_t backwards) {
  const TaskSymbol& forward = graph.kinds()[at(graph.forward(stage))];
  const std::int64_t held =
      (n + 1) * forward.memory + backwards * graph.kinds()[at(graph.backward(stage))].memory;
  const std::int64_t missing = held - graph.limit(forward.device);
  if (missing <= 0) return 0;
  const std::int64_t release =
      graph.is_split() ? -graph.kinds()[at(graph.weight(stage))].memory : 0;
  if (release == 0) return backwards + 1;
  return static_cast<std::int32_t>(
      std::min<std::int64_t>((missing + release - 1) / release, backwards + 1));
}

std::vector<MemoryNeeds> memory_needs(const TaskGraph& graph) {
  std::vector<MemoryNeeds> needs(at(graph.stage_count()));
  for (std::int32_t d = 0; d < graph.device_count(); ++d) {
    // The memory that a micro-batch in flight on the stage needs there and on earlier stages.
    std::int64_t held = 0;
    for (const std::int32_t s : graph.stages_of(d)) {
      held += graph.kinds()[at(graph.forward(s))].memory;
      MemoryNeeds& need = needs[at(s)];
      const std::int64_t slots = held == 0 ? graph.micro_batches() : graph.limit(d) / held;
      need.most_in_flight =
          static_cast<std::int32_t>(std::clamp<std::int64_t>(slots, 1, graph.cap(s)));
      need.weights_before.assign(at(graph.micro_batches()), 0);
      if (!graph.is_split() || graph.kinds()[at(graph.weight(s))].memory == 0) continue;
      // A backward that takes memory releases none before its weight gradient, so as many of both
      // are needed. Otherwise memory is largest if all backwards before the forward have run.
      const bool takes = graph.kinds()[at(graph.backward(s))].memory > 0;
      for (std::int32_t n = 0; n < graph.micro_batches(); ++n) {
        need.weights_before[at(n)] =
            takes ? std::max(0, n + 1 - need.most_in_flight) : weights_needed(graph, s, n, n);
      }
    }
  }
  return needs;
}

HeadsAndTails heads_and_tails(const TaskGraph& graph, const std::vector<MemoryNeeds>& needs,
                              std::int32_t of, std::int64_t goal) {
  return HeadAndTailMaker(graph, needs, of, goal).make();
}

}  // namespace dapple::schedule_search
