// Who waits for a search only so long.
#pragma once

#include <cstdint>

#include "dapple/planner/request/planner_options.h"

namespace dapple::small {

/// Says stop from the n-th time on that it is asked.
class Impatient : public planner::Progress {
 public:
  explicit Impatient(int patience) : all_(patience), patience_(patience) {}
  void update(const planner::SearchProgress& progress) override {
    if (progress.best) best_ = *progress.best;
  }
  bool should_stop() override { return --patience_ < 0; }
  bool should_end_part(double part) override { return --patience_ < (1 - part) * all_; }

  /// Of what it was told.
  Duration best() const { return best_; }

 private:
  int all_;
  int patience_;
  Duration best_{INT64_MAX};
};

}  // namespace dapple::small
