#include "planner/parallelism/missing_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "dapple/core/error.h"
#include "dapple/plan/record_text.h"
#include "dapple/profile/variants.h"

namespace dapple::planner {
namespace {

/// Returns why no form of the profile has the pinned degrees: the first degree that none has, or
/// that they do not go together.
std::string reason_without_variants(const ModelProfile& profile, const Pins& pins) {
  if (pins.experts == 1 && pins.expert_tensor.value_or(1) > 1) {
    return "devices share an expert only where experts are on different devices";
  }
  const std::vector<Parallelism> forms = parallelisms_of(profile);
  std::string missing;
  const auto look_for = [&](const char* name, std::int64_t Parallelism::*degree,
                            const std::optional<std::int64_t>& pin) {
    if (!pin || !missing.empty()) return;
    std::set<std::int64_t> degrees;
    for (const Parallelism& form : forms) degrees.insert(form.*degree);
    if (degrees.contains(*pin)) return;
    missing = fmt::format("not every layer has a variant of {} {}, but of {}", name, *pin,
                          fmt::join(degrees, ", "));
  };
  look_for("tensor", &Parallelism::tensor, pins.tensor);
  look_for("context", &Parallelism::context, pins.context);
  look_for("experts", &Parallelism::experts, pins.experts);
  look_for("expert-tensor", &Parallelism::expert_tensor, pins.expert_tensor);
  return missing.empty() ? "not every layer has a variant of these degrees together" : missing;
}

/// Returns why none of the forms that are asked for has groups.
std::string reason_without_groups(const PlanningContext& context,
                                  const std::vector<AskedParallelism>& asked) {
  const PlannerOptions& options = context.options;
  const Pins& pins = options.pins;
  std::string fault = indivisible_blocks(context.profile.blocks,
                                         {.tensor = pins.tensor.value_or(1),
                                          .context = pins.context.value_or(1),
                                          .experts = pins.experts.value_or(1)},
                                         context_exchange_of(context.profile));
  if (!fault.empty()) return fault;
  if (pins.tensor && options.max_tensor.value_or(*pins.tensor) < *pins.tensor) {
    return "the largest degree allowed is " + std::to_string(*options.max_tensor);
  }
  if (!asked.empty()) {
    const auto least =
        std::min_element(asked.begin(), asked.end(), [](const auto& a, const auto& b) {
          return a.parallelism.group_size() < b.parallelism.group_size();
        });
    const std::int64_t size = least->parallelism.group_size();
    const std::int32_t devices = context.topology.device_count();
    if (size <= devices) return std::get<NoGroups>(asked.front().inputs).reason;
    // Whatever else forbids a group, no other request makes one of so many devices.
    return fmt::format("a group has {} devices, and there {} {}", size, devices == 1 ? "is" : "are",
                       devices);
  }
  const bool has_variants =
      std::ranges::any_of(parallelisms_of(context.profile), [&](const Parallelism& form) {
        return pins.tensor.value_or(form.tensor) == form.tensor &&
               pins.context.value_or(form.context) == form.context &&
               pins.experts.value_or(form.experts) == form.experts &&
               pins.expert_tensor.value_or(form.expert_tensor) == form.expert_tensor;
      });
  if (has_variants && (options.sharding == Sharding::Full || pins.shards)) {
    return "no number of devices can share a device's parameters";
  }
  return reason_without_variants(context.profile, pins);
}

}  // namespace

void refuse_without_forms(const PlanningContext& context,
                          const std::vector<AskedParallelism>& asked) {
  const auto& pins = context.options.pins;
  const std::string reason = reason_without_groups(context, asked);
  const std::vector<Parallelism> every = parallelisms_of(context.profile);
  const bool has_recomputation =
      std::any_of(every.begin(), every.end(), [&](const Parallelism& form) {
        return !pins.recomputation || form.recomputes == pins.recomputation->parts;
      });
  if (!has_recomputation) {
    throw Error(
        ErrorKind::BadInput, "",
        {{"/request/pins",
          fmt::format("expected parts that layers recompute in some variant, or none, got {}",
                      to_text(pins.recomputation->parts))}});
  }
  if (pins.recomputation && !pins.recomputation->parts.none() && !pins.has_degrees()) {
    throw Error(ErrorKind::BadInput, "",
                {{"/request/pins", fmt::format("expected what layers can recompute, got {}: {}",
                                               to_text(*pins.recomputation), reason)}});
  }
  if (!pins.has_degrees()) {
    throw Error(
        ErrorKind::BadInput, "",
        {{"/request/sharding", "expected state that can be sharded so, got none: " + reason}});
  }
  std::vector<std::string> got;
  const auto name = [&](const char* degree, const std::optional<std::int64_t>& pin) {
    if (pin) got.push_back(fmt::format("{} {}", degree, *pin));
  };
  name("tensor", pins.tensor);
  name("context", pins.context);
  name("experts", pins.experts);
  name("expert-tensor", pins.expert_tensor);
  name("shards", pins.shards);
  throw Error(ErrorKind::BadInput, "",
              {{"/request/pins",
                fmt::format("expected degrees of parallelism that layers and servers have, got {}: "
                            "{}",
                            fmt::join(got, ", "), reason)}});
}

}  // namespace dapple::planner
