#include "search/decision_diagram/relaxed_tree.h"

#include <algorithm>
#include <thread>

namespace dapple::search {
namespace {

/// Up to so many walks run at a time: each starts at the least bound that was found by all walks
/// but the last few before it. If it had to wait for those, no two could run at the same time; if
/// it took whatever has been found when it starts, its work would depend on the threads. With 16,
/// two threads wait less for each other, but the later bounds cost half as much again in a problem
/// of 1,832 layers on 10,240 devices.
constexpr std::size_t kWalksAtATime = 4;

}  // namespace

RelaxedTree::RelaxedTree(const CostModel& costs, ClassStages& stages,
                         const PrefixCompletions& completions, const SearchProblem& problem,
                         Duration threshold, Allowance& allowance)
    : shared_{.costs = costs,
              .completions = completions,
              .problem = problem,
              .stages = stages,
              .allowance = allowance},
      least_{threshold} {}

Duration RelaxedTree::search(IdleThreads& idle) {
  begun_ = PathWalk(shared_).begin(least_.front());
  found_.resize(begun_.size());
  run(idle);
  if (failure_) std::rethrow_exception(failure_);
  Allowance& allowance = shared_.allowance;
  // How much of it each walk spent before it ended depends on the threads.
  if (allowance.is_over() && !allowance.is_stopped()) allowance.use_up();
  return least_.back();
}

/// Goes through the paths of one beginning after another, and has a helper do the same on each
/// thread that is idle.
void RelaxedTree::run(IdleThreads& idle) {
  std::vector<std::jthread> helpers;
  try {
    PathWalk walk(shared_);
    while (const std::optional<Task> task = next_task()) {
      if (task->are_more && idle.take()) {
        helpers.emplace_back([&] {
          run(idle);
          idle.give();
        });
      }
      end(task->number, walk.go_through(begun_[task->number], task->threshold));
    }
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    failure_ = std::current_exception();
    has_ended_.notify_all();
  }
}

/// Returns the next beginning, once all walks have ended on which its threshold depends.
std::optional<RelaxedTree::Task> RelaxedTree::next_task() {
  std::unique_lock lock(mutex_);
  if (next_ == begun_.size() || failure_) return std::nullopt;
  const std::size_t number = next_++;
  const std::size_t ended = number < kWalksAtATime ? 0 : number - kWalksAtATime + 1;
  has_ended_.wait(lock, [&] { return least_.size() > ended || failure_; });
  if (failure_) return std::nullopt;
  return Task{.number = number, .threshold = least_[ended], .are_more = next_ < begun_.size()};
}

void RelaxedTree::end(std::size_t number, Duration found) {
  const std::scoped_lock lock(mutex_);
  found_[number] = found;
  for (std::size_t i = least_.size() - 1; i < found_.size() && found_[i]; ++i) {
    least_.push_back(std::min(least_.back(), *found_[i]));
  }
  has_ended_.notify_all();
}

}  // namespace dapple::search
