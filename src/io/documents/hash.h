// SHA-256 hashes in hexadecimal.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace dapple::io {

/// Computes the hash of the concatenation of all texts added.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::string_view text);
  /// Returns the hash as 64 hexadecimal digits. Nothing may be added afterwards.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256(std::string_view text);

}  // namespace dapple::io
