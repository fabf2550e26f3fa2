// The number by which changed bytes are known.

#include "dapple/exec/message/fingerprint.h"

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace dapple::exec {
namespace {

std::uint64_t of_text(std::string_view text) {
  return fingerprint(std::as_bytes(std::span(text)));
}

// What xxHash 0.8.1 makes of them.
TEST_CASE("a fingerprint is XXH3's of 64 bits") {
  CHECK(of_text("") == 0x2D06800538D394C2);
  CHECK(of_text("a") == 0xE6C632B61E964E1F);
  CHECK(of_text("dapple") == 0x55002EC2CE97EB89);
}

TEST_CASE("a fingerprint of parts is that of the whole") {
  std::vector<std::byte> bytes(1'000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i % 251);
  for (const std::size_t cut : std::vector<std::size_t>{0, 1, 240, 241, 999, 1000}) {
    Fingerprint parts;
    parts.add(std::span(bytes).first(cut));
    parts.add(std::span(bytes).subspan(cut));
    CHECK(parts.value() == fingerprint(bytes));
  }
}

}  // namespace
}  // namespace dapple::exec
