// Schedules beyond 1F1B and GPipe where several forms of parallelism are open, against every plan
// of small problems: stages, devices and recomputation are enumerated here, forms are grouped by
// other means than in the product, and of orders that depend on costs some are tried. No plan is
// faster than what is claimed of all plans, of those of its form or of those of its schedule, also
// where the search was stopped.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../support/impatient.h"
#include "dapple/planner/families/reschedule.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/simulate/device_memory.h"
#include "parallel_problems.h"

using namespace dapple;

namespace {

using namespace dapple::small;

constexpr ScheduleFamily kFamilies[] = {ScheduleFamily::Interleaved,   ScheduleFamily::BreadthFirst,
                                        ScheduleFamily::ListScheduled, ScheduleFamily::ZeroBubbleH1,
                                        ScheduleFamily::ZeroBubbleH2,  ScheduleFamily::ZeroBubbleV};

/// Goes through the stages, devices and recomputation of every plan of a family, without its order.
class ShapeEnumerator {
 public:
  ShapeEnumerator(const Question& question, ScheduleFamily family,
                  std::function<void(const Plan&)> visit)
      : question_(question),
        layers_(static_cast<std::int32_t>(question.made.problem.profile.layers.size())),
        visit_(std::move(visit)) {
    plan_.global_batch_size = question.options.global_batch_size;
    plan_.gradients = {*question.options.bucket_size, question.options.optimizer,
                       question.options.overlaps_gradients};
    plan_.family = family;
  }

  void run() {
    for (std::int64_t size = 1; size <= plan_.global_batch_size; ++size) {
      if (plan_.global_batch_size % size != 0) continue;
      plan_.micro_batch_size = size;
      plan_.num_micro_batches = plan_.global_batch_size / size;
      add_group(0);
    }
  }

 private:
  /// Puts every set of unused devices behind the groups.
  void add_group(std::uint32_t used) {
    add_chunks();
    if (std::ssize(groups_) == layers_) return;
    const std::int32_t devices = question_.topology.device_count();
    for (std::uint32_t set = 1; set < std::uint32_t{1} << devices; ++set) {
      if ((set & used) != 0) continue;
      std::vector<DeviceIndex> group;
      for (std::int32_t d = 0; d < devices; ++d) {
        if ((set >> d & 1U) != 0) group.push_back({d});
      }
      if (std::ssize(group) > plan_.micro_batch_size) continue;
      groups_.push_back(std::move(group));
      add_group(used | set);
      groups_.pop_back();
    }
  }

  void add_chunks() {
    const auto groups = static_cast<std::int32_t>(groups_.size());
    if (groups == 0) return;
    const bool is_v = plan_.family == ScheduleFamily::ZeroBubbleV;
    const std::int32_t least = has_loops(plan_.family) ? 2 : 1;
    const std::int32_t most = has_loops(plan_.family) && !is_v ? layers_ : least;
    for (std::int32_t chunks = least; chunks <= most && groups * chunks <= layers_; ++chunks) {
      plan_.chunks_per_device = chunks;
      add_stages(0, groups * chunks);
    }
  }

  void add_stages(std::int32_t begin, std::int32_t left) {
    if (left == 0) return visit_(plan_);
    const std::size_t groups = groups_.size();
    const std::size_t stage = plan_.stages.size();
    const bool is_way_back = plan_.family == ScheduleFamily::ZeroBubbleV && stage >= groups;
    for (std::int32_t end = left == 1 ? layers_ : begin + 1; end + left - 1 <= layers_; ++end) {
      for (const bool recompute : {false, true}) {
        StagePlan& last = plan_.stages.emplace_back();
        last.layers = {begin, end};
        last.devices = groups_[is_way_back ? 2 * groups - 1 - stage : stage % groups];
        last.recompute = recompute;
        if (question_.options.pins.recompute.value_or(recompute) == recompute) {
          add_stages(end, left - 1);
        }
        plan_.stages.pop_back();
      }
    }
  }

  const Question& question_;
  std::int32_t layers_;
  std::function<void(const Plan&)> visit_;
  Plan plan_;
  std::vector<std::vector<DeviceIndex>> groups_;
};

/// Looks for a plan of a family that is faster than is claimed to be possible.
class FasterPlan {
 public:
  FasterPlan(const Question& question, ScheduleFamily family, Duration claim, Dice& dice)
      : question_(question),
        profile_(question.made.problem.profile),
        family_(family),
        costs_(profile_, question.topology),
        dice_(dice),
        least_(claim) {}

  std::optional<Plan> run(int orders) {
    orders_ = orders;
    ShapeEnumerator(question_, family_, [&](const Plan& shape) { look_at(shape); }).run();
    return std::move(found_);
  }

  Duration iteration() const { return least_; }
  int simulated() const { return simulated_; }

 private:
  /// The computations of the busiest group of devices.
  Duration work_of(const Plan& plan) const {
    std::map<std::int32_t, Duration> busy;
    Duration most;
    for (const StagePlan& stage : plan.stages) {
      Duration slowest;
      for (std::size_t i = 0; i < stage.devices.size(); ++i) {
        const LayerTable& table = costs_.table(samples_of(plan, stage, i).size(),
                                               question_.topology.device(stage.devices[i]).kind);
        slowest = std::max(slowest, (stage.recompute ? 2 : 1) * table.forward(stage.layers) +
                                        table.backward(stage.layers));
      }
      Duration& sum = busy[stage.devices.front().value];
      sum += plan.num_micro_batches * slowest;
      most = std::max(most, sum);
    }
    return most;
  }

  /// The plan in some order of the family; nothing where it has none.
  std::optional<Plan> in_order(Plan plan) {
    fill_gradient_buckets(plan, profile_);
    plan.tied_gradients = tied_gradients(profile_, plan.stages);
    set_largest_depths(plan);
    if (!carries_order(family_)) {
      if (!validate(plan, costs_.layer_count(), question_.topology).empty()) return std::nullopt;
      fill_depths(plan);
      return plan;
    }
    // That takes long, so that it is done for some.
    if (orders_ == 0 || !dice_.chance(50)) return std::nullopt;
    --orders_;
    if (family_ != ScheduleFamily::ZeroBubbleV) plan.family = ScheduleFamily::OneFOneB;
    const auto made = planner::reschedule(plan, profile_, question_.topology,
                                          {.family = family_,
                                           .chunks_per_device = plan.chunks_per_device,
                                           .contention = question_.options.contention,
                                           .evaluations = 20});
    const auto* rescheduled = std::get_if<planner::Rescheduled>(&made);
    return rescheduled == nullptr ? std::nullopt : std::optional(rescheduled->plan);
  }

  void look_at(const Plan& shape) {
    if (work_of(shape) >= least_) return;
    std::optional<Plan> plan = in_order(shape);
    if (!plan) return;
    const PlanCost cost = costs_.plan_cost(*plan);
    const Schedule schedule = generate(*plan, question_.options.replicas);
    if (!question_.options.ignore_memory && !simulate::memory_shortages(schedule, cost).empty()) {
      return;
    }
    ++simulated_;
    const Duration iteration =
        simulate::simulate(schedule, cost, question_.topology,
                           {.contention = question_.options.contention, .record = false})
            .iteration;
    if (iteration >= least_) return;
    least_ = iteration;
    found_ = std::move(plan);
  }

  const Question& question_;
  const ModelProfile& profile_;
  ScheduleFamily family_;
  CostModel costs_;
  Dice& dice_;
  Duration least_;
  std::optional<Plan> found_;
  int orders_ = 0;
  int simulated_ = 0;
};

/// What the planner claims of all plans, of those of a form and of those of a family.
class Claims {
 public:
  explicit Claims(const Made& made) {
    if (const auto* none = std::get_if<planner::Infeasible>(&made)) {
      const bool is_certain = none->is_certain || none->lower_bound.is_infinite();
      if (!none->stopped) of_all_ = is_certain ? Duration::infinite() : none->lower_bound;
      return;
    }
    document_ = document_of(made);
    of_all_ = document_->prediction.lower_bound.value_or(Duration{});
  }

  Duration of(const Parallelism& form, ScheduleFamily family) const {
    Duration claim = of_all_;
    if (document_ == nullptr) return claim;
    for (const ParallelismRecord& record : document_->parallelisms) {
      if (record.parallelism != form) continue;
      if (record.lower_bound) claim = std::max(claim, *record.lower_bound);
      if (record.reason == "no plan of it fits memory") claim = Duration::infinite();
    }
    for (const ScheduleRecord& record : document_->schedules) {
      if (record.family != family) continue;
      if (record.lower_bound) claim = std::max(claim, *record.lower_bound);
      if (record.reason == "no plan of it fits memory") claim = Duration::infinite();
    }
    return claim;
  }

 private:
  const PlanDocument* document_ = nullptr;
  Duration of_all_;
};

/// The question about plans of one form, in all else as asked.
Question of_form(const ParallelProblem& problem, Problem grouped) {
  Question question = question_of(problem, std::move(grouped));
  const planner::PlannerOptions& asked = problem.question.options;
  question.options.ignore_memory = asked.ignore_memory;
  question.options.pins.recompute = asked.pins.recompute;
  question.options.family.reset();
  // Other schedules than 1F1B have equal shares.
  question.options.shares = Shares::Equal;
  return question;
}

/// Checks what is claimed of the plans of one form.
void check_form(const ParallelProblem& problem, const Parallelism& form, Problem grouped,
                const Claims& claims, Dice& dice, Counts& seen) {
  const planner::PlannerOptions& asked = problem.question.options;
  const Question question = of_form(problem, std::move(grouped));
  for (const ScheduleFamily family : kFamilies) {
    if (!asked.every_family && asked.family != family) continue;
    FasterPlan search(question, family, claims.of(form, family), dice);
    const std::optional<Plan> faster = search.run(20);
    seen[std::string(to_string(family))] += search.simulated();
    if (!faster) continue;
    FAIL("under " << to_string(family) << " in form " << short_text(form) << " "
                  << small::text_of(*faster) << " takes " << search.iteration().ns);
  }
  if (!asked.every_family) return;
  const OracleAnswer faster = question.fastest(claims.of(form, ScheduleFamily::OneFOneB));
  ++seen["1f1b"];
  if (!faster.plan) return;
  FAIL("under 1f1b in form " << short_text(form) << " " << small::text_of(*faster.plan) << " takes "
                             << faster.iteration.ns);
}

/// Asks for one family or all of them, for the plan with whatever memory and recomputation.
void ask_for_families(Dice& dice, Question& question) {
  planner::PlannerOptions& options = question.options;
  options.pins.stages.reset();
  options.every_family = dice.chance(40);
  // Families with several stages on a device, the first two, are rarely possible.
  if (!options.every_family) options.family = kFamilies[dice.roll(0, dice.chance(40) ? 1 : 5)];
  if (dice.chance(20)) options.ignore_memory = true;
  if (dice.chance(20)) options.pins.recompute = dice.chance(50);
  options.baselines = dice.chance(30);
}

/// Checks the file of a plan, which a stop may have ended.
void check_file(PlanDocument& document, bool may_be_stopped, Counts& seen) {
  document.tool = "test";
  if (may_be_stopped) return;
  const PlanDocument read = io::read_plan(io::write_plan(document), "plan");
  const planner::PlanVerification found =
      planner::verify(read, Topology(read.topology), {.budget = 2'000'000});
  const std::string fault = found.violations.empty() ? ""
                                                     : found.violations.front().place + ": " +
                                                           found.violations.front().message;
  REQUIRE(fault == "");
  ++seen[found.bound == BoundCheck::Proven ? "verified" : "not verified"];
}

}  // namespace

TEST_CASE("no plan of any form and schedule is faster than is claimed, nor fits where none does") {
  const std::uint64_t seed = seeded(4157);
  ProblemMaker maker(seed, {.layers = 4, .devices = 4, .global_batch = 6, .own_times = false});
  Dice dice(seed + 1);
  Counts seen;
  for (int round = 0; round < scaled(90); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    problem.pin_some_shards(round, 4);
    Question& question = problem.question;
    ask_for_families(dice, question);
    std::map<Parallelism, Problem> forms;
    for (const Parallelism& form :
         all_forms(question.made.problem.profile, question.options.recomputed_layers)) {
      auto grouped = grouped_by_hand(question.made.problem, form);
      if (problem.is_asked(form) && grouped) forms.emplace(form, *std::move(grouped));
    }
    if (forms.empty()) continue;
    if (dice.chance(60)) {
      tighten_memory(dice, question);
      for (auto& [form, grouped] : forms) {
        grouped.topology.devices = question.made.problem.topology.devices;
      }
    }
    std::optional<Impatient> impatient;
    if (dice.chance(35)) impatient.emplace(static_cast<int>(1 << dice.roll(0, 10)));
    Made made =
        planner::make_plan_of_any_parallelism({question.made.problem.profile, question.topology,
                                               question.options, impatient ? &*impatient : nullptr},
                                              {});
    auto* const plan = std::get_if<planner::MadePlan>(&made);
    INFO(text_of(problem) << (plan ? io::write_plan(plan->document) : small::text_of(made)));
    const Claims claims(made);
    for (const auto& [form, grouped] : forms) {
      check_form(problem, form, grouped, claims, dice, seen);
    }
    seen["forms"] += static_cast<int>(forms.size());
    if (plan == nullptr) {
      ++seen[is_unknown(made) ? "stopped" : "no plan"];
      continue;
    }
    if (plan->document.plan.chunks_per_device > 1) ++seen["several stages on a device"];
    if (carries_order(plan->document.plan.family)) ++seen["an order of its own"];
    check_file(plan->document, impatient.has_value(), seen);
  }
  if (scaled(90) < 90) return;  // Too few for every subject.
  const std::pair<const char*, int> subjects[] = {{"forms", 120},
                                                  {"interleaved", 10},
                                                  {"breadth-first", 10},
                                                  {"list-scheduled", 20},
                                                  {"zb-h1", 20},
                                                  {"zb-h2", 20},
                                                  {"1f1b", 20},
                                                  {"verified", 15},
                                                  {"no plan", 3},
                                                  {"several stages on a device", 3},
                                                  {"an order of its own", 5}};
  for (const auto& [what, least] : subjects) {
    CAPTURE(what);
    CHECK(seen[what] >= scaled(90) * least / 90);
  }
}

TEST_CASE("no plan is slower than best-uniform where a search has little memory") {
  // Even stages on devices that are not in order, which the search of no form has room to find.
  const ModelProfile profile = io::read_profile(
      R"({"schema": "dapple-profile/1", "name": "three", "source": "", "global_batch_size": 16, "device": "gpu",
          "batch_scaling": "proportional",
          "optimizer": {"name": "adam", "state_bytes_per_parameter_byte": 1,
                        "step_ns_per_parameter_byte": 0.00016324},
          "layers": [
            {"name": "a", "parameter_bytes": 69862061, "measurements": [
              {"batch_size": 1, "forward_ns": 1740880, "backward_ns": 8285653,
               "output_bytes": 10196315, "stash_bytes": 17555606}]},
            {"name": "b", "parameter_bytes": 120271908, "measurements": [
              {"batch_size": 3, "forward_ns": 88836, "backward_ns": 32939397,
               "output_bytes": 13464678, "stash_bytes": 586453863},
              {"batch_size": 5, "forward_ns": 22665340, "backward_ns": 54151640,
               "output_bytes": 56413450, "stash_bytes": 729060135}],
             "variants": [
              {"tensor_parallel": 1, "recompute": "full", "parameter_bytes": 120271908,
               "measurements": [
                {"batch_size": 5, "forward_ns": 23798607, "backward_ns": 48194959,
                 "output_bytes": 56413450, "stash_bytes": 940487570}]}]},
            {"name": "c", "parameter_bytes": 101448324, "measurements": [
              {"batch_size": 1, "forward_ns": 4112542, "backward_ns": 1372097,
               "output_bytes": 9078701, "stash_bytes": 76364635}]}]})",
      "profile");
  const Topology topology(io::read_topology(
      R"({"schema": "dapple-topology/1", "name": "nine",
          "devices": {"gpu": {"memory": "2153981.704 kB"}},
          "servers": [{"name": "s", "count": 3, "device": "gpu", "devices": 3,
            "links": {"kind": "switch", "bandwidth": "2 GB/s", "latency": "831.714 us"},
            "nics": [{"bandwidth": "1963562.022 kB/s", "latency": "4644.999 us"}]}],
          "network": {"kind": "switch", "bandwidth": "1000 TB/s", "latency": "0 us"}})",
      "topology"));
  planner::PlannerOptions options;
  options.global_batch_size = 16;
  options.contention = Contention::Off;
  options.recomputed_layers = RecomputedLayers::Any;
  options.memory_limit = {16'384};
  std::optional<Duration> of_uniform;
  for (const bool baselines : {true, false}) {
    CAPTURE(baselines);
    options.baselines = baselines;
    const auto made = planner::make_plan_of_any_parallelism({profile, topology, options}, {});
    const auto* const plan = std::get_if<planner::MadePlan>(&made);
    REQUIRE(plan != nullptr);
    const PlanDocument& document = plan->document;
    if (baselines) {
      REQUIRE(document.baselines.back().name == planner::kBestUniformName);
      of_uniform = document.baselines.back().iteration;
    }
    CHECK(document.prediction.iteration <= *of_uniform);
    const auto own = std::find_if(document.parallelisms.begin(), document.parallelisms.end(),
                                  [&](const ParallelismRecord& record) {
                                    return record.parallelism == document.plan.parallelism;
                                  });
    REQUIRE(own != document.parallelisms.end());
    CHECK(own->iteration == document.prediction.iteration);
    REQUIRE(document.prediction.lower_bound);
    CHECK(*document.prediction.lower_bound <= document.prediction.iteration);
  }
}
