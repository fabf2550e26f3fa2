// The commands of dapple-plan, one file each.
#pragma once

#include "dapple/command_line/tool.h"

namespace dapple::app {

command_line::Command plan_command();
command_line::Command pareto_command();
command_line::Command simulate_command();
command_line::Command validate_command();
command_line::Command verify_command();
command_line::Command diff_command();
command_line::Command schedule_command();
command_line::Command report_command();
command_line::Command reschedule_command();
command_line::Command export_command();
command_line::Command import_command();
command_line::Command estimate_command();
command_line::Command calibrate_command();

}  // namespace dapple::app
