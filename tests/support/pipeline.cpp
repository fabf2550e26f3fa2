#include "pipeline.h"

#include <cstddef>
#include <utility>

#include "dapple/core/error.h"

namespace dapple::small {

Pipeline::Pipeline(CostedPlan costed) : CostedPlan(std::move(costed)), schedule(generate(plan)) {
  const std::vector<Violation> disorder = validate(schedule, plan);
  if (!disorder.empty()) throw Bug(disorder.front().place + ": " + disorder.front().message);
}

Pipeline::Pipeline(ModelProfile model, TopologyDescription description, Plan made)
    : Pipeline(CostedPlan(std::move(model), std::move(description), std::move(made))) {}

Pipeline::Pipeline(const ModelProfile& model, TopologyDescription description,
                   const PlanShape& shape)
    : Pipeline(model, std::move(description), plan_of(model, shape)) {}

simulate::SimulationResult Pipeline::run(const simulate::SimulationOptions& options) const {
  return simulate::simulate(schedule, costs, topology, options);
}

simulate::SimulationResult Pipeline::run(Contention contention) const {
  return run(simulate::SimulationOptions{.contention = contention});
}

simulate::SimulationResult Pipeline::run_apart(const simulate::SimulationOptions& options) const {
  return simulate::simulate(generate(plan, Replicas::Independent), costs, topology, options);
}

Pipeline straight(const std::vector<LayerFigures>& stages, const PlanShape& shape,
                  const Link& link) {
  return Pipeline(straight_plan(stages, shape, link));
}

std::string line(const simulate::SimulationResult& result, std::int32_t lane, Stream stream) {
  std::string text;
  for (const TimedAction& timed : result.timeline.actions) {
    if (timed.lane.value != lane || stream_of(timed.action.kind) != stream) continue;
    if (!text.empty()) text += ' ';
    switch (timed.action.kind) {
      case ActionKind::Forward:
        text += 'F';
        break;
      case ActionKind::Backward:
        text += 'B';
        break;
      case ActionKind::SendActivation:
        text += 'A';
        break;
      case ActionKind::SendGradient:
        text += 'G';
        break;
      case ActionKind::AllReduce:
        text += 'R';
        break;
      case ActionKind::ReduceTied:
        text += 'T';
        break;
      default:
        text += 'S';
        break;
    }
    const bool is_step = timed.action.kind == ActionKind::OptimizerStep;
    if (!is_step || timed.action.index > 0) text += std::to_string(timed.action.index);
    text += '[' + std::to_string(timed.start.ns) + ',' + std::to_string(timed.end.ns) + ']';
  }
  return text;
}

std::string compute(const simulate::SimulationResult& result, std::int32_t lane) {
  return line(result, lane, Stream::Compute);
}

std::string activations(const simulate::SimulationResult& result, std::int32_t lane) {
  return line(result, lane, Stream::SendForward);
}

std::string gradients(const simulate::SimulationResult& result, std::int32_t lane) {
  return line(result, lane, Stream::SendBackward);
}

std::string reductions(const simulate::SimulationResult& result, std::int32_t lane) {
  return line(result, lane, Stream::Collective);
}

}  // namespace dapple::small
