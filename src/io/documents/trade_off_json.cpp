#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "dapple/io/documents/documents.h"
#include "dapple/io/documents/trade_off_document.h"
#include "dapple/io/json/json_reader.h"
#include "dapple/plan/validate.h"
#include "dapple/topology/memory_limit.h"
#include "dapple/topology/servers_of_kind.h"
#include "dapple/topology/topology.h"
#include "io/documents/embedded.h"
#include "io/json/json_writer.h"
#include "io/json/number_text.h"

namespace dapple::io {
namespace {

using Layout = JsonWriter::Layout;

constexpr const char* kTradeOffSchema = "dapple-trade-off/1";
/// pareto makes at most some hundred.
constexpr std::size_t kMostSearches = 1000;
constexpr FactorRange kLimitRange{Factor{1}, Factor{kOne.billionths * 1'000'000'000}};
constexpr FactorRange kSlackRange{Factor{0}, Factor{kOne.billionths - 1}};

void write_request(JsonWriter& writer, const TradeOffRequest& request) {
  writer.key("against").text(to_string(request.against));
  writer.key("objective").text(to_string(request.objective));
  const auto write = [&](const char* key, const std::optional<Factor>& limit) {
    if (limit) writer.key(key).raw(factor_text(*limit));
  };
  write("min_throughput", request.min_throughput);
  write("budget", request.budget);
  write("slack", request.slack);
}

void write_one_search(JsonWriter& writer, const TradeOffSearch& search) {
  writer.open_object(Layout::Lines);
  if (search.document) {
    write_plan(writer.key("plan"), *search.document);
    if (search.proof) write_proof(writer.key("proof"), *search.proof, search.document->tool);
  } else {
    write_topology(writer.key("topology"), search.topology);
    writer.key("lower_bound_ns");
    if (search.lower_bound.is_infinite()) {
      writer.null();
    } else {
      writer.integer(search.lower_bound.ns);
    }
  }
  writer.close();
}

TradeOffRequest read_request(ObjectReader& object) {
  TradeOffRequest request;
  const Field against = object.field("against");
  if (read_choice(against, {to_string(Against::Price), to_string(Against::Memory)}) ==
      std::size_t{1}) {
    request.against = Against::Memory;
  }
  const Field objective = object.field("objective");
  if (read_choice(objective, {to_string(Objective::Time), to_string(Objective::Cost)}) ==
      std::size_t{0}) {
    request.objective = Objective::Time;
  }
  const auto read = [&](const Field& limit, FactorRange range) {
    return limit.present() ? read_factor(limit, range) : std::nullopt;
  };
  request.min_throughput = read(object.field("min_throughput"), kLimitRange);
  const Field budget = object.field("budget");
  request.budget = read(budget, kLimitRange);
  if (request.budget && request.against == Against::Memory) {
    budget.add("expected no budget beside \"memory\", got one");
  }
  request.slack = read(object.field("slack"), kSlackRange);
  return request;
}

/// A search whose plan's digest is not checked yet.
struct UncheckedSearch {
  TradeOffSearch search;
  std::function<void()> check_digest = [] {};
};

/// Reads the proof of the bound that a plan states, if there is one.
std::optional<ProofDocument> read_proof_of(const Field& field, const PlanDocument& document) {
  if (!field.present() || !field.violations()->empty()) return std::nullopt;
  // Only a sound plan has a hash.
  const auto layers = static_cast<std::int32_t>(document.profile.layers.size());
  if (!validate(document.plan, layers, Topology(document.topology)).empty()) {
    field.add("expected a proof of the bound of a sound plan, got one of a plan that is not");
    return std::nullopt;
  }
  ProofDocument proof = read_proof(field, hash_of(document));
  if (field.violations()->empty() && proof.lower_bound != document.prediction.lower_bound) {
    field.add("expected the proof of the bound that the plan states, got that of another");
  }
  return proof;
}

UncheckedSearch read_one_search(const Field& field) {
  ObjectReader object(field);
  UncheckedSearch read;
  const Field plan = object.field("plan");
  if (plan.present()) {
    UncheckedPlan unchecked = read_unchecked_plan(plan);
    read.search.document = std::move(unchecked.document);
    read.check_digest = std::move(unchecked.check_digest);
    read.search.proof = read_proof_of(object.field("proof"), *read.search.document);
  } else {
    read.search.topology = read_topology(object.field("topology"));
    const auto bound = read_nullable<std::int64_t>(
        object.field("lower_bound_ns"),
        [](const Field& number) { return std::optional(required_integer(number, {})); });
    read.search.lower_bound = bound ? Duration{*bound} : Duration::infinite();
  }
  object.finish();
  return read;
}

/// Returns the request without what a search adds to it, and without what requests leave out where
/// it has no effect: that collectives share links, and shares by speed.
PlanRequest asked_of_all(PlanRequest request) {
  request.stopped_by = StopReason::None;
  request.time_limit.reset();
  request.input_warnings.clear();
  if (request.mode.contention == Contention::SharedWithCollectives) {
    request.mode.contention = Contention::Shared;
  }
  request.shares = Shares::Equal;
  return request;
}

/// Records a violation if a plan is not of the model and the request of the first one.
void check_same(const Field& field, const PlanDocument& first, const PlanDocument& document) {
  const auto refuse = [&](const char* what) {
    field.add(fmt::format("expected the {} of the first plan, got another", what));
  };
  if (!document.request) {
    field.add("expected a plan that states its request, got one without");
    return;
  }
  if (&first == &document || !first.request) return;
  if (hash_of(document.original_profile()) != hash_of(first.original_profile())) refuse("model");
  if (document.plan.global_batch_size != first.plan.global_batch_size) refuse("global batch");
  if (asked_of_all(*document.request) != asked_of_all(*first.request)) refuse("request");
  const auto runtime_of = [](const PlanDocument& of) {
    return of.runtime ? hash_of(*of.runtime) : std::string();
  };
  if (runtime_of(document) != runtime_of(first)) refuse("runtime");
}

/// Whether `topology` is the whole one with a limit on the memory of each device.
bool is_limited(const TopologyDescription& topology, const TopologyDescription& whole) {
  TopologyDescription limited = with_memory_limit(whole, memory_limit_of(topology));
  limited.name = topology.name;
  return hash_of(topology) == hash_of(limited);
}

/// Checks that the searches belong together, and that one has a plan.
void check_searches(const Field& field, const ArrayReader& array, Against against,
                    const std::vector<UncheckedSearch>& searches) {
  const PlanDocument* first = nullptr;
  std::optional<Shares> shares;
  for (std::size_t i = 0; i < searches.size(); ++i) {
    const TradeOffSearch& search = searches[i].search;
    const TopologyDescription& whole = searches.front().search.searched_topology();
    if (against == Against::Memory && !is_limited(search.searched_topology(), whole)) {
      array.at(i).add(
          "expected the topology of the first search with a limit on the memory of each device, "
          "got "
          "another");
    }
    if (!search.document) continue;
    const std::optional<PlanRequest>& request = search.document->request;
    // Elsewhere requests leave shares out.
    const bool has_shares =
        request && kinds_in_use(Topology(search.searched_topology())).size() > 1;
    if (has_shares && request->shares != shares.value_or(request->shares)) {
      array.at(i).add("expected the shares that an earlier plan asks for, got others");
    }
    if (has_shares) shares = request->shares;
    if (against == Against::Memory && request && request->ignore_memory) {
      array.at(i).add("expected a plan that fits in memory, got one for unlimited memory");
    }
    if (first == nullptr) first = &*search.document;
    check_same(array.at(i), *first, *search.document);
  }
  if (first == nullptr) field.add("expected a search with a plan, got none");
}

std::vector<UncheckedSearch> read_searches(const Field& field, Against against) {
  const ArrayReader array(field, "an array of searches");
  if (array.size() > kMostSearches) {
    field.add(fmt::format("expected at most {} searches, got {}", kMostSearches, array.size()));
    return {};
  }
  std::vector<UncheckedSearch> searches;
  for (std::size_t i = 0; i < array.size(); ++i) searches.push_back(read_one_search(array.at(i)));
  // After a violation the values that were read are arbitrary.
  if (array.valid() && field.violations()->empty()) check_searches(field, array, against, searches);
  return searches;
}

std::vector<std::size_t> read_front(const Field& field, std::int64_t last) {
  const ArrayReader array(field, "an array of positions of searches");
  std::vector<std::size_t> front;
  if (static_cast<std::int64_t>(array.size()) > last + 1) {
    field.add(fmt::format("expected at most {} positions, got {}", last + 1, array.size()));
    return front;
  }
  for (std::size_t i = 0; i < array.size(); ++i) {
    const std::int64_t position = required_integer(array.at(i), {0, last});
    front.push_back(static_cast<std::size_t>(position));
  }
  return front;
}

TradeOffClaim read_claim(const Field& field) {
  ObjectReader object(field);
  TradeOffClaim claim;
  const auto count_of = [](const Field& number) { return required_integer(number, {}); };
  if (const Field time = object.field("iteration_ns"); time.present())
    claim.iteration = Duration{count_of(time)};
  if (const Field price = object.field("price"); price.present())
    claim.price = read_number(price, {});
  if (const Field memory = object.field("memory_bytes"); memory.present())
    claim.memory = Bytes{count_of(memory)};
  const int count = (claim.iteration ? 1 : 0) + (claim.price ? 1 : 0) + (claim.memory ? 1 : 0);
  if (count > 1) field.add(fmt::format("expected at most one claim, got {}", count));
  object.finish();
  return claim;
}

}  // namespace

void write_claim(JsonWriter& writer, const TradeOffClaim& claim) {
  writer.open_object(Layout::Line);
  if (claim.iteration) writer.key("iteration_ns").integer(claim.iteration->ns);
  if (claim.price) writer.key("price").number(*claim.price);
  if (claim.memory) writer.key("memory_bytes").integer(claim.memory->count);
  writer.close();
}

void write_positions(JsonWriter& writer, const std::vector<std::size_t>& positions) {
  writer.open_array(Layout::Line);
  for (const std::size_t position : positions) {
    writer.integer(static_cast<std::int64_t>(position));
  }
  writer.close();
}

std::string write_trade_off(const TradeOffDocument& document) {
  JsonWriter writer;
  writer.open_object(Layout::Lines);
  writer.key("schema").text(kTradeOffSchema);
  writer.key("tool").text(document.tool);
  write_request(writer, document.request);
  writer.key("searches").open_array(Layout::Lines);
  for (const TradeOffSearch& search : document.searches) write_one_search(writer, search);
  writer.close();
  write_positions(writer.key("front"), document.front);
  writer.key("chosen").integer(static_cast<std::int64_t>(document.chosen));
  write_claim(writer.key("proven"), document.claim);
  writer.close();
  return writer.finish();
}

TradeOffDocument read_trade_off(std::string_view text, const std::string& source_name) {
  std::vector<UncheckedSearch> searches;
  TradeOffDocument document =
      read_document<TradeOffDocument>(text, source_name, [&](const Field& field) {
        ObjectReader object(field);
        TradeOffDocument read;
        if (!check_schema(object, kTradeOffSchema)) return read;
        read.tool = read_name(object.field("tool")).value_or("");
        read.request = read_request(object);
        searches = read_searches(object.field("searches"), read.request.against);
        const Field front = object.field("front");
        const Field chosen = object.field("chosen");
        // Positions among searches that could not be read mean nothing.
        if (const std::int64_t last = std::ssize(searches) - 1; last >= 0) {
          read.front = read_front(front, last);
          read.chosen = static_cast<std::size_t>(required_integer(chosen, {0, last}));
        }
        read.claim = read_claim(object.field("proven"));
        object.finish();
        return read;
      });
  for (UncheckedSearch& unchecked : searches) {
    unchecked.check_digest();
    document.searches.push_back(std::move(unchecked.search));
  }
  return document;
}

}  // namespace dapple::io
