#include "exec/weights/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "dapple/io/json/json_value.h"
#include "exec/train/named_tensors.h"

namespace dapple::exec {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

using Json = nlohmann::ordered_json;
using io::JsonValue;

constexpr std::size_t kLengthSize = 8;
constexpr const char* kLengthPlace = "bytes 0 to 7";
constexpr const char* kHeader = "header";
/// The limit of the format's reference implementation.
constexpr std::uint64_t kLongestHeader = 100'000'000;
constexpr std::uint64_t kShortestHeader = 2;  // "{}"

/// Returns the size of a dtype's number in bytes; zero for an unknown dtype.
std::uint64_t size_of_kind(std::string_view kind) {
  if (kind == "F64" || kind == "I64" || kind == "U64") return 8;
  if (kind == "F32" || kind == "I32" || kind == "U32") return 4;
  if (kind == "F16" || kind == "BF16" || kind == "I16" || kind == "U16") return 2;
  if (kind == "F8_E4M3" || kind == "F8_E5M2" || kind == "I8" || kind == "U8" || kind == "BOOL") {
    return 1;
  }
  return 0;
}

/// Returns the member of that name; null if there is none or `object` is not an object.
const JsonValue* member(const JsonValue& object, std::string_view name) {
  const auto found = std::find(object.keys.begin(), object.keys.end(), name);
  if (found == object.keys.end()) return nullptr;
  return &object.elements[static_cast<std::size_t>(found - object.keys.begin())];
}

bool is_text(const JsonValue* value) {
  return value != nullptr && value->kind == JsonValue::Kind::Text;
}

bool is_list_of_numbers(const JsonValue* list) {
  return list != nullptr && list->kind == JsonValue::Kind::Array &&
         std::all_of(list->elements.begin(), list->elements.end(), [](const JsonValue& number) {
           return number.kind == JsonValue::Kind::Integer && number.integer >= 0;
         });
}

/// Returns the number of elements of a shape; nothing if the product of its nonzero dimensions
/// exceeds INT64_MAX.
std::optional<std::uint64_t> count_in(const nn::Shape& shape) {
  std::uint64_t count = 1;
  bool is_empty = false;
  for (const std::int64_t dimension : shape) {
    is_empty = is_empty || dimension == 0;
    const auto size = static_cast<std::uint64_t>(std::max<std::int64_t>(1, dimension));
    if (count > static_cast<std::uint64_t>(INT64_MAX) / size) return std::nullopt;
    count *= size;
  }
  return is_empty ? 0 : count;
}

/// Reads one file; every function throws the first fault it finds.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& source_name)
      : bytes_(bytes), source_name_(source_name) {}

  StoredTensors read() {
    const JsonValue header = read_header();
    StoredTensors stored;
    std::map<std::uint64_t, std::pair<std::uint64_t, std::string>> parts;  // begin -> end, name
    for (std::size_t i = 0; i < header.keys.size(); ++i) {
      const std::string& name = header.keys[i];
      if (name == kMetadata) {
        stored.metadata = read_metadata(header.elements[i]);
        continue;
      }
      StoredTensor& tensor = stored.tensors[name];
      tensor = read_tensor(name, header.elements[i]);
      if (tensor.bytes.empty()) continue;
      const auto begin = static_cast<std::uint64_t>(tensor.bytes.data() - bytes_.data());
      if (!parts.emplace(begin, std::pair(begin + tensor.bytes.size(), name)).second) {
        refuse(place_of_tensor(name) + "/data_offsets",
               "expected bytes that no other tensor has, got those of another");
      }
    }
    std::uint64_t covered = 0;
    for (const auto& [begin, part] : parts) {
      if (begin != covered) {
        refuse(place_of_tensor(part.second) + "/data_offsets",
               fmt::format("expected its bytes to begin at {}, got {}", covered, begin));
      }
      covered = part.first;
    }
    if (covered != bytes_.size()) {
      refuse(kHeader, fmt::format("expected tensors of {} bytes, as many as follow, got {}",
                                  bytes_.size(), covered));
    }
    return stored;
  }

 private:
  [[noreturn]] void refuse(const std::string& place, std::string message) const {
    refuse_file(source_name_, place, std::move(message));
  }

  /// Parses the header and leaves only the tensors in `bytes_`.
  JsonValue read_header() {
    const std::uint64_t length =
        safetensors_header_length(bytes_.substr(0, kLengthSize), bytes_.size(), source_name_);
    bytes_.remove_prefix(kLengthSize);
    const std::string_view text = bytes_.substr(0, static_cast<std::size_t>(length));
    bytes_.remove_prefix(text.size());
    JsonValue header = io::parse_json(text, fmt::format("{}: {}", source_name_, kHeader));
    if (header.kind != JsonValue::Kind::Object) {
      refuse(kHeader, "expected a JSON object, got something else");
    }
    refuse_repeated(header, "");
    return header;
  }

  void refuse_repeated(const JsonValue& object, const std::string& place) const {
    std::set<std::string_view> keys;
    for (const std::string& key : object.keys) {
      if (keys.insert(key).second) continue;
      refuse(place + place_of_tensor(key), "expected this key once, got it twice");
    }
  }

  std::map<std::string, std::string> read_metadata(const JsonValue& entry) const {
    std::map<std::string, std::string> metadata;
    if (entry.kind != JsonValue::Kind::Object) {
      refuse(place_of_tensor(kMetadata), "expected an object with texts, got something else");
    }
    refuse_repeated(entry, place_of_tensor(kMetadata));
    for (std::size_t i = 0; i < entry.keys.size(); ++i) {
      if (!is_text(&entry.elements[i])) {
        refuse(place_of_text(entry.keys[i]), "expected a text, got something else");
      }
      metadata[entry.keys[i]] = entry.elements[i].text;
    }
    return metadata;
  }

  StoredTensor read_tensor(const std::string& name, const JsonValue& entry) const {
    const std::string place = place_of_tensor(name);
    refuse_repeated(entry, place);
    StoredTensor tensor;
    if (const JsonValue* kind = member(entry, "dtype"); is_text(kind)) tensor.kind = kind->text;
    const std::uint64_t number_size = size_of_kind(tensor.kind);
    if (number_size == 0) {
      refuse(place + "/dtype", "expected a type of number, such as \"F32\", got something else");
    }
    const JsonValue* shape = member(entry, "shape");
    if (!is_list_of_numbers(shape)) {
      refuse(place + "/shape", "expected a list of whole numbers from 0, got something else");
    }
    for (const JsonValue& dimension : shape->elements) tensor.shape.push_back(dimension.integer);
    const JsonValue* offsets = member(entry, "data_offsets");
    if (!is_list_of_numbers(offsets) || offsets->elements.size() != 2) {
      refuse(place + "/data_offsets", "expected two whole numbers from 0, got something else");
    }
    const auto begin = static_cast<std::uint64_t>(offsets->elements[0].integer);
    const auto end = static_cast<std::uint64_t>(offsets->elements[1].integer);
    if (begin > end || end > bytes_.size()) {
      refuse(place + "/data_offsets", fmt::format("expected a part of the {} bytes of tensors, got "
                                                  "[{}, {})",
                                                  bytes_.size(), begin, end));
    }
    const std::optional<std::uint64_t> count = count_in(tensor.shape);
    if (!count || (end - begin) % number_size != 0 || (end - begin) / number_size != *count) {
      refuse(place + "/data_offsets", fmt::format("expected {} bytes for each number of its shape, "
                                                  "got {}",
                                                  number_size, end - begin));
    }
    tensor.bytes =
        bytes_.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    return tensor;
  }

  std::string_view bytes_;
  const std::string& source_name_;
};

/// Converts half precision (IEEE 754-2008, binary16), with 5 exponent and 10 fraction bits.
float value_of_half(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000U} << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1FU;
  const std::uint32_t fraction = half & 0x3FFU;
  if (exponent == 0) {  // zero or subnormal
    const float size = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -size : size;
  }
  const std::uint32_t wide = exponent == 0x1F ? 0xFFU : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

template <class Convert>
void convert_numbers(std::string_view bytes, std::vector<float>& values, const Convert& convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t number = 0;
    std::memcpy(&number, bytes.data() + i * sizeof(number), sizeof(number));
    values[i] = convert(number);
  }
}

}  // namespace

std::uint64_t safetensors_header_length(std::string_view beginning, std::uint64_t file_size,
                                        const std::string& source_name) {
  if (file_size < kLengthSize) {
    refuse_file(source_name, "",
                fmt::format("expected a safetensors file, got {} bytes in all", file_size));
  }
  std::uint64_t length = 0;
  std::memcpy(&length, beginning.data(), kLengthSize);
  const std::uint64_t most = std::min(file_size - kLengthSize, kLongestHeader);
  if (length > most || length < kShortestHeader) {
    refuse_file(source_name, kLengthPlace,
                fmt::format("expected the length of a safetensors header, {} {}, got {}",
                            length > most ? "at most" : "at least",
                            length > most ? most : kShortestHeader, length));
  }
  return length;
}

StoredTensors read_safetensors(std::string_view bytes, const std::string& source_name) {
  return Reader(bytes, source_name).read();
}

nn::Tensor values_of(const std::string& name, const StoredTensor& stored,
                     const std::string& source_name) {
  nn::Tensor tensor = nn::zeros(stored.shape);
  if (tensor.values.empty()) return tensor;
  if (stored.kind == "F32") {
    std::memcpy(tensor.values.data(), stored.bytes.data(), stored.bytes.size());
  } else if (stored.kind == "BF16") {
    convert_numbers(stored.bytes, tensor.values, [](std::uint16_t number) {
      return std::bit_cast<float>(std::uint32_t{number} << 16);
    });
  } else if (stored.kind == "F16") {
    convert_numbers(stored.bytes, tensor.values, value_of_half);
  } else {
    refuse_file(source_name, place_of_tensor(name) + "/dtype",
                fmt::format("expected \"F32\", \"F16\" or \"BF16\", got \"{}\"", stored.kind));
  }
  if (const auto place = first_not_finite(tensor)) {
    refuse_file(source_name, place_of_tensor(name),
                fmt::format("expected finite numbers, got {} as number {} of {}",
                            tensor.values[*place], *place + 1, tensor.values.size()));
  }
  return tensor;
}

std::string place_of_tensor(const std::string& name) {
  std::string place = "/" + pointer_step(name);
  // Each line of an error message is shown as an error of its own.
  std::replace(place.begin(), place.end(), '\n', '?');
  return place;
}

std::string place_of_text(const std::string& key) {
  return place_of_tensor(kMetadata) + place_of_tensor(key);
}

void refuse_file(const std::string& source_name, const std::string& place, std::string message) {
  throw Error(ErrorKind::BadInput, source_name, {{place, std::move(message)}});
}

Violation tensor_fault(const std::string& name, const nn::Shape& expected,
                       const std::optional<nn::Shape>& got) {
  const auto text_of = [](const nn::Shape& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
  };
  return {place_of_tensor(name),
          got ? fmt::format("expected shape {}, got {}", text_of(expected), text_of(*got))
              : fmt::format("expected a tensor of shape {}, got none", text_of(expected))};
}

std::optional<Violation> first_of(std::vector<Violation> faults, const char* guess) {
  if (faults.empty()) return std::nullopt;
  Violation& first = faults.front();
  if (faults.size() > 1) {
    first.message += fmt::format("; {} more differ{}: {}", faults.size() - 1,
                                 faults.size() == 2 ? "s" : "", guess);
  }
  return std::move(first);
}

std::string write_safetensors(const std::vector<std::pair<std::string, std::string>>& metadata,
                              const NamedTensors& tensors) {
  Json header = Json::object();
  for (const auto& [key, text] : metadata) header[kMetadata][key] = text;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::uint64_t end = offset + tensor.values.size() * sizeof(float);
    header[name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  // Tensors begin at a multiple of 8 bytes, as suits readers that map the file.
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  std::string bytes(kLengthSize, '\0');
  std::memcpy(bytes.data(), &length, kLengthSize);
  bytes.reserve(kLengthSize + text.size() + static_cast<std::size_t>(offset));
  bytes += text;
  for (const auto& [name, tensor] : tensors) {
    bytes.append(reinterpret_cast<const char*>(tensor.values.data()),
                 tensor.values.size() * sizeof(float));
  }
  return bytes;
}

}  // namespace dapple::exec
