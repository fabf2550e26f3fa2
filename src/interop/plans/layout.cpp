#include "dapple/interop/plans/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "dapple/plan/schedule_family.h"
#include "interop/graphs/transformer_blocks.h"
#include "interop/plans/plan_formats.h"
#include "interop/plans/plan_sketch.h"
#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

/// The families whose order follows from the layout alone.
constexpr ScheduleFamily kLayoutFamilies[] = {ScheduleFamily::OneFOneB, ScheduleFamily::GPipe,
                                              ScheduleFamily::Interleaved,
                                              ScheduleFamily::BreadthFirst};

bool is_layout_word(std::string_view word) {
  return std::find(std::begin(kLayoutWords), std::end(kLayoutWords), word) !=
         std::end(kLayoutWords);
}

std::string unknown_word(std::string_view word) {
  return fmt::format("expected one of {}, got \"{}\"", fmt::join(kLayoutWords, ", "), shown(word));
}

/// Makes the plan of one layout.
class LayoutPlanner {
 public:
  LayoutPlanner(const Layout& layout, const PlanGround& ground, const ForeignPlanOptions& options)
      : layout_(layout), ground_(ground), options_(options) {}
  Plan run();

 private:
  [[noreturn]] void refuse(const std::string& message) const {
    throw Error{ErrorKind::BadInput, layout_.source, {{layout_.place, message}}};
  }
  std::optional<std::int64_t> count(std::string_view word) const;
  void refuse_other_degrees() const;
  ScheduleFamily family(std::int64_t chunks) const;
  bool recomputes() const;
  std::vector<std::int32_t> even_sizes(std::int32_t layers, bool are_blocks,
                                       std::int32_t stages) const;
  std::vector<std::int32_t> given_sizes(const std::string& text) const;
  std::vector<LayerRange> stages(std::int64_t count) const;

  const Layout& layout_;
  const PlanGround& ground_;
  const ForeignPlanOptions& options_;
};

std::optional<std::int64_t> LayoutPlanner::count(std::string_view word) const {
  const std::string* const text = layout_.value(word);
  if (text == nullptr) return std::nullopt;
  const std::optional<std::int32_t> number = parse_count(*text);
  if (number && *number >= 1) return *number;
  refuse(fmt::format("{}: expected a number from 1 on, got \"{}\"", word, shown(*text)));
}

/// Refuses degrees of parallelism that no plan has.
void LayoutPlanner::refuse_other_degrees() const {
  const std::int64_t tensor = ground_.profile.tensor_parallel;
  const std::int64_t given = count("tp").value_or(tensor);
  if (options_.tensor_parallel) {
    check_degree(given, ground_.profile, options_, layout_.source);
  } else if (given != tensor) {
    refuse(
        fmt::format("tp: expected {}, the tensor-parallel degree at which the model was "
                    "profiled, got {}",
                    tensor, given));
  }
  for (const char* word : {"cp", "ep"}) {
    const std::int64_t degree = count(word).value_or(1);
    if (degree == 1) continue;
    refuse(fmt::format("{}: expected 1, as plans split no sequences and no experts, got {}", word,
                       degree));
  }
  const std::string* const zero = layout_.value("zero");
  if (zero == nullptr || *zero == "0") return;
  refuse(
      fmt::format("zero: expected 0, as every replica of a plan holds its whole state, got "
                  "\"{}\"",
                  shown(*zero)));
}

ScheduleFamily LayoutPlanner::family(std::int64_t chunks) const {
  const std::string* const name = layout_.value("schedule");
  if (name == nullptr) {
    return chunks > 1 ? ScheduleFamily::Interleaved : ScheduleFamily::OneFOneB;
  }
  std::vector<std::string_view> names;
  for (const ScheduleFamily family : kLayoutFamilies) {
    if (has_loops(family) != (chunks > 1)) continue;
    if (*name == to_string(family)) return family;
    names.push_back(to_string(family));
  }
  refuse(fmt::format("schedule: expected {} with {} on a rank, got \"{}\"",
                     fmt::join(names, " or "), chunks > 1 ? "several stages" : "one stage",
                     shown(*name)));
}

bool LayoutPlanner::recomputes() const {
  const std::string* const text = layout_.value("recompute");
  if (text == nullptr || *text == "none") return false;
  if (*text == "full") return true;
  refuse(fmt::format("recompute: expected none or full, got \"{}\"", shown(*text)));
}

/// Returns equal numbers of blocks, or numbers of layers that differ by one at most.
std::vector<std::int32_t> LayoutPlanner::even_sizes(std::int32_t layers, bool are_blocks,
                                                    std::int32_t stages) const {
  if (are_blocks && layers % stages != 0) {
    refuse(fmt::format("expected layers=..., as {} transformer blocks do not make {} equal stages",
                       layers, stages));
  }
  std::vector<std::int32_t> sizes(static_cast<std::size_t>(stages), layers / stages);
  for (std::int32_t s = 0; s < layers % stages; ++s) ++sizes[static_cast<std::size_t>(s)];
  return sizes;
}

std::vector<std::int32_t> LayoutPlanner::given_sizes(const std::string& text) const {
  std::vector<std::int32_t> sizes;
  for (const std::string_view part : split(text, ":")) {
    const std::optional<std::int32_t> size = parse_count(part);
    if (!size || *size < 1) {
      refuse(fmt::format("layers: expected a number from 1 on for each stage, as 3:5, got \"{}\"",
                         shown(text)));
    }
    sizes.push_back(*size);
  }
  return sizes;
}

std::vector<LayerRange> LayoutPlanner::stages(std::int64_t stage_count) const {
  const auto layers = static_cast<std::int32_t>(ground_.profile.layers.size());
  const TransformerBlocks found = find_blocks(ground_.profile);
  LayerRange counted = found.fault.empty() ? found.layers : LayerRange{0, layers};
  if (stage_count > counted.size()) {
    refuse(fmt::format("expected at most {} stages, one for each {}, got {}", counted.size(),
                       found.fault.empty() ? "transformer block" : "layer", stage_count));
  }
  const auto stages = static_cast<std::int32_t>(stage_count);
  const std::string* const given = layout_.value("layers");
  const std::vector<std::int32_t> sizes =
      given == nullptr ? even_sizes(counted.size(), found.fault.empty(), stages)
                       : given_sizes(*given);
  std::int64_t sum = 0;
  for (const std::int32_t size : sizes) sum += size;
  if (sum == layers) counted = {0, layers};
  if (sum != counted.size() || sizes.size() != static_cast<std::size_t>(stages)) {
    refuse(fmt::format("layers: expected {} numbers that add up to {}, got {} that add up to {}",
                       stages, counted.size(), sizes.size(), sum));
  }
  std::vector<LayerRange> ranges;
  std::int32_t end = counted.begin;
  for (const std::int32_t size : sizes) {
    ranges.push_back({end, end + size});
    end += size;
  }
  ranges.front().begin = 0;
  ranges.back().end = layers;
  return ranges;
}

Plan LayoutPlanner::run() {
  refuse_other_degrees();
  const std::int64_t devices = ground_.topology.device_count();
  const std::int64_t pipeline = count("pp").value_or(1);
  if (pipeline > devices) {
    refuse(fmt::format("pp: expected at most {}, the devices of the topology, got {}", devices,
                       pipeline));
  }
  const std::optional<std::int64_t> told = count("dp");
  if (told && !options_.replicas.empty()) {
    throw Error{ErrorKind::Usage,
                layout_.source,
                {{"--replicas", "expected none beside dp, which says how many there are"}}};
  }
  const std::int64_t replicas = told || !options_.replicas.empty()
                                    ? replicas_of_all(told, static_cast<std::size_t>(pipeline),
                                                      ground_, options_, layout_.source)
                                    : std::max<std::int64_t>(1, devices / pipeline);
  const std::optional<std::int64_t> samples = count("mbs");
  if (!samples && !options_.micro_batch) {
    refuse("expected mbs=..., the samples of a micro-batch on each replica, got none");
  }
  const std::int64_t chunks = count("vpp").value_or(1);
  PlanSketch sketch;
  sketch.source = layout_.source;
  sketch.stages = stages(pipeline * chunks);
  sketch.ranks = even_ranks(static_cast<std::size_t>(pipeline), replicas);
  sketch.global_batch = count("gbs");
  if (samples) sketch.micro_batch = *samples * replicas;
  sketch.family = family(chunks);
  sketch.recompute = recomputes();
  try {
    return plan_of(sketch, ground_, options_);
  } catch (const Error& error) {
    if (layout_.place.empty() || error.kind() != ErrorKind::BadInput) throw;
    std::vector<Violation> faults = error.violations();
    for (Violation& fault : faults) {
      fault.message = fault.place.empty() ? fault.message : fault.place + ": " + fault.message;
      fault.place = layout_.place;
    }
    throw Error{ErrorKind::BadInput, error.source(), std::move(faults)};
  }
}

}  // namespace

const std::string* Layout::value(std::string_view word) const {
  const auto found = std::find_if(words.begin(), words.end(),
                                  [&](const auto& pair) { return pair.first == word; });
  return found == words.end() ? nullptr : &found->second;
}

Layout read_layout(std::string_view text, const std::string& source) {
  Layout layout{.words = {}, .source = source};
  const auto refuse = [&](std::string message) {
    throw Error{ErrorKind::BadInput, source, {{"", std::move(message)}}};
  };
  const auto add = [&](std::string_view part) {
    const std::size_t sign = part.find('=');
    const std::string word{trim(part.substr(0, sign))};
    const std::string_view value =
        sign == std::string_view::npos ? std::string_view() : trim(part.substr(sign + 1));
    if (!is_layout_word(word)) refuse(unknown_word(word));
    if (value.empty()) refuse(fmt::format("expected {}=VALUE, got \"{}\"", word, shown(part)));
    if (layout.value(word) != nullptr) refuse(fmt::format("expected {} once, got it twice", word));
    layout.words.emplace_back(word, value);
  };
  for (const std::string_view line : split(text, "\n")) {
    if (trim(line).empty()) continue;
    for (const std::string_view part : split(line, ",")) add(part);
  }
  if (layout.words.empty()) refuse(unknown_word(""));
  return layout;
}

std::vector<Layout> read_layouts(std::string_view text, const std::string& source) {
  std::vector<Layout> layouts;
  std::vector<Violation> faults;
  std::vector<std::string> columns;
  std::int64_t number = 0;
  for (const std::string_view line : split(text, "\n")) {
    ++number;
    if (trim(line).empty() || begins_with(trim(line), "#")) continue;
    const std::string place = fmt::format("line {}", number);
    std::vector<std::string> cells;
    for (const std::string_view cell : split(line, ",")) cells.emplace_back(trim(cell));
    if (columns.empty()) {
      columns = std::move(cells);
      std::set<std::string> seen;
      for (const std::string& column : columns) {
        if (!is_layout_word(column)) faults.push_back({place, unknown_word(column)});
        if (!seen.insert(column).second) {
          faults.push_back(
              {place, fmt::format("expected each column once, got \"{}\" twice", shown(column))});
        }
      }
      continue;
    }
    if (cells.size() != columns.size()) {
      faults.push_back({place, fmt::format("expected {} values, one for each column, got {}",
                                           columns.size(), cells.size())});
      continue;
    }
    Layout layout{.words = {}, .source = source, .place = place};
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (!cells[c].empty()) layout.words.emplace_back(columns[c], cells[c]);
    }
    layouts.push_back(std::move(layout));
  }
  if (layouts.empty() && faults.empty()) {
    faults.push_back({"",
                      "expected a row of words such as pp,dp,mbs and a row for each layout, "
                      "got none"});
  }
  if (!faults.empty()) throw Error{ErrorKind::BadInput, source, std::move(faults)};
  return layouts;
}

Plan plan_of_layout(const Layout& layout, const PlanGround& ground,
                    const ForeignPlanOptions& options) {
  return LayoutPlanner(layout, ground, options).run();
}

bool is_layout(std::string_view text) {
  const std::size_t sign = text.find('=');
  return sign != std::string_view::npos && is_layout_word(trim(text.substr(0, sign)));
}

ImportedPlan import_layout(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                           const ForeignPlanOptions& options) {
  const ForeignPlanFile& file = files.front();
  return {.profile = ground.profile,
          .plan = plan_of_layout(read_layout(file.text, file.name), ground, options),
          .warnings = {}};
}

}  // namespace dapple::interop
