// The files of html/, made into constants by the build.
#pragma once

#include <string_view>

namespace dapple::report::html_assets {

extern const std::string_view kPage;    // with {{title}}, {{style}}, {{content}} and {{script}}
extern const std::string_view kStyle;   // no "</style"
extern const std::string_view kScript;  // no "</script"

}  // namespace dapple::report::html_assets
