#include "dapple/schedule_search/tasks/task_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "schedule_search/tasks/task_graph.h"

namespace dapple::schedule_search {
namespace {

constexpr std::int64_t kMaxTasks = std::int64_t{1} << 27;
constexpr Wide kMaxSum = Wide{1} << 61;  // the sum of two such values fits 63 bits

class FaultList {
 public:
  void expect(bool holds, std::string place, std::string message) {
    if (!holds) faults_.push_back({std::move(place), std::move(message)});
  }
  std::vector<Violation> take() && { return std::move(faults_); }

 private:
  std::vector<Violation> faults_;
};

void check_times(const TaskStage& stage, const std::string& place, FaultList& faults) {
  const std::pair<const char*, Duration> times[] = {{"forward", stage.forward},
                                                    {"backward", stage.backward},
                                                    {"weight_gradient", stage.weight_gradient},
                                                    {"send_forward", stage.send_forward},
                                                    {"send_backward", stage.send_backward}};
  for (const auto& [name, time] : times) {
    faults.expect(time.ns >= 0 && time.ns <= kMaxCount, place + "/" + name,
                  fmt::format("expected a time from 0 to {} ns, got {}", kMaxCount, time.ns));
  }
}

void check_changes(const TaskStage& stage, const std::string& place, FaultList& faults) {
  struct Change {
    const char* name;
    std::int64_t value;
    std::int64_t least;
    std::int64_t most;
  };
  const Change changes[] = {
      {"forward_memory", stage.forward_memory.count, 0, kMaxCount},
      {"backward_memory", stage.backward_memory.count, -kMaxCount, kMaxCount},
      {"weight_gradient_memory", stage.weight_gradient_memory.count, -kMaxCount, 0}};
  for (const Change& change : changes) {
    faults.expect(change.value >= change.least && change.value <= change.most,
                  place + "/" + change.name,
                  fmt::format("expected a change from {} to {}, got {}", change.least, change.most,
                              change.value));
  }
  const Bytes left = stage.forward_memory + stage.backward_memory + stage.weight_gradient_memory;
  faults.expect(
      left.count == 0, place,
      fmt::format("expected a micro-batch to give back what it takes, it leaves {}", left.count));
}

void check_stage(const TaskProblem& problem, std::size_t s, FaultList& faults) {
  const TaskStage& stage = problem.stages[s];
  const std::string place = fmt::format("/stages/{}", s);
  check_times(stage, place, faults);
  check_changes(stage, place, faults);
  faults.expect(stage.most_in_flight >= 1, place + "/most_in_flight",
                fmt::format("expected at least 1, got {}", stage.most_in_flight));
  faults.expect(problem.split_backward ||
                    (stage.weight_gradient.ns == 0 && stage.weight_gradient_memory.count == 0),
                place + "/weight_gradient", "expected none, the backward is not split");
  faults.expect(stage.device.value >= 0 && stage.device.position() < problem.memory_limits.size(),
                place + "/device",
                fmt::format("expected one of {} devices, got {}", problem.memory_limits.size(),
                            stage.device.value));
}

void check_holding(const TaskProblem& problem, std::size_t number, FaultList& faults) {
  const HoldingLimit& limit = problem.holding_limits[number];
  const std::string place = fmt::format("/holding_limits/{}", number);
  faults.expect(limit.room.count >= -kMaxSum && limit.room.count <= kMaxSum, place + "/room",
                fmt::format("expected at most 2^61 in size, got {}", limit.room.count));
  faults.expect(!limit.stages.empty(), place + "/stages", "expected at least one");
  for (const StageHolding& holding : limit.stages) {
    const bool is_there = holding.stage.value >= 0 &&
                          holding.stage.position() < problem.stages.size() &&
                          problem.stages[holding.stage.position()].device == limit.device;
    faults.expect(is_there, place + "/stages", "expected stages of the device");
    for (const Bytes size :
         {holding.by_forward, holding.by_backward, holding.before, holding.behind}) {
      faults.expect(size.count >= 0 && size.count <= kMaxCount, place + "/stages",
                    fmt::format("expected sizes from 0 to {}, got {}", kMaxCount, size.count));
    }
  }
}

void check_ends(const TaskProblem& problem, FaultList& faults) {
  const std::size_t devices = problem.memory_limits.size();
  faults.expect(problem.after_last.empty() || problem.after_last.size() == devices, "/after_last",
                fmt::format("expected a time of each of {} devices, or none, got {}", devices,
                            problem.after_last.size()));
  for (const Duration time : problem.after_last) {
    faults.expect(time.ns >= 0 && time.ns <= kMaxCount, "/after_last",
                  fmt::format("expected a time from 0 to {} ns, got {}", kMaxCount, time.ns));
  }
}

void check_sums(const TaskProblem& problem, FaultList& faults) {
  const auto tasks = static_cast<Wide>(problem.stages.size()) * 3 * problem.num_micro_batches;
  faults.expect(tasks <= kMaxTasks, "", fmt::format("expected at most {} tasks", kMaxTasks));
  Wide time = 0;
  Wide memory = 0;
  for (const TaskStage& stage : problem.stages) {
    time += Wide{stage.forward.ns} + stage.backward.ns + stage.weight_gradient.ns +
            stage.send_forward.ns + stage.send_backward.ns;
    memory +=
        Wide{stage.forward_memory.count} + std::max<std::int64_t>(stage.backward_memory.count, 0);
  }
  faults.expect(time * problem.num_micro_batches <= kMaxSum, "",
                "expected a sum of all times "
                "below 2^61 ns");
  faults.expect(memory * problem.num_micro_batches <= kMaxSum, "",
                "expected a sum of all memory "
                "below 2^61");
}

}  // namespace

std::string to_text(Task task, bool with_stage) {
  constexpr char kLetters[] = {'F', 'B', 'W'};
  const char letter = kLetters[static_cast<std::size_t>(task.kind)];
  return with_stage ? fmt::format("{}{}{}", task.stage.value, letter, task.micro_batch)
                    : fmt::format("{}{}", letter, task.micro_batch);
}

std::vector<Violation> validate(const TaskProblem& problem) {
  FaultList faults;
  faults.expect(!problem.stages.empty(), "/stages", "expected at least one stage");
  faults.expect(problem.num_micro_batches >= 1, "/num_micro_batches",
                fmt::format("expected at least 1, got {}", problem.num_micro_batches));
  for (std::size_t d = 0; d < problem.memory_limits.size(); ++d) {
    const std::int64_t limit = problem.memory_limits[d].count;
    faults.expect(limit >= 0 && limit <= kMaxSum, fmt::format("/memory_limits/{}", d),
                  fmt::format("expected 0 to 2^61, got {}", limit));
    const bool is_used = std::any_of(
        problem.stages.begin(), problem.stages.end(),
        [d](const TaskStage& stage) { return stage.device == index_at<DeviceIndex>(d); });
    faults.expect(is_used, fmt::format("/memory_limits/{}", d), "expected a stage on the device");
  }
  for (std::size_t s = 0; s < problem.stages.size(); ++s) check_stage(problem, s, faults);
  for (std::size_t i = 0; i < problem.holding_limits.size(); ++i) {
    check_holding(problem, i, faults);
  }
  check_ends(problem, faults);
  check_sums(problem, faults);
  return std::move(faults).take();
}

std::vector<Bytes> least_memory(const TaskProblem& problem) {
  std::vector<Bytes> held(problem.memory_limits.size());
  for (const TaskStage& stage : problem.stages) {
    held[stage.device.position()] += stage.forward_memory;
  }
  std::vector<Bytes> least = held;
  for (std::size_t s = problem.stages.size(); s-- > 0;) {
    const TaskStage& stage = problem.stages[s];
    const std::size_t device = stage.device.position();
    least[device] = std::max(least[device], held[device] + stage.backward_memory);
    held[device] -= stage.forward_memory;
  }
  return least;
}

bool has_order(const TaskProblem& problem) {
  const std::vector<Bytes> least = least_memory(problem);
  for (std::size_t d = 0; d < least.size(); ++d) {
    if (least[d] > problem.memory_limits[d]) return false;
  }
  return std::all_of(
      problem.holding_limits.begin(), problem.holding_limits.end(), [](const HoldingLimit& limit) {
        Wide forwards = 0;
        Wide most = 0;
        for (const StageHolding& holding : limit.stages) forwards += holding.by_forward.count;
        // Backwards run from the last stage to the first; each releases what its stage holds.
        for (auto holding = limit.stages.rbegin(); holding != limit.stages.rend(); ++holding) {
          most = std::max(most, forwards + holding->by_backward.count);
          forwards -= holding->by_forward.count;
        }
        return most <= limit.room.count;
      });
}

OrderTimes run_order(const TaskProblem& problem, const TaskOrder& order) {
  const TaskGraph graph(problem);
  std::vector<std::int64_t> ends(graph.task_count(), kNotRun);
  OrderTimes times;
  times.starts.resize(order.size());
  std::vector<std::int64_t> free_from(order.size(), 0);
  std::vector<std::size_t> awake;
  for (std::size_t d = 0; d < order.size(); ++d) awake.push_back(d);
  while (!awake.empty()) {
    const std::size_t d = awake.back();
    awake.pop_back();
    std::vector<Duration>& starts = times.starts[d];
    while (starts.size() < order[d].size()) {
      const std::int32_t id = graph.id_of(order[d][starts.size()]);
      const std::int64_t ready = graph.ready_time(id, ends);
      if (ready == kNotRun) break;
      const std::int64_t start = std::max(free_from[d], ready);
      starts.push_back({start});
      free_from[d] = ends[at(id)] = start + graph.kind_of(id).duration;
      const std::int32_t next = graph.kind_of(id).successor;
      if (next >= 0) awake.push_back(at(graph.kinds()[at(next)].device));
    }
  }
  std::int64_t first = kNever;
  std::int64_t last = 0;
  for (std::size_t d = 0; d < order.size(); ++d) {
    const std::size_t done = times.starts[d].size();
    if (done < order[d].size()) times.waiting.push_back(order[d][done]);
    if (done == 0) continue;
    const std::int64_t begin = times.starts[d].front().ns;
    const std::int64_t end = free_from[d] + graph.after_last(static_cast<std::int32_t>(d));
    times.span = std::max(times.span, Duration{end - begin});
    first = std::min(first, begin);
    last = std::max(last, end);
  }
  if (first != kNever) times.makespan = {last - first};
  return times;
}

}  // namespace dapple::schedule_search
