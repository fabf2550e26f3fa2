// Messages of Protocol Buffers as bytes: the two wire types that the formats here need, variable
// length integers and length-delimited values (protobuf.dev, "Encoding"). Fields that have the
// default value are left out by whoever calls.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dapple::interop {

class ProtobufWriter {
 public:
  /// Of int64, uint64, int32, uint32, bool and enumerations.
  ProtobufWriter& integer(int field, std::uint64_t value);
  /// Of strings, bytes and messages.
  ProtobufWriter& text(int field, std::string_view value);

  const std::string& bytes() const { return bytes_; }
  /// Its length in front, as streams of messages have it.
  std::string delimited() const;

 private:
  std::string bytes_;
};

}  // namespace dapple::interop
