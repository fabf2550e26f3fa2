#include <iostream>
#include <string>
#include <vector>

#include "dapple/app/run.h"
#include "dapple/command_line/freed_memory.h"

int main(int argc, char** argv) {
  dapple::command_line::keep_freed_memory();
  return dapple::app::run(std::vector<std::string>(argv + 1, argv + argc), std::cout, std::cerr);
}
