// Transfers during which stages compute nothing: against a walk of their own, closed forms, and the
// bounds of search.

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <tuple>

#include "../support/random_pipeline.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/bounds/earliest_start_bound.h"

namespace dapple {
namespace {

using namespace small;

/// Lowers depths to those at which no two stages wait for each other.
Pipeline with_small_steps(const Pipeline& pipeline) {
  Plan plan = pipeline.plan;
  for (std::size_t s = plan.warmup_depths.size() - 1; s-- > 0;) {
    plan.warmup_depths[s] = std::min(plan.warmup_depths[s], plan.warmup_depths[s + 1] + 1);
  }
  return Pipeline(pipeline.profile, pipeline.topology.description(), plan);
}

/// When computations and transfers begin and end: by stage, kind and micro-batch.
using Times = std::map<std::tuple<std::int32_t, ActionKind, std::int32_t>,
                       std::pair<std::int64_t, std::int64_t>>;

/// A walk from moment to moment, for costs without contention. Each stage has a list of things to
/// do: computations, and sets of transfers with a neighbour.
class Walk {
 public:
  Walk(const Pipeline& pipeline, bool one_at_a_time)
      : costs_(pipeline.costs),
        one_at_a_time_(one_at_a_time),
        stages_(pipeline.plan.stages.size()) {
    for (std::size_t s = 0; s < stages_.size(); ++s) list_things(pipeline, s);
  }

  Times run() {
    for (std::int64_t now = 0;; now = next_) {
      next_ = INT64_MAX;
      while (advance(now)) {}
      if (next_ == INT64_MAX) break;
    }
    for (const Stage& stage : stages_) REQUIRE(stage.things.empty());
    return times_;
  }

 private:
  struct Transfer {
    std::size_t boundary = 0;
    bool is_gradient = false;
    std::int32_t micro_batch = 0;
    std::int64_t end = -1;  // once it has begun
  };
  struct Thing {
    bool computes = false;
    Action action = {};
    std::int64_t end = -1;
    std::vector<Transfer> transfers = {};
  };
  struct Stage {
    std::deque<Thing> things;
  };

  void list_things(const Pipeline& pipeline, std::size_t s) {
    std::vector<Action> computations;
    for (const Action& action : pipeline.schedule.lanes[s].actions) {
      if (action.kind == ActionKind::Forward || action.kind == ActionKind::Backward) {
        computations.push_back(action);
      }
    }
    const std::size_t last = stages_.size() - 1;
    const auto wants = [&](const Action& action) {
      std::vector<Transfer> needed;
      const bool is_forward = action.kind == ActionKind::Forward;
      if (is_forward && s > 0) needed.push_back({s - 1, false, action.index});
      if (!is_forward && s < last) needed.push_back({s, true, action.index});
      return needed;
    };
    const auto makes = [&](const Action& action) {
      std::vector<Transfer> made;
      const bool is_forward = action.kind == ActionKind::Forward;
      if (is_forward && s < last) made.push_back({s, false, action.index});
      if (!is_forward && s > 0) made.push_back({s - 1, true, action.index});
      return made;
    };
    std::vector<Transfer> before;
    for (const Action& action : computations) {
      std::vector<Transfer> needed = wants(action);
      const bool together =
          !before.empty() && !needed.empty() && before.front().boundary == needed.front().boundary;
      if (together) {
        before.push_back(needed.front());
        needed.clear();
      }
      for (const auto& transfers : {before, needed}) {
        if (!transfers.empty()) add({.transfers = transfers}, s);
      }
      add({.computes = true, .action = action}, s);
      before = makes(action);
    }
    if (!before.empty()) add({.transfers = before}, s);
  }
  void add(Thing thing, std::size_t s) { stages_[s].things.push_back(std::move(thing)); }

  /// Does one thing that can be done at this moment. Returns whether there was one.
  bool advance(std::int64_t now) {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      if (stages_[s].things.empty()) continue;
      Thing& thing = stages_[s].things.front();
      if (thing.computes && compute(thing, s, now)) return true;
    }
    // If both transfers over a boundary are ready, the gradients go first.
    for (const bool is_gradient : {true, false}) {
      for (std::size_t b = 0; b + 1 < stages_.size(); ++b) {
        if (transfer(b, is_gradient, now)) return true;
      }
    }
    for (Stage& stage : stages_) {
      if (stage.things.empty() || stage.things.front().computes) continue;
      const auto& transfers = stage.things.front().transfers;
      const bool is_over = std::all_of(transfers.begin(), transfers.end(), [&](const Transfer& t) {
        return t.end >= 0 && t.end <= now;
      });
      if (!is_over) continue;
      stage.things.pop_front();
      return true;
    }
    return false;
  }

  bool compute(Thing& thing, std::size_t s, std::int64_t now) {
    if (thing.end < 0) {
      const StageCost& cost = costs_.stages[s];
      const bool is_forward = thing.action.kind == ActionKind::Forward;
      thing.end = now + (is_forward ? cost.forward : cost.backward).ns;
      note(static_cast<std::int32_t>(s), thing.action.kind, thing.action.index, now, thing.end);
      next_ = std::min(next_, thing.end);
      return true;
    }
    if (thing.end > now) {
      next_ = std::min(next_, thing.end);
      return false;
    }
    stages_[s].things.pop_front();
    return true;
  }

  Transfer* find(std::size_t s, std::size_t boundary, bool is_gradient) {
    if (stages_[s].things.empty()) return nullptr;
    for (Transfer& transfer : stages_[s].things.front().transfers) {
      if (transfer.boundary == boundary && transfer.is_gradient == is_gradient) return &transfer;
    }
    return nullptr;
  }

  bool transfer(std::size_t b, bool is_gradient, std::int64_t now) {
    Transfer* const front = find(b, b, is_gradient);
    Transfer* const behind = find(b + 1, b, is_gradient);
    if (front == nullptr || behind == nullptr) return false;
    // One of the stages may not have left the transfer before this one.
    for (const Transfer* const begun : {front, behind}) {
      if (begun->end < 0) continue;
      if (begun->end > now) next_ = std::min(next_, begun->end);
      return false;
    }
    if (one_at_a_time_) {
      for (const std::size_t s : {b, b + 1}) {
        const Transfer* const other = find(s, b, !is_gradient);
        if (other != nullptr && other->end > now) return false;
      }
    }
    REQUIRE(front->micro_batch == behind->micro_batch);
    const BoundaryCost& cost = costs_.boundaries[b];
    const Duration time = (is_gradient ? cost.backward : cost.forward).front().time;
    front->end = behind->end = now + time.ns;
    note(static_cast<std::int32_t>(is_gradient ? b + 1 : b),
         is_gradient ? ActionKind::SendGradient : ActionKind::SendActivation, front->micro_batch,
         now, front->end);
    next_ = std::min(next_, front->end);
    return true;
  }

  void note(std::int32_t stage, ActionKind kind, std::int32_t index, std::int64_t start,
            std::int64_t end) {
    times_[{stage, kind, index}] = {start, end};
  }

  const PlanCost& costs_;
  const bool one_at_a_time_;
  std::vector<Stage> stages_;
  std::int64_t next_ = 0;
  Times times_;
};

Times times_of(const simulate::SimulationResult& result) {
  Times times;
  for (const TimedAction& timed : result.timeline.actions) {
    const ActionKind kind = timed.action.kind;
    if (kind == ActionKind::OptimizerStep || reduces(kind)) continue;
    times[{timed.action.stage.value, kind, timed.action.index}] = {timed.start.ns, timed.end.ns};
  }
  return times;
}

constexpr Transfers kBlocking[] = {Transfers::Blocking, Transfers::Serial};

TEST_CASE("stages that block do everything when a walk of their own says") {
  Dice dice(2301);
  int piped = 0;
  for (int i = 0; i < scaled(4000); ++i) {
    const Pipeline pipeline = with_small_steps(random_pipeline(dice, {.mixed = true, .cut = true}));
    piped += pipeline.plan.stages.size() > 1 ? 1 : 0;
    for (const Transfers transfers : kBlocking) {
      const Times walked = Walk(pipeline, transfers == Transfers::Serial).run();
      const Times simulated =
          times_of(pipeline.run({.contention = Contention::Off, .transfers = transfers}));
      if (walked != simulated) {
        FAIL("instance " << i << ", " << to_string(transfers) << ": " << text_of(pipeline));
      }
    }
  }
  CHECK(piped > scaled(1000));
}

TEST_CASE("no plan whose transfers block is simulated faster than its bounds") {
  Dice dice(2302);
  for (int i = 0; i < scaled(5000); ++i) {
    const Pipeline pipeline = with_small_steps(random_pipeline(
        dice, {.slowdown = true, .crowded = true, .mixed = true, .sharded = true, .cut = true}));
    for (const Transfers transfers : kBlocking) {
      for (const Contention contention : {Contention::Off, Contention::Shared}) {
        const search::BoundedPlan bounded{pipeline.plan,
                                          pipeline.costs,
                                          pipeline.topology,
                                          {contention, Replicas::Together, transfers}};
        search::EarliestStartBound of_depths(bounded);
        const auto& depths = pipeline.plan.warmup_depths;
        const Duration bound =
            std::max({search::lower_bound(bounded), search::lower_bound_of_order(bounded),
                      of_depths.bound({.least = depths, .most = depths})});
        const Duration simulated =
            pipeline.run({.contention = contention, .transfers = transfers, .record = false})
                .iteration;
        if (bound > simulated) {
          FAIL("instance " << i << ", " << to_string(transfers) << ": bound " << bound.ns
                           << ", simulated " << simulated.ns << ": " << text_of(pipeline));
        }
      }
    }
  }
}

/// Equal stages on devices of their own, as many micro-batches in flight as stages from each on.
Pipeline chain(std::size_t stages, std::int64_t micro_batches, std::int64_t bytes) {
  std::vector<LayerFigures> layers;
  PlanShape shape{.num_micro_batches = micro_batches};
  for (std::size_t s = 0; s < stages; ++s) {
    layers.push_back({.forward = 1000, .backward = 2100, .output = s + 1 < stages ? bytes : 0});
    shape.depths.push_back(
        std::min<std::int64_t>(static_cast<std::int64_t>(stages - s), micro_batches));
  }
  return straight(layers, shape);
}

TEST_CASE("equal stages take what closed forms say") {
  const std::int64_t both = 3100;
  const std::int64_t x = 300;
  for (const std::int64_t m : {2, 3, 8, 40}) {
    const auto run = [&](std::size_t stages, Transfers transfers) {
      return chain(stages, m, x).run({.transfers = transfers, .record = false}).iteration.ns;
    };
    CHECK(run(2, Transfers::Serial) == (m + 1) * both + 2 * m * x);
    CHECK(run(2, Transfers::Blocking) == (m + 1) * both + (m + 1) * x);
    CHECK(run(3, Transfers::Serial) == m * (both + 4 * x) + 2 * both - 2 * x);
    CHECK(run(3, Transfers::Blocking) == m * (both + 2 * x) + 2 * both + x);
  }
  // One micro-batch passes every stage and boundary twice.
  CHECK(chain(4, 1, x).run({.transfers = Transfers::Serial}).iteration.ns == 4 * both + 6 * x);
}

TEST_CASE("stages are bounded by all their transfers, one at a time or both ways at once") {
  for (const Transfers transfers : kBlocking) {
    const Pipeline pipeline = chain(3, 50, 900);
    const SimulationMode mode{Contention::Off, Replicas::Together, transfers};
    const Duration bound =
        search::lower_bound({pipeline.plan, pipeline.costs, pipeline.topology, mode});
    const Duration simulated =
        pipeline.run({.contention = Contention::Off, .transfers = transfers}).iteration;
    CHECK(bound <= simulated);
    // Without the transfers of the middle stage it would be a third lower.
    CHECK(100 * bound.ns >= 97 * simulated.ns);
  }
}

}  // namespace
}  // namespace dapple
