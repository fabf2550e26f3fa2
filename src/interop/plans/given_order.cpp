#include "dapple/interop/plans/given_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "dapple/schedule/schedule.h"

namespace dapple::interop {
namespace {

struct Line {
  std::int64_t number = 0;  // from 1
  std::string_view text;
};

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, length);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.push_back({number, line});
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return lines;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t") == std::string_view::npos;
}

class OrderReader {
 public:
  OrderReader(std::string source, const Plan& plan, const Topology& topology)
      : source_(std::move(source)), topology_(topology), groups_(stages_by_device_group(plan)) {
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      const StagePlan& stage = plan.stages[groups_[group].front().position()];
      first_device_.push_back(stage.devices.front());
      for (const DeviceIndex device : stage.devices) group_of_.emplace(device, group);
    }
  }

  std::vector<std::vector<Action>> from_text(const std::vector<Line>& lines);
  std::vector<std::vector<Action>> from_csv(const std::vector<Line>& lines);

 private:
  [[noreturn]] void refuse(std::int64_t line, const std::string& message) const {
    throw Error{ErrorKind::BadInput, source_, {{fmt::format("line {}", line), message}}};
  }
  std::vector<Action> computations(const Line& line, std::string_view text) const;
  void check_stages(const Line& line, const std::vector<Action>& actions, std::size_t group) const;
  std::size_t group_of_row(const std::vector<Action>& actions,
                           const std::vector<std::optional<std::vector<Action>>>& found) const;
  DeviceIndex device_of(const Line& line, std::string_view name) const;

  std::string source_;
  const Topology& topology_;
  std::vector<std::vector<StageIndex>> groups_;
  std::vector<DeviceIndex> first_device_;        // by group
  std::map<DeviceIndex, std::size_t> group_of_;  // by device of the plan
};

/// Returns the forwards and backwards in the text.
std::vector<Action> OrderReader::computations(const Line& line, std::string_view text) const {
  std::vector<Action> actions;
  try {
    actions = parse_actions(text);
  } catch (const Error& error) { refuse(line.number, error.violations().front().message); }
  std::erase_if(actions, [](const Action& action) {
    return stream_of(action.kind) != Stream::Compute || action.kind == ActionKind::OptimizerStep;
  });
  return actions;
}

/// Refuses actions of stages that the device group does not hold.
void OrderReader::check_stages(const Line& line, const std::vector<Action>& actions,
                               std::size_t group) const {
  const std::vector<StageIndex>& own = groups_[group];
  for (const Action& action : actions) {
    if (std::find(own.begin(), own.end(), action.stage) != own.end()) continue;
    std::string stages;
    for (const StageIndex stage : own) {
      stages += fmt::format("{}{}", stages.empty() ? "" : ", ", stage.value);
    }
    std::size_t count = 0;
    for (const std::vector<StageIndex>& some : groups_) count += some.size();
    const bool is_of_another_plan = action.stage.position() >= count;
    refuse(line.number,
           fmt::format("expected an action of a stage on {} ({}), got {}{}",
                       topology_.device(first_device_[group]).name, stages, to_text(action),
                       is_of_another_plan
                           ? fmt::format(": the order is of a plan with more stages than this "
                                         "one's {}",
                                         count)
                           : ""));
  }
}

/// Returns the device of that name; refuses a device that the plan does not use.
DeviceIndex OrderReader::device_of(const Line& line, std::string_view name) const {
  const std::optional<DeviceIndex> device = topology_.find_device(std::string(name));
  if (!device) {
    refuse(line.number, fmt::format("expected a device of the topology, got \"{}\"", name));
  }
  if (group_of_.count(*device) == 0) {
    refuse(line.number, fmt::format("expected a device of the plan, got \"{}\"", name));
  }
  return *device;
}

std::vector<std::vector<Action>> OrderReader::from_text(const std::vector<Line>& lines) {
  std::vector<std::optional<std::vector<Action>>> found(groups_.size());
  std::set<DeviceIndex> seen;
  for (const Line& line : lines) {
    if (is_blank(line.text)) continue;
    if (line.text.starts_with("device,position,")) {
      refuse(line.number,
             "expected the text form of schedule or PyTorch's CSV (the target torch-csv), got the "
             "CSV of schedule");
    }
    const std::size_t colon = line.text.find(": ");
    if (colon == std::string_view::npos) {
      refuse(line.number, "expected a device's name, a colon and its actions");
    }
    const std::string_view name = line.text.substr(0, colon);
    const DeviceIndex device = device_of(line, name);
    if (!seen.insert(device).second) {
      refuse(line.number,
             fmt::format("expected one line for each device, got another for {}", name));
    }
    const std::size_t group = group_of_.at(device);
    std::vector<Action> actions = computations(line, line.text.substr(colon + 1));
    check_stages(line, actions, group);
    std::optional<std::vector<Action>>& list = found[group];
    if (list && *list != actions) {
      refuse(line.number,
             fmt::format("expected the actions of the other devices with {}'s stages", name));
    }
    list = std::move(actions);
  }
  std::vector<std::vector<Action>> order;
  for (std::size_t group = 0; group < found.size(); ++group) {
    if (!found[group]) {
      refuse(static_cast<std::int64_t>(lines.size()) + 1,
             fmt::format("expected a line for {}, got none",
                         topology_.device(first_device_[group]).name));
    }
    order.push_back(std::move(*found[group]));
  }
  return order;
}

/// Returns the group that a row of a CSV belongs to: the one that holds the stage of its first
/// action or, if that has a row already or there is none, the first group without a row.
std::size_t OrderReader::group_of_row(
    const std::vector<Action>& actions,
    const std::vector<std::optional<std::vector<Action>>>& found) const {
  std::size_t first_free = 0;
  while (found[first_free]) ++first_free;
  for (std::size_t group = first_free; group < groups_.size() && !actions.empty(); ++group) {
    const std::vector<StageIndex>& own = groups_[group];
    const bool is_its = std::find(own.begin(), own.end(), actions.front().stage) != own.end();
    if (is_its && !found[group]) return group;
  }
  return first_free;
}

std::vector<std::vector<Action>> OrderReader::from_csv(const std::vector<Line>& lines) {
  const auto rows = static_cast<std::size_t>(std::count_if(
      lines.begin(), lines.end(), [](const Line& line) { return !is_blank(line.text); }));
  std::vector<std::optional<std::vector<Action>>> found(groups_.size());
  std::size_t read = 0;
  for (const Line& line : lines) {
    if (is_blank(line.text)) continue;
    std::string cells(line.text);
    std::replace(cells.begin(), cells.end(), ',', ' ');
    if (read++ == groups_.size()) break;
    std::vector<Action> actions = computations(line, cells);
    const std::size_t group = group_of_row(actions, found);
    check_stages(line, actions, group);
    found[group] = std::move(actions);
  }
  if (rows != groups_.size()) {
    refuse(static_cast<std::int64_t>(lines.size()) + (rows < groups_.size() ? 1 : 0),
           fmt::format("expected {} rows, one for each group of devices, got {}", groups_.size(),
                       rows));
  }
  std::vector<std::vector<Action>> order;
  for (std::optional<std::vector<Action>>& row : found) order.push_back(std::move(*row));
  return order;
}

}  // namespace

std::vector<std::vector<Action>> read_order(std::string_view text, const std::string& source_name,
                                            const Plan& plan, const Topology& topology) {
  const std::vector<Line> lines = lines_of(text);
  if (std::all_of(lines.begin(), lines.end(),
                  [](const Line& line) { return is_blank(line.text); })) {
    throw Error{ErrorKind::BadInput,
                source_name,
                {{"", "expected the actions of each device, got only blank lines"}}};
  }
  OrderReader reader(source_name, plan, topology);
  const bool names_devices = text.find(':') != std::string_view::npos;
  return names_devices ? reader.from_text(lines) : reader.from_csv(lines);
}

}  // namespace dapple::interop
