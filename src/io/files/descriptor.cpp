#include "io/files/descriptor.h"

#include <unistd.h>

#include <utility>

namespace dapple::io {

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

bool Descriptor::close() {
  return ::close(std::exchange(number_, -1)) == 0;
}

}  // namespace dapple::io
