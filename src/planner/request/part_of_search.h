// The progress of a part of a search that others follow.
#pragma once

#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {

/// Tells the progress of the whole, and ends with a part of its time limit.
class PartOfSearch : public Progress {
 public:
  /// `part` is above 0 and below 1. `whole` must outlive this object.
  PartOfSearch(Progress& whole, double part) : whole_(whole), part_(part) {}
  void update(const SearchProgress& progress) override { whole_.update(progress); }
  bool should_stop() override { return whole_.should_end_part(part_); }
  bool should_end_part(double part) override { return whole_.should_end_part(part_ * part); }

 private:
  Progress& whole_;
  double part_;
};

}  // namespace dapple::planner
