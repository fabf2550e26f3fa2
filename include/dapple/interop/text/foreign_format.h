// The formats of other tools' files, as options, lists and messages name them.
#pragma once

#include <string_view>

namespace dapple::interop {

/// The names of one of the formats that `Format` enumerates.
template <class Format>
struct ForeignFormat {
  Format format;
  /// The word that --format takes.
  std::string_view name;
  /// The tools that have such files, such as "PyTorch, torchtitan".
  std::string_view tools;
  /// What a message expects that wants a file of the format, such as "Slurm (topology.conf)".
  std::string_view file;
};

}  // namespace dapple::interop
