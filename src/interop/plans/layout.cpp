#include "dapple/interop/plans/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "dapple/interop/text/value_table.h"
#include "dapple/plan/schedule_family.h"
#include "interop/graphs/transformer_blocks.h"
#include "interop/plans/plan_formats.h"
#include "interop/plans/plan_sketch.h"
#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

/// The numbers that parse_count() reads.
constexpr std::int64_t kLargestNumber = 999'999'999;
/// Tables of more layouts are refused.
constexpr std::size_t kMostLayouts = 100'000;
/// The faults of a table that are reported; reading ends with the last of them.
constexpr std::size_t kMostFaults = 20;

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
  void refuse_beside(std::string_view word, bool is_given, const char* option) const;
  std::int64_t replicas(std::int64_t pipeline) const;
  Plan plan() const;
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
  refuse(fmt::format("{}: expected a number from 1 to {}, got \"{}\"", word, kLargestNumber,
                     shown(*text)));
}

/// Throws Error(Usage) if an option that was given says what the layout says, too.
void LayoutPlanner::refuse_beside(std::string_view word, bool is_given, const char* option) const {
  if (!is_given || layout_.value(word) == nullptr) return;
  throw Error{ErrorKind::Usage,
              layout_.source,
              {{option, fmt::format("expected none with {}, which states it, got both", word)}}};
}

/// Refuses degrees of parallelism that are not those of the ground.
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
  const std::pair<const char*, CollectiveMembers> others[] = {{"cp", CollectiveMembers::Context},
                                                              {"ep", CollectiveMembers::Experts}};
  for (const auto& [word, members] : others) {
    const std::string fault = group_degree_fault(count(word).value_or(1), members, ground_.profile);
    if (!fault.empty()) refuse(fmt::format("{}: {}", word, fault));
  }
}

ScheduleFamily LayoutPlanner::family(std::int64_t chunks) const {
  const std::string* const name = layout_.value("schedule");
  if (name == nullptr) {
    return chunks > 1 ? ScheduleFamily::Interleaved : ScheduleFamily::OneFOneB;
  }
  std::vector<std::string_view> names;
  // The order of the other families is searched.
  for (const ScheduleFamily family : kScheduleFamilies) {
    if (carries_order(family) || has_loops(family) != (chunks > 1)) continue;
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
  // The ground has layers that recompute these parts, if there are any.
  if (!ground_.recomputed_parts.none()) return false;
  if (*text == to_string(RecomputedPart::Layer)) return true;
  refuse(
      fmt::format("recompute: expected none, full, or parts that layers recompute in a variant, "
                  "got \"{}\"",
                  shown(*text)));
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
      refuse(fmt::format("layers: expected a number of layers for each stage, as 3:5, got \"{}\"",
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

/// Returns the replicas of each stage: dp, --replicas, or as many as there are devices for.
std::int64_t LayoutPlanner::replicas(std::int64_t pipeline) const {
  const std::int64_t devices = ground_.topology.device_count();
  const std::int64_t group = ground_.topology.description().group_size;
  const std::string counted = group == 1
                                  ? "the devices of the topology"
                                  : fmt::format("the groups of {} devices of the topology", group);
  const std::int64_t ranks = ground_.profile.group.replicas;
  std::optional<std::int64_t> told = count("dp");
  if (told && *told % ranks != 0) {
    refuse(
        fmt::format("dp: expected a multiple of {}, the data-parallel ranks of a group of {} "
                    "devices, got {}",
                    ranks, group, *told));
  }
  if (told) *told /= ranks;
  refuse_beside("dp", !options_.replicas.empty(), "--replicas");
  if (pipeline > devices) {
    refuse(fmt::format("pp: expected at most {}, {}, got {}", devices, counted, pipeline));
  }
  if (told && *told > devices / pipeline) {
    refuse(fmt::format("pp times dp: expected at most {}, {}, got {} times {}", devices, counted,
                       pipeline, *told));
  }
  if (!told && options_.replicas.empty() && options_.devices.empty()) return devices / pipeline;
  return replicas_of_all(told, static_cast<std::size_t>(pipeline), ground_, options_,
                         layout_.source);
}

Plan LayoutPlanner::plan() const {
  refuse_other_degrees();
  refuse_beside("mbs", options_.micro_batch.has_value(), "--micro-batch");
  refuse_beside("gbs", options_.global_batch.has_value(), "--global-batch");
  const std::int64_t pipeline = count("pp").value_or(1);
  const std::int64_t replica_count = replicas(pipeline);
  const std::optional<std::int64_t> samples = count("mbs");
  if (!samples && !options_.micro_batch) {
    refuse("expected mbs=..., the samples of a micro-batch on each replica, got none");
  }
  const std::int64_t chunks = count("vpp").value_or(1);
  PlanSketch sketch;
  sketch.source = layout_.source;
  sketch.stages = stages(pipeline * chunks);
  sketch.ranks = even_ranks(static_cast<std::size_t>(pipeline), replica_count);
  sketch.global_batch = count("gbs");
  if (samples) sketch.micro_batch = *samples * replica_count * ground_.profile.group.replicas;
  sketch.family = family(chunks);
  sketch.recompute = recomputes();
  return plan_of(sketch, ground_, options_);
}

/// Returns the plan, or throws an error whose faults have the layout's place.
Plan LayoutPlanner::run() {
  try {
    return plan();
  } catch (const Error& error) { throw layout_.at_its_place(error); }
}

/// Returns the cells of a row, of which a table has no more than there are words; one more stands
/// for all others.
std::vector<std::string> cells_of(std::string_view line) {
  return cells_of_row(line, std::size(kLayoutWords));
}

/// Returns the columns of a table, each a word.
std::vector<std::string> columns_of(std::string_view line, const std::string& place,
                                    const std::string& source) {
  std::vector<std::string> columns = cells_of(line);
  std::set<std::string> seen;
  for (const std::string& column : columns) {
    if (!is_layout_word(column)) {
      throw Error{ErrorKind::BadInput, source, {{place, unknown_word(column)}}};
    }
    if (!seen.insert(column).second) {
      throw Error{
          ErrorKind::BadInput,
          source,
          {{place, fmt::format("expected each column once, got \"{}\" twice", shown(column))}}};
    }
  }
  return columns;
}

}  // namespace

bool is_layout_word(std::string_view word) {
  return std::find(std::begin(kLayoutWords), std::end(kLayoutWords), word) !=
         std::end(kLayoutWords);
}

const std::string* Layout::value(std::string_view word) const {
  const auto found = std::find_if(words.begin(), words.end(),
                                  [&](const auto& pair) { return pair.first == word; });
  return found == words.end() ? nullptr : &found->second;
}

Error Layout::at_its_place(const Error& error) const {
  if (place.empty()) return error;
  std::vector<Violation> faults = error.violations();
  for (Violation& fault : faults) {
    if (fault.place == place) continue;
    if (!fault.place.empty()) fault.message = fault.place + ": " + fault.message;
    fault.place = place;
  }
  return Error{error.kind(), error.source(), std::move(faults)};
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
  for_each_row(text, [&](std::int64_t, std::string_view line) {
    for (bool is_last = false; !is_last;) {
      is_last = line.find(',') == std::string_view::npos;
      add(take_part(line, ','));
    }
    return true;
  });
  if (layout.words.empty()) refuse(unknown_word(""));
  return layout;
}

std::vector<Layout> read_layouts(std::string_view text, const std::string& source) {
  std::vector<Layout> layouts;
  std::vector<Violation> faults;
  std::vector<std::string> columns;
  for_each_row(text, [&](std::int64_t number, std::string_view line) {
    const std::string place = fmt::format("line {}", number);
    if (columns.empty()) {
      columns = columns_of(line, place, source);
      return true;
    }
    if (layouts.size() == kMostLayouts) {
      faults.push_back({place, fmt::format("expected at most {} layouts, got more", kMostLayouts)});
      return false;
    }
    std::vector<std::string> cells = cells_of(line);
    if (cells.size() != columns.size()) {
      const bool is_uncounted = cells.size() > std::size(kLayoutWords);
      faults.push_back(
          {place, fmt::format("expected {} values, one for each column, got {}{}", columns.size(),
                              cells.size(), is_uncounted ? " or more" : "")});
      return faults.size() < kMostFaults;
    }
    Layout layout{.words = {}, .source = source, .place = place};
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (!cells[c].empty()) layout.words.emplace_back(columns[c], std::move(cells[c]));
    }
    layouts.push_back(std::move(layout));
    return true;
  });
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
  bool is_one = false;
  for_each_row(text, [&](std::int64_t, std::string_view line) {
    const std::size_t sign = line.find('=');
    is_one = sign != std::string_view::npos && is_layout_word(trim(line.substr(0, sign)));
    return false;
  });
  return is_one;
}

ImportedPlan import_layout(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                           const ForeignPlanOptions& options) {
  const ForeignPlanFile& file = files.front();
  return {.profile = ground.profile,
          .plan = plan_of_layout(read_layout(file.text, file.name), ground, options),
          .warnings = {}};
}

}  // namespace dapple::interop
