#include <catch2/catch.hpp>
#include <string>

#include "dapple/interop/text/protobuf_writer.h"

namespace dapple::interop {
namespace {

using namespace std::string_literals;

// The examples of protobuf.dev, "Encoding": field 1 with 150, field 2 with "testing".
TEST_CASE("integers have seven bits a byte, texts their length in front") {
  CHECK(ProtobufWriter().integer(1, 150).bytes() == "\x08\x96\x01"s);
  CHECK(ProtobufWriter().text(2, "testing").bytes() == "\x12\x07testing"s);
  CHECK(ProtobufWriter().integer(1, 0).bytes() == "\x08\x00"s);
}

TEST_CASE("a field above fifteen takes two bytes, the largest number ten") {
  CHECK(ProtobufWriter().text(29, "1").bytes() == "\xea\x01\x01"s + "1");
  CHECK(ProtobufWriter().integer(1, UINT64_MAX).bytes() ==
        "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s);
}

TEST_CASE("a message in a stream has its length in front") {
  CHECK(ProtobufWriter().integer(1, 150).delimited() == "\x03\x08\x96\x01"s);
  CHECK(ProtobufWriter().delimited() == "\x00"s);
  const std::string long_text(200, 'x');
  // Two bytes of tag and length more than the text, which is 203 = 0xcb 0x01.
  CHECK(ProtobufWriter().text(1, long_text).delimited().substr(0, 2) == "\xcb\x01"s);
}

}  // namespace
}  // namespace dapple::interop
