// The commands of dapple-exec, one file each.
#pragma once

#include "dapple/command_line/tool.h"

namespace dapple::exec_app {

command_line::Command profile_command();
command_line::Command replay_command();
command_line::Command train_command();

}  // namespace dapple::exec_app
