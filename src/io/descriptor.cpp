#include "descriptor.h"

#include <unistd.h>

namespace dapple {

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

bool Descriptor::close() {
  return ::close(std::exchange(number_, -1)) == 0;
}

}  // namespace dapple
