#include <optional>

#include "dapple/core/error.h"
#include "dapple/planner/request/planner.h"
#include "planner/families/plan_families.h"
#include "planner/families/plan_one_family.h"

namespace dapple::planner {
namespace {

/// The progress of the 1F1B search where other families are searched after it.
class FirstPart : public Progress {
 public:
  explicit FirstPart(Progress& whole) : whole_(whole) {}
  void update(const SearchProgress& progress) override { whole_.update(progress); }
  bool should_stop() override { return whole_.should_end_first_part(); }

 private:
  Progress& whole_;
};

std::variant<MadePlan, Infeasible> plan_as_asked(const ModelProfile& profile,
                                                 const Topology& topology,
                                                 const PlannerOptions& options,
                                                 Progress* progress) {
  if (!asks_for_families(options)) return plan_one_family(profile, topology, options, progress);
  if (options.replicas == Replicas::Independent) {
    throw Error(ErrorKind::BadInput, "--replicas",
                {{"",
                  "expected together with a schedule beyond 1f1b and gpipe, whose bounds are of "
                  "replicas that start together, got independent"}});
  }
  std::optional<FirstPart> first_part;
  if (progress != nullptr) first_part.emplace(*progress);
  auto first = plan_one_family(profile, topology, options_to_start(options),
                               first_part ? &*first_part : nullptr);
  return plan_families(std::move(first), {profile, topology, options}, progress);
}

}  // namespace

std::variant<MadePlan, Infeasible> make_plan(const ModelProfile& profile, const Topology& topology,
                                             const PlannerOptions& options, Progress* progress) {
  auto made = plan_as_asked(profile, topology, options, progress);
  if (auto* plan = std::get_if<MadePlan>(&made)) {
    plan->document.request = request_of(options);
    plan->document.warnings = warnings_of(plan->document, topology);
  }
  return made;
}

}  // namespace dapple::planner
