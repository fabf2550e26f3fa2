#include "dapple/planner/parallelism/asked_parallelisms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/cost/compatible.h"
#include "dapple/cost/device_groups.h"
#include "dapple/profile/variants.h"
#include "dapple/search/placement/placement_space.h"
#include "dapple/topology/servers_of_kind.h"

namespace dapple::planner {
namespace {

/// Returns what the target runtime lacks for a form of parallelism; empty if it lacks nothing.
std::string lack_of(const std::optional<PlanRestriction>& restriction, const Parallelism& form,
                    const ModelProfile& profile) {
  if (!restriction) return "";
  const char* what = nullptr;
  if (form.tensor > 1 && !restriction->tensor_parallel) what = "tensor parallelism";
  if (form.sequence && !restriction->sequence_parallel) what = "sequence parallelism";
  if (form.context > 1 &&
      !restriction->context_exchanges.include(context_exchange_of(profile, form))) {
    what = "such context parallelism";
  }
  if (form.experts > 1 && !restriction->expert_parallel) what = "expert parallelism";
  const bool has_whole_sequence = form.tensor > 1 && !form.sequence;
  if (form.experts > 1 && has_whole_sequence && restriction->experts_need_sequence) {
    what = "experts beside tensor parallelism without sequence parallelism";
  }
  if (form.context > 1 && sharding_of(form) == Sharding::None &&
      restriction->context_shards_state) {
    what = "context parallelism with whole parameters";
  }
  if (!restriction->recomputed_parts.includes(form.recomputes) ||
      !restriction->recomputed_layers.has(form.recomputation())) {
    what = "such recomputation";
  }
  if (form.shards_optimizer && !restriction->shards_optimizer) what = "sharded state";
  if (form.optimizer_shards > 0 && !restriction->shards_optimizer_in_groups) {
    what = "state sharded over a number of ranks";
  }
  if (form.full_shards > 1 && !restriction->shards_all_state) what = "sharded parameters";
  return what == nullptr ? "" : "the files for " + restriction->runtime + " have no " + what;
}

/// Whether a schedule that is asked for has several stages on a device.
bool may_have_loops(const PlannerOptions& options, const PlanRestriction& restriction) {
  if (!options.every_family) return options.family && has_loops(*options.family);
  return std::any_of(restriction.families.begin(), restriction.families.end(), has_loops);
}

/// Returns why the request excludes every plan of a form; empty if it does not.
std::string exclusion_of(const PlanningContext& context,
                         const std::optional<PlanRestriction>& restriction,
                         const Parallelism& form) {
  const PlannerOptions& options = context.options;
  if (form.copies() > 1 && options.optimizer == OptimizerTiming::PerBucket) {
    return "groups whose devices hold the same parameters update them all at the end";
  }
  // A rank may have no sample of a micro-batch.
  if (options.global_batch_size < form.replicas_in_group()) {
    return fmt::format("a batch of {} has no sample for each of {} data-parallel ranks",
                       options.global_batch_size, form.replicas_in_group());
  }
  if (options.for_executor) {
    if (std::string lack = lack_of_executor(form, context.profile); !lack.empty()) return lack;
  }
  const std::int64_t samples = options.micro_batch_size.value_or(options.global_batch_size);
  if (restriction && samples % form.replicas_in_group() != 0) {
    return fmt::format("{} data-parallel ranks do not divide a batch of {}",
                       form.replicas_in_group(), samples);
  }
  const bool is_every_nth = form.recomputed_layers.kind() == LayerSelection::Kind::EveryNth;
  if (is_every_nth && restriction && restriction->recomputed_layers.every_nth &&
      may_have_loops(options, *restriction)) {
    return fmt::format(
        "{} counts layers through all stages of a device, of which schedules that are asked for "
        "have several",
        restriction->runtime);
  }
  return lack_of(restriction, form, context.profile);
}

/// Returns the forms with all state sharded, by rising number of shards: the pinned one, or all of
/// which groups are parts of a server or whole servers.
std::vector<Parallelism> fully_sharded_forms(const PlanningContext& context,
                                             const Parallelism& form) {
  const std::optional<std::int64_t>& pin = context.options.pins.shards;
  const std::int64_t devices = context.topology.device_count();
  const std::int64_t most = pin.value_or(devices / form.tensor);
  std::vector<Parallelism> forms;
  for (std::int64_t count = std::max<std::int64_t>(2, pin.value_or(2)); count <= most; ++count) {
    Parallelism sharded = form;
    sharded.full_shards = count;
    if (!sharded.is_sound()) continue;
    // A pinned number without groups is kept, so that the reason is named.
    const bool has_groups =
        pin || (devices % sharded.group_size() == 0 &&
                std::holds_alternative<GroupedTopology>(group_devices(context.topology, sharded)));
    if (has_groups) forms.push_back(sharded);
  }
  return forms;
}

/// Returns a form and, where its layers recompute and it is asked for, those in which only some of
/// every stage do: the first ones, in numbers of at most three binary digits before zeros, 1 to 8,
/// 10, 12, 14, 16, 20 and so on, and every second, third and fourth one.
std::vector<Parallelism> recomputing_forms(const PlanningContext& context,
                                           const std::optional<PlanRestriction>& restriction,
                                           const Parallelism& form) {
  const Pins& pins = context.options.pins;
  if (pins.recomputation && pins.recomputation->parts != form.recomputes) return {};
  std::vector<Parallelism> forms{form};
  if (pins.recomputation) {
    const LayerSelection layers = pins.recomputation->layers;
    const bool is_in_all = layers.contains_all_of(layers_that_recompute(context.profile, form));
    if (!is_in_all) forms.front().recomputed_layers = layers;
    return forms;
  }
  if (form.recomputes.none() || !searches_some_layers(context, restriction)) return forms;
  const auto add = [&](LayerSelection layers) {
    forms.push_back(form);
    forms.back().recomputed_layers = layers;
  };
  const std::int64_t most = layers_that_recompute(context.profile, form);
  const bool has_first = !restriction || restriction->recomputed_layers.first;
  for (std::int64_t layers = 1, step = 1; has_first && layers < most; layers += step) {
    add(LayerSelection::first(layers));
    if (layers == 8 * step) step *= 2;
  }
  const bool has_every_nth = !restriction || restriction->recomputed_layers.every_nth;
  for (std::int64_t n = 2; has_every_nth && n <= std::min<std::int64_t>(most, 4); ++n) {
    add(LayerSelection::every(n));
  }
  return forms;
}

/// Returns the ways to shard state of a form that has none sharded.
std::vector<Parallelism> sharded_forms(const PlanningContext& context, const Parallelism& form) {
  const Sharding asked = context.options.sharding;
  const std::optional<std::int64_t>& shards = context.options.pins.shards;
  std::vector<Parallelism> forms;
  if (shards.value_or(1) == 1) {
    if (asked == Sharding::None || asked == Sharding::Any) forms.push_back(form);
    if (asked == Sharding::Optimizer || asked == Sharding::Any) {
      forms.push_back(form);
      forms.back().shards_optimizer = true;
    }
  }
  if (shards.value_or(1) > 1 && asked == Sharding::Optimizer) {
    Parallelism sharded = form;
    sharded.shards_optimizer = true;
    sharded.optimizer_shards = *shards;
    if (sharded.is_sound()) forms.push_back(sharded);
  }
  if (asked != Sharding::Full && asked != Sharding::Any) return forms;
  const std::vector<Parallelism> sharded = fully_sharded_forms(context, form);
  forms.insert(forms.end(), sharded.begin(), sharded.end());
  return forms;
}

/// Throws if the layers of all forms, of which each has its own, would take too much memory.
void refuse_too_many(const std::vector<Parallelism>& forms, const ModelProfile& profile) {
  constexpr std::size_t kMostLayers = 2'000'000;  // some GiB
  if (forms.size() * profile.layers.size() <= kMostLayers) return;
  throw Error(
      ErrorKind::BadInput, "",
      {{"/request/pins",
        fmt::format("expected at most {} layers in all forms of parallelism together, which "
                    "pinned degrees make fewer, got {} forms of {} layers",
                    kMostLayers, forms.size(), profile.layers.size())}});
}

/// Returns the form with as many data-parallel ranks in a group as groups of that size have, or
/// nothing if its own groups are not parts of them.
std::optional<Parallelism> filled_to(Parallelism form, std::int64_t group_size) {
  if (form.group_size() == group_size) return form;
  const std::int64_t of_sample = form.tensor * form.context;
  const bool has_shards = form.full_shards > 1 || form.optimizer_shards > 0;
  if (has_shards || group_size % of_sample != 0) return std::nullopt;
  form.group_replicas = group_size / of_sample;
  if (form.group_size() != group_size || !form.is_sound()) return std::nullopt;
  return form;
}

/// Returns the inputs of a form, if it has groups on which sums of its work stay in their range.
std::variant<PlanInputs, NoGroups> inputs_of(const PlanningContext& context,
                                             const Parallelism& form) {
  auto grouped = group_inputs(context.profile, context.topology, form);
  const auto* const inputs = std::get_if<PlanInputs>(&grouped);
  if (inputs == nullptr) return grouped;
  const Topology topology{inputs->topology};
  if (!check_compatible(inputs->profile, topology, context.options.global_batch_size).empty()) {
    return NoGroups{"/layers", "times or sizes leave their range"};
  }
  return grouped;
}

/// Whether plans for the target may have stages of both forms.
bool may_execute_both(const PlanningContext& context, const Parallelism& one,
                      const Parallelism& other) {
  return !context.options.for_executor || executor_mixes(context.profile, one, other);
}

/// Appends the sets of forms, of those that are asked for, that stages of one plan may have, and
/// forms with more data-parallel ranks in a group that are in no set with another one.
void add_mixed_forms(const PlanningContext& context, std::vector<AskedParallelism>& asked) {
  const std::size_t uniform = asked.size();
  std::set<std::int64_t> sizes;
  for (const AskedParallelism& form : asked) {
    if (std::holds_alternative<PlanInputs>(form.inputs)) {
      sizes.insert(form.parallelism.group_size());
    }
  }
  for (const std::int64_t size : sizes) {
    std::vector<PlanInputs> sets;
    for (std::size_t i = 0; i < uniform; ++i) {
      const std::optional<Parallelism> form = filled_to(asked[i].parallelism, size);
      if (!form || !exclusion_of(context, std::nullopt, *form).empty()) continue;
      auto grouped = inputs_of(context, *form);
      auto* inputs = std::get_if<PlanInputs>(&grouped);
      if (inputs == nullptr) continue;
      const auto set = std::find_if(sets.begin(), sets.end(), [&](const PlanInputs& some) {
        return mixing_fault(some, *inputs).empty() &&
               may_execute_both(context, some.profile.parallelism, *form);
      });
      if (set == sets.end()) {
        sets.push_back(std::move(*inputs));
      } else {
        set->profile.stage_forms.push_back(std::move(inputs->profile));
      }
    }
    for (PlanInputs& set : sets) {
      // A form with groups of its own size is among those above.
      const bool is_one = set.profile.stage_forms.empty();
      if (is_one && set.profile.parallelism.group_replicas == 1) continue;
      AskedParallelism& mixed = asked.emplace_back();
      mixed.parallelism = set.profile.parallelism;
      mixed.stage_forms = stage_forms_of(set.profile);
      mixed.inputs = std::move(set);
    }
  }
}

/// Whether plans may have stages with groups of different sizes: their replicas are together and
/// share every micro-batch, and all devices are of one kind.
bool may_mix_group_sizes(const PlanningContext& context) {
  const PlannerOptions& options = context.options;
  return options.mixes_group_sizes && options.planner == PlannerKind::Exact &&
         options.replicas == Replicas::Together && !may_deal(options) && !options.pins.in_order &&
         kinds_in_use(context.topology).size() == 1;
}

/// Whether stages may have larger groups of so many devices of a topology: all pools of
/// interchangeable devices consist of such groups.
bool have_pools_groups(const Topology& topology, std::int64_t devices) {
  const std::vector<search::DevicePool> pools = search::device_pools(topology);
  return std::all_of(pools.begin(), pools.end(),
                     [&](const search::DevicePool& pool) { return pool.size % devices == 0; });
}

/// Whether stages may have a further form beside those of a set.
bool may_join(const PlanningContext& context, const PlanInputs& set, const PlanInputs& further) {
  const Parallelism& parallelism = further.profile.parallelism;
  if (!mixing_fault(set, further).empty()) return false;
  if (!may_execute_both(context, set.profile.parallelism, parallelism)) return false;
  for (const ModelProfile& form : set.profile.stage_forms) {
    if (!mixing_fault({form, set.topology}, further).empty()) return false;
  }
  return have_pools_groups(Topology{set.topology},
                           devices_per_replica(set.profile, further.profile));
}

/// Appends the sets of the first `uniform` forms in which stages of one plan may be although their
/// groups have different sizes.
void add_forms_of_any_size(const PlanningContext& context, std::size_t uniform,
                           std::vector<AskedParallelism>& asked) {
  std::vector<const PlanInputs*> forms;
  for (std::size_t i = 0; i < uniform; ++i) {
    const auto* inputs = std::get_if<PlanInputs>(&asked[i].inputs);
    const bool is_in_all = asked[i].parallelism.recomputed_layers.is_all();
    if (inputs != nullptr && (is_in_all || context.options.pins.recomputation)) {
      forms.push_back(inputs);
    }
  }
  std::stable_sort(forms.begin(), forms.end(), [](const PlanInputs* a, const PlanInputs* b) {
    return a->profile.parallelism.group_size() < b->profile.parallelism.group_size();
  });
  std::vector<PlanInputs> sets;
  for (const PlanInputs* const form : forms) {
    const Topology topology{form->topology};
    if (!check_compatible(form->profile, topology, context.options.global_batch_size).empty()) {
      continue;
    }
    const auto set = std::find_if(sets.begin(), sets.end(), [&](const PlanInputs& some) {
      return may_join(context, some, *form);
    });
    if (set != sets.end()) {
      set->profile.stage_forms.push_back(form->profile);
    } else if (search::PlacementSpace(topology).is_complete()) {
      sets.push_back(*form);
    }
  }
  for (PlanInputs& set : sets) {
    if (!has_larger_groups(set.profile)) continue;
    AskedParallelism& mixed = asked.emplace_back();
    mixed.parallelism = set.profile.parallelism;
    mixed.stage_forms = stage_forms_of(set.profile);
    mixed.inputs = std::move(set);
  }
}

}  // namespace

std::string lack_of_executor(const Parallelism& form, const ModelProfile& profile) {
  if (form.context > 1) {
    const auto exchange = context_exchange_of(profile, form).value_or(ContextExchange::AllGather);
    if (exchange != ContextExchange::AllGather) {
      return fmt::format("dapple-exec has no context parallelism by {}", to_string(exchange));
    }
  }
  if (form.experts > 1 && form.tensor > 1 && !form.sequence) {
    return "dapple-exec has no experts beside tensor parallelism without sequence parallelism";
  }
  if (!kPartsOfExecutor.includes(form.recomputes)) return "dapple-exec has no such recomputation";
  if (form.replicas_in_group() > 1) {
    return "dapple-exec refuses plans in which devices of a group have different numbers of "
           "samples, as some of this form have";
  }
  return "";
}

bool executor_mixes(const ModelProfile& profile, const Parallelism& one, const Parallelism& other) {
  return profile.ties.empty() ||
         (one.tensor == other.tensor && one.full_shards == other.full_shards);
}

bool are_plans_of_set(const Parallelism& one, const Parallelism& mixed,
                      const std::vector<Parallelism>& stage_forms) {
  if (stage_forms.empty()) return false;
  const auto has_size = [&](const Parallelism& form) {
    return form.group_size() == one.group_size();
  };
  return (one == mixed ||
          std::find(stage_forms.begin(), stage_forms.end(), one) != stage_forms.end()) &&
         has_size(mixed) && std::all_of(stage_forms.begin(), stage_forms.end(), has_size);
}

bool searches_some_layers(const PlanningContext& context,
                          const std::optional<PlanRestriction>& restriction) {
  if (context.options.recomputed_layers == RecomputedLayers::All ||
      context.options.pins.recomputation ||
      (restriction && !restriction->recomputed_layers.has_some())) {
    return false;
  }
  const std::vector<Parallelism> forms = parallelisms_of(context.profile);
  return std::any_of(forms.begin(), forms.end(), [&](const Parallelism& form) {
    return !form.recomputes.none() && (!restriction || form.recomputes == kWholeLayer);
  });
}

std::vector<AskedParallelism> asked_parallelisms(const PlanningContext& context,
                                                 const std::optional<PlanRestriction>& restriction,
                                                 const std::set<Parallelism>* among) {
  const PlannerOptions& options = context.options;
  const auto is_pinned = [](const std::optional<std::int64_t>& pin, std::int64_t degree) {
    return pin.value_or(degree) == degree;
  };
  std::vector<Parallelism> forms;
  for (const Parallelism& parallelism : parallelisms_of(context.profile)) {
    if (!is_pinned(options.pins.tensor, parallelism.tensor) ||
        !is_pinned(options.pins.context, parallelism.context) ||
        !is_pinned(options.pins.experts, parallelism.experts) ||
        !is_pinned(options.pins.expert_tensor, parallelism.expert_tensor) ||
        parallelism.tensor > options.max_tensor.value_or(parallelism.tensor)) {
      continue;
    }
    for (const Parallelism& form : recomputing_forms(context, restriction, parallelism)) {
      const std::vector<Parallelism> sharded = sharded_forms(context, form);
      forms.insert(forms.end(), sharded.begin(), sharded.end());
    }
  }
  if (among != nullptr) {
    std::erase_if(forms, [&](const Parallelism& form) { return among->count(form) == 0; });
  }
  refuse_too_many(forms, context.profile);
  std::sort(forms.begin(), forms.end());
  std::vector<AskedParallelism> asked;
  for (const Parallelism& form : forms) {
    if (const std::string reason = exclusion_of(context, restriction, form); !reason.empty()) {
      asked.push_back({.parallelism = form, .inputs = NoGroups{"/request", reason}});
    } else {
      asked.push_back({.parallelism = form, .inputs = inputs_of(context, form)});
    }
  }
  const std::size_t uniform = asked.size();
  if (options.mixes_forms) add_mixed_forms(context, asked);
  if (may_mix_group_sizes(context)) add_forms_of_any_size(context, uniform, asked);
  return asked;
}

}  // namespace dapple::planner
