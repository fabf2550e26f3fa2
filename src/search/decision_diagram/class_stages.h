// The stages and boundaries of relaxed diagrams: the least figures over all devices of a class,
// wherever they are.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/plan/bound_proof.h"
#include "dapple/search/allowance.h"
#include "dapple/search/decision_diagram/decision_diagram.h"
#include "dapple/search/indices.h"
#include "dapple/search/placement/placement_space.h"
#include "dapple/search/placement/spread_reductions.h"
#include "dapple/search/search_problem.h"
#include "search/bounds/prefix_bound.h"
#include "search/bounds/stage_options.h"
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
  /// Stages whose work alone takes `threshold` or longer are left out. `reductions` may be null.
  ClassStages(const CostModel& costs, PlacementSpace& placements, const SearchProblem& problem,
              Duration threshold, Allowance& allowance, Cuts cuts,
              std::shared_ptr<const SpreadReductions> reductions);

  /// The classes that stages are tried on, by rising number of devices of the last device class.
  IndexRange<StageClassIndex> stage_classes() const { return stage_classes_.indices(); }
  std::size_t stage_class_count() const { return stage_classes_.size(); }
  AllocationClassIndex class_of(StageClassIndex index) const { return stage_classes_[index]; }
  /// Returns the position of a class among those that stages are tried on, or nullopt if they are
  /// not. O(log classes).
  std::optional<StageClassIndex> find(AllocationClassIndex devices) const;
  std::int64_t replicas(StageClassIndex index) const {
    return classes_.replicas(stage_classes_[index]);
  }
  const AllocationClasses& classes() const { return classes_; }
  /// Whether stages may begin at that cut.
  bool is_allowed(CutIndex cut) const { return is_allowed_[cut]; }
  /// Returns, for each of these devices, the class of all those that come before it in their order.
  /// O(devices * device classes).
  std::vector<AllocationClassIndex> classes_in_front(const std::vector<DeviceIndex>& order) const;
  /// The bounds from the work alone.
  const PrefixBound& work() const { return work_; }
  /// The forms in which stages may run, each behind its plain form.
  const std::vector<StageForm>& forms() const { return forms_; }
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
  /// begins(), in the forms in which they may be best (D9). O(1) once known.
  const StageOptions* options(CutIndex end, StageClassIndex devices) {
    return options(end, devices, kAnyNumber);
  }
  /// Returns the same of stages with at most `limit` devices on a server (D6); null if there are no
  /// such stages.
  const StageOptions* options(CutIndex end, StageClassIndex devices, std::int32_t limit);
  static constexpr std::int32_t kAnyNumber = INT32_MAX;

  /// Returns a number of devices on a server that as many stages have at most as have `limit`: that
  /// of some spread, or kAnyNumber. Stages with the same number have the same options.
  std::int32_t spread_within(StageClassIndex devices, std::int32_t limit) const;
  /// The devices on a server, for each sample, of the stages that share servers as the boundaries
  /// between them are local, up to one behind a boundary that is (D6); 0 if that is not known or
  /// not local. In units of 1 / AllocationClasses::kDeviceParts.
  using SharedServers = std::int64_t;
  /// Upper bound on the devices of a stage on one server, given those behind that it shares servers
  /// with, and the kind of the boundary in front (D6); kAnyNumber if nothing limits it.
  std::int32_t most_on_a_server(StageClassIndex devices, SharedServers behind,
                                BoundaryKind front) const;
  /// Returns the same devices with those of one more stage; 0 if the boundary in front is not
  /// local.
  SharedServers shared_with(StageClassIndex devices, SharedServers behind,
                            BoundaryKind front) const;
  /// The kinds of boundaries that are told from each other, at least one.
  const std::vector<BoundaryKind>& boundary_kinds() const { return kinds_; }

  /// Whether no boundary beside a stage on class `a` is slower than beside one on class `b`. False
  /// if it is not known. O(1).
  bool is_no_slower_beside(StageClassIndex a, StageClassIndex b) const;

  /// Lower bounds on the boundaries at one cut, by the classes in front of and behind it.
  class Boundaries {
   public:
    /// `stages` must outlive this object.
    Boundaries(ClassStages& stages, CutIndex cut) : stages_(stages), cut_(cut) {}
    /// Either side, but not both, may be kAnyStageClass. O(1) once known.
    const BoundaryLowerBound& between(StageClassIndex front, StageClassIndex back,
                                      BoundaryKind kind);
    /// The same if it is known already, else null. O(1).
    const BoundaryLowerBound* find(StageClassIndex front, StageClassIndex back,
                                   BoundaryKind kind) const;

   private:
    std::size_t position_of(StageClassIndex front, StageClassIndex back) const;
    BoundaryLowerBound make(StageClassIndex front, StageClassIndex back, BoundaryKind kind);

    ClassStages& stages_;
    CutIndex cut_;
    // Whether across servers, then by front, then back, as boundary_class_ numbers them; missing
    // until asked for.
    std::array<std::vector<std::optional<BoundaryLowerBound>>, 2> bounds_;
  };

 private:
  /// The stages that end at one cut on devices of one class, as far as they were computed.
  struct Known {
    std::optional<Begins> begins;
    // By the most devices on a server.
    std::map<std::int32_t, StageOptions> options;
  };
  StageColumn make_column(CutIndex end, StageClassIndex devices, StageForm form,
                          std::int32_t limit);
  const std::vector<StageDevices>& representatives(StageClassIndex devices, std::int32_t limit);
  Known& known(CutIndex end, StageClassIndex devices);
  std::vector<StageDevices> represent(StageClassIndex index, std::int32_t limit) const;
  std::size_t times_to_remember() const;
  void allow(CutIndex end, Cuts cuts);

  const SearchProblem& problem_;
  Allowance& allowance_;
  Duration threshold_;
  const Topology& topology_;
  TableCount tables_;
  PrefixBound work_;
  std::vector<StageForm> forms_;
  AllocationClasses classes_;
  StageColumnCache columns_;
  std::vector<BoundaryKind> kinds_{BoundaryKind::Any};
  IndexedVector<StageClassIndex, AllocationClassIndex> stage_classes_;
  IndexedVector<AllocationClassIndex, double> capacities_;
  // By class, its number among those whose boundaries have other bounds, and how many these are.
  IndexedVector<StageClassIndex, std::size_t> boundary_class_;
  std::size_t boundary_classes_ = 0;
  IndexedVector<CutIndex, bool> is_allowed_;
  IndexedVector<DeviceIndex, DeviceClassIndex> device_classes_;
  // The devices that represent those of a class. Those on which stages have the same computation
  // and memory are one, with all their reductions.
  // By the most devices on a server.
  IndexedVector<StageClassIndex, std::map<std::int32_t, std::vector<StageDevices>>>
      representatives_;
  // By end, then class.
  IndexedVector<CutIndex, IndexedVector<StageClassIndex, Known>> kept_;
};

}  // namespace dapple::search
