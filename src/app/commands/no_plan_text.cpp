#include "app/commands/no_plan_text.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/plan/pins.h"
#include "dapple/plan/plan.h"

namespace dapple::app {
namespace {

using planner::Remedy;
using planner::RemedyKind;

double gibibytes(Bytes size) {
  return static_cast<double>(size.count) / (std::int64_t{1} << 30);
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// Words each reason for which no plan was made.
struct ConflictText {
  std::string operator()(const planner::TooFewSamples& few) const {
    return fmt::format("{} replicas need micro-batches of {} samples or more, the largest has {}",
                       few.replicas, few.replicas, few.largest_micro_batch);
  }
  std::string operator()(const planner::TooFewDevices& few) const {
    return fmt::format("{} of {} need {} devices, there are {}", counted(few.stages, "stage"),
                       counted(few.replicas, "replica"), few.stages * few.replicas, few.devices);
  }
  std::string operator()(const planner::NoSuchSplit& none) const {
    return fmt::format("no split of {} layers matches the pins", none.layers);
  }
  std::string operator()(const planner::TooManyPasses& many) const {
    using Fewest = planner::TooManyPasses::Fewest;
    const char* const fewest = many.fewest == Fewest::Pinned    ? "are as pinned"
                               : many.fewest == Fewest::Fitting ? "fit"
                                                                : "fit as pinned";
    return fmt::format(
        "{} {}, the fewest that {}, and {} micro-batches make {} stage passes; at most {} can be "
        "simulated{}",
        many.lanes, many.replicas == Replicas::Independent ? "independent replicas" : "stages",
        fewest, many.micro_batches, many.lanes * many.micro_batches, many.most_passes,
        many.memory_limit
            ? fmt::format(" within --memory-limit {:.2f} GiB", gibibytes(*many.memory_limit))
            : std::string());
  }
  std::string operator()(const planner::FitUnknown&) const {
    return "none was found, and finding out whether any fits memory takes more work or memory "
           "than a search may take";
  }
  std::string operator()(const planner::NotFoundAsPinned& none) const {
    return fmt::format("some plan fits, but none was found that does {}",
                       none.by_depths ? "with these depths" : "with the devices in order");
  }
  std::string operator()(const planner::NotFoundWithSkips&) const {
    return "none was found that has room for the tensors that are sent directly";
  }
  std::string operator()(const planner::NoShapeUnderFamily& none) const {
    return fmt::format("none of the shapes that were tried {} as {}; others may",
                       none.lacks_memory ? "fits" : "can run", to_string(none.family));
  }
};

/// What stands before figures that may be too small.
const char* at_least(bool is_least) {
  return is_least ? "at least " : "";
}

std::string memory_remedy(const Remedy& remedy, bool is_least) {
  // Half of the last place is added, so that the rounded size is enough.
  return fmt::format("{}{:.2f} GiB more memory per device", at_least(is_least),
                     gibibytes(remedy.memory) + 0.005);
}

std::string pins_remedy(const Pins& pins, const ModelProfile& profile) {
  const std::vector<std::string> texts = to_texts(pins, profile);
  return texts.size() == 1 ? "leave out --pin " + texts.front() : "leave out all pins";
}

std::string remedy_text(const Remedy& remedy, bool is_least, const ModelProfile& profile,
                        const Topology& topology) {
  const std::int64_t group = topology.description().group_size;
  switch (remedy.kind) {
    case RemedyKind::None:
      return "none was found: nothing fits without pins either";
    case RemedyKind::FewerPins:
      return pins_remedy(remedy.pins, profile);
    case RemedyKind::SmallerMicroBatch:
      return fmt::format("a smaller micro-batch: leave out --micro-batch, or ask for {}",
                         remedy.value);
    case RemedyKind::LargerMicroBatch:
      return fmt::format("a larger --micro-batch helps: {} or more", remedy.value);
    case RemedyKind::MoreDivisors:
      return fmt::format(
          "a global batch with more divisors: {} is the smallest micro-batch of this one that "
          "leaves a number of micro-batches that can be searched",
          remedy.value);
    case RemedyKind::SmallerGlobalBatch:
      return fmt::format("a --global-batch of at most {}", remedy.value);
    case RemedyKind::OneFOneB:
      return "--schedule 1f1b: it holds fewer micro-batches at a time";
    case RemedyKind::EveryFamily:
      return "--schedule auto: it looks at all families";
    case RemedyKind::EveryRuntime:
      return "planning without --for may find a plan";
    case RemedyKind::EveryParallelism:
      return "fewer of --pin, --max-tensor and --shard: other forms of parallelism were not tried";
    case RemedyKind::ShardedState:
      return "--shard optimizer: replicas then hold a part each of the optimizer's state";
    case RemedyKind::AllStateSharded:
      return "--shard full: devices then hold a part each of all state";
    case RemedyKind::MoreDevices:
      return fmt::format("more stages on {}{} devices like the last (now {}), or {}",
                         at_least(is_least), remedy.value * group, topology.device_count() * group,
                         memory_remedy(remedy, is_least));
    case RemedyKind::OnlyMoreMemory:
      return memory_remedy(remedy, is_least) + "; more stages would not help";
    case RemedyKind::MoreMemory:
      return memory_remedy(remedy, is_least);
    case RemedyKind::SomeMemory:
      return "more memory";
    case RemedyKind::SmallerSearch:
      return "fewer and larger layers in the profile, or a larger --memory-limit";
  }
  throw Bug("a remedy is of no kind");
}

/// Describes the closest plan: that of a pipeline by its stages, any other by its shape.
std::string closest_text(const Plan& plan, const Parallelism& parallelism) {
  if (!is_planned_as_1f1b(plan.family)) return shape_of(plan);
  std::int64_t devices = 0;
  bool recompute = false;
  for (const StagePlan& stage : plan.stages) {
    devices += static_cast<std::int64_t>(stage.devices.size());
    recompute = recompute || stage.recompute;
  }
  return fmt::format("{} on {}, micro-batches of {}{}{}",
                     counted(static_cast<std::int64_t>(plan.stages.size()), "stage"),
                     counted(devices * parallelism.group_size(), "device"), plan.micro_batch_size,
                     recompute ? ", with recomputation" : "",
                     parallelism.is_none() ? "" : ", " + to_text(parallelism));
}

/// Words each reason for which a plan cannot run under a schedule.
struct RefusalText {
  ScheduleFamily family;

  std::string operator()(const planner::PlanFaults& plan) const {
    const Violation& first = plan.faults.front();
    std::string text = first.place.empty() ? first.message : first.place + ": " + first.message;
    if (plan.faults.size() > 1) {
      text += fmt::format(" ({} more fault{} not listed)", plan.faults.size() - 1,
                          plan.faults.size() == 2 ? " is" : "s are");
    }
    return text;
  }
  std::string operator()(const planner::TooFewLayers& few) const {
    return fmt::format("expected at least {} layers, one for each stage, got {}", few.stages,
                       few.layers);
  }
  std::string operator()(const planner::TooLongToSimulate& plan) const {
    return fmt::format(
        "{} micro-batches on {} stages make {} stage passes; at most {} can be simulated within "
        "--memory-limit {:.2f} GiB",
        plan.micro_batches, plan.stages, plan.passes, plan.most_passes,
        gibibytes(plan.memory_limit));
  }
  std::string operator()(const planner::TooLongToSearch& order) const {
    return fmt::format(
        "its orders have {} tasks; at most {} can be searched within --memory-limit {:.2f} GiB",
        order.tasks, order.most_tasks, gibibytes(order.memory_limit));
  }
  std::string operator()(const planner::DealsMicroBatches&) const {
    return fmt::format(
        "expected replicas that share each micro-batch, as {} deals none, got a stage that deals "
        "them",
        to_string(family));
  }
  std::string operator()(const planner::NoDepthsFit&) const {
    return "not even one micro-batch in flight on every stage fits into memory";
  }
  std::string operator()(const planner::NoOrderFits&) const {
    return fmt::format("no order of {} fits into memory, not even one micro-batch after the other",
                       to_string(family));
  }
  std::string operator()(const planner::DoesNotFit&) const {
    return "what it holds does not fit into memory";
  }
};

}  // namespace

io::NoPlanResult no_plan_result(const planner::Infeasible& infeasible, const ModelProfile& profile,
                                const Topology& topology) {
  io::NoPlanResult result{.is_stopped = infeasible.stopped};
  if (infeasible.stopped) {
    result.is_certain = false;
    return result;
  }
  result.is_certain = infeasible.is_certain;
  result.pins = to_texts(infeasible.pins, profile);
  if (!infeasible.runtime.empty()) {
    result.pins.push_back(fmt::format("what {} can express", infeasible.runtime));
  }
  if (infeasible.conflict) {
    result.reason = std::visit(ConflictText{}, *infeasible.conflict);
  } else {
    const MemoryShortage& shortage = *infeasible.shortage;
    result.shortage = {.device = topology.device(shortage.device).name,
                       .needed = shortage.needed,
                       .limit = shortage.limit,
                       .is_least = infeasible.is_least_shortage,
                       .closest = closest_text(infeasible.closest, infeasible.parallelism)};
  }
  result.remedy = remedy_text(infeasible.remedy, infeasible.is_least_shortage, profile, topology);
  return result;
}

std::string no_plan_text(const io::NoPlanResult& result, const std::string& model,
                         const std::string& topology, const report::TextStyle& style) {
  const std::string error = report::paint("error:", report::Ink::Bad, style);
  const std::string subject = fmt::format("{} on {}", printable(model), printable(topology));
  if (result.is_stopped) {
    return fmt::format("{} no plan was found before the search was stopped: {}\n", error, subject);
  }
  const std::vector<std::string>& pins = result.pins;
  std::string text = fmt::format("{} no plan {}{}: {}\n", error,
                                 result.reason       ? "was found"
                                 : result.is_certain ? "fits"
                                                     : "was found that fits",
                                 pins.empty() ? "" : " with what is pinned", subject);
  if (!pins.empty()) {
    text +=
        fmt::format("  pinned           {}\n", printable(fmt::format("{}", fmt::join(pins, ", "))));
  }
  if (result.reason) { text += fmt::format("  because          {}\n", printable(*result.reason)); }
  if (result.shortage) {
    const auto& [device, needed, limit, is_least, closest] = *result.shortage;
    const Bytes missing = needed - limit;
    text += fmt::format(
        "  tightest device  {} needs {}{}, has {}: {}{} ({} bytes) are missing\n"
        "  closest plan     {}\n",
        printable(device), at_least(is_least), report::show(needed, limit), report::show(limit),
        at_least(is_least), report::show(missing, limit), missing.count, printable(closest));
  }
  return text + fmt::format("  cheapest remedy  {}\n", printable(*result.remedy));
}

std::string refusal_text(const planner::Refusal& refusal, ScheduleFamily family) {
  return std::visit(RefusalText{family}, refusal);
}

}  // namespace dapple::app
