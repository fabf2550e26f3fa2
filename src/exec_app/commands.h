// The commands of dapple-exec, one file each.
#pragma once

#include "dapple/command_line/tool.h"

namespace dapple {

Command replay_command();

}  // namespace dapple
