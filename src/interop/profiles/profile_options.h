// Handles, in the same way for all formats, what the profiles of other planners do not state: which
// options a format needs or has no use for, and how they are applied.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dapple/interop/profiles/foreign_profile.h"

namespace dapple::interop {

/// What a format makes of an option.
enum class Need {
  // The files state the value, or the profile has no place for it; the option is refused.
  Useless,
  // The option replaces a value of the files or a default.
  Optional,
  // The files do not state the value, and there is no default.
  Required,
};

/// What a format makes of each member of ForeignProfileOptions, besides the optimizer, which all
/// formats require, and the batch scaling, which is optional for all of them.
struct ProfileNeeds {
  // The kind of file in messages, such as "a PipeDream graph".
  std::string_view file;
  Need profile_batch = Need::Useless;
  Need global_batch = Need::Required;
  // It is optional even if the files name no device, which is then empty and left to the caller.
  Need device = Need::Optional;
  // It is useless if the files state what a layer keeps for its backward.
  Need stash = Need::Useless;
  Need tensor_parallel = Need::Optional;
  Need every_degree = Need::Useless;
  Need backward_ratio = Need::Useless;
  Need output = Need::Useless;
  Need layers = Need::Useless;
  Need model = Need::Useless;
  Need time_unit = Need::Useless;
};

/// Throws Error(Usage) naming every option that is missing, is out of range or would have no
/// effect.
void check_options(const ForeignProfileOptions& options, const ProfileNeeds& needs,
                   const std::string& source_name);

/// The largest number of samples of a batch, as in our own profiles.
inline constexpr std::int64_t kMostSamples = 2'147'483'647;

/// The size of the parameters of one layer above which warn_of_parameters() doubts it.
inline constexpr Bytes kSuspiciousParameters{10'000'000'000};

/// Returns a profile without layers from the options. Requires: check_options() has accepted them.
ModelProfile profile_header(const ForeignProfileOptions& options, std::string name,
                            std::string source);

/// Returns a model's name for a file's: "vgg16" for ".../vgg16/graph.txt", "mine" for "mine.txt".
/// It consists of letters, digits, '.', '-' and '_'.
std::string model_name(const std::string& source_name);

/// Returns the name with '_' in place of every character that model_name() does not allow, cut off
/// after 100 characters; `otherwise` if it is empty.
std::string plain_name(std::string_view name, std::string_view otherwise);

/// Returns the factor as a decimal, such as "1.5".
std::string show_factor(Factor factor);

/// Warns that times are taken to be proportional to the batch size, as each layer has a single
/// measurement, at `batch`. Does nothing if the options state the scaling.
void warn_of_scaling(const ForeignProfileOptions& options, std::int64_t batch,
                     std::vector<std::string>& warnings);

/// Returns the unit of --time-unit, or `usual`, "s" or the like, if it is not given.
TimeUnit unit_of_times(const ForeignProfileOptions& options, std::string_view usual);

/// Adds everything that is doubtful about the profile (profile/doubts.h) to the warnings of the
/// import. A language model with an embedding and transformer blocks, but no output layer after
/// them, also gets a warning in its profile, which every plan repeats.
void add_doubts(ImportedProfile& imported);

/// Warns if the parameters of a layer are so large that their unit is probably wrong. `called` is
/// added to the layer's name in the warning.
void warn_of_parameters(const Layer& layer, std::string_view called,
                        std::vector<std::string>& warnings);

struct BothDirections {
  Duration forward;
  Duration backward;
};
/// Divides the time of forward and backward together such that forward : backward = 1 : ratio. The
/// forward is rounded up, and the sum is preserved.
BothDirections share_out(Duration both, Factor backward_ratio);

}  // namespace dapple::interop
