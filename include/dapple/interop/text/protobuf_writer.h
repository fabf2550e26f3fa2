// Writes messages in the wire format of Protocol Buffers (protobuf.dev, "Encoding"), limited to the
// two wire types that are needed here: variable-length integers and length-delimited values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dapple::interop {

/// Builds one message field by field. Omitting fields with default values is up to the caller.
class ProtobufWriter {
 public:
  /// Appends a field of type int64, uint64, int32, uint32, bool or of an enumeration.
  ProtobufWriter& integer(int field, std::uint64_t value);
  /// Appends a field that is a string, bytes or a message.
  ProtobufWriter& text(int field, std::string_view value);

  const std::string& bytes() const { return bytes_; }
  /// Returns the message preceded by its length, as in streams of messages.
  std::string delimited() const;

 private:
  std::string bytes_;
};

}  // namespace dapple::interop
