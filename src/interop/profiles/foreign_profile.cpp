#include "dapple/interop/profiles/foreign_profile.h"

#include <fmt/format.h>

#include "dapple/core/error.h"
#include "dapple/interop/profiles/pipedream.h"
#include "interop/profiles/galvatron.h"
#include "interop/profiles/metis.h"
#include "interop/profiles/piper.h"
#include "interop/profiles/profile_options.h"
#include "interop/profiles/sailor.h"
#include "interop/text/recognizers.h"

namespace dapple::interop {

namespace {

using ModelFiles = std::vector<ForeignModelFile>;

struct ModelImporter {
  ForeignFormat<ModelFormat> names;
  ImportedProfile (*import)(const ModelFiles& files, const ForeignProfileOptions& options);
  bool takes_several = false;
};

/// Imports a single file by an importer that takes its text and its name.
template <auto Import>
ImportedProfile import_one(const ModelFiles& files, const ForeignProfileOptions& options) {
  return Import(files.front().text, files.front().name, options);
}

constexpr ModelImporter kModelImporters[] = {
    {.names = {ModelFormat::PipedreamGraph, "pipedream", "PipeDream", "PipeDream"},
     .import = import_one<import_pipedream_graph>},
    {.names = {ModelFormat::Piper, "piper", "Piper", "Piper"}, .import = import_one<import_piper>},
    {.names = {ModelFormat::Metis, "metis", "Metis", "Metis"},
     .import = import_metis,
     .takes_several = true},
    {.names = {ModelFormat::Sailor, "sailor", "Sailor", "Sailor"},
     .import = import_sailor,
     .takes_several = true},
    {.names = {ModelFormat::Galvatron, "galvatron", "Galvatron", "Galvatron"},
     .import = import_galvatron,
     .takes_several = true}};

// In the order in which they are asked.
constexpr Recognizer<ModelFormat> kModelRecognizers[] = {
    {.format = ModelFormat::PipedreamGraph, .text = is_pipedream_graph},
    {.format = ModelFormat::Piper, .object = is_piper_graph},
    {.format = ModelFormat::Metis, .object = is_metis_profile},
    {.format = ModelFormat::Sailor, .object = is_sailor_profile},
    {.format = ModelFormat::Sailor, .object = is_sailor_times},
    {.format = ModelFormat::Sailor, .object = is_sailor_sizes},
    {.format = ModelFormat::Galvatron, .object = is_galvatron_computation},
    {.format = ModelFormat::Galvatron, .object = is_galvatron_memory}};

}  // namespace

std::vector<ForeignFormat<ModelFormat>> model_formats() {
  std::vector<ForeignFormat<ModelFormat>> formats;
  for (const ModelImporter& importer : kModelImporters) formats.push_back(importer.names);
  return formats;
}

std::string_view name_of(ModelFormat format) {
  return format_row(kModelImporters, format).names.name;
}

std::optional<ModelFormat> detect_model_format(std::string_view text) {
  return recognized(kModelRecognizers, text);
}

std::optional<TimeUnit> time_unit(std::string_view word) {
  if (word == "s") return TimeUnit{"seconds", 1'000'000'000};
  if (word == "ms") return TimeUnit{"milliseconds", 1'000'000};
  if (word == "us") return TimeUnit{"microseconds", 1'000};
  if (word == "ns") return TimeUnit{"nanoseconds", 1};
  return std::nullopt;
}

namespace {

ImportedProfile import_files(const std::vector<ForeignModelFile>& files,
                             const ForeignProfileOptions& options) {
  check(!files.empty(), "no file to import a model from");
  const ForeignModelFile& first = files.front();
  for (const ForeignModelFile& file : files) {
    if (file.format == first.format) continue;
    throw Error{ErrorKind::BadInput,
                file.name,
                {{"", fmt::format("expected files of one kind, {} as {} is, got {}",
                                  name_of(first.format), first.name, name_of(file.format))}}};
  }
  const ModelImporter& importer = format_row(kModelImporters, first.format);
  if (files.size() > 1 && !importer.takes_several) {
    throw Error{ErrorKind::BadInput,
                files[1].name,
                {{"", fmt::format("expected one file of {}, got {}", name_of(first.format),
                                  files.size())}}};
  }
  return importer.import(files, options);
}

}  // namespace

ImportedProfile import_model(const std::vector<ForeignModelFile>& files,
                             const ForeignProfileOptions& options) {
  ImportedProfile imported = import_files(files, options);
  // Graphs are also imported without this function, so their importer has added the doubts itself.
  if (files.front().format != ModelFormat::PipedreamGraph) add_doubts(imported);
  return imported;
}

}  // namespace dapple::interop
