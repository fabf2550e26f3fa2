#include "schedule_search/tasks/holding_rules.h"

#include <algorithm>

namespace dapple::schedule_search {
namespace {

/// The maximum number of combinations that are enumerated, and of sets that are returned.
constexpr std::int64_t kFewSets = 4096;
constexpr std::size_t kMostSets = 24;
/// The excess that one micro-batch in flight above a limit counts.
constexpr std::int64_t kOneTooMany = std::int64_t{1} << 52;

/// Returns, per stage, the maximum number in flight that memory and the problem allow, without
/// regard to other stages and boundary buffers.
std::vector<std::int32_t> most_in_flight(const TaskGraph& graph) {
  std::vector<std::int32_t> most;
  for (std::int32_t s = 0; s < graph.stage_count(); ++s) {
    const TaskSymbol& forward = graph.kinds()[at(graph.forward(s))];
    const std::int64_t held =
        forward.memory + std::min<std::int64_t>(
                             0, graph.is_split() ? graph.kinds()[at(graph.backward(s))].memory : 0);
    const std::int64_t slots =
        held <= 0 ? graph.micro_batches() : graph.limit(forward.device) / held;
    most.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(slots, 1, graph.cap(s))));
  }
  return most;
}

}  // namespace

HoldingRules::HoldingRules(const TaskProblem& problem, const TaskGraph& graph) : graph_(graph) {
  for (std::int32_t s = 0; s < graph.stage_count(); ++s) {
    const TaskSymbol& forward = graph.kinds()[at(graph.forward(s))];
    const Wide next = Wide{graph.cap(s) + 1} * forward.memory;
    const bool is_slot = graph.stages_of(forward.device).size() == 1 &&
                         graph.kinds()[at(graph.backward(s))].memory <= 0;
    const bool memory_keeps = is_slot && next > graph.limit(forward.device);
    if (graph.cap(s) < graph.micro_batches() && !memory_keeps) has_caps_ = true;
  }
  for (const HoldingLimit& given : problem.holding_limits) {
    Limit limit{.device = given.device.value, .room = given.room.count, .parts = {}};
    for (const StageHolding& holding : given.stages) {
      limit.parts.push_back({.stage = holding.stage.value,
                             .by_forward = holding.by_forward.count,
                             .by_backward = holding.by_backward.count,
                             .before = holding.before.count,
                             .behind = holding.behind.count});
    }
    const bool is_new = std::find(limits_.begin(), limits_.end(), limit) == limits_.end();
    if (is_new && may_bind(limit)) limits_.push_back(std::move(limit));
  }
}

/// Bounds the memory of the tasks plus that of the boundary buffers. One stage does not reach the
/// maxima of both at the same time.
bool HoldingRules::may_bind(const Limit& limit) const {
  const std::vector<std::int32_t> most = most_in_flight(graph_);
  Wide by_tasks = 0;
  Wide by_waiting = 0;
  // Whether the device's memory limit, in the same unit, counts all that this limit counts.
  bool memory_counts_all = true;
  for (const Part& part : limit.parts) {
    const std::int64_t here = most[at(part.stage)];
    const std::int64_t in_front = part.stage == 0 ? 0 : most[at(part.stage - 1)];
    const auto waiting = [&](std::int64_t held) {
      return Wide{part.before} * std::max<std::int64_t>(0, in_front - held) +
             Wide{part.behind} * (held - 1);
    };
    const Wide each = Wide{part.by_forward} + part.by_backward;
    if (limit.parts.size() == 1) {
      return std::max(each + waiting(1), here * each + waiting(here)) > limit.room;
    }
    by_tasks += here * each;
    by_waiting += std::max(waiting(1), waiting(here));
    const std::int64_t forward = graph_.kinds()[at(graph_.forward(part.stage))].memory;
    const std::int64_t backward = graph_.kinds()[at(graph_.backward(part.stage))].memory;
    memory_counts_all =
        memory_counts_all && part.by_forward <= forward && part.by_backward <= backward;
  }
  if (memory_counts_all) by_tasks = std::min(by_tasks, Wide{graph_.limit(limit.device)});
  return by_tasks + by_waiting > limit.room;
}

std::int64_t HoldingRules::peak(const Limit& limit, const std::vector<Symbol>& word) const {
  std::int64_t held = 0;
  std::int64_t most = 0;
  for (const Symbol symbol : word) {
    const TaskSymbol& kind = graph_.kinds()[at(symbol)];
    const auto part = std::find_if(limit.parts.begin(), limit.parts.end(),
                                   [&](const Part& some) { return some.stage == kind.stage; });
    if (part == limit.parts.end()) continue;
    if (kind.kind == TaskKind::Forward) held += part->by_forward;
    if (kind.kind == TaskKind::Backward) held += part->by_backward;
    most = std::max(most, held);
    if (graph_.ends_flight(kind.kind)) held -= part->by_forward + part->by_backward;
  }
  return most;
}

Holdings HoldingRules::holdings_of(const Words& words) const {
  Holdings holdings{.in_flight = std::vector<std::int32_t>(at(graph_.stage_count()), 0),
                    .memory = std::vector<std::int64_t>(words.size(), 0),
                    .peaks = std::vector<std::int64_t>(limits_.size(), 0)};
  for (std::int32_t d = 0; d < graph_.device_count(); ++d) count(d, words[at(d)], holdings);
  return holdings;
}

void HoldingRules::count(std::int32_t device, const std::vector<Symbol>& word,
                         Holdings& holdings) const {
  std::vector<std::int32_t> in_flight(at(graph_.stage_count()), 0);
  for (const std::int32_t stage : graph_.stages_of(device)) holdings.in_flight[at(stage)] = 0;
  std::int64_t held = 0;
  std::int64_t most = 0;
  for (const Symbol symbol : word) {
    const TaskSymbol& kind = graph_.kinds()[at(symbol)];
    held += kind.memory;
    most = std::max(most, held);
    std::int32_t& here = in_flight[at(kind.stage)];
    if (kind.kind == TaskKind::Forward) {
      std::int32_t& deepest = holdings.in_flight[at(kind.stage)];
      deepest = std::max(deepest, ++here);
    } else if (graph_.ends_flight(kind.kind)) {
      --here;
    }
  }
  holdings.memory[at(device)] = most;
  for (std::size_t i = 0; i < limits_.size(); ++i) {
    if (limits_[i].device == device) holdings.peaks[i] = peak(limits_[i], word);
  }
}

std::int64_t HoldingRules::missing(std::size_t limit, const Holdings& holdings) const {
  std::int64_t needed = holdings.peaks[limit];
  for (const Part& part : limits_[limit].parts) {
    const std::int32_t here = holdings.in_flight[at(part.stage)];
    if (part.before > 0 && part.stage > 0) {
      needed += part.before * std::max(0, holdings.in_flight[at(part.stage - 1)] - here);
    }
    if (part.behind > 0 && part.stage + 1 < graph_.stage_count()) {
      needed += part.behind * std::max(0, here - holdings.in_flight[at(part.stage + 1)]);
    }
  }
  return std::max<std::int64_t>(0, needed - limits_[limit].room);
}

std::int64_t HoldingRules::excess(const Holdings& holdings) const {
  std::int64_t sum = 0;
  for (std::int32_t s = 0; has_caps_ && s < graph_.stage_count(); ++s) {
    sum += std::max(0, holdings.in_flight[at(s)] - graph_.cap(s)) * kOneTooMany;
  }
  for (std::size_t i = 0; i < limits_.size(); ++i) sum += missing(i, holdings);
  return std::min(sum, kNever);
}

std::int64_t HoldingRules::excess(const Holdings& holdings, std::int32_t device) const {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < limits_.size(); ++i) {
    if (limits_[i].device == device) most = std::max(most, missing(i, holdings));
  }
  return most;
}

bool HoldingRules::have_room(const std::vector<std::int32_t>& in_flight) const {
  Holdings holdings{.in_flight = in_flight, .memory = {}, .peaks = {}};
  for (const Limit& limit : limits_) {
    const Part& part = limit.parts.front();
    holdings.peaks.push_back(in_flight[at(part.stage)] * part.by_forward + part.by_backward);
  }
  return excess(holdings) == 0;
}

namespace {

class CapSets {
 public:
  CapSets(const TaskGraph& graph, const HoldingRules& rules)
      : rules_(rules), most_(most_in_flight(graph)) {}

  std::vector<std::vector<std::int32_t>> make() &&;

 private:
  using Counts = std::vector<std::int32_t>;  // numbers in flight, by stage

  bool fits(const Counts& counts) const { return rules_.have_room(counts); }
  bool are_few() const;
  void add_all();
  void add_some();
  Counts raised(Counts counts, const std::vector<std::size_t>& turns) const;
  void add(const Counts& counts);

  const HoldingRules& rules_;
  Counts most_;
  std::vector<Counts> found_;
};

bool CapSets::are_few() const {
  std::int64_t sets = 1;
  for (const std::int32_t most : most_) {
    sets *= most;
    if (sets > kFewSets) return false;
  }
  return true;
}

void CapSets::add(const Counts& counts) {
  const auto is_within = [](const Counts& a, const Counts& b) {
    return std::equal(a.begin(), a.end(), b.begin(), [](auto x, auto y) { return x <= y; });
  };
  for (const Counts& other : found_) {
    if (is_within(counts, other)) return;
  }
  std::erase_if(found_, [&](const Counts& other) { return is_within(other, counts); });
  found_.push_back(counts);
}

/// Enumerates all combinations, the largest first.
void CapSets::add_all() {
  Counts counts = most_;
  while (true) {
    if (fits(counts)) add(counts);
    std::size_t s = counts.size();
    while (s > 0 && counts[s - 1] == 1) {
      counts[s - 1] = most_[s - 1];
      --s;
    }
    if (s == 0) return;
    --counts[s - 1];
  }
}

/// Raises one stage after the other as far as the numbers fit.
CapSets::Counts CapSets::raised(Counts counts, const std::vector<std::size_t>& turns) const {
  for (const std::size_t s : turns) {
    while (counts[s] < most_[s]) {
      ++counts[s];
      if (fits(counts)) continue;
      --counts[s];
      break;
    }
  }
  return counts;
}

/// Adds sets raised from the last stage to the first, in the other direction, and all in step;
/// twice each, because a stage that holds more leaves more room on the previous one.
void CapSets::add_some() {
  const std::size_t stages = most_.size();
  std::vector<std::size_t> rising;
  for (std::size_t s = 0; s < stages; ++s) rising.push_back(s);
  const std::vector<std::size_t> falling(rising.rbegin(), rising.rend());
  const Counts ones(stages, 1);
  add(raised(raised(ones, falling), falling));
  add(raised(raised(ones, rising), falling));
  Counts level = ones;
  const std::int32_t highest = *std::max_element(most_.begin(), most_.end());
  for (std::int32_t count = 2; count <= highest; ++count) {
    Counts next;
    for (const std::int32_t most : most_) next.push_back(std::min(most, count));
    if (!fits(next)) break;
    level = std::move(next);
  }
  add(raised(raised(level, falling), rising));
}

std::vector<std::vector<std::int32_t>> CapSets::make() && {
  if (are_few()) {
    add_all();
  } else {
    add_some();
  }
  if (found_.size() > kMostSets) found_.resize(kMostSets);
  return std::move(found_);
}

}  // namespace

std::vector<std::vector<std::int32_t>> cap_sets(const TaskGraph& graph, const HoldingRules& rules) {
  const bool is_alone = graph.device_count() == graph.stage_count();
  if (!rules.may_bind() || !is_alone) return {};
  return CapSets(graph, rules).make();
}

}  // namespace dapple::schedule_search
