#include "dapple/cost/device_speed.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "../support/random_pipeline.h"
#include "dapple/cost/cost_model.h"

namespace dapple {
namespace {

TEST_CASE("every replica has its speed, and a stage the times of its slowest one") {
  small::Dice dice(51);
  int slower = 0;
  for (int i = 0; i < 300; ++i) {
    const small::Pipeline pipeline = small::random_pipeline(dice);
    const PlanCost before = CostModel(pipeline.profile, pipeline.topology).plan_cost(pipeline.plan);
    std::map<DeviceIndex, Factor> factors;
    for (const StageCost& stage : before.stages) {
      for (const ReplicaCost& replica : stage.replicas) {
        factors[replica.device] = {kOne.billionths / 2 + dice.roll(0, kOne.billionths)};
      }
    }
    const PlanCost same = with_speeds(before, [](DeviceIndex) { return kOne; });
    const PlanCost after =
        with_speeds(before, [&](DeviceIndex device) { return factors.at(device); });
    for (std::size_t s = 0; s < before.stages.size(); ++s) {
      const StageCost& stage = before.stages[s];
      CHECK(same.stages[s].forward == stage.forward);
      CHECK(same.stages[s].backward == stage.backward);
      CHECK(same.stages[s].recomputation == stage.recomputation);
      CHECK(same.stages[s].input_gradient == stage.input_gradient);
      CHECK(same.stages[s].weight_gradient == stage.weight_gradient);
      CHECK(same.stages[s].bucket_ready == stage.bucket_ready);
      CHECK(same.stages[s].bucket_ready_in_weights == stage.bucket_ready_in_weights);
      Duration forward;
      Duration backward;
      std::vector<Duration> ready(stage.bucket_ready.size());
      for (std::size_t r = 0; r < stage.replicas.size(); ++r) {
        const ReplicaCost& replica = stage.replicas[r];
        const Factor factor = factors.at(replica.device);
        const auto longer = [&](Duration time) {
          const Wide product = Wide{time.ns} * factor.billionths;
          const Wide whole = product / kOne.billionths;
          const bool is_exact = whole * kOne.billionths == product;
          return Duration{static_cast<std::int64_t>(whole) + (is_exact ? 0 : 1)};
        };
        CHECK(after.stages[s].replicas[r].forward == longer(replica.forward));
        CHECK(after.stages[s].replicas[r].backward == longer(replica.backward));
        CHECK(after.stages[s].replicas[r].input_gradient == longer(replica.input_gradient));
        forward = std::max(forward, longer(replica.forward));
        backward = std::max(backward, longer(replica.backward));
        for (std::size_t b = 0; b < ready.size(); ++b) {
          ready[b] = std::max(ready[b], longer(stage.moments[replica.moments].in_backward[b]));
        }
      }
      CHECK(after.stages[s].forward == forward);
      CHECK(after.stages[s].backward == backward);
      CHECK(after.stages[s].bucket_ready == ready);
      slower += forward > stage.forward;
      CHECK(after.stages[s].optimizer_step == stage.optimizer_step);
    }
  }
  CHECK(slower > 100);
}

}  // namespace
}  // namespace dapple
