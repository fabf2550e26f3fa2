// What the exact planner promises beside the fastest plan: more memory never hurts, threads change
// nothing, and a search that ends early says truly how far it is.

#include <catch2/catch.hpp>

#include <algorithm>

#include "exact_planner_checks.h"

#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"

using namespace dapple;

namespace {

using small::Made;
using small::ProblemMaker;
using small::Question;

/// Lets the planner ask so many times whether to stop, and then says yes.
class Patience : public planner::Progress {
 public:
  explicit Patience(int questions) : questions_(questions) {}
  void update(const planner::SearchProgress& progress) override {
    const Duration best = progress.best.value_or(Duration::infinite());
    const Duration bound = progress.bound.value_or(Duration{});
    bound_above_best_ = bound_above_best_ || bound > best;
    has_lost_ = has_lost_ || best > best_ || bound < bound_;
    best_ = best;
    bound_ = bound;
  }
  bool should_stop() override {
    if (questions_-- > 0) return false;
    stopped_ = true;
    return true;
  }
  bool stopped() const { return stopped_; }
  bool bound_above_best() const { return bound_above_best_; }
  /// Whether it was told of a slower plan or a lower bound than before.
  bool has_lost() const { return has_lost_; }

 private:
  int questions_;
  bool stopped_ = false;
  bool bound_above_best_ = false;
  bool has_lost_ = false;
  Duration best_ = Duration::infinite();
  Duration bound_;
};

/// What is wrong with the bound of a search that may have ended early. Empty if nothing.
std::string fault_of_bound(const PlanDocument& document, const Question& question) {
  const Prediction& prediction = document.prediction;
  if (!prediction.lower_bound || !prediction.optimality_gap) return "no bound";
  if (*prediction.lower_bound > prediction.iteration) return "a bound above its iteration";
  const auto iteration = static_cast<double>(prediction.iteration.ns);
  const auto bound = static_cast<double>(prediction.lower_bound->ns);
  // Layers may take no time at all.
  const double whole = std::max(1.0, iteration);
  if (*prediction.optimality_gap != (iteration - bound) / whole) return "another gap";
  const auto faster = question.fastest(*prediction.lower_bound);
  if (faster.plan) return "a plan below its bound: " + small::text_of(*faster.plan);
  return "";
}

void require_sound(const Question& question, const Made& answer) {
  const PlanDocument* document = small::document_of(answer);
  std::string fault;
  if (small::is_unknown(answer)) return;
  if (document == nullptr) {
    if (question.fastest().plan) fault = "a plan fits";
  } else {
    fault = small::fault_of(*document, question);
    if (fault.empty()) fault = fault_of_bound(*document, question);
  }
  if (!fault.empty()) {
    FAIL(small::text_of(answer) << ": " << fault << "\n" << small::text_of(question));
  }
}

}  // namespace

TEST_CASE("more memory never makes the best plan slower") {
  ProblemMaker maker(2101, {.layers = 5, .devices = 4, .global_batch = 6});
  small::Dice dice(2102);
  int faster = 0;
  for (int round = 0; round < small::scaled(300); ++round) {
    CAPTURE(round);
    Question question(maker.next());
    const Made before = question.answer();
    for (DeviceKind& kind : question.made.problem.topology.devices) {
      kind.memory += Bytes{kind.memory.count * dice.roll(0, 60) / 100};
    }
    const Question richer(question.made);
    const Made after = richer.answer();
    const PlanDocument* poor = small::document_of(before);
    if (poor == nullptr) continue;
    const PlanDocument* rich = small::document_of(after);
    if (rich == nullptr || rich->prediction.iteration > poor->prediction.iteration) {
      FAIL(small::text_of(before) << " became " << small::text_of(after) << "\n"
                                  << small::text_of(richer));
    }
    if (rich->prediction.iteration < poor->prediction.iteration) ++faster;
  }
  CHECK(faster > small::scaled(20));
}

TEST_CASE("the exact plan is the same with one, two and three threads") {
  ProblemMaker maker(2103, {.layers = 6, .devices = 6, .global_batch = 12});
  for (int round = 0; round < small::scaled(100); ++round) {
    CAPTURE(round);
    Question question(maker.next());
    question.options.baselines = round % 2 == 0;
    const auto text = [&](int threads) {
      question.options.threads = threads;
      const Made answer = question.answer();
      const PlanDocument* document = small::document_of(answer);
      if (document != nullptr) return io::write_plan(*document);
      const planner::Infeasible& nothing = std::get<planner::Infeasible>(answer);
      return std::to_string(static_cast<int>(nothing.remedy.kind)) + " " +
             std::to_string(nothing.remedy.value) + " " + std::to_string(nothing.missing().count);
    };
    const std::string one = text(1);
    REQUIRE(text(2) == one);
    REQUIRE(text(3) == one);
  }
}

TEST_CASE("stopped at any moment it has a plan that fits and a bound that holds") {
  ProblemMaker maker(2104);
  small::Dice dice(2105);
  int stopped = 0;
  int open = 0;
  int unknown = 0;
  for (int round = 0; round < small::scaled(400); ++round) {
    CAPTURE(round);
    const Question question(maker.next());
    Patience patience(static_cast<int>(dice.roll(0, 8)));
    const Made answer = question.answer(&patience);
    require_sound(question, answer);
    CHECK_FALSE(patience.bound_above_best());
    if (!patience.stopped()) {
      CHECK_FALSE(small::is_unknown(answer));
      continue;
    }
    ++stopped;
    if (small::is_unknown(answer)) ++unknown;
    const PlanDocument* document = small::document_of(answer);
    if (document == nullptr) continue;
    if (*document->prediction.lower_bound < document->prediction.iteration) ++open;
  }
  CHECK(stopped > small::scaled(50));
  CHECK(unknown * 2 < stopped);
  CHECK(open > small::scaled(20));
}

namespace {

/// The best iteration that a search has found when it ends, and its bound.
struct Known {
  Duration best = Duration::infinite();
  Duration bound;
  bool is_over = false;
};

/// Searches until it has been asked so many times whether to stop, which is once for so many steps.
Known search_for(const Question& question, int questions) {
  Patience patience(questions);
  const Made answer = question.answer(&patience);
  CHECK_FALSE(patience.has_lost());
  Known known;
  known.is_over = !patience.stopped();
  if (const PlanDocument* document = small::document_of(answer)) {
    known.best = document->prediction.iteration;
    known.bound = document->prediction.lower_bound.value();
  }
  return known;
}

}  // namespace

TEST_CASE("with more steps neither the plan nor the bound becomes worse") {
  ProblemMaker maker(2114, {.layers = 5, .devices = 6, .global_batch = 12});
  int improved = 0;
  int raised = 0;
  for (int round = 0; round < small::scaled(150); ++round) {
    Question question(maker.next());
    if (round % 2 == 1) question.diagrams = planner::Diagrams::Only;
    Known last;
    for (int questions = 0; !last.is_over && questions < 20'000; questions += 1 + questions / 2) {
      CAPTURE(round, questions, small::text_of(question));
      const Known now = search_for(question, questions);
      REQUIRE(now.best.ns <= last.best.ns);
      REQUIRE(now.bound.ns >= last.bound.ns);
      if (now.best < last.best && !last.best.is_infinite()) ++improved;
      if (now.bound > last.bound && last.bound > Duration{}) ++raised;
      last = now;
    }
  }
  CHECK(improved >= small::scaled(50));
  CHECK(raised >= small::scaled(50));
}

TEST_CASE("with one more step the first plans do not become worse") {
  ProblemMaker maker(2114, {.layers = 5, .devices = 6, .global_batch = 12});
  int improved = 0;
  for (int round = 0; round < small::scaled(500); ++round) {
    const Question question(maker.next());
    Known last;
    for (int questions = 0; !last.is_over && questions < 16; ++questions) {
      CAPTURE(round, questions, small::text_of(question));
      const Known now = search_for(question, questions);
      REQUIRE(now.best.ns <= last.best.ns);
      REQUIRE(now.bound.ns >= last.bound.ns);
      if (now.best < last.best && !last.best.is_infinite()) ++improved;
      last = now;
    }
  }
  CHECK(improved >= small::scaled(200));
}

TEST_CASE("a search for a target gap ends with that gap or less") {
  ProblemMaker maker(2106);
  small::Dice dice(2107);
  int open = 0;
  for (int round = 0; round < small::scaled(400); ++round) {
    CAPTURE(round);
    Question question(maker.next());
    constexpr std::int64_t kPercent[] = {1, 5, 20, 50};
    question.options.target_gap = {kPercent[dice.roll(0, 3)] * kOne.billionths / 100};
    const Made answer = question.answer();
    require_sound(question, answer);
    const PlanDocument* document = small::document_of(answer);
    if (document == nullptr) continue;
    const Prediction& prediction = document->prediction;
    const Duration open_gap = prediction.iteration - *prediction.lower_bound;
    if (Wide{open_gap.ns} * kOne.billionths >
        Wide{prediction.iteration.ns} * question.options.target_gap.billionths) {
      FAIL("a gap of " << *prediction.optimality_gap << "\n" << small::text_of(question));
    }
    if (open_gap > Duration{}) ++open;
  }
  CHECK(open > small::scaled(20));
}

TEST_CASE("no feasible baseline is faster than the plan") {
  ProblemMaker maker(2108, {.layers = 6, .devices = 4, .global_batch = 6});
  int compared = 0;
  for (int round = 0; round < small::scaled(300); ++round) {
    CAPTURE(round);
    Question question(maker.next());
    question.options.baselines = true;
    const Made answer = question.answer();
    const PlanDocument* document = small::document_of(answer);
    if (document == nullptr) continue;
    for (const Baseline& baseline : document->baselines) {
      if (!baseline.feasible) continue;
      ++compared;
      if (baseline.iteration < document->prediction.iteration) {
        FAIL(small::text_of(answer)
             << " is slower than " << baseline.name << " of " << baseline.iteration.ns << " ns\n"
             << small::text_of(question));
      }
    }
  }
  CHECK(compared > small::scaled(1000));
}

TEST_CASE("where depths are many the bound still holds") {
  ProblemMaker maker(2109, {.layers = 4, .devices = 4, .global_batch = 24});
  int pipelines = 0;
  for (int round = 0; round < small::scaled(150); ++round) {
    CAPTURE(round);
    const Question question(maker.next());
    const Made answer = question.answer();
    require_sound(question, answer);
    const PlanDocument* document = small::document_of(answer);
    if (document != nullptr && document->plan.stages.size() > 1) ++pipelines;
  }
  CHECK(pipelines > small::scaled(20));
}
