// The forms in which a stage may run on its devices.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/plan/plan.h"

namespace dapple::search {

/// How a stage runs: its form of parallelism, and whether it recomputes its forward from its input.
struct StageForm {
  FormIndex form;
  bool recompute = false;

  friend auto operator<=>(const StageForm&, const StageForm&) = default;

  /// The same form of parallelism without recomputation.
  StageForm plain() const { return {.form = form}; }
};

/// Returns all of them, ascending: in each of `forms` forms of parallelism without recomputation
/// and with it.
inline std::vector<StageForm> stage_forms(std::int32_t forms) {
  std::vector<StageForm> all;
  for (FormIndex form; form.value < forms; form = form.next()) {
    for (const bool recompute : {false, true}) all.push_back({form, recompute});
  }
  return all;
}

/// Sets how a stage of a plan runs.
inline void set_form(StagePlan& stage, StageForm form) {
  stage.form = form.form;
  stage.recompute = form.recompute;
}

}  // namespace dapple::search
