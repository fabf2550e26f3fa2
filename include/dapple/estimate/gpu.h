// What a GPU can do at most, and what programs reach of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple::estimate {

/// The number format of activations and parameters.
enum class Precision : std::uint8_t { Fp32, Tf32, Bf16, Fp16 };

inline constexpr Precision kPrecisions[] = {Precision::Fp32, Precision::Tf32, Precision::Bf16,
                                            Precision::Fp16};

/// Returns "fp32", "tf32", "bf16" or "fp16".
std::string_view to_string(Precision precision);

/// Returns the bytes of a number: 4, or 2 for bf16 and fp16.
std::int64_t bytes_of(Precision precision);

/// What programs reach of a GPU's peaks, fitted to measured runs.
struct Calibration {
  std::string name;
  /// The GPU that the runs were measured on.
  std::string gpu;
  /// The fractions of the peak rate of matrix products that products by weights and the core of
  /// attention reach, and that of the memory's bandwidth, above zero and at most one.
  Factor matrix;
  Factor attention;
  Factor memory;
  /// The least time of a layer's forward, as its kernels are launched; of a backward twice that,
  /// and three times if it recomputes the whole layer.
  Duration launch_floor;
  /// By how much each collective of a forward, or of a backward, raises that.
  Duration collective_floor;
  std::string source;
  /// The names of the runs that it was fitted to, and the mean of |estimated / measured - 1| over
  /// them, each estimated by a fit to the runs of other groups; if that is known.
  std::vector<std::string> fitted_runs = {};
  /// The keys of the constants that were fitted to them; the others were kept. Empty if that is not
  /// known.
  std::vector<std::string> fitted_constants = {};
  std::optional<Factor> left_out_error = {};
};

/// What a framework keeps in a GPU's memory beside the model.
struct Framework {
  std::string name;
  /// Whether inputs that sequence parallelism gathers are kept for the backward, rather than
  /// gathered once more.
  bool keeps_gathered_inputs = false;
  /// Whether the activated gate of a gated feed-forward layer is kept beside its product with the
  /// other input, rather than computed once more.
  bool keeps_activated_gates = false;
  /// Whether the output of fused attention is kept twice, in its own layout and in that which the
  /// projection behind it takes.
  bool keeps_core_output_twice = false;
  /// For each parameter on the GPU, in bytes.
  std::int64_t bytes_per_parameter = 0;
  std::string source;
};

/// A GPU's peaks, by its vendor.
struct Gpu {
  /// As topologies name the kind of device.
  std::string name;
  /// The other names by which it is asked for.
  std::vector<std::string> other_names;
  Bytes memory;
  Bandwidth memory_bandwidth;
  /// Operations per nanosecond of dense matrix products, by Precision; nothing where the GPU has no
  /// such units.
  std::optional<std::int64_t> peaks[std::size(kPrecisions)] = {};
  /// The same for 8-bit numbers, which no estimate uses yet.
  std::optional<std::int64_t> fp8_peak = {};
  std::string source;
  /// The name of its calibration, empty without one of its own.
  std::string calibration;

  const std::optional<std::int64_t>& peak(Precision precision) const {
    return peaks[static_cast<std::size_t>(precision)];
  }
};

/// The GPUs that are known, the calibrations, of which the first stands for GPUs without one, and
/// frameworks.
struct GpuTable {
  std::string source = {};
  std::vector<Gpu> gpus;
  std::vector<Calibration> calibrations;
  std::vector<Framework> frameworks = {};

  /// Returns the GPU that has the name or another name, letters' case aside, or nullptr. O(names).
  const Gpu* find(std::string_view name) const;
  /// Adds the GPUs, calibrations and frameworks of another table whose names this one does not
  /// have.
  void add(const GpuTable& other);
  /// Returns the framework that has the name, or nullptr. O(frameworks).
  const Framework* framework(std::string_view name) const;
  /// Returns the calibration of the GPU. Requires: there is a calibration.
  const Calibration& calibration_of(const Gpu& gpu) const;
};

/// Returns the names of GPUs, calibrations or frameworks, with commas between them.
template <class Named>
std::string names_of(const std::vector<Named>& items) {
  std::string names;
  for (const Named& item : items) names += (names.empty() ? "" : ", ") + item.name;
  return names;
}

}  // namespace dapple::estimate
