#include "dapple/plan/record_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "dapple/core/error.h"
#include "dapple/plan/document.h"
#include "dapple/plan/optimality.h"
#include "dapple/profile/variants.h"

namespace dapple {
namespace {

/// The beginning of a line about a pin.
constexpr std::string_view kCutPinned = "pinned: ";

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char letter) {
    return (letter >= '0' && letter <= '9') || letter == '.' || letter == 'e' || letter == '+' ||
           letter == '-';
  });
}

/// Says by how much a plan of some kind may be faster than one that takes `iteration`.
std::string limit_of(Duration iteration, Duration lower_bound) {
  const double possible = optimality_gap(iteration, std::min(lower_bound, iteration));
  if (possible <= 0) return "none is faster";
  return fmt::format("none is over {:.1f} % faster", std::ceil(1000 * possible) / 10);
}

/// Compares the best plan that was found of some kind with the plan.
std::string compared(Duration found, Duration plan) {
  if (found == plan) return "found as fast";
  const double above =
      100.0 * static_cast<double>((found - plan).ns) / static_cast<double>(plan.ns);
  return fmt::format("found {:.2g} % slower", above);
}

/// Returns what was found, without the bound.
std::string_view outcome_text(FamilyOutcomeKind kind) {
  switch (kind) {
    case FamilyOutcomeKind::IsPlan:
      return "this plan";
    case FamilyOutcomeKind::SearchedAs1F1B:
      return "1f1b with everything in flight: searched there";
    case FamilyOutcomeKind::Stopped:
      return "stopped before it was searched";
    case FamilyOutcomeKind::NoneFits:
      return "no plan of it fits memory";
    case FamilyOutcomeKind::NoneFound:
      return "none was found";
    case FamilyOutcomeKind::NoneFoundThatFits:
      return "none found that fits memory";
    case FamilyOutcomeKind::NoneFoundThatRuns:
      return "none found that can run so";
    case FamilyOutcomeKind::Found:
    case FamilyOutcomeKind::NotSearched:
      break;
  }
  throw Bug("this outcome of a family is worded with its figures");
}

/// How by how much a plan is slower is stated, always rounded up: in tenths of a percent or, in
/// older files, in whole percents.
enum class SlowerBy { Tenths, Percents };

std::string outcome_text(const ParallelismReason& reason, SlowerBy precision) {
  switch (reason.kind) {
    case ParallelismOutcomeKind::IsPlan:
      return "this plan";
    case ParallelismOutcomeKind::Found: {
      const Duration found = reason.found.value_or(reason.plan);
      if (found == reason.plan) return "one as fast was found";
      // Only plans that are faster than the best of all are searched for.
      const auto as_text = [&]() -> std::string {
        if (precision == SlowerBy::Percents) {
          const double ratio = static_cast<double>(found.ns) / static_cast<double>(reason.plan.ns);
          return fmt::format("{:.0f}", std::ceil(100 * (ratio - 1)));
        }
        const Wide beyond = Wide{1000} * (found - reason.plan).ns;
        const auto tenths =
            static_cast<std::int64_t>((beyond + reason.plan.ns - 1) / reason.plan.ns);
        return fmt::format("{}.{}", tenths / 10, tenths % 10);
      };
      return fmt::format("only faster plans were looked for; the best one seen is {} % slower",
                         as_text());
    }
    case ParallelismOutcomeKind::NotSearched:
      return "not searched";
    case ParallelismOutcomeKind::Stopped:
      return "stopped before it was searched";
    case ParallelismOutcomeKind::NoneFits:
      return "no plan of it fits memory";
    case ParallelismOutcomeKind::NoneFound:
      return "none was found";
  }
  throw Bug("an outcome of a form of parallelism is of no kind");
}

void add(FurtherDimensions further, std::vector<std::string>& searched) {
  if (further.bucket_sizes) searched.emplace_back(kBucketSizes);
  if (further.shares_by_speed) searched.emplace_back(kShares);
  if (further.dealt_micro_batches) searched.emplace_back(kReplications);
}

}  // namespace

std::vector<std::string> exact_dimensions(bool all_placements, FurtherDimensions further) {
  std::vector<std::string> searched{
      "stage boundaries",
      "replicas per stage",
      all_placements ? "placement: every set of devices, replicas in the order of their numbers"
                     : "placement: three policies",
      "micro-batch sizes that divide the global batch",
      "warm-up depths",
      "recomputation per stage",
      "idle devices"};
  add(further, searched);
  return searched;
}

std::vector<std::string> diagram_dimensions(FurtherDimensions further) {
  std::vector<std::string> searched{"stage boundaries",
                                    "replicas per stage",
                                    "placement: devices in the order of their numbers",
                                    "micro-batch sizes that divide the global batch",
                                    "warm-up depths",
                                    "recomputation per stage",
                                    "idle devices"};
  add(further, searched);
  return searched;
}

std::vector<std::string> dapple_dimensions(FurtherDimensions further) {
  std::vector<std::string> searched{
      "stage boundaries",
      "replicas per stage",
      "placement by three policies",
      "micro-batch sizes that divide the global batch",
      "warm-up depths: policies A and B, deeper ones, what memory allows",
      "recomputation per stage",
      "idle devices"};
  add(further, searched);
  return searched;
}

std::vector<std::string> families_dimensions() {
  return {"stage boundaries", "replicas per stage",
          "micro-batch sizes that divide the global batch"};
}

std::string orders_of(ScheduleFamily family) {
  return fmt::format("orders of {}", to_string(family));
}

std::string shapes_pattern(ScheduleFamily family) {
  return std::string(to_string(family)) +
         ": all but {} shapes and what is near the best of them; the bound holds for the rest too";
}

std::string cut_too_long(std::int64_t count, std::int64_t all) {
  return fmt::format(kTooLongPattern, count, all);
}

std::string cut_placements(double percent) {
  return fmt::format(kPlacementsPattern, percent);
}

std::string cut_narrowed(std::int64_t count) {
  return fmt::format(kNarrowedPattern, count);
}

std::string cut_not_simulated(std::int64_t count) {
  return fmt::format(kNotSimulatedPattern, count);
}

std::string cut_shapes(ScheduleFamily family, std::int64_t tried) {
  return fmt::format(fmt::runtime(shapes_pattern(family)), tried);
}

std::optional<std::vector<double>> figures_in(std::string_view pattern, std::string_view line) {
  std::vector<double> figures;
  for (std::size_t open = pattern.find('{'); open != std::string_view::npos;
       open = pattern.find('{')) {
    if (line.substr(0, open) != pattern.substr(0, open)) return std::nullopt;
    pattern.remove_prefix(pattern.find('}', open) + 1);
    line.remove_prefix(open);
    const std::size_t end = std::min(line.find_first_of(" :;"), line.size());
    const std::string number(line.substr(0, end));
    if (!is_number(number)) return std::nullopt;
    figures.push_back(std::strtod(number.c_str(), nullptr));
    line.remove_prefix(end);
  }
  if (pattern != line) return std::nullopt;
  return figures;
}

std::string cut_of_many_devices(std::int32_t most) {
  return fmt::format(
      "more than {} devices: nothing was searched beyond the first plans, and the bound is that of "
      "the work alone",
      most);
}

std::string cut_of_family(ScheduleFamily family) {
  return fmt::format("{}: not searched; the bound holds for it too", to_string(family));
}

std::string cut_of_micro_batch_size(std::int64_t only) {
  return fmt::format("micro-batch size: only {}, as asked", only);
}

std::string cut_of_small_micro_batches(std::int64_t smallest, std::int64_t most_micro_batches) {
  return fmt::format("micro-batch sizes below {}: more than {} micro-batches", smallest,
                     most_micro_batches);
}

std::string cut_of_runtime(const InexpressibleParts& parts) {
  return fmt::format(
      "what {} cannot express: replicas that differ from stage to stage or have unequal shares, "
      "recomputation in some stages{}{}{}",
      parts.runtime,
      parts.other_orders_of_devices ? ", devices in another order than its launcher's" : "",
      parts.other_depths ? ", other depths than the least" : "",
      parts.some_boundaries ? ", some boundaries" : "");
}

std::string with_older_runtime(std::string text, std::string_view target) {
  constexpr std::string_view kName = "torchtitan";
  const std::size_t place = target == kName ? text.find(kName) : std::string::npos;
  if (place != std::string::npos) text.replace(place, kName.size(), "PyTorch's runtime");
  return text;
}

std::string with_older_count(std::string text) {
  constexpr std::string_view kNow = "need a multiple of that, and there is 1 ";
  constexpr std::string_view kThen = "need a multiple of that, and there are 1 ";
  const std::size_t place = text.find(kNow);
  if (place != std::string::npos) text.replace(place, kNow.size(), kThen);
  return text;
}

std::vector<std::string> cuts_of_pins(const Pins& pins, const ModelProfile& profile) {
  std::vector<std::string> cuts = to_texts(pins, profile);
  for (std::string& cut : cuts) cut.insert(0, kCutPinned);
  return cuts;
}

bool is_cut_of_pin(std::string_view line) {
  return line.starts_with(kCutPinned);
}

std::string text_of(const FamilyReason& reason) {
  const std::string limit =
      reason.lower_bound ? limit_of(reason.plan, *reason.lower_bound) : std::string();
  if (reason.kind == FamilyOutcomeKind::NotSearched) {
    return fmt::format("{}; the bubble is {:.1f} %", limit, 100 * reason.bubble);
  }
  std::string text;
  if (reason.kind == FamilyOutcomeKind::Found) {
    text = compared(reason.found, reason.plan);
    if (reason.messages > 1) text += fmt::format(", {} x messages", reason.messages);
  } else {
    text = outcome_text(reason.kind);
  }
  return limit.empty() ? text : text + "; " + limit;
}

namespace {

std::string text_of(const ParallelismReason& reason, SlowerBy precision) {
  const std::string text = outcome_text(reason, precision);
  if (!reason.lower_bound) return text;
  return text + "; " + limit_of(reason.plan, *reason.lower_bound);
}

}  // namespace

std::string text_of(const ParallelismReason& reason) {
  return text_of(reason, SlowerBy::Tenths);
}

std::string older_text_of(const ParallelismReason& reason) {
  return text_of(reason, SlowerBy::Percents);
}

std::string outside_space(const ModelProfile& profile, Sharding sharding, bool mixes_forms,
                          bool mixes_group_sizes) {
  bool has_context = false;
  bool has_experts = false;
  const std::vector<Parallelism> forms = parallelisms_of(profile);
  for (const Parallelism& form : forms) {
    has_context = has_context || form.context > 1;
    has_experts = has_experts || form.experts > 1;
  }
  std::string text = "tensor, sequence and expert parallelism";
  if (forms.size() > 1) {
    text = mixes_group_sizes ? "groups whose size differs between stages, except in forms that "
                               "one record lists, or is that of no form by itself"
           : mixes_forms     ? "groups whose size differs between stages, or is that of no "
                               "form by itself"
           : has_context || has_experts ? "degrees of parallelism that differ between stages"
                                        : "degrees of tensor parallelism that differ between "
                                          "stages";
    if (!has_context && !has_experts) text += "; context and expert parallelism";
    if (has_context && !has_experts) text += "; expert parallelism";
    if (!has_context && has_experts) text += "; context parallelism";
  }
  switch (sharding) {
    case Sharding::None:
      return text + "; sharded state";
    case Sharding::Optimizer:
      return text + "; sharded gradients and parameters; sharding in some stages only";
    case Sharding::Full:
      return text + "; state that is not sharded whole; sharding in some stages only";
    case Sharding::Any:
      return text + (mixes_forms ? "; sharded gradients alone; the optimizer's state alone sharded "
                                   "in some stages only"
                                 : "; sharded gradients alone; sharding in some stages only");
  }
  throw Bug("a sharding without a name");
}

std::string shares_outside_space(Shares shares) {
  return shares == Shares::Equal
             ? "; unequal shares of micro-batches"
             : "; shares of micro-batches other than equal ones and those by speed";
}

std::string recomputation_outside_space(SelectableLayers searched) {
  if (!searched.has_some()) return "; parts recomputed in some layers of a stage only";
  constexpr const char* kFirst = "the first 1 to 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 and so on";
  constexpr const char* kEveryNth = "every second, third or fourth";
  std::string layers = "all";
  if (searched.first) layers += fmt::format("{} {}", searched.every_nth ? "," : " or", kFirst);
  if (searched.every_nth) layers += fmt::format("{} or {}", searched.first ? "," : "", kEveryNth);
  return fmt::format("; parts recomputed in other layers than {} of every stage", layers);
}

std::string cut_of_parallelism(const Parallelism& parallelism,
                               const std::vector<Parallelism>& stage_forms) {
  if (stage_forms.empty()) {
    return fmt::format("{}: not searched completely; the bound holds for it too",
                       to_text(parallelism));
  }
  const bool have_one_size = std::all_of(
      stage_forms.begin(), stage_forms.end(),
      [&](const Parallelism& form) { return form.group_size() == parallelism.group_size(); });
  return fmt::format(
      "stages in different forms, on groups of {}{}: not searched completely; the bound holds for "
      "them too",
      have_one_size ? fmt::format("{}", parallelism.group_size()) : "different sizes",
      parallelism.shards_optimizer ? " with sharded optimizer state" : "");
}

}  // namespace dapple
