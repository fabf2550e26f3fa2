#include "search/bounds/stage_options.h"

#include <algorithm>
#include <cstddef>

namespace dapple::search {

bool is_no_worse(const StageBound& a, const StageBound& b) {
  return a.forward <= b.forward && a.backward <= b.backward &&
         a.after_backward <= b.after_backward && a.depth_limit >= b.depth_limit &&
         a.slowest <= b.slowest;
}

StageOptions::StageOptions(const std::vector<StageForm>& forms, const Pins& pins,
                           const std::function<StageColumn(StageForm)>& make_column) {
  struct FormColumn {
    StageForm form;
    StageColumn stages;
  };
  std::vector<FormColumn> columns;
  bool is_worth_it = true;
  for (const StageForm form : forms) {
    if (pins.recompute.value_or(form.recompute) != form.recompute) continue;
    if (form.recompute && !is_worth_it) continue;
    columns.push_back({.form = form, .stages = make_column(form)});
    if (!form.recompute) is_worth_it = is_worth_recomputing(columns.back().stages, pins);
  }
  if (columns.empty()) return;
  first_ = columns.front().stages.first;
  CutIndex end = first_;
  for (const FormColumn& column : columns) {
    first_ = std::min(first_, column.stages.first);
    end = std::max(end, column.stages.begins_end());
  }
  for (CutIndex begin = first_; begin < end; begin = begin.next()) {
    const auto from = static_cast<std::ptrdiff_t>(options_.size());
    for (const auto& [form, stages] : columns) {
      if (begin < stages.first || begin >= stages.begins_end()) continue;
      const StageBound& stage = stages.at(begin);
      if (stage.depth_limit == 0) continue;
      // (D9)
      const auto here = options_.begin() + from;
      if (std::any_of(here, options_.end(), [&](const StageOption& other) {
            return is_no_worse(other.figures, stage);
          })) {
        continue;
      }
      options_.erase(std::remove_if(here, options_.end(),
                                    [&](const StageOption& other) {
                                      return is_no_worse(stage, other.figures);
                                    }),
                     options_.end());
      options_.push_back({.figures = stage, .form = form});
    }
    ends_.push_back(static_cast<std::uint32_t>(options_.size()));
  }
  options_.shrink_to_fit();
}

std::span<const StageOption> StageOptions::at(CutIndex begin) const {
  if (begin < first() || begin >= begins_end()) return {};
  const auto position = static_cast<std::size_t>(begin.value - first_.value);
  const std::size_t from = position == 0 ? 0 : ends_[position - 1];
  return std::span(options_).subspan(from, ends_[position] - from);
}

Bytes StageOptions::kept_bytes() const {
  return {static_cast<std::int64_t>(options_.size() * sizeof(StageOption) +
                                    ends_.size() * sizeof(std::uint32_t))};
}

}  // namespace dapple::search
