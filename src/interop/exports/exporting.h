// The exports of all targets, the limits of their runtimes, and helpers that they share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dapple/core/characters.h"
#include "dapple/core/error.h"
#include "dapple/interop/exports/exports.h"
#include "dapple/interop/plans/nanotron_cut.h"
#include "dapple/plan/document.h"
#include "dapple/plan/plan.h"

namespace dapple::interop {

Export export_megatron(const ExportSubject& subject);
Export export_deepspeed(const ExportSubject& subject);
Export export_torch_csv(const ExportSubject& subject);
Export export_torchtitan(const ExportSubject& subject);
Export export_torch_python(const ExportSubject& subject);
Export export_colossalai(const ExportSubject& subject);
Export export_pipedream(const ExportSubject& subject);
Export export_sailor(const ExportSubject& subject);
Export export_nanotron(const ExportSubject& subject);
Export export_chakra(const ExportSubject& subject);
Export export_rankfile(const ExportSubject& subject);
Export export_hostfile(const ExportSubject& subject);
Export export_visible_devices(const ExportSubject& subject);
Export export_ranks(const ExportSubject& subject);

inline constexpr RuntimeLimits kMegatron{
    .name = "Megatron-LM",
    .interleaves = true,
    .recomputed_parts = {RecomputedPart::CoreAttention, RecomputedPart::Norm,
                         RecomputedPart::FeedForward, RecomputedPart::Experts,
                         RecomputedPart::ExpertActivation, RecomputedPart::Layer},
    .recomputed_layers = {.first = true},
    .counts_blocks = true,
    .numbers_ranks = true,
    .sequence_parallel = true,
    .context_exchanges = {.all_gather = true, .ring = true, .all_to_all = true},
    .expert_parallel = true,
    .experts_need_sequence = true,
    .shards_optimizer = true,
    .shards_optimizer_in_groups = true};
inline constexpr RuntimeLimits kDeepSpeed{.name = "DeepSpeed",
                                          .recomputed_parts = kWholeLayer,
                                          .numbers_ranks = true,
                                          .shards_optimizer = true};
inline constexpr RuntimeLimits kTorch{.name = "PyTorch's runtime",
                                      .any_order = true,
                                      .interleaves = true,
                                      .ties = false,
                                      .deals = false,
                                      .recomputed_parts = kWholeLayer,
                                      .recomputed_layers = {.every_nth = true},
                                      .numbers_ranks = true,
                                      .sequence_parallel = true,
                                      .context_exchanges = {.all_gather = true, .ring = true},
                                      .context_shards_state = true,
                                      .shards_optimizer = true,
                                      .shards_optimizer_in_groups = true,
                                      .shards_all_state = true};
/// The limits of torchtitan, which runs plans by PyTorch's runtime.
inline constexpr RuntimeLimits kTorchtitan = [] {
  RuntimeLimits limits = kTorch;
  limits.name = "torchtitan";
  return limits;
}();
/// The limits of a program built from plain modules, without tensor parallelism.
inline constexpr RuntimeLimits kTorchModules{.name = "PyTorch's runtime",
                                             .any_order = true,
                                             .interleaves = true,
                                             .ties = false,
                                             .deals = false,
                                             .numbers_ranks = true,
                                             .tensor_parallel = false};
inline constexpr RuntimeLimits kColossalAi{.name = "ColossalAI",
                                           .deals = false,
                                           .recomputed_parts = kWholeLayer,
                                           .counts_blocks = true,
                                           .block_in_every_stage = true,
                                           .numbers_ranks = true};
inline constexpr RuntimeLimits kPipeDream{.name = "PipeDream",
                                          .any_depths = true,
                                          .any_graph = true,
                                          .ties = false,
                                          .deals_unequally = true,
                                          .tensor_parallel = false};
inline constexpr RuntimeLimits kNanotron{.name = "nanotron",
                                         .deals = false,
                                         .recomputed_parts = kWholeLayer,
                                         .counts_blocks = true,
                                         .own_boundaries = nanotron_boundaries,
                                         .needs_filled_pipeline = true,
                                         .numbers_ranks = true,
                                         .sequence_parallel = true,
                                         .context_exchanges = {.ring = true},
                                         .shards_optimizer = true};
inline constexpr RuntimeLimits kSailor{.name = "Sailor", .deals = false, .recomputes = false};

/// Returns what keeps the plan from running on the runtime: unequal numbers of replicas or unequal
/// shares, an order or warm-up depths that the runtime lacks, tensors that skip a stage, weights
/// that stages share or whose gradients cannot be computed in a second part of the backward,
/// recomputation by only some of the stages, boundaries or stages without the transformer blocks
/// that the runtime needs, and devices of several GPUs.
std::vector<Violation> faults_for(const RuntimeLimits& runtime, const PlanDocument& document);

/// Returns the fault of a profile whose tensor-parallel degree is not 1 for a runtime without
/// tensor parallelism. `pointer` is the JSON pointer to the profile.
Violation degree_fault(const RuntimeLimits& runtime, const ModelProfile& profile,
                       const std::string& pointer);

/// Throws Error(BadInput) with the faults_for() the plan, if there are any.
void require_runs(const ExportSubject& subject, const RuntimeLimits& runtime);

/// Whether the plan's order splits backwards into input gradient and weight gradient. O(actions).
bool splits_backward(const Plan& plan);

/// Whether the profile states a number format of 16 bits, "bf16" or "fp16".
bool is_half_precision(const ModelProfile& profile);

/// Returns how many parameters fill a gradient bucket of the plan; nothing if the profile states no
/// precision, so that the size of a parameter is not known.
std::optional<std::int64_t> parameters_in_bucket(const ModelProfile& profile, const Plan& plan);

/// Returns how many samples of a micro-batch one data-parallel rank processes: a replica, or a part
/// of one. Requires: there are no faults_for() the plan.
std::int64_t samples_per_rank(const Plan& plan);

/// Returns the number of data-parallel ranks of every stage, those within devices that are groups
/// included. Requires: there are no faults_for() the plan.
std::int64_t replicas_of_stages(const Plan& plan);

/// Returns the number of GPUs of a device of the plan.
std::size_t gpus_of_device(const PlanDocument& document);

/// Returns how many micro-batches one replica processes in an iteration. Requires: there are no
/// faults_for() the plan.
std::int64_t micro_batches_per_replica(const Plan& plan);

/// Returns the order of actions for PyTorch's pipelining runtime as the target torch-csv has it.
std::string torch_order(const Plan& plan);

/// Warns that PyTorch's runtime takes longer than predicted if stages recompute and backwards are
/// split into two parts.
std::vector<std::string> warn_of_torch(const Plan& plan);

/// Returns a warning for each layer that counts as embedding or head although it is named like a
/// transformer block.
std::vector<std::string> warn_of_apart(const ExportSubject& subject);

/// Whether every block is computed again from its input.
inline bool recomputes_blocks(const Plan& plan) {
  return plan.parallelism.recomputes == kWholeLayer;
}

/// Returns the warning for plans with recomputation on a runtime that recomputes block by block.
std::string warn_of_block_inputs(std::string_view runtime);

/// The first line of an exported Python program. Python looks for an encoding declaration in the
/// first two lines, including comments (PEP 263), so a model or topology name there could declare
/// an encoding that turns the name itself into code. The first declaration takes effect, hence this
/// one precedes every name.
inline constexpr std::string_view kPythonEncoding = "# -*- coding: utf-8 -*-\n";

/// Returns "BERT-48 on 2x8xV100" for use in a comment. Names are made printable(), so that they
/// cannot end the comment.
std::string title_of(const ExportSubject& subject);

/// Returns the comment line "# BERT-48 on 2x8xV100 for PyTorch: 16 processes, rank = pipeline rank
/// * 8 + replica", where the rank is "(pipeline rank * 8 + replica) * 4 + tensor rank" if devices
/// are groups of 4 GPUs. Requires: there are no faults_for() the plan.
std::string heading_of(const ExportSubject& subject, std::string_view runtime);

/// Returns a comment line for each device group, "# ranks 0 to 1: node0:0 node0:1", or "# ranks 0
/// to 7, 4 a device: node0:0 node0:1" if devices are groups of 4 GPUs.
std::string ranks_as_comment(const ExportSubject& subject);

/// Returns comment lines with the command that starts the program, with these arguments, by
/// torchrun on every server of the plan. `environment` stands in front of it, with a blank at its
/// end. The servers have numbers in the order in which launchers number them.
std::string launch_as_comment(const ExportSubject& subject, std::string_view environment,
                              std::string_view program);

/// Returns the text as one shell word in double quotes. Control characters become '?'.
std::string quoted(std::string_view text);

/// Returns the text as one shell word in single quotes.
std::string single_quoted(std::string_view text);

}  // namespace dapple::interop
