// An open file, by its number.
#pragma once

#include <utility>

namespace dapple::io {

/// Closed at the end of the scope; none where the number is negative.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int number() const { return number_; }
  /// False, with errno set, if what was written is not all there.
  bool close();

 private:
  int number_;
};

}  // namespace dapple::io
