#include "interop/topologies/slurm_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

constexpr std::size_t kMostHosts = 65'536;

std::string lower(std::string_view text) {
  std::string result;
  for (const char c : text) {
    result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

/// Splits a list at the commas outside brackets.
std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') ++depth;
    if (i < list.size() && list[i] == ']') --depth;
    if (i == list.size() || (list[i] == ',' && depth == 0)) {
      parts.push_back(list.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return parts;
}

/// Appends the numbers of "001-004,7" as "001", "002", ...; returns false if the list is malformed
/// or too long.
bool expand_numbers(std::string_view ranges, std::vector<std::string>& numbers) {
  for (const std::string_view range : split(ranges, ",")) {
    const std::vector<std::string_view> ends = split(range, "-");
    if (ends.size() > 2) return false;
    const std::optional<std::int32_t> first = parse_count(ends.front());
    const std::optional<std::int32_t> last = parse_count(ends.back());
    if (!first || !last || *last < *first) return false;
    if (static_cast<std::size_t>(*last - *first) + numbers.size() >= kMostHosts) return false;
    for (std::int32_t number = *first; number <= *last; ++number) {
      numbers.push_back(fmt::format("{:0{}}", number, ends.front().size()));
    }
  }
  return true;
}

/// Appends the hosts of one name, whose brackets are expanded from the first to the last; returns
/// false if it is malformed or has too many hosts.
bool expand_name(std::string_view name, std::vector<std::string>& hosts) {
  std::vector<std::string> heads{""};
  while (!name.empty()) {
    const std::size_t open = std::min(name.find('['), name.size());
    for (std::string& head : heads) head += name.substr(0, open);
    name.remove_prefix(open);
    if (name.empty()) break;
    const std::size_t close = name.find(']');
    std::vector<std::string> numbers;
    if (close == std::string_view::npos || !expand_numbers(name.substr(1, close - 1), numbers)) {
      return false;
    }
    if (heads.size() * numbers.size() + hosts.size() > kMostHosts) return false;
    std::vector<std::string> longer;
    for (const std::string& head : heads) {
      for (const std::string& number : numbers) longer.push_back(head + number);
    }
    heads = std::move(longer);
    name.remove_prefix(close + 1);
  }
  for (std::string& head : heads) {
    if (head.empty() || head.find(']') != std::string::npos) return false;
    hosts.push_back(std::move(head));
  }
  return hosts.size() <= kMostHosts;
}

struct Switch {
  std::int64_t line = 0;
  std::string name;
  std::vector<std::string> hosts;
  std::vector<std::string> switches;
};

class TreeReader {
 public:
  TreeReader(const ForeignFile& file, ImportNotes& notes) : file_(file), notes_(notes) {}
  SlurmTree run(const std::optional<std::string>& nodes);

 private:
  void fail(std::int64_t line, std::string message) {
    faults_.push_back({line, std::move(message)});
  }
  void read_line(std::int64_t line, std::string_view text);
  std::vector<std::string> read_names(std::int64_t line, std::string_view value);
  void check_names();
  std::size_t find_top();
  void walk(std::size_t at, std::vector<std::size_t>& path);
  void keep_only(const std::string& nodes);
  void warn_of_kinds();

  const ForeignFile& file_;
  ImportNotes& notes_;
  std::vector<LineFault> faults_;
  std::vector<Switch> switches_;
  std::map<std::string, std::size_t> by_name_;
  std::size_t leaf_depth_ = 0;
  std::size_t visited_ = 0;
  std::vector<std::size_t> pod_of_rack_;
  SlurmTree tree_;
};

std::vector<std::string> TreeReader::read_names(std::int64_t line, std::string_view value) {
  const std::optional<std::vector<std::string>> names = expand_hosts(value);
  if (!names) {
    fail(line, fmt::format("expected a list of names such as tux[0-3,12], got '{}'", shown(value)));
    return {};
  }
  return *names;
}

void TreeReader::read_line(std::int64_t line, std::string_view text) {
  Switch entry;
  entry.line = line;
  std::set<std::string> keys;
  for (const std::string_view word : words_of(text)) {
    const std::size_t equals = word.find('=');
    const std::string key = lower(word.substr(0, equals));
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view{} : word.substr(equals + 1);
    if (!keys.insert(key).second) fail(line, fmt::format("expected {} once", shown(key)));
    if (key == "blockname" || key == "blocksizes") {
      fail(line, "expected the plugin topology/tree, got topology/block");
      return;
    }
    if (value.empty()) {
      fail(line, fmt::format("expected KEY=VALUE, got '{}'", shown(word)));
    } else if (key == "switchname") {
      entry.name = value;
    } else if (key == "nodes") {
      entry.hosts = read_names(line, value);
    } else if (key == "switches") {
      entry.switches = read_names(line, value);
    } else if (key != "linkspeed") {
      fail(line, fmt::format("expected SwitchName=, Nodes=, Switches= or LinkSpeed=, got '{}'",
                             shown(word)));
    }
  }
  if (keys.count("switchname") == 0) {
    fail(line, "expected SwitchName=, got none");
  } else if (keys.count("nodes") + keys.count("switches") != 1) {
    fail(line, fmt::format("expected Nodes= or Switches= of {}, and not both", shown(entry.name)));
  }
  switches_.push_back(std::move(entry));
}

void TreeReader::check_names() {
  // The line of the switch above each host and switch.
  std::map<std::string, std::int64_t> parent;
  std::size_t hosts = 0;
  for (std::size_t i = 0; i < switches_.size(); ++i) {
    const Switch& entry = switches_[i];
    if (!by_name_.emplace(entry.name, i).second) {
      fail(entry.line, fmt::format("expected each switch once, got {} again", shown(entry.name)));
    }
    hosts += entry.hosts.size();
  }
  if (hosts > kMostHosts) fail(0, fmt::format("expected at most {} hosts, got more", kMostHosts));
  for (const Switch& entry : switches_) {
    for (const std::string& host : entry.hosts) {
      const auto [first, is_new] = parent.emplace("host " + host, entry.line);
      if (!is_new) {
        fail(entry.line,
             fmt::format("expected each host on one switch, got {} on that of line {} too",
                         shown(host), first->second));
      }
    }
    for (const std::string& below : entry.switches) {
      if (by_name_.count(below) == 0) {
        fail(entry.line, fmt::format("expected a switch of the file, got {}", shown(below)));
      }
      const auto [first, is_new] = parent.emplace("switch " + below, entry.line);
      if (!is_new) {
        fail(entry.line, fmt::format("expected each switch below one other, got {} below that of "
                                     "line {} too",
                                     shown(below), first->second));
      }
    }
  }
}

std::size_t TreeReader::find_top() {
  std::set<std::string> below;
  for (const Switch& entry : switches_) below.insert(entry.switches.begin(), entry.switches.end());
  std::vector<std::size_t> tops;
  for (std::size_t i = 0; i < switches_.size(); ++i) {
    if (below.count(switches_[i].name) == 0) tops.push_back(i);
  }
  if (tops.size() != 1) {
    fail(0, fmt::format("expected one switch above all others, got {}", tops.size()));
    return 0;
  }
  return tops.front();
}

/// Gathers the leaves below a switch. Requires: each switch is below at most one other.
void TreeReader::walk(std::size_t at, std::vector<std::size_t>& path) {
  const Switch& entry = switches_[at];
  ++visited_;
  path.push_back(at);
  if (path.size() > 3) {
    fail(entry.line, fmt::format("expected at most two switches above a leaf, got more above {}; "
                                 "a topology has racks and pods",
                                 shown(entry.name)));
  } else if (entry.switches.empty()) {
    if (leaf_depth_ != 0 && leaf_depth_ != path.size()) {
      fail(entry.line,
           fmt::format("expected all leaves at one depth, got {} at another", shown(entry.name)));
    }
    leaf_depth_ = path.size();
    tree_.racks.push_back({entry.name, entry.hosts});
    pod_of_rack_.push_back(path.size() == 3 ? path[1] : at);
  } else {
    for (const std::string& below : entry.switches) walk(by_name_.at(below), path);
  }
  path.pop_back();
}

void TreeReader::keep_only(const std::string& nodes) {
  const std::optional<std::vector<std::string>> names = expand_hosts(nodes);
  if (!names) {
    throw Error(ErrorKind::Usage, "",
                {{"--nodes", fmt::format("expected a list of hosts such as gpu[01-08], got '{}'",
                                         shown(nodes))}});
  }
  std::set<std::string> wanted(names->begin(), names->end());
  for (SlurmRack& rack : tree_.racks) {
    const auto drop = [&](const std::string& host) { return wanted.count(host) == 0; };
    rack.hosts.erase(std::remove_if(rack.hosts.begin(), rack.hosts.end(), drop), rack.hosts.end());
    for (const std::string& host : rack.hosts) wanted.erase(host);
  }
  if (!wanted.empty()) {
    throw Error(
        ErrorKind::BadInput, file_.name,
        {{"", fmt::format("expected the hosts of --nodes, got no {}", shown(*wanted.begin()))}});
  }
}

/// Warns of hosts with different kinds of names, such as "tara-dgx1-001" and "tara-c-001", which
/// are hardly the same machines.
void TreeReader::warn_of_kinds() {
  std::set<std::string> stems;
  for (const SlurmRack& rack : tree_.racks) {
    for (const std::string& host : rack.hosts) {
      stems.insert(host.substr(0, host.find_last_not_of("0123456789") + 1));
    }
  }
  if (stems.size() < 2) return;
  std::string names;
  for (const std::string& stem : stems) names += (names.empty() ? "" : ", ") + shown(stem);
  notes_.warn(
      fmt::format("{}: its hosts have {} kinds of names ({}) and all are taken for servers "
                  "with devices; --nodes says which are",
                  file_.name, stems.size(), names));
}

SlurmTree TreeReader::run(const std::optional<std::string>& nodes) {
  std::int64_t line = 0;
  for (std::string_view text : split(file_.text, "\n")) {
    ++line;
    text = trim(text.substr(0, text.find('#')));
    if (!text.empty()) read_line(line, text);
  }
  if (switches_.empty() && faults_.empty()) fail(0, "expected SwitchName= lines, got none");
  throw_faults(std::exchange(faults_, {}), file_.name);
  check_names();
  const std::size_t top = find_top();
  throw_faults(std::exchange(faults_, {}), file_.name);
  std::vector<std::size_t> path;
  walk(top, path);
  if (faults_.empty() && visited_ != switches_.size()) {
    fail(0, "expected a tree, got switches that are below themselves");
  }
  throw_faults(std::exchange(faults_, {}), file_.name);
  if (nodes) keep_only(*nodes);
  warn_of_kinds();
  std::vector<std::string> oddities;
  if (!file_.text.ends_with('\n')) oddities.emplace_back("no line break at its end");
  const bool has_dots = std::any_of(switches_.begin(), switches_.end(), [](const auto& each) {
    return each.name.find('.') != std::string::npos;
  });
  if (has_dots) oddities.emplace_back("dots in names of switches");
  notes_.warn_of_oddities(file_.name, oddities);
  SlurmTree kept;
  std::optional<std::size_t> pod;
  for (std::size_t i = 0; i < tree_.racks.size(); ++i) {
    if (tree_.racks[i].hosts.empty()) continue;
    kept.racks.push_back(std::move(tree_.racks[i]));
    if (leaf_depth_ < 3) continue;
    if (pod != pod_of_rack_[i]) kept.racks_of_pods.push_back(0);
    pod = pod_of_rack_[i];
    ++kept.racks_of_pods.back();
  }
  if (kept.racks.empty()) {
    throw_faults({{0, "expected at least one host, got none"}}, file_.name);
  }
  return kept;
}

}  // namespace

bool is_slurm_topology(std::string_view text) {
  for (const std::string_view line : split(text, "\n")) {
    const std::string words = lower(trim(line.substr(0, line.find('#'))));
    if (!words.empty())
      return begins_with(words, "switchname=") || begins_with(words, "blockname=");
  }
  return false;
}

std::optional<std::vector<std::string>> expand_hosts(std::string_view list) {
  std::vector<std::string> hosts;
  for (const std::string_view part : parts_of(list)) {
    if (!expand_name(part, hosts)) return std::nullopt;
  }
  return hosts;
}

SlurmTree read_slurm_topology(const ForeignFile& file, const std::optional<std::string>& nodes,
                              ImportNotes& notes) {
  return TreeReader(file, notes).run(nodes);
}

}  // namespace dapple::interop
