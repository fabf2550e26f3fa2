// Imports profiles from the files of other planners:
//
//   pipedream  the graph text of PipeDream's profiler, also the format of DAPPLE's published
//              profiles
//   piper      the JSON of Piper's inputs: a graph with figures for each tensor-parallel degree
//   metis      a folder's JSON files, DeviceType.<device>_tp<degree>_bs<batch>.json
//   sailor     one JSON document with the sizes and the times of every layer by kind of GPU, degree
//              and micro-batch, or the two that Sailor's planner reads
//   galvatron  two JSON files, one of computation and one of memory
//
// Sources: msr-fiddle/pipedream graph/, msr-fiddle/piper inputs/, SamsungLabs/Metis README.md and
// profile_data_samples/, eth-easl/sailor Planner/, PKU-DAIR/Hetu-Galvatron
// models/*/configs/ and core/profiler.py.
//
// Values that a file does not state must be given as options, or have a default that a warning
// names. Contradictory values, values that our profiles cannot express, and figures that are
// implausible (profile/doubts.h) are reported as warnings. Figures are those of one tensor-parallel
// degree: a device of a plan is then a group of that many GPUs, whose communication among each
// other is not modelled separately.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/interop/graphs/layer_arrangement.h"
#include "dapple/interop/text/foreign_format.h"
#include "dapple/profile/model_profile.h"

namespace dapple::interop {

enum class ModelFormat { PipedreamGraph, Piper, Metis, Sailor, Galvatron };

/// Returns the name of the format that --format takes, such as "pipedream".
std::string_view name_of(ModelFormat format);
/// Returns the names of every format, in the order in which messages list them.
std::vector<ForeignFormat<ModelFormat>> model_formats();

/// Returns the format that the text appears to have, or nothing if it resembles none of them.
/// O(length of the text).
std::optional<ModelFormat> detect_model_format(std::string_view text);

/// The unit of the times in a file that does not state one.
struct TimeUnit {
  /// The name of the unit in the plural, such as "milliseconds".
  std::string_view name;
  /// The number of nanoseconds in one unit.
  std::int64_t nanoseconds = 1;
};

/// Returns the unit for "s", "ms", "us" or "ns", or nothing for any other word.
std::optional<TimeUnit> time_unit(std::string_view word);

/// Values that the files do not state. Each format needs some of them; one that a format has no use
/// for is an error.
struct ForeignProfileOptions {
  /// The batch size that was profiled, in samples.
  std::optional<std::int64_t> profile_batch;
  /// One of sgd, momentum, rmsprop and adam.
  std::optional<std::string> optimizer;
  std::optional<std::int64_t> global_batch;
  /// The kind of device that was measured, or of several the one whose times are the profile's own.
  std::optional<std::string> device;
  /// The model to take of files with several.
  std::optional<std::string> model;
  /// How times depend on the batch size; proportional, with a warning, if not given.
  std::optional<BatchScaling> batch_scaling;
  /// The stash of a layer as a multiple of its output. If not given, it is 1, with a warning, for
  /// PipeDream's graphs, and derived from the measured memory for Metis.
  std::optional<Factor> stash;
  /// The tensor-parallel degree whose figures are taken; 1 if not given.
  std::optional<std::int64_t> tensor_parallel;
  /// Whether the figures of all degrees above 1 are taken, too, as variants of the layers.
  bool every_degree = false;
  /// The time of a backward as a multiple of that of its forward.
  std::optional<Factor> backward_ratio;
  /// The output of a layer for one sample.
  std::optional<Bytes> output;
  /// The number of layers of each kind, which is Galvatron's "layertype".
  std::optional<std::int64_t> layers;
  /// The unit of times, for formats whose keys do not name it; if not given, the unit of the
  /// planner's own files.
  std::optional<TimeUnit> time_unit;
};

struct ImportedProfile {
  /// The profile, whose device is empty if neither the files nor the options name it.
  ModelProfile profile;
  std::vector<std::string> warnings;
  /// Missing where the layers have one order only, or take no time.
  std::optional<LayerArrangement> arrangement = std::nullopt;
};

struct ForeignModelFile {
  std::string text;
  /// The name of the file in errors. That of a Metis file states what was measured.
  std::string name;
  ModelFormat format = ModelFormat::PipedreamGraph;
};

/// Imports a profile from files of one format: a single file, all files of a Metis folder, or the
/// two files of Galvatron or of Sailor. The layers of graphs are arranged in the order of
/// the least mean cut where it is found and at least a hundredth below that of the greedy order,
/// which they have otherwise. Throws Error(BadInput) with the faults of a file, or Error(Usage)
/// naming every option that is missing or would have no effect. O(length), times log nodes for
/// graphs.
ImportedProfile import_model(const std::vector<ForeignModelFile>& files,
                             const ForeignProfileOptions& options);

}  // namespace dapple::interop
