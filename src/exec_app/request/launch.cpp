#include "dapple/exec_app/request/launch.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/io/files/read_file.h"
#include "dapple/report/show.h"

namespace dapple::exec_app {
namespace {

constexpr std::int64_t kMostRanks = 1'000'000;
constexpr std::int64_t kMostPorts = 65'535;
/// The ports for jobs are above the ephemeral ports of Linux.
constexpr std::int64_t kFirstPort = 61'440;
constexpr std::int64_t kPorts = 4'096;

Error fault_of(const char* name, const std::string& expected, const char* got) {
  const std::string shown = got ? '"' + printable(got) + '"' : "nothing";
  return {
      ErrorKind::Environment, "", {{name, fmt::format("expected {}, got {}", expected, shown)}}};
}

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (fault != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::int64_t number_in(const EnvironmentLookup& environment, const char* name, std::int64_t least,
                       std::int64_t most) {
  const char* text = environment(name);
  const std::optional<std::int64_t> number = text ? number_of(text) : std::nullopt;
  if (number && *number >= least && *number <= most) return *number;
  throw fault_of(name, fmt::format("a number from {} to {}", least, most), text);
}

/// Returns the first host of a list in Slurm's notation: node03 for "node[03-07,9],login".
std::string first_host(std::string_view list) {
  const std::size_t end = list.find_first_of(",[");
  std::string host(list.substr(0, end));
  if (end == std::string_view::npos || list[end] == ',') return host;
  const std::string_view numbers = list.substr(end + 1);
  host += numbers.substr(0, numbers.find_first_of(",-]"));
  const std::size_t close = numbers.find(']');
  if (close == std::string_view::npos) return host;
  return host + first_host(numbers.substr(close + 1));
}

exec::TcpPlace ranks_of(const EnvironmentLookup& environment, const char* rank, const char* size) {
  exec::TcpPlace place;
  const std::int64_t ranks = number_in(environment, size, 1, kMostRanks);
  place.size = static_cast<int>(ranks);
  place.rank = static_cast<int>(number_in(environment, rank, 0, ranks - 1));
  return place;
}

/// Returns the local rank by the first variable that is set.
std::optional<int> local_rank_in(const EnvironmentLookup& environment,
                                 std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (!environment(name)) continue;
    return static_cast<int>(number_in(environment, name, 0, kMostRanks - 1));
  }
  return std::nullopt;
}

Launch by_mpi(const EnvironmentLookup& environment, std::string_view rank) {
  Launch launch{.rank = static_cast<int>(number_of(rank).value_or(0))};
  launch.local_rank = local_rank_in(environment, {"OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK"});
  const char* task = environment("SLURM_PROCID");
  if (!launch.local_rank && task && task == rank) {
    launch.local_rank = local_rank_in(environment, {"SLURM_LOCALID"});
  }
  return launch;
}

Launch by_torchrun(const EnvironmentLookup& environment) {
  exec::TcpPlace place = ranks_of(environment, "RANK", "WORLD_SIZE");
  const char* address = environment("MASTER_ADDR");
  if (!address || !*address) {
    throw fault_of("MASTER_ADDR", "the address of rank 0's host, or its name", address);
  }
  place.address = address;
  const char* takes_port = environment("TORCHELASTIC_USE_AGENT_STORE");
  const int next = takes_port && std::string_view(takes_port) == "True" ? 1 : 0;
  place.port = static_cast<std::uint16_t>(
      number_in(environment, "MASTER_PORT", 1, kMostPorts - next) + next);
  const int rank = place.rank;
  return {.rank = rank,
          .local_rank = local_rank_in(environment, {"LOCAL_RANK"}),
          .tcp = std::move(place)};
}

std::string slurm_address(const EnvironmentLookup& environment) {
  if (const char* given = environment("MASTER_ADDR")) return given;
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    if (const char* list = environment(name)) return first_host(list);
  }
  const char* address = environment("SLURM_LAUNCH_NODE_IPADDR");
  if (!address) throw fault_of("SLURM_JOB_NODELIST", "the hosts of the job", address);
  return address;
}

std::optional<Launch> by_slurm(const EnvironmentLookup& environment) {
  exec::TcpPlace place = ranks_of(environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  if (place.size == 1) return std::nullopt;
  place.address = slurm_address(environment);
  place.port = static_cast<std::uint16_t>(
      environment("MASTER_PORT")
          ? number_in(environment, "MASTER_PORT", 1, kMostPorts)
          : kFirstPort + number_in(environment, "SLURM_JOB_ID", 0, INT64_MAX) % kPorts);
  const int rank = place.rank;
  return Launch{.rank = rank,
                .local_rank = local_rank_in(environment, {"LOCAL_RANK", "SLURM_LOCALID"}),
                .tcp = std::move(place)};
}

}  // namespace

std::optional<Launch> launch_of(const EnvironmentLookup& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* text = environment(name)) return by_mpi(environment, text);
  }
  if (environment("RANK") && environment("WORLD_SIZE")) return by_torchrun(environment);
  if (environment("SLURM_PROCID") && environment("SLURM_STEP_NUM_TASKS")) {
    return by_slurm(environment);
  }
  return std::nullopt;
}

std::string job_secret(const EnvironmentLookup& environment) {
  constexpr std::size_t kLeast = 16;
  constexpr std::size_t kMost = 4096;
  const char* given = environment(kSecretVariable);
  const char* path = environment(kSecretFileVariable);
  if (!given && !path) return "";
  const auto refuse = [&](std::string message) {
    throw Error(ErrorKind::Environment, "",
                {{given ? kSecretVariable : kSecretFileVariable, std::move(message)}});
  };
  if (given && path) refuse(fmt::format("cannot be used with {}", kSecretFileVariable));
  std::string secret = given ? given : io::read_file(path, kMost);
  if (!given && secret.ends_with('\n')) secret.pop_back();
  if (!given && secret.ends_with('\r')) secret.pop_back();
  if (secret.size() < kLeast || secret.size() > kMost) {
    refuse(
        fmt::format("expected a secret of {} to {} bytes, got {}", kLeast, kMost, secret.size()));
  }
  return secret;
}

}  // namespace dapple::exec_app
