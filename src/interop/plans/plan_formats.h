// The importers of the formats of foreign_plan.h, which throw as import_plan() does, and the
// functions that recognize the formats.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/interop/plans/foreign_plan.h"
#include "dapple/interop/plans/layout.h"
#include "dapple/io/json/json_value.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/recomputation.h"

namespace dapple::interop {

ImportedPlan import_pipedream_plan(const std::vector<ForeignPlanFile>& files,
                                   const PlanGround& ground, const ForeignPlanOptions& options);
ImportedPlan import_megatron_plan(const std::vector<ForeignPlanFile>& files,
                                  const PlanGround& ground, const ForeignPlanOptions& options);
ImportedPlan import_deepspeed_plan(const std::vector<ForeignPlanFile>& files,
                                   const PlanGround& ground, const ForeignPlanOptions& options);
ImportedPlan import_torch_plan(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                               const ForeignPlanOptions& options);
ImportedPlan import_layout(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                           const ForeignPlanOptions& options);
ImportedPlan import_sailor_plan(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                                const ForeignPlanOptions& options);

ImportedPlan import_nanotron(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                             const ForeignPlanOptions& options);

// Whether a text or object looks like the respective file. O(length).
bool is_pipedream_answer(std::string_view text);
bool is_pipedream_output(std::string_view text);
bool is_pipedream_conf(const io::JsonValue& object);
bool is_megatron_options(std::string_view text);
bool is_deepspeed_program(std::string_view text);
bool is_deepspeed_settings(const io::JsonValue& object);
bool is_torchtitan_options(std::string_view text);
bool is_torch_schedule(std::string_view text);
bool is_layout(std::string_view text);
bool is_nanotron_config(std::string_view text);
bool is_sailor_plan(const io::JsonValue& object);

/// Returns what a configuration of nanotron says as a layout, without the layers of stages. Throws
/// as import_plan() does.
Layout layout_of_nanotron(const ForeignPlanFile& file);

/// Returns the stage of ZeRO in the settings of DeepSpeed's files; 0 if they name none.
/// O(length).
std::int64_t zero_stage_of_deepspeed(const std::vector<ForeignPlanFile>& files);

/// Returns the name that Megatron-LM has for a module to recompute.
inline std::string_view megatron_module(RecomputedPart part) {
  return part == RecomputedPart::Norm ? "layernorm" : to_string(part);
}

/// torchtitan's option for what is recomputed in its mode "selective": "op" for operations within
/// layers, or n for every n-th layer.
inline constexpr std::string_view kTorchtitanSelection =
    "--activation_checkpoint.selective_ac_option";

/// Returns the warning for plans that keep parameters gathered for an iteration of several
/// micro-batches without a pipeline, which torchtitan does not.
std::vector<std::string> warn_of_accumulated_shards(const Plan& plan);

/// Whether DeepSpeed's files recompute layer by layer. O(length).
bool recomputes_layers_of_deepspeed(const std::vector<ForeignPlanFile>& files);

/// A role that one of several files may have.
struct FileRole {
  // The contents of the file in messages, such as "the parts of a PipelineModule".
  std::string_view what;
  // Whether a file has this role; of several roles that apply the first one counts.
  bool (*is_it)(const ForeignPlanFile& file);
  bool required = false;
};
/// Returns the file of each role, or null for a role without a file. Throws Error(BadInput) if a
/// required role has no file, or if two files have the same role.
std::vector<const ForeignPlanFile*> files_by_role(const std::vector<ForeignPlanFile>& files,
                                                  const std::vector<FileRole>& roles);

}  // namespace dapple::interop
