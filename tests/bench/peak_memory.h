// The most memory that this process has held.
#pragma once

#include <fstream>
#include <string>

namespace dapple::small {

/// Makes the process' peak of memory what it holds now. Does nothing where there is no /proc.
inline void forget_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

inline double peak_memory_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stod(line.substr(6)) / 1024.0;
  }
  return 0;
}

}  // namespace dapple::small
