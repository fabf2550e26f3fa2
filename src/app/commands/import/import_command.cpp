#include <fmt/format.h>

#include "app/commands/commands.h"
#include "app/commands/import/import_parts.h"
#include "dapple/interop/plans/foreign_plan.h"
#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/interop/topologies/foreign_topology.h"

namespace dapple::app {
namespace {

template <class Format>
std::string tools_of(const std::vector<interop::ForeignFormat<Format>>& formats) {
  return fmt::format("{}",
                     fmt::join(names_of(formats, &interop::ForeignFormat<Format>::tools), ", "));
}

}  // namespace

std::string imports_text() {
  return fmt::format("imports topologies of {}\nimports profiles of {}\nimports plans of {}\n",
                     tools_of(interop::topology_formats()), tools_of(interop::model_formats()),
                     tools_of(interop::plan_formats()));
}

command_line::Command import_command() {
  return {.description =
              {.name = "import",
               .summary = "import topologies, profiles and plans of other tools",
               .usage = {"dapple-plan import KIND FILE... [options]"},
               .about = "\"dapple-plan import KIND --help\" shows the options of each kind.",
               .terms_title = "Kinds",
               .terms = {{"topology",
                          "how devices are wired: " + tools_of(interop::topology_formats())},
                         {"model", "profiles: " + tools_of(interop::model_formats())},
                         {"plan", "plans: " + tools_of(interop::plan_formats())}},
               .examples = {"dapple-plan import topology tests/golden/interop/ring.astra.yml \\",
                            "    --device card --memory \"16 GiB\" -o ring.json"}},
          .parts = {import_topology_command(), import_model_command(), import_plan_command()}};
}

}  // namespace dapple::app
