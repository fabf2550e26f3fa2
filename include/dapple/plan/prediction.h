// The predicted figures of a plan: those of its stages, of its devices, and of an iteration.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple {

/// The costs of a stage with which the plan was made, for readers of the file.
struct StageFigures {
  /// The forward of one micro-batch on the slowest replica.
  Duration forward;
  /// The backward of one micro-batch on the slowest replica, including recomputation.
  Duration backward;
  /// The activations of one micro-batch that all replicas send to later stages.
  Bytes send;
  /// The all-reduces of all buckets and tied gradients one after another, without overlap.
  Duration all_reduce;
  Duration optimizer_step;
};

struct DeviceFigures {
  DeviceIndex device;
  Bytes peak_memory;
  Bytes memory_limit;
  /// The share of the iteration during which the device computes.
  double busy_fraction = 0;
};

/// The breakdown of an iteration into parts that are not negative and add up to it exactly. The
/// formulas are in planner/candidates/explain.h.
struct TimeParts {
  /// All forwards and backwards without collectives, distributed evenly over all devices of the
  /// topology.
  Duration compute;
  /// The collectives of groups that share layers, distributed likewise.
  Duration collectives = {};
  /// The forwards that are run again, distributed likewise.
  Duration recomputation;
  /// What the busiest stage computes beyond these two.
  Duration imbalance;
  /// The waiting time of the busiest stage with free communication: filling and draining.
  Duration bubble;
  /// Its waiting time for activations and gradients.
  Duration transfers;
  /// The time that gradient reductions add.
  Duration all_reduce;
  /// The optimizer step of the busiest stage.
  Duration optimizer_step;

  /// Returns the sum of the parts.
  Duration total() const;
  friend bool operator==(const TimeParts&, const TimeParts&) = default;
};

/// A part of the iteration with its names.
struct TimePart {
  /// The name for people.
  const char* name;
  /// The key in files, whose values are in nanoseconds.
  const char* key;
  Duration TimeParts::*part;
  /// Whether files have it only where it is not zero.
  bool is_optional = false;
};
/// All parts in the order in which they are shown.
inline constexpr TimePart kTimeParts[] = {
    {"compute", "compute_ns", &TimeParts::compute},
    {"collectives", "collectives_ns", &TimeParts::collectives, true},
    {"recomputation", "recomputation_ns", &TimeParts::recomputation},
    {"imbalance", "imbalance_ns", &TimeParts::imbalance},
    {"bubble", "bubble_ns", &TimeParts::bubble},
    {"transfers", "transfers_ns", &TimeParts::transfers},
    {"all-reduce", "all_reduce_ns", &TimeParts::all_reduce},
    {"optimizer step", "optimizer_step_ns", &TimeParts::optimizer_step},
};

/// How the iteration varies where devices are not equally fast (docs/model.md, section 10.11).
struct JitterFigures {
  /// The median and the 95th percentile of the drawn iterations, each one that was simulated.
  Duration median;
  Duration ninety_fifth;
  /// The number of drawn iterations, fewer for a long plan.
  std::int64_t draws = 0;
  /// By stage, the iteration if the stage's slowest device is 10 % slower.
  std::vector<Duration> with_slow_device = {};

  /// Returns the stage whose slower device makes the iteration longest, of equals the first.
  /// Requires: there are stages. O(stages).
  StageIndex worst_stage() const;
  friend bool operator==(const JitterFigures&, const JitterFigures&) = default;
};

/// The figures that a simulation in the given mode predicts. The README's section on formats
/// defines them.
struct Prediction {
  Contention contention = Contention::Shared;
  Replicas replicas = Replicas::Together;
  Transfers transfers = Transfers::Overlapped;
  Duration iteration;
  double samples_per_second = 0;
  std::optional<double> speedup_over_one_device;
  std::optional<Duration> lower_bound;
  std::optional<double> optimality_gap;
  double bubble_fraction = 0;
  Duration exposed_transfer;
  Duration exposed_all_reduce;
  /// The parts of the iteration.
  TimeParts parts;
  std::vector<StageFigures> stages;
  /// The devices that the plan uses, by index.
  std::vector<DeviceFigures> devices;
  /// With devices that are not equally fast, where that was asked for.
  std::optional<JitterFigures> jitter = {};

  SimulationMode mode() const { return {contention, replicas, transfers}; }

  /// Returns the peak memory of the fullest device; zero for no devices.
  Bytes most_memory() const;
};

}  // namespace dapple
