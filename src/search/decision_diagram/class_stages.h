// The stages and boundaries of relaxed diagrams: the least figures over all devices of a class,
// wherever they are.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/search/allowance.h"
#include "dapple/search/decision_diagram/decision_diagram.h"
#include "dapple/search/indices.h"
#include "dapple/search/placement/placement_space.h"
#include "dapple/search/search_problem.h"
#include "search/bounds/prefix_bound.h"
#include "search/exact/allocation_classes.h"
#include "search/exact/stage_column_cache.h"
#include "search/table_count.h"

namespace dapple::search {

/// A class of devices that stages are tried on, by its position among all that are.
using StageClassIndex = Index<struct StageClassTag>;
/// Stands for any of them where nodes with stages on several were merged.
inline constexpr StageClassIndex kAnyStageClass{-1};

class ClassStages {
 public:
  /// Stages whose work alone takes `threshold` or longer are left out.
  ClassStages(const CostModel& costs, PlacementSpace& placements, const SearchProblem& problem,
              Duration threshold, Allowance& allowance, Cuts cuts);

  /// The classes that stages are tried on, by rising number of devices of the last device class.
  IndexRange<StageClassIndex> stage_classes() const { return stage_classes_.indices(); }
  AllocationClassIndex class_of(StageClassIndex index) const { return stage_classes_[index]; }
  std::int64_t replicas(StageClassIndex index) const {
    return classes_.replicas(stage_classes_[index]);
  }
  const AllocationClasses& classes() const { return classes_; }
  /// Whether stages may begin at that cut.
  bool is_allowed(CutIndex cut) const { return is_allowed_[cut]; }
  /// Returns the class of all devices in front of one. O(1).
  AllocationClassIndex class_in_front(DeviceIndex device) const { return in_front_[device]; }
  /// The bounds from the work alone.
  const PrefixBound& work() const { return work_; }
  /// The speeds of the devices of a class together.
  double capacity(AllocationClassIndex devices) const { return capacities_[devices]; }

  /// The beginnings of the stages that end at a cut on devices of a class, by their work alone.
  struct Begins {
    CutIndex first;
    CutIndex last;
  };
  /// Returns the range outside of which stages take too long by themselves, or leave too much work
  /// to all other devices (D5). O(1) once known.
  const Begins& begins(CutIndex end, StageClassIndex devices);

  /// Returns the stages that end at `end` on devices of that class, without those outside of
  /// begins(); null where recomputation is asked for and lowers no bound. O(1) once known.
  const StageColumn* column(CutIndex end, StageClassIndex devices, bool recompute);

  /// Whether no boundary beside a stage on class `a` is slower than beside one on class `b`. False
  /// if it is not known. O(1).
  bool is_no_slower_beside(StageClassIndex a, StageClassIndex b) const;

  /// Lower bounds on the boundaries at one cut, by the classes in front of and behind it.
  class Boundaries {
   public:
    /// `stages` must outlive this object.
    Boundaries(ClassStages& stages, CutIndex cut) : stages_(stages), cut_(cut) {}
    /// Either side, but not both, may be kAnyStageClass. O(1) once known.
    const BoundaryLowerBound& between(StageClassIndex front, StageClassIndex back);

   private:
    BoundaryLowerBound make(StageClassIndex front, StageClassIndex back);

    ClassStages& stages_;
    CutIndex cut_;
    // By front, then back; missing until asked for.
    std::vector<std::optional<BoundaryLowerBound>> bounds_;
  };

 private:
  /// The stages that end at one cut on devices of one class, as far as they were computed: their
  /// beginnings, and the stages without recomputation and with it.
  struct Columns {
    std::optional<Begins> begins;
    std::optional<StageColumn> plain;
    std::optional<StageColumn> recomputed;
  };
  Columns& columns(CutIndex end, StageClassIndex devices);
  void represent(StageClassIndex index, const Topology& topology);
  void allow(CutIndex end, Cuts cuts);

  const SearchProblem& problem_;
  Allowance& allowance_;
  Duration threshold_;
  TableCount tables_;
  PrefixBound work_;
  AllocationClasses classes_;
  StageColumnCache columns_;
  IndexedVector<StageClassIndex, AllocationClassIndex> stage_classes_;
  IndexedVector<AllocationClassIndex, double> capacities_;
  IndexedVector<CutIndex, bool> is_allowed_;
  IndexedVector<DeviceIndex, AllocationClassIndex> in_front_;
  // The devices that represent those of a class. Those on which stages have the same computation
  // and memory are one, with all their reductions.
  IndexedVector<StageClassIndex, std::vector<StageDevices>> representatives_;
  // By end, then class.
  IndexedVector<CutIndex, IndexedVector<StageClassIndex, Columns>> kept_;
};

}  // namespace dapple::search
