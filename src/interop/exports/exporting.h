// What the exports have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dapple/core/characters.h"
#include "dapple/core/error.h"
#include "dapple/interop/exports/exports.h"
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
Export export_chakra(const ExportSubject& subject);
Export export_rankfile(const ExportSubject& subject);
Export export_hostfile(const ExportSubject& subject);
Export export_visible_devices(const ExportSubject& subject);
Export export_ranks(const ExportSubject& subject);

inline constexpr RuntimeLimits kMegatron{
    .name = "Megatron-LM", .interleaves = true, .counts_blocks = true, .numbers_ranks = true};
inline constexpr RuntimeLimits kDeepSpeed{.name = "DeepSpeed", .numbers_ranks = true};
inline constexpr RuntimeLimits kTorch{.name = "PyTorch's runtime",
                                      .any_order = true,
                                      .interleaves = true,
                                      .ties = false,
                                      .deals = false,
                                      .numbers_ranks = true};
/// A program of modules, none of which is shared out.
inline constexpr RuntimeLimits kTorchModules{.name = "PyTorch's runtime",
                                             .any_order = true,
                                             .interleaves = true,
                                             .ties = false,
                                             .deals = false,
                                             .numbers_ranks = true,
                                             .tensor_parallel = false};
inline constexpr RuntimeLimits kColossalAi{.name = "ColossalAI",
                                           .deals = false,
                                           .counts_blocks = true,
                                           .block_in_every_stage = true,
                                           .numbers_ranks = true};
inline constexpr RuntimeLimits kPipeDream{.name = "PipeDream",
                                          .any_depths = true,
                                          .any_graph = true,
                                          .ties = false,
                                          .deals_unequally = true,
                                          .tensor_parallel = false};
inline constexpr RuntimeLimits kSailor{.name = "Sailor", .deals = false, .recomputes = false};

/// What keeps the plan from running there: replica counts that differ, shares that differ, an order
/// or depths that it does not have, tensors past a stage, weights that stages share or whose
/// gradients it cannot make apart, stages of which only some recompute.
std::vector<Violation> faults_for(const RuntimeLimits& runtime, const PlanDocument& document);

/// Of a runtime without tensor parallelism, below a JSON pointer to the profile.
Violation degree_fault(const RuntimeLimits& runtime, const ModelProfile& profile,
                       const std::string& pointer);

/// Throws Error(BadInput) with these faults.
void require_runs(const ExportSubject& subject, const RuntimeLimits& runtime);

/// Whether some backward is in two parts. O(actions).
bool splits_backward(const Plan& plan);

/// Samples that one replica works on at a time. Requires: no faults_for().
std::int64_t samples_per_replica(const Plan& plan);

/// Micro-batches that one replica works on. Requires: no faults_for().
std::int64_t micro_batches_per_replica(const Plan& plan);

/// The order for PyTorch's pipelining runtime, as --to torch-csv writes it.
std::string torch_order(const Plan& plan);

/// Warnings of what PyTorch's runtime does otherwise than predicted: where stages recompute and
/// backwards are in two parts.
std::vector<std::string> warn_of_torch(const Plan& plan);

/// A warning for each layer that counts as embedding or head though it is called as blocks are.
std::vector<std::string> warn_of_apart(const ExportSubject& subject);

/// A warning where stages recompute and the runtime does it block by block.
std::string warn_of_block_inputs(std::string_view runtime);

/// First line of an exported Python program. Python looks for a declared encoding in the first two
/// lines, comments included (PEP 263), and a name there could declare one that turns its own text
/// into code. The first declaration counts, so it stands above every name.
inline constexpr std::string_view kPythonEncoding = "# -*- coding: utf-8 -*-\n";

/// "BERT-48 on 2x8xV100", as part of a comment: names as printable() has them, so that none ends
/// the comment.
std::string title_of(const ExportSubject& subject);

/// A line of comment: "# BERT-48 on 2x8xV100 for PyTorch: 16 processes, rank = pipeline rank * 8 +
/// replica", or "(pipeline rank * 8 + replica) * 4 + tensor rank". Requires: no faults_for().
std::string heading_of(const ExportSubject& subject, std::string_view runtime);

/// A line of comment for each group of devices, "# ranks 0 to 1: node0:0 node0:1", or "# ranks 0 to
/// 7, 4 a device: node0:0 node0:1".
std::string ranks_as_comment(const ExportSubject& subject);

/// A string of Python or a shell, in double quotes; names of layers may hold anything.
std::string quoted(std::string_view text);

/// One word of a shell, in single quotes.
std::string single_quoted(std::string_view text);

}  // namespace dapple::interop
