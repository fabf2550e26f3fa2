// SHA-256 in hex.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace dapple::io {

/// The hash of all texts added, one behind the other.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::string_view text);
  /// 64 hexadecimal digits. Nothing may be added after it.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256(std::string_view text);

}  // namespace dapple::io
