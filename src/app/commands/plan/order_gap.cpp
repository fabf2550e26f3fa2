#include "app/commands/plan/order_gap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "dapple/cost/cost_model.h"
#include "dapple/plan/limits.h"
#include "dapple/profile/down_sets.h"
#include "dapple/profile/variants.h"
#include "dapple/search/families/layer_orders_bound.h"

namespace dapple::app {
namespace {

/// The most stages that are tried for the bound, and the most bytes of partial plans.
constexpr std::int64_t kMostStages = 400'000'000;
constexpr Bytes kMostKept{std::int64_t{256} << 20};

/// Returns the sizes of micro-batches that are planned for, ascending.
std::vector<std::int64_t> micro_batch_sizes(std::int64_t global_batch_size) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t count = 1; count <= std::min(global_batch_size, kMostMicroBatches); ++count) {
    if (global_batch_size % count == 0) sizes.push_back(global_batch_size / count);
  }
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

/// Whether the layers have one order only, as each takes the output of the one before.
bool are_layers_in_chain(const ModelProfile& profile) {
  for (std::size_t l = 1; l < profile.layers.size(); ++l) {
    const std::vector<LayerIndex>& inputs = profile.layers[l].inputs;
    if (inputs.empty() || inputs.back().position() != l - 1) return false;
  }
  return true;
}

/// Says what ended the comparison early, if anything did.
std::string ending_of(StopReason reason) {
  if (reason == StopReason::None) return "";
  return reason == StopReason::Signal ? "; the comparison was interrupted"
                                      : "; --time-limit ended the comparison";
}

}  // namespace

std::string compare_orders(const PlanDocument& document, const Topology& topology,
                           const planner::PlannerOptions& options, ProgressLine& progress) {
  if (are_layers_in_chain(document.profile)) return "the layers have one order only";
  const std::optional<DownSets> sets = search::down_sets_of(document.profile);
  if (!sets) {
    return fmt::format("not compared, as the layers have more than {} down-sets or are too many",
                       DownSets::kMost);
  }
  const CostModel costs(document.profile, topology);
  const std::int64_t batch = document.plan.global_batch_size;
  search::LayerOrdersProblem problem{
      .global_batch_size = batch,
      .micro_batch_sizes = options.micro_batch_size
                               ? std::vector<std::int64_t>{*options.micro_batch_size}
                               : micro_batch_sizes(batch),
      .optimizer = options.optimizer,
      .links_are_shared = shares_links(options.contention),
      .limits = {.work = kMostStages, .kept = kMostKept, .should_stop = [&progress] {
                   return progress.should_stop();
                 }}};
  const Duration iteration = document.prediction.iteration;
  const search::LayerOrdersBound found =
      search::bound_of_layer_orders(costs, *sets, problem, iteration);
  std::string text =
      fmt::format("the layers have {} down-sets, and no plan over any order of them", sets->size());
  const bool is_one_form =
      options.sharding != Sharding::None || document.plan.parallelism != Parallelism{};
  if (is_one_form) text += " in this form of parallelism";
  if (found.bound >= iteration) return text + " is faster";
  const double percent =
      100 * static_cast<double>((iteration - found.bound).ns) / static_cast<double>(iteration.ns);
  constexpr double kShown = 0.05;  // what does not round to 0.0 %
  text += fmt::format(" is below {}", report::show(found.bound));
  text += percent < kShown ? ", less than 0.1 % less" : fmt::format(", {:.1f} % less", percent);
  if (found.is_of_work) {
    text += ", for some sizes of micro-batches by the work alone, as not all stages were tried";
  }
  return text + ending_of(progress.stop_reason());
}

std::string order_gap_text(const std::string& sentence, const report::TextStyle& style) {
  constexpr std::string_view kHead = "Other orders: ";
  return std::string(kHead) + report::fill_lines(sentence, kHead.size(), style) + '\n';
}

}  // namespace dapple::app
