#include <iostream>
#include <string>
#include <vector>

#include "dapple/exec_app/run.h"

int main(int argc, char** argv) {
  return dapple::exec_app::run_exec(std::vector<std::string>(argv + 1, argv + argc), std::cout,
                                    std::cerr);
}
