#include "app/request/modes.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "dapple/core/quantity.h"

namespace dapple::app {
namespace {

constexpr Bytes kLeastMemoryLimit{std::int64_t{64} << 20};

}  // namespace

command_line::OptionSpec contention_option(const std::string& default_value) {
  return {.name = "contention",
          .value = "on|off",
          .choices = {"on", "off"},
          .text = "Let transfers share links, or not.",
          .default_value = default_value};
}

command_line::OptionSpec replicas_option(const std::string& default_value) {
  const std::string together(to_string(Replicas::Together));
  const bool is_together = default_value == together;
  return {.name = "replicas",
          .value = "WAY",
          .choices = {together, "independent"},
          .text = is_together ? "Run replicas together (default) or independent."
                              : "Keep replicas of a stage {}.",
          .default_value = is_together ? "" : default_value,
          .details =
              "Replicas that run together start a micro-batch when all of them can; "
              "independent ones each start when their own share of the input is there."};
}

command_line::OptionSpec memory_limit_option() {
  return {.name = "memory-limit",
          .value = "SIZE",
          .text = "Keep at most SIZE of search data.",
          .default_value = "2 GiB",
          .details =
              "What is kept is counted by the sizes of its elements, so that the result is "
              "the same on any machine. SIZE is 64 MiB or more."};
}

command_line::OptionSpec seed_option() {
  return {.name = "seed",
          .value = "N",
          .text = "Draw the speeds of --jitter from seed N.",
          .default_value = "1"};
}

command_line::OptionSpec json_option() {
  return {.name = "json",
          .text = "Print the result as JSON, not as text.",
          .details =
              "The result is a dapple-result/1, whose faults are those on stderr. The exit "
              "code is the same, and is part of the result."};
}

std::optional<Contention> contention_of(const command_line::Options& options) {
  if (!options.has("contention")) return std::nullopt;
  return options.choice("contention") == "on" ? Contention::SharedWithCollectives : Contention::Off;
}

std::optional<Replicas> replicas_of(const command_line::Options& options) {
  if (!options.has("replicas")) return std::nullopt;
  const bool is_together = options.choice("replicas") == "together";
  return is_together ? Replicas::Together : Replicas::Independent;
}

std::optional<JitterRequest> jitter_request_of(const command_line::Options& options) {
  const std::optional<Factor> deviation = options.fraction("jitter");
  const std::optional<std::int64_t> seed = options.positive_integer("seed", kMaxCount);
  if (seed && !deviation) throw command_line::usage_error("--seed", "needs --jitter");
  if (!deviation) return std::nullopt;
  return JitterRequest{.deviation = *deviation,
                       .seed = static_cast<std::uint64_t>(seed.value_or(1))};
}

Bytes memory_limit_of(const command_line::Options& options) {
  const Bytes limit = options.size("memory-limit").value_or(kDefaultMemoryLimit);
  if (limit >= kLeastMemoryLimit) return limit;
  throw command_line::usage_error("--memory-limit", fmt::format("expected 64 MiB or more, got {}",
                                                                *options.text("memory-limit")));
}

}  // namespace dapple::app
