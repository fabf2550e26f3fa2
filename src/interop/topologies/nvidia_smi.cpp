#include "interop/topologies/nvidia_smi.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

/// The largest number of columns and of rows, that is, of devices and NICs of a server.
constexpr std::size_t kMostEnds = 256;

/// Returns 12 for "GPU12" and the prefix "GPU", or nothing for any other word.
std::optional<std::int32_t> numbered(std::string_view word, std::string_view prefix) {
  return begins_with(word, prefix) ? parse_count(word.substr(prefix.size())) : std::nullopt;
}

bool is_device(std::string_view word) {
  return numbered(word, "GPU").has_value();
}

/// Whether the word names a NIC, by its own name in old drivers, "mlx5_0", or by a number in newer
/// ones, "NIC0".
bool is_nic(std::string_view word) {
  return numbered(word, "NIC") || begins_with(word, "mlx") || begins_with(word, "bnxt") ||
         begins_with(word, "irdma") || begins_with(word, "rocep") || begins_with(word, "ibp") ||
         begins_with(word, "hfi") || begins_with(word, "efa") || begins_with(word, "rdmap");
}

/// Returns the line without the escape sequences "ESC [ ... letter".
std::string without_escapes(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      text += line[i];
      continue;
    }
    if (i + 1 < line.size() && line[i + 1] == '[') ++i;
    while (i + 1 < line.size() &&
           (line[i + 1] == ';' || (line[i + 1] >= '0' && line[i + 1] <= '9')))
      ++i;
    ++i;
  }
  return text;
}

struct LinkCell {
  std::int32_t lanes = 0;
  PcieDistance distance = PcieDistance::Unknown;
};

/// Parses a cell off the diagonal; returns nothing if it is not a kind of link.
std::optional<LinkCell> parse_cell(std::string_view word) {
  constexpr std::pair<std::string_view, PcieDistance> kWords[] = {
      {"PIX", PcieDistance::Pix},   {"PXB", PcieDistance::Pxb}, {"PHB", PcieDistance::Phb},
      {"NODE", PcieDistance::Node}, {"SYS", PcieDistance::Sys}, {"SOC", PcieDistance::Sys}};
  for (const auto& [text, distance] : kWords) {
    if (word == text) return LinkCell{0, distance};
  }
  const std::optional<std::int32_t> lanes = numbered(word, "NV");
  if (!lanes || *lanes < 1 || *lanes > 36) return std::nullopt;
  return LinkCell{*lanes, PcieDistance::Unknown};
}

/// Whether the text is a list of CPUs such as "0-19,40-59" or "3", or "N/A".
bool is_cpu_list(std::string_view text) {
  if (text == "N/A") return true;
  for (const std::string_view range : split(text, ",")) {
    const std::vector<std::string_view> ends = split(range, "-");
    if (ends.size() > 2) return false;
    if (!std::all_of(ends.begin(), ends.end(),
                     [](std::string_view end) { return parse_count(end).has_value(); })) {
      return false;
    }
    if (ends.size() == 2 && *parse_count(ends[0]) > *parse_count(ends[1])) return false;
  }
  return true;
}

bool is_header(const std::vector<std::string_view>& words) {
  if (!is_device(words[0])) return false;
  return words.size() == 1 || is_device(words[1]) || is_nic(words[1]) || words[1] == "CPU";
}

struct TableRow {
  std::int64_t line = 0;
  std::string name;
  std::vector<std::string> cells;  // after the name
};

class TableReader {
 public:
  TableReader(const ForeignFile& file, ImportNotes& notes) : file_(file), notes_(notes) {}
  ServerWiring run();

 private:
  void fail(std::int64_t line, std::string message) {
    faults_.push_back({line, std::move(message)});
  }
  void read_lines();
  void read_header(std::int64_t line, const std::vector<std::string_view>& words);
  void name_ends();
  void read_row(const TableRow& row);
  void read_link(const TableRow& row, std::size_t from, std::size_t to, const std::string& cell);
  void read_affinity(const TableRow& row);
  void join_by_affinity();
  void warn_of_oddities();
  std::size_t end_of(const std::string& name) const;

  const ForeignFile& file_;
  ImportNotes& notes_;
  std::vector<LineFault> faults_;
  std::string_view header_;
  std::vector<std::string> columns_;
  std::vector<TableRow> rows_;
  std::vector<std::string> ends_;  // devices, then NICs
  std::vector<std::string> affinities_;
  std::map<std::string, std::string> nic_names_;  // "NIC0" -> "mlx5_0"
  ServerWiring wiring_;
};

void TableReader::read_header(std::int64_t line, const std::vector<std::string_view>& words) {
  for (const std::string_view word : words) {
    // The first other word ends the list; "GPU" in the column "GPU NUMA ID" is not a device.
    if (!is_device(word) && !is_nic(word)) break;
    if (std::find(columns_.begin(), columns_.end(), word) != columns_.end()) {
      fail(line, fmt::format("expected each column once, got {} again", shown(word)));
    }
    columns_.emplace_back(word);
  }
}

void TableReader::read_lines() {
  std::int64_t line = 0;
  for (const std::string_view raw : split(file_.text, "\n")) {
    ++line;
    const std::string text = without_escapes(raw);
    const std::vector<std::string_view> words = words_of(text);
    if (words.empty()) continue;
    const std::string_view legend = words[0].substr(0, words[0].size() - 1);
    if (columns_.empty() && is_header(words)) {
      read_header(line, words);
      header_ = raw;
    } else if (words.size() == 2 && words[0].back() == ':' && is_nic(legend)) {
      nic_names_.emplace(legend, words[1]);
    } else if (is_device(words[0]) || is_nic(words[0])) {
      TableRow row{.line = line, .name = std::string(words[0]), .cells = {}};
      for (std::size_t i = 1; i < words.size(); ++i) row.cells.emplace_back(words[i]);
      rows_.push_back(std::move(row));
    }
  }
}

std::size_t TableReader::end_of(const std::string& name) const {
  return static_cast<std::size_t>(std::find(ends_.begin(), ends_.end(), name) - ends_.begin());
}

/// Lists the devices and then the NICs in the order of the header, followed by NICs that have a row
/// but no column.
void TableReader::name_ends() {
  for (const std::string& column : columns_) {
    if (is_device(column)) ends_.push_back(column);
  }
  wiring_.devices = static_cast<std::int32_t>(ends_.size());
  for (const std::string& column : columns_) {
    if (!is_device(column)) ends_.push_back(column);
  }
  std::vector<std::string> seen;
  for (const TableRow& row : rows_) {
    if (std::find(seen.begin(), seen.end(), row.name) != seen.end()) {
      fail(row.line,
           fmt::format("expected one row for each device, got another for {}", shown(row.name)));
    }
    seen.push_back(row.name);
    if (end_of(row.name) < ends_.size()) continue;
    if (is_device(row.name)) {
      fail(row.line, fmt::format("expected a device of the header, got {}", shown(row.name)));
    } else {
      ends_.push_back(row.name);
      notes_.warn(fmt::format("{}: {} has a row and no column; its row is what counts", file_.name,
                              shown(row.name)));
    }
  }
  for (const std::string& column : columns_) {
    if (std::find(seen.begin(), seen.end(), column) == seen.end()) {
      fail(0, fmt::format("expected a row for {}, got none", column));
    }
  }
}

void TableReader::read_link(const TableRow& row, std::size_t from, std::size_t to,
                            const std::string& cell) {
  if (from == to || cell == "X") {
    if (from == to && cell == "X") return;
    fail(row.line, fmt::format("expected X where {} meets itself and nowhere else, got '{}' under "
                               "{}",
                               ends_[from], shown(cell), ends_[to]));
    return;
  }
  const std::optional<LinkCell> link = parse_cell(cell);
  const auto devices = static_cast<std::size_t>(wiring_.devices);
  if (!link || (link->lanes > 0 && (from >= devices || to >= devices))) {
    fail(row.line, fmt::format("expected X, NV1 to NV36 between devices, PIX, PXB, PHB, NODE, SYS "
                               "or SOC under {}, got '{}'",
                               ends_[to], shown(cell)));
    return;
  }
  distance(wiring_, from, to) = link->distance;
  if (link->lanes > 0) {
    wiring_.lanes(static_cast<Eigen::Index>(from), static_cast<Eigen::Index>(to)) = link->lanes;
  }
}

void TableReader::read_affinity(const TableRow& row) {
  if (row.cells.size() <= columns_.size()) return;
  const std::string& affinity = row.cells[columns_.size()];
  if (!is_cpu_list(affinity)) {
    notes_.warn(
        fmt::format("{}: line {}: expected ranges of CPUs as affinity of {}, got '{}'; it "
                    "is not used",
                    file_.name, row.line, row.name, shown(affinity)));
  } else if (affinity != "N/A") {
    affinities_[end_of(row.name)] = affinity;
  }
}

void TableReader::read_row(const TableRow& row) {
  const std::size_t from = end_of(row.name);
  const bool has_column = std::find(columns_.begin(), columns_.end(), row.name) != columns_.end();
  const auto devices = static_cast<std::size_t>(wiring_.devices);
  // The row of a NIC without a column is only read as far as the devices.
  const std::size_t expected = has_column ? columns_.size() : devices;
  if (row.cells.size() < expected) {
    fail(row.line, fmt::format("expected {} cells in the row of {}, got {}", expected,
                               shown(row.name), row.cells.size()));
    return;
  }
  for (std::size_t i = 0; i < expected; ++i) {
    read_link(row, from, end_of(columns_[i]), row.cells[i]);
  }
  if (is_device(row.name)) read_affinity(row);
}

/// Sets the PCIe distance of devices that have NVLinks and the same CPU affinity, as the table does
/// not say whether such devices share a socket.
void TableReader::join_by_affinity() {
  const auto devices = static_cast<std::size_t>(wiring_.devices);
  for (std::size_t a = 0; a < devices; ++a) {
    for (std::size_t b = 0; b < devices; ++b) {
      const bool same = !affinities_[a].empty() && affinities_[a] == affinities_[b];
      PcieDistance& there = distance(wiring_, a, b);
      if (same && there == PcieDistance::Unknown) there = PcieDistance::Node;
      if (a < b && same && there == PcieDistance::Sys) {
        notes_.warn(
            fmt::format("{}: devices of the same CPUs reach each other as if across "
                        "sockets (SYS), as in a virtual machine that hides its PCIe tree",
                        file_.name));
      }
    }
  }
}

void TableReader::warn_of_oddities() {
  std::vector<std::string> oddities;
  const auto note = [&](bool is_so, std::string words) {
    if (is_so) oddities.push_back(std::move(words));
  };
  const auto devices = static_cast<std::size_t>(wiring_.devices);
  const std::vector<std::string> nics(columns_.begin() + wiring_.devices, columns_.end());
  const std::string_view text = file_.text;
  const bool begins_escape = text.find("\x1b[4m") != std::string_view::npos;
  const bool ends_escape = text.find("\x1b[0m") != std::string_view::npos;
  note(begins_escape, ends_escape ? "terminal escapes" : "terminal escapes that never end");
  note(header_.find('\t') == std::string_view::npos, "columns aligned by blanks");
  note(ends_.size() == devices, "no NICs, as inside a container");
  const auto by_number = [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  };
  note(!std::is_sorted(nics.begin(), nics.end(), by_number), "NICs out of order");
  note(header_.find("NUMA") == std::string_view::npos, "no NUMA affinities, as of an old driver");
  note(devices == 1, "one device");
  const std::set<std::string> affinities(affinities_.begin(),
                                         affinities_.begin() + wiring_.devices);
  note(affinities.size() > 2,
       fmt::format("devices of {} sets of CPUs, as where sockets are cut into NUMA nodes",
                   affinities.size()));
  const bool has_unknown = std::any_of(rows_.begin(), rows_.end(), [](const TableRow& row) {
    return std::find(row.cells.begin(), row.cells.end(), "N/A") != row.cells.end();
  });
  note(has_unknown, "affinities that are not told (N/A)");
  const bool has_legend = text.find("Legend") != std::string_view::npos;
  note(!has_legend, "no legend");
  notes_.warn_of_oddities(file_.name, oddities);
  // The legend of "topo -m" explains NV# even if there are no NVLinks; that of "topo -mp" does not.
  const bool may_leave_out = !has_legend || text.find("NV#") == std::string_view::npos;
  if (devices < 2 || !may_leave_out || wiring_.lanes.any()) return;
  notes_.warn(fmt::format(
      "{}: the table has no NVLinks{}: the devices are taken to have PCIe alone; \"nvidia-smi topo "
      "-mp\" leaves NVLinks out, \"nvidia-smi topo -m\" has them",
      file_.name, has_legend ? ", nor does its legend" : ""));
}

ServerWiring TableReader::run() {
  read_lines();
  if (columns_.empty() || !is_device(columns_.front())) {
    fail(0, "expected a header with the columns GPU0, GPU1, ..., got none");
    throw_faults(std::move(faults_), file_.name);
  }
  if (columns_.size() > kMostEnds || rows_.size() > kMostEnds) {
    fail(0, fmt::format("expected at most {} devices and NICs, got more", kMostEnds));
    throw_faults(std::move(faults_), file_.name);
  }
  name_ends();
  throw_faults(std::exchange(faults_, {}), file_.name);
  wiring_.file = file_.name;
  wiring_.source = "nvidia-smi topo -m";
  wiring_.lanes = Eigen::MatrixXi::Zero(wiring_.devices, wiring_.devices);
  wiring_.distances.assign(ends_.size(),
                           std::vector<PcieDistance>(ends_.size(), PcieDistance::Unknown));
  affinities_.resize(ends_.size());
  for (std::size_t nic = static_cast<std::size_t>(wiring_.devices); nic < ends_.size(); ++nic) {
    const auto named = nic_names_.find(ends_[nic]);
    wiring_.nics.push_back({named == nic_names_.end() ? ends_[nic] : named->second, {}});
  }
  for (const TableRow& row : rows_) read_row(row);
  throw_faults(std::move(faults_), file_.name);
  make_symmetric(wiring_, notes_);
  join_by_affinity();
  warn_of_oddities();
  return std::move(wiring_);
}

}  // namespace

bool is_nvidia_smi(std::string_view text) {
  for (const std::string_view line : split(text, "\n")) {
    const std::string plain = without_escapes(line);
    const std::vector<std::string_view> words = words_of(plain);
    if (!words.empty()) return is_device(words.front());
  }
  return false;
}

ServerWiring read_nvidia_smi(const ForeignFile& file, ImportNotes& notes) {
  return TableReader(file, notes).run();
}

}  // namespace dapple::interop
