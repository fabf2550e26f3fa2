// Which kernels compute: products of matrices and what else takes the time, compiled for several
// instruction sets. Chosen for the whole process.
//
// Results of two sets differ by rounding, in products alone. Those of one set are the same bits for
// the same shapes on one machine; those of "portable" are so on every machine, for a third of the
// speed or less.
#pragma once

#include <string_view>
#include <vector>

namespace dapple::nn {

/// What this processor can run, the quickest first, among "avx512", "avx2", "baseline" and, always
/// last, "portable". The first is in use unless another is chosen.
std::vector<std::string_view> kernel_names();

std::string_view kernels_in_use();

/// Whether it is one of the names; else nothing changes. Requires: nothing is being computed.
bool use_kernels(std::string_view name);

}  // namespace dapple::nn
