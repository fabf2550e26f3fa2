// Why no plan was made, and what would help, as values; whoever shows them to people words them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "dapple/core/quantity.h"
#include "dapple/cost/memory.h"
#include "dapple/plan/pins.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/profile/parallelism.h"

namespace dapple::planner {

// The reasons other than memory.

/// The pinned replicas need larger micro-batches than the largest allowed one.
struct TooFewSamples {
  std::int64_t replicas = 1;
  std::int64_t largest_micro_batch = 1;
};
/// The pinned stages and replicas need more devices than there are.
struct TooFewDevices {
  std::int64_t stages = 1;
  std::int64_t replicas = 1;
  std::int64_t devices = 1;
};
/// No split of so many layers satisfies the pins.
struct NoSuchSplit {
  std::int32_t layers = 1;
};
/// Every plan that fits has more stage passes than can be simulated.
struct TooManyPasses {
  /// Why there are no fewer lanes.
  enum class Fewest : std::uint8_t { Pinned, Fitting, FittingAsPinned };
  /// The fewest stages, or independent replicas.
  std::int64_t lanes = 1;
  Replicas replicas = Replicas::Together;
  Fewest fewest = Fewest::Fitting;
  std::int64_t micro_batches = 1;
  std::int64_t most_passes = 1;
  /// The memory limit from which `most_passes` follows; nothing where it is the limit of any plan.
  std::optional<Bytes> memory_limit;
};
/// To find out whether any plan fits takes more work or memory than a search may take.
struct FitUnknown {};
/// Some plan fits, but none was found with the least depths, or with the devices in order.
struct NotFoundAsPinned {
  bool by_depths = false;
};
/// Tensors that skip stages were left out of the memory of the plan that fits, and no plan was
/// found that fits with them.
struct NotFoundWithSkips {};
/// None of the shapes that were tried fits, or can run, under the only requested family.
struct NoShapeUnderFamily {
  ScheduleFamily family = ScheduleFamily::OneFOneB;
  bool lacks_memory = false;
};
using Conflict = std::variant<TooFewSamples, TooFewDevices, NoSuchSplit, TooManyPasses, FitUnknown,
                              NotFoundAsPinned, NotFoundWithSkips, NoShapeUnderFamily>;

/// A change of the request, with which some plan was found to fit unless its comment denies it.
enum class RemedyKind : std::uint8_t {
  /// Nothing was found to help.
  None,
  /// Leaving out Remedy::pins.
  FewerPins,
  /// A micro-batch of `value` samples.
  SmallerMicroBatch,
  /// A micro-batch of `value` samples or more.
  LargerMicroBatch,
  /// A global batch with more divisors; `value` is the smallest micro-batch of this one that makes
  /// few enough micro-batches.
  MoreDivisors,
  /// A global batch of at most `value` samples, which was not tried.
  SmallerGlobalBatch,
  OneFOneB,
  /// Every schedule family, which was not tried.
  EveryFamily,
  /// Any runtime, which was not tried.
  EveryRuntime,
  /// Every form of parallelism, some of which were not tried.
  EveryParallelism,
  /// Sharding the optimizer's state, or all state.
  ShardedState,
  AllStateSharded,
  /// `memory` more on each device, or `value` devices like the last.
  MoreDevices,
  /// `memory` more on each device, as more devices would not help.
  OnlyMoreMemory,
  /// `memory` more on each device; whether more devices would help is not known.
  MoreMemory,
  /// More memory, of unknown size.
  SomeMemory,
  /// Fewer layers in the profile, or a larger memory limit of the planner, which were not tried.
  SmallerSearch,
};
struct Remedy {
  RemedyKind kind = RemedyKind::None;
  std::int64_t value = 0;
  Bytes memory = {};
  Pins pins = {};
};

/// The result where no plan fits: what comes closest, what it lacks, and what would help.
struct Infeasible {
  /// Whether the search was stopped before this was known; then nothing below is filled in.
  bool stopped = false;
  /// Whether it is proven that no plan fits, and not only that none was found.
  bool is_certain = true;
  /// Lower bound on every plan, should one fit after all; infinite if a search proved that none
  /// does.
  Duration lower_bound = {};
  Pins pins = {};
  /// The form of parallelism of the closest plan.
  Parallelism parallelism = {};
  /// The name of the runtime to which plans were restricted, or empty.
  std::string runtime = {};
  /// Why no plan satisfies the pins, whatever memory there is; then there is no closest plan.
  std::optional<Conflict> conflict = {};
  /// What the tightest device of the closest plan lacks, and that plan.
  std::optional<MemoryShortage> shortage = {};
  /// Whether the shortage is a lower bound: that of one micro-batch in flight on every stage, of
  /// which the plans that are asked for may have more, or without what they hold besides.
  bool is_least_shortage = false;
  Plan closest = {};
  /// The cheapest remedy that was found to work.
  Remedy remedy = {};

  /// Whether it is proven that no plan fits, by the least memory that plans need or by a search.
  bool is_proven() const { return is_certain || lower_bound.is_infinite(); }
  /// Returns the memory that is missing, none where that is not the reason.
  Bytes missing() const { return shortage ? shortage->missing() : Bytes{}; }
};

/// Returns the result of a search that was stopped before it was known whether a plan fits.
inline Infeasible stopped_before_a_plan() {
  Infeasible unknown;
  unknown.stopped = true;
  return unknown;
}

}  // namespace dapple::planner
