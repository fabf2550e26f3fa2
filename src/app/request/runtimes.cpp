#include "app/request/runtimes.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "app/request/for_target.h"
#include "dapple/command_line/files.h"
#include "dapple/core/characters.h"
#include "dapple/io/files/read_file.h"
#include "dapple/io/runtime/runtime_document.h"
#include "dapple/plan/least_depth.h"
#include "dapple/report/show.h"

namespace dapple::app {

command_line::OptionSpec runtime_option(const std::string& text) {
  return {.name = "runtime",
          .value = "NAME|FILE",
          .text = text,
          .details =
              "It says whether a stage computes while it sends and receives, whether "
              "gradients are reduced during the last backward, which depths there are, and "
              "what is kept in memory; and for configurations how the vocabulary is padded, "
              "whether there is sequence parallelism, how context ranks exchange keys and "
              "values, and how tokens reach their experts. profiles/runtimes has deepspeed, "
              "megatron, nanotron, "
              "nanotron-ddp, torchtitan and dapple-exec; others are described by a file "
              "(docs/formats.md)."};
}

std::optional<Runtime> runtime_of(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  std::string known;
  for (Runtime& runtime : io::shipped_runtimes()) {
    if (runtime.name == target_named(*name)) return std::move(runtime);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", runtime.name);
  }
  // The names of files have a point or a slash, so that a name that is misspelt is not taken for
  // one.
  if (name->find_first_of("./") == std::string::npos) {
    throw command_line::usage_error(
        "--runtime", fmt::format("expected one of {}, or a file such as own.json, got \"{}\"",
                                 known, printable(*name)));
  }
  command_line::check_inputs({{"--runtime", *name}});
  return io::read_runtime(io::read_file(*name), command_line::source_name(*name));
}

void reserve(const Runtime& runtime, TopologyDescription& topology) {
  for (const DeviceKind& kind : topology.devices) {
    if (runtime.reserved < kind.memory) continue;
    throw Error{ErrorKind::BadInput,
                "--runtime",
                {{"/reserved",
                  fmt::format("expected less than the {} of {}, got {}", report::show(kind.memory),
                              printable(kind.name), report::show(runtime.reserved))}}};
  }
  apply(runtime, topology);
}

void run_on(const Runtime& runtime, PlanDocument& document) {
  document.runtime = runtime;
  Plan& plan = document.plan;
  plan.gradients.overlaps = runtime.overlaps_gradients;
  plan.boundaries = runtime.boundaries;
  if (!runtime.has_least_depths || plan.family != ScheduleFamily::OneFOneB) return;
  for (std::size_t s = 0; s < plan.warmup_depths.size(); ++s) {
    plan.warmup_depths[s] = least_depth(index_at<StageIndex>(s), plan.stages.size(),
                                        most_micro_batches_of(plan, plan.stages[s]));
  }
}

void check_mode(const Plan& plan, SimulationMode mode, const std::string& source) {
  std::vector<Violation> faults = mode_faults(plan, mode);
  if (!faults.empty()) throw Error{ErrorKind::BadInput, source, std::move(faults)};
}

}  // namespace dapple::app
