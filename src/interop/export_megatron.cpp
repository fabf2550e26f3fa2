// Megatron-LM's pipeline layout: E the embedding, t a transformer block, L what follows the last
// one, | between stages; stage i of P on rank group i mod P.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "exporting.h"

namespace dapple {
namespace {

/// A layer's name such as "encoder.12".
struct NumberedName {
  std::string_view prefix;
  std::int64_t number = 0;
};

std::optional<NumberedName> numbered_name(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  NumberedName result{.prefix = name.substr(0, dot)};
  const char* end = name.data() + name.size();
  const auto [stop, fault] = std::from_chars(name.data() + dot + 1, end, result.number);
  if (fault != std::errc{} || stop != end) return std::nullopt;
  return result;
}

/// The longest run of two layers or more that are numbered one after another under one name: the
/// transformer blocks. Empty without any.
LayerRange find_blocks(const ModelProfile& profile) {
  LayerRange longest;
  LayerRange run;
  std::optional<NumberedName> last;
  const auto count = static_cast<std::int32_t>(profile.layers.size());
  for (std::int32_t l = 0; l < count; ++l) {
    const auto name = numbered_name(profile.layers[static_cast<std::size_t>(l)].name);
    const bool goes_on =
        name && last && name->prefix == last->prefix && name->number == last->number + 1;
    run = {goes_on ? run.begin : l, l + 1};
    if (goes_on && run.size() > longest.size()) longest = run;
    last = name;
  }
  return longest;
}

LayerRange intersection(LayerRange a, LayerRange b) {
  const std::int32_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// What stands before the blocks is one embedding there, what stands behind them one head.
void check_ends(const Plan& plan, LayerRange blocks, std::int32_t layers,
                std::vector<Violation>& faults) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::int32_t cut = plan.stages[s].layers.end;
    if (cut == layers || (cut >= blocks.begin && cut <= blocks.end)) continue;
    faults.push_back({fmt::format("/stages/{}/layers/1", s),
                      fmt::format("expected a boundary beside a transformer block, between {} and "
                                  "{}, as Megatron-LM has one embedding and one head, got {}",
                                  blocks.begin, blocks.end, cut)});
  }
}

std::string layout_of(const Plan& plan, LayerRange blocks) {
  std::string layout;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::int32_t count = intersection(plan.stages[s].layers, blocks).size();
    if (s > 0) layout += '|';
    if (s == 0) layout += 'E';
    if (count == 1) layout += 't';
    if (count > 1) layout += fmt::format("t*{}", count);
    if (s + 1 == plan.stages.size()) layout += 'L';
  }
  return layout;
}

}  // namespace

Export export_megatron(const ExportSubject& subject) {
  const Plan& plan = subject.document.plan;
  const ModelProfile& profile = subject.document.profile;
  std::vector<Violation> faults =
      faults_for({.name = "Megatron-LM", .interleaves = true}, subject.document);
  const LayerRange blocks = find_blocks(profile);
  if (blocks.size() == 0) {
    faults.push_back({"/model/profile/layers",
                      "expected transformer blocks, layers numbered under one name as encoder.0, "
                      "encoder.1, got none"});
  } else {
    check_ends(plan, blocks, static_cast<std::int32_t>(profile.layers.size()), faults);
  }
  if (!faults.empty()) throw Error{ErrorKind::BadInput, "", std::move(faults)};

  Export result;
  const std::size_t groups = stages_by_device_group(plan).size();
  const std::size_t replicas = plan.stages.front().devices.size();
  result.text = fmt::format(
      "# {} for Megatron-LM: {} processes, rank = pipeline rank * {} + replica\n"
      "{}"
      "PIPELINE_ARGS=(\n"
      "  --tensor-model-parallel-size 1\n"
      "  --pipeline-model-parallel-size {}\n"
      "  --pipeline-model-parallel-layout {}\n"
      "  --num-layers {}\n"
      "  --micro-batch-size {}\n"
      "  --global-batch-size {}\n",
      title_of(subject), groups * replicas, replicas, ranks_as_comment(subject), groups,
      quoted(layout_of(plan, blocks)), blocks.size(), samples_per_replica(plan),
      plan.global_batch_size);
  if (replicas > 1) result.text += "  --overlap-grad-reduce\n";
  if (plan.stages.front().recompute) {
    result.text +=
        "  --recompute-granularity full\n  --recompute-method uniform\n  --recompute-num-layers "
        "1\n";
    result.warnings.emplace_back(
        "Megatron-LM keeps the input of every block that it recomputes, the plan only that of a "
        "stage: it needs more memory than predicted");
  }
  result.text += ")\n";
  return result;
}

}  // namespace dapple
