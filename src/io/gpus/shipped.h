// Documents that are part of the program.
#pragma once

#include <string_view>

namespace dapple::io::shipped {

/// The file topologies/gpus.json.
extern const std::string_view kGpus;

}  // namespace dapple::io::shipped
