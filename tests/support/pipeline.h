// Small pipelines, ready to be simulated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dapple/schedule/schedule.h"
#include "dapple/simulate/simulate.h"
#include "dapple/timeline/timeline.h"
#include "plans.h"

namespace dapple::small {

/// A costed plan with its schedule: everything that a simulation needs.
struct Pipeline : CostedPlan {
  Schedule schedule;

  /// Throws Bug if the plan or its schedule is unsound.
  explicit Pipeline(CostedPlan costed);
  Pipeline(ModelProfile model, TopologyDescription description, Plan made);
  Pipeline(const ModelProfile& model, TopologyDescription description, const PlanShape& shape);

  simulate::SimulationResult run(const simulate::SimulationOptions& options = {}) const;
  simulate::SimulationResult run(Contention contention) const;
  /// Simulated with independent replicas.
  simulate::SimulationResult run_apart(const simulate::SimulationOptions& options = {}) const;
};

/// One layer per stage and one device per stage, in order, on the full mesh of `link`.
Pipeline straight(const std::vector<LayerFigures>& stages, const PlanShape& shape,
                  const Link& link = {bytes_per_ns(1), {}});

/// What a lane does on a stream, by start: "F0[0,10] B0[10,30] S[30,30]". F and B compute, S is the
/// optimizer step, A and G send activations and gradients, R reduces a bucket, T what is tied.
std::string line(const simulate::SimulationResult& result, std::int32_t lane, Stream stream);

std::string compute(const simulate::SimulationResult& result, std::int32_t lane);
std::string activations(const simulate::SimulationResult& result, std::int32_t lane);
std::string gradients(const simulate::SimulationResult& result, std::int32_t lane);
std::string reductions(const simulate::SimulationResult& result, std::int32_t lane);

}  // namespace dapple::small
