// The commands of dapple-exec, one file each.
#pragma once

#include "dapple/command_line/tool.h"

namespace dapple {

Command profile_command();
Command replay_command();
Command train_command();

}  // namespace dapple
