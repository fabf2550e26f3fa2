#include "dapple/core/error.h"

#include <utility>

namespace dapple {

std::string pointer_step(std::string_view key) {
  std::string step;
  for (const char letter : key) {
    if (letter == '~') {
      step += "~0";
    } else if (letter == '/') {
      step += "~1";
    } else {
      step += letter;
    }
  }
  return step;
}

Error::Error(ErrorKind kind, std::string source, std::vector<Violation> violations)
    : kind_(kind), source_(std::move(source)), violations_(std::move(violations)) {
  for (const Violation& violation : violations_) {
    if (!text_.empty()) text_ += '\n';
    text_ += source_;
    if (!source_.empty()) text_ += ": ";
    if (!violation.place.empty()) text_ += violation.place + ": ";
    text_ += violation.message;
  }
}

}  // namespace dapple
