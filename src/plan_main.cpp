#include <iostream>
#include <string>
#include <vector>

#include "dapple/app/run.h"

int main(int argc, char** argv) {
  return dapple::app::run(std::vector<std::string>(argv + 1, argv + argc), std::cout, std::cerr);
}
