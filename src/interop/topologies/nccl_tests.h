// Output of nccl-tests (all_reduce_perf and its sisters): the bus bandwidth that was reached, and
// the time of an all-reduce by the size of its message.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "interop/topologies/server_wiring.h"

namespace dapple::interop {

struct MeasuredCollective {
  std::string file;
  std::int32_t ranks = 0;          // listed, or by the ratio of the two bandwidths
  std::vector<std::string> hosts;  // of the devices that it lists, each once; empty: none listed
  std::string product;             // of the first
  Bandwidth bus;                   // the largest of all rows
  Bytes bus_size;                  // and the size of its message
  /// Of all-reduces, by rising size: the quickest run of each. Empty of other collectives.
  std::map<Bytes, Duration> times;
};

bool is_nccl_tests(std::string_view text);

/// Old and new sets of columns, one run or many, prefixed by srun or not. Throws Error(BadInput):
/// no table, a row with other columns, no bandwidth above zero. Warns of what makes the figure
/// doubtful: wrong results, half the columns, strange lines, many runs, noise. O(length).
MeasuredCollective read_nccl_tests(const ForeignFile& file, ImportNotes& notes);

}  // namespace dapple::interop
