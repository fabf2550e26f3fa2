#include "dapple/interop/plans/stated_parallelism.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/interop/plans/layout.h"
#include "dapple/plan/request.h"
#include "dapple/profile/limits.h"
#include "dapple/profile/variants.h"
#include "interop/plans/plan_formats.h"
#include "interop/plans/plan_sketch.h"
#include "interop/text/foreign_text.h"
#include "interop/text/shell_words.h"

namespace dapple::interop {
namespace {

/// Returns the first value of an option in any of the files.
std::optional<std::int64_t> count_in(const std::vector<ForeignPlanFile>& files,
                                     std::string_view option) {
  for (const ForeignPlanFile& file : files) {
    if (auto count = ShellOptions(file.text, file.name).count(option)) return count;
  }
  return std::nullopt;
}

/// What a runtime calls a way in which context-parallel ranks exchange keys and values.
struct NamedExchange {
  std::string_view name;
  ContextExchange exchange;
};

constexpr NamedExchange kMegatronExchanges[] = {{"p2p", ContextExchange::Ring},
                                                {"all_gather", ContextExchange::AllGather},
                                                {"a2a", ContextExchange::AllToAll}};
constexpr NamedExchange kTorchtitanExchanges[] = {{"allgather", ContextExchange::AllGather},
                                                  {"alltoall", ContextExchange::Ring}};

/// Refuses an exchange that an option of a file names where another one is priced.
void check_exchange(const std::vector<ForeignPlanFile>& files, std::string_view option,
                    std::span<const NamedExchange> known,
                    const std::optional<ContextExchange>& priced) {
  std::vector<std::string_view> names;
  for (const NamedExchange& one : known) {
    if (!priced || one.exchange == *priced) names.push_back(one.name);
  }
  for (const ForeignPlanFile& file : files) {
    const ShellOptions script(file.text, file.name);
    const std::optional<ShellOption> stated = script.value(option);
    if (!stated || std::find(names.begin(), names.end(), stated->value) != names.end()) continue;
    std::string expected =
        names.empty() ? "no such option" : fmt::format("{}", fmt::join(names, " or "));
    if (priced)
      expected +=
          fmt::format(", as the profile prices context parallelism by {}", to_string(*priced));
    script.refuse(stated->line,
                  fmt::format("{}: expected {}, got '{}'", option, expected, shown(stated->value)));
  }
}

/// Returns the forms among which the stated one has to be, for messages.
std::string degrees_in(const std::vector<Parallelism>& forms) {
  std::string text;
  for (const Parallelism& form : forms) {
    if (form.context > 1 || form.experts > 1 || !form.recomputes.none()) continue;
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", form.tensor,
                        form.sequence ? " with sequence parallelism" : "");
  }
  return text;
}

/// Returns the number of degrees by which two forms differ.
int differences(const Parallelism& one, const Parallelism& other) {
  return (one.tensor != other.tensor) + (one.sequence != other.sequence) +
         (one.context != other.context) + (one.experts != other.experts) +
         (one.expert_tensor != other.expert_tensor);
}

/// Returns the forms in which nothing is recomputed, or those nearest to the stated one if there
/// are many, in their order, and how many others there are.
std::string forms_in(const std::vector<Parallelism>& forms, const Parallelism& stated) {
  constexpr std::size_t kMost = 6;
  std::vector<Parallelism> near;
  for (const Parallelism& form : forms) {
    if (form.recomputes.none()) near.push_back(form);
  }
  const std::size_t all = near.size();
  std::stable_sort(near.begin(), near.end(), [&](const Parallelism& a, const Parallelism& b) {
    return differences(a, stated) < differences(b, stated);
  });
  near.resize(std::min(all, kMost));
  std::sort(near.begin(), near.end());
  std::string text;
  for (const Parallelism& form : near) text += (text.empty() ? "" : "; ") + short_text(form);
  if (all > kMost) text += fmt::format("; or one of {} others", all - kMost);
  return text;
}

/// Says that each expert is divided by default as the other layers are, where the layout or file
/// does not say how; empty where it does or where nothing is divided.
std::string whole_experts_hint(const StatedParallelism& stated, std::int64_t degree) {
  if (stated.experts == 1 || stated.expert_tensor || degree == 1) return "";
  return fmt::format(
      "; each expert is divided among {} devices, the tensor-parallel degree, unless the "
      "expert tensor-parallel degree is given: with etp=1 "
      "(Megatron-LM: --expert-tensor-parallel-size 1) every device holds whole experts",
      degree);
}

/// Returns the number that a layout has for a word.
std::int64_t degree_in(const Layout& layout, std::string_view word, std::int64_t most,
                       std::int64_t otherwise) {
  const std::string* const value = layout.value(word);
  if (value == nullptr) return otherwise;
  const std::optional<std::int32_t> degree = parse_count(*value);
  if (degree && *degree >= 1 && *degree <= most) return *degree;
  throw Error{ErrorKind::BadInput,
              layout.source,
              {{layout.place, fmt::format("{}: expected a number from 1 to {}, got \"{}\"", word,
                                          most, shown(*value))}}};
}

/// Sets what a layout says of sharded state.
void read_sharding(const Layout& layout, StatedParallelism& stated) {
  const auto refuse = [&](std::string message) {
    throw Error{ErrorKind::BadInput, layout.source, {{layout.place, std::move(message)}}};
  };
  const std::string* const zero = layout.value("zero");
  const bool is_full = zero != nullptr && *zero == "3";
  const bool has_shards = layout.value("fsdp") != nullptr;
  if (has_shards && (zero == nullptr || *zero == "0")) {
    refuse(fmt::format("fsdp: needs zero=1, 3 or {}, which shard state, got none", kFullKeep));
  }
  if (zero == nullptr) return;
  stated.shards_optimizer = *zero == "1" || *zero == kFullKeep;
  if (*zero != "0" && !stated.shards_optimizer && !is_full) {
    refuse(
        fmt::format("zero: expected 0, 1, 3 or {}, as no plan shards gradients alone, got \"{}\"",
                    kFullKeep, shown(*zero)));
  }
  const bool has_ranks = layout.value("dp") != nullptr;
  const std::int64_t ranks = degree_in(layout, "dp", kMaxGroup, 1) * stated.context;
  if (stated.shards_optimizer && has_shards) {
    const std::int64_t shards = degree_in(layout, "fsdp", kMaxGroup, 1);
    if (shards == 1) refuse("fsdp: expected 2 or more shards, got 1");
    stated.optimizer_shards = has_ranks && shards == ranks ? 0 : shards;
  }
  if (!is_full) return;
  if (!has_shards && !has_ranks) {
    refuse(
        "zero: 3 needs fsdp=... or dp=..., over whose ranks state is sharded, got "
        "neither");
  }
  stated.full_shards = degree_in(layout, "fsdp", kMaxGroup, std::min(ranks, kMaxGroup));
}

/// Sets what torchtitan's options say of sharded state. Where parameters are kept gathered, only
/// the optimizer's state is sharded, over a single rank where that is said of one, and over all
/// ranks where no other replicas hold the same shards.
void read_torch_sharding(const ShellOptions& script, StatedParallelism& stated) {
  constexpr std::string_view kShardDegree = "--parallelism.data_parallel_shard_degree";
  constexpr std::string_view kPolicy = "--parallelism.fsdp_reshard_after_forward";
  const std::int64_t ranks = script.count(kShardDegree).value_or(1) * stated.context;
  const auto replicas = script.count("--parallelism.data_parallel_replicate_degree").value_or(1);
  const auto policy = script.value(kPolicy);
  const bool never_reshards = policy && policy->value == "never";
  if (ranks == 1 && !(never_reshards && replicas == 1)) return;
  if (policy && policy->value != "always" && policy->value != "never" &&
      policy->value != "default") {
    script.refuse(policy->line, fmt::format("{}: expected default, always or never, got '{}'",
                                            kPolicy, shown(policy->value)));
  }
  const bool has_pipeline = script.count("--parallelism.pipeline_parallel_degree").value_or(1) > 1;
  const bool keeps = never_reshards || (has_pipeline && !(policy && policy->value == "always"));
  if (!keeps) {
    stated.full_shards = ranks;
  } else {
    stated.shards_optimizer = true;
    stated.optimizer_shards = replicas == 1 ? 0 : ranks;
  }
}

/// Sets over how many ranks Megatron-LM's options shard the optimizer's state, where they say how
/// many instances of it there are; each rank has the whole where there are as many as ranks.
void read_megatron_instances(const ForeignPlanFile& file, const ForeignPlanOptions& options,
                             const ModelProfile& profile, std::int64_t devices,
                             StatedParallelism& stated) {
  constexpr std::string_view kInstances = "--num-distributed-optimizer-instances";
  const ShellOptions script(file.text, file.name);
  const std::int64_t instances = script.count(kInstances).value_or(1);
  if (instances == 1) return;
  if (!stated.shards_optimizer) {
    script.refuse(script.line_of(kInstances),
                  fmt::format("{}: needs --use-distributed-optimizer, got none", kInstances));
  }
  if (!options.devices.empty()) devices = std::ssize(options.devices);
  const std::int64_t gpus =
      ranks_in_comments(file.text).value_or(devices * profile.tensor_parallel);
  const std::int64_t of_replica = stated.tensor.value_or(options.tensor_parallel.value_or(1)) *
                                  script.count("--pipeline-model-parallel-size").value_or(1);
  const std::int64_t ranks = gpus / of_replica;
  if (gpus % of_replica != 0 || ranks % instances != 0) {
    script.refuse(script.line_of(kInstances),
                  fmt::format("{}: expected a divisor of the data-parallel and context-parallel "
                              "ranks, which {} GPUs in groups of {} have, got {}",
                              kInstances, gpus, of_replica, instances));
  }
  stated.shards_optimizer = ranks > instances;
  stated.optimizer_shards = stated.shards_optimizer ? ranks / instances : 0;
}

/// Returns what torchtitan's options recompute; nothing where single operations are recomputed, of
/// which the importer warns.
Recomputation recomputed_by_torchtitan(const ShellOptions& script) {
  const auto mode = script.value("--activation_checkpoint.mode");
  if (mode && mode->value == "full") return {kWholeLayer};
  const auto option = script.value(kTorchtitanSelection);
  if (!mode || mode->value != "selective" || !option || option->value == "op") return {};
  const std::optional<std::int32_t> n = parse_count(option->value);
  if (!n || *n > kMaxLayers) {
    script.refuse(option->line,
                  fmt::format("{}: expected op or a number up to {}, got '{}'",
                              kTorchtitanSelection, kMaxLayers, shown(option->value)));
  }
  // torchtitan takes 0 for every layer, too.
  if (*n < 2) return {kWholeLayer};
  return {kWholeLayer, LayerSelection::every(*n)};
}

/// Returns what Megatron-LM's options recompute; nothing where no plan recomputes so, of which the
/// importer warns.
Recomputation recomputed_by_megatron(const ShellOptions& script) {
  const std::optional<ShellOption> granularity = script.value("--recompute-granularity");
  if (granularity && granularity->value == "full") {
    const auto method = script.value("--recompute-method");
    const std::int64_t layers = script.count("--recompute-num-layers").value_or(1);
    if (method && method->value != "block" && method->value != "uniform") {
      script.refuse(method->line, fmt::format("--recompute-method: expected uniform or block, "
                                              "got '{}'",
                                              shown(method->value)));
    }
    if (method && method->value == "block") {
      if (!script.has("--recompute-num-layers")) {
        script.refuse(method->line,
                      "--recompute-method: block needs --recompute-num-layers, got none");
      }
      return layers == 0 ? Recomputation()
                         : Recomputation{kWholeLayer, LayerSelection::first(layers)};
    }
    const bool is_each = layers == 1 && (!method || method->value == "uniform");
    return is_each ? Recomputation{kWholeLayer} : Recomputation();
  }
  if (granularity && granularity->value != "selective") {
    script.refuse(granularity->line,
                  fmt::format("--recompute-granularity: expected full or selective, got '{}'",
                              shown(granularity->value)));
  }
  if (!granularity && !script.has("--recompute-activations")) return {};
  RecomputedParts parts;
  for (const std::string& module : script.values("--recompute-modules")) {
    bool is_known = false;
    for (const RecomputedPart part : kRecomputedParts) {
      if (part == RecomputedPart::Layer || module != megatron_module(part)) continue;
      parts.add(part);
      is_known = true;
    }
    if (!is_known) return {};
  }
  return {parts.none() ? RecomputedParts{RecomputedPart::CoreAttention} : parts};
}

/// The tensor-parallel degree of an expert: unless it is stated, that of the other layers.
std::int64_t expert_tensor_of(const StatedParallelism& stated) {
  return stated.experts > 1 ? stated.expert_tensor.value_or(stated.tensor.value_or(1)) : 1;
}

/// Returns the form with the stated degrees that recomputes these parts, or the end.
std::vector<Parallelism>::const_iterator find_form(const std::vector<Parallelism>& forms,
                                                   const StatedParallelism& stated,
                                                   RecomputedParts recomputes) {
  const std::int64_t expert_tensor = expert_tensor_of(stated);
  return std::find_if(forms.begin(), forms.end(), [&](const Parallelism& form) {
    return form.tensor == stated.tensor.value_or(1) && form.context == stated.context &&
           form.experts == stated.experts && form.expert_tensor == expert_tensor &&
           stated.sequence.value_or(form.sequence) == form.sequence &&
           form.recomputes == recomputes;
  });
}

/// Refuses an exchange between context ranks that a file names where the profile prices another one
/// in the stated form. That it has no such form is found later.
void check_exchanges(const std::vector<ForeignPlanFile>& files, const StatedParallelism& stated,
                     const ModelProfile& profile) {
  if (stated.context == 1) return;
  const std::vector<Parallelism> forms = parallelisms_of(profile);
  auto form = find_form(forms, stated, stated.recomputation.parts);
  if (form == forms.end()) form = find_form(forms, stated, {});
  if (form == forms.end()) return;
  const std::optional<ContextExchange> priced = context_exchange_of(profile, *form);
  if (files.front().format == PlanFormat::Megatron) {
    check_exchange(files, "--cp-comm-type", kMegatronExchanges, priced);
  } else if (files.front().format == PlanFormat::Torch) {
    check_exchange(files, "--parallelism.context_parallel_rotate_method", kTorchtitanExchanges,
                   priced);
  }
}

/// Returns what is expected in place of degrees for which not all layers have variants.
std::string lack_of_variants(const StatedParallelism& stated, const std::vector<Parallelism>& forms,
                             const ModelProfile& profile) {
  const std::int64_t degree = stated.tensor.value_or(1);
  const std::string fault = indivisible_blocks(
      profile.blocks, {.tensor = degree, .context = stated.context, .experts = stated.experts},
      context_exchange_of(profile));
  if (!fault.empty()) return "expected degrees that divide the model, but " + fault;
  if (stated.context > 1 || stated.experts > 1) {
    const Parallelism got{.tensor = degree,
                          .sequence = stated.sequence.value_or(false),
                          .context = stated.context,
                          .experts = stated.experts,
                          .expert_tensor = expert_tensor_of(stated)};
    return fmt::format("expected degrees for which all layers have variants, {}, got {}{}",
                       forms_in(forms, got), short_text(got), whole_experts_hint(stated, degree));
  }
  return fmt::format(
      "expected tensor parallelism of degree {}, for which all layers have variants, got {}{}",
      degrees_in(forms), degree,
      !stated.sequence   ? ""
      : *stated.sequence ? " with sequence parallelism"
                         : " without sequence parallelism");
}

}  // namespace

StatedParallelism stated_in_layout(const Layout& layout) {
  const auto refuse = [&](std::string message) {
    throw Error{ErrorKind::BadInput, layout.source, {{layout.place, std::move(message)}}};
  };
  StatedParallelism stated;
  if (layout.value("tp") != nullptr) stated.tensor = degree_in(layout, "tp", kMaxTensorParallel, 1);
  stated.context = degree_in(layout, "cp", kMaxContextParallel, 1);
  stated.experts = degree_in(layout, "ep", kMaxGroup, 1);
  if (layout.value("etp") != nullptr) {
    if (stated.experts == 1) refuse("etp: needs ep=..., got no expert parallelism");
    stated.expert_tensor = degree_in(layout, "etp", kMaxTensorParallel, 1);
  }
  if (const std::string* const sequence = layout.value("sp")) {
    if (*sequence != "on" && *sequence != "off") {
      refuse(fmt::format("sp: expected on or off, got \"{}\"", shown(*sequence)));
    }
    stated.sequence = *sequence == "on";
  }
  read_sharding(layout, stated);
  if (const std::string* const text = layout.value("recompute");
      text != nullptr && *text != "none") {
    const auto found = recomputation(*text);
    if (const std::optional<std::string> expected = expected_layers(*text)) {
      refuse(fmt::format("recompute: expected {}, got \"{}\"", *expected, shown(*text)));
    }
    if (!found) {
      refuse(fmt::format(
          "recompute: expected none, full, or parts of layers as core_attn+norm, with :4 "
          "behind them for the first 4 layers of every stage or :1/2 for every second one, got "
          "\"{}\"",
          shown(*text)));
    }
    stated.recomputation = *found;
  }
  return stated;
}

StatedParallelism stated_in(const std::vector<ForeignPlanFile>& files,
                            const ForeignPlanOptions& options, const ModelProfile& profile,
                            std::int64_t devices) {
  const ForeignPlanFile& first = files.front();
  StatedParallelism stated;
  if (first.format == PlanFormat::Layout) {
    stated = stated_in_layout(read_layout(first.text, first.name));
  } else if (first.format == PlanFormat::Nanotron) {
    stated = stated_in_layout(layout_of_nanotron(first));
  } else if (first.format == PlanFormat::Megatron) {
    stated.tensor = count_in(files, "--tensor-model-parallel-size");
    stated.context = count_in(files, "--context-parallel-size").value_or(1);
    stated.experts = count_in(files, "--expert-model-parallel-size").value_or(1);
    stated.expert_tensor = count_in(files, "--expert-tensor-parallel-size");
    stated.shards_optimizer = ShellOptions(first.text, "").has("--use-distributed-optimizer");
    read_megatron_instances(first, options, profile, devices, stated);
    stated.recomputation = recomputed_by_megatron(ShellOptions(first.text, first.name));
    // With one tensor rank Megatron-LM ignores the option.
    if (stated.tensor.value_or(1) > 1)
      stated.sequence = ShellOptions(first.text, "").has("--sequence-parallel");
  } else if (first.format == PlanFormat::Deepspeed) {
    const std::int64_t stage = zero_stage_of_deepspeed(files);
    if (stage > 1) {
      throw Error{ErrorKind::BadInput,
                  first.name,
                  {{"", fmt::format("zero_optimization: expected stage 0 or 1, as no plan shards "
                                    "more with a PipelineModule, got {}",
                                    stage)}}};
    }
    stated.shards_optimizer = stage == 1;
    if (recomputes_layers_of_deepspeed(files)) stated.recomputation = {kWholeLayer};
  } else if (first.format == PlanFormat::Torch) {
    stated.tensor = count_in(files, "--parallelism.tensor_parallel_degree");
    stated.context = count_in(files, "--parallelism.context_parallel_degree").value_or(1);
    stated.experts = count_in(files, "--parallelism.expert_parallel_degree").value_or(1);
    stated.expert_tensor =
        count_in(files, "--parallelism.expert_tensor_parallel_degree").value_or(1);
    for (const ForeignPlanFile& file : files) {
      if (!is_torchtitan_options(file.text)) continue;
      const ShellOptions script(file.text, file.name);
      stated.recomputation = recomputed_by_torchtitan(script);
      read_torch_sharding(script, stated);
    }
  }
  if (!stated.tensor) stated.tensor = options.tensor_parallel;
  check_exchanges(files, stated, profile);
  return stated;
}

Parallelism find_parallelism(const StatedParallelism& stated, const ModelProfile& profile,
                             const std::string& source, const std::string& place) {
  const auto refuse = [&](std::string message) {
    throw Error{ErrorKind::BadInput, source, {{place, std::move(message)}}};
  };
  const std::vector<Parallelism> forms = parallelisms_of(profile);
  const std::int64_t degree = stated.tensor.value_or(1);
  if (degree == 1 && profile.tensor_parallel == 1 && stated.sequence.value_or(false)) {
    refuse("sequence parallelism needs tensor parallelism, got it alone");
  }
  Parallelism parallelism;
  // Without variants the profile's own degree counts, which importers check.
  if (forms.size() > 1 || stated.context > 1 || stated.experts > 1) {
    auto found = find_form(forms, stated, stated.recomputation.parts);
    const bool recomputes = found != forms.end();
    if (!recomputes) found = find_form(forms, stated, {});
    if (found != forms.end()) {
      parallelism = *found;
      const LayerSelection layers = stated.recomputation.layers;
      const bool is_in_all = layers.contains_all_of(layers_that_recompute(profile, parallelism));
      if (recomputes && !is_in_all) parallelism.recomputed_layers = layers;
    } else {
      refuse(lack_of_variants(stated, forms, profile));
    }
  }
  if (const std::int64_t shards = std::max(stated.full_shards, stated.optimizer_shards);
      shards > kMaxGroup) {
    refuse(
        fmt::format("expected state sharded over at most {} devices, got {}", kMaxGroup, shards));
  }
  parallelism.shards_optimizer = stated.shards_optimizer;
  parallelism.optimizer_shards = stated.optimizer_shards;
  parallelism.full_shards = stated.full_shards;
  if (!parallelism.is_sound() || parallelism.group_size() > kMaxGroup) {
    refuse(fmt::format("expected {}, got {}", kSoundDegrees, short_text(parallelism)));
  }
  return parallelism;
}

}  // namespace dapple::interop
