#include "order_enumeration.h"

#include <algorithm>

#include "dapple/schedule/schedule.h"
#include "dapple/simulate/simulate.h"
#include "memory_count.h"

namespace dapple::small {
namespace {

using Words = std::vector<std::vector<StageWord>>;

/// All ways to go on with a word.
class WordMaker {
 public:
  WordMaker(std::int64_t micro_batches, bool is_split, std::int64_t most)
      : all_(micro_batches),
        most_(most),
        is_split_(is_split),
        words_(static_cast<std::size_t>(most)) {}

  Words run() && {
    go_on(0);
    return std::move(words_);
  }

 private:
  void put(char letter, std::int64_t& count, std::int64_t deepest) {
    ++count;
    word_.push_back(letter);
    go_on(deepest);
    word_.pop_back();
    --count;
  }

  void go_on(std::int64_t deepest) {
    if (done_ == all_) {
      words_[static_cast<std::size_t>(deepest - 1)].push_back(word_);
      return;
    }
    if (forwards_ < all_ && forwards_ - done_ < most_) {
      put('F', forwards_, std::max(deepest, forwards_ + 1 - done_));
    }
    if (!is_split_) {
      if (done_ < forwards_) put('B', done_, deepest);
      return;
    }
    if (inputs_ < forwards_) put('I', inputs_, deepest);
    if (done_ < inputs_) put('W', done_, deepest);
  }

  std::int64_t all_;
  std::int64_t most_;
  bool is_split_;
  std::int64_t forwards_ = 0;
  std::int64_t inputs_ = 0;
  std::int64_t done_ = 0;
  StageWord word_;
  Words words_;
};

class Enumeration {
 public:
  Enumeration(const OrderSpace& space, Duration below);
  std::optional<BestOrder> run();

 private:
  void choose(std::size_t stage, const std::vector<std::int64_t>& depths);
  void try_chosen();
  /// The end of all with idle links, where stages without a chosen word start what can start;
  /// kNever at a deadlock.
  std::int64_t least_end();
  std::int64_t ready(std::size_t stage, char letter, std::size_t n) const;
  bool advance(std::size_t stage);
  std::int64_t duration(std::size_t stage, char letter) const;
  std::int64_t& end_of(std::size_t stage, char letter, std::size_t n) {
    return ends_[stage][letter == 'F' ? 0 : letter == 'W' ? 2 : 1][n];
  }
  std::int64_t end_of(std::size_t stage, char letter, std::size_t n) const {
    return ends_[stage][letter == 'F' ? 0 : letter == 'W' ? 2 : 1][n];
  }

  static constexpr std::int64_t kNever = INT64_MAX / 4;

  const OrderSpace& space_;
  Plan plan_;
  PlanCost costs_;
  bool is_split_;
  std::size_t all_;
  Words words_;
  std::vector<const StageWord*> chosen_;
  std::vector<std::vector<std::vector<std::int64_t>>> ends_;
  std::vector<std::size_t> next_;
  std::vector<std::int64_t> free_;
  Duration below_;
  std::optional<BestOrder> best_;
};

PlanCost costs_at_one(const OrderSpace& space) {
  Plan plan = space.plan;
  plan.order.clear();
  plan.warmup_depths.assign(plan.stages.size(), 1);
  return space.costs.plan_cost(plan);
}

Enumeration::Enumeration(const OrderSpace& space, Duration below)
    : space_(space),
      plan_(space.plan),
      costs_(costs_at_one(space)),
      is_split_(may_split_backward(space.plan.family)),
      all_(static_cast<std::size_t>(space.plan.num_micro_batches)),
      words_(stage_words(space.plan.num_micro_batches, is_split_, space.most_in_flight())),
      chosen_(space.plan.stages.size(), nullptr),
      ends_(space.plan.stages.size(),
            std::vector<std::vector<std::int64_t>>(3, std::vector<std::int64_t>(all_))),
      next_(space.plan.stages.size()),
      free_(space.plan.stages.size()),
      below_(below) {}

std::int64_t Enumeration::duration(std::size_t stage, char letter) const {
  const StageCost& cost = costs_.stages[stage];
  switch (letter) {
    case 'F':
      return cost.forward.ns;
    case 'B':
      return cost.backward.ns;
    case 'I':
      return cost.input_gradient.ns;
    default:
      return cost.weight_gradient.ns;
  }
}

std::int64_t Enumeration::ready(std::size_t stage, char letter, std::size_t n) const {
  if (letter == 'W') return end_of(stage, 'I', n);
  if (letter == 'F') {
    if (stage == 0) return 0;
    const std::int64_t end = end_of(stage - 1, 'F', n);
    return end == kNever ? kNever : end + costs_.boundaries[stage - 1].forward.front().time.ns;
  }
  const std::int64_t own = end_of(stage, 'F', n);
  if (stage + 1 == costs_.stages.size() || own == kNever) return own;
  const std::int64_t end = end_of(stage + 1, letter, n);
  if (end == kNever) return kNever;
  return std::max(own, end + costs_.boundaries[stage].backward.front().time.ns);
}

/// Runs what can run on a stage; false if that is nothing.
bool Enumeration::advance(std::size_t stage) {
  bool has_run = false;
  if (chosen_[stage] != nullptr) {
    const StageWord& word = *chosen_[stage];
    for (std::size_t& i = next_[stage]; i < word.size(); ++i) {
      const auto n = static_cast<std::size_t>(
          std::count(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(i), word[i]));
      const std::int64_t from = ready(stage, word[i], n);
      if (from == kNever) break;
      free_[stage] = std::max(free_[stage], from) + duration(stage, word[i]);
      end_of(stage, word[i], n) = free_[stage];
      has_run = true;
    }
    return has_run;
  }
  for (const char letter : {'F', is_split_ ? 'I' : 'B'}) {
    for (std::size_t n = 0; n < all_; ++n) {
      if (end_of(stage, letter, n) != kNever) continue;
      const std::int64_t from = ready(stage, letter, n);
      if (from == kNever) break;
      // One after the other of a kind.
      const std::int64_t before = n == 0 ? 0 : end_of(stage, letter, n - 1);
      end_of(stage, letter, n) = std::max(from, before) + duration(stage, letter);
      has_run = true;
    }
  }
  return has_run;
}

std::int64_t Enumeration::least_end() {
  for (auto& kinds : ends_) {
    for (auto& ends : kinds) std::fill(ends.begin(), ends.end(), kNever);
  }
  std::fill(next_.begin(), next_.end(), 0);
  std::fill(free_.begin(), free_.end(), 0);
  const std::size_t stages = chosen_.size();
  for (bool has_run = true; has_run;) {
    has_run = false;
    for (std::size_t s = 0; s < stages; ++s) has_run = advance(s) || has_run;
    for (std::size_t s = stages; s-- > 0;) has_run = advance(s) || has_run;
  }
  std::int64_t end = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    const char last = is_split_ ? 'I' : 'B';
    if (end_of(s, last, all_ - 1) == kNever) return kNever;
    if (chosen_[s] != nullptr && next_[s] < chosen_[s]->size()) return kNever;
    const std::int64_t done = chosen_[s] != nullptr ? free_[s] : end_of(s, last, all_ - 1);
    end = std::max(end, done + costs_.stages[s].optimizer_step.ns);
  }
  return end;
}

void Enumeration::try_chosen() {
  plan_.order.clear();
  for (std::size_t s = 0; s < chosen_.size(); ++s) {
    std::vector<Action>& list = plan_.order.emplace_back();
    std::int32_t numbers[3] = {0, 0, 0};
    for (const char letter : *chosen_[s]) {
      const StageIndex stage{static_cast<std::int32_t>(s)};
      const auto add = [&](ActionKind kind, std::size_t number) {
        list.push_back({kind, numbers[number]++, stage});
      };
      if (letter == 'F') add(ActionKind::Forward, 0);
      if (letter == 'B') add(ActionKind::Backward, 1);
      if (letter == 'I') add(ActionKind::InputGradient, 1);
      if (letter == 'W') add(ActionKind::WeightGradient, 2);
    }
  }
  const Duration iteration =
      simulate::simulate(generate(plan_, space_.mode.replicas), costs_, space_.costs.topology(),
                         {.contention = space_.mode.contention, .record = false})
          .iteration;
  if (iteration >= below_) return;
  // What weight gradients that wait hold of what was computed again is not in the depths.
  if (!order_fits(space_.costs.profile(), space_.costs.topology().description(), plan_)) return;
  below_ = iteration;
  best_ = {.iteration = iteration, .order = plan_.order};
}

/// Words of the stages from the last one to the first.
void Enumeration::choose(std::size_t stage, const std::vector<std::int64_t>& depths) {
  const bool is_apart = space_.mode.replicas == Replicas::Independent;
  for (const StageWord& word : words_[static_cast<std::size_t>(depths[stage] - 1)]) {
    chosen_[stage] = &word;
    const std::int64_t end = least_end();
    // Independent replicas may be faster than the slowest together.
    if (end == kNever || (!is_apart && end >= below_.ns)) continue;
    if (stage == 0) {
      try_chosen();
    } else {
      choose(stage - 1, depths);
    }
  }
  chosen_[stage] = nullptr;
}

std::optional<BestOrder> Enumeration::run() {
  for (const std::vector<std::int64_t>& depths : depths_that_fit(space_)) {
    choose(chosen_.size() - 1, depths);
  }
  return best_;
}

}  // namespace

Words stage_words(std::int64_t micro_batches, bool is_split, std::int64_t most) {
  return WordMaker(micro_batches, is_split, most).run();
}

std::int64_t OrderSpace::most_in_flight() const {
  const auto stages = static_cast<std::int64_t>(plan.stages.size());
  std::int64_t most = plan.num_micro_batches;
  if (plan.family == ScheduleFamily::ZeroBubbleH1) most = std::min(most, stages);
  if (plan.family == ScheduleFamily::ZeroBubbleH2) most = std::min(most, 2 * stages - 1);
  return most;
}

std::vector<std::vector<std::int64_t>> depths_that_fit(const OrderSpace& space) {
  const TopologyDescription topology = space.costs.topology().description();
  std::vector<std::vector<std::int64_t>> fitting;
  std::vector<std::int64_t> depths(space.plan.stages.size(), 1);
  while (true) {
    if (may_hold(space.costs.profile(), topology, space.plan, depths)) fitting.push_back(depths);
    std::size_t s = 0;
    while (s < depths.size() && depths[s] == space.most_in_flight()) depths[s++] = 1;
    if (s == depths.size()) return fitting;
    ++depths[s];
  }
}

std::int64_t count_orders(const OrderSpace& space,
                          const std::vector<std::vector<std::int64_t>>& depths) {
  const Words words = stage_words(space.plan.num_micro_batches,
                                  may_split_backward(space.plan.family), space.most_in_flight());
  std::int64_t count = 0;
  for (const std::vector<std::int64_t>& each : depths) {
    std::int64_t orders = 1;
    for (const std::int64_t depth : each) {
      orders *= static_cast<std::int64_t>(words[static_cast<std::size_t>(depth - 1)].size());
    }
    count += orders;
  }
  return count;
}

std::optional<BestOrder> best_of_all_orders(const OrderSpace& space, Duration below) {
  return Enumeration(space, below).run();
}

}  // namespace dapple::small
