#include "dapple/interop/plans/foreign_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "dapple/core/error.h"
#include "interop/plans/plan_formats.h"
#include "interop/text/foreign_json.h"

namespace dapple::interop {

std::string_view name_of(PlanFormat format) {
  switch (format) {
    case PlanFormat::Pipedream:
      return "pipedream";
    case PlanFormat::Megatron:
      return "megatron";
    case PlanFormat::Deepspeed:
      return "deepspeed";
    case PlanFormat::Torch:
      return "torch";
    case PlanFormat::Sailor:
      return "sailor";
  }
  throw Bug("a format of a plan without a name");
}

std::vector<PlanFormat> all_plan_formats() {
  return {PlanFormat::Pipedream, PlanFormat::Megatron, PlanFormat::Deepspeed, PlanFormat::Torch,
          PlanFormat::Sailor};
}

std::optional<PlanFormat> detect_plan_format(std::string_view text) {
  if (is_pipedream_answer(text) || is_pipedream_output(text)) return PlanFormat::Pipedream;
  if (is_megatron_options(text)) return PlanFormat::Megatron;
  if (is_torchtitan_options(text)) return PlanFormat::Torch;
  if (const std::optional<io::JsonValue> object = object_in(text)) {
    if (is_pipedream_conf(*object)) return PlanFormat::Pipedream;
    if (is_sailor_plan(*object)) return PlanFormat::Sailor;
    if (is_deepspeed_settings(*object)) return PlanFormat::Deepspeed;
  }
  if (is_deepspeed_program(text)) return PlanFormat::Deepspeed;
  if (is_torch_schedule(text)) return PlanFormat::Torch;
  return std::nullopt;
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
  const bool is_alone = format == PlanFormat::Megatron || format == PlanFormat::Sailor;
  if (is_alone && files.size() > 1) {
    throw Error{
        ErrorKind::BadInput,
        files[1].name,
        {{"", fmt::format("expected one file of {}, got {}", name_of(format), files.size())}}};
  }
  switch (format) {
    case PlanFormat::Pipedream:
      return import_pipedream_plan(files, ground, options);
    case PlanFormat::Megatron:
      return import_megatron_plan(files, ground, options);
    case PlanFormat::Deepspeed:
      return import_deepspeed_plan(files, ground, options);
    case PlanFormat::Torch:
      return import_torch_plan(files, ground, options);
    case PlanFormat::Sailor:
      return import_sailor_plan(files, ground, options);
  }
  throw Bug("a format of a plan without an importer");
}

}  // namespace dapple::interop
