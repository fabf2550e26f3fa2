// Profiles from the files of other planners:
//
//   pipedream  the graph text of PipeDream's profiler, which DAPPLE's published profiles are in too
//   piper      the JSON of Piper's inputs: a graph with figures for each tensor-parallel degree
//   metis      a folder's JSON files, DeviceType.<device>_tp<degree>_bs<batch>.json
//   sailor     one JSON document with the sizes and the times of every layer by kind of GPU, degree
//              and micro-batch
//   galvatron  two JSON files, of computation and of memory
//
// Sources: msr-fiddle/pipedream graph/, msr-fiddle/piper inputs/, SamsungLabs/Metis README.md and
// profile_data_samples/, eth-easl/sailor Planner/simulations/, PKU-DAIR/Hetu-Galvatron
// models/*/configs/ and core/profiler.py.
//
// What a file does not say is asked for, never guessed; what it says in more than one way, what our
// profiles have no place for, and figures that can hardly be right (profile/doubts.h) are warnings.
// Figures are those of one tensor-parallel degree: a device of a plan is then a group of so many
// GPUs, and what they send each other is left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/profile/model_profile.h"

namespace dapple::interop {

enum class ModelFormat { PipedreamGraph, Piper, Metis, Sailor, Galvatron };

/// As --format takes it: "pipedream", "piper", "metis", "sailor", "galvatron".
std::string_view name_of(ModelFormat format);
std::vector<ModelFormat> all_model_formats();

/// What the text looks like; nothing if it looks like none of them. O(length of the text).
std::optional<ModelFormat> detect_model_format(std::string_view text);

/// The unit of the times in a file that does not state one.
struct TimeUnit {
  std::string_view name;         // "milliseconds"
  std::int64_t nanoseconds = 1;  // of one
};

/// That of "s", "ms", "us" or "ns"; nothing for other words.
std::optional<TimeUnit> time_unit(std::string_view word);

/// What files do not say. Each format asks for some of it; one that it has no use for is an error.
struct ForeignProfileOptions {
  std::optional<std::int64_t> profile_batch;
  std::optional<std::string> optimizer;  // sgd, momentum, rmsprop, adam
  std::optional<std::int64_t> global_batch;
  std::optional<std::string> device;          // kind that was measured
  std::optional<BatchScaling> batch_scaling;  // proportional, with a warning, if not given
  std::optional<Factor> stash;  // times a layer's output; 1, with a warning, if not given
  std::optional<std::int64_t> tensor_parallel;  // degree whose figures are taken, 1 if not given
  std::optional<Factor> backward_ratio;         // backward as a multiple of forward
  std::optional<Bytes> output;                  // of a layer, per sample
  std::optional<std::int64_t> layers;           // of each kind, Galvatron's "layertype"
  std::optional<TimeUnit>
      time_unit;  // else what the planner's own files have; not where keys say it
};

struct ImportedProfile {
  ModelProfile profile;  // its device is empty where neither file nor options name it
  std::vector<std::string> warnings;
};

struct ForeignModelFile {
  std::string text;
  std::string name;  // what errors call it; Metis' says what was measured
  ModelFormat format = ModelFormat::PipedreamGraph;
};

/// Files of one kind: one, or as many as Metis' folder has, or Galvatron's two. Layers of graphs
/// are put in the order of narrow_order.h. Throws Error(BadInput) with the faults of a file, or
/// Error(Usage) naming every option that is missing or would do nothing.
/// O(length), times log nodes for graphs.
ImportedProfile import_model(const std::vector<ForeignModelFile>& files,
                             const ForeignProfileOptions& options);

}  // namespace dapple::interop
