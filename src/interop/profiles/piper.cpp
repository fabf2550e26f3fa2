#include "interop/profiles/piper.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/profile/limits.h"
#include "dapple/profile/recomputation.h"
#include "dapple/profile/variants.h"
#include "interop/graphs/layer_chain.h"
#include "interop/profiles/profile_options.h"
#include "interop/text/foreign_json.h"
#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

using io::ArrayReader;
using io::Field;
using io::ObjectReader;

constexpr ProfileNeeds kNeeds{.file = "a Piper graph",
                              .global_batch = Need::Optional,
                              .every_degree = Need::Optional,
                              .backward_ratio = Need::Optional,
                              .time_unit = Need::Optional};
constexpr std::int64_t kMostNumber = 999'999'999;

/// One way to run a node at some tensor-parallel degree.
struct Variant {
  std::string name;
  // The forward and backward time of a sample together.
  Duration time;
  Bytes parameters;
  Bytes per_micro_batch;
  Bytes fixed;
  // The bytes sent between the GPUs of a tensor-parallel group.
  Bytes forward_collectives;
  Bytes backward_collectives;
  bool recomputes() const { return name.find("recomp") != std::string::npos; }
};

/// The ways to run a node at one degree that a profile has a place for; nullptr for what the file
/// does not have.
struct Ways {
  const Variant* keeping = nullptr;
  const Variant* recomputing = nullptr;

  explicit Ways(const std::vector<Variant>& ways) {
    for (const Variant& way : ways) {
      const Variant*& found = way.recomputes() ? recomputing : keeping;
      if (found == nullptr) found = &way;
    }
  }
  /// Whether recomputing changes anything.
  bool differ() const {
    return keeping != nullptr && recomputing != nullptr &&
           (keeping->time != recomputing->time || keeping->fixed != recomputing->fixed ||
            keeping->per_micro_batch != recomputing->per_micro_batch ||
            keeping->forward_collectives != recomputing->forward_collectives ||
            keeping->backward_collectives != recomputing->backward_collectives);
  }
};

/// Totals over all nodes of the file, for warnings.
struct Totals {
  Bytes fixed;
  Bytes collectives;
  bool has_recomputing = false;
  // Whether some node has variants that recompute it.
  bool has_recomputing_variants = false;
  bool has_derived_forward = false;
  std::set<std::string> degrees;
};

class PiperReader {
 public:
  PiperReader(const std::string& source_name, const ForeignProfileOptions& options)
      : source_name_(source_name),
        options_(options),
        degree_(fmt::format("{}", options.tensor_parallel.value_or(1))) {}
  ImportedProfile run(std::string_view text);

 private:
  std::vector<LayerNode> read_graph(const Field& field);
  void read_nodes(const Field& field);
  void read_node(const Field& field);
  std::vector<Variant> read_variants(const Field& field);
  std::vector<Variant> read_ways(const Field& field);
  void read_degrees(const Field& field, LayerNode& node);
  std::optional<LayerVariant> variant_of(const Ways& ways, std::int64_t degree,
                                         const LayerNode& node) const;
  Variant read_variant(const Field& field);
  Bytes read_collectives(const Field& field);
  void set_figures(const Field& field, const std::vector<Variant>& variants, LayerNode& node);
  void set_times(const Variant& plain, const Variant* recomputing, LayerNode& node);
  void read_edges(const Field& field);
  LayerOrder order_nodes() const;
  void warn_of_degrees(std::vector<std::string>& warnings) const;
  void add_warnings();

  const std::string& source_name_;
  const ForeignProfileOptions& options_;
  std::string degree_;
  std::vector<LayerNode> nodes_;
  std::map<std::int64_t, std::int32_t> position_of_;  // by id
  std::optional<std::int64_t> batch_;
  // The first node whose forward time the file does not determine; empty if there is none.
  std::string without_forward_;
  // The nodes that send tensors of different sizes.
  std::vector<std::int64_t> uneven_;
  Totals totals_;
  ImportedProfile result_;
};

Bytes PiperReader::read_collectives(const Field& field) {
  Bytes sum;
  if (!field.present()) return sum;
  ObjectReader object(field);
  for (const Field& member : object.members()) {
    sum += Bytes{read_scaled(member, 1, "bytes").value_or(0)};
    if (sum.count > kMaxCount) {
      member.add("expected at most 10^15 bytes on all edges together, got more");
      return {};
    }
  }
  return sum;
}

Variant PiperReader::read_variant(const Field& field) {
  ObjectReader object(field);
  Variant variant;
  if (!object.valid()) return variant;
  if (const Field id = object.field("id"); id.present()) variant.name = io::optional_text(id);
  const auto read = [&](std::string_view key, std::int64_t scale, std::string_view unit) {
    return read_scaled(object.field(key), scale, unit).value_or(0);
  };
  const TimeUnit unit = unit_of_times(options_, "s");
  variant.time = {read("timePerSample", unit.nanoseconds, unit.name)};
  variant.parameters = {read("parameterSize", 1, "bytes")};
  variant.per_micro_batch = {read("memoryUsageA", 1, "bytes")};
  variant.fixed = {read("memoryUsageB", 1, "bytes")};
  variant.forward_collectives = read_collectives(object.field("syncTimeFw"));
  variant.backward_collectives = read_collectives(object.field("syncTimeBw"));
  return variant;
}

/// Reads the variants of the requested tensor-parallel degree.
std::vector<Variant> PiperReader::read_variants(const Field& field) {
  ObjectReader degrees(field);
  std::vector<Variant> variants;
  if (!degrees.valid()) return variants;
  std::string known;
  for (const std::string& key : field.value().keys) {
    known += (known.empty() ? "" : ", ") + shown(key);
    totals_.degrees.insert(shown(key));
  }
  const Field wanted = degrees.field(degree_);
  if (!wanted.present()) {
    field.add(fmt::format("expected figures for tensor-parallel degree {}, got those of {}",
                          degree_, known.empty() ? "none" : known));
    return variants;
  }
  return read_ways(wanted);
}

std::vector<Variant> PiperReader::read_ways(const Field& field) {
  const ArrayReader array(field, "an array of variants");
  std::vector<Variant> ways;
  for (std::size_t i = 0; i < array.size(); ++i) ways.push_back(read_variant(array.at(i)));
  return ways;
}

/// Returns the collectives that send so many bytes from each GPU: an all-gather of n bytes over t
/// GPUs sends (t - 1) / t of them.
std::vector<Collective> sends_of(Bytes size, std::int64_t degree) {
  if (size.count == 0 || degree == 1) return {};
  return {{.kind = CollectiveKind::AllGather,
           .size_per_sample = {divide_up(Wide{size.count} * degree, degree - 1)}}};
}

/// Returns the layer's figures at a degree, or nothing if the file has no sound ones for it. The
/// forward takes what the recomputing way takes longer, else the same part as without parallelism.
std::optional<LayerVariant> PiperReader::variant_of(const Ways& ways, std::int64_t degree,
                                                    const LayerNode& node) const {
  if (ways.keeping == nullptr) return std::nullopt;
  const Variant& plain = *ways.keeping;
  if ((plain.parameters.count == 0) != (node.parameters.count == 0)) return std::nullopt;
  LayerVariant made{.parallelism = {.tensor = degree},
                    .parameters = plain.parameters,
                    .fixed_overhead = {},
                    .measurements = {node.measurement},
                    .forward_collectives = sends_of(plain.forward_collectives, degree),
                    .backward_collectives = sends_of(plain.backward_collectives, degree)};
  Measurement& measured = made.measurements.front();
  measured.stash = plain.per_micro_batch;
  const Duration whole = node.measurement.forward + node.measurement.backward;
  measured.forward = {divide_down(Wide{plain.time.ns} * node.measurement.forward.ns,
                                  std::max<std::int64_t>(1, whole.ns))};
  if (!options_.backward_ratio && ways.recomputing != nullptr) {
    const Duration extra = ways.recomputing->time - plain.time;
    if (extra >= Duration{} && extra <= plain.time) measured.forward = extra;
  }
  measured.backward = plain.time - measured.forward;
  return made;
}

/// Returns the figures of the same layer when it is recomputed as a whole, or nothing if the file
/// has no sound ones. What the way states of fixed memory beyond the other one is the working set.
std::optional<LayerVariant> recomputing_variant_of(const Ways& ways, LayerVariant variant) {
  if (ways.recomputing == nullptr) return std::nullopt;
  const Variant& way = *ways.recomputing;
  Measurement& measured = variant.measurements.front();
  if (way.parameters != variant.parameters || way.time < measured.forward) return std::nullopt;
  const std::int64_t degree = variant.parallelism.tensor;
  variant.parallelism.recomputes = kWholeLayer;
  variant.forward_collectives = sends_of(way.forward_collectives, degree);
  variant.backward_collectives = sends_of(way.backward_collectives, degree);
  measured.backward = way.time - measured.forward;
  measured.stash = way.per_micro_batch;
  measured.workspace = std::max(Bytes{}, way.fixed - ways.keeping->fixed);
  return variant;
}

/// Reads the figures of all degrees as variants of the node: those of degrees above 1, and, if
/// recomputing the node changes anything at some degree, those of recomputing it.
void PiperReader::read_degrees(const Field& field, LayerNode& node) {
  ObjectReader degrees(field);
  if (!degrees.valid()) return;
  std::map<std::int64_t, std::vector<Variant>> ways_by_degree;
  for (const std::string& key : field.value().keys) {
    const std::optional<std::int32_t> degree = parse_count(key);
    if (!degree || *degree < 1 || *degree > kMaxTensorParallel) continue;
    ways_by_degree.emplace(*degree, read_ways(degrees.field(key)));
  }
  const bool recomputes = std::any_of(ways_by_degree.begin(), ways_by_degree.end(),
                                      [](const auto& each) { return Ways(each.second).differ(); });
  totals_.has_recomputing_variants = totals_.has_recomputing_variants || recomputes;
  for (const auto& [degree, all_ways] : ways_by_degree) {
    const Ways ways(all_ways);
    std::optional<LayerVariant> variant = variant_of(ways, degree, node);
    if (!variant) continue;
    if (degree > 1) node.variants.push_back(*variant);
    if (!recomputes) continue;
    auto recomputing = recomputing_variant_of(ways, *std::move(variant));
    if (recomputing) node.variants.push_back(*std::move(recomputing));
  }
}

void PiperReader::set_times(const Variant& plain, const Variant* recomputing, LayerNode& node) {
  Measurement& measurement = node.measurement;
  if (options_.backward_ratio) {
    const BothDirections times = share_out(plain.time, *options_.backward_ratio);
    measurement.forward = times.forward;
    measurement.backward = times.backward;
    return;
  }
  const Duration extra = recomputing == nullptr ? Duration{-1} : recomputing->time - plain.time;
  if (plain.time == Duration{}) return;
  if (extra < Duration{} || extra > plain.time) {
    if (without_forward_.empty()) {
      without_forward_ = fmt::format("{} ({})", node.number, shown(node.description));
    }
    return;
  }
  totals_.has_derived_forward = true;
  measurement.forward = extra;
  measurement.backward = plain.time - extra;
}

void PiperReader::set_figures(const Field& field, const std::vector<Variant>& variants,
                              LayerNode& node) {
  const Ways ways(variants);
  const Variant* const plain = ways.keeping;
  const Variant* const recomputing = ways.recomputing;
  if (plain == nullptr) {
    field.add("expected a variant that does not recompute, got none");
    return;
  }
  node.parameters = plain->parameters;
  node.measurement.stash = plain->per_micro_batch;
  set_times(*plain, recomputing, node);
  totals_.fixed += plain->fixed;
  totals_.collectives += plain->forward_collectives + plain->backward_collectives;
  totals_.has_recomputing = totals_.has_recomputing || recomputing != nullptr;
}

void PiperReader::read_node(const Field& field) {
  ObjectReader object(field);
  if (!object.valid()) return;
  LayerNode node;
  const Field id = object.field("id");
  const std::optional<std::int64_t> number = io::read_integer(id, {0, kMostNumber});
  if (!number) return;
  node.number = *number;
  node.description = "node";
  if (const Field name = object.field("name"); name.present()) {
    node.description = io::read_text(name).value_or("node");
  }
  if (!position_of_.emplace(node.number, static_cast<std::int32_t>(nodes_.size())).second) {
    id.add(fmt::format("expected every node once, got {} again", node.number));
    return;
  }
  const Field figures = object.field("TMPCs");
  const std::size_t before = field.violations()->count();
  const std::vector<Variant> variants = read_variants(figures);
  if (field.violations()->count() == before) set_figures(figures, variants, node);
  if (field.violations()->count() == before && options_.every_degree) read_degrees(figures, node);
  nodes_.push_back(std::move(node));
}

void PiperReader::read_nodes(const Field& field) {
  const ArrayReader array(field, "an array of nodes");
  if (!array.valid()) return;
  if (array.size() == 0 || array.size() > kMaxLayers) {
    field.add(fmt::format("expected 1 to {} nodes, got {}", kMaxLayers, array.size()));
    return;
  }
  for (std::size_t i = 0; i < array.size(); ++i) read_node(array.at(i));
}

void PiperReader::read_edges(const Field& field) {
  const ArrayReader array(field, "an array of edges");
  std::vector<std::set<Bytes>> sent(nodes_.size());
  for (std::size_t i = 0; i < array.size(); ++i) {
    ObjectReader edge(array.at(i));
    if (!edge.valid()) continue;
    const auto end_of = [&](std::string_view key) -> std::optional<std::size_t> {
      const Field end = edge.field(key);
      const std::optional<std::int64_t> number = io::read_integer(end, {0, kMostNumber});
      if (!number) return std::nullopt;
      const auto found = position_of_.find(*number);
      if (found != position_of_.end()) return static_cast<std::size_t>(found->second);
      end.add(fmt::format("expected the id of a node, got {}", *number));
      return std::nullopt;
    };
    const std::optional<std::size_t> from = end_of("sourceId");
    const std::optional<std::size_t> to = end_of("destId");
    const auto size = read_scaled(edge.field("communicationCost"), 1, "bytes");
    if (!from || !to || !size || *from >= nodes_.size() || *to >= nodes_.size()) continue;
    sent[*from].insert(Bytes{*size});
    nodes_[*to].inputs.push_back(static_cast<std::int32_t>(*from));
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    std::vector<std::int32_t>& inputs = nodes_[i].inputs;
    std::sort(inputs.begin(), inputs.end());
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    if (!sent[i].empty()) nodes_[i].measurement.output = *sent[i].rbegin();
    for (LayerVariant& variant : nodes_[i].variants) {
      variant.measurements.front().output = nodes_[i].measurement.output;
    }
    if (sent[i].size() > 1) uneven_.push_back(nodes_[i].number);
  }
}

std::vector<LayerNode> PiperReader::read_graph(const Field& field) {
  ObjectReader document(field);
  if (!document.valid()) return {};
  const Field batch = document.field("mbsInBatch");
  const Field batch_of_readme = document.field("maxBatchSize");
  for (const Field& each : {batch, batch_of_readme}) {
    if (!each.present() || batch_) continue;
    batch_ = read_scaled(each, 1, "samples");
    if (batch_ && (*batch_ < 1 || *batch_ > kMostSamples)) {
      each.refuse(fmt::format("a number of samples from 1 to {}", kMostSamples));
    }
  }
  read_nodes(document.field("nodes"));
  const Field edges = document.field("edges");
  // A node that has a fault itself is not reported again for each of its edges.
  if (field.violations()->empty()) read_edges(edges);
  return std::move(nodes_);
}

LayerOrder PiperReader::order_nodes() const {
  LayerOrder order = layer_order(nodes_);
  if (order.nodes.size() == nodes_.size()) return order;
  throw Error{ErrorKind::BadInput,
              source_name_,
              {{"/edges", fmt::format("expected a graph without cycles, got {}",
                                      describe_cycle(nodes_, order.nodes).text)}}};
}

/// Warns of what the variants assume, and of degrees that some node has no sound figures for.
void PiperReader::warn_of_degrees(std::vector<std::string>& warnings) const {
  warnings.emplace_back(
      "the bytes of syncTimeFw and syncTimeBw are sent within a group of GPUs while these compute "
      "nothing, and a device sends a stage's whole output at every degree");
  const std::vector<Parallelism> forms = parallelisms_of(result_.profile);
  const auto has = [&](const std::string& degree, RecomputedParts parts) {
    return std::any_of(forms.begin(), forms.end(), [&](const Parallelism& form) {
      return form.recomputes == parts && fmt::format("{}", form.tensor) == degree;
    });
  };
  std::string missing;
  std::string keeping_only;
  for (const std::string& degree : totals_.degrees) {
    if (has(degree, {}) && (has(degree, kWholeLayer) || !totals_.has_recomputing_variants))
      continue;
    std::string& list = has(degree, {}) ? keeping_only : missing;
    list += (list.empty() ? "" : ", ") + degree;
  }
  if (!missing.empty()) {
    warnings.push_back(fmt::format(
        "tensor-parallel degree {} is left out, as not all nodes have sound figures for it",
        missing));
  }
  if (!keeping_only.empty()) {
    warnings.push_back(
        fmt::format("layers that recompute are left out at tensor-parallel degree {}, as not all "
                    "nodes have sound figures for it",
                    keeping_only));
  }
}

void PiperReader::add_warnings() {
  std::vector<std::string>& warnings = result_.warnings;
  warn_of_scaling(options_, 1, warnings);
  std::string others;
  for (const std::string& degree : totals_.degrees) {
    if (degree != degree_) others += (others.empty() ? "" : ", ") + degree;
  }
  if (options_.every_degree) {
    warn_of_degrees(warnings);
  } else if (!others.empty()) {
    warnings.push_back(
        fmt::format("figures are those of tensor-parallel degree {}; those of {} are left out "
                    "(--tensor-parallel takes others)",
                    degree_, others));
  }
  if (degree_ != "1") {
    warnings.push_back(fmt::format(
        "a device is a group of {} GPUs, and the {} bytes that they send each other for a sample "
        "(syncTimeFw, syncTimeBw) are left out",
        degree_, totals_.collectives.count));
  }
  if (totals_.has_recomputing && !options_.every_degree) {
    warnings.push_back(
        "variants that recompute are left out (--tensor-parallel all takes them): a plan may "
        "recompute whole stages");
  }
  if (totals_.has_derived_forward) {
    warnings.push_back(
        "a layer's forward is taken to be what its recomputing variant takes longer; "
        "--backward-ratio says otherwise");
  }
  if (!uneven_.empty()) {
    warnings.push_back(fmt::format(
        "{} node{} tensors of different sizes on different edges, the first is node {}: the "
        "largest counts as the output",
        uneven_.size(), uneven_.size() == 1 ? " sends" : "s send", uneven_.front()));
  }
  warnings.push_back(
      fmt::format("memory other than activations is weights, gradients and the state of {}; the {} "
                  "bytes that the file states (memoryUsageB) are left out{}",
                  result_.profile.optimizer.name, totals_.fixed.count,
                  totals_.has_recomputing_variants
                      ? ", and what it states beyond them of a layer that recomputes is the "
                        "layer's working set"
                      : ""));
}

ImportedProfile PiperReader::run(std::string_view text) {
  check_options(options_, kNeeds, source_name_);
  nodes_ = io::read_document<std::vector<LayerNode>>(
      text, source_name_, [this](const Field& field) { return read_graph(field); });
  if (!without_forward_.empty()) {
    throw Error{
        ErrorKind::Usage,
        source_name_,
        {{"--backward-ratio",
          fmt::format("the backward's time as a multiple of the forward's is required, as node "
                      "{} has no recomputing variant from which it follows",
                      without_forward_)}}};
  }
  if (!batch_ && !options_.global_batch) {
    throw Error{
        ErrorKind::Usage,
        source_name_,
        {{"--global-batch", "the global batch size is required, as the file has no mbsInBatch"}}};
  }
  result_.profile =
      profile_header(options_, model_name(source_name_), "imported from Piper's JSON");
  if (!options_.global_batch) {
    result_.profile.global_batch_size = batch_;
  } else if (batch_ && *batch_ != *options_.global_batch) {
    result_.warnings.push_back(
        fmt::format("the file says {} samples (mbsInBatch), --global-batch {}: that is taken",
                    *batch_, *options_.global_batch));
  }
  result_.profile.notes.push_back(
      "Stash of a layer: its memoryUsageA. Samples are the file's micro-batches.");
  const LayerOrder arranged = order_nodes();
  const std::vector<std::int32_t>& order = arranged.nodes;
  result_.profile.layers = layers_in_order(nodes_, order);
  result_.arrangement = arranged.arrangement;
  for (std::size_t i = 0; i < order.size(); ++i) {
    warn_of_parameters(result_.profile.layers[i],
                       fmt::format("node {}", nodes_[static_cast<std::size_t>(order[i])].number),
                       result_.warnings);
  }
  add_warnings();
  return std::move(result_);
}

}  // namespace

ImportedProfile import_piper(std::string_view text, const std::string& source_name,
                             const ForeignProfileOptions& options) {
  return PiperReader(source_name, options).run(text);
}

bool is_piper_graph(const io::JsonValue& object) {
  return has_key(object, "nodes") && has_key(object, "edges");
}

}  // namespace dapple::interop
