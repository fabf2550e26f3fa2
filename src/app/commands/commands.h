// The commands of dapple-plan, one file each.
#pragma once

#include "dapple/command_line/tool.h"

namespace dapple {

Command plan_command();
Command simulate_command();
Command validate_command();
Command verify_command();
Command diff_command();
Command schedule_command();
Command report_command();
Command reschedule_command();
Command export_command();
Command import_command();

}  // namespace dapple
