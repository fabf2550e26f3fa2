// Stages on one set of devices that end at the same layer, in the forms in which they may be best.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/pins.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/indices.h"
#include "dapple/search/stage_form.h"
#include "search/bounds/stage_column.h"

namespace dapple::search {

/// A stage, by its figures and its form.
struct StageOption {
  StageBound figures;
  StageForm form;
};

/// Whether no figure of `b` is better than that of `a`, so that what bounds plans with `a` bounds
/// those with `b`, too (D9).
bool is_no_worse(const StageBound& a, const StageBound& b);

/// The stages on one set of devices that end at one cut, in all forms that may be best: a stage is
/// left out if another one with the same layers is no worse, the first of those that are alike.
class StageOptions {
 public:
  /// There are none.
  StageOptions() = default;
  /// Makes the columns of those of the `forms`, each of which has its plain form in front of it,
  /// that the pins allow and may lower a bound. O(columns + stages * options of a stage).
  StageOptions(const std::vector<StageForm>& forms, const Pins& pins,
               const std::function<StageColumn(StageForm)>& make_column);

  /// The lowest beginning of a stage, and the cut behind the highest one.
  CutIndex first() const { return first_; }
  CutIndex begins_end() const { return {first_.value + static_cast<std::int32_t>(ends_.size())}; }
  /// Returns the stages that begin at a cut; none outside of [first(), begins_end()). O(1).
  std::span<const StageOption> at(CutIndex begin) const;
  Bytes kept_bytes() const;

 private:
  CutIndex first_;
  // By beginning, from first_ on.
  std::vector<StageOption> options_;
  // By beginning, the position behind its last option.
  std::vector<std::uint32_t> ends_;
};

}  // namespace dapple::search
