// The forms in which a stage may run on its devices.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/cost/cost_model.h"
#include "dapple/plan/plan.h"

namespace dapple::search {

/// How a stage runs: its form of parallelism, whether it recomputes its forward from its input, and
/// whether it deals whole micro-batches to its replicas in turn.
struct StageForm {
  FormIndex form;
  bool recompute = false;
  bool deals = false;
  /// The devices of a replica (CostModel::devices_per_replica()).
  std::int32_t devices_per_replica = 1;

  friend auto operator<=>(const StageForm&, const StageForm&) = default;

  /// The same form without recomputation.
  StageForm plain() const {
    return {.form = form, .deals = deals, .devices_per_replica = devices_per_replica};
  }
};

/// Returns all of them: in each form of parallelism without recomputation and with it and, with
/// `may_deal`, the same once more with micro-batches that are dealt, where a replica is one device.
inline std::vector<StageForm> stage_forms(const CostModel& costs, bool may_deal = false) {
  std::vector<StageForm> all;
  for (const bool deals : {false, true}) {
    if (deals && !may_deal) break;
    for (FormIndex form; form.value < costs.form_count(); form = form.next()) {
      const std::int32_t devices = costs.in(form).devices_per_replica();
      if (deals && devices > 1) continue;
      for (const bool recompute : {false, true}) all.push_back({form, recompute, deals, devices});
    }
  }
  return all;
}

/// Sets how a stage of a plan runs.
inline void set_form(StagePlan& stage, StageForm form) {
  stage.form = form.form;
  stage.recompute = form.recompute;
  stage.replication = form.deals ? Replication::Deal : Replication::Split;
  stage.devices_per_replica = form.devices_per_replica;
}

}  // namespace dapple::search
