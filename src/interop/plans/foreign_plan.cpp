#include "dapple/interop/plans/foreign_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "dapple/core/error.h"
#include "interop/plans/plan_formats.h"
#include "interop/text/recognizers.h"

namespace dapple::interop {

namespace {

struct PlanImporter {
  ForeignFormat<PlanFormat> names;
  ImportedPlan (*import)(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                         const ForeignPlanOptions& options);
  bool takes_several = false;
};

constexpr PlanImporter kPlanImporters[] = {
    {.names = {PlanFormat::Pipedream, "pipedream", "PipeDream", "PipeDream"},
     .import = import_pipedream_plan,
     .takes_several = true},
    {.names = {PlanFormat::Megatron, "megatron", "Megatron-LM", "Megatron-LM"},
     .import = import_megatron_plan},
    {.names = {PlanFormat::Deepspeed, "deepspeed", "DeepSpeed", "DeepSpeed"},
     .import = import_deepspeed_plan,
     .takes_several = true},
    {.names = {PlanFormat::Torch, "torch", "PyTorch, torchtitan", "PyTorch"},
     .import = import_torch_plan,
     .takes_several = true},
    {.names = {PlanFormat::Nanotron, "nanotron", "nanotron", "nanotron"},
     .import = import_nanotron},
    {.names = {PlanFormat::Layout, "layout", "layouts in words", "a layout"},
     .import = import_layout},
    {.names = {PlanFormat::Sailor, "sailor", "Sailor", "Sailor"}, .import = import_sailor_plan}};

// In the order in which they are asked.
constexpr Recognizer<PlanFormat> kPlanRecognizers[] = {
    {.format = PlanFormat::Pipedream, .text = is_pipedream_answer},
    {.format = PlanFormat::Pipedream, .text = is_pipedream_output},
    {.format = PlanFormat::Megatron, .text = is_megatron_options},
    {.format = PlanFormat::Nanotron, .text = is_nanotron_config},
    {.format = PlanFormat::Layout, .text = is_layout},
    {.format = PlanFormat::Torch, .text = is_torchtitan_options},
    {.format = PlanFormat::Pipedream, .object = is_pipedream_conf},
    {.format = PlanFormat::Sailor, .object = is_sailor_plan},
    {.format = PlanFormat::Deepspeed, .object = is_deepspeed_settings},
    {.format = PlanFormat::Deepspeed, .text = is_deepspeed_program},
    {.format = PlanFormat::Torch, .text = is_torch_schedule}};

}  // namespace

std::vector<ForeignFormat<PlanFormat>> plan_formats() {
  std::vector<ForeignFormat<PlanFormat>> formats;
  for (const PlanImporter& importer : kPlanImporters) formats.push_back(importer.names);
  return formats;
}

std::string_view name_of(PlanFormat format) {
  return format_row(kPlanImporters, format).names.name;
}

std::optional<PlanFormat> detect_plan_format(std::string_view text) {
  return recognized(kPlanRecognizers, text);
}

std::vector<const ForeignPlanFile*> files_by_role(const std::vector<ForeignPlanFile>& files,
                                                  const std::vector<FileRole>& roles) {
  std::vector<const ForeignPlanFile*> result(roles.size());
  std::optional<Error> repeated;
  for (const ForeignPlanFile& file : files) {
    const auto role = std::find_if(roles.begin(), roles.end(),
                                   [&](const FileRole& each) { return each.is_it(file); });
    if (role == roles.end()) continue;
    const ForeignPlanFile*& place = result[static_cast<std::size_t>(role - roles.begin())];
    if (place != nullptr && !repeated) {
      repeated =
          Error{ErrorKind::BadInput,
                file.name,
                {{"", fmt::format("expected {} once, got {} before", role->what, place->name)}}};
    }
    if (place == nullptr) place = &file;
  }
  for (std::size_t r = 0; r < roles.size(); ++r) {
    if (!roles[r].required || result[r] != nullptr) continue;
    throw Error{
        ErrorKind::BadInput,
        files.front().name,
        {{"", fmt::format("expected {} in this or another file, got none", roles[r].what)}}};
  }
  if (repeated) throw *repeated;
  return result;
}

ImportedPlan import_plan(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                         const ForeignPlanOptions& options) {
  check(!files.empty(), "no file to import a plan from");
  const PlanFormat format = files.front().format;
  for (const ForeignPlanFile& file : files) {
    if (file.format == format) continue;
    throw Error{ErrorKind::BadInput,
                file.name,
                {{"", fmt::format("expected files of one kind, {} as {} is, got {}",
                                  name_of(format), files.front().name, name_of(file.format))}}};
  }
  const PlanImporter& importer = format_row(kPlanImporters, format);
  if (files.size() > 1 && !importer.takes_several) {
    throw Error{
        ErrorKind::BadInput,
        files[1].name,
        {{"", fmt::format("expected one file of {}, got {}", name_of(format), files.size())}}};
  }
  return importer.import(files, ground, options);
}

}  // namespace dapple::interop
