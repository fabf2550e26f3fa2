// A number that tells whether bytes have changed on their way, or in a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace dapple::exec {

/// XXH3 (github.com/Cyan4973/xxHash, the 64 bits of seed 0): a change goes unseen once in 2^64 or
/// so. Not against malice. As quick as memory. O(size).
std::uint64_t fingerprint(std::span<const std::byte> bytes);

/// The same of bytes that come in parts.
class Fingerprint {
 public:
  Fingerprint();
  ~Fingerprint();
  Fingerprint(const Fingerprint&) = delete;
  Fingerprint& operator=(const Fingerprint&) = delete;

  void add(std::span<const std::byte> bytes);
  /// The fingerprint of all bytes that were added so far.
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dapple::exec
