// What a plan is predicted to take: of its stages, of its devices, and of an iteration.
#pragma once

#include <optional>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple {

/// Costs of a stage as the plan was made with them, for readers of the file.
struct StageFigures {
  Duration forward;     // one micro-batch, slowest replica
  Duration backward;    // recomputation included
  Bytes send;           // activations of one micro-batch to the next stage, all replicas
  Duration all_reduce;  // of all buckets and tied gradients one after another, without overlap
  Duration optimizer_step;
};

struct DeviceFigures {
  DeviceIndex device;
  Bytes peak_memory;
  Bytes memory_limit;
  double busy_fraction = 0;  // of the iteration, computing
};

/// Where the time of an iteration goes: parts that add up to it exactly, none negative. Formulas in
/// planner/candidates/explain.h.
struct TimeParts {
  Duration compute;         // all forwards and backwards, spread evenly over all devices there are
  Duration recomputation;   // the same of the forwards that are run again
  Duration imbalance;       // what the busiest stage computes beyond these two
  Duration bubble;          // its waiting with free communication: filling and draining
  Duration transfers;       // its waiting for activations and gradients
  Duration all_reduce;      // what reducing gradients adds
  Duration optimizer_step;  // of the busiest stage

  Duration total() const;
  friend bool operator==(const TimeParts&, const TimeParts&) = default;
};

/// The parts with their names, in the order in which they are shown.
struct TimePart {
  const char* name;  // in words
  const char* key;   // in files, in nanoseconds
  Duration TimeParts::*part;
};
inline constexpr TimePart kTimeParts[] = {
    {"compute", "compute_ns", &TimeParts::compute},
    {"recomputation", "recomputation_ns", &TimeParts::recomputation},
    {"imbalance", "imbalance_ns", &TimeParts::imbalance},
    {"bubble", "bubble_ns", &TimeParts::bubble},
    {"transfers", "transfers_ns", &TimeParts::transfers},
    {"all-reduce", "all_reduce_ns", &TimeParts::all_reduce},
    {"optimizer step", "optimizer_step_ns", &TimeParts::optimizer_step},
};

/// Predicted by simulation in that mode; definitions in the formats' section of the README.
struct Prediction {
  Contention contention = Contention::Shared;
  Replicas replicas = Replicas::Together;
  Duration iteration;
  double samples_per_second = 0;
  std::optional<double> speedup_over_one_device;
  std::optional<Duration> lower_bound;
  std::optional<double> optimality_gap;
  double bubble_fraction = 0;
  Duration exposed_transfer;
  Duration exposed_all_reduce;
  TimeParts parts;  // of the iteration
  std::vector<StageFigures> stages;
  std::vector<DeviceFigures> devices;  // the used ones, by index
};

}  // namespace dapple
