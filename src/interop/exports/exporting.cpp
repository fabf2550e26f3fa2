#include "interop/exports/exporting.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "dapple/plan/least_depth.h"
#include "dapple/profile/variants.h"
#include "dapple/schedule/schedule.h"
#include "interop/graphs/counted_blocks.h"
#include "interop/graphs/transformer_blocks.h"

namespace dapple::interop {
namespace {

bool only_deals(const Plan& plan) {
  return std::all_of(plan.stages.begin(), plan.stages.end(), [](const StagePlan& stage) {
    return stage.devices.size() == 1 || stage.replication == Replication::Deal;
  });
}

/// Returns the fault of a form that recomputes in some layers of a stage only, which the runtime
/// cannot.
Violation selection_fault(const RuntimeLimits& runtime, const Parallelism& form) {
  const LayerSelection layers = form.recomputed_layers;
  const bool are_first = layers.kind() == LayerSelection::Kind::First;
  const bool is_whole = form.recomputes == kWholeLayer;
  const char* const others = is_whole && runtime.recomputed_layers.first ? " or the first ones"
                             : is_whole && runtime.recomputed_layers.every_nth
                                 ? " or every n-th one"
                                 : "";
  return {are_first ? "/parallelism/recomputed_layers" : "/parallelism/recompute_every",
          fmt::format("expected no number, as {} recomputes {} in all layers of a stage{}, got {}",
                      runtime.name, to_text(form.recomputes), others, layers.number())};
}

void check_replicas(const RuntimeLimits& runtime, const Plan& plan,
                    std::vector<Violation>& faults) {
  const StagePlan& first = plan.stages.front();
  if (first.recompute && !runtime.recomputes) {
    faults.push_back(
        {"/stages/0/recompute",
         fmt::format("expected no recomputation, which {} does not have, got some", runtime.name)});
  }
  const RecomputedParts parts = plan.parallelism.recomputes;
  if (!runtime.recomputed_parts.includes(parts)) {
    faults.push_back(
        {"/parallelism/recompute",
         fmt::format("expected parts of layers that {} recomputes{}, got {}", runtime.name,
                     runtime.recomputed_parts.none() ? ", which are none"
                                                     : ", of " + to_text(runtime.recomputed_parts),
                     to_text(parts))});
  } else if (!runtime.recomputed_layers.has(plan.parallelism.recomputation())) {
    faults.push_back(selection_fault(runtime, plan.parallelism));
  } else if (first.recompute && !parts.none()) {
    faults.push_back({"/stages/0/recompute",
                      fmt::format("expected none with recomputed parts of layers, {}, as {} has "
                                  "one answer, got both",
                                  to_text(parts), runtime.name)});
  }
  if (!runtime.deals && first.devices.size() > 1 && first.replication == Replication::Deal) {
    faults.push_back({"/stages/0/replication",
                      fmt::format("expected split, as all replicas of {} run one order, got deal",
                                  runtime.name)});
  }
  const bool may_differ = runtime.deals_unequally && only_deals(plan);
  for (std::size_t s = 1; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    if (stage.devices.size() != first.devices.size() && !may_differ) {
      faults.push_back({fmt::format("/stages/{}/devices", s),
                        fmt::format("expected as many replicas as stage 0 has, {}, as {} has one "
                                    "number for all stages, got {}",
                                    first.devices.size(), runtime.name, stage.devices.size())});
    }
    if (stage.replication != first.replication && stage.devices.size() > 1 && !may_differ) {
      faults.push_back({fmt::format("/stages/{}/replication", s),
                        fmt::format("expected that of stage 0, {}, got {}",
                                    to_string(first.replication), to_string(stage.replication))});
    }
    if (stage.recompute != first.recompute) {
      faults.push_back({fmt::format("/stages/{}/recompute", s),
                        fmt::format("expected what stage 0 does, as {} has one answer for all "
                                    "stages, got the other",
                                    runtime.name)});
    }
  }
}

void check_shares(const Plan& plan, std::vector<Violation>& faults) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::vector<std::int64_t>& samples = plan.stages[s].samples;
    if (samples.empty()) continue;
    faults.push_back(
        {fmt::format("/stages/{}/samples", s),
         fmt::format("expected replicas with equal shares, got {}", fmt::join(samples, ", "))});
    return;
  }
  const auto replicas = static_cast<std::int64_t>(plan.stages.front().devices.size());
  const bool is_split = plan.stages.front().replication == Replication::Split;
  const std::int64_t shared = is_split ? plan.micro_batch_size : plan.num_micro_batches;
  if (const std::int64_t ranks = replicas_of_stages(plan); is_split && ranks > replicas) {
    if (shared % ranks == 0) return;
    faults.push_back({"/micro_batch_size",
                      fmt::format("expected a multiple of the {} data-parallel ranks, so that "
                                  "their shares are equal, got {}",
                                  ranks, shared)});
    return;
  }
  if (shared % replicas == 0) return;
  faults.push_back({is_split ? "/micro_batch_size" : "/num_micro_batches",
                    fmt::format("expected a multiple of the {} replicas, so that their shares are "
                                "equal, got {}",
                                replicas, shared)});
}

/// Checks that the forwards of each stage run in the order of micro-batch numbers, which an
/// explicit order need not do.
void check_forwards(const RuntimeLimits& runtime, const Plan& plan,
                    std::vector<Violation>& faults) {
  std::vector<std::int32_t> next(plan.stages.size());
  for (std::size_t lane = 0; lane < plan.order.size(); ++lane) {
    for (const Action& action : plan.order[lane]) {
      if (action.kind != ActionKind::Forward) continue;
      const Action expected{action.kind, next[action.stage.position()]++, action.stage};
      if (action == expected) continue;
      faults.push_back({fmt::format("/schedule/order/{}", lane),
                        fmt::format("expected {}, as {} counts the outputs of a stage and takes "
                                    "their numbers for those of micro-batches, got {}",
                                    to_text(expected), runtime.name, to_text(action))});
      return;
    }
  }
}

void check_least_depths(const RuntimeLimits& runtime, const Plan& plan,
                        std::vector<Violation>& faults) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::int64_t least =
        least_depth(index_at<StageIndex>(s), plan.stages.size(), plan.num_micro_batches);
    if (plan.warmup_depths[s] == least) continue;
    faults.push_back({fmt::format("/schedule/warmup_depths/{}", s),
                      fmt::format("expected {}, which {} keeps in flight there, got {}", least,
                                  runtime.name, plan.warmup_depths[s])});
  }
}

void check_order(const RuntimeLimits& runtime, const Plan& plan, std::vector<Violation>& faults) {
  switch (runnable_orders(runtime, plan.family)) {
    case RunnableOrders::None:
      faults.push_back({"/schedule/family", family_refusal(runtime, plan.family)});
      return;
    case RunnableOrders::LeastDepths:
      check_least_depths(runtime, plan, faults);
      if (runtime.needs_filled_pipeline && plan.num_micro_batches + 1 < std::ssize(plan.stages)) {
        faults.push_back({"/num_micro_batches",
                          fmt::format("expected at least {}, as many as {} begins with on {} "
                                      "stages, got {}",
                                      plan.stages.size() - 1, runtime.name, plan.stages.size(),
                                      plan.num_micro_batches)});
      }
      return;
    case RunnableOrders::ForwardsInTurn:
      check_forwards(runtime, plan, faults);
      return;
    case RunnableOrders::OfTheFamily:
      return;
  }
}

/// Returns the first layer of the range with an input from before the range that is not the output
/// of the layer immediately before it, together with that input; nothing if there is none.
std::optional<std::pair<LayerIndex, LayerIndex>> skip_into(const ModelProfile& profile,
                                                           LayerRange layers) {
  for (std::int32_t l = layers.begin; l < layers.end; ++l) {
    for (const LayerIndex input : profile.layers[static_cast<std::size_t>(l)].inputs) {
      if (input.value < layers.begin - 1) return std::pair{LayerIndex{l}, input};
    }
  }
  return std::nullopt;
}

/// Checks that only the output of the layer before each boundary crosses it.
void check_chain(const RuntimeLimits& runtime, const ModelProfile& profile, const Plan& plan,
                 std::vector<Violation>& faults) {
  for (std::size_t s = 1; s < plan.stages.size(); ++s) {
    const auto skip = skip_into(profile, plan.stages[s].layers);
    if (!skip) continue;
    faults.push_back(
        {fmt::format("/stages/{}/layers", s),
         fmt::format("expected one tensor from the stage before, which is all that {} hands on, "
                     "got {} that also takes {}",
                     runtime.name, profile.layers[skip->first.position()].name,
                     profile.layers[skip->second.position()].name)});
  }
}

std::size_t stage_of(const Plan& plan, LayerIndex layer) {
  std::size_t stage = 0;
  while (plan.stages[stage].layers.end <= layer.value) ++stage;
  return stage;
}

void check_ties(const RuntimeLimits& runtime, const ModelProfile& profile, const Plan& plan,
                std::vector<Violation>& faults) {
  for (const TiedGradients& tied : plan.tied_gradients) {
    faults.push_back({fmt::format("/stages/{}/layers", tied.stages.back().value),
                      fmt::format("expected layers that share no weights with other stages, as {} "
                                  "adds up no gradients over stages, got weights of {}",
                                  runtime.name, profile.layers[tied.owner.position()].name)});
  }
  const bool may_split = !needs_whole_backwards(runtime, profile);
  if (!faults.empty() || may_split || !splits_backward(plan)) return;
  for (const Tie& tie : profile.ties) {
    faults.push_back(
        {fmt::format("/stages/{}/layers", stage_of(plan, tie.owner)),
         fmt::format("expected layers that share no weights, as {} does not make their "
                     "gradients in a second part of the backward, got weights of {}",
                     runtime.name, profile.layers[tie.owner.position()].name)});
  }
}

/// Checks that boundaries stand beside transformer blocks: such runtimes treat all layers before
/// the blocks as one embedding and all layers after them as one head.
void check_blocks(const RuntimeLimits& runtime, const ModelProfile& profile, const Plan& plan,
                  std::vector<Violation>& faults) {
  const TransformerBlocks found = find_blocks(profile);
  if (!found.fault.empty()) {
    faults.push_back({"/model/profile/layers", found.fault});
    return;
  }
  const LayerRange blocks = found.layers;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const LayerRange layers = plan.stages[s].layers;
    if (runtime.block_in_every_stage && blocks_in(layers, blocks) == 0) {
      faults.push_back({fmt::format("/stages/{}/layers", s),
                        fmt::format("expected a transformer block, as {} has some in every stage, "
                                    "got none",
                                    runtime.name)});
    }
    const bool is_beside = layers.end >= blocks.begin && layers.end <= blocks.end;
    if (s + 1 == plan.stages.size() || is_beside) continue;
    faults.push_back({fmt::format("/stages/{}/layers/1", s),
                      fmt::format("expected a boundary next to a transformer block, between {} and "
                                  "{}, as {} has one embedding and one head, got {}",
                                  blocks.begin, blocks.end, runtime.name, layers.end)});
  }
}

/// Checks that the runtime has context and expert parallelism and sharded state as the plan does.
void check_degrees(const RuntimeLimits& runtime, const Parallelism& form,
                   const std::optional<ContextExchange>& exchange, std::vector<Violation>& faults) {
  const auto refuse = [&](const char* key, std::string_view expected, const char* lacking,
                          const std::string& got) {
    faults.push_back({fmt::format("/parallelism/{}", key),
                      fmt::format("expected {}, as the files for {} have no {}, got {}", expected,
                                  runtime.name, lacking, got)});
  };
  if (form.context > 1 && !runtime.context_exchanges.any()) {
    refuse("context", "1", "context parallelism", fmt::format("{}", form.context));
  } else if (form.context > 1 && !runtime.context_exchanges.include(exchange)) {
    const std::string lacking = fmt::format("context parallelism by {}", to_string(*exchange));
    refuse("context", "1", lacking.c_str(), fmt::format("{}", form.context));
  } else if (runtime.context_shards_state && form.context > 1 &&
             sharding_of(form) == Sharding::None) {
    refuse("sharding", "optimizer or full", "context parallelism with whole parameters", "none");
  }
  if (!runtime.expert_parallel && form.experts > 1) {
    refuse("experts", "1", "expert parallelism", fmt::format("{}", form.experts));
  } else if (runtime.experts_need_sequence && form.experts > 1 && form.tensor > 1 &&
             !form.sequence) {
    refuse("sequence", "true", "experts with tensor parallelism but without it", "false");
  }
  if (!runtime.shards_optimizer && form.shards_optimizer) {
    refuse("sharding", "none", "sharded state", "optimizer");
  } else if (!runtime.shards_optimizer_in_groups && form.optimizer_shards > 0) {
    refuse("shards", "no such key", "state sharded over a number of ranks",
           fmt::format("{}", form.optimizer_shards));
  }
  if (!runtime.shards_all_state && form.full_shards > 1) {
    refuse("sharding", "none", "sharded parameters", "full");
  }
}

}  // namespace

std::vector<Violation> faults_for(const RuntimeLimits& runtime, const PlanDocument& document) {
  const Plan& plan = document.plan;
  std::vector<Violation> faults;
  check_replicas(runtime, plan, faults);
  const bool shares_differ = runtime.deals_unequally && only_deals(plan);
  if (faults.empty() && !shares_differ) check_shares(plan, faults);
  check_order(runtime, plan, faults);
  if (runtime.recomputed_layers.every_nth) {
    auto fault = count_fault(runtime.name, document.profile, plan);
    if (fault) faults.push_back(*std::move(fault));
  }
  if (!runtime.any_graph) check_chain(runtime, document.profile, plan, faults);
  if (!runtime.ties) check_ties(runtime, document.profile, plan, faults);
  if (runtime.counts_blocks) check_blocks(runtime, document.profile, plan, faults);
  if (!runtime.tensor_parallel && document.profile.tensor_parallel != 1) {
    Violation fault = degree_fault(runtime, document.profile, "/model/profile");
    if (plan.parallelism.tensor > 1) fault.place = "/parallelism/tensor";
    faults.push_back(std::move(fault));
  }
  if (!runtime.sequence_parallel && plan.parallelism.sequence) {
    faults.push_back(
        {"/parallelism/sequence",
         fmt::format("expected false, as the files for {} have no sequence parallelism, got true",
                     runtime.name)});
  }
  check_degrees(runtime, plan.parallelism, context_exchange_of(document.profile, plan.parallelism),
                faults);
  if (!plan.stage_forms.empty()) {
    faults.push_back(
        {"/stage_forms", fmt::format("expected none, as the files for {} have one form of "
                                     "parallelism for all stages, got {}",
                                     runtime.name, to_text(plan.stage_forms.front()))});
  }
  return faults;
}

Violation degree_fault(const RuntimeLimits& runtime, const ModelProfile& profile,
                       const std::string& pointer) {
  return {pointer + "/tensor_parallel",
          fmt::format("expected 1, as {} has no place for devices of several GPUs, got {}",
                      runtime.name, profile.tensor_parallel)};
}

void require_runs(const ExportSubject& subject, const RuntimeLimits& runtime) {
  std::vector<Violation> faults = faults_for(runtime, subject.document);
  if (!faults.empty()) throw Error{ErrorKind::BadInput, "", std::move(faults)};
}

bool splits_backward(const Plan& plan) {
  return std::any_of(plan.order.begin(), plan.order.end(), [](const std::vector<Action>& lane) {
    return std::any_of(lane.begin(), lane.end(), [](const Action& action) {
      return action.kind == ActionKind::InputGradient;
    });
  });
}

bool is_half_precision(const ModelProfile& profile) {
  return profile.precision == "bf16" || profile.precision == "fp16";
}

std::optional<std::int64_t> parameters_in_bucket(const ModelProfile& profile, const Plan& plan) {
  if (profile.precision.empty()) return std::nullopt;
  const Wide bytes = is_half_precision(profile) ? 2 : 4;
  const Wide gradient = bytes * profile.optimizer.gradient_bytes_per_parameter_byte.billionths;
  if (gradient == 0) return std::nullopt;
  const Wide bucket = Wide{plan.gradients.bucket_size.count} * kOne.billionths;
  return static_cast<std::int64_t>((bucket + gradient - 1) / gradient);
}

std::int64_t samples_per_rank(const Plan& plan) {
  const StagePlan& stage = plan.stages.front();
  return samples_of(plan, stage, 0).size() / plan.parallelism.replicas_in_group();
}

std::int64_t replicas_of_stages(const Plan& plan) {
  return std::ssize(plan.stages.front().devices) * plan.parallelism.replicas_in_group();
}

std::size_t gpus_of_device(const PlanDocument& document) {
  // The degree of the profile, which has groups as devices, is the tensor-parallel part of it.
  return static_cast<std::size_t>(document.profile.tensor_parallel *
                                  document.plan.parallelism.copies());
}

std::int64_t micro_batches_per_replica(const Plan& plan) {
  return micro_batches_of(plan, plan.stages.front(), 0);
}

std::vector<std::string> warn_of_apart(const ExportSubject& subject) {
  const ModelProfile& profile = subject.document.profile;
  std::vector<std::string> warnings;
  for (const LayerIndex layer : find_blocks(profile).apart) {
    warnings.push_back(fmt::format(
        "{} counts as the {} and not as a block: its parameters are not those of the others",
        profile.layers[layer.position()].name, layer.value == 0 ? "embedding" : "head"));
  }
  return warnings;
}

std::string warn_of_block_inputs(std::string_view runtime) {
  return fmt::format(
      "{} keeps the input of every block that it recomputes, the plan only that of a stage: it "
      "needs more memory than predicted",
      runtime);
}

std::string title_of(const ExportSubject& subject) {
  return printable(subject.document.profile.name) + " on " +
         printable(subject.document.topology.name);
}

std::string heading_of(const ExportSubject& subject, std::string_view runtime) {
  const Plan& plan = subject.document.plan;
  const std::size_t replicas = plan.stages.front().devices.size();
  const std::size_t devices = stages_by_device_group(plan).size() * replicas;
  const std::size_t gpus = gpus_of_device(subject.document);
  const bool is_tensor_alone = plan.parallelism.copies() == 1;
  const std::string rank = fmt::format("pipeline rank * {} + replica", replicas);
  return fmt::format("# {} for {}: {} processes, rank = {}\n", title_of(subject), runtime,
                     devices * gpus,
                     gpus == 1 ? rank
                               : fmt::format("({}) * {} + {}", rank, gpus,
                                             is_tensor_alone ? "tensor rank" : "rank in group"));
}

std::vector<DeviceIndex> devices_by_rank(const Plan& plan) {
  std::vector<DeviceIndex> devices;
  for (const std::vector<StageIndex>& stages : stages_by_device_group(plan)) {
    const StagePlan& stage = plan.stages[stages.front().position()];
    devices.insert(devices.end(), stage.devices.begin(), stage.devices.end());
  }
  return devices;
}

std::string ranks_as_comment(const ExportSubject& subject) {
  const Plan& plan = subject.document.plan;
  const std::size_t degree = gpus_of_device(subject.document);
  const std::string share = degree == 1 ? std::string() : fmt::format(", {} a device", degree);
  std::string text;
  std::size_t rank = 0;
  for (const std::vector<StageIndex>& stages : stages_by_device_group(plan)) {
    const std::vector<DeviceIndex>& devices = plan.stages[stages.front().position()].devices;
    text += fmt::format("# ranks {} to {}{}:", rank, rank + devices.size() * degree - 1, share);
    for (const DeviceIndex device : devices) {
      text += ' ' + printable(subject.topology.device(device).name);
    }
    text += '\n';
    rank += devices.size() * degree;
  }
  return text;
}

std::string single_quoted(std::string_view text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + '\'';
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\' || c == '$' || c == '`') result += '\\';
    result += static_cast<unsigned char>(c) < ' ' ? '?' : c;
  }
  return result + "\"";
}

}  // namespace dapple::interop
