// The forms in which a stage may run on its devices.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/plan/plan.h"

namespace dapple::search {

/// How a stage runs: its form of parallelism, whether it recomputes its forward from its input, and
/// whether it deals whole micro-batches to its replicas in turn.
struct StageForm {
  FormIndex form;
  bool recompute = false;
  bool deals = false;

  friend auto operator<=>(const StageForm&, const StageForm&) = default;

  /// The same form without recomputation.
  StageForm plain() const { return {.form = form, .deals = deals}; }
};

/// Returns all of them: in each of `forms` forms of parallelism without recomputation and with it
/// and, with `may_deal`, the same once more with micro-batches that are dealt.
inline std::vector<StageForm> stage_forms(std::int32_t forms, bool may_deal = false) {
  std::vector<StageForm> all;
  for (const bool deals : {false, true}) {
    if (deals && !may_deal) break;
    for (FormIndex form; form.value < forms; form = form.next()) {
      for (const bool recompute : {false, true}) all.push_back({form, recompute, deals});
    }
  }
  return all;
}

/// Sets how a stage of a plan runs.
inline void set_form(StagePlan& stage, StageForm form) {
  stage.form = form.form;
  stage.recompute = form.recompute;
  stage.replication = form.deals ? Replication::Deal : Replication::Split;
}

}  // namespace dapple::search
