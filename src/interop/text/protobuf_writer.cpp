#include "dapple/interop/text/protobuf_writer.h"

namespace dapple::interop {
namespace {

constexpr unsigned kVarint = 0;
constexpr unsigned kLengthDelimited = 2;

/// Appends seven bits per byte, the lowest first; the eighth bit says that more bytes follow.
void append_varint(std::string& bytes, std::uint64_t value) {
  constexpr std::uint64_t kMore = 0x80;
  for (; value >= kMore; value >>= 7U) bytes += static_cast<char>(value % kMore + kMore);
  bytes += static_cast<char>(value);
}

void append_tag(std::string& bytes, int field, unsigned wire_type) {
  append_varint(bytes, static_cast<std::uint64_t>(field) << 3U | wire_type);
}

}  // namespace

ProtobufWriter& ProtobufWriter::integer(int field, std::uint64_t value) {
  append_tag(bytes_, field, kVarint);
  append_varint(bytes_, value);
  return *this;
}

ProtobufWriter& ProtobufWriter::text(int field, std::string_view value) {
  append_tag(bytes_, field, kLengthDelimited);
  append_varint(bytes_, value.size());
  bytes_ += value;
  return *this;
}

std::string ProtobufWriter::delimited() const {
  std::string result;
  append_varint(result, bytes_.size());
  return result + bytes_;
}

}  // namespace dapple::interop
