// The names of torchtitan's modules for the layers of a profile.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/profile/model_profile.h"

namespace dapple::interop {

/// Maps layers to modules. A profile estimated from the configuration of a decoder, whose layers
/// are embedding, block.0, block.1, ... and head, has the modules of torchtitan's decoders:
/// tok_embeddings, layers.0, layers.1, ..., and norm and output, which together are the head. In
/// all other profiles the modules have the names of the layers.
class TorchtitanModules {
 public:
  /// The profile must outlive this object. O(layers log layers).
  explicit TorchtitanModules(const ModelProfile& profile);

  bool are_those_of_decoders() const { return are_those_of_decoders_; }

  /// Returns the names of the layer's modules, in their order. O(1).
  std::vector<std::string> names(LayerIndex layer) const;

  /// Returns the layer whose first module, or which itself, has this name; nothing if there is
  /// none. O(log layers).
  std::optional<LayerIndex> layer(std::string_view name) const;

 private:
  const ModelProfile& profile_;
  bool are_those_of_decoders_;
  std::map<std::string, LayerIndex, std::less<>> layers_;
};

}  // namespace dapple::interop
