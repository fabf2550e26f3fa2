#include "app/request/groups.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "dapple/core/error.h"
#include "dapple/cost/device_groups.h"

namespace dapple::app {

void set_inputs(PlanDocument& document, const ModelProfile& profile, const Topology& topology,
                const Parallelism& parallelism, const std::string& source) {
  const std::vector<Parallelism>& stage_forms = document.plan.stage_forms;
  auto grouped = group_inputs(profile, topology, parallelism, stage_forms);
  if (const auto* none = std::get_if<NoGroups>(&grouped)) {
    throw Error{ErrorKind::BadInput,
                source,
                {{"", fmt::format("expected groups that layers and servers allow, got {}: {}",
                                  to_text(parallelism), none->reason)}}};
  }
  document.plan.parallelism = parallelism;
  document.ungrouped.reset();
  if (!parallelism.is_none() || !stage_forms.empty())
    document.ungrouped = {profile, topology.description()};
  document.profile = std::move(std::get<PlanInputs>(grouped).profile);
  document.topology = std::move(std::get<PlanInputs>(grouped).topology);
}

}  // namespace dapple::app
