// What profiles of other planners leave open, the same way for all formats: which options one needs
// or has no use for, and what is made of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dapple/interop/profiles/foreign_profile.h"

namespace dapple::interop {

enum class Need { Useless, Optional, Required };

/// What a format needs beside an optimizer, which none of them says, and may have a batch scaling.
struct ProfileNeeds {
  std::string_view file;  // "a PipeDream graph"
  Need profile_batch = Need::Useless;
  Need global_batch = Need::Required;
  Need device = Need::Optional;
  Need stash = Need::Useless;
  Need tensor_parallel = Need::Optional;
  Need backward_ratio = Need::Useless;
  Need output = Need::Useless;
  Need layers = Need::Useless;
  Need time_unit = Need::Useless;
};

/// Throws Error(Usage) naming every option that is missing, out of range, or would do nothing.
void check_options(const ForeignProfileOptions& options, const ProfileNeeds& needs,
                   const std::string& source_name);

/// Samples of a batch, as in our own profiles.
inline constexpr std::int64_t kMostSamples = 2'147'483'647;

/// More parameters than this in one layer are doubted.
inline constexpr Bytes kSuspiciousParameters{10'000'000'000};

/// All of a profile but its layers. Requires: check_options() has passed.
ModelProfile profile_header(const ForeignProfileOptions& options, std::string name,
                            std::string source);

/// "vgg16" of ".../vgg16/graph.txt", "mine" of "mine.txt": letters, digits, '.', '-' and '_'.
std::string model_name(const std::string& source_name);

/// A name from a file, with '_' for what is not in the names above; `otherwise` if that is empty.
std::string plain_name(std::string_view name, std::string_view otherwise);

/// "1.5" of a factor.
std::string show_factor(Factor factor);

/// Says what a single measurement per layer, at `batch`, leaves open; nothing where it is told.
void warn_of_scaling(const ForeignProfileOptions& options, std::int64_t batch,
                     std::vector<std::string>& warnings);

/// The unit of --time-unit, else the one that such files are in.
TimeUnit unit_of_times(const ForeignProfileOptions& options, std::string_view usual);

/// Names an imported language model that has an embedding and blocks, and no output layer behind
/// them, in its profile, which every plan repeats; and adds all that is to be doubted of it to the
/// import's warnings.
void add_doubts(ImportedProfile& imported);

/// Doubts sizes that must be a slip of units.
void warn_of_parameters(const Layer& layer, std::string_view called,
                        std::vector<std::string>& warnings);

/// A time that is both directions' as one, shared out: forward : backward = 1 : ratio.
struct BothDirections {
  Duration forward;
  Duration backward;
};
BothDirections share_out(Duration both, Factor backward_ratio);

}  // namespace dapple::interop
