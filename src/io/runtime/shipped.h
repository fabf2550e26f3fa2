// The runtimes that are part of the program: the files of profiles/runtimes.
#pragma once

#include <string_view>

namespace dapple::io::runtime_files {

extern const std::string_view kDeepSpeed;
extern const std::string_view kMegatron;
extern const std::string_view kNanotron;
extern const std::string_view kNanotronDdp;
extern const std::string_view kTorchtitan;
extern const std::string_view kDappleExec;

}  // namespace dapple::io::runtime_files
