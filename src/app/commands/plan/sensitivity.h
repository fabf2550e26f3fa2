// What the fastest plan would be if something were otherwise, each found by a search of its own:
// faster links between servers, more memory, one more server, kernels that are launched in less
// time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/document.h"
#include "dapple/profile/model_profile.h"
#include "dapple/report/show.h"
#include "dapple/topology/description.h"

namespace dapple::app {

/// The inputs of a search with one change.
struct ChangedInputs {
  /// The change in words, such as "links between servers twice as fast".
  std::string words;
  ModelProfile profile;
  TopologyDescription topology;
  /// The state that is sharded, if that is the change.
  std::optional<Sharding> sharding = {};
};

/// What a search with changed inputs has found.
struct Sensitivity {
  std::string words;
  /// Whether the change leaves nothing to be searched: what is asked for is impossible with it.
  bool is_impossible = false;
  /// Why it is, in words.
  std::string why_impossible = {};
  /// The iteration of the plan, and shape_of() it; nothing if no plan was found.
  std::optional<Duration> iteration = {};
  std::string shape = {};
  /// Whether the search was stopped before it was done.
  bool was_stopped = false;
};

/// Returns the changes of a topology: links between servers twice as fast, if there are several
/// servers; a quarter more memory on every device; one more server of the last kind, if it can be
/// connected like the others. Bandwidths and sizes end at kMaxCount.
std::vector<ChangedInputs> changed_topologies(const ModelProfile& profile,
                                              const TopologyDescription& topology);

/// Returns further changes where no plan fits: twice the memory, and the kinds of sharding that
/// were not asked for.
std::vector<ChangedInputs> changes_for_memory(const ModelProfile& profile,
                                              const TopologyDescription& topology,
                                              Sharding sharding);

/// Returns a table of what was found beside the plan's own iteration, which is nothing where no
/// plan fits; an empty text if nothing was searched.
std::string sensitivity_text(const std::vector<Sensitivity>& found,
                             std::optional<Duration> iteration, const report::TextStyle& style);

}  // namespace dapple::app
