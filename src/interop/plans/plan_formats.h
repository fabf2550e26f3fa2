// The formats of foreign_plan.h, one file each. All throw as import_plan() does.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dapple/interop/plans/foreign_plan.h"
#include "dapple/io/json/json_value.h"

namespace dapple::interop {

ImportedPlan import_pipedream_plan(const std::vector<ForeignPlanFile>& files,
                                   const PlanGround& ground, const ForeignPlanOptions& options);
ImportedPlan import_megatron_plan(const std::vector<ForeignPlanFile>& files,
                                  const PlanGround& ground, const ForeignPlanOptions& options);
ImportedPlan import_deepspeed_plan(const std::vector<ForeignPlanFile>& files,
                                   const PlanGround& ground, const ForeignPlanOptions& options);
ImportedPlan import_torch_plan(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                               const ForeignPlanOptions& options);
ImportedPlan import_sailor_plan(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                                const ForeignPlanOptions& options);

// What a text looks like. O(length).
bool is_pipedream_answer(std::string_view text);
bool is_pipedream_output(std::string_view text);
bool is_pipedream_conf(const io::JsonValue& object);
bool is_megatron_options(std::string_view text);
bool is_deepspeed_program(std::string_view text);
bool is_deepspeed_settings(const io::JsonValue& object);
bool is_torchtitan_options(std::string_view text);
bool is_torch_schedule(std::string_view text);
bool is_sailor_plan(const io::JsonValue& object);

/// What a file of several is: the first role that it plays.
struct FileRole {
  std::string_view what;  // "the parts of a PipelineModule"
  bool (*is_it)(const ForeignPlanFile& file);
  bool required = false;
};
/// By role, null where no file plays it. Throws Error(BadInput) where a required one is missing, or
/// two files play the same.
std::vector<const ForeignPlanFile*> files_by_role(const std::vector<ForeignPlanFile>& files,
                                                  const std::vector<FileRole>& roles);

}  // namespace dapple::interop
