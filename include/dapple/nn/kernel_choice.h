// Selects the kernels that compute: matrix products and the other time-consuming functions,
// compiled for several instruction sets. The choice applies to the whole process.
//
// The results of two sets differ by rounding, in matrix products only. The results of one set are
// bit-identical for the same shapes on one machine; those of "portable" are bit-identical on every
// machine, at a third of the speed or less.
#pragma once

#include <string_view>
#include <vector>

namespace dapple::nn {

/// Returns the names of the kernels that this processor can run, fastest first: a subset of
/// "avx512", "avx2" and "baseline", and always "portable" as the last. The first is in use unless
/// another is chosen.
std::vector<std::string_view> kernel_names();

std::string_view kernels_in_use();

/// Switches to the kernels of that name and returns true; returns false and changes nothing if
/// kernel_names() does not contain it. Requires: nothing is being computed.
bool use_kernels(std::string_view name);

}  // namespace dapple::nn
