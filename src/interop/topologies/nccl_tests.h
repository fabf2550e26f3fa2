// Imports the output of nccl-tests (all_reduce_perf and the like): the bus bandwidth that was
// reached, and the times of an all-reduce by message size.
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
  // The number of ranks that the file lists, or else that follows from the ratio of bus bandwidth
  // to algorithm bandwidth; 0 if unknown.
  std::int32_t ranks = 0;
  // The distinct hosts of the listed devices; empty if none are listed.
  std::vector<std::string> hosts;
  // The driver's product name of the first listed device.
  std::string product;
  // The largest bus bandwidth of all rows.
  Bandwidth bus;
  // The message size of the row with that bandwidth.
  Bytes bus_size;
  // The shortest time of an all-reduce for each message size; empty for other collectives.
  std::map<Bytes, Duration> times;
};

bool is_nccl_tests(std::string_view text);

/// Reads the output with old or new columns, of one or several runs, with or without the prefixes
/// of srun. Throws Error(BadInput) if there is no table, a row has other columns, or no bandwidth
/// is above zero. Warns of anything that makes the figures doubtful: wrong results, missing
/// columns, unexpected lines, several runs, noise. O(length).
MeasuredCollective read_nccl_tests(const ForeignFile& file, ImportNotes& notes);

}  // namespace dapple::interop
