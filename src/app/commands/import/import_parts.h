// What import makes of other tools' files, one file each.
#pragma once

#include "dapple/command_line/tool.h"

namespace dapple {

Command import_topology_command();
Command import_model_command();
Command import_plan_command();

}  // namespace dapple
