// The contents of the files in html/, which the build turns into constants.
#pragma once

#include <string_view>

namespace dapple::report::html_assets {

// The page with the placeholders {{title}}, {{style}}, {{content}} and {{script}}.
extern const std::string_view kPage;
// The style sheet, which does not contain "</style".
extern const std::string_view kStyle;
// The script, which does not contain "</script".
extern const std::string_view kScript;

}  // namespace dapple::report::html_assets
