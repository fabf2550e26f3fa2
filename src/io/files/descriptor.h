// Ownership of a file descriptor.
#pragma once

#include <utility>

namespace dapple::io {

/// Owns a file descriptor and closes it at the end of the scope. A negative number stands for none.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int number() const { return number_; }
  /// Closes the descriptor. Returns false, with errno set, if some of the written data was lost.
  bool close();

 private:
  int number_;
};

}  // namespace dapple::io
