#include "app/commands/plan/alternatives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "app/commands/plan/plan_folder.h"
#include "dapple/io/documents/documents.h"
#include "dapple/plan/deciding_measurement.h"
#include "dapple/planner/parallelism/asked_parallelisms.h"
#include "dapple/planner/result/made_plan.h"
#include "dapple/profile/variants.h"
#include "dapple/report/table.h"

namespace dapple::app {
namespace {

/// Predictions of measured runs are about this far off on average (docs/accuracy.md). It stands for
/// the error of a calibration where the profile states none.
constexpr double kErrorOfPredictions = 0.05;
/// The gap that suffices for an alternative.
constexpr Factor kGap{kOne.billionths / 1000};

/// What all plans of a layout have in common.
struct Layout {
  // Without what cannot be pinned: sequence parallelism.
  Parallelism form;
  std::int32_t stages = 1;

  friend bool operator==(const Layout&, const Layout&) = default;
};

Parallelism pinnable(Parallelism form) {
  form.sequence = false;
  return form;
}

Layout layout_of(const Plan& plan) {
  return {pinnable(plan.parallelism), static_cast<std::int32_t>(plan.stages.size())};
}

/// A layout, a quick plan's iteration, and the least iteration of its form that is known.
struct RankedLayout {
  Layout layout;
  Duration least;
  Duration quick = Duration::infinite();
};

class AlternativeSearch {
 public:
  AlternativeSearch(const ChosenPlan& chosen, std::size_t count, std::optional<Duration> time_limit,
                    ProgressLine& progress)
      : chosen_(chosen), count_(count), time_limit_(time_limit), progress_(progress) {
    const ModelProfile& profile = chosen.inputs.profile;
    has_variants_ = parallelisms_of(profile).size() > 1;
    has_recomputed_parts_ = recomputes_in_some_form(profile);
  }

  AlternativesEnd run();

 private:
  std::vector<RankedLayout> layouts() const;
  void rank(std::vector<RankedLayout>& layouts);
  planner::PlannerOptions options_for(const Layout& layout) const;
  std::vector<std::string> pins_of(const Layout& layout) const;
  std::optional<planner::MadePlan> search(const planner::PlannerOptions& options);
  bool is_interrupted();

  const ChosenPlan& chosen_;
  std::size_t count_;
  std::optional<Duration> time_limit_;
  ProgressLine& progress_;
  bool has_variants_ = false;
  bool has_recomputed_parts_ = false;
};

bool AlternativeSearch::is_interrupted() {
  return progress_.should_stop() && progress_.stop_reason() == StopReason::Signal;
}

/// Returns the layouts that the request covers, but that of the plan.
std::vector<RankedLayout> AlternativeSearch::layouts() const {
  const planner::PlanningContext context{chosen_.inputs.profile, chosen_.topology, chosen_.planner};
  const Layout own = layout_of(chosen_.document.plan);
  const auto layers = static_cast<std::int64_t>(chosen_.inputs.profile.layers.size());
  std::vector<RankedLayout> layouts;
  for (const planner::AskedParallelism& asked : asked_parallelisms(context, chosen_.restriction)) {
    if (!std::holds_alternative<PlanInputs>(asked.inputs) || !asked.stage_forms.empty()) continue;
    Duration least;
    for (const ParallelismRecord& record : chosen_.document.parallelisms) {
      if (record.parallelism != asked.parallelism || !record.stage_forms.empty()) continue;
      // A form without a bound has no plan that fits.
      least = record.lower_bound.value_or(Duration::infinite());
    }
    const std::int64_t groups = chosen_.topology.device_count() / asked.parallelism.group_size();
    for (std::int64_t stages = 1; stages <= std::min(groups, layers); ++stages) {
      const Layout layout{pinnable(asked.parallelism), static_cast<std::int32_t>(stages)};
      if (groups % stages != 0 || layout == own) continue;
      if (chosen_.planner.pins.stages.value_or(layout.stages) != layout.stages) continue;
      const auto known =
          std::find_if(layouts.begin(), layouts.end(),
                       [&](const RankedLayout& some) { return some.layout == layout; });
      if (known == layouts.end()) {
        layouts.push_back({layout, least});
      } else {
        known->least = std::min(known->least, least);
      }
    }
  }
  std::stable_sort(layouts.begin(), layouts.end(),
                   [](const RankedLayout& a, const RankedLayout& b) { return a.least < b.least; });
  return layouts;
}

planner::PlannerOptions AlternativeSearch::options_for(const Layout& layout) const {
  planner::PlannerOptions options = chosen_.planner;
  options.baselines = false;
  options.pins.stages = layout.stages;
  if (has_variants_) {
    options.pins.tensor = layout.form.tensor;
    options.pins.context = layout.form.context;
    options.pins.experts = layout.form.experts;
    options.pins.expert_tensor = layout.form.expert_tensor;
  }
  if (has_recomputed_parts_) options.pins.recomputation = layout.form.recomputation();
  if (layout.form.full_shards > 1) {
    options.sharding = Sharding::Full;
    options.pins.shards = layout.form.full_shards;
  } else {
    options.sharding = layout.form.shards_optimizer ? Sharding::Optimizer : Sharding::None;
  }
  return options;
}

/// Returns what fixes a layout beside the request.
std::vector<std::string> AlternativeSearch::pins_of(const Layout& layout) const {
  Pins pins = options_for(layout).pins;
  if (pins.context == 1) pins.context.reset();
  if (pins.experts == 1) pins.experts.reset();
  if (pins.expert_tensor == 1) pins.expert_tensor.reset();
  Pins added;
  added.stages = pins.stages;
  added.tensor = pins.tensor;
  added.context = pins.context;
  added.experts = pins.experts;
  added.expert_tensor = pins.expert_tensor;
  added.shards = pins.shards;
  added.recomputation = pins.recomputation;
  return to_texts(added, chosen_.inputs.profile);
}

/// Returns the plan that a search finds, nothing if there is none or the options are impossible.
std::optional<planner::MadePlan> AlternativeSearch::search(const planner::PlannerOptions& options) {
  try {
    auto result = make_plan({chosen_.inputs.profile, chosen_.topology, options, &progress_},
                            chosen_.restriction);
    if (auto* made = std::get_if<planner::MadePlan>(&result)) return std::move(*made);
  } catch (const Error&) {}  // such as degrees that some micro-batch size does not allow
  return std::nullopt;
}

/// Makes quick plans of the layouts, and keeps those whose plans are the fastest, these first.
void AlternativeSearch::rank(std::vector<RankedLayout>& layouts) {
  std::vector<RankedLayout> ranked;
  for (RankedLayout& some : layouts) {
    if (is_interrupted()) break;
    const bool is_full = ranked.size() == count_;
    // Later ones have no lower bounds.
    if (is_full && some.least >= ranked.back().quick) break;
    planner::PlannerOptions options = options_for(some.layout);
    options.planner = PlannerKind::Dapple;
    options.every_family = false;
    if (!is_planned_as_1f1b(options.family.value_or(ScheduleFamily::OneFOneB))) {
      options.family.reset();
    }
    const std::optional<planner::MadePlan> made = search(options);
    if (!made || layout_of(made->document.plan) != some.layout) continue;
    some.quick = made->document.prediction.iteration;
    ranked.push_back(some);
    std::stable_sort(
        ranked.begin(), ranked.end(),
        [](const RankedLayout& a, const RankedLayout& b) { return a.quick < b.quick; });
    if (ranked.size() > count_) ranked.pop_back();
  }
  layouts = std::move(ranked);
}

AlternativesEnd AlternativeSearch::run() {
  AlternativesEnd end;
  std::vector<RankedLayout> ranked = layouts();
  progress_.restart(std::nullopt);
  rank(ranked);
  for (const RankedLayout& some : ranked) {
    progress_.restart(time_limit_);
    if (is_interrupted()) break;
    planner::PlannerOptions options = options_for(some.layout);
    options.baselines = chosen_.planner.baselines;
    if (options.planner == PlannerKind::Exact) {
      options.target_gap = std::max(options.target_gap, kGap);
    }
    std::optional<planner::MadePlan> made = search(options);
    if (!made || layout_of(made->document.plan) != some.layout) continue;
    complete_document(*made, chosen_.inputs, progress_.stop_reason(), time_limit_);
    Alternative& found = end.found.emplace_back();
    found.document = std::move(made->document);
    found.pins = pins_of(some.layout);
    if (chosen_.planner.sharding == Sharding::Any) found.sharding = to_string(options.sharding);
  }
  end.was_interrupted = is_interrupted();
  progress_.clear();
  std::stable_sort(end.found.begin(), end.found.end(),
                   [](const Alternative& a, const Alternative& b) {
                     return a.document.prediction.iteration < b.document.prediction.iteration;
                   });
  return end;
}

std::string name_of(std::size_t position) {
  return fmt::format("alternative-{}", position + 1);
}

double ratio_to(Duration time, Duration of_plan) {
  return static_cast<double>(time.ns) / static_cast<double>(std::max<std::int64_t>(of_plan.ns, 1));
}

/// Returns "4.7 % slower", "0.3 % faster" or "same time".
std::string difference_of(double ratio) {
  constexpr double kShown = 0.0005;  // what does not round to 0.0 %
  if (ratio < 1 - kShown) return report::show_percent(1 - ratio) + " faster";
  return ratio > 1 + kShown ? report::show_percent(ratio - 1) + " slower" : "same time";
}

/// Returns in which parts of the iteration an alternative gains and loses most beside the plan,
/// such as "bubble -120 ms, collectives +150 ms".
std::string difference_text(const Prediction& other, const Prediction& plan) {
  const TimePart* gain = nullptr;
  const TimePart* loss = nullptr;
  const auto change = [&](const TimePart& part) {
    return other.parts.*part.part - plan.parts.*part.part;
  };
  for (const TimePart& part : kTimeParts) {
    if (change(part) < Duration{} && (gain == nullptr || change(part) < change(*gain)))
      gain = &part;
    if (change(part) > Duration{} && (loss == nullptr || change(part) > change(*loss)))
      loss = &part;
  }
  std::string text;
  if (gain != nullptr) {
    text =
        fmt::format("{} -{}", gain->name, report::show(Duration{} - change(*gain), plan.iteration));
  }
  if (loss != nullptr) {
    text += fmt::format("{}{} +{}", text.empty() ? "" : ", ", loss->name,
                        report::show(change(*loss), plan.iteration));
  }
  return text.empty() ? "nothing" : text;
}

/// Returns what has to be measured to tell an alternative from the plan; nothing where the times
/// are not known to be estimates, or tell them apart.
std::optional<io::AlternativeTie> tie_of(const PlanDocument& other, const PlanDocument& plan) {
  const std::optional<Factor>& error = plan.original_profile().calibration_error;
  if (!error || !are_within_error(other.prediction.iteration, plan.prediction.iteration, *error)) {
    return std::nullopt;
  }
  return io::AlternativeTie{*error, deciding_measurement(plan.plan, other.plan)};
}

/// Says which alternatives are a tie with the plan, and for each measurement which of them it tells
/// apart from the plan; empty where there are none.
std::string ties_text(const std::vector<Alternative>& found, const PlanDocument& plan,
                      const report::TextStyle& style) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> measurements;
  std::size_t ties = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::optional<io::AlternativeTie> tie = tie_of(found[i].document, plan);
    if (!tie) continue;
    ++ties;
    const auto known = std::find_if(measurements.begin(), measurements.end(),
                                    [&](const auto& some) { return some.first == tie->measure; });
    if (known == measurements.end()) {
      measurements.push_back({tie->measure, {i + 1}});
    } else {
      known->second.push_back(i + 1);
    }
  }
  if (ties == 0) return "";
  const std::optional<Factor>& error = plan.original_profile().calibration_error;
  std::string text = report::fill_lines(
      fmt::format("{} of them {} a tie with the plan, within the calibration's error of {} "
                  "(docs/accuracy.md). To decide, measure:",
                  ties, ties == 1 ? "is" : "are",
                  report::show_percent(static_cast<double>(error->billionths) /
                                       static_cast<double>(kOne.billionths))),
      0, style);
  for (const auto& [measurement, positions] : measurements) {
    constexpr std::size_t kIndent = 2;
    text +=
        "\n  " + report::fill_lines(fmt::format("{} {}: {}", positions.size() == 1 ? "row" : "rows",
                                                fmt::join(positions, ", "), measurement),
                                    kIndent, style);
  }
  return text + '\n';
}

}  // namespace

std::string Alternative::options() const {
  std::string words = fmt::format("--pin {}", fmt::join(pins, " --pin "));
  if (!sharding.empty()) words += " --shard " + sharding;
  return words;
}

AlternativesEnd find_alternatives(const ChosenPlan& chosen, std::size_t count,
                                  std::optional<Duration> time_limit, ProgressLine& progress) {
  return AlternativeSearch(chosen, count, time_limit, progress).run();
}

void add_alternative_outputs(const std::string& directory, std::int64_t count,
                             std::vector<command_line::NamedPath>& outputs) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < count; ++i) names.push_back(name_of(static_cast<std::size_t>(i)));
  add_folder_outputs("--write-alternatives", directory, names, outputs);
}

void write_alternatives(const std::string& directory, const AlternativesEnd& alternatives,
                        command_line::Results& results) {
  results.add_folder(directory);
  for (std::size_t i = 0; i < alternatives.found.size(); ++i) {
    results.add(plan_file_in(directory, name_of(i)),
                io::write_plan(alternatives.found[i].document));
  }
}

std::vector<io::AlternativeResult> alternative_results(
    const AlternativesEnd& alternatives, const PlanDocument& plan,
    const std::optional<std::string>& directory) {
  std::vector<io::AlternativeResult> some;
  for (const Alternative& alternative : alternatives.found) {
    const PlanDocument& document = alternative.document;
    io::AlternativeResult& result = some.emplace_back();
    result.options = alternative.options();
    if (directory) result.file = plan_file_in(*directory, name_of(some.size() - 1));
    result.shape = shape_of(document.plan);
    result.iteration = document.prediction.iteration;
    result.lower_bound = document.prediction.lower_bound;
    result.most_memory = document.prediction.most_memory();
    result.tie = tie_of(document, plan);
  }
  return some;
}

std::string alternatives_text(const AlternativesEnd& alternatives, const PlanDocument& plan,
                              const report::TextStyle& style) {
  const Prediction& own = plan.prediction;
  std::string text;
  if (alternatives.found.empty()) {
    text = alternatives.was_interrupted ? "No plan of another layout was found so far\n"
                                        : "No plan of another layout was found\n";
  } else {
    const bool shards = std::any_of(alternatives.found.begin(), alternatives.found.end(),
                                    [](const Alternative& some) { return !some.sharding.empty(); });
    report::Table table(
        {{shards ? "another layout, by --pin and --shard" : "another layout, by --pin",
          report::Align::Left, 20},
         {"iteration", report::Align::Right},
         {"is", report::Align::Right},
         {"at least", report::Align::Right},
         {"most memory", report::Align::Right},
         {"compared with the plan", report::Align::Left, 20}});
    std::size_t ties = 0;
    std::size_t faster = 0;
    for (const Alternative& some : alternatives.found) {
      const Prediction& other = some.document.prediction;
      const double ratio = ratio_to(other.iteration, own.iteration);
      const double proven = other.lower_bound ? ratio_to(*other.lower_bound, own.iteration) : 0;
      if (ratio <= 1 + kErrorOfPredictions) ++ties;
      if (other.iteration < own.iteration) ++faster;
      std::string layout = fmt::format("{}", fmt::join(some.pins, " "));
      if (!some.sharding.empty()) layout += ", --shard " + some.sharding;
      table.add_row({{std::move(layout)},
                     {report::show(other.iteration, own.iteration)},
                     {difference_of(ratio)},
                     {proven > 1 ? report::show_percent(proven - 1) : "-"},
                     {report::show(other.most_memory())},
                     {difference_text(other, own)}});
    }
    text = table.text(0, style);
    if (faster > 0) {
      text += report::fill_lines(
          fmt::format("{} of them {} faster than the plan, whose search does not go through all "
                      "plans of its schedule: with these pins it is found",
                      faster, faster == 1 ? "is" : "are"),
          0, style);
      text += '\n';
    }
    if (plan.original_profile().calibration_error) {
      text += ties_text(alternatives.found, plan, style);
    } else if (ties > 0) {
      text += report::fill_lines(
          fmt::format("{} of them {} within {:.0f} % of the plan, about the error of predictions "
                      "(docs/accuracy.md): what differs most decides, once it is measured",
                      ties, ties == 1 ? "is" : "are", 100 * kErrorOfPredictions),
          0, style);
      text += '\n';
    }
  }
  if (alternatives.was_interrupted) text += "interrupted: not all layouts were searched\n";
  return text;
}

}  // namespace dapple::app
