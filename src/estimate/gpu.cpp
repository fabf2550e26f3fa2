#include "dapple/estimate/gpu.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "dapple/core/error.h"

namespace dapple::estimate {
namespace {

bool is_same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char letter) { return std::tolower(static_cast<unsigned char>(letter)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

std::string_view to_string(Precision precision) {
  switch (precision) {
    case Precision::Fp32:
      return "fp32";
    case Precision::Tf32:
      return "tf32";
    case Precision::Bf16:
      return "bf16";
    case Precision::Fp16:
      return "fp16";
  }
  check(false, "a precision without a name");
  return {};
}

std::int64_t bytes_of(Precision precision) {
  return precision == Precision::Fp32 || precision == Precision::Tf32 ? 4 : 2;
}

const Gpu* GpuTable::find(std::string_view name) const {
  const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) {
    return is_same_name(gpu.name, name) ||
           std::any_of(gpu.other_names.begin(), gpu.other_names.end(),
                       [&](const std::string& other) { return is_same_name(other, name); });
  });
  return found == gpus.end() ? nullptr : &*found;
}

void GpuTable::add(const GpuTable& other) {
  for (const Calibration& calibration : other.calibrations) {
    const bool is_known =
        std::any_of(calibrations.begin(), calibrations.end(),
                    [&](const Calibration& some) { return some.name == calibration.name; });
    if (!is_known) calibrations.push_back(calibration);
  }
  for (const Framework& other_framework : other.frameworks) {
    if (framework(other_framework.name) == nullptr) frameworks.push_back(other_framework);
  }
  for (const Gpu& gpu : other.gpus) {
    if (find(gpu.name) != nullptr) continue;
    Gpu added = gpu;
    std::erase_if(added.other_names,
                  [&](const std::string& name) { return find(name) != nullptr; });
    gpus.push_back(std::move(added));
  }
}

const Framework* GpuTable::framework(std::string_view name) const {
  const auto found = std::find_if(frameworks.begin(), frameworks.end(),
                                  [&](const Framework& some) { return some.name == name; });
  return found == frameworks.end() ? nullptr : &*found;
}

const Calibration& GpuTable::calibration_of(const Gpu& gpu) const {
  check(!calibrations.empty(), "no calibration of GPUs");
  const auto found =
      std::find_if(calibrations.begin(), calibrations.end(),
                   [&](const Calibration& some) { return some.name == gpu.calibration; });
  return found == calibrations.end() ? calibrations.front() : *found;
}

}  // namespace dapple::estimate
