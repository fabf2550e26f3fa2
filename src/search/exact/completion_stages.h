// The stages and boundaries of which completion bounds are made: on each class of devices, wherever
// these devices are, with the least figures of all allocations of the class.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/cost/cost_model.h"
#include "dapple/search/allowance.h"
#include "dapple/search/indices.h"
#include "dapple/search/placement/placement_space.h"
#include "dapple/search/search_problem.h"
#include "search/bounds/completion_function.h"
#include "search/bounds/prefix_bound.h"
#include "search/bounds/stage_column.h"
#include "search/exact/allocation_classes.h"
#include "search/exact/stage_column_cache.h"

namespace dapple::search {

class CompletionStages {
 public:
  /// Stages whose work alone takes `threshold` or longer are left out.
  CompletionStages(const CostModel& costs, PlacementSpace& placements, const SearchProblem& problem,
                   Duration threshold);

  AllocationClasses& classes() { return classes_; }
  const AllocationClasses& classes() const { return classes_; }
  CutIndex end_of_model() const { return end_of_model_; }

  /// The devices of a stage, and whether it deals its micro-batches.
  struct Kind {
    AllocationClassIndex devices;
    bool deals = false;

    friend auto operator<=>(const Kind&, const Kind&) = default;
  };
  /// All kinds of which stages are tried, by devices.
  const std::vector<Kind>& kinds() const { return kinds_; }

  /// A stage from some cut to `end`, and how it divides the micro-batches.
  struct Stage {
    CutIndex end;
    StageBound figures;
    StageWork work;
  };
  /// Returns the stages of a kind, an index into kinds(), that begin at `cut`. Left out are stages
  /// that reach the threshold by their work (B1), or leave more layers in front or behind than the
  /// other devices have time for (P1), that do not fit, or for which recomputation lowers no bound.
  /// Those of a kind are made when they are first asked for, where steps and bytes are counted;
  /// O(1) afterwards.
  const std::vector<Stage>& stages(CutIndex cut, std::size_t kind, Allowance& allowance);

  /// Whether the layers in front of `cut` take less than the threshold on those devices, and
  /// whether those behind it do on all other devices (P1). Where no devices are left, there must be
  /// no layers. O(device classes).
  bool may_be_in_front(CutIndex cut, AllocationClassIndex devices) const;
  bool may_be_behind(CutIndex cut, AllocationClassIndex others) const;

  /// Returns the bounds of the boundary at `cut` between two stages, wherever they are; null if no
  /// two such stages fit beside each other. O(log boundaries) once known.
  const BoundaryBound* between(CutIndex cut, Kind front, Kind back);
  /// Returns the bounds of a boundary one side of which deals its micro-batches.
  const BoundaryBound& bound_dealt(CutIndex cut, AllocationClasses::Side front,
                                   AllocationClasses::Side back);

  AllocationClasses::Side side(Kind kind) const {
    return {classes_.replicas(kind.devices), kind.deals};
  }

  /// Releases all stages, which have been counted against that allowance.
  void release_stages(Allowance& allowance);

 private:
  bool is_tried(StageForm form, Kind kind) const;
  /// By beginning.
  using StagesByCut = IndexedVector<CutIndex, std::vector<Stage>>;
  /// The stages in a column, and the highest of their beginnings that is tried.
  struct ColumnOf {
    Kind kind;
    StageForm form;
    CutIndex last;
    CutIndex end;
  };
  void add_stages(Kind kind, StageForm form, StagesByCut& stages, Allowance& allowance);
  void add_column(const StageColumn& column, const ColumnOf& of, StagesByCut& stages) const;
  std::vector<StageDevices> representatives(Kind kind, StageForm form) const;
  CutIndex last_begin(CutIndex end, AllocationClassIndex devices) const;
  bool may_be_on(LayerRange layers, AllocationClassIndex devices) const;

  const Topology& topology_;
  const SearchProblem& problem_;
  CutIndex end_of_model_;
  Duration threshold_;
  std::vector<StageForm> forms_;
  AllocationClasses classes_;
  StageColumnCache columns_;
  PrefixBound work_;
  std::vector<Kind> kinds_;
  // By kind.
  std::vector<std::optional<StagesByCut>> stages_;
  std::map<std::tuple<CutIndex, AllocationClasses::Side, AllocationClasses::Side>, BoundaryBound>
      dealt_boundaries_;
};

}  // namespace dapple::search
