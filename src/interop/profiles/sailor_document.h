// What Sailor measured of one model at one tensor-parallel degree, read from either of two forms:
// one document with everything, or the pair of files that Sailor's own planner reads.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple::interop {

/// The times of all layers on one kind of GPU at one micro-batch size.
struct SailorTimes {
  std::string device;
  std::int64_t batch = 1;
  std::vector<Duration> forward;
  std::vector<Duration> backward;
};

/// The sizes of all layers for one sequence, on one GPU of a tensor-parallel group.
struct SailorSizes {
  std::vector<Bytes> parameters;
  std::vector<Bytes> output;
  std::vector<Bytes> input;
  /// What the forward leaves allocated, the output included.
  std::vector<Bytes> stored;
};

struct SailorDocument {
  /// Empty if it is not stated.
  std::string name;
  /// One for each layer; layers of one kind have the same name.
  std::vector<std::string> layer_kinds;
  SailorSizes sizes;
  /// All kinds of GPU at the wanted degree, at least one measurement, in the order of the file.
  std::vector<SailorTimes> times;
  /// All kinds of GPU in the file, also those that it does not have times of at that degree.
  std::set<std::string> devices;
  /// What was left out or assumed.
  std::vector<std::string> warnings;
};

/// Reads a document with "layer_kinds", "sizes_per_tp" and "times". Throws Error(BadInput).
/// O(length).
SailorDocument read_sailor_document(std::string_view text, const std::string& source_name,
                                    std::int64_t degree);

/// A file and its name in errors.
struct NamedText {
  std::string_view text;
  std::string name;
};

/// Reads Sailor's own files: `times` holds seconds as [forward, backward, step] by model, kind of
/// GPU, micro-batch, degree and layer (profiles_tmp.json), `sizes` those of a layer by model,
/// degree and layer (llm_info.json). `model` is needed where both have several models. A
/// measurement with a time of 2^30 s, which stands for none, is left out with a warning. Throws
/// Error(BadInput), and Error(Usage) where the model is not said. O(length).
SailorDocument read_sailor_files(const NamedText& times, const NamedText& sizes,
                                 std::int64_t degree, const std::optional<std::string>& model);

}  // namespace dapple::interop
