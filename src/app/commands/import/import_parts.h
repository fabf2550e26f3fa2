// The parts of the command import, one file each.
#pragma once

#include "dapple/command_line/tool.h"

namespace dapple::app {

command_line::Command import_topology_command();
command_line::Command import_model_command();
command_line::Command import_plan_command();

}  // namespace dapple::app
