#include "app/request/pins.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "dapple/command_line/options.h"
#include "dapple/profile/limits.h"
#include "dapple/report/show.h"

namespace dapple::app {
namespace {

constexpr const char* kOption = "--pin";

std::optional<std::int32_t> whole_number(const std::string& text) {
  std::int32_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, number);
  if (fault != std::errc{} || stop != end || number < 0) return std::nullopt;
  return number;
}

class PinParser {
 public:
  PinParser(const ModelProfile& profile, const Topology& topology)
      : profile_(profile), topology_(topology) {}

  void add(const std::string& text);
  Pins finish();

 private:
  std::int32_t layer_count() const { return static_cast<std::int32_t>(profile_.layers.size()); }
  std::string layers_text() const {
    return layer_count() == 1 ? "is 1 layer" : fmt::format("are {} layers", layer_count());
  }
  std::string devices_text() const {
    const std::int32_t devices = topology_.device_count();
    return fmt::format("{} device{}", devices, devices == 1 ? "" : "s");
  }
  std::int32_t count(const std::string& key, const std::string& value) const;
  static std::int64_t degree(const std::string& key, const std::string& value, std::int64_t most);
  void add_recomputation(const std::string& value);
  void require_least(const std::string& value) const;
  std::int32_t layer(const std::string& key, const std::string& value) const;
  void check_split() const;

  template <class Value>
  static void set(std::optional<Value>& pin, Value value, const std::string& key) {
    if (pin && *pin != value) {
      throw command_line::usage_error(kOption,
                                      fmt::format("expected one value of {}, got two", key));
    }
    pin = value;
  }

  const ModelProfile& profile_;
  const Topology& topology_;
  Pins pins_;
};

void PinParser::add(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string key = text.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
  if (key == "stages") {
    set(pins_.stages, count(key, value), key);
  } else if (key == "replicas") {
    set(pins_.replicas, count(key, value), key);
  } else if (key == "tensor") {
    set(pins_.tensor, degree(key, value, kMaxTensorParallel), key);
  } else if (key == "context") {
    set(pins_.context, degree(key, value, kMaxContextParallel), key);
  } else if (key == "experts") {
    set(pins_.experts, degree(key, value, kMaxGroup), key);
  } else if (key == "expert-tensor") {
    set(pins_.expert_tensor, degree(key, value, kMaxTensorParallel), key);
  } else if (key == "shards") {
    set(pins_.shards, degree(key, value, kMaxGroup), key);
  } else if (key == "recompute") {
    add_recomputation(value);
  } else if (key == "depths") {
    require_least(value);
    pins_.least_depths = true;
  } else if (key == "cut") {
    pins_.cuts.push_back(layer(key, value));
  } else if (key == "join") {
    pins_.joints.push_back(layer(key, value));
  } else {
    const auto suggestion = command_line::nearest(
        key, {"stages", "replicas", "tensor", "context", "experts", "expert-tensor", "shards",
              "recompute", "depths", "cut", "join"});
    throw command_line::usage_error(
        kOption,
        fmt::format("expected stages=N, replicas=N, tensor=N, context=N, experts=N, "
                    "expert-tensor=N, shards=N, recompute=on|off|PARTS, depths=least, cut=LAYER or "
                    "join=LAYER, got \"{}\"{}",
                    printable(text), suggestion ? ", nearest is " + *suggestion + '=' : ""));
  }
}

std::int32_t PinParser::count(const std::string& key, const std::string& value) const {
  std::int32_t most = topology_.device_count();
  if (key == "stages") most = std::min(most, layer_count());
  const std::optional<std::int32_t> number = whole_number(value);
  if (number && *number >= 1 && *number <= most) return *number;
  throw command_line::usage_error(
      kOption, fmt::format("expected {}=N with N from 1 to {}, as there {} and {}, got \"{}\"", key,
                           most, layers_text(), devices_text(), printable(value)));
}

std::int64_t PinParser::degree(const std::string& key, const std::string& value,
                               std::int64_t most) {
  const std::optional<std::int32_t> number = whole_number(value);
  if (number && *number >= 1 && *number <= most) return *number;
  throw command_line::usage_error(
      kOption,
      fmt::format("expected {}=N with N from 1 to {}, got \"{}\"", key, most, printable(value)));
}

std::string nearest_text(const std::string& value, const std::vector<std::string>& choices) {
  const auto suggestion = command_line::nearest(value, choices);
  return suggestion ? ", nearest is " + *suggestion : "";
}

void PinParser::add_recomputation(const std::string& value) {
  if (value == "on" || value == "off") {
    set(pins_.recompute, value == "on", "recompute");
    return;
  }
  if (const auto found = value == "none" ? Recomputation() : recomputation(value)) {
    set(pins_.recomputation, *found, "recompute");
    return;
  }
  if (const std::optional<std::string> expected = expected_layers(value)) {
    throw command_line::usage_error(
        kOption, fmt::format("expected recompute={}, got \"{}\"", *expected, printable(value)));
  }
  std::vector<std::string> names{"on", "off", "none"};
  for (const RecomputedPart part : kRecomputedParts) names.emplace_back(to_string(part));
  throw command_line::usage_error(
      kOption, fmt::format("expected recompute=on or recompute=off of stages, or the parts that "
                           "layers recompute, as recompute=full, recompute=core_attn+norm or, in "
                           "the first 4 layers of every stage, recompute=full:4, or, in every "
                           "second one, recompute=full:1/2, got \"{}\"{}",
                           printable(value), nearest_text(value, names)));
}

void PinParser::require_least(const std::string& value) const {
  if (value == "least") return;
  throw command_line::usage_error(
      kOption, fmt::format("expected depths=least, got \"{}\"{}", printable(value),
                           nearest_text(value, {"least"})));
}

std::int32_t PinParser::layer(const std::string& key, const std::string& value) const {
  std::vector<std::string> names;
  std::optional<std::int32_t> found;
  for (std::int32_t i = 0; i < layer_count(); ++i) {
    names.push_back(profile_.layers[static_cast<std::size_t>(i)].name);
    if (names.back() != value) continue;
    if (found) {
      throw command_line::usage_error(
          kOption, fmt::format("expected the number of a layer, as several are named \"{}\"",
                               printable(value)));
    }
    found = i;
  }
  if (!found) found = whole_number(value);
  if (!found || *found >= layer_count()) {
    // A number that is out of range is near to no name.
    const bool is_number = value.find_first_not_of("-0123456789") == std::string::npos;
    const auto suggestion = is_number ? std::nullopt : command_line::nearest(value, names);
    throw command_line::usage_error(
        kOption, fmt::format("expected {}=LAYER with the name of a layer or its number, 1 to {}, "
                             "got \"{}\"{}",
                             key, layer_count() - 1, printable(value),
                             suggestion ? ", nearest is " + printable(*suggestion) : ""));
  }
  if (*found == 0) {
    throw command_line::usage_error(
        kOption, fmt::format("expected {}=LAYER with a layer behind the first, which "
                             "always begins a stage, got \"{}\"",
                             key, printable(value)));
  }
  return *found;
}

void PinParser::check_split() const {
  for (const std::int32_t cut : pins_.cuts) {
    if (!std::binary_search(pins_.joints.begin(), pins_.joints.end(), cut)) continue;
    throw command_line::usage_error(
        kOption, fmt::format("expected each layer in cut or in join, got {} in both",
                             printable(profile_.layers[static_cast<std::size_t>(cut)].name)));
  }
  const auto least = static_cast<std::int32_t>(pins_.cuts.size()) + 1;
  const auto most = layer_count() - static_cast<std::int32_t>(pins_.joints.size());
  if (least > topology_.device_count()) {
    throw command_line::usage_error(
        kOption,
        fmt::format("expected at most {} cuts, as there {} {}, got {}",
                    topology_.device_count() - 1, topology_.device_count() == 1 ? "is" : "are",
                    devices_text(), pins_.cuts.size()));
  }
  if (pins_.stages && (*pins_.stages < least || *pins_.stages > most)) {
    throw command_line::usage_error(
        kOption,
        fmt::format("expected stages from {} to {}, as {} layer{} cut and {} joined, got {}", least,
                    most, pins_.cuts.size(), pins_.cuts.size() == 1 ? " is" : "s are",
                    pins_.joints.size(), *pins_.stages));
  }
}

Pins PinParser::finish() {
  for (std::vector<std::int32_t>* layers : {&pins_.cuts, &pins_.joints}) {
    std::sort(layers->begin(), layers->end());
    layers->erase(std::unique(layers->begin(), layers->end()), layers->end());
  }
  check_split();
  return std::move(pins_);
}

}  // namespace

Pins parse_pins(const std::vector<std::string>& texts, const ModelProfile& profile,
                const Topology& topology) {
  PinParser parser(profile, topology);
  for (const std::string& text : texts) parser.add(text);
  return parser.finish();
}

}  // namespace dapple::app
