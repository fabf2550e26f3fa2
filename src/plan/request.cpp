#include "dapple/plan/request.h"

#include "dapple/core/error.h"

namespace dapple {

std::string_view to_string(PlannerKind planner) {
  switch (planner) {
    case PlannerKind::Exact:
      return "exact";
    case PlannerKind::Dapple:
      return "dapple";
  }
  throw Bug("a planner without a name");
}

std::string_view to_string(Shares shares) {
  switch (shares) {
    case Shares::Equal:
      return "equal";
    case Shares::Any:
      return "auto";
  }
  throw Bug("shares of replicas without a name");
}

std::string_view to_string(Replications replications) {
  switch (replications) {
    case Replications::Split:
      return "split";
    case Replications::Any:
      return "auto";
  }
  throw Bug("divisions of micro-batches without a name");
}

std::string_view to_string(RecomputedLayers layers) {
  switch (layers) {
    case RecomputedLayers::All:
      return "all";
    case RecomputedLayers::Any:
      return "auto";
  }
  throw Bug("layers that recompute without a name");
}

Sharding sharding_of(const Parallelism& parallelism) {
  if (parallelism.full_shards > 1) return Sharding::Full;
  return parallelism.shards_optimizer ? Sharding::Optimizer : Sharding::None;
}

std::string_view to_string(Sharding sharding) {
  switch (sharding) {
    case Sharding::None:
      return "none";
    case Sharding::Optimizer:
      return "optimizer";
    case Sharding::Full:
      return "full";
    case Sharding::Any:
      return "auto";
  }
  throw Bug("a sharding without a name");
}

}  // namespace dapple
