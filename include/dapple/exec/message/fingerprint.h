// Checksums that detect changes of bytes in transit or in a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace dapple::exec {

/// Returns the 64-bit XXH3 hash with seed 0 (github.com/Cyan4973/xxHash). An accidental change goes
/// undetected with a probability of about 2^-64; there is no protection against deliberate changes.
/// Runs at about memory bandwidth. O(size).
std::uint64_t fingerprint(std::span<const std::byte> bytes);

/// Computes the same fingerprint incrementally, for bytes that come in parts.
class Fingerprint {
 public:
  Fingerprint();
  ~Fingerprint();
  Fingerprint(const Fingerprint&) = delete;
  Fingerprint& operator=(const Fingerprint&) = delete;

  void add(std::span<const std::byte> bytes);
  /// Returns the fingerprint of all bytes added so far.
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dapple::exec
