#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/report/page.h"
#include "dapple/report/show.h"
#include "report/html_assets.h"
#include "report/page_content.h"

namespace dapple::report {
namespace {

/// Replaces each "{{name}}" in the page by the text of that name, in one pass: placeholders within
/// the texts are not replaced.
std::string fill(std::string_view page,
                 const std::vector<std::pair<std::string_view, std::string_view>>& texts) {
  std::string filled;
  while (!page.empty()) {
    const std::size_t open = page.find("{{");
    filled += page.substr(0, open);
    if (open == std::string_view::npos) break;
    const std::size_t close = page.find("}}", open);
    const std::string_view name = page.substr(open + 2, close - open - 2);
    const auto text =
        std::find_if(texts.begin(), texts.end(), [name](const auto& t) { return t.first == name; });
    check(text != texts.end(), "the page names a text that there is");
    filled += text->second;
    page.remove_prefix(close + 2);
  }
  return filled;
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string escaped;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string write_page(const ReportSubject& subject) {
  const std::string title = escape_markup(
      fmt::format("{} on {}", subject.document.profile.name, subject.document.topology.name));
  return fill(html_assets::kPage, {{"title", title},
                                   {"style", html_assets::kStyle},
                                   {"content", page_content(subject)},
                                   {"script", html_assets::kScript}});
}

}  // namespace dapple::report
