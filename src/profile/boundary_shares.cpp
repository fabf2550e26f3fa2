#include "dapple/profile/boundary_shares.h"

#include <algorithm>

#include "dapple/core/error.h"
#include "dapple/profile/collective.h"
#include "dapple/profile/parallelism.h"

namespace dapple {
namespace {

bool is_within_a_server(const GroupShape& group) {
  return !group.ring(CollectiveMembers::Tensor).passes_servers();
}

}  // namespace

std::string_view to_string(Boundaries boundaries) {
  switch (boundaries) {
    case Boundaries::Whole:
      return "whole";
    case Boundaries::ScatterGather:
      return "scatter-gather";
  }
  throw Bug("a way over boundaries without a name");
}

std::int64_t boundary_shares(const ModelProfile& form) {
  const Parallelism& parallelism = form.parallelism;
  const bool are_cut =
      form.boundaries == Boundaries::ScatterGather && !parallelism.sequence &&
      is_within_a_server(form.group) &&
      std::all_of(form.other_groups.begin(), form.other_groups.end(), is_within_a_server);
  return are_cut ? parallelism.tensor : 1;
}

std::int64_t shares_between(const ModelProfile& form, const Parallelism& other) {
  const Parallelism& own = form.parallelism;
  const bool are_alike = !other.sequence && other.tensor == own.tensor &&
                         other.context == own.context && other.group_size() == own.group_size();
  return are_alike ? boundary_shares(form) : 1;
}

bool divides_output(const Layer& layer, const LayerVariant& variant) {
  const Measurement& whole = layer.measurements.back();
  const Measurement& own = variant.measurements.back();
  const Wide of_context_rank = Wide{whole.output.count} * own.batch_size;
  const Wide of_rank = Wide{own.output.count} * whole.batch_size * variant.parallelism.context;
  return variant.parallelism.tensor > 1 && 4 * of_rank < 3 * of_context_rank;
}

std::vector<bool> cuts_with_divided_tensors(const ModelProfile& form) {
  const auto layers = static_cast<std::int32_t>(form.layers.size());
  std::vector<std::int32_t> last_consumer(form.layers.size(), 0);
  for (std::int32_t l = 0; l < layers; ++l) {
    for (const LayerIndex input : form.layers[static_cast<std::size_t>(l)].inputs) {
      last_consumer[input.position()] = l;
    }
  }
  std::vector<bool> are_divided(form.layers.size() + 1, false);
  for (std::int32_t l = 0; l < layers; ++l) {
    if (!form.layers[static_cast<std::size_t>(l)].divides_output) continue;
    for (std::int32_t cut = l + 1; cut <= last_consumer[static_cast<std::size_t>(l)]; ++cut) {
      are_divided[static_cast<std::size_t>(cut)] = true;
    }
  }
  return are_divided;
}

Duration least_gather_time(const ModelProfile& form, Bytes size) {
  if (boundary_shares(form) == 1) return {};
  const auto gather = [&](const GroupShape& group) {
    return least_collective_time(CollectiveKind::AllGather, size,
                                 group.ring(CollectiveMembers::Tensor));
  };
  Duration least = gather(form.group);
  for (const GroupShape& group : form.other_groups) least = std::min(least, gather(group));
  return least;
}

}  // namespace dapple
