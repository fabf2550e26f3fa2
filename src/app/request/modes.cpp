#include "app/request/modes.h"

#include <fmt/format.h>

#include <string>

#include "dapple/plan/request.h"

namespace dapple::app {
namespace {

constexpr Bytes kLeastMemoryLimit{std::int64_t{64} << 20};

}  // namespace

Contention contention_of(const command_line::Options& options, Contention otherwise) {
  if (!options.has("contention")) return otherwise;
  return options.choice("contention", {"on", "off"}) == "on" ? Contention::Shared : Contention::Off;
}

Replicas replicas_of(const command_line::Options& options, Replicas otherwise) {
  if (!options.has("replicas")) return otherwise;
  const std::string value = options.choice("replicas", {"together", "independent"});
  return value == "together" ? Replicas::Together : Replicas::Independent;
}

Bytes memory_limit_of(const command_line::Options& options) {
  const Bytes limit = options.size("memory-limit").value_or(kDefaultMemoryLimit);
  if (limit >= kLeastMemoryLimit) return limit;
  throw command_line::usage_error("--memory-limit", fmt::format("expected 64 MiB or more, got {}",
                                                                *options.text("memory-limit")));
}

}  // namespace dapple::app
