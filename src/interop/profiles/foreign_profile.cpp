#include "dapple/interop/profiles/foreign_profile.h"

#include <fmt/format.h>

#include "dapple/core/error.h"
#include "dapple/interop/profiles/pipedream.h"
#include "interop/profiles/galvatron.h"
#include "interop/profiles/metis.h"
#include "interop/profiles/piper.h"
#include "interop/profiles/profile_options.h"
#include "interop/profiles/sailor.h"
#include "interop/text/foreign_json.h"

namespace dapple::interop {

std::string_view name_of(ModelFormat format) {
  switch (format) {
    case ModelFormat::PipedreamGraph:
      return "pipedream";
    case ModelFormat::Piper:
      return "piper";
    case ModelFormat::Metis:
      return "metis";
    case ModelFormat::Sailor:
      return "sailor";
    case ModelFormat::Galvatron:
      return "galvatron";
  }
  throw Bug("a format of a model without a name");
}

std::vector<ModelFormat> all_model_formats() {
  return {ModelFormat::PipedreamGraph, ModelFormat::Piper, ModelFormat::Metis, ModelFormat::Sailor,
          ModelFormat::Galvatron};
}

std::optional<ModelFormat> detect_model_format(std::string_view text) {
  if (is_pipedream_graph(text)) return ModelFormat::PipedreamGraph;
  const std::optional<io::JsonValue> object = object_in(text);
  if (!object) return std::nullopt;
  const auto has = [&](std::string_view first, std::string_view second) {
    return has_key(*object, first) && has_key(*object, second);
  };
  if (has("nodes", "edges")) return ModelFormat::Piper;
  if (has("model", "execution_time")) return ModelFormat::Metis;
  if (has("layer_kinds", "times")) return ModelFormat::Sailor;
  if (is_galvatron_computation(*object) || is_galvatron_memory(*object)) {
    return ModelFormat::Galvatron;
  }
  return std::nullopt;
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
  if (first.format == ModelFormat::Metis) return import_metis(files, options);
  if (first.format == ModelFormat::Galvatron) return import_galvatron(files, options);
  if (files.size() > 1) {
    throw Error{ErrorKind::BadInput,
                files[1].name,
                {{"", fmt::format("expected one file of {}, got {}", name_of(first.format),
                                  files.size())}}};
  }
  if (first.format == ModelFormat::Piper) return import_piper(first.text, first.name, options);
  if (first.format == ModelFormat::Sailor) return import_sailor(first.text, first.name, options);
  return import_pipedream_graph(first.text, first.name, options);
}

}  // namespace

ImportedProfile import_model(const std::vector<ForeignModelFile>& files,
                             const ForeignProfileOptions& options) {
  ImportedProfile imported = import_files(files, options);
  if (files.front().format != ModelFormat::PipedreamGraph) add_doubts(imported);
  return imported;
}

}  // namespace dapple::interop
