// Tables of operations that were measured one by one: products and passes of transformer blocks by
// number of tokens and tensor degree, as Vidur's profiles have them.
#pragma once

#include <string>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/estimate/operation.h"

namespace dapple::app {

struct MeasuredOperation {
  /// The file, the line and the operation.
  std::string name;
  estimate::Operation operation;
  Duration time;
};

/// Reads the operations over 1,024 tokens or more of a table; those over fewer are as long as their
/// launches, of which fractions of peaks tell nothing. `text` is that of the file `source_name`.
/// Throws Error(BadInput) with the lines of the first faults: columns that are missing or given
/// twice, rows of another length, values that are none; and for a table without such operations.
/// O(length).
std::vector<MeasuredOperation> read_operations(const std::string& text,
                                               const std::string& source_name);

}  // namespace dapple::app
