// Restricted decision diagrams: plans whose stages have consecutive devices of some order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/search/allowance.h"
#include "dapple/search/decision_diagram/device_order.h"
#include "dapple/search/placement/other_shares.h"
#include "dapple/search/search_problem.h"
#include "search/bounds/stage_column.h"
#include "search/bounds/stage_options.h"
#include "search/bounds/transfer_shape.h"
#include "search/decision_diagram/class_stages.h"
#include "search/decision_diagram/depth_ranges.h"
#include "search/decision_diagram/prefix_completions.h"
#include "search/table_count.h"

namespace dapple::search {

class RestrictedDiagram {
 public:
  /// All arguments must outlive the diagram.
  RestrictedDiagram(const CostModel& costs, ClassStages& classes,
                    const PrefixCompletions& completions, const SearchProblem& problem,
                    Duration threshold, Allowance& allowance, const DeviceOrder& order);

  /// Compiles the diagram with at most `width` nodes for each state, and 64 times as many for each
  /// cut, those with the least bounds on their completions, and returns the plan with the least
  /// bound of each number of stages, by rising bound; none if the allowance ends first.
  std::vector<Candidate> compile(std::size_t width);

 private:
  /// A partial plan: a stage in front of another partial plan.
  struct Node {
    BoundLabel label = {};
    // Lower bound on its completions.
    Duration estimate = {};
    NodeIndex behind = kNoNode;
    CutIndex begin = {};
    CutIndex end = {};
    DeviceIndex first_device = {};
    std::int32_t replicas = 0;
    bool has_other_shares = false;
    std::int32_t stages = 1;
    FirstStage first = {};
    // The largest depth of the first stage that the label covers.
    std::int64_t most_depth = 1;
    StageForm form = {};
  };
  /// Consecutive places in the order of devices, and whether the stage on them has shares by speed.
  struct Devices {
    DeviceIndex first;
    std::int32_t count = 0;
    bool has_other_shares = false;
  };
  static Devices devices_of(const Node& node) {
    return {node.first_device, node.replicas, node.has_other_shares};
  }
  /// Returns the devices at these places, ascending.
  std::vector<DeviceIndex> list_of(const Devices& devices) const;
  /// Returns the shares of a stage on these devices; none for equal ones.
  const std::vector<std::int64_t>& samples_of(const Devices& devices);
  BoundarySide side_of(const Devices& devices);
  /// The most nodes of a layer, for each node of the width.
  static constexpr std::size_t kNodesOfALayer = 64;
  /// The nodes of one state: those that begin at a cut and leave the devices before `first` free.
  using Nodes = std::vector<NodeIndex>;

  /// The stages that end at a cut on some devices.
  struct Extension {
    CutIndex cut;
    const StageOptions& stages;
  };

  std::vector<std::int32_t> replica_counts() const;
  void thin_out(CutIndex cut);
  void expand(CutIndex cut, DeviceIndex first_used, const Nodes& nodes);
  void expand_on(const Devices& devices, CutIndex cut, const Nodes& nodes);
  void extend(const Node& behind, NodeIndex index, const Devices& devices,
              const BoundaryBound& between, const Extension& extension);
  void extend_by(const StageOption& stage, Node& node, const Node& behind,
                 const BoundaryBound& between);
  bool has_allowed_stages(const Node& node) const;
  void find_blocks(std::int32_t interleaved);
  void leave_idle(CutIndex cut, DeviceIndex first_used, const Nodes& nodes);
  void insert(const Node& node);
  void insert_index(Nodes& nodes, NodeIndex index) const;
  void finish(const Node& node);
  Candidate candidate_of(const Node& first);
  Devices representative(const Devices& devices) const;
  const StageOptions& options(CutIndex end, const Devices& devices);
  StageOptions make_options(CutIndex end, const Devices& devices);
  BoundaryBound boundary(CutIndex cut, const Devices& front, const Devices& back);

  const CostModel& costs_;
  ClassStages& classes_;
  const PrefixCompletions& completions_;
  const SearchProblem& problem_;
  std::int64_t micro_batches_;
  CutIndex end_of_model_;
  Duration threshold_;
  Allowance& allowance_;
  TableCount tables_;
  const PrefixBound& work_;
  // By place, the device there.
  const std::vector<DeviceIndex>& order_;
  // By place, the class of all devices before it.
  std::vector<AllocationClassIndex> in_front_;
  // By place, the first place of the server that has the device there, or of the servers whose
  // devices take turns; and the first of the consecutive places with devices of its kind.
  std::vector<DeviceIndex> first_of_server_;
  std::vector<DeviceIndex> first_of_kind_;
  // The number of devices after which the topology looks the same again.
  std::int32_t period_;
  // The speeds of all devices together.
  double capacity_;
  std::vector<std::int32_t> counts_;
  std::size_t width_ = 1;
  IndexedVector<NodeIndex, Node> nodes_;
  // By cut, then first device in use. A list is sorted by estimate.
  IndexedVector<CutIndex, IndexedVector<DeviceIndex, Nodes>> states_;
  // The complete plan with the least bound of each number of stages.
  std::map<std::int32_t, Node> complete_;
  std::map<std::pair<DeviceIndex, std::int32_t>, AllReduceModel> reductions_;
  // The shares besides equal ones, where there are any.
  OtherShares others_;
  std::map<std::pair<DeviceIndex, std::int32_t>, std::vector<std::int64_t>> samples_;
  std::map<std::tuple<CutIndex, DeviceIndex, std::int32_t, bool>, StageOptions> options_;
  // By the first place in front, its count and shares, the devices left idle between, and the count
  // and shares behind.
  std::map<std::tuple<DeviceIndex, std::int32_t, bool, std::int32_t, std::int32_t, bool>,
           TransferShape>
      shapes_;
};

}  // namespace dapple::search
